"""`nearwise learn` from labels: kinds of distances compete, and the choice is shown wherever the model is."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from nearwise import cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two shells around each other in six dimensions, which a kernel tells apart."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    X *= (np.where(np.arange(120) % 2, 1.8, 1.0) / np.linalg.norm(X, axis=1))[:, None]
    lines = [",".join(map(repr, map(float, row))) + f",{'io'[k % 2]}" for k, row in enumerate(X)]
    (tmp_path / "shells.csv").write_text("a,b,c,d,e,f,shell\n" + "\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.long
def test_a_kernel_that_does_better_is_chosen_and_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split("learn shells.csv --labels shell -o m --report page.html")) == cli.DONE
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("chosen: "))
    model = nw.load("m")
    learner = model[-1]
    assert isinstance(learner.metric_, nw.JoinedMetric)
    shares = ", ".join(f"{name} {100 * score:.1f} %" for name, score in learner.choice_scores_)
    assert said == f"chosen: {learner.choice_}; right neighbours while choosing: {shares}"
    assert f"Chosen: {learner.choice_}; right" in Path("page.html").read_text(encoding="utf-8").replace(
        "\xa0", " "
    )
    assert cli.main(["info", "m"]) == cli.DONE
    assert f"kernel auto ({learner.choice_})" in capsys.readouterr().out
    assert cli.main(shlex.split("apply m shells.csv --drop shell -o c.csv")) == cli.DONE
    width = len(Path("c.csv").read_text(encoding="utf-8").splitlines()[1].split(","))
    assert width >= learner.rank_


@pytest.mark.parametrize("options", ["--kernel linear", "--rank 3"])
def test_what_asks_for_a_linear_distance_gets_one(
    options: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"learn shells.csv --labels shell --penalty 1 -o m --json {options}"
    assert cli.main(shlex.split(line)) == cli.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["choice"], found["choice_scores"]) == (None, [])
    assert isinstance(nw.load("m")[-1], nw.MetricLearner)


def test_a_choice_in_few_dimensions_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "learn shells.csv --labels shell --kernel auto --rank 3"
    assert cli.main(shlex.split(line)) == cli.BAD_INPUT
    assert "--kernel auto and --rank exclude each other" in capsys.readouterr().err
