"""The commands `python -m benchmarks` and `python -m experiments`: what they list, refuse and hand over."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from benchmarks.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("package", "named"), [("benchmarks", "solver"), ("experiments", "digits")])
def test_a_command_without_a_name_lists_what_there_is(package: str, named: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", package], capture_output=True, text=True, check=True, cwd=ROOT
    )
    lines = dict(re.findall(r"^(\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    assert named in lines
    begun = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert len(lines) == len(begun) > 5


def test_a_benchmark_that_does_not_exist_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r".*'nonsense'.*\bsolver\b.*\n", error)


def test_a_benchmark_gets_its_arguments_and_returns_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def benchmark(argv: list[str]) -> int:
        seen.extend(argv)
        return 1

    monkeypatch.setitem(sys.modules, "benchmarks.solver", types.SimpleNamespace(main=benchmark))
    assert main(["solver", "--quick", "--help", "3"]) == 1
    assert seen == ["--quick", "--help", "3"]


def test_an_experiment_that_does_not_exist_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr.splitlines()[-1]
