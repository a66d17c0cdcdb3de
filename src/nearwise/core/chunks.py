"""Chunks of constraints whose vectors need not be in memory, and their rows, a batch at a time.

A chunk is a run of constraint rows: small enough to be sent, and the work of one thread. Vectors are gathered
for a few thousand rows at a time, so that a pass over m rows costs O(m r^2) and needs no memory that grows
with m. Single precision is widened before vectors are subtracted, so that a large part that all of them have
in common costs no digits. Buffers are kept from batch to batch: Dask's workers give freed memory back to the
system, and asking for it anew takes as long as the products that are written into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nearwise._common.memory import scratch
from nearwise._common.types import Array, Index, Mask
from nearwise.core.atoms import is_rounding, lengths
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows
from nearwise.core.slacks import LARGEST, TINY
from nearwise.distributed.vectors import Stacked, Vectors
from nearwise.side.blocks import Block

# About as many chunks are cut, within these limits of their rows. Chunks of fewer rows spend their time on
# being sent; larger ones cost a cluster too much when a worker dies.
CHUNKS = 256
FEWEST, MOST = 1 << 13, 1 << 20

# In the vectors of a batch: 2 MB. A pass over 300,000 pairs x 64 takes half more time with 1 << 15, and with
# 1 << 21 as much, and eight times the memory.
NUMBERS = 1 << 18


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of the constraints.

    Attributes
    ----------
    start : the number of the first row among all constraints
    blocks : the rows, with row numbers of `vectors` as ids and without open bounds
    vectors : rows of features
    """

    start: int
    blocks: tuple[Block, ...]
    vectors: Vectors

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def objects(self) -> Index:
        """The rows of the vectors that it names, ascending."""
        named = [np.asarray(block.object_ids).ravel() for block in self.blocks]
        return np.unique(np.concatenate([np.empty(0, np.int64), *named]))

    def files(self) -> list[str]:
        """In which its rows are; none where they are in memory."""
        return [ids.path for block in self.blocks if (ids := block.stored_ids) is not None]

    def renumbered(self, objects: Index) -> Chunk:
        """The same for vectors of which only these rows are left; it holds none."""
        loaded = [block.loaded() for block in self.blocks]
        blocks = [replace(block, ids=np.searchsorted(objects, block.object_ids)) for block in loaded]
        return Chunk(self.start, tuple(blocks), Stacked([np.empty((0, self.vectors.shape[1]))]))

    def holding(self, vectors: Vectors) -> Chunk:
        """The same with other vectors."""
        return replace(self, vectors=vectors)

    def batches(self, basis: Array | None, numbers: Index | None = None) -> Iterator[Batch]:
        """All rows, or those with these ascending numbers, a batch at a time.

        The vectors of a batch are where those of the next one will be.
        """
        start, width = self.start, max(self.vectors.shape[1], 1)
        for block in self.blocks:
            end = start + len(block)
            if numbers is None:
                own, chosen = np.arange(start, end), block.loaded()
            else:
                own = numbers[slice(*np.searchsorted(numbers, [start, end]))]
                chosen = block.part(own - start)
            step = max(NUMBERS // (width * max(block.of_kind.n_distances, 1)), 64)
            for low in range(0, len(own), step):
                few = chosen.between(low, low + step)
                yield Batch(own[low : low + step], few, *_gathered(few, self.vectors, basis))
            start = end


def cut(blocks: tuple[Block, ...], vectors: Vectors) -> tuple[list[Chunk], Index]:
    """Chunks of resolved constraints without open bounds; the number of each first row, and of all rows.

    They depend on the number of rows alone, so that sums over them have the same bits however many workers
    there are and however the data are stored.
    """
    m = sum(map(len, blocks))
    size = int(np.clip(-(-m // CHUNKS), FEWEST, MOST))
    ends = np.cumsum([0, *map(len, blocks)]).tolist()
    starts = np.append(np.arange(0, m, size), m)
    found = []
    for low, high in itertools.pairwise(starts.tolist()):
        own = []
        for block, (begin, end) in zip(blocks, itertools.pairwise(ends), strict=True):
            if (a := max(low, begin)) < (b := min(high, end)):
                own.append(block.between(a - begin, b - begin))
        found.append(Chunk(low, tuple(own), vectors))
    return found, starts


class Batch(NamedTuple):
    """Rows of one block, written out in the coordinates of the features.

    Attributes
    ----------
    numbers : of the rows, among all constraints
    block : the rows as they are stated
    rows : the same as a linear map
    is_definite : which are positive semidefinite whatever the features are
    """

    numbers: Index
    block: Block
    rows: Rows
    is_definite: Mask

    def images(self, B: Array, into: str = "images") -> tuple[Array, Array]:
        """B^T x and B^T y of all atoms, in memory that is kept by this name."""
        x, y = self.rows.x, self.rows.y
        left = np.matmul(x, B, out=scratch(into, (len(x), B.shape[1])))
        if y is x:
            return left, left
        return left, np.matmul(y, B, out=scratch(f"{into} of y", (len(y), B.shape[1])))

    def values(self, images: tuple[Array, Array]) -> Array:
        """<A_i, B B^T> of the rows."""
        rows, inner = self.rows, np.einsum("ij,ij->i", *images)
        sums = np.bincount(rows.row_of_atoms, rows.coefficient * inner, rows.n_rows)
        return sums.astype(np.float64, copy=False)

    def adjoint(self, w: Array) -> Array:
        """sum_i w_i A_i."""
        if self.rows.y is not self.rows.x:
            return self.product(w, (self.rows.x, self.rows.y))
        c = self.rows.coefficient * w[self.rows.row_of_atoms]
        return self._sum_of_squares(c) - self._sum_of_squares(-c)

    def product(self, w: Array, images: tuple[Array, Array]) -> Array:
        """sum_i w_i A_i B, of the images under B."""
        x, y, (left, right) = self.rows.x, self.rows.y, images
        c = self.rows.coefficient * w[self.rows.row_of_atoms]
        used = np.flatnonzero(c)
        weights = c[used, None]
        total = x[used].T @ (weights * right[used])
        return np.asarray(total if y is x else (total + y[used].T @ (weights * left[used])) / 2)

    def _sum_of_squares(self, c: Array) -> Array:
        """sum_t c_t x_t x_t^T over c_t > 0: BLAS multiplies x^T x in half the time of other products."""
        used = np.flatnonzero(c > 0)
        x = self.rows.x
        x = np.take(x, used, axis=0, out=scratch("used", (len(used), x.shape[1])), mode="clip")
        x *= np.sqrt(c[used])[:, None]
        return np.asarray(x.T @ x)


@dataclass(frozen=True, eq=False)
class Terms:
    """What rows measure and cost: all that sums over the same rows depend on, beside the point.

    Attributes
    ----------
    divergence : from which slacks take their costs
    reference : eigenvalues under which rows are sized
    basis : (columns, r) of the range of the prior; None for the columns of the features
    transform : (r, r') T of the rows of M', where M = T M' T^T
    unit : by which values are divided
    penalty : of a row with weight 1
    typical : the size of rows that have none
    lost : rows whose value is zero for every matrix, and that do not allow it, ascending
    """

    divergence: SpectralDivergence
    reference: Array
    basis: Array | None
    transform: Array
    unit: float = 1.0
    penalty: float = 1.0
    typical: float = 1.0
    lost: Index = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def coordinates(self) -> Array:
        """(columns, r'): vectors x of the features are coordinates^T x in M'."""
        return self.transform if self.basis is None else self.basis @ self.transform

    def sizes(self, batch: Batch) -> Array:
        """Of the rows under the prior, in the unit of the features."""
        root = np.sqrt(self.reference)
        return batch.rows.magnitudes(root if self.basis is None else self.basis * root)

    def loss(self, batch: Batch, all_sizes: bool = False) -> Loss:
        """That of a batch; sizes that change no loss are computed only where all are wanted."""
        bounds, definite = batch.block.bounds, batch.is_definite
        relations = np.full(len(bounds), batch.block.relation, np.int8)
        if len(self.lost):
            # the value is always 0: as an upper bound the row always holds, and costs nothing
            is_lost = np.isin(batch.numbers, self.lost)
            bounds = np.where(is_lost, np.abs(bounds), bounds)
            relations[is_lost] = -1
        if all_sizes or not (definite & (bounds > 0)).all():
            sizes = self.sizes(batch)
        else:
            sizes = np.full(len(bounds), self.typical)
        is_idle = sizes <= 0
        return Loss(
            self.divergence,
            relations,
            bounds / self.unit,
            np.clip(self.penalty * batch.block.counts, TINY, LARGEST),
            np.where(is_idle, self.typical, sizes) / self.unit,
            definite,
            is_idle,
        )


def _gathered(block: Block, vectors: Vectors, basis: Array | None) -> tuple[Rows, Mask]:
    """The rows of a block, written out, and which of them are definite.

    Atoms that the prior's range cuts down to rounding errors have the coefficient 0.
    """
    part = block.of_kind.atoms(block, np.empty((0, 0)), None)
    by_row = np.argsort(part.row, kind="stable")
    first, second, row, c = (
        part.first[by_row],
        part.second[by_row],
        part.row[by_row],
        part.coefficient[by_row],
    )
    shape, dtype = (len(row), vectors.shape[1]), vectors.dtype
    left = vectors.take(first, scratch("left", shape, dtype))
    right = vectors.take(second, scratch("right", shape, dtype))
    if part.is_difference:
        x = y = np.subtract(left, right, dtype=np.float64, out=scratch("x", shape))
    else:
        x, y = left.astype(np.float64), right.astype(np.float64)
    if basis is not None and basis.shape[1] < len(basis):
        for vector in (x,) if y is x else (x, y):
            c = np.where(is_rounding(vector @ basis, lengths(vector), len(basis)), 0.0, c)
    is_definite = np.ones(len(block), dtype=bool)
    is_definite[row[(c < 0) | ((first != second) & (not part.is_difference))]] = False
    return Rows.written(x, y, c, row, len(block)), is_definite
