"""Hard corners that a solver has to decide: rows that vanish, far bounds, offsets, extreme penalties."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kkt
import nearwise as nw
from nearwise import constraints as c
from nearwise.datasets import Dataset

both = pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann()], ids=["logdet", "von_neumann"])


def centred_kernel() -> np.ndarray:
    G = np.random.default_rng(0).normal(size=(7, 3))
    G -= G.mean(axis=0)
    return np.asarray(G @ G.T)


CENTRING = [(np.outer(u, np.ones(7)) + np.outer(np.ones(7), u)) / 2 for u in np.eye(7)]  # K e = 0


@both
@pytest.mark.parametrize("matrices", [CENTRING, [np.ones((7, 7))]], ids=["K e = 0", "e'K e = 0"])
@pytest.mark.parametrize("relation", ["==", "<=", ">="])
@pytest.mark.parametrize("solver", [None, nw.solvers.CyclicProjections()], ids=["chosen", "projections"])
def test_rows_that_vanish_on_the_range_change_nothing(
    divergence: nw.Divergence, matrices: list[np.ndarray], relation: str, solver: Any
) -> None:
    K0 = centred_kernel()
    problem = nw.Problem.from_kernel(K0, c.linear(matrices, 0.0, relation), divergence, math.inf)
    result = nw.solve(problem, solver)
    assert result.status is nw.Status.SOLVED
    assert result.certificate.primal <= 1e-12
    assert_allclose(result.kernel_factor @ result.kernel_factor.T, K0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_of_few_columns_under_frobenius(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [rng.choice(14, 2, replace=False) for _ in range(49)]
    side = c.at_most(pairs[:25], 0.5) + c.at_least(pairs[25:], 5.0)
    result = nw.solve(nw.Problem(rng.normal(size=(14, 3)), side, nw.Frobenius()))
    assert result.status is nw.Status.SOLVED, result.message


@both
def test_rows_that_vanish_leave_the_others_as_they_are(divergence: nw.Divergence) -> None:
    K0 = centred_kernel()
    side = c.at_most([(0, 1), (2, 3)], 0.5)
    plain = nw.solve(nw.Problem.from_kernel(K0, side, divergence, math.inf), tol=1e-9)
    both_kinds = c.linear(CENTRING, 0.0, "==") + side
    result = nw.solve(nw.Problem.from_kernel(K0, both_kinds, divergence, math.inf), tol=1e-9)
    assert result.status is plain.status is nw.Status.SOLVED
    assert_allclose(result.certificate.primal, plain.certificate.primal, rtol=1e-7)


@pytest.mark.parametrize("prior", [np.diag([1.0, 2.0, 0.0]), np.array([[2.0, 2, 0], [2, 2, 0], [0, 0, 1.0]])])
def test_a_row_outside_the_range_of_a_prior_is_zero(prior: np.ndarray) -> None:
    null = np.linalg.svd(prior)[2][-1]
    x = np.random.default_rng(0).normal(size=3)
    A = (np.outer(x, null) + np.outer(null, x)) / 2
    result = nw.solve(nw.Problem(np.eye(3), c.linear([A], 0.0, "=="), nw.LogDet(), prior, math.inf))
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.matrix, prior, atol=1e-12)
    with pytest.raises(ValueError, match="outside the range of the prior"):
        nw.Problem(np.eye(3), c.linear([A], 1.0, "=="), nw.LogDet(), prior, math.inf)


def test_hard_rows_far_from_the_prior() -> None:
    """The figure is Clarabel's; the rows ask for a hundred times the lengths of the prior."""
    G = np.random.default_rng(0).normal(size=(10, 9))
    rows = c.similarity([(i, i) for i in range(10)], 1.0, "==")
    result = nw.solve(nw.Problem.from_kernel(1e-4 * G @ G.T, rows, penalty=math.inf))
    assert result.status is nw.Status.SOLVED
    assert result.n_iter < 60
    assert_allclose(result.certificate.primal, 7485.036, rtol=1e-6)


@pytest.mark.parametrize("widening", [1e-2, 1e-4, 1e-8, 1e-11])
def test_a_widened_kernel_keeps_what_was_added(widening: float) -> None:
    x = np.arange(1.0, 6.0)
    side = c.at_most([(0, 4)], 4.0) + c.similarity([(1, 3)], 20.0, "==")
    problem = nw.Problem.from_kernel(np.outer(x, x), side, penalty=math.inf, widening=widening)
    assert problem.prior.shape == (5, 5)
    assert np.count_nonzero(np.linalg.eigvalsh(problem.prior) > widening / 2) == 5
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    K = result.kernel_factor @ result.kernel_factor.T
    assert_allclose(K[1, 3], 20.0, rtol=1e-5)
    assert K[0, 0] + K[4, 4] - 2 * K[0, 4] <= 4.0 * (1 + 1e-5)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()])
@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_a_common_offset_of_the_features_changes_nothing(divergence: nw.Divergence, offset: float) -> None:
    rng = np.random.default_rng(0)
    G = rng.integers(-50, 50, size=(12, 4)) / 16.0  # so that an offset can be added without rounding
    pairs = rng.permutation(12)[:10].reshape(5, 2)
    side = (
        c.at_most(pairs[:2], 2.0) + c.at_least(pairs[2:4], 9.0) + c.closer([(0, 1, 2), (3, 4, 5)], margin=1.0)
    )
    plain, moved = (
        nw.solve(nw.Problem(X, side, divergence, penalty=10.0), tol=1e-9) for X in (G, G + offset)
    )
    assert plain.status is moved.status is nw.Status.SOLVED
    assert_allclose(moved.matrix, plain.matrix, rtol=0, atol=1e-7 * np.abs(plain.matrix).max())
    assert_allclose(moved.certificate.violation, plain.certificate.violation, rtol=1e-6)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()])
@pytest.mark.parametrize("hard", [False, True])
def test_penalties_of_very_different_sizes(divergence: nw.Divergence, hard: bool) -> None:
    rng = np.random.default_rng(1)
    G = rng.normal(size=(15, 5))
    pairs = np.array([(i, j) for i in range(15) for j in range(i)])[rng.permutation(105)[:40]]
    side = c.at_most(pairs[:20], 2.0) + c.at_least(pairs[20:], 8.0)
    penalty = 10.0 ** rng.uniform(-12, 12, 40)
    penalty[:2] = math.inf if hard else 1.0
    result = nw.solve(nw.Problem(G, side, divergence, penalty=penalty))
    assert result.status is nw.Status.SOLVED
    assert result.certificate.holds(1e-6)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()])
def test_the_same_problem_in_any_unit(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(2)
    G = rng.normal(size=(9, 4))
    answers = []
    for f in (2.0**-60, 1.0, 2.0**60):
        side = c.at_most([(0, 1), (2, 3)], 0.5 * f**2) + c.at_least([(4, 5), (6, 7)], 12.0 * f**2)
        penalty = 100.0 / f ** (2 * divergence.degree)
        answers.append(nw.solve(nw.Problem(f * G, side, divergence, penalty=penalty), tol=1e-8))
    assert all(answer.status is nw.Status.SOLVED for answer in answers)
    for answer in answers:
        assert_allclose(answer.matrix, answers[1].matrix, rtol=1e-9)


def test_numbers_that_double_precision_cannot_weigh_are_refused_by_name() -> None:
    G = np.random.default_rng(0).normal(size=(4, 2))
    with pytest.raises(ValueError, match=r"row 0: d\(0, 1\) <= 1e-40: its bound is .* times its size"):
        nw.Problem(G, c.at_most([(0, 1)], 1e-40))
    with pytest.raises(ValueError, match=r"with the penalty 1 its slack costs about .* divide the penalty"):
        nw.Problem(1e20 * G, c.at_least([(2, 3)], 2e40), nw.Frobenius(), penalty=1.0)
    with pytest.raises(
        ValueError, match=r"eigenvalues of the prior are about 1e-160, so that Frobenius is out"
    ):
        nw.Problem(G, c.at_most([(0, 1)], 1e-160), nw.Frobenius(), 1e-160 * np.eye(2), penalty=math.inf)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()])
def test_contradictions_between_many_rows_are_proved_and_few_are_named(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(3)
    G = rng.normal(size=(20, 6))
    target = G @ G.T
    pairs = np.array([(i, j) for i in range(20) for j in range(i)])[rng.permutation(190)[:50]]
    d = (
        target[pairs[:, 0], pairs[:, 0]]
        + target[pairs[:, 1], pairs[:, 1]]
        - 2 * target[pairs[:, 0], pairs[:, 1]]
    )
    triangle = c.at_most([(0, 1), (1, 2)], 1.0) + c.at_least([(0, 2)], 4.5)  # a path of 2 is no 2.1
    problem = nw.Problem(G, c.equal(pairs, d) + triangle, divergence, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    assert nw.check_infeasibility(problem, result.dual).valid
    named = np.flatnonzero(result.dual)
    assert len(named) <= 12  # of 53


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-5, 1e-8])
def test_the_nearest_correlation_to_a_small_multiple_of_a_graph_s_kernel(scale: float) -> None:
    """KSD09 6.4: a balanced cut starts from epsilon times the pseudoinverse of a Laplacian."""
    rng = np.random.default_rng(0)
    W = np.triu((rng.random((12, 12)) < 0.4).astype(float), 1)
    W += W.T
    kernel = np.linalg.pinv(np.diag(W.sum(axis=1)) - W)
    result = nw.nearest_correlation(scale * (kernel + kernel.T) / 2, "logdet")
    assert result.status is nw.Status.SOLVED
    assert_allclose(np.diag(result.array), 1.0, rtol=1e-12)
    assert_allclose(result.array @ np.ones(12), 0.0, atol=1e-7)  # the range of the kernel stays


@pytest.mark.slow
def test_few_pairs_of_many_objects_at_a_large_penalty(
    load_dataset: Callable[[str], Dataset],
) -> None:
    """A full kernel of 312 objects, 595 pairs, penalty 100: rows begin with a share that they can bear."""
    data = load_dataset("ionosphere")
    X, y = np.asarray(data.X, dtype=np.float64)[:312], np.asarray(data.y)[:312]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    K = np.exp(-np.square(X[:, None] - X).sum(axis=2) / X.shape[1])
    side = c.from_labels(y, n_pairs=595, random_state=0)
    found = nw.solve(nw.Problem.from_kernel(K, side, penalty=100.0), max_iter=80)
    assert found.status is nw.Status.SOLVED


def test_duplicates_of_a_kernel_fill_no_bounds() -> None:
    """Their distance is a rounding error of the eigenvectors, and the percentiles are of real distances."""
    root = np.array([[1.0, 2.0], [1, 2], [3, -1], [0, 1], [3, -1], [-2, 2], [1, 2]])
    problem = nw.Problem.from_kernel(root @ root.T, c.similar([(0, 2)]) + c.dissimilar([(3, 5)]))
    distances = [float(np.sum((x - y) ** 2)) for i, x in enumerate(root) for y in root[:i]]
    real = [d for d in distances if d > 0]
    assert len(real) < len(distances)
    assert_allclose(problem.bounds, np.percentile(real, [5, 95]), rtol=1e-12)


@both
def test_a_row_that_measures_nothing_has_no_multiplier(divergence: nw.Divergence) -> None:
    G = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    side = c.at_most([(0, 1)], 0.3) + c.at_most([(0, 2)], 0.5) + c.at_least([(2, 3)], 3.0)
    result = nw.solve(nw.Problem(G, side, divergence, penalty=np.array([2.0, np.inf, np.inf])))
    assert result.status is nw.Status.SOLVED
    assert result.dual[0] == 0
    assert np.all(result.dual[1:] != 0)


def test_rows_that_only_a_singular_matrix_meets_contradict_a_definite_one() -> None:
    """d(0, 1) <= d(0, 2) for points on a line at 0, 3 and 1: M would have to be 0."""
    side = c.closer([(0, 1, 2)]) + c.at_most([(0, 2)], 5.0)
    problem = nw.Problem([[0.0], [3.0], [1.0]], side, nw.LogDet(), penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    assert result.n_iter < 30  # of steps that lead nowhere, every tenth is one
    assert nw.check_infeasibility(problem, result.dual).rows == (0,)
    assert not nw.check_infeasibility(problem, np.array([0.0, 1.0])).valid
    assert not nw.check_infeasibility(problem, np.array([-1.0, 0.0])).valid
    zero = nw.solve(nw.Problem([[0.0], [3.0], [1.0]], side, nw.VonNeumann(), penalty=math.inf))
    assert zero.status is nw.Status.SOLVED
    assert zero.matrix[0, 0] <= 1e-6


@pytest.mark.parametrize("ratio", [1e-12, 1e12])
def test_a_projection_onto_a_far_bound_is_exact(ratio: float) -> None:
    """The form (b - p) / p^2 of the multiplier loses the digits of b where it is small beside p, or p is."""
    G = np.array([[0.0, 0.0], [1.0, 2.0]])
    problem = nw.Problem(G, c.equal([(0, 1)], 5.0 * ratio), penalty=math.inf)
    for solver in (nw.solvers.CyclicProjections(), None):
        result = nw.solve(problem, solver)
        assert result.status is nw.Status.SOLVED
        assert problem.values(result.matrix)[0] == pytest.approx(
            5.0 * ratio, rel=1e-6 if solver is None else 1e-13
        )


def test_bounds_beyond_double_precision_are_refused_and_huge_penalties_are_not() -> None:
    G = np.array([[0.0, 0.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="its bound is 1e"):
        nw.Problem(G, c.equal([(0, 1)], 5e100), penalty=math.inf)
    soft = nw.Problem(G, c.at_most([(0, 1)], 1.0), penalty=1e18)
    result = nw.solve(soft)
    assert result.status is nw.Status.SOLVED
    assert soft.values(result.matrix)[0] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_what_rounding_hides_of_a_value_is_not_taken_for_an_optimum(seed: int) -> None:
    G, penalty = (1e8 + np.random.default_rng(seed).normal(size=(2, 2))) * [[1, 1], [1, -1]], 1e-3
    open_bound = nw.Problem(G, c.similarity([(0, 1)], 0.0, "=="), nw.Frobenius(), penalty=penalty)
    seen = float(open_bound.values(np.eye(2))[0])
    result = nw.solve(nw.Problem(G, c.similarity([(0, 1)], seen, "=="), nw.Frobenius(), penalty=penalty))
    g, h = (np.array([Fraction(float(x)) for x in row]) for row in G)
    B = np.array([[Fraction(float(x)) for x in row] for row in result.factor])
    assert penalty * float(g @ h - Fraction(seen)) ** 2 > 1e-5  # what rounding hides at the prior
    loss = penalty * float((g @ B) @ (h @ B) - Fraction(seen)) ** 2
    assert result.status is not nw.Status.SOLVED or loss <= 1e-6


@pytest.mark.long
@pytest.mark.parametrize("far", [False, True], ids=["from the prior", "from far away"])
def test_many_pairs_of_a_smooth_kernel_at_a_large_penalty(far: bool) -> None:
    """360 curves of 15 classes under an RBF kernel: hundreds of short steps at the whole penalty."""
    rng = np.random.default_rng(1)
    y = np.arange(360) % 15
    waves = [np.sin(k * np.pi * np.linspace(0, 1, 45)) / k for k in range(1, 5)]
    X = ((rng.normal(size=(15, 2, 4))[y] + rng.normal(size=(360, 2, 4))) @ np.array(waves)).reshape(360, 90)
    K = np.exp(-0.3 / (90 * X.var()) * np.square(X[:, None] - X).sum(axis=2))
    values, V = np.linalg.eigh(K)
    G = V[:, -55:] * np.sqrt(values[-55:])
    problem = nw.Problem(G, c.from_labels(y, G, draw="local", random_state=0), penalty=100.0)
    start = np.diag(10.0 ** rng.uniform(-1, 1, 55)) if far else None
    result = nw.solve(problem, nw.solvers.Newton(), max_iter=150, start=start)
    assert result.status is nw.Status.SOLVED, result.message


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
@pytest.mark.parametrize("penalty", [1e3, 1e8, 1e13])
def test_stiff_rows_that_cannot_all_be_met_are_solved_in_few_steps(
    divergence: nw.Divergence, penalty: float
) -> None:
    """Their multipliers are as large as the penalty, and so are those to start from."""
    G = np.random.default_rng(4).normal(size=(8, 3))
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    side = c.at_most(pairs, 0.01) + c.at_least(pairs, 50.0) + c.closer([(0, 2, 1), (1, 0, 2)], 3.0)
    problem = nw.Problem(G, side, divergence, penalty=penalty)
    result = nw.solve(problem, nw.solvers.InteriorPoint())
    assert result.status is nw.Status.SOLVED
    assert result.n_iter <= 25
    dense = kkt.written_out(problem)
    assert result.certificate.primal == pytest.approx(dense.objective(result.matrix), rel=1e-7)
    slopes = dense.loss_slopes(dense.values(result.matrix))
    assert result.dual == pytest.approx(slopes, rel=1e-2, abs=1e-2 * np.abs(slopes).max())


def test_rows_whose_matrices_are_indefinite_are_no_contradictions_by_themselves() -> None:
    side = c.similarity([(0, 1)], -3.0, "<=") + c.similarity([(2, 3)], 4.0, ">=")
    feasible = nw.solve(nw.Problem(np.eye(4), side, penalty=math.inf))
    assert feasible.status is nw.Status.SOLVED
    side = side + c.linear([-np.diag([1.0, 2.0, 0.0, 0.0])], [1.0], ">=")
    problem = nw.Problem(np.eye(4), side, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    assert np.flatnonzero(result.dual).tolist() == [2]
    assert nw.check_infeasibility(problem, result.dual).valid


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
def test_a_proof_far_from_the_origin_has_the_three_rows_that_it_needs(divergence: nw.Divergence) -> None:
    """Two lengths that differ, of objects far from the origin that are to be next to each other."""
    G = np.random.default_rng(0).normal(size=(8, 4)) + 1e7 * np.array([1.0, -0.5, 0.3, 0.8])
    length = np.einsum("ij,ij->i", G, G)
    side = c.similarity([(0, 0)], 1.2 * length[0], ">=") + c.similarity([(1, 1)], 0.8 * length[1], "<=")
    side = side + c.at_most([(0, 1), (2, 3), (4, 5)], 1.0) + c.at_least([(6, 7)], 2.0)
    problem = nw.Problem(G, side, divergence, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    assert np.flatnonzero(result.dual).tolist() == [0, 1, 2]
    assert nw.check_infeasibility(problem, result.dual).valid
