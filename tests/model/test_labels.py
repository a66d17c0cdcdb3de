"""What labels mean, the same everywhere: classes, no label, and measurements, which are refused."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import nearwise as nw
from nearwise import cli, constraints as c, inspection

X, y = load_iris(return_X_y=True)
CLASSES = np.array(["a", "b", "c"], dtype=object)[y]
DROPPED = np.arange(150) % 3 == 1  # rows that lose their label

LEARNERS: dict[str, Callable[[], Any]] = {
    "metric": lambda: nw.MetricLearner(penalty=1.0, random_state=0),
    "metric, random pairs": lambda: nw.MetricLearner(penalty=1.0, pairs="random", random_state=0),
    "metric, subspace": lambda: nw.MetricLearner(penalty=1.0, rank=2, random_state=0),
    "kernel": lambda: nw.KernelLearner("linear", penalty=1.0, random_state=0),
    "reducer": lambda: nw.KernelReducer(kernel="linear", random_state=0),
    "fixed rank": lambda: nw.FixedRankLearner(random_state=0, check=False),
    "fixed rank, local pairs": lambda: nw.FixedRankLearner(pairs="local", random_state=0, check=False),
    "online": lambda: nw.OnlineLearner(random_state=0),
}
every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


class NoTruthValue:
    """Compares like pandas.NA."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize(
    "unlabelled",
    [
        np.where(DROPPED, -1, y),
        np.where(DROPPED, -1.0, y),
        np.where(DROPPED, np.nan, y),
        np.where(DROPPED, None, CLASSES),
        np.where(DROPPED, -1, CLASSES),
        np.where(DROPPED, np.nan, CLASSES),
        np.where(DROPPED, NoTruthValue(), CLASSES),
        np.where(DROPPED, "-1", CLASSES).astype(str),
        [None if drop else label for drop, label in zip(DROPPED, y, strict=True)],
    ],
)
def test_every_way_to_say_that_there_is_no_label(unlabelled: Any) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        same, different = all_pairs(unlabelled)
    kept = np.flatnonzero(~DROPPED).tolist()
    assert same == {(i, j) for i, j in combinations(kept, 2) if y[i] == y[j]}
    assert different == {(i, j) for i, j in combinations(kept, 2) if y[i] != y[j]}
    is_said = any(str(label).startswith("-1") for label in unlabelled)  # which may be meant as a class
    assert ["50 of 150 rows" in str(warning.message) for warning in warned] == [True] * is_said


def all_pairs(labels: Any) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Within the classes and across them."""
    found: tuple[set[tuple[int, int]], set[tuple[int, int]]] = (set(), set())
    for block in c.from_labels(labels, n_pairs=len(labels) ** 2).blocks:
        assert block.ids is not None
        found[block.relation > 0].update(map(tuple, np.sort(block.ids, axis=1).tolist()))
    return found


def test_dates_that_are_missing_are_no_labels() -> None:
    dates = np.array(["2024-02-01", "NaT", "2024-01-01", "2024-02-01"], dtype="datetime64[D]")
    assert all_pairs(dates) == ({(0, 3)}, {(0, 2), (2, 3)})


@every_learner
def test_learners_take_no_label_for_no_label(make: Callable[[], Any]) -> None:
    learners = [make().fit(X, np.where(DROPPED, none, CLASSES)) for none in (None, np.nan)]
    with pytest.warns(UserWarning, match="50 of 150 rows"):
        learners.append(make().fit(X, np.where(DROPPED, -1, CLASSES)))
    for learner in learners[1:]:
        np.testing.assert_array_equal(learner.transform(X), learners[0].transform(X))
    as_classes = make().fit(X, np.where(DROPPED, "rest", CLASSES))
    assert not np.allclose(as_classes.transform(X), learners[0].transform(X))
    score = learners[0].score(X, np.where(DROPPED, np.nan, y))
    assert score == pytest.approx(learners[0].score(X[~DROPPED], y[~DROPPED]), abs=1e-4)


@pytest.mark.parametrize("pairs", ["local", "random"])
def test_rows_without_a_label_are_in_no_pair_and_leave_a_metric_as_it_is(pairs: str) -> None:
    def learned(rows: Any, labels: Any) -> Any:
        return nw.MetricLearner(penalty=1.0, pairs=pairs, random_state=0).fit(rows, labels)

    part, whole = learned(X[~DROPPED], y[~DROPPED]), learned(X, np.where(DROPPED, np.nan, y))
    np.testing.assert_allclose(
        part.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), rtol=1e-5, atol=1e-9
    )
    side = c.from_labels(np.where(DROPPED, np.nan, y), X, pairs, random_state=0)
    assert not any(DROPPED[block.ids].any() for block in side.blocks)


def test_constraints_on_rows_without_a_label_are_learned_from_while_the_penalty_is_chosen() -> None:
    partly = np.where(DROPPED, np.nan, y)
    rows = np.flatnonzero(DROPPED)
    side = c.similar(np.stack([rows[:10], rows[10:20]], axis=1))
    fitted = nw.MetricLearner(random_state=0).fit(X, partly, constraints=side)
    alone = nw.MetricLearner(random_state=0).fit(X, partly)
    assert fitted.n_constraints_used_ == alone.n_constraints_used_ + 10
    assert fitted.penalty_scores_[1:] != alone.penalty_scores_[1:]


def test_a_stream_skips_rows_without_a_label_however_it_is_cut() -> None:
    partly = np.where(DROPPED, np.nan, y)
    whole = nw.OnlineLearner().partial_fit(X, partly)
    cut = nw.OnlineLearner()
    for row in range(150):
        cut.partial_fit(X[row : row + 1], [None if DROPPED[row] else int(y[row])])
    without = nw.OnlineLearner().partial_fit(X[~DROPPED], y[~DROPPED])
    for other in (cut, without):
        np.testing.assert_array_equal(whole.get_mahalanobis_matrix(), other.get_mahalanobis_matrix())


@every_learner
def test_minus_one_and_one_alone_are_two_classes_and_that_is_said(make: Callable[[], Any]) -> None:
    signs = np.where(y == 0, -1, 1)
    with pytest.warns(
        UserWarning, match="y holds -1 and 1 only: taken for two classes, though else -1 means"
    ):
        fitted = make().fit(X, signs)
    named = make().fit(X, np.where(y == 0, "no", "yes"))
    np.testing.assert_array_equal(fitted.transform(X), named.transform(X))


def test_minus_one_and_one_in_a_stream_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="in a stream -1 means no label; give two classes other names"):
        learner = nw.OnlineLearner().partial_fit(X, np.where(y == 0, -1, 1))
    only_ones = nw.OnlineLearner().partial_fit(X[y > 0], np.ones(100))
    np.testing.assert_array_equal(learner.get_mahalanobis_matrix(), only_ones.get_mahalanobis_matrix())


@every_learner
@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        (np.zeros(150), "all 150 labels are 0.0, and one class does not tell what differs"),
        (np.where(DROPPED, np.nan, 5), r"all 100 labels are 5\.0, and one class"),
        (np.full(150, np.nan), "no row has a label"),
        (
            np.array([f"flower {row}" for row in range(150)]),
            "all 150 labels differ, so no two rows are of one",
        ),
    ],
)
def test_labels_that_say_nothing_are_told(make: Callable[[], Any], labels: Any, cause: str) -> None:
    learner = make()
    with pytest.warns(nw.PriorKeptWarning, match=cause):
        learner.fit(X, labels)
    with pytest.warns(UserWarning, match=f"the labels are not used: {cause}"):
        make().fit(X, labels, constraints=c.similar([(0, 1)]) + c.dissimilar([(0, 60)]))


MEASUREMENTS = {
    "normal": np.random.default_rng(0).standard_normal(150),
    "one digit": np.round(np.random.default_rng(0).standard_normal(150), 1),
    "whole": np.random.default_rng(0).permutation(1000)[:150],
    "whole floats, some twice": np.r_[np.arange(140.0), np.arange(10.0)],
    "with unlabelled": np.where(DROPPED, -1.0, np.arange(150.0) / 7),
}


@every_learner
@pytest.mark.parametrize("target", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_measurements_are_refused(make: Callable[[], Any], target: Any) -> None:
    learner = make()
    with pytest.raises(
        ValueError, match=r"y holds \d+ different numbers in \d+ rows, .*: measurements are not"
    ):
        learner.fit(X, target)
    assert not hasattr(learner, "metric_")


def verdict(use: Callable[[], object]) -> str:
    """What is said of labels."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            use()
        except ValueError as error:
            assert "measurements are not labels of classes" in str(error)  # noqa: PT017
            return "refused"
    return " ".join(str(warning.message) for warning in warned)


def test_the_rule_for_measurements() -> None:
    def of_labels(target: Any) -> str:
        return verdict(lambda: c.from_labels(target))

    rng = np.random.default_rng(0)
    advice = r"cut numbers into ranges \(numpy.digitize\), or make texts of them \(y.astype\(str\)\)"
    with pytest.raises(ValueError, match=f"456 different numbers in 532 rows, most of them once.*; {advice}"):
        c.from_labels(np.r_[np.arange(456), np.arange(76)])
    # ids of people or products with two or three rows each are classes, also in a half of the data
    assert of_labels(np.repeat(np.arange(300), 3)) == ""
    half = rng.permutation(np.repeat(np.arange(300), 2))[:300]
    assert "each is taken for a class; if they are measurements, cut" in of_labels(half)
    assert of_labels([f"{number}" for number in range(456)] + ["0"] * 76) == ""
    assert of_labels(np.arange(20)) == ""
    assert of_labels(y.astype(float)) == of_labels(y == 0) == ""
    assert "214 different numbers in 442 rows: each is taken" in of_labels(load_diabetes().target)
    ratings = np.repeat([0.5, 1.0, 1.5, 2.0], 10)
    assert "4 different numbers in 40 rows, such as 0.5: each is taken for a class" in of_labels(ratings)
    assert of_labels(ratings.astype(str)) == ""
    assert of_labels([0.5, 1.5, 2.5]) == of_labels(np.arange(42) % 21 + 0.5) == "refused"


def test_labels_of_a_part_of_the_rows_are_not_doubted_for_being_rare() -> None:
    """A score does not know how often a number occurs in all rows."""
    rng = np.random.default_rng(0)
    half = rng.permutation(np.repeat(np.arange(300), 2))[:300]
    rows = rng.normal(size=(300, 4))
    learner = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    assert verdict(lambda: learner.score(rows, half)) == ""
    assert verdict(lambda: learner.score(rows[:30], np.arange(30) % 28 + 0.5)) == "refused"


def test_pairs_are_not_drawn_from_measurements() -> None:
    with pytest.raises(ValueError, match="measurements are not labels of classes"):
        c.from_labels(MEASUREMENTS["normal"])


def test_pictures_take_no_label_for_no_label() -> None:
    shown = inspection.classes(list(np.where(DROPPED, -1, y)))
    assert set(shown.names.values()) == {"0", "1", "2", "no label"}
    pairs, is_similar = inspection.label_pairs(np.where(DROPPED, -1, y))
    assert not DROPPED[pairs].any()
    np.testing.assert_array_equal(is_similar, y[pairs[:, 0]] == y[pairs[:, 1]])


# the command line


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Learns from iris with given labels: what --json prints, or the one line that refuses."""
    monkeypatch.chdir(tmp_path)

    def learn(labels: Any, line: str = "--penalty 1", code: int = cli.DONE) -> Any:
        rows = [",".join(map(str, [*row, label])) for row, label in zip(X, labels, strict=True)]
        Path("data.csv").write_text("a,b,c,d,kind\n" + "\n".join(rows), encoding="utf-8")
        command = f"learn data.csv --labels kind -o model --force --json {line}"
        assert cli.main(shlex.split(command)) == code
        printed = capsys.readouterr()
        return json.loads(printed.out) if code == cli.DONE else printed.err

    return learn


@pytest.mark.long
@pytest.mark.parametrize("word", ["-1", "-1.0", "", "nan", "NA", "None"])
def test_commands_take_no_label_for_no_label(word: str, run: Callable[..., Any]) -> None:
    found = run(np.where(DROPPED, word, CLASSES))
    assert found["learned_from"] == "80 labelled rows in 3 classes"
    assert ["50 of 150 rows" in note for note in found["notices"]] == [True] * word.startswith("-1")
    digits = run(np.where(DROPPED, word, y.astype(str)))
    assert digits["figures"] == found["figures"]


def test_commands_say_that_minus_one_and_one_are_two_classes(run: Callable[..., Any]) -> None:
    found = run(np.where(y == 0, -1, 1))
    assert found["learned_from"] == "120 labelled rows in 2 classes"
    assert found["notices"] == [
        "data.csv: the column of labels holds '-1' and '1' only: taken for two classes, though else -1 means "
        "no label"
    ]


@pytest.mark.parametrize("target", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_commands_refuse_measurements(target: Any, run: Callable[..., Any]) -> None:
    error = run(target, code=cli.BAD_INPUT)
    assert error.count("\n") == 1
    assert error.startswith("nearwise: data.csv: the column of labels holds ")
    assert "measurements are not labels of classes; name another column of labels" in error


@pytest.mark.long
def test_commands_take_texts_that_occur_once_and_ratings(run: Callable[..., Any]) -> None:
    found = run([f"person {row // 2 if row < 40 else row}" for row in range(150)], "--held-out 0")
    assert found["learned_from"] == "150 labelled rows in 130 classes"
    found = run(np.array(["0.5", "1", "1.5"])[y])
    assert len(found["notices"]) == 1
    assert "3 different numbers in 150 rows, such as 0.5: each is taken for a class" in found["notices"][0]


def test_commands_refuse_one_class(run: Callable[..., Any]) -> None:
    error = run(np.where(DROPPED, "-1", "a"), code=cli.BAD_INPUT)
    assert "all 100 labels are 'a'; two classes or more are needed" in error
