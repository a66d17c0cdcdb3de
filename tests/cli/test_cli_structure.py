"""`nearwise learn --structure`: weights of columns, and blocks of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nearwise as nw
from nearwise import cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=["age", "bmi", "dose", "time"])
    frame["ill"] = np.where(np.arange(60) % 2, "yes", "no")
    frame["age"] += np.where(frame["ill"] == "yes", 3.0, 0.0)
    frame.to_csv("data.csv", index=False)
    return tmp_path


def test_weights_of_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "learn data.csv --labels ill --structure diagonal --penalty 4 -o m --report page.html --held-out 0"
    assert cli.main(shlex.split(line)) == cli.DONE
    assert "a weight for every feature" in capsys.readouterr().out
    learner = nw.load("m")[-1]
    assert int(np.argmax(learner.weights_)) == 0
    part = Path("page.html").read_text(encoding="utf-8").split("<h2>Weights</h2>")[1].split("</section>")[0]
    assert all(name in part for name in ("age", "bmi", "dose", "time"))


def test_blocks_of_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "learn data.csv --labels ill --structure blocks --group age,dose --penalty 1 -o m --json"
    assert cli.main(shlex.split(line)) == cli.DONE
    assert json.loads(capsys.readouterr().out)["structure"] == "blocks"
    M = nw.load("m")[-1].get_mahalanobis_matrix()
    assert M[0, 2] != 0
    assert (M[[0, 0, 1, 1], [1, 3, 2, 3]] == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--structure diagonal --rank 2", "--rank exclude each other"),
        ("--structure diagonal --kernel rbf", "--kernel exclude each other"),
        ("--structure blocks", "--structure blocks and --group go together"),
        ("--group age,bmi", "--structure blocks and --group go together"),
        ("--structure blocks --group age,size", "no column 'size'"),
        ("--structure blocks --group age,", "names of columns with commas"),
    ],
)
def test_what_makes_no_sense_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    try:
        code = cli.main(shlex.split(f"learn data.csv --labels ill -o m {options}"))
    except SystemExit as stop:
        code = stop.code
    assert code not in (0, None)
    assert message in capsys.readouterr().err
    assert not Path("m").exists()
