"""The command line as a user meets it: output, exit codes, files; and the page it writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import nearwise as nw
from nearwise import cli


def test_help_names_every_command_and_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(re.search(rf"^    {name}\b", text, re.MULTILINE) for name in cli.COMMANDS)
    assert all(f"  nearwise {command.examples[0]}\n" in text for command in cli.COMMANDS.values())
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"nearwise {nw.__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert re.search(rf"^examples?:\n  nearwise {name}\b", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("arguments", [[], *([name] for name in cli.COMMANDS)], ids=" ".join)
def test_help_is_shown_before_anything_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        "import contextlib, sys\nfrom nearwise import cli\n"
        f"with contextlib.suppress(SystemExit): cli.main({[*arguments, '--help']})\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "argparse" in loaded
    assert not loaded & {"numpy", "scipy", "sklearn", "numba", "rich", "pyarrow", "matplotlib"}


def test_python_m_runs_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nearwise", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"nearwise {nw.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["demo", "--seed", "-1"],
        ["demo", "--seed", "x"],
        ["demo", "--seed", str(2**32)],
        ["demo", "extra"],
    ],
)
def test_bad_arguments_are_code_2_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    out, error = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"nearwise.*: .*; nearwise( demo)? --help explains\n", error)


def test_without_a_command_the_help_is_shown_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.BAD_INPUT
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("usage: nearwise")
    assert all(re.search(rf"^    {name}\b", error, re.MULTILINE) for name in cli.COMMANDS)


def test_a_reader_that_went_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "nearwise", "completion", "bash"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (cli.DONE, b"")
