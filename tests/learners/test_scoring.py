"""What a penalty is chosen by: scores of what is held out, and how far they are from noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.class_weight import compute_sample_weight

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._place import Place
from nearwise.learners._side import Side
from nearwise.learners._trial import hold_out
from nearwise.learners.grades import Grade, area_under_roc, by_neighbors, first_as_good, together

rng = np.random.default_rng(3)


def test_the_area_is_that_of_the_roc_curve() -> None:
    near, far = rng.integers(0, 9, 40).astype(float), rng.integers(2, 12, 70).astype(float)  # with ties
    near_weights, far_weights = rng.uniform(0.5, 2.0, 40), rng.uniform(0.5, 2.0, 70)
    is_near = np.arange(110) < 40
    expected = roc_auc_score(
        is_near, -np.concatenate([near, far]), sample_weight=np.concatenate([near_weights, far_weights])
    )
    parts = area_under_roc(near, far, near_weights, far_weights)
    assert [part.mean for part in parts] == pytest.approx([expected] * 2)
    grade = together(parts)
    assert grade.score == pytest.approx(expected)
    assert grade.each.mean() == pytest.approx(expected)


def test_the_error_of_an_area_is_that_of_leaving_objects_out() -> None:
    codes = np.arange(60) % 2
    first, second = (np.where(codes, offset, 0.0) + rng.normal(size=60) for offset in (1.5, 0.7))
    i, j = np.triu_indices(60, 1)
    same = codes[i] == codes[j]
    pairs = [np.stack([i[kind], j[kind]], axis=1) for kind in (same, ~same)]

    def area(places: np.ndarray, kept: np.ndarray) -> float:
        whole = kept[i] & kept[j]
        distances = np.abs(places[i] - places[j])[whole]
        near, far = distances[same[whole]], distances[~same[whole]]
        return float(np.mean(near[:, None] < far))

    def graded(places: np.ndarray) -> Grade:
        near, far = (np.abs(places[p[:, 0]] - places[p[:, 1]]) for p in pairs)
        return together(area_under_roc(near, far, np.ones(len(near)), np.ones(len(far))), pairs, 60)

    lead, error = graded(first).lead(graded(second))
    everyone = np.ones(60, bool)
    assert lead == pytest.approx(area(first, everyone) - area(second, everyone))
    left = [area(first, np.arange(60) != k) - area(second, np.arange(60) != k) for k in range(60)]
    jackknife = np.sqrt(59 / 60 * np.sum(np.square(left - np.mean(left))))
    assert error == pytest.approx(jackknife, rel=0.1)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_of_neighbours_are_those_of_scikit_learn(weighted: bool) -> None:
    X, y = rng.normal(size=(120, 3)), rng.choice(4, 120, p=[0.6, 0.2, 0.1, 0.1])
    known, asked = slice(0, 80), slice(80, None)
    weights = rng.uniform(0.2, 3.0, 40) if weighted else None
    machine = KNeighborsClassifier(5).fit(X[known], y[known])
    found = y[known][machine.kneighbors(X[asked])[1]]
    predicted = machine.predict(X[asked])
    expected = {
        "neighbors": np.average((found == y[asked][:, None]).mean(axis=1), weights=weights),
        "accuracy": machine.score(X[asked], y[asked], sample_weight=weights),
        "balanced_accuracy": balanced_accuracy_score(y[asked], predicted, sample_weight=weights),
    }
    for scoring, value in expected.items():
        grade = by_neighbors(scoring, found, y[asked], weights)
        assert grade.score == pytest.approx(value)
        assert grade.each.mean() == pytest.approx(value)


def test_the_simplest_of_those_that_noise_does_not_tell_apart_is_taken() -> None:
    base = rng.uniform(size=400)

    def grade(gain: float) -> Grade:
        each = base + gain + rng.normal(scale=0.1, size=400)  # a standard error of 0.007 for differences
        return Grade(float(each.mean()), each)

    clear = [grade(0.0), grade(0.2), grade(0.1)]
    assert first_as_good(clear) == 1
    close = [grade(0.0), clear[1], Grade(clear[1].score + 1e-4, clear[1].each + 1e-4 * rng.normal(size=400))]
    close[2] = Grade(close[2].score, clear[1].each + (rng.normal(scale=0.1, size=400)))
    assert first_as_good(close, noise=2.0) == 1
    assert first_as_good(close, noise=0.0) == np.argmax([one.score for one in close])


@pytest.mark.parametrize("scoring", ["neighbors", "accuracy", "balanced_accuracy", "roc_auc"])
def test_a_trial_grades_by_its_definition(scoring: str) -> None:
    X, y = rng.normal(size=(60, 3)), rng.choice(2, 60, p=[0.8, 0.2])
    X[:, 0] += 2.0 * y
    trial = hold_out(Place(X), Side.read(60, y), np.random.RandomState(0), scoring)
    assert trial is not None
    asked = np.setdiff1d(np.arange(60), trial.rows)
    factor = np.diag([2.0, 1.0, 0.5])
    H = X @ factor
    if scoring == "roc_auc":
        i, j = np.triu_indices(len(asked), 1)
        distances = np.linalg.norm(H[asked][i] - H[asked][j], axis=1)
        expected = roc_auc_score(y[asked][i] == y[asked][j], -distances)
    else:
        machine = KNeighborsClassifier(5).fit(H[trial.rows], y[trial.rows])
        predicted = machine.predict(H[asked])
        near = y[trial.rows][machine.kneighbors(H[asked])[1]]
        expected = {
            "neighbors": np.mean(near == y[asked][:, None]),
            "accuracy": np.mean(predicted == y[asked]),
            "balanced_accuracy": balanced_accuracy_score(y[asked], predicted),
        }[scoring]
    assert trial.score(factor) == pytest.approx(expected)


@pytest.mark.long
@pytest.mark.parametrize("learner", [nw.MetricLearner, nw.KernelLearner, nw.AutoLearner])
def test_a_learner_chooses_by_what_it_is_asked_for(learner: type) -> None:
    X, y = np.random.default_rng(0).normal(size=(80, 4)), np.arange(80) % 2
    X[:, 0] = 0.3 * X[:, 0] + y
    found = {
        s: learner(scoring=s, random_state=0).fit(X, y).penalty_scores_
        for s in ("auto", "neighbors", "roc_auc")
    }
    assert found["auto"] == found["neighbors"]
    assert [score for _, score in found["roc_auc"]] != [score for _, score in found["auto"]]
    with pytest.raises(ValueError, match=r"scoring must be one of 'auto', 'neighbors', .*got 'f1'"):
        learner(scoring="f1").fit(X, y)
    side = c.similar([(0, 2), (4, 6)] * 3) + c.dissimilar([(0, 1), (2, 3)] * 3)
    with pytest.raises(ValueError, match="scoring='accuracy' needs labels y"):
        learner(scoring="accuracy").fit(X, constraints=side)
    assert learner(scoring="roc_auc", penalty=1.0).fit(X, constraints=side).n_constraints_used_ == 12


@pytest.mark.parametrize("learner", [nw.MetricLearner, nw.KernelLearner, nw.AutoLearner])
def test_labels_that_tell_nothing_leave_the_prior_whatever_the_scoring(learner: type) -> None:
    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.warns(nw.PriorKeptWarning, match="all 12 labels are 0"):
        found = learner(scoring="balanced_accuracy").fit(X, np.zeros(12, int))
    assert found.kept_prior_


@pytest.mark.long
def test_rare_classes_count_where_they_are_asked_for() -> None:
    """Noise that hides a rare class is worth removing only where that class counts like the others."""
    draw = np.random.default_rng(0)
    y = (np.arange(400) % 10 == 0).astype(int)
    X = draw.normal(size=(400, 6))
    test, y_test = draw.normal(size=(400, 6)), y
    for rows in (X, test):
        rows[:, 0] += 2.5 * y
        rows[:, 1:] *= 2.0

    def recall(**settings: object) -> float:
        weights = settings.pop("sample_weight", None)
        learner = nw.MetricLearner(random_state=0, **settings).fit(X, y, sample_weight=weights)
        machine = KNeighborsClassifier(5).fit(learner.transform(X), y)
        return float(balanced_accuracy_score(y_test, machine.predict(learner.transform(test))))

    plain = balanced_accuracy_score(y_test, KNeighborsClassifier(5).fit(X, y).predict(test))
    balanced = compute_sample_weight("balanced", y)
    assert recall(scoring="balanced_accuracy", sample_weight=balanced) > plain + 0.05
