"""The squares of what rows in pieces fail by, which a descent on a factor of the matrix makes small.

Of the rows only two sums are needed, and one pass finds both: the squares themselves, and what they are
multiplied with along a matrix D, sum_i residual_i A_i D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from nearwise._common.types import Array
from nearwise.distributed.running import Runner
from nearwise.distributed.vectors import Vectors
from nearwise.model.bound_in_blocks import cut, surveyed, tell_of_lost
from nearwise.model.divergences import LogDet
from nearwise.model.parts import Parts
from nearwise.model.pieces import Piece, Terms, slices
from nearwise.side.blocks import Block, Constraints


class Sums(NamedTuple):
    """Of some rows: the squares of what they fail by, and the sum of residual_i A_i D."""

    cost: float
    slope: Array


@dataclass(frozen=True, eq=False)
class SquaresInPieces:
    """Rows in pieces, made by `of`, which looks at all of them once.

    Attributes
    ----------
    runner : the pieces, with bounds as targets
    n_rows : how many rows they have
    weight : of all rows together
    """

    runner: Runner
    n_rows: int
    weight: float

    @classmethod
    def of(cls, constraints: Constraints, filled: Constraints, vectors: Vectors) -> Self:
        """Warns of rows that nothing can meet, and refuses those that are no numbers to work with.

        Parameters
        ----------
        constraints : as they were stated, for messages
        filled : the same by row number, with all their bounds
        vectors : rows of features
        """
        pieces, _ = cut(filled.blocks, vectors)
        runner = vectors.runner(pieces)
        terms = Terms(LogDet(), 1.0, 1.0, None, np.ones(vectors.shape[1]), 1.0)
        survey = surveyed(runner, constraints, terms, pieces)
        tell_of_lost(constraints, survey.lost)
        return cls(runner, len(filled), survey.weight)

    def sums(self, G: Array, D: Array | None, feature: float, target: float, weight: float) -> Sums:
        """Of all rows at G G^T, along D, by default along G.

        `feature`, `target` and `weight` are the units of features and targets and the mean weight of a row,
        which count as 1.
        """
        return added(self.runner.run(sums_of, G, D, feature, target, weight, added=added))


def added(found: list[Sums]) -> Sums:
    """The sums of some pieces, in order."""
    return Sums(float(sum(part.cost for part in found)), np.sum([part.slope for part in found], axis=0))


def sums_of(piece: Piece, G: Array, D: Array | None, feature: float, target: float, weight: float) -> Sums:
    """Of a piece: the squares of what rows fail by, and the sum of residual_i sym(X_i) D, by default of G."""
    B, total = G / feature, 0.0
    slope = np.zeros(G.shape if D is None else D.shape)
    for _, block, parts in slices(piece, None):
        images = parts.in_basis(B, "images")
        residual, counts = _failing(images.values(), block, target, weight)
        total += float(counts @ (residual * residual))
        seen = images if D is None else parts.in_basis(D / feature, "others")
        slope += _pulled(parts, seen, counts * residual)
    return Sums(total, slope / feature)


def _failing(values: Array, block: Block, target: float, weight: float) -> tuple[Array, Array]:
    """By how much rows fail, and how much each counts."""
    residual = values - block.bounds / target
    if block.relation:
        residual = np.minimum(residual, 0.0) if block.relation > 0 else np.maximum(residual, 0.0)
    return residual, block.counts / weight


def _pulled(parts: Parts, images: Parts, weights: Array) -> Array:
    """sum_i weights_i sym(X_i) D, for the images of D; only rows with a weight are multiplied out."""
    per_atom = parts.coefficient * (weights if parts.row is None else weights[parts.row])
    used = np.flatnonzero(per_atom)
    own = per_atom[used, None]
    if parts.y is parts.x:
        return np.asarray(parts.x[used].T @ (own * images.x[used]))
    found = parts.x[used].T @ (own * images.y[used]) + parts.y[used].T @ (own * images.x[used])
    return np.asarray(found / 2)
