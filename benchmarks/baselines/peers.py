"""The metric learners that ours is measured against, with their default settings, as one function each.

Each takes training rows, labels and a seed, and returns what maps rows to coordinates in which Euclidean
distances are the learned ones.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import nearwise as nw
from benchmarks.baselines import require
from nearwise._common.types import Array, Labels

Map = Callable[[Array], Array]


def nearwise(X: Array, y: Labels, seed: int) -> Map:
    """`AutoLearner()`."""
    return fitted(nw.AutoLearner(random_state=seed), X, y).transform


def linear(X: Array, y: Labels, seed: int) -> Map:
    """`MetricLearner()`."""
    return fitted(nw.MetricLearner(random_state=seed), X, y).transform


def fitted(learner: Any, X: Any, y: Labels) -> Any:
    """The learner, fitted, with no word where it keeps its prior: figures show that, they are Euclidean's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        return learner.fit(X, y)


def svm(X: Array, y: Labels, seed: int) -> Map:
    """scikit-learn's `SVC()`, with its RBF kernel: what it returns predicts classes."""
    from sklearn.svm import SVC

    return SVC(random_state=seed).fit(X, y).predict


def euclidean(X: Array, y: Labels, seed: int) -> Map:
    """The rows as they are."""
    return lambda rows: rows


def nca(X: Array, y: Labels, seed: int) -> Map:
    """scikit-learn's `NeighborhoodComponentsAnalysis()`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its default is 50 iterations
        return NeighborhoodComponentsAnalysis(random_state=seed).fit(X, y).transform


def lda(X: Array, y: Labels, seed: int) -> Map:
    """The transform of scikit-learn's `LinearDiscriminantAnalysis()`."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant features in a fold
        return LinearDiscriminantAnalysis().fit(X, y).transform


def itml(X: Array, y: Labels, seed: int) -> Map:
    """metric-learn's `ITML_Supervised()`."""
    return _of_metric_learn("ITML_Supervised", X, y, seed)


def lmnn(X: Array, y: Labels, seed: int) -> Map:
    """metric-learn's `LMNN()`."""
    return _of_metric_learn("LMNN", X, y, seed)


def _of_metric_learn(name: str, X: Array, y: Labels, seed: int) -> Map:
    with working_metric_learn():
        learner = getattr(importlib.import_module("metric_learn"), name)
        components = learner(random_state=seed).fit(X, y).components_
    return lambda rows: rows @ components.T


# every method by the name it has in a table; ours first
METHODS: dict[str, Callable[[Array, Labels, int], Map]] = {
    "nearwise": nearwise,
    "linear": linear,
    "Euclidean": euclidean,
    "NCA": nca,
    "LDA": lda,
    "ITML": itml,
    "LMNN": lmnn,
    "RBF SVM": svm,
}
CLASSIFIERS = ("RBF SVM",)  # those of them that predict classes, and learn no metric


@contextmanager
def working_metric_learn() -> Iterator[None]:
    """metric-learn 0.7.0 passes scikit-learn a keyword that was renamed since; inside, it is translated.

    What else scikit-learn and NumPy deprecate there is not reported.
    """
    require("metric_learn", "metric-learn")
    from metric_learn import _util

    renamed = {name: _with_renamed_keyword(getattr(_util, name)) for name in ("check_array", "check_X_y")}
    with mock.patch.dict(vars(_util), renamed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _with_renamed_keyword(check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(check)
    def call(*args: Any, force_all_finite: Any = True, **kwargs: Any) -> Any:
        return check(*args, ensure_all_finite=force_all_finite, **kwargs)

    return call
