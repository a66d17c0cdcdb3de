"""Shell completion, tried in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nearwise import cli

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "-n"]}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == cli.DONE
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", CHECKS)
def test_the_shell_can_read_its_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert all(name in text for name in cli.COMMANDS)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*CHECKS[shell], str(tmp_path / "script")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with the scripts of all shells and files to complete."""
    for shell in CHECKS:
        (tmp_path / f".{shell}").write_text(script(shell, capsys), encoding="utf-8")
    files = tmp_path / "files"
    files.mkdir()
    for name in ("data one.csv", "data.csv", "model"):
        (files / name).touch()
    return tmp_path


def by_bash(folder: Path, line: list[str]) -> list[str]:
    """What bash offers for the last word of a line."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    code = """source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _nearwise
        for offer in "${COMPREPLY[@]}"; do echo "$offer"; done"""
    done = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", str(folder / ".bash"), "nearwise", *line],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder / "files",
    )
    assert done.stderr == ""
    return sorted(done.stdout.splitlines())


def by_fish(folder: Path, line: list[str]) -> list[str]:
    """What fish offers for the last word of a line."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    code = f"source {folder}/.fish; complete -C 'nearwise {' '.join(line)}'"
    environment = {"HOME": str(folder), "PATH": "/bin:" + str(Path(shutil.which("fish")).parent)}
    done = subprocess.run(
        ["fish", "--no-config", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder / "files",
        env=environment,
    )
    return sorted(line.split("\t")[0].replace("\\", "") for line in done.stdout.splitlines())


FILES = ["data one.csv", "data.csv", "model"]


@pytest.mark.parametrize("offered", [by_bash, by_fish])
def test_commands_options_choices_and_files_are_offered(offered: object, folder: Path) -> None:
    def offer(*line: str) -> list[str]:
        return offered(folder, list(line))

    assert offer("") == sorted(cli.COMMANDS)
    assert offer("ne") == ["neighbors"]
    assert offer("completion", "") == ["bash", "fish", "zsh"]
    assert offer("completion", "z") == ["zsh"]
    assert offer("apply", "--thr") == ["--threads"]
    for command in ("learn", "apply", "evaluate", "neighbors"):
        assert offer(command, "--dec") == ["--decimal"]
        assert offer(command, "--decimal", "") == [",", ".", "comma", "point"]
        assert offer(command, "--thousands", "s") == ["space"]
    assert {"--help", "--output", "--id", "--drop"} <= set(offer("apply", "--"))
    assert offer("apply", "da") == FILES[:2]
    assert offer("neighbors", "model", "data.csv", "--query", "mo") == ["model"]
    assert offer("neighbors", "model", "-k", "mo") == []
    assert offer("apply", "model", "--id", "mo") == []


def test_bash_offers_all_files_and_sees_through_equals_signs(folder: Path) -> None:
    assert by_bash(folder, ["apply", ""]) == FILES
    assert by_bash(folder, ["neighbors", "--query", "=", "mo"]) == ["model"]
    assert by_bash(folder, ["neighbors", "--query", "="]) == FILES
    assert by_bash(folder, ["--ver"]) == ["--version"]
    assert by_bash(folder, ["nonsense", ""]) == []
