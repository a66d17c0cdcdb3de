"""One look at all rows in chunks, which finds what is known at once of rows in memory.

It refuses vectors that are no numbers to work with. It finds sizes, the rows that nothing can meet, and the
few rows that decide whether all of them can be weighed in double precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import RowsError
from nearwise._common.types import Array, Index
from nearwise._common.warning import warn
from nearwise.core.binding import Weighed, lost_rows
from nearwise.core.chunks import Batch, Chunk, Terms
from nearwise.distributed.running import Runner
from nearwise.distributed.vectors import Vectors
from nearwise.linalg.magnitudes import median
from nearwise.side.blocks import Constraints
from nearwise.side.left_out import LeftOutWarning

# Rows whose sizes are kept for medians, 16 bytes each; of more rows, every k-th. Medians decide units alone,
# and those of so many are good to 0.1 %.
KEPT = 1 << 20

ROW = np.dtype(
    [
        ("number", "i8"),
        ("relation", "i1"),
        ("definite", "?"),
        ("size", "f8"),
        ("bound", "f8"),
        ("weight", "f8"),
    ]
)


class Survey(NamedTuple):
    """What a look at all rows finds.

    Attributes
    ----------
    weight : of all rows together
    median_size : of the rows that measure something; 1 where none does
    typical_size : of all rows, each as often as its weight says
    lost : rows whose value is zero for every matrix, and that do not allow it, ascending
    extreme : rows whose bounds and sizes are the most out of proportion, of the type `ROW`
    """

    weight: float
    median_size: float
    typical_size: float
    lost: Index
    extreme: NDArray[Any]

    def weighed(self, gamma: float) -> Weighed:
        """The extreme rows at a penalty."""
        names = "relation", "definite", "size", "bound", "weight"
        relations, definite, sizes, bounds, weights = (self.extreme[name] for name in names)
        return Weighed(relations, definite, sizes, bounds, gamma * weights)

    def warn_of_lost(self, constraints: Constraints) -> None:
        """Warn of rows that nothing can meet."""
        if len(self.lost):
            reason = f" ({constraints.stated(int(self.lost[0]))}: its value is always 0)"
            warn(LeftOutWarning.of(constraints, self.lost, reason))


class _Found(NamedTuple):
    """Of a chunk: weight; sizes and weights of every k-th row; rows that are lost, extreme, no numbers."""

    weight: float
    kept: Array
    lost: Index
    extreme: NDArray[Any]
    wrong: Index


def surveyed(
    runner: Runner, constraints: Constraints, filled: Constraints, vectors: Vectors, terms: Terms
) -> Survey:
    """Look at all rows once; an error names the first row whose vectors are no numbers to work with.

    Parameters
    ----------
    runner : the rows in chunks
    constraints, filled : the rows as they were stated, and by row number of the vectors, with all bounds
    terms : how rows are sized
    """
    found = runner.run(survey_of, terms, -(-len(constraints) // KEPT))
    none = _Found(0.0, np.empty((0, 2)), np.empty(0, np.int64), np.empty(0, ROW), np.empty(0, np.int64))
    columns = list(zip(none, *found, strict=True))
    kept, lost, extreme, wrong = map(np.concatenate, columns[1:])
    if len(wrong):
        reason = "its vectors have entries that are not finite, or whose squares overflow"
        place = _place(filled, int(wrong[0]), vectors)
        raise RowsError([constraints.stated(int(wrong[0]))], after=f": {reason}{place}")
    sizes, weights = kept.T
    measures = sizes > 0
    middle = median(sizes[measures]) if measures.any() else 1.0
    typical = median(np.where(measures, sizes, middle), weights) if measures.any() else 1.0
    return Survey(float(sum(columns[0])), middle, typical, lost, extreme)


@np.errstate(all="ignore")
def survey_of(chunk: Chunk, terms: Terms, stride: int) -> _Found:
    """Look at all rows of a chunk once, and keep every k-th."""
    rows = np.concatenate([_looked_at(batch, terms) for batch in chunk.batches(terms.basis)])
    number, size = rows["number"], rows["size"]
    is_lost = lost_rows(rows["relation"], rows["bound"], size)
    return _Found(
        weight=float(rows["weight"].sum()),
        kept=np.column_stack([size, rows["weight"]])[number % stride == 0],
        lost=number[is_lost],
        extreme=_extreme(rows[(size > 0) & ~is_lost], terms.divergence.degree or 0.0),
        wrong=number[~np.isfinite(size)][:1],
    )


def _looked_at(batch: Batch, terms: Terms) -> NDArray[Any]:
    block, rows = batch.block, np.empty(len(batch.numbers), ROW)
    rows["number"], rows["relation"], rows["definite"] = batch.numbers, block.relation, batch.is_definite
    rows["size"], rows["bound"], rows["weight"] = terms.sizes(batch), block.bounds, block.counts
    return rows


def _extreme(rows: NDArray[Any], degree: float) -> NDArray[Any]:
    """Those with the largest and the smallest bound beside their size, and cost."""
    if not len(rows):
        return rows
    ratio = np.abs(rows["bound"]) / rows["size"]
    limits_square = rows["definite"] & (rows["bound"] > 0) & (rows["relation"] <= 0)
    small = np.where(limits_square, ratio, np.inf)
    cost = rows["weight"] * np.maximum(rows["size"], np.abs(rows["bound"])) ** degree
    return rows[np.unique([ratio.argmax(), small.argmin(), cost.argmax(), cost.argmin()])]


def _place(filled: Constraints, row: int, vectors: Vectors) -> str:
    """Where the first vector is that is not finite, of those that a row names; nothing if all are."""
    stated = filled.stated(row)
    objects = np.asarray(stated.block.object_ids[[stated.place]][0], dtype=np.int64)
    bad = ~np.isfinite(vectors.take(objects)).all(axis=1)
    return f" ({vectors.place(int(objects[bad][0]))})" if bad.any() else ""
