"""Semidefinite programs: agreement with cvxpy, bounds by their definition, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c


def symmetric(m: int, d: int, seed: int) -> np.ndarray:
    C = np.random.default_rng(seed).normal(size=(m, d, d))
    return (C + C.swapaxes(1, 2)) / 2


@pytest.mark.parametrize(
    ("m", "d", "seed"),
    # the last one needs problems of higher accuracy
    [(1, 3, 1), (2, 3, 2), (6, 5, 6), (10, 12, 10), (20, 8, 20), (23, 2, 1029)],
)
def test_minimax_against_cvxpy(m: int, d: int, seed: int) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    C = symmetric(m, d, seed)
    W, theta = cvxpy.Variable((d, d), PSD=True), cvxpy.Variable()
    conditions = [cvxpy.trace(W) == 1, *(cvxpy.trace(W @ each) <= theta for each in C)]
    expected = cvxpy.Problem(cvxpy.Minimize(theta), conditions).solve(solver="CLARABEL")
    found = nw.minimax_sdp(C)
    size = np.abs(np.linalg.eigvalsh(C)).max()
    assert found.status is nw.Status.SOLVED
    assert found.certificate.primal == pytest.approx(expected, abs=1e-5 * size)
    assert found.certificate.dual == pytest.approx(expected, abs=1e-5 * size)
    assert np.trace(found.matrix) == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-14
    assert np.einsum("jab,ab->j", C, found.matrix).max() == pytest.approx(found.certificate.primal, abs=1e-12)
    assert found.dual.sum() == pytest.approx(1.0)
    assert found.dual.min() >= 0
    lowest = np.linalg.eigvalsh(np.tensordot(found.dual, C, axes=1))[0]
    assert lowest == pytest.approx(found.certificate.dual, abs=1e-12)


def test_minimax_on_diagonal_matrices_is_a_matrix_game() -> None:
    """Rock, paper, scissors: value 0, everything mixed evenly."""
    game = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]], float)
    found = nw.minimax_sdp([np.diag(row) for row in game])
    assert found.certificate.primal == pytest.approx(0.0, abs=1e-5)
    assert np.diag(found.matrix) == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert found.dual == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert "optimum between" in repr(found)


def test_minimax_ignores_scale_and_antisymmetric_parts() -> None:
    C = symmetric(4, 4, seed=0)
    twisted = C + np.triu(np.ones((4, 4)), 1) - np.tril(np.ones((4, 4)), -1)
    plain, scaled = nw.minimax_sdp(twisted), nw.minimax_sdp(1e6 * C)
    assert scaled.certificate.primal == pytest.approx(1e6 * plain.certificate.primal, rel=1e-4)
    assert nw.minimax_sdp(np.zeros((2, 3, 3))).certificate.primal == 0.0


def max_cut(n: int) -> tuple[np.ndarray, nw.constraints.Constraints]:
    """The Goemans-Williamson program of a random graph: minimise -tr(L X) with X_ii = 1."""
    A = np.triu(np.random.default_rng(0).random((n, n)) < 0.5, 1).astype(float)
    A = A + A.T
    return A - np.diag(A.sum(axis=1)), c.similarity([(i, i) for i in range(n)], 1.0, "==")


def test_logdet_sdp_finds_the_value_of_cvxpy_from_an_indefinite_cost() -> None:
    cvxpy = pytest.importorskip("cvxpy")
    cost, side = max_cut(10)
    X = cvxpy.Variable((10, 10), PSD=True)
    expected = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(cost @ X)), [cvxpy.diag(X) == 1]).solve(
        solver="CLARABEL"
    )
    found = nw.logdet_sdp(cost, side, gamma=1e-5)
    assert found.status is nw.Status.SOLVED
    assert found.certificate.dual - 1e-6 <= expected <= found.certificate.primal + 1e-6
    assert found.certificate.primal - found.certificate.dual == pytest.approx(10 * 1e-5, rel=0.2)
    assert np.diag(found.matrix) == pytest.approx(1.0, abs=1e-6)
    slack = cost + np.diag(found.dual)
    assert np.linalg.eigvalsh(slack)[0] >= -1e-9
    assert found.certificate.dual == pytest.approx(-found.dual.sum())


def test_logdet_sdp_meets_the_optimality_condition_of_jkdd12_24() -> None:
    rng = np.random.default_rng(0)
    B = rng.normal(size=(5, 5))
    cost = B @ B.T + np.eye(5)
    A = np.array([np.outer(z, z) for z in rng.normal(size=(3, 5))])
    side = c.linear(A[:2], 0.7, ">=") + c.linear(A[2], 0.4, "<=")
    gamma = 0.05
    found = nw.logdet_sdp(cost, side, gamma=gamma, tol=1e-9)
    gradient = cost - gamma * np.linalg.inv(found.matrix) + np.tensordot(found.dual, A, axes=1)
    assert gradient == pytest.approx(np.zeros((5, 5)), abs=1e-5)
    assert (found.dual[:2] <= 0).all()
    assert found.dual[2] >= 0
    values = np.einsum("jab,ab->j", A, found.matrix)
    assert (values[:2] >= 0.7 * (1 - 1e-6)).all()
    assert values[2] <= 0.4 * (1 + 1e-6)
    assert found.certificate.dual < found.certificate.primal


def test_logdet_sdp_reports_contradictions() -> None:
    side = c.linear(np.eye(2), 1.0, "<=") + c.linear(np.eye(2), 2.0, ">=")
    found = nw.logdet_sdp(np.eye(2), side)
    assert found.status is nw.Status.INFEASIBLE
    assert found.certificate.dual == -np.inf


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: nw.minimax_sdp(np.zeros((0, 2, 2))), "at least one"),
        (lambda: nw.minimax_sdp(np.zeros((2, 2))), "3-dimensional"),
        (lambda: nw.minimax_sdp(np.zeros((1, 2, 2)), tol=0), "tol must be"),
        (lambda: nw.logdet_sdp(np.eye(2), c.linear(np.eye(2), 1.0, "=="), gamma=-1), "gamma must be"),
        (lambda: nw.logdet_sdp(-np.eye(2), c.linear(np.eye(2), 1.0, "<=")), "eigenvalue -1"),
        (lambda: nw.logdet_sdp([[1, 2], [3, 4]], c.linear(np.eye(2), 1.0, "==")), "symmetric"),
    ],
)
def test_what_is_refused(call: object, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        call()  # type: ignore[operator]
