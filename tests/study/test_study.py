"""`nearwise.study` in a notebook: what `learn`, `evaluate` and `neighbors` do, from arrays."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw
from nearwise import constraints as c, report, study
from nearwise.study import fitting

X, y = load_iris(return_X_y=True)
KINDS = np.array(["setosa", "versicolor", "virginica"])[y]
QUICK = study.Settings(penalty=1.0, scale=True)


@pytest.fixture(scope="module")
def outcome() -> study.Outcome:
    return study.learn(study.from_arrays(X, KINDS), QUICK)


def test_arrays_and_files_give_the_same_outcome(outcome: study.Outcome) -> None:
    other = study.learn(study.from_files("dataset:iris", labels="target"), QUICK)
    assert outcome.figures == other.figures
    assert outcome.origin() == other.origin() == "120 labelled rows in 3 classes"
    assert np.array_equal(outcome.fit.learner.metric_.factor, other.fit.learner.metric_.factor)


def test_an_outcome_becomes_a_model_and_a_page(outcome: study.Outcome, tmp_path: Path) -> None:
    nw.save(outcome.model(), tmp_path / "model")
    page = report.render(report.from_outcome(outcome, "Flowers <b>", {"command": "none"}))
    assert "Flowers &lt;b&gt;" in page
    assert outcome.known.table.fingerprint() in page
    of_file, of_model = (study.load(model) for model in (tmp_path / "model", outcome.model()))
    assert np.array_equal(of_file.transform(X), of_model.transform(X))


def test_a_model_in_memory_keeps_the_names_of_its_features(outcome: study.Outcome) -> None:
    model = study.learn(study.from_files("dataset:iris", labels="target"), QUICK).model()
    names = list(model[0].feature_names_in_)
    assert study.load(model).names == tuple(names)
    assert list(model[0].feature_names_in_) == names


def test_measure_tells_rows_that_were_learned_from(outcome: study.Outcome) -> None:
    fitted, known = study.load(outcome.model()), study.from_arrays(X, KINDS)
    found = study.measure(fitted, known)
    assert found.rows_learned_from == 120
    assert found.flattery == "the model learned from 120 of these 150 rows, which flatters it"
    assert found.flattery in found.notices
    others = study.measure(fitted, known, unseen_only=True)
    assert others.text == "30 labelled rows in 3 classes"
    assert others.flattery == ""


def test_constraints_by_id_are_learned_from_and_named_as_given() -> None:
    ids = [f"flower {k}" for k in range(150)]
    rng = np.random.RandomState(0)
    pairs = rng.permutation(150).reshape(-1, 2)
    near = [[ids[i], ids[j]] for i, j in pairs if y[i] == y[j]]
    far = [[ids[i], ids[j]] for i, j in pairs if y[i] != y[j]]
    known = study.from_arrays(X, constraints=c.similar(near) + c.dissimilar(far), ids=ids)
    outcome = study.learn(known, study.Settings(penalty=1.0, held_out=0.0))
    assert outcome.origin() == "75 pairs"
    named = [found["constraint"] for found in outcome.worst]
    assert named
    assert all("flower " in text for text in named)
    assert all(found["from"].startswith("the constraints, row ") for found in outcome.worst)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": X[0]}, "X must be an array of n rows and d columns"),
        ({"X": np.where(X[7, 2] == X, np.nan, X)}, "row 3 of X: the number in column 2 is nan, not finite"),
        ({"X": X, "labels": KINDS[:9]}, "X has 150 rows and 4 columns, but there are 9 labels"),
        ({"X": X, "names": ["a"]}, "but there are 1 names"),
        ({"X": X, "ids": np.arange(3)}, "but there are 3 ids"),
        ({"X": X, "labels": ["same"] * 150}, "all 150 labels are 'same'; two classes or more are needed"),
        ({"X": X * 1e200, "labels": KINDS}, "too large to be squared"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(study.Refused, match=message):
        study.from_arrays(**arguments)


def test_contradictions_are_refused_in_the_names_of_the_user() -> None:
    both = c.at_most([("a", "b")], 1.0) + c.at_least([("a", "b")], 2.0)
    known = study.from_arrays([[0.0], [1.0], [3.0]], constraints=both, ids=["a", "b", "c"])
    with pytest.raises(study.Refused, match=r"d\(a, b\)"):
        study.learn(known, study.Settings(penalty=np.inf))


def test_a_watch_sees_every_iteration() -> None:
    seen: list[str] = []
    settings = study.Settings(penalty=1.0)
    study.learn(study.from_arrays(X, KINDS), settings, study.Watch(settings, seen.append))
    assert seen[0].startswith("learning   iteration 1")
    assert seen[-1] == "measuring on what was held out"


@pytest.mark.parametrize("method", ["logdet", "vonneumann", "fixed-rank"])
def test_weights_of_answers_count_with_every_method(method: str) -> None:
    pairs = np.random.default_rng(0).integers(0, len(X), (60, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    heavy = np.where(np.arange(len(pairs)) % 3 == 0, 5.0, 1.0)
    settings = study.Settings(method=method, penalty="auto" if method == "fixed-rank" else 1.0)
    found = []
    for weights in (heavy, np.ones(len(pairs))):
        side = c.similar(pairs[same], weights[same]) + c.dissimilar(pairs[~same], weights[~same])
        found.append(study.learn(study.from_arrays(X, constraints=side), settings).fit.model.transform(X))
    assert not np.allclose(*found)


def test_what_json_tells_of_a_fit_is_finite_or_null() -> None:
    result = SimpleNamespace(certificate=SimpleNamespace(gap=math.inf), cost=2.0)
    told = fitting.facts_of(SimpleNamespace(result_=result, penalty_=None, n_iter_=3), "LIMIT")
    numbers = {"gap": None, "cost": 2.0, "penalty": None}
    assert told == {"status": "LIMIT", **numbers, "kept_prior": False, "iterations": 3}
