"""`solve`: the one way from a problem to a result.

1. State the problem in units in which prior and rows have size one, on the span of its rows.
2. Follow a solver, or the methods of the plan one after the other.
3. Certify every point; keep the best point and the highest bound.
4. Stop where they meet within the tolerance, or where multipliers prove the hard rows contradictory. Both are
   verified in twice the precision on the user's own numbers, where the problem is small enough to write out.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import checks
from nearwise._common.reading import finite
from nearwise._common.threads import LARGE_MATRIX, one_blas_thread
from nearwise._common.types import Array
from nearwise._common.warning import warn
from nearwise.core.certificate import Certificate, named_violations
from nearwise.core.formulation import Certified
from nearwise.core.in_chunks import DualInChunks, InChunks
from nearwise.core.iterates import Iterate
from nearwise.core.problem import Problem
from nearwise.core.tolerance import Tolerance
from nearwise.core.verify import verification
from nearwise.methods.loop import Loop, quiet
from nearwise.methods.plan import Solver, Stage, stages
from nearwise.methods.result import Record, Result, Status, outcome_message

MAX_ITER = 1000  # unless a solver names another number
LARGEST_START = 1e75  # trace of a start in units of the prior: costs of larger ones overflow
PROOF_ROWS = 10  # that a message names
FAR = 1e-5  # violation of hard rows that no tolerance calls small
# Violation of hard rows, for each column, that the last digits of features explain: where a point comes so
# near, bounds contradict each other by rounding, and no proof counts (bench decide draws such bounds).
ROUNDED = 8 * float(np.finfo(np.float64).eps)

_UNVERIFIED = "In twice the precision the certificate does not hold: the problem is too ill-conditioned"
_PROJECTED = "Projections cannot tell whether the hard constraints contradict each other: solver=None can"


def solve(
    problem: Problem,
    solver: Solver | None = None,
    tol: float | Tolerance = 1e-6,
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
    solver : how; by default the method that suits the problem, or one after the other
    tol : the run ends as SOLVED when the relative gap and the relative violation of the hard constraints are
        at most this; a `Tolerance` gives each its own
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
    _check_arguments(problem, solver, max_iter, max_seconds, callback, watch)
    tolerance = Tolerance.of(tol)
    factor = None if start is None else _checked_start(start, solver, problem)
    # More threads gain little on small matrices and lose much on a busy machine.
    with one_blas_thread(problem.order <= LARGE_MATRIX):
        limit: int = getattr(solver, "max_iter", MAX_ITER) if max_iter is None else max_iter
        run = _Run(problem, solver, tolerance, limit, max_seconds, callback, watch)
        return run.result(run.status(factor))


class _Graded(NamedTuple):
    """A point in scaled units, with what certifies it."""

    iterate: Iterate
    found: Certified
    solver: str

    @property
    def certificate(self) -> Certificate:
        return self.found.certificate

    @property
    def rank(self) -> tuple[float, float]:
        """What orders points where a constraint is hard."""
        return max(self.certificate.gap, self.certificate.hard_violation), self.certificate.primal


class _Run(Loop[Iterate, _Graded, Record]):
    """Follows solvers: certifies each iterate, keeps the best, and decides when to stop."""

    counts_start = True

    def __init__(
        self,
        problem: Problem,
        solver: Solver | None,
        tol: Tolerance,
        max_iter: int,
        max_seconds: float | None,
        callback: Callable[[Record], Any] | None,
        watch: Callable[[Record, Array], Any] | None,
    ) -> None:
        super().__init__(max_iter, max_seconds, callback)
        self.problem, self.solver, self.tol, self.watch = problem, solver, tol, watch
        self.returns_last: bool = getattr(solver, "returns_last", False)  # the last point is the result
        self.scaled = problem.formulation.scaled()
        self.form = self.scaled.form
        self.spanned = self.form.spanned()
        self.any_hard = self.form.measured.any_hard
        self.bound: _Graded | None = None  # whose multipliers prove most
        self.proof: Array | None = None
        self.verified: Any = None  # multipliers, of which those outside the dual's domain are smaller
        self.note, self.doubt = "", ""  # of the solver, and of the verification, for the message
        self._name = ""  # of the solver that is followed
        self._verifier: Any = None

    # ---- the points ---------------------------------------------------------------------------------------

    def status(self, start: Array | None) -> Status:
        """How the run ends."""
        first = None if start is None else self._measurable(start)
        return self.follow(self._points(first))

    def _points(self, start: Array | None) -> Iterator[Iterate]:
        """The points of one method after the other, each up to where a factorisation fails."""
        small = self.spanned.form
        plan: Iterable[Stage] = [] if self.solver is None else [Stage(self.solver)]
        for solver, most in plan or stages(small, self.tol.gap, start is not None):
            self._name = type(solver).__name__
            accepts = "start" in inspect.signature(solver.iterates).parameters
            points = solver.iterates(small, *([start] if accepts and start is not None else []))
            with contextlib.suppress(np.linalg.LinAlgError):
                yield from itertools.islice(quiet(points), most)

    @np.errstate(all="ignore")
    def _measurable(self, start: Array) -> Array | None:
        """The start in scaled units; None, so that a run begins at the prior, where its costs overflow."""
        factor = self.spanned.lower(self.scaled.lower(self.problem.lower(start)))
        if np.square(factor).sum() <= LARGEST_START:
            return factor
        warn("start is so large beside the prior that its costs overflow: the run begins at the prior")
        return None

    def _lifted(self, iterate: Iterate) -> Iterate:
        """A point of the span as one of the whole space, with what was measured at it."""
        span = self.spanned.span
        if span is None:
            return iterate
        adjoint = None if iterate.adjoint is None else span @ iterate.adjoint @ span.T
        sums = iterate.sums
        if sums is not None:
            sums = replace(sums, adjoint=span @ sums.adjoint @ span.T)
        return replace(iterate, factor=self.spanned.lift(iterate.factor), adjoint=adjoint, sums=sums)

    # ---- what a point is worth ----------------------------------------------------------------------------

    @np.errstate(all="ignore")  # what overflows is not finite, and is not kept
    def grade(self, point: Iterate) -> _Graded | None:
        """With its certificate; None for a point whose objective is not a number."""
        lifted = self._lifted(point)
        graded = _Graded(lifted, self.form.certify(lifted), point.solver or self._name)
        return graded if math.isfinite(graded.certificate.primal) else None

    def is_better(self, graded: _Graded) -> bool:
        """By gap and violation; where nothing is hard, by objective, and the highest bound is kept apart."""
        best, new = self.best, graded.certificate
        if self.any_hard:
            better = best is None or graded.rank <= best.rank or self.returns_last
            self.bound = graded if better else self.bound
            return better
        if best is None:
            none = self._without_multipliers(graded)
            self.bound = graded if new.dual >= none.certificate.dual else none
            return True
        assert self.bound is not None
        if new.dual >= self.bound.certificate.dual:
            self.bound = graded
        if new.dual > 0 and new.gap <= self.joint(best).gap:
            self.bound = graded  # as good as the two apart, and its gap cancels no digits
            return True
        return new.primal <= best.certificate.primal

    def _without_multipliers(self, graded: _Graded) -> _Graded:
        """The same point with the bound of no multipliers at all, which is 0."""
        primal = graded.certificate.primal
        none = replace(graded.certificate, dual=0.0, gap=self.form.relative(primal, primal))
        return graded._replace(found=graded.found._replace(certificate=none, share=0.0))

    def joint(self, graded: _Graded) -> Certificate:
        """What a point proves with the highest bound."""
        if self.any_hard or self.bound is None or graded is self.bound:
            return graded.certificate
        return self.form.joint(graded.certificate, self.bound.certificate)

    def record(self, graded: _Graded, iteration: int, seconds: float) -> Record:
        """The certificate of the best point so far; that of the latest where rows are hard."""
        assert self.best is not None
        shown = graded.certificate if self.any_hard else self.joint(self.best)
        return Record(
            iteration=iteration,
            seconds=seconds,
            primal=shown.primal * self.scaled.value,
            dual=shown.dual * self.scaled.value,
            gap=shown.gap,
            violation=graded.certificate.violation,
            hard_violation=graded.certificate.hard_violation,
            satisfied=graded.certificate.satisfied,
        )

    def tell(self, record: Record, graded: _Graded) -> bool:
        """The callback, and who watches the matrix, each of whom may ask to stop."""
        stop = super().tell(record, graded)
        if self.watch is None:
            return stop
        return bool(self.watch(record, self._stated(graded.iterate.factor))) or stop

    def end(self, graded: _Graded) -> Status | None:
        """A certificate that holds, multipliers that prove a contradiction, or a rule of the solver's own."""
        assert self.best is not None
        self.note = graded.iterate.note or self.note
        if self.tol.is_met(self.joint(self.best)) and self._is_verified():
            return Status.SOLVED
        suspected = graded.iterate.farkas
        if suspected is not None and self._is_contradiction(suspected):
            return Status.INFEASIBLE
        return Status.STATIONARY if graded.iterate.final else None

    # ---- verification -------------------------------------------------------------------------------------

    @property
    def verifier(self) -> Any:
        """Twice the precision, where the problem is small enough; else None."""
        if self._verifier is None:
            self._verifier = (verification(self.problem),)
        return self._verifier[0]

    def _is_verified(self) -> bool:
        """Whether the best point and the best multipliers are within the tolerance in twice the precision."""
        if self.verifier is None:
            return True
        factor, dual = self._answer()
        if not dual.any():  # the prior meets all constraints
            return True
        with np.errstate(all="ignore"):
            found, self.verified = self.verifier.certificate(factor, dual)
        self.doubt = "" if self.tol.is_met(found) else _UNVERIFIED
        return not self.doubt

    def _is_contradiction(self, suspected: Array) -> bool:
        """Whether multipliers prove infeasibility, also in twice the precision; the proof is kept if so."""
        proof = self.form.farkas(suspected)
        if proof is None:
            return False
        assert self.best is not None
        is_met = self.best.certificate.hard_violation <= ROUNDED * self.form.order
        if is_met and self.form.check(proof).bound < 0:
            return False
        self.proof = proof / np.abs(proof).max()
        return self.verifier is None or self.verifier.check(self.proof).valid

    # ---- the result ---------------------------------------------------------------------------------------

    def _stated(self, factor: Array) -> Array:
        """A factor in the coordinates of the features."""
        return self.problem.lift(self.problem.within_groups(self.scaled.lift(factor)))

    def _answer(self) -> tuple[Array, Any]:
        """The factor of the best point, and the best multipliers, as the user has them."""
        assert self.best is not None
        assert self.bound is not None
        factor, bound = self._stated(self.best.iterate.factor), self.bound
        if isinstance(self.form.measured, InChunks):
            scale = bound.found.share * self.scaled.dual
            return factor, DualInChunks(self.form.measured, bound.iterate.factor, scale)
        return factor, self.form.multipliers(bound.iterate.factor, bound.found) * self.scaled.dual

    def _certified(self, status: Status, dual: Any) -> tuple[Certificate, Any]:
        """In the units of the user, with its multipliers.

        Where a run ended far from feasible, multipliers of hard rows are so large that rounding may hide their
        bound. No multipliers at all prove 0.
        """
        assert self.best is not None
        joint, value = self.joint(self.best), self.scaled.value
        if joint.hard_violation > FAR and status is not Status.INFEASIBLE:
            joint = self._without_multipliers(self.best).certificate
            dual = np.zeros_like(dual)
        elif status is Status.SOLVED and self.verified is not None:
            dual = self.verified
        return replace(joint, primal=joint.primal * value, dual=joint.dual * value), dual

    @np.errstate(all="ignore")
    def result(self, status: Status) -> Result:
        """What the run found, whatever its end."""
        if self.best is None:
            raise ValueError(
                "the objective is not a finite number anywhere near the prior: features, prior, bounds or "
                "penalties differ by too many orders of magnitude; rescale them"
            )
        problem = self.problem
        factor, dual = self._answer()
        inside = self.scaled.lift(self.best.iterate.factor)
        certificate, dual = self._certified(status, dual)
        matrix = factor @ factor.T
        if status is Status.INFEASIBLE:
            assert self.proof is not None
            dual = self.proof
            named = problem.violations_of(matrix, self.form.check(dual).rows[:PROOF_ROWS])
            certificate = replace(certificate, dual=np.inf, gap=np.inf, worst=named)
        else:
            worst = problem.formulation.measured.measure(inside).worst
            certificate = replace(certificate, worst=named_violations(worst, problem.stated))
        projected = (
            _PROJECTED if self.returns_last and certificate.hard_violation > self.tol.violation else ""
        )
        notes = ". ".join(filter(None, [self.note, self.doubt, projected]))
        return Result(
            matrix=(matrix + matrix.T) / 2,
            factor=factor,
            dual=dual,
            status=status,
            certificate=certificate,
            history=tuple(self.history),
            solver=self.best.solver,
            message=outcome_message(status, certificate, self.tol, self.why, notes),
            features=problem.features,
            limit=self.limit,
        )


def _check_arguments(
    problem: Problem,
    solver: Solver | None,
    max_iter: int | None,
    max_seconds: float | None,
    callback: object,
    watch: object,
) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a nearwise.Problem, got {type(problem).__name__}")
    checks.whole_number_or_none(max_iter, "max_iter")
    if max_seconds is not None:
        checks.positive_or_infinite(max_seconds, "max_seconds", "None, ")
    checks.callable_or_none(callback, "callback")
    checks.callable_or_none(watch, "watch")
    if solver is not None and not hasattr(solver, "iterates"):
        raise TypeError(
            f"solver must have a method iterates, as nearwise.solvers.Newton() has; got {solver!r}"
        )


def _checked_start(start: ArrayLike, solver: Solver | None, problem: Problem) -> Array:
    if solver is not None and "start" not in inspect.signature(solver.iterates).parameters:
        raise ValueError(f"{type(solver).__name__} cannot start from a given matrix: leave start out")
    factor = finite(start, "start", ndim=2)
    if len(factor) != problem.order:
        raise ValueError(f"start must have {problem.order} rows, as M has, got {len(factor)}")
    return factor
