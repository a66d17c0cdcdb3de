"""`balanced_cut`: split a graph into two halves that few edges join, by its semidefinite relaxation.

    minimise tr(L X)   over X >= 0 with X_ii = 1 and X e = 0                                      KSD09 6.4

where L is the Laplacian: a split x in {-1, 1}^n gives X = x x' and four times the weight that it cuts. What
is found is the correlation matrix nearest to epsilon L^+ in the LogDet divergence, which minimises
tr(L X) - epsilon log det X on the complement of e. Newton's method on the dual has one multiplier y_i per
node: X = epsilon (L + diag(y))^-1 on that complement, and every y for which L + diag(y) is positive there
proves that no X has less than -sum(y).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components

from nearwise._common import checks, reading
from nearwise._common.types import Array
from nearwise.core import Certificate
from nearwise.linalg.regularised import ROUNDING, factored
from nearwise.methods import Loop, Status

Sides = NDArray[np.bool_]

_SHRINK = 0.2  # of epsilon from one stage to the next
_NEWTON_STEPS = 60  # in one stage
_DIAGONAL_TOL = 1e-7  # of X at the end
_LARGEST_ERROR = 1e-5  # of the diagonal that rounding may excuse
_STAGE_TOL = 0.1
_ENDS = {
    Status.SOLVED: "Solved",
    Status.STALLED: "No further progress",
    Status.INTERRUPTED: "Interrupted",
}
_CANDIDATES = 24  # nodes of either side that a swap is chosen from


@dataclass(frozen=True, eq=False, repr=False)
class Cut:
    """A balanced cut with its relaxation.

    Attributes
    ----------
    sides : n truth values, half of them true (one more or less where n is odd)
    value : the weight of the edges that join the two sides
    relaxation : X, the solution of the relaxation; where n is odd, with a last node that has no edges
    dual : y, one multiplier per node of the relaxation
    epsilon : the weight of the log-determinant at the end; 0 where the cut has no weight
    status : of the relaxation
    certificate : of the relaxation in units of cut weight, tr(L X) / 4: no balanced cut weighs less than
        `certificate.dual`; its gap is relative to the value, or to the lightest edge where that is more
    n_iter : Newton steps
    message : one sentence on the outcome
    """

    sides: Sides
    value: float
    relaxation: Array
    dual: Array
    epsilon: float
    status: Status
    certificate: Certificate
    n_iter: int
    message: str

    def __repr__(self) -> str:
        return (
            f"<Cut: {len(self.sides)} nodes, weight {self.value:.6g}, {self.status.name}, "
            f"no balanced cut below {self.certificate.dual:.6g}>"
        )


def balanced_cut(
    adjacency: Any,
    epsilon: float | None = None,
    n_roundings: int = 100,
    refine: bool = True,
    tol: float = 1e-3,
    random_state: int = 0,
) -> Cut:
    """Split a graph into two halves such that little weight joins them.

    Parameters
    ----------
    adjacency : (n, n) symmetric array or scipy sparse matrix of edge weights >= 0; its diagonal is ignored
    epsilon : the weight of the log-determinant, which smooths the relaxation; by default it is lowered
        until the certificate's relative gap is at most `tol`
    n_roundings : how many random splits are drawn from X, besides that along its leading eigenvector
    refine : improve every split by swapping pairs of nodes as long as that helps
    tol : the accuracy of the relaxation, relative to its value or, where that is more, to the lightest edge
    random_state : seed of the roundings

    Time grows like n^3, memory like n^2: for some thousand nodes.

    >>> import numpy as np
    >>> import nearwise as nw
    >>> two_triangles = np.kron(np.eye(2), np.ones((3, 3)))
    >>> two_triangles[2, 3] = two_triangles[3, 2] = 1
    >>> nw.balanced_cut(two_triangles).value
    1.0
    """
    A = _weights(adjacency)
    if epsilon is not None:
        checks.positive(epsilon, "epsilon")
    checks.positive(tol, "tol")
    checks.whole_number(n_roundings, "n_roundings", least=0)
    n = len(A)
    if n % 2:  # a node without edges makes halves of an odd number, and joins the smaller one
        A = np.pad(A, (0, 1))
    free = _free_split(A)
    if free is not None and epsilon is None:
        return _without_weight(free, n)
    lightest = float(A[A > 0].min())
    relaxation = _Relaxation(np.diag(A.sum(axis=1)) - A, lightest)
    run = _Run(relaxation)
    status = run.follow(relaxation.steps(epsilon, tol))
    assert run.best is not None
    found = run.best
    sides, value = (
        (free, 0.0) if free is not None else _best_split(A, found.X, int(n_roundings), refine, random_state)
    )
    primal, dual = found.value / 4, found.bound / 4
    gap = (primal - dual) / max(abs(primal), abs(dual), lightest)
    certificate = Certificate(primal, dual, gap, found.error, found.error)
    message = f"{_ENDS[status]}: relaxation between {dual:.6g} and {primal:.6g}, cut {value:.6g}."
    relaxed = found.X, found.y, found.epsilon
    return Cut(sides[:n], value, *relaxed, status, certificate, len(run.history), message)


def _without_weight(sides: Sides, n: int) -> Cut:
    """A split x that cuts nothing: x x' solves the relaxation, and y = 0 proves it."""
    x = np.where(sides, 1.0, -1.0)
    relaxed, certificate = (np.outer(x, x), np.zeros(len(x)), 0.0), Certificate(0.0, 0.0, 0.0, 0.0, 0.0)
    message = "Solved: parts that no edge joins make two halves, cut 0."
    return Cut(sides[:n], 0.0, *relaxed, Status.SOLVED, certificate, 0, message)


class _Relaxation:
    """X = epsilon (L + diag(y))^-1 on the complement of e, and y; `lightest` is that of the edges."""

    def __init__(self, L: Array, lightest: float) -> None:
        self.L, self.lightest = L, lightest
        n = len(L)
        self.is_solved = False
        self.epsilon = max(float(np.diag(L).max()), np.finfo(np.float64).tiny)
        # the complement of e is reached by projecting, and e itself gets an eigenvalue of its own
        self.y = np.full(n, self.epsilon)
        self._set(self.y)

    def steps(self, epsilon: float | None, tol: float) -> Iterator[_Relaxation]:
        """Itself after every Newton step, while epsilon falls in stages until the interval is narrow."""
        yield self
        while True:
            last = self._is_last(epsilon, tol)
            accuracy = _DIAGONAL_TOL if last else _STAGE_TOL
            for _ in range(_NEWTON_STEPS):
                if self.error <= accuracy or not self._newton():
                    break
                yield self
            if last:
                self.is_solved = self.error <= max(accuracy, self._reachable)
            if last or self.error > accuracy:
                return
            self._lower(max(_SHRINK * self.epsilon, 0.0 if epsilon is None else epsilon))

    def _is_last(self, epsilon: float | None, tol: float) -> bool:
        if epsilon is not None:
            return self.epsilon <= epsilon
        width = self.epsilon * (len(self.L) - 1)
        rounding = 1e-12 * float(np.diag(self.L).max())
        # the relaxation's value may be zero where the graph is in parts, but no cut of weight is lighter than
        # the lightest edge
        return width <= 0.5 * tol * max(self.bound, self.lightest) or self.epsilon <= rounding

    def _lower(self, epsilon: float) -> None:
        """Follow the path of solutions, y' = (X*X)^-1 diag(X), as far as L + diag(y) allows."""
        slope = self._newton_solve(np.diagonal(self.X))
        start, length = self.y, epsilon - self.epsilon
        self.epsilon = epsilon
        while not self._set(start + length * slope):
            length /= 2

    def _newton(self) -> bool:
        """One step; False where rounding leaves none."""
        # maximise -sum(y) + epsilon log det(L + diag(y)): gradient diag(X) - 1, Hessian -X*X / epsilon
        gradient = np.diagonal(self.X) - 1
        step = self.epsilon * self._newton_solve(gradient)
        objective, slope, error = self.objective - self.rounding, float(gradient @ step), self.error
        start, length = self.y, 1.0
        # self-concordance: this length keeps L + diag(y) positive definite
        decrement = math.sqrt(max(slope / self.epsilon, 0.0))
        if decrement > 1:
            length = 1 / (1 + decrement)
        # where rounding hides the gain, a smaller error on the diagonal shows it
        while not self._set(start + length * step) or (
            self.objective < objective and self.error > 0.9 * error
        ):
            length /= 2
            if length < 1e-12:
                self._set(start)
                return False
        return True

    @property
    def _condition(self) -> float:
        """How many times larger than those of L + diag(y) the rounding errors of X may be."""
        return max(1.0, float(np.abs(np.diagonal(self.L) + self.y).max()) / self.epsilon)

    @property
    def _reachable(self) -> float:
        """The error of the diagonal that rounding may leave."""
        return min(10 * ROUNDING * self._condition, _LARGEST_ERROR)

    def _newton_solve(self, right: Array) -> Array:
        """(X*X)^-1 times a vector; where several y are best, X*X is singular up to rounding."""
        rounding = min(ROUNDING * self._condition, 1e-8)
        return np.asarray(linalg.cho_solve(factored(self.X * self.X, rounding), right))

    def _set(self, y: Array) -> bool:
        """Move to y; False where L + diag(y) is not positive definite on the complement of e."""
        n = len(self.L)
        Z = self.L + np.diag(y)
        mean = Z.mean(axis=0)
        Z = Z - mean - mean[:, None] + mean.mean() + self.epsilon / n
        try:
            factor = np.linalg.cholesky(Z)
        except np.linalg.LinAlgError:
            return False
        inverse = np.linalg.inv(Z)
        self.y = y
        self.X = self.epsilon * (inverse + inverse.T) / 2 - 1.0 / n
        logarithms = 2 * np.log(np.diagonal(factor))
        self.objective = -float(y.sum()) + self.epsilon * float(logarithms.sum())
        self.rounding = 1e-15 * float(np.abs(y).sum() + self.epsilon * np.abs(logarithms).sum())
        self.error = float(np.abs(np.diagonal(self.X) - 1).max())
        return True

    @property
    def bound(self) -> float:
        """What no X of the relaxation falls below."""
        return -float(self.y.sum())


class _Point(NamedTuple):
    """The relaxation after a step."""

    X: Array
    y: Array
    epsilon: float
    error: float
    value: float  # tr(L X)
    bound: float


class _Run(Loop[_Relaxation, _Point, float]):
    """Records the error of the diagonal."""

    def __init__(self, relaxation: _Relaxation) -> None:
        super().__init__(None)
        self.relaxation = relaxation

    def grade(self, point: _Relaxation) -> _Point:
        value = float(np.vdot(point.L, point.X))
        return _Point(point.X, point.y, point.epsilon, point.error, value, point.bound)

    def record(self, graded: _Point, iteration: int, seconds: float) -> float:
        return graded.error

    def end(self, graded: _Point) -> None:
        return None

    def exhausted(self) -> Status:
        self.best = self.grade(self.relaxation)  # epsilon may have fallen since the last step
        return Status.SOLVED if self.relaxation.is_solved else Status.STALLED


def _free_split(A: Array) -> Sides | None:
    """Two halves that no edge joins, where the parts of the graph can be put together to such halves."""
    count, part = connected_components(sparse.csr_array(A), directed=False)
    sizes = np.bincount(part)
    reachable = [1]  # bit s is set where some of the first parts have s nodes together
    for size in sizes:
        reachable.append(reachable[-1] | reachable[-1] << int(size))
    left = len(A) // 2
    if not reachable[-1] >> left & 1:
        return None
    chosen = np.zeros(count, bool)
    for k in range(count - 1, -1, -1):
        if not reachable[k] >> left & 1:
            chosen[k] = True
            left -= int(sizes[k])
    return np.asarray(chosen[part])


def _best_split(A: Array, X: Array, n_roundings: int, refine: bool, seed: int) -> tuple[Sides, float]:
    """Of random hyperplanes through the rows of a factor of X, cut at the median, the lightest cut."""
    values, V = np.linalg.eigh(X)
    F = V * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(seed).standard_normal((len(A), n_roundings))
    scores = np.column_stack([V[:, -1], F @ draws])
    best: tuple[Sides, float] | None = None
    for column in scores.T:
        sides = np.zeros(len(A), bool)
        sides[np.argsort(column, kind="stable")[: len(A) // 2]] = True
        if refine:
            swap_pairs(A, sides)
        value = float(A[np.flatnonzero(sides)[:, None], np.flatnonzero(~sides)].sum())
        if best is None or value < best[1]:
            best = sides, value
    assert best is not None
    return best


def swap_pairs(A: Array, sides: Sides) -> None:
    """Swap pairs across the cut, each time the best among those nodes that gain most by moving alone."""
    sign = np.where(sides, 1.0, -1.0)
    gain = -sign * (A @ sign)  # of moving one node: weight to the other side less weight to its own
    for _ in range(len(A)):
        left, right = np.flatnonzero(sides), np.flatnonzero(~sides)
        left = left[np.argsort(-gain[left], kind="stable")[:_CANDIDATES]]
        right = right[np.argsort(-gain[right], kind="stable")[:_CANDIDATES]]
        both = gain[left][:, None] + gain[right] - 2 * A[left[:, None], right]
        i, j = divmod(int(np.argmax(both)), len(right))
        if both[i, j] <= 1e-12 * max(float(np.abs(gain).max()), 1e-300):
            return
        for node in (left[i], right[j]):
            gain += 2 * sign * sign[node] * A[:, node]
            sign[node] = -sign[node]
            sides[node] = not sides[node]
            gain[node] = -sign[node] * (A[node] @ sign)


def _weights(adjacency: Any) -> Array:
    A = reading.symmetric(adjacency.toarray() if sparse.issparse(adjacency) else adjacency, "adjacency")
    if len(A) < 2:
        raise ValueError(f"adjacency must have at least two nodes, got shape {A.shape}")
    A = A.copy()
    np.fill_diagonal(A, 0.0)
    if A.min() < 0:
        i, j = np.argwhere(A < 0)[0]
        raise ValueError(f"adjacency[{i}, {j}] is {A[i, j]}; weights must not be negative")
    if not A.any():
        raise ValueError("adjacency has no edge")
    return A
