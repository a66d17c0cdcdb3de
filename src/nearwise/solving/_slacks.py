"""The constraint rows of an interior-point method, each with the slack that its loss leaves it.

A row is written p + sign s = xi: s >= 0 is its distance from a bound xi, which is b for a hard row and for a
soft one the b that gives way, y = gamma (phi'(xi) - phi'(b)) (KSD09 (22), JKDD12 (7)). On the central path
s |y| = mu, so every row is smooth and mu = 0 is the problem itself. The sign is +1 for "<=", -1 for ">=" and
0 for "==", which has no s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Mask
from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.solving._written import WrittenForm

_TINY = 1e-300
_BISECTIONS = 32  # of the logarithm of a slack between 1e-300 and 1e300: to seven digits
_SMALL_BOUND = 0.1  # of b: how far a bound that has shrunk to nothing may come back in one step


class SlackStep(NamedTuple):
    """How the rows change: a direction, or the last one whose second-order terms are to be corrected."""

    y: Array
    s: Array
    xi: Array
    zeta: Array
    log: Array


class Aim(NamedTuple):
    """What a step is to bring about.

    Attributes
    ----------
    e : of its condition
    owed, owed_by_barriers : what s |y| and xi zeta are short of
    share : of the other conditions, how much is to be made up for
    """

    e: Array
    owed: Array
    owed_by_barriers: Array
    share: float


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
    s : distances from the bounds; 1, which nothing depends on, for "=="
    xi : the bounds after they gave way
    zeta : of rows with LogDet's loss: xi zeta = gamma, zeta = gamma / b - y
    log : of rows with von Neumann's loss: log(xi / b)
    """

    def __init__(self, form: WrittenForm, values: Array, primal: float, dual: float, sizes: Array) -> None:
        losses, bregman = form.losses, form.losses.is_bregman
        self.sign = -losses.relations.astype(np.float64)
        self.unequal: Mask = self.sign != 0
        self.count = int(self.unequal.sum())
        self._has_slack = self.unequal.astype(np.float64)
        self.bounds, self.gamma = losses.bounds, losses.penalties
        is_barrier: Mask = bregman & isinstance(losses.divergence, LogDet)  # xi (gamma/b - y) = gamma
        is_entropy: Mask = bregman & isinstance(losses.divergence, VonNeumann)  # y = gamma log(xi / b)
        is_linear: Mask = ~(losses.is_hard | is_barrier | is_entropy)  # xi = b + give * y
        self._barrier, self._entropy = np.flatnonzero(is_barrier), np.flatnonzero(is_entropy)
        self._linear = np.flatnonzero(is_linear)
        half = 0.5 if isinstance(losses.divergence, Frobenius) else 1.0  # phi' is 2 x there
        self._give = np.where(bregman, half * losses.compliance, losses.compliance)[self._linear]
        self._of_barrier, self._of_entropy = self.gamma[self._barrier], self.gamma[self._entropy]
        self.zeta_at_zero = self._of_barrier / self.bounds[self._barrier]
        self.xi = self.bounds.copy()
        self._start(values, primal, dual, np.where(sizes > 0, sizes, 1.0))

    @property
    def any_linear(self) -> bool:
        """Whether the bound of some row gives way in proportion to its multiplier."""
        return len(self._linear) > 0

    def _start(self, p: Array, primal: float, dual: float, size: Array) -> None:
        """Rows that give way start on the central path at p, unless that takes too large a multiplier."""
        mu, most, room = primal * dual, dual / size, self.sign * (self.bounds - p)
        self.s = np.where(self.unequal, np.maximum(room, primal * size), 1.0)
        magnitude = self._has_slack * mu / self.s

        rows = self._linear[self.unequal[self._linear]]
        if len(rows):
            give, q = self._give[self.unequal[self._linear]], room[rows]
            root = np.sqrt(q**2 + 4 * give * mu)  # of give y^2 + q y = mu
            exact = np.where(q < 0, (root - q) / (2 * give), 2 * mu / (root + q))
            magnitude[rows] = np.where(exact <= most[rows], exact, magnitude[rows])
            self.s[rows] = mu / magnitude[rows]

        if len(self._barrier):
            among = self.unequal[self._barrier]
            rows, at_zero = self._barrier[among], self.zeta_at_zero[among]
            upper = self.sign[rows] > 0
            weak = upper & (at_zero < 2 * most[rows])
            magnitude[rows] = np.where(weak, at_zero / 2, magnitude[rows])
            inside = np.maximum(p[rows], 0.0) / 2 + 1e-3 * primal * size[rows]
            self.s[rows] = np.where(upper, mu / magnitude[rows], inside)
            magnitude[rows] = mu / self.s[rows]
            self.xi[rows] = self.s[rows]
            rows = self._barrier[~among]
            self.xi[rows] = primal * size[rows]
        self.zeta = np.maximum(self._of_barrier, mu) / self.xi[self._barrier]

        rows = self._entropy[self.unequal[self._entropy]]
        if len(rows):
            gamma, sign = self.gamma[rows], self.sign[rows]
            slack = _entropy_slack(p[rows], self.bounds[rows], gamma, sign, mu)
            fits = ((p[rows] > 0) | (sign > 0)) & (mu / slack <= most[rows])
            self.s[rows] = np.where(fits, slack, self.s[rows])
            magnitude[rows] = np.where(fits, mu / slack, np.minimum(magnitude[rows], 50 * gamma))
        self.y = self.sign * magnitude
        self.log = self.y[self._entropy] / self._of_entropy
        self.xi[self._entropy] = self.bounds[self._entropy] * np.exp(self.log)
        self.xi[self._linear] += self._give * self.y[self._linear]

    def prepare(self, p: Array) -> Array:
        """Begin a step at values p: 1/w of Newton's condition on a step D of M, <A_i, D> = e_i + dy_i / w_i.

        The bounds follow as dxi = share * owed + slope * dy; both are 0 for hard rows.
        """
        size = np.abs(self.y)
        self._inverse = self._has_slack / (size + (1.0 - self._has_slack))
        self._product = self.s * size
        self._slope, self._owed_by_bounds = slope, owed = np.zeros_like(size), np.zeros_like(size)
        if len(rows := self._barrier):
            xi = self.xi[rows]
            slope[rows] = xi / self.zeta
            self._zeta_owed = self.zeta_at_zero - self.y[rows] - self.zeta
            owed[rows] = -slope[rows] * self._zeta_owed
        if len(rows := self._entropy):
            self._log_owed = self.y[rows] / self._of_entropy - self.log
            slope[rows] = self.xi[rows] / self._of_entropy
            owed[rows] = self.xi[rows] * self._log_owed
        if len(rows := self._linear):
            slope[rows] = self._give
            owed[rows] = self.bounds[rows] + self._give * self.y[rows] - self.xi[rows]
        self._open = self.xi - p - self.sign * self.s + owed
        return self.s * self._inverse + slope

    def aim(self, mu: float, last: SlackStep | None, share: float) -> Aim:
        """What a step owes that is to make s |y| equal mu, by how s and y answered to the last one, if any.

        A straight step asked for ds |y| + s d|y| = -s |y|. As many times of it, t, as make
        (s + t ds) (|y| + t d|y|) equal mu are between 0 and 2, however far that step leads; Mehrotra's
        correction, -ds d|y|, is what is left of t for small steps.
        """
        owed, by_barriers = mu - self._product, np.maximum(self._of_barrier, mu)
        if last is not None:
            owed *= _stretch(self._product, last.s * self.sign * last.y, -owed)
            if len(rows := self._barrier):
                product, bend = self.xi[rows] * self.zeta, last.xi[rows] * last.zeta
                above, left = product - self._of_barrier, product - by_barriers
                by_barriers -= np.where(above > 0, left * (_stretch(above, bend, left) - 1), bend)
        e = share * self._open - self.sign * self._inverse * owed
        if len(rows := self._barrier):
            by_barriers = by_barriers / self.zeta - self.xi[rows]
            e[rows] += by_barriers
        return Aim(e, owed, by_barriers, share)

    def change(self, dy: Array, aim: Aim) -> SlackStep:
        """How everything follows the multipliers."""
        ds = (aim.owed - self.s * self.sign * dy) * self._inverse
        dxi = aim.share * self._owed_by_bounds + self._slope * dy
        dzeta, dlog = self.zeta, self.log
        if len(rows := self._barrier):
            dxi[rows] += aim.owed_by_barriers
            dzeta = aim.share * self._zeta_owed - dy[rows]
        if len(rows := self._entropy):
            dlog = aim.share * self._log_owed + dy[rows] / self._of_entropy
        return SlackStep(dy, ds, dxi, dzeta, dlog)

    def longest(self, step: SlackStep) -> tuple[float, float]:
        """How far primal and dual variables may go until one of them is zero."""
        primal = _steepest(step.s / self.s)
        dual = _steepest(self.sign * step.y * self._inverse)
        if len(rows := self._barrier):
            primal = max(primal, _steepest(step.xi[rows] / self.xi[rows]))
            dual = max(dual, _steepest(step.zeta / self.zeta))
        return 1 / primal if primal > 0 else np.inf, 1 / dual if dual > 0 else np.inf

    @property
    def product(self) -> float:
        """The sum of s |y|."""
        return float(np.abs(self.s * self.y) @ self._has_slack)

    def product_after(self, step: SlackStep, primal: float, dual: float) -> float:
        """`product` after a step."""
        after = (self.s + primal * step.s) * np.abs(self.y + dual * step.y)
        return float(after @ self._has_slack)

    def move(self, step: SlackStep, primal: float, dual: float) -> None:
        """Take a step: s and xi by its primal length, the multipliers by its dual length."""
        self.s = self.s + primal * step.s
        self.xi = self.xi + primal * step.xi
        if len(rows := self._entropy):
            b = self.bounds[rows]
            # xi = b exp(y / gamma) shrinks as fast as it likes, and grows as its linear part says.
            most = np.log(np.maximum(self.xi[rows] / b, _SMALL_BOUND))
            self.log = np.minimum(self.log + primal * step.log, most)
            self.xi[rows] = b * np.exp(self.log)
        self.y = self.y + dual * step.y
        if len(self._barrier):
            self.zeta = self.zeta + dual * step.zeta


def _stretch(above: Array, bend: Array, left: Array) -> Array:
    """t above / left, where t times a step that asks products to fall by `above` make them fall by `left`.

    They fall by t above - t^2 bend, where `bend` is the product of the changes of both factors.
    """
    root = np.sqrt(np.maximum(above**2 - 4 * bend * left, 0.0))
    return np.asarray(2 * (above / (above + root + _TINY)))


def _steepest(relative: Array) -> float:
    """How fast the variable falls that reaches zero first, from its changes relative to their values."""
    return -min(float(np.fmin.reduce(relative, initial=0.0)), 0.0)


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
