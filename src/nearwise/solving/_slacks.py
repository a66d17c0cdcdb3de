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
    """How the rows change: a direction, or the last one whose second-order terms are to be corrected.

    Attributes
    ----------
    y, xi, log : as of `Slacks`
    first, second : of the pairs
    """

    y: Array
    xi: Array
    first: Array
    second: Array
    log: Array


class Aim(NamedTuple):
    """What a step is to bring about.

    Attributes
    ----------
    e : of its condition
    owed : what the products of pairs are short of, relative to their second numbers
    share : of the other conditions, how much is to be made up for
    """

    e: Array
    owed: Array
    share: float


class Slacks:
    """The state of all rows.

    Positive numbers come in pairs with products: s |y| = mu of every row that is no equality, and of those
    with LogDet's loss also xi zeta = max(gamma, mu), zeta = gamma / b - y.

    Parameters
    ----------
    form : what is solved; LogDet, von Neumann or Frobenius
    values : p at the first point
    primal, dual : the sizes of M and of its multiplier there
    sizes : of the rows, under a matrix of size 1

    Attributes
    ----------
    y : multipliers
    xi : the bounds after they gave way
    log : of rows with von Neumann's loss: log(xi / b)
    first, second : s and |y| of all rows, 1 and 1 for "==", which nothing depends on; then xi and zeta
    """

    def __init__(self, form: WrittenForm, values: Array, primal: float, dual: float, sizes: Array) -> None:
        losses, bregman = form.losses, form.losses.is_bregman
        self.sign = -losses.relations.astype(np.float64)
        self.unequal: Mask = self.sign != 0
        self.count = int(np.count_nonzero(self.unequal))
        self.bounds, self.gamma = losses.bounds, losses.penalties
        is_barrier: Mask = bregman & isinstance(losses.divergence, LogDet)  # xi (gamma/b - y) = gamma
        is_entropy: Mask = bregman & isinstance(losses.divergence, VonNeumann)  # y = gamma log(xi / b)
        is_linear: Mask = ~(losses.is_hard | is_barrier | is_entropy)  # xi = b + give * y
        self._barrier, self._entropy = is_barrier.nonzero()[0], is_entropy.nonzero()[0]
        self.any_linear = bool(is_linear.any())  # whether a bound gives way in proportion to its multiplier
        half = 0.5 if isinstance(losses.divergence, Frobenius) else 1.0  # phi' is 2 x there
        give = np.where(bregman, half * losses.compliance, losses.compliance)
        self._give = np.where(is_linear, give, 0.0)
        of_barrier, self._of_entropy = self.gamma[self._barrier], self.gamma[self._entropy]
        self._zeta_at_zero = of_barrier / self.bounds[self._barrier]
        self._n_rows = m = len(self.bounds)
        self._is_pair = np.ones(m + len(of_barrier))
        self._is_pair[:m] = self.unequal
        self._floors = np.concatenate([np.zeros(m), of_barrier])
        self._start(values, primal, dual, np.where(sizes > 0, sizes, 1.0))

    def _start(self, p: Array, primal: float, dual: float, size: Array) -> None:
        """Rows that give way start on the central path at p, unless that takes too large a multiplier."""
        mu, most, room = primal * dual, dual / size, self.sign * (self.bounds - p)
        s = np.where(self.unequal, np.maximum(room, primal * size), 1.0)
        magnitude = np.where(self.unequal, mu / s, 0.0)

        rows = ((self._give > 0) & self.unequal).nonzero()[0]
        if len(rows):
            give, q = self._give[rows], room[rows]
            root = np.sqrt(q**2 + 4 * give * mu)  # of give y^2 + q y = mu
            exact = np.where(q < 0, (root - q) / (2 * give), 2 * mu / (root + q))
            magnitude[rows] = np.where(exact <= most[rows], exact, magnitude[rows])
            s[rows] = mu / magnitude[rows]

        rows = self._entropy[self.unequal[self._entropy]]
        if len(rows):
            gamma, sign = self.gamma[rows], self.sign[rows]
            slack = _entropy_slack(p[rows], self.bounds[rows], gamma, sign, mu)
            fits = ((p[rows] > 0) | (sign > 0)) & (mu / slack <= most[rows])
            s[rows] = np.where(fits, slack, s[rows])
            magnitude[rows] = np.where(fits, mu / slack, np.minimum(magnitude[rows], 50 * gamma))

        self.y = self.sign * magnitude
        xi = zeta = self._zeta_at_zero
        if len(rows := self._barrier):
            start = self._start_of_barriers(p[rows], s[rows], mu, primal * size[rows], most[rows])
            s[rows], self.y[rows] = start
            zeta = self._zeta_at_zero - self.y[rows]
            xi = np.maximum(self._floors[self._n_rows :], mu) / zeta
        self.first, self.second = np.concatenate([s, xi]), np.concatenate([np.abs(self.y), zeta])
        self.second[: self._n_rows][~self.unequal] = 1.0
        self.log = self.y[self._entropy] / self._of_entropy
        self.xi = self.bounds + self._give * self.y
        self.xi[self._barrier] = xi
        self.xi[self._entropy] = self.bounds[self._entropy] * np.exp(self.log)

    def _start_of_barriers(
        self, p: Array, s: Array, mu: float, typical: Array, most: Array
    ) -> tuple[Array, Array]:
        """s and y of rows with LogDet's loss.

        On the path, sign mu / s + max(gamma, mu) / (p + sign s) = gamma / b. Where that takes too large a
        multiplier, s is what it is for hard rows, and zeta follows y all the same: a number that starts far
        below where it has to be takes its partner in a pair to the boundary.
        """
        sign, at_zero = self.sign[self._barrier], self._zeta_at_zero
        upper, wanted = sign > 0, np.maximum(self._floors[self._n_rows :], mu)
        # at_zero s^2 + c s = mu p, where p + sign s > 0
        c = sign * (at_zero * p - wanted - mu)
        root = np.sqrt(np.maximum(c**2 + 4 * at_zero * mu * p, 0.0))
        exact = np.where(c < 0, (root - c) / (2 * at_zero), 2 * mu * p / (root + c))
        fits = (mu / exact <= most) | (upper & (at_zero < 2 * most))
        fits &= (exact > 0) & (p + sign * exact > 0) & (sign * mu / exact < at_zero)
        inside = np.maximum(p, 0.0) / 2 + 1e-3 * typical
        s = np.where(fits, exact, np.where(upper, s, inside))
        at_equality = np.clip(at_zero - wanted / np.maximum(p, 1e-3 * typical), -most, most)
        equal = sign == 0
        return np.where(equal, 1.0, s), np.where(equal, at_equality, sign * (mu / s))

    def prepare(self, p: Array) -> Array:
        """Begin a step at values p: 1/w of Newton's condition on a step D of M, <A_i, D> = e_i + dy_i / w_i.

        The bounds follow as dxi = share * owed + slope * dy; both are 0 for hard rows.
        """
        m = self._n_rows
        self._per_second = self._is_pair / self.second
        self._ratio = self.first * self._per_second
        self._product = self.first * self.second
        self._above = self._product - self._floors
        slope, owed = self._give, self.bounds - self.xi
        if self.any_linear:
            owed += slope * self.y
        if len(rows := self._barrier):
            slope = slope.copy()
            slope[rows] = self._ratio[m:]
            self._zeta_owed = self._zeta_at_zero - self.y[rows] - self.second[m:]
            owed[rows] = -self._ratio[m:] * self._zeta_owed
        if len(rows := self._entropy):
            self._log_owed = self.y[rows] / self._of_entropy - self.log
            slope = slope.copy()
            slope[rows] = self.xi[rows] / self._of_entropy
            owed[rows] = self.xi[rows] * self._log_owed
        self._slope, self._owed_by_bounds = slope, owed
        self._open = self.xi - p
        self._open -= self.sign * self.first[:m]
        self._open += owed
        return self._ratio[:m] + slope

    def aim(self, mu: float, last: SlackStep | None, share: float) -> Aim:
        """What a step owes that is to make s |y| equal mu, by how s and y answered to the last one, if any.

        A straight step asked for ds |y| + s d|y| = -s |y|. As many times of it, t, as make
        (s + t ds) (|y| + t d|y|) equal mu are between 0 and 2, however far that step leads; Mehrotra's
        correction, -ds d|y|, is what is left of t for small steps.
        """
        m, above = self._n_rows, self._above
        owed = np.maximum(self._floors, mu)
        owed -= self._product
        if last is not None:
            bend = last.first * last.second
            owed = np.where(above > 0, owed * _stretch(above, bend, -owed), owed - bend)
        owed *= self._per_second
        e = share * self._open - self.sign * owed[:m]
        if len(rows := self._barrier):
            e[rows] += owed[m:]
        return Aim(e, owed, share)

    def change(self, dy: Array, aim: Aim) -> SlackStep:
        """How everything follows the multipliers."""
        second, dlog = self.sign * dy, self.log
        dxi = self._slope * dy
        dxi += aim.share * self._owed_by_bounds
        if len(rows := self._barrier):
            second = np.concatenate([second, aim.share * self._zeta_owed - dy[rows]])
        first = aim.owed - self._ratio * second
        if len(rows):
            dxi[rows] = first[self._n_rows :]
        if len(rows := self._entropy):
            dlog = aim.share * self._log_owed + dy[rows] / self._of_entropy
        return SlackStep(dy, dxi, first, second, dlog)

    def longest(self, step: SlackStep) -> tuple[float, float]:
        """How far primal and dual variables may go until one of them is zero."""
        return _to_zero(step.first / self.first), _to_zero(step.second * self._per_second)

    @property
    def product(self) -> float:
        """The sum of s |y|."""
        return self._sum(self.first, self.second)

    def product_after(self, step: SlackStep, primal: float, dual: float) -> float:
        """`product` after a step."""
        return self._sum(self.first + primal * step.first, self.second + dual * step.second)

    def _sum(self, first: Array, second: Array) -> float:
        m = self._n_rows
        return float((first[:m] * second[:m]) @ self._is_pair[:m])

    def move(self, step: SlackStep, primal: float, dual: float) -> None:
        """Take a step: s and xi by its primal length, the multipliers by its dual length."""
        self.first = self.first + primal * step.first
        self.second = self.second + dual * step.second
        self.xi = self.xi + primal * step.xi
        if len(rows := self._entropy):
            b = self.bounds[rows]
            # xi = b exp(y / gamma) shrinks as fast as it likes, and grows as its linear part says.
            most = np.log(np.maximum(self.xi[rows] / b, _SMALL_BOUND))
            self.log = np.minimum(self.log + primal * step.log, most)
            self.xi[rows] = b * np.exp(self.log)
        self.y = self.y + dual * step.y


def _stretch(above: Array, bend: Array, left: Array) -> Array:
    """t above / left, where t times a step that asks products to fall by `above` make them fall by `left`.

    They fall by t above - t^2 bend, where `bend` is the product of the changes of both factors.
    """
    root = np.sqrt(np.maximum(above**2 - 4 * bend * left, 0.0))
    return np.asarray(2 * (above / (above + root + _TINY)))


def _to_zero(relative: Array) -> float:
    """After how many steps the first variable is zero, from their changes relative to their values."""
    steepest = float(np.fmin.reduce(relative, initial=0.0))
    return -1 / steepest if steepest < 0 else np.inf


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
