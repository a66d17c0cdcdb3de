"""Chords against exact arithmetic, where points coincide, at kinks and infinity, as matrix derivatives."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import expm_frechet

from nearwise.core.chords import chords
from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from own_phi import OWN, Logistic, ThreeHalves

EVERY = (LogDet(), VonNeumann(), Frobenius(), *OWN)
every_phi = pytest.mark.parametrize("phi", EVERY, ids=lambda phi: type(phi).__name__)


@every_phi
def test_chords_are_quotients_and_where_points_coincide_slopes(phi):
    x = np.random.default_rng(0).uniform(0.1, 3, 20)
    t = phi.gradient(np.r_[x, 1.0, 1.0, 1.0 + 1e-15, 1.0 + 1e-9, 1.0 + 1e-5])
    table = chords(phi, t[:, None], t)
    assert np.all(table >= 0)
    assert_allclose(table, table.T, rtol=1e-15)
    assert_allclose(np.diag(table), phi.gradient_inverse_slope(t), rtol=1e-15)
    g, (a, b) = phi.gradient_inverse(t), np.ix_(t, t)
    apart = np.abs(a - b) > 1e-2
    assert_allclose(table[apart], ((g[:, None] - g)[apart]) / (a - b)[apart], rtol=1e-9)


@every_phi
def test_values_at_the_ends_that_are_known(phi):
    x, y = np.array([0.5, 1.0, 2.0]), np.array([2.5, 1.0, 1e-3])
    s, t = phi.gradient(x), phi.gradient(y)
    assert_allclose(chords(phi, s, t, at_s=x, at_t=y), chords(phi, s, t), rtol=1e-9)


def test_values_at_the_ends_are_taken_as_given():
    s, t = np.array([0.0]), np.array([1.0])
    assert_allclose(chords(VonNeumann(), s, t, at_s=np.array([2.0])), np.e - 2.0)
    assert_allclose(chords(VonNeumann(), s, t, at_t=np.array([4.0])), 3.0)


@pytest.mark.parametrize("phi", [LogDet(), VonNeumann()])
@pytest.mark.parametrize("center", [-1e-3, -0.7, -1.0, -40.0])
def test_ten_digits_however_close_two_points_are(phi, center):
    steps = np.r_[0.0, np.geomspace(1e-16, 0.5, 150)]
    t = center * (1 + steps) if isinstance(phi, LogDet) else center + steps
    table = chords(phi, t[:, None], t)
    with localcontext() as context:
        context.prec = 80
        for i in range(0, len(t), 5):
            for j in range(0, len(t), 7):
                a, b = Decimal(t[i]), Decimal(t[j])
                if isinstance(phi, LogDet):
                    expected = 1 / (a * b)
                else:
                    expected = (a.exp() - b.exp()) / (a - b) if a != b else a.exp()
                assert abs(Decimal(table[i, j]) - expected) <= Decimal("1e-10") * expected, (t[i], t[j])


@pytest.mark.parametrize("phi", [LogDet(), VonNeumann()])
def test_ten_digits_for_numbers_from_1e_minus_100_to_1e100(phi):
    x = np.geomspace(1e-100, 1e100, 9)
    t = phi.gradient(x)
    table = chords(phi, t[:, None], t)
    if isinstance(phi, LogDet):
        assert_allclose(table, x[:, None] * x, rtol=1e-10)
        return
    apart = ~np.eye(len(x), dtype=bool)
    expected = (x[:, None] - x)[apart] / (np.log(x)[:, None] - np.log(x))[apart]
    assert_allclose(table[apart], expected, rtol=1e-10)
    assert_allclose(np.diag(table), x, rtol=1e-12)


def test_where_an_inverse_stops_and_where_it_is_infinite():
    def table(phi, *t):
        return chords(phi, np.array(t)[:, None], np.array(t))

    kink = [[0, 0, 0, 1 / 6], [0, 0, 0.25, 0.5], [0, 0.25, 0.5, 0.5], [1 / 6, 0.5, 0.5, 0.5]]
    assert_allclose(table(Frobenius(), -2.0, -1e-30, 1e-30, 1.0), kink, rtol=1e-14, atol=1e-29)
    assert_array_equal(table(ThreeHalves(), -1.0, -2.0), 0.0)
    assert_allclose(table(LogDet(), -1.0, 0.5), [[1, np.inf], [np.inf, np.inf]])
    assert_allclose(table(VonNeumann(), -1000.0, 0.0), [[0, 1e-3], [1e-3, 1]])
    assert_array_equal(table(VonNeumann(), -np.inf, 0.0), [[0, 0], [0, 1]])


def test_slopes_that_agree_at_both_ends_say_nothing_of_the_middle():
    s, t, phi = np.array([-10.0]), np.array([10.0]), Logistic()
    assert_allclose(chords(phi, s, t), (phi.gradient_inverse(t) - phi.gradient_inverse(s)) / 20)


def test_they_are_the_derivative_of_the_matrix_exponential():
    T, E = (A + A.T for A in np.random.default_rng(13).normal(size=(2, 5, 5)))
    t, V = np.linalg.eigh(T)
    derivative = V @ (chords(VonNeumann(), t[:, None], t) * (V.T @ E @ V)) @ V.T
    assert_allclose(derivative, expm_frechet(T, E, compute_expm=False), rtol=1e-9, atol=1e-9)
