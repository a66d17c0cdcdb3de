"""The choice of a method that `solve` makes where the user makes none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.model.formulation import Formulation, Iterate
from nearwise.solving.interior import InteriorPoint
from nearwise.solving.newton import Newton
from nearwise.solving.projections import CyclicProjections

Array = NDArray[np.float64]

_ROWS_PER_UNKNOWN = 10
_FEW_ROWS = 1000
_FIRST_CHECK = 4  # sweeps
_AFFORDABLE = 48  # sweeps
_LARGEST_ORDER = 80  # of matrices for which the interior-point method is tried
_WRITTEN_OUT = 8_000_000  # numbers in the constraints, written out, up to which it is
_QUICK = 10_000  # the same, up to which it is faster than Newton's method
_QUICK_FROBENIUS = 200_000
_LOOKS = 12  # points of it that are certified before Newton's method is tried
_PATIENCE = 25  # steps of Newton's method before it
_LAST_RESORT = 60  # steps of Newton's method after it


@dataclass(frozen=True)
class Automatic:
    """Newton's method, an interior-point method or projections, whichever suits the problem.

    Many soft constraints get Newton's method. It is never much slower than projections (they come close, and
    win by up to a half, where there are fewer constraints than unknowns q = r(r + 1)/2 or the penalty is
    small) and much faster where the penalty is large or the constraints are many.

    Problems that can be written out, r <= 80 and m q <= 8,000,000 for m rows, get the interior-point method
    where a constraint is hard, and where Newton's method has not come to an end after 25 steps, as happens
    with penalties of very different sizes. It decides almost all of them. Soft constraints get it first where
    it is the faster one: up to m q = 10,000, or 200,000 under Frobenius, whose Newton steps are many.

    Under LogDet with hard constraints, at least 1000 of them and at least 10 for each unknown, a feasible set
    is so small that a few sweeps of projections find it, while each Newton step has to weigh all rows. There
    projections begin. At sweeps 4, 8, 16, ... the rate at which the larger of gap and violation fell since
    the last check is carried on; if it needs more than 48 further sweeps to the tolerance (contradictory
    constraints need infinitely many), the other methods start afresh.

    `nearwise bench projections` measures this rule on a grid of sizes and penalties, `nearwise bench decide`
    on random problems of every kind.

    Parameters
    ----------
    tol : the tolerance of the run
    """

    tol: float = 1e-6

    def iterates(self, form: Formulation, start: Array | None = None) -> Iterator[Iterate]:
        """The points of the chosen solver; Newton's method where there is a matrix to start from."""
        note = ""
        if start is None and _projections_pay(form):
            yield from self._projections(form)
            note = "Projections converged too slowly"
        small = _can_be_written_out(form)
        newton = _named(Newton, Newton().iterates(form, start), note)
        if not small:
            yield from newton
            return
        interior = _named(InteriorPoint, InteriorPoint(self.tol).iterates(form), note)
        if form.losses.any_hard:
            yield from interior
        else:
            if start is None and _interior_pays(form):
                yield from itertools.islice(interior, _LOOKS)
            yield from itertools.islice(newton, _PATIENCE)
            yield from interior
        yield from itertools.islice(newton, _LAST_RESORT)

    def _projections(self, form: Formulation) -> Iterator[Iterate]:
        check, last = _FIRST_CHECK, math.inf
        for sweep, point in enumerate(CyclicProjections().iterates(form)):
            yield replace(point, solver=CyclicProjections.__name__)
            if 2 * sweep == check or sweep == check:
                grade = form.certificate(point)
                left = max(grade.gap, grade.hard_violation)
                if sweep == check:
                    if _sweeps_left(left, last, sweep / 2, self.tol) > _AFFORDABLE:
                        return
                    check *= 2
                last = left


def _named(solver: type, points: Iterator[Iterate], note: str) -> Iterator[Iterate]:
    """The points of a solver, with its name; a factorisation that fails ends them."""
    with suppress(np.linalg.LinAlgError):
        for point in points:
            yield replace(point, solver=solver.__name__, note=note or point.note)


def _can_be_written_out(form: Formulation) -> bool:
    r, m = len(form.prior), form.measurements.n_rows
    known = isinstance(form.divergence, LogDet | VonNeumann | Frobenius)
    return known and r <= _LARGEST_ORDER and m * r * (r + 1) // 2 <= _WRITTEN_OUT


def _interior_pays(form: Formulation) -> bool:
    r, m = len(form.prior), form.measurements.n_rows
    most = _QUICK_FROBENIUS if isinstance(form.divergence, Frobenius) else _QUICK
    return m * r * (r + 1) // 2 <= most


def _projections_pay(form: Formulation) -> bool:
    r, m = len(form.prior), form.measurements.n_rows
    many = m >= max(_FEW_ROWS, _ROWS_PER_UNKNOWN * r * (r + 1) // 2)
    possible = isinstance(form.divergence, LogDet) and form.measurements.offsets is None
    return possible and form.losses.any_hard and many


def _sweeps_left(now: float, before: float, sweeps: float, tol: float) -> float:
    """How many more sweeps bring an error that fell from `before` to `now` in `sweeps` down to `tol`."""
    if now <= tol:
        return 0.0
    if not now < before:
        return math.inf
    return math.log(now / tol) / (math.log(before / now) / sweeps)
