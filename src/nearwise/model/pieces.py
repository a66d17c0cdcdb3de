"""A piece of the constraints with the vectors that it names, and the jobs that are run on pieces.

A piece is a run of constraint rows. What a solver needs of it are sums: the losses, sum_i y_i A_i with
y the slopes of the losses, how many rows are curved, how far rows are violated. `evaluate` has them all in
one pass, a few thousand rows at a time: x = f_i - f_j, h = x B, p = |h|^2 and sum y x x^T, so that a pass
over m rows costs O(m r^2) and needs no memory that grows with m. Vectors in single precision are widened a
slice at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from nearwise._common.memory import scratch
from nearwise._common.types import Array, Index
from nearwise.distributed.vectors import Stacked, Vectors
from nearwise.model.atoms import is_rounding
from nearwise.model.divergences import Divergence
from nearwise.model.local import LocalAtoms
from nearwise.model.losses import SATISFIED, Losses
from nearwise.model.parts import Parts, joined, rows_of
from nearwise.side.blocks import Block

WORST = 10  # rows of the largest violations that an evaluation names
_NUMBERS = 1 << 18  # of a slice of vectors: small enough to stay in the cache
_NONE = np.empty((0, 0))


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of the constraints.

    Attributes
    ----------
    start : the number of the first row among all constraints
    blocks : the rows, of which ids are row numbers of `vectors` and bounds are filled
    vectors : rows of features
    """

    start: int
    blocks: tuple[Block, ...]
    vectors: Vectors

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def objects(self) -> Index:
        """The rows of the vectors that it names, in order."""
        named = [np.asarray(block.object_ids).ravel() for block in self.blocks]
        return np.unique(np.concatenate([np.empty(0, np.int64), *named]))

    def files(self) -> list[str]:
        """In which its rows are; none where they are in memory."""
        return [ids.path for block in self.blocks if (ids := block.stored_ids) is not None]

    def renumbered(self, objects: Index) -> Piece:
        """The same for vectors of which only these rows are left; it holds none."""
        loaded = [block.loaded() for block in self.blocks]
        blocks = [replace(block, ids=np.searchsorted(objects, block.object_ids)) for block in loaded]
        return Piece(self.start, tuple(blocks), Stacked([np.empty((0, self.vectors.shape[1]))]))

    def holding(self, vectors: Vectors) -> Piece:
        """The same with other vectors."""
        return replace(self, vectors=vectors)


@dataclass(frozen=True, eq=False)
class Terms:
    """What rows cost, as `Losses` of all of them has it.

    Attributes
    ----------
    divergence : gives the slack
    penalty : of every row of weight 1, in the unit of the values
    unit : by which bounds and sizes are divided
    basis : of the range of the prior; None for the columns of the features
    reference : eigenvalues under which rows are sized
    typical : the size of rows that have none
    lost : rows whose value is always zero and that do not allow it, in order
    """

    divergence: Divergence
    penalty: float
    unit: float
    basis: Array | None
    reference: Array
    typical: float
    lost: Index = field(default_factory=lambda: np.empty(0, np.int64))

    def losses(self, rows: Index, block: Block, parts: Parts) -> Losses:
        """Of the rows of a slice."""
        bounds, relations = block.bounds, np.full(len(block), block.relation, dtype=np.int8)
        definite = block.of_kind.is_definite(block)
        if len(self.lost):
            lost = np.isin(rows, self.lost)
            bounds, relations = np.where(lost, np.abs(bounds), bounds), np.where(lost, np.int8(-1), relations)
        plain = bool((definite & (bounds > 0)).all())
        sizes = np.full(len(block), self.typical) if plain else self.sizes(parts)
        return Losses(
            self.divergence,
            relations,
            bounds / self.unit,
            np.full(len(block), self.penalty) if block.weights is None else self.penalty * block.weights,
            np.where(sizes > 0, sizes, self.typical) / self.unit,
            definite,
        )

    def sizes(self, parts: Parts) -> Array:
        """Of the rows under the prior."""
        root = np.sqrt(self.reference)
        return parts.in_basis(root if self.basis is None else self.basis * root).parts()


@dataclass(frozen=True, eq=False)
class Sums:
    """What a pass over a piece, or over all of them, finds at one point.

    Attributes
    ----------
    total : of the losses
    pullback : sum_i y_i A_i, y the slopes of the losses
    weight : sum_i |y_i| times the magnitudes of the parts of row i
    size : the same at the identity, in the coordinates of the features
    residual : the sum of conjugate(y') - y' p, for y' = s y with the share s that was asked for, or for
        multipliers of another point that were
    curved : how many rows have a curvature
    curved_rows : which, where they are not too many
    satisfied : how many rows are violated by no more than 1e-3
    worst : rows, values and relative violations of the most violated ones, worst first
    """

    total: float
    pullback: Array
    weight: float
    size: float
    residual: float
    curved: int
    curved_rows: Index
    satisfied: int
    worst: tuple[tuple[int, float, float], ...]


def evaluate(
    piece: Piece, B: Array, terms: Terms, share: float, most: int, beside: Slopes | None = None
) -> Sums:
    """Everything that a solver and its certificate need at M = B B^T, where B has a row per feature."""
    d = piece.vectors.shape[1]
    total = weight = size = residual = 0.0
    multiple = None if beside is None else _multiple(B, beside.B)
    pullback, curved, satisfied = np.zeros((d, d)), [np.empty(0, np.int64)], 0
    worst: list[tuple[int, float, float]] = []
    for rows, block, parts in slices(piece, terms.basis):
        images = parts.in_basis(B, "images")
        p, losses = images.values(), terms.losses(rows, block, parts)
        with np.errstate(all="ignore"):  # what overflows makes the total infinite, and is refused
            total += (own := losses.total(p))
            y = losses.finite_slopes(p)
            pullback += parts.adjoint(y)
            weight += float(np.abs(y) @ (p if losses.is_definite.all() else images.parts()))
            size += float(np.abs(y) @ parts.parts())
            if beside is not None:
                values = p / multiple**2 if multiple else parts.in_basis(beside.B, "others").values()
                there = _slopes_at(values, rows, block, parts, beside)
                residual += losses.fenchel_residual(p, there, own) - own
            elif share != 1.0:
                residual += losses.fenchel_residual(p, share * y, own) - own
            curved.append(rows[losses.curvatures(p) != 0])
            violations = losses.violations(p)
        satisfied += int(np.count_nonzero(violations <= SATISFIED))
        for place, value, relative in losses.most_violated(p, WORST):
            worst.append((int(rows[place]), value, relative))
    found = np.concatenate(curved)
    few = found if len(found) <= most else np.empty(0, np.int64)  # a slice would keep all of them
    return Sums(total, pullback, weight, size, residual, len(found), few, satisfied, _worst(worst))


def added(found: list[Sums], most: int) -> Sums:
    """The sums of all pieces, always added in the order of the rows."""
    rows = np.concatenate([np.empty(0, np.int64), *(sums.curved_rows for sums in found)])
    n_curved = sum(sums.curved for sums in found)
    return Sums(
        float(sum(sums.total for sums in found)),
        np.sum([sums.pullback for sums in found], axis=0),
        float(sum(sums.weight for sums in found)),
        float(sum(sums.size for sums in found)),
        float(sum(sums.residual for sums in found)),
        n_curved,
        rows if len(rows) == n_curved <= most else np.empty(0, np.int64),
        sum(sums.satisfied for sums in found),
        _worst([one for sums in found for one in sums.worst]),
    )


class Slopes(NamedTuple):
    """Multipliers as what they are computed from: `scale` times the slopes of losses at B B^T."""

    B: Array
    terms: Terms
    scale: float


def residual(piece: Piece, B: Array, terms: Terms, dual: Slopes | None, given: Array | None = None) -> float:
    """The sum of conjugate(y) - y p at M = B B^T, for multipliers of another point or given ones."""
    total, start = 0.0, 0
    for rows, block, parts in slices(piece, terms.basis):
        p, losses = parts.in_basis(B, "images").values(), terms.losses(rows, block, parts)
        with np.errstate(all="ignore"):
            y = given[start : start + len(rows)] if given is not None else _slopes(rows, block, parts, dual)
            own = losses.total(p)
            total += losses.fenchel_residual(p, y, own) - own
        start += len(rows)
    return total


def multipliers(piece: Piece, dual: Slopes) -> Array:
    """One number per row."""
    found = [_slopes(rows, block, parts, dual) for rows, block, parts in slices(piece, dual.terms.basis)]
    return np.concatenate([np.empty(0), *found])


def values(piece: Piece, B: Array, basis: Array | None) -> Array:
    """<A_i, B B^T> of every row."""
    found = [parts.in_basis(B, "images").values() for _, _, parts in slices(piece, basis)]
    return np.concatenate([np.empty(0), *found])


def weighed(piece: Piece, B: Array, basis: Array | None, weights: Array) -> tuple[Array, float]:
    """sum_i w_i A_i for given weights, and sum_i |w_i| times the magnitudes of the parts at B."""
    d = piece.vectors.shape[1]
    total, size, start = np.zeros((d, d)), 0.0, 0
    for rows, _, parts in slices(piece, basis):
        own = weights[start : start + len(rows)]
        total += parts.adjoint(own)
        size += float(np.abs(own) @ parts.in_basis(B, "images").parts())
        start += len(rows)
    return total, size


def curved_atoms(
    piece: Piece, B: Array, terms: Terms, basis: Array, dtype: type, rows: Index
) -> tuple[LocalAtoms, Array]:
    """Of the given rows those with a curvature at B B^T, in a basis, and their curvatures."""
    found, curvatures = [], [np.empty(0)]
    for of, block, parts in slices(_chosen(piece, rows), terms.basis):
        losses = terms.losses(rows[of - piece.start], block, parts)
        curvature = losses.curvatures(parts.in_basis(B).values())
        kept = np.flatnonzero(curvature)
        found.append(rows_of(parts, kept).in_basis(basis))
        curvatures.append(curvature[kept])
    return joined(found, basis.shape[1], dtype), np.concatenate(curvatures)


def written_out(piece: Piece, terms: Terms, basis: Array) -> tuple[LocalAtoms, list[Losses]]:
    """All rows in a basis, and their losses by slice."""
    found, losses = [], []
    for rows, block, parts in slices(piece, terms.basis):
        found.append(parts.in_basis(basis))
        losses.append(terms.losses(rows, block, parts))
    return joined(found, basis.shape[1], np.float64), losses


def slices(piece: Piece, basis: Array | None) -> Iterator[tuple[Index, Block, Parts]]:
    """The rows of a piece, a few at a time: their numbers, themselves, and their vectors.

    The vectors are where those of the next slice will be.
    """
    width, start = piece.vectors.shape[1], piece.start
    step = max(_NUMBERS // max(width, 1), 64)
    for block in (block.loaded() for block in piece.blocks):
        for low in range(0, len(block), step):
            own = block.between(low, low + step)
            yield np.arange(start, start + len(own)), own, _written(own, piece.vectors, basis)
            start += len(own)


def _written(block: Block, vectors: Vectors, basis: Array | None) -> Parts:
    part = block.of_kind.atoms(block, _NONE, None)
    shape, dtype = (len(part.first), vectors.shape[1]), vectors.dtype
    left = vectors.take(part.first, scratch("left", shape, dtype))
    right = vectors.take(part.second, scratch("right", shape, dtype))
    if part.is_difference:
        x = np.subtract(left, right, dtype=np.float64, out=scratch("x", shape))
        if basis is not None and basis.shape[1] < len(basis):  # what the prior's range lacks is rounding
            lost = is_rounding(x @ basis, np.linalg.norm(x, axis=1), len(basis))
            x[lost] = 0.0
        y = x
    else:
        x, y = left.astype(np.float64), right.astype(np.float64)
    row = None if len(part.row) == len(block) else part.row
    return Parts(x, y, part.coefficient, row, len(block))


def _slopes(rows: Index, block: Block, parts: Parts, dual: Slopes | None) -> Array:
    assert dual is not None
    return _slopes_at(parts.in_basis(dual.B, "others").values(), rows, block, parts, dual)


def _slopes_at(values: Array, rows: Index, block: Block, parts: Parts, dual: Slopes) -> Array:
    return dual.scale * dual.terms.losses(rows, block, parts).finite_slopes(values)


def _multiple(B: Array, other: Array) -> float | None:
    """c with B = c * other, as for one point in two units; None where there is none."""
    largest = float(np.abs(other).max(initial=0.0))
    c = float(np.abs(B).max(initial=0.0)) / largest if largest > 0 else 0.0
    return c if c > 0 and B.shape == other.shape and np.array_equal(B, c * other) else None


def _worst(found: list[tuple[int, float, float]]) -> tuple[tuple[int, float, float], ...]:
    return tuple(sorted(found, key=lambda one: (-one[2], one[0]))[:WORST])


def _chosen(piece: Piece, rows: Index) -> Piece:
    """A piece of some of the rows, numbered from the first row of the piece on."""
    blocks, start = [], piece.start
    for block in piece.blocks:
        own = rows[(rows >= start) & (rows < start + len(block))] - start
        if len(own):
            blocks.append(block.part(own))
        start += len(block)
    return replace(piece, blocks=tuple(blocks))
