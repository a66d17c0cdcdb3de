"""The examples run, and print and draw what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nearwise as nw

EXAMPLES = Path(__file__).parents[1] / "examples"
CALLS = {
    "fixed_rank_subspace": ([], "learned"),
    "digit_map": ([], "KernelReducer"),
    "feedback_on_embeddings": ([], "have the same problem"),
}  # with the data folder, if there is one
OTHERS = {"streaming_feedback", "portfolio_correlation", "labels_in_a_pipeline", "kernel_for_svm"}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == CALLS.keys() | OTHERS


@pytest.mark.parametrize("name", CALLS)
def test_an_example_prints_its_table(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, expected = CALLS[name]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert expected in capsys.readouterr().out


def test_streaming_feedback_gives_the_same_metric_as_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "streaming_feedback.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("bit by bit: True")
    shares = [float(line.split()[1].rstrip("%")) for line in lines[1:-1]]
    assert shares[-1] > shares[0] + 5


def printed(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.argv", [name])
    monkeypatch.delenv("NEARWISE_DATA", raising=False)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_portfolio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed("portfolio_correlation.py", capsys, monkeypatch).splitlines()
    assert "smallest eigenvalue -" in lines[0]
    assert lines[1].startswith("nearest: SOLVED")
    assert lines[2].startswith("nearest, stress kept: SOLVED")
    assert lines[2].endswith("stress 0.800")
    assert lines[3].endswith("correlation 0.80 where 0.80 was asked for")
    assert "loadings (20, 3)" in lines[4]


def percentages(text: str) -> list[float]:
    """The first percentage of every line that has one."""
    found = [re.search(r"([\d.]+)%", line) for line in text.splitlines()]
    return [float(match[1]) for match in found if match]


@pytest.mark.long
def test_a_learned_metric_errs_less_in_the_same_folds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nw.datasets.load("digits")
    part = replace(whole, X=whole.X[::5], y=whole.y[::5])
    monkeypatch.setattr(nw.datasets, "load", lambda name: part)
    text = printed("labels_in_a_pipeline.py", capsys, monkeypatch)
    assert text.endswith("it transforms the same: True\n")
    plain, learned, best = percentages(text)
    assert learned < plain
    assert best <= learned


@pytest.mark.long
def test_feedback_finds_what_is_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss", reason="needs faiss")
    plain, learned = percentages(printed("feedback_on_embeddings.py", capsys, monkeypatch))
    assert learned > plain + 20


@pytest.mark.long
def test_a_learned_kernel_helps_a_support_vector_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, learned = percentages(printed("kernel_for_svm.py", capsys, monkeypatch))
    assert learned > plain + 5


@pytest.mark.long
def test_digit_map(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed("digit_map.py", capsys, monkeypatch).splitlines()
    assert [line.split(":")[0] for line in lines] == ["KernelReducer", "kernel PCA"]
    assert all("1,697 unseen digits of digits" in line for line in lines)
