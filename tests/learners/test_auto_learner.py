"""`AutoLearner`: kinds of metrics that compete, the scores that two of them use, and the choice."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners import _discriminants
from nearwise.learners.grades import NOISE, Grade


def shells(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two shells around each other in ten dimensions, of which a linear metric has none to prefer."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 10))
    return X * ((1.0 + 0.8 * y) / np.linalg.norm(X, axis=1))[:, None] + rng.normal(0, 0.05, (n, 10)), y


def stripes(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that one of five columns tells, beside larger noise: a linear metric is all it takes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return np.column_stack([y + rng.normal(0, 0.05, n), rng.normal(0, 2.0, (n, 4))]), y


def error(learner: Any, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> float:
    found = KNeighborsClassifier(5).fit(learner.transform(X), y)
    return 1.0 - float(found.score(learner.transform(X_new), y_new))


def test_scores_of_left_out_objects_are_those_of_a_regression_without_them() -> None:
    X, _ = shells(40)
    rng = np.random.default_rng(1)
    w, points, gamma = rng.uniform(0.5, 2.0, 40), X[::3], 0.2
    targets = _discriminants._contrasts(np.arange(40) % 3)
    targets -= w @ targets / w.sum()
    ridge = _discriminants.RIDGES[5]
    root = np.linalg.inv(
        np.linalg.cholesky(rbf_kernel(points, points, gamma) + 1e-10 * len(points) * np.eye(14))
    ).T
    features = np.hstack([rbf_kernel(X, points, gamma) @ root, np.ones((40, 1))])
    shrinks = np.diag([ridge * w.sum()] * 14 + [0.0])  # the constant is free

    def predicted(rows: np.ndarray, asked: int) -> np.ndarray:
        A = features[rows]
        return features[asked] @ np.linalg.solve(
            A.T @ (A * w[rows, None]) + shrinks, A.T @ (targets[rows] * w[rows, None])
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_discriminants, "RIDGES", (ridge,))
        found = _discriminants._regression(X, targets, w, points, gamma)
    expected = [predicted(np.delete(np.arange(40), k), k) for k in range(40)]
    np.testing.assert_allclose(found.left_out, expected, rtol=1e-6, atol=1e-8)
    scores = _discriminants.Scores(found.kernel, np.zeros(10), points, found.weights, found.offset)(X)
    np.testing.assert_allclose(scores, [predicted(np.arange(40), k) for k in range(40)], rtol=1e-6, atol=1e-8)


def test_contrasts_put_all_classes_at_one_distance_around_zero() -> None:
    corners = _discriminants._contrasts(np.array([7, 2, 5, 9]))
    assert corners.shape == (4, 3)
    gram = corners @ corners.T
    np.testing.assert_allclose(gram, np.eye(4) - 0.25, atol=1e-12)


def test_shells_are_parted_by_a_kernel_and_by_no_linear_metric() -> None:
    (X, y), (X_new, y_new) = shells(160), shells(160, seed=1)
    linear = nw.MetricLearner(random_state=0).fit(X, y)
    auto = nw.AutoLearner(random_state=0).fit(X, y)
    assert auto.choice_ in ("rbf", "linear+rbf")
    assert [name for name, _ in auto.choice_scores_] == ["euclidean", "linear", "linear+rbf", "rbf"]
    assert isinstance(auto.metric_, nw.JoinedMetric)
    assert not auto.kept_prior_
    assert error(auto, X, y, X_new, y_new) < error(linear, X, y, X_new, y_new) - 0.05
    assert not hasattr(auto, "components_")
    assert not hasattr(auto, "get_mahalanobis_matrix")
    coordinates = auto.transform(X_new)
    distances = np.linalg.norm(coordinates[:, None] - coordinates, axis=2)
    np.testing.assert_allclose(auto.distances(X_new), distances, atol=1e-6 * distances.max())
    assert auto.metric_(X_new[0], X_new[1]) == pytest.approx(distances[0, 1])


def test_where_a_linear_metric_is_all_it_takes_it_is_that_of_metric_learner() -> None:
    X, y = stripes()
    auto = nw.AutoLearner(random_state=0).fit(X, y)
    linear = nw.MetricLearner(random_state=0).fit(X, y)
    assert auto.choice_ == "linear"
    np.testing.assert_array_equal(auto.metric_.factor, linear.metric_.factor)
    np.testing.assert_array_equal(auto.components_, linear.components_)
    np.testing.assert_array_equal(auto.get_mahalanobis_matrix(), linear.get_mahalanobis_matrix())
    assert auto.penalty_scores_ == linear.penalty_scores_
    scores = dict(auto.choice_scores_)
    assert scores["euclidean"] == linear.penalty_scores_[0][1]
    assert scores["linear"] == max(score for _, score in linear.penalty_scores_)


def test_labels_without_meaning_choose_nothing_that_flatters_itself() -> None:
    """Scores made from the labels that are held out would tell these."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(400, 6)), rng.integers(0, 2, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        found = dict(nw.AutoLearner(random_state=0).fit(X, y).choice_scores_)
    # the share of right neighbours of 200 held-out objects by chance: 0.5, standard error below 0.02
    assert all(abs(score - 0.5) < 0.08 for score in found.values()), found


def test_a_lead_counts_in_standard_errors() -> None:
    each = np.array([1.0, 0.0, 1.0, 0.0])
    lead, error = Grade(0.5, each).lead(Grade(0.25, np.array([1.0, 0.0, 0.0, 0.0])))
    assert lead == 0.25
    assert error == pytest.approx(0.25)  # of differences 0, 0, 1, 0
    assert lead > NOISE * error
    assert Grade(0.5, each[:1]).lead(Grade(0.25, each[:1])) == (0.25, 0.0)


@pytest.mark.parametrize("kernel", ["rbf", "linear+rbf"])
def test_a_kind_can_be_named(kernel: str) -> None:
    X, y = shells()
    learner = nw.AutoLearner(kernel, penalty=1.0, random_state=0).fit(X, y)
    assert learner.choice_ == kernel
    assert learner.choice_scores_ == ()
    assert learner.transform(X).shape[1] == (1 if kernel == "rbf" else 11)
    assert learner.penalty_ == 1.0


def test_a_linear_metric_can_be_named() -> None:
    X, y = shells()
    named = nw.AutoLearner("linear", penalty=1.0, random_state=0).fit(X, y)
    linear = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    assert (named.choice_, named.choice_reason_) == ("linear", "")
    np.testing.assert_array_equal(named.transform(X), linear.transform(X))


def test_why_only_a_linear_metric_took_part() -> None:
    X, y = shells(60)
    pairs = np.arange(60).reshape(-1, 2)
    side = c.similar(pairs[:15]) + c.dissimilar(pairs[15:])
    learner = nw.AutoLearner(penalty=1.0, random_state=0)
    assert "no labels" in learner.fit(X, constraints=side).choice_reason_
    wide = sparse.hstack([sparse.csr_array(X), sparse.csr_array((60, 250))])
    assert "256 features" in learner.fit(wide, y).choice_reason_
    assert learner.fit(sparse.csr_array(X), y).choice_reason_ == ""
    assert "20 labelled rows" in learner.fit(X[:12], y[:12]).choice_reason_
    products = c.similarity([[0, 1]], 5.0, "<=")
    assert "not about distances" in learner.fit(X, y, constraints=products).choice_reason_
    assert learner.fit(X, y, constraints=side).choice_reason_ == ""
    with pytest.raises(ValueError, match=r"kernel='rbf' cannot be learned: there are no labels"):
        nw.AutoLearner("rbf").fit(X, constraints=side)
    with pytest.raises(ValueError, match="kernel must be one of"):
        nw.AutoLearner("poly").fit(X, y)


def test_rows_without_label_or_weight_teach_no_scores() -> None:
    X, y = shells(80)
    known = np.arange(80) < 60
    labels = np.where(known, y.astype(object), None)
    flipped = np.where(known, y, 1 - y)
    learner = nw.AutoLearner("rbf", penalty=1.0, random_state=0)
    unlabelled = learner.fit(X, labels).transform(X)
    weightless = learner.fit(X, flipped, sample_weight=known.astype(float)).transform(X)
    np.testing.assert_allclose(unlabelled, weightless, atol=1e-12)


def test_stopped_while_kinds_compete_it_keeps_the_linear_metric() -> None:
    X, y = shells()
    count = {"n": 0}

    def stop(record: Any) -> bool:
        count["n"] += 1
        return count["n"] >= limit

    limit = 10**9
    nw.AutoLearner("linear", random_state=0, callback=stop).fit(X, y)
    count["n"], limit = 0, count["n"] + 2  # beyond what the linear kind takes
    with pytest.warns(Warning, match="Interrupted"):
        learner = nw.AutoLearner(random_state=0, callback=stop).fit(X, y)
    assert learner.status_ is nw.Status.INTERRUPTED
    assert np.isfinite(learner.transform(X)).all()


@pytest.mark.long
def test_a_checkpoint_goes_on_where_kinds_competed(tmp_path: Path) -> None:
    X, y = shells()
    path = tmp_path / "fit"
    whole = nw.AutoLearner(random_state=0, checkpoint=path).fit(X, y)
    assert not path.exists()
    count = {"n": 0}

    def stop(record: Any) -> bool:
        count["n"] += 1
        return count["n"] >= whole.n_iter_ // 2

    with pytest.warns(Warning, match="Interrupted"):
        nw.AutoLearner(random_state=0, checkpoint=path, callback=stop).fit(X, y)
    assert path.exists()
    resumed = nw.AutoLearner(random_state=0, checkpoint=path).fit(X, y)
    assert resumed.choice_scores_ == whole.choice_scores_
    np.testing.assert_array_equal(resumed.transform(X), whole.transform(X))


def test_warnings_name_the_learner_that_was_asked() -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    for settings, target in (({}, None), ({"kernel": "linear", "penalty": 9.0, "max_iter": 1}, y)):
        with pytest.warns(Warning, match="^AutoLearner") as told:
            nw.AutoLearner(random_state=0, **settings).fit(X, target)
        assert not any("MetricLearner" in str(one.message) for one in told)


def test_decisions_about_pairs_and_neighbours_go_with_it() -> None:
    X, y = shells()
    learner = nw.AutoLearner(random_state=0).fit(X, y)
    pairs = np.random.default_rng(0).integers(0, len(X), (200, 2))
    same = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    learner.calibrate_threshold(X[pairs], same)
    assert np.mean(learner.predict(X[pairs]) == same) > 0.9


def test_a_model_file_keeps_the_scores_bit_by_bit(tmp_path: Path) -> None:
    X, y = shells()
    saved = nw.AutoLearner(random_state=0).fit(X, y)
    nw.save(saved, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    assert isinstance(loaded.metric_, nw.JoinedMetric)
    np.testing.assert_array_equal(loaded.transform(X + 0.1), saved.transform(X + 0.1))
    np.testing.assert_array_equal(loaded.distances(X), saved.distances(X))
    assert (loaded.choice_, loaded.choice_scores_) == (saved.choice_, saved.choice_scores_)


def test_an_offset_that_all_rows_share_changes_nothing() -> None:
    X, y = shells()
    X = np.round(X, 4)
    near, far = nw.AutoLearner(random_state=0).fit(X, y), nw.AutoLearner(random_state=0).fit(X + 2.0**20, y)
    assert near.choice_ == far.choice_
    np.testing.assert_allclose(far.distances(X + 2.0**20), near.distances(X), rtol=1e-4, atol=1e-4)
