"""Eigenvalues with relative accuracy, compared with those of the same entries in 60 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from nearwise.linalg.eigenpairs import eigenpairs

mp = mpmath.MPContext()
mp.dps = 60


def spread(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    Q = np.linalg.qr(rng.normal(size=2 * (len(values),)))[0]
    A = (Q * values) @ Q.T
    return np.asarray((A + A.T) / 2)


def graded(rng: np.random.Generator, r: int) -> np.ndarray:
    units = 10.0 ** np.linspace(-2.5, 2.5, r)
    return np.asarray(units[:, None] * spread(rng, np.linspace(0.2, 1.0, r)) * units)


CASES = {
    "wide": lambda rng: spread(rng, 10.0 ** -np.linspace(0, 11.9, 9)),
    "two clusters": lambda rng: spread(rng, np.repeat([1e-11, 1.0], 4)),
    "graded": lambda rng: graded(rng, 8),
    "graded and tiny": lambda rng: 2.0**-250 * graded(rng, 8),
    "alike": lambda rng: spread(rng, np.linspace(0.5, 1.0, 6)),
    "one": lambda rng: np.array([[3.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_small_eigenvalues_are_exact_relatively(name: str) -> None:
    A = CASES[name](np.random.default_rng(0))
    values, V = eigenpairs(A)
    scale = 2.0 ** np.round(np.log2(np.abs(A).max()))
    exact = mp.eigsy(mp.matrix((A / scale).tolist()), eigvals_only=True)
    for found, true in zip(values / scale, sorted(exact), strict=True):
        assert abs(found / true - 1) <= 1e-13
    assert np.abs(V.T @ V - np.eye(len(A))).max() <= 1e-14
    assert np.abs(V @ np.diag(values) @ V.T - A).max() <= 1e-14 * np.abs(A).max()


@pytest.mark.parametrize("name", ["wide", "two clusters", "graded"])
def test_the_matrix_itself_is_met_in_all_directions(name: str) -> None:
    """L^-1 (V diag(values) V^T) L^-T for A = L L^T is the identity, which is what LogDet feels."""
    A = CASES[name](np.random.default_rng(0))
    values, V = eigenpairs(A)
    inverse = mp.inverse(mp.cholesky(mp.matrix(A.tolist())))
    root = inverse * mp.matrix(V.tolist()) * mp.diag([mp.sqrt(x) for x in values])
    product = root * root.T
    difference = [abs(product[i, j] - (i == j)) for i in range(len(A)) for j in range(len(A))]
    assert max(difference) <= 1e-9
    w, U = np.linalg.eigh(A)
    assert name == "graded" or np.abs(w / values - 1).max() > 1e-8, "eigh is exact enough without"
    assert np.abs(np.abs(np.sum(U * V, axis=0))[-1] - 1) <= 1e-12


def test_a_singular_matrix_has_zeros_far_below_rounding() -> None:
    C = np.random.default_rng(0).integers(-3, 4, size=(9, 4)).astype(float)
    values, V = eigenpairs(C @ C.T)
    assert np.abs(values[:5]).max() <= 1e-26 * values[-1]
    assert np.abs(C.T @ V[:, :5]).max() <= 1e-14 * np.sqrt(values[-1])


def test_zero_and_large_matrices_are_those_of_numpy() -> None:
    for A in (np.zeros((3, 3)), spread(np.random.default_rng(0), np.linspace(0.0, 1.0, 210))):
        values, V = eigenpairs(A)
        w, U = np.linalg.eigh(A)
        assert np.array_equal(values, w)
        assert np.array_equal(V, U)
