"""Recall of classes, measured distances, margins and penalties, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import recall_score
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from nearwise import constraints as c
from nearwise.study import by_kind, inspection
from nearwise.study.before_after import Missing

X, y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)  # without equal distances
NAMES = ("setosa", "versicolor", "virginica")
HELD = np.arange(0, 150, 4)
LEARNED = np.setdiff1d(np.arange(150), HELD)
PAIRS = np.array([[0, 60], [3, 120], [70, 130]])


@pytest.fixture(scope="module")
def learner() -> nw.MetricLearner:
    return nw.MetricLearner(penalty=10.0, random_state=0).fit(X[LEARNED], y[LEARNED])


def test_recall_is_that_of_a_classifier(learner: nw.MetricLearner) -> None:
    found = by_kind.class_recall(learner, X, y, NAMES, HELD, LEARNED)
    assert found.names == NAMES
    np.testing.assert_array_equal(found.counts, np.bincount(y[HELD]))
    for shares, rows in ((found.before, X), (found.after, learner.transform(X))):
        guess = KNeighborsClassifier(5).fit(rows[LEARNED], y[LEARNED]).predict(rows[HELD])
        np.testing.assert_allclose(shares, recall_score(y[HELD], guess, average=None))


def test_classes_that_were_not_asked_for_are_left_out(learner: nw.MetricLearner) -> None:
    found = by_kind.class_recall(learner, X, y, NAMES, HELD[y[HELD] != 1], LEARNED)
    assert found.names == ("setosa", "virginica")
    codes = np.where(y == 2, -1, y)  # by default all rows with a label, each among the others
    assert by_kind.class_recall(learner, X, codes, NAMES).names == ("setosa", "versicolor")


def test_measured_distances_are_compared_in_the_unit_that_fits_best(learner: nw.MetricLearner) -> None:
    known = 3.0 * np.linalg.norm(X[PAIRS[:, 0]] - X[PAIRS[:, 1]], axis=1)
    found = by_kind.measured_distances(learner, X, c.equal(PAIRS, known**2))
    np.testing.assert_allclose(found.given, known)
    np.testing.assert_allclose(found.before, known)  # before, only the unit differs
    np.testing.assert_allclose(found.after, learner.pair_distance(PAIRS, X))


def test_margins_are_relative_differences(learner: nw.MetricLearner) -> None:
    found = by_kind.margins(learner, X, c.closer([(0, 1, 100), (60, 10, 61)]) + c.similar([(0, 1)]))
    for margins, rows in ((found.before, X), (found.after, learner.transform(X))):
        near = np.array([np.linalg.norm(rows[0] - rows[1]), np.linalg.norm(rows[60] - rows[10])])
        far = np.array([np.linalg.norm(rows[0] - rows[100]), np.linalg.norm(rows[60] - rows[61])])
        np.testing.assert_allclose(margins, (far - near) / (far + near))
    assert found.after[0] > 0 > found.after[1]


def test_what_is_not_there_is_missing(learner: nw.MetricLearner) -> None:
    with pytest.raises(Missing, match="No distances were measured"):
        by_kind.measured_distances(learner, X, c.similar([(0, 1)]) + c.at_most([(0, 1)], 2.0))
    with pytest.raises(Missing, match="no triplets"):
        by_kind.margins(learner, X, c.similar([(0, 1)]))
    with pytest.raises(Missing, match="No penalty was chosen"):
        by_kind.penalty_path(learner)


def test_the_path_of_penalties_is_in_order() -> None:
    learner = nw.MetricLearner(penalty=10.0, random_state=0).fit(X[LEARNED], y[LEARNED])
    learner.penalty_, learner.penalty_scores_ = 2.0, ((0.0, 0.8), (4.0, 0.85), (1.0, 0.9))
    found = by_kind.penalty_path(learner)
    assert found.penalties.tolist() == [1.0, 4.0]
    assert found.scores.tolist() == [0.9, 0.85]
    assert (found.start, found.chosen) == (0.8, 2.0)


def test_numbers_become_ranges_of_about_equal_size() -> None:
    values = [*map(str, range(70)), None, "nan"]
    found = inspection.ranges(values)
    assert found.ordered
    assert found.names["0"] == "0 to 9.857"
    assert [found.sizes[str(k)] for k in range(7)] == [10] * 7
    assert found.slots[-2:] == ["none", "none"]
    assert found.names["none"] == "no number"
    assert inspection.ranges(["1", "2", "three"] * 9) is None  # not all are numbers
    assert inspection.ranges([1, 2, 3, 4, 5, 6, 7] * 9) is None  # few enough to be classes
    many = inspection.ranges([0.0] * 90 + [*range(1, 11)])  # quantiles that fall together
    assert sum(many.sizes.values()) == 100
