"""Newton's method on the dual: its slope, its model under the signs, its steps and polishing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearwise as nw
from nearwise import constraints as c
from nearwise.model.recheck import Recheck
from nearwise.solvers import Iterate
from nearwise.solving._written import WrittenForm, WrittenRows
from nearwise.solving.dual import DualNewton, _Run, polished
from nearwise.solving.reduction import reduced

DIVERGENCES = (nw.LogDet(), nw.VonNeumann(), nw.Frobenius())


divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


def problem(divergence: nw.Divergence, penalty: Any, seed: int = 0) -> nw.Problem:
    """Rows of every kind and relation that a matrix near the identity meets."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(12, 5))
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    root = np.eye(5) + 0.2 * rng.normal(size=(5, 5))
    K = G @ root @ root.T @ G.T
    d = np.array([K[i, i] + K[j, j] - 2 * K[i, j] for i, j in pairs])
    side = c.at_most(pairs[:6], d[:6]) + c.at_least(pairs[6:11], d[6:11]) + c.equal(pairs[11:13], d[11:13])
    side = side + c.similarity([(7, 8)], K[7, 8], "==") + c.closer([(0, 1, 2) if d[0] < d[1] else (0, 2, 1)])
    return nw.Problem(G, side, divergence, penalty=penalty)


def written(given: nw.Problem) -> tuple[WrittenForm, Any]:
    form = reduced(given.formulation).formulation
    rows = WrittenRows.of(form.measurements)
    return WrittenForm(form.divergence, form.prior, rows, form.losses), form


@divergences
def test_the_slope_is_that_of_the_dual(divergence: nw.Divergence) -> None:
    """By differences of the bound that a certificate gives at y."""
    penalties = np.where(np.arange(15) % 2, 3.0, np.inf)
    given = problem(divergence, penalties)
    form, whole = written(given)
    rng = np.random.default_rng(1)
    y = form.losses.signed(0.01 * rng.normal(size=15))

    def bound(y: np.ndarray[Any, Any]) -> float:
        at = _Run(form, y)._measured(y)
        assert at is not None
        factor = at.matrix.factor
        values = form.rows.values(factor)
        point = Iterate(factor, values, y, form.rows.adjoint(y))
        return float(whole.certificate(point).dual)

    at = _Run(form, y)._measured(y)
    assert at is not None
    for i in np.flatnonzero(y):
        step = np.zeros(15)
        step[i] = 1e-6
        assert (bound(y + step) - bound(y - step)) / 2e-6 == pytest.approx(-at.slope[i], rel=1e-4, abs=1e-6)


def test_the_model_is_minimised_under_the_signs() -> None:
    """Beside every choice of the rows that are held at zero."""
    given = nw.Problem(
        np.arange(8.0).reshape(4, 2) ** 2, c.at_most([(0, 1), (1, 2), (2, 3)], 1.0) + c.equal([(0, 3)], 9.0)
    )
    run = _Run(written(given)[0])
    rng = np.random.default_rng(0)
    for _ in range(50):
        root = rng.normal(size=(4, 4))
        H, g, y = root @ root.T + 0.1 * np.eye(4), rng.normal(size=4), np.abs(rng.normal(size=4))
        y[rng.integers(3)] = 0.0

        def cost(d: Any, H: Any = H, g: Any = g) -> float:
            return float(g @ d + d @ H @ d / 2)

        best = np.inf
        for held in itertools.product([False, True], repeat=3):
            loose = np.flatnonzero(~np.array([*held, False]))
            d = -y * [*held, False]
            d[loose] = np.linalg.solve(H[np.ix_(loose, loose)], -(g + H @ d)[loose])
            if np.all((y + d)[:3] >= -1e-12):
                best = min(best, cost(d))
        found = run._least(H, g, y, (y == 0) & (g >= 0) & (np.arange(4) < 3))
        assert found is not None
        step, at_zero = found
        assert np.all((y + step)[:3] >= -1e-12)
        np.testing.assert_allclose((y + step)[at_zero], 0.0, atol=1e-12)
        assert cost(step) == pytest.approx(best, rel=1e-9)


@divergences
def test_rows_that_a_whole_step_lets_go_have_no_multiplier_at_all(divergence: nw.Divergence) -> None:
    """One that is left by rounding would count as a row that is far from its bound."""
    pairs = np.array([(i, j) for i in range(12) for j in range(i)])
    for seed in range(33):
        rng = np.random.default_rng(seed)
        few = pairs[rng.permutation(66)[:30]]
        side = c.at_most(few[:15], rng.uniform(0.5, 8, 15)) + c.at_least(few[15:], rng.uniform(1, 9, 15))
        run = _Run(written(nw.Problem(rng.normal(size=(12, 4)), side, divergence, penalty=10.0))[0])
        while run.residual > 1e-9 and run.advance():
            assert run._at is not None
            y = np.abs(run._at.y)
            assert np.all((y == 0) | (y > 1e-13 * y.max()))


def test_steps_towards_far_bounds_are_lengthened() -> None:
    """One row: M = 1 / (1 + y) shall be 1e-6. Whole steps double 1 + y, and are 24."""
    side = c.at_most([(0, 1)], 1e-6)
    run = _Run(written(nw.Problem([[0.0], [1.0]], side, penalty=math.inf))[0])
    steps = 0
    while run.residual > 1e-7:
        assert run.advance()
        steps += 1
    assert steps <= 16


@divergences
def test_it_ends_where_rows_contradict_each_other(divergence: nw.Divergence) -> None:
    G = np.random.default_rng(0).normal(size=(4, 3))
    side = c.at_most([(0, 1), (1, 2)], 0.1) + c.at_least([(0, 2)], 10.0)
    given = nw.Problem(G, side, divergence, penalty=math.inf)
    points = list(DualNewton().iterates(reduced(given.formulation).formulation))
    assert len(points) == 1  # the prior
    assert nw.solve(given).status is nw.Status.INFEASIBLE


@divergences
def test_multipliers_next_to_the_best_ones_are_polished(divergence: nw.Divergence) -> None:
    form, whole = written(problem(divergence, math.inf))
    run = _Run(form)
    while run.advance() and run.residual > 1e-9:
        pass
    best = run.point().dual
    (found,) = polished(form, best * (1 + 1e-4 * np.sin(np.arange(15))), 1e-6)
    assert whole.certificate(found).holds(1e-9)
    assert not list(polished(form, best + 1e12, 1e-6))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_quick_bound_on_errors_of_values_is_one(offset: float) -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        G = rng.normal(size=(9, 4)) * 10 ** rng.uniform(-2, 2, 4) + offset
        A = rng.normal(size=(9, 9))
        side = c.at_most([(0, 1), (2, 3)], 1.0) + c.closer([(4, 5, 6)]) + c.similarity([(7, 8)], 1.0, "==")
        side = side + c.linear([A + A.T, np.outer(A[0], A[0])], 1.0, "<=")
        given = nw.Problem(G, side, nw.Frobenius())
        factor = rng.normal(size=(4, 4))
        values = given.formulation.measurements.values_of_factor(factor)
        recheck = Recheck(given)
        errors = recheck.errors(factor, values)
        assert errors.any()
        assert np.all(errors <= recheck.most_errors(float(np.vdot(factor, factor)))), seed


@divergences
def test_no_rows_leave_the_prior(divergence: nw.Divergence) -> None:
    form, _ = written(problem(divergence, 1.0))
    none = form.only(np.zeros(0, dtype=np.int64))
    (point,) = polished(none, np.zeros(0), 1e-6)
    assert_allclose(point.factor @ point.factor.T, np.diag(form.prior), atol=1e-12)
