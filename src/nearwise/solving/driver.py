"""The one entry point: `solve` reduces a problem, runs a solver on it, certifies every iterate, and stops."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import checks
from nearwise._common.reading import finite
from nearwise._common.threads import LARGE_MATRIX, one_blas_thread
from nearwise._common.types import Array
from nearwise._common.warning import warn
from nearwise.model.certificate import Certificate
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.problem import Problem
from nearwise.model.proofs import checked_proof
from nearwise.model.recheck import Recheck
from nearwise.solving._relaxation import LOWERED, with_sufficient_share
from nearwise.solving.automatic import Stage, stages
from nearwise.solving.loop import Loop, quiet
from nearwise.solving.reduction import Reduction, reduced
from nearwise.solving.result import Record, Result, Status, outcome_message

_MAX_ITER = 1000  # unless a solver names another number
_FAR = 1e-5  # violation of hard rows that no tolerance calls small
_CONVERGED, _EXACT = 1e-3, 1e-16  # gaps that no more steps make smaller: shares of the tolerance and of 1
_NO_BOUND = 1 - 1e-12  # the gap of a bound that is 0, up to the rounding of sums over all rows
_LOST = (
    "The run converged, but rounding errors may be what closed the gap: columns of very different "
    "scales, or a large penalty, do that"
)
_LARGEST_START = 1e75  # trace of a matrix to start from, in units of the prior, whose costs are finite


class Solver(Protocol):
    """How a problem is solved: settings, and a stream of better and better points.

    A solver that can start elsewhere than at the prior takes a second argument `start`, a factor of M.
    """

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """Points of the formulation; the stream ends where the solver can make no more progress."""


def solve(
    problem: Problem,
    solver: Solver | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    max_seconds: float | None = None,
    callback: Callable[[Record], Any] | None = None,
    start: ArrayLike | None = None,
    watch: Callable[[Record, Array], Any] | None = None,
) -> Result:
    """Solve a problem to a certified accuracy.

    Parameters
    ----------
    problem : what to solve
    solver : how; by default the method that suits the problem, or one after the other (see `stages`)
    tol : the run ends as SOLVED when the relative gap and the relative violation of the hard constraints are
        at most this
    max_iter : the largest number of iterations; by default 1000, or 10,000 sweeps of projections
    max_seconds : the longest time; no limit by default
    callback : called with a `Record` after every iteration; a true answer ends the run as INTERRUPTED
    start : a factor B of the matrix B B^T to start from, such as the `factor` of a result for another
        penalty; by default the prior. It changes the time a solve takes, and not where it ends.
    watch : called after every iteration with its `Record` and a factor B of its matrix B B^T, for what is to
        be measured on the way, such as clusters sweep by sweep; a true answer ends the run as INTERRUPTED

    Returns
    -------
    The best iterate, whatever the status; see `Result`.

    >>> import nearwise as nw
    >>> side = nw.constraints.at_most([(0, 1)], 0.5)
    >>> nw.solve(nw.Problem([[0.0], [1.0]], side, penalty=float("inf"))).matrix.round(6)
    array([[0.5]])
    """
    _check_limits(problem, tol, max_iter, max_seconds, {"callback": callback, "watch": watch})
    if solver is not None and not hasattr(solver, "iterates"):
        raise TypeError(
            f"solver must have a method iterates, as nearwise.solvers.Newton() has; got {solver!r}"
        )
    factor = None if start is None else _checked_start(start, solver, problem)
    # More threads gain little on small matrices and lose much on a busy machine; many constraints are split
    # into blocks that run side by side, see `Measurements`.
    with one_blas_thread(problem.features.shape[1] <= LARGE_MATRIX):
        limit: int = getattr(solver, "max_iter", _MAX_ITER) if max_iter is None else max_iter
        returns_last: bool = getattr(solver, "returns_last", False)
        run = _Run(problem, tol, limit, max_seconds, callback, returns_last, watch)
        return run.result(run.status(solver, factor))


class _Graded(NamedTuple):
    """A point, its certificate, and what orders points where a constraint is hard.

    Attributes
    ----------
    point : after the reduction
    grade : in the unit of the problem
    solver : the name of the solver that found it
    stated : the point of the problem as it was stated; None where the certificate is of the reduced one
    is_lost : whether the gap is within the tolerance, but for rounding that may have closed it
    """

    point: Iterate
    grade: Certificate
    solver: str
    stated: Iterate | None = None
    is_lost: bool = False

    @property
    def rank(self) -> tuple[float, float]:
        return max(self.grade.gap, self.grade.hard_violation), self.grade.primal


class _Run(Loop[Iterate, _Graded, Record]):
    """Follows a solver: certifies each iterate, keeps the best, and decides when to stop."""

    counts_start = True

    def __init__(
        self,
        problem: Problem,
        tol: float,
        max_iter: int,
        max_seconds: float | None,
        callback: Callable[[Record], Any] | None,
        returns_last: bool,
        watch: Callable[[Record, Array], Any] | None,
    ) -> None:
        super().__init__(max_iter, max_seconds, callback)
        self.watch = watch
        self.returns_last = returns_last  # whether the last point counts as the best, as in the papers
        self.problem, self.tol = problem, tol
        self.reduction: Reduction = reduced(problem.formulation)
        self.unit = problem.formulation.unit / self.reduction.formulation.unit
        self.bound: _Graded | None = None  # with the multipliers that prove most
        self.ray: Array | None = None
        self._last: tuple[Iterate, _Graded] | None = None  # as it was given, and graded
        self._final: _Graded | None = None
        self._stage = Stage("", iter(()))  # whose points are followed
        self._note = ""  # on the end, for the message of the result
        self._is_in_vain = False  # whether its last point has converged and proves too little
        self.recheck = Recheck.of(problem)

    def status(self, solver: Any, start: Array | None) -> Status:
        """How the run of a solver ends, or of those that suit the problem where it is None."""
        form = self.reduction.formulation
        first = () if start is None else self._measurable(start)
        if solver is None:
            return self.follow(self._in_stages(stages(form, self.tol, *first)))
        return self.follow(self._in_stages([Stage(type(solver).__name__, solver.iterates(form, *first))]))

    @np.errstate(all="ignore")
    def _measurable(self, start: Array) -> tuple[Array, ...]:
        """The start after the reduction; none where its costs overflow, so that a run begins at the prior."""
        factor = self.reduction.lower(self.problem.lower(start))
        if np.square(factor).sum() <= _LARGEST_START:
            return (factor,)
        warn("start is so large beside the prior that its costs overflow: the run begins at the prior")
        return ()

    def _in_stages(self, plan: Iterable[Stage]) -> Iterator[Iterate]:
        """The points of one stage after the other, each up to where it is slow or a factorisation fails."""
        for stage in plan:
            self._stage, begin, self._is_in_vain = stage, len(self.history), False
            with contextlib.suppress(np.linalg.LinAlgError):
                for point in itertools.islice(quiet(stage.points), stage.most):
                    yield point
                    is_slow = stage.is_slow is not None and stage.is_slow(self.history[begin:])
                    if self._is_in_vain or is_slow:
                        break

    @np.errstate(all="ignore")  # what overflows is not finite, and is not kept
    def grade(self, point: Iterate) -> _Graded | None:
        """With its certificate; None for a point whose objective is not a number."""
        if self._last and self._last[0].factor is point.factor and self._last[0].dual is point.dual:
            known = self._last[1]
            graded = known._replace(point=replace(known.point, ray=point.ray))  # only that is asked of it
        else:
            graded = self._graded(point)
        self._last = point, graded
        return graded if math.isfinite(graded.grade.primal) else None

    def _graded(self, point: Iterate) -> _Graded:
        """A small problem's points are certified as the problem was stated, others after the reduction.

        So is one whose distances are known, such as the prior: it may be the last one only if it `_stands`.
        """
        as_stated = point.is_relaxed or (self.recheck is not None and self.recheck.is_quick)
        if as_stated and point.distances is None:
            return self._certified(point)
        found = self.reduction.formulation.certificate(point)
        if self.unit != 1.0:
            found = replace(found, primal=found.primal * self.unit, dual=found.dual * self.unit)
        solver, lost = point.solver or self._stage.solver, False
        if self.recheck is None and not self.problem.formulation.losses.any_hard:
            lost = self._is_lost_to_rounding(point, found)
        if not lost:
            return _Graded(point, found, solver)
        return _Graded(point, replace(found, dual=-np.inf, gap=np.inf), solver, None, found.gap <= self.tol)

    def _is_lost_to_rounding(self, point: Iterate, found: Certificate) -> bool:
        """Whether rounding can be what closes the gap of a point, which nothing computes again, this far."""
        if not found.gap < _NO_BOUND:  # no multipliers are needed for that
            return False
        form, tol = self.reduction.formulation, max(found.gap, self.tol)
        return form.is_lost_to_rounding(point, point.dual, found.primal / self.unit, tol)

    def is_better(self, graded: _Graded) -> bool:
        """By gap and violation; where nothing is hard, by objective, and the highest bound is kept apart."""
        new, form = graded.grade, self.problem.formulation
        if form.losses.any_hard:
            better = self.best is None or graded.rank <= self.best.rank or self.returns_last
            self.bound = graded if better else self.bound
            return better
        if self.bound is None and new.dual < 0:  # no multipliers at all prove more
            none = replace(graded.point, dual=0.0 * graded.point.dual, distances=None)
            self.bound = self._graded(replace(none, pullback=np.zeros_like(none.pullback)))
        # Every dual point bounds the optimum, so the highest bound holds for the lowest objective.
        if self.bound is None or self.bound.grade.dual <= new.dual < np.inf:
            self.bound = graded
        lowest = min(new.primal, np.inf if self.best is None else self.best.grade.primal)
        if new.gap <= form.relative_gap(lowest - self.bound.grade.dual, lowest):
            self.bound = graded  # the point and its own bound are as good, and cancel no digits
            return True
        return new.primal <= lowest

    def record(self, graded: _Graded, iteration: int, seconds: float) -> Record:
        """The certificate that all points so far give together."""
        grade = self._joint(graded.grade)
        if grade.holds(self.tol) and not self._stands():
            assert self._final is not None
            stated = self._final.grade
            grade = replace(grade, primal=stated.primal, dual=stated.dual, gap=stated.gap)
        return Record(
            iteration=iteration,
            seconds=seconds,
            primal=grade.primal,
            dual=grade.dual,
            gap=grade.gap,
            violation=grade.violation,
            hard_violation=grade.hard_violation,
            satisfied=grade.satisfied,
        )

    def tell(self, record: Record, graded: _Graded) -> bool:
        """The callback, and who watches the matrix, each of whom may ask to stop."""
        stop = super().tell(record, graded)
        if self.watch is None:
            return stop
        return bool(self.watch(record, self.problem.lift(self._lifted(graded.point)))) or stop

    def end(self, graded: _Graded) -> Status | None:
        """A certificate that holds, multipliers that prove a contradiction, or a rule of the solver's own."""
        point, joint = graded.point, self._joint(graded.grade)
        if joint.holds(self.tol) and self._final is not None and self._final.grade.holds(self.tol):
            return Status.SOLVED  # as the record of this point has found
        if graded.is_lost:  # so are all that converge: of soft rows, their multipliers are the same
            self._note = _LOST
            return Status.STALLED
        if not self.problem.formulation.losses.any_hard:
            self._is_in_vain = joint.gap <= max(_CONVERGED * self.tol, _EXACT)
        if point.ray is not None and self._is_contradiction(self.reduction.formulation.proof(point.ray)):
            return Status.INFEASIBLE
        return Status.STATIONARY if point.final else None

    def _joint(self, grade: Certificate) -> Certificate:
        form = self.problem.formulation
        if form.losses.any_hard:
            return grade
        assert self.best is not None
        assert self.bound is not None
        if self.best is self.bound and self.best.grade is grade:
            return grade
        primal, dual = self.best.grade.primal, self.bound.grade.dual
        return replace(grade, primal=primal, dual=dual, gap=form.relative_gap(primal - dual, primal))

    def _certified(self, point: Iterate, is_last: bool = False) -> _Graded:
        """With the certificate of the problem as it was stated, by a share of relaxed rows' multipliers."""
        whole = self._certified_as_is(point, is_last)
        if not point.is_relaxed or whole.grade.hard_violation > self.tol:
            return whole

        def by(share: float) -> _Graded:
            less = replace(point, dual=share * point.dual, pullback=share * point.pullback, note=LOWERED)
            return self._certified_as_is(less, is_last)

        return with_sufficient_share(whole, by, lambda graded: graded.grade.lead, self.tol)

    @np.errstate(all="ignore")
    def _certified_as_is(self, point: Iterate, is_last: bool) -> _Graded:
        """A point with the certificate of the problem as it was stated.

        That is computed in twice the precision where double precision is too little and the problem small,
        and then multipliers may get smaller; a large one has no bound there. Of points on the way that are
        far from feasible the bound does not matter; of others it does, as the best of them is the result.
        """
        form, scale = self.reduction.formulation, self.reduction.dual_scale
        solver = point.solver or self._stage.solver
        stated = self.problem.point(self._lifted(point), point.dual * scale)
        found = self.problem.formulation.certificate(stated)
        is_far = found.hard_violation > max(10 * self.tol, _FAR) and not is_last
        if is_far or not math.isfinite(found.primal):
            return _Graded(point, found, solver, stated)
        if self.recheck is not None and self.recheck.is_beyond_doubt(stated, found, self.tol):
            return _Graded(point, found, solver, stated)
        lost = self.recheck is not None and found.gap > self.tol and form.is_blurred(point)
        if self.recheck is None:
            lost = self._is_lost_to_rounding(point, found)
        else:
            lost = lost or form.is_lost_to_rounding(point, point.dual, found.primal / self.unit, self.tol)
        if not lost and not self._are_values_lost(stated, found):
            return _Graded(point, found, solver, stated)
        if self.recheck is None:
            return _Graded(point, replace(found, dual=-np.inf, gap=np.inf), solver, stated)
        found, dual = self.recheck.certificate(self.problem.lift(stated.factor), stated.dual)
        return _Graded(replace(point, dual=dual / scale), found, solver, replace(stated, dual=dual))

    def _lifted(self, point: Iterate) -> Array:
        """The factor of a point in the eigenbasis of the prior's range, before the reduction."""
        return self.problem.within_groups(self.reduction.lift(point.factor))

    def _are_values_lost(self, point: Iterate, found: Certificate) -> bool:
        """Whether errors of values may close the gap of a point that counts as solved, or hide violations."""
        if self.recheck is None or not found.holds(self.tol):
            return False
        most = self.recheck.most_errors(float(np.vdot(point.factor, point.factor)))
        if self.recheck.are_negligible(most, point.dual, found.primal, self.tol):
            return False
        errors = self.recheck.errors(self.problem.lift(point.factor), point.values)
        return not self.recheck.are_negligible(errors, point.dual, found.primal, self.tol)

    def _stands(self) -> bool:
        """Whether the certificate holds for the problem as it was stated, whatever the reduction did."""
        self._final = self._stated()
        return self._final.grade.holds(self.tol)

    def _is_contradiction(self, proof: Array | None) -> bool:
        """Whether multipliers prove infeasibility on the problem as it was stated; they are kept if so."""
        self.ray, form = proof, self.problem.formulation
        if proof is None:
            return False
        check = checked_proof(self.problem, self.recheck, proof)
        is_met = self.best is not None and self.best.grade.hard_violation <= form.proof_rounding
        if is_met and check.bound < 0:  # bounds that differ by what the last digits of features change
            return False
        return check.valid

    def _stated(self, is_last: bool = False) -> _Graded:
        """The best point with the best multipliers."""
        assert self.best is not None
        assert self.bound is not None
        if self.best is self.bound and self.best.stated is not None and not is_last:
            return self.best
        proof = self.bound.point
        return self._certified(replace(self.best.point, dual=proof.dual, pullback=proof.pullback), is_last)

    @np.errstate(all="ignore")
    def result(self, status: Status) -> Result:
        problem = self.problem
        if self.best is None or self.bound is None:
            raise ValueError(
                "the objective is not a finite number anywhere near the prior: features, prior, bounds or "
                "penalties differ by too many orders of magnitude; rescale them"
            )
        rows = None
        if status is Status.INFEASIBLE and self.ray is not None:
            factor = self._lifted(self.best.point)
            dual = self.ray / np.abs(self.ray).max()
            rows = list(problem.formulation.check_infeasibility(dual).rows[:10])
            stated: Iterate | None = problem.point(factor, np.zeros_like(dual))
            assert stated is not None
            certificate = replace(problem.formulation.certificate(stated), dual=np.inf, gap=np.inf)
        else:
            final = self._final if status is Status.SOLVED else None
            final = final or self._stated(is_last=self.recheck is not None)
            certificate, stated = final.grade, final.stated
            assert stated is not None
            factor, dual = stated.factor, stated.dual
        certificate = replace(certificate, worst=problem.violations_of(stated.values, rows))
        lifted = problem.lift(factor)
        matrix = lifted @ lifted.T
        return Result(
            matrix=(matrix + matrix.T) / 2,
            factor=lifted,
            dual=dual,
            status=status,
            certificate=certificate,
            history=tuple(self.history),
            solver=self.best.solver,
            message=outcome_message(status, certificate, self.tol, self.why, self._notes(certificate)),
            features=problem.features,
            limit=self.limit,
        )

    def _notes(self, certificate: Certificate) -> str:
        open_rows = self.returns_last and self.tol < certificate.hard_violation
        doubt = "Projections cannot tell whether the hard constraints contradict each other: solver=None can"
        assert self.best is not None
        note = self._note or self.best.point.note or self._stage.note
        return ". ".join([*([note] if note else []), *([doubt] if open_rows else [])])


def _checked_start(start: ArrayLike, solver: Solver | None, problem: Problem) -> Array:
    if solver is not None and "start" not in inspect.signature(solver.iterates).parameters:
        raise ValueError(f"{type(solver).__name__} cannot start from a given matrix: leave start out")
    factor = finite(start, "start", ndim=2)
    if len(factor) != problem.features.shape[1]:
        raise ValueError(f"start must have {problem.features.shape[1]} rows, as M has, got {len(factor)}")
    return factor


def _check_limits(
    problem: Problem,
    tol: float,
    max_iter: int | None,
    max_seconds: float | None,
    called: Mapping[str, object],
) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a nearwise.Problem, got {type(problem).__name__}")
    checks.tolerance(tol)
    checks.whole_number_or_none(max_iter, "max_iter")
    if max_seconds is not None:
        checks.positive_or_infinite(max_seconds, "max_seconds", "None, ")
    for name, function in called.items():
        checks.callable_or_none(function, name)
