"""The system D + omega * A^T A(omega * D) = R against dense matrices, for all rows and preconditioners."""

from __future__ import annotations

import numpy as np
import pytest

from crossing import crossed
from nearwise.linalg import gaussian
from nearwise.linalg.gaussian import RowVectors, gaussian_solution

ORDERS = (1, 2, 8, 13, 16)


def symmetric(order: int, seed: int) -> np.ndarray:
    D = np.random.default_rng(seed).normal(size=(order, order))
    return D + D.T


def vectors(order: int, m: int, squares: bool, several: bool, dtype: type = float):
    """Rows, and their matrices (m, r, r)."""
    rng = np.random.default_rng(m)
    row = np.sort(np.concatenate([np.arange(m), rng.integers(m, size=m // 2)])) if several else None
    count = m if row is None else len(row)
    x = rng.normal(size=(count, order))
    y = x if squares else rng.normal(size=(count, order))
    scale = rng.normal(size=count)
    A = np.zeros((m, order, order))
    products = scale[:, None, None] * (x[:, :, None] * y[:, None, :] + y[:, :, None] * x[:, None, :]) / 2
    np.add.at(A, np.arange(m) if row is None else row, products)
    left = x.astype(dtype)
    return RowVectors.of(left, left if squares else y.astype(dtype), scale, row), A


def weights(order: int) -> np.ndarray:
    return np.exp(symmetric(order, 5) / 3)


def product(A: np.ndarray, omega: np.ndarray | None, D: np.ndarray) -> np.ndarray:
    omega = np.ones_like(D) if omega is None else omega
    inside = np.einsum("kij,ij->k", A, omega * D)
    return D + omega * np.einsum("k,kij->ij", inside, A)


@crossed(
    order=ORDERS,
    squares=(True, False),
    several=(False, True),
    dtype=(np.float64, np.float32),
    block=(1, 1 << 17),
)
def test_products_with_the_rows(
    monkeypatch: pytest.MonkeyPatch, order: int, squares: bool, several: bool, dtype: type, block: int
) -> None:
    monkeypatch.setattr(gaussian, "BLOCK", block)
    rows, A = vectors(order, 40, squares, several, dtype)
    D = symmetric(order, 2)
    expected = product(A, None, D) - D
    near = 1e-11 if dtype is np.float64 else 1e-4
    found = rows.squared(D)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=near * np.abs(expected).max())
    np.testing.assert_array_equal(found, found.T)


@crossed(
    order=ORDERS,
    squares=(True, False),
    several=(False, True),
    weighted=(False, True),
    m=(5, 300),
    inner=("model", "entries"),
)
def test_solutions_to_all_digits(
    monkeypatch: pytest.MonkeyPatch,
    order: int,
    squares: bool,
    several: bool,
    weighted: bool,
    m: int,
    inner: str,
) -> None:
    monkeypatch.setattr(gaussian, "OVERHEAD", -1e12 if inner == "model" else 1e12)
    monkeypatch.setattr(gaussian, "MOST_STEPS", 2000)  # few rows are not at all Gaussian
    rows, A = vectors(order, m, squares, several)
    omega, R = weights(order) if weighted else None, symmetric(order, 3)
    D = gaussian_solution(rows, omega, R, 1e-10)
    np.testing.assert_allclose(product(A, omega, D), R, atol=1e-6 * np.abs(R).max())
    np.testing.assert_allclose(D, D.T, atol=1e-12)


def test_gaussian_rows_take_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the preconditioner is for: entries alone take 200 with weights."""
    order, m = 13, 5000
    rng = np.random.default_rng(0)
    spread = np.linalg.qr(rng.normal(size=(order, order)))[0] * np.geomspace(1, 30, order)
    count = 0

    def counted(self: RowVectors, D: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        return squared(self, D)

    squared = RowVectors.squared
    monkeypatch.setattr(RowVectors, "squared", counted)
    for omega in (None, weights(order)):
        count = 0
        x = rng.normal(size=(m, order)) @ spread.T
        gaussian_solution(RowVectors.of(x, x, np.ones(m), None), omega, symmetric(order, 1), 1e-3)
        assert count <= 16


@pytest.mark.parametrize("several", [False, True])
def test_drawn_rows_have_about_the_same_moments(several: bool) -> None:
    rows, _ = vectors(3, 20_000, True, several)
    for found, expected in zip(rows.drawn(4000).moments(None), rows.moments(None), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.3)
    assert len(rows.drawn(4000).x) < 0.3 * len(rows.x)
    assert rows.drawn(20_000) is rows


def test_moments_by_their_definition() -> None:
    rows, A = vectors(4, 50, False, True)
    diagonals = np.einsum("kii->ki", A)
    off, block = rows.moments(None)
    np.testing.assert_allclose(block, diagonals.T @ diagonals, rtol=1e-10)
    np.testing.assert_allclose(off, off.T)
    Q = np.linalg.qr(symmetric(4, 1))[0]
    turned = np.einsum("kii->ki", Q.T @ A @ Q)
    np.testing.assert_allclose(rows.moments(Q)[1], turned.T @ turned, rtol=1e-10, atol=1e-10)
