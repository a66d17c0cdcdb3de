"""A primal-dual interior-point method for `Weighted` problems with up to some thousand free entries.

X and S stay positive definite and are led along X S = mu I to mu = 0, by Newton's method in the direction of
Helmberg, Kojima and Monteiro with Mehrotra's correction. A step factors one matrix whose order is the number
of free entries. About a dozen steps solve a problem, whatever its weights, and also where the nearest matrix
is not unique.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import linalg

from nearwise._common.types import Array
from nearwise.linalg.regularised import factored
from nearwise.named._weighted import Point, Weighted

MOST_FREE = 5000  # free entries for which the matrix of their order is formed
_TO_THE_EDGE = 0.98  # of the step to the boundary of the cone
_DECOMPOSITIONS = 4  # in one step, for the step lengths


def points(problem: Weighted, free: Array) -> Iterator[tuple[Point, int]]:
    """Better and better points, until rounding stops them; X is positive definite with the `free` entries."""
    S = problem.direction(2 * problem.weights * (free - problem.targets))
    reach = float(np.abs(S).sum(axis=1).max(initial=0.0))
    S.flat[:: len(S) + 1] = 1.5 * reach + 1e-8 * np.sqrt(problem.size) + 1e-8  # dominates the rest of its row
    count = 0
    while True:
        yield Point(problem.matrix(free), S, problem.objective(free), problem.bound(S), 0.0), count
        step = _step(problem, free, S)
        if step is None:
            return
        (free, S), count = step, _DECOMPOSITIONS


def _step(problem: Weighted, free: Array, S: Array) -> tuple[Array, Array] | None:
    """The next free entries and S; None where rounding leaves no positive definite matrix or system."""
    X = problem.matrix(free)
    try:
        root_X: Array = linalg.cholesky(X, lower=True)
        root_S: Array = linalg.cholesky(S, lower=True)
        system = _System(problem, free, S, linalg.cho_solve((root_X, True), np.eye(len(X))))
    except np.linalg.LinAlgError:
        return None
    mu = float(np.vdot(X, S)) / len(X)
    change, dX, dS = system.direction(0.0, np.zeros_like(X))
    length_X, length_S = _longest(root_X, dX), _longest(root_S, dS)
    reached = float(np.vdot(X + length_X * dX, S + length_S * dS)) / len(X)
    centring = min(max(reached / mu, 0.1) ** 3, 1.0)
    change, dX, dS = system.direction(centring * mu, system.product(dS, dX))
    length_X, length_S = _longest(root_X, dX), _longest(root_S, dS)
    S = S + length_S * dS
    return free + length_X * change, (S + S.T) / 2


class _System:
    """Newton's equations 4 W d + <E_k, S D X^-1> = right side, for changes d of the free entries."""

    def __init__(self, problem: Weighted, free: Array, S: Array, inverse: Array) -> None:
        self.problem, self.S = problem, S
        self.inverse = Y = (inverse + inverse.T) / 2
        self.gradient = 4 * problem.weights * (free - problem.targets)
        i, j = problem.pairs
        matrix = S[i][:, i] * Y[j][:, j]
        matrix += S[i][:, j] * Y[j][:, i]
        matrix += S[j][:, i] * Y[i][:, j]
        matrix += S[j][:, j] * Y[i][:, i]
        matrix.flat[:: len(i) + 1] += 4 * problem.weights
        self.scale = 1 / np.sqrt(matrix.diagonal())
        self.scaled = matrix * self.scale[:, None]
        self.scaled *= self.scale
        self.factor = factored(self.scaled)

    def direction(self, mu: float, correction: Array) -> tuple[Array, Array, Array]:
        """Changes of the free entries, of X and of S towards X S = mu I."""
        wanted = mu * self.inverse - correction
        right = self.scale * (2 * wanted[tuple(self.problem.pairs)] - self.gradient)
        solution = linalg.cho_solve(self.factor, right)
        solution += linalg.cho_solve(self.factor, right - self.scaled @ solution)  # against regularisation
        change = self.scale * solution
        D = self.problem.direction(change)
        return change, D, wanted - self.S - self.product(self.S, D)

    def product(self, left: Array, right: Array) -> Array:
        """The symmetric part of left right X^-1."""
        P = left @ right @ self.inverse
        return (P + P.T) / 2


def _longest(root: Array, change: Array) -> float:
    """A step of at most one after which root root' + step change is still positive definite."""
    half = linalg.solve_triangular(root, change, lower=True)
    relative = linalg.solve_triangular(root, half.T, lower=True)
    lowest = float(np.linalg.eigvalsh((relative + relative.T) / 2)[0])
    return min(1.0, _TO_THE_EDGE / -lowest) if lowest < 0 else 1.0
