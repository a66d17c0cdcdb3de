"""`nearwise duplicates --calibrate`: the share of listed pairs that are the same, and where it is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import cli

RNG = np.random.default_rng(0)
PEOPLE, TIMES = 100, 3
WHO = np.repeat(np.arange(PEOPLE), TIMES)
X = (3 * RNG.normal(size=(PEOPLE, 4)))[WHO] + 0.35 * RNG.normal(size=(PEOPLE * TIMES, 4))
FIRST, SECOND = np.triu_indices(len(X), 1)
SAME = WHO[FIRST] == WHO[SECOND]
DISTANCE = np.sqrt(((X[FIRST] - X[SECOND]) ** 2).sum(axis=1))

Known = tuple[np.ndarray, np.ndarray]


def drawn(rng: np.random.Generator, different: int = 150) -> Known:
    """150 same and some different pairs, drawn at random."""
    return rng.permutation(np.flatnonzero(SAME))[:150], rng.permutation(np.flatnonzero(~SAME))[:different]


def near(rng: np.random.Generator) -> Known:
    """The same with the nearest different pairs, as people meet them."""
    different = np.flatnonzero(~SAME)
    return drawn(rng)[0], different[np.argsort(DISTANCE[different])[:150]]


def far(rng: np.random.Generator) -> Known:
    """The same with the farthest same pairs."""
    same = np.flatnonzero(SAME)
    return same[np.argsort(DISTANCE[same])[-20:]], drawn(rng)[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", X, delimiter=",", header="a,b,c,d", comments="")
    nw.save(nw.Metric(np.eye(4)), "model")
    return tmp_path


def duplicates(known: Known, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    lines = [f"{FIRST[p]},{SECOND[p]},{int(SAME[p])}" for p in np.concatenate(known)]
    Path("known.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["duplicates", "model", "rows.csv", "--calibrate", "known.csv", "--json", *words]
    assert cli.main(command) == cli.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def truth(found: dict[str, Any]) -> float:
    return float(np.mean([WHO[int(p["first"])] == WHO[int(p["second"])] for p in found["pairs"]]))


@pytest.mark.parametrize("seed", range(3))
def test_of_pairs_drawn_at_random_the_share_is_estimated(
    seed: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = duplicates(drawn(np.random.default_rng(seed), different=1500), capsys)
    assert found["precision"]["low"] <= truth(found) <= found["precision"]["high"]
    command = ["duplicates", "model", "rows.csv", "--calibrate", "known.csv", "-o", "found.csv"]
    assert cli.main(command) == cli.DONE
    assert f"{found['precision']['estimate']:.0%} of them are the same (" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["0.5", "0.9", "0.95"])
def test_where_known_different_pairs_are_near_ones_the_share_is_not_estimated(
    rate: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most of what is listed is the same, and the formula would say that nothing is."""
    known, words = near(np.random.default_rng(0)), ("--strategy", "max_tpr", "--min-rate", rate)
    found = duplicates(known, capsys, *words)
    listed = len(found["pairs"]) / found["n_pairs"]
    assert listed < found["false_positive_rate"]
    assert truth(found) > 0.5
    assert found["precision"] is None
    # the reason names both rates
    assert f"{found['false_positive_rate']:.2%}" in found["no_precision"]
    assert f"{listed:.2%}" in found["no_precision"]
    command = ["duplicates", "model", "rows.csv", "--calibrate", "known.csv", *words, "-o", "found.csv"]
    assert cli.main(command) == cli.DONE
    assert f"{listed:.2%}" in capsys.readouterr().err


@pytest.mark.parametrize("count", [5, 20])
def test_where_few_different_pairs_are_known_the_share_is_not_estimated(
    count: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of them is near, by which all that is listed would be the same, give or take all of it."""
    same, different = drawn(np.random.default_rng(0))
    found = duplicates((same, different[:count]), capsys, "--strategy", "max_tpr", "--min-rate", "0.9")
    listed = len(found["pairs"]) / found["n_pairs"]
    assert found["false_positive_rate"] == 0
    assert truth(found) < 0.5
    assert found["precision"] is None
    assert f"{listed:.2%}" in found["no_precision"]


def test_where_more_is_near_than_known_same_pairs_the_share_is_not_estimated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The known same pairs are so far apart that the threshold takes most pairs of all, but few of them."""
    same, different = far(np.random.default_rng(0))
    apart = different[np.argsort(DISTANCE[different])[-20:]]
    lines = [f"{FIRST[p]},{SECOND[p]},{int(p in apart)}" for p in (*apart, *same)]
    Path("known.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["--strategy", "max_tpr", "--min-rate", "1.0", "--json"]
    assert cli.main(["duplicates", "model", "rows.csv", "--calibrate", "known.csv", *words]) == cli.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["precision"] is None
    assert found["no_precision"]


@pytest.mark.parametrize("method", [None, "isotonic", "platt", "none"])
def test_there_is_no_probability_that_holds_for_other_pairs(
    method: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a calibration hold where as many pairs are the same; `decide` has them."""
    words = () if method is None else ("--probability", method)
    found = duplicates(drawn(np.random.default_rng(0)), capsys, *words)
    assert all(pair.keys() == {"first", "second", "distance"} for pair in found["pairs"])
    is_said = any("--probability" in notice for notice in found["notices"])
    assert is_said == (method in ("isotonic", "platt"))
    command = ["decide", "model", "rows.csv", "--pairs", "known.csv", "--calibrate", "known.csv", "--json"]
    assert cli.main([*command, *words]) == cli.DONE
    decided = json.loads(capsys.readouterr().out)["decisions"]
    assert all(("probability" in pair) == (method != "none") for pair in decided)
