"""The benchmark of the learners: its peers are called as they should be, and its tables are produced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import nearwise as nw
from benchmarks import _neighbor_errors, learners
from benchmarks.__main__ import main
from benchmarks.baselines import Unavailable, peers

IRIS = nw.datasets.load("iris")


def figures(path: Path, *argv: str) -> dict:
    assert main(["learners", "--quick", "--json", str(path / "f.json"), *argv]) == 0
    return json.loads((path / "f.json").read_text(encoding="utf-8"))


@pytest.mark.long
@pytest.mark.parametrize("method", ["nearwise", "linear", "Euclidean", "NCA", "LDA", "ITML"])
def test_every_method_gives_coordinates_that_serve(method: str) -> None:
    if method == "ITML":
        pytest.importorskip("metric_learn")
    rows = np.arange(0, 150, 3)
    to_metric = peers.METHODS[method](IRIS.X[rows], IRIS.y[rows], 0)
    others = np.setdiff1d(np.arange(150), rows)
    machine = KNeighborsClassifier(5).fit(to_metric(IRIS.X[rows]), IRIS.y[rows])
    assert machine.score(to_metric(IRIS.X[others]), IRIS.y[others]) > 0.9


@pytest.mark.long
def test_errors_are_those_of_the_definition(tmp_path: Path) -> None:
    found = figures(
        tmp_path, "--only", "errors", "--sets", "iris", "--methods", "LDA,RBF SVM", "--seeds", "2"
    )
    table, times = found["tables"]
    row, mean, verdicts = table["rows"]
    folds = list(_neighbor_errors.folds_of("iris", 2))
    assert [len(fold.y) for fold in folds] == [75] * 4
    wrong = []
    for X, y, X_test, y_test, _ in folds:
        np.testing.assert_allclose([X.mean(), X.std()], [0.0, 1.0], atol=1e-12)
        order = np.argsort(((X_test[:, None] - X) ** 2).sum(axis=2), axis=1)[:, :5]
        votes = np.array([np.bincount(y[some], minlength=3) for some in order])
        wrong.append(100 * np.mean(votes.argmax(axis=1) != y_test))
    assert row["Euclidean"] == pytest.approx(np.mean(wrong), abs=0.7)  # a tie of votes or of distances
    assert row["above Euclidean"] == pytest.approx(row["nearwise"] - row["Euclidean"])
    assert mean["LDA"] == row["LDA"]
    assert verdicts["Euclidean"] == ("met" if mean["nearwise"] <= mean["Euclidean"] else "missed")
    assert times["rows"][0]["nearwise"] > 0
    machine = [100 * np.mean(SVC().fit(X, y).predict(X_test) != y_test) for X, y, X_test, y_test, _ in folds]
    assert row["RBF SVM"] == pytest.approx(np.mean(machine))
    assert "RBF SVM" not in verdicts


@pytest.mark.long
def test_what_is_missing_or_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(X: object, y: object, seed: int) -> object:
        raise Unavailable("it is not installed")

    def failing(X: object, y: object, seed: int) -> object:
        raise ValueError("it does not work")

    monkeypatch.setitem(peers.METHODS, "LDA", absent)
    monkeypatch.setitem(peers.METHODS, "NCA", failing)
    monkeypatch.delenv(nw.datasets.VARIABLE, raising=False)
    found = figures(
        tmp_path, "--sets", "iris,usps", "--methods", "LDA,NCA", "--only", "errors", "--only", "banking"
    )
    notes = " ".join(found["tables"][0]["notes"])
    for part in ("usps: left out", "LDA: left out: it is not installed", "fold 1 failed: it does not work"):
        assert part in notes
    assert list(found["skipped"]) == ["banking"]


@pytest.mark.long
def test_patience_ends_a_slow_method(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "errors", "--sets", "iris", "--patience", "0", "--methods", "LDA")
    assert "iris, LDA: 1 of 2 folds left out after 0 seconds" in " ".join(found["tables"][0]["notes"])


@pytest.mark.long
def test_maps_stand_beside_nca_from_every_start(tmp_path: Path) -> None:
    (table,) = figures(tmp_path, "--only", "maps", "--sets", "iris")["tables"]
    for row, rank in zip(table["rows"], (2, 3), strict=True):
        starts = [kind for kind in row if kind.startswith("NCA, ")]
        assert row["rank"] == rank
        assert len(starts) == 6 - rank  # discriminant analysis of three classes has two directions
        assert row["best start"] in starts
        assert row[row["best start"]] == max(row[kind] for kind in starts)
        assert row["above NCA"] == pytest.approx(row["MetricLearner"] - row[row["best start"]], abs=1e-8)


def test_precision_counts_only_other_products() -> None:
    rows = np.arange(24.0)[:, None]
    problem, product = np.array(["a", "b"] * 12), np.repeat(["x", "y"], 12)
    expected = []
    for i in range(24):
        others = [j for j in np.argsort(np.abs(rows[:, 0] - i), kind="stable") if product[j] != product[i]]
        expected.append(np.mean(problem[others[:10]] == problem[i]))
    assert learners._precision(rows, problem, product) == pytest.approx(np.mean(expected))


def test_unknown_methods_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        learners.main(["--methods", "magic"])
    assert "'magic' is not one of nearwise, linear, Euclidean" in capsys.readouterr().err


def test_every_target_is_used() -> None:
    for module in (learners, _neighbor_errors):
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert all(f'TARGETS["{name}"]' in source for name in module.TARGETS)


def test_a_difference_is_told_with_its_standard_error_over_rows() -> None:
    ours = _neighbor_errors.Cell([2.0, 0.0, 1.0, 0.0], [2, 2, 2, 0], [])
    other = _neighbor_errors.Cell([0.0, 0.0, 2.0, 1.0], [2, 2, 2, 1], [])
    difference = np.array([100.0, 0.0, -50.0])  # rows that both were asked for
    found = ours.above(other)
    assert found == pytest.approx((difference.mean(), difference.std(ddof=1) / np.sqrt(3)))
    assert ours.error == pytest.approx(50.0)


@pytest.mark.long
def test_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = str(tmp_path / "kept.jsonl")
    argv = ("--only", "errors", "--sets", "iris", "--methods", "LDA", "--seeds", "1", "--keep", keep)
    first = figures(tmp_path, *argv)["tables"]

    def never(X: object, y: object, seed: int) -> object:
        raise AssertionError("measured again")

    for method in ("nearwise", "Euclidean", "LDA"):
        monkeypatch.setitem(peers.METHODS, method, never)
    again = figures(tmp_path, *argv)["tables"]
    assert [table["rows"] for table in again] == [table["rows"] for table in first]
    with pytest.raises(AssertionError, match="measured again"):
        figures(tmp_path, *argv[:-3], "2", "--keep", keep)  # other settings


@pytest.mark.long
def test_the_line_that_says_how_to_repeat_it_has_all_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures(tmp_path, "--only", "errors", "--sets", "iris", "--methods", "LDA", "--seeds", "1")
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "python -m benchmarks learners --only errors --quick --sets iris --methods LDA --seeds 1" in printed
    )
