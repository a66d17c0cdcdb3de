"""Wrong labels and answers that were planted are found, named, and written without formulas."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from nearwise import constraints as c, study
from nearwise.data import tables
from nearwise.study.suspicion import as_columns

X, y = load_iris(return_X_y=True)
KINDS = np.array(["setosa", "versicolor", "=virginica()"], dtype=object)[y]
IDS = np.array([f"f{k}" for k in range(150)])
QUICK = study.Settings(penalty=1.0, scale=True)


@pytest.fixture(scope="module")
def line() -> np.ndarray:
    """Points on a line, and a second coordinate that does not matter."""
    rng = np.random.default_rng(0)
    return np.column_stack([np.arange(60.0), rng.normal(size=60)])


def learned(X: np.ndarray, side: c.Constraints) -> study.Outcome:
    return study.learn(study.from_arrays(X, constraints=side), study.Settings(penalty=100.0, held_out=0.0))


def test_wrong_labels_are_found() -> None:
    labels = KINDS.copy()
    labels[7], labels[120] = "=virginica()", "setosa"
    outcome = study.learn(study.from_arrays(X, labels, ids=IDS), QUICK)
    found = {suspect.rows: suspect for suspect in study.suspects(outcome)}
    assert {(7,), (120,)} <= found.keys()
    assert found[7,].given == "=virginica()"
    assert found[7,].suggested == "setosa"
    assert found[7,].why == "10 of its 10 nearest rows are setosa"
    assert found[120,].suggested == "=virginica()"
    held = set(outcome.split.held_rows.tolist())
    assert all(suspect.held_out == (suspect.rows[0] in held) for suspect in found.values())
    scores = [suspect.score for suspect in study.suspects(outcome)]
    assert scores == sorted(scores, reverse=True)


def test_right_labels_are_not() -> None:
    outcome = study.learn(study.from_arrays(X, KINDS), QUICK)
    named = {suspect.rows[0] for suspect in study.suspects(outcome)}
    assert not named & set(range(50))  # setosa is far from the others


def test_a_wrong_pair_is_the_first(line: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    near = rng.integers(0, 57, 40)
    i, j = rng.integers(0, 20, 40), rng.integers(40, 60, 40)
    similar = np.column_stack([near, near + rng.integers(1, 3, 40)])
    dissimilar = np.column_stack([i, j])
    similar[11], dissimilar[5] = (0, 59), (30, 31)
    side = c.similar(similar) + c.dissimilar(dissimilar)
    found = study.suspects(learned(line, side))
    assert {suspect.rows for suspect in found[:2]} == {(0, 59), (30, 31)}
    first = next(suspect for suspect in found if suspect.rows == (0, 59))
    assert (first.kind, first.given, first.suggested) == ("pair", "similar", "dissimilar")
    assert first.where == "the constraints, row 11"
    assert not first.held_out
    assert "of the dissimilar pairs" in first.why


def test_a_wrong_triplet_and_a_wrong_distance_are_found(line: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(0, 40, 50)
    triplets = np.column_stack([a, a + 2, a + 19])
    triplets[3] = (10, 50, 11)
    pairs = np.column_stack([a, a + rng.integers(2, 9, 50)])
    squared = np.subtract(*pairs.T) ** 2.0
    pairs[4], squared[4] = (0, 10), 2500.0
    found = study.suspects(learned(line, c.closer(triplets) + c.equal(pairs, squared)))
    kinds = [suspect.kind for suspect in found]
    assert kinds == sorted(kinds, key=["triplet", "distance"].index)
    triplet = found[0]
    assert triplet.rows == (10, 50, 11)
    assert (triplet.given, triplet.suggested) == ("nearer to 50", "nearer to 11")
    distance = next(suspect for suspect in found if suspect.kind == "distance")
    assert distance.rows == (0, 10)
    assert distance.given == "50"


def test_comparisons_of_two_pairs_name_all_four(line: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 30, 40)
    rows = np.column_stack([a, a + 1, a, a + 20])
    rows[0] = (0, 30, 40, 41)
    found = study.suspects(learned(line, c.closer(rows)))
    assert found[0].rows == (0, 30, 40, 41)
    assert found[0].given == "0 and 30 nearer"


def test_a_table_of_them_holds_no_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    """The rule of all tables: what a spreadsheet would run is text there, and the label -2 is a number."""
    labels = np.array(["-2", "1", "=virginica()"], dtype=object)[y]
    labels[7], labels[120] = "=virginica()", "-2"
    known = study.from_arrays(X, labels, ids=np.array([f"+f{k}" for k in range(150)]))
    columns = as_columns(study.suspects(study.learn(known, QUICK)), known)
    assert list(columns) == [
        "kind", "object_1", "object_2", "object_3", "object_4", "given", "suggested", "score", "reason",
        "source", "held_out",
    ]  # fmt: skip
    assert columns["given"][columns["object_1"].tolist().index("+f7")] == "=virginica()"
    (said,) = tables.write_columns(str(tmp_path / "check.csv"), columns, force=False)
    assert "written with an apostrophe in front" in said
    with (tmp_path / "check.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["object_1"]: row for row in csv.DictReader(file)}
    assert (rows["'+f7"]["given"], rows["'+f7"]["suggested"]) == ("'=virginica()", "-2")
    assert (rows["'+f120"]["given"], rows["'+f120"]["suggested"]) == ("-2", "'=virginica()")
    assert rows["'+f7"]["score"] == "1.0"
    assert len(as_columns((), known)["kind"]) == 0
