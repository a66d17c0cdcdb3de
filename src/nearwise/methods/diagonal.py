"""Weights of features: `solve_diagonal`, and its result.

Newton's method on the objective. With the gradient g at w, Phi = phi''(w), and the curvatures C of the
losses, the step of an iteration solves (Phi + A^T C A) step = -g: directly where the violated rows or the
columns are few, else by conjugate gradients.

1. Weights that fall do so along phi', where LogDet and von Neumann never cross 0, and Frobenius stops there.
2. Where the objective does not fall enough, Phi + max(g, 0) / w takes the place of Phi, as in methods that
   stay inside of bounds (Coleman and Li, SIAM J. Optim. 6, 1996). The step is straight, and is shortened.

Penalties that are large beside the divergence leave few digits to the slopes of the losses, and steps become
short. Then few weights are found by the interior-point method, which has multipliers of their own, and many
from the optimum of ever larger shares of the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from nearwise._common import checks
from nearwise._common.markup import fact_table
from nearwise._common.types import Array, Limit
from nearwise.core.certificate import Certificate
from nearwise.core.diagonal import SMALLEST, DiagonalFormulation, DiagonalProblem
from nearwise.core.formulation import Certified
from nearwise.core.iterates import Iterate
from nearwise.core.losses import LossValues
from nearwise.core.measured import sums_of
from nearwise.core.problem import Problem
from nearwise.core.tolerance import Tolerance
from nearwise.core.verify import verification
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.methods.interior import InteriorPoint
from nearwise.methods.loop import Loop, quiet
from nearwise.methods.result import Record, Status, outcome_message

MAX_ITER = 1000

# Iterations before the interior-point method is tried, and numbers in all constraint matrices up to which it
# is. On random problems (tests/solving/test_diagonal_campaign.py) 99 of 100 take fewer iterations, and from
# 30 to 100 as many are solved in as much time; 2,000,000 numbers may take 10 s.
PATIENCE, WRITTEN_OUT = 50, 100_000

FACTORED = 1000  # rows or columns up to which Newton's system is factored, in 0.1 s at most
CG_STEPS = 300  # at most; a less exact step costs iterations

SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring
ALONG, STRAIGHT = 2, 50  # lengths tried: along phi' more cost as much as another step
ROUNDING = 1e-14  # relative changes of the objective that mean nothing
IDLE = 3  # iterations without a decrease, in which multipliers may still become better

# A weight falls to this share of itself in a step at most where phi'' is infinite at 0, from where it would
# rise slowly. From 0.1 to 1e-4, iterations are as many.
LEAST_SHARE = 1e-2
LEAST_START = 1e-12  # of its prior: a weight that an earlier run left at 0 could not move

# Shares of the penalty: the first at least, how much larger each next one is, and iterations with it.
LEAST_PENALTY, LARGER, STEPS = 1e-30, 10.0, 12

_HIDDEN = "Terms that cancel leave too few digits to know the gap: the problem is too ill-conditioned"


@dataclass(frozen=True, eq=False)
class DiagonalResult:
    """The learned weights w, with everything needed to trust them.

    Attributes
    ----------
    weights : w, d numbers >= 0: M = diag(w)
    dual : one multiplier per constraint
    status, certificate, history, solver, message, limit : as in `Result`
    """

    weights: Array
    dual: Array
    status: Status
    certificate: Certificate
    history: tuple[Record, ...]
    solver: str
    message: str
    limit: Limit | None = None

    @property
    def factor(self) -> Array:
        """The roots of the weights: the diagonal of B, where M = B B^T."""
        return np.sqrt(self.weights)

    @property
    def n_iter(self) -> int:
        """The number of iterations; the starting point is the first."""
        return len(self.history)

    def __repr__(self) -> str:
        c = self.certificate
        return (
            f"<DiagonalResult: {self.status.name}, {len(self.weights):,} weights, {self.n_iter} iterations, "
            f"objective {c.primal:.6g}, gap {c.gap:.1e}, violation {c.violation:.1e}>"
        )

    def _repr_html_(self) -> str:
        about = {"status": self.status.name, "iterations": f"{self.n_iter:,} of {self.solver}"}
        return fact_table("Result", about | self.certificate.as_texts() | {"message": self.message})


def solve_diagonal(
    problem: DiagonalProblem,
    tol: float | Tolerance = 1e-6,
    max_iter: int | None = None,
    callback: Callable[[Record], Any] | None = None,
    start: Array | None = None,
) -> DiagonalResult:
    """Solve a problem of soft constraints to a certified accuracy.

    Parameters
    ----------
    problem : what to solve
    tol : the run ends as SOLVED when the relative gap is at most this
    max_iter : the largest number of iterations; 1000 by default
    callback : called with a `Record` after every iteration; a true answer ends the run as INTERRUPTED
    start : the roots of d weights to start from; by default the prior
    """
    checks.whole_number_or_none(max_iter, "max_iter")
    form = problem.formulation
    if form.loss.any_hard:
        raise ValueError("weights are solved for with soft constraints: the penalty must be finite")
    w = form.prior if start is None else np.square(start[problem.columns])
    if not _may_vanish(form):
        w = np.maximum(w, LEAST_START * np.where(form.prior > 0, form.prior, problem.prior.mean()))
    run = _Run(problem, Tolerance.of(tol), MAX_ITER if max_iter is None else max_iter, callback)
    return run.result(run.follow(quiet(run.points(w))))


class _Graded(NamedTuple):
    """A point with what certifies it."""

    w: Array
    found: Certified

    @property
    def certificate(self) -> Certificate:
        return self.found.certificate


class _Run(Loop[Iterate, _Graded, Record]):
    """Certifies every point; the best is the one with the lowest objective."""

    counts_start = True

    def __init__(
        self,
        problem: DiagonalProblem,
        tol: Tolerance,
        max_iter: int,
        callback: Callable[[Record], Any] | None,
    ) -> None:
        super().__init__(max_iter, None, callback)
        self.problem, self.form, self.tol, self.note = problem, problem.formulation, tol, ""

    def points(self, w: Array) -> Iterator[Iterate]:
        """Those of Newton's method; where it is slow, and weights are few, of the interior-point method."""
        steps, form = _iterates(self.form, w), self.form
        yield from islice(steps, PATIENCE)
        if form.rows.n_rows * form.order**2 <= 2 * WRITTEN_OUT and self.problem.in_blocks is not None:
            with suppress(np.linalg.LinAlgError):
                yield from _diagonals(self.problem.in_blocks, self.tol.gap)
        yield from _iterates(form, _approached(form))

    def grade(self, point: Iterate) -> _Graded | None:
        graded = _Graded(point.factor, self.form.certify(point))
        return graded if math.isfinite(graded.certificate.primal) else None

    def is_better(self, graded: _Graded) -> bool:
        new, best = graded.certificate, self.best
        return best is None or self.tol.is_met(new) or new.primal <= best.certificate.primal

    def record(self, graded: _Graded, iteration: int, seconds: float) -> Record:
        assert self.best is not None
        c = self.best.certificate
        return Record(iteration, seconds, c.primal, c.dual, c.gap, c.violation, c.hard_violation, c.satisfied)

    @np.errstate(all="ignore")
    def end(self, graded: _Graded) -> Status | None:
        """SOLVED if rounding can hide no gap, or there is none in twice the precision."""
        c, form = graded.certificate, self.form
        if not self.tol.is_met(c):
            return None
        dual = form.multipliers(graded.w, graded.found)
        if form.cost_of_rounding(graded.w, dual) <= self.tol.gap * max(c.primal, form.unit):
            return Status.SOLVED
        blocks = self.problem.in_blocks
        verifier = None if blocks is None else verification(blocks)
        if verifier and self.tol.is_met(verifier.certificate(np.diag(np.sqrt(graded.w)), dual)[0]):
            return Status.SOLVED
        self.note = _HIDDEN
        return None

    def result(self, status: Status) -> DiagonalResult:
        if self.best is None:
            raise ValueError(
                "the objective is not a finite number anywhere near the prior: features, prior, bounds or "
                "penalties differ by too many orders of magnitude; rescale them"
            )
        certificate = self.problem.named(self.best.certificate, self.best.w)
        note = "" if status is Status.SOLVED else self.note
        return DiagonalResult(
            weights=self.problem.spread(self.best.w),
            dual=self.form.multipliers(self.best.w, self.best.found),
            status=status,
            certificate=certificate,
            history=tuple(self.history),
            solver="DiagonalNewton",
            message=outcome_message(status, certificate, self.tol, self.why, note),
            limit=self.limit,
        )


def _diagonals(problem: Problem, tol: float) -> Iterator[Iterate]:
    """Points of the problem in blocks of one column, as weights."""
    scaled = problem.formulation.scaled()
    for point in InteriorPoint(tol).iterates(scaled.form):
        factor = problem.lift(scaled.lift(point.factor))
        dual = None if point.dual is None else point.dual * scaled.dual
        yield Iterate(np.square(factor).sum(axis=1), dual)


def _approached(form: DiagonalFormulation) -> Array:
    """Weights near the optimum: those of ever larger shares of the penalty, each from those before."""
    w = form.prior
    slopes = np.abs(form.measured.measure(w).adjoint)
    # the first share changes weights by about as much as they are
    share = max(float(np.nanmin(form.divergence.curvature(w) * w / slopes, initial=1.0)), LEAST_PENALTY)
    while share < 1.0:
        part = replace(form, measured=form.measured.times(share))
        for point in islice(_iterates(part, w), STEPS):
            w = point.factor
        share *= LARGER
    return w


class _Point(NamedTuple):
    """Weights with the losses at their values, and the objective."""

    w: Array
    values: Array
    losses: LossValues
    cost: float


def _at(form: DiagonalFormulation, w: Array) -> _Point:
    values = form.rows.values(w)
    losses = form.loss.at(values)
    return _Point(w, values, losses, form.divergence.distance(w, form.prior) + losses.total)


def _iterates(form: DiagonalFormulation, w: Array) -> Iterator[Iterate]:
    """Points of falling objective, until rounding allows none lower."""
    law, rows, here = form.divergence, form.rows, _at(form, w)
    first, idle = 0.0, 0
    while idle < IDLE:
        w, losses = here.w, here.losses
        adjoint = rows.adjoint(losses.slopes)
        yield Iterate(w, sums=sums_of(here.values, losses, adjoint))
        gradient, phi = law.gradient(w) - form.gradient_at_prior + adjoint, law.curvature(w)
        free = ((w > 0) | (gradient < 0)) & np.isfinite(gradient) & np.isfinite(phi)
        gradient, phi = np.where(free, gradient, 0.0), np.where(free, phi, np.inf)
        size = float(np.linalg.norm(gradient / np.sqrt(phi)))
        if size == 0.0:
            return
        first = max(first, size)
        accuracy = min(0.1, math.sqrt(size / first))
        # 1.
        step = _newton_step(rows.entries, losses.curvatures, phi, gradient, accuracy)
        there = _searched(form, here, gradient, step, ALONG, phi)
        if there is None:  # 2.
            phi = phi + np.maximum(gradient, 0.0) / np.maximum(w, SMALLEST)
            step = _newton_step(rows.entries, losses.curvatures, phi, gradient, accuracy)
            there = _searched(form, here, gradient, step, STRAIGHT)
        if there is None:
            return
        idle = 0 if there.cost < here.cost else idle + 1
        here = there


def _searched(
    form: DiagonalFormulation,
    here: _Point,
    gradient: Array,
    step: Array,
    trials: int,
    phi: Array | None = None,
) -> _Point | None:
    """The point of sufficient decrease along the step, halved until there is one.

    With `phi`, weights fall along phi', else along a straight line.
    """
    w, law, falls = here.w, form.divergence, step < 0
    least = 0.0 if _may_vanish(form) else LEAST_SHARE * w
    slope, share = float(gradient @ step), 1.0
    for _ in range(trials):
        move = share * step
        new = w + move if phi is None else np.where(falls, law.shifted(w, phi * move), w + move)
        there = _at(form, np.maximum(new, least))
        enough = here.cost + SUFFICIENT * share * slope + ROUNDING * abs(here.cost)
        if there.cost <= enough and not np.array_equal(there.w, w):
            return there
        share /= 2
    return None


def _newton_step(A: Any, curvatures: Array, phi: Array, gradient: Array, accuracy: float) -> Array:
    """The step with (Phi + A^T C A) step = -gradient, 0 where phi is infinite.

    With S = Phi^-1/2 and B = C^1/2 A S, it is S q where (I + B^T B) q = -S gradient.
    """
    scale, rows = 1.0 / np.sqrt(phi), np.flatnonzero(curvatures)
    right, root = -scale * gradient, np.sqrt(curvatures[rows])
    if not len(rows):
        return scale * right
    B = A[rows]
    if sparse.issparse(B):
        B.data *= np.repeat(root, np.diff(B.indptr)) * scale[B.indices]
    else:
        B = root[:, None] * B * scale
    if min(B.shape) <= FACTORED:
        with suppress(np.linalg.LinAlgError):
            return scale * _factored(B, right)
    if sparse.issparse(B):
        diagonal = 1.0 + np.bincount(B.indices, np.square(B.data), len(phi))
    else:
        diagonal = 1.0 + np.einsum("ij,ij->j", B, B)
    found = conjugate_gradients(
        lambda q: np.asarray(q + B.T @ (B @ q)),
        right,
        lambda r: r / diagonal,
        accuracy=accuracy,
        most_steps=CG_STEPS,
    )
    return scale * found.x


def _factored(B: Any, right: Array) -> Array:
    """(I + B^T B)^-1 right, by the smaller of two Cholesky factors (Woodbury's identity)."""
    is_wide = B.shape[0] < B.shape[1]
    gram = B @ B.T if is_wide else B.T @ B
    gram = gram.toarray() if sparse.issparse(gram) else gram
    gram[np.diag_indices_from(gram)] += 1.0
    factor = linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    solved = linalg.cho_solve(factor, B @ right if is_wide else right, check_finite=False)
    return np.asarray(right - B.T @ solved if is_wide else solved)


@np.errstate(all="ignore")
def _may_vanish(form: DiagonalFormulation) -> bool:
    """Whether phi'' is finite at 0, so that a weight there may rise again."""
    return bool(np.isfinite(form.divergence.curvature(np.zeros(1)))[0])
