"""Divergences against their definitions, against dense linear algebra, and against the laws of KSD09."""

from __future__ import annotations

import doctest
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import logm
from scipy.special import xlogy

from cases import ThreeHalves
from nearwise import Divergence, Frobenius, LogDet, SpectralDivergence, VonNeumann


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
built_in = pytest.mark.parametrize("divergence", list(PHI)[:3], ids=lambda d: type(d).__name__)
seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 8)


def positive_definite(rng: np.random.Generator, n: int) -> np.ndarray:
    A = rng.normal(size=(n, n))
    return A @ A.T / n + 0.1 * np.eye(n)


def orthonormal(rng: np.random.Generator, n: int, rank: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n, rank)))[0]


def on_range(W: np.ndarray, A: np.ndarray) -> np.ndarray:
    X = W @ A @ W.T
    return (X + X.T) / 2


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


# --- values -------------------------------------------------------------------------------------------------


@every_divergence
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_value_is_the_definition(divergence, n):
    rng = np.random.default_rng(n)
    X, Y = positive_definite(rng, n), positive_definite(rng, n)
    expected = by_definition(divergence, X, Y)
    assert_allclose(divergence.value(X, Y), expected, rtol=1e-10)
    assert_allclose(divergence.value_of_factors(np.linalg.cholesky(X), power(Y, 0.5)), expected, rtol=1e-10)


@every_divergence
def test_scalar_is_the_bregman_divergence_of_phi(divergence):
    phi = PHI[divergence]
    x, y = np.meshgrid(np.geomspace(0.01, 100, 12), np.geomspace(0.02, 50, 9))
    expected = phi(x) - phi(y) - divergence.gradient(y) * (x - y)
    assert_allclose(divergence.scalar(x, y), expected, rtol=1e-9)


@every_divergence
def test_vector_form_is_that_of_diagonal_matrices(divergence):
    x, y = np.array([0.5, 2.0, 3.0, 1.0]), np.array([1.5, 2.0, 0.25, 4.0])
    assert_allclose(divergence.value_of_vectors(x, y), divergence.value(np.diag(x), np.diag(y)), rtol=1e-13)
    assert_allclose(divergence.value_of_vectors(x, y), np.sum(divergence.scalar(x, y)), rtol=1e-13)


# --- ranges -------------------------------------------------------------------------------------------------

COLUMNS = {
    "equal": ([0, 1, 2], [0, 1, 2]),
    "X inside Y": ([0, 1], [0, 1, 2]),
    "Y inside X": ([0, 1, 2], [1, 2]),
    "crossing": ([0, 1], [1, 2]),
    "apart": ([0, 1], [2, 3]),
    "Y full": ([0, 1], [0, 1, 2, 3, 4]),
    "X full": ([0, 1, 2, 3, 4], [0, 1]),
    "X zero": ([], [0, 1]),
    "Y zero": ([0, 1], []),
    "both zero": ([], []),
}
FINITE = {
    LogDet: {"equal", "both zero"},
    VonNeumann: {"equal", "X inside Y", "Y full", "X zero", "both zero"},
    Frobenius: set(COLUMNS),
    ThreeHalves: set(COLUMNS),
    MinusRoot: {"equal", "X inside Y", "Y full", "X zero", "both zero"},
}


@every_divergence
@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("seed", range(5))
def test_finite_exactly_where_the_ranges_allow_and_equal_to_the_restriction(divergence, case, seed):
    rng = np.random.default_rng(seed)
    W = orthonormal(rng, 5, 5)
    X_columns, Y_columns = COLUMNS[case]
    A, C = positive_definite(rng, len(X_columns)), positive_definite(rng, len(Y_columns))
    X, Y = on_range(W[:, X_columns], A), on_range(W[:, Y_columns], C)
    B = W[:, X_columns] @ np.linalg.cholesky(A) @ orthonormal(rng, len(A) + 2, len(A)).T
    of_factors = divergence.value_of_factors(B, W[:, Y_columns] @ power(C, 0.5))
    if case not in FINITE[type(divergence)]:
        assert divergence.value(X, Y) == of_factors == np.inf
        return
    keep = sorted(
        {*X_columns, *Y_columns}
    )  # definition 4, with W the basis of range(Y) where the range matters
    restricted = np.zeros((2, len(keep), len(keep)))
    restricted[0][np.ix_(np.searchsorted(keep, X_columns), np.searchsorted(keep, X_columns))] = A
    restricted[1][np.ix_(np.searchsorted(keep, Y_columns), np.searchsorted(keep, Y_columns))] = C
    assert_allclose(W[:, keep].T @ X @ W[:, keep], restricted[0], atol=1e-14)
    expected = by_definition(divergence, *restricted)
    assert_allclose(divergence.value(X, Y), expected, rtol=1e-7, atol=1e-13)
    assert_allclose(of_factors, expected, rtol=1e-7, atol=1e-13)


def test_zero_matrices():
    Y = np.diag([1.0, 2.0])
    assert VonNeumann().value(0 * Y, Y) == 3.0
    assert LogDet().value(0 * Y, Y) == LogDet().value(Y, 0 * Y) == VonNeumann().value(Y, 0 * Y) == np.inf
    assert LogDet().value(0 * Y, 0 * Y) == VonNeumann().value(0 * Y, 0 * Y) == 0.0
    assert LogDet().value(np.zeros((0, 0)), np.zeros((0, 0))) == 0.0
    assert VonNeumann().value_of_factors(np.zeros((2, 0)), np.eye(2)) == 2.0


@pytest.mark.long
@given(seeds, st.integers(2, 12), st.data())
def test_equal_ranges_are_recognised_through_rounding(seed, n, data):
    rank = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(seed)
    G, A, C = rng.normal(size=(n, rank)), positive_definite(rng, rank), positive_definite(rng, rank)
    expected = by_definition(LogDet(), A, C)  # proposition 12
    assert_allclose(LogDet().value(on_range(G, A), on_range(G, C)), expected, rtol=1e-5)
    factors = G @ np.linalg.cholesky(A), G @ np.linalg.cholesky(C)
    assert_allclose(LogDet().value_of_factors(*factors), expected, rtol=1e-5)


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()])
def test_a_small_share_outside_is_outside_and_rounding_is_not(divergence):
    rng = np.random.default_rng(3)
    W = orthonormal(rng, 6, 4)
    Y = on_range(W[:, :3], np.diag([1.0, 2.0, 3.0]))
    for share, finite in ((1e-9, False), (1e-12, False), (1e-16, True)):
        X = Y + share * np.outer(W[:, 3], W[:, 3])
        assert np.isfinite(divergence.value((X + X.T) / 2, Y)) == finite
    for size, finite in ((1e-10, False), (1e-16, True)):
        B = W[:, :4] * [1.0, 1.0, 1.0, size]
        assert np.isfinite(divergence.value_of_factors(B, W[:, :3])) == finite


@pytest.mark.parametrize("condition", [1e4, 1e8, 1e11])
def test_an_ill_conditioned_matrix_still_has_its_range(condition):
    rng = np.random.default_rng(4)
    W, Q = orthonormal(rng, 8, 4), orthonormal(rng, 4, 4)
    C = on_range(Q, np.diag(np.geomspace(1 / condition, 1, 4)))
    A = positive_definite(rng, 4)
    expected = np.trace(A @ on_range(Q, np.diag(np.geomspace(condition, 1, 4))))  # dominates log det
    assert_allclose(LogDet().value(on_range(W, A), on_range(W, C)), expected, rtol=30 / condition + 1e-3)
    outside = on_range(np.c_[W, orthonormal(rng, 8, 1)], np.eye(5))
    assert LogDet().value(outside, on_range(W, C)) == VonNeumann().value(outside, on_range(W, C)) == np.inf


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()])
def test_no_ill_conditioning_excuses_a_visible_share_outside(divergence):
    v = np.array([0.0, 1.0, 0.01])  # leans out of the range of Y where that is least certain
    Y = np.diag([1.0, 1e-14, 0.0])
    assert divergence.value(Y + np.outer(v, v), Y) == np.inf


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann(), ThreeHalves(), MinusRoot()])
def test_a_negative_eigenvalue_is_outside_the_domain(divergence):
    good, bad = np.eye(3), np.diag([1.0, 1.0, -1e-6])
    assert divergence.value(bad, good) == divergence.value(good, bad) == divergence.value(bad, bad) == np.inf
    assert divergence.value_of_vectors([1.0, -1.0], [1.0, 1.0]) == np.inf
    assert divergence.value_of_vectors([1.0, 1.0], [1.0, -1.0]) == np.inf


def test_frobenius_is_finite_for_every_symmetric_pair():
    rng = np.random.default_rng(5)
    X, Y = (A + A.T for A in rng.normal(size=(2, 4, 4)))
    assert_allclose(Frobenius().value(X, Y), np.linalg.norm(X - Y) ** 2, rtol=1e-14)
    assert Frobenius().value_of_vectors([1.0, -2.0], [0.0, 1.0]) == 10.0


# --- factors ------------------------------------------------------------------------------------------------


@every_divergence
def test_factors_of_many_rows(divergence):
    rng = np.random.default_rng(6)
    Q = orthonormal(rng, 50_000, 6)  # an n x n matrix would need 20 GB
    B = rng.normal(size=(6, 6))
    C = rng.normal(size=(6, 9))
    assert_allclose(divergence.value_of_factors(Q @ B, Q @ C), divergence.value(B @ B.T, C @ C.T), rtol=1e-8)
    if type(divergence) is not LogDet:
        expected = divergence.value(B[:, :2] @ B[:, :2].T, C @ C.T)
        assert_allclose(divergence.value_of_factors(Q @ B[:, :2], Q @ C), expected, rtol=1e-8)


def test_factors_reach_condition_numbers_that_their_product_cannot():
    rng = np.random.default_rng(7)
    W = orthonormal(rng, 9, 3)
    B, C = W * [1.0, 1e-5, 1e-10], W * [1.0, 1e-5, 3e-10]
    assert_allclose(LogDet().value_of_factors(B, C), 1 / 9 + np.log(9) - 1, rtol=1e-4)


@built_in
def test_close_factors_do_not_cancel(divergence):
    rng = np.random.default_rng(8)
    B = rng.normal(size=(40, 3))
    expected = divergence.value_of_vectors(np.ones(3), np.full(3, (1 + 1e-6) ** 2))
    assert_allclose(
        divergence.value_of_factors(orthonormal(rng, 40, 3), np.zeros((40, 1))),
        divergence.value_of_vectors(np.ones(3), np.zeros(3)),
        rtol=1e-12,
    )
    Q = orthonormal(rng, 40, 3)
    assert_allclose(divergence.value_of_factors(Q, (1 + 1e-6) * Q), expected, rtol=1e-8)
    assert divergence.value_of_factors(B, B) <= 1e-25


# --- laws ---------------------------------------------------------------------------------------------------


@every_divergence
@given(seed=seeds, n=dimensions)
def test_proposition_11_rotations(divergence, seed, n):
    rng = np.random.default_rng(seed)
    X, Y, Q = positive_definite(rng, n), positive_definite(rng, n), orthonormal(rng, n, n)
    assert_allclose(divergence.value(on_range(Q.T, X), on_range(Q.T, Y)), divergence.value(X, Y), rtol=1e-9)


@given(seeds, dimensions, st.floats(-3, 3))
def test_proposition_12_congruences(seed, n, decades):
    rng = np.random.default_rng(seed)
    X, Y = positive_definite(rng, n), positive_definite(rng, n)
    M = orthonormal(rng, n, n) * 10 ** rng.uniform(-1, 1, n) @ orthonormal(rng, n, n) * 10**decades
    assert_allclose(LogDet().value(on_range(M.T, X), on_range(M.T, Y)), LogDet().value(X, Y), rtol=1e-8)


def test_proposition_12_does_not_feel_the_units_of_the_features():
    rng = np.random.default_rng(9)
    X, Y = positive_definite(rng, 6), positive_definite(rng, 6)
    units = np.diag(np.geomspace(1e-3, 1e3, 6))
    assert_allclose(LogDet().value(units @ X @ units, units @ Y @ units), LogDet().value(X, Y), rtol=1e-12)


@pytest.mark.long
@given(seeds, dimensions)
def test_proposition_13(seed, n):
    rng = np.random.default_rng(seed)
    X, Y = positive_definite(rng, n), positive_definite(rng, n)
    whitened = on_range(power(Y, -0.5), X)
    assert_allclose(VonNeumann().value(np.eye(n), whitened), LogDet().value(X, Y), rtol=1e-8)
    assert_allclose(LogDet().value(whitened, np.eye(n)), LogDet().value(X, Y), rtol=1e-8)


@every_divergence
@given(seed=seeds, n=dimensions, decades=st.floats(-6, 6))
def test_zero_only_at_equality(divergence, seed, n, decades):
    rng = np.random.default_rng(seed)
    X, Y = positive_definite(rng, n), positive_definite(rng, n)
    scale = 10.0**decades
    unit = scale**divergence.degree
    assert 0 <= divergence.value(scale * X, scale * X) <= 1e-24 * unit
    assert divergence.value(scale * X, scale * Y) > 0
    assert divergence.value(scale * X, scale * (X + 1e-7 * Y)) > 0


@every_divergence
@given(seed=seeds, n=dimensions, t=st.floats(0, 1))
def test_convex_in_the_first_argument(divergence, seed, n, t):
    rng = np.random.default_rng(seed)
    X, Z, Y = (positive_definite(rng, n) for _ in range(3))
    chord = (1 - t) * divergence.value(X, Y) + t * divergence.value(Z, Y)
    assert divergence.value((1 - t) * X + t * Z, Y) <= chord * (1 + 1e-12)


@every_divergence
@given(seed=seeds, n=dimensions, c=st.floats(1e-3, 1e3))
def test_degree(divergence, seed, n, c):
    rng = np.random.default_rng(seed)
    X, Y = positive_definite(rng, n), positive_definite(rng, n)
    assert_allclose(divergence.value(c * X, c * Y), c**divergence.degree * divergence.value(X, Y), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
def test_logdet_has_no_scale(scale):
    rng = np.random.default_rng(10)
    X, Y, W = positive_definite(rng, 4), positive_definite(rng, 4), orthonormal(rng, 7, 4)
    expected = LogDet().value(X, Y)
    root = np.sqrt(scale)
    assert_allclose(LogDet().value(scale * X, scale * Y), expected, rtol=1e-12)
    assert_allclose(LogDet().value(scale * on_range(W, X), scale * on_range(W, Y)), expected, rtol=1e-10)
    factors = root * W @ np.linalg.cholesky(X), root * W @ np.linalg.cholesky(Y)
    assert_allclose(LogDet().value_of_factors(*factors), expected, rtol=1e-10)
    assert_allclose(
        LogDet().value_of_vectors(scale * np.diag(X), scale * np.diag(Y)),
        LogDet().value_of_vectors(np.diag(X), np.diag(Y)),
        rtol=1e-12,
    )
    assert LogDet().value(scale * on_range(W, X), scale * np.eye(7)) == np.inf


def test_logdet_of_scales_whose_quotient_is_no_number():
    expected = 2 * (-1 + 400 * np.log(10))
    assert_allclose(LogDet().value(1e-200 * np.eye(2), 1e200 * np.eye(2)), expected, rtol=1e-12)


def test_logdet_falls_back_on_eigenvectors_where_cholesky_fails(monkeypatch):
    rng = np.random.default_rng(11)
    X, Y = positive_definite(rng, 4), positive_definite(rng, 4)
    expected = LogDet().value(X, Y)

    def fail(A):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(np.linalg, "cholesky", fail)
    assert_allclose(LogDet().value(X, Y), expected, rtol=1e-10)


# --- functions of numbers -----------------------------------------------------------------------------------


@every_divergence
def test_gradient_and_its_inverse(divergence):
    x, h = np.geomspace(1e-3, 1e3, 40), 1e-5
    t = divergence.gradient(x)
    assert_allclose(divergence.gradient_inverse(t), x, rtol=1e-12)
    up, down = x * (1 + h), x * (1 - h)
    assert_allclose((PHI[divergence](up) - PHI[divergence](down)) / (up - down), t, rtol=1e-7, atol=1e-8)
    rise = divergence.gradient(up) - divergence.gradient(down)
    assert_allclose(rise / (up - down), divergence.curvature(x), rtol=1e-7)
    assert_allclose(divergence.gradient_inverse_slope(t), 1 / divergence.curvature(x), rtol=1e-12)
    step = h * np.abs(t) + (0 if np.all(t) else h)
    run = divergence.gradient_inverse(t + step) - divergence.gradient_inverse(t - step)
    kept = step > 1e-9
    assert_allclose((run / (2 * step))[kept], divergence.gradient_inverse_slope(t)[kept], rtol=1e-7)


@every_divergence
@pytest.mark.parametrize("t", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_gradient_inverse_minimises_over_the_cone(divergence, t):
    with np.errstate(divide="ignore"):
        best = float(divergence.gradient_inverse(np.array(t)))
    x = np.geomspace(1e-12, 1e9, 2000)
    objective = PHI[divergence](x) - t * x
    if np.isinf(best):
        assert np.all(np.diff(objective) < 0)
    else:
        at_best = PHI[divergence](max(best, 1e-300)) - t * best
        assert at_best <= objective.min() + 1e-12 * abs(objective.min())


@built_in
def test_at_the_end_of_the_domain(divergence):
    zeros = np.array([0.0, -0.0])
    slope = divergence.gradient_inverse_slope(zeros)
    infinite = type(divergence) is not Frobenius
    assert np.all(divergence.gradient(zeros) == (-np.inf if infinite else 0.0))
    assert np.all(divergence.curvature(zeros) == (np.inf if infinite else 2.0))
    assert np.all(slope == {LogDet: np.inf, VonNeumann: 1.0, Frobenius: 0.0}[type(divergence)])
    assert np.all(divergence.gradient_inverse(zeros) == slope)
    assert np.all(divergence.gradient_inverse([-np.inf, -1e300]) <= 1e-300)


EXTREMES = st.sampled_from(
    [0.0, 5e-324, 1e-300, 1e-150, 1e-8, 1.0, np.nextafter(1.0, 2), 3.0, 1e150, 1e300, 1.7e308]
)
NUMBERS = st.one_of(EXTREMES, st.floats(0, 1.7e308))


@pytest.mark.long
@built_in
@settings(max_examples=500)
@given(x=NUMBERS, y=NUMBERS)
def test_scalar_is_never_nan_or_negative(divergence, x, y):
    value = float(divergence.scalar(x, y))
    assert value >= 0
    if x == y:
        assert value == 0
    if type(divergence) is not Frobenius and x > 0 and y == 0:
        assert value == np.inf
    if type(divergence) is VonNeumann and x == 0:
        assert value == y
    assert divergence.scalar(np.array([x]), np.array([y])).tolist() == [value]
    assert divergence.value_of_vectors([x, 0.0], [y, 0.0]) == value


@built_in
def test_beyond_the_largest_number_is_infinity(divergence):
    assert np.all(divergence.scalar([np.inf, np.inf, 1.0], [1.0, np.inf, np.inf]) == np.inf)
    assert divergence.value_of_factors([[1e200]], [[1e200]]) == np.inf
    assert divergence.value(1e308 * np.eye(2), 1e308 * np.eye(2)) == 0.0


@pytest.mark.long
@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()])
@settings(max_examples=300)
@given(
    y=st.one_of(st.floats(1e-250, 1e250), st.floats(0.1, 10)),
    change=st.one_of(
        st.floats(-0.9, 3), st.floats(-1e-3, 1e-3), st.floats(-1e-12, 1e-12), st.floats(1, 1e50)
    ),
)
def test_scalar_keeps_its_digits(divergence, y, change):
    x = y * (1 + change)
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 100, -9999, 9999
        r, b = Decimal(x) / Decimal(y), Decimal(y)
        expected = r - r.ln() - 1 if isinstance(divergence, LogDet) else b * (r * r.ln() - r + 1)
        error = abs(Decimal(float(divergence.scalar(x, y))) - expected)
        assert error <= Decimal("3e-14") * expected + Decimal("1e-322")  # the last: below the smallest number


# --- the interface ------------------------------------------------------------------------------------------


def test_attributes_and_identity():
    table = {
        LogDet(): (0, True, False),
        VonNeumann(): (1, False, False),
        Frobenius(): (2, False, True),
        ThreeHalves(): (1.5, False, False),
    }
    for divergence, expected in table.items():
        assert (divergence.degree, divergence.congruence_invariant, divergence.indefinite_prior) == expected
    assert LogDet() == LogDet() != VonNeumann()
    assert repr(LogDet()) == "LogDet()"
    assert SpectralDivergence.degree is None
    with pytest.raises(AttributeError):
        LogDet().degree = 1.0


def test_the_example_in_the_documentation_runs():
    (example,) = (found for found in doctest.DocTestFinder().find(Divergence) if found.examples)
    result = doctest.DocTestRunner().run(example)
    assert result.attempted >= 2
    assert result.failed == 0


def test_a_divergence_without_a_function_cannot_be_made():
    class Incomplete(ThreeHalves):
        scalar = SpectralDivergence.scalar

    with pytest.raises(TypeError, match="scalar"):
        Incomplete()


def test_a_scalar_that_is_not_a_number_is_an_error():
    class Careless(ThreeHalves):
        def scalar(self, x, y):
            return x * np.log(x / y) - x + y

    assert_allclose(Careless().value_of_vectors([2.0], [1.0]), 2 * np.log(2) - 1)
    with pytest.raises(ValueError, match=r"Careless.scalar must not return NaN"):
        Careless().value(np.eye(2), np.eye(2))


@every_divergence
@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((2, 3)), np.eye(2), r"X must be square, got shape \(2, 3\)"),
        (np.eye(2), np.eye(3), "X and Y must have the same length, got 2 and 3"),
        (np.ones(3), np.eye(3), r"X must be 2-dimensional, got shape \(3,\)"),
        (np.eye(3), [[1, 0, 0], [0, 1, np.nan], [0, 0, 1]], r"Y\[1, 2\] is nan"),
        (
            np.eye(3) + np.diag([0, 1e-6], 1),
            np.eye(3),
            r"X must be symmetric, but X\[1, 2\] = 1e-06 and X\[2, 1\] = 0",
        ),
        (1j * np.eye(2), np.eye(2), "X must be real"),
    ],
)
def test_matrices_that_are_refused(divergence, X, Y, message):
    with pytest.raises(ValueError, match=message):
        divergence.value(X, Y)


def test_factors_and_vectors_that_are_refused():
    with pytest.raises(ValueError, match="B and C must have the same length, got 3 and 2"):
        LogDet().value_of_factors(np.eye(3), np.eye(2))
    with pytest.raises(ValueError, match=r"C\[0, 1\] is inf"):
        LogDet().value_of_factors(np.eye(2), [[1.0, np.inf], [0.0, 1.0]])
    with pytest.raises(ValueError, match="x and y must have the same length, got 2 and 1"):
        LogDet().value_of_vectors([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match=r"y\[1\] is nan"):
        LogDet().value_of_vectors([1.0, 2.0], [1.0, np.nan])


@every_divergence
def test_asymmetry_of_rounding_is_averaged(divergence):
    X, Y = np.array([[2.0, 1.0], [1.0 + 1e-9, 3.0]]), np.array([[2, 0], [0, 2]])
    expected = divergence.value(np.array([[2.0, 1.0 + 5e-10], [1.0 + 5e-10, 3.0]]), Y)
    assert_allclose(divergence.value(X, Y.tolist()), expected, rtol=1e-14)
