"""Decisions about pairs: thresholds by every strategy, probabilities, model files, and when they are void."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import accuracy_score, fbeta_score, recall_score

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners.calibration import Calibration, Rates

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
CLASSES = np.arange(60) % 3
X[:, 0] += 2 * CLASSES
PAIRS = np.array([RNG.choice(60, 2, replace=False) for _ in range(120)])
Y = np.where(CLASSES[PAIRS[:, 0]] == CLASSES[PAIRS[:, 1]], 1, -1)
LEARNERS = {
    "metric": nw.MetricLearner(penalty=1.0, random_state=0),
    "rank": nw.MetricLearner(rank=2, penalty=1.0, random_state=0),
    "kernel": nw.KernelLearner("rbf", penalty=1.0, random_state=0),
    "fixed_rank": nw.FixedRankLearner(2, check=False, random_state=0),
    "online": nw.OnlineLearner(random_state=0),
}


@pytest.fixture
def learner() -> nw.MetricLearner:
    return nw.MetricLearner(penalty=1.0, random_state=0).fit(X, CLASSES)


def drawn(seed: int, m: int = 40) -> Calibration:
    """Distances with ties, on a grid whose sums are exact."""
    rng = np.random.default_rng(seed)
    same = rng.random(m) < 0.4
    same[:2] = True, False
    return Calibration(rng.integers(1, 12, m) / 4 + np.where(same, 0.0, 0.5), same)


def merits(found: Calibration, threshold: float) -> dict[str, float]:
    said = found.distances <= threshold
    return {
        "accuracy": accuracy_score(found.same, said),
        "f_beta": fbeta_score(found.same, said, beta=2.0, zero_division=0.0),
        "tpr": recall_score(found.same, said),
        "tnr": recall_score(~found.same, ~said),
    }


@pytest.mark.parametrize("seed", range(8))
def test_no_threshold_is_better_than_the_one_that_is_chosen(seed: int) -> None:
    found = drawn(seed)
    all_of_them = [merits(found, t) for t in np.append(0.0, np.unique(found.distances) + 1e-3)]
    for strategy in ("accuracy", "f_beta"):
        chosen = merits(found, found.threshold(strategy, beta=2.0))[strategy]
        assert chosen == pytest.approx(max(merit[strategy] for merit in all_of_them))
    for strategy, wanted, other in (("max_tpr", "tpr", "tnr"), ("max_tnr", "tnr", "tpr")):
        chosen = merits(found, found.threshold(strategy, min_rate=0.8))
        possible = [merit for merit in all_of_them if merit[other] >= 0.8]
        assert chosen[other] >= 0.8
        assert chosen[wanted] == pytest.approx(max(merit[wanted] for merit in possible))


def test_a_threshold_lies_between_distances_and_weights_are_repetitions() -> None:
    found = Calibration(np.array([1.0, 2.0, 4.0, 6.0]), np.array([True, True, False, False]))
    assert found.threshold() == 3.0
    for seed in range(4):
        pairs = drawn(seed)
        counts = np.random.default_rng(seed).integers(1, 4, len(pairs.same))
        weighted = Calibration(pairs.distances, pairs.same, counts.astype(float))
        repeated = Calibration(np.repeat(pairs.distances, counts), np.repeat(pairs.same, counts))
        assert weighted.threshold() == repeated.threshold()
        grid = np.linspace(0, 5, 40)
        for method, atol in (("isotonic", 1e-12), ("platt", 1e-4)):
            ours, theirs = (side.probability(method).of(grid) for side in (weighted, repeated))
            np.testing.assert_allclose(ours, theirs, atol=atol)
        ours, theirs = weighted.rates(2.0), repeated.rates(2.0)
        assert (ours.tpr, ours.fpr, ours.precision) == pytest.approx(
            (theirs.tpr, theirs.fpr, theirs.precision)
        )


def test_pairs_of_distance_zero_are_the_same_whatever_the_threshold() -> None:
    found = Calibration(np.array([0.0, 1.0]), np.array([False, True]))
    assert found.threshold() == 1.0  # one of two is right either way, and at 0 none
    with pytest.raises(ValueError, match=r"no threshold reaches min_rate=1\.0"):
        found.threshold("max_tpr", min_rate=1.0)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_decides_and_a_model_file_keeps_it(name: str, tmp_path: Path) -> None:
    learner = clone(LEARNERS[name]).fit(X, CLASSES)
    for method in ("predict", "decision_function", "predict_proba"):
        assert not hasattr(learner, method)
    learner.calibrate_threshold(PAIRS, Y, X)
    assert not hasattr(learner, "predict_proba")
    learner.calibrate_probability(PAIRS, Y, X)
    said = learner.predict(PAIRS, X)
    np.testing.assert_array_equal(
        said, np.where(learner.pair_distance(PAIRS, X) <= learner.threshold_, 1, -1)
    )
    np.testing.assert_array_equal(said, np.where(learner.decision_function(PAIRS, X) >= 0, 1, -1))
    np.testing.assert_array_equal(said, learner.predict(X[PAIRS]))
    assert np.mean(said == Y) > 0.6
    expected = IsotonicRegression(increasing=False).fit_transform(learner.pair_distance(PAIRS, X), Y > 0)
    probability = learner.predict_proba(PAIRS, X)
    np.testing.assert_allclose(probability[:, 1], expected, atol=1e-12)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    nw.save(learner, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(PAIRS, X), said)
    np.testing.assert_array_equal(loaded.predict_proba(PAIRS, X), probability)
    assert loaded.calibration_.rates(loaded.threshold_) == learner.calibration_.rates(learner.threshold_)
    assert not hasattr(clone(learner), "threshold_")


def test_another_fit_makes_a_threshold_void(learner: nw.MetricLearner) -> None:
    learner.calibrate_threshold(PAIRS, Y, X).calibrate_probability(PAIRS, Y, X, method="platt")
    learner.fit(X[:40], CLASSES[:40])
    for method in (lambda: learner.predict(PAIRS, X), lambda: learner.predict_proba(PAIRS, X)):
        with pytest.raises(AttributeError, match="fitted again after it was calibrated: call calibrate_"):
            method()
    learner.set_threshold(1.0)
    assert (learner.predict(PAIRS, X) > 0).tolist() == (learner.pair_distance(PAIRS, X) <= 1.0).tolist()
    with pytest.raises(AttributeError, match=r"no predict_proba yet: call calibrate_probability\(pairs, y\)"):
        learner.predict_proba(PAIRS, X)


def test_platt_is_finite_and_falls_where_a_threshold_makes_no_mistake() -> None:
    found = Calibration(np.arange(1.0, 21.0), np.arange(20) < 10)
    chance = found.probability("platt").of(np.array([1.0, 10.5, 20.0]))
    assert (np.diff(chance) < 0).all()
    assert chance[0] > 0.9
    assert chance[2] < 0.1
    assert chance[1] == pytest.approx(0.5, abs=1e-3)
    # at the optimum the mean probability is that of Platt's targets
    assert np.mean(found.probability("platt").of(found.distances)) == pytest.approx(0.5, abs=1e-4)


def test_precision_is_that_of_pairs_as_they_come() -> None:
    """Of chosen pairs half are the same, of all pairs one in a hundred."""
    rates = Rates(0.9, 0.01, 0.9 / 0.91, (0.005, 0.02))
    found = 0.01 * 0.9 + 0.99 * 0.01
    estimate, low, high = rates.precision_among(found)
    assert estimate == pytest.approx(0.009 / found)
    assert low < estimate < high
    assert rates.precision_among(0.0) is None
    assert Rates(0.5, 0.5, 0.5, (0.4, 0.6)).precision_among(0.5) is None
    none_wrong = Calibration(np.arange(100.0), np.arange(100) < 20).rates(10.0)
    assert (none_wrong.fpr, none_wrong.precision) == (0.0, 1.0)
    # Clopper and Pearson's upper limit for 0 of 80
    assert none_wrong.fpr_interval == pytest.approx((0.0, 1 - 0.025 ** (1 / 80)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.ones(120)}, r"pairs that are the same and others, got \[1\.0\] alone"),
        ({"y": np.zeros(120)}, r"pairs that are the same and others, got \[-1\.0\] alone"),
        ({"y": np.where(Y > 0, 0, -1)}, "y is 0"),
        ({"y": Y[:3]}, "120 in all"),
        ({"strategy": "best"}, "strategy must be one of"),
        ({"strategy": "max_tpr"}, "min_rate must be a number from 0 to 1 with strategy='max_tpr'"),
        ({"min_rate": 0.5}, "min_rate must be None with strategy='accuracy'"),
        ({"beta": 0.0}, "beta must be"),
        ({"sample_weight": -1.0}, "sample_weight is -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: dict[str, object], message: str, learner: nw.MetricLearner
) -> None:
    with pytest.raises(ValueError, match=message):
        learner.calibrate_threshold(**{"pairs": PAIRS, "y": Y, "X": X, **arguments})
    assert not hasattr(learner, "threshold_")


def test_constraints_of_metric_learn_are_decided_alike() -> None:
    rows, side = c.from_tuples(X[PAIRS], Y)
    fitted = nw.MetricLearner(penalty=1.0).fit(rows, constraints=side)
    fitted.calibrate_threshold(X[PAIRS], Y)
    assert np.mean(fitted.predict(X[PAIRS]) == Y) > np.mean(Y < 0)
