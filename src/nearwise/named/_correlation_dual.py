"""The nearest correlation matrix in the Frobenius norm, with one weight per variable at most: by its dual.

The nearest positive semidefinite matrix with given entries, in the Frobenius norm:

    minimise 1/2 |X - C|^2   over X >= 0 with X_ij = b_ij on the diagonal and on chosen pairs

For multipliers y, X(y) = (C + A*(y))_+ is the positive part, and the dual problem is smooth:

    minimise theta(y) = 1/2 |X(y)|^2 - b'y,       gradient: the entries of X(y) less b

Its gradient is semismooth, so Newton's method converges quadratically (Qi and Sun, SIAM J. Matrix Anal. Appl.
28, 2006). One iteration is one eigendecomposition, or of a large matrix only of the smaller part of its
spectrum (`linalg.spectrum`); the generalised Hessian is applied in conjugate gradients with the eigenvectors
of that part, positive or negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array, Index
from nearwise.methods import Loop, Status
from nearwise.named import _groups
from nearwise.named._entries import DENSE, Entries, Point
from nearwise.named._result import NearestMatrix, certified, message

_MAX_ITER = 200
_NO_PAIRS = np.empty((0, 2), np.int64)
_NO_VALUES = np.empty(0)
_ARMIJO = 1e-4
_HALVINGS = 30
_SUSPECT = 10  # iterations before fixed entries are suspected to contradict each other


def nearest(
    A: Array, pairs: Index | None, root: Array | None, min_eigenvalue: float, tol: float
) -> NearestMatrix:
    """Weights by X -> root X root, and X >= min_eigenvalue I by X -> X - min_eigenvalue I.

    What is solved for has 1 - min_eigenvalue on its diagonal, and otherwise the same entries, so that neither
    the distance nor the bound on it changes.
    """
    n = len(A)
    ones = np.ones(n)
    squares = ones if root is None else root**2
    C = A.copy() if root is None else A * root[:, None] * root
    excess = C.diagonal() - squares
    wanted = (1 - min_eigenvalue) * squares
    C.flat[:: n + 1] = wanted
    groups, inside = _groups.find(C) if pairs is None else (_groups.trivial(n), ones)
    block, difference = groups.reduced(C, inside)
    known = _NO_PAIRS if pairs is None else pairs
    problem = Entries(
        block,
        difference,
        groups,
        wanted if groups.is_trivial else wanted[groups.first],
        known,
        _NO_VALUES if pairs is None else C[tuple(known.T)],
    )
    # LAPACK's eigendecompositions gain little from more threads and lose much on a busy machine; of a small
    # matrix they need none, and to say so would take longer than to solve it
    with one_blas_thread(len(block) > DENSE):
        run = _Newton(problem, float(excess @ excess), tol)
        status = run.status()
        grade, block, difference = run.point.graded
    X = groups.expanded((block + block.T) / 2, difference)
    # a multiplier belongs to X_ij = b_ij before the weights, and to |X - C|^2 without 1/2
    k, y = len(groups.sizes), run.point.y
    dual = -2 * (y[:k] if groups.is_trivial else y[:k][groups.member_of])
    others = -2 * y[k:]
    if root is not None:
        X = X / root[:, None] / root
        X = (X + X.T) / 2
        dual, others = dual * squares, others * np.prod(root[known], axis=1)
    X.flat[:: n + 1] = 1.0
    rounding = 1e-15 * float(np.vdot(C, C))
    certificate = certified(grade.primal + run.constant, grade.gap, grade.violation, rounding)
    note = "" if groups.is_trivial else f"{n} objects in {k} groups that may be interchanged"
    said = message(status, certificate, min_eigenvalue, note)
    end = status, certificate, len(run.history), run.decompositions, "SemismoothNewton", said
    dual = dual if pairs is None else np.concatenate([dual, others])
    return NearestMatrix(ones, dual, *end, stored_matrix=X)


class _Newton(Loop[Point, Point, float]):
    """Newton's method from y = 0, until the certificate holds; `constant` is added to the objective.

    It records the relative error of the constraints.
    """

    def __init__(self, problem: Entries, constant: float, tol: float) -> None:
        super().__init__(_MAX_ITER)
        self.problem, self.constant, self.tol = problem, constant, tol
        self.point = Point(problem, np.zeros(len(problem.bounds)))
        self.decompositions = 1
        self.size = math.sqrt(float(problem.bounds @ problem.bounds))
        squares = np.vdot(problem.block, problem.block) + problem.groups.sizes @ problem.diagonal**2
        self.unit = 1e-15 * float(squares)

    def status(self) -> Status:
        """That with which the run ends at `point`."""
        status = self.follow(self._points())
        is_cut_short = status in (Status.LIMIT, Status.INTERRUPTED)
        if is_cut_short and not self.point.is_proved and self._holds_exactly():
            return Status.SOLVED
        return status

    def _points(self) -> Iterator[Point]:
        """The point and its successors, until rounding leaves no descent."""
        while True:
            yield self.point
            following, tried = _step(self.point, min(0.1, self.point.error / self.size))
            self.decompositions += tried
            if following is None and self.point.spectrum.is_partial:
                following = self._exactly()
            if following is None:
                return
            self.point = following

    def grade(self, point: Point) -> Point:
        return point

    def record(self, graded: Point, iteration: int, seconds: float) -> float:
        return graded.error / self.size

    def end(self, graded: Point) -> Status | None:
        if self._holds() and (graded.is_proved or self._holds_exactly()):
            return Status.SOLVED
        is_late = len(self.history) >= _SUSPECT
        return Status.INFEASIBLE if is_late and _proves_infeasible(self.problem, self.point.y) else None

    def exhausted(self) -> Status:
        return Status.INFEASIBLE if _proves_infeasible(self.problem, self.point.y) else Status.STALLED

    def _holds(self) -> bool:
        """Whether the certificate of the point is within the tolerance."""
        if self.point.error / self.size > self.tol:
            return False
        grade = self.point.graded[0]
        primal = grade.primal + self.constant
        reference = max(primal, primal - grade.gap, self.unit)
        return abs(grade.gap) <= self.tol * reference and grade.violation <= self.tol

    def _holds_exactly(self) -> bool:
        """The same with the whole spectrum, with which the method then goes on."""
        self.point = self._exactly()
        return self._holds()

    def _exactly(self) -> Point:
        self.decompositions += 1
        return Point(self.problem, self.point.y, exact=True)


def _step(point: Point, accuracy: float) -> tuple[Point | None, int]:
    """The next point, and how many were tried; None where rounding leaves no descent."""
    direction = point.direction(max(accuracy, 1e-12))
    slope = float(point.gradient @ direction)
    if slope >= 0:
        direction = -point.gradient
        slope = float(point.gradient @ direction)
    length = 1.0
    for tried in range(1, _HALVINGS):
        trial = Point(point.problem, point.y + length * direction, point.spectrum)
        # theta is flat to rounding near the optimum, where only the gradient still tells points apart
        if trial.objective <= point.objective + _ARMIJO * length * slope or trial.error <= 0.5 * point.error:
            return trial, tried
        length /= 2
    return None, _HALVINGS - 1


def _proves_infeasible(problem: Entries, y: Array) -> bool:
    """Whether <A*(y), X> <= largest eigenvalue * trace < b'y for every X >= 0 with the wanted diagonal."""
    if not len(problem.pairs):
        return False
    largest = float(np.linalg.eigvalsh(problem.adjoint(y).toarray())[-1])
    value = float(problem.bounds @ y)
    return value > 0 and max(largest, 0.0) * problem.trace < value
