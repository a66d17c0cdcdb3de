"""Local coordinates against finite differences and definitions: cost, derivatives, and where steps lead."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.core.charts import NEGLIGIBLE, RAISED_START, FactorChart, Law, SpectralChart
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann
from written import ThreeHalves

DIVERGENCES = (LogDet(), VonNeumann(), Frobenius(), ThreeHalves())
EXACT = (LogDet(), VonNeumann())
ORDERS = (1, 2, 5)
each_divergence = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
each_exact = pytest.mark.parametrize("divergence", EXACT, ids=lambda d: type(d).__name__)


def prior_of(order: int) -> np.ndarray:
    return np.linspace(0.5, 2.0, order)


def symmetric(order: int, seed: int = 0) -> np.ndarray:
    D = np.random.default_rng(seed).normal(size=(order, order))
    return (D + D.T) / 2


def chart_of(divergence: SpectralDivergence, order: int):
    """Away from the prior."""
    L = np.eye(order) + symmetric(order, 3) / (2 * order)
    return divergence.chart(prior_of(order), L)


def matrix(chart) -> np.ndarray:
    return chart.factor @ chart.factor.T


def direction(chart, D: np.ndarray) -> np.ndarray:
    """dM of a step D."""
    weighted = D if chart.weights is None else chart.weights * D
    return chart.basis @ weighted @ chart.basis.T


def cost_at(chart, M: np.ndarray) -> float:
    """Divergence to the prior plus smoothing, from eigenvalues of M."""
    x = np.linalg.eigvalsh(M)
    cost = chart.divergence.value(M, np.diag(chart.prior))
    if not chart.is_exact:
        law = chart.law
        cost += law.smoothing * float(np.sum(x * np.log(x / law.size) - x + law.size))
    return cost


def no_losses(D: np.ndarray) -> np.ndarray:
    return np.zeros_like(D)


@each_divergence
@pytest.mark.parametrize("order", ORDERS)
def test_the_chart_at_the_prior_and_at_a_start(divergence: SpectralDivergence, order: int) -> None:
    prior, L = prior_of(order), np.eye(order) + symmetric(order) / (2 * order)
    np.testing.assert_allclose(matrix(divergence.chart(prior)), np.diag(prior), rtol=1e-12)
    np.testing.assert_allclose(matrix(divergence.chart(prior, L)), L @ L.T, rtol=1e-9, atol=1e-9)


@each_divergence
def test_a_start_of_low_rank_is_raised_into_the_cone(divergence: SpectralDivergence) -> None:
    start = np.random.default_rng(0).normal(size=(4, 2))
    chart = divergence.chart(prior_of(4), start)
    assert np.linalg.eigvalsh(matrix(chart))[0] >= 0.5 * RAISED_START
    assert np.isfinite(chart.cost())
    np.testing.assert_allclose(matrix(chart), start @ start.T, atol=2e-3 * np.linalg.norm(start) ** 2)


@each_divergence
@pytest.mark.parametrize("order", ORDERS)
def test_factor_is_the_stretched_basis(divergence: SpectralDivergence, order: int) -> None:
    chart = chart_of(divergence, order)
    np.testing.assert_allclose(chart.basis * chart.stretch, chart.factor)


@each_divergence
@pytest.mark.parametrize("order", ORDERS)
def test_cost_is_the_divergence_to_the_prior(divergence: SpectralDivergence, order: int) -> None:
    chart = chart_of(divergence, order)
    assert chart.cost() == pytest.approx(cost_at(chart, matrix(chart)), rel=1e-9)


@each_divergence
@pytest.mark.parametrize("order", ORDERS)
def test_gradient_is_the_slope_of_the_lagrangian(divergence: SpectralDivergence, order: int) -> None:
    chart, adjoint, D = chart_of(divergence, order), symmetric(order, 1), symmetric(order, 2)
    M, dM, h = matrix(chart), direction(chart, D), 1e-6
    slope = (cost_at(chart, M + h * dM) - cost_at(chart, M - h * dM)) / (2 * h) + np.vdot(adjoint, dM)
    gradient = chart.gradient(adjoint) * (1.0 if chart.weights is None else chart.weights)
    assert np.vdot(gradient, D) == pytest.approx(slope, rel=1e-6, abs=1e-6)


@each_divergence
@pytest.mark.parametrize("order", ORDERS)
def test_hessian_of_the_divergence_is_the_identity(divergence: SpectralDivergence, order: int) -> None:
    chart, D = chart_of(divergence, order), symmetric(order, 2)
    M, dM, h = matrix(chart), direction(chart, D), 1e-4
    bend = (cost_at(chart, M + h * dM) - 2 * cost_at(chart, M) + cost_at(chart, M - h * dM)) / h**2
    assert np.vdot(D, D) == pytest.approx(bend, rel=1e-5)


@each_exact
@pytest.mark.parametrize("order", ORDERS)
def test_gap_and_minimiser_of_the_lagrangian(divergence: SpectralDivergence, order: int) -> None:
    chart, adjoint = divergence.chart(prior_of(order)), 0.1 * symmetric(order, 1)
    best = chart.toward_minimiser(adjoint, 1.0)
    np.testing.assert_allclose(best.gradient(adjoint), 0, atol=1e-9)

    def lagrangian(at) -> float:
        return at.cost() + np.vdot(adjoint, matrix(at))

    assert chart.gap(adjoint) == pytest.approx(lagrangian(chart) - lagrangian(best), rel=1e-8)
    assert best.gap(adjoint) < 1e-12
    assert lagrangian(best) < lagrangian(chart.toward_minimiser(adjoint, 0.1)) < lagrangian(chart)


@pytest.mark.parametrize("divergence", [Frobenius(), ThreeHalves()], ids=lambda d: type(d).__name__)
def test_gap_with_smoothing_is_half_the_squared_gradient(divergence: SpectralDivergence) -> None:
    chart, adjoint = chart_of(divergence, 4), symmetric(4, 1)
    expected = 0.5 * np.sum((chart.weights * chart.gradient(adjoint)) ** 2)
    assert chart.gap(adjoint) == pytest.approx(expected)


@each_divergence
@pytest.mark.parametrize("order", ORDERS)
def test_short_steps_follow_the_direction(divergence: SpectralDivergence, order: int) -> None:
    chart, adjoint, D = chart_of(divergence, order), symmetric(order, 1), 1e-5 * symmetric(order, 2)
    gradient = chart.gradient(adjoint)
    new, slope, length = chart.moved(gradient, D, no_losses, 1.0)
    np.testing.assert_allclose(matrix(new) - matrix(chart), direction(chart, D), atol=1e-8)
    assert slope == pytest.approx(np.vdot(gradient, D if chart.weights is None else chart.weights * D))
    assert 0 < length < 1e-3


@each_divergence
def test_long_steps_end_at_the_radius_and_in_the_cone(divergence: SpectralDivergence) -> None:
    chart, adjoint, D = chart_of(divergence, 5), symmetric(5, 1), 100 * symmetric(5, 2)
    gradient = chart.gradient(adjoint)
    whole = chart.moved(gradient, D, no_losses, np.inf)
    short = chart.moved(gradient, D, no_losses, 0.5)
    assert short.length == whole.length > 0.5
    assert short.slope == pytest.approx(whole.slope * 0.5 / whole.length)
    same = chart.moved(gradient, D * 0.5 / whole.length, no_losses, np.inf)
    np.testing.assert_allclose(matrix(short.chart), matrix(same.chart), rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(matrix(short.chart))[0] > 0
    largest = np.linalg.eigvalsh(matrix(chart))[-1]
    assert np.linalg.eigvalsh(matrix(short.chart))[-1] <= 2.5 * largest
    assert np.isfinite(whole.chart.cost())


def test_without_a_step_nothing_moves() -> None:
    for divergence in DIVERGENCES:
        chart = chart_of(divergence, 3)
        new, slope, length = chart.moved(chart.gradient(np.zeros((3, 3))), np.zeros((3, 3)), no_losses, 1.0)
        assert (slope, length) == (0.0, 0.0)
        np.testing.assert_allclose(matrix(new), matrix(chart), rtol=1e-12, atol=1e-12)


def test_where_weights_vanish_the_step_comes_from_the_hessian() -> None:
    """theta of an eigenvalue that is zero to all digits changes by -(gradient + H(weights * D))."""
    divergence, prior = VonNeumann(), np.ones(2)
    chart = SpectralChart(divergence, prior, Law(divergence, 0.0, 1.0), np.array([0.0, -2000.0]), np.eye(2))
    assert chart.weights[1, 1] == 0
    gradient, H = np.diag([1.0, 3.0]), np.diag([0.0, 0.5])
    moved = chart.moved(gradient, np.diag([-1.0, 0.0]), lambda D: H, np.inf).chart
    np.testing.assert_allclose(np.sort(moved.theta), [-2003.5, -1.0])


def test_steps_out_of_the_domain_lead_nowhere() -> None:
    divergence = VonNeumann()
    chart = SpectralChart(divergence, np.ones(2), Law(divergence, 0.0, 1.0), np.array([0.0, -600]), np.eye(2))
    with np.errstate(over="ignore"):
        moved = chart.moved(np.ones((2, 2)), np.full((2, 2), 1e200), no_losses, np.inf)
    assert moved.chart is None


def test_on_the_null_space_theta_comes_from_the_multipliers() -> None:
    divergence, prior = VonNeumann(), np.ones(3)
    theta = np.array([0.0, -3000.0, -2500.0])
    chart = SpectralChart(divergence, prior, Law(divergence, 0.0, 1.0), theta, np.eye(3))
    adjoint = np.diag([0.0, 60.0, 80.0]) + 1.0
    anchored = chart.anchored(adjoint)
    np.testing.assert_allclose(matrix(anchored), matrix(chart), atol=1e-15)
    np.testing.assert_allclose(
        anchored.gradient(adjoint)[1:, 1:], np.diag(anchored.gradient(adjoint).diagonal()[1:]), atol=1e-12
    )
    np.testing.assert_allclose(np.sort(anchored.theta[1:]), np.linalg.eigvalsh(-adjoint[1:, 1:]))
    assert chart_of(divergence, 3).anchored(symmetric(3)).theta.max() < 5
    assert (anchored.eigenvalues[1:] <= NEGLIGIBLE).all()


def test_smoothing_falls_to_nothing_at_the_same_point() -> None:
    chart = chart_of(Frobenius(), 3)
    M, count = matrix(chart), 0
    while (sharper := chart.sharpened()) is not None:
        assert sharper.law.smoothing < chart.law.smoothing
        chart, count = sharper, count + 1
    np.testing.assert_allclose(matrix(chart), M, rtol=1e-12)
    assert count == 19
    assert chart.cost() == pytest.approx(Frobenius().value(M, np.diag(prior_of(3))), rel=1e-12)
    for divergence in EXACT:
        exact = chart_of(divergence, 3)
        assert exact.is_exact
        assert exact.sharpened() is None


@pytest.mark.parametrize("divergence", [Frobenius(), ThreeHalves()], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("smoothing", [1.0, 1e-6, 1e-15])
def test_the_smoothed_law_and_its_inverse(divergence: SpectralDivergence, smoothing: float) -> None:
    law, x = Law(divergence, smoothing, 2.0), np.array([1e-200, 1e-9, 0.3, 2.0, 50.0])
    t = law.gradient(x)
    np.testing.assert_allclose(law.gradient_inverse(t)[1:], x[1:], rtol=1e-6)
    assert np.all(np.diff(law.gradient_inverse(np.linspace(-5, 5, 50))) > 0) or smoothing < 1e-3
    h = 1e-6
    slope = (law.gradient_inverse(t[2:] + h) - law.gradient_inverse(t[2:] - h)) / (2 * h)
    np.testing.assert_allclose(law.gradient_inverse_slope(t[2:]), slope, rtol=1e-5)
    np.testing.assert_allclose(law.curvature(x[2:]), 1 / slope, rtol=1e-5)


def test_charts_by_divergence() -> None:
    assert isinstance(LogDet().chart(np.ones(2)), FactorChart)
    assert isinstance(ThreeHalves().chart(np.ones(2)), SpectralChart)
    assert not Frobenius().chart(np.array([1.0, -1.0])).is_exact
