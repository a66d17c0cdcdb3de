"""Hard rows that give way within the tolerance, where double precision cannot hold the exact optimum.

Hard rows that are parallel but for their last digits have multipliers without a limit, which cancel, and an
optimum that changes by much when bounds change by less than the tolerance. Bounds that give way by half the
tolerance limit the multipliers: their sum times that room is a part of the objective. The optimum of the
relaxed problem violates no row by more than the tolerance, and its multipliers bound the optimum of the
stated one; where they bound it above the relaxed objective, a share of them bounds it next to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from nearwise._common.types import Index
from nearwise.model.formulation import Iterate
from nearwise.solving._written import WrittenForm

ROOM = 0.5  # of the tolerance
LOWERED = "Violations of hard constraints within the tolerance lower the objective by more than the tolerance"
_TRIALS = 40  # of a share of multipliers

G = TypeVar("G")  # a point with what is proved about it


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A problem with room at its hard rows.

    Attributes
    ----------
    stated : the problem without room
    form : with it; an equality is two rows, one on each side
    row : of `stated`, for every row of `form`
    """

    stated: WrittenForm
    form: WrittenForm
    row: Index

    @classmethod
    def of(cls, stated: WrittenForm, room: float) -> Relaxed:
        """With so much room, relative to what violations are relative to."""
        equal = stated.losses.is_hard & (stated.losses.relations == 0)
        row = np.repeat(np.arange(len(equal)), 1 + equal)
        is_second = np.diff(row, prepend=-1) == 0
        both = stated.only(row)
        losses = both.losses
        relations = np.where(is_second, 1, np.where(equal[row], -1, losses.relations)).astype(np.int8)
        bounds = losses.bounds - relations * np.where(losses.is_hard, room * losses.references, 0.0)
        return cls(stated, replace(both, losses=replace(losses, relations=relations, bounds=bounds)), row)

    def point(self, found: Iterate) -> Iterate:
        """A point of the relaxed problem as one of the stated one."""
        rows = self.stated.rows
        dual = np.asarray(np.bincount(self.row, found.dual, rows.n_rows), dtype=np.float64)
        values = rows.values(found.factor)
        return Iterate(found.factor, values, dual, rows.adjoint(dual), is_relaxed=True)


def with_sufficient_share(whole: G, by: Callable[[float], G], lead: Callable[[G], float], tol: float) -> G:
    """What all multipliers prove, or the share of them whose bound is next to the objective.

    Parameters
    ----------
    whole : what all of them prove
    by : what a share does
    lead : how far a bound is above the objective, relatively: a concave function of the share, -1 at 0. Its
        zero is found by false position; an end that stays counts for half (Illinois)
    tol : of the gap
    """
    found, low, high, below, above, last = whole, 0.0, 1.0, -1.0, lead(whole), 0.0
    if not tol < above < np.inf:
        return whole
    for _ in range(_TRIALS):
        share = low + (high - low) * below / (below - above)
        found = by(share)
        ahead = lead(found)
        if abs(ahead) <= tol / 2:
            break
        if ahead > 0:
            high, above, below = share, ahead, below / 2 if last > 0 else below
        else:
            low, below, above = share, max(ahead, -1.0), above / 2 if last < 0 else above
        last = ahead
    return found
