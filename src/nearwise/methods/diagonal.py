"""Weights of features: `solve_diagonal`, and its result.

Newton's method on the objective. With the gradient g at w, Phi = phi''(w), and the curvatures C of the losses, a
step p of an iteration solves (Phi + A^T C A) p = -g: directly where the violated rows or the columns are few, else
by conjugate gradients, each of which costs two passes over the numbers in A.

1. Weights that fall do so along phi', in which LogDet and von Neumann never cross 0, and Frobenius stops there.
2. Where the objective does not fall enough, Phi + max(g, 0) / w takes the place of Phi, as in methods that stay
   inside of bounds (Coleman and Li, SIAM J. Optim. 6, 1996). The step is a straight line, and is shortened.

Penalties that are large beside the divergence leave few digits to the slopes of the losses, and steps become short.
Then few weights are found as a diagonal matrix, by the interior-point method, which has multipliers of their own;
and many from the optimum of ever larger shares of the penalty.
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
from nearwise._common.types import Array, Index, Limit
from nearwise.core.certificate import Certificate
from nearwise.core.diagonal import SMALLEST, DiagonalFormulation, DiagonalProblem
from nearwise.core.formulation import Certified
from nearwise.core.iterates import Iterate
from nearwise.core.losses import LossValues
from nearwise.core.measured import sums_of
from nearwise.core.verify import Verifier
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.methods.interior import InteriorPoint
from nearwise.methods.loop import Loop, quiet
from nearwise.methods.plan import LARGEST_ORDER
from nearwise.methods.result import Record, Status, outcome_message

MAX_ITER = 1000

# Iterations before another way is tried. On random problems (tests/solving/test_diagonal_campaign.py) 99 of 100 take
# fewer. From 30 to 100, as many are solved in as much time.
PATIENCE = 50

# Numbers in all constraint matrices up to which few weights are found as a matrix. 2,000,000 may take 10 s, where
# shares of the penalty take 0.1 s.
WRITTEN_OUT = 100_000

# Rows or columns up to which Newton's system is factored, in 0.1 s at most, and numbers in A up to which these are
# copied for that, at most 160 MB.
FACTORED, COPIED = 1000, 20_000_000
CG_STEPS = 300  # at most; a less exact step costs iterations

SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring
ALONG, STRAIGHT = (
    2,
    50,
)  # lengths that are tried along phi', where more cost as much as another step; and straight
ROUNDING = 1e-14  # relative changes of the objective that mean nothing
IDLE = (
    3  # iterations without a decrease after which there is none: multipliers may still become better in them
)

# A weight falls to this share of itself in a step at most where phi'' is infinite at 0, since from there it would rise
# slowly. From 0.1 to 1e-4, iterations are as many.
LEAST_SHARE = 1e-2
LEAST_START = 1e-12  # of its prior: a weight that an earlier run left at 0 could not move

# Shares of the penalty: how much larger each is than the one before, the first at least, and iterations with each.
LARGER, SMALLEST_SHARE, STEPS = 10.0, 1e-30, 12

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
    tol: float = 1e-6,
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
    checks.tolerance(tol)
    checks.whole_number_or_none(max_iter, "max_iter")
    form = problem.formulation
    if form.loss.any_hard:
        raise ValueError("weights are solved for with soft constraints: the penalty must be finite")
    prior = form.prior
    w = prior if start is None else np.square(start[problem.columns])
    if not form.has_curvature_at_zero:
        w = np.maximum(w, LEAST_START * np.where(prior > 0, prior, prior.mean()))
    run = _Run(problem, tol, MAX_ITER if max_iter is None else max_iter, callback)
    return run.result(run.follow(quiet(_points(problem, w, tol))))


class _Graded(NamedTuple):
    """A point with what certifies it."""

    iterate: Iterate
    found: Certified

    @property
    def certificate(self) -> Certificate:
        return self.found.certificate


class _Run(Loop[Iterate, _Graded, Record]):
    """Certifies every point; the lowest objective and the highest bound are kept apart."""

    counts_start = True

    def __init__(
        self,
        problem: DiagonalProblem,
        tol: float,
        max_iter: int,
        callback: Callable[[Record], Any] | None,
    ) -> None:
        super().__init__(max_iter, None, callback)
        self.problem, self.form, self.tol = problem, problem.formulation, tol
        self.bound: _Graded | None = None
        self.note = ""
        self._verifier: tuple[Verifier | None] | None = None

    def grade(self, point: Iterate) -> _Graded | None:
        graded = _Graded(point, self.form.certify(point))
        return graded if math.isfinite(graded.certificate.primal) else None

    def is_better(self, graded: _Graded) -> bool:
        best, new = self.best, graded.certificate
        if self.bound is None or new.dual >= self.bound.certificate.dual:
            self.bound = graded
        if best is None or new.gap <= self.joint.gap:
            self.bound = graded  # as good as the two apart, and its gap cancels no digits
            return True
        return new.primal <= best.certificate.primal

    @property
    def joint(self) -> Certificate:
        """What the best point proves with the highest bound."""
        assert self.best is not None
        assert self.bound is not None
        if self.best is self.bound:
            return self.best.certificate
        return self.form.joint(self.best.certificate, self.bound.certificate)

    @property
    def dual(self) -> Array:
        """The multipliers of the highest bound."""
        assert self.bound is not None
        return self.form.multipliers(self.bound.iterate.factor, self.bound.found)

    def record(self, graded: _Graded, iteration: int, seconds: float) -> Record:
        c = self.joint
        return Record(iteration, seconds, c.primal, c.dual, c.gap, c.violation, c.hard_violation, c.satisfied)

    def end(self, graded: _Graded) -> Status | None:
        return Status.SOLVED if self.joint.holds(self.tol) and self._is_verified() else None

    @np.errstate(all="ignore")
    def _is_verified(self) -> bool:
        """Whether rounding can hide no gap, or there is none in twice the precision."""
        assert self.best is not None
        factor, dual, form = self.best.iterate.factor, self.dual, self.form
        if form.cost_of_rounding(factor, dual) <= self.tol * max(self.joint.primal, form.unit):
            return True
        if self._verifier is None:
            self._verifier = (self.problem.verification(),)
        (verifier,) = self._verifier
        if verifier is not None and verifier.certificate(np.diag(factor), dual)[0].holds(self.tol):
            return True
        self.note = _HIDDEN
        return False

    def result(self, status: Status) -> DiagonalResult:
        if self.best is None:
            raise ValueError(
                "the objective is not a finite number anywhere near the prior: features, prior, bounds or "
                "penalties differ by too many orders of magnitude; rescale them"
            )
        factor = self.best.iterate.factor
        certificate = self.problem.named(self.joint, factor)
        note = "" if status is Status.SOLVED else self.note
        return DiagonalResult(
            weights=self.problem.spread(np.square(factor)),
            dual=self.dual,
            status=status,
            certificate=certificate,
            history=tuple(self.history),
            solver="DiagonalNewton",
            message=outcome_message(status, certificate, self.tol, self.why, note),
            limit=self.limit,
        )


def _points(problem: DiagonalProblem, w: Array, tol: float) -> Iterator[Iterate]:
    """Points of one way after the other, each up to where it is slow."""
    form = problem.formulation
    yield from islice(_iterates(form, w), PATIENCE)
    if form.order <= LARGEST_ORDER and form.rows.n_rows * form.order * (form.order + 1) // 2 <= WRITTEN_OUT:
        yield from _diagonals(problem, tol)
    yield from _iterates(form, _approached(form))


def _diagonals(problem: DiagonalProblem, tol: float) -> Iterator[Iterate]:
    """Those of the matrices that solve the same problem."""
    scaled = problem.as_matrices.scaled()
    with suppress(np.linalg.LinAlgError):
        for point in InteriorPoint(tol).iterates(scaled.form):
            root = np.sqrt(np.square(scaled.lift(point.factor)).sum(axis=1))
            yield Iterate(root, None if point.dual is None else point.dual * scaled.dual)


def _approached(form: DiagonalFormulation) -> Array:
    """Weights near the optimum: those of ever larger shares of the penalty, each from those before."""
    w, law = form.prior, form.divergence
    pulls = np.abs(form.measured.measure(np.sqrt(w)).adjoint)
    # the first share changes weights by about as much as they are
    share = max(float(np.nanmin(law.curvature(w) * w / pulls, initial=1.0)), SMALLEST_SHARE)
    while share < 1.0:
        part = replace(form, measured=form.measured.times(share))
        for point in islice(_iterates(part, w), STEPS):
            w = np.square(point.factor)
        share *= LARGER
    return w


class _Point(NamedTuple):
    """Weights with the losses at their values, and the objective."""

    w: Array
    values: Array
    losses: LossValues
    cost: float


def _at(form: DiagonalFormulation, w: Array) -> _Point:
    values = form.rows.of_weights(w)
    losses = form.loss.at(values)
    return _Point(w, values, losses, form.divergence.distance(np.sqrt(w), form.prior) + losses.total)


def _iterates(form: DiagonalFormulation, w: Array) -> Iterator[Iterate]:
    """Points of falling objective, until rounding allows none lower."""
    law, rows, here = form.divergence, form.rows, _at(form, w)
    first, idle = 0.0, 0
    while idle < IDLE:
        w, losses = here.w, here.losses
        adjoint = rows.adjoint(losses.slopes)
        yield Iterate(np.sqrt(w), sums=sums_of(here.values, losses, adjoint))
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
    least = 0.0 if form.has_curvature_at_zero else LEAST_SHARE * w
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
    """p with (Phi + A^T C A) p = -gradient; 0 where phi is infinite.

    With S = Phi^-1/2 and p = S q, this is (I + S A^T C A S) q = -S gradient.
    """
    scale = 1.0 / np.sqrt(phi)
    right = -scale * gradient
    rows, columns = np.flatnonzero(curvatures), np.flatnonzero(scale)
    if not len(rows):
        return scale * right
    numbers = A.nnz if sparse.issparse(A) else A.size
    if min(len(rows), len(columns)) <= FACTORED and numbers <= COPIED:
        with suppress(np.linalg.LinAlgError):
            return scale * _factored(A, rows, columns, np.sqrt(curvatures[rows]), scale[columns], right)

    def product(q: Array) -> Array:
        return np.asarray(q + scale * (A.T @ (curvatures * (A @ (scale * q)))))

    if sparse.issparse(A):  # with the same arrays of places
        squares: Any = sparse.csr_array((np.square(A.data), A.indices, A.indptr), shape=A.shape)
    else:
        squares = np.square(A)
    diagonal = 1.0 + np.square(scale) * (squares.T @ curvatures)
    found = conjugate_gradients(
        product, right, lambda r: r / diagonal, accuracy=accuracy, most_steps=CG_STEPS
    )
    return scale * found.x


def _factored(A: Any, rows: Index, columns: Index, root: Array, scale: Array, right: Array) -> Array:
    """(I + B^T B)^-1 right for B = root A scale, by the smaller of two Cholesky factors (Woodbury)."""
    part = A[rows] if len(columns) == A.shape[1] else A[rows][:, columns]
    is_sparse = sparse.issparse(part)
    B = part.multiply(root[:, None]).multiply(scale).tocsr() if is_sparse else root[:, None] * part * scale
    known = right[columns]
    is_wide = len(rows) < len(columns)
    gram = B @ B.T if is_wide else B.T @ B
    gram = gram.toarray() if is_sparse else gram
    gram[np.diag_indices_from(gram)] += 1.0
    factor = linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    if is_wide:
        solved = known - B.T @ linalg.cho_solve(factor, B @ known, check_finite=False)
    else:
        solved = linalg.cho_solve(factor, known, check_finite=False)
    out = np.zeros_like(right)
    out[columns] = solved
    return out
