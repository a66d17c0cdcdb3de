"""The command line as a user meets it: output, exit codes, files; and the page it writes."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from nearwise import cli, report
from nearwise.report import Report


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One run of `nearwise demo --json`: its report and what it printed."""
    path = tmp_path_factory.mktemp("demo") / "report.html"
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        assert cli.main(["demo", "--json", "-o", str(path)]) == cli.DONE
    return path, printed.getvalue()


@pytest.fixture
def page(demo: tuple[Path, str]) -> Path:
    return demo[0]


class Page(HTMLParser):
    """Collects the tags, attributes and text of a page, and notices a tag that is not closed in order."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


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


def test_demo_learns_a_better_distance_and_says_so_in_json(demo: tuple[Path, str]) -> None:
    figures = json.loads(demo[1])
    assert figures["error_after"] < figures["error_before"]
    assert figures["order_after"] > figures["order_before"]
    assert figures["status"] == "SOLVED"
    assert 0 <= figures["gap"] <= 1e-6
    assert figures["report"] == str(demo[0])


def test_demo_ends_with_the_report_and_the_next_command(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "-o", str(page)]) == cli.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"report: {page}"
    assert re.fullmatch(r"next:   .*nearwise bench", lines[-1])
    assert any("SOLVED: relative gap" in line for line in lines)
    assert any(re.search(r"5-NN error on the test half +\d+\.\d% +\d+\.\d%", line) for line in lines)


def test_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--quiet", "--seed", "1", "-o", str(tmp_path / "r.html")]) == cli.DONE
    assert capsys.readouterr() == ("", "")


def test_interrupt_is_code_130_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(nw, "solve", interrupt)
    assert cli.main(["demo", "-o", str(tmp_path / "r.html")]) == cli.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "nearwise: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_went_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "nearwise", "bench"], stdout=pipe, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (cli.DONE, b"")


def test_not_converged_is_code_1_and_the_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nw, "solve", functools.partial(nw.solve, tol=1e-14, max_iter=1))
    path = tmp_path / "r.html"
    assert cli.main(["demo", "--json", "-o", str(path)]) == cli.NOT_CONVERGED
    assert json.loads(capsys.readouterr().out)["status"] == "LIMIT"
    assert "LIMIT" in path.read_text(encoding="utf-8")


def test_output_is_checked_before_any_work(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(nw, "solve", work)
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
    for arguments in (["-o", str(page)], ["-o", str(other), "--force"]):
        with pytest.raises(AssertionError, match="the work began"):
            cli.main(["demo", *arguments])


def test_bench_lists_and_refuses_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench"]) == cli.DONE
    assert re.search(r"^solver +\S", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "nonsense"])
    assert re.search(r"invalid choice: 'nonsense' .*solver", capsys.readouterr().err)


def test_bench_hands_over_its_arguments_and_returns_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def benchmark(argv: list[str]) -> int:
        seen.extend(argv)
        return 1

    fake = types.SimpleNamespace(main=benchmark)
    monkeypatch.setitem(sys.modules, "nearwise.benchmarks.solver", fake)
    assert cli.main(["bench", "solver", "--quick", "--help", "3"]) == 1
    assert seen == ["--quick", "--help", "3"]


def test_page_is_well_formed_and_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.open == []
    assert parsed.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    names = {name for name, _ in parsed.attributes}
    assert not {"style", "src", "href", "srcset"} & names
    assert not any(name.startswith("on") for name in names)
    assert not re.search(r"https?:|//|url\(|@import|\bnan\b|\binf\b", text)
    assert report.is_report(page)


def test_distances_before_and_after_share_their_axes(page: Path) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page.read_text(encoding="utf-8"))
    before, after = (re.findall(r"<text[^>]*>[^<]*</text>", picture) for picture in pictures[:2])
    assert before == after
    labels = [re.sub("<[^>]*>", "", text) for text in before]
    assert {"0", "100", "1000"} <= set(labels)


def test_policy_allows_the_page_s_own_style_and_nothing_else(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def some_report(**changes: object) -> Report:
    """A small report without a history, whose texts all try to break out."""
    evil = "<script>alert('&\")</script>"
    fields = {
        "title": evil,
        "summary": evil,
        "scores": [(evil, evil, evil)],
        "history": (),
        "distances": {evil: (np.array([1.0, 2.0]), np.array([3.0]))},
        "worst": (nw.Violation(row=0, name=evil, value=1.0, bound=0.5, relative=1.0),),
        "settings": {evil: evil},
    }
    return Report(**(fields | changes))


def test_all_text_is_escaped() -> None:
    parsed = Page(report.render(some_report()))
    assert "script" not in parsed.tags
    assert sum(text.count("<script>alert('&\")</script>") for text in parsed.text) == 10
    labels = [value for name, value in parsed.attributes if name == "aria-label"]
    assert any("<script>" in label for label in labels)


def test_pictures_survive_what_a_solver_may_record() -> None:
    def record(iteration: int, gap: float) -> nw.Record:
        return nw.Record(iteration=iteration, seconds=0.1, primal=1.0, dual=0.0, gap=gap, violation=0.0)

    history = (record(0, math.inf), record(1, math.nan), record(2, 1e-3), record(3, 0.0), record(4, -1e-18))
    zeros = {"before": (np.zeros(3), np.zeros(2))}
    text = report.render(some_report(history=history, distances=zeros, worst=()))
    parsed = Page(text)
    assert parsed.tags.count("circle") == 3
    assert parsed.tags.count("svg") == 2
    assert not re.search(r"\b(nan|inf)\b", text)
    alone = Page(report.render(some_report(history=history[2:3])))
    assert alone.tags.count("circle") == 1
