"""Weights of features: bound as definitions say, and solved as matrices in blocks of one column are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nearwise import constraints as c
from nearwise.core.diagonal import DiagonalProblem, bind_weights
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.core.iterates import Iterate
from nearwise.core.problem import Problem
from nearwise.methods import diagonal
from nearwise.methods.diagonal import solve_diagonal
from nearwise.methods.result import Status
from nearwise.methods.solve import solve
from own_phi import ThreeHalves

LAWS: list[SpectralDivergence] = [LogDet(), VonNeumann(), Frobenius(), ThreeHalves()]


def data(seed: int = 0, d: int = 5) -> tuple[np.ndarray, c.Constraints]:
    """Every kind of row that names objects."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, d)) * (rng.random((20, d)) < 0.8)
    pairs = np.stack(np.triu_indices(20, 1), axis=1)[rng.permutation(190)[:30]]
    side = c.at_most(pairs[:12], 3.0) + c.at_least(pairs[12:20], 14.0) + c.equal(pairs[20:23], 6.0)
    triplets = [tuple(rng.permutation(20)[:3]) for _ in range(6)]
    return X, side + c.closer(triplets, 0.5) + c.similarity([(1, 2), (3, 3)], [0.1, 2.0], "<=")


def solved(problem: DiagonalProblem, tol: float = 1e-8, **options: Any) -> Any:
    found = solve_diagonal(problem, tol, **options)
    assert found.status is Status.SOLVED
    return found


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("penalty", [0.3, 300.0])
def test_weights_are_a_matrix_in_blocks_of_one_column(law: SpectralDivergence, penalty: float) -> None:
    X, side = data()
    A = np.random.default_rng(4).normal(size=(20, 20))
    side = side + c.linear([A + A.T, np.eye(20)], 1.0, "<=")
    w0 = np.array([1.0, 0.5, 2.0, 1.0, 0.7])
    problem = DiagonalProblem.of(X, side, law, w0, penalty)
    blocks = Problem(X, side, law, np.diag(w0), penalty, groups=np.arange(5))
    assert problem.penalty_unit == pytest.approx(blocks.penalty_unit)
    np.testing.assert_allclose(problem.formulation.loss.sizes, blocks.formulation.loss.sizes)
    found, expected = solved(problem), solve(blocks, tol=1e-8)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-7)
    np.testing.assert_allclose(found.weights, expected.matrix.diagonal(), atol=1e-3)
    judged = blocks.certificate(np.diag(found.weights), found.dual)
    assert judged.gap <= 2e-8
    assert judged.violation == pytest.approx(found.certificate.violation, rel=1e-6)
    assert [v.row for v in judged.worst[:3]] == [v.row for v in found.certificate.worst[:3]]


@pytest.mark.parametrize("reference", [np.ones(9), np.array([0.0, 2.0, 1.0, 0.0, 3.0, 0.1, 1.0, 5.0, 1.0])])
def test_sparse_rows_are_the_dense_ones(reference: np.ndarray) -> None:
    X, side = data(d=9)
    X[:, 6] = 0.0
    dense = bind_weights(X, side, reference)
    thin = bind_weights(sparse.csr_array(X), side, reference)
    assert set(dense.columns) == set(np.flatnonzero(reference))
    assert set(thin.columns) == set(dense.columns) - {6}
    whole = np.zeros((2, len(side), 9))
    for k, found in enumerate((dense, thin)):
        entries = found.rows.entries
        whole[k][:, found.columns] = entries.toarray() if sparse.issparse(entries) else entries
    np.testing.assert_allclose(whole[1], whole[0], atol=1e-15)
    np.testing.assert_allclose(thin.sizes, dense.sizes)
    assert np.array_equal(thin.is_definite, dense.is_definite)
    i, j = np.asarray(side.blocks[0].ids).T
    np.testing.assert_allclose(whole[0][:12][:, reference > 0], ((X[i] - X[j]) ** 2)[:, reference > 0])


def test_no_constraints_leave_the_prior() -> None:
    for X in (np.ones((3, 4)), sparse.csr_array((3, 1_000_000))):
        found = solved(DiagonalProblem.of(X, c.Constraints(), LogDet()))
        assert (found.weights == 1.0).all()
        assert found.certificate.primal == found.n_iter - 1 == 0


def test_any_multipliers_bound_the_optimum() -> None:
    X, side = data()
    problem = DiagonalProblem.of(X, side, LogDet(), None, 2.0)
    best, rng = solved(problem, 1e-10).certificate, np.random.default_rng(0)
    for _ in range(20):
        w, y = rng.uniform(0.1, 2.0, 5), rng.normal(size=len(side)) * 0.05
        found = problem.formulation.certify(Iterate(w, y)).certificate
        assert found.dual <= best.primal + 1e-9
        assert found.primal >= best.dual - 1e-9


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_conjugate_gradients_and_both_factors_solve_the_same(
    law: SpectralDivergence, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, side = data(d=30)
    X = np.hstack([X, np.zeros((20, 100))])  # sparse data in few columns are made dense
    direct = solved(DiagonalProblem.of(X, side, law, None, 4.0))
    monkeypatch.setattr(diagonal, "FACTORED", 0)
    for features in (X, sparse.csr_array(X)):
        found = solved(DiagonalProblem.of(features, side, law, None, 4.0))
        assert found.certificate.primal == pytest.approx(direct.certificate.primal, rel=1e-7)
    rng = np.random.default_rng(0)
    for shape in ((4, 9), (9, 4)):
        A, curvatures = rng.normal(size=shape), rng.random(shape[0])
        phi, gradient = rng.random(shape[1]) + 0.5, rng.normal(size=shape[1])
        phi[1], gradient[1], curvatures[2] = np.inf, 0.0, 0.0
        H = np.diag(np.where(np.isinf(phi), 1.0, phi)) + (A.T * curvatures) @ A
        kept = np.arange(shape[1]) != 1
        expected = np.zeros(shape[1])
        expected[kept] = np.linalg.solve(H[np.ix_(kept, kept)], -gradient[kept])
        for limit in (0, 1000):
            monkeypatch.setattr(diagonal, "FACTORED", limit)
            for entries in (A, sparse.csr_array(A)):
                step = diagonal._newton_step(entries, curvatures, phi, gradient, 1e-12)
                np.testing.assert_allclose(step, expected, rtol=1e-9, atol=1e-12)


def test_limits_callbacks_and_starts() -> None:
    X, side = data()
    problem = DiagonalProblem.of(X, side, LogDet(), None, 50.0)
    whole = solved(problem, 1e-9)
    stopped = solve_diagonal(problem, tol=1e-9, max_iter=2)
    assert (stopped.status, stopped.limit, stopped.n_iter) == (Status.LIMIT, "iterations", 2)
    assert stopped.certificate.dual <= whole.certificate.primal <= stopped.certificate.primal
    asked = solve_diagonal(problem, tol=1e-9, callback=lambda record: record.iteration == 2)
    assert asked.status is Status.INTERRUPTED
    assert solved(problem, 1e-6, start=whole.factor).n_iter <= 2
    assert "DiagonalResult: SOLVED" in repr(whole)
    assert "objective" in whole._repr_html_()
    with pytest.raises(ValueError, match="finite"):
        solve_diagonal(problem.with_penalty(np.inf))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_a_start_at_zero_is_left(law: SpectralDivergence) -> None:
    X, side = data()
    problem = DiagonalProblem.of(X, side, law, None, 2.0)
    whole = solved(problem)
    again = solved(problem, start=np.array([0.0, 1.0, 0.0, 1.0, 0.0]))
    np.testing.assert_allclose(again.weights, whole.weights, atol=1e-3)


def test_weights_of_zero() -> None:
    X, _ = data()
    w0 = np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    far = c.at_least([(0, 1), (2, 3)], 100.0)
    for law in LAWS:
        assert (solved(DiagonalProblem.of(X, far, law, w0, 9.0)).weights[1] == 0.0) == law.confines
    X, negative = np.array([[1.0, 0.0], [1.0, 0.0]]), c.similarity([(0, 1)], -1.0, "<=")
    assert solved(DiagonalProblem.of(X, negative, Frobenius(), None, 9.0)).weights.tolist() == [0.0, 1.0]


def test_few_weights_far_from_the_prior_are_found_as_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    X, side = data()
    for law in LAWS:
        problem = DiagonalProblem.of(X, side, law, None, 1e3)
        whole = solved(problem)
        with monkeypatch.context() as patched:
            patched.setattr(diagonal, "PATIENCE", 1)
            found = solved(problem)
        assert found.certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-7)
        with monkeypatch.context() as patched:
            patched.setattr(diagonal, "PATIENCE", 1)
            patched.setattr(diagonal, "WRITTEN_OUT", 0)  # then shares of the penalty lead there
            found = solved(problem)
        assert found.certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-7)


def test_a_gap_that_rounding_may_hide_is_none() -> None:
    """Terms of 1e12 that cancel to about 1 leave a value, and a sum over multipliers, of four digits."""
    X = np.array([[1e6, 1.0], [1e6, 2.0], [-1e6, 1.0]])
    side = c.similarity([(0, 1)], 1.0, "<=") + c.similarity([(0, 2)], 1.0, ">=")
    form = DiagonalProblem.of(X, side, Frobenius(), penalty=1e-6).formulation
    balanced = np.array([1.0, -1.0])
    assert form.cost_of_rounding(np.ones(2), balanced) > 1e-6
    assert form.cost_of_rounding(np.array([0.0, 1.0]), 0 * balanced) <= 1e-6


@pytest.mark.parametrize("is_sparse", [False, True])
def test_large_terms_that_cancel_are_judged_in_twice_the_precision(is_sparse: bool) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8, 4)) + 1e7
    side = c.similarity([(0, 1), (2, 3)], [float((X[0] * X[1]).sum()) * 0.9, 1e14], "<=")
    problem = DiagonalProblem.of(sparse.csr_array(X) if is_sparse else X, side, VonNeumann(), None, 1e-28)
    assert problem.in_blocks is not None
    assert solve_diagonal(problem).status is Status.SOLVED


def test_rows_that_no_weights_can_meet() -> None:
    X = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 3.0]])
    side = c.at_least([(0, 1), (0, 2)], 2.0)
    for features in (X, sparse.csr_array(X)):
        assert DiagonalProblem.unreachable(features, side, None).tolist() == [True, False]
        assert DiagonalProblem.unreachable(features, side, np.array([1.0, 0.0])).all()
        with pytest.warns(UserWarning, match="same features, or the prior has no weight"):
            found = solved(DiagonalProblem.of(features, side, LogDet(), None, 1.0))
        assert found.dual[0] == 0.0


def test_linear_functions_of_sparse_data_are_refused() -> None:
    with pytest.raises(TypeError, match="linear constraints need dense data"):
        DiagonalProblem.of(sparse.csr_array(np.eye(3)), c.linear([np.eye(3)], 1.0, "<="), LogDet())


def test_a_stiff_problem_in_columns_of_very_different_units_is_no_error() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 100)) * 10.0 ** rng.uniform(-6, 6, 100)
    pairs = np.stack([np.arange(39), np.arange(1, 40)], axis=1)
    squares = np.square(X[1:] - X[:-1]).sum(axis=1)
    problem = DiagonalProblem.of(X, c.equal(pairs, squares * 1.05), Frobenius(), penalty=1e3)
    found = solve_diagonal(problem, max_iter=200)
    assert np.isfinite(found.weights).all()
    assert found.certificate.primal <= found.history[0].primal
