"""What can be proven: how far a matrix is from the optimum at most, or that hard constraints contradict.

`Formulation` proves it; here are the answers, and how they read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nearwise._common.markup import fact_table, listing
from nearwise.side.blocks import Stated


@dataclass(frozen=True)
class Violation:
    """One constraint beside the value that the learned matrix gives it.

    Attributes
    ----------
    row : its row number in the constraints
    value : <A, M>
    bound : its bound, filled from the data where the user gave none
    relative : how far the value is on the wrong side, relative to the bound (or to the size of the
        constraint's parts under the prior, where the bound is zero or negative)
    stated : the constraint itself; its text where it is no row of constraints, and in a model file
    name : the constraint as text
    """

    row: int
    value: float
    bound: float
    relative: float
    stated: Stated | str = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return str(self.stated)


def named_violations(
    worst: Iterable[tuple[float, float, float]], stated: Callable[[int], Stated]
) -> tuple[Violation, ...]:
    """Constraints by name.

    Parameters
    ----------
    worst : relative violation, row number and value of each, as in `Sums.worst`
    stated : the constraint of a row number, with its bound
    """
    found = []
    for relative, row, value in worst:
        constraint = stated(int(row))
        bound = math.nan if constraint.bound is None else constraint.bound
        found.append(Violation(int(row), float(value), bound, float(relative), constraint))
    return tuple(found)


@dataclass(frozen=True)
class Certificate:
    """How far a matrix and multipliers are from the optimum, at most.

    Attributes
    ----------
    primal : the objective, divergence plus the loss of the soft constraints
    dual : a lower bound on the optimum, given by the multipliers
    gap : |primal - dual| relative to the larger of the two
    violation : the worst relative violation over all constraints; soft ones may keep theirs
    hard_violation : the same over the hard constraints
    satisfied : the share of constraints with a relative violation of at most 1e-3
    worst : the most violated constraints, worst first; for an infeasible problem, the constraints that
        contradict each other
    """

    primal: float
    dual: float
    gap: float
    violation: float
    hard_violation: float
    satisfied: float = 1.0
    worst: tuple[Violation, ...] = ()

    def holds(self, tol: float) -> bool:
        """Whether the gap and the violation of the hard constraints are at most `tol`."""
        return self.gap <= tol and self.hard_violation <= tol

    @property
    def gap_in_words(self) -> str:
        """The gap for a sentence; it is infinite where no lower bound is known yet."""
        return f"relative gap {self.gap:.1e}" if math.isfinite(self.gap) else "no lower bound found yet"

    def as_texts(self) -> dict[str, str]:
        """The numbers as texts, by what they are called."""
        return {
            "objective": f"{self.primal:.6g}",
            "lower bound": f"{self.dual:.6g}",
            "relative gap": f"{self.gap:.1e}",
            "worst violation": f"{self.violation:.1e}",
            "worst violation of a hard constraint": f"{self.hard_violation:.1e}",
            "constraints satisfied": f"{self.satisfied:.1%}",
        }

    def _repr_html_(self) -> str:
        worst = [(v.name, f"{v.value:.3g}", f"{v.bound:.3g}", f"{v.relative:.1%}") for v in self.worst]
        columns = ("violated most", "value", "bound", "off by")
        return fact_table("Certificate", self.as_texts(), *([listing(columns, worst)] if worst else []))


def relative_gap(gap: float, primal: float, rounding: float) -> float:
    """The gap relative to the larger of objective and bound, or to rounding where both vanish."""
    if not (math.isfinite(gap) and math.isfinite(primal)):
        return math.inf
    return abs(gap) / max(abs(primal), abs(primal - gap), rounding)


@dataclass(frozen=True)
class InfeasibilityCheck:
    """What multipliers y prove about the hard constraints.

    If S = sum_i y_i A_i >= 0 and y^T b < 0, then no M >= 0 meets them, because 0 <= <S, M> <= y^T b. Where M
    has to be definite, as under LogDet, S >= 0 other than zero proves it with y^T b = 0 too: then 0 < <S, M>.

    Attributes
    ----------
    valid : whether that holds to rounding: S is below zero by no more than the last digits of features
        explain, and the distances (or other measured sizes <|A_i|, M>) of a feasible M would have to be 1e7
        times their bounds, in the mean with weights |y_i|; no unit and no prior matters
    smallest_eigenvalue : of S relative to sum_i |y_i| |A_i|, so at least -1; 0 where S >= 0
    bound : y^T b before that scaling, relative to sum_i |y_i b_i|; 0 where all of these bounds are 0
    rows : the constraints that contradict each other, those with the largest share first
    """

    valid: bool
    smallest_eigenvalue: float
    bound: float
    rows: tuple[int, ...]
