"""Rows as solvers use them: as signed squares, in another basis, in single precision and in blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose

import cases
import kkt
from nearwise import constraints as c
from nearwise.model import measurements as bound_rows
from nearwise.model.grouped import by_groups
from nearwise.model.measurements import InMemory, bind

N, R = 7, 4


def sample(
    kind: str, seed: int = 0, r: int = R, basis: np.ndarray | None = None
) -> tuple[InMemory, np.ndarray, np.random.Generator]:
    """Measurements of one kind of constraint, beside the same as dense r x r matrices."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(N, r))
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, r) @ G.T)
    A = np.array([G.T @ row.matrix @ G for row in kkt.rows_of(side, N)])
    return bind(side.resolve(N), G, basis), A, rng


def symmetric(rng: np.random.Generator, r: int) -> np.ndarray:
    X = rng.normal(size=(r, r))
    return X + X.T


every_kind = pytest.mark.parametrize("kind", cases.KINDS)


seeds = st.integers(0, 2**32 - 1)


@every_kind
def test_signed_squares_add_up_to_the_dense_matrices(kind: str) -> None:
    measurements, A, _ = sample(kind)
    squares, F = measurements.squares, measurements.features
    x = F[squares.first] + squares.sign[:, None] * F[squares.second]
    assert set(squares.sign) <= {-1.0, 0.0, 1.0}
    assert len(squares.start) == len(A) + 1
    assert squares.start[-1] == len(x)
    for row, (low, high) in enumerate(zip(squares.start, squares.start[1:], strict=False)):
        total = (x[low:high].T * squares.coefficient[low:high]) @ x[low:high]
        assert_allclose(total, A[row], rtol=1e-10, atol=1e-10)


@every_kind
def test_gram_matrix_is_that_of_the_dense_matrices(kind: str) -> None:
    measurements, A, rng = sample(kind)
    rows = np.sort(rng.permutation(len(A))[: max(1, len(A) - 1)])
    gram = measurements.local(rows, np.eye(R), np.float64).gram()
    assert_allclose(gram, np.einsum("iab,jab->ij", A[rows], A[rows]), rtol=1e-10, atol=1e-10)


@every_kind
@given(seed=seeds)
@settings(max_examples=10)
def test_adjoint_identity(kind: str, seed: int) -> None:
    measurements, A, rng = sample(kind, seed)
    M, weights = symmetric(rng, R), rng.normal(size=len(A))
    left, right = measurements.values(M) @ weights, np.sum(M * measurements.adjoint(weights))
    size = np.abs(M).max() * np.abs(weights) @ np.abs(A).sum(axis=(1, 2))
    assert abs(left - right) <= 1e-13 * size


@every_kind
@given(seed=seeds)
@settings(max_examples=10)
def test_values_of_a_factor_are_values_of_its_product(kind: str, seed: int) -> None:
    measurements, _, rng = sample(kind, seed)
    for columns in (R, 2, R + 3):
        B = rng.normal(size=(R, columns))
        expected = measurements.values(B @ B.T)
        assert_allclose(measurements.values_of_factor(B), expected, rtol=1e-9, atol=1e-10)


@every_kind
def test_local_atoms_are_the_rows_in_another_basis(kind: str) -> None:
    measurements, A, rng = sample(kind)
    basis, D = rng.normal(size=(R, R)), symmetric(rng, R)
    rows = np.flatnonzero(rng.random(len(A)) < 0.6)
    if len(rows) == 0:
        rows = np.array([len(A) - 1])
    local = measurements.local(rows, basis, np.float64)
    inside = np.array([basis.T @ A[k] @ basis for k in rows])
    weights = rng.normal(size=len(rows))
    assert local.n_rows == len(rows)
    assert_allclose(local.values(D), np.einsum("kij,ij->k", inside, D), rtol=1e-9, atol=1e-9)
    assert_allclose(local.adjoint(weights), np.einsum("k,kij->ij", weights, inside), rtol=1e-9, atol=1e-9)
    assert_allclose(local.diagonals(), np.einsum("kii->ki", inside), rtol=1e-9, atol=1e-9)
    single = measurements.local(rows, basis, np.float32)
    assert single.x.dtype == np.float32
    scale = np.abs(inside).max() * np.abs(D).max() * R**2
    assert_allclose(single.values(D.astype(np.float32)), local.values(D), rtol=0, atol=1e-5 * scale)


@every_kind
def test_spanning_rows_span_every_constraint(kind: str) -> None:
    measurements, A, _ = sample(kind, r=9)
    rows = measurements.spanning_rows()
    onto = np.linalg.pinv(rows) @ rows
    assert_allclose(np.einsum("kij,jl->kil", A, onto), A, atol=1e-10)


def test_few_pairs_span_few_dimensions() -> None:
    G = np.random.default_rng(1).normal(size=(50, 20))
    rows = bind(c.at_most([(0, 1), (0, 2), (7, 9)], 1.0).resolve(50), G).spanning_rows()
    assert len(rows) == 3
    differences = np.array([G[0] - G[1], G[0] - G[2], G[7] - G[9]])
    assert np.linalg.matrix_rank(np.concatenate([rows, differences])) == 3


def test_sizes_of_a_matrix_in_blocks_are_those_of_all_blocks_together() -> None:
    rng = np.random.default_rng(3)
    G, groups = rng.normal(size=(5, 4)), np.array([0, 0, 1, 1])
    blocks = [G[:, groups == group] @ G[:, groups == group].T for group in (0, 1)]
    A = rng.normal(size=(5, 5))
    A = A + A.T
    side = (
        c.similarity([(0, 1), (1, 0), (2, 2)], 1.0, "<=") + c.at_most([(3, 4)], 1.0) + c.linear(A, 1.0, "<=")
    )
    inner = sum(np.sqrt(K[0, 0] * K[1, 1]) for K in blocks)
    K = sum(blocks)
    inside = [np.linalg.eigvalsh(F.T @ A @ F) for F in (G[:, :2], G[:, 2:])]
    whole = np.abs(np.concatenate(inside)).sum()
    expected = [inner, inner, K[2, 2], K[3, 3] + K[4, 4] - 2 * K[3, 4], whole]
    split = by_groups(bind(side.resolve(5), G), groups)
    assert_allclose(split.sizes(np.ones(4)), expected, rtol=1e-10)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("n", [60, 3_000], ids=["few objects", "many objects"])
def test_the_sum_is_the_same_in_whatever_way_it_is_made(
    n: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As squares or over the graph, of weights of both signs of which some are zero."""
    monkeypatch.setattr(bound_rows, "_COMPILED", 1000 if compiled else 10**9)
    measurements, Z, weights = _weighed_pairs(n)
    expected = Z.T @ (weights[:, None] * Z)
    atol = 1e-13 * np.abs(Z.T @ (np.abs(weights[:, None]) * Z)).max()
    assert_allclose(measurements.adjoint(weights), expected, rtol=0, atol=atol)
    weights[7] = np.nan
    assert np.isnan(measurements.adjoint(weights)).all()


@pytest.mark.parametrize("n", [60, 3_000], ids=["few objects", "many objects"])
def test_single_precision_measures_the_same_roughly(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_rows, "_COMPILED", 1000)
    measurements, Z, weights = _weighed_pairs(n)
    rough = measurements.in_single_precision()
    assert rough is not None
    B = np.random.default_rng(2).normal(size=(8, 8))
    values, total = rough.values_of_factor(B), rough.adjoint(weights)
    assert values.dtype == total.dtype == np.float64
    assert_allclose(values, np.sum((Z @ B) ** 2, axis=1), rtol=1e-4)
    size = np.abs(Z.T @ (np.abs(weights[:, None]) * Z)).max()
    assert_allclose(total, Z.T @ (weights[:, None] * Z), rtol=0, atol=1e-5 * size)
    assert not np.array_equal(total, measurements.adjoint(weights))


def test_single_precision_is_refused_where_too_few_digits_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one half lie far from those of the other, and pairs within a half near each other."""
    monkeypatch.setattr(bound_rows, "_COMPILED", 1000)
    rng = np.random.default_rng(3)
    near = rng.normal(size=(400, 8))
    far = near + np.where(np.arange(400) < 200, 0.0, 1e5)[:, None]
    pairs = rng.integers(0, 200, (30_000, 2)) + 200 * rng.integers(0, 2, (30_000, 1))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    assert bind(c.at_most(pairs, 1.0).resolve(400), near).in_single_precision() is not None
    assert bind(c.at_most(pairs, 1.0).resolve(400), far).in_single_precision() is None
    products = c.similarity(pairs, 1.0, "<=")
    assert bind(products.resolve(400), near).in_single_precision() is None


def _weighed_pairs(n: int) -> tuple[InMemory, np.ndarray, np.ndarray]:
    """4,000 pairs with 8 features, their differences written out, and a weight for each."""
    rng = np.random.default_rng(0)
    G, first = rng.normal(size=(n, 8)), rng.integers(0, n, 4_000)
    pairs = np.column_stack([first, (first + rng.integers(1, n, 4_000)) % n])
    weights = rng.normal(size=4_000) * (rng.random(4_000) < 0.7)
    return bind(c.at_most(pairs, 1.0).resolve(n), G), G[pairs[:, 0]] - G[pairs[:, 1]], weights
