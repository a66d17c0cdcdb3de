"""The number of runs, and the search for contradictions of few rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.solving import _contradictions, _interior_starts
from nearwise.solving._interior_run import Run
from nearwise.solving._written import WrittenForm, WrittenRows
from nearwise.solving.reduction import reduced


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
@pytest.mark.parametrize("penalty", [1e3, 1e8, 1e13])
def test_stiff_rows_that_cannot_all_be_met_take_one_run(
    divergence: nw.Divergence, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their multipliers are as large as the penalty, and the first run starts from as large ones."""
    runs: list[Run] = []

    def counted(*given: Any, **named: Any) -> Run:
        runs.append(Run(*given, **named))
        return runs[-1]

    monkeypatch.setattr(_interior_starts, "Run", counted)
    G = np.random.default_rng(4).normal(size=(8, 3))
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    side = c.at_most(pairs, 0.01) + c.at_least(pairs, 50.0) + c.closer([(0, 2, 1), (1, 0, 2)], 3.0)
    result = nw.solve(nw.Problem(G, side, divergence, penalty=penalty), nw.solvers.InteriorPoint())
    assert result.status is nw.Status.SOLVED
    assert len(runs) == 1
    assert runs[0].count <= 25


def test_rows_whose_matrices_are_indefinite_are_no_contradictions_by_themselves() -> None:
    side = c.similarity([(0, 1)], -3.0, "<=") + c.similarity([(2, 3)], 4.0, ">=")
    side = side + c.linear([-np.diag([1.0, 2.0, 0.0, 0.0])], [1.0], ">=")
    form = reduced(nw.Problem(np.eye(4), side, penalty=math.inf).formulation).formulation
    written = WrittenForm(form.divergence, form.prior, WrittenRows.of(form.measurements), form.losses)
    rays = _contradictions._small_rays(written, form)
    assert [np.flatnonzero(ray).tolist() for ray in rays] == [[2]]
    assert form.proof(rays[0]) is not None


@pytest.mark.parametrize("is_stretched", [False, True])
def test_proofs_of_few_rows_come_before_those_of_more(is_stretched: bool) -> None:
    """Two lengths that differ, of objects far from the origin that are to be next to each other."""
    G = np.random.default_rng(0).normal(size=(8, 4)) + 1e7 * np.array([1.0, -0.5, 0.3, 0.8])
    length = np.einsum("ij,ij->i", G, G)
    side = c.similarity([(0, 0)], 1.2 * length[0], ">=") + c.similarity([(1, 1)], 0.8 * length[1], "<=")
    side = side + c.at_most([(0, 1), (2, 3), (4, 5)], 1.0) + c.at_least([(6, 7)], 2.0)
    form = reduced(nw.Problem(G, side, nw.Frobenius(), penalty=math.inf).formulation).formulation
    written = WrittenForm(form.divergence, form.prior, WrittenRows.of(form.measurements), form.losses)
    found = _contradictions.contradiction(written, form, is_stretched)
    proofs = [proof for proof in found if proof is not None]
    counts = [np.count_nonzero(proof) for proof in proofs]
    assert np.flatnonzero(proofs[0]).tolist() == [0, 1, 2]
    assert counts == sorted(counts)
    assert all(form.check_infeasibility(proof).valid for proof in proofs)
