"""Which rows a model has learned from: a model file keeps a fingerprint of each, of 8 bytes.

A figure that is measured on rows that were learned from flatters a model. Fingerprints tell these rows
without keeping them. Of very many rows those with the smallest fingerprints are kept, which are a random
sample: of other rows, too, those with such small ones can be judged, and the share among them is that among
all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

MOST = 1 << 17  # fingerprints in a model file: 1 MB


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


_FINGERPRINTS, _COUNT = "row_fingerprints_", "n_rows_learned_"


def _fingerprints(X: NDArray[Any]) -> NDArray[np.uint64]:
    """Of 8 bytes each, as model files hold them; `digest` is of 32."""
    rows: Iterable[Any]
    if X.dtype == object:  # with texts in it
        rows = (repr(row).encode() for row in X.tolist())
    else:
        rows = np.ascontiguousarray(X + 0.0, dtype="<f8")  # -0.0 and 0.0 are one number
    digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
