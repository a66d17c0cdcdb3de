"""Examples of neighbours: the nearest rows before and after, of held-out rows, with gains and losses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw
from nearwise.study.before_after import Missing
from nearwise.study.examples import examples

X, y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)  # without equal distances
HELD = np.arange(0, 150, 5)
LEARNED = np.setdiff1d(np.arange(150), HELD)


@pytest.fixture(scope="module")
def learner() -> nw.MetricLearner:
    return nw.MetricLearner(penalty=10.0, random_state=0).fit(X[LEARNED], y[LEARNED])


def nearest(squared: np.ndarray, k: int = 5) -> np.ndarray:
    return np.argsort(squared, axis=1, kind="stable")[:, :k]


def test_neighbours_are_the_nearest_learned_from_rows(learner: nw.MetricLearner) -> None:
    found = examples(learner, X, y, HELD, LEARNED)
    assert found.held_out
    assert found.n_asked == 30
    before = LEARNED[nearest(np.linalg.norm(X[:, None] - X[LEARNED], axis=2).round(9))]
    after = LEARNED[nearest(learner.distances(X, X[LEARNED]).round(9))]
    for example in found.examples:
        assert example.row in HELD
        assert set(example.before) == set(before[example.row])
        np.testing.assert_array_equal(example.after, after[example.row])
    shared = [len(set(before[row]) & set(after[row])) / 5 for row in HELD]
    assert found.kept == pytest.approx(np.mean(shared))


def test_drawn_gained_and_lost(learner: nw.MetricLearner) -> None:
    found = examples(learner, X, y, HELD, LEARNED)
    assert [example.why for example in found.examples[:4]] == ["drawn at random"] * 4
    assert len({example.row for example in found.examples}) == len(found.examples)

    def gain(example: object) -> float:
        own = y[example.row]
        return float(np.mean(y[example.after] == own) - np.mean(y[example.before] == own))

    for example in found.examples[4:]:
        sign = {"whose neighbours gained most": 1, "whose neighbours lost most": -1}[example.why]
        assert sign * gain(example) > 0


def test_without_labels_the_one_that_changed_most_is_shown(learner: nw.MetricLearner) -> None:
    found = examples(learner, X)
    assert not found.held_out
    last = found.examples[-1]
    assert last.why == "whose neighbours changed most"
    assert all(example.row not in example.after for example in found.examples)  # a row is not its own


def test_a_distance_that_stayed_changes_nothing() -> None:
    with pytest.warns(nw.PriorKeptWarning):
        kept = nw.MetricLearner().fit(X)
    found = examples(kept, X)
    assert found.kept == 1.0
    assert {example.why for example in found.examples} == {"drawn at random"}


def test_few_rows_have_few_neighbours_or_none(learner: nw.MetricLearner) -> None:
    assert len(examples(learner, X[:3]).examples[0].after) == 2
    with pytest.raises(Missing, match="too few rows"):
        examples(learner, X[:1])
