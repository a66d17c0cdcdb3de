"""Von Neumann projections: the condition of every row by its definition, multipliers, drift, oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import brentq

import cases
import nearwise as nw
from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.linalg import eigenupdate
from nearwise.model.formulation import Formulation
from nearwise.solving.von_neumann import VonNeumannEngine

Array = NDArray[np.float64]

kinds = pytest.mark.parametrize("kind", cases.KINDS)
penalties = pytest.mark.parametrize("penalty", [0.05, 1.0, math.inf])


@pytest.fixture(params=["compiled", "fast product"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on both ways of updating eigenvectors."""
    if request.param == "fast product":
        monkeypatch.setattr(eigenupdate, "FAST_FROM", 2)


def example(kind: str, penalty: float, r: int = 5, seed: int = 0) -> Formulation:
    """Bounds come from another matrix than the prior, so that most rows are violated at first."""
    rng = np.random.default_rng([seed, r])
    G = rng.normal(size=(8, r)) / np.sqrt(r)
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, r) @ G.T)
    prior = (0.3 if ">=" in kind else 1.0) * cases.positive_definite(rng, r)
    return nw.Problem(G, side, nw.VonNeumann(), prior, penalty).formulation


def single(A: Array, b: float, relation: str, penalty: float, prior: Array | None = None) -> Formulation:
    """One general row, tr(A M), on r features."""
    r = len(A)
    problem = nw.Problem(np.eye(r), c.linear(A, b, relation), nw.VonNeumann(), prior, penalty)
    return problem.formulation


def matrix_of(form: Formulation, dual: Array) -> Array:
    """M by its definition, exp(log(prior) - sum_i y_i A_i)."""
    return expm(np.diag(np.log(form.prior)) - form.measurements.adjoint(dual))


def pullback(engine: VonNeumannEngine) -> Array:
    return engine.form.measurements.adjoint(engine.dual)


def drift(engine: VonNeumannEngine) -> float:
    return engine.drift(pullback(engine))


def row_matrix(form: Formulation, row: int) -> Array:
    weights = np.zeros(form.measurements.n_rows)
    weights[row] = 1.0
    return form.measurements.adjoint(weights)


def target(form: Formulation, row: int, y: float) -> float:
    """The value that goes with a multiplier: where the row's loss has the slope y."""
    losses = form.losses
    b, compliance = losses.bounds[row], losses.compliance[row]
    return float(b * np.exp(compliance * y) if losses.is_bregman[row] else b + compliance * y)


def assert_projected(form: Formulation, engine: VonNeumannEngine, row: int) -> None:
    """The row's condition holds at M: its target is met, or the bound is respected with multiplier 0."""
    y, relation, A = engine.dual[row], form.losses.relations[row], row_matrix(form, row)
    p = float(np.sum(A * matrix_of(form, engine.dual)))
    parts = np.abs(np.linalg.eigvalsh(engine.factor().T @ A @ engine.factor())).sum()  # p is a sum of these
    assert y * relation <= 0
    excess = p - target(form, row, y)
    if y == 0 and relation != 0:
        excess = max(-relation * excess, 0.0)
    assert abs(excess) <= 1e-10 * max(parts, abs(form.losses.bounds[row]))


def assert_consistent(form: Formulation, engine: VonNeumannEngine, tol: float = 1e-12) -> None:
    """The matrix is the one that belongs to the multipliers, whichever way it is asked for."""
    M = matrix_of(form, engine.dual)
    values, vectors = engine.spectrum()
    size = np.abs(M).max()
    assert_allclose((vectors * values) @ vectors.T, M, atol=tol * size)
    assert_allclose(engine.factor() @ engine.factor().T, M, atol=tol * size)
    assert np.all(np.diff(values) >= 0)
    assert drift(engine) <= tol


@kinds
@penalties
@pytest.mark.usefixtures("path")
def test_each_projection_meets_its_row(kind: str, penalty: float) -> None:
    form = example(kind, penalty)
    engine = VonNeumannEngine(form)
    moved = 0
    for row in [*range(form.measurements.n_rows)] * 2:
        before = engine.dual.copy()
        engine.sweep(np.array([row]))
        assert_projected(form, engine, row)
        assert_allclose(np.delete(engine.dual, row), np.delete(before, row), rtol=0)
        moved += engine.dual[row] != before[row]
    assert_consistent(form, engine)
    assert engine.projections == moved > 0
    assert engine.evaluations <= 6 * engine.projections


@kinds
@penalties
def test_multipliers_give_way_and_stop_at_zero(kind: str, penalty: float) -> None:
    """Started from multipliers that are far too large, rows go back, and all the way where they can."""
    form = example(kind, penalty)
    rng, relations = np.random.default_rng(2), form.losses.relations
    start = np.where(relations == 0, rng.normal(size=len(relations)), -3.0 * relations)
    engine = VonNeumannEngine(form, start / np.sqrt(len(start)))
    for row in rng.permutation(len(start)):
        engine.sweep(np.array([row]))
        assert_projected(form, engine, int(row))
    assert_consistent(form, engine, 1e-11)
    assert np.any(engine.dual[relations != 0] == 0) or not np.any(relations)


@kinds
@pytest.mark.parametrize("penalty", [1.0, math.inf])
def test_the_step_is_the_one_that_a_bisecting_zero_finder_finds(kind: str, penalty: float) -> None:
    form = example(kind, penalty, seed=1)
    engine = VonNeumannEngine(form)
    for row in range(form.measurements.n_rows):
        y, relation, A = float(engine.dual[row]), form.losses.relations[row], row_matrix(form, row)
        L = np.log(form.prior) * np.eye(len(A)) - form.measurements.adjoint(engine.dual)

        def excess(delta: float, row: int = row, y: float = y, A: Array = A, L: Array = L) -> float:
            return float(np.sum(A * expm(L - delta * A))) - target(form, row, y + delta)

        span = 30 / np.abs(np.linalg.eigvalsh(A)).max()
        delta = float(brentq(excess, -span, span, xtol=1e-14 * span))
        allowed = (y + delta) * relation <= 0
        engine.sweep(np.array([row]))
        assert_allclose(engine.dual[row], y + delta if allowed else 0.0, atol=1e-10 * span)


@kinds
@penalties
def test_cyclic_projections_reach_the_optimum(kind: str, penalty: float) -> None:
    rng = np.random.default_rng(3)
    G = rng.normal(size=(7, 4)) / 2
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, 4) @ G.T)
    problem = nw.Problem(G, side, nw.VonNeumann(), penalty=penalty)
    form = problem.formulation
    engine = VonNeumannEngine(form)
    for _ in range(20):
        for _ in range(200):
            engine.sweep(np.arange(len(side)))
        found = engine.factor() @ engine.factor().T
        if problem.certificate(found, engine.dual).gap <= 1e-7:
            break
    result = nw.solve(problem, tol=1e-9)
    assert_allclose(found, result.matrix, atol=1e-4 * np.abs(result.matrix).max())
    assert problem.certificate(found, engine.dual).gap <= 1e-7


def test_dual_corrections_lead_to_the_optimum_of_ksd09_24() -> None:
    rows, bounds = [np.diag(row) for row in cases.KSD09_24_ROWS], cases.KSD09_24_BOUNDS
    side = c.linear(rows[:2], bounds[:2], ">=") + c.linear(rows[2], bounds[2], "==")
    prior = np.diag(cases.KSD09_24_START)
    problem = nw.Problem(np.eye(3), side, nw.VonNeumann(), prior, math.inf)
    engine = VonNeumannEngine(problem.formulation)
    for _ in range(200):
        engine.sweep(np.arange(3))
    factor = problem.lift(engine.factor())
    assert_allclose(factor @ factor.T, np.diag(cases.ksd09_24_optimum()), atol=1e-6)


# --- single rows with a known answer -----------------------------------------------------------------------


@pytest.mark.parametrize(("relation", "share"), [("<=", 0.3), (">=", 2.5), ("==", 0.6)])
@pytest.mark.parametrize("gamma", cases.PENALTIES)
def test_one_square_has_a_closed_form(relation: str, share: float, gamma: float) -> None:
    z = np.array([0.9, -0.4, 0.5])
    b = share * float(z @ z)
    form = single(np.outer(z, z), b, relation, gamma)
    engine = VonNeumannEngine(form)
    engine.sweep(np.array([0]))
    expected = cases.rank_one_answer(nw.VonNeumann(), z, b, gamma)
    assert_allclose(engine.factor() @ engine.factor().T, expected, atol=1e-12)


def test_the_trace_is_exact() -> None:
    rng = np.random.default_rng(4)
    prior = cases.positive_definite(rng, 6)
    form = single(np.eye(6), 1.0, "==", math.inf, prior)
    engine = VonNeumannEngine(form)
    engine.sweep(np.array([0]))
    assert_allclose(np.sum(engine.spectrum()[0]), 1.0, rtol=1e-12)
    assert_allclose(
        engine.spectrum()[0], form.prior.copy()[np.argsort(form.prior)] / form.prior.sum(), rtol=1e-12
    )


def test_a_unit_diagonal_is_exact() -> None:
    rng = np.random.default_rng(5)
    K = cases.positive_definite(rng, 6)
    problem = nw.Problem.from_kernel(
        K, c.similarity([(i, i) for i in range(6)], 1.0, "=="), nw.VonNeumann(), math.inf
    )
    engine = VonNeumannEngine(problem.formulation)
    for _ in range(60):
        engine.sweep(np.arange(6))
    found = problem.features @ problem.lift(engine.factor())
    assert_allclose(np.diag(found @ found.T), np.ones(6), rtol=1e-12)


def test_a_row_that_measures_nothing_is_left_alone() -> None:
    G = np.ones((3, 2))
    side = c.at_most([(0, 1)], 1.0) + c.closer([(0, 1, 2)]) + c.linear(np.diag([1.0, -1.0, 0.0]), 0.0, "==")
    engine = VonNeumannEngine(nw.Problem(G, side, nw.VonNeumann(), penalty=1.0).formulation)
    engine.sweep(np.arange(3))
    assert engine.projections == engine.evaluations == 0
    assert_allclose(engine.dual, 0, rtol=0)
    assert_allclose(engine.spectrum()[0], 1, rtol=0)


def test_satisfied_rows_cost_no_projection() -> None:
    G = np.random.default_rng(6).normal(size=(4, 3))
    side = c.at_most([(0, 1), (2, 3)], 1e3) + c.at_least([(0, 2)], 1e-3) + c.similarity([(0, 1)], -1e3, ">=")
    engine = VonNeumannEngine(nw.Problem(G, side, nw.VonNeumann(), penalty=math.inf).formulation)
    engine.sweep(np.arange(4))
    assert engine.projections == 0


@pytest.mark.parametrize("b", [0.0, -1.0])
@pytest.mark.parametrize("relation", ["<=", "=="])
@pytest.mark.parametrize("definite", ["one square", "two squares", "three squares"])
def test_bounds_out_of_reach_stop_at_finite_numbers(b: float, relation: str, definite: str) -> None:
    rank = ("one square", "two squares", "three squares").index(definite) + 1
    Z = np.random.default_rng(7).normal(size=(rank, 4))
    form = single(Z.T @ Z, b, relation, math.inf)
    engine = VonNeumannEngine(form)
    for _ in range(5):
        engine.sweep(np.array([0]))
        assert np.isfinite(engine.dual).all()
        assert np.isfinite(engine.factor()).all()
    assert form.measurements.values_of_factor(engine.factor())[0] <= 1e-3
    assert drift(engine) <= 1e-12


@pytest.mark.parametrize("penalty", [1.0, math.inf])
def test_contradictory_rows_stay_finite(penalty: float) -> None:
    G = np.random.default_rng(8).normal(size=(5, 3))
    side = (
        c.at_most([(0, 1)], 1e-6) + c.at_least([(0, 1)], 1e6) + c.closer([(0, 1, 2), (0, 2, 1)], margin=9.0)
    )
    form = nw.Problem(G, side, nw.VonNeumann(), penalty=penalty).formulation
    engine = VonNeumannEngine(form)
    for _ in range(300):
        engine.sweep(np.arange(4))
    assert np.isfinite(engine.dual).all()
    assert np.isfinite(engine.factor()).all()
    assert drift(engine) <= 1e-9


# --- the state ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("path")
def test_an_engine_starts_at_given_multipliers() -> None:
    form = example("all kinds", 1.0)
    first = VonNeumannEngine(form)
    first.sweep(np.arange(form.measurements.n_rows))
    second = VonNeumannEngine(form, first.dual)
    assert_allclose(second.factor() @ second.factor().T, first.factor() @ first.factor().T, atol=1e-12)
    kept = first.dual.copy()
    second.sweep(np.arange(form.measurements.n_rows))
    assert_allclose(first.dual, kept, rtol=0)
    assert_consistent(form, second)


def test_the_order_of_rows_is_followed() -> None:
    form = example("all kinds", 1.0)
    order = np.random.default_rng(9).permutation(form.measurements.n_rows)
    whole, one_by_one = VonNeumannEngine(form), VonNeumannEngine(form)
    whole.sweep(order)
    for row in order:
        one_by_one.sweep(np.array([row]))
    assert_allclose(whole.dual, one_by_one.dual, rtol=0)
    assert whole.evaluations == one_by_one.evaluations
    whole.sweep(np.array([], dtype=np.int64))
    assert_allclose(whole.dual, one_by_one.dual, rtol=0)


def test_drift_sees_both_kinds_of_error_and_a_refresh_removes_them() -> None:
    form = example("distances <=", 1.0)
    engine = VonNeumannEngine(form)
    engine.sweep(np.arange(form.measurements.n_rows))
    assert drift(engine) <= 1e-13
    engine.dual[0] += 1e-3
    assert drift(engine) >= 1e-5
    engine.refresh(pullback(engine))
    assert drift(engine) <= 1e-13
    engine._state.vectors[0] *= 1.001
    assert drift(engine) >= 1e-4
    engine.refresh(pullback(engine))
    assert_consistent(form, engine)


def test_both_ways_of_updating_eigenvectors_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    r = 90
    G = rng.normal(size=(60, r)) / np.sqrt(r)
    pairs = rng.permutation(60).reshape(30, 2)
    side = (
        c.at_most(pairs[:15], 0.7)
        + c.at_least(pairs[15:], 3.0)
        + c.closer(rng.permutation(60).reshape(15, 4))
    )
    form = nw.Problem(G, side, nw.VonNeumann(), np.diag(rng.uniform(0.5, 2, r)), penalty=0.5).formulation
    compiled = VonNeumannEngine(form)
    monkeypatch.setattr(eigenupdate, "FAST_FROM", 70)
    fast = VonNeumannEngine(form)
    for engine in (compiled, fast):
        engine.sweep(np.arange(len(side)))
        engine.sweep(np.arange(len(side)))
        assert drift(engine) <= 1e-12
    assert_allclose(fast.dual, compiled.dual, atol=1e-9)
    assert_allclose(fast.factor() @ fast.factor().T, compiled.factor() @ compiled.factor().T, atol=1e-10)


def test_thousands_of_projections_drift_little() -> None:
    rng = np.random.default_rng(11)
    G = rng.normal(size=(200, 12))
    pairs = np.array([(i, j) for i, j in rng.integers(0, 200, size=(600, 2)) if i != j])
    far = c.at_least(pairs[300:], 30.0)
    form = nw.Problem(G, c.at_most(pairs[:300], 10.0) + far, nw.VonNeumann(), penalty=0.1).formulation
    engine = VonNeumannEngine(form)
    while engine.projections < 20_000:
        engine.sweep(rng.permutation(form.measurements.n_rows))
    assert drift(engine) <= 1e-12
    assert engine.evaluations <= 6 * engine.projections


@given(
    st.integers(1, 7),
    st.lists(st.floats(-8, 8), min_size=7, max_size=7),
    st.sampled_from(["<=", ">=", "=="]),
    st.floats(-6, 6),
    st.sampled_from([1e-3, 1.0, 1e3, math.inf]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100)
def test_any_spectrum_and_bound(
    r: int, logs: list[float], relation: str, bound: float, penalty: float, seed: int
) -> None:
    z = np.random.default_rng(seed).normal(size=r)
    prior = np.diag(np.exp(np.array(logs[:r])))
    form = single(np.outer(z, z), math.exp(bound) * float(z @ prior @ z), relation, penalty, prior)
    engine = VonNeumannEngine(form)
    engine.sweep(np.array([0]))
    p = form.measurements.values_of_factor(engine.factor())[0]
    if engine.dual[0] != 0:
        assert_allclose(p, target(form, 0, engine.dual[0]), rtol=1e-10)
    elif relation != "==":
        assert (
            (p <= form.losses.bounds[0] * (1 + 1e-12))
            if relation == "<="
            else (p >= form.losses.bounds[0] * (1 - 1e-12))
        )
    assert drift(engine) <= 1e-13


@pytest.mark.parametrize("penalty", [1e-290, 1e-150, 1e25])
def test_penalties_of_any_size(penalty: float) -> None:
    form = example("all kinds", penalty)
    engine = VonNeumannEngine(form)
    for _ in range(3):
        engine.sweep(np.arange(form.measurements.n_rows))
    assert np.isfinite(engine.factor()).all()
    assert drift(engine) <= 1e-12
    assert engine.projections > 0


def test_no_rows() -> None:
    form = nw.Problem(np.eye(3), Constraints(), nw.VonNeumann(), np.diag([3.0, 1.0, 2.0])).formulation
    engine = VonNeumannEngine(form)
    engine.sweep(np.array([], dtype=np.int64))
    assert_allclose(engine.spectrum()[0], [1, 2, 3])
