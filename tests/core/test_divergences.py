"""What solvers ask of a divergence, against dense definitions and finite differences, also in extremes.

Values for users and the functions of numbers are tested in tests/model/test_divergences.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearwise.core.charts import FactorChart, SpectralChart
from nearwise.core.divergences import Divergence, Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.linalg.packing import packing
from own_phi import OWN, Burg, Hyperbola, Logistic, MinusRoot, Mixed, Shannon, ThreeHalves

PHI = {
    LogDet: lambda x: -np.log(x),
    VonNeumann: lambda x: x * np.log(np.where(x > 0, x, 1.0)) - x,
    Frobenius: np.square,
    **{type(phi): phi.phi for phi in OWN},
}
EVERY = (LogDet(), VonNeumann(), Frobenius(), *OWN)
STOPPING = (Frobenius(), ThreeHalves(), Shannon(), Hyperbola())  # with phi'(0) finite
ALL_POSITIVE = [d for d in EVERY if type(d) is not Logistic]  # the domain of which ends at 9


def every(*divergences):
    return pytest.mark.parametrize("divergence", divergences, ids=lambda d: type(d).__name__)


def orthonormal(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def of_spectrum(function, A: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(A)
    return (vectors * function(values)) @ vectors.T


def trace(function, A: np.ndarray) -> float:
    return float(function(np.linalg.eigvalsh(A)).sum())


def draw(r: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A factor and a prior with eigenvalues between about 0.3 and 3."""
    rng = np.random.default_rng(seed + r)
    return orthonormal(rng, r) * np.sqrt(rng.uniform(0.3, 3, r)) @ orthonormal(rng, r), rng.uniform(0.5, 2, r)


# --- the domain --------------------------------------------------------------------------------------------


def test_the_domain_is_read_off_the_functions():
    table = {  # infinite at 0, confines, phi'(inf), barrier
        LogDet(): (True, True, 0.0, 1.0),
        VonNeumann(): (False, True, math.inf, 0.0),
        Frobenius(): (False, False, math.inf, 0.0),
        ThreeHalves(): (False, False, math.inf, 0.0),
        Mixed(): (False, True, math.inf, 0.0),
        Shannon(): (False, False, math.inf, 0.0),
        Hyperbola(): (False, False, 1.0, 0.0),
        MinusRoot(): (False, True, 0.0, 0.0),
        Burg(): (True, True, math.inf, 1.0),
        Logistic(): (False, True, math.inf, 0.0),
    }
    for d, expected in table.items():
        assert (d.is_infinite_at_zero, d.confines, d.largest_gradient, d.barrier) == expected
        assert math.copysign(1.0, d.largest_gradient) == 1.0
    assert Divergence is SpectralDivergence


@every(*EVERY)
def test_what_follows_from_the_four_functions(divergence):
    x = np.geomspace(0.02, 8, 12)
    t, h = divergence.gradient(x), 1e-6
    run = (divergence.gradient_inverse(t + h) - divergence.gradient_inverse(t - h)) / (2 * h)
    assert_allclose(divergence.gradient_inverse_slope(t), run, rtol=1e-5)
    assert_allclose(divergence.shifted(x, t[::-1] - t), x[::-1], rtol=1e-9)


def test_the_unit_of_objectives():
    prior = np.array([-1.0, 3.0])
    assert LogDet().unit_of(prior) == Mixed().unit_of(prior) == 1.0
    assert_allclose(
        [d.unit_of(prior) for d in (MinusRoot(), ThreeHalves(), Frobenius())], [2**0.5, 2**1.5, 4]
    )
    assert ThreeHalves().unit_of(np.zeros(2)) == 1.0
    assert 0 < Frobenius().unit_of(np.full(2, 1e-200)) < Frobenius().unit_of(np.full(2, 1e200)) < math.inf


@every(*EVERY)
def test_the_chart_starts_at_the_prior_and_at_a_start(divergence):
    B, prior = draw(4)
    assert type(divergence.chart(prior)) is (FactorChart if isinstance(divergence, LogDet) else SpectralChart)
    chart = divergence.chart(prior, B)
    if divergence.confines:
        assert_allclose(divergence.chart(prior).cost(), 0.0, atol=1e-14)
        assert_allclose(chart.factor @ chart.factor.T, B @ B.T, rtol=1e-9)


# --- distances ---------------------------------------------------------------------------------------------


@every(*EVERY)
@pytest.mark.parametrize("r", [1, 2, 7])
def test_distance_is_the_definition(divergence, r):
    B, prior = draw(r)
    phi, M = PHI[type(divergence)], B @ B.T
    linear = float(divergence.gradient(prior) @ (M.diagonal() - prior))
    expected = trace(phi, M) - phi(prior).sum() - linear
    assert_allclose(divergence.distance(B, prior), expected, rtol=1e-10, atol=1e-13)
    assert abs(divergence.distance(np.diag(np.sqrt(prior)), prior)) <= 1e-28


@every(*(d for d in EVERY if type(d) is not Burg))  # whose value is not defined for singular matrices
def test_distance_is_the_value_of_whole_matrices_also_on_the_range_of_a_singular_prior(divergence):
    B, prior = draw(3)
    whole = divergence.value(B @ B.T, np.diag(prior))
    assert_allclose(divergence.distance(B, prior), whole, rtol=1e-9)
    W = orthonormal(np.random.default_rng(1), 5)[:, :3]
    whole = divergence.value(W @ B @ B.T @ W.T, (W * prior) @ W.T)
    assert_allclose(divergence.distance(B, prior), whole, rtol=1e-7)


@every(*STOPPING)
def test_a_prior_may_have_zeros_where_phi_does_not_confine(divergence):
    B, prior = draw(4)
    prior[1] = 0.0
    assert_allclose(divergence.distance(B, prior), divergence.value(B @ B.T, np.diag(prior)), rtol=1e-9)
    assert 0 <= divergence.distance(np.diag(np.sqrt(prior)), prior) <= 1e-30


def test_frobenius_takes_negative_priors():
    B, prior = draw(4)
    assert_allclose(Frobenius().distance(B, -prior), np.linalg.norm(B @ B.T + np.diag(prior)) ** 2)


@every(*EVERY)
def test_factors_may_have_any_number_of_columns(divergence):
    B, prior = draw(5)
    theta = np.diag(divergence.gradient(prior)) - 0.01 * np.ones((5, 5))
    wide = np.hstack([B, B[:, :2] / 2]) / 2
    M = wide @ wide.T
    root = np.linalg.cholesky(M)
    assert_allclose(divergence.distance(wide, prior), divergence.distance(root, prior), rtol=1e-10)
    gap = divergence.distance_to_minimiser(wide, theta)
    assert_allclose(gap, divergence.distance_to_minimiser(root, theta), rtol=1e-10)
    thin = B[:, :3]
    finite = not divergence.is_infinite_at_zero
    assert math.isfinite(divergence.distance(thin, prior)) == finite
    assert math.isfinite(divergence.distance_to_minimiser(thin, theta)) == finite
    if finite:
        expected = divergence.value(thin @ thin.T, np.diag(prior))
        assert_allclose(divergence.distance(thin, prior), expected, rtol=1e-9)


# --- the minimiser of phi(M) - <theta, M> ------------------------------------------------------------------


def drawn_theta(divergence: SpectralDivergence, r: int, seed: int = 0) -> np.ndarray:
    """phi' of eigenvalues between 0.2 and 4, in a random basis."""
    rng = np.random.default_rng(100 + seed + r)
    U = orthonormal(rng, r)
    theta = (U * divergence.gradient(rng.uniform(0.2, 4, r))) @ U.T
    return (theta + theta.T) / 2


def conjugate(divergence: SpectralDivergence, theta: np.ndarray) -> float:
    """The supremum of <theta, M> - phi(M) over M >= 0."""
    t = np.linalg.eigvalsh(theta)
    x = divergence.gradient_inverse(t)
    return float((t * x - PHI[type(divergence)](x)).sum())


@every(*EVERY)
@pytest.mark.parametrize("r", [1, 2, 6])
def test_distance_to_the_minimiser_is_what_the_lagrangian_is_above_its_minimum(divergence, r):
    B, _ = draw(r)
    theta, M = drawn_theta(divergence, r), B @ B.T
    expected = trace(PHI[type(divergence)], M) - np.vdot(theta, M) + conjugate(divergence, theta)
    assert_allclose(divergence.distance_to_minimiser(B, theta), expected, rtol=1e-9, atol=1e-12)


@every(*STOPPING)
@pytest.mark.parametrize("r", [1, 2, 6])
def test_distance_to_a_minimiser_that_stops_at_zero(divergence, r):
    B, _ = draw(r)
    for theta in (-np.eye(r), drawn_theta(divergence, r) - 0.4 * np.eye(r)):
        M = B @ B.T
        expected = trace(PHI[type(divergence)], M) - np.vdot(theta, M) + conjugate(divergence, theta)
        assert_allclose(divergence.distance_to_minimiser(B, theta), expected, rtol=1e-9, atol=1e-12)
        at_zero = r * PHI[type(divergence)](np.float64(0)) + conjugate(divergence, theta)
        assert_allclose(divergence.distance_to_minimiser(0 * B, theta), at_zero, rtol=1e-9, atol=1e-15)


@every(VonNeumann(), Mixed(), MinusRoot())
def test_distance_to_a_minimiser_too_small_for_a_number(divergence):
    t = np.array([-1e160, -1.0] if isinstance(divergence, MinusRoot) else [-2000.0, 0.5])
    x = np.array([0.3, 2.0])
    with np.errstate(over="ignore"):
        phi, y = PHI[type(divergence)], divergence.gradient_inverse(t)
    expected = float((phi(x) - t * x - phi(y) + t * y).sum())
    assert_allclose(divergence.distance_to_minimiser(np.diag(np.sqrt(x)), np.diag(t)), expected, rtol=1e-12)


@every(*EVERY)
@pytest.mark.parametrize("r", [1, 2, 6])
def test_minimiser(divergence, r):
    theta = drawn_theta(divergence, r)
    B, basis, weights = divergence.minimiser(theta)
    M = of_spectrum(divergence.gradient_inverse, theta)
    assert_allclose(B @ B.T, M, rtol=1e-9, atol=1e-12)
    assert 0 <= divergence.distance_to_minimiser(B, theta) <= 1e-26
    E, h = symmetric(np.random.default_rng(3), r), 1e-6
    up, down = (of_spectrum(divergence.gradient_inverse, theta + s * h * E) for s in (1, -1))
    local = (1.0 if weights is None else weights**2) * (basis.T @ E @ basis)
    assert_allclose(basis @ local @ basis.T, (up - down) / (2 * h), rtol=1e-5, atol=1e-6)


@every(*STOPPING)
def test_minimiser_that_stops_at_zero(divergence):
    V = orthonormal(np.random.default_rng(4), 4)
    t = np.array([-2.0, -0.5, 0.3, 0.7])
    B, basis, weights = divergence.minimiser((V * t) @ V.T)
    x = divergence.gradient_inverse(t)
    assert_array_equal(x[:2], 0.0)
    assert_allclose(B @ B.T, (V * x) @ V.T, atol=1e-14)
    assert_array_equal(weights[:2, :2], 0.0)
    assert_allclose(weights[0, 3] ** 2, x[3] / (t[3] - t[0]), rtol=1e-12)
    assert_allclose(np.abs(basis), np.abs(V), atol=1e-14)


@every(LogDet(), MinusRoot(), Hyperbola())
def test_beyond_the_largest_gradient_there_is_no_minimiser(divergence):
    B, _ = draw(3)
    V = orthonormal(np.random.default_rng(5), 3)
    for beyond in (0.0, 0.1, 1e100):
        theta = (V * (divergence.largest_gradient + np.array([-1.0, -0.1, beyond]))) @ V.T
        if beyond:
            assert divergence.minimiser(theta) is None
            assert divergence.distance_to_minimiser(B, theta) == math.inf
    at_end = np.full((1, 1), divergence.largest_gradient)
    assert divergence.minimiser(at_end) is None
    assert divergence.distance_to_minimiser(np.eye(1), at_end) == math.inf


@every(*EVERY)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_multipliers_that_overflow_have_no_minimiser(divergence, bad):
    B, prior = draw(3)
    for i, j in ((1, 1), (0, 1)):
        theta = np.diag(divergence.gradient(prior))
        theta[i, j] = theta[j, i] = bad
        assert divergence.minimiser(theta) is None
        assert divergence.distance_to_minimiser(B, theta) == math.inf


# --- near M, for interior-point methods --------------------------------------------------------------------


@every(*EVERY)
@pytest.mark.parametrize("r", [1, 2, 5])
def test_scaled_hessian_is_that_of_finite_differences(divergence, r):
    L, prior = draw(r)
    G = L @ (np.eye(r) + 0.3 * np.random.default_rng(6).normal(size=(r, r)))
    rotation, root, gradient = divergence.scaled_hessian(L, G, prior)
    if rotation is not None:
        assert_allclose(rotation.T @ rotation, np.eye(r), atol=1e-14)
        G = G @ rotation
    pack, w, h = packing(r), divergence.barrier, 1e-4

    def rest(v):
        """D without its barrier, but for a constant."""
        M = L @ L.T + G @ pack.unpack(v) @ G.T
        linear = np.vdot(np.diag(divergence.gradient(prior)), M)
        return trace(PHI[type(divergence)], M) + w * np.linalg.slogdet(M)[1] - linear

    def slope(v):
        M = L @ L.T + G @ pack.unpack(v) @ G.T
        inner = of_spectrum(lambda x: divergence.gradient(x) + w / x, M) - np.diag(divergence.gradient(prior))
        return pack.pack(G.T @ inner @ G)

    steps = h * np.eye(len(pack.a))
    found = pack.pack(gradient)
    assert_allclose(found, [(rest(e) - rest(-e)) / (2 * h) for e in steps], rtol=1e-5, atol=1e-6)
    hessian = np.array([(slope(e) - slope(-e)) / (2 * h) for e in steps])
    if root is None:
        root = np.ones(len(steps))
    square = np.diag(root**2) if root.ndim == 1 else np.tril(root) @ np.tril(root).T
    assert_allclose(square, np.eye(len(steps)) + hessian, rtol=1e-5, atol=1e-6)


# --- extremes ----------------------------------------------------------------------------------------------

FROM_TINY_TO_HUGE = 10.0 ** np.array([-100, 3, 100, -40, 0, -3])


@every(*ALL_POSITIVE)
def test_eigenvalues_from_1e_minus_100_to_1e100(divergence):
    x, y = FROM_TINY_TO_HUGE, np.roll(FROM_TINY_TO_HUGE, 2)
    B = np.diag(np.sqrt(x))
    assert_allclose(divergence.distance(B, y), divergence.value_of_vectors(x, y), rtol=1e-12)
    y = np.roll(
        10.0 ** np.array([-30, -1, 4, 0.2, -0.3, 9]), 2
    )  # the last is no slope of phi with phi'(inf) = 1
    if isinstance(divergence, Hyperbola):
        y = np.minimum(y, 1e3)
    t = divergence.gradient(y)
    assert_allclose(divergence.distance_to_minimiser(B, np.diag(t)), divergence.scalar(x, y).sum(), rtol=1e-7)


@every(LogDet(), VonNeumann(), Frobenius(), ThreeHalves())
def test_minimisers_from_1e_minus_100_to_1e100(divergence):
    x = FROM_TINY_TO_HUGE
    t = divergence.gradient(x)
    B, basis, weights = divergence.minimiser(np.diag(t))
    assert_allclose((B @ B.T).diagonal(), x, rtol=1e-12)
    E = np.ones((6, 6))
    local = (1.0 if weights is None else weights**2) * (basis.T @ E @ basis)
    apart = np.where(np.eye(6) == 1, 1.0, t[:, None] - t)
    expected = np.where(np.eye(6) == 1, divergence.gradient_inverse_slope(t), (x[:, None] - x) / apart)
    assert_allclose(basis @ local @ basis.T, expected, rtol=1e-9)


@every(VonNeumann(), Frobenius(), ThreeHalves(), Mixed())
def test_scaled_hessian_from_1e_minus_100_to_1e100(divergence):
    x = FROM_TINY_TO_HUGE
    G = L = np.diag(np.sqrt(x))
    rotation, root, gradient = divergence.scaled_hessian(L, G, np.ones(6))
    expected = x * (divergence.gradient(x) - divergence.gradient(np.ones(6)))
    if rotation is not None:
        expected = np.abs(rotation.T) @ expected
    assert_allclose(gradient, np.diag(expected), rtol=1e-12)
    t, pack = divergence.gradient(x), packing(6)
    same = pack.a == pack.b
    with np.errstate(all="ignore"):
        bend = np.where(
            same, divergence.curvature(x[pack.a]), (t[pack.a] - t[pack.b]) / (x[pack.a] - x[pack.b])
        )
    diagonal = root if root.ndim == 1 else np.diag(root)
    whole = np.sqrt(1 + x[pack.a] * x[pack.b] * bend)
    assert_allclose(np.sort(diagonal), np.sort(whole), rtol=1e-9)
    assert root.ndim == 1 or np.allclose(np.tril(root, -1), 0)


def test_logdet_keeps_its_digits_in_the_units_of_the_prior():
    prior = FROM_TINY_TO_HUGE
    rng = np.random.default_rng(7)
    whitened = orthonormal(rng, 6) * np.sqrt(rng.uniform(0.5, 2, 6))
    B = np.sqrt(prior)[:, None] * whitened
    expected = LogDet().distance(whitened, np.ones(6))
    assert_allclose(LogDet().distance(B, prior), expected, rtol=1e-12)
    S = symmetric(rng, 6)
    inverse = np.eye(6) + 0.1 * S
    theta = -inverse / np.sqrt(prior) / np.sqrt(prior)[:, None]
    expected = LogDet().distance_to_minimiser(whitened, -inverse)
    assert_allclose(LogDet().distance_to_minimiser(B, theta), expected, rtol=1e-9)
    factor, basis, _ = LogDet().minimiser(theta)
    root = np.sqrt(prior)
    assert_allclose(
        (factor @ factor.T) / root / root[:, None], np.linalg.inv(inverse), rtol=1e-10, atol=1e-12
    )
    assert basis is factor


@every(*EVERY)
def test_distances_that_vanish_are_not_negative(divergence):
    rng = np.random.default_rng(8)
    for r in (1, 3, 10):
        B, _ = draw(r)
        theta = of_spectrum(divergence.gradient, B @ B.T)
        prior = rng.uniform(0.5, 2, r)
        assert 0 <= divergence.distance_to_minimiser(B, (theta + theta.T) / 2) <= 1e-25
        assert 0 <= divergence.distance(np.diag(np.sqrt(prior)) @ orthonormal(rng, r), prior) <= 1e-25
