"""A limit is told by its own number; a checkpoint, or a column of zeros, changes no result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw


def table(n: int = 300, d: int = 18, apart: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    return rng.normal(size=(n, d)) + apart * np.eye(4, d)[y], y


class StopAfter:
    """A callback that ends a fit after some iterations."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, record: object) -> bool:
        self.left -= 1
        return self.left <= 0

    def __deepcopy__(self, memo: object) -> "StopAfter":
        return self


@pytest.mark.xfail(
    strict=True, raises=pytest.fail.Exception, reason="NeighborLearner ends at a limit without a warning"
)
@pytest.mark.parametrize("check", [True, False])
def test_a_neighbor_learner_warns_where_it_reached_a_limit(check: bool) -> None:
    learner = nw.NeighborLearner(2, max_iter=2, check=check, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"\b2 iterations"):
        learner.fit(*table(80))
    assert learner.status_ is nw.Status.LIMIT


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="legs between checkpoints end and start in another way than one run",
)
@pytest.mark.parametrize(
    ("make", "data"),
    [
        pytest.param(
            lambda **own: nw.KernelLearner(
                divergence="frobenius", penalty=300.0, rank=20, gamma="scale", **own
            ),
            lambda: table(150, 8, 0.8),
            id="kernel",
        ),
        pytest.param(lambda **own: nw.FixedRankLearner(rank=3, check=False, **own), table, id="fixed rank"),
    ],
)
def test_a_checkpoint_changes_no_distance(
    make: Callable[..., Any], data: Callable[[], tuple[np.ndarray, np.ndarray]], tmp_path: Path
) -> None:
    X, y = data()
    plain = make(random_state=0).fit(X, y).distances(X)
    assert_array_equal(make(random_state=0, checkpoint=tmp_path / "fit").fit(X, y).distances(X), plain)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="the penalties that are tried are chosen by the number of columns",
)
@pytest.mark.parametrize("zeros", [1, 18])
def test_columns_of_zeros_change_no_penalty_that_is_tried(zeros: int) -> None:
    X, y = table(120)
    learner = nw.MetricLearner(random_state=0)
    expected = [penalty for penalty, _ in learner.fit(X, y).penalty_scores_]
    found = [penalty for penalty, _ in learner.fit(np.c_[X, np.zeros((120, zeros))], y).penalty_scores_]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("iterations", [3, 30])
def test_a_learner_of_learners_goes_on_under_a_larger_limit(iterations: int, tmp_path: Path) -> None:
    X, y = table()
    learner = nw.AutoLearner(random_state=0, max_iter=50, checkpoint=tmp_path / "fit")
    learner.set_params(callback=StopAfter(iterations))
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y)
    assert (tmp_path / "fit").exists()
    learner.set_params(callback=None, max_iter=60).fit(X, y)
    assert learner.status_ is nw.Status.SOLVED


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the limit of the last leg is told for that of the fit"
)
def test_the_limit_that_is_told_is_that_of_the_fit(tmp_path: Path) -> None:
    X, y = table()
    learner = nw.MetricLearner("vonneumann", penalty=1e4, tol=1e-13, max_iter=20, random_state=0)
    for checkpoint in (None, tmp_path / "fit"):
        with pytest.warns(ConvergenceWarning) as seen:
            learner.set_params(checkpoint=checkpoint).fit(X, y)
        assert "limit of 20 iterations" in str(seen[0].message)
