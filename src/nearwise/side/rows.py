"""`Rows`: what a block of constraints can do with its rows, whether they are in memory or in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearwise._common.columns import ROWS_AT_A_TIME, ColumnWriter, Constant, Stored
from nearwise._common.reading import Ids
from nearwise._common.types import Array
from nearwise.side.kinds import KINDS, Kind
from nearwise.side.matrices import Linear, ReadOnly


@dataclass(frozen=True, eq=False)
class Rows(ReadOnly):
    """Constraint rows of one kind and one relation, stored by column.

    Attributes
    ----------
    kind : its name in `kinds.KINDS`: "distance", "comparison", "similarity" or "linear"
    relation : -1 for "<=", +1 for ">=", 0 for "=="
    ids : (m, 2) array of int64 or str; (m, 4) for comparisons, whose rows (i, j, k, l) mean
        d(i, j) - d(k, l) <= bound; linear: (n,), the objects of the rows of every matrix, or None for
        the objects 0, ..., n - 1, which then are all objects
    bounds : (m,) float64 array; NaN stands for "filled from the data"
    matrices : one `Linear` per row; empty unless the kind is "linear"
    weights : (m,) float64 array, how much a violation of every row counts; None where all count 1
    drawn : whether nearwise drew the rows from labels, so that nobody chose them

    Where there are more rows than memory has room for, ids are `Stored` in a file, and bounds and weights are
    too, or `Constant`: `between` and `part` take some of the rows, `loaded` has them in memory.
    """

    kind: str
    relation: int
    ids: Ids | None
    bounds: Array
    matrices: tuple[Linear, ...] = ()
    weights: Array | None = None
    drawn: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"{self.kind!r} is no kind of constraint; kinds are {known}")
        super().__post_init__()

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def object_ids(self) -> Ids:
        """`ids`, with the objects 0, ..., n - 1 written out where it is None."""
        return np.arange(self.matrices[0].size) if self.ids is None else self.ids

    @property
    def of_kind(self) -> Kind:
        """The atoms, words and grading of its kind."""
        return KINDS[self.kind]

    @property
    def counts(self) -> Array:
        """The weights, also where all are 1."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def part(self, rows: NDArray[np.int64]) -> Self:
        """Some of the rows."""
        ids = self.ids if self.of_kind.shares_objects or self.ids is None else self.ids[rows]
        matrices = tuple(self.matrices[row] for row in rows) if self.matrices else ()
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, ids=ids, bounds=self.bounds[rows], matrices=matrices, weights=weights)

    @property
    def stored_ids(self) -> Stored | None:
        """Where its rows are in a file; None where they are in memory."""
        ids: Any = self.ids
        return ids if isinstance(ids, Stored) else None

    @property
    def is_stored(self) -> bool:
        """Whether its rows are in a file."""
        return isinstance(self.ids, Stored)

    @property
    def has_open_bounds(self) -> bool:
        """Whether some are filled from the data."""
        bounds: Any = self.bounds
        if isinstance(bounds, Constant):
            return bool(np.isnan(bounds.value))
        return not self.is_stored and bool(np.isnan(self.bounds).any())  # a column in a file has them all

    def bound_chunks(self) -> Iterator[tuple[int, Array]]:
        """The bounds in memory, some at a time, each with the number of the first row.

        A bound that all rows have comes once.
        """
        bounds: Any = self.bounds
        if isinstance(bounds, Stored):
            yield from ((low, np.asarray(part)) for low, part in bounds.chunks())
        else:
            yield 0, np.asarray(bounds[:1]) if isinstance(bounds, Constant) else bounds

    @property
    def total_weight(self) -> float:
        """Of all rows together."""
        if self.weights is None:
            return float(len(self))
        return float(sum(float(part.counts.sum()) for _, part in self.chunks()))

    def between(self, low: int, high: int) -> Self:
        """Consecutive rows, for kinds that name their objects row by row; nothing is copied or read."""
        ids = None if self.ids is None else self.ids[low:high]
        weights = None if self.weights is None else self.weights[low:high]
        return replace(self, ids=ids, bounds=self.bounds[low:high], weights=weights)

    def loaded(self) -> Self:
        """The same in memory."""
        if not self.is_stored:
            return self
        weights = None if self.weights is None else np.asarray(self.weights)
        return replace(self, ids=np.asarray(self.ids), bounds=np.asarray(self.bounds), weights=weights)

    def by_number(self) -> tuple[Self, Ids | None]:
        """With the numbers as which texts are stored as ids, and the texts; None where there are none."""
        ids = self.stored_ids
        if ids is None or ids.texts is None:
            return self, None
        numbers: Any = replace(ids, texts=None)
        return replace(self, ids=numbers), ids.texts

    def with_texts(self, texts: Ids | None) -> Self:
        """The inverse of `by_number`."""
        if texts is None:
            return self
        stored = self.stored_ids
        ids: Any = texts[self.object_ids] if stored is None else replace(stored, texts=texts, span=None)
        return replace(self, ids=ids)

    def chunks(self) -> Iterator[tuple[int, Self]]:
        """All rows in memory, some at a time, each with the number of the first."""
        if self.of_kind.shares_objects:
            yield 0, self
            return
        for low in range(0, len(self), ROWS_AT_A_TIME):
            yield low, self.between(low, low + ROWS_AT_A_TIME).loaded()

    def rewritten(self, job: Callable[[Self], Self], *changed: str) -> Self:
        """What a job makes of its rows, which may be fewer; those in a file are given to it in parts.

        `changed` are the columns besides ids that it changes. What is few in the end is in memory.
        """
        if (ids := self.stored_ids) is None:
            return job(self)
        writer = ColumnWriter(None if ids.folder is None else ids.folder.parent)
        span = [np.iinfo(np.int64).max, np.iinfo(np.int64).min]
        try:
            for _, part in self.chunks():
                made, columns = job(part), dict[str, Any]()
                named = made.object_ids
                if named.size and named.dtype.kind == "i":
                    span = [min(span[0], int(named.min())), max(span[1], int(named.max()))]
                for name in ("bounds", "weights"):
                    is_constant = isinstance(getattr(self, name), Constant) and name not in changed
                    if getattr(made, name) is not None and not is_constant:
                        columns[name] = getattr(made, name)
                writer.append(ids=named, **columns)
            columns = dict(writer.columns())
        finally:
            writer.close()
        count = len(columns["ids"])
        columns["ids"] = replace(columns["ids"], span=(span[0], span[1]))
        for name in ("bounds", "weights"):
            if isinstance(known := getattr(self, name), Constant) and name not in changed:
                columns[name] = Constant(known.value, count)
        found = replace(self, **columns)
        return found.loaded() if count <= ROWS_AT_A_TIME else found
