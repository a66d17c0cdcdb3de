"""`nearwise evaluate`: a model's figures on other data, beside those of the distance it started from."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from nearwise import cli

X, y = load_iris(return_X_y=True)
FEATURES = ["a", "b", "c", "d"]
LEARNED, OTHER = np.arange(150)[::2], np.arange(150)[1::2]

Run = Callable[[str], dict[str, Any]]


def write(path: str, rows: Any, columns: list[str] = FEATURES) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "kind"])
        order = [FEATURES.index(name) for name in columns]
        writer.writerows([[*X[row, order], f"kind {y[row]}"] for row in rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of one half of the flowers, and both halves."""
    monkeypatch.chdir(tmp_path)
    write("learned.csv", LEARNED)
    write("other.csv", OTHER)
    assert (
        cli.main(shlex.split("learn learned.csv --labels kind --penalty 1 --held-out 0 -o model --quiet"))
        == 0
    )
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(line: str) -> dict[str, Any]:
        assert cli.main(["evaluate", *shlex.split(line), "--json"]) == cli.DONE
        found = json.loads(capsys.readouterr().out)
        return {**found, "figures": {figure["name"]: figure for figure in found["figures"]}}

    return command


def coordinates() -> tuple[np.ndarray, np.ndarray]:
    """Of all flowers, before and after."""
    model = nw.load("model")
    del model[0].feature_names_in_
    before = model[0].transform(X)
    return before, model[1].transform(before)


@pytest.mark.long
def test_neighbors_by_leaving_one_out_or_in_another_file(folder: Path, run: Run) -> None:
    alone = run("model other.csv --labels kind")
    train = run("model other.csv --labels kind --train learned.csv")
    for kind, rows in zip(("before", "after"), coordinates(), strict=True):
        predicted = cross_val_predict(KNeighborsClassifier(5), rows[OTHER], y[OTHER], cv=LeaveOneOut())
        error = alone["figures"]["5-NN error"][kind]["value"]
        assert error == pytest.approx(np.mean(predicted != y[OTHER]), abs=1e-12)
        score = KNeighborsClassifier(5).fit(rows[LEARNED], y[LEARNED]).score(rows[OTHER], y[OTHER])
        assert train["figures"]["5-NN error"][kind]["value"] == pytest.approx(1 - score, abs=1e-12)
    assert alone["measured_on"] == "75 labelled rows in 3 classes"
    assert train["train"] == "learned.csv"
    assert alone["figures"]["pair ROC-AUC"] == train["figures"]["pair ROC-AUC"]


def test_columns_are_matched_by_name(folder: Path, run: Run) -> None:
    write("turned.csv", OTHER, ["d", "b", "a", "c"])
    assert run("model turned.csv --labels kind")["figures"] == run("model other.csv --labels kind")["figures"]


def test_pairs_triplets_and_distances(folder: Path, run: Run) -> None:
    rng = np.random.RandomState(0)
    pairs = np.array([rng.choice(75, 2, replace=False) for _ in range(60)])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    same = y[OTHER][pairs[:, 0]] == y[OTHER][pairs[:, 1]]
    Path("pairs.csv").write_text(
        "".join(f"{i},{j},{int(s)}\n" for (i, j), s in zip(pairs, same, strict=True))
    )
    Path("triplets.csv").write_text("".join(f"{i},{j},{(i + j) % 75}\n" for i, j in pairs[1:] if i))
    Path("distances.csv").write_text(
        "".join(f"{i},{j},{1 + s}\n" for (i, j), s in zip(pairs, same, strict=True))
    )
    line = "model other.csv --drop kind --pairs pairs.csv --triplets triplets.csv --distances distances.csv"
    found = run(line)["figures"]
    assert list(found) == ["given pairs' ROC-AUC", "triplets in order", "relative error of distances"]
    for kind, rows in zip(("before", "after"), coordinates(), strict=True):
        squared = np.square(rows[OTHER][pairs[:, 0]] - rows[OTHER][pairs[:, 1]]).sum(axis=1)
        area = found["given pairs' ROC-AUC"][kind]["value"]
        assert area == pytest.approx(roc_auc_score(same, -squared), abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    "learner",
    [
        nw.KernelLearner(penalty=1.0, random_state=0),
        nw.FixedRankLearner(rank=2, random_state=0),
        nw.OnlineLearner(random_state=0),
        nw.MetricLearner(prior="covariance", penalty=1.0, random_state=0),
        nw.MetricLearner(rank=2, penalty=1.0, random_state=0),
        nw.KernelReducer(random_state=0),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_models_of_python_are_measured_too(learner: Any, folder: Path, run: Run) -> None:
    nw.save(learner.fit(X[LEARNED], y[LEARNED]), "python")
    found = run("python other.csv --labels kind")["figures"]
    assert list(found) == ["5-NN error", "recall@5", "clustering NMI", "pair ROC-AUC"]
    squared = learner.distances(X[OTHER], X[OTHER], squared=True)
    i, j = np.triu_indices(75, 1)
    expected = roc_auc_score(y[OTHER][i] == y[OTHER][j], -squared[i, j])
    # flowers at equal distances, of which iris has some, round apart in a matrix of distances
    assert found["pair ROC-AUC"]["after"]["value"] == pytest.approx(expected, abs=1e-5)


def test_what_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split("evaluate model other.csv --labels kind")) == cli.DONE
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "model on other.csv: 75 labelled rows in 3 classes"
    assert re.search(
        r"^  5-NN error +\d+\.\d % \(.*\) +\d+\.\d % \(.*\) +(better|worse|not clear)$", printed.out, re.M
    )
    # two equal flowers are in both halves
    assert printed.err == (
        "nearwise: note: the model learned from 1 of these 75 rows, which flatters it; --unseen-only "
        "measures on the others\n"
    )
    assert cli.main(shlex.split("evaluate model other.csv --labels kind --quiet")) == cli.DONE
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nowhere other.csv --labels kind", "no model file nowhere"),
        ("other.csv other.csv --labels kind", "not a model file of nearwise"),
        ("model nowhere.csv --labels kind", "nowhere.csv: there is no such file"),
        ("model other.csv", "give --labels, --pairs, --triplets or --distances"),
        ("model other.csv --pairs p.csv --train learned.csv", "give --labels"),
        ("model other.csv --labels kind --train -", "MODEL and --train are files"),
        ("model other.csv --labels nothing", "has no column 'nothing'"),
        ("model other.csv --labels kind --drop a", "other.csv: the model needs 'a', which"),
        ("model narrow.npy --pairs p.csv", "narrow.npy has 3 columns of numbers"),
        ("model other.csv --labels kind --train plain.csv", "plain.csv has no column 'kind'"),
        ("regressor other.csv --labels kind", "holds a FixedRankRegressor that"),
    ],
)
def test_what_does_not_fit_is_refused(
    line: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("narrow.npy", X[:, :3])
    Path("p.csv").write_text("0,1\n", encoding="utf-8")
    Path("plain.csv").write_text("a,b,c,d\n1,2,3,4\n2,3,4,5\n", encoding="utf-8")
    nw.save(nw.FixedRankRegressor(rank=1, random_state=0).fit(X, X[:, 0] ** 2), "regressor")
    assert cli.main(["evaluate", *shlex.split(line)]) == cli.BAD_INPUT
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_too_little_is_not_measured(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("few.csv").write_text("0,1\n", encoding="utf-8")
    assert cli.main(shlex.split("evaluate model other.csv --drop kind --pairs few.csv")) == cli.BAD_INPUT
    assert capsys.readouterr() == (
        "",
        "nearwise: too little to measure on: 1 pair; 10 or more of a kind are needed\n",
    )
    found = run("model other.csv --labels kind --pairs few.csv")
    assert found["measured_on"] == "75 labelled rows in 3 classes"
    assert "given pairs' ROC-AUC, against random ones" not in found["figures"]
    assert found["notices"][1:] == [
        "too little to measure on, and left out: 1 pair; 10 or more of a kind are needed"
    ]
    write("small.csv", [0, 1, 60])
    assert cli.main(shlex.split("evaluate model small.csv --labels kind")) == cli.BAD_INPUT
    assert "too little to measure on: 3 labelled rows in 2 classes" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("rank", ["", "--rank 2"])
def test_an_offset_that_all_rows_share_changes_no_figure(rank: str, folder: Path, run: Run) -> None:
    # Whole numbers are exact after the offset, too. On the flowers' coarse grid some fifth neighbours are as
    # far as the sixth, and rounding would choose between them; noise keeps them apart.
    near = np.round(1000 * X + 100 * np.random.default_rng(0).standard_normal(X.shape))
    squared = np.sort(np.square(near[:, None] - near).sum(axis=2), axis=1)
    assert np.all(squared[:, 5] < squared[:, 6])
    for name, rows in (("near", near), ("far", near + 2.0**51)):
        np.savez(f"{name}.npz", X=rows, kind=y)
    how = rank or "--kernel linear"
    command = f"learn near.npz --labels kind --penalty 1 --held-out 0 --scale none {how} -o plain --quiet"
    assert cli.main(shlex.split(command)) == cli.DONE
    found = [run(f"plain {name}.npz --labels kind")["figures"] for name in ("near", "far")]
    for figure in ("5-NN error", "recall@5", "clustering NMI"):
        assert found[0][figure]["before"] == found[1][figure]["before"]
        assert found[1][figure]["after"]["value"] == pytest.approx(
            found[0][figure]["after"]["value"], abs=0.03
        )
