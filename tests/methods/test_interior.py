"""The interior point: optima against a conic solver and the conditions of optimality, and contradictions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from followed import assert_optimal, formulation, oracle, refuted, solved
from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows
from nearwise.methods.interior import CentralPath, InteriorPoint
from nearwise.methods.interior_start import first_points
from nearwise.methods.interior_system import System
from own_phi import Mixed, ThreeHalves

OURS = [LogDet(), VonNeumann(), Frobenius()]
ALL = [*OURS, ThreeHalves(), Mixed()]
names = {"ids": lambda d: type(d).__name__}
ours = pytest.mark.parametrize("divergence", OURS, **names)
all_divergences = pytest.mark.parametrize("divergence", ALL, **names)
SOLVER = InteriorPoint(1e-8)


@ours
@pytest.mark.parametrize("hard", [0.0, 0.5, 1.0])
def test_optimum_is_that_of_a_conic_solver(divergence, hard):
    form = formulation(divergence, hard=hard, offsets=hard == 0.5)
    M, _, certificate = solved(form, SOLVER)
    objective, expected = oracle(form)
    assert_allclose(certificate.primal, objective, rtol=1e-6)
    assert_allclose(M, expected, atol=2e-4 * np.abs(expected).max())


@all_divergences
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("offsets", [False, True])
def test_conditions_of_optimality_hold(divergence, seed, offsets):
    form = formulation(divergence, r=4, m=14, seed=seed, offsets=offsets)
    M, y, _ = solved(form, SOLVER)
    assert_optimal(form, M, y, 1e-4)


@all_divergences
def test_bounds_far_from_the_prior(divergence):
    form = formulation(divergence, r=4, m=10, seed=5, spread=30.0)
    _, _, certificate = solved(form, InteriorPoint(), 1e-6)
    assert certificate.hard_violation <= 1e-6


@all_divergences
@pytest.mark.parametrize(("relation", "bound"), [(-1, 0.3), (1, 4.0), (0, 2.5), (1, 0.5)])
@pytest.mark.parametrize("penalty", [0.7, np.inf])
def test_one_number_and_one_row(divergence, relation, bound, penalty):
    """r = 1 and A = 2: the optimum solves one equation of numbers."""
    form = single(divergence, relation, bound, penalty)
    M, y, _ = solved(form, SOLVER)
    p = 2 * M[0, 0]
    is_idle = relation > 0 and bound <= 2.0
    if is_idle:
        assert_allclose(p, 2.0, rtol=1e-6)
    elif penalty == np.inf:
        assert_allclose(p, bound, rtol=1e-6)
    else:
        assert_allclose(
            divergence.gradient(p / 2) - divergence.gradient(1.0), -2 * y[0], rtol=1e-4, atol=1e-6
        )
        assert_allclose(form.loss.at(np.array([p])).slopes, y, rtol=1e-4, atol=1e-6)


def single(divergence, relation, bound, penalty):
    rows = Rows.written(
        np.full((1, 1), np.sqrt(2.0)), np.full((1, 1), np.sqrt(2.0)), np.ones(1), np.zeros(1, int), 1
    )
    loss = Loss(
        divergence,
        np.array([relation], np.int8),
        np.array([bound]),
        np.array([penalty]),
        np.array([2.0]),
        np.ones(1, bool),
    )
    return Formulation.of(divergence, np.ones(1), rows, loss)


@all_divergences
def test_no_rows(divergence):
    form = formulation(divergence, m=2)
    form = Formulation.of(divergence, form.prior, form.rows.subset(np.arange(0)), form.loss.subset(slice(0)))
    for iterate in SOLVER.iterates(form):
        assert form.certify(iterate).certificate.hard_violation == 0
    assert_allclose(iterate.factor @ iterate.factor.T, np.diag(form.prior), atol=1e-6)


@all_divergences
@pytest.mark.parametrize("seed", range(3))
def test_contradictions_are_proved(divergence, seed):
    """The distances of a triangle that is none, among rows that can be met."""
    form = formulation(divergence, r=4, m=9, seed=seed, hard=1.0)
    x = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [1.0, 1.0, 0, 0]])
    old = form.rows
    both = Rows.written(
        np.vstack([old.vectors()[0], x]),
        np.vstack([old.vectors()[0], x]),
        np.concatenate([old.coefficient, np.ones(3)]),
        np.concatenate([old.row_of_atoms, 9 + np.arange(3)]),
        12,
    )
    loss = Loss(
        divergence,
        np.concatenate([form.loss.relations, [-1, -1, 1]]).astype(np.int8),
        np.concatenate([form.loss.bounds, [1.0, 1.0, 5.0]]),
        np.full(12, np.inf),
        both.magnitudes(np.sqrt(form.prior)),
        np.concatenate([form.loss.is_definite, np.ones(3, bool)]),
    )
    contradictory = Formulation.of(divergence, form.prior, both, loss)
    y = refuted(contradictory, SOLVER)
    assert contradictory.check(y).valid
    assert np.linalg.eigvalsh(both.adjoint(y))[0] >= -1e-7 * np.abs(both.adjoint(y)).max()
    assert y @ loss.bounds < 0


def test_start_is_the_first_iterate():
    form = formulation(LogDet())
    B = np.eye(3) * 2
    assert next(iter(SOLVER.iterates(form, B))).factor is B
    assert_allclose(next(iter(SOLVER.iterates(form))).factor ** 2, np.diag(form.prior))


@all_divergences
def test_points_keep_what_they_stand_for(divergence):
    """M Z is positive, X is M and Z, values are those of M, and residuals fall with the length of a step."""
    form = formulation(divergence, r=4, m=10, offsets=True)
    path = CentralPath(form)
    before = None
    with np.errstate(all="ignore"):
        for _, point in zip(range(12), path.follow(next(first_points(form))), strict=False):
            scaling, rows = point.scaling, point.rows
            M = scaling.factor @ scaling.factor.T
            assert_allclose(
                scaling.primal @ scaling.matrix @ scaling.primal.T, M, rtol=1e-8, atol=1e-10 * M.max()
            )
            assert_allclose(point.values, form.rows.values(scaling.factor), rtol=1e-8, atol=1e-8)
            assert (rows.slack > 0).all()
            assert (rows.dual * form.loss.relations <= 0).all()
            assert (rows.reply[form.loss.is_positive] > 0).all()
            residual = rows.reply - point.values - path.sign * rows.slack * path.is_inequality
            if before is not None:
                assert_allclose(residual, (1 - point.length) * before, atol=1e-6 * np.abs(point.values).max())
            before = residual


@pytest.mark.parametrize("columns", [3, 12])
def test_system_in_either_space(columns):
    rng = np.random.default_rng(0)
    A, compliance = rng.normal(size=(6, columns)), rng.uniform(0.1, 1, columns)
    K, e = rng.normal(size=6), rng.normal(size=columns)
    D, dy = System.of(A, compliance).solve(K, e, refinements=1)
    assert_allclose(D + A @ dy, K, atol=1e-12)
    assert_allclose(D @ A - compliance * dy, e, atol=1e-12)


def test_dependent_hard_rows_are_solved_by_refinement():
    rng = np.random.default_rng(0)
    A = np.repeat(rng.normal(size=(6, 2)), 2, axis=1)
    D, dy = System.of(A, np.zeros(4)).solve(np.ones(6), np.zeros(4), refinements=2)
    assert_allclose(D @ A, 0, atol=1e-10)
    assert np.isfinite(dy).all()
