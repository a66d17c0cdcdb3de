"""What all commands share: types of arguments, checks of outputs, errors of the user, threads."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nearwise.cli import _common
from nearwise.cli._common import BadInput


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", "x", "\u0661", "11", "0"])
def test_whole_numbers_outside_their_bounds_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a whole number, 1 to 10"):
        _common.whole_number(1, 10)(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e999", "x"])
def test_numbers_that_are_not_positive_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a number greater than 0"):
        _common.positive_number(text)


def test_numbers_within_their_bounds_are_read() -> None:
    assert [_common.whole_number(-2)(text) for text in ("-2", "007", "12")] == [-2, 7, 12]
    assert _common.positive_number("2.5") == 2.5


def test_outputs_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.csv"
    _common.check_output("-", False)
    _common.check_output(path, False)
    path.touch()
    _common.check_output(path, True)
    _common.check_output(path, False, lambda found: found == path)
    with pytest.raises(BadInput, match=r"out\.csv exists; give --force to replace it"):
        _common.check_output(path, False)
    with pytest.raises(BadInput, match=r"exists and is not a nearwise report"):
        _common.check_output(path, False, lambda _: False)
    with pytest.raises(BadInput, match=r"it is not a file"):
        _common.check_output(tmp_path, True)
    with pytest.raises(BadInput, match=r"the name of the file to write is empty"):
        _common.check_output("", True)
    with pytest.raises(BadInput, match=r"absent is not a folder"):
        _common.check_output(tmp_path / "absent" / "out.csv", True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BadInput, match=r"no permission to write in"):
        _common.check_output(path, True)


def test_errors_of_files_are_bad_input_and_a_closed_pipe_is_not(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent: No such file"), _common.refusing_bad_input():
        (tmp_path / "absent").read_bytes()
    with pytest.raises(BadInput, match=r"^seven$"), _common.refusing_bad_input():
        raise KeyError("seven")
    with pytest.raises(BadInput, match=r"can't encode character"), _common.refusing_bad_input():
        "\u2028".encode("ascii")
    with pytest.raises(BrokenPipeError), _common.refusing_bad_input():
        raise BrokenPipeError


@pytest.mark.long
def test_threads_are_limited_before_the_libraries_start() -> None:
    code = (
        "from nearwise.cli._common import limit_threads\nfrom threadpoolctl import threadpool_info\n"
        "with limit_threads(1):\n"
        "    import numba\n"
        "    print({pool['num_threads'] for pool in threadpool_info()}, numba.get_num_threads())"
    )
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "{1} 1\n"


def test_an_output_is_neither_an_input_nor_another_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    same = str(tmp_path / "a.csv")
    _common.check_distinct({"DATA": "a.csv", "--pairs": same}, {"-o": "b.csv", "--report": None})
    _common.check_distinct({"DATA": "-"}, {"-o": "-"})
    with pytest.raises(BadInput, match=r"^DATA and -o are the same file: .*a\.csv$"):
        _common.check_distinct({"DATA": "a.csv"}, {"-o": same})
    with pytest.raises(BadInput, match=r"^-o and --report are the same file: \./b\.csv$"):
        _common.check_distinct({}, {"-o": "b.csv", "--report": "./b.csv"})


def test_text_of_data_stays_on_its_line() -> None:
    assert _common.one_line("x" * 5000) == "x" * 77 + "..."
    assert _common.one_line("花 é שם") == "花 é שם"
    assert _common.one_line("\x1b[2Ja\nb\u202ec\ud800") == r"\x1b[2Ja\nb\u202ec\ud800"


def test_the_program_is_named_as_it_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my env" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert _common.program() == "'my env/bin/python' -m nearwise"
    (folder / "nearwise").touch()
    assert _common.program() == "'my env/bin/nearwise'"
    monkeypatch.chdir(folder)
    assert _common.program() == "./nearwise"
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(shutil, "which", lambda name: f"/anywhere/{name}")
    assert _common.program() == "nearwise"
