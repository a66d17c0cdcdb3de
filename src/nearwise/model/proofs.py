"""Whether multipliers prove that hard constraints contradict each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.types import Array
from nearwise.model.certificate import InfeasibilityCheck
from nearwise.model.problem import Problem
from nearwise.model.recheck import Recheck


def check_infeasibility(problem: Problem, dual: ArrayLike) -> InfeasibilityCheck:
    """Check, on the problem's own data, that multipliers prove its hard constraints contradictory.

    Parameters
    ----------
    problem : the problem
    dual : one multiplier per constraint, as in `Result.dual` when the status is INFEASIBLE
    """
    y = np.asarray(dual, dtype=np.float64)
    if y.shape != problem.bounds.shape or not np.isfinite(y).all():
        raise ValueError(f"dual must be {len(problem.bounds)} finite numbers, one per constraint")
    return checked_proof(problem, Recheck.of(problem), y)


@np.errstate(all="ignore")
def checked_proof(problem: Problem, recheck: Recheck | None, dual: Array) -> InfeasibilityCheck:
    """What double precision says of a proof; one that it calls valid has to stand in twice the precision."""
    check = problem.formulation.check_infeasibility(dual)
    if check.valid and recheck is not None and not recheck.confirms(dual, check):
        return replace(check, valid=False)
    return check
