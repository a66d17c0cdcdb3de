"""The constraint rows of an interior-point method, each with the slack that its loss leaves it.

A row is written p + sign s = xi: s >= 0 is its distance from a bound xi, which is b for a hard row and for a
soft one the b that gives way, y = gamma (phi'(xi) - phi'(b)) (KSD09 (22), JKDD12 (7)). On the central path
s |y| = mu, so every row is smooth and mu = 0 is the problem itself. The sign is +1 for "<=", -1 for ">=" and
0 for "==", which has no s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.model.formulation import Formulation

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_TINY = 1e-300
_BISECTIONS = 70
_SMALL_BOUND = 0.1  # of b: how far a bound that has shrunk to nothing may come back in one step


@dataclass(frozen=True)
class SlackStep:
    """How the rows change: a direction, or the last one whose second-order terms are to be corrected."""

    y: Array
    s: Array
    xi: Array
    zeta: Array
    log: Array


class Slacks:
    """The state of all rows.

    Parameters
    ----------
    form : what is solved; LogDet, von Neumann or Frobenius
    values : p at the first point
    primal, dual : the sizes of M and of its multiplier there
    sizes : of the rows, under a matrix of size 1

    Attributes
    ----------
    y : multipliers
    s : distances from the bounds
    xi : the bounds after they gave way
    """

    def __init__(self, form: Formulation, values: Array, primal: float, dual: float, sizes: Array) -> None:
        losses, m = form.losses, len(values)
        bregman = losses.is_bregman
        self.sign = -losses.relations.astype(np.float64)
        self.unequal: Mask = self.sign != 0
        self.count = int(self.unequal.sum())
        self.bounds, self.gamma = losses.bounds, losses.penalties
        self.is_barrier: Mask = bregman & isinstance(losses.divergence, LogDet)  # xi (gamma/b - y) = gamma
        self.is_entropy: Mask = bregman & isinstance(losses.divergence, VonNeumann)  # y = gamma log(xi / b)
        self.is_linear: Mask = ~losses.is_hard & ~self.is_barrier & ~self.is_entropy  # xi = b + give * y
        half = 0.5 if isinstance(losses.divergence, Frobenius) else 1.0  # phi' is 2 x there
        self.give = np.where(bregman, half * losses.compliance, losses.compliance)
        self.zeta_at_zero = np.ones(m)
        self.zeta_at_zero[self.is_barrier] = self.gamma[self.is_barrier] / self.bounds[self.is_barrier]
        self.xi, self.zeta, self.log = self.bounds.copy(), np.ones(m), np.zeros(m)
        self._start(values, primal, dual, np.where(sizes > 0, sizes, 1.0))

    def _start(self, p: Array, primal: float, dual: float, size: Array) -> None:
        """Rows that give way start on the central path at p, unless that takes too large a multiplier."""
        mu, most, room = primal * dual, dual / size, self.sign * (self.bounds - p)
        self.s = np.where(self.unequal, np.maximum(room, primal * size), 0.0)
        magnitude = np.where(self.unequal, mu / np.where(self.unequal, self.s, 1.0), 0.0)

        rows = np.flatnonzero(self.is_linear & self.unequal)
        give, q = self.give[rows], room[rows]
        root = np.sqrt(q**2 + 4 * give * mu)  # of give y^2 + q y = mu
        exact = np.where(q < 0, (root - q) / (2 * give), 2 * mu / (root + q))
        fits = exact <= most[rows]
        magnitude[rows] = np.where(fits, exact, magnitude[rows])
        self.s[rows] = mu / magnitude[rows]

        rows = np.flatnonzero(self.is_barrier & self.unequal)
        upper = self.sign[rows] > 0
        weak = upper & (self.zeta_at_zero[rows] < 2 * most[rows])
        magnitude[rows] = np.where(weak, self.zeta_at_zero[rows] / 2, magnitude[rows])
        inside = np.maximum(p[rows], 0.0) / 2 + 1e-3 * primal * size[rows]
        self.s[rows] = np.where(upper, mu / magnitude[rows], inside)
        magnitude[rows] = mu / self.s[rows]
        self.xi[rows] = self.s[rows]
        rows = np.flatnonzero(self.is_barrier & ~self.unequal)
        self.xi[rows] = primal * size[rows]
        barrier = self.is_barrier
        self.zeta[barrier] = np.maximum(self.gamma[barrier], mu) / self.xi[barrier]

        rows = np.flatnonzero(self.is_entropy & self.unequal)
        gamma, sign = self.gamma[rows], self.sign[rows]
        slack = _entropy_slack(p[rows], self.bounds[rows], gamma, sign, mu)
        fits = ((p[rows] > 0) | (sign > 0)) & (mu / slack <= most[rows])
        self.s[rows] = np.where(fits, slack, self.s[rows])
        magnitude[rows] = np.where(fits, mu / slack, np.minimum(magnitude[rows], 50 * gamma))
        self.y = self.sign * magnitude
        self.log[rows] = self.y[rows] / gamma
        self.xi[rows] = self.bounds[rows] * np.exp(self.log[rows])
        linear = self.is_linear
        self.xi[linear] = self.bounds[linear] + self.give[linear] * self.y[linear]

    @property
    def products(self) -> Array:
        """s |y| of the rows that have a slack."""
        return (self.s * np.abs(self.y))[self.unequal]

    def condition(self, p: Array, mu: float, last: SlackStep | None) -> tuple[Array, Array]:
        """e and 1/w: Newton's condition on a step D of M is <A_i, D> = e_i + dy_i / w_i."""
        e = self.xi - p - self.sign * self.s
        compliance = np.zeros(len(e))
        rows = self.unequal
        e[rows] -= self.sign[rows] * self._owed(mu, last) / np.abs(self.y[rows])
        compliance[rows] = self.s[rows] / np.abs(self.y[rows])
        constant, slope = self._yielding(mu, last)
        return e + constant, compliance + slope

    def change(self, dy: Array, mu: float, last: SlackStep | None) -> SlackStep:
        """How everything follows the multipliers."""
        ds, dzeta, dlog = np.zeros_like(dy), np.zeros_like(dy), np.zeros_like(dy)
        rows = self.unequal
        owed = self._owed(mu, last) - self.s[rows] * self.sign[rows] * dy[rows]
        ds[rows] = owed / np.abs(self.y[rows])
        rows = self.is_barrier
        dzeta[rows] = self.zeta_at_zero[rows] - self.y[rows] - self.zeta[rows] - dy[rows]
        rows = self.is_entropy
        dlog[rows] = (self.y[rows] + dy[rows]) / self.gamma[rows] - self.log[rows]
        constant, slope = self._yielding(mu, last)
        return SlackStep(dy, ds, constant + slope * dy, dzeta, dlog)

    def longest(self, step: SlackStep) -> tuple[float, float]:
        """How far primal and dual variables may go until one of them is zero."""
        rows, barrier = self.unequal, self.is_barrier
        primal = min(to_boundary(self.s[rows], step.s[rows]), to_boundary(self.xi[barrier], step.xi[barrier]))
        dual = min(
            to_boundary(np.abs(self.y[rows]), self.sign[rows] * step.y[rows]),
            to_boundary(self.zeta[barrier], step.zeta[barrier]),
        )
        return primal, dual

    def products_after(self, step: SlackStep, primal: float, dual: float) -> Array:
        """`products` after a step."""
        return ((self.s + primal * step.s) * np.abs(self.y + dual * step.y))[self.unequal]

    def move(self, step: SlackStep, primal: float, dual: float) -> None:
        """Take a step: s and xi by its primal length, the multipliers by its dual length."""
        self.s = self.s + primal * step.s
        moved = self.xi + primal * step.xi
        rows, b = self.is_entropy, self.bounds
        # xi = b exp(y / gamma) shrinks as fast as it likes, and grows as its linear part says.
        most = np.log(np.maximum(moved[rows] / b[rows], _SMALL_BOUND))
        self.log[rows] = np.minimum(self.log[rows] + primal * step.log[rows], most)
        moved[rows] = b[rows] * np.exp(self.log[rows])
        self.xi = moved
        self.y = self.y + dual * step.y
        self.zeta = self.zeta + dual * step.zeta

    def _owed(self, mu: float, last: SlackStep | None) -> Array:
        """mu - s |y|, less what the last step changes at second order."""
        rows = self.unequal
        owed = mu - self.s[rows] * np.abs(self.y[rows])
        return owed if last is None else owed - last.s[rows] * self.sign[rows] * last.y[rows]

    def _yielding(self, mu: float, last: SlackStep | None) -> tuple[Array, Array]:
        """How the bounds move: dxi = constant + slope * dy; both 0 for hard rows."""
        constant, slope = np.zeros(len(self.y)), np.zeros(len(self.y))
        rows = self.is_barrier
        xi, zeta = self.xi[rows], self.zeta[rows]
        off = zeta + self.y[rows] - self.zeta_at_zero[rows]
        owed = np.maximum(self.gamma[rows], mu) - xi * zeta + xi * off
        if last is not None:
            owed = owed - last.xi[rows] * last.zeta[rows]
        constant[rows], slope[rows] = owed / zeta, xi / zeta
        rows = self.is_entropy
        slope[rows] = self.xi[rows] / self.gamma[rows]
        constant[rows] = self.xi[rows] * (self.y[rows] / self.gamma[rows] - self.log[rows])
        rows = self.is_linear
        slope[rows] = self.give[rows]
        constant[rows] = self.bounds[rows] + slope[rows] * self.y[rows] - self.xi[rows]
        return constant, slope


def to_boundary(x: Array, dx: Array) -> float:
    """The largest t with x + t dx >= 0, for x > 0."""
    falling = dx < 0
    return float(np.min(x[falling] / -dx[falling], initial=np.inf))


def _entropy_slack(p: Array, b: Array, gamma: Array, sign: Array, mu: float) -> Array:
    """The s > 0 with s gamma sign log((p + sign s) / b) = mu, by bisection on its logarithm."""
    low = np.full(len(p), np.log(_TINY))
    high = np.where(sign > 0, -low, np.log(np.maximum(p, _TINY)))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        s = np.exp(middle)
        large = s * gamma * sign * np.log(np.maximum(p + sign * s, _TINY) / b) > mu
        low, high = np.where(large, low, middle), np.where(large, middle, high)
    return np.asarray(np.exp(high))
