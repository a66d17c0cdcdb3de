"""What `nearwise learn` says: the truth about the penalty, the dimensions, and a worse distance."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

import nearwise as nw
from nearwise import cli
from nearwise.learners import _place
from nearwise.study import fitting

Run = Callable[..., tuple[list[str], str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Learns from a matrix and its labels, with a report: the notes, and what else is printed."""
    monkeypatch.chdir(tmp_path)

    def learn(X: Any, y: Any = None, line: str = "") -> tuple[list[str], str]:
        np.savez("data.npz", X=X, **({} if y is None else {"kind": y}))
        labels = "" if y is None else "--labels kind"
        command = f"learn data.npz {labels} -o model --report page.html --force {line}"
        assert cli.main(shlex.split(command)) == cli.DONE
        printed = capsys.readouterr()
        return [note.removeprefix("nearwise: note: ") for note in printed.err.splitlines()], printed.out

    return learn


@pytest.mark.long
def test_a_penalty_that_was_not_chosen_is_not_called_chosen(run: Run) -> None:
    X, y = load_iris(return_X_y=True)
    Path("pairs.csv").write_text("0,1,1\n0,100,0\n", encoding="utf-8")
    _, text = run(X, line="--pairs pairs.csv")
    assert "penalty 1 (too little is known to choose one)" in text
    assert nw.load("model").penalty_scores_ == ()
    _, text = run(X, y)
    assert "(chosen)" in text
    assert len(nw.load("model").penalty_scores_) > 1
    _, text = run(X, y, "--penalty 2")
    assert "penalty 2\n" in text


@pytest.mark.long
def test_dimensions_that_were_not_learned_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    monkeypatch.setattr(_place, "FULL_FEATURES", 32)
    monkeypatch.setattr(_place, "DEFAULT_RANK", 10)
    notes, text = run(X, y, "--penalty 1")
    said = (
        "only 10 of 64 dimensions were learned, the default for so many features; in the others the distance "
        "is as before (rank K learns K)"
    )
    assert said in notes
    assert ", penalty 1, 10 of 64 dimensions\n" in text
    assert "Only 10 of 64 dimensions were learned" in Path("page.html").read_text(encoding="utf-8")
    model = nw.load("model")
    assert (model.rank_, model.n_features_in_) == (10, 64)
    notes, text = run(X, y, "--penalty 1 --rank 12")
    assert not any("dimensions were learned" in note for note in notes)
    assert ", penalty 1, 12 dimensions\n" in text
    monkeypatch.setattr(_place, "FULL_FEATURES", 64)
    notes, text = run(X, y, "--penalty 1")
    assert not any("dimensions" in note for note in notes)
    assert ", penalty 1\n" in text


def test_384_features_are_learned_in_100_dimensions_and_that_is_said(run: Run) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = rng.standard_normal((200, 384))
    X[:, 0] += 4 * y
    notes, text = run(X, y, "--penalty 1")
    assert any(note.startswith("only 100 of 384 dimensions were learned, ") for note in notes)
    assert "100 of 384 dimensions" in text


@pytest.mark.long
def test_rows_outside_the_basis_of_a_kernel_are_told(run: Run) -> None:
    X, y = load_digits(return_X_y=True)
    notes, text = run(X[:300], y[:300], "--kernel rbf --penalty 1")
    said = "only 55 dimensions in the span of 165 of 240 rows were learned, the default for so many rows"
    assert f"{said}; outside them the kernel is as before (rank K learns K)" in notes
    assert ", 165 of 240 rows in the basis\n" in text
    notes, text = run(X[:120], y[:120], "--kernel rbf --penalty 1")
    assert not any("span" in note for note in notes)


@pytest.mark.long
def test_a_distance_that_is_worse_than_the_one_before_is_told(run: Run) -> None:
    X, y = load_digits(return_X_y=True)
    notes, text = run(X[:600], y[:600], "--method fixed-rank --rank 2")
    before, after = re.search(r"5-NN error +([\d.]+ %) \(.*?\) +([\d.]+ %) .* worse$", text, re.M).groups()
    change = f"5-NN error (from {before} to {after})"
    (said,) = [note for note in notes if "worse" in note]
    assert said.startswith(f"the learned distance is worse than the one before in {change}")
    notes, text = run(X[:600], y[:600], "--penalty 1")
    assert "worse" not in text
    assert not any("worse" in note for note in notes)


@pytest.mark.parametrize(("n_classes", "rank"), [(3, 10), (26, 25), (400, 30)])
def test_the_default_of_a_fixed_rank_tells_the_classes_apart(n_classes: int, rank: int) -> None:
    settings = fitting.Settings(method="fixed-rank")
    assert fitting.estimator(settings, 64, n_classes).rank == rank
    assert fitting.estimator(settings, 4, n_classes).rank == 4
    assert fitting.estimator(settings, 64).rank == 10
    asked = fitting.Settings(method="fixed-rank", rank=2)
    assert fitting.estimator(asked, 64, n_classes).rank == 2


@pytest.mark.long
def test_digits_of_a_default_fixed_rank_are_about_as_good_as_before(run: Run) -> None:
    X, y = load_digits(return_X_y=True)
    notes, text = run(X[:900], y[:900], "--method fixed-rank --held-out 0.4")
    assert float(re.search(r"5-NN error .*\) +([\d.]+) % \(", text)[1]) < 10
    said = (
        "only 10 of 64 dimensions were learned, the default of the method fixed-rank; the others do not count"
    )
    assert f"{said} (rank K learns K)" in notes
    assert ", 10 of 64 dimensions\n" in text
