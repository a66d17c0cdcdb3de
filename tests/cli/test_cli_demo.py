"""`nearwise demo`: figures, a page, and the next command, from the code that `learn` runs."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import nearwise as nw
from nearwise import cli
from nearwise.data import tables
from nearwise.show import report
from nearwise.study import fitting


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One run of `nearwise demo --json`: its report and what it printed."""
    path = tmp_path_factory.mktemp("demo") / "report.html"
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        assert cli.main(["demo", "--json", "-o", str(path)]) == cli.DONE
    return path, printed.getvalue()


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 150 digits, for tests of anything but the figures."""
    whole = tables.read

    def read(*arguments: Any, **options: Any) -> tables.Table:
        table = whole(*arguments, **options)
        return dataclasses.replace(table, X=table.X[:150], labels=table.labels[:150])

    monkeypatch.setattr(tables, "read", read)


@pytest.mark.long
def test_demo_learns_a_better_distance_and_says_so_in_json(demo: tuple[Path, str]) -> None:
    path, printed = demo
    found = json.loads(printed)
    figures = {figure["name"]: figure for figure in found["figures"]}
    for name in ("5-NN error", "clustering NMI", "pair ROC-AUC"):
        assert figures[name]["verdict"] == "better", name
    assert figures["recall@5"]["after"]["value"] > 0.95
    assert found["status"] == "SOLVED"
    assert 0 <= found["gap"] <= 1e-6
    assert found["measured_on"] == "898 other rows"
    assert found["report"] == str(path)


@pytest.mark.long
def test_the_page_is_a_report_with_the_figures(demo: tuple[Path, str]) -> None:
    path, printed = demo
    text = path.read_text(encoding="utf-8")
    assert report.is_report(path)
    assert len(text) < 2_000_000
    error = json.loads(printed)["figures"][0]["after"]
    assert f"<b>{error['value']:.1%}</b>".replace("%", " %") in text
    assert "nearwise demo --json" in text


@pytest.mark.long
@pytest.mark.usefixtures("few_digits")
def test_demo_ends_with_the_report_and_the_next_command(
    demo: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = shutil.copy(demo[0], str(tmp_path / "report.html"))
    assert cli.main(["demo", "-o", page]) == cli.DONE  # a report may be replaced by the next one
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"report: {page}"
    assert re.fullmatch(r"next:   .*nearwise learn dataset:iris --labels target .*", lines[-1])
    assert any("SOLVED: relative gap" in line for line in lines)
    interval = r"\d+\.\d % \(\d+\.\d to \d+\.\d\)"
    assert any(re.search(rf"5-NN error +{interval} +{interval} +\w+", line) for line in lines)


@pytest.mark.long
@pytest.mark.usefixtures("few_digits")
def test_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--quiet", "--seed", "1", "-o", str(tmp_path / "r.html")]) == cli.DONE
    assert capsys.readouterr() == ("", "")


@pytest.mark.long
def test_the_next_command_works(demo: tuple[Path, str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(json.loads(demo[1])["next"])
    assert cli.main([*words[words.index("learn") :], "--quiet"]) == cli.DONE
    assert {path.name for path in tmp_path.iterdir()} == {"iris.safetensors", "iris.html"}


@pytest.mark.usefixtures("few_digits")
def test_not_converged_is_code_1_and_the_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hasty = nw.MetricLearner(penalty=1.0, tol=1e-14, max_iter=1, random_state=0)
    monkeypatch.setattr(fitting, "estimator", lambda *_: hasty)
    path = tmp_path / "r.html"
    assert cli.main(["demo", "--json", "-o", str(path)]) == cli.NOT_CONVERGED
    assert json.loads(capsys.readouterr().out)["status"] == "LIMIT"
    assert "LIMIT" in path.read_text(encoding="utf-8")


def test_interrupt_is_code_130_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "read", interrupt)
    assert cli.main(["demo", "-o", str(tmp_path / "r.html")]) == cli.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "nearwise: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads the data fails the test, by words that tell it from everything else."""

    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(tables, "read", work)


@pytest.mark.usefixtures("no_work")
def test_output_is_checked_before_any_work(tmp_path: Path, capsys: Any) -> None:
    other = tmp_path / "letter.html"
    other.write_text("<p>Dear reader</p>", encoding="utf-8")
    for path, message in [
        (tmp_path / "absent" / "r.html", "is not a folder"),
        (tmp_path, "is not a file"),
        (other, "give --force"),
    ]:
        assert cli.main(["demo", "-o", str(path)]) == cli.BAD_INPUT
        error = capsys.readouterr().err
        assert message in error
        assert str(path) in error
    assert other.read_text(encoding="utf-8") == "<p>Dear reader</p>"
    with pytest.raises(AssertionError, match="the work began"):
        cli.main(["demo", "-o", str(other), "--force"])


@pytest.mark.long
@pytest.mark.usefixtures("no_work")
def test_a_report_may_be_replaced_without_force(demo: tuple[Path, str]) -> None:
    with pytest.raises(AssertionError, match="the work began"):
        cli.main(["demo", "-o", str(demo[0])])
