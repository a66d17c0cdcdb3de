"""Divided differences and values of spectra, which solvers share."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import expm, expm_frechet, logm
from scipy.special import xlogy

from cases import ThreeHalves
from nearwise import Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.model.divergences import divided_differences, spectral_value


class MinusRoot(SpectralDivergence):
    """A user's divergence, phi(x) = -4 x^0.5: needs range(X) inside range(Y), and raises warnings at 0."""

    degree = 0.5

    def scalar(self, x, y):
        a, b = np.sqrt(x), np.sqrt(y)
        return np.where(a == b, 0.0, 2 * (a - b) ** 2 / b)

    def gradient(self, x):
        return -2 / np.sqrt(x)

    def gradient_inverse(self, t):
        return np.where(t < 0, 4 / np.square(t), np.inf)

    def curvature(self, x):
        return np.power(x, -1.5)


PHI = {
    LogDet(): lambda x: -np.log(x),
    VonNeumann(): lambda x: x * np.log(x) - x,
    Frobenius(): np.square,
    ThreeHalves(): lambda x: x**1.5,
    MinusRoot(): lambda x: -4 * np.sqrt(x),
}


every_divergence = pytest.mark.parametrize("divergence", PHI, ids=lambda d: type(d).__name__)


def positive_definite(rng: np.random.Generator, n: int) -> np.ndarray:
    A = rng.normal(size=(n, n))
    return A @ A.T / n + 0.1 * np.eye(n)


def power(A: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(A)
    return (vectors * np.maximum(values, 0) ** exponent) @ vectors.T


def by_definition(divergence: SpectralDivergence, X: np.ndarray, Y: np.ndarray) -> float:
    """Formulas (1) and (2) of KSD09, and phi(X) - phi(Y) - tr(phi'(Y) (X - Y)) for the others."""
    if isinstance(divergence, LogDet):
        ratio = np.linalg.solve(Y, X)
        return np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(X)
    if isinstance(divergence, VonNeumann):
        entropy = np.sum(xlogy(*[np.maximum(np.linalg.eigvalsh(X), 0)] * 2))  # tr(X log X), X may be singular
        return entropy - np.trace(X @ logm(Y)) - np.trace(X) + np.trace(Y) if len(X) else 0.0
    if isinstance(divergence, Frobenius):
        return np.linalg.norm(X - Y) ** 2
    exponent, factor = {1.5: (0.5, 1.0), 0.5: (-0.5, -4.0)}[divergence.degree]
    phi = [factor * np.trace(power(A, divergence.degree)) for A in (X, Y)]
    return phi[0] - phi[1] - factor * divergence.degree * np.trace(power(Y, exponent) @ (X - Y))


@every_divergence
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_value_of_spectra_is_the_definition(divergence, n):
    rng = np.random.default_rng(n)
    X, Y = positive_definite(rng, n), positive_definite(rng, n)
    (x, V), (y, U) = np.linalg.eigh(X), np.linalg.eigh(Y)
    assert_allclose(spectral_value(divergence, x, V, y, U), by_definition(divergence, X, Y), rtol=1e-10)


@every_divergence
def test_divided_differences_are_symmetric_and_at_least_zero(divergence):
    rng = np.random.default_rng(12)
    t = divergence.gradient(np.r_[rng.uniform(0.1, 3, 20), 1.0, 1.0, 1.0 + 1e-15, 1.0 + 1e-9, 1.0 + 1e-5])
    table = divided_differences(divergence, t)
    assert table.shape == (25, 25)
    assert np.all(table >= 0)
    assert_allclose(table, table.T, rtol=1e-15)
    assert_allclose(np.diag(table), divergence.gradient_inverse_slope(t), rtol=1e-15)
    g, (a, b) = divergence.gradient_inverse(t), np.ix_(t, t)
    apart = np.abs(a - b) > 1e-2
    quotient = ((g[:, None] - g)[apart]) / (a - b)[apart]
    assert_allclose(table[apart], quotient, rtol=1e-9)


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()])
@pytest.mark.parametrize("center", [-1e-3, -0.7, -1.0, -40.0])
def test_divided_differences_of_coalescing_points(divergence, center):
    steps = np.r_[0.0, np.geomspace(1e-16, 0.5, 150)]
    t = center * (1 + steps) if isinstance(divergence, LogDet) else center + steps
    table = divided_differences(divergence, t)
    with localcontext() as context:
        context.prec = 80
        for i in range(0, len(t), 5):
            for j in range(0, len(t), 7):
                a, b = Decimal(t[i]), Decimal(t[j])
                if isinstance(divergence, LogDet):
                    expected = 1 / (a * b)
                else:
                    expected = (a.exp() - b.exp()) / (a - b) if a != b else a.exp()
                assert abs(Decimal(table[i, j]) - expected) <= Decimal("1e-10") * expected, (t[i], t[j])


def test_divided_differences_at_the_kink_and_at_infinity():
    t = np.array([-2.0, -1e-30, 1e-30, 1.0])
    expected = [[0, 0, 0, 1 / 6], [0, 0, 0.25, 0.5], [0, 0.25, 0.5, 0.5], [1 / 6, 0.5, 0.5, 0.5]]
    assert_allclose(divided_differences(Frobenius(), t), expected, rtol=1e-14, atol=1e-29)
    assert_allclose(divided_differences(LogDet(), np.array([-1.0, 0.5])), [[1, np.inf], [np.inf, np.inf]])
    assert_allclose(divided_differences(VonNeumann(), np.array([-1000.0, 0.0])), [[0, 1e-3], [1e-3, 1]])


def test_divided_differences_are_the_derivative_of_the_matrix_exponential():
    rng = np.random.default_rng(13)
    T, E = (A + A.T for A in rng.normal(size=(2, 5, 5)))
    t, V = np.linalg.eigh(T)
    derivative = V @ (divided_differences(VonNeumann(), t) * (V.T @ E @ V)) @ V.T
    assert_allclose(derivative, expm_frechet(T, E, compute_expm=False), rtol=1e-9, atol=1e-9)
    assert_allclose(V @ np.diag(VonNeumann().gradient_inverse(t)) @ V.T, expm(T), rtol=1e-9, atol=1e-12)


def test_spectral_value_drops_infinite_terms_only_where_the_overlap_is_exactly_zero():
    x, y = np.array([0.0, 2.0]), np.array([0.0, 1.0])
    assert_allclose(spectral_value(LogDet(), x, np.eye(2), y, np.eye(2)), 1 - np.log(2))
    turn = np.array([[np.cos(1e-9), -np.sin(1e-9)], [np.sin(1e-9), np.cos(1e-9)]])
    assert spectral_value(LogDet(), x, turn, y, np.eye(2)) == np.inf
