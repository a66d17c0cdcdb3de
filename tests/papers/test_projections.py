"""Sweeps: one projection onto each row, by its definition; orders, the papers' rule, what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cases
import projected
from crossing import crossed
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.rows import Rows
from nearwise.core.slacks import SLACKS
from nearwise.linalg import eigenupdate
from nearwise.papers import ApproximateProjections, CyclicProjections
from nearwise.papers.engine import Engine
from nearwise.papers.logdet import LogDetEngine
from nearwise.papers.von_neumann import VonNeumannEngine

ENGINES: dict[str, tuple[SpectralDivergence, Callable[[Formulation], Engine]]] = {
    "LogDet factored": (LogDet(), LogDetEngine),
    "LogDet symmetric": (LogDet(), lambda form: LogDetEngine(form, factored=False)),
    "VonNeumann": (VonNeumann(), VonNeumannEngine),
}
every_engine = pytest.mark.parametrize("name", ENGINES)
both = pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()], ids=repr)


def points(solver: Any, form: Formulation, count: int) -> list[Iterate]:
    return list(itertools.islice(solver.iterates(form), count))


def product(B: np.ndarray) -> np.ndarray:
    return np.asarray(B @ B.T)


# --- projections by their definition ------------------------------------------------------------------------


@crossed(name=list(ENGINES), kind=list(projected.KINDS), penalty=[0.05, 1.0, math.inf], graph=[False, True])
def test_a_sweep_projects_onto_each_row(name: str, kind: str, penalty: float, graph: bool) -> None:
    divergence, engine_of = ENGINES[name]
    form = projected.example(kind, divergence, penalty, graph)
    engine, dense = engine_of(form), projected.Dense(form)
    for _ in range(2):
        engine.sweep(np.arange(form.rows.n_rows))
        for row in range(form.rows.n_rows):
            dense.project(row)
        M = dense.matrix()
        assert_allclose(engine.dual, dense.dual, atol=1e-7 * np.abs(dense.dual).max())
        assert_allclose(product(engine.factor()), M, atol=1e-8 * np.abs(M).max())
    assert engine.dual.any()
    assert engine.drift(form.rows.adjoint(engine.dual)) < 1e-12


@every_engine
@pytest.mark.parametrize("sort", SLACKS)
@pytest.mark.parametrize("relation", [-1, 1, 0])
def test_every_sort_of_slack(name: str, sort: str, relation: int) -> None:
    """Whichever slack is chosen for distances: multipliers are slopes of the losses."""
    divergence, engine_of = ENGINES[name]
    rows = projected.rows_of("distances", np.random.default_rng(0).normal(size=(8, 5)), graph=False)
    now = rows.values(np.eye(5))
    sorts = np.full(4, list(SLACKS).index(sort))
    form = projected.formulation(
        divergence, rows, relation, now * {-1: 0.5, 0: 0.7, 1: 2.0}[relation], 0.3, sorts=sorts
    )
    engine = engine_of(form)
    for row in range(4):
        engine.sweep(np.array([row]))
        slopes = form.loss.at(rows.values(engine.factor())).slopes
        assert_allclose(engine.dual[row], slopes[row], rtol=1e-9)


@every_engine
@pytest.mark.parametrize("penalty", [0.5, math.inf])
def test_a_projection_raises_the_dual_bound(name: str, penalty: float) -> None:
    divergence, engine_of = ENGINES[name]
    form = projected.example("all", divergence, penalty)
    engine, bounds = engine_of(form), []
    for row in [0, *range(form.rows.n_rows)] * 3:
        engine.sweep(np.array([row]))
        bounds.append(form.certify(Iterate(engine.factor(), engine.dual.copy())).certificate.dual)
    assert_allclose(np.minimum(np.diff(bounds), 0.0), 0.0, atol=1e-11)
    assert bounds[-1] > bounds[0]


@every_engine
def test_tracked_values_are_those_of_the_matrix(name: str) -> None:
    divergence, engine_of = ENGINES[name]
    for graph in (False, True):
        form = projected.example("all", divergence, 1.0, graph)
        engine = engine_of(form)
        values = form.rows.values(engine.factor())
        for row in [*range(form.rows.n_rows)] * 2:
            values = engine.tracked(row, values)
        assert_allclose(values, form.rows.values(engine.factor()), rtol=1e-9, atol=1e-10)


@every_engine
def test_drift_is_seen_and_a_refresh_removes_it(name: str) -> None:
    divergence, engine_of = ENGINES[name]
    form = projected.example("all", divergence, 1.0)
    engine: Any = engine_of(form)
    engine.sweep(np.arange(form.rows.n_rows))
    assert engine.drift(form.rows.adjoint(engine.dual)) < 1e-13
    engine.dual[0] += 1e-3
    assert engine.drift(form.rows.adjoint(engine.dual)) > 1e-5
    engine.refresh(form.rows.adjoint(engine.dual))
    assert engine.drift(form.rows.adjoint(engine.dual)) < 1e-13
    engine.sweep(np.arange(1))
    assert engine.drift(form.rows.adjoint(engine.dual)) < 1e-13


@every_engine
@pytest.mark.parametrize("bound", [0.0, -1.0])
def test_bounds_out_of_reach_leave_a_finite_matrix(name: str, bound: float) -> None:
    divergence, engine_of = ENGINES[name]
    Z = np.random.default_rng(7).normal(size=(6, 4))
    rows = Rows.written(Z, Z, np.ones(6), np.array([0, 1, 1, 2, 2, 2]), 3)
    for relation in (-1, 0):
        engine = engine_of(projected.formulation(divergence, rows, relation, bound))
        for _ in range(5):
            engine.sweep(np.arange(3))
        assert np.isfinite(engine.dual).all()
        assert np.isfinite(engine.factor()).all()


@every_engine
def test_rows_that_measure_nothing_are_left_alone(name: str) -> None:
    divergence, engine_of = ENGINES[name]
    x, zero = np.eye(3)[:2], np.zeros((2, 3))
    rows = Rows.written(
        np.concatenate([x, zero]), np.concatenate([x, zero]), np.ones(4), np.array([0, 0, 2, 4]), 5
    )
    engine = engine_of(projected.formulation(divergence, rows, -1, 1.0, 0.5))
    engine.sweep(np.arange(5))
    assert engine.dual[0] > 0
    assert not engine.dual[1:].any()


# --- runs ---------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("order", ["cyclic", "interleaved", "shuffled", "violated"])
@pytest.mark.parametrize("form", ["factored", "symmetric"])
def test_every_order_closes_the_gap(divergence: SpectralDivergence, order: Any, form: Any) -> None:
    problem = projected.example("all", divergence, 0.1)
    last = points(CyclicProjections(order=order, form=form), problem, 60)[-1]
    found = problem.certify(last).certificate
    assert 0 <= found.gap < 1e-9


@both
def test_points_are_the_prior_and_one_for_each_sweep(divergence: SpectralDivergence) -> None:
    form = projected.example("all", divergence, 1.0)
    first, second = points(CyclicProjections(order="cyclic"), form, 2)
    assert_allclose(product(first.factor), np.diag(form.prior), atol=1e-14)
    dense = projected.Dense(form)
    for row in range(form.rows.n_rows):
        dense.project(row)
    assert_allclose(product(second.factor), dense.matrix(), atol=1e-8)
    for point in (first, second):
        assert point.dual is not None
        assert_allclose(point.values, form.rows.values(point.factor))
        assert_allclose(point.adjoint, form.rows.adjoint(point.dual))
        assert "projections" in point.note
    assert first.dual is not second.dual


def test_seeds_make_random_orders() -> None:
    form = projected.example("all", LogDet(), 1.0)
    runs = [points(CyclicProjections(seed=seed), form, 3)[-1].factor for seed in (1, 1, 2)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@both
def test_multipliers_that_hardly_change_end_the_run(divergence: SpectralDivergence) -> None:
    form = projected.example("all", divergence, 1.0)
    found = points(CyclicProjections(multiplier_tol=1e-2), form, 100)
    duals = [point.dual for point in found]
    changes = [np.linalg.norm(b - a) / np.linalg.norm(b) for a, b in itertools.pairwise(duals)]
    finals = [point.final for point in found]
    assert finals[1:] == [change <= 1e-2 for change in changes]
    assert any(finals)
    assert not any(point.final for point in points(CyclicProjections(), form, 100))


@both
def test_a_sweep_that_changes_nothing_is_the_last(divergence: SpectralDivergence) -> None:
    form = projected.example("distances", divergence, math.inf)
    met = projected.formulation(divergence, form.rows, -1, 1e9)
    assert len(points(CyclicProjections(), met, 9)) == 2


def test_rows_of_the_relations_take_turns() -> None:
    rows = projected.rows_of("distances", np.random.default_rng(0).normal(size=(8, 5)), graph=False)
    rows = replace(rows, coefficient=np.ones(4))
    relations = np.array([-1, -1, 1, 0])
    form = projected.formulation(LogDet(), rows, relations, rows.values(np.eye(5)) * [0.5, 0.5, 2, 2])
    dense, last = projected.Dense(form), points(CyclicProjections(order="interleaved"), form, 2)[-1]
    for row in (0, 2, 3, 1):
        dense.project(row)
    assert_allclose(last.dual, dense.dual, rtol=1e-9)


@every_engine
def test_the_row_furthest_from_its_condition_comes_first(name: str) -> None:
    """Bounds on one distance, of which the tightest one is last: with it all are met."""
    x = np.ones((4, 2)) / np.sqrt(2)
    rows = Rows.written(x, x, np.ones(4), np.arange(4), 4)
    form = projected.formulation(ENGINES[name][0], rows, -1, [0.8, 0.6, 0.4, 0.2])
    in_turn, by_size = (points(CyclicProjections(order=o), form, 2)[-1] for o in ("cyclic", "violated"))
    assert np.flatnonzero(in_turn.dual).tolist() == [0, 1, 2, 3]
    assert np.flatnonzero(by_size.dual).tolist() == [3]
    assert_allclose(product(by_size.factor), product(in_turn.factor), rtol=1e-12)


def test_rows_that_cannot_move_do_not_hold_up_the_others() -> None:
    x = np.array([[0.0, 0.0], [1.0, 0.0]])
    rows = Rows.written(x, x, np.ones(2), np.arange(2), 2)
    form = projected.formulation(LogDet(), rows, 1, [1e6, 2.0])
    last = points(CyclicProjections(order="violated"), form, 2)[-1]
    assert_allclose(product(last.factor), np.diag([2.0, 1.0]))


@both
def test_contradictions_are_suspected_ever_more_rarely(divergence: SpectralDivergence) -> None:
    x = np.eye(2)[[0, 0]]
    rows = Rows.written(x, x, np.ones(2), np.arange(2), 2)
    form = projected.formulation(divergence, rows, [-1, 1], [1.0, 2.0])
    found = points(CyclicProjections(order="cyclic"), form, 40)
    assert [k for k, point in enumerate(found) if point.farkas is not None] == [16, 32]
    for k in (16, 32):
        assert np.asarray(found[k].farkas) @ form.loss.bounds < 0
    soft = projected.formulation(divergence, rows, [-1, 1], [1.0, 2.0], 5.0)
    assert all(point.farkas is None for point in points(CyclicProjections(), soft, 40))


def test_the_run_ends_where_rounding_leaves_no_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    form = projected.example("distances", LogDet(), math.inf)

    def lost(self: LogDetEngine, rows: np.ndarray) -> None:
        self.dual[0] = np.nan

    monkeypatch.setattr(LogDetEngine, "sweep", lost)
    assert len(points(CyclicProjections(), form, 5)) == 1


@both
def test_points_are_computed_anew_where_they_drifted(
    divergence: SpectralDivergence, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = projected.example("all", divergence, 1.0)
    exact = points(CyclicProjections(), form, 3)
    for engine in (LogDetEngine, VonNeumannEngine):
        plain = engine.sweep

        def inexact(self: Any, rows: np.ndarray, plain: Any = plain) -> None:
            plain(self, rows)
            self.dual *= 1 + 1e-8  # which M does not know

        monkeypatch.setattr(engine, "sweep", inexact)
    for point, other in zip(points(CyclicProjections(), form, 3), exact, strict=True):
        assert point.dual is not None
        dense = projected.Dense(form)
        dense.dual = point.dual
        assert_allclose(product(point.factor), dense.matrix(), rtol=1e-12, atol=1e-13)
        assert_allclose(point.dual, other.dual, rtol=1e-6)


def test_dual_corrections_reach_the_optimum_of_ksd09_24() -> None:
    rows = Rows.written(
        np.tile(np.eye(3), (3, 1)),
        np.tile(np.eye(3), (3, 1)),
        cases.KSD09_24_ROWS.ravel(),
        np.repeat(range(3), 3),
        3,
    )
    form = projected.formulation(
        VonNeumann(), rows, [1, 1, 0], cases.KSD09_24_BOUNDS, prior=cases.KSD09_24_START
    )
    for solver in (CyclicProjections(), ApproximateProjections()):
        M = product(points(solver, form, 3000)[-1].factor)
        assert_allclose(M, np.diag(cases.ksd09_24_optimum()), atol=1e-6)


# --- refusals -----------------------------------------------------------------------------------------------


def test_what_projections_do_not_know_is_refused() -> None:
    form = projected.example("distances", Frobenius(), 1.0)
    with pytest.raises(TypeError, match=r"knows LogDet and VonNeumann, not Frobenius\(\)"):
        CyclicProjections().iterates(form)
    rows = replace(form.rows, offsets=np.ones(form.rows.n_rows))
    for divergence in (LogDet(), VonNeumann()):
        fixed = projected.formulation(divergence, rows, -1, 5.0)
        with pytest.raises(ValueError, match="CyclicProjections knows no values with a fixed part"):
            CyclicProjections().iterates(fixed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": "random"}, "order must be one of 'cyclic', 'interleaved'"),
        ({"form": "dense"}, "form must be one of 'factored', 'symmetric', got 'dense'"),
        ({"multiplier_tol": 0.0}, "multiplier_tol must be a finite number > 0 or None, got 0.0"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CyclicProjections(**settings)


def test_both_products_of_eigenvectors_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    form = projected.example("all", VonNeumann(), 0.5, r=90)
    compiled = VonNeumannEngine(form)
    monkeypatch.setattr(eigenupdate, "FAST_FROM", 70)
    fast = VonNeumannEngine(form)
    for engine in (compiled, fast):
        for _ in range(2):
            engine.sweep(np.arange(form.rows.n_rows))
        assert engine.drift(form.rows.adjoint(engine.dual)) < 1e-12
    assert_allclose(fast.dual, compiled.dual, atol=1e-9)
    assert_allclose(product(fast.factor()), product(compiled.factor()), atol=1e-10)
