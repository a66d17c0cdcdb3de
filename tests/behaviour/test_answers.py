"""True and False, and 1 and 0, are answers wherever +1 and -1 are; scores by measured distances; deciding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nearwise as nw
from crossing import crossed
from nearwise import cli, constraints as c, online

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
EVERY = np.stack(np.triu_indices(len(X), 1), axis=1)
PAIRS = RNG.permutation(EVERY)[:60]
SAME = RNG.random(60) < 0.5

WRITTEN: dict[str, Callable[[np.ndarray], Any]] = {
    "bool": lambda same: same,
    "bools in a list": lambda same: same.tolist(),
    "1 and 0": lambda same: same.astype(np.int64),
    "uint8": lambda same: same.astype(np.uint8),
    "1.0 and 0.0": lambda same: same.astype(np.float32),
    "objects": lambda same: same.astype(object),
    "a series": pd.Series,
    "a nullable series": lambda same: pd.Series(same, dtype="boolean"),
}


def by_threshold(y: Any, which: slice) -> object:
    learner = nw.MetricLearner(penalty=1.0).fit(X, np.arange(40) % 2).calibrate_threshold(PAIRS, y, X)
    return learner.threshold_


def by_probability(y: Any, which: slice) -> object:
    learner = nw.MetricLearner(penalty=1.0).fit(X, np.arange(40) % 2)
    return learner.calibrate_probability(PAIRS, y, X, method="platt").predict_proba(PAIRS, X).tolist()


def from_pairs(y: Any, which: slice) -> object:
    rows, side = c.from_tuples(X[PAIRS[which]], y)
    return rows.tolist(), [(block.relation, block.ids.tolist()) for block in side.blocks]


def from_quadruplets(y: Any, which: slice) -> object:
    rows, side = c.from_tuples(X[np.hstack([PAIRS, PAIRS[::-1]])[which]], y)
    return rows.tolist(), [block.ids.tolist() for block in side.blocks]


def by_stream(y: Any, which: slice) -> object:
    return nw.OnlineLearner().partial_fit(X[PAIRS[which]], y).distances(X).tolist()


def by_pola(y: Any, which: slice) -> object:
    pola = online.Pola(3)
    differences = X[PAIRS[which, 0]] - X[PAIRS[which, 1]]
    return np.asarray(pola.update(differences, y)).tolist(), pola.matrix.tolist()


@crossed(
    ask={
        f.__name__: f
        for f in (by_threshold, by_probability, from_pairs, from_quadruplets, by_stream, by_pola)
    },
    written=WRITTEN,
)
def test_true_and_false_are_taken_as_plus_and_minus_one(ask: Any, written: Any) -> None:
    every = slice(None)
    assert ask(written(SAME), every) == ask(np.where(SAME, 1, -1), every)


@crossed(
    ask={f.__name__: f for f in (from_pairs, from_quadruplets, by_stream, by_pola)},
    written=WRITTEN,
    same=[True, False],
)
def test_a_column_of_one_answer_alone_means_the_same(ask: Any, written: Any, same: bool) -> None:
    """So that a stream may come in pieces, down to one pair."""
    for count in (1, 3):
        which = slice(0, count)
        answer = np.full(count, same)
        assert ask(written(answer), which) == ask(np.where(answer, 1, -1), which)


def test_one_answer_for_all() -> None:
    for same in (True, False):
        assert from_pairs(same, slice(4)) == from_pairs(1 if same else -1, slice(4))


@pytest.mark.parametrize(
    "ask", [by_threshold, by_probability, from_pairs, from_quadruplets, by_stream, by_pola]
)
def test_0_beside_minus_1_is_no_answer(ask: Any) -> None:
    y = np.where(SAME, 1, -1)
    y[7] = 0
    with pytest.raises(ValueError, match=r"\b7: y is 0"):
        ask(y, slice(None))


def squares(pairs: np.ndarray, metric: np.ndarray) -> np.ndarray:
    z = X[pairs[:, 0]] - X[pairs[:, 1]]
    found: np.ndarray = ((z @ metric) * z).sum(axis=1)
    return found


def concordance(learned: np.ndarray, given: np.ndarray, weight: np.ndarray) -> float:
    """Of all combinations of two measured distances that differ, by their definition."""
    held = total = 0.0
    for a in range(len(given)):
        for b in range(a):
            if given[a] != given[b]:
                both = weight[a] * weight[b]
                total += both
                held += both * (np.sign((learned[a] - learned[b]) * (given[a] - given[b])) + 1) / 2
    return held / total


def test_measured_distances_score_by_their_order() -> None:
    learner = nw.MetricLearner(penalty=1.0).fit(X, np.arange(40) % 2)
    learned = learner.pair_distance(PAIRS, X, squared=True)
    given = np.round(squares(PAIRS, np.diag([1.0, 2.0, 3.0])), 1)  # some are equal
    weight = RNG.random(60) + 0.5
    side = c.equal(PAIRS, given, weights=weight)
    assert learner.score(X, constraints=side) == pytest.approx(concordance(learned, given, weight))
    split = c.equal(PAIRS[:20], given[:20], weight[:20]) + c.equal(PAIRS[20:], given[20:], weight[20:])
    assert learner.score(X, constraints=split) == pytest.approx(learner.score(X, constraints=side), rel=1e-12)
    assert learner.score(X, constraints=c.equal(PAIRS, learned)) == 1.0
    assert learner.score(X, constraints=c.equal(PAIRS, 1 / learned)) == 0.0
    assert learner.score(1e-6 * X, constraints=c.equal(PAIRS, learned)) == 1.0
    of_rows = RNG.integers(0, 3, 40).astype(float)
    counts = np.ones(60) * of_rows[PAIRS[:, 0]] * of_rows[PAIRS[:, 1]]
    kept = counts > 0
    found = learner.score(X, constraints=c.equal(PAIRS, given), sample_weight=of_rows)
    assert found == pytest.approx(concordance(learned[kept], given[kept], counts[kept]))


def test_many_measured_distances_are_graded_on_a_part() -> None:
    """780 make 303,810 combinations."""
    learner = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, np.arange(40) % 2)
    given = squares(EVERY, np.diag([1.0, 2.0, 3.0]))
    found = learner.score(X, constraints=c.equal(EVERY, given))
    learned = learner.pair_distance(EVERY, X, squared=True)
    assert found == pytest.approx(concordance(learned, given, np.ones(780)), abs=0.01)
    assert learner.score(X, constraints=c.equal(EVERY, learned)) == 1.0


def test_measured_distances_count_beside_comparisons() -> None:
    learner = nw.MetricLearner(penalty=1.0).fit(X, np.arange(40) % 2)
    learned = learner.pair_distance(PAIRS, X, squared=True)
    near, far = PAIRS[np.argmin(learned)], PAIRS[np.argmax(learned)]
    wrong = c.closer([(*far, *near)] * 20)
    assert learner.score(X, constraints=c.equal(PAIRS, learned) + wrong) == pytest.approx(60 / 80)


def test_one_measured_distance_orders_nothing() -> None:
    learner = nw.MetricLearner(penalty=1.0).fit(X, np.arange(40) % 2)
    for side in (c.equal(PAIRS, 2.0), c.equal(PAIRS[:1], 2.0)):
        with pytest.raises(ValueError, match="nothing to score by"):
            learner.score(X, constraints=side)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", X, delimiter=",", header="a,b,c", comments="")
    lines = "".join(f"{i},{j},{int(s)}\n" for (i, j), s in zip(PAIRS, SAME, strict=True))
    for name in ("known.csv", "copy.csv"):
        Path(name).write_text(lines, encoding="utf-8")
    Path("link.csv").symlink_to("known.csv")
    nw.save(nw.Metric(np.eye(3)), "model")
    return tmp_path


@pytest.mark.parametrize("name", ["known.csv", "./known.csv", "link.csv", "copy.csv"])
def test_pairs_that_the_threshold_was_chosen_on_are_told(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["decide", "model", "rows.csv", "--pairs", name, "--calibrate", "known.csv", "--json"]
    assert cli.main(command) == cli.DONE
    notices = json.loads(capsys.readouterr().out)["notices"]
    is_told = any("--pairs and --calibrate" in notice for notice in notices)
    assert is_told == (name != "copy.csv")


@pytest.mark.parametrize("columns", [10, 60])
def test_no_line_speaks_of_an_infinite_gap(
    columns: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped after one iteration, where there may be no lower bound yet."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 5, 400)
    rows = rng.normal(size=(400, columns))
    rows[:, :5] += 2 * np.eye(5)[kind]
    np.savez("wide.npz", X=rows, kind=kind.astype(str))
    command = ["learn", "wide.npz", "--labels", "kind", "--max-seconds", "1e-9", "--force"]
    cli.main([*command, "-o", "stopped", "--json"])
    gap = json.loads(capsys.readouterr().out)["gap"]
    assert gap is None or 0 <= gap <= 1
    cli.main([*command, "-o", "stopped"])
    found = capsys.readouterr()
    assert "LIMIT" in found.out
    assert not {"inf", "infinity", "nan"} & set((found.out + found.err).replace(",", " ").lower().split())
