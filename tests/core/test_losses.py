"""The losses of all rows: sides, hard rows, sums, multipliers, units, and slacks that somebody adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearwise.core import losses as losses_module
from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.losses import Loss
from nearwise.core.slacks import SLACKS, Slack
from own_phi import Mixed, ThreeHalves

DIVERGENCES = [LogDet(), VonNeumann(), Frobenius(), ThreeHalves(), Mixed()]
divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


def drawn(divergence, count=60, seed=0, hard=0.2):
    """Losses of every sort, with bounds of any sign and 0, and values on both sides."""
    rng = np.random.default_rng(seed)
    bounds = np.exp(rng.normal(size=count)) * rng.choice([1, 1, 1, 0, -1], count)
    penalties = np.where(rng.random(count) < hard, np.inf, np.exp(rng.normal(size=count)))
    relations = rng.integers(-1, 2, count).astype(np.int8)
    loss = Loss(
        divergence, relations, bounds, penalties, np.exp(rng.normal(size=count)), rng.random(count) < 0.6
    )
    values = np.where(bounds > 0, bounds, 1.0) * np.exp(0.5 * rng.normal(size=count))
    return loss, np.where(loss.is_definite | (relations < 0), values, values - 1.0)


def multipliers(loss, values, seed=1):
    """Slopes of two-sided costs at other values, with the right signs; hard rows have some as well."""
    rng = np.random.default_rng(seed)
    slopes = two_sided(loss).at(values * np.exp(0.3 * rng.normal(size=len(values)))).slopes
    return loss.signed(np.where(loss.is_hard, rng.normal(size=len(values)), slopes))


def two_sided(loss):
    sorts = np.full(len(loss.bounds), list(SLACKS).index("quadratic"))
    for rows, slack in loss.groups:
        sorts[rows] = list(SLACKS.values()).index(type(slack))
    return replace(loss, relations=np.zeros_like(loss.relations), sorts=sorts)


def conjugates(loss, p, y):
    """sum_i sup_q (y_i q - loss_i(q)), by way of a point p."""
    total = loss.at(p).total
    return loss.fenchel(p, y, total) - total + float(y @ p)


@divergences
def test_rows_cost_what_their_slack_says_on_the_wrong_side_and_nothing_on_the_other(divergence) -> None:
    loss, p = drawn(divergence)
    found = loss.at(p)
    costs = 0.0
    for row in range(len(p)):
        side, b = loss.relations[row], loss.bounds[row]
        is_wrong = p[row] != b if side == 0 else (b - p[row]) * side > 0
        if not is_wrong or loss.is_hard[row]:
            assert found.slopes[row] == found.curvatures[row] == 0
            continue
        ((_, slack),) = loss.subset([row]).groups
        is_papers = b > 0 and (loss.is_definite[row] or side < 0)
        at, size = p[row : row + 1], loss.sizes[row : row + 1]
        expected = divergence.scalar(at, b) if is_papers else divergence.curvature(size) / 2 * (at - b) ** 2
        assert_allclose(slack.cost(at), loss.penalties[row] * expected, rtol=1e-12)
        assert_allclose([found.slopes[row], found.curvatures[row]], [*slack.slope(at), *slack.curvature(at)])
        assert found.slopes[row] * side <= 0
        costs += float(slack.cost(at)[0])
    assert_allclose(found.total, costs, rtol=1e-12)
    assert {type(slack) for _, slack in loss.groups} == {type(slack) for _, slack in two_sided(loss).groups}


@divergences
def test_derivatives_are_finite_differences(divergence) -> None:
    loss, p = drawn(divergence)
    direction = np.random.default_rng(3).normal(size=len(p))
    step = 1e-6 * direction * np.minimum(np.abs(p), np.abs(p - loss.bounds))
    here, up, down = loss.at(p), loss.at(p + step), loss.at(p - step)
    assert_allclose(here.slopes @ step, (up.total - down.total) / 2, rtol=1e-6)
    assert_allclose(here.curvatures * step, (up.slopes - down.slopes) / 2, rtol=1e-5, atol=1e-12)


@divergences
def test_weak_duality(divergence) -> None:
    """With conj = sum sup_q (y q - loss(q)), loss(q) >= y q - conj for all q, and = where y is the slope."""
    for seed in range(20):
        loss, p = drawn(divergence, seed=seed, hard=0.0)
        y, found = multipliers(loss, p, seed), loss.at(p)
        assert loss.fenchel(p, y, found.total) >= 0
        assert 0 <= loss.fenchel(p, found.slopes, found.total) <= 1e-13 * (1 + found.total)
        if np.isfinite(conjugate := conjugates(loss, p, y)):
            other = p * np.exp(np.random.default_rng(seed).normal(size=len(p)))
            assert_allclose(conjugates(loss, other, y), conjugate, rtol=1e-9)
            assert loss.at(other).total >= float(y @ other) - conjugate


@divergences
def test_conjugates_of_hard_rows_are_linear(divergence) -> None:
    loss, p = drawn(divergence, hard=1.0)
    y = loss.signed(np.random.default_rng(0).normal(size=len(p)))
    assert (loss.all_hard, loss.any_hard, loss.n_soft, loss.penalty_sum, loss.groups) == (
        True,
        True,
        0,
        0.0,
        (),
    )
    assert_allclose(conjugates(loss, p, y), y @ loss.bounds)
    assert loss.at(p).total == 0
    some, q = drawn(divergence)
    z = np.where(some.is_hard, multipliers(some, q), 0.0)
    assert_allclose(conjugates(some, q, z), z @ some.bounds)
    soft, hard = some.subset(~some.is_hard), some.subset(some.is_hard)
    u = multipliers(some, q)
    both = conjugates(soft, q[~some.is_hard], u[~some.is_hard]) + conjugates(
        hard, q[some.is_hard], u[some.is_hard]
    )
    assert_allclose(conjugates(some, q, u), both, rtol=1e-9)


def test_no_multiplier_leaves_the_total() -> None:
    loss, p = drawn(LogDet())
    assert loss.fenchel(p, 0 * p, 17.0) == 17.0


def test_violations_signs_and_idle_rows() -> None:
    """Relative to the bound of a square, and to the size of what is not a square."""
    loss = Loss(
        LogDet(),
        np.array([-1, -1, 1, 1, 0, 0, -1, 0], np.int8),
        np.array([2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -1.0, 0.0]),
        np.array([1.0, np.inf, 1.0, 1.0, 1.0, 1.0, 1.0, np.inf]),
        np.full(8, 5.0),
        np.array([True, True, True, False, True, False, False, True]),
        np.array([False] * 7 + [True]),
    )
    p = np.array([3.0, 1.0, 1.5, 1.5, 2.5, 1.0, 0.5, 1e-3])
    expected = [0.5, 0.0, 0.25, 0.1, 0.25, 0.2, 0.3, 2e-4]
    assert_allclose(loss.violations(p), expected)
    assert_allclose(loss.at(p).violations, expected)
    assert loss.at(p).hard_violation == pytest.approx(2e-4)
    assert loss.satisfied(loss.violations(p)) == 2 / 8
    y = np.array([-1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 2.0, 3.0])
    assert loss.signed(y).tolist() == [0.0, 1.0, 0.0, -1.0, 1.0, -1.0, 2.0, 0.0]
    assert (loss.any_hard, loss.all_hard, loss.n_soft, loss.penalty_sum) == (True, False, 6, 6.0)
    assert loss.subset(slice(6, 8)).is_idle.tolist() == [False, True]


def test_values_that_are_not_numbers_do_not_count_as_satisfied() -> None:
    loss, p = drawn(LogDet(), hard=0.0)
    assert np.isnan(loss.at(np.where(np.arange(len(p)) == 3, np.nan, p)).total)


def test_no_rows() -> None:
    loss, p = drawn(VonNeumann(), 0)
    found = loss.at(p)
    assert (found.total, found.hard_violation, loss.satisfied(found.violations)) == (0.0, 0.0, 1.0)
    assert (loss.any_hard, loss.n_soft, loss.cost_of_errors(p), loss.fenchel(p, p, 0.0)) == (
        False,
        0,
        0.0,
        0.0,
    )


@divergences
def test_blocks_add_up(divergence, monkeypatch) -> None:
    """Both sides of the threshold, for single groups and for several."""
    for hard in (0.0, 0.3):
        loss, p = drawn(divergence, hard=hard)
        y = 0.5 * loss.at(p).slopes
        whole = loss.at(p), loss.fenchel(p, y, 1.0), loss.at(p, p - loss.bounds).total
        monkeypatch.setattr(losses_module, "_BLOCK", 4)
        parts = loss.at(p), loss.fenchel(p, y, 1.0), loss.at(p, p - loss.bounds).total
        for a, b in zip(whole[0], parts[0], strict=True):
            assert_allclose(a, b, rtol=1e-13)
        assert_allclose(whole[1:], parts[1:], rtol=1e-12)
        monkeypatch.undo()


@divergences
def test_some_rows(divergence) -> None:
    loss, p = drawn(divergence)
    rows = np.array([0, 3, 4, 20, 59])
    found, whole = loss.subset(rows).at(p[rows]), loss.at(p)
    for a, b in ((found.slopes, whole.slopes), (found.curvatures, whole.curvatures)):
        assert_allclose(a, b[rows], rtol=1e-14)
    assert_array_equal(found.violations, whole.violations[rows])
    y = multipliers(loss, p)
    assert_allclose(loss.subset(rows).reply(y[rows]), loss.reply(y)[rows], rtol=1e-14)


@divergences
def test_a_share_of_the_penalties(divergence) -> None:
    loss, p = drawn(divergence)
    whole, half = loss.at(p), loss.times(0.5).at(p)
    assert_allclose([half.total, *half.slopes], [whole.total / 2, *(whole.slopes / 2)], rtol=1e-12)
    assert_array_equal(loss.times(0.5).is_hard, loss.is_hard)
    for factor in (1e-320, 1e300, 1e308 * 10):
        other = loss.times(factor)
        assert_array_equal(other.is_hard, loss.is_hard)
        assert (other.penalties > 0).all()


@pytest.mark.parametrize(
    "divergence", [d for d in DIVERGENCES if d.degree is not None], ids=lambda d: type(d).__name__
)
@pytest.mark.parametrize("unit", [4.0**-20, 4.0**5])
def test_other_units(divergence, unit) -> None:
    """Totals and violations stay where penalties are multiplied by unit ** degree."""
    loss, p = drawn(divergence)
    other = loss.in_unit(unit, unit**divergence.degree)
    there, here = other.at(p / unit), loss.at(p)
    assert_allclose(there.total, here.total, rtol=1e-12)
    assert_array_equal(there.violations, here.violations)
    assert_allclose(there.slopes, unit * here.slopes, rtol=1e-9, atol=1e-12 * unit)
    y = multipliers(loss, p)
    with np.errstate(invalid="ignore"):
        assert_allclose(other.reply(unit * y), loss.reply(y) / unit, rtol=1e-10)
    assert_allclose(other.fenchel(p / unit, unit * y, there.total), loss.fenchel(p, y, here.total), rtol=1e-9)


@divergences
def test_replies_and_their_compliance(divergence) -> None:
    loss, p = drawn(divergence)
    y = two_sided(loss).at(p).slopes
    reply = loss.reply(y)
    assert_allclose(reply, np.where(loss.is_hard, loss.bounds, p), rtol=1e-9, atol=1e-9)
    x = np.where(loss.is_hard, loss.bounds, 1.1 * p)
    slope, residual = loss.compliance(y, x, loss.largest - y)
    assert_allclose(residual(0.0), reply - x, atol=1e-9)
    assert (slope[loss.is_hard] == 0).all()
    assert (slope[~loss.is_hard] > 0).all()
    assert (loss.largest[~loss.is_positive] == np.inf).all()
    assert (loss.is_positive == (loss.largest < np.inf)).all() or np.isinf(divergence.largest_gradient)
    central = loss.central(p, 1.0, np.where(loss.relations > 0, -1.0, 1.0))
    assert_array_equal(np.isnan(central), loss.is_hard)


@divergences
@pytest.mark.parametrize("stiffness", [3.0, np.linspace(1, 9, 60)], ids=["one", "by row"])
def test_augmented_lagrangian(divergence, stiffness) -> None:
    """Hard rows cost k/2 max(0, side (p - b) + |y| / k)^2, and their slopes are the next multipliers."""
    loss, p = drawn(divergence)
    y = np.where(loss.is_hard, multipliers(loss, p), 0.0)
    found, hard = loss.augmented(y, stiffness), loss.is_hard
    assert not found.any_hard
    beyond = p - loss.bounds + y / stiffness
    wrong = np.where(loss.relations == 0, True, beyond * loss.relations < 0) & hard
    values, soft = found.at(p), loss.at(p)
    k = np.broadcast_to(stiffness, len(p))
    assert_allclose(values.total, soft.total + 0.5 * np.sum((k * beyond**2)[wrong]), rtol=1e-12)
    assert_allclose(
        values.slopes, np.where(hard, np.where(wrong, y + k * (p - loss.bounds), 0.0), soft.slopes)
    )
    assert_allclose(values.curvatures, np.where(hard, np.where(wrong, k, 0.0), soft.curvatures))
    assert abs(found.fenchel(p, values.slopes, values.total)) <= 1e-12 * (1 + values.total)
    rows = np.flatnonzero(hard)[::2]
    assert_allclose(found.subset(rows).at(p[rows]).slopes, values.slopes[rows])


@divergences
def test_costs_of_errors(divergence) -> None:
    """Of equalities they are what values next to the bounds cost."""
    loss, _ = drawn(divergence)
    error = 1e-6 * np.where(loss.bounds != 0, np.abs(loss.bounds), 1.0)
    assert_allclose(loss.cost_of_errors(error), two_sided(loss).at(loss.bounds + error).total, rtol=1e-4)
    assert_allclose(loss.cost_of_errors(error), two_sided(loss).at(loss.bounds, error).total, rtol=1e-4)


class LogCosh(Slack):
    """gamma s^2 log cosh((p - b) / s): what a newcomer writes."""

    @classmethod
    def suits(cls, loss):
        return loss.bounds < 0

    @property
    def centre(self):
        return self.sizes

    def cost(self, p, off=None):
        return (
            self.penalties
            * self.sizes**2
            * np.log(np.cosh(((p - self.bounds) if off is None else off) / self.sizes))
        )

    def slope(self, p):
        return self.penalties * self.sizes * np.tanh((p - self.bounds) / self.sizes)

    def curvature(self, p):
        return self.penalties / np.cosh((p - self.bounds) / self.sizes) ** 2

    def reply(self, y):
        return self.bounds + self.sizes * np.arctanh(y / self.largest_slope)

    def fenchel(self, p, y, off=None):
        reply = self.reply(y)
        return self.cost(p) - self.cost(reply) - y * (p - reply)

    @property
    def largest_slope(self):
        return self.penalties * self.sizes


def test_a_new_slack_is_a_class_and_a_line(monkeypatch) -> None:
    monkeypatch.setattr(losses_module, "SLACKS", {"log-cosh": LogCosh, **SLACKS})
    loss, p = drawn(VonNeumann())
    new = (loss.bounds < 0) & ~loss.is_hard
    found = loss.at(p)
    rows, slack = loss.groups[0]
    assert_array_equal(rows, np.flatnonzero(new))
    assert_allclose(found.slopes[rows], np.where(found.slopes[rows] != 0, slack.slope(p[rows]), 0.0))
    assert loss.fenchel(p, 0.5 * found.slopes, found.total) >= 0
    y = np.where(new, 0.5 * loss.relations, 0.0) * np.where(new, loss.largest, 1.0)
    reply = loss.reply(y)
    assert_allclose(slack.slope(reply[rows]), y[rows])
    slope, residual = loss.compliance(y, loss.bounds, loss.largest - y)
    assert_allclose(slope[rows] * slack.curvature(reply[rows]), 1.0)
    assert_allclose(residual(0.0), reply - loss.bounds)
    assert (loss.central(p, 1.0, np.ones(len(p)))[rows] > 0).all()
