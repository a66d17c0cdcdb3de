"""What pairs that are known to be the same or not say about a distance: thresholds, rates, probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nearwise._common.checks import one_of, positive, share
from nearwise._common.types import Array, Mask

STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")
METHODS = ("isotonic", "platt")
_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class IsotonicProbability:
    """The step function that never rises and fits best, with straight lines between its steps.

    Attributes
    ----------
    knots : distances, increasing
    values : the probability at each
    """

    knots: Array
    values: Array

    def of(self, distances: Array) -> Array:
        return np.asarray(np.interp(distances, self.knots, self.values))


@dataclass(frozen=True)
class PlattProbability:
    """1 / (1 + exp(slope * distance - intercept))."""

    slope: float
    intercept: float

    def of(self, distances: Array) -> Array:
        from scipy.special import expit

        return np.asarray(expit(self.intercept - self.slope * distances))


Probability: TypeAlias = IsotonicProbability | PlattProbability  # of being the same; never rises


@dataclass(frozen=True)
class Rates:
    """What a threshold does to the pairs that it was calibrated on.

    Attributes
    ----------
    tpr : the share of the pairs that are the same at or below the threshold
    fpr : the share of the others there
    precision : the share of those at or below it that are the same; None where none are
    fpr_interval : a 95 % interval of `fpr` (Clopper and Pearson)
    """

    tpr: float
    fpr: float
    precision: float | None
    fpr_interval: tuple[float, float]

    def precision_among(self, found: float) -> tuple[float, float, float] | None:
        """The precision where a share `found` of all pairs is at or below the threshold, and an interval.

        Calibration pairs are usually chosen, so that many more of them are the same than of all pairs, and
        their own precision is too high. A share s = p tpr + (1 - p) fpr of all pairs, of which p are the
        same, is found, so that p follows from s; the precision is p tpr / s. The interval is that of `fpr`.
        None where `no_precision` says why there is none.
        """
        if self.no_precision(found):
            return None
        low, high = self.fpr_interval
        return self._precision(found, self.fpr), self._precision(found, high), self._precision(found, low)

    def no_precision(self, found: float) -> str:
        """Why `precision_among` has no estimate, as a clause; empty where it has one.

        p lies between 0 and 1 only where s lies between the two rates. Where s is outside, the known pairs of
        one kind are not like all pairs of that kind, or they are too few. They are too few also where the
        interval would reach from 0 to 1.
        """
        if found <= 0:
            return "no pair is that near"
        if self.tpr <= self.fpr:
            return (
                f"the threshold does not separate the calibration pairs: it takes {self.tpr:.2%} of the same "
                f"and {self.fpr:.2%} of the different ones"
            )
        if found < self.fpr:
            return (
                f"{self.fpr:.2%} of the different pairs of the calibration are that near, but only "
                f"{found:.2%} of all pairs. The known different pairs are nearer than pairs drawn at random, "
                "or too few; calibrate with different pairs drawn at random"
            )
        if found > self.tpr:
            return (
                f"{found:.2%} of all pairs are that near, but only {self.tpr:.2%} of the same pairs of the "
                "calibration. The known same pairs are farther apart than others, or too few; calibrate with "
                "same pairs drawn at random"
            )
        if self.fpr == 0 and found <= self.fpr_interval[1]:
            return (
                "none of the different pairs of the calibration is that near, and they are so few that up to "
                f"{self.fpr_interval[1]:.2%} of all different pairs may be, where {found:.2%} of all pairs "
                "are; calibrate with more different pairs drawn at random"
            )
        return ""

    def _precision(self, found: float, fpr: float) -> float:
        if self.tpr <= fpr:
            return 0.0
        same = max(found - fpr, 0.0) / (self.tpr - fpr)
        return min(same * self.tpr / found, 1.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Pairs that are known to be the same or not, and how far apart a metric puts them.

    Attributes
    ----------
    distances : (m,) not squared
    same : (m,) whether each is the same
    weights : (m,) how much each counts; None where all count 1
    """

    distances: Array
    same: Mask
    weights: Array | None = None

    def threshold(
        self, strategy: str = "accuracy", beta: float = 1.0, min_rate: float | None = None
    ) -> float:
        """The largest distance at which a pair is to count as the same, by `strategy`.

        It lies halfway between two distances of the pairs. Of several that are equally good, the smallest.
        """
        from sklearn.metrics import roc_curve

        one_of(strategy, "strategy", STRATEGIES)
        beta = positive(beta, "beta")
        if (min_rate is None) == (strategy in ("max_tpr", "max_tnr")):
            wanted = "a number from 0 to 1" if min_rate is None else "None"
            raise ValueError(f"min_rate must be {wanted} with strategy={strategy!r}, got {min_rate!r}")
        fpr, tpr, scores = roc_curve(
            self.same, -self.distances, sample_weight=self.weights, drop_intermediate=False
        )
        similar, dissimilar = self._sums()
        if strategy == "accuracy":
            merit = similar * tpr + dissimilar * (1 - fpr)
        elif strategy == "f_beta":
            # divided by 1 + beta^2, which may be too large for a floating-point number
            missed, wrong = (beta / math.hypot(1.0, beta)) ** 2, (1.0 / math.hypot(1.0, beta)) ** 2
            found = similar * tpr
            lost = missed * similar * (1 - tpr) + wrong * dissimilar * fpr
            merit = found / (found + lost + np.finfo(float).tiny)
        else:
            wanted_rate, other = (tpr, 1 - fpr) if strategy == "max_tpr" else (1 - fpr, tpr)
            least = share(min_rate, "min_rate")
            merit = np.where(other >= least, wanted_rate + 1e-9 * other, -np.inf)
        cuts = self._cuts(scores)
        if cuts[0] == 0:  # pairs at the distance 0 count as the same whatever the threshold
            merit[0] = -np.inf
        if merit.max() == -np.inf:
            raise ValueError(
                f"no threshold reaches min_rate={min_rate!r}: a pair that differs has distance 0"
            )
        return float(cuts[np.argmax(merit)])

    def probability(self, method: str = "isotonic") -> Probability:
        """The probability of being the same, as a function of the distance."""
        unit = float(np.mean(self.distances)) or 1.0
        if one_of(method, "method", METHODS) == "isotonic":
            from sklearn.isotonic import IsotonicRegression

            fit: Any = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=False)
            # of distances that differ by less than 1e-15, scikit-learn sees one
            fit.fit(self.distances / unit, self.same.astype(np.float64), sample_weight=self.weights)
            return IsotonicProbability(fit.X_thresholds_ * unit, fit.y_thresholds_)
        from sklearn.linear_model import LogisticRegression

        # Platt's targets are a little off 0 and 1, so that pairs that a threshold tells apart without a
        # mistake have a finite slope too: every pair enters with both outcomes.
        weights = np.ones(len(self.same)) if self.weights is None else self.weights
        similar, dissimilar = self._sums()
        target = np.where(self.same, (similar + 1) / (similar + 2), 1 / (dissimilar + 2))
        weights = weights / weights.mean()  # so that the search ends by the same gradient in any unit
        logistic: Any = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
        logistic.fit(
            np.concatenate([self.distances, self.distances])[:, np.newaxis] / unit,
            np.repeat([1, 0], len(self.same)),
            sample_weight=np.concatenate([weights * target, weights * (1 - target)]),
        )
        slope = max(-float(logistic.coef_[0, 0]) / unit, 0.0)
        return PlattProbability(slope, float(logistic.intercept_[0]))

    def rates(self, threshold: float) -> Rates:
        """What a threshold does to these pairs."""
        weights = np.ones(len(self.same)) if self.weights is None else self.weights
        below = self.distances <= threshold
        similar, dissimilar = self._sums()
        true, wrong = float(weights[below & self.same].sum()), float(weights[below & ~self.same].sum())
        # of unequal weights, as many pairs count as equal ones would tell as much
        others = weights[~self.same]
        count = float(others.sum() ** 2 / np.square(others).sum())
        return Rates(
            true / similar,
            wrong / dissimilar,
            true / (true + wrong) if true + wrong > 0 else None,
            _interval(wrong / dissimilar, count),
        )

    def _sums(self) -> tuple[float, float]:
        """The weight of the pairs that are the same, and of the others."""
        weights = np.ones(len(self.same)) if self.weights is None else self.weights
        return float(weights[self.same].sum()), float(weights[~self.same].sum())

    def _cuts(self, scores: Array) -> Array:
        """Thresholds for the scores of `roc_curve`: nothing is the same, or all at or below a distance."""
        upto = -scores[1:]
        middles = np.append((upto[:-1] + upto[1:]) / 2, upto[-1])
        return np.append(upto[0] / 2, middles)


def _interval(rate: float, count: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a rate among so many."""
    from scipy.special import betaincinv

    tail, hits = (1 - _CONFIDENCE) / 2, rate * count
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return low, high
