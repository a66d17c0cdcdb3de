"""What a model of `nearwise learn` keeps of the data that it learned from: which rows, and what they were.

It is kept by the learner, so that it goes into the model file. By `Memory` other files are read in the same
way, and `nearwise info` says what a model is. By `Seen` rows that were learned from are known again: a figure
that is measured on them flatters a model. A fingerprint of 8 bytes of each tells them without keeping them.
Of very many rows those with the smallest fingerprints are kept, which are a random sample: of other rows,
too, those with such small ones can be judged, and the share among them is that among all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearwise.data.tables import Table

MOST = 1 << 17  # fingerprints in a model file: 1 MB
_MEMORY, _FINGERPRINTS, _COUNT = "memory_", "row_fingerprints_", "n_rows_learned_"


@dataclass(frozen=True, eq=False)
class Memory:
    """Names of columns, what was in them, and what came out.

    Attributes
    ----------
    source : the data, as the user named them
    columns : the columns that are features, in order; "x0", "x1", ... where the file has no names
    named : whether these are the file's own
    kinds : what each of them holds, as in `Table.kinds`
    missing : what is done about missing values, as in `Table.missing`
    vector_column : the one column that holds vectors, or None
    id_column, label_column : their names, or None
    study : settings, figures and outcome, as `Outcome.as_json` has them, but for times
    """

    source: str
    columns: tuple[str, ...]
    named: bool
    kinds: tuple[str, ...]
    missing: str
    vector_column: str | None
    id_column: str | None
    label_column: str | None
    study: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, study: Mapping[str, Any]) -> Self:
        """Of a table that was learned from, and what the study of it found."""
        return cls(
            source=table.source,
            columns=table.names if table.scalars else (),
            named=table.named,
            kinds=(table.kinds or ("number",) * len(table.names)) if table.scalars else (),
            missing=table.missing,
            vector_column=table.vector_column,
            id_column=table.id_column,
            label_column=table.label_column,
            study=study,
        )

    @classmethod
    def in_model(cls, learner: Any) -> Self | None:
        """What a learner of a model file remembers; None where it does not."""
        found = getattr(learner, _MEMORY, None)
        return found if isinstance(found, cls) else None

    def keep(self, learner: Any) -> None:
        """Let a learner remember it."""
        setattr(learner, _MEMORY, self)

    @property
    def kind_of(self) -> dict[str, str]:
        """The kind of every column, by name."""
        return dict(zip(self.columns, self.kinds, strict=True))


@dataclass(frozen=True, eq=False)
class Seen:
    """The rows that a model learned from.

    Attributes
    ----------
    fingerprints : in ascending order; the smallest, where there are more than `MOST`
    n_rows : how many different rows there are
    """

    fingerprints: NDArray[np.uint64]
    n_rows: int

    @classmethod
    def of(cls, X: NDArray[Any]) -> Self:
        """Of rows that a model learns from."""
        found = np.unique(_fingerprints(X))
        return cls(found[:MOST], len(found))

    @classmethod
    def in_model(cls, learner: Any) -> Self | None:
        """What a learner of a model file keeps; None where it keeps nothing."""
        found = getattr(learner, _FINGERPRINTS, None)
        return None if found is None else cls(found, getattr(learner, _COUNT))

    def keep(self, learner: Any) -> None:
        """Let a learner keep it."""
        setattr(learner, _FINGERPRINTS, self.fingerprints)
        setattr(learner, _COUNT, self.n_rows)

    @property
    def is_sample(self) -> bool:
        return len(self.fingerprints) < self.n_rows

    def judge(self, X: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of some rows can be judged, and which of them were learned from."""
        found = _fingerprints(X)
        judged = np.ones(len(X), dtype=bool)
        if self.is_sample:
            judged = found <= self.fingerprints[-1]
        return judged, np.isin(found, self.fingerprints)


def _fingerprints(X: NDArray[Any]) -> NDArray[np.uint64]:
    """Of 8 bytes each, as model files hold them; `digest` is of 32."""
    rows: Iterable[Any]
    if X.dtype == object:  # with texts in it
        rows = (repr(row).encode() for row in X.tolist())
    else:
        rows = np.ascontiguousarray(X + 0.0, dtype="<f8")  # -0.0 and 0.0 are one number
    digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
