"""What a solver yields: a point, and all that it measured there anyway, so that nothing is computed twice."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from nearwise._common.types import Array

if TYPE_CHECKING:
    from nearwise.core.measured import Sums


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point of a run: M = factor factor^T with multipliers. Only the factor is needed.

    Attributes
    ----------
    factor : r x k
    dual : multipliers y, one per row; by default the slopes of the losses at the factor
    values : <A_i, M> of all rows, to double precision
    adjoint : sum_i y_i A_i for the multipliers `dual`
    sums : what `measure` gives at the factor, not in single precision; used where `dual` is None
    farkas : multipliers of hard rows that may prove the problem infeasible: a suspicion, never a claim
    note : a sentence for the message of the result
    final : whether the solver stops here by a rule of its own
    solver : the name of the solver that found the point, where it is not the one that was asked
    """

    factor: Array
    dual: Array | None = None
    _: KW_ONLY
    values: Array | None = None
    adjoint: Array | None = None
    sums: Sums | None = None
    farkas: Array | None = None
    note: str = ""
    final: bool = False
    solver: str = ""
