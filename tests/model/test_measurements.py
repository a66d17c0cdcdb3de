"""What constraints measure, M -> <A_i, M>, its adjoint and sizes, against matrices written out densely.

A problem shows the values, the bound that multipliers give shows their sum of matrices, and the cost of a
soft row shows its size.
"""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import expm, logm

import cases
import kkt
import nearwise as nw
from nearwise import constraints as c
from nearwise.constraints import Constraints

N, R = 7, 4


def sample(
    kind: str,
    divergence: nw.Divergence | None = None,
    seed: int = 0,
    r: int = R,
    rank: int | None = None,
    penalty: float = math.inf,
) -> tuple[nw.Problem, np.ndarray, np.ndarray, np.random.Generator]:
    """A problem with one kind of constraint, the same as dense r x r matrices, and its prior."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(N, r))
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, r) @ G.T)
    A = np.array([G.T @ row.matrix @ G for row in kkt.rows_of(side, N)])
    prior = np.eye(r) if rank is None else cases.positive_definite(rng, r, rank)
    return nw.Problem(G, side, divergence, prior, penalty), A, prior, rng


def symmetric(rng: np.random.Generator, r: int) -> np.ndarray:
    X = rng.normal(size=(r, r))
    return X + X.T


def multipliers(rng: np.random.Generator, relations: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Of the right signs, some of them 0, and so small that the bound that they give is finite."""
    y = rng.normal(size=len(A)) * (rng.random(len(A)) < 0.8)
    y = np.where(relations == 0, y, -np.abs(y) * relations)
    norm = np.linalg.norm(np.einsum("k,kij->ij", y, A), 2)
    return y * 0.3 / max(norm, 1e-300)


def bound_by_definition(problem: nw.Problem, prior: np.ndarray, S: np.ndarray, y: np.ndarray) -> float:
    """min_M D(M, M0) + <S, M> - y'b on the range of the prior, for S = sum_i y_i A_i."""
    P = kkt.range_basis(prior, problem.divergence)
    M0, S = P.T @ prior @ P, P.T @ S @ P
    name = type(problem.divergence).__name__
    if name == "LogDet":
        least = np.linalg.slogdet(np.eye(len(M0)) + M0 @ S)[1]
    elif name == "VonNeumann":
        least = np.trace(M0) - np.trace(expm(np.real(logm(M0)) - S))
    else:
        M = kkt.spectral(lambda x: np.maximum(x, 0), M0 - S / 2)
        least = np.sum((M - M0) ** 2) + np.sum(S * M)
    return float(least - y @ problem.bounds)


every_kind = pytest.mark.parametrize("kind", cases.KINDS)
every_divergence = pytest.mark.parametrize(
    "divergence", cases.DIVERGENCES, ids=lambda divergence: type(divergence).__name__
)
seeds = st.integers(0, 2**32 - 1)


@every_kind
@pytest.mark.parametrize("r", [1, 4, 9])
def test_values_are_those_of_the_dense_matrices(kind: str, r: int) -> None:
    problem, A, _, rng = sample(kind, r=r)
    for M in (symmetric(rng, r), cases.positive_definite(rng, r, max(r - 2, 1))):
        assert_allclose(problem.values(M), np.einsum("kij,ij->k", A, M), rtol=1e-10, atol=1e-10)


@every_kind
@every_divergence
@pytest.mark.parametrize(("r", "rank"), [(1, None), (4, None), (9, None), (4, 4), (4, 2)])
def test_multipliers_prove_what_the_sum_of_the_dense_matrices_does(
    kind: str, divergence: nw.Divergence, r: int, rank: int | None
) -> None:
    problem, A, prior, rng = sample(kind, divergence, r=r, rank=rank)
    for _ in range(3):
        y = multipliers(rng, np.asarray(problem.relations), A)
        expected = bound_by_definition(problem, prior, np.einsum("k,kij->ij", y, A), y)
        size = 1e-9 * (np.abs(y) @ np.abs(problem.bounds) + np.trace(prior))
        assert problem.certificate(prior, y).dual == pytest.approx(expected, rel=1e-9, abs=size)


@every_kind
@given(seed=seeds)
@settings(max_examples=10)
def test_each_multiplier_moves_the_bound_by_its_row(kind: str, seed: int) -> None:
    """The derivative of the bound in y_i is <A_i, M> - b_i at the M that attains it."""
    problem, A, prior, rng = sample(kind, nw.Frobenius(), seed)
    y = multipliers(rng, np.asarray(problem.relations), A)
    M = prior - np.einsum("k,kij->ij", y, A) / 2
    for row in np.flatnonzero(y):
        ends = []
        for share in (-0.5, 0.5):
            moved = y.copy()
            moved[row] *= 1 + share
            ends.append(problem.certificate(prior, moved).dual)
        slope = (ends[1] - ends[0]) / y[row]  # exact: the bound is quadratic here
        size = 1e-10 * (1 + (np.abs(y) @ np.abs(problem.bounds) + len(M)) / abs(y[row]))
        expected = np.sum(A[row] * M) - problem.bounds[row]
        assert slope == pytest.approx(expected, rel=1e-9, abs=size)


def test_values_do_not_cancel() -> None:
    """Two objects far from the origin and close together: products of entries would lose every digit."""
    G = np.array([[1e9, 0.0], [1e9 + 1.0, 0.0]])
    problem = nw.Problem(G, c.at_most([(0, 1)], 0.5), penalty=math.inf)
    assert_allclose(problem.values(np.eye(2)), [1.0], rtol=1e-12)
    assert problem.certificate(np.eye(2), [0.0]).violation == pytest.approx(1.0, rel=1e-12)


# --- sizes: what the cost of a soft row is relative to ------------------------------------------------------


def size_of(problem: nw.Problem, M0: np.ndarray) -> float:
    """Of the only row, where the prior violates it by much and its cost is (p - b)^2 / (2 size)."""
    return float((problem.values(M0)[0] - problem.bounds[0]) ** 2 / (2 * problem.objective(M0)))


def test_sizes_are_those_of_the_parts() -> None:
    rng = np.random.default_rng(2)
    G, diagonal = rng.normal(size=(5, 3)), rng.uniform(0.1, 2.0, 3)
    K = (G * diagonal) @ G.T
    A = symmetric(rng, 5)
    root = np.sqrt(diagonal)[:, None] * G.T

    def d(i: int, j: int) -> float:
        return K[i, i] + K[j, j] - 2 * K[i, j]

    expected = {
        c.similarity([(0, 3)], -50.0, "<="): np.sqrt(K[0, 0] * K[3, 3]),
        c.similarity([(2, 1)], 50.0, "=="): np.sqrt(K[2, 2] * K[1, 1]),
        c.closer([(0, 1, 2, 3)], 50.0): d(0, 1) + d(2, 3),
        c.closer([(0, 1, 4)], 50.0): d(0, 1) + d(0, 4),
        c.linear(A, -50.0, "<="): np.abs(np.linalg.eigvalsh(root @ A @ root.T)).sum(),
        c.linear(A @ A, -50.0, "<="): np.trace(root @ A @ A @ root.T),
    }
    for side, size in expected.items():
        problem = nw.Problem(G, side, nw.VonNeumann(), np.diag(diagonal))
        assert size_of(problem, np.diag(diagonal)) == pytest.approx(size, rel=1e-12)


def test_sizes_of_a_matrix_in_blocks_are_those_of_the_whole() -> None:
    """So that the cost of a row does not depend on the blocks, where its value does not."""
    rng = np.random.default_rng(3)
    G, groups = rng.normal(size=(5, 4)), np.array([0, 0, 1, 1])
    A, K = symmetric(rng, 5), G @ G.T
    expected = {
        c.similarity([(0, 1)], -50.0, "<="): np.sqrt(K[0, 0] * K[1, 1]),
        c.similarity([(1, 0)], 50.0, ">="): np.sqrt(K[0, 0] * K[1, 1]),
        c.closer([(2, 0, 3, 4)], 50.0): np.sum((G[2] - G[0]) ** 2) + np.sum((G[3] - G[4]) ** 2),
        c.linear(A, -50.0, "<="): np.abs(np.linalg.eigvalsh(G.T @ A @ G)).sum(),
    }
    for side, size in expected.items():
        problem = nw.Problem(G, side, nw.VonNeumann(), groups=groups)
        assert size_of(problem, np.eye(4)) == pytest.approx(size, rel=1e-10)


def test_definite_rows_have_the_slack_of_the_papers() -> None:
    """p log(p / b) - p + b under von Neumann, where others cost (p - b)^2 / (2 size)."""
    A = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    part = np.eye(3)[:, :2]
    definite = {
        c.at_least([(0, 1)], 50.0): True,
        c.similarity([(0, 0)], 50.0, ">="): True,
        c.similarity([(0, 1)], 50.0, ">="): False,
        c.linear(A, 50.0, ">="): True,
        c.linear(-A, 50.0, ">="): False,
        c.linear(np.diag([1.0, -1.0, 0.0]), 50.0, ">="): False,
        c.linear(sparse.csr_array(A), 50.0, ">="): True,
        c.linear((part, np.array([1.0, 2.0])), 50.0, ">="): True,
        c.linear((part, np.array([1.0, -2.0])), 50.0, ">="): False,
    }
    for side, is_definite in definite.items():
        problem = nw.Problem(np.eye(3), side, nw.VonNeumann())
        p, b = problem.values(np.eye(3))[0], 50.0
        slack = p * math.log(p / b) - p + b if p > 0 else math.nan
        assert bool(np.isclose(problem.objective(np.eye(3)), slack, rtol=1e-12)) == is_definite


# --- matrices, however they are stored and joined -----------------------------------------------------------


def test_dense_sparse_and_low_rank_matrices_measure_the_same() -> None:
    rng = np.random.default_rng(4)
    U, weights = rng.normal(size=(5, 2)), np.array([1.5, -0.5])
    A = U @ np.diag(weights) @ U.T
    part = (np.array([4, 0, 2]), A[np.ix_([4, 0, 2], [4, 0, 2])])
    embedded = np.zeros((5, 5))
    embedded[np.ix_(part[0], part[0])] = part[1]
    side = (
        c.linear([A, sparse.csr_array(A), (U, weights), embedded, sparse.coo_array(embedded)], 0.0, "<=")
        + c.linear(part[1], 0.0, "<=", ids=part[0])
        + c.linear(sparse.csr_array(part[1]), 0.0, "<=", ids=part[0])
    )
    for r in (2, 6):
        G = rng.normal(size=(5, r))
        M = cases.positive_definite(rng, r)
        K = G @ M @ G.T
        values = nw.Problem(G, side).values(M)
        assert_allclose(values, [np.sum(A * K)] * 3 + [np.sum(embedded * K)] * 4, rtol=1e-10)


def test_matrices_in_blocks_of_their_own_are_those_of_one_block() -> None:
    rng = np.random.default_rng(5)
    n = 7
    U = rng.normal(size=(n, 2))
    few = np.zeros((n, n))
    few[1:3, 1:3] = [[2.0, 1.0], [1.0, -1.0]]
    full = rng.normal(size=(n, n))
    weights = np.array([1.0, 2.0])
    dense = [full + full.T, few, (U * weights) @ U.T, U @ U.T, -few]
    matrices: list[Any] = [*dense[:2], (U, weights), *map(sparse.csr_array, dense[3:])]
    others = c.at_most([(0, 1)], 1.0) + c.similarity([(2, 3)], 0.5, "<=")
    apart = others
    for A in matrices:
        apart = apart + c.linear(A, 30.0, ">=") + c.closer([(0, 1, 2)])
    of_matrices = [2 + 2 * k for k in range(len(matrices))]
    together = c.linear(matrices, 30.0, ">=")
    for r in (2, 4):
        G, M = rng.normal(size=(n, r)), cases.positive_definite(rng, r)
        K = G @ M @ G.T
        one, many = (nw.Problem(G, side, nw.VonNeumann()) for side in (together, apart))
        expected = [np.sum(A * K) for A in dense]
        assert_allclose(one.values(M), expected, rtol=1e-10)
        assert_allclose(many.values(M)[of_matrices], expected, rtol=1e-10)
        for problem in (one, many):  # with the right sizes, and what is definite
            assert_allclose(problem.objective(M), kkt.written_out(problem).objective(M), rtol=1e-10)


def test_a_large_sparse_matrix_is_never_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    n, rng = 300, np.random.default_rng(6)
    G, M = rng.normal(size=(n, 3)), cases.positive_definite(rng, 3)
    few = sparse.coo_array(([1.0, 1.0, 3.0], ([5, 250, 7], [250, 5, 7])), shape=(n, n))
    many = sparse.diags_array(np.linspace(-1.0, 2.0, n))
    whole = [few.toarray(), many.toarray()]
    written = sparse.csr_array.toarray
    shapes: list[tuple[int, ...]] = [(0, 0)]

    def toarray(self: Any) -> np.ndarray:
        shapes.append(self.shape)
        return np.asarray(written(self))

    side = c.linear([few, many], 1.0, "<=")
    monkeypatch.setattr(sparse.csr_array, "toarray", toarray)
    problem = nw.Problem(G, side)
    assert_allclose(problem.values(M), [np.sum(A * (G @ M @ G.T)) for A in whole], rtol=1e-10)
    assert nw.solve(problem).status is nw.Status.SOLVED
    assert max(max(shape) for shape in shapes) <= 3


def test_without_constraints_there_is_nothing_to_measure() -> None:
    problem = nw.Problem(np.ones((3, 2)), Constraints())
    assert problem.values(np.eye(2)).shape == (0,)
    M = np.diag([2.0, 1.0])
    assert problem.objective(M) == pytest.approx(nw.LogDet().value(M, np.eye(2)), rel=1e-14)
    assert problem.certificate(np.eye(2), np.empty(0)).dual == 0.0


# --- many rows ----------------------------------------------------------------------------------------------

Many = tuple[nw.Problem, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def many() -> Many:
    """400,000 pairs of 2,000 objects with 40 features: enough for the compiled loops."""
    rng = np.random.default_rng(0)
    n, r, m = 2_000, 40, 400_000
    G = rng.normal(size=(n, r))
    first = rng.integers(0, n, m)
    pairs = np.column_stack([first, (first + rng.integers(1, n, m)) % n])
    B = rng.normal(size=(r, r)) / np.sqrt(r)
    return nw.Problem(G, c.equal(pairs, 1.0), nw.Frobenius(), penalty=math.inf), pairs, B @ B.T


@pytest.mark.long
def test_many_pairs_are_measured_like_few(many: Many) -> None:
    problem, pairs, M = many
    G, rng = np.asarray(problem.features), np.random.default_rng(1)
    y = rng.normal(size=len(pairs)) * (rng.random(len(pairs)) < 0.7) * 1e-5
    values, S = [], np.zeros((40, 40))
    for (i, j), w in zip(np.split(pairs.T, 8, axis=1), np.split(y, 8), strict=True):  # 50,000 at a time
        Z = G[i] - G[j]
        values.append(np.sum(Z @ M * Z, axis=1))
        S += Z.T @ (w[:, None] * Z)
    expected = np.concatenate(values)
    assert_allclose(problem.values(M), expected, rtol=1e-7)
    found = problem.certificate(M, y)
    assert_allclose(found.violation, np.max(np.abs(expected - 1.0)), rtol=1e-10)
    assert_allclose(found.dual, bound_by_definition(problem, np.eye(40), S, y), rtol=1e-10)
    alone = problem.certificate(np.eye(40), y)
    assert_allclose(alone.dual, found.dual, rtol=1e-10)


@pytest.mark.parametrize("n", [60, 3_000], ids=["few objects", "many objects"])
@pytest.mark.parametrize("count", [4_000, 130_000])
def test_the_sum_is_the_same_in_whatever_way_it_is_made(n: int, count: int) -> None:
    """As squares or over the graph, compiled or not; multipliers of both signs, some of them zero."""
    rng = np.random.default_rng(0)
    G, first = rng.normal(size=(n, 8)), rng.integers(0, n, count)
    pairs = np.column_stack([first, (first + rng.integers(1, n, count)) % n])
    y = rng.normal(size=count) * (rng.random(count) < 0.7)
    Z = G[pairs[:, 0]] - G[pairs[:, 1]]
    y /= np.linalg.norm(Z.T @ (y[:, None] * Z), 2)
    problem = nw.Problem(G, c.equal(pairs, 1.0), penalty=math.inf)
    size = np.linalg.norm(Z.T @ (np.abs(y[:, None]) * Z), 2) + np.abs(y).sum()
    for share in (0.5, -0.5, 1e-3):
        expected = bound_by_definition(problem, np.eye(8), share * Z.T @ (y[:, None] * Z), share * y)
        found = problem.certificate(np.eye(8), share * y).dual
        assert found == pytest.approx(expected, rel=0, abs=1e-12 * size)


def test_products_and_differences_of_few_objects_are_summed_together() -> None:
    rng = np.random.default_rng(0)
    G, first, y = rng.normal(size=(60, 10)), rng.integers(0, 60, 3500), rng.normal(size=3500)
    pairs = np.column_stack([first, (first + rng.integers(1, 60, 3500)) % 60])
    side = c.similarity(pairs[:3000], 1.0, "==") + c.equal(pairs[3000:], 1.0)
    x, z = G[pairs.T]
    x[3000:] -= z[3000:]
    z[3000:] = x[3000:]
    S = x.T @ (y[:, None] * z)
    S = (S + S.T) / 2
    y, S = y / np.linalg.norm(S, 2), S / np.linalg.norm(S, 2)
    problem = nw.Problem(G, side, nw.Frobenius(), penalty=math.inf)
    expected = bound_by_definition(problem, np.eye(10), S, y)
    found = problem.certificate(np.eye(10), y).dual
    assert found == pytest.approx(expected, rel=0, abs=1e-12 * np.abs(y).sum())


def test_many_pairs_need_no_array_of_pairs_by_features(many: Many) -> None:
    problem, pairs, M = many
    y = np.full(len(pairs), 1e-9)
    problem.certificate(M, y)  # compiles the loops and builds the graph
    tracemalloc.start()
    problem.certificate(M, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(pairs) * 40 * 8 / 4
