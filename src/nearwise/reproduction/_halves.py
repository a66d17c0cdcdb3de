"""What the experiments on metrics share: data, the papers' constraints, cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import constraints as c
from nearwise._common.types import Array, Labels

Map = Callable[[Array], Array]

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)


def load(name: str) -> tuple[Array, Labels]:
    """Rows without missing values and without constant columns, and classes of at least two."""
    data = nw.datasets.load(name)
    X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y)
    complete = np.isfinite(X).all(axis=1)
    X, y = X[complete], y[complete]
    common = np.isin(y, np.flatnonzero(np.bincount(y) >= 2))
    X, y = X[common], y[common]
    return X[:, np.ptp(X, axis=0) > 0], y


def halves(X: Array, y: Labels, seed: int) -> Iterator[tuple[Array, Labels, Array, Labels]]:
    """Both ways of learning from one half and testing on the other; what is learned from sets the scale."""
    folds: Any = StratifiedKFold(2, shuffle=True, random_state=seed)
    for train, test in folds.split(X, y):
        scaler = StandardScaler().fit(X[train])
        yield scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def error(map_rows: Map, X: Array, y: Labels, X_test: Array, y_test: Labels, k: int) -> float:
    """Of k nearest neighbours."""
    model = KNeighborsClassifier(min(k, len(X))).fit(map_rows(X), y)
    return float(np.mean(model.predict(map_rows(X_test)) != y_test))


def bregman(divergence: nw.Divergence, penalties: Sequence[float] = PENALTIES) -> Callable[..., Map]:
    """KSD09 7.2: 40 c^2 random pairs, bounds at percentiles 5 and 95, the penalty by cross-validation."""

    def learn(X: Array, y: Labels, seed: int, k: int = 4) -> Map:
        if len(penalties) == 1:
            return _learned(X, y, divergence, penalties[0], seed)
        scores = [
            np.mean(
                [
                    error(_learned(A, a, divergence, penalty, seed), A, a, B, b, k)
                    for A, a, B, b in halves(X, y, seed)
                ]
            )
            for penalty in penalties
        ]
        return _learned(X, y, divergence, penalties[int(np.argmin(scores))], seed)

    return learn


def _learned(X: Array, y: Labels, divergence: nw.Divergence, penalty: float, seed: int) -> Map:
    problem = nw.Problem(X, c.from_labels(y, random_state=seed), divergence)
    factor = nw.solve(problem.with_penalty(penalty * problem.penalty_unit), tol=1e-3).factor
    return lambda rows: rows @ factor
