"""Random problems and random fits: optimal by the definition, and never a crash, a hang or NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_fits import random_fit

import kkt
import nearwise as nw
from nearwise import constraints as c

CHUNK = 100


@pytest.mark.long
def test_some_random_fits_end_well() -> None:
    ends = [random_fit(seed) for seed in range(25)]
    assert "SOLVED" in ends


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(100))
def test_ten_thousand_random_fits_end_well(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        random_fit(seed)


problems = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from([nw.LogDet(), nw.VonNeumann(), nw.Frobenius()]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([0.01, 1.0, 50.0]),
)


def _optimal(seed: int, divergence: nw.Divergence, dtype: type, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 9)), int(rng.integers(2, 5))
    features = rng.normal(size=(n, d)).astype(dtype)
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(6)])
    side = c.at_most(pairs[:2], rng.uniform(0.3, 2.0, 2)) + c.at_least(pairs[2:4], rng.uniform(2.0, 6.0, 2))
    side += c.equal(pairs[4:5], 2.0) + c.closer([rng.choice(n, 3, replace=False)], margin=0.3)
    problem = nw.Problem(features, side, divergence, penalty=penalty)
    kkt.assert_optimal(problem, nw.solve(problem, tol=1e-10))


@settings(max_examples=12)
@given(problems)
def test_random_problems_are_solved_to_the_optimality_conditions(given: tuple) -> None:
    _optimal(*given)


@pytest.mark.slow
@settings(max_examples=600)
@given(problems)
def test_many_random_problems_are_solved_to_the_optimality_conditions(given: tuple) -> None:
    _optimal(*given)


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=str)
def test_nearly_dependent_constraints(divergence: nw.Divergence, angle: float) -> None:
    """Rows of nearly one direction, hard and soft: solved, or a status that says otherwise."""
    features = np.array(
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, angle, 0.0], [1.0, 0.0, angle], [0.0, 1.0, 1.0]]
    )
    side = c.at_most([(0, 1), (0, 2), (0, 3)], [0.5, 0.5 + angle, 0.5 - angle]) + c.at_least([(0, 4)], 3.0)
    for penalty in (1.0, 1e6, math.inf):
        result = nw.solve(nw.Problem(features, side, divergence, penalty=penalty))
        assert result.status is nw.Status.SOLVED
        assert result.certificate.gap <= 1e-6
        assert result.certificate.hard_violation <= 1e-6


@pytest.mark.parametrize("rank", [1, None])
@pytest.mark.parametrize("learner", ["metric", "kernel", "fixed rank", "regressor"])
def test_ranks_one_and_full(learner: str, rank: int | None) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = (X[:, 0] > 0).astype(int)
    makers = {
        "metric": lambda: nw.MetricLearner(rank=rank, penalty=1.0, random_state=0),
        "kernel": lambda: nw.KernelLearner(rank=rank, penalty=1.0, random_state=0),
        "fixed rank": lambda: nw.FixedRankLearner(rank=rank, check=False, random_state=0),
        "regressor": lambda: nw.FixedRankRegressor(rank=rank, tol=1e-3, random_state=0),
    }
    model = makers[learner]().fit(X, y)
    found = model.predict(X) if learner == "regressor" else model.distances(X)
    assert np.isfinite(found).all()
    if rank == 1 and learner in ("fixed rank", "regressor"):
        assert np.linalg.matrix_rank(model.result_.factor) == 1
