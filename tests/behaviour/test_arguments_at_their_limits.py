"""Parameters of learners that cannot be meant: swapped, too large, or of another type; refused, or told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import nearwise as nw
from crossing import crossed

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((60, 6)), np.arange(60) % 3
X[:, 0] += 3.0 * Y
PAIRS = rng.standard_normal((5, 2, 6))


# bounds of an online learner


@pytest.mark.parametrize("update", ["logdet", "exponentiated_gradient", "pola"])
@pytest.mark.parametrize("bounds", [(4, 1), (1.0 + 1e-9, 1.0)])
def test_swapped_bounds_are_refused_and_change_nothing(update: str, bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        nw.OnlineLearner(update, bounds=bounds).fit(X, Y)
    learner = nw.OnlineLearner(update, bounds=(1, 4)).partial_fit(PAIRS, [1, -1, 1, 1, -1])
    before = learner.metric_.matrix
    with pytest.raises(ValueError, match=str(bounds[0])):
        learner.set_params(bounds=bounds).partial_fit(PAIRS, [1, -1, 1, 1, -1])
    assert learner.n_feedback_ == 5
    assert np.array_equal(learner.metric_.matrix, before)


@pytest.mark.parametrize("bounds", [(1, 4), (2.0, 2.0), np.array([1.0, 4.0])])
def test_other_bounds_are_taken(bounds: Any) -> None:
    assert nw.OnlineLearner(bounds=bounds).fit(X, Y).n_feedback_ > 0


# equal vectors that are to be apart


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("said", ["dissimilar", "distance"])
def test_equal_vectors_that_shall_be_apart_are_told(first: bool, said: str) -> None:
    pairs = PAIRS.copy()
    pairs[3, 1] = pairs[3, 0]
    says: dict[str, Any] = {"squared_distances": 1.0} if said == "distance" else {"y": [1, -1, 1, -1, -1]}
    learner = nw.OnlineLearner()
    if not first:
        learner.partial_fit(PAIRS, [1, -1, 1, 1, -1])
    with pytest.warns(nw.LeftOutWarning, match=r"\b3\b"):
        learner.partial_fit(pairs, **says)


def test_equal_vectors_that_shall_be_near_are_not_told() -> None:
    pairs = PAIRS.copy()
    pairs[3, 1] = pairs[3, 0]
    assert nw.OnlineLearner().partial_fit(pairs, [-1, -1, 1, 1, -1]).n_feedback_ == 5
    triplets = np.concatenate([pairs, pairs[:, :1] + 1.0], axis=1)
    assert nw.OnlineLearner().partial_fit(triplets).n_feedback_ == 5


# rank

RANKED = {
    "metric": lambda rank: nw.MetricLearner(penalty=1.0, rank=rank, random_state=0),
    "neighbor": lambda rank: nw.NeighborLearner(rank, check=False, random_state=0),
    "fixed": lambda rank: nw.FixedRankLearner(rank, check=False, random_state=0),
    "regressor": lambda rank: nw.FixedRankRegressor(rank, random_state=0),
    "online": lambda rank: nw.OnlineLearner(rank=rank, random_state=0),
}


@crossed(made=RANKED, rank=[7, 50, np.int64(50)])
def test_a_rank_above_the_number_of_features_is_told_and_all_are_learned(made: Any, rank: int) -> None:
    with pytest.warns(UserWarning, match=rf"rank={rank}\b.*\b6\b"):
        found = made(rank).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        largest = made(6).fit(X, Y)
    if hasattr(found, "metric_"):
        assert found.rank_ == 6
        assert np.array_equal(found.metric_.matrix, largest.metric_.matrix)
    else:
        assert np.array_equal(found.predict(X), largest.predict(X))


@pytest.mark.parametrize("made", [nw.NeighborLearner, nw.FixedRankLearner])
def test_the_default_rank_says_nothing_of_one_feature(made: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(check=False, random_state=0).fit(X[:, :1], Y).transform(X[:, :1]).shape == (60, 1)


@pytest.mark.parametrize("made", [nw.KernelLearner, nw.FixedRankLearner], ids=["kernel", "fixed"])
def test_a_rank_above_the_number_of_objects_says_nothing(made: Any) -> None:
    learner = made(kernel="rbf", rank=500, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="rank=")
        warnings.filterwarnings("ignore", message="(?!rank=)")
        assert learner.fit(X, Y).rank_ <= 60


def test_a_search_over_ranks_goes_on() -> None:
    search = GridSearchCV(nw.MetricLearner(penalty=1.0, random_state=0), {"rank": [2, 6, 20]}, cv=2)
    with pytest.warns(UserWarning, match=r"rank=20\b.*\b6\b"):
        search.fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] == scores[2]
    assert np.isfinite(scores).all()


# whole


@crossed(made={"metric": nw.MetricLearner, "online": nw.OnlineLearner}, whole=["yes", "no", None, 1, 0.0])
def test_whole_is_true_or_false(made: Any, whole: Any) -> None:
    with pytest.raises(ValueError, match="whole"):
        made(whole=whole, rank=2).fit(X, Y)
    learner = made(rank=2, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="whole"):
        learner.set_params(whole=whole).transform(X)
    assert learner.set_params(whole=np.True_).transform(X).shape == (60, 6)
    assert learner.set_params(whole=False).transform(X).shape == (60, 2)


def test_whole_is_checked_in_a_stream() -> None:
    with pytest.raises(ValueError, match=r"whole.*'yes'"):
        nw.OnlineLearner(whole="yes").partial_fit(PAIRS, [1, -1, 1, 1, -1])  # type: ignore[arg-type]


# what is refused before any work


def _no_work(x: Any, y: Any) -> float:
    raise AssertionError("the kernel was computed before the arguments were checked")


@pytest.mark.parametrize(
    "learner",
    [
        nw.KernelReducer(kernel=_no_work, callback=3),
        nw.KernelLearner(kernel=_no_work, callback=3),
        nw.FixedRankLearner(kernel=_no_work, callback=3),
        nw.KernelReducer(callback=3),
        nw.MetricLearner(callback=3),
        nw.NeighborLearner(callback=3),
        nw.AutoLearner(callback=3),
    ],
    ids=["reducer, kernel", "kernel, kernel", "fixed, kernel", "reducer", "metric", "neighbor", "auto"],
)
def test_a_callback_that_is_no_function_is_refused(learner: Any) -> None:
    with pytest.raises(TypeError, match=r"callback.*int"):
        learner.fit(X, Y)


@pytest.mark.parametrize(
    "name", ["ConvergenceDisplay", "DistanceDisplay", "EmbeddingDisplay", "SpectrumDisplay"]
)
def test_axes_that_are_none_are_refused(name: str) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, Y)
    kind: Any = getattr(nw.plotting, name)
    arguments = () if name == "ConvergenceDisplay" else (X,) if name == "SpectrumDisplay" else (X, Y)
    with pytest.raises(TypeError, match=r"ax .*int"):
        kind.from_estimator(fitted, *arguments, ax=3)
    with pytest.raises(TypeError, match=r"ax .*int"):
        kind.from_estimator(fitted, *arguments).plot(ax=3)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a warning about an unknown id comes before the error of an id that is there twice",
)
def test_an_id_that_is_there_twice_is_all_that_is_said() -> None:
    side = nw.constraints.similar([("a", "b"), ("zz", "a")]) + nw.constraints.dissimilar([("c", "d")])
    ids = ["a", "b", "c", "d", "a", *(f"row {k}" for k in range(55))]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="'a'"):
            nw.MetricLearner(penalty=1.0).fit(X, constraints=side, sample_ids=ids)
    assert not said


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="texts given for target='numbers' are refused without what to do in the learner",
)
@pytest.mark.parametrize("labels", [["low", "mid", "high"], ["1", "2", "x"]])
def test_texts_for_numbers_name_the_parameter_that_takes_them(labels: list[str]) -> None:
    with pytest.raises(ValueError, match="target='labels'"):
        nw.NeighborLearner(2, target="numbers").fit(X, np.array(labels)[Y])
