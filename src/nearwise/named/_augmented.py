"""An augmented Lagrangian method for `Weighted` problems with many free entries.

    minimise objective + |(S - sigma X)_+|^2 / (2 sigma) over the free entries of X,  then S = (S - sigma X)_+

(Qi and Sun, IMA J. Numer. Anal. 31, 2011), with a small proximal term, because weights may be zero. The inner
problem is smooth and its gradient semismooth: Newton's method, where conjugate gradients apply the Hessian by
the eigenvectors of S - sigma X.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.named._weighted import Point, Weighted

_GROWTH = 4.0  # of sigma, where S - sigma X gets positive too slowly
_SLOW = 0.1  # ratio of what is missing to X >= 0 from one round to the next
_PROXIMAL = 1e-3  # weight of the proximal term, relative to 1 / sigma
_FIRST, _SHARPER, _FINEST = 1e-2, 0.1, 1e-13  # accuracies of the inner problems
_NEWTON_STEPS = 30
_CG_STEPS = 300
_HALVINGS = 20
_ARMIJO = 1e-4
_FAILURES = 3  # rounds without descent until it is over
_TINY = 1e-300


def points(problem: Weighted, free: Array) -> Iterator[tuple[Point, int]]:
    """A point after each round, until rounding leaves no descent, from any `free` entries of X."""
    S = np.zeros_like(problem.given)
    sigma, accuracy, before, failures = 1.0, _FIRST, 0.0, 0
    while failures < _FAILURES:
        inner, count, descended = _minimised(_Inner(problem, S, sigma, free, free), accuracy)
        free, S = inner.free, inner.positive
        yield _graded(problem, inner), count
        missing = float(np.linalg.norm(inner.negative - inner.X))
        if not descended:
            sigma, failures = sigma / _GROWTH, failures + 1
        elif missing > _SLOW * before:
            sigma *= _GROWTH
        before = missing
        accuracy = max(_SHARPER * accuracy, _FINEST)


class _Inner:
    """The inner objective at some free entries, with gradient and Hessian."""

    def __init__(self, problem: Weighted, S: Array, sigma: float, centre: Array, free: Array) -> None:
        self.problem, self.S, self.sigma, self.centre, self.free = problem, S, sigma, centre, free
        self.X = problem.matrix(free)
        values, V = np.linalg.eigh(S - sigma * self.X)
        cut = int(values.searchsorted(0.0, side="right"))
        self.above, self.below = values[cut:], -values[:cut]
        self.P, self.R = V[:, cut:], V[:, :cut]
        self.positive = (self.P * self.above) @ self.P.T
        self.proximal = _PROXIMAL / sigma
        moved = free - centre
        self.objective = problem.objective(free) + float(self.above @ self.above) / (2 * sigma)
        self.objective += self.proximal * float(moved @ moved)
        # of half the objective: every free entry stands for two
        self.gradient = 2 * problem.weights * (free - problem.targets) + self.proximal * moved
        self.gradient -= self.positive[tuple(problem.pairs)]
        self.error = float(np.linalg.norm(self.gradient))

    @property
    def negative(self) -> Array:
        """(X - S / sigma)_+, which is X at the end."""
        return (self.R * (self.below / self.sigma)) @ self.R.T

    def moved(self, change: Array) -> _Inner:
        return _Inner(self.problem, self.S, self.sigma, self.centre, self.free + change)

    def direction(self, accuracy: float) -> Array:
        """Newton's direction by conjugate gradients, scaled by about the Hessian's diagonal."""
        i, j = self.problem.pairs
        own = 2 * self.problem.weights + self.proximal
        ratios = self.above[:, None] / np.maximum(self.above[:, None] + self.below, _TINY)
        squares = self.P**2
        sums, mixed = squares.sum(axis=1), squares @ ratios @ (self.R**2).T
        scale = own + self.sigma * np.maximum(sums[i] * sums[j] + mixed[i, j] + mixed[j, i], 1e-14)
        few_above = len(self.above) <= len(self.below)
        A, B = (self.P, self.R) if few_above else (self.R, self.P)
        weights = ratios if few_above else (1 - ratios).T

        def product(h: Array) -> Array:
            AD = A.T @ self.problem.direction(h)
            N = A @ ((AD @ A / 2) @ A.T + (weights * (AD @ B)) @ B.T)
            image = N[i, j] + N[j, i]
            return np.asarray(own * h + self.sigma * (image if few_above else h - image))

        return conjugate_gradients(
            product, -self.gradient, lambda r: r / scale, accuracy=accuracy, most_steps=_CG_STEPS
        ).x


def _minimised(point: _Inner, accuracy: float) -> tuple[_Inner, int, bool]:
    """Where the gradient is small enough, how many points were tried, and whether rounding stopped it."""
    count = 1
    for _ in range(_NEWTON_STEPS):
        if point.error <= accuracy:
            break
        direction = point.direction(min(0.05, point.error))
        slope, length = 2 * float(point.gradient @ direction), 1.0
        for _ in range(_HALVINGS):
            trial = point.moved(length * direction)
            count += 1
            decrease = point.objective + _ARMIJO * length * slope
            if trial.objective <= decrease or trial.error <= 0.5 * point.error:
                break
            length /= 2
        else:
            return point, count, False
        point = trial
    return point, count, True


def _graded(problem: Weighted, inner: _Inner) -> Point:
    """The positive part of X - S / sigma, scaled on both sides to the given diagonal."""
    diagonal = problem.given.diagonal()
    negative = inner.negative
    scale = np.sqrt(diagonal / np.maximum(negative.diagonal(), _TINY))
    X = negative * scale[:, None] * scale
    X = (X + X.T) / 2
    X.flat[:: len(X) + 1] = diagonal
    violation = float(np.abs((X - problem.given)[problem.fixed]).max(initial=0.0))
    primal = problem.objective(X[tuple(problem.pairs)])
    return Point(X, inner.positive, primal, problem.bound(inner.positive), violation)
