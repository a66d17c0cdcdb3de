"""Weights of features as their solver sees them: any multipliers, a start, conjugate gradients, rounding."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from nearwise import Divergence, Frobenius, LogDet, Status, VonNeumann, constraints as c
from nearwise.model import DiagonalProblem
from nearwise.solving.diagonal import solve_diagonal

DIVERGENCES: list[Divergence] = [LogDet(), VonNeumann(), Frobenius()]


def data(seed: int = 0, d: int = 5) -> tuple[np.ndarray, c.Constraints]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, d))
    pairs = np.stack(np.triu_indices(20, 1), axis=1)[rng.permutation(190)[:30]]
    side = c.at_most(pairs[:12], 3.0) + c.at_least(pairs[12:20], 14.0) + c.equal(pairs[20:23], 6.0)
    triplets = [tuple(rng.permutation(20)[:3]) for _ in range(6)]
    return X, side + c.closer(triplets, 0.5) + c.similarity([(1, 2), (3, 3)], [0.1, 2.0], "<=")


def test_any_multipliers_bound_the_optimum() -> None:
    X, side = data()
    problem = DiagonalProblem.of(X, side, LogDet(), None, 2.0)
    best = solve_diagonal(problem, tol=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(20):
        w = rng.uniform(0.1, 2.0, 5)
        y = problem.losses.signed(rng.normal(size=len(side)) * 0.05)
        values = problem.measurements.values(w)
        grade = problem.certificate(w, values, y, problem.measurements.adjoint(y))
        assert grade.dual <= best.certificate.primal + 1e-9
        assert grade.primal >= best.certificate.dual - 1e-9


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
def test_many_rows_and_columns_go_by_conjugate_gradients(
    divergence: Divergence, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, side = data(d=30)
    problem = DiagonalProblem.of(X, side, divergence, None, 4.0)
    direct = solve_diagonal(problem, tol=1e-8)
    monkeypatch.setattr("nearwise.solving.diagonal._DIRECT", 0)
    for features in (X, sparse.csr_array(X)):
        found = solve_diagonal(DiagonalProblem.of(features, side, divergence, None, 4.0), tol=1e-8)
        assert found.status is Status.SOLVED
        assert found.certificate.primal == pytest.approx(direct.certificate.primal, rel=1e-7)


def test_limits_callbacks_and_starts() -> None:
    X, side = data()
    problem = DiagonalProblem.of(X, side, LogDet(), None, 50.0)
    whole = solve_diagonal(problem, tol=1e-9)
    stopped = solve_diagonal(problem, tol=1e-9, max_iter=2)
    assert (stopped.status, stopped.limit, stopped.n_iter) == (Status.LIMIT, "iterations", 2)
    assert stopped.certificate.dual <= whole.certificate.primal <= stopped.certificate.primal
    asked = solve_diagonal(problem, tol=1e-9, callback=lambda record: record.iteration == 2)
    assert asked.status is Status.INTERRUPTED
    again = solve_diagonal(problem, tol=1e-6, start=whole.factor)
    assert again.n_iter <= 2
    assert "DiagonalResult: SOLVED" in repr(whole)
    assert "objective" in whole._repr_html_()
    with pytest.raises(ValueError, match="finite"):
        solve_diagonal(problem.with_penalty(np.inf))


def test_a_gap_that_rounding_may_hide_is_none() -> None:
    """Terms of 1e12 that cancel to about 1 leave a value, and a multiplier's sum, of four digits."""
    X = np.array([[1e6, 1.0], [1e6, 2.0], [-1e6, 1.0]])
    side = c.similarity([(0, 1)], 1.0, "<=") + c.similarity([(0, 2)], 1.0, ">=")
    problem = DiagonalProblem.of(X, side, Frobenius(), penalty=1e-6)
    balanced = np.array([1.0, -1.0])
    values = problem.measurements.values
    for w, y, is_much in ((np.ones(2), balanced, True), (np.array([0.0, 1.0]), 0 * balanced, False)):
        assert (problem.cost_of_rounding(w, values(w), y) > 1e-6) == is_much


def test_a_stiff_system_that_has_no_cholesky_factor_is_no_error() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 100)) * 10.0 ** rng.uniform(-6, 6, 100)
    pairs = np.stack([np.arange(39), np.arange(1, 40)], axis=1)
    squares = np.square(X[1:] - X[:-1]).sum(axis=1)
    problem = DiagonalProblem.of(X, c.equal(pairs, squares * 1.05), Frobenius(), penalty=1e3)
    found = solve_diagonal(problem, max_iter=200)
    assert np.isfinite(found.weights).all()
    assert found.certificate.primal <= found.history[0].primal
