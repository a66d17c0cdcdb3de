"""The examples run, and print and draw what they promise."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
CALLS = {
    "fixed_rank_subspace": ([], "learned"),
    "fixed_rank_lambda": (["--problems", "1"], "mean test error"),
    "fixed_rank_online": (["--samples", "400"], "polar, online, p = 32"),
    "streaming_feedback": ([], "bit by bit: True"),
    "portfolio_correlation": ([], "nearest: SOLVED"),
    "digit_map": ([], "KernelReducer"),
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(CALLS)


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
    assert "loadings (20, 3)" in lines[3]


def test_digit_map(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed("digit_map.py", capsys, monkeypatch).splitlines()
    assert [line.split(":")[0] for line in lines] == ["KernelReducer", "kernel PCA"]
    assert all("1,697 unseen digits of digits" in line for line in lines)
