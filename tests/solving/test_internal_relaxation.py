"""Room within the tolerance for hard rows, as runs are given it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.solving._relaxation import Relaxed, with_sufficient_share
from nearwise.solving._written import WrittenForm, WrittenRows
from nearwise.solving.reduction import reduced


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
def test_an_equality_has_room_on_both_sides_and_one_multiplier(divergence: nw.Divergence) -> None:
    G = np.random.default_rng(0).normal(size=(6, 3))
    side = c.equal([(0, 1)], 2.0) + c.closer([(0, 2, 3)], 1.0) + c.at_least([(4, 5)], 3.0)
    problem = nw.Problem(G, side, divergence, penalty=[math.inf, math.inf, 1.0])
    form = reduced(problem.formulation).formulation
    stated = WrittenForm(divergence, form.prior, WrittenRows.of(form.measurements), form.losses)
    relaxed = Relaxed.of(stated, 1e-3)
    assert relaxed.row.tolist() == [0, 0, 1, 2]
    assert relaxed.form.losses.relations.tolist() == [-1, 1, -1, 1]
    losses, bounds = form.losses, form.losses.bounds[relaxed.row]
    room = (relaxed.form.losses.bounds - bounds) / losses.references[relaxed.row]
    np.testing.assert_allclose(room, [1e-3, -1e-3, 1e-3, 0.0], atol=1e-12)
    factor = np.random.default_rng(1).normal(size=(len(form.prior),) * 2)
    values = stated.rows.values(factor)
    np.testing.assert_allclose(relaxed.form.rows.values(factor), values[relaxed.row])


@pytest.mark.parametrize("whole", [0.3, 2.0, 1e9])
def test_the_share_whose_bound_is_next_to_the_objective(whole: float) -> None:
    asked = []

    def lead(share: float) -> float:  # concave, -1 at 0, `whole` at 1
        asked.append(share)
        return (1 + whole) * math.sqrt(share) - 1

    found = with_sufficient_share(whole, lead, lambda lead: lead, 1e-6)
    assert abs(found) <= 5e-7
    assert len(asked) <= 40


@pytest.mark.parametrize("whole", [-0.5, 1e-7, math.inf, math.nan])
def test_multipliers_that_prove_no_more_than_the_objective_are_kept(whole: float) -> None:
    def lead(share: float) -> float:
        raise AssertionError("no share is needed")

    found = with_sufficient_share(whole, lead, lambda lead: lead, 1e-6)
    assert found is whole
