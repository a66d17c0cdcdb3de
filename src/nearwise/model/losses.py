"""What a constraint costs: the loss of every row as a function of its value p = <A_i, M>.

A hard row costs nothing on the allowed side of its bound b and is forbidden on the other. A soft row costs
the papers' slack, eliminated in closed form: penalty * scalar(p, b) on the wrong side (KSD09 (22),
JKDD12 (7)). That needs p and b in the domain of the divergence, so it holds where b > 0 and p cannot reach
zero on the wrong side: rows "<=", and all rows whose A_i is positive semidefinite (distances, K_ii) and of
whose values no negative part is fixed. Every
other soft row (relative comparisons, bounds <= 0, lower bounds on inner products) has the second-order
expansion of that slack at the row's own size s, penalty / 2 * curvature(s) * (p - b)^2, where s is the size
of its parts under the prior: d(i, j) + d(k, l) for a comparison, sqrt(K_ii K_jj) for an inner product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.linalg.magnitudes import median
from nearwise.model.divergences import Divergence

SATISFIED = 1e-3  # relative violation up to which a constraint counts as satisfied, KSD09 7.1
_CLOSE = 1e-8  # relative distance from a bound, within which a loss is its second-order term


class Violated(NamedTuple):
    """The worst relative violation, that of hard rows, and the share of rows that count as satisfied."""

    worst: float
    hard: float
    satisfied: float


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of all rows.

    Attributes
    ----------
    divergence : gives the slack
    relations : -1 for "<=", +1 for ">=", 0 for "=="
    bounds : b
    penalties : gamma; inf for a hard row
    sizes : s > 0, the size of each row under the prior
    is_definite : whether A_i is positive semidefinite, and no negative part of its value fixed
    is_idle : whether A_i is zero, so that the multiplier of the row is
    """

    divergence: Divergence
    relations: NDArray[np.int8]
    bounds: Array
    penalties: Array
    sizes: Array
    is_definite: Mask
    is_idle: Mask | None = None  # no row is

    def only(self, rows: Index) -> Losses:
        """Those of some rows alone."""
        return Losses(
            self.divergence,
            self.relations[rows],
            self.bounds[rows],
            self.penalties[rows],
            self.sizes[rows],
            self.is_definite[rows],
            None if self.is_idle is None else self.is_idle[rows],
        )

    @cached_property
    def is_hard(self) -> Mask:
        return np.isinf(self.penalties)

    @cached_property
    def any_hard(self) -> bool:
        return bool(self.is_hard.any())

    @cached_property
    def references(self) -> Array:
        """What violations are relative to: the bound where it is positive and limits a square, else s."""
        return np.where((self.bounds > 0) & self.is_definite, self.bounds, self.sizes)

    def excess(self, p: Array) -> Array:
        """How far p is on the wrong side of the bound; >= 0."""
        difference, sign = p - self.bounds, self.relations
        return np.where(sign == 0, np.abs(difference), np.maximum(-difference * sign, 0.0))

    def violations(self, p: Array) -> Array:
        """`excess` relative to `references`."""
        return self.excess(p) / self.references

    def violated(self, p: Array) -> Violated:
        """What certificates report of the violations."""
        found = self.violations(p)
        return Violated(
            float(found.max(initial=0.0)),
            float(found[self.is_hard].max(initial=0.0)) if self.any_hard else 0.0,
            np.count_nonzero(found <= SATISFIED) / len(found) if len(found) else 1.0,
        )

    def most_violated(self, p: Array, count: int) -> list[tuple[int, float, float]]:
        """The `measured` rows with the largest relative violations, worst first, and none that holds."""
        found = self.violations(p)
        order = np.argsort(-found, kind="stable")[:count]
        return self.measured(p, order[found[order] > 0], found)

    def measured(
        self, p: Array, rows: Index, relative: Array | None = None
    ) -> list[tuple[int, float, float]]:
        """Some rows, with their values and relative violations, which may be known."""
        relative = self.violations(p) if relative is None else relative
        return list(zip(rows.tolist(), p[rows].tolist(), relative[rows].tolist(), strict=True))

    def times(self, share: float) -> Losses:
        """The same with a share of the penalties."""
        return replace(self, penalties=self.penalties * share)

    def in_unit(self, unit: float, stiffening: float) -> Losses:
        """The same for values in another unit; soft penalties are multiplied by `stiffening`."""
        with np.errstate(all="ignore"):
            scaled = np.maximum(self.penalties * stiffening, np.finfo(float).tiny)
        penalties = np.where(self.is_hard, np.inf, scaled)
        return replace(self, bounds=self.bounds / unit, sizes=self.sizes / unit, penalties=penalties)

    @cached_property
    def median_size(self) -> float:
        """Of the rows; 1 where there are none."""
        return median(self.sizes) if len(self.sizes) else 1.0

    @property
    def soft_penalties(self) -> tuple[int, float]:
        """How many soft rows there are, and what their penalties add up to."""
        soft = self.penalties[~self.is_hard]
        return len(soft), float(np.sum(soft))

    def total(self, p: Array, beyond: Array | None = None) -> float:
        """The sum of the losses of the soft rows at p.

        `beyond` is p - b where that is known better than from p itself. A bound of 1e27 with a moderate
        penalty makes what rounding takes from p cost more than the optimum.
        """
        if self.is_hard.all():
            return 0.0
        off = p - self.bounds if beyond is None else beyond
        bregman, quadratic = self._costly(off)
        cost = 0.0
        if len(bregman):
            b, d = self.bounds[bregman], off[bregman]
            slack = self.divergence.scalar(p[bregman], b)
            if beyond is not None:
                close = np.abs(d) <= _CLOSE * np.abs(b)
                slack[close] = self._bent(b[close], d[close]) / 2
            cost += float((self.penalties[bregman] * slack).sum())
        if len(quadratic):
            relative = off[quadratic] / self.sizes[quadratic]
            cost += float((self._stiffness[quadratic] * relative**2).sum()) / 2
        return cost

    @cached_property
    def cost_of_rounding(self) -> float:
        """What soft rows cost whose values differ from their bounds by the rounding of these."""
        return self.cost_of(float(np.finfo(np.float64).eps) * np.abs(self.bounds))

    @np.errstate(all="ignore")
    def cost_of(self, off: Array) -> float:
        """What soft rows cost whose values differ from their bounds by so little."""
        found = 0.0
        if (rows := self.is_bregman).any():
            found += float((self.penalties[rows] * self._bent(self.bounds[rows], off[rows])).sum())
        if (rows := self._is_quadratic).any():
            found += float((self._stiffness[rows] * (off[rows] / self.sizes[rows]) ** 2).sum())
        return found / 2 if math.isfinite(found) else math.inf

    def slopes(self, p: Array) -> Array:
        """The derivative of the loss of every row at p; zero for hard rows."""
        out = np.zeros_like(p)
        bregman, quadratic = self._costly(p - self.bounds)
        if len(bregman):
            slack = self.divergence.gradient(p[bregman]) - self._bound_gradient[bregman]
            out[bregman] = self.penalties[bregman] * slack
        if len(quadratic):
            size, off = self.sizes[quadratic], p[quadratic] - self.bounds[quadratic]
            out[quadratic] = self._stiffness[quadratic] * (off / size) / size
        return out

    def finite_slopes(self, p: Array) -> Array:
        """`slopes`, with zeros where they are not finite."""
        found = self.slopes(p)
        return np.where(np.isfinite(found), found, 0.0)

    def curvatures(self, p: Array) -> Array:
        """The second derivative of the loss of every row at p; zero for hard rows."""
        out = np.zeros_like(p)
        bregman, quadratic = self._costly(p - self.bounds)
        out[bregman] = self.penalties[bregman] * self.divergence.curvature(p[bregman])
        out[quadratic] = self._stiffness[quadratic] / self.sizes[quadratic] ** 2
        return out

    def conjugate(self, y: Array) -> Array:
        """sup_p (y p - loss(p)) of every row, for multipliers of the right sign; y b for a hard row."""
        out = y * self.bounds
        if self.is_hard.all():
            return out
        used = y != 0
        if len(bregman := (self.is_bregman & used).nonzero()[0]):
            given = y[bregman], self.bounds[bregman], self.penalties[bregman]
            out[bregman] = conjugate_slack(self.divergence, *given)
        if len(quadratic := (self._is_quadratic & used).nonzero()[0]):
            push = y[quadratic] * self.sizes[quadratic]
            out[quadratic] += push * (push / (2 * self._stiffness[quadratic]))  # whose square may overflow
        return out

    def fenchel_residual(self, p: Array, y: Array, total: float, beyond: Array | None = None) -> float:
        """`total` at p, plus the sum of conjugate(y) - y p: zero where y is the derivative at p.

        `beyond` is p - b where that is known better than from p itself.
        """
        if not y.any():
            return total
        # where some row has a multiplier though it holds, or is hard, y are no slopes: told in no time
        may_be = not self.any_hard and not ((y != 0) & (self.excess(p) == 0)).any()
        if may_be and np.array_equal(self.slopes(p), y):
            if beyond is None:
                return 0.0
            close = np.abs(beyond) <= _CLOSE * np.abs(self.bounds)
            rounded = np.where(close, beyond - (p - self.bounds), 0.0)
            return max(total - self.total(p) - float(y @ rounded), 0.0)
        residual = self.conjugate(y) - y * p
        if self.any_hard:
            rows = self.is_hard
            residual[rows] = -y[rows] * (p - self.bounds if beyond is None else beyond)[rows]
        return total + float(residual.sum())

    def smaller_share(self, share: float) -> float:
        """Of multipliers that lie outside the dual's domain, the next share to try."""
        return share / 2

    def discrepancies(self, p: Array, y: Array) -> Array:
        """How far values p are from those that belong to multipliers y, relative to `references`; >= 0.

        Where y = 0 that is the violation; zero everywhere means that p and y are optimal for the losses.
        """
        reply = self.bounds + self.compliance * y
        rows = np.flatnonzero(self.is_bregman & (y != 0))
        reply[rows] = self.divergence.gradient_inverse(
            self._bound_gradient[rows] + self.compliance[rows] * y[rows]
        )
        return np.where(y == 0, self.violations(p), np.abs(p - reply) / self.references)

    def signed(self, dual: ArrayLike) -> Array:
        """The multipliers nearest to the given ones that have the right sign."""
        y = np.asarray(dual, dtype=np.float64)
        y = y if self.is_idle is None else np.where(self.is_idle, 0.0, y)
        return np.where(
            self.relations < 0, np.maximum(y, 0), np.where(self.relations > 0, np.minimum(y, 0), y)
        )

    @cached_property
    def is_bregman(self) -> Mask:
        """The soft rows whose loss is the divergence's own slack."""
        inside = self.is_definite | (self.relations < 0)
        return (self.bounds > 0) & inside & ~self.is_hard

    @cached_property
    def compliance(self) -> Array:
        """How far each row gives way to its multiplier y: g(p) = g(b) + compliance * y where y != 0.

        g is phi' for a row with Bregman slack, the identity for a quadratic loss; 0 for hard rows.
        """
        out = np.zeros_like(self.bounds)
        out[self.is_bregman] = 1 / self.penalties[self.is_bregman]
        rows = self._is_quadratic
        out[rows] = self.sizes[rows] ** 2 / self._stiffness[rows]
        return out

    @cached_property
    def _is_quadratic(self) -> Mask:
        return ~self.is_bregman & ~self.is_hard

    @cached_property
    def _stiffness(self) -> Array:
        """penalty * curvature(s) * s^2 of the rows with quadratic loss, without overflow on the way."""
        out = np.zeros_like(self.bounds)
        if (rows := self._is_quadratic).any():
            s = self.sizes[rows]
            out[rows] = self.penalties[rows] * self._bent(s, s)
        return out

    def _bent(self, at: Array, off: Array) -> Array:
        """curvature(at) * off^2, without overflow on the way."""
        degree = self.divergence.degree
        if degree is None:
            return np.asarray(self.divergence.curvature(at) * off**2)
        return np.asarray(self.divergence.curvature(np.ones(1)) * at**degree * (off / at) ** 2)

    @cached_property
    def _bound_gradient(self) -> Array:
        out = np.zeros_like(self.bounds)
        out[self.is_bregman] = self.divergence.gradient(self.bounds[self.is_bregman])
        return out

    def _costly(self, difference: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The soft rows with p - b on the wrong side, with Bregman slack and with quadratic loss."""
        wrong = np.where(self.relations == 0, difference != 0, difference * self.relations < 0)
        return (wrong & self.is_bregman).nonzero()[0], (wrong & self._is_quadratic).nonzero()[0]


@np.errstate(all="ignore")
def conjugate_slack(divergence: Divergence, dual: ArrayLike, bound: ArrayLike, penalty: ArrayLike) -> Array:
    """l*(y) = sup_{p >= 0} (y p - gamma scalar(p, b)) for dual y, bound b and penalty gamma.

    It is attained at p* = gradient_inverse(gradient(b) + y / gamma), and inf where p* is. For y, b >= 0 its
    value y p* - gamma scalar(p*, b) equals y b + gamma scalar(b, p*); each form is used where its two terms
    have one sign, so that no digits cancel. An infinite penalty gives y b, as for a hard constraint.
    """
    y, b, gamma = (np.asarray(a, np.float64) for a in (dual, bound, penalty))
    p = np.asarray(divergence.shifted(b, y / gamma))
    from_p = (y < 0) | (b < 0)
    at, other = np.where(from_p, p, b), np.where(from_p, b, p)
    bounded = np.isfinite(p)
    slack = gamma * divergence.scalar(np.where(bounded, at, 1.0), np.where(bounded, other, 1.0))
    soft = np.where(bounded, y * at + np.where(from_p, -slack, slack), np.inf)
    return np.where(np.isinf(gamma), y * b, soft)
