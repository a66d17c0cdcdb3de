"""What all learners share: checks of data, coordinates, distances, scores, output names."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from nearwise._common.checks import whole_number_or_none, yes_or_no
from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index
from nearwise._common.warning import warn
from nearwise.distributed import is_dask
from nearwise.learners import _in_pieces, _rows, grades
from nearwise.learners._export import Exports
from nearwise.learners._progress import Callbacks
from nearwise.learners._side import Side
from nearwise.learners.decisions import KEPT, PairDecisions
from nearwise.learners.metric import coordinates
from nearwise.learners.selection import tell_of_selection
from nearwise.side import Constraints

_DEFAULT_RANK = 2  # of learners whose rank is not None by default
METADATA = {"constraints": True, "sample_ids": True, "sample_weight": True}


class PriorKeptWarning(UserWarning):
    """Nothing was learned: there was no side information, or none that helped on what was held out."""


class WorseThanEuclideanWarning(UserWarning):
    """What was learned orders held-out objects worse than the Euclidean distance of the data as they are."""


class Learner(
    Exports,
    PairDecisions,
    Callbacks,  # type: ignore[misc]
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """The common part of `MetricLearner` and `KernelLearner`; a subclass has `fit`, which sets `metric_`."""

    # With metadata routing, these names go to fit and score without being asked for: they have one meaning. A
    # pipeline passes sample_weight to the score of its last step in any case.
    __metadata_request__fit: ClassVar[dict[str, bool]] = METADATA
    __metadata_request__score: ClassVar[dict[str, bool]] = METADATA

    metric_: Any
    start_metric_: Any

    # what of a fitted learner a model file holds beside its parameters, and what older files lack of it
    _stored: ClassVar[tuple[str, ...]] = (
        *("n_features_in_", "feature_names_in_", "_sklearn_output_config", *KEPT, "calibrated_for_"),
        *("metric_", "start_metric_", "rank_", "n_iter_", "status_", "result_", "kept_prior_"),
        *("n_constraints_used_", "n_constraints_dropped_"),
    )
    _absent: ClassVar[dict[str, Any]] = {}

    def transform(self, X: Any) -> NDArray[Any]:
        """Coordinates of new objects, in which the Euclidean distance is the learned one.

        Where only a subspace was learned (`rank`), the coordinates in it: the fixed part of the distance,
        outside the subspace, is left out. `distances` and `pair_distance` contain it, and so do the
        coordinates of `MetricLearner` and `OnlineLearner` with `whole=True`, as many as there are features.
        Data in single precision have coordinates in single precision, computed in double.

        Of a Dask array or dataframe, a Dask array of which nothing is computed yet.
        """
        metric = self._fitted_metric()
        if is_dask(X):
            if hasattr(X, "columns"):
                _check_feature_names(self, X._meta, reset=False)
            known = self.n_features_in_, type(self).__name__
            return _in_pieces.transformed(X, metric, *known, whole=self._is_whole)
        rows = self._checked(X, [np.float64, np.float32])  # what is neither becomes the first
        return coordinates(rows, metric, self._is_whole)

    def distances(self, X: Any, Y: Any = None, *, squared: bool = False) -> Array:
        """Learned distances of every row of X to every row of Y, by default of X.

        Parameters
        ----------
        X : (n, d) data, dense or sparse
        Y : (m, d) data
        squared : return squared distances, the unit of constraints

        Returns
        -------
        (n, m) array
        """
        metric = self._fitted_metric()
        X = self._checked(X)
        others = X if Y is None else self._checked(Y)
        n, m = X.shape[0], others.shape[0]
        foresee(8 * n * m, f"the matrix of distances between {n:,} and {m:,} objects")
        found = metric.squared_distances(X, others)
        if Y is None:
            np.fill_diagonal(found, 0.0)
        return found if squared else np.sqrt(found)

    def pair_distance(self, pairs: Any, X: Any = None, *, squared: bool = False) -> Array:
        """Learned distances of given pairs.

        Parameters
        ----------
        pairs : (m, 2, d) array of pairs of vectors; or, with X, (m, 2) row numbers of X
        X : (n, d) data to which row numbers refer, dense or sparse
        squared : return squared distances, the unit of constraints

        Returns
        -------
        (m,) array; a Dask array where X or the vectors are one
        """
        metric = self._fitted_metric()
        if is_dask(X) or is_dask(pairs):
            return _in_pieces.pair_distances(pairs, X, metric, self.n_features_in_, squared)
        if X is None:
            vectors = np.asarray(pairs, dtype=np.float64)
            if vectors.ndim != 3 or vectors.shape[1] != 2:
                hint = "an array of shape (m, 2, d), or row numbers (m, 2) together with X"
                raise ValueError(f"pairs must be {hint}, got shape {vectors.shape}")
            if vectors.shape[2] != self.n_features_in_:
                raise ValueError(
                    f"pairs has vectors of {vectors.shape[2]} features, but {type(self).__name__} was "
                    f"fitted with {self.n_features_in_}"
                )
            X = check_array(vectors.reshape(-1, vectors.shape[2]), input_name="pairs")
            _rows.refuse_extreme(X, "pairs")
            rows = np.arange(len(X)).reshape(-1, 2)
        else:
            X = self._checked(X)
            rows = _rows.row_numbers(pairs, X.shape[0])
        found = metric.pair_squared_distances(X, *rows.T)
        return found if squared else np.sqrt(found)

    def pair_score(self, pairs: Any, X: Any = None) -> Array:
        """How similar given pairs are: minus their distance. Arguments as in `pair_distance`."""
        return -self.pair_distance(pairs, X)

    def score(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """How often a pair that shall be near is nearer than one that shall be far, between 0 and 1.

        From labels, of pairs of equal and of different labels (the area under the ROC curve; at most 50,000
        pairs, drawn with `random_state`); from constraints, of their similar and dissimilar pairs, of
        their comparisons, and of every two different distances that `constraints.equal` gives, whose order
        should be that of the learned ones; from several, the mean weighted by their number. Constraints on
        objects that are not in `sample_ids` do not count. With `sample_weight`, a pair or comparison counts
        with the product of the weights of its objects.
        """
        metric = self._fitted_metric()
        X = self._checked(X)
        side = Side.read(X.shape[0], y, constraints, sample_ids, complete=False)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return grades.share_in_order(
            side,
            lambda i, j: metric.pair_squared_distances(X, i, j),
            check_random_state(self.random_state),
            weights,
        )

    @property
    def _before_learning(self) -> Any:
        """What gives the distances of `start_metric_`, with the least work."""
        return self.start_metric_

    @property
    def _n_features_out(self) -> int:
        return int(self.metric_.n_features if self._is_whole else self.metric_.n_coordinates)

    @property
    def _is_whole(self) -> bool:
        """Whether coordinates contain what lies outside a subspace."""
        return self._wants_whole and self.metric_.basis is not None

    @property
    def _wants_whole(self) -> bool:
        """The parameter `whole`, which can be set after the fit, too."""
        return yes_or_no(getattr(self, "whole", False), "whole")

    def _linear_map(self) -> Array:
        """The linear map of `transform` of a `Metric`, one row per coordinate."""
        metric = self._fitted_metric()
        return metric.isometric(np.eye(metric.n_features)).T if self._is_whole else metric.components

    def _tell_of_selection(self, X: Any, constraints: Constraints) -> None:
        """Warn where given pairs look selected, by what measured before: of rows in memory or in pieces."""

        def before(pairs: Index) -> Array:
            if self._is_precomputed:
                i, j = pairs.T
                return np.asarray(X[i, i] + X[j, j] - 2.0 * X[i, j]).ravel()
            rows, place = np.unique(pairs, return_inverse=True)
            i, j = place.reshape(pairs.shape).T
            found: Array = self._before_learning.pair_squared_distances(_rows.rows_of(X, rows), i, j)
            return found

        tell_of_selection(constraints, before)

    def _training_data(self, X: Any) -> Any:
        yes_or_no(getattr(self, "whole", False), "whole")
        _rows.refuse(X, self)
        _rows.refuse_tuples(X)
        X = validate_data(  # by rows, so that products of equal numbers are rounded the same
            self, X, accept_sparse=self._accept_sparse, dtype=np.float64, order="C", ensure_min_samples=2
        )
        if not self._is_precomputed:  # inner products are squares already
            _rows.refuse_extreme(X, tiny=True)
        return _rows.like_dense(X)

    def _fitted_metric(self) -> Any:
        check_is_fitted(self)
        return self.metric_

    def _checked(self, X: Any, dtype: Any = np.float64) -> Any:
        _rows.refuse(X, self)
        X = validate_data(self, X, accept_sparse=self._accept_sparse, dtype=dtype, reset=False)
        if not self._is_precomputed:
            _rows.refuse_extreme(X)
        return X

    @property
    def _is_precomputed(self) -> bool:
        """Whether rows of data are values of a kernel with the training objects."""
        return _rows.is_precomputed(getattr(self, "kernel", None))

    @property
    def _accept_sparse(self) -> str | bool:
        return False if self._is_precomputed else "csr"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._accept_sparse)
        tags.input_tags.pairwise = self._is_precomputed
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LinearLearner(Learner):
    """A learner of one matrix, whose `transform` is a linear map, unless it learned a kernel's."""

    @property
    def components_(self) -> Array:
        if not self._fitted_metric().is_linear:
            raise AttributeError(f"the metric of this {type(self).__name__} is not a linear map of the data")
        return self._linear_map()

    @available_if(lambda self: getattr(getattr(self, "metric_", None), "is_linear", True))
    def get_mahalanobis_matrix(self) -> Array:
        """M, d x d, also where it was learned in a subspace only."""
        return self._fitted_metric().matrix


def rank_wanted(rank: Any, largest: int, *, of_features: bool = True) -> int | None:
    """The parameter `rank`, at most `largest`; says where it is more than the number of features.

    It is no error, since a search over ranks may have some that are too large. Nothing is said of the default
    of some learners, 2, on one feature, nor of objects, of which each fold has another number.
    """
    count = whole_number_or_none(rank, "rank")
    if count is None or count <= largest:
        return count
    if of_features and count > _DEFAULT_RANK:
        warn(f"rank={count} is more than the {largest} dimensions that there are; all {largest} are learned")
    return largest
