"""LogDet projections against the papers' algorithms as printed, and the steps and updates of theirs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import brentq

import projected
from nearwise.core.divergences import LogDet
from nearwise.core.rows import Rows
from nearwise.linalg.loops import logdet as kernels
from nearwise.papers.logdet import LogDetEngine

Array = np.ndarray
both_forms = pytest.mark.parametrize("factored", [True, False], ids=["factored", "symmetric"])


def matrix_of(engine: LogDetEngine) -> Array:
    B = engine.factor()
    return np.asarray(B @ B.T)


def distances(m: int = 6, r: int = 4, seed: int = 0) -> tuple[Rows, Array, Array]:
    """Rows of one square, a prior, and bounds off the prior by a factor."""
    rng = np.random.default_rng(seed)
    z, prior = rng.normal(size=(m, r)), rng.uniform(0.5, 2.0, r)
    return Rows.written(z, z, np.ones(m), np.arange(m), m), prior, rng.uniform(0.3, 3.0, m) * (z**2 @ prior)


# --- the papers' algorithms ---------------------------------------------------------------------------------


@both_forms
def test_upper_bounds_follow_ksd09_algorithm_2(factored: bool) -> None:
    rows, prior, bounds = distances()
    engine = LogDetEngine(projected.formulation(LogDet(), rows, -1, bounds, math.inf, prior), factored)
    X, multipliers = np.diag(prior), np.zeros(rows.n_rows)
    for _ in range(5):
        engine.sweep(np.arange(rows.n_rows))
        for i, v in enumerate(rows.x):
            p = v @ X @ v
            alpha = min(multipliers[i], 1 / p - 1 / bounds[i])
            multipliers[i] -= alpha
            X += alpha / (1 - alpha * p) * np.outer(X @ v, X @ v)
        assert_allclose(engine.dual, multipliers, rtol=1e-10, atol=1e-14)
        assert_allclose(matrix_of(engine), X, rtol=1e-11, atol=1e-13)


@both_forms
@pytest.mark.parametrize("gamma", [1e-2, 1.0, 100.0])
def test_slack_follows_jkdd12_algorithm_1(gamma: float, factored: bool) -> None:
    rows, prior, bounds = distances()
    relations = np.resize([-1, 1], rows.n_rows)
    engine = LogDetEngine(projected.formulation(LogDet(), rows, relations, bounds, gamma, prior), factored)
    K, multipliers, xi = np.diag(prior), np.zeros(rows.n_rows), bounds.copy()
    for _ in range(5):
        engine.sweep(np.arange(rows.n_rows))
        for i, v in enumerate(rows.x):
            p, delta = v @ K @ v, -relations[i]
            alpha = min(multipliers[i], delta * gamma / (gamma + 1) * (1 / p - 1 / xi[i]))
            beta = delta * alpha / (1 - delta * alpha * p)
            xi[i] = gamma * xi[i] / (gamma + delta * alpha * xi[i])
            multipliers[i] -= alpha
            K += beta * np.outer(K @ v, K @ v)
        assert_allclose(engine.dual, -relations * multipliers, rtol=1e-9, atol=1e-13)
        assert_allclose(matrix_of(engine), K, rtol=1e-10, atol=1e-12)
    assert_allclose(engine.form.loss.reply(engine.dual), xi, rtol=1e-10)


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("weight", [0.7, -0.4])
def test_ksd09_algorithm_1_multiplies_by_a_cholesky_factor(r: int, weight: float) -> None:
    """B U with U U^T = I + weight w w^T, U upper triangular."""
    rng = np.random.default_rng(r)
    B = np.triu(rng.normal(size=(r, r)))
    w = rng.normal(size=r)
    w /= np.linalg.norm(w)
    U = np.linalg.cholesky(np.eye(r) + weight * np.outer(w[::-1], w[::-1]))[::-1, ::-1]
    state = B.T.copy()
    kernels._update_multiply(state, w, weight, *np.empty((3, r)))
    assert_allclose(state.T, B @ U, rtol=1e-12, atol=1e-12)


# --- steps --------------------------------------------------------------------------------------------------


@pytest.mark.long
@given(
    eigenvalues=st.lists(st.floats(0.01, 20), min_size=1, max_size=5),
    bound=st.floats(0.05, 30),
    penalty=st.sampled_from([0.1, 1.0, 50.0, math.inf]),
    shift=st.floats(0, 0.9),
    relation=st.sampled_from([-1, 0, 1]),
)
@settings(max_examples=200)
def test_step_of_a_definite_row(
    eigenvalues: list[float], bound: float, penalty: float, shift: float, relation: int
) -> None:
    e = np.array(eigenvalues)
    y = -relation * shift * min(1 / e.max(), 1.0 if math.isinf(penalty) else penalty / bound)
    compliance = 0.0 if math.isinf(penalty) else 1 / penalty
    step = kernels.projection_step(e, len(e), relation, bound, compliance, not math.isinf(penalty), True, y)

    def residual(t: float) -> float:
        return 1 / bound - 1 / float(np.sum(e / (1 + t * e))) - compliance * (y + t)

    root = brentq(residual, -1 / e.max() * (1 - 1e-12), 1e6, xtol=1e-14, rtol=1e-15)
    has_wrong_sign = relation and (y + root) * relation > 0
    assert_allclose(step, -y if has_wrong_sign else root, rtol=1e-8, atol=1e-10)


@pytest.mark.long
@given(
    positive=st.floats(0.01, 20),
    negative=st.floats(0.01, 20),
    bound=st.floats(-10, 10),
    compliance=st.sampled_from([0.0, 0.3, 5.0]),
    relation=st.sampled_from([-1, 0, 1]),
    multiplier=st.floats(0, 0.9),
)
@settings(max_examples=200)
def test_step_of_an_indefinite_row(
    positive: float, negative: float, bound: float, compliance: float, relation: int, multiplier: float
) -> None:
    e = np.array([positive, -negative])
    y = -relation * multiplier * min(1 / positive, 1 / negative)
    is_bregman = relation < 0 and bound > 0 and compliance > 0
    step = kernels.projection_step(e, 2, relation, bound, compliance, is_bregman, False, y)

    def residual(t: float) -> float:
        p = float(np.sum(e / (1 + t * e)))
        limit = 1 / bound - compliance * (y + t) if is_bregman else 1.0
        target = (1 / limit if limit > 0 else math.inf) if is_bregman else bound + compliance * (y + t)
        return max(min(p - target, 1e300), -1e300)

    low, high = -1 / positive, 1 / negative
    margin = 1e-13 * (high - low)
    if relation and residual(np.clip(-y, low + margin, high - margin)) * relation >= 0:
        assert step == -y
        return
    root = brentq(residual, low + margin, high - margin, xtol=1e-15, rtol=1e-15)
    assert_allclose(step, root, rtol=1e-7, atol=1e-9)


# --- what it costs, and what rounding leaves ----------------------------------------------------------------


@both_forms
def test_nothing_of_the_order_of_the_matrix_is_decomposed(
    factored: bool, monkeypatch: pytest.MonkeyPatch, orders: Callable[[], list[int]]
) -> None:
    features = np.random.default_rng(0).normal(size=(8, 90)) / 9
    rows = projected.rows_of("four squares", features, graph=False)
    now = rows.of_matrix(np.eye(90))
    engine = LogDetEngine(projected.formulation(LogDet(), rows, -1, now - 0.3), factored)
    seen = orders()
    engine.sweep(np.arange(rows.n_rows))
    assert np.all(engine.dual != 0)
    assert 0 < max(seen) <= 4


@both_forms
def test_a_million_projections_leave_little_drift(factored: bool) -> None:
    rng = np.random.default_rng(0)
    rows, prior, bounds = distances(m=500, r=8)
    relations = np.where(bounds > rows.values(np.diag(np.sqrt(prior))), 1, -1)
    engine = LogDetEngine(projected.formulation(LogDet(), rows, relations, bounds, 10.0, prior), factored)
    for _ in range(2000):
        engine.sweep(rng.permutation(500))
    assert engine.projections == 1_000_000
    adjoint = rows.adjoint(engine.dual)
    assert engine.drift(adjoint) < 1e-9
    engine._state *= 1 + 1e-6
    assert engine.drift(adjoint) > 1e-7
    engine.refresh(adjoint)
    assert engine.drift(adjoint) < 1e-13


def test_multipliers_of_no_matrix_are_refused() -> None:
    rows, prior, bounds = distances()
    engine = LogDetEngine(projected.formulation(LogDet(), rows, 1, bounds, math.inf, prior))
    with pytest.raises(np.linalg.LinAlgError, match="no matrix that belongs to these multipliers"):
        engine.refresh(rows.adjoint(np.full(rows.n_rows, -100.0)))
