"""What the tables of hostile commands share: a folder of files, and how a command is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nearwise as nw
from nearwise import cli

N = 24
ROWS = np.random.default_rng(0).normal(size=(N, 2))
KINDS = [("u", "v", "w")[k % 3] for k in range(N)]
DONE, REFUSED = 0, 2


def text(header: str = "name,a,b,kind", ids: list[Any] | None = None) -> str:
    names = ids or [f"o{k}" for k in range(N)]
    rows = zip(names, ROWS.tolist(), KINDS, strict=True)
    return "\n".join([header, *(f"{name},{a},{b},{kind}" for name, (a, b), kind in rows)]) + "\n"


def fill(path: Path) -> Path:
    """Data, models and feedback as they should be, and some that should not."""
    (path / "good.csv").write_text(text())
    (path / "pairs.csv").write_text("one,other,same\no0,o3,1\no0,o1,0\no4,o7,1\no5,o9,0\n")
    learner = nw.MetricLearner(penalty=1.0, random_state=0).fit(pd.DataFrame(ROWS, columns=["a", "b"]), KINDS)
    nw.save(learner, path / "model")
    nw.save(nw.Metric(np.eye(2)), path / "metric")
    nw.save(nw.FixedRankRegressor(2, tol=1e-2).fit(ROWS, ROWS[:, 0]), path / "regressor")
    (path / "loop.csv").symlink_to("loop.csv")
    (path / "empty").mkdir()
    (path / "junk").mkdir()
    (path / "junk" / "a.npy").write_bytes(b"junk")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    """The exit code, standard output, and the lines of standard error."""
    try:
        code = cli.main(list(words))
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err.splitlines()
