"""The examples run and say what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


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
