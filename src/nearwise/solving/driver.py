"""The one entry point: `solve` reduces a problem, runs a solver on it, certifies every iterate, and stops."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import checks
from nearwise._common.reading import finite
from nearwise._common.threads import LARGE_MATRIX, one_blas_thread
from nearwise.model.certificate import Certificate
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.problem import Problem
from nearwise.model.recheck import Recheck
from nearwise.solving.automatic import Automatic
from nearwise.solving.reduction import Reduction, reduced
from nearwise.solving.result import CONTRADICTION, Record, Result, Status

Array = NDArray[np.float64]

_MAX_ITER = 1000  # unless a solver names another number


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
) -> Result:
    """Solve a problem to a certified accuracy.

    Parameters
    ----------
    problem : what to solve
    solver : how; by default an interior-point method, `Newton()` or projections, see `Automatic`
    tol : the run ends as SOLVED when the relative gap and the relative violation of the hard constraints are
        at most this
    max_iter : the largest number of iterations; by default 1000, or 10,000 sweeps of projections
    max_seconds : the longest time; no limit by default
    callback : called with a `Record` after every iteration; a true answer ends the run as INTERRUPTED
    start : a factor B of the matrix B B^T to start from, such as the `factor` of a result for another
        penalty; by default the prior. It changes the time a solve takes, and not where it ends.

    Returns
    -------
    The best iterate, whatever the status; see `Result`.

    >>> import nearwise as nw
    >>> side = nw.constraints.at_most([(0, 1)], 0.5)
    >>> nw.solve(nw.Problem([[0.0], [1.0]], side, penalty=float("inf"))).matrix.round(6)
    array([[0.5]])
    """
    _check_limits(problem, tol, max_iter, max_seconds, callback)
    solver = Automatic(tol) if solver is None else solver
    if not hasattr(solver, "iterates"):
        raise TypeError(
            f"solver must have a method iterates, as nearwise.solvers.Newton() has; got {solver!r}"
        )
    factor = None if start is None else _checked_start(start, solver, problem)
    # More threads gain little on small matrices and lose much on a busy machine; many constraints are split
    # into blocks that run side by side, see `Measurements`.
    with one_blas_thread(problem.features.shape[1] <= LARGE_MATRIX):
        limit: int = getattr(solver, "max_iter", _MAX_ITER) if max_iter is None else max_iter
        returns_last: bool = getattr(solver, "returns_last", False)
        run = _Run(problem, tol, limit, max_seconds, callback, returns_last)
        return run.result(solver, run.status(solver, factor))


class _Run:
    """Follows a solver: grades each iterate, keeps the best, and decides when to stop."""

    def __init__(
        self,
        problem: Problem,
        tol: float,
        max_iter: int,
        max_seconds: float | None,
        callback: Callable[[Record], Any] | None,
        returns_last: bool,
    ) -> None:
        self.returns_last = returns_last  # whether the last point counts as the best, as in the papers
        self.problem, self.tol, self.max_iter, self.callback = problem, tol, max_iter, callback
        self.max_seconds = np.inf if max_seconds is None else max_seconds
        self.started = time.perf_counter()
        self.reduction: Reduction = reduced(problem.formulation)
        self.unit = problem.formulation.unit / self.reduction.formulation.unit
        self.history: list[Record] = []
        self.best: Iterate | None = None
        self.best_rank = (np.inf, np.inf)
        self.bound: Iterate | None = None
        self.best_dual = -np.inf
        self.ray: Array | None = None
        self.certificate: Certificate | None = None
        self.note = self.limit = ""
        self.recheck = Recheck(problem) if Recheck.suits(problem) else None

    def status(self, solver: Any, start: Array | None) -> Status:
        form = self.reduction.formulation
        first = () if start is None else (self.reduction.lower(self.problem.lower(start)),)
        stream = _without_failures(solver.iterates(form, *first))
        try:
            for point in stream:
                self.note = point.note
                with np.errstate(all="ignore"):  # what overflows is not finite, and is not kept
                    grade = self._keep(*self._graded(point))
                if grade is None:
                    continue
                record = self._record(grade)
                stop = self.callback is not None and self.callback(record)
                if grade.holds(self.tol) and self._stands():
                    return Status.SOLVED
                if point.ray is not None and self._is_contradiction(form.proof(point.ray)):
                    return Status.INFEASIBLE
                if stop:
                    return Status.INTERRUPTED
                if point.final:
                    return Status.STATIONARY
                self.limit = self._limit()
                if self.limit:
                    return Status.LIMIT
        except KeyboardInterrupt:
            if self.best is None:
                raise
            return Status.INTERRUPTED
        return Status.STALLED

    def _graded(self, point: Iterate) -> tuple[Iterate, Certificate]:
        """A point with its certificate, in twice the precision where double precision is too little.

        Then the point may get multipliers that are a little smaller.
        """
        form, grade = self.reduction.formulation, self.reduction.formulation.certificate(point)
        hopeless = grade.hard_violation > 10 * self.tol or not np.isfinite(grade.primal)
        if self.recheck is None or hopeless:
            return point, grade
        blurred = grade.gap > self.tol and form.is_blurred(point)
        if not blurred and not self._is_lost(point, point.dual, grade.primal):
            return point, grade
        found, dual = self._rechecked(point.factor, point.dual)
        primal, gap = found.primal / self.unit, found.primal / self.unit - found.dual / self.unit
        found = replace(found, primal=primal, dual=primal - gap, gap=form.relative_gap(gap, primal))
        return replace(point, dual=dual / self.reduction.dual_scale), found

    def _is_lost(self, point: Iterate, dual: Array, primal: float) -> bool:
        return self.reduction.formulation.is_lost_to_rounding(point, dual, primal, self.tol)

    def _rechecked(self, factor: Array, dual: Array) -> tuple[Certificate, Array]:
        assert self.recheck is not None
        lifted = self.problem.lift(self.reduction.lift(factor))
        return self.recheck.certificate(lifted, dual * self.reduction.dual_scale)

    def _stands(self) -> bool:
        """Whether the certificate holds for the problem as it was stated, whatever the reduction did."""
        self.certificate = self._stated_certificate()
        return self.certificate.holds(self.tol)

    def _is_contradiction(self, proof: Array | None) -> bool:
        """Whether multipliers prove infeasibility on the problem as it was stated; they are kept if so."""
        self.ray = proof
        return proof is not None and self.problem.formulation.check_infeasibility(proof).valid

    def _limit(self) -> str:
        """Which limit was reached, if any."""
        if self.history[-1].seconds >= self.max_seconds:
            return f"Stopped at the limit of {self.max_seconds:g} seconds"
        if len(self.history) >= self.max_iter:
            return f"Stopped at the limit of {self.max_iter} iterations"
        return ""

    @np.errstate(all="ignore")
    def _stated_certificate(self) -> Certificate:
        assert self.best is not None
        assert self.bound is not None
        factor, dual = self.reduction.lift(self.best.factor), self.bound.dual * self.reduction.dual_scale
        found = self.problem.certificate_of_factor(factor, dual)
        form = self.reduction.formulation
        blurred = self.recheck is not None and found.gap > self.tol and form.is_blurred(self.bound)
        if not blurred and not self._is_lost(self.best, self.bound.dual, found.primal / self.unit):
            return found
        if self.recheck is None:
            return replace(found, dual=-np.inf, gap=np.inf)
        exact, dual = self._rechecked(self.best.factor, self.bound.dual)
        self.bound = replace(self.bound, dual=dual / self.reduction.dual_scale)
        return replace(exact, worst=found.worst)

    @np.errstate(all="ignore")
    def result(self, solver: Solver, status: Status) -> Result:
        problem, reduction = self.problem, self.reduction
        if self.best is None or self.bound is None:
            raise ValueError(
                "the objective is not a finite number anywhere near the prior: features, prior, bounds or "
                "penalties differ by too many orders of magnitude; rescale them"
            )
        factor = reduction.lift(self.best.factor)
        lifted = problem.lift(factor)
        if status is Status.INFEASIBLE and self.ray is not None:
            dual = self.ray / np.abs(self.ray).max()
            rows = problem.formulation.check_infeasibility(dual).rows
            found = problem.certificate_of_factor(factor, np.zeros_like(dual))
            values = problem.formulation.measurements.values_of_factor(factor)
            worst = problem.violations_of(list(rows[:10]), values)
            certificate = replace(found, dual=np.inf, gap=np.inf, worst=worst)
        else:
            dual = self.bound.dual * reduction.dual_scale
            solved = self.certificate if status is Status.SOLVED else None
            certificate = solved or self._stated_certificate()
        matrix = lifted @ lifted.T
        return Result(
            matrix=(matrix + matrix.T) / 2,
            factor=lifted,
            dual=dual,
            status=status,
            certificate=certificate,
            history=tuple(self.history),
            solver=self.best.solver or type(solver).__name__,
            message=_message(status, certificate, self.tol, self.limit, self._notes(certificate)),
            features=problem.features,
        )

    def _notes(self, certificate: Certificate) -> str:
        open_rows = self.returns_last and self.tol < certificate.hard_violation
        doubt = "Projections cannot tell whether the hard constraints contradict each other: solver=None can"
        return ". ".join([*([self.note] if self.note else []), *([doubt] if open_rows else [])])

    def _keep(self, point: Iterate, grade: Certificate) -> Certificate | None:
        """Remember the best point; return the certificate that all points so far give together.

        None for a point whose objective is not a number.
        """
        if not np.isfinite(grade.primal):
            return None
        if self.reduction.formulation.losses.any_hard:
            rank = (max(grade.gap, grade.hard_violation), grade.primal)
            if self.best is None or rank <= self.best_rank or self.returns_last:
                self.best, self.best_rank, self.bound = point, rank, point
            return grade
        # Every dual point bounds the optimum, so the highest bound holds for the lowest objective.
        if self.best is None or grade.primal <= self.best_rank[0]:
            self.best, self.best_rank = point, (grade.primal, 0.0)
        if self.bound is None or self.best_dual <= grade.dual < np.inf:
            self.bound, self.best_dual = point, grade.dual
        if grade.gap <= self.reduction.formulation.relative_gap(
            self.best_rank[0] - self.best_dual, self.best_rank[0]
        ):  # the point and its own bound are as good, and cancel no digits
            self.best, self.best_rank = point, (grade.primal, 0.0)
            self.bound, self.best_dual = point, grade.dual
        primal, dual = self.best_rank[0], self.best_dual
        gap = self.reduction.formulation.relative_gap(primal - dual, primal)
        return replace(grade, primal=primal, dual=dual, gap=gap)

    def _record(self, grade: Certificate) -> Record:
        record = Record(
            iteration=len(self.history) + 1,
            seconds=time.perf_counter() - self.started,
            primal=grade.primal * self.unit,
            dual=grade.dual * self.unit,
            gap=grade.gap,
            violation=grade.violation,
            hard_violation=grade.hard_violation,
            satisfied=grade.satisfied,
        )
        self.history.append(record)
        return record


def _without_failures(points: Iterator[Iterate]) -> Iterator[Iterate]:
    """The points up to where rounding made a factorisation impossible."""
    with contextlib.suppress(np.linalg.LinAlgError):
        yield from points


def _message(status: Status, certificate: Certificate, tol: float, limit: str, note: str) -> str:
    if status is Status.INFEASIBLE:
        rows = "; ".join(violation.name for violation in certificate.worst)
        return f"{CONTRADICTION}{rows}"
    reached = f"relative gap {certificate.gap:.1e}, hard violation {certificate.hard_violation:.1e}"
    ends = {
        Status.SOLVED: f"Solved within {tol:g}",
        Status.LIMIT: limit,
        Status.STATIONARY: "Stopped by the solver's own rule, which proves nothing",
        Status.INTERRUPTED: "Interrupted",
        Status.STALLED: f"No further progress; the tolerance {tol:g} was not reached",
    }
    return f"{ends[status]}: {reached}." + (f" {note}." if note else "")


def _checked_start(start: ArrayLike, solver: Solver, problem: Problem) -> Array:
    if "start" not in inspect.signature(solver.iterates).parameters:
        raise ValueError(f"{type(solver).__name__} cannot start from a given matrix: leave start out")
    factor = finite(start, "start", ndim=2)
    if len(factor) != problem.features.shape[1]:
        raise ValueError(f"start must have {problem.features.shape[1]} rows, as M has, got {len(factor)}")
    return factor


def _check_limits(
    problem: Problem, tol: float, max_iter: int | None, max_seconds: float | None, callback: object
) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a nearwise.Problem, got {type(problem).__name__}")
    checks.tolerance(tol)
    checks.whole_number_or_none(max_iter, "max_iter")
    if max_seconds is not None:
        checks.positive_or_infinite(max_seconds, "max_seconds", "None, ")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
