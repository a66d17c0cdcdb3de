"""The choice between Newton's method and projections that `solve` makes where the user makes none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearwise.divergences import LogDet
from nearwise.problem import Formulation, Iterate
from nearwise.solvers.newton import Newton
from nearwise.solvers.projections import CyclicProjections

Array = NDArray[np.float64]

_ROWS_PER_UNKNOWN = 10
_FEW_ROWS = 1000
_FIRST_CHECK = 4  # sweeps
_AFFORDABLE = 48  # sweeps


@dataclass(frozen=True)
class Automatic:
    """Newton's method, or projections where they are the faster of the two.

    For soft constraints it is Newton's method: it is never much slower than projections (they come close, and
    win by up to a half, where there are fewer constraints than unknowns r(r + 1)/2 or the penalty is
    small) and much faster where the penalty is large or the constraints are many. So it is for von Neumann,
    whose projections cost an eigenvalue update each, and for all other divergences.

    Under LogDet with hard constraints, at least 1000 of them and at least 10 for each unknown, a feasible set
    is so small that a few sweeps of projections find it, while each Newton step has to weigh all rows. There
    projections begin. At sweeps 4, 8, 16, ... the rate at which the larger of gap and violation fell since
    the last check is carried on; if it needs more than 48 further sweeps to the tolerance (contradictory
    constraints need infinitely many), Newton's method starts afresh.

    `nearwise bench projections` measures this rule on a grid of sizes and penalties.

    Parameters
    ----------
    tol : the tolerance of the run
    """

    tol: float = 1e-6

    def iterates(self, form: Formulation, start: Array | None = None) -> Iterator[Iterate]:
        """The points of the chosen solver; Newton's method where there is a matrix to start from."""
        if start is not None or not _projections_pay(form):
            for point in Newton().iterates(form, start):
                yield replace(point, solver=Newton.__name__)
            return
        check, last = _FIRST_CHECK, math.inf
        for sweep, point in enumerate(CyclicProjections().iterates(form)):
            yield replace(point, solver=CyclicProjections.__name__)
            if 2 * sweep == check or sweep == check:
                grade = form.certificate(point)
                left = max(grade.gap, grade.hard_violation)
                if sweep == check:
                    if _sweeps_left(left, last, sweep / 2, self.tol) > _AFFORDABLE:
                        break
                    check *= 2
                last = left
        for point in Newton().iterates(form):
            yield replace(point, solver=Newton.__name__, note="Projections converged too slowly")


def _projections_pay(form: Formulation) -> bool:
    r, m = len(form.prior), form.measurements.n_rows
    many = m >= max(_FEW_ROWS, _ROWS_PER_UNKNOWN * r * (r + 1) // 2)
    return isinstance(form.divergence, LogDet) and form.losses.any_hard and many


def _sweeps_left(now: float, before: float, sweeps: float, tol: float) -> float:
    """How many more sweeps bring an error that fell from `before` to `now` in `sweeps` down to `tol`."""
    if now <= tol:
        return 0.0
    if not now < before:
        return math.inf
    return math.log(now / tol) / (math.log(before / now) / sweeps)
