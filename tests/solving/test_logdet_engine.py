"""LogDet projections one by one, against dense algebra and independent root finders."""

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
from nearwise.model.formulation import Formulation
from nearwise.solving.logdet import LogDetEngine
from nearwise.solving.reduction import reduced

N, R = 7, 4
every_kind = pytest.mark.parametrize("kind", cases.KINDS)
both_forms = pytest.mark.parametrize("factored", [True, False], ids=["factored", "symmetric"])
penalties = pytest.mark.parametrize("penalty", [0.05, 3.0, math.inf])


def formulation(kind: str, penalty: float, seed: int = 0, r: int = R) -> Formulation:
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(N, r))
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, r) @ G.T)
    return reduced(nw.Problem(G, side, penalty=penalty).formulation).formulation


def matrix_of(engine: LogDetEngine) -> np.ndarray:
    B = engine.factor()
    return B @ B.T


@every_kind
@penalties
@both_forms
def test_a_projection_makes_its_row_optimal_and_keeps_the_identity(
    kind: str, penalty: float, factored: bool
) -> None:
    form = formulation(kind, penalty)
    engine = LogDetEngine(form, factored)
    rng = np.random.default_rng(1)
    for row in rng.integers(len(engine.dual), size=40):
        before = matrix_of(engine)
        y = engine.dual.copy()
        engine.sweep(np.array([row]))
        M = matrix_of(engine)
        assert np.array_equal(np.delete(engine.dual, row), np.delete(y, row))
        assert np.array_equal(engine.dual, form.losses.signed(engine.dual))
        A = form.measurements.adjoint(np.eye(1, len(y), row)[0])
        assert_allclose(
            np.linalg.inv(M), np.linalg.inv(before) + (engine.dual - y)[row] * A, rtol=1e-8, atol=1e-8
        )
        value = form.measurements.values(M)
        assert form.losses.discrepancies(value, engine.dual)[row] < 1e-9
    inverse = np.diag(1 / form.prior) + form.measurements.adjoint(engine.dual)
    assert_allclose(matrix_of(engine) @ inverse, np.eye(len(inverse)), atol=1e-9)
    assert engine.projections == 40


@every_kind
@penalties
def test_the_dual_bound_never_falls(kind: str, penalty: float) -> None:
    form = formulation(kind, penalty, seed=3)
    engine = LogDetEngine(form)

    def dual_bound() -> float:
        M = np.linalg.inv(np.diag(1 / form.prior) + form.measurements.adjoint(engine.dual))
        bounds = form.losses.bounds  # where no row costs anything
        conjugate = form.losses.fenchel_residual(bounds, engine.dual, 0.0) + engine.dual @ bounds
        lagrangian = nw.LogDet().value(M, np.diag(form.prior)) + engine.dual @ form.measurements.values(M)
        return float(lagrangian - conjugate)

    bounds = [dual_bound()]
    for row in np.tile(np.arange(len(engine.dual)), 3):
        engine.sweep(np.array([row]))
        bounds.append(dual_bound())
    assert np.diff(bounds).min() > -1e-9 * max(1.0, abs(bounds[-1]))


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


@both_forms
def test_an_unreachable_bound_leaves_a_finite_matrix(factored: bool) -> None:
    A = np.diag([1.0, 1.0, 0.0])
    for matrix in (A, np.diag([1.0, 0.0, 0.0])):
        side = c.linear([matrix], [-1.0], "<=")
        form = nw.Problem(np.eye(3), side, penalty=math.inf).formulation
        engine = LogDetEngine(form, factored)
        for _ in range(5):
            engine.sweep(np.array([0]))
        assert np.isfinite(engine.factor()).all()
        assert np.isfinite(engine.dual).all()


@both_forms
def test_rows_of_two_parallel_squares(factored: bool) -> None:
    """On one feature a comparison is a multiple of M: its second eigenvalue is rounding."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        G = rng.normal(size=(6, 1))
        z = np.square(G - G.T)
        pairs = rng.permutation([(i, j) for i in range(6) for j in range(i)])[:8].reshape(4, 4)
        near = z[tuple(pairs.T[:2])] < z[tuple(pairs.T[2:])]
        pairs = np.where(near[:, None], pairs, np.roll(pairs, 2, axis=1))
        room = z[tuple(pairs.T[2:])] - z[tuple(pairs.T[:2])]
        target = rng.uniform(1.0, 3.0, 4)
        form = nw.Problem(G, c.closer(pairs, margin=target * room), penalty=math.inf).formulation
        engine = LogDetEngine(form, factored)
        for _ in range(3):
            engine.sweep(np.arange(4))
        assert_allclose(matrix_of(engine), [[target.max()]], rtol=1e-10)


def test_projections_end_where_rounding_leaves_no_matrix() -> None:
    """Bounds that need M to grow a millionfold along features that are parallel to their eighth digit."""
    rng = np.random.default_rng(6)
    G = rng.normal(size=(8, 1)) * rng.normal(size=4) + 1e-8 * rng.normal(size=(8, 4))
    pairs = rng.integers(0, 8, size=(40, 4))
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & (pairs[:, 2] != pairs[:, 3])]
    problem = nw.Problem(G, c.closer(pairs, margin=1e6), penalty=math.inf)
    result = nw.solve(problem, nw.solvers.CyclicProjections(), max_iter=50)
    assert np.isfinite(result.matrix).all()
    assert result.status is not nw.Status.SOLVED
