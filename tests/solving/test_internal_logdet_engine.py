"""The state of LogDet projections: steps of kernels, values kept in step, drift."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import brentq

import cases
import nearwise as nw
from nearwise import constraints as c
from nearwise.linalg.loops import logdet as kernels
from nearwise.solvers import Formulation
from nearwise.solving.logdet import LogDetEngine
from nearwise.solving.reduction import reduced

N, R = 7, 4


every_kind = pytest.mark.parametrize("kind", cases.KINDS)


both_forms = pytest.mark.parametrize("factored", [True, False], ids=["factored", "symmetric"])


def formulation(kind: str, penalty: float, seed: int = 0, r: int = R) -> Formulation:
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(N, r))
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, r) @ G.T)
    return reduced(nw.Problem(G, side, penalty=penalty).formulation).formulation


def matrix_of(engine: LogDetEngine) -> np.ndarray:
    B = engine.factor()
    return B @ B.T


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

    low, high = -1 / e.max() * (1 - 1e-12), 1e6
    root = brentq(residual, low, high, xtol=1e-14, rtol=1e-15)
    wrong_sign = relation and (y + root) * relation > 0
    assert_allclose(step, -y if wrong_sign else root, rtol=1e-8, atol=1e-10)


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
    bregman = relation < 0 and bound > 0 and compliance > 0
    step = kernels.projection_step(e, 2, relation, bound, compliance, bregman, False, y)

    def residual(t: float) -> float:
        p = float(np.sum(e / (1 + t * e)))
        limit = 1 / bound - compliance * (y + t) if bregman else 1.0
        target = (1 / limit if limit > 0 else math.inf) if bregman else bound + compliance * (y + t)
        return max(min(p - target, 1e300), -1e300)

    low, high = -1 / positive, 1 / negative
    margin = 1e-13 * (high - low)
    if relation and residual(np.clip(-y, low + margin, high - margin)) * relation >= 0:
        assert step == -y
        return
    root = brentq(residual, low + margin, high - margin, xtol=1e-15, rtol=1e-15)
    assert_allclose(step, root, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("weight", [0.7, -0.4])
def test_update_multiply_is_multiplication_by_the_cholesky_factor(r: int, weight: float) -> None:
    """KSD09 algorithm 1: B U with U U^T = I + weight w w^T, U upper triangular."""
    rng = np.random.default_rng(r)
    B = np.triu(rng.normal(size=(r, r)))
    w = rng.normal(size=r)
    w /= np.linalg.norm(w)
    reversed_order = np.eye(r) + weight * np.outer(w[::-1], w[::-1])
    U = np.linalg.cholesky(reversed_order)[::-1, ::-1]
    state = B.T.copy()
    kernels._update_multiply(state, w, weight, *np.empty((3, r)))
    assert_allclose(state.T, B @ U, rtol=1e-12, atol=1e-12)


@every_kind
@both_forms
def test_tracked_values_are_those_of_the_matrix(kind: str, factored: bool) -> None:
    form = formulation(kind, 1.0, seed=5)
    engine = LogDetEngine(form, factored)
    values = form.measurements.values_of_factor(engine.factor())
    for row in np.tile(np.arange(len(engine.dual)), 2):
        values = engine.tracked(int(row), values)
    assert_allclose(values, form.measurements.values(matrix_of(engine)), rtol=1e-9, atol=1e-10)


@both_forms
def test_a_million_projections_leave_no_drift_that_a_refresh_does_not_remove(factored: bool) -> None:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(60, 8))
    y = rng.integers(3, size=60)
    side = c.from_labels(y, n_pairs=500, random_state=0)
    form = reduced(nw.Problem(G, side, penalty=10.0).formulation).formulation
    engine = LogDetEngine(form, factored)
    for _ in range(2000):
        engine.sweep(rng.permutation(500))
    assert engine.projections == 1_000_000
    pullback = form.measurements.adjoint(engine.dual)
    assert engine.drift(pullback) < 1e-9
    engine._state *= 1 + 1e-6
    assert engine.drift(pullback) > 1e-7
    engine.refresh(pullback)
    assert engine.drift(pullback) < 1e-13
