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
_SMALLEST = 5e-324  # value that belongs to a multiplier
_CLOSE = 1e-8  # relative distance from a bound, within which a loss is its second-order term


# of what is cached, what is the same in any unit, and in one in which no bound is too small for a number
_IN_ANY_UNIT = ("is_hard", "any_hard", "all_hard", "_side", "_equalities")
_IF_NONE_VANISHES = ("is_bregman", "_bregman", "_quadratic")
_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


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
        return bool(np.count_nonzero(self.is_hard))

    @cached_property
    def all_hard(self) -> bool:
        return int(np.count_nonzero(self.is_hard)) == len(self.is_hard)

    @cached_property
    def references(self) -> Array:
        """What violations are relative to: the bound where it is positive and limits a square, else s."""
        return np.where((self.bounds > 0) & self.is_definite, self.bounds, self.sizes)

    def excess(self, p: Array) -> Array:
        """How far p is on the wrong side of the bound; >= 0."""
        beyond = (p - self.bounds) * self._side
        if len(equal := self._equalities):
            beyond[equal] = np.abs(beyond[equal])
        return np.maximum(beyond, 0.0)

    def violations(self, p: Array) -> Array:
        """`excess` relative to `references`."""
        return self.excess(p) / self.references

    def broken(self, p: Array) -> Mask:
        """The rows that do not count as satisfied."""
        return self.violations(p) > SATISFIED

    def violated(self, p: Array) -> Violated:
        """What certificates report of the violations."""
        found = self.violations(p)
        worst = float(found.max(initial=0.0))
        if worst <= SATISFIED and (self.all_hard or not self.any_hard):
            return Violated(worst, worst if self.any_hard else 0.0, 1.0)
        return Violated(
            worst,
            float(found[self.is_hard].max(initial=0.0)) if self.any_hard else 0.0,
            np.count_nonzero(found <= SATISFIED) / len(found) if len(found) else 1.0,
        )

    def most_violated(self, p: Array, count: int) -> list[tuple[int, float, float]]:
        """The `measured` rows with the largest relative violations, worst first, and none that holds."""
        found = self.violations(p)
        rows = (found > 0).nonzero()[0]
        order = np.argsort(-found[rows], kind="stable")[:count]
        return self.measured(p, rows[order], found)

    def measured(
        self, p: Array, rows: Index, relative: Array | None = None
    ) -> list[tuple[int, float, float]]:
        """Some rows, with their values and relative violations, which may be known."""
        relative = self.violations(p) if relative is None else relative
        return list(zip(rows.tolist(), p[rows].tolist(), relative[rows].tolist(), strict=True))

    def times(self, share: float) -> Losses:
        """The same with a share of the penalties."""
        return replace(self, penalties=self.penalties * share)

    @np.errstate(all="ignore")
    def in_unit(self, unit: float, stiffening: float) -> Losses:
        """The same for values in another unit; soft penalties are multiplied by `stiffening`."""
        penalties = np.maximum(self.penalties * stiffening, _TINY)
        if self.any_hard:
            penalties[self.is_hard] = np.inf
        bounds = self.bounds / unit
        found = Losses(
            self.divergence,
            self.relations,
            bounds,
            penalties,
            self.sizes / unit,
            self.is_definite,
            self.is_idle,
        )
        known = found.__dict__
        known.update({name: getattr(self, name) for name in _IN_ANY_UNIT})
        if not self.all_hard:
            known["_curvature_at_one"] = self._curvature_at_one
        if np.count_nonzero(bounds) == np.count_nonzero(self.bounds):
            known.update({name: getattr(self, name) for name in _IF_NONE_VANISHES})
            known["references"] = self.references / unit
        return found

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
        if self.all_hard:
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
        return self.cost_of(_EPS * np.abs(self.bounds))

    @np.errstate(all="ignore")
    def cost_of(self, off: Array) -> float:
        """What soft rows cost whose values differ from their bounds by so little."""
        if self.all_hard:
            return 0.0
        relative, stiffness = off / self._bases, self._stiffness
        if self.any_hard:
            soft = ~self.is_hard
            relative, stiffness = relative[soft], stiffness[soft]
        found = float(stiffness @ np.square(relative))
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

    def fenchel_residual(self, p: Array, y: Array, total: float, beyond: Array | None = None) -> float:
        """`total` at p, plus the sum of sup_q (y q - loss(q)) - y p: zero where y is the derivative at p.

        It is inf where such a supremum is. With p* the value that belongs to y and q = p where p costs
        something, else b, a row has y (q - p) + penalty * scalar(q, p*): all terms are >= 0 where hard rows
        hold, and none cancels. `beyond` is p - b where that is known better than from p itself.
        """
        if not np.count_nonzero(y):
            return total
        off = p - self.bounds if beyond is None else beyond
        if self.all_hard:
            return float(-(y @ off))
        costs = self._wrong(off)
        costs &= ~self.is_hard
        found = -float(y @ np.where(costs, 0.0, off))
        if len(rows := self._bregman):
            found += self._bregman_residual(rows, p, y, costs, None if beyond is None else off)
        if len(rows := self._quadratic):
            size = self.sizes[rows]
            here = np.where(costs[rows], off[rows], 0.0) / size
            stiffness = self._stiffness[rows]
            found += float(stiffness @ (here - y[rows] * size / stiffness) ** 2) / 2
        return found

    def _bregman_residual(self, rows: Index, p: Array, y: Array, costs: Mask, beyond: Array | None) -> float:
        """The sum of penalty * scalar(q, p*) over rows whose loss is the divergence's own slack."""
        b, gamma, costs = self.bounds[rows], self.penalties[rows], costs[rows]
        push, q = y[rows] / gamma, np.where(costs, p[rows], b)
        mirror = np.maximum(self.divergence.shifted(b, push), _SMALLEST)
        slack = self.divergence.scalar(q, mirror)
        if np.count_nonzero(stopped := mirror == _SMALLEST):
            # where p* stops at 0, y is not the slope there: what it lacks adds to the residual
            lacking = self.divergence.gradient(mirror) - (self.divergence.gradient(b) + push)
            slack = slack + np.where(stopped, np.maximum(lacking, 0.0), 0.0) * q
        if beyond is not None:
            here = np.where(costs, beyond[rows], 0.0)
            there = push / self.divergence.curvature(b)
            close = np.maximum(np.abs(here), np.abs(there)) <= _CLOSE * np.abs(b)
            slack[close] = self._bent(b[close], (here - there)[close]) / 2
        return float(gamma @ slack)

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
        wrong: Mask = y * self._side < 0
        wrong[self._equalities] = False
        if self.is_idle is not None:
            wrong |= self.is_idle
        return np.where(wrong, 0.0, y)

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
        if len(rows := self._bregman):
            out[rows] = 1 / self.penalties[rows]
        if len(rows := self._quadratic):
            out[rows] = self.sizes[rows] ** 2 / self._stiffness[rows]
        return out

    @cached_property
    def _stiffness(self) -> Array:
        """penalty * curvature(a) * a^2 of every soft row at `_bases`, without overflow on the way."""
        degree, a = self.divergence.degree, self._bases
        with np.errstate(all="ignore"):
            bent = self.divergence.curvature(a) * a**2 if degree is None else self._bent_by_degree(a, degree)
            return np.asarray(self.penalties * bent)

    @cached_property
    def _bases(self) -> Array:
        """Where the loss of a soft row is expanded: at its bound, or at its size where it is quadratic."""
        return np.where(self.is_bregman, self.bounds, self.sizes)

    def _bent(self, at: Array, off: Array) -> Array:
        """curvature(at) * off^2, without overflow on the way."""
        degree = self.divergence.degree
        if degree is None:
            return np.asarray(self.divergence.curvature(at) * off**2)
        return self._bent_by_degree(at, degree) * (off / at) ** 2

    def _bent_by_degree(self, at: Array, degree: float) -> Array:
        """curvature(at) * at^2, as it follows from the degree of the divergence."""
        return np.asarray(self._curvature_at_one * at**degree)

    @cached_property
    def _curvature_at_one(self) -> Array:
        return self.divergence.curvature(np.ones(1))

    @cached_property
    def _bound_gradient(self) -> Array:
        out = np.zeros_like(self.bounds)
        out[self._bregman] = self.divergence.gradient(self.bounds[self._bregman])
        return out

    def _costly(self, difference: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The soft rows with p - b on the wrong side, with Bregman slack and with quadratic loss."""
        wrong = self._wrong(difference)
        return self._bregman[wrong[self._bregman]], self._quadratic[wrong[self._quadratic]]

    def _wrong(self, difference: Array) -> Mask:
        """The rows, hard or soft, with p - b on the wrong side."""
        wrong: Mask = difference * self._side > 0
        if len(equal := self._equalities):
            wrong[equal] = difference[equal] != 0
        return wrong

    @cached_property
    def _side(self) -> Array:
        """-1 for ">=", else 1: times p - b, it is positive on the wrong side."""
        return np.where(self.relations > 0, -1.0, 1.0)

    @cached_property
    def _equalities(self) -> Index:
        return (self.relations == 0).nonzero()[0]

    @cached_property
    def _bregman(self) -> Index:
        return self.is_bregman.nonzero()[0]

    @cached_property
    def _quadratic(self) -> Index:
        return (~(self.is_bregman | self.is_hard)).nonzero()[0]
