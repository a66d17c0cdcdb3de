"""The nearest positive semidefinite matrix where every entry has a weight of its own.

    minimise sum_ij W_ij (X_ij - A_ij)^2   over X >= 0 with given entries on the diagonal and on chosen pairs

All other entries are free, also those of weight zero, which are completed. For every S >= 0 that is zero
where the weight is, no X has less than

    - sum over free entries of (S_ij A_ij + S_ij^2 / (4 W_ij))  -  sum over given entries of S_ij X_ij

and S_ij = 2 W_ij (X_ij - A_ij) at the optimum. Few free entries are found by an interior-point method
(`_interior`), which no degeneracy stops; many by an augmented Lagrangian one (`_augmented`), which needs no
matrix of their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.methods import Loop, Status


@dataclass(frozen=True, eq=False)
class Weighted:
    """The problem.

    Attributes
    ----------
    given : n x n, the diagonal and the fixed entries; zero elsewhere
    fixed : n x n, true where an entry off the diagonal is fixed
    pairs : (2, m) the free entries, above the diagonal
    targets : their A_ij, zero where the weight is
    weights : their W_ij >= 0, at most one
    """

    given: Array
    fixed: Mask
    pairs: Index
    targets: Array
    weights: Array

    @cached_property
    def unknown(self) -> Mask:
        """Which free entries have the weight zero."""
        return self.weights == 0

    @cached_property
    def size(self) -> float:
        """The objective at X_ij = 0."""
        return 2 * float(self.weights @ self.targets**2)

    def matrix(self, free: Array) -> Array:
        """X with these free entries."""
        return self._filled(self.given.copy(), free)

    def direction(self, free: Array) -> Array:
        """A change of X by these changes of the free entries."""
        return self._filled(np.zeros_like(self.given), free)

    def objective(self, free: Array) -> float:
        return 2 * float(self.weights @ (free - self.targets) ** 2)

    def bound(self, S: Array) -> float:
        """What no X has less than, from any S >= 0; never below the trivial zero.

        Where the weight is zero, S_ij is moved to the diagonal, which keeps S positive semidefinite.
        """
        i, j = self.pairs
        free = S[i, j]
        lost = np.where(self.unknown, np.abs(free), 0.0)
        n = len(S)
        diagonal = S.diagonal() + np.bincount(i, lost, n) + np.bincount(j, lost, n)
        known = ~self.unknown
        s, w = free[known], self.weights[known]
        value = -2 * float(s @ self.targets[known] + s @ (s / (4 * w)))
        value -= float(diagonal @ self.given.diagonal())
        value -= float(np.vdot(S[self.fixed], self.given[self.fixed]))
        return max(value, 0.0)

    def _filled(self, X: Array, free: Array) -> Array:
        i, j = self.pairs
        X[i, j] = X[j, i] = free
        return X


@dataclass(frozen=True, eq=False)
class Point:
    """An X >= 0 with the given diagonal, an S >= 0, and what they prove.

    Attributes
    ----------
    matrix, multiplier : X and S
    primal : the objective at X
    dual : a bound that no X falls below
    violation : the worst error of a fixed entry
    """

    matrix: Array
    multiplier: Array
    primal: float
    dual: float
    violation: float


@dataclass(frozen=True, eq=False)
class Solution:
    """The best point, whether it is proved, and what it took."""

    point: Point
    status: Status
    n_iter: int
    n_decompositions: int


def floor(problem: Weighted, tol: float) -> float:
    """The objective below which differences do not matter."""
    return max(tol * problem.size, 1e-300)


def best_of(
    points: Iterator[tuple[Point, int]],
    problem: Weighted,
    tol: float,
    max_iter: int,
    patience: float = math.inf,
) -> Solution:
    """Follow the points of a method until one is proved to be the best, or `patience` eigendecompositions."""
    run = _Run(problem, tol, max_iter, patience)
    status = run.follow(points)
    assert run.best is not None
    return Solution(run.best, status, len(run.history), run.decompositions)


class _Run(Loop[tuple[Point, int], Point, float]):
    """Records the error of every point."""

    def __init__(self, problem: Weighted, tol: float, max_iter: int, patience: float) -> None:
        super().__init__(max_iter)
        self.problem, self.tol, self.patience = problem, tol, patience
        self.decompositions = 0

    def grade(self, point: tuple[Point, int]) -> Point:
        self.decompositions += point[1]
        return point[0]

    def is_better(self, graded: Point) -> bool:
        return self.best is None or self._error(graded) < self._error(self.best)

    def record(self, graded: Point, iteration: int, seconds: float) -> float:
        return self._error(graded)

    def end(self, graded: Point) -> Status | None:
        assert self.best is not None
        if self._error(self.best) <= self.tol:
            return Status.SOLVED
        return Status.LIMIT if self.decompositions > self.patience else None

    def _error(self, point: Point) -> float:
        """The larger of the violation and the relative gap, for which less than `floor` counts as that."""
        size = max(point.primal, point.dual, floor(self.problem, self.tol))
        return max(abs(point.primal - point.dual) / size, point.violation)
