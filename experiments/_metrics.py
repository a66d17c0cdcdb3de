"""What the experiments on Mahalanobis metrics of MBS11 10.3 share: learners by name, tuned, and their errors.

A learner takes rows, classes, a number of constraints, a seed and its setting, and returns a map to
coordinates in which Euclidean distances are the learned ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from benchmarks.baselines import peers
from benchmarks.baselines.peers import Map
from nearwise._common.types import Array, Labels

TOLERANCE = 1e-3  # of the rules (24): beyond it the error of neighbours hardly changes
GRID = tuple(10.0**k for k in range(-3, 4))  # MBS11 10.3.2
_PERCENTILES = (5, 95)
STREAM = 5_000  # pairs that POLA sees: it does not learn from the constraints of the others


@dataclass(frozen=True)
class Method:
    """How to learn a metric, and the settings among which two folds of the training rows choose."""

    learn: Callable[[Array, Labels, int, int, float], Map]
    settings: Sequence[float] = (0.0,)

    def __call__(self, X: Array, y: Labels, count: int, seed: int) -> Map:
        """Learn with the setting that errs least on the rows held out."""
        best = self.settings[0]
        if len(self.settings) > 1:
            errors = [self._held_out(X, y, count, seed, setting) for setting in self.settings]
            best = self.settings[int(np.argmin(errors))]
        return self._learned(X, y, count, seed, best)

    def _held_out(self, X: Array, y: Labels, count: int, seed: int, setting: float) -> float:
        wrong = 0.0
        for train, test in two_folds(y, seed):
            found = self._learned(X[train], y[train], count, seed, setting)
            wrong += len(test) * error(found, X[train], y[train], X[test], y[test])
        return wrong

    def _learned(self, X: Array, y: Labels, count: int, seed: int, setting: float) -> Map:
        with warnings.catch_warnings():
            for category in (ConvergenceWarning, nw.PriorKeptWarning, nw.WorseThanEuclideanWarning):
                warnings.simplefilter("ignore", category)  # the table shows what came of it
            return self.learn(X, y, count, seed, setting)


def two_folds(y: Labels, seed: int) -> Iterator[tuple[Labels, Labels]]:
    """Training and test rows, twice. Classes of one member are in one of them only."""
    folds: Any = StratifiedKFold(2, shuffle=True, random_state=seed)
    yield from folds.split(np.zeros(len(y)), y)


def error(learned: Map, X: Array, y: Labels, X_test: Array, y_test: Labels, k: int = 5) -> float:
    """The share of test rows that their k nearest training rows call wrong."""
    neighbours = KNeighborsClassifier(min(k, len(X))).fit(learned(X), y)
    return float(np.mean(neighbours.predict(learned(X_test)) != y_test))


def fixed_rank(geometry: str, rank: int | None = None, **settings: Any) -> Method:
    """Algorithms (10) and (21), or (9) and (20) with solver="online", from the principal directions."""

    def learn(X: Array, y: Labels, count: int, seed: int, _: float) -> Map:
        learner = nw.FixedRankLearner(
            rank, geometry, n_pairs=count, tol=TOLERANCE, random_state=seed, check=False, **settings
        )
        return learner.fit(X, y).transform

    return Method(learn)


def euclidean(X: Array, y: Labels, count: int, seed: int, _: float) -> Map:
    """The rows as they are."""
    return lambda rows: rows


def logdet(X: Array, y: Labels, count: int, seed: int, penalty: float) -> Map:
    """ITML: the metric nearest to the Euclidean in the LogDet divergence, with slack."""
    side = nw.constraints.from_labels(y, n_pairs=count, random_state=seed)
    return nw.MetricLearner(penalty=penalty, tol=1e-4).fit(X, constraints=side).transform


def lego(X: Array, y: Labels, count: int, seed: int, rate: float) -> Map:
    """LEGO: one pass of implicit updates in the LogDet divergence over the same constraints."""
    i, j = np.random.default_rng(seed).integers(len(X), size=(2, 10_000))
    near, far = np.percentile(np.square(X[i] - X[j]).sum(axis=1), _PERCENTILES)
    learner = nw.OnlineLearner(
        "logdet", rate, 0.0, bounds=(float(near), float(far)), n_pairs=count, random_state=seed
    )
    return learner.fit(X, y).transform


def pola(X: Array, y: Labels, count: int, seed: int, rate: float) -> Map:
    """POLA: projections onto the half spaces of pairs drawn from the classes, with a learned threshold."""
    return nw.OnlineLearner("pola", rate, n_pairs=STREAM, random_state=seed).fit(X, y).transform


def lmnn(X: Array, y: Labels, count: int, seed: int, _: float) -> Map:
    """LMNN, which does not learn from pairs."""
    return peers.lmnn(X, y, seed)
