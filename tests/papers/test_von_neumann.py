"""Von Neumann projections against KSD09 algorithm 3, and their ways of updating an eigendecomposition."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import expm
from scipy.optimize import brentq

import projected
from nearwise.core.divergences import VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.rows import Rows
from nearwise.linalg import eigenupdate
from nearwise.papers import von_neumann
from nearwise.papers.von_neumann import VonNeumannEngine

Array = np.ndarray
penalties = pytest.mark.parametrize("penalty", [0.5, math.inf])


@pytest.fixture(params=["compiled", "fast product"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on both ways of updating eigenvectors."""
    if request.param == "fast product":
        monkeypatch.setattr(eigenupdate, "FAST_FROM", 2)


def matrix_of(engine: VonNeumannEngine) -> Array:
    B = engine.factor()
    return np.asarray(B @ B.T)


def drift(engine: VonNeumannEngine) -> float:
    return engine.drift(engine.form.rows.adjoint(engine.dual))


def assert_projected(form: Formulation, engine: VonNeumannEngine, row: int) -> None:
    """The row is where its reply to the multiplier is, or on its right side with the multiplier 0."""
    y, relation = engine.dual[row], form.loss.relations[row]
    excess = form.rows.values(engine.factor())[row] - form.loss.reply(engine.dual)[row]
    assert y * relation <= 0
    if y == 0 and relation != 0:
        excess = max(-relation * excess, 0.0)
    assert abs(excess) <= 1e-10 * max(form.rows.magnitudes(engine.factor())[row], form.loss.bounds[row])


@pytest.mark.usefixtures("path")
def test_upper_bounds_follow_ksd09_algorithm_3() -> None:
    rng = np.random.default_rng(0)
    z, prior = rng.normal(size=(6, 4)), rng.uniform(0.5, 2.0, 4)
    rows = Rows.written(z, z, np.ones(6), np.arange(6), 6)
    bounds = rng.uniform(0.3, 3.0, 6) * (z**2 @ prior)
    engine = VonNeumannEngine(projected.formulation(VonNeumann(), rows, -1, bounds, math.inf, prior))
    W, theta, multipliers = np.eye(4), np.log(prior), np.zeros(6)
    for _ in range(5):
        engine.sweep(np.arange(6))
        for i, v in enumerate(z):
            w, b = W.T @ v, bounds[i]

            def excess(a: float, theta: Array = theta, w: Array = w, b: float = b) -> float:
                return float(w @ expm(np.diag(theta) + a * np.outer(w, w)) @ w) - b

            beta = min(multipliers[i], brentq(excess, -5, 5, xtol=1e-15))
            multipliers[i] -= beta
            theta, U = np.linalg.eigh(np.diag(theta) + beta * np.outer(w, w))
            W = W @ U
        assert_allclose(engine.dual, multipliers, atol=1e-9)
        assert_allclose(matrix_of(engine), (W * np.exp(theta)) @ W.T, atol=1e-10)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kind", projected.KINDS)
@pytest.mark.parametrize("penalty", [0.05, 1.0, math.inf])
def test_multipliers_that_are_too_large_go_back(kind: str, penalty: float) -> None:
    form = projected.example(kind, VonNeumann(), penalty)
    engine, rng, relations = VonNeumannEngine(form), np.random.default_rng(2), form.loss.relations
    start = np.where(relations == 0, rng.normal(size=len(relations)), -3.0 * relations)
    engine.dual[:] = start / np.sqrt(len(start)) / form.rows.magnitudes(np.ones(5))
    engine.refresh(form.rows.adjoint(engine.dual))
    for row in rng.permutation(len(start)):
        engine.sweep(np.array([row]))
        assert_projected(form, engine, int(row))
    dense = projected.Dense(form)
    dense.dual = engine.dual
    assert_allclose(matrix_of(engine), dense.matrix(), atol=1e-11 * np.abs(matrix_of(engine)).max())
    assert drift(engine) < 1e-12


def test_drift_is_that_of_eigenvectors_too() -> None:
    form = projected.example("distances", VonNeumann(), 1.0)
    engine = VonNeumannEngine(form)
    engine.sweep(np.arange(4))
    assert drift(engine) < 1e-13
    engine._state.vectors[0] *= 1.001
    assert drift(engine) > 1e-4


def test_rows_that_are_met_cost_no_projection() -> None:
    rows = projected.rows_of("all", np.random.default_rng(0).normal(size=(8, 5)), graph=False)
    engine = VonNeumannEngine(projected.formulation(VonNeumann(), rows, -1, 1e3))
    engine.sweep(np.arange(rows.n_rows))
    assert engine.projections == engine.evaluations == 0
    engine = VonNeumannEngine(projected.formulation(VonNeumann(), rows, 1, 1e3))
    engine.sweep(np.array([0, 4, 7]))
    assert engine.projections == 3
    assert engine.evaluations <= 6 * 3


# --- rows of few squares, and multiples of the trace --------------------------------------------------------


@pytest.mark.parametrize("kind", ["distances", "comparisons", "products", "four squares"])
def test_nothing_of_the_order_of_the_matrix_is_decomposed(kind: str, orders: Callable[[], list[int]]) -> None:
    features = np.random.default_rng(0).normal(size=(8, 90)) / 9
    rows = projected.rows_of(kind, features, graph=False)
    form = projected.formulation(VonNeumann(), rows, -1, rows.of_matrix(np.eye(90)) - 0.3)
    engine, seen = VonNeumannEngine(form), orders()
    engine.sweep(np.arange(rows.n_rows))
    assert np.all(engine.dual != 0)
    assert max(seen, default=0) <= 4


@penalties
def test_updates_by_squares_agree_with_a_decomposition(
    penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = projected.example("four squares", VonNeumann(), penalty, r=90)
    found = []
    for least in (0, 90):
        monkeypatch.setattr(von_neumann, "_ORDER_PER_SQUARE", least)
        engine = VonNeumannEngine(form)
        for _ in range(3):
            engine.sweep(np.arange(2))
        assert drift(engine) < 1e-12
        found.append((engine.dual, matrix_of(engine)))
    assert_allclose(found[0][0], found[1][0], atol=1e-9)
    assert_allclose(found[0][1], found[1][1], atol=1e-10)


@pytest.mark.parametrize("penalty", [2.0, math.inf])
@pytest.mark.parametrize(("relation", "weight", "share"), [(-1, 1.0, 0.8), (0, -2.0, 1.3), (1, 3.0, 1.2)])
def test_a_multiple_of_the_trace_scales_the_matrix_and_decomposes_nothing(
    relation: int, weight: float, share: float, penalty: float, orders: Callable[[], list[int]]
) -> None:
    x = np.linalg.qr(np.random.default_rng(1).normal(size=(9, 9)))[0]
    rows = Rows.written(x, x, np.full(9, weight), np.zeros(9, dtype=np.int64), 1)
    prior = np.linspace(0.5, 2.0, 9)
    bound = share * weight * prior.sum()
    form = projected.formulation(VonNeumann(), rows, relation, bound, penalty, prior)
    engine, seen = VonNeumannEngine(form), orders()
    engine.sweep(np.arange(1))
    assert not seen
    M, y = matrix_of(engine), engine.dual[0]
    assert_allclose(M, np.diag(prior) * np.exp(-weight * y), rtol=1e-14)
    assert_allclose(weight * np.trace(M), form.loss.reply(engine.dual)[0], rtol=1e-12)
    assert y != 0
    if penalty == math.inf:
        assert_allclose(M, share * np.diag(prior), rtol=1e-12)
