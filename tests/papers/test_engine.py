"""Constraints as signed squares in both forms of rows, and how slack replies to multipliers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import projected
from nearwise.core.divergences import LogDet, VonNeumann
from nearwise.core.rows import Rows
from nearwise.papers.engine import Squares, slack_laws

FEATURES = np.random.default_rng(0).normal(size=(8, 5))


@pytest.mark.parametrize("graph", [False, True], ids=["written", "graph"])
@pytest.mark.parametrize("kind", projected.KINDS)
def test_squares_add_up_to_the_matrices_of_the_rows(kind: str, graph: bool) -> None:
    rows = projected.rows_of(kind, FEATURES, graph)
    squares = Squares.of(rows)
    for row, A in enumerate(projected.matrices_of(rows)):
        X, c = squares.of_row(row)
        assert len(X) == squares.counts[row]
        assert_allclose((X.T * c) @ X, A, atol=1e-14)


def test_squares_are_as_few_as_they_can_be() -> None:
    rows = projected.rows_of("all", FEATURES, graph=True)
    expected = [1, 1, 1, 1, 2, 2, 2, 1, 2, 1, 4, 3, 3 + 2 * 4, 8]
    assert Squares.of(rows).counts.tolist() == expected
    assert Squares.of(projected.rows_of("all", FEATURES, graph=False)).counts.tolist() == expected


def test_atoms_of_no_weight_and_rows_without_atoms_have_no_squares() -> None:
    x = FEATURES[:3]
    rows = Rows.written(x, x[::-1], np.array([0.0, 1.0, 2.0]), np.array([0, 3, 3]), 5)
    assert Squares.of(rows).counts.tolist() == [0, 0, 0, 1 + 2, 0]


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()], ids=repr)
def test_replies_to_multipliers_follow_the_law_of_the_slack(divergence: LogDet | VonNeumann) -> None:
    form = projected.example("all", divergence, 0.7)
    loss = form.loss
    is_bregman, compliance = slack_laws(loss)
    assert is_bregman.any()
    assert not is_bregman.all()
    y = np.linspace(-0.02, 0.02, len(compliance))
    p = loss.reply(y)
    assert_allclose((p - loss.bounds)[~is_bregman], (compliance * y)[~is_bregman], rtol=1e-12)
    change = divergence.gradient(p[is_bregman]) - divergence.gradient(loss.bounds[is_bregman])
    assert_allclose(change, (compliance * y)[is_bregman], rtol=1e-11)
    assert_allclose(slack_laws(loss.times(np.inf))[1] > 0, True)


def test_hard_rows_do_not_comply() -> None:
    is_bregman, compliance = slack_laws(projected.example("all", LogDet(), np.inf).loss)
    assert not is_bregman.any()
    assert not compliance.any()
