"""Derivatives of the losses of rows, what multipliers and values are worth to each other, and last digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose

import kkt
import nearwise as nw
from cases import ThreeHalves
from nearwise.model.losses import Losses

DIVERGENCES = [nw.LogDet(), nw.VonNeumann(), nw.Frobenius(), ThreeHalves()]


GAMMA, BOUND, SIZE = 0.7, 1.3, 2.1


RELATIONS = {"<=": -1, ">=": 1, "==": 0}


@dataclass(frozen=True)
class Kind:
    """One sort of soft row, and on which values of p its loss lives."""

    relation: int
    bound: float
    is_definite: bool

    @property
    def is_bregman(self) -> bool:
        return self.bound > 0 and (self.is_definite or self.relation < 0)

    def losses(self, divergence: nw.Divergence, gamma: float = GAMMA) -> Losses:
        return Losses(
            divergence,
            np.array([self.relation], np.int8),
            np.array([self.bound]),
            np.array([gamma]),
            np.array([SIZE]),
            np.array([self.is_definite]),
        )

    def expected(self, divergence: nw.Divergence, p: float) -> float:
        """The formula of DESIGN: the slack of the papers, or gamma/2 phi''(s) (p - b)^2."""
        difference = p - self.bound
        if self.relation != 0 and difference * self.relation >= 0:
            return 0.0
        phi = kkt.phi_of(divergence)
        if not self.is_bregman:
            return GAMMA / 2 * float(phi.curvature(np.array([SIZE]))[0]) * difference**2
        at, b = np.array([p]), np.array([self.bound])
        return GAMMA * float((phi.value(at) - phi.value(b) - phi.gradient(b) * difference)[0])


KINDS = {
    f"{symbol} {'definite' if definite else 'indefinite'} bound {bound:g}": Kind(relation, bound, definite)
    for symbol, relation in RELATIONS.items()
    for definite in (True, False)
    for bound in (BOUND, 0.0, -BOUND)
    if bound > 0 or not (definite and relation == 0)
}


rows = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


def points(kind: Kind) -> Iterator[float]:
    """Values on both sides of the bound, inside the domain."""
    offsets = np.array([-1.1, -0.5, -0.01, 0.01, 0.5, 4.0])
    for p in kind.bound + offsets:
        if p > 0 or not (kind.is_bregman and kind.is_definite):
            yield float(p)


@rows
@divergences
def test_derivatives_are_finite_differences(kind: Kind, divergence: nw.Divergence) -> None:
    losses, h = kind.losses(divergence), 1e-5

    def slope(p: float) -> float:
        return float(losses.slopes(np.array([p]))[0])

    for p in points(kind):
        first, second = (float(part(np.array([p]))[0]) for part in (losses.slopes, losses.curvatures))
        rise = losses.total(np.array([p + h])) - losses.total(np.array([p - h]))
        assert_allclose(first, rise / (2 * h), rtol=1e-6, atol=1e-8)
        assert_allclose(second, (slope(p + h) - slope(p - h)) / (2 * h), rtol=1e-6, atol=1e-8)
        assert first * kind.relation <= 0
        assert second >= 0


@rows
@divergences
def test_compliance_links_value_and_multiplier(kind: Kind, divergence: nw.Divergence) -> None:
    losses = kind.losses(divergence)
    g = divergence.gradient if kind.is_bregman else np.positive
    for p in points(kind):
        y = losses.slopes(np.array([p]))
        if y[0] != 0:
            assert_allclose(
                g(np.array([p])) - g(losses.bounds), losses.compliance * y, rtol=1e-12, atol=1e-14
            )
    assert kind.losses(divergence, np.inf).compliance == 0


def residual(losses: Losses, p: float, y: float) -> float:
    value = np.array([p])
    return losses.fenchel_residual(value, np.array([y]), losses.total(value))


@rows
@divergences
def test_fenchel_residual_knows_values_beyond_bounds_better_than_from_themselves(
    kind: Kind, divergence: nw.Divergence
) -> None:
    """Where p - b is given, it counts: a row that is 1e-12 off may cost as much as others if it is stiff."""
    stiff = kind.losses(divergence, 1e24)
    off = 1e-12 * (1 if kind.relation <= 0 else -1)
    p, beyond = np.array([kind.bound + off]), np.array([off])
    size = kind.bound if kind.is_bregman else SIZE
    curvature = float(kkt.phi_of(divergence).curvature(np.array([size]))[0])
    total = stiff.total(p, beyond)
    assert_allclose(total, 1e24 * curvature * off**2 / 2, rtol=1e-6)
    slope = np.array([1e24 * curvature * off])
    assert stiff.fenchel_residual(p, slope, total, beyond) <= 1e-6 * total
    assert_allclose(stiff.fenchel_residual(p, slope / 2, total, beyond), total / 4, rtol=1e-6)


@rows
@divergences
@given(p=st.floats(0.01, 8.0), y=st.floats(-6.0, 6.0))
@settings(max_examples=8)
def test_fenchel_residual_is_never_negative(
    kind: Kind, divergence: nw.Divergence, p: float, y: float
) -> None:
    losses = kind.losses(divergence)
    value = np.array([p])
    multiplier = losses.signed(np.array([y]))
    residual = losses.fenchel_residual(value, multiplier, losses.total(value))
    scale = abs(p * multiplier[0]) + losses.total(value) + 1
    assert residual >= -1e-13 * scale
    at_slope = losses.slopes(value)
    assert abs(losses.fenchel_residual(value, at_slope, losses.total(value))) <= 1e-12 * (
        losses.total(value) + p * abs(at_slope[0]) + 1
    )


def test_logdet_slack_above_a_bound_has_a_largest_slope() -> None:
    """gamma (p/b - log(p/b) - 1) grows like gamma p / b, so multipliers beyond gamma / b prove nothing."""
    losses = Kind(-1, BOUND, True).losses(nw.LogDet())
    assert np.isfinite(residual(losses, BOUND, 0.999 * GAMMA / BOUND))
    assert residual(losses, BOUND, 1.001 * GAMMA / BOUND) == np.inf
    assert residual(Kind(-1, 1.0, True).losses(nw.VonNeumann(), 1.0), 1.0, 1e6) == np.inf


def test_fenchel_residual_of_logdet_is_a_logarithm() -> None:
    """At the bound it is -gamma (log(1 - s) + s) for s = y b / gamma, also near the end of its domain."""
    losses = Kind(-1, 0.5, True).losses(nw.LogDet(), 1.5)
    for s in (1e-9, 1e-4, 0.5, 1 - 2.0**-30):
        with mpmath.workdps(40):
            expected = 1.5 * float(-mpmath.log(1 - mpmath.mpf(s)) - mpmath.mpf(s))
        rounding = 1e-15 / min(s, 1 - s)  # of b / (1 - s) beside b, and of 1 - s
        assert_allclose(residual(losses, 0.5, 3 * s), expected, rtol=1e-13 + rounding)


@rows
@divergences
def test_hard_rows_cost_nothing_and_their_residual_is_linear(kind: Kind, divergence: nw.Divergence) -> None:
    losses = kind.losses(divergence, np.inf)
    assert losses.is_hard.all()
    assert losses.any_hard
    for p in points(kind):
        assert losses.total(np.array([p])) == 0.0
        assert [part(np.array([p]))[0] for part in (losses.slopes, losses.curvatures)] == [0.0, 0.0]
    y = -0.4 if kind.relation > 0 else 0.4
    assert_allclose(residual(losses, kind.bound + 0.5, y), -0.5 * y)


def test_excess_violations_and_signs_by_row() -> None:
    losses = Losses(
        nw.LogDet(),
        np.array([-1, -1, 1, 1, 0, 0, -1], np.int8),
        np.array([2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -1.0]),
        np.array([1.0, np.inf, 1.0, 1.0, 1.0, 1.0, 1.0]),
        np.full(7, 5.0),
        np.array([True, True, True, False, True, False, False]),
    )
    p = np.array([3.0, 1.0, 1.5, 1.5, 2.5, 1.0, 0.5])
    assert_allclose(losses.excess(p), [1.0, 0.0, 0.5, 0.5, 0.5, 1.0, 1.5])
    # relative to the bound of a square, and to the size of what is not a square
    assert_allclose(losses.violations(p), [0.5, 0.0, 0.25, 0.1, 0.25, 0.2, 0.3])
    y = np.array([-1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 2.0])
    assert losses.signed(y).tolist() == [0.0, 1.0, 0.0, -1.0, 1.0, -1.0, 2.0]
    assert losses.is_hard.tolist() == [False, True, False, False, False, False, False]
