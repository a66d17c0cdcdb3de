"""The choice of a method that `solve` makes where the user makes none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from nearwise._common.types import Array
from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.in_blocks import InBlocks
from nearwise.model.loaded import loaded
from nearwise.model.measurements import InMemory
from nearwise.solving._looks import more_looks
from nearwise.solving.dual import MOST_ROWS, DualNewton
from nearwise.solving.interior import InteriorPoint
from nearwise.solving.newton import Newton
from nearwise.solving.projections import CyclicProjections
from nearwise.solving.result import Record

_KNOWN = LogDet, VonNeumann, Frobenius  # to the interior-point method
_ROWS_PER_UNKNOWN = 10
_FEW_ROWS = 1000
_FIRST_CHECK = 4  # sweeps
_AFFORDABLE = 48  # sweeps
LARGEST_ORDER = 80  # of matrices for which the interior-point method is tried
_WRITTEN_OUT = 8_000_000  # numbers in the constraints, written out, up to which it is
_QUICK = 10_000  # the same, up to which it is faster than Newton's method
_FEW_SOFT = 200  # and soft rows, beyond which a step of either method weighs more than Newton's
_QUICK_FROBENIUS = 200_000
_MULTIPLIED = 2_000_000  # numbers in hard constraints, written out, up to which it is
_LOOKS = 12  # points of it that are certified before Newton's method is tried
_PATIENCE = 25  # steps of Newton's method before it, at least
_PER_STEP = 20_000  # numbers in the constraints, written out, for which Newton's method gets one more step
_UNTIL_PATIENT = 100  # the same under a divergence of the user's, before Newton's method on the dual goes on
_PATIENT_STEPS = 300  # of that
_LAST_RESORT = 60  # steps of Newton's method after it
_LAST_RESORT_IF_HARD = 30  # the same; later it would look for a contradiction, which was looked for before


class Stage(NamedTuple):
    """Points of a solver, and for how long they are followed.

    Attributes
    ----------
    solver : its name
    points : its points, which a later stage may go on with
    most : how many of them, all by default
    is_slow : whether the records of this stage so far say that another method should take over
    note : for the message of the result
    """

    solver: str
    points: Iterator[Iterate]
    most: int | None = None
    is_slow: Callable[[Sequence[Record]], bool] | None = None
    note: str = ""


def stages(form: Formulation, tol: float, start: Array | None = None) -> Iterator[Stage]:
    """Newton's method, an interior-point method or projections, whichever suits the problem.

    Many soft constraints get Newton's method. It is never much slower than projections (they come close, and
    win by up to a half, where there are fewer constraints than unknowns q = r(r + 1)/2 or the penalty is
    small) and much faster where the penalty is large or the constraints are many. It also
    comes first where there is a matrix to start from.

    Problems that can be written out, r <= 80 and m q <= 8,000,000 for m rows, get the interior-point method
    where a constraint is hard, and where Newton's method has not come to an end after 25 steps or, if that is
    more, m q / 20,000 (a step of the other one costs so much more there), as happens with penalties of very
    different sizes. It decides almost all of them. Soft constraints get it first where
    it is the faster one: up to m = 200 and m q = 10,000, or m q = 200,000 under Frobenius, whose Newton
    steps are many.
    Newton's method on the dual comes before it where there are at most 1000 rows (hard ones, and soft ones
    under Frobenius, up to m q = 2,000,000) and soft ones are at most 200, or as many as unknowns: near the
    prior it takes a few steps of half the cost, and otherwise it ends soon. Where Newton's method has been
    tried in vain on soft rows that are no more than unknowns, it is tried next, for the same reason.

    Divergences of the user's get Newton's method and, up to the same sizes, that on the dual: first as it is,
    and after 100 steps of the other one with as many short steps as it takes.

    Rows in pieces get Newton's method. Those that can be written out are brought to memory where that has not
    come to an end after as many steps, and the methods above take over.

    Under LogDet with hard constraints, at least 1000 of them and at least 10 for each unknown, a feasible set
    is so small that a few sweeps of projections find it, while each Newton step has to weigh all rows. There
    projections begin. At sweeps 4, 8, 16, ... the rate at which the larger of gap and violation fell since
    the last check is carried on; if it needs more than 48 further sweeps to the tolerance (contradictory
    constraints need infinitely many), the other methods start afresh.

    `make bench NAME=projections` measures this rule on a grid of sizes and penalties, `make bench
    NAME=decide` on random problems of every kind.

    Parameters
    ----------
    form : the reduced problem
    tol : the tolerance of the run
    start : a factor of the matrix to start from, where there is one
    """
    note = ""
    if start is None and _projections_pay(form):
        sweeps = CyclicProjections().iterates(form)
        yield Stage("CyclicProjections", sweeps, is_slow=lambda records: _is_slow(records, tol))
        note = "Projections converged too slowly"
    quick, small = _dual_pays(form) and (start is None or form.losses.any_hard), _is_small(form)
    if quick and small and isinstance(form.measurements, InMemory):
        yield Stage("DualNewton", DualNewton(tol).iterates(form), note=note)
    newton = Stage("Newton", Newton().iterates(form, start), note=note)
    if not small:
        if quick and isinstance(form.measurements, InMemory) and not isinstance(form.divergence, _KNOWN):
            yield Stage("DualNewton", DualNewton(tol).iterates(form))
            yield newton._replace(most=_UNTIL_PATIENT)
            patient = DualNewton(tol, is_patient=True)
            yield Stage("DualNewton", patient.iterates(form), most=_PATIENT_STEPS)
        yield newton
        return
    if isinstance(form.measurements, InBlocks):
        yield newton._replace(most=_patience(form))
        for stage in stages(loaded(form), tol):
            yield stage._replace(points=_measured_in_pieces(form, stage.points))
        return
    points = InteriorPoint(tol).points if quick else InteriorPoint(tol).iterates
    if form.losses.any_hard:
        yield Stage("InteriorPoint", points(form), note=note)
        yield newton._replace(most=_LAST_RESORT_IF_HARD)
        return
    interior = None
    if start is None and _interior_pays(form):
        interior = Stage("InteriorPoint", points(form), note=note)
        yield interior._replace(most=_LOOKS + more_looks(tol))
    yield newton._replace(most=_patience(form))
    if not quick and _dual_is_smaller(form):
        yield Stage("DualNewton", DualNewton(tol).iterates(form), note=note)
    yield interior or Stage("InteriorPoint", points(form), note=note)
    yield newton._replace(most=_LAST_RESORT)


def _is_slow(records: Sequence[Record], tol: float) -> bool:
    """Whether projections need too many more sweeps; asked at the sweeps 4, 8, 16, ... after the start."""
    sweep = len(records) - 1
    if sweep < _FIRST_CHECK or sweep & (sweep - 1):
        return False
    now, before = (max(records[k].gap, records[k].hard_violation) for k in (sweep, sweep // 2))
    return _sweeps_left(now, before, sweep / 2, tol) > _AFFORDABLE


def decides(form: Formulation) -> bool:
    """Whether the constraints can be written out, for the methods that decide almost all such problems."""
    return isinstance(form.measurements, InMemory) and _is_small(form)


def _is_small(form: Formulation) -> bool:
    known = isinstance(form.divergence, _KNOWN) and isinstance(form.measurements, (InMemory, InBlocks))
    return known and len(form.prior) <= LARGEST_ORDER and _numbers(form) <= _WRITTEN_OUT


def _patience(form: Formulation) -> int:
    """How many steps of Newton's method come before the interior-point method."""
    return max(_PATIENCE, _numbers(form) // _PER_STEP)


def _measured_in_pieces(form: Formulation, points: Iterator[Iterate]) -> Iterator[Iterate]:
    """Points of the same problem with its rows in memory, as those of rows in pieces."""
    for point in points:
        yield replace(point, values=form.measurements.values_of_factor(point.factor))


def _interior_pays(form: Formulation) -> bool:
    if isinstance(form.divergence, Frobenius):
        return _numbers(form) <= _QUICK_FROBENIUS
    return form.measurements.n_rows <= _FEW_SOFT and _numbers(form) <= _QUICK


def _dual_pays(form: Formulation) -> bool:
    few = form.measurements.n_rows <= MOST_ROWS and _numbers(form) <= _MULTIPLIED
    if form.losses.any_hard:
        return few
    many_steps = few and isinstance(form.divergence, Frobenius)
    return _dual_is_smaller(form) and (many_steps or _interior_pays(form))


def _dual_is_smaller(form: Formulation) -> bool:
    """Whether Newton's method on the dual has smaller systems: m numbers, where others have r (r + 1) / 2."""
    r = len(form.prior)
    return form.measurements.n_rows <= max(_FEW_SOFT, r * (r + 1) // 2)


def _numbers(form: Formulation) -> int:
    """In the constraints, written out: m q."""
    r = len(form.prior)
    return form.measurements.n_rows * (r * (r + 1) // 2)


def _projections_pay(form: Formulation) -> bool:
    r, m = len(form.prior), form.measurements.n_rows
    many = m >= max(_FEW_ROWS, _ROWS_PER_UNKNOWN * r * (r + 1) // 2)
    possible = many and isinstance(form.divergence, LogDet) and form.measurements.offsets is None
    return possible and form.losses.any_hard


def _sweeps_left(now: float, before: float, sweeps: float, tol: float) -> float:
    """How many more sweeps bring an error that fell from `before` to `now` in `sweeps` down to `tol`."""
    if now <= tol:
        return 0.0
    if not now < before:
        return math.inf
    return math.log(now / tol) / (math.log(before / now) / sweeps)
