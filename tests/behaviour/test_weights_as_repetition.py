"""A row of weight 2 is as two rows, by scikit-learn's own check, where all pairs of classes are learned from.

Where pairs are sampled, repeated rows make other samples, and the check cannot hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

import nearwise as nw

ALL: dict[str, Any] = {"penalty": 1.0, "pairs": "random", "n_pairs": 10**6, "tol": 1e-16}

EQUIVALENT: dict[str, Callable[[], Any]] = {
    "metric": lambda: nw.MetricLearner(**ALL),
    "subspace": lambda: nw.MetricLearner(rank=2, **ALL),
    "diagonal": lambda: nw.MetricLearner(structure="diagonal", **ALL),
    "automatic": lambda: nw.AutoLearner("linear", **ALL),
    "neighbors": lambda: nw.NeighborLearner(),
}
UNWEIGHTED: dict[str, tuple[Callable[[], Any], str]] = {
    "singular vectors": (
        lambda: nw.MetricLearner(rank=2, basis="svd", **ALL),
        "the singular vectors of the basis count every row once, whatever its weight",
    ),
    "covariance": (
        lambda: nw.MetricLearner(prior="covariance", **ALL),
        "the covariance of the prior counts every row once, whatever its weight",
    ),
    "kernel": (
        lambda: nw.KernelLearner("linear", rank=2, **ALL),
        "the principal directions of the kernel count every row once, whatever its weight",
    ),
    "reducer": (
        lambda: nw.KernelReducer(kernel="linear", n_pairs=10**6, tol=1e-12),
        "the scale of the features and the open bounds count every row once, whatever its weight",
    ),
    "fixed rank": (
        lambda: nw.FixedRankLearner(n_pairs=10**6, check=False, tol=1e-10),
        "the start and the open bounds count every row once, whatever its weight",
    ),
    "regressor": (
        lambda: nw.FixedRankRegressor(rank=2, tol=1e-12),
        "a descent on weighted rows ends elsewhere than one on repeated rows",
    ),
}


CHECKS = {
    "dense": check_sample_weight_equivalence_on_dense_data,
    "sparse": check_sample_weight_equivalence_on_sparse_data,
}
DENSE_ALONE = {"neighbors", "covariance"}  # these take no sparse data
KINDS = [
    (name, data)
    for name in (*EQUIVALENT, *UNWEIGHTED)
    for data in CHECKS
    if data == "dense" or name not in DENSE_ALONE
]


@pytest.mark.parametrize(("name", "data"), [kind for kind in KINDS if kind[0] in EQUIVALENT])
def test_a_weight_is_a_repetition(name: str, data: str) -> None:
    check(EQUIVALENT[name](), data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param(
            *kind,
            marks=pytest.mark.xfail(strict=True, reason=UNWEIGHTED[kind[0]][1], raises=AssertionError),
        )
        for kind in KINDS
        if kind[0] in UNWEIGHTED
    ],
)
def test_a_weight_is_a_repetition_in_what_the_data_alone_choose(name: str, data: str) -> None:
    check(UNWEIGHTED[name][0](), data)


def check(learner: Any, data: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tolerance out of reach is no matter here
        CHECKS[data](type(learner).__name__, learner)
