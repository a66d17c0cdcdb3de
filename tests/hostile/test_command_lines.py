"""Hostile paths and options of the command line, one row a case: one line, and no file is changed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from commands import DONE, REFUSED, fill, run, text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("files"))


GOOD = ("good.csv", "--labels", "kind", "--drop", "name", "--penalty", "1", "--kernel", "linear")
OF_MODEL = ("model", "good.csv", "--id", "name")
# the command, and what is said
LINES: dict[str, tuple[tuple[str, ...], str]] = {
    "no such column": (("learn", "good.csv", "--labels", "nope"), "good.csv has no column 'nope'"),
    "a column without a name": (("learn", "good.csv", "--labels", ""), "good.csv has no column ''"),
    "measurements as labels": (
        ("learn", "good.csv", "--labels", "a", "--drop", "name", "--drop", "kind"),
        "measurements are not labels of classes",
    ),
    "a label as a feature": (("learn", *GOOD, "--features", "kind"), "cannot be the label and a feature"),
    "no feature": (("learn", *GOOD, "--drop", "a", "--drop", "b"), "no column is left to be a feature"),
    "the null device": (("learn", os.devnull, "--labels", "kind"), "is empty"),
    "a folder without files": (("learn", "empty", "--pairs", "pairs.csv"), "empty has no files that end in"),
    "a folder of junk": (("learn", "junk", "--pairs", "pairs.csv"), "cannot be read: it is damaged"),
    "a link to itself": (
        ("learn", "loop.csv", "--labels", "kind"),
        "it cannot be read: Too many levels",
    ),
    "a path with a zero byte": (
        ("learn", "a\0b.csv", "--labels", "kind"),
        "a zero byte is in no name of a file",
    ),
    "a path of 5,000 letters": (("learn", "x" * 5000 + ".csv", "--labels", "kind"), "File name too long"),
    "a model as data": (
        ("learn", "model", "--labels", "kind"),
        "there is a zero byte, so this is not a text file",
    ),
    "data as a model": (
        ("apply", "good.csv", "good.csv", "-o", "-"),
        "good.csv is damaged, or not a model file",
    ),
    "a folder as a model": (("apply", "empty", "good.csv", "-o", "-"), "no model file empty"),
    "a device as a model": (("info", "/dev/zero"), "no model file /dev/zero"),
    "output over data": (("apply", *OF_MODEL, "-o", "good.csv", "--force"), "DATA and -o are the same file"),
    "output over the model": (
        ("apply", *OF_MODEL, "-o", "model", "--force"),
        "MODEL and -o are the same file",
    ),
    "output to a folder": (("apply", *OF_MODEL, "-o", "empty"), "cannot write empty"),
    "output to a device": (
        ("apply", *OF_MODEL, "-o", "/dev/full"),
        "cannot write /dev/full: it is not a file",
    ),
    "output to no folder": (
        ("apply", *OF_MODEL, "-o", "no/x.csv"),
        "cannot write no/x.csv: no is not a folder",
    ),
    "output to a link to itself": (("apply", *OF_MODEL, "-o", "loop.csv"), "it is a link to itself"),
    "a spreadsheet": (("apply", *OF_MODEL, "-o", "x.xlsx"), "the name must end in .csv"),
    "a model as CSV": (("learn", *GOOD, "-o", "m.csv"), "a model is written as .safetensors"),
    "a report over a model": (
        ("learn", *GOOD, "-o", "m", "--report", "m"),
        "-o and --report are the same file",
    ),
    "a checkpoint over data": (
        ("learn", *GOOD, "--checkpoint", "good.csv"),
        "DATA and --checkpoint are the same",
    ),
    "a checkpoint over a model": (("learn", *GOOD, "--checkpoint", "model"), "is another kind of file"),
    "a penalty that is no number": (
        ("learn", *GOOD, "--penalty", "nan"),
        "'nan' is not auto, inf or a number",
    ),
    "a penalty of zero": (
        ("learn", *GOOD, "--penalty", "0"),
        "'0' is not auto, inf or a number greater than 0",
    ),
    "a rank of zero": (("learn", *GOOD, "--rank", "0"), "'0' is not a whole number, 1 or more"),
    "a rank above the columns": (("learn", *GOOD, "--rank", "99"), "has 2 features, and no higher rank"),
    "a share of two": (("learn", *GOOD, "--held-out", "2"), "'2' is not a share from 0 to 0.9"),
    "a negative seed": (("learn", *GOOD, "--seed", "-1"), "'-1' is not a whole number, 0 to"),
    "no seconds": (("learn", *GOOD, "--max-seconds", "nan"), "'nan' is not a number greater than 0"),
    "no workers": (("learn", *GOOD, "--workers", "0"), "'0' is not a whole number, 1 or more"),
    "a group of an unknown column": (
        ("learn", *GOOD[:-2], "--structure", "blocks", "--group", "a,zz"),
        "'zz'",
    ),
    "blocks without groups": (
        ("learn", *GOOD[:-2], "--structure", "blocks"),
        "--structure blocks and --group go",
    ),
    "an unknown role": (
        (
            "learn",
            "good.csv",
            "--id",
            "name",
            "--drop",
            "kind",
            "--pairs",
            "pairs.csv",
            "--role",
            "weight=zz",
        ),
        "no file of feedback has the column 'zz'",
    ),
    "no threshold": (("decide", *OF_MODEL, "--pairs", "pairs.csv"), "without a threshold; calibrate one"),
    "a threshold that is none": (("duplicates", *OF_MODEL, "--threshold", "nan"), "'nan' is not a distance"),
    "an infinite threshold": (("duplicates", *OF_MODEL, "--threshold", "inf"), "'inf' is not a distance"),
    "a rate of seven": (
        ("decide", *OF_MODEL, "--pairs", "pairs.csv", "--calibrate", "pairs.csv", "--min-rate", "7"),
        "'7' is not a number from 0 to 1",
    ),
    "a rate of no strategy": (
        ("decide", *OF_MODEL, "--pairs", "pairs.csv", "--calibrate", "pairs.csv", "--min-rate", "0.5"),
        "--strategy accuracy has no --min-rate",
    ),
    "a model saved over data": (
        ("decide", *OF_MODEL, "--pairs", "pairs.csv", "--calibrate", "pairs.csv", "--save", "good.csv"),
        "DATA and --save are the same file",
    ),
    "duplicates over the model": (
        ("duplicates", *OF_MODEL, "--threshold", "1", "-o", "model", "--force"),
        "MODEL and -o are the same file",
    ),
    "standard input twice": (
        ("decide", "model", "-", "--id", "name", "--pairs", "-", "--threshold", "1"),
        "only one file can come from standard input",
    ),
    "a regressor decides": (
        ("decide", "regressor", "good.csv", "--id", "name", "--pairs", "pairs.csv", "--threshold", "1"),
        "holds a FixedRankRegressor that has no distance for new objects",
    ),
    "a metric has no start": (
        ("evaluate", "metric", "good.csv", "--id", "name", "--labels", "kind"),
        "metric holds a Metric, and no distance before learning to compare it with",
    ),
    "more neighbours than rows": (("neighbors", *OF_MODEL, "-k", "1000"), "-k 1000 is too large"),
}


@pytest.mark.parametrize("case", LINES)
def test_hostile_lines(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    words, expected = LINES[case]
    code, out, lines = run(capsys, *words)
    assert code == REFUSED
    assert out == ""
    assert len(lines) == 1
    assert len(lines[0]) < 600
    assert expected in lines[0]
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_data_and_feedback_may_come_from_pipes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    contents = {"data.csv": text(), "pairs.csv": (folder / "pairs.csv").read_text()}
    writers = []
    for name, content in contents.items():
        os.mkfifo(tmp_path / name)
        writers.append(threading.Thread(target=(tmp_path / name).write_text, args=(content,), daemon=True))
        writers[-1].start()
    words = [
        "learn",
        str(tmp_path / "data.csv"),
        "--id",
        "name",
        "--drop",
        "kind",
        "--penalty",
        "1",
        "--quiet",
    ]
    assert run(capsys, *words, "--pairs", str(tmp_path / "pairs.csv"), "-o", str(tmp_path / "out"))[0] == DONE
    for writer in writers:
        writer.join(timeout=10)
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("info", "model", "--json"),
        ("evaluate", *OF_MODEL, "--labels", "kind", "--json"),
        ("decide", *OF_MODEL, "--pairs", "pairs.csv", "--calibrate", "pairs.csv", "--json"),
        ("duplicates", *OF_MODEL, "--threshold", "0", "--json"),
        ("duplicates", *OF_MODEL, "--threshold", "1e300", "--json"),
    ],
    ids=" ".join,
)
def test_json_has_no_number_that_is_none(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(constant: str) -> None:
        raise AssertionError(constant)

    monkeypatch.chdir(folder)
    code, out, _ = run(capsys, *words)
    assert code == DONE
    assert json.loads(out, parse_constant=none)
