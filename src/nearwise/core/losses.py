"""The losses of all rows as functions of their values p = <A_i, M>, and as functions of their multipliers y.

A hard row costs nothing on the allowed side of its bound b and is forbidden on the other. A soft row costs
what its slack says (`slacks`) on the wrong side. So `Loss` decides which rows are hard and which sort of slack
the others have, applies the relations, and adds up; the mathematics of one row's cost stands in the slacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.slacks import SLACKS, TINY, Slack

SATISFIED = 1e-3  # relative violation up to which a constraint counts as satisfied, KSD09 7.1
_QUADRATIC = list(SLACKS).index("quadratic")
_LARGEST = float(np.finfo(np.float64).max)


class LossValues(NamedTuple):
    """The losses at values p.

    Attributes
    ----------
    total : the sum of what soft rows cost
    slopes, curvatures : first and second derivative of every row's loss; 0 for hard rows
    violations : how far values are on the wrong side, relative to `Loss.references`
    hard_violation : the largest one of a hard row
    """

    total: float
    slopes: Array
    curvatures: Array
    violations: Array
    hard_violation: float


class Group(NamedTuple):
    """Soft rows with one sort of slack."""

    rows: Index
    slack: Slack


@dataclass(frozen=True, eq=False)
class Loss:
    """The losses of all rows.

    Attributes
    ----------
    divergence : from which slacks take their costs
    relations : -1 for "<=", +1 for ">=", 0 for "=="
    bounds : b
    penalties : gamma; inf for a hard row
    sizes : s > 0, the size of each row under the prior
    is_definite : whether A_i is positive semidefinite, and no negative part of its value fixed
    is_idle : whether A_i is zero, so that the multiplier of the row is; None if no row is
    sorts : number in the table SLACKS of each row's slack; None for the first one that suits
    """

    divergence: SpectralDivergence
    relations: NDArray[np.int8]
    bounds: Array
    penalties: Array
    sizes: Array
    is_definite: Mask
    is_idle: Mask | None = None
    sorts: NDArray[np.int8] | None = None

    # ---- which rows are what ------------------------------------------------------------------------------

    @cached_property
    def is_hard(self) -> Mask:
        return np.isinf(self.penalties)

    @cached_property
    def n_soft(self) -> int:
        return len(self.is_hard) - int(np.count_nonzero(self.is_hard))

    @property
    def any_hard(self) -> bool:
        return self.n_soft < len(self.bounds)

    @property
    def all_hard(self) -> bool:
        return self.n_soft == 0

    @cached_property
    def penalty_sum(self) -> float:
        """Of soft rows."""
        return float(self.penalties[~self.is_hard].sum()) if self.any_hard else float(self.penalties.sum())

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The soft rows by sort of slack."""
        found, left = [], ~self.is_hard
        for number, slack in enumerate(SLACKS.values()):
            mine = left & (slack.suits(self) if self.sorts is None else self.sorts == number)
            rows = mine.nonzero()[0]
            if len(rows):
                own = slack(self.divergence, self.penalties[rows], self.bounds[rows], self.sizes[rows])
                found.append(Group(rows, own))
                left &= ~mine
        return tuple(found)

    @cached_property
    def is_positive(self) -> Mask:
        """The rows whose reply to a multiplier is positive, whatever the multiplier."""
        found = np.zeros(len(self.bounds), bool)
        for rows, slack in self.groups:
            found[rows] = slack.is_positive
        return found

    @cached_property
    def references(self) -> Array:
        """What violations are relative to: the bound where it is positive and limits a square, else s."""
        return np.where((self.bounds > 0) & self.is_definite, self.bounds, self.sizes)

    # ---- others like it -----------------------------------------------------------------------------------

    def subset(self, rows: Index | Mask | slice) -> Loss:
        """That of some rows."""
        return Loss(
            self.divergence,
            self.relations[rows],
            self.bounds[rows],
            self.penalties[rows],
            self.sizes[rows],
            self.is_definite[rows],
            None if self.is_idle is None else self.is_idle[rows],
            None if self.sorts is None else self.sorts[rows],
        )

    def times(self, share: float) -> Loss:
        """The same with a share of the penalties."""
        return replace(self, penalties=self._soft_times(share))

    def in_unit(self, unit: float, stiffening: float) -> Loss:
        """The same for values in another unit; soft penalties are multiplied by `stiffening`."""
        penalties = self._soft_times(stiffening)
        return replace(self, bounds=self.bounds / unit, sizes=self.sizes / unit, penalties=penalties)

    def augmented(self, multipliers: Array, stiffness: Array | float) -> Loss:
        """The augmented Lagrangian of the hard rows at their multipliers y, as a loss without hard rows.

        Such a row costs stiffness / 2 (p - b + y / stiffness)^2 on the wrong side of its shifted bound, and its
        slope is the next multiplier. Violations are those of shifted bounds.
        """
        with np.errstate(all="ignore"):
            penalties = np.clip(stiffness / self.divergence.curvature(self.sizes), TINY, _LARGEST)
            shifted = self.bounds - multipliers / stiffness
        sorts = np.full(len(self.bounds), _QUADRATIC, np.int8)
        for rows, slack in self.groups:
            sorts[rows] = list(SLACKS.values()).index(type(slack))
        return replace(
            self,
            bounds=np.where(self.is_hard, shifted, self.bounds),
            penalties=np.where(self.is_hard, penalties, self.penalties),
            sorts=sorts,
        )

    def _soft_times(self, factor: float) -> Array:
        """Penalties times a factor: a soft row stays soft, and costs something, whatever the factor."""
        with np.errstate(all="ignore"):
            return np.where(self.is_hard, np.inf, np.clip(self.penalties * factor, TINY, _LARGEST))

    # ---- as functions of values ---------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def at(self, p: Array, off: Array | None = None) -> LossValues:
        """All of it; `off` is p - b where that is known better than from p itself."""
        excess = self._excess(p - self.bounds if off is None else off)
        violations = excess / self.references
        slopes, curvatures, total = np.zeros_like(p), np.zeros_like(p), 0.0
        for rows, slack in self.groups:
            here = (excess if len(rows) == len(p) else excess[rows]).nonzero()[0]
            if not len(here):
                continue
            if len(here) < len(rows):
                rows, slack = rows[here], slack.subset(here)
            q = p[rows]
            total += float(slack.cost(q, None if off is None else off[rows]).sum())
            slopes[rows] = slack.slope(q)
            curvatures[rows] = slack.curvature(q)
        hard = violations[self.is_hard].max() if self.any_hard else 0.0
        return LossValues(total, slopes, curvatures, violations, float(hard))

    def violations(self, p: Array) -> Array:
        """How far values are on the wrong side of their bounds, relative to `references`; >= 0."""
        return self._excess(p - self.bounds) / self.references

    def satisfied(self, violations: Array) -> float:
        """The share of rows that count as satisfied."""
        return np.count_nonzero(violations <= SATISFIED) / len(violations) if len(violations) else 1.0

    @np.errstate(all="ignore")
    def cost_of_errors(self, error: Array) -> float:
        """What errors of values next to their bounds may cost, to second order."""
        found = sum(float(slack.second_order(error[rows]).sum()) for rows, slack in self.groups)
        return found if found < np.inf else np.inf

    # ---- as functions of multipliers ----------------------------------------------------------------------

    def signed(self, y: Array) -> Array:
        """The nearest multipliers of the right sign; 0 for idle rows."""
        wrong = y * self.relations > 0
        if self.is_idle is not None:
            wrong |= self.is_idle
        return np.where(wrong, 0.0, y)

    @np.errstate(all="ignore")
    def fenchel(self, p: Array, y: Array, total: float, off: Array | None = None) -> float:
        """`total` at p plus the sum of sup_q (y q - loss(q)) - y p: zero where y is the derivative at p.

        With q = p where p costs something, else b, it is the sum of y (q - p) and of what slacks say at q: terms
        >= 0 where hard rows hold, and no digits cancel. It is inf where such a supremum is.
        """
        if not np.count_nonzero(y):
            return total
        known, off = off, p - self.bounds if off is None else off
        if self.all_hard:
            return -float(y @ off)
        costs = self._excess(off) > 0
        if self.any_hard:
            costs &= ~self.is_hard
        found = -float(y @ np.where(costs, 0.0, off))
        for rows, slack in self.groups:
            here = (costs[rows] | (y[rows] != 0)).nonzero()[0]
            if len(here) < len(rows):
                rows, slack = rows[here], slack.subset(here)
            q = np.where(costs[rows], p[rows], self.bounds[rows])
            q_off = None if known is None else np.where(costs[rows], known[rows], 0.0)
            found += float(slack.fenchel(q, y[rows], q_off).sum())
        return found

    @np.errstate(all="ignore")
    def reply(self, y: Array) -> Array:
        """The bound after it gave way to y: b for a hard row, else where the two-sided cost has slope y."""
        found = self.bounds.copy()
        for rows, slack in self.groups:
            found[rows] = slack.reply(y[rows])
        return found

    @cached_property
    def largest(self) -> Array:
        """The supremum of multipliers to which rows have a reply; inf for most."""
        found = np.full(len(self.bounds), np.inf)
        for rows, slack in self.groups:
            found[rows] = slack.largest_slope
        return found

    @np.errstate(all="ignore")
    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        """x = reply(y), linearised between x and reply(y): dx = slope * dy + residual(mu).

        `room` is `largest` - y, known to its own digits. A hard row has slope 0.
        """
        slope, parts = np.zeros_like(y), []
        for rows, slack in self.groups:
            slope[rows], residual = slack.compliance(y[rows], x[rows], room[rows])
            parts.append((rows, residual))

        @np.errstate(all="ignore")
        def residuals(mu: float) -> Array:
            found = self.bounds - x
            for rows, residual in parts:
                found[rows] = residual(mu)
            return found

        return slope, residuals

    @np.errstate(all="ignore")
    def central(self, p: Array, mu: float, sign: Array) -> Array:
        """The s > 0 with s * sign * slope(p + sign * s) = mu, of two-sided costs; nan for hard rows."""
        found = np.full(len(p), np.nan)
        for rows, slack in self.groups:
            found[rows] = slack.central(p[rows], mu, sign[rows])
        return found

    # ---- sides --------------------------------------------------------------------------------------------

    def _excess(self, off: Array) -> Array:
        """How far values are on the wrong side of their bounds; >= 0."""
        excess = off * self._side
        if len(equal := self._equalities):
            excess[equal] = np.abs(excess[equal])
        return np.maximum(excess, 0.0, out=excess)

    @cached_property
    def _side(self) -> Array:
        """-1 for ">=", else 1: times p - b, it is positive on the wrong side."""
        return np.where(self.relations > 0, -1.0, 1.0)

    @cached_property
    def _equalities(self) -> Index:
        return (self.relations == 0).nonzero()[0]
