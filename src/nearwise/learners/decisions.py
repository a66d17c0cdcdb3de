"""Decisions about pairs by a learned distance: the same or not, from a threshold or a probability."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from nearwise._common import reading
from nearwise._common.checks import not_negative
from nearwise._common.digest import digest
from nearwise._common.types import Array
from nearwise.learners.calibration import Calibration, Probability
from nearwise.side import constraints

KEPT = ("threshold_", "calibration_", "probability_")


class _After:
    """A method that a learner has after it was calibrated: before, it would fail on any input.

    scikit-learn takes `predict` and the like for methods of rows of X wherever a fitted estimator has them.
    """

    def __init__(self, method: Callable[..., Any], attribute: str, advice: str) -> None:
        self._method, self._attribute, self._advice = method, attribute, advice

    def __get__(self, learner: Any, owner: type | None = None) -> Any:
        if learner is None:
            return self._method
        if self._attribute not in vars(learner):
            raise AttributeError(
                f"this {type(learner).__name__} has no {self._method.__name__} yet: {self._advice}"
            )
        if learner.calibrated_for_ != _digest(learner.metric_):
            raise AttributeError(
                f"this {type(learner).__name__} was fitted again after it was calibrated: {self._advice}"
            )
        return MethodType(self._method, learner)


def _after_threshold(method: Callable[..., Any]) -> Any:
    return _After(method, "threshold_", "call calibrate_threshold(pairs, y) or set_threshold(t)")


def _after_probability(method: Callable[..., Any]) -> Any:
    return _After(method, "probability_", "call calibrate_probability(pairs, y)")


class PairDecisions:
    """What learners can say of pairs after `calibrate_threshold`, `set_threshold`, `calibrate_probability`.

    Attributes
    ----------
    threshold_ : the largest distance, not squared, of a pair that counts as the same
    calibration_ : the `Calibration` it is from, whose `rates(threshold)` are those of the pairs
    probability_ : the map of distances to probabilities
    calibrated_for_ : a digest of the metric that all this is for; another fit makes it void
    """

    threshold_: float
    calibration_: Calibration
    probability_: Probability
    calibrated_for_: str
    metric_: Any

    # the first argument is no metadata, whatever its name
    __metadata_request__predict: ClassVar[dict[str, str]] = {"pairs": UNUSED}
    __metadata_request__predict_proba: ClassVar[dict[str, str]] = {"pairs": UNUSED}
    __metadata_request__decision_function: ClassVar[dict[str, str]] = {"pairs": UNUSED}

    def pair_distance(self, pairs: Any, X: Any = None, *, squared: bool = False) -> Array:
        """Learned distances of given pairs."""
        raise NotImplementedError

    def calibrate_threshold(
        self,
        pairs: Any,
        y: ArrayLike,
        X: Any = None,
        *,
        strategy: str = "accuracy",
        beta: float = 1.0,
        min_rate: float | None = None,
        sample_weight: ArrayLike | None = None,
        sample_ids: ArrayLike | None = None,
    ) -> Self:
        """Choose `threshold_`, up to which a pair counts as the same, on pairs that were not learned from.

        Parameters
        ----------
        pairs, X : as in `pair_distance`, or pairs of ids with `sample_ids`
        y : +1 for each pair that is the same and -1 for each that is not, or 1 and 0, True and False, "same"
            and "different", "yes" and "no"; both must occur
        strategy : what to make largest: "accuracy", the share of right decisions; "f_beta", the mean of
            precision and recall that `beta` weighs; "max_tpr", the share of same pairs that is found, where
            at least `min_rate` of the others is told apart; "max_tnr", the share of others told apart,
            where at least `min_rate` of the same pairs is found
        beta : how many times recall counts more than precision in "f_beta"
        min_rate : from 0 to 1, for "max_tpr" and "max_tnr" alone
        sample_weight : how much each pair counts; by default 1
        sample_ids : n different ids of the rows of X, by which `pairs` names them; by default row numbers
        """
        found = self._known_pairs(pairs, y, X, sample_weight, sample_ids)
        threshold = found.threshold(strategy, beta, min_rate)
        self._renewed()
        self.threshold_, self.calibration_ = threshold, found
        return self

    def set_threshold(self, threshold: float) -> Self:
        """Set `threshold_`, a distance >= 0, not squared."""
        threshold = not_negative(threshold, "threshold")
        self._renewed()
        self.threshold_ = threshold
        vars(self).pop("calibration_", None)
        return self

    def calibrate_probability(
        self,
        pairs: Any,
        y: ArrayLike,
        X: Any = None,
        *,
        method: str = "isotonic",
        sample_weight: ArrayLike | None = None,
        sample_ids: ArrayLike | None = None,
    ) -> Self:
        """Learn the probability of being the same from pairs that were not learned from.

        It is that among pairs of which as many are the same as of these.

        Parameters
        ----------
        pairs, y, X, sample_weight, sample_ids : as in `calibrate_threshold`
        method : "isotonic", any function of the distance that never rises; or "platt", a logistic one, for
            few pairs
        """
        found = self._known_pairs(pairs, y, X, sample_weight, sample_ids).probability(method)
        self._renewed()
        self.probability_ = found
        return self

    @_after_threshold
    def decision_function(self, pairs: Any, X: Any = None) -> Array:
        """`threshold_` minus the learned distance: 0 or more where `predict` says the same."""
        found: Array = self.threshold_ - self.pair_distance(pairs, X)
        return found

    @_after_threshold
    def predict(self, pairs: Any, X: Any = None) -> NDArray[np.int64]:
        """+1 for each pair that is the same by `threshold_`, -1 for each that is not.

        Arguments as in `pair_distance`: pairs of vectors, or row numbers of X.
        """
        return np.where(self.pair_distance(pairs, X) <= self.threshold_, 1, -1)

    @_after_probability
    def predict_proba(self, pairs: Any, X: Any = None) -> Array:
        """(m, 2) probabilities of being different and of being the same; arguments as in `pair_distance`."""
        same = self.probability_.of(self.pair_distance(pairs, X))
        return np.stack([1.0 - same, same], axis=1)

    def _known_pairs(
        self, pairs: Any, y: ArrayLike, X: Any, weights: ArrayLike | None, ids: ArrayLike | None
    ) -> Calibration:
        if ids is not None:
            if X is None:
                raise ValueError("sample_ids name the rows of X: give X")
            (named,) = constraints.similar(pairs).resolve(len(reading.id_list(ids, "sample_ids")), ids)
            pairs = named.object_ids
        distances = self.pair_distance(pairs, X)
        m = len(distances)
        signs = reading.answers(y, m, unit="pair")
        same = signs > 0
        if same.all() or not same.any():
            raise ValueError(
                f"y must have pairs that are the same and others, got {signs[:1].tolist()} alone"
            )
        counts = None
        if weights is not None:
            counts = reading.column(
                weights, m, "sample_weight", reading.is_weight, reading.A_WEIGHT, unit="pair"
            )
        return Calibration(distances, same, counts)

    def _renewed(self) -> None:
        """Drop what was calibrated for another metric."""
        check_is_fitted(self)
        now = _digest(self.metric_)
        if getattr(self, "calibrated_for_", now) != now:
            for name in KEPT:
                vars(self).pop(name, None)
        self.calibrated_for_ = now


def _digest(metric: Any) -> str:
    """By its arrays: numbers come back from a model file as other types."""
    return digest([value for value in vars(metric).values() if isinstance(value, np.ndarray)])
