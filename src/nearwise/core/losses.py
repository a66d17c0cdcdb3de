"""The losses of all rows as functions of their values p = <A_i, M>, and as functions of their multipliers y.

A hard row costs nothing on the allowed side of its bound b and is forbidden on the other. A soft row costs
what its slack says (`slacks`) on the wrong side. `Loss` decides which rows are hard and which slack others
have, applies the relations, and adds up; the mathematics of the cost of one row stands in the slacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.slacks import LARGEST, SLACKS, TINY, Slack

SATISFIED = 1e-3  # relative violation up to which a constraint counts as satisfied, KSD09 7.1
_QUADRATIC = list(SLACKS).index("quadratic")
_BLOCK = 1 << 15  # rows at a time, to stay in the cache: 1.0 ms for 100,000 rows, else 1.5 to 4


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
    sorts : the number in SLACKS of each row's slack, were it soft; None for the first one that suits
    """

    divergence: SpectralDivergence
    relations: NDArray[np.int8]
    bounds: Array
    penalties: Array
    sizes: Array
    is_definite: Mask
    is_idle: Mask | None = None
    sorts: Index | None = None

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
        return float(self.penalties.sum(where=~self.is_hard))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The soft rows by sort of slack."""
        found, soft, sorts = [], ~self.is_hard, self._sorts
        for number, slack in enumerate(SLACKS.values()):
            rows = (soft & (sorts == number)).nonzero()[0]
            if len(rows):
                own = slice(None) if len(rows) == len(soft) else rows
                arrays = self.penalties[own], self.bounds[own], self.sizes[own]
                found.append(Group(rows, slack(self.divergence, *arrays)))
        return tuple(found)

    @cached_property
    def _sorts(self) -> Index:
        """Of each row, the first that suits unless `sorts` says which."""
        if self.sorts is not None:
            return self.sorts
        return np.argmax([slack.suits(self) for slack in SLACKS.values()], axis=0)

    @cached_property
    def is_positive(self) -> Mask:
        """The rows whose reply to a multiplier is positive, whatever the multiplier."""
        return self._of_slacks(np.zeros(len(self.bounds), bool), lambda rows, slack: slack.is_positive)

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

    @np.errstate(all="ignore")
    def times(self, share: float) -> Loss:
        """The same with a share of the penalties."""
        return replace(self, penalties=self._soft_times(share))

    @np.errstate(all="ignore")
    def in_unit(self, unit: float, stiffening: float) -> Loss:
        """The same for values in another unit; soft penalties are multiplied by `stiffening`."""
        penalties = self._soft_times(stiffening)
        return replace(self, bounds=self.bounds / unit, sizes=self.sizes / unit, penalties=penalties)

    @np.errstate(all="ignore")
    def augmented(self, multipliers: Array, stiffness: Array | float) -> Loss:
        """The augmented Lagrangian of the hard rows at their multipliers y, as a loss without hard rows.

        Such a row costs stiffness / 2 (p - b + y / stiffness)^2 on the wrong side of its shifted bound. Its
        slope is the next multiplier; its violations are those of the shifted bound.
        """
        penalties = np.clip(stiffness / self.divergence.curvature(self.sizes), TINY, LARGEST)
        return replace(
            self,
            bounds=np.where(self.is_hard, self.bounds - multipliers / stiffness, self.bounds),
            penalties=np.where(self.is_hard, penalties, self.penalties),
            sorts=np.where(self.is_hard, _QUADRATIC, self._sorts),
        )

    def _soft_times(self, factor: float) -> Array:
        """Penalties times a factor: a soft row stays soft, and costs something, whatever the factor."""
        return np.where(self.is_hard, np.inf, np.clip(self.penalties * factor, TINY, LARGEST))

    # ---- as functions of values ---------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def at(self, p: Array, off: Array | None = None) -> LossValues:
        """All of it; `off` is p - b where that is known better than from p itself."""
        excess = self._excess(p - self.bounds if off is None else off)
        slopes, curvatures, total = np.zeros_like(p), np.zeros_like(p), 0.0
        for rows, slack in self._parts(excess != 0):
            q = p[rows]
            total += float(np.add.reduce(slack.cost(q, None if off is None else off[rows])))
            slopes[rows] = slack.slope(q)
            curvatures[rows] = slack.curvature(q)
        violations = np.divide(excess, self.references, out=excess)
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
        return np.inf if np.isnan(found) else found

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

        With q = p where p costs something, else b, it is the sum of y (q - p) and of what slacks say at q,
        all >= 0 where hard rows hold, without cancellation. It is inf where such a supremum is.
        """
        if not np.count_nonzero(y):
            return total
        beyond = p - self.bounds if off is None else off
        if self.all_hard:
            return -float(y @ beyond)
        costs = self._excess(beyond) > 0
        if self.any_hard:
            costs &= ~self.is_hard
        found = -float(y @ np.where(costs, 0.0, beyond))
        for rows, slack in self._parts(costs | (y != 0)):
            here = costs[rows]
            q = np.where(here, p[rows], slack.bounds)
            q_off = None if off is None else np.where(here, off[rows], 0.0)
            found += float(np.add.reduce(slack.fenchel(q, y[rows], q_off)))
        return found

    def reply(self, y: Array) -> Array:
        """The bound after it gave way to y: b for a hard row, else where the two-sided cost has slope y."""
        return self._of_slacks(self.bounds.copy(), lambda rows, slack: slack.reply(y[rows]))

    @cached_property
    def largest(self) -> Array:
        """The supremum of multipliers to which rows have a reply; inf for most."""
        return self._of_slacks(np.full(len(self.bounds), np.inf), lambda rows, slack: slack.largest_slope)

    @np.errstate(all="ignore")
    def compliance(self, y: Array, x: Array, room: Array) -> tuple[Array, Callable[[float], Array]]:
        """x = reply(y) linearised between x and reply(y): dx = slope * dy + residual(mu); see `Slack`.

        `room` is `largest` - y, known to digits of its own. The slope of a hard row is 0.
        """
        slope, residuals = np.zeros_like(y), []
        for rows, slack in self.groups:
            slope[rows], residual = slack.compliance(y[rows], x[rows], room[rows])
            residuals.append((rows, residual))

        @np.errstate(all="ignore")
        def residual_at(mu: float) -> Array:
            found = self.bounds - x
            for rows, residual in residuals:
                found[rows] = residual(mu)
            return found

        return slope, residual_at

    def central(self, p: Array, mu: float, sign: Array) -> Array:
        """The s > 0 with s * sign * slope(p + sign * s) = mu for two-sided costs; nan for hard rows."""
        found = np.full(len(p), np.nan)
        return self._of_slacks(found, lambda rows, slack: slack.central(p[rows], mu, sign[rows]))

    # ---- sides and parts ----------------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def _of_slacks(self, found: Any, of: Callable[[Index, Slack], Any]) -> Any:
        """Array with what slacks say entered for their rows."""
        for rows, slack in self.groups:
            found[rows] = of(rows, slack)
        return found

    def _parts(self, wanted: Mask) -> Iterator[Group]:
        """The wanted soft rows, by slack and in blocks."""
        for rows, slack in self.groups:
            here = (wanted if len(rows) == len(wanted) else wanted[rows]).nonzero()[0]
            for first in range(0, len(here), _BLOCK):
                some = here[first : first + _BLOCK]
                yield Group(rows, slack) if len(some) == len(rows) else Group(rows[some], slack.subset(some))

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
