"""Labels of two files, or of two parts of one, written in two ways; and classes that only one file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from crossing import crossed
from nearwise import cli, study


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(n: int, seed: int, classes: int = 3) -> tuple[np.ndarray, list[int]]:
    """Well separated classes 0, 1, ..."""
    codes = [k % classes for k in range(n)]
    return np.random.default_rng(seed).normal(scale=0.3, size=(n, 2)) + 3.0 * np.array(codes)[:, None], codes


def write(path: str, X: np.ndarray, labels: list[Any]) -> None:
    lines = [f"{a},{b},{label}" for (a, b), label in zip(X, labels, strict=True)]
    Path(path).write_text("\n".join(["u,v,y", *lines]) + "\n", encoding="utf-8")


def model() -> study.Fitted:
    X, codes = rows(60, 9)
    learner = nw.MetricLearner(random_state=0, penalty=1.0).fit(X, np.array(codes).astype(str))
    nw.save(learner, "m.safetensors")
    return study.load(learner)


def figures(fitted: study.Fitted) -> dict[str, float]:
    known = study.with_files(fitted.read("test.csv", labels="y"))
    found = study.measure(fitted, known, train=fitted.read("train.csv", labels="y"))
    return {figure.name: figure.after.value for figure in found.figures}


@crossed(
    here={"1": "{}", "1.0": "{}.0", "1.00": "{}.00"},
    there={"1": "{}", "1.0": "{}.0"},
    gaps=[0, 3],
)
def test_whole_numbers_are_one_class_however_they_are_written(here: str, there: str, gaps: int) -> None:
    fitted = model()
    (X, codes), (Z, others) = rows(40, 0), rows(60, 1)
    write("test.csv", X, [here.format(code + 7) for code in codes[gaps:]] + [""] * gaps)
    write("train.csv", Z, [there.format(code + 7) for code in others])
    labels = [codes[gaps:], others]
    found = figures(fitted)
    assert found == figures_of_words(fitted, X, labels[0], gaps, Z, others)
    assert found["5-NN error"] < 0.2


def figures_of_words(
    fitted: study.Fitted, X: np.ndarray, codes: list[int], gaps: int, Z: np.ndarray, others: list[int]
) -> dict[str, float]:
    """The same with labels that nobody can take for numbers."""
    write("test.csv", X, [f"c{code}" for code in codes] + [""] * gaps)
    write("train.csv", Z, [f"c{code}" for code in others])
    return figures(fitted)


def test_both_in_one_file_are_one_class() -> None:
    X, codes = rows(30, 0)
    write("data.csv", X, [f"{code + 1}.0" if k < 10 else code + 1 for k, code in enumerate(codes)])
    known = study.from_files("data.csv", labels="y")
    assert known.classes == ("1", "2", "3")
    assert any("'1.0'" in notice for notice in known.notices)
    write("data.csv", X, [f"{code + 1}.0" for code in codes])  # nothing to match, nothing to tell
    known = study.from_files("data.csv", labels="y")
    assert len(known.classes) == 3
    assert not known.notices


def test_a_csv_and_a_parquet_file_have_the_same_classes() -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    fitted = model()
    (X, codes), (Z, others) = rows(40, 0), rows(60, 1)
    write("test.csv", X, [f"{code}.0" for code in codes])
    parquet.write_table(pa.table({"u": Z[:, 0], "v": Z[:, 1], "y": others}), "train.parquet")
    known = study.with_files(fitted.read("test.csv", labels="y"))
    found = study.measure(fitted, known, train=fitted.read("train.parquet", labels="y"))
    assert found.figures[0].after.value < 0.2
    assert not any("alone" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((["a", "b", "c"], ["a", "b", "c"]), []),
        ((["a", "b", "c"], ["d", "e", "f"]), ["'a', 'b', 'c'", "'d', 'e', 'f'", "no class"]),
        ((["a", "b", "c"], ["a", "b", "f"]), ["'c'", "'f'"]),
        ((["a", "b", "b"], ["a", "b", "c"]), ["train.csv alone: 'c'"]),
        ((["1", "2", "3"], ["1.0", "2.0", "4.0"]), ["'3'", "'4.0'"]),
    ],
    ids=["the same", "none", "not every one", "one is not asked for", "numbers"],
)
def test_classes_that_one_file_has_alone_are_told(
    names: tuple[list[str], list[str]], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model()
    (X, codes), (Z, others) = rows(40, 0), rows(60, 1)
    write("test.csv", X, [names[0][code] for code in codes])
    write("train.csv", Z, [names[1][code] for code in others])
    command = ["evaluate", "m.safetensors", "test.csv", "--labels", "y", "--train", "train.csv", "--json"]
    assert cli.main(command) == cli.DONE
    notices = [n for n in json.loads(capsys.readouterr().out)["notices"] if "class" in n and "alone" in n]
    assert len(notices) == bool(told)
    for text in told:
        assert text in notices[0]
