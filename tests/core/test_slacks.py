"""What soft rows cost, against definitions and finite differences: every slack with every divergence."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.slacks import SLACKS, TINY, BregmanSlack, QuadraticSlack, SquareSlack
from own_phi import Burg, Hyperbola, MinusRoot, Mixed, Shannon, ThreeHalves

PHI = {"LogDet": lambda x: -np.log(x), "VonNeumann": lambda x: x * np.log(x) - x, "Frobenius": np.square}
DIVERGENCES = [
    LogDet(),
    VonNeumann(),
    Frobenius(),
    ThreeHalves(),
    Mixed(),
    Shannon(),
    Hyperbola(),
    MinusRoot(),
    Burg(),
]
CASES = [(BregmanSlack, d) for d in DIVERGENCES if d.degree != 2]
CASES += [(QuadraticSlack, d) for d in DIVERGENCES] + [(SquareSlack, Frobenius())]
NAMES = [f"{sort.__name__}-{type(d).__name__}" for sort, d in CASES]
every = pytest.mark.parametrize(("sort", "divergence"), CASES, ids=NAMES)
bregman = pytest.mark.parametrize(
    "divergence", [d for s, d in CASES if s is BregmanSlack], ids=lambda d: type(d).__name__
)

P = np.array([0.02, 0.5, 1.29, 1.31, 2.0, 40.0])


@pytest.fixture(autouse=True)
def _as_in_losses():
    with np.errstate(all="ignore"):
        yield


def slack_of(sort, divergence, count=6, gamma=0.7, bound=1.3, size=2.1):
    return sort(
        divergence, *(np.broadcast_to(np.asarray(x, float), count).copy() for x in (gamma, bound, size))
    )


def phi_of(divergence):
    return PHI.get(type(divergence).__name__) or divergence.phi


@every
def test_cost_is_its_definition(sort, divergence) -> None:
    slack, phi = slack_of(sort, divergence), phi_of(divergence)
    b, gradient = slack.bounds, divergence.gradient(slack.bounds)
    expected = 0.7 * (phi(P) - phi(b) - gradient * (P - b))
    if sort is QuadraticSlack:
        expected = 0.35 * divergence.curvature(slack.sizes) * (P - b) ** 2
    assert_allclose(slack.cost(P), expected, rtol=1e-10)
    assert_allclose(slack.cost(b), 0.0, atol=1e-30)
    assert_allclose(slack.second_order(1e-5 * b), slack.cost(b * (1 + 1e-5)), rtol=2e-5)


@every
def test_derivatives_are_finite_differences(sort, divergence) -> None:
    slack, h = slack_of(sort, divergence), 1e-5 * P
    assert_allclose(slack.slope(P), (slack.cost(P + h) - slack.cost(P - h)) / (2 * h), rtol=1e-6, atol=1e-8)
    assert_allclose(slack.curvature(P), (slack.slope(P + h) - slack.slope(P - h)) / (2 * h), rtol=1e-6)


@every
def test_reply_is_the_inverse_of_the_slope(sort, divergence) -> None:
    slack = slack_of(sort, divergence)
    assert_allclose(slack.reply(slack.slope(P)), P, rtol=1e-10)
    assert (slack.slope(np.full(len(P), 1e100)) <= slack.largest_slope).all()


@every
def test_fenchel_is_the_cost_and_its_conjugate(sort, divergence) -> None:
    """c*(y) is y q - c(q) where the slope is y at q, and -c(0) below the slope at 0, where values stop."""
    slack = slack_of(sort, divergence)
    for shift in range(len(P)):
        q = np.roll(P, shift)
        y = slack.slope(q)
        expected = slack.cost(P) + (y * q - slack.cost(q)) - y * P
        assert_allclose(slack.fenchel(P, y), expected, rtol=1e-9, atol=1e-12)
    assert (slack.fenchel(P, slack.slope(P)) <= 1e-25 * (1 + slack.cost(P))).all()
    if sort is QuadraticSlack:
        return
    at_zero = slack.slope(np.full(len(P), TINY))
    y = 1.5 * np.where(at_zero > -1e3, at_zero, -1e3)
    if at_zero[0] > -1e3:
        assert_allclose(slack.fenchel(P, y), slack.cost(P) - slack.cost(0 * P) - y * P, rtol=1e-12)
    else:
        assert (slack.fenchel(P, y) >= 0).all()


@bregman
def test_both_sides_of_the_largest_slope(divergence) -> None:
    slack = slack_of(BregmanSlack, divergence, 1)
    largest = slack.largest_slope
    if np.isfinite(largest):
        assert np.isfinite(slack.fenchel(slack.bounds, 0.999 * largest))
        assert slack.fenchel(slack.bounds, 1.001 * largest) == np.inf
        assert slack.reply(1.001 * largest) == np.inf
    else:
        assert slack.fenchel(slack.bounds, np.full(1, 1e6)) > 0


def test_conjugate_of_logdet_below_and_above() -> None:
    """-gamma log(1 - y b / gamma) at the bound, less y b."""
    slack = slack_of(BregmanSlack, LogDet(), 1)
    for share in (-1e6, -3.0, 1e-9, 0.5, 1 - 2.0**-30):
        y = np.full(1, share * 0.7 / 1.3)
        expected = 0.7 * (-np.log1p(-share) - share) if abs(share) > 1e-6 else 0.35 * share**2
        assert_allclose(slack.fenchel(slack.bounds, y), expected, rtol=1e-6)  # of y b / gamma beside 1


@every
def test_differences_that_are_known_better_than_from_values_count(sort, divergence) -> None:
    """A stiff row that is 1e-12 off costs what others do, so that digits of p - b matter."""
    slack = slack_of(sort, divergence, 1, gamma=1e24)
    off = 1e-12 * np.ones(1)
    p = slack.bounds + off
    cost = slack.cost(p, off)
    assert_allclose(cost, slack.second_order(off), rtol=1e-6)
    slope = 2 * cost / off
    assert slack.fenchel(p, slope, off) <= 1e-6 * cost
    assert_allclose(slack.fenchel(p, slope / 2, off), cost / 4, rtol=1e-6)
    moderate = slack_of(sort, divergence)
    y = 0.01 * moderate.slope(P)
    assert_allclose(moderate.fenchel(P, y, P - 1.3), moderate.fenchel(P, y), rtol=1e-9)
    assert_allclose(moderate.cost(P, P - 1.3), moderate.cost(P), rtol=1e-9)
    for share in (0.9e-5, 1.1e-5) if not isinstance(divergence, Burg) else ():  # where the series begins
        p = slack.bounds * (1 + share)
        assert_allclose(slack.cost(p, p - slack.bounds), slack.cost(p), rtol=1e-8)


@every
def test_compliance_passes_through_the_variable_and_the_reply(sort, divergence) -> None:
    """A step from y to the slope at x makes up for reply(y) - x, also where the two are far apart."""
    slack, x = slack_of(sort, divergence), np.roll(P, 1)
    y = slack.slope(P)
    slope, residual = slack.compliance(y, x, slack.largest_slope - y)
    assert_allclose(residual(0.0), P - x, rtol=1e-7)
    assert_allclose(slope * (y - slack.slope(x)), P - x, rtol=1e-6)
    slope, residual = slack.compliance(y, P, slack.largest_slope - y)
    assert_allclose(slope * slack.curvature(P), 1.0, rtol=1e-6)
    assert_allclose(residual(0.0), 0.0, atol=1e-9 * P.max())


def test_compliance_of_logdet_is_the_scaling_of_nesterov_and_todd() -> None:
    """x z = max(gamma, mu) for z = gamma / b - y linearises to dx = x / z dy where the product is right."""
    slack, mu = slack_of(BregmanSlack, LogDet()), 5.0
    room = np.array([1e-9, 0.1, 0.5, 1.0, 7.0, 1e9])
    y = slack.largest_slope - room
    slope, residual = slack.compliance(y, x := 0.7 / room, room)
    assert_allclose(slope, x / room, rtol=1e-10)
    assert_allclose(residual(0.1), 0.0, atol=1e-12 * x.max())
    assert_allclose(residual(mu), (mu - 0.7) / room, rtol=1e-12)
    z = 1.01 * room  # where z is a variable of its own, its error is made up for
    slope, residual = slack.compliance(y, x, z)
    assert_allclose(residual(0.0), 0.7 / z - x - slope * (room - z), rtol=0, atol=1e-6 * x.max())


def test_compliance_where_the_reply_is_far_beyond_the_variable_or_does_not_exist() -> None:
    slack, x = slack_of(BregmanSlack, VonNeumann()), np.full(len(P), 1e-3)
    y = np.full(len(P), 600.0)
    slope, residual = slack.compliance(y, x, slack.largest_slope - y)
    assert_allclose(residual(0.0), 1e5)
    assert (np.isfinite(slope) & (slope > 0)).all()


@every
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("mu", [1e-6, 1.0, 1e6])
def test_central_slacks_have_product_mu(sort, divergence, sign, mu) -> None:
    slack, signs = slack_of(sort, divergence), np.full(len(P), sign)
    s = slack.central(P, mu, signs)
    for share, above in ((0.95, False), (1.05, True)):  # s y grows with s
        x = P + sign * share * s
        if sort.is_positive and sign < 0:
            x = np.maximum(x, 1e-12 * P)
        product = share * s * sign * slack.slope_on_path(x, mu)
        reachable = (s < 1e100) & (x > 1e-9 * P if sort.is_positive else x < np.inf)
        assert ((product > mu) == above)[reachable].all()
    assert (s > 0).all()


@every
@pytest.mark.parametrize("unit", [1e-150, 1e150])
def test_no_overflow_on_the_way(sort, divergence, unit) -> None:
    """In units in which values are so small or large, what has a degree is what it is in others."""
    degree = divergence.degree
    if degree is None or (sort is BregmanSlack and degree not in (0.0, 1.0)):
        return
    stiffening = unit**-degree
    here = slack_of(sort, divergence)
    there = slack_of(sort, divergence, gamma=0.7 * stiffening, bound=1.3 * unit, size=2.1 * unit)
    y = here.slope(P) * 0.9
    assert_allclose(there.cost(unit * P), here.cost(P), rtol=1e-12)
    assert_allclose(there.slope(unit * P) * unit, here.slope(P), rtol=1e-11)
    assert_allclose(there.reply(y / unit) / unit, here.reply(y), rtol=1e-11)
    assert_allclose(there.fenchel(unit * P, y / unit), here.fenchel(P, y), rtol=1e-9)
    assert_allclose(there.second_order(0.1 * unit), here.second_order(0.1), rtol=1e-12)


@every
@pytest.mark.parametrize("gamma", [TINY, 1e-200, 1e200])
def test_penalties_of_any_size_leave_no_nan(sort, divergence, gamma) -> None:
    slack = slack_of(sort, divergence, gamma=gamma)
    for y in (0.0, -2.0, 2.0, 1e-250, -1e-250):
        y = np.full(len(P), y)
        assert (slack.fenchel(P, y) >= 0).all()
        assert not np.isnan(slack.reply(y)).any()
    assert_allclose(slack.fenchel(P, 0 * P), slack.cost(P), rtol=1e-9)


def test_a_negligible_penalty_buys_nothing_but_the_distance_from_zero() -> None:
    """c = 0 for positive p, so c*(y) = 0 for y < 0."""
    for divergence in (LogDet(), VonNeumann(), ThreeHalves()):
        slack = slack_of(BregmanSlack, divergence, gamma=1e-290)
        assert_allclose(slack.fenchel(P, np.full(len(P), -2.0)), 2 * P, rtol=1e-6)


@every
def test_some_rows_keep_what_is_known(sort, divergence) -> None:
    gamma, bound, size = np.linspace(1, 2, 6), np.linspace(0.5, 3, 6), np.linspace(4, 2, 6)
    slack, rows = slack_of(sort, divergence, 6, gamma, bound, size), np.array([1, 4, 5])
    fresh = slack_of(sort, divergence, 3, gamma[rows], bound[rows], size[rows])
    slack.fenchel(P, slack.slope(P))  # fills what is computed once
    for some in (slack.subset(rows), slack.subset(np.isin(np.arange(6), rows))):
        for name in ("cost", "slope", "curvature"):
            assert_allclose(getattr(some, name)(P[rows]), getattr(fresh, name)(P[rows]), rtol=1e-14)


def test_which_rows_suit() -> None:
    """The papers' slack where the bound is positive, and so are values on the wrong side."""
    rows = SimpleNamespace(
        divergence=LogDet(),
        relations=np.array([-1, -1, 1, 1, 0, 0, -1, -1], np.int8),
        bounds=np.array([1, 1, 1, 1, 1, 1, 0.0, -1]),
        is_definite=np.array([1, 0, 1, 0, 1, 0, 1, 0], bool),
    )
    expected = [True, True, True, False, True, False, False, False]
    assert BregmanSlack.suits(rows).tolist() == expected
    assert not SquareSlack.suits(rows).any()
    rows.divergence = Frobenius()
    assert SquareSlack.suits(rows).tolist() == expected
    assert QuadraticSlack.suits(rows).all()
    assert list(SLACKS.values()) == [SquareSlack, BregmanSlack, QuadraticSlack]
