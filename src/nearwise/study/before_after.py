"""The distance that a learner starts from and the one that it learned, each on the rows of one table.

"Before" is the metric that the fit started from, which the learner keeps as `start_metric_`: its prior, or
the distance of its input kernel; for learners of fixed rank, which have no prior, the distance of their input
as it is. `Missing` says why a model has neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from nearwise._common.types import Array, Index
from nearwise.learners.base import Learner
from nearwise.learners.metric import Missing as Missing, euclidean
from nearwise.linalg.distances import centre_of
from nearwise.side import Measure


class Distance(Measure, Protocol):
    """Squared distances and inner products of the rows of one table, by row number."""

    def between(self, rows: Index, others: Index) -> Array:
        """The squared distances of all rows to all others."""


def learner_of(model: Any) -> Any:
    """The learner in a model: the last step of a Pipeline, or the model itself."""
    learner = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(learner, Learner):
        from nearwise.learners.fixed_rank_embedding import FixedRankEmbedding  # slow to import, rarely needed
        from nearwise.learners.fixed_rank_regressor import FixedRankRegressor

        if not isinstance(learner, FixedRankRegressor | FixedRankEmbedding):  # which have no metric
            kind = type(learner).__name__
            raise TypeError(f"expected a learner of nearwise, or a Pipeline that ends with one, got {kind}")
    check_is_fitted(learner)
    return learner


def measures(model: Any, X: Any) -> tuple[Measured | Given | None, Measured]:
    """The distance before, where there is one, and the learned one."""
    learner = learner_of(model)
    if hasattr(learner, "embedding_"):
        return _given(learner, X), Measured(euclidean(learner.embedding_.shape[1]), learner.embedding_)
    if not hasattr(learner, "metric_"):
        raise Missing(f"A {type(learner).__name__} predicts numbers and learns no distance.")
    rows, start, metric = rows_of(model, X), start_metric(learner), learner.metric_
    centre = centre_of(rows) if metric.is_linear and not sparse.issparse(rows) else None
    before, after = Measured(start, rows, centre), Measured(metric, rows, centre)
    if not getattr(start, "is_precomputed", False):
        return before, after
    # the values of a kernel among other rows than those of the fit are not known from theirs
    return (Given(_of_inner_products(rows), rows) if rows.shape[0] == rows.shape[1] else None), after


def start_metric(learner: Any) -> Any:
    """The metric that a learner started from."""
    if not hasattr(learner, "start_metric_"):
        raise Missing("The model file of an early nearwise lacks the distance before: learn it again.")
    return learner.start_metric_


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
        return self._of_pairs(self.metric.pair_squared_distances, i, j)

    def products(self, i: Index, j: Index) -> Array:
        return self._of_pairs(self.metric.pair_products, i, j)

    def between(self, rows: Index, others: Index) -> Array:
        left, right = (self.rows[part] for part in (rows, others))
        if self.centre is not None:
            left, right = left - self.centre, right - self.centre
        return np.asarray(self.metric.squared_distances(left, right))

    def _of_pairs(self, measure: Callable[[Any, Index, Index], Array], i: Index, j: Index) -> Array:
        # of many rows, most may not be asked for
        used, places = np.unique(np.stack([i, j]), return_inverse=True)
        first, second = places.reshape(2, -1)
        return np.asarray(measure(self.rows[used], first, second))


@dataclass(frozen=True, eq=False)
class Given:
    """Squared distances that are known themselves, and perhaps inner products."""

    squared: Array
    kernel: Array | None = None

    def pairs(self, i: Index, j: Index) -> Array:
        return self.squared[i, j]

    def products(self, i: Index, j: Index) -> Array:
        if self.kernel is None:
            raise Missing("Distances alone do not tell the inner products that the constraints are about.")
        return self.kernel[i, j]

    def between(self, rows: Index, others: Index) -> Array:
        return self.squared[np.ix_(rows, others)]


def _given(learner: Any, X: Any) -> Given | None:
    """The distances that an embedding was made from, if they are given again."""
    if X is None:
        return None
    matrix, n = np.asarray(X, dtype=np.float64), len(learner.embedding_)
    if matrix.shape != (n, n):
        raise ValueError(f"X must be the {n} x {n} matrix of the fit, got shape {matrix.shape}")
    return Given(matrix) if learner.input == "distances" else Given(_of_inner_products(matrix), matrix)


def _of_inner_products(K: Array) -> Array:
    length = np.diag(K)
    return np.maximum(length[:, None] + length - 2.0 * K, 0.0)
