"""Objects and their squared distances: Euclidean in coordinates, plus a part outside the basis that is fixed.

Where a learner works in a basis, features are the coordinates of the objects in it, and JKDD12 (10) adds to
their learned distance what the old one is outside: `Outside` knows that part, and `Space` the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Index
from nearwise.learners.coordinate_metrics import scaled
from nearwise.learners.input_kernels import InputKernel, in_parts, paired_products
from nearwise.linalg.distances import all_squared_distances, centre_of, squared_distances
from nearwise.side import Block, Constraints, drawing

_AT_A_TIME = 2**23  # distances that are compared at a time


@dataclass(frozen=True, eq=False)
class Outside:
    """Inner products and squared distances of objects outside a basis, times a factor.

    Attributes
    ----------
    kernel : whose inner products these are; "linear" for vectors
    X : the objects; for a precomputed kernel, its square matrix
    features : their coordinates in an orthonormal basis
    alpha : the factor
    """

    kernel: InputKernel
    X: Any
    features: Array
    alpha: float = 1.0

    def products(self, i: Index, j: Index) -> Array:
        """Of the objects i with the objects j, one by one."""
        given = self.kernel.is_precomputed
        whole = self.X[i, j] if given else in_parts(self.kernel.paired, self.X, i, j)
        return np.asarray(self.alpha * (whole - in_parts(paired_products, self.features, i, j)))

    def distances(self, i: Index, j: Index) -> Array:
        """Squared, of the objects i to the objects j, one by one; >= 0."""
        if self.kernel.is_precomputed:
            whole = self.X[i, i] + self.X[j, j] - 2.0 * self.X[i, j]
        else:
            whole = in_parts(self.kernel.paired_squared_distances, self.X, i, j)
        whole = whole - squared_distances(self.features, i, j)
        return self.alpha * np.maximum(whole, 0.0)

    def pairs(self, i: Index, j: Index) -> Array:
        """`distances`, by the name that kinds of constraints know."""
        return self.distances(i, j)

    def between(self, rows: Index, others: Index) -> Array:
        """Squared, of all objects in `rows` to all in `others`; >= 0."""
        if self.kernel.is_precomputed:
            whole = self.X[rows, rows][:, None] + self.X[others, others] - 2.0 * self.X[np.ix_(rows, others)]
        else:
            whole = self.kernel.squared_distances(self.X[rows], self.X[others])
        whole -= all_squared_distances(self.features[rows], self.features[others])
        return self.alpha * np.maximum(whole, 0.0)

    def values(self, constraints: Constraints) -> Array:
        """The fixed part of the value of every constraint, by row number: JKDD12 (11) and (20)."""
        return np.concatenate([np.empty(0), *(self.values_of(block) for block in constraints.blocks)])

    def values_of(self, block: Block) -> Array:
        """The same for one block."""
        return block.of_kind.values(block, self)

    def restricted(self, rows: Index) -> Outside:
        """The same of some of the objects, in that order."""
        X = self.X[np.ix_(rows, rows)] if self.kernel.is_precomputed else self.X[rows]
        return replace(self, X=X, features=self.features[rows])

    def scaled(self, scale: float) -> Outside:
        """The same of objects that are larger by a factor."""
        if self.kernel.name == "linear":  # whose squares may be out of range before
            return replace(self, X=self.X * scale, features=self.features * scale)
        return replace(self, alpha=self.alpha * scale**2)


def mapped(rows: Any, factor: Array) -> Any:
    """Rows in the coordinates of a factor B of M = B B^T, or of a diagonal B, given as a vector.

    Sparse rows become dense by a matrix, and stay sparse under a diagonal one.
    """
    return scaled(rows, factor) if factor.ndim == 1 else np.asarray(rows @ factor)


@dataclass(frozen=True, eq=False)
class Space:
    """Objects with coordinates, dense or sparse, and what is outside them; None for nothing."""

    rows: Any
    outside: Outside | None = None

    def distances(self, pairs: Index) -> Array:
        """Squared, of pairs of row numbers."""
        i, j = pairs.T
        inside = squared_distances(self.rows, i, j)
        return inside if self.outside is None else inside + self.outside.distances(i, j)

    @property
    def inside(self) -> Space:
        """The same without what is outside."""
        return Space(self.rows)

    def neighbors(self, codes: Index, asking: Index) -> tuple[Index, Index]:
        """Pairs of objects that ask with their nearest of their own class, and of the others."""
        if sparse.issparse(self.rows):
            return drawing.neighbors(codes, self.nearest, asking)
        # distances between rows round less when they are centred
        centred = Space(self.rows - centre_of(self.rows[np.flatnonzero(codes >= 0)]), self.outside)
        return drawing.neighbors(codes, centred.nearest, asking)

    def nearest(self, asking: Index, among: Index, count: int) -> Index:
        """The nearest objects to each that asks, nearest first."""
        if self.outside is None:
            return drawing.nearest_of(self.rows, asking, among, count)
        found, step = np.empty((len(asking), count), np.int64), max(_AT_A_TIME // len(among), 1)
        for low in range(0, len(asking), step):
            part = asking[low : low + step]
            distances = all_squared_distances(self.rows[part], self.rows[among])
            distances += self.outside.between(part, among)
            near = np.argpartition(distances, count - 1, axis=1)[:, :count]
            order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
            found[low : low + step] = among[np.take_along_axis(near, order, axis=1)]
        return found
