"""Sums of kernels as input kernels: the definition, its scale, what a fit returns, files, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import constraints as c

X: Any
y: Any
X, y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)[::2]
y = y[::2]


def _total_variance(K: np.ndarray) -> float:
    return float(np.diag(K).mean() - K.mean())


def _unlearned(kernel: Any, **parameters: Any) -> nw.KernelLearner:
    with pytest.warns(nw.PriorKeptWarning):
        return nw.KernelLearner(kernel, **parameters).fit(X)


@pytest.mark.parametrize("kernel", ["linear+rbf", "linear + rbf", ["linear", "rbf"], ("linear", "rbf")])
def test_a_sum_joins_kernels_of_equal_variance(kernel: Any) -> None:
    found = _unlearned(kernel, gamma=0.3).learned_kernel(X)
    linear, rbf = X @ X.T, rbf_kernel(X, gamma=0.3)
    rest = found - linear  # the first kernel keeps its scale
    np.testing.assert_allclose(rest / rbf, rest[0, 0], rtol=1e-9)
    assert _total_variance(rest) == pytest.approx(_total_variance(linear), rel=0.05)


def test_a_part_that_is_far_from_zero_keeps_the_digits_of_its_variance() -> None:
    near, far = (nw.KernelLearner("linear+rbf", gamma=0.3) for _ in range(2))
    for learner, shift in ((near, 0.0), (far, 2.0**20)):
        with pytest.warns(nw.PriorKeptWarning):
            learner.fit(X + shift)
    assert far.metric_.kernel.scales == pytest.approx(near.metric_.kernel.scales, rel=1e-6)


def test_functions_and_names_are_added_up() -> None:
    def cubic(a: Any, b: Any) -> float:
        return float((a @ b + 1.0) ** 3)

    few = X[::4]  # every pair of rows is a call
    with pytest.warns(nw.PriorKeptWarning):
        found = nw.KernelLearner([cubic, "linear"]).fit(few).learned_kernel(few)
    rest = found - polynomial_kernel(few, degree=3, gamma=1.0, coef0=1.0)
    linear = few @ few.T
    np.testing.assert_allclose(rest, rest[0, 0] / linear[0, 0] * linear, atol=1e-8 * np.abs(found).max())


@pytest.mark.parametrize(("basis", "rank"), [("full", None), ("subset", 12)])
def test_a_weak_penalty_returns_the_distances_of_the_sum(basis: str, rank: int | None) -> None:
    learner = nw.KernelLearner("linear+rbf", penalty=1e-9, basis=basis, rank=rank, random_state=0).fit(X, y)
    before = learner.start_metric_.squared_distances(X, X)
    np.testing.assert_allclose(learner.distances(X, squared=True), before, atol=1e-6 * before.max())


def test_hard_constraints_hold_in_the_sum_s_distance() -> None:
    side = c.at_most([(0, 60)], 0.5) + c.at_least([(1, 2)], 3.0)
    learner = nw.KernelLearner("linear+rbf", penalty=np.inf).fit(X, constraints=side)
    found = learner.pair_distance([[0, 60], [1, 2]], X, squared=True)
    assert learner.status_ is nw.Status.SOLVED
    assert found[0] <= 0.5 * (1 + 1e-6)
    assert found[1] >= 3.0 * (1 - 1e-6)


def test_a_saved_sum_measures_the_same_and_sparse_rows_too(tmp_path: Path) -> None:
    learner = nw.KernelLearner("linear+rbf", random_state=0, rank=20).fit(X, y)
    nw.save(learner, tmp_path / "sum.safetensors")
    again = nw.load(tmp_path / "sum.safetensors")
    np.testing.assert_array_equal(again.distances(X), learner.distances(X))
    np.testing.assert_allclose(again.distances(sparse.csr_array(X)), learner.distances(X), atol=1e-6)


def test_reducers_take_sums_and_copies_are_equal() -> None:
    reducer = nw.KernelReducer(kernel=["linear", "rbf"], random_state=0)
    assert clone(reducer).get_params() == reducer.get_params()
    assert reducer.fit(X, y).transform(X).shape == (len(X), 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": []}, "kernel must name at least one kernel, got an empty list"),
        ({"kernel": "linear+rbff"}, "kernel must be one of .* got 'rbff'"),
        ({"kernel": "linear+"}, "kernel must be one of .* got ''"),
        ({"kernel": ["rbf", "precomputed"]}, "cannot be a part of a sum; add the matrices before fit"),
        ({"kernel": "linear+rbf", "kernel_params": {"gamma": 1.0}}, "kernel_params belong to one kernel"),
    ],
)
def test_sums_that_cannot_be_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nw.KernelLearner(**parameters).fit(X, y)
