"""The rows of the interior-point method: where bounds that give way start, and what a step keeps."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

import nearwise as nw
from nearwise import constraints as c
from nearwise.solving._slacks import Slacks
from nearwise.solving._written import WrittenForm, WrittenRows


def slacks_of(bounds: list[float], penalty: float, p: np.ndarray, mu: float) -> Slacks:
    """Of squared distances <=, >= and == their bounds under LogDet, at values p."""
    G = np.eye(6)
    side = c.at_most([(0, 1)], bounds[0]) + c.at_least([(2, 3)], bounds[1]) + c.equal([(4, 5)], bounds[2])
    form = nw.Problem(G, side, penalty=penalty).formulation
    written = WrittenForm(form.divergence, form.prior, WrittenRows.of(form.measurements), form.losses)
    # so large a size of multipliers that nothing is too large for it
    return Slacks(written, p, mu / 1e9, 1e9, written.rows.sizes)


def test_bounds_that_give_way_start_on_the_central_path() -> None:
    """s |y| = mu, xi zeta = max(gamma, mu), zeta = gamma / b - y, and p + sign s = xi."""
    for bounds in ([0.5, 3.0, 2.0], [1e-3, 1e-3, 1e-3], [1e3, 1e3, 1e3]):
        for penalty in (1e-2, 1.0, 600.0):
            p, mu = np.array([2.0, 2.0, 2.0]), 50.0
            rows = slacks_of(bounds, penalty, p, mu)
            s, xi, zeta = rows.first[:3], rows.first[3:], rows.second[3:]
            assert_allclose((s * np.abs(rows.y))[:2], mu, rtol=1e-9)
            assert_allclose(xi * zeta, max(penalty, mu), rtol=1e-9)
            assert_allclose(zeta, penalty / np.array(bounds) - rows.y, rtol=1e-9)
            assert_allclose((p + rows.sign * s)[:2], xi[:2], rtol=1e-6)
            assert_allclose(xi[2], p[2], rtol=1e-6)  # an equality has no slack
            assert (rows.first > 0).all()
            assert (rows.second > 0).all()


def test_a_multiplier_that_would_be_too_large_is_not_taken() -> None:
    """A bound of 1e-6 asks for one of 1e8; zeta = gamma / b - y holds all the same."""
    G = np.eye(2)
    form = nw.Problem(G, c.at_most([(0, 1)], 1e-6), penalty=100.0).formulation
    written = WrittenForm(form.divergence, form.prior, WrittenRows.of(form.measurements), form.losses)
    rows = Slacks(written, np.array([2.0]), 10.0, 10.0, written.rows.sizes)
    assert 0 < rows.y[0] <= 10.0
    assert_allclose(rows.second[1], 1e8 - rows.y[0])


def test_a_whole_step_meets_its_conditions_to_first_order() -> None:
    rows = slacks_of([0.5, 3.0, 2.0], 2.0, np.array([2.0, 2.0, 2.0]), 5.0)
    p = np.array([1.5, 2.5, 1.9])
    compliance = rows.prepare(p)
    aim = rows.aim(0.1, None, 1.0)
    dy = np.array([0.3, -0.2, 0.1])
    step = rows.change(dy, aim)
    dp = aim.e + compliance * dy  # what the matrix has to add to the values for this dy
    pairs = rows.first * step.second + rows.second * step.first + rows.first * rows.second
    assert_allclose(pairs[:2], 0.1, atol=1e-12)
    assert_allclose(pairs[3:], 2.0, atol=1e-12)
    assert_allclose(rows.second[3:] + step.second[3:], 2.0 / np.array([0.5, 3.0, 2.0]) - rows.y - dy)
    s = np.where(rows.sign == 0, 0.0, rows.first[:3] + step.first[:3])
    assert_allclose(p + dp + rows.sign * s, rows.xi + step.xi, atol=1e-12)
