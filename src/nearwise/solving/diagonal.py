"""Weights of features by Newton's method: `solve_diagonal`, and its result.

A step solves (Phi + A^T C A) p = -g, where Phi = phi''(w) is diagonal and C holds the curvatures of the
violated rows: directly where these or the columns are few, else by conjugate gradients, each of whose steps
costs two passes over the entries of A. Weights that fall move along the divergence's own coordinate phi'(w),
so that they never cross zero.

Bounds that are far from the prior, and penalties that are large beside it, make these steps short. Then few
weights are found as a diagonal matrix, by the methods that decide small problems of matrices, and many from
the optimum of ever larger shares of the penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from scipy import linalg, sparse

from nearwise._common import checks
from nearwise._common.markup import fact_table
from nearwise._common.types import Array, Limit, Mask
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.model.certificate import Certificate
from nearwise.model.diagonal import DiagonalProblem
from nearwise.model.formulation import Formulation
from nearwise.solving.automatic import LARGEST_ORDER, decides, stages
from nearwise.solving.loop import Loop, quiet
from nearwise.solving.reduction import reduced
from nearwise.solving.result import Record, Status, outcome_message

_MAX_ITER = 1000
_DIRECT = 1000  # rows or columns up to which Newton's system is factored
_WRITTEN_OUT = 20_000_000  # entries of rows up to which they are copied for that
_MOST_STEPS = 300  # of conjugate gradients
_HALVINGS = 50  # of a step
_ARMIJO = 1e-4
_ROUNDING = 1e-14  # of the objective, below which a rise is none
_PATIENCE, _PATIENCE_IF_MANY = 30, 100  # steps before another way is tried, with few weights and with many
_LARGER = 10.0  # how much larger each share of the penalty is than the one before
_SMALLEST_SHARE = 1e-30
_STEPS = 12  # with each


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
    if problem.losses.any_hard:
        raise ValueError("weights are solved for with soft constraints: the penalty must be finite")
    run = _Run(problem, tol, _MAX_ITER if max_iter is None else max_iter, callback)
    w = problem.prior
    if start is not None:
        # a weight that an earlier run left at zero could never grow again under a divergence that is steep
        w = np.maximum(np.square(start[problem.measurements.columns]), 1e-12 * problem.prior)
    return run.result(run.follow(quiet(_ways(problem, np.maximum(w, 0.0), tol))))


@dataclass(frozen=True, eq=False)
class _Point:
    """Weights of the columns measured, with what was measured at them."""

    w: Array
    values: Array
    dual: Array
    pullback: Array


@dataclass(frozen=True, eq=False)
class _Graded:
    point: _Point
    grade: Certificate


class _Run(Loop[_Point, _Graded, Record]):
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
        self.problem, self.tol = problem, tol
        self.bound: _Graded | None = None

    def grade(self, point: _Point) -> _Graded | None:
        found = self.problem.certificate(point.w, point.values, point.dual, point.pullback)
        if found.holds(self.tol):
            hidden = self.problem.cost_of_rounding(point.w, point.values, point.dual)
            if not hidden <= self.tol * max(abs(found.primal), self.problem.unit):
                found = replace(found, dual=-np.inf, gap=np.inf)
        return _Graded(point, found) if np.isfinite(found.primal) else None

    def is_better(self, graded: _Graded) -> bool:
        if self.bound is None or self.bound.grade.dual <= graded.grade.dual:
            self.bound = graded
        return self.best is None or graded.grade.primal <= self.best.grade.primal

    @property
    def joint(self) -> Certificate:
        assert self.best is not None
        assert self.bound is not None
        grade = self.best.grade
        # a point and its own bound cancel no digits
        own = grade.gap <= self.problem.relative_gap(grade.primal - self.bound.grade.dual, grade.primal)
        if own:
            return grade
        gap = self.problem.relative_gap(grade.primal - self.bound.grade.dual, grade.primal)
        return Certificate(
            grade.primal, self.bound.grade.dual, gap, grade.violation, grade.hard_violation, grade.satisfied
        )

    def record(self, graded: _Graded, iteration: int, seconds: float) -> Record:
        c = self.joint
        return Record(iteration, seconds, c.primal, c.dual, c.gap, c.violation, c.hard_violation, c.satisfied)

    def end(self, graded: _Graded) -> Status | None:
        return Status.SOLVED if self.joint.holds(self.tol) else None

    def result(self, status: Status) -> DiagonalResult:
        if self.best is None or self.bound is None:
            raise ValueError(
                "the objective is not a finite number anywhere near the prior: features, prior, bounds or "
                "penalties differ by too many orders of magnitude; rescale them"
            )
        point, joint = self.best.point, self.joint
        certificate = self.problem.named(joint, point.values)
        dual = (self.best if joint is self.best.grade else self.bound).point.dual
        return DiagonalResult(
            weights=self.problem.spread(point.w),
            dual=dual,
            status=status,
            certificate=certificate,
            history=tuple(self.history),
            solver="DiagonalNewton",
            message=outcome_message(status, certificate, self.tol, self.why, ""),
            limit=self.limit,
        )


def _ways(problem: DiagonalProblem, w: Array, tol: float) -> Iterator[_Point]:
    """Points of one way after the other, each up to where it is slow."""
    steps = _iterates(problem, w)
    yield from islice(steps, _PATIENCE)
    if len(problem.prior) <= LARGEST_ORDER and decides(form := problem.as_matrices()):
        yield from _diagonals(problem, form, tol)
    else:
        yield from islice(steps, _PATIENCE_IF_MANY - _PATIENCE)
    yield from _iterates(problem, _approached(problem))


def _diagonals(problem: DiagonalProblem, form: Formulation, tol: float) -> Iterator[_Point]:
    """Those of the matrices that solve the same problem: the optimum is diagonal, as all its rows are."""
    reduction = reduced(form)
    for stage in stages(reduction.formulation, tol):
        with suppress(np.linalg.LinAlgError):
            for point in islice(stage.points, stage.most):
                w = np.square(reduction.lift(point.factor)).sum(axis=1)
                dual = problem.losses.signed(point.dual * reduction.dual_scale)
                A = problem.measurements
                yield _Point(w, A.values(w), dual, A.adjoint(dual))


def _approached(problem: DiagonalProblem) -> Array:
    """Weights near the optimum: those of ever larger shares of the penalty, each from those before."""
    w, law = np.maximum(problem.prior, 0.0), problem.divergence
    pulls = problem.measurements.adjoint(problem.losses.finite_slopes(problem.measurements.values(w)))
    # the first share changes weights by about as much as they are
    share = max(float(np.nanmin(law.curvature(w) * w / np.abs(pulls), initial=1.0)), _SMALLEST_SHARE)
    while share < 1.0:
        part = replace(problem, losses=problem.losses.times(share))
        for point in islice(_iterates(part, w), _STEPS):
            w = point.w
        share *= _LARGER
    return w


def _iterates(problem: DiagonalProblem, w: Array) -> Iterator[_Point]:
    """Points of falling objective, until rounding allows none lower."""
    law, losses, A = problem.divergence, problem.losses, problem.measurements
    values = A.values(w)
    cost = problem.objective(w, values)
    first = 0.0
    while True:
        dual = losses.finite_slopes(values)
        pullback = A.adjoint(dual)
        yield _Point(w, values, dual, pullback)
        gradient = law.gradient(w) - law.gradient(problem.prior) + pullback
        phi = law.curvature(w)
        free: Mask = ((w > 0) | (gradient < 0)) & np.isfinite(gradient) & np.isfinite(phi)
        scale = np.where(free, 1.0 / np.sqrt(np.where(free, phi, 1.0)), 0.0)
        right = np.where(free, -scale * np.where(free, gradient, 0.0), 0.0)
        size = float(np.linalg.norm(right))
        first = max(first, size)
        if size == 0.0:
            return
        accuracy = min(0.1, np.sqrt(size / first))
        step = scale * _newton(A.rows, losses.curvatures(values), scale, right, float(accuracy))
        slope = float(np.where(free, gradient, 0.0) @ step)
        moved = _searched(problem, w, cost, step, slope)
        if moved is None:
            return
        w, values, cost = moved


def _searched(
    problem: DiagonalProblem, w: Array, cost: float, step: Array, slope: float
) -> tuple[Array, Array, float] | None:
    """The point of sufficient decrease along the step, halved until there is one."""
    law, share = problem.divergence, 1.0
    phi = law.curvature(w)
    for _ in range(_HALVINGS):
        move = share * step
        falls = move < 0
        new = w + np.maximum(move, 0.0)
        new[falls] = law.shifted(w[falls], phi[falls] * move[falls])
        values = problem.measurements.values(new)
        found = problem.objective(new, values)
        if found <= cost + _ARMIJO * share * slope + _ROUNDING * abs(cost) and not np.array_equal(new, w):
            return new, values, found
        share /= 2
    return None


def _newton(A: Any, curvature: Array, scale: Array, right: Array, accuracy: float) -> Array:
    """q with (I + S A^T C A S) q = right, for diagonal S and C."""
    rows, columns = np.flatnonzero(curvature), np.flatnonzero(scale)
    if not len(rows):
        return right
    entries = A.nnz if sparse.issparse(A) else A.size
    few = min(len(rows), len(columns))
    if few <= _DIRECT and entries <= _WRITTEN_OUT:
        with suppress(linalg.LinAlgError):
            return _factored(A, rows, columns, np.sqrt(curvature[rows]), scale[columns], right)

    def product(q: Array) -> Array:
        return np.asarray(q + scale * (A.T @ (curvature * (A @ (scale * q)))))

    if sparse.issparse(A):  # with the same arrays of places
        squares = sparse.csr_array((np.square(A.data), A.indices, A.indptr), shape=A.shape)
    else:
        squares = np.square(A)
    jacobi = 1.0 / (1.0 + np.square(scale) * (squares.T @ curvature))
    found = conjugate_gradients(
        product, right, lambda r: jacobi * r, accuracy=accuracy, most_steps=_MOST_STEPS
    )
    return found.x


def _factored(A: Any, rows: Any, columns: Any, root: Array, scale: Array, right: Array) -> Array:
    """The same by a Cholesky factor of the smaller of two matrices (Woodbury's identity)."""
    part = A[rows] if len(columns) == A.shape[1] else A[rows][:, columns]
    is_sparse = sparse.issparse(part)
    B = part.multiply(root[:, None]).multiply(scale).tocsr() if is_sparse else root[:, None] * part * scale
    known = right[columns]
    wide = len(rows) < len(columns)
    gram = B @ B.T if wide else B.T @ B
    gram = gram.toarray() if is_sparse else gram
    gram[np.diag_indices_from(gram)] += 1.0
    factor = linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    if wide:
        solved = known - B.T @ linalg.cho_solve(factor, B @ known, check_finite=False)
    else:
        solved = linalg.cho_solve(factor, known, check_finite=False)
    out = np.zeros_like(right)
    out[columns] = solved
    return out
