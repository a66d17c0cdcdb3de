"""The nearest matrix of given rank and diagonal: F F' with rows of F on spheres, by a trust-region method.

    minimise 1/2 |F F' - C|^2   over F (n x k) with rows of given length

The problem is not convex, but often its solution can be proved: with the multipliers y of a stationary F, no
matrix of rank k is nearer than 1/2 |C|^2 + b'y - 1/2 (sum of the squares of the k largest eigenvalues of
C + diag(y), where positive), which is what F reaches if F F' holds just these k eigenvalues. C is only ever
multiplied with n x k matrices, so that a low-rank or sparse C costs time and memory linear in n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from nearwise._common.types import Array
from nearwise.linalg.conjugate import End, conjugate_gradients
from nearwise.methods import Loop, Status

_DENSE = 600  # up to this order, all eigenvalues are computed at once
_CG_STEPS = 100
_STARTS = 3
_NUDGE = 1e-4  # of a start, relative to its largest entry
_ACCEPTED, _GOOD = 0.1, 0.75  # ratios of true to predicted decrease: take the step, widen the region


@dataclass(frozen=True, eq=False)
class Target:
    """C, known by its products with n x k matrices, the square of its norm, and the wanted diagonal b."""

    product: Callable[[Array], Array]
    squared_norm: float
    diagonal: Array

    @property
    def order(self) -> int:
        return len(self.diagonal)


@dataclass(frozen=True, eq=False)
class Factored:
    """F, its multipliers, |F F' - C|^2, a lower bound, and the status: SOLVED where F is proved best."""

    factor: Array
    y: Array
    primal: float
    dual: float
    status: Status
    n_iter: int


class _Point:
    """Objective, gradient and Hessian at F."""

    def __init__(self, target: Target, F: Array) -> None:
        self.target, self.F = target, F
        self.gram = F.T @ F
        self.image = target.product(F)
        self.objective = float(np.sum(self.gram**2) / 2 - np.sum(F * self.image) + target.squared_norm / 2)
        residual = F @ self.gram - self.image  # (F F' - C) F
        self.y = np.einsum("ij,ij->i", residual, F) / target.diagonal
        self.gradient = 2 * (residual - self.y[:, None] * F)
        self.error = float(np.linalg.norm(self.gradient))

    def tangent(self, U: Array) -> Array:
        """U without its part along the rows of F."""
        return U - (np.einsum("ij,ij->i", U, self.F) / self.target.diagonal)[:, None] * self.F

    def hessian_product(self, U: Array) -> Array:
        cross = self.F.T @ U
        inner = self.F @ (cross + cross.T) + U @ self.gram - self.target.product(U) - self.y[:, None] * U
        return self.tangent(2 * inner)

    def moved(self, U: Array) -> _Point:
        return _Point(self.target, with_rows_of_length(self.F + U, self.target.diagonal))


def minimise(target: Target, rank: int, tol: float, max_iter: int) -> Factored:
    """The best of some stationary F, with the highest of their bounds.

    The first starts at the leading eigenvectors of C. As long as none is proved to be the best, another one
    starts at the leading eigenvectors of C + diag(y) with the multipliers of the last. Starts are moved a
    little at random, so that none is caught in a saddle point.
    """
    y = np.zeros(target.order)
    rng = np.random.default_rng(0)
    found: Factored | None = None
    for _ in range(_STARTS):
        start = leading_eigenvectors(_shifted(target, y), target.order, rank)
        size = max(float(np.abs(start).max()), 1.0)
        start = start + _NUDGE * size * rng.standard_normal(start.shape)
        latest = _TrustRegion(target, start, tol, max_iter).found()
        y = latest.y
        best = latest if found is None or latest.primal < found.primal else found
        found = best if found is None else replace(best, dual=max(found.dual, latest.dual))
        rounding = 1e-12 * target.squared_norm
        if found.primal - found.dual <= max(tol * found.primal, rounding):
            return replace(found, status=Status.SOLVED)
        if latest.status is Status.INTERRUPTED:
            return replace(found, status=Status.INTERRUPTED)
    assert found is not None
    return found


def _shifted(target: Target, y: Array) -> Callable[[Array], Array]:
    """Products with C + diag(y)."""
    return lambda U: target.product(U) + y[:, None] * U


class _TrustRegion(Loop[_Point, _Point, float]):
    """To a stationary F, from a start whose rows are scaled to their lengths; records the gradient's norm."""

    def __init__(self, target: Target, start: Array, tol: float, max_iter: int) -> None:
        super().__init__(max_iter)
        self.target = target
        point = self.first = _Point(target, with_rows_of_length(start, target.diagonal))
        self.size = 2 * max(float(np.linalg.norm(point.image)), float(np.linalg.norm(point.F @ point.gram)))
        self.small = 0.1 * tol * self.size

    def found(self) -> Factored:
        """The last point, with the bound that its multipliers prove."""
        status = self.follow(self._points())
        assert self.best is not None
        target, F, y = self.target, self.best.F, self.best.y
        largest = np.maximum(_largest(_shifted(target, y), target.order, F.shape[1])[0], 0.0)
        dual = target.squared_norm / 2 + target.diagonal @ y - largest @ largest / 2
        return Factored(F, y, 2 * self.best.objective, 2 * float(dual), status, len(self.history))

    def _points(self) -> Iterator[_Point]:
        """The point after each trial, which is the one before where a step is refused."""
        target, point = self.target, self.first
        reach = float(np.sqrt(target.diagonal.sum()))
        radius = 0.1 * reach
        while True:
            yield point
            error = point.error
            found = conjugate_gradients(
                point.hessian_product,
                -point.gradient,
                accuracy=min(0.1, math.sqrt(error / self.size)),
                most_steps=_CG_STEPS,
                radius=radius,
            )
            step = found.x
            predicted = float(np.vdot(step, found.residual) - np.vdot(step, point.gradient)) / 2
            trial = point.moved(step)
            # below rounding of the objective a step counts as good if it makes the gradient smaller
            rounding = 1e-14 * max(point.objective, target.squared_norm)
            gained = point.objective - trial.objective
            smaller = 1.0 if trial.error < error else 0.0
            trust = smaller if predicted < rounding else gained / predicted
            if trust < 0.25:
                radius = 0.25 * float(np.linalg.norm(step))
            elif trust > _GOOD and found.end is End.EDGE:
                radius *= 2
            if trust > _ACCEPTED:
                point = trial
            elif radius <= 1e-14 * reach:
                return

    def grade(self, point: _Point) -> _Point:
        return point

    def record(self, graded: _Point, iteration: int, seconds: float) -> float:
        return graded.error

    def end(self, graded: _Point) -> Status | None:
        return Status.STATIONARY if graded.error <= self.small else None


def with_rows_of_length(F: Array, squared_lengths: Array) -> Array:
    """F with rescaled rows, twice, because the first scaling rounds."""
    F = F * np.sqrt(squared_lengths / np.einsum("ij,ij->i", F, F))[:, None]
    return F * np.sqrt(squared_lengths / np.einsum("ij,ij->i", F, F))[:, None]


def leading_eigenvectors(product: Callable[[Array], Array], n: int, count: int) -> Array:
    """The `count` largest eigenvalues that are positive, as V sqrt(values), padded with zeros."""
    values, V = _largest(product, n, count)
    return V * np.sqrt(np.maximum(values, 0.0))


def _largest(product: Callable[[Array], Array], n: int, count: int) -> tuple[Array, Array]:
    if n <= _DENSE or count >= n - 1:
        matrix = product(np.eye(n))
        values, V = np.linalg.eigh((matrix + matrix.T) / 2)
        return values[::-1][:count], V[:, ::-1][:, :count]
    operator: Any = LinearOperator(
        (n, n), matvec=lambda x: product(x.reshape(n, -1))[:, 0], matmat=product, dtype=np.float64
    )
    start = np.random.default_rng(0).standard_normal(n)
    values, V = eigsh(operator, k=count, which="LA", v0=start, tol=1e-12, ncv=min(n, 2 * count + 20))
    return values[::-1], V[:, ::-1]
