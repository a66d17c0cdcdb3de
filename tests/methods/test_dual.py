"""Newton on the dual: optima against a conic solver, conditions of optimality, and when it ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from followed import assert_optimal, formulation, oracle, refuted, solved
from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.rows import Rows
from nearwise.methods.dual import DualNewton
from own_phi import Mixed, ThreeHalves

OURS = [LogDet(), VonNeumann(), Frobenius()]
names = {"ids": lambda d: type(d).__name__}
ours = pytest.mark.parametrize("divergence", OURS, **names)
all_divergences = pytest.mark.parametrize("divergence", [*OURS, ThreeHalves(), Mixed()], **names)


@ours
@pytest.mark.parametrize("hard", [0.0, 0.5, 1.0])
def test_optimum_is_that_of_a_conic_solver(divergence, hard):
    form = formulation(divergence, hard=hard, offsets=hard == 0.5, spread=0.2)
    M, _, certificate = solved(form, DualNewton())
    objective, expected = oracle(form)
    assert_allclose(certificate.primal, objective, rtol=1e-6)
    assert_allclose(M, expected, atol=2e-4 * np.abs(expected).max())


@all_divergences
@pytest.mark.parametrize("seed", range(3))
def test_conditions_of_optimality_hold(divergence, seed):
    form = formulation(divergence, r=4, m=14, seed=seed, spread=0.2)
    M, y, _ = solved(form, DualNewton())
    assert_optimal(form, M, y, 1e-5)


@all_divergences
def test_no_rows(divergence):
    form = formulation(divergence, m=2)
    form = Formulation.of(divergence, form.prior, form.rows.subset(np.arange(0)), form.loss.subset(slice(0)))
    points = list(DualNewton().iterates(form))
    assert_allclose(points[-1].factor @ points[-1].factor.T, np.diag(form.prior), atol=1e-12)


@all_divergences
def test_rows_that_hold_need_one_point(divergence):
    form = formulation(divergence, m=4, hard=1.0)
    values = form.rows.values(np.diag(np.sqrt(form.prior)))
    relations = np.array([-1, 1, -1, 1], np.int8)
    loss = replace(form.loss, relations=relations, bounds=values - 0.5 * relations)
    held = Formulation.of(divergence, form.prior, form.rows, loss)
    points = list(DualNewton().iterates(held))
    assert len(points) == 1
    assert held.certify(points[0]).certificate.holds(1e-12)


def test_first_point_is_the_start_or_the_prior():
    form = formulation(LogDet())
    B = 2 * np.eye(3)
    assert next(iter(DualNewton().iterates(form, B))).factor is B
    first = next(iter(DualNewton().iterates(form))).factor
    assert_allclose(first @ first.T, np.diag(form.prior), atol=1e-14)


def test_values_and_multipliers_are_those_of_the_factor():
    form = formulation(VonNeumann(), offsets=True, spread=0.2)
    for point in DualNewton().iterates(form):
        assert_allclose(point.values, form.rows.values(point.factor), rtol=1e-12)


def test_contradictions_end_with_a_suspicion():
    """p <= 1 and p >= 2 of the same row: multipliers grow until the run ends."""
    form = formulation(LogDet(), m=6, hard=1.0)
    twice = replace(
        form.loss.subset(np.array([5, 5])),
        relations=np.array([-1, 1], np.int8),
        bounds=np.array([1.0, 2.0]),
        penalties=np.full(2, np.inf),
    )
    x = np.repeat(form.rows.vectors()[0][-1:], 2, axis=0)
    rows = Rows.written(x, x, np.ones(2), np.arange(2), 2)
    proof = refuted(Formulation.of(LogDet(), form.prior, rows, twice), DualNewton())
    assert np.count_nonzero(proof) == 2
