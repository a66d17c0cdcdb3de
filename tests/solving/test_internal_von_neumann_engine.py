"""The state of von Neumann projections: multipliers to start at, drift, two ways of updating eigenvectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.linalg import expm

import cases
import nearwise as nw
from nearwise import constraints as c
from nearwise.linalg import eigenupdate
from nearwise.solvers import Formulation
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
