"""Settings of solvers: what they say of their steps, the optimum that none of them changes, and refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import nearwise as nw
from nearwise import constraints as c, solvers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4))
PAIRS = np.array(list(itertools.combinations(range(20), 2)))[RNG.permutation(190)[:40]]
LENGTHS = np.square(X[PAIRS[:, 0]] - X[PAIRS[:, 1]]).sum(axis=1)
SOFT = nw.Problem(X, c.equal(PAIRS, LENGTHS * np.exp(RNG.normal(size=40))), nw.LogDet(), penalty=10.0)
HARD = nw.Problem(X, c.equal(PAIRS[:6], 0.7 * LENGTHS[:6]), nw.LogDet(), penalty=math.inf)
KERNEL = nw.Problem.from_kernel(
    np.eye(6) / 6,
    c.linear(np.eye(6), 1.0, "==") + c.equal([[0, 1], [2, 3], [0, 2], [1, 5]], [0.1, 0.15, 0.5, 0.6]),
    nw.VonNeumann(),
    penalty=math.inf,
)


@pytest.mark.parametrize("radius", [0.01, 0.1])
def test_the_first_step_of_newtons_method_changes_no_eigenvalue_by_more_than_the_radius(
    radius: float,
) -> None:
    factors: list[np.ndarray] = []
    solver = solvers.Newton(radius=radius)
    nw.solve(SOFT, solver, max_iter=2, watch=lambda record, factor: factors.append(factor))
    first, second = (factor @ factor.T for factor in factors)
    change = np.abs(linalg.eigvalsh(second, first) - 1.0).max()
    assert change == pytest.approx(radius, rel=1e-6)  # the step is cut there


@pytest.mark.parametrize(
    ("problem", "solver"),
    [
        (SOFT, solvers.Newton(radius=0.05)),
        (SOFT, solvers.Newton(radius=50.0, seed=3)),
        (HARD, solvers.Newton(stiffness=1e-6)),
        (HARD, solvers.Newton(stiffness=1e3)),
        (HARD, solvers.CyclicProjections(seed=5)),
        (KERNEL, solvers.ApproximateProjections(seed=5)),
        (KERNEL, solvers.ApproximateProjections(multiplier_tol=1e-12)),
    ],
    ids=repr,
)
def test_no_setting_changes_the_optimum(problem: nw.Problem, solver: Any) -> None:
    found, expected = nw.solve(problem, solver, tol=1e-6), nw.solve(problem, tol=1e-10)
    assert found.status is expected.status is nw.Status.SOLVED
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=2e-6)
    assert expected.certificate.primal > 0.1


def test_approximate_projections_end_where_multipliers_change_little() -> None:
    loose, tight = (
        nw.solve(KERNEL, solvers.ApproximateProjections(multiplier_tol=tol), tol=1e-12, max_iter=3000)
        for tol in (1e-2, 1e-6)
    )
    assert loose.n_iter < tight.n_iter < 3000
    assert tight.certificate.gap < loose.certificate.gap


@pytest.mark.parametrize("rounds", [1, 3])
def test_newtons_method_goes_on_after_some_rounds_of_a_thin_factor(rounds: int) -> None:
    problem = nw.Problem(X, SOFT.constraints, nw.Frobenius(), penalty=1.0)
    found = nw.solve(problem, solvers.ThinFactor(rounds=rounds), tol=1e-9)
    assert found.status is nw.Status.SOLVED
    assert found.certificate.primal == pytest.approx(nw.solve(problem, tol=1e-9).certificate.primal, rel=1e-8)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: solvers.ThinFactor(rounds=0), "rounds must be a whole number >= 1, got 0"),
        (lambda: solvers.ThinFactor(rounds="a"), "rounds must be .* got 'a'"),
        (lambda: solvers.Newton(seed=-1), "seed must be a whole number >= 0, got -1"),
        (lambda: solvers.Newton(seed=None), "seed must be .* got None"),
        (lambda: solvers.Newton(radius=math.inf), "radius must be a finite number > 0, got inf"),
        (lambda: solvers.Newton(stiffness=0), "stiffness must be a finite number > 0, got 0"),
        (lambda: solvers.CyclicProjections(seed="a"), "seed must be .* got 'a'"),
        (lambda: solvers.ApproximateProjections(seed=1.5), "seed must be .* got 1.5"),
        (
            lambda: solvers.ApproximateProjections(multiplier_tol=0),
            "multiplier_tol must be .* or None, got 0",
        ),
        (lambda: solvers.Armijo(decrease=1.0), "decrease must be a number between 0 and 1, got 1.0"),
        (lambda: solvers.Armijo(first_step=math.nan), "first_step must be a finite number > 0, got nan"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make()
