"""`degree`, `coef0` and `kernel_params` of kernels, by their definitions, and the affinity of neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw

RNG = np.random.default_rng(0)
Y = np.arange(40) % 2
X = RNG.normal(size=(40, 3)) + 2.0 * Y[:, np.newaxis]


def scaled(a: np.ndarray, b: np.ndarray, factor: float = 1.0) -> float:
    return factor * float(a @ b)


@pytest.mark.parametrize("learner", [nw.KernelLearner, nw.KernelReducer])
@pytest.mark.parametrize(
    ("options", "definition"),
    [
        ({"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 3.0}, lambda P: (0.5 * P + 3.0) ** 2),
        (
            {"kernel": "poly", "kernel_params": {"gamma": 0.5, "degree": 2, "coef0": 1}},
            lambda P: (P / 2 + 1) ** 2,
        ),
        ({"kernel": scaled, "kernel_params": {"factor": 4.0}}, lambda P: 4.0 * P),
    ],
    ids=["own", "of kernel_params", "of a function"],
)
def test_a_kernel_with_parameters_is_that_matrix(
    learner: Any, options: dict[str, Any], definition: Any
) -> None:
    how = {"penalty": 1.0, "random_state": 0}
    K = definition(X @ X.T)
    found = learner(**options, **how).fit(X, Y).transform(X)
    expected = learner(kernel="precomputed", **how).fit(K, Y).transform(K)
    distances = [np.square(Z[:, np.newaxis] - Z).sum(axis=2) for Z in (found, expected)]
    np.testing.assert_allclose(*distances, rtol=1e-5, atol=1e-6 * distances[1].max())


@pytest.mark.parametrize("learner", [nw.KernelLearner, nw.KernelReducer])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"degree": 0}, "degree must be a finite number > 0, got 0"),
        ({"degree": "a"}, "degree must be a finite number > 0, got 'a'"),
        ({"coef0": np.nan}, "coef0 must be a finite number, got nan"),
        ({"coef0": "a"}, "coef0 must be a finite number, got 'a'"),
        ({"kernel_params": {"degree": -1}}, "degree must be a finite number > 0, got -1"),
        ({"kernel_params": 3}, "kernel_params must be parameters by name or None, got 3"),
    ],
)
def test_parameters_of_kernels_are_checked_by_name(learner: Any, options: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        learner(kernel="poly", penalty=1.0, **options).fit(X, Y)


def test_objects_that_only_rounding_tells_apart_have_no_map() -> None:
    """Its coordinates were some 1e15."""
    with pytest.raises(ValueError, match="all objects have the same features"):
        nw.KernelReducer(kernel=lambda a, b: 1.0).fit(X, Y)


def test_affinities_differ_and_others_are_refused() -> None:
    maps = [
        nw.NeighborLearner(2, affinity=name, check=False).fit(X, Y).distances(X)
        for name in ("student", "gauss")
    ]
    assert np.abs(maps[0] - maps[1]).max() > 1e-2 * maps[0].max()
    with pytest.raises(ValueError, match="affinity must be one of 'auto', 'student', 'gauss', got 'cauchy'"):
        nw.NeighborLearner(2, affinity="cauchy").fit(X, Y)
