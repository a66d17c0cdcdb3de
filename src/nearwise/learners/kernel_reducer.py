"""`KernelReducer`: a map of a kernel's objects to few coordinates, from labels or constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearwise._common.checks import positive, positive_or_infinite, whole_number, whole_number_or_none
from nearwise._common.types import Array
from nearwise._common.warning import warn
from nearwise.core import SATISFIED, Frobenius, Problem
from nearwise.learners import _side
from nearwise.learners._estimator import contradiction
from nearwise.learners._place import Place
from nearwise.learners._progress import progress, whole, with_callbacks
from nearwise.learners.base import PriorKeptWarning
from nearwise.learners.coordinate_metrics import KernelMap
from nearwise.learners.input_kernels import InputKernel
from nearwise.learners.kernel_learner import KernelLearner
from nearwise.linalg.directions import with_fixed_signs
from nearwise.methods import (
    Record,
    Result,
    Status,
    ThinFactor,
    solve,
)
from nearwise.side import Constraints, bounds, constraints as c, drawing

_ROUNDING = 1e-14  # differences of features, relative to these, that rounding makes
_THIN = 200  # from this order of W on, its leading eigenpairs take less time than all of W


class TruncationWarning(UserWarning):
    """Hard constraints hold for the matrix that was learned, but not for the coordinates that were kept."""


class KernelReducer(KernelLearner):
    """Map objects to `n_components` coordinates in which the side information holds. JKDD12 5.4.

    Learns a low-rank W for the kernel phi(x)^T W phi(y) and keeps its leading eigenvectors. Among the
    matrices that respect the constraints, W minimises trace_weight * tr(W) + |W|^2, JKDD12 (26): the trace
    keeps the rank low. Where W is large and constraints may give way, only its leading eigenpairs are ever
    computed. New objects are mapped too. Objects that no label or constraint names still take part: they
    span the space in which W is sought.

    Parameters
    ----------
    n_components : int, default=2
        The number of coordinates.
    kernel, gamma, degree, coef0, kernel_params, rank, basis : as for `KernelLearner`
    trace_weight : number > 0, default=1.0
        tau, relative to data whose mean squared distance in the kernel's space is one; larger ones make the
        rank of W lower.
    penalty : number > 0 or inf, default=1.0
        The cost of violating a constraint; inf makes them hard, as in the paper.
    n_pairs, tol, max_iter, random_state, callback : as for `MetricLearner`

    Attributes
    ----------
    metric_ : the learned `KernelMap`
    start_metric_ : what measured before: the input kernel, by the distance of its feature space
    eigenvalues_ : of W, all that are positive, in falling order
    satisfied_ : the share of the constraints that hold in the coordinates, up to 0.1 % of their bounds.
        `status_` and `result_` are about W; where W has more positive eigenvalues than there are
        coordinates, distances in these are less, and lower bounds may fail. With penalty=inf, a
        `TruncationWarning` says so.
    components_ : (n_components, n_points) coefficients: coordinates are kernel values with the points of
        the basis times the transpose of these. Their sign is such that the largest value of a coordinate
        among the training objects, or the first of several, is positive
    rank_, n_features_in_, feature_names_in_, result_, status_, n_iter_, penalty_, kept_prior_,
    n_constraints_used_, n_constraints_dropped_ : as for `KernelLearner`; `kept_prior_` is true where nothing
        was learned and the coordinates are those of kernel PCA

    Examples
    --------
    >>> import nearwise as nw
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> nw.KernelReducer(random_state=0).fit(X[::2], y[::2]).transform(X[1::2]).shape
    (75, 2)
    """

    _stored: ClassVar[tuple[str, ...]] = (*KernelLearner._stored, "eigenvalues_", "satisfied_")

    def __init__(
        self,
        n_components: int = 2,
        kernel: str | Callable[..., float] | Sequence[str | Callable[..., float]] = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        trace_weight: float = 1.0,
        penalty: float = 1.0,
        rank: int | None = None,
        basis: str | ArrayLike = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[Record], Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.trace_weight = trace_weight
        self.penalty = penalty
        self.rank = rank
        self.basis = basis
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.callback = callback

    @with_callbacks
    @whole
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : (n, d) data, dense or sparse; with kernel="precomputed" the (n, n) kernel matrix
        y, constraints, sample_ids, sample_weight : as for `MetricLearner`
        """
        X = self._training_data(X)
        count = whole_number(self.n_components, "n_components")
        positive(self.trace_weight, "trace_weight")
        side = _side.Side.read(X.shape[0], y, constraints, sample_ids, sample_weight)
        kernel = self._input_kernel(X, self._gammas(X)[-1])
        basis = self._kernel_basis(kernel, X, side.codes)
        scale = _unit_scale(basis.features)
        directions = scale * self._directions(X, y, scale * basis.features, side, count)
        directions = with_fixed_signs(directions, basis.features @ directions)
        training = basis.features @ directions if kernel.is_precomputed else None
        self.metric_ = KernelMap(kernel, basis.points, basis.weights @ directions, training)
        self.rank_ = basis.features.shape[1]
        self._tell_of_selection(X, side.constraints)
        return self

    @property
    def start_metric_(self) -> InputKernel:
        """The input kernel, which measures by the distance of its feature space."""
        return self._before_learning

    @property
    def components_(self) -> Array:
        return np.asarray(self.metric_.factor.T)

    def _directions(self, X: Any, y: Any, features: Array, side: _side.Side, count: int) -> Array:
        """B, with B B^T the leading part of W, for features of unit scale; sets what reports on it."""
        if positive_or_infinite(self.penalty, "penalty") != np.inf:
            side = Place(features).reachable(side, Frobenius())
        rows = _with_bounds(features, _all_constraints(features, side, self.n_pairs, self.random_state))
        self.n_constraints_used_, self.satisfied_ = len(rows), 1.0
        self.n_constraints_dropped_ = side.n_dropped
        self.result_: Result | None = None
        self.status_, self.n_iter_, self.penalty_scores_ = Status.SOLVED, 0, ()
        self.penalty_: float | None = None
        values, V = np.empty(0), np.empty((features.shape[1], 0))
        if len(rows):
            self.penalty_ = positive_or_infinite(self.penalty, "penalty")
            with progress(self, X, y) as callback:
                # tau tr(W) + |W|^2 = |W + tau/2 I|^2 - constant: the Frobenius distance to -tau/2 I
                prior = np.eye(features.shape[1]) * (-self.trace_weight / 2)
                problem = Problem(features, rows, Frobenius(), prior, self.penalty_)
                limit = whole_number_or_none(self.max_iter, "max_iter")
                few = features.shape[1] >= _THIN and np.isfinite(self.penalty_)
                found = solve(problem, ThinFactor() if few else None, self.tol, limit, None, callback)
            self.result_, self.status_, self.n_iter_ = found, found.status, found.n_iter
            if found.status is Status.INFEASIBLE:
                raise contradiction(found)
            if found.status is not Status.SOLVED:
                warn(f"KernelReducer: {found.message}", ConvergenceWarning)
            V, s, _ = np.linalg.svd(found.factor, full_matrices=False)
            kept = s**2 > 1e-9 * max(s.max(initial=0.0) ** 2, 1e-9)
            values, V = s[kept] ** 2, V[:, kept]
        self.eigenvalues_ = values
        self.kept_prior_ = len(values) == 0
        if self.kept_prior_:
            solved = (
                "W = 0 meets all constraints" if self.status_ is Status.SOLVED else "W was 0 when it ended"
            )
            cause = solved if len(rows) else side.nothing_known
            warn(f"KernelReducer returns kernel PCA: {cause}", PriorKeptWarning)
            _, s, rotation = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
            values, V = np.ones(len(s)), rotation.T
        B = np.zeros((features.shape[1], min(count, features.shape[1])))
        width = min(B.shape[1], len(values))
        B[:, :width] = V[:, :width] * np.sqrt(values[:width])
        if len(rows):
            self._grade(Problem(features, rows, Frobenius()), B)
        return B

    def _grade(self, problem: Problem, B: Array) -> None:
        """What holds for the coordinates themselves."""
        violations = problem.formulation.loss.violations(problem.values(B @ B.T))
        broken = violations > SATISFIED
        self.satisfied_ = 1.0 - float(np.mean(broken))
        if self.penalty_ == np.inf and broken.any():
            worst = problem.describe(int(np.argmax(violations)))
            warn(
                f"KernelReducer: {int(broken.sum())} of {len(broken)} constraints do not hold in "
                f"{B.shape[1]} coordinates, {worst} least of all; W meets them with "
                f"{len(self.eigenvalues_)} positive eigenvalues; raise n_components or trace_weight",
                TruncationWarning,
            )


def _all_constraints(features: Array, side: _side.Side, n_pairs: Any, random_state: Any) -> Constraints:
    """The given ones, and pairs drawn from the labels; dissimilar pairs of equal features cannot be met."""
    if side.codes is None:
        return side.constraints
    rng = check_random_state(random_state)
    same, different = drawing.random_pairs(side.codes, whole_number_or_none(n_pairs, "n_pairs"), rng)
    equal = np.square(features[different[:, 0]] - features[different[:, 1]]).sum(axis=1) <= 1e-12
    drawn = c.similar(same) + c.dissimilar(different[~equal])
    return _side.weighed(drawn, side.weights) + side.constraints


def _with_bounds(features: Array, rows: Constraints) -> Constraints:
    """Open bounds filled from the distances of the input kernel, not from the prior, which is no metric."""
    if not np.isnan(rows.bounds).any():
        return rows
    i, j = bounds.sampled_pairs(len(features)).T
    found = bounds.of_sample(np.square(features[i] - features[j]).sum(axis=1), bounds.NO_MARGIN)
    if found is None:
        raise ValueError(bounds.ALL_EQUAL)
    return found.filled(rows)


def _unit_scale(features: Array) -> float:
    """What makes the mean squared distance of two objects one."""
    spread = 2.0 * float(np.mean(np.sum((features - features.mean(axis=0)) ** 2, axis=1)))
    if 0 < spread <= _ROUNDING**2 * float(np.mean(np.sum(features**2, axis=1))):
        raise ValueError(
            "in the space of the kernel all objects are the same but for rounding; subtract the means of the "
            "features, or choose another kernel"
        )
    return 1.0 / np.sqrt(spread) if spread > 0 else 1.0
