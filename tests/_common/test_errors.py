"""Errors and results carry the constraints that they are about, and are retold from these."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise._common.errors import RowsError

X = np.array([[0.0], [1.0], [2.0], [2.0]])


def test_a_refused_problem_carries_its_row() -> None:
    side = c.at_most([(0, 1)], 4.0) + c.at_least([(2, 3)], 1.0)
    with pytest.raises(RowsError, match=r"^row 1: d\(2, 3\) >= 1: its objects have the same") as caught:
        nw.Problem(X, side, penalty=np.inf)
    (stated,) = caught.value.rows
    assert stated.row == 1
    assert stated.block.object_ids[stated.place].tolist() == [2, 3]
    assert caught.value.retold(lambda found: found.text(lambda i: "abcd"[i])).startswith("d(c, d) >= 1: its ")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, RowsError)
    assert str(again) == str(caught.value)
    assert again.rows[0].row == 1


def test_contradicting_constraints_are_carried_and_named_once_each() -> None:
    side = c.at_most([(0, 1)], 1.0) + c.at_least([(0, 1)], 2.0)
    with pytest.raises(RowsError) as caught:
        nw.MetricLearner(penalty=np.inf).fit(X, constraints=side)
    assert {stated.row for stated in caught.value.rows} == {0, 1}
    told = caught.value.retold(lambda stated: f"<{stated.row}>")
    assert told in {f"{caught.value.before}<{a}>; <{1 - a}>{caught.value.after}" for a in (0, 1)}
    assert caught.value.after == "; a finite penalty lets them give way"


def test_violations_carry_their_constraints_with_bounds_filled() -> None:
    side = (
        c.similar([(0, 2)]) + c.similarity([(1, 1)], 0.5, "<=") + c.linear([np.eye(4), -np.eye(4)], -1, ">=")
    )
    result = nw.solve(nw.Problem(X, side, penalty=0.1))
    found = {violation.row: violation for violation in result.certificate.worst}
    assert 0 in found
    for row, violation in found.items():
        assert violation.stated is not None
        assert violation.stated.row == row
        assert str(violation.stated) == violation.name
        assert "filled from the data" not in violation.name
    assert found[3].name.startswith("row 3: tr(A[1] X) >= -1")


@pytest.mark.parametrize(
    ("attempt", "row"),
    [
        (lambda: nw.Problem(X, c.similar([(0, 1), (0, 9)])), 1),
        (lambda: nw.OnlineLearner().fit(X, constraints=c.similarity([(0, 1)], 1.0, "<=")), 0),
        (
            lambda: nw.FixedRankEmbedding().fit(np.ones((4, 4)) - np.eye(4), constraints=c.similar([(0, 1)])),
            0,
        ),
        (lambda: nw.Problem(X * 1e200, c.at_most([(0, 1)], 1.0)), 0),
        (lambda: nw.Problem(X, c.at_most([(0, 1)], 1e-40)), 0),
        (lambda: nw.Problem(X, c.at_most([(0, 1)], 1.0), nw.Frobenius(), penalty=1e40), 0),
    ],
)
def test_what_is_wrong_with_a_constraint_says_which(attempt: object, row: int) -> None:
    with pytest.raises(RowsError, match=f"^row {row}: ") as caught, np.errstate(over="ignore"):
        attempt()  # type: ignore[operator]
    assert [stated.row for stated in caught.value.rows] == [row]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda side: nw.Problem(X, side, penalty=1.0),
        lambda side: nw.MetricLearner(penalty=1.0).fit(X, constraints=side),
    ],
    ids=["Problem", "MetricLearner"],
)
def test_a_warning_of_constraints_left_out_carries_them(attempt: Any) -> None:
    side = c.at_most([(0, 1)], 4.0) + c.at_least([(2, 3), (0, 3), (3, 2)], 1.0)
    with pytest.warns(nw.LeftOutWarning, match=r"^2 constraints are left out, .*d\(2, 3\) >= 1") as caught:
        attempt(side)
    for warning in (caught[0].message, pickle.loads(pickle.dumps(caught[0].message))):
        assert [(stated.row, stated.text()) for stated in warning.rows] == [
            (1, "d(2, 3) >= 1"),
            (3, "d(3, 2) >= 1"),
        ]


def test_an_overflow_of_an_update_carries_its_row() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 1.0], [1e200, 0.0]])
    y = np.ones(3)
    attempts = [
        lambda: nw.online.LogDetOnline(2).update(rows, y),
        lambda: nw.online.Pola(2).update(rows, y),
        lambda: nw.online.OnlinePCA(2, 1).update(rows),
        lambda: nw.online.ExponentiatedGradient(2, normalised=False).update_many(rows, y),
        lambda: nw.OnlineLearner().partial_fit(rows, constraints=c.similar([(0, 1), (1, 0), (0, 2)])),
    ]
    for attempt in attempts:
        with pytest.raises(RowsError, match=r"^row 2\b") as caught, np.errstate(all="ignore"):
            attempt()
        assert caught.value.rows == (2,)
