"""Sums over rows: all that a solver for many soft rows sees of them, wherever the rows are.

One pass at M = B B^T (`Measured.measure`) gives what the losses cost and the adjoint sum_i slope_i A_i. At
these slopes as multipliers the losses' part of the duality gap is zero, so a pass is all that an iterate and
its certificate need. Losses are linear in the penalties, so a share of them is a factor on both.
`Measured.sample` gives rows by their numbers, in memory, for Newton's Hessian. `InMemory` is the
implementation for arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.core.losses import SATISFIED, Loss, LossValues
from nearwise.core.rows import Rows
from nearwise.linalg.magnitudes import median

WORST = 10  # rows that sums name: as many as a certificate lists


@dataclass(frozen=True, eq=False)
class Sums:
    """What a pass finds at M = B B^T. Sums over disjoint rows add up, in any grouping.

    Attributes
    ----------
    n_rows : how many rows
    cost : the sum of the losses of soft rows
    adjoint : sum_i slope_i A_i, (r, r)
    curved : rows whose loss has a second derivative here
    satisfied : rows with a relative violation up to `SATISFIED`
    worst : (<= 10, 3) the largest relative violations, row numbers and values; largest first, then by number
    hard_violation : the largest relative violation of a hard row
    is_single : whether some of it is to single precision, which no certificate may rest on
    """

    n_rows: int
    cost: float
    adjoint: Array
    curved: int
    satisfied: int
    worst: Array
    hard_violation: float = 0.0
    is_single: bool = False

    def __add__(self, other: Sums) -> Sums:
        worst = np.concatenate([self.worst, other.worst])
        return Sums(
            self.n_rows + other.n_rows,
            self.cost + other.cost,
            self.adjoint + other.adjoint,
            self.curved + other.curved,
            self.satisfied + other.satisfied,
            worst[np.lexsort((worst[:, 1], -worst[:, 0]))[:WORST]],
            max(self.hard_violation, other.hard_violation),
            self.is_single or other.is_single,
        )

    @classmethod
    def zero(cls, order: int) -> Sums:
        """Of no rows."""
        return cls(0, 0.0, np.zeros((order, order)), 0, 0, np.empty((0, 3)))


class Measured(Protocol):
    """Rows with their losses, in memory or not."""

    @property
    def order(self) -> int:
        """r, the order of M."""

    @property
    def n_rows(self) -> int:
        """m."""

    @property
    def any_hard(self) -> bool:
        """Whether a row has an infinite penalty."""

    @property
    def penalty_sum(self) -> float:
        """The sum of the penalties of soft rows."""

    @property
    def median_size(self) -> float:
        """Of the rows under the prior; 1 where there are none."""

    @property
    def is_in_memory(self) -> bool:
        """Whether this is `InMemory`, with `rows` and `loss`."""

    def measure(self, B: Array, single: bool = False) -> Sums:
        """One pass at M = B B^T, in single precision where that is allowed and gains something."""

    def sample(self, numbers: Index) -> InMemory:
        """The rows with these ascending numbers, in memory."""

    def slopes(self, B: Array) -> Array:
        """The derivative of every row's loss at its value: multipliers, (m,)."""

    def transformed(self, T: Array, unit: float = 1.0, stiffening: float = 1.0) -> Measured:
        """Those of M' where M = T M' T^T: values divided by `unit`, soft penalties times `stiffening`."""

    def times(self, share: float) -> Measured:
        """The same with penalties times a share."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """`Measured` for arrays."""

    rows: Rows
    loss: Loss

    is_in_memory = True

    @property
    def order(self) -> int:
        return self.rows.order

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def any_hard(self) -> bool:
        return self.loss.any_hard

    @property
    def penalty_sum(self) -> float:
        return self.loss.penalty_sum

    @property
    def median_size(self) -> float:
        return median(self.loss.sizes) if self.n_rows else 1.0

    def measure(self, B: Array, single: bool = False) -> Sums:
        rows = (self._in_single if single else None) or self.rows
        p = rows.values(B)
        found = self.loss.at(p)
        return replace(sums_of(p, found, rows.adjoint(found.slopes)), is_single=rows is not self.rows)

    def sample(self, numbers: Index) -> InMemory:
        if len(numbers) == self.n_rows:
            return self
        return InMemory(self.rows.subset(numbers), self.loss.subset(numbers))

    def slopes(self, B: Array) -> Array:
        return self.loss.at(self.rows.values(B)).slopes

    def transformed(self, T: Array, unit: float = 1.0, stiffening: float = 1.0) -> InMemory:
        return InMemory(self.rows.transformed(T, unit), self.loss.in_unit(unit, stiffening))

    def times(self, share: float) -> InMemory:
        return InMemory(self.rows, self.loss.times(share))

    @cached_property
    def _in_single(self) -> Rows | None:
        return self.rows.in_single()


def sums_of(p: Array, found: LossValues, adjoint: Array, first: int = 0) -> Sums:
    """The sums over rows of known values p and losses; `first` is the number of the first of them."""
    violations = found.violations
    worst = np.flatnonzero(violations)
    if len(worst) > WORST:  # of rows that are violated alike the first count, wherever they are kept
        worst = np.flatnonzero(violations >= np.partition(violations, -WORST)[-WORST])
    worst = worst[np.lexsort((worst, -violations[worst]))][:WORST]
    return Sums(
        len(p),
        found.total,
        adjoint,
        int(np.count_nonzero(found.curvatures)),
        int(np.count_nonzero(violations <= SATISFIED)),
        np.column_stack([violations[worst], first + worst, p[worst]]),
        found.hard_violation,
    )
