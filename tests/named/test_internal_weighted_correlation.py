"""The two methods of weighted correlations: they agree, and each proves what it yields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise.named import _augmented, _correlation_weights, _interior, _weighted


def invalid(n: int, seed: int = 0) -> np.ndarray:
    """A symmetric matrix with unit diagonal, entries in (-1, 1) and negative eigenvalues."""
    A = np.tanh(np.random.default_rng(seed).normal(size=(n, n)))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def random_weights(n: int, share_of_zeros: float = 0.0, decades: float = 1.0, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    W = np.triu(10 ** rng.uniform(-decades, decades, (n, n)) * (rng.random((n, n)) >= share_of_zeros))
    return W + np.triu(W, 1).T


def by_cvxpy(
    A: np.ndarray, W: np.ndarray, fixed: np.ndarray | None = None, lowest: float = 0.0
) -> tuple[np.ndarray, float]:
    """The matrix and sum W (X - A)^2 by another method."""
    cvxpy = pytest.importorskip("cvxpy")
    n = len(A)
    Y = cvxpy.Variable((n, n), PSD=True)
    X = Y + lowest * np.eye(n)
    conditions = [cvxpy.diag(X) == 1]
    if fixed is not None:
        conditions.append(cvxpy.multiply(fixed.astype(float), X - A) == 0)
    objective = cvxpy.sum_squares(cvxpy.multiply(np.sqrt(W), X - A))
    problem = cvxpy.Problem(cvxpy.Minimize(objective), conditions)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    assert problem.status == "optimal"
    return np.asarray(X.value), float(problem.value)


def assert_is_optimal(
    found: nw.NearestMatrix, A: np.ndarray, W: np.ndarray, lowest: float = 0.0, accuracy: float = 1e-4
) -> None:
    """By definition: S = 2 W (X - A), with a diagonal, is positive semidefinite; <S, X - lowest I> = 0."""
    X, n = found.array, len(A)
    assert found.status is nw.Status.SOLVED
    assert found.certificate.gap <= 1e-8
    assert np.array_equal(X, X.T)
    assert (np.diag(X) == 1).all()
    assert np.linalg.eigvalsh(X)[0] >= lowest - 1e-13 * n
    assert found.certificate.primal == pytest.approx(np.sum(W * (X - A) ** 2), rel=1e-9, abs=1e-30)
    S = 2 * W * (X - A)
    np.fill_diagonal(S, found.dual[:n])
    size = max(np.abs(S).max(), 1e-3 * W.max())
    assert np.linalg.eigvalsh(S)[0] >= -accuracy * size
    assert abs(np.vdot(S, X - lowest * np.eye(n))) <= accuracy * size


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_both_methods_agree(zeros: float, monkeypatch: pytest.MonkeyPatch) -> None:
    A, W = invalid(20), random_weights(20, zeros)
    interior = nw.nearest_correlation(A, weights=W)
    monkeypatch.setattr(_correlation_weights, "_FEW", 0)
    augmented = nw.nearest_correlation(A, weights=W)
    assert (interior.solver, augmented.solver) == ("InteriorPoint", "AugmentedLagrangian")
    for found in (interior, augmented):
        assert_is_optimal(found, A, W)
    assert augmented.certificate.primal == pytest.approx(interior.certificate.primal, rel=1e-7)
    known = W > 0
    assert augmented.matrix[known] == pytest.approx(interior.matrix[known], abs=1e-3)
    monkeypatch.setattr(_correlation_weights, "_PATIENCE", 0)
    taken_over = nw.nearest_correlation(A, weights=W)
    assert taken_over.solver == "InteriorPoint"
    assert np.array_equal(taken_over.matrix, interior.matrix)


def test_any_multiplier_gives_a_bound() -> None:
    rng = np.random.default_rng(0)
    n = 6
    fixed = np.zeros((n, n), bool)
    fixed[0, 1] = fixed[1, 0] = True
    pairs = np.array(np.nonzero(np.triu(~fixed, 1)))
    weights = rng.random(pairs.shape[1]) * (rng.random(pairs.shape[1]) > 0.3)
    assert (weights == 0).any()
    bounds = []
    for _ in range(50):
        B = rng.normal(size=(n, n))
        X = B @ B.T
        X /= np.sqrt(np.outer(np.diag(X), np.diag(X)))
        given = np.where(fixed | np.eye(n, dtype=bool), X, 0.0)
        targets = np.where(weights > 0, rng.normal(size=len(weights)), 0.0)
        problem = _weighted.Weighted(given, fixed, pairs, targets, weights)
        S = 2 * (problem.matrix(targets) - np.diag(np.diag(given)))
        values, V = np.linalg.eigh(-S)
        S = (V * np.maximum(values, 0.0)) @ V.T * rng.random()
        bounds.append(problem.bound(S))
        assert bounds[-1] <= problem.objective(X[tuple(pairs)])
    assert max(bounds) > 0.01


@pytest.mark.parametrize("method", [_interior, _augmented])
def test_a_method_proves_what_it_yields(method: Any) -> None:
    A, W = invalid(8), random_weights(8)
    pairs = np.array(np.nonzero(np.triu(np.ones((8, 8)), 1)))
    weights = W[tuple(pairs)] / W.max()
    problem = _weighted.Weighted(np.eye(8), np.zeros((8, 8), bool), pairs, A[tuple(pairs)], weights)
    optimum = by_cvxpy(A, W)[1] / W.max()
    for count, (point, _) in enumerate(method.points(problem, np.zeros(28))):
        assert point.dual <= optimum * (1 + 1e-8)
        assert point.primal >= optimum * (1 - 1e-8)
        assert np.linalg.eigvalsh(point.matrix)[0] >= -1e-14
        if count == 6:
            break
    assert point.dual > 0.5 * optimum
