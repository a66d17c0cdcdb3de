"""Newton's method for JKDD12 (24): minimise tr(C0 W) - gamma log det W under linear constraints on W.

It works on the dual, maximise gamma log det S(y) - b'y with S(y) = C0 + sum_i y_i A_i > 0, for multipliers y
of the right sign, which for constraints that may give way at a price are at most that price in size. Limits
of multipliers are kept by logarithms of weight mu, gamma and mu fall together, and W = gamma S^-1. Every
point has S > 0, so that y is feasible for the dual of the semidefinite program (gamma = 0) too, and -b'y is a
lower bound on its optimum whatever else is true, but for rounding, which is taken off. Hard equalities that
follow from others keep the multiplier 0: along their combinations nothing holds y back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from nearwise._common.types import Array, Index
from nearwise.core import Problem
from nearwise.linalg.regularised import factored

_SHRINK = 0.2  # of gamma and mu from one stage to the next
_STAGE_DECREMENT = 0.1  # Newton's decrement, relative to mu, at which a stage ends; the last: below
_LAST_DECREMENT = 1e-3
_POLISHING = 3  # full steps at the end of a stage
_TO_THE_EDGE = 0.95  # of the step at which a multiplier has no room left
_ROUNDING = 1e-14  # of the objective
_MOST_STEPS = 600
_BACKTRACKS = 60
_INSIDE = 1e-9  # smallest eigenvalue of S, relative to the largest, of a start
_HOPELESS = 1e-9  # weight of the logarithms at which the search for a start ends
_DEPENDENT = 1e-12  # what is left of a row of size 1 by the rows before it, up to which it follows from them
_CONSISTENT = 1e-10  # relative difference of its bound from theirs, up to which it agrees with them
_EPSILON = float(np.finfo(np.float64).eps)
_LARGE = 1e6  # multipliers, relative to the first ones, from which on a contradiction is looked for


@dataclass(frozen=True, eq=False)
class Point:
    """Multipliers y with S(y) > 0, and W = gamma S^-1."""

    y: Array
    matrix: Array
    lower: float  # bound on the optimum of the program with gamma = 0
    converged: bool
    steps: int
    proof: Array | None = None  # multipliers that prove the constraints contradictory


def minimise(C0: Array, problem: Problem, gamma: float, price: float, tol: float) -> Point | None:
    """The solution to a relative accuracy; None where no multipliers make S positive definite.

    Parameters
    ----------
    C0 : the cost
    problem : the constraints on W, bound to the identity
    gamma : the weight of -log det W
    price : of violating a constraint by 1; inf where they are hard
    tol : the accuracy
    """
    run = _Run(C0, problem, price)
    if not run.find_start():
        return None
    return run.solve(gamma, tol)


class _Run:
    """The state of one run: y, with S(y) = L L^T."""

    def __init__(self, C0: Array, problem: Problem, price: float) -> None:
        self.C0, self.problem, self.price = C0, problem, price
        self.constraints = problem.formulation.rows
        self.b = problem.bounds
        self.sign = -problem.relations.astype(np.float64)  # of multipliers; 0 for both
        self.unequal = self.sign != 0
        d, m = len(C0), len(self.b)
        self.every = np.arange(m)
        rows = self._rows(np.eye(d))
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        self.norms = np.where(norms > 0, norms, 1.0)
        self.moving = self.every if np.isfinite(price) else self._independent(rows)
        largest = float(np.abs(np.linalg.eigvalsh(C0)).max())
        self.unit = largest if largest > 0 else 1.0
        self.y = np.minimum(1e-3 * self.unit / self.norms, price / 2) * self.sign
        self.steps = 0

    def find_start(self) -> bool:
        """Multipliers with S(y) > 0, by lowering tau in S(y) + tau I > 0 until it is below 0."""
        tau = max(self.unit - float(np.linalg.eigvalsh(self._S(self.y))[0]), 0.0)
        weight = self.unit
        while not self._is_inside(self.y):
            for _ in range(30):
                L = self._factor(self.y, tau)
                if L is None:
                    return False
                R, trace = self._whitened(L)
                # the last unknown is tau, whose matrix is the identity
                inverse = np.linalg.inv(L)
                packed = np.vstack([R, self._packed(inverse @ inverse.T)])
                gradient = np.append(weight * trace, weight * float(np.sum(inverse**2)) - 1.0)
                pull, curvature = self._barrier(self.y, weight)
                gradient[:-1] += pull
                H = weight * packed @ packed.T
                H[self.every, self.every] += curvature
                step = self._step(H, gradient)
                decrement = float(gradient @ step)

                def merit(y: Array, t: float, weight: float = weight) -> float:
                    return -t + self._logarithms(y, weight, t)

                here, length = merit(self.y, tau), 1.0
                for _ in range(_BACKTRACKS):
                    y, t = self.y + length * step[:-1], tau + length * float(step[-1])
                    if merit(y, t) >= here + 0.1 * length * decrement:
                        break
                    length /= 2
                else:
                    break
                self.y, tau = y, t
                self.steps += 1
                if tau < 0 and self._is_inside(self.y):
                    return True
                if decrement <= _STAGE_DECREMENT * weight:
                    break
            weight *= _SHRINK
            if weight < _HOPELESS * self.unit:
                return False
        return True

    def solve(self, gamma: float, tol: float) -> Point:
        """Newton's method with falling weights."""
        d, m = len(self.C0), max(int(np.count_nonzero(self.unequal | np.isfinite(self.price))), 1)
        first = max(float(np.abs(self.b) @ np.abs(self.y)), self.unit, gamma)
        far = _LARGE * max(float(np.max(np.abs(self.y) * self.norms, initial=0.0)), self.unit)
        weight, mu = max(first / d, gamma), max(first / d, gamma)
        last_mu = tol * gamma * d / m
        while True:
            is_last = weight <= gamma and mu <= last_mu
            weight, mu = max(weight, gamma), max(mu, last_mu)
            limit = _LAST_DECREMENT if is_last else _STAGE_DECREMENT
            if not self._centre(weight, mu, limit * mu, far):
                proof = self._proof()
                return Point(self.y, self._W(gamma), self._lower(), False, self.steps, proof)
            if is_last:
                return Point(self.y, self._W(gamma), self._lower(), True, self.steps)
            weight, mu = _SHRINK * weight, _SHRINK * mu

    def _centre(self, gamma: float, mu: float, wanted: float, far: float) -> bool:
        """Newton's method for one pair of weights; False where it does not come to an end."""
        while self.steps < _MOST_STEPS:
            step, decrement = self._direction(gamma, mu)
            if not decrement > wanted:
                self._polish(gamma, mu, step, decrement)
                return True
            here, length = self._merit(self.y, gamma, mu), self._longest(step)
            rounding = _ROUNDING * max(abs(here), gamma)
            for _ in range(_BACKTRACKS):
                moved = self.y + length * step
                if self._merit(moved, gamma, mu) >= here + 0.1 * length * decrement - rounding:
                    break
                length /= 2
            else:
                return False
            self.y = moved
            self.steps += 1
            if decrement <= rounding:  # nothing is left to gain
                return True
            if np.max(np.abs(self.y) * self.norms) > far and self._proof() is not None:
                return False
        return False

    def _direction(self, gamma: float, mu: float) -> tuple[Array, float]:
        """Newton's step, and the square of its length, twice what it gains."""
        L = self._factor(self.y)
        assert L is not None
        R, trace = self._whitened(L)
        pull, curvature = self._barrier(self.y, mu)
        gradient = gamma * trace - self.b + pull
        H = gamma * R @ R.T
        H[self.every, self.every] += curvature
        step = self._step(H, gradient)
        return step, float(gradient @ step)

    def _step(self, H: Array, gradient: Array) -> Array:
        """Newton's, of the multipliers that move, and of what else there is behind them."""
        moving = np.append(self.moving, np.arange(len(self.every), len(gradient)))
        step = np.zeros_like(gradient)
        step[moving] = _solved(H[np.ix_(moving, moving)], gradient[moving])
        return step

    def _independent(self, rows: Array) -> Index:
        """All rows but the equalities that follow from other equalities."""
        equal = np.flatnonzero(~self.unequal)
        if not len(equal):
            return self.every
        R, order = linalg.qr((rows[equal] / self.norms[equal, None]).T, mode="r", pivoting=True)
        rank = int(np.count_nonzero(np.abs(R.diagonal()) > _DEPENDENT))
        shares = linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:])
        bounds = (self.b[equal] / self.norms[equal])[order]
        sizes = np.abs(shares).T @ np.abs(bounds[:rank]) + np.abs(bounds[rank:])
        agrees = np.abs(shares.T @ bounds[:rank] - bounds[rank:]) <= _CONSISTENT * sizes
        return np.setdiff1d(self.every, equal[order[rank:][agrees]])

    def _lower(self) -> float:
        """-b'y less its rounding; none where rounding may hide that S is not positive definite."""
        terms, d, m = self.y * self.b, len(self.C0), len(self.b)
        size = float(np.linalg.norm(self.C0) + np.abs(self.y) @ self.norms)
        if np.linalg.eigvalsh(self._S(self.y))[0] <= _EPSILON * (d + m) * size:
            return -np.inf
        return -float(terms.sum()) - _EPSILON * m * float(np.abs(terms).sum())

    def _polish(self, gamma: float, mu: float, step: Array, decrement: float) -> None:
        """Full steps while they shorten: what is left of the residuals is squared by each."""
        for _ in range(_POLISHING):
            y = self.y
            if not np.isfinite(self._merit(y + step, gamma, mu)):
                return
            self.y = y + step
            step, after = self._direction(gamma, mu)
            if not after < decrement:
                self.y = y
                return
            decrement = after

    def _longest(self, step: Array) -> float:
        """The longest step up to 1 that leaves multipliers some of their room."""
        rooms, moves = self.sign * self.y, self.sign * step
        shrinking = self.unequal & (moves < 0)
        limits = [rooms[shrinking] / -moves[shrinking]]
        if np.isfinite(self.price):
            changing = step != 0
            limits.append((self.price - np.abs(self.y[changing])) / np.abs(step[changing]))
        return min(1.0, _TO_THE_EDGE * float(np.min(np.concatenate(limits), initial=np.inf)))

    def _proof(self) -> Array | None:
        return None if np.isfinite(self.price) else self.problem.formulation.farkas(self.y)

    def _merit(self, y: Array, gamma: float, mu: float) -> float:
        logarithms = self._logarithms(y, mu, None)
        L = self._factor(y) if np.isfinite(logarithms) else None
        if L is None:
            return -np.inf
        return 2.0 * gamma * float(np.sum(np.log(np.diag(L)))) - float(self.b @ y) + logarithms

    def _logarithms(self, y: Array, mu: float, tau: float | None) -> float:
        """mu times the logarithms of what multipliers leave to their limits, and of det(S + tau I)."""
        room = (self.sign * y)[self.unequal]
        # on either side, since the size of a multiplier of an equality has a kink at 0
        rest = np.concatenate([self.price - y, self.price + y]) if np.isfinite(self.price) else np.ones(0)
        if (room <= 0).any() or (rest <= 0).any():
            return -np.inf
        total = mu * float(np.sum(np.log(room)) + np.sum(np.log(rest)))
        if tau is None:
            return total
        L = self._factor(y, tau)
        return -np.inf if L is None else total + 2.0 * mu * float(np.sum(np.log(np.diag(L))))

    def _barrier(self, y: Array, mu: float) -> tuple[Array, Array]:
        """Slope and curvature (its size) of the logarithms."""
        pull, curvature = np.zeros_like(y), np.zeros_like(y)
        rows = self.unequal
        pull[rows], curvature[rows] = mu / y[rows], mu / y[rows] ** 2
        if np.isfinite(self.price):
            pull += mu / (self.price + y) - mu / (self.price - y)
            curvature += mu / (self.price + y) ** 2 + mu / (self.price - y) ** 2
        return pull, curvature

    def _is_inside(self, y: Array) -> bool:
        values = np.linalg.eigvalsh(self._S(y))
        return bool(values[0] > _INSIDE * max(abs(values[-1]), self.unit))

    def _S(self, y: Array) -> Array:
        return self.C0 + self.constraints.adjoint(y)

    def _factor(self, y: Array, tau: float = 0.0) -> Array | None:
        try:
            return np.asarray(np.linalg.cholesky(self._S(y) + tau * np.eye(len(self.C0))), dtype=np.float64)
        except np.linalg.LinAlgError:
            return None

    def _W(self, gamma: float) -> Array:
        L = self._factor(self.y)
        W = gamma * linalg.cho_solve((L, True), np.eye(len(self.C0)))
        return np.asarray((W + W.T) / 2)

    def _whitened(self, L: Array) -> tuple[Array, Array]:
        """L^-1 A_i L^-T of every row, packed, and <A_i, S^-1>."""
        R = self._rows(np.asarray(np.linalg.inv(L).T, dtype=np.float64))
        return R, R @ self._packed(np.eye(len(L)))

    def _rows(self, basis: Array) -> Array:
        return self.constraints.packed(basis).T

    def _packed(self, A: Array) -> Array:
        """The upper triangle, scaled so that products are those of matrices."""
        a, b = np.triu_indices(len(A))
        return np.asarray(A[a, b] * np.where(a == b, 1.0, np.sqrt(2.0)))


def _solved(H: Array, right: Array) -> Array:
    """H^-1 right for a semidefinite H, whose rows may have very different sizes."""
    scale = 1.0 / np.sqrt(np.maximum(H.diagonal(), np.finfo(np.float64).tiny))
    scaled = H * scale[:, None] * scale
    factor = factored(scaled)
    x = linalg.cho_solve(factor, scale * right)
    x += linalg.cho_solve(factor, scale * right - scaled @ x)  # against the regularisation
    return np.asarray(scale * x)
