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


def test_minimax_ignores_scale() -> None:
    C = symmetric(4, 4, seed=0)
    plain, scaled = nw.minimax_sdp(C), nw.minimax_sdp(1e6 * C)
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


@pytest.mark.parametrize("penalty", [np.inf, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_the_interval_of_logdet_sdp_holds_the_optimum(seed: int, penalty: float) -> None:
    """Random programs with rows of every kind, at the default gamma; half of the costs are indefinite."""
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(3, 7)), int(rng.integers(2, 7))
    cost = symmetric(1, d, seed)[0]
    if seed % 2 or penalty < np.inf:
        cost = cost @ cost + 0.1 * np.eye(d)
    inner = rng.normal(size=(d, d))
    inner = inner @ inner.T / d + 0.1 * np.eye(d)
    A = np.concatenate([symmetric(m, d, 100 + seed), np.eye(d)[None]])
    room = np.array([(0.3, -0.3, 0.0)[k % 3] for k in range(m)] + [1.0])
    b = np.einsum("jab,ab->j", A, inner) + room
    relations = [("<=", ">=", "==")[k % 3] for k in range(m)] + ["<="]
    side = nw.constraints.Constraints()
    X, slack = cvxpy.Variable((d, d), PSD=True), cvxpy.Variable(m + 1, nonneg=True)
    conditions = [] if penalty < np.inf else [slack == 0]
    for k, relation in enumerate(relations):
        side = side + c.linear(A[k], b[k], relation)
        value = cvxpy.trace(A[k] @ X) - b[k]
        conditions += [value <= slack[k]] * (relation != ">=") + [-value <= slack[k]] * (relation != "<=")
    price = cvxpy.sum(slack) * min(penalty, 1.0)
    expected = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(cost @ X) + price), conditions).solve(
        solver="CLARABEL"
    )
    found = nw.logdet_sdp(cost, side, penalty=penalty)
    certificate, rounding = found.certificate, 1e-6 * max(1.0, abs(expected))
    assert found.status is nw.Status.SOLVED
    assert certificate.dual - rounding <= expected <= certificate.primal + rounding
    assert certificate.primal - certificate.dual <= 1.01 * d * 1e-3 + rounding
    assert np.linalg.eigvalsh(cost + np.tensordot(found.dual, A, axes=1))[0] > 0


def test_a_singular_cost_with_a_bounded_trace_is_well_posed() -> None:
    """diag(1, 0, 0) and tr W <= 1: gamma / W_ii = C_ii + y, with the trace at its bound."""
    found = nw.logdet_sdp(np.diag([1.0, 0.0, 0.0]), c.linear(np.eye(3), 1.0, "<="), gamma=0.1)
    assert found.status is nw.Status.SOLVED
    y = found.dual[0]
    np.testing.assert_allclose(np.diag(found.matrix), 0.1 / np.array([1 + y, y, y]), rtol=1e-6)
    assert np.trace(found.matrix) == pytest.approx(1.0, abs=1e-5)
    assert found.certificate.dual <= 0.0 <= found.certificate.primal


def test_relevant_components_are_a_program_without_cost() -> None:
    """RCA in JKDD12 5.3: the largest determinant with tr(A W) = b is W = b / d A^-1."""
    A = np.diag([1.0, 2.0, 4.0])
    found = nw.logdet_sdp(np.zeros((3, 3)), c.linear(A, 6.0, "=="))
    assert found.status is nw.Status.SOLVED
    np.testing.assert_allclose(found.matrix, 2.0 * np.linalg.inv(A), rtol=1e-6, atol=1e-12)
    assert found.certificate.dual <= 0.0 <= found.certificate.primal


@pytest.mark.parametrize("d", [1, 2])
def test_equalities_that_follow_from_others_change_nothing(d: int) -> None:
    """Six symmetric matrices of order 1 or 2 are dependent; all agree with W = 2 I, and the optimum is 0."""
    A, first = symmetric(6, d, 57), np.eye(d)
    side = c.linear(first, 2.0 * d, "==")
    for row in A:
        side = side + c.linear(row, 2.0 * np.trace(row), "==")
    found = nw.logdet_sdp(np.zeros((d, d)), side)
    assert found.status is nw.Status.SOLVED
    assert found.certificate.dual <= 0.0 <= found.certificate.primal
    np.testing.assert_allclose(found.matrix, 2.0 * np.eye(d), atol=1e-5)


def test_a_lower_bound_that_rounding_may_have_made_is_none() -> None:
    """Multipliers that grow where nothing holds them back prove nothing once they are all rounding."""
    side = c.linear(np.eye(2), 1.0, "<=") + c.linear(np.eye(2), 1.0, ">=")
    found = nw.logdet_sdp(np.diag([1.0, 3.0]), side)
    rounding = np.finfo(float).eps * np.abs(found.dual).sum()
    assert found.certificate.dual <= min(1.0, -float(found.dual @ [1.0, 1.0]) - rounding)


@pytest.mark.parametrize("unit", [1e-100, 1e20, 1e100])
def test_the_unit_of_a_program_does_not_matter(unit: float) -> None:
    side = c.linear(np.eye(2), 1.0, "<=") + c.linear(np.diag([1.0, 0.0]), 0.2, ">=")
    plain = nw.logdet_sdp(np.diag([-1.0, 3.0]), side)
    other = nw.logdet_sdp(unit * np.diag([-1.0, 3.0]), side, gamma=unit * 1e-3)
    assert other.status is nw.Status.SOLVED
    np.testing.assert_allclose(other.matrix, plain.matrix, rtol=1e-5, atol=1e-9)


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
        (lambda: nw.logdet_sdp(-np.eye(2), c.linear(np.eye(2), 1.0, ">=")), "eigenvalue -1"),
        (lambda: nw.logdet_sdp(-np.eye(2), c.linear(np.eye(2), 1.0, "<="), penalty=0.5), "eigenvalue -1"),
        (lambda: nw.logdet_sdp(np.eye(2), c.linear(np.eye(2), 1.0, "=="), penalty=0), "penalty must be"),
        (lambda: nw.logdet_sdp([[1, 2], [3, 4]], c.linear(np.eye(2), 1.0, "==")), "symmetric"),
    ],
)
def test_what_is_refused(call: object, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        call()  # type: ignore[operator]
