"""The distance that a learner starts from and the one that it learned, each on the rows of one table.

"Before" is the learner's prior, or the distance of its input kernel; for learners of fixed rank, which have
no prior, the distance of their input as it is. `Missing` says why a model has neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from nearwise.learners import (
    FixedRankEmbedding,
    FixedRankRegressor,
    KernelReducer,
    MetricLearner,
    OnlineLearner,
)
from nearwise.learners.base import Learner
from nearwise.learners.input_kernels import InputKernel, in_parts, paired_squared_distances
from nearwise.learners.kernel_features import LowRankKernelMetric
from nearwise.learners.metric import KernelMap, KernelMetric, Metric, root_of
from nearwise.learners.starts import prior as read_prior

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class Missing(ValueError):
    """The model has no such thing to show; the message is a sentence that says why."""


def learner_of(model: Any) -> Any:
    """The learner in a model: the last step of a Pipeline, or the model itself."""
    learner = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(learner, Learner | FixedRankRegressor | FixedRankEmbedding):
        kind = type(learner).__name__
        raise TypeError(f"expected a learner of nearwise, or a Pipeline that ends with one, got {kind}")
    check_is_fitted(learner)
    return learner


def measures(model: Any, X: Any) -> tuple[Measured | Given | None, Measured]:
    """The distance before, where there is one, and the learned one."""
    learner = learner_of(model)
    if isinstance(learner, FixedRankRegressor):
        raise Missing("A FixedRankRegressor predicts numbers and learns no distance.")
    if isinstance(learner, FixedRankEmbedding):
        return _given(learner, X), Measured(_Euclidean(), learner.embedding_)
    rows = rows_of(model, X)
    centred = isinstance(learner.metric_, Metric) and not sparse.issparse(rows)
    centre = rows.mean(axis=0) if centred else None
    after = Measured(learner.metric_, rows, centre)
    if isinstance(learner, KernelReducer) and learner.metric_.kernel.is_precomputed:
        return (Given(_of_inner_products(rows)) if rows.shape[0] == rows.shape[1] else None), after
    return Measured(prior_metric(learner, rows), rows, centre), after


def prior_metric(learner: Any, rows: Any) -> Any:
    """The metric that a learner starts from; None for one that is made of data that are not given."""
    metric = learner.metric_
    if isinstance(metric, KernelMetric):
        return replace(metric, factor=np.eye(len(metric.factor)), alpha=1.0)
    if isinstance(metric, KernelMap):
        return _OfKernel(metric.kernel)
    if isinstance(metric, LowRankKernelMetric):
        return _OfKernel(metric.features.kernel)
    if isinstance(learner, OnlineLearner):
        basis, factor = read_prior(learner.prior, metric.n_features)
        if factor is not None:
            return Metric(factor, basis)
    if isinstance(learner, MetricLearner) and not _is_identity(learner.prior):
        if learner.kept_prior_:
            return metric
        made = isinstance(learner.prior, str)
        if made and rows is None:
            return None
        matrix: Any = learner._prior(rows) if made else learner.prior
        return Metric(root_of(np.asarray(matrix, dtype=np.float64)))
    return _Euclidean()


def rows_of(model: Any, X: Any) -> Any:
    """The rows that the learner is given: X after the other steps of a Pipeline, checked."""
    if X is None:
        raise ValueError("X is needed: the rows whose distances are to be shown")
    learner = learner_of(model)
    if learner is not model and len(model.steps) > 1:
        X = model[:-1].transform(X)
    return validate_data(learner, X, accept_sparse="csr", dtype=np.float64, reset=False)


@dataclass(frozen=True, eq=False)
class Measured:
    """A metric with the rows that it measures.

    Attributes
    ----------
    metric, rows : as they are
    centre : what may be taken from all rows without a change of their distances, or None. Distances of all
        rows to all others come from inner products, which lose the digits that large coordinates share.
    """

    metric: Any
    rows: Any
    centre: Array | None = None

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0])

    def pairs(self, i: Index, j: Index) -> Array:
        # of many rows, most may not be asked for
        used, places = np.unique(np.stack([i, j]), return_inverse=True)
        first, second = places.reshape(2, -1)
        return np.asarray(self.metric.pair_squared_distances(self.rows[used], first, second))

    def between(self, rows: Index, others: Index) -> Array:
        left, right = (self.rows[part] for part in (rows, others))
        if self.centre is not None:
            left, right = left - self.centre, right - self.centre
        return np.asarray(self.metric.squared_distances(left, right))


@dataclass(frozen=True, eq=False)
class Given:
    """Squared distances that are known themselves."""

    squared: Array

    def pairs(self, i: Index, j: Index) -> Array:
        return self.squared[i, j]

    def between(self, rows: Index, others: Index) -> Array:
        return self.squared[np.ix_(rows, others)]


@dataclass(frozen=True, eq=False)
class _Euclidean:
    """The distance of rows as they are, also of sparse ones with many columns."""

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        return in_parts(paired_squared_distances, X, i, j)

    def squared_distances(self, X: Any, Y: Any) -> Array:
        from sklearn.metrics.pairwise import euclidean_distances  # slow to import, and needed only here

        return np.asarray(euclidean_distances(X, Y, squared=True))


@dataclass(frozen=True, eq=False)
class _OfKernel:
    """The distance of an input kernel."""

    kernel: InputKernel

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        return np.maximum(in_parts(self.kernel.paired_squared_distances, X, i, j), 0.0)

    def squared_distances(self, X: Any, Y: Any) -> Array:
        lengths = self.kernel.paired(X, X)[:, None] + self.kernel.paired(Y, Y)
        return np.maximum(lengths - 2.0 * self.kernel.gram(X, Y), 0.0)


def _given(learner: FixedRankEmbedding, X: Any) -> Given | None:
    """The distances that an embedding was made from, if they are given again."""
    if X is None:
        return None
    matrix = np.asarray(X, dtype=np.float64)
    if matrix.shape != (len(learner.embedding_),) * 2:
        n = len(learner.embedding_)
        raise ValueError(f"X must be the {n} x {n} matrix of the fit, got shape {matrix.shape}")
    return Given(matrix if learner.input == "distances" else _of_inner_products(matrix))


def _of_inner_products(K: Array) -> Array:
    length = np.diag(K)
    return np.maximum(length[:, None] + length - 2.0 * K, 0.0)


def _is_identity(prior: Any) -> bool:
    return isinstance(prior, str) and prior == "identity"
