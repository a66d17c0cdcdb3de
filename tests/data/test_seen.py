"""Rows that a model learned from: fingerprints in its file, told and left out by `nearwise evaluate`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw
from nearwise import cli
from nearwise.data import memory
from nearwise.data.memory import Seen

X, y = load_iris(return_X_y=True)
X = X + np.arange(150)[:, np.newaxis] * 1e-9  # so that all rows differ
LEARNED, OTHER = np.arange(150)[::2], np.arange(150)[1::2]
Run = Callable[[str], dict[str, Any]]


def write(path: str, rows: Any, columns: str = "abcd") -> None:
    lines = [f"{','.join(columns)},kind"]
    for row in rows:
        lines.append(
            ",".join([*(repr(float(X[row, "abcd".index(name)])) for name in columns), f"kind {y[row]}"])
        )
    Path(path).write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A folder with both halves of the flowers and models of one; runs a command with --json."""
    monkeypatch.chdir(tmp_path)
    write("learned.csv", LEARNED)
    write("other.csv", OTHER)
    write("all.csv", np.arange(150))

    def command(line: str) -> dict[str, Any]:
        assert cli.main([*shlex.split(line), "--json"]) == cli.DONE
        return json.loads(capsys.readouterr().out)

    command("learn learned.csv --labels kind --penalty 1 --held-out 0 -o model")
    return command


@pytest.mark.long
def test_evaluate_says_how_many_rows_were_learned_from(run: Run) -> None:
    said = (
        "the model learned from 75 of these {} rows, which flatters it; --unseen-only measures on the others"
    )
    assert run("evaluate model learned.csv --labels kind")["notices"] == [said.format(75)]
    both = run("evaluate model all.csv --labels kind")
    assert both["notices"] == [said.format(150)]
    assert both["rows_learned_from"] == 75
    others = run("evaluate model other.csv --labels kind")
    assert others["notices"] == []
    assert others["rows_learned_from"] == 0


def test_rows_are_known_in_any_order_of_columns_and_in_any_format(run: Run) -> None:
    write("turned.csv", LEARNED[::-1], "dbac")
    np.savez("learned.npz", X=X[LEARNED], kind=y[LEARNED], feature_names=np.array(list("abcd")))
    for source in ("turned.csv", "learned.npz"):
        assert run(f"evaluate model {source} --labels kind")["rows_learned_from"] == 75


def test_unseen_only_measures_as_if_the_others_were_not_there(run: Run) -> None:
    found = run("evaluate model all.csv --labels kind --unseen-only")
    others = run("evaluate model other.csv --labels kind")
    assert found["figures"] == others["figures"]
    assert found["measured_on"] == others["measured_on"] == "75 labelled rows in 3 classes"
    assert found["notices"] == ["the model learned from 75 of these 150 rows; 75 rows are left out"]
    assert run("evaluate model other.csv --labels kind --unseen-only")["notices"] == []


def test_constraints_on_rows_that_were_learned_from_are_left_out(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(i, i + 1 + i % 4) for i in range(100)]
    Path("pairs.csv").write_text(
        "".join(f"{i},{j},{int(y[i] == y[j])}\n" for i, j in pairs), encoding="utf-8"
    )
    left = sum(i % 2 == 1 and j % 2 == 1 for i, j in pairs)
    found = run("evaluate model all.csv --drop kind --pairs pairs.csv --unseen-only")
    assert found["measured_on"] == f"{left} pairs"
    assert run("evaluate model all.csv --drop kind --pairs pairs.csv")["measured_on"] == "100 pairs"
    Path("seen.csv").write_text("".join(f"{i},{i + 2}\n" for i in range(0, 60, 2)), encoding="utf-8")
    line = "evaluate model all.csv --drop kind --pairs seen.csv --unseen-only"
    assert cli.main(shlex.split(line)) == cli.BAD_INPUT
    assert "too little to measure on: nothing is left" in capsys.readouterr().err


@pytest.mark.long
def test_rows_that_were_held_out_were_not_learned_from(run: Run) -> None:
    run("learn all.csv --labels kind --penalty 1 -o split")
    found = run("evaluate split all.csv --labels kind --unseen-only")
    assert found["rows_learned_from"] == 120
    assert found["measured_on"] == "30 labelled rows in 3 classes"
    Path("pairs.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(0, 40, 2)), encoding="utf-8")
    run("learn all.csv --drop kind --pairs pairs.csv --penalty 1 --held-out 0 -o pairs")
    assert run("evaluate pairs all.csv --labels kind")["rows_learned_from"] == 40


@pytest.mark.parametrize("method", ["--method fixed-rank --rank 2", "--kernel rbf", "--scale none"])
def test_models_of_every_method_keep_their_rows(method: str, run: Run) -> None:
    run(f"learn learned.csv --labels kind --held-out 0 {method} -o other-model")
    assert run("evaluate other-model all.csv --labels kind")["rows_learned_from"] == 75


def test_models_without_fingerprints_are_read_as_before(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    model = nw.load("model")
    del model[-1].row_fingerprints_, model[-1].n_rows_learned_
    nw.save(model, "old")
    found = run("evaluate old learned.csv --labels kind")
    assert found["rows_learned_from"] is None
    assert found["notices"] == []
    assert found["figures"] == run("evaluate model learned.csv --labels kind")["figures"]
    assert cli.main(shlex.split("evaluate old learned.csv --labels kind --unseen-only")) == cli.BAD_INPUT
    assert "nearwise: old: the model does not tell which rows it learned from" in capsys.readouterr().err


@pytest.mark.long
def test_of_very_many_rows_a_sample_is_kept_and_that_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MOST", 30)
    run("learn learned.csv --labels kind --penalty 1 --held-out 0 -o sampled")
    model = nw.load("sampled")
    assert len(model[-1].row_fingerprints_) == 30
    kept = Seen.in_model(model[-1])
    judged, seen = kept.judge(X)
    assert seen.sum() == 30
    assert not seen[OTHER].any()
    assert judged[seen].all()
    found = run("evaluate sampled all.csv --labels kind")
    estimate = round(150 * 30 / judged.sum())
    assert found["rows_learned_from"] == estimate
    assert found["notices"] == [
        f"by a sample of 30 of its 75 rows, the model learned from about {estimate} of these 150 rows, which "
        "flatters it; --unseen-only measures on the others"
    ]
    left = run("evaluate sampled all.csv --labels kind --unseen-only")
    count = int((judged & ~seen).sum())
    assert left["measured_on"] == f"{count} labelled rows in {len(np.unique(y[judged & ~seen]))} classes"


def test_fingerprints_are_of_numbers_not_of_their_bytes() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0 + 2**-52]])
    _, seen = Seen.of(rows[:1]).judge(np.asfortranarray(rows))
    assert seen.tolist() == [True, True, False]
    assert Seen.of(rows).n_rows == 2
    assert not Seen.of(rows).is_sample


def test_equal_runs_write_equal_files(run: Run) -> None:
    run("learn learned.csv --labels kind --penalty 1 --held-out 0 -o again")
    assert Path("again").read_bytes() == Path("model").read_bytes()
