"""Fits of rows in pieces that are ended and go on: no pass is made twice, and the end is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise.core import chunks, in_chunks
from nearwise.distributed.vectors import Stacked
from nearwise.learners import _in_pieces
from nearwise.side import rows

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3000, 4)) * np.linspace(1, 3, 4)
PAIRS = np.array([pair for pair in RNG.integers(0, 3000, (2500, 2)) if pair[0] != pair[1]])
SIDE = nw.constraints.at_most(PAIRS[:800], 10.0) + nw.constraints.at_least(PAIRS[800:], 60.0)


class Ended(BaseException):
    """As hard an end as there can be within a process."""


def learner(path: Path | None, **settings: Any) -> nw.MetricLearner:
    return nw.MetricLearner(penalty=0.05, tol=1e-9, random_state=0, checkpoint=path, **settings)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each pass over all rows; rows stay in pieces, however few they are."""
    monkeypatch.setattr(_in_pieces, "_TAKEN", 100)
    monkeypatch.setattr(chunks, "FEWEST", 500)
    found: list[int] = []
    passed = in_chunks.InChunks._pass

    def counted(rows: in_chunks.InChunks, B: np.ndarray) -> Any:
        found.append(1)
        return passed(rows, B)

    monkeypatch.setattr(in_chunks.InChunks, "_pass", counted)
    return found


def test_a_fit_that_was_ended_makes_no_pass_twice(tmp_path: Path, passes: list[int]) -> None:
    whole = learner(None).fit(Stacked([X]), constraints=SIDE)
    needed = len(passes)
    passes.clear()

    def end(record: Any) -> None:
        if record.iteration == 4:
            raise Ended

    with pytest.raises(Ended):
        learner(tmp_path / "fit", callback=end).fit(Stacked([X]), constraints=SIDE)
    before = len(passes)
    assert 4 <= before < needed
    found = learner(tmp_path / "fit").fit(Stacked([X[:700], X[700:]]), constraints=SIDE)
    assert len(passes) == needed
    assert not (tmp_path / "fit").exists()
    np.testing.assert_array_equal(found.metric_.matrix, whole.metric_.matrix)
    assert [r.gap for r in found.result_.history] == [r.gap for r in whole.result_.history]


@pytest.mark.parametrize("change", ["a bit", "two signs", "two rows"])
def test_other_data_are_refused_however_little_they_differ(
    change: str, tmp_path: Path, passes: list[int]
) -> None:
    def end(record: Any) -> None:
        raise Ended

    with pytest.raises(Ended):
        learner(tmp_path / "fit", callback=end).fit(Stacked([X]), constraints=SIDE)
    other = X.copy()
    if change == "a bit":
        other[1234, 2] = np.nextafter(other[1234, 2], np.inf)
    elif change == "two signs":
        other[1234, :2] *= -1
    else:
        other[[1233, 1235]] = other[[1235, 1233]]
    before = len(passes)
    with pytest.raises(ValueError, match="belongs to another fit: its data"):
        learner(tmp_path / "fit").fit(Stacked([other]), constraints=SIDE)
    assert len(passes) == before


def test_pairs_in_files_are_known_by_what_they_say(
    tmp_path: Path, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "ROWS_AT_A_TIME", 500)

    def stored(name: str, pairs: np.ndarray, *cuts: int) -> Any:
        (tmp_path / name).mkdir()
        for k, part in enumerate(np.split(pairs, cuts)):
            np.save(tmp_path / name / f"{k}.npy", part)
        return nw.constraints.at_least(nw.distributed.open_pairs(tmp_path / name), 60.0)

    def end(record: Any) -> None:
        if record.iteration == 3:
            raise Ended

    whole = learner(None).fit(X, constraints=stored("a", PAIRS))
    needed = len(passes)
    passes.clear()
    with pytest.raises(Ended):
        learner(tmp_path / "fit", callback=end).fit(X, constraints=stored("b", PAIRS, 7, 7, 2000))
    other = PAIRS.copy()
    other[1234] = other[1234, ::-1]
    with pytest.raises(ValueError, match="belongs to another fit: its data"):
        learner(tmp_path / "fit").fit(X, constraints=stored("c", other))
    again = learner(tmp_path / "fit").fit(X, constraints=stored("d", PAIRS, 1000))
    assert len(passes) == needed
    np.testing.assert_array_equal(again.metric_.matrix, whole.metric_.matrix)


KILLED = """
import os, signal, sys
import numpy as np
import nearwise as nw
from nearwise.learners import _in_pieces
_in_pieces._TAKEN = 100
folder = sys.argv[1]
pairs = np.load(folder + "/pairs.npy")
side = nw.constraints.at_most(pairs[:800], 10.0) + nw.constraints.at_least(pairs[800:], 60.0)
def kill(record):
    if record.iteration == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
learner = nw.MetricLearner(
    penalty=0.05, tol=1e-9, random_state=0, checkpoint=folder + "/fit", callback=kill
)
learner.fit(nw.distributed.open_vectors(folder + "/x.npy"), constraints=side)
np.save(folder + "/found.npy", learner.metric_.matrix)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "pairs.npy", PAIRS)

    def run(last: int) -> int:
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(last)]
        return subprocess.run(command, env=os.environ, check=False).returncode

    assert run(-1) == 0
    expected = np.load(tmp_path / "found.npy")
    (tmp_path / "found.npy").unlink()
    for iteration in (1, 3, 4):
        assert run(iteration) == -signal.SIGKILL
        assert (tmp_path / "fit").exists()
    assert run(-1) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected)
