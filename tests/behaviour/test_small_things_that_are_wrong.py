"""Commands that forget what the model knows, refuse ordinary files, or write lines and pages badly."""

from __future__ import annotations

import csv
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from nearwise import cli, report, study

Lines = Callable[..., list[str]]
WIDTH = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with people, called by their names, and a model that was learned from them by name."""
    before, here = Path.cwd(), tmp_path_factory.mktemp("small")
    os.chdir(here)
    X = np.random.default_rng(0).normal(size=(40, 2)) + 3.0 * (np.arange(40) % 2)[:, None]
    rows = [f"p{k}x,{a},{b},{'ab'[k % 2]}" for k, (a, b) in enumerate(X)]
    Path("people.csv").write_text("\n".join(["name,u,v,kind", *rows]) + "\n", encoding="utf-8")
    Path("people-only.csv").write_text("\n".join(row.rpartition(",")[0] for row in ["name,u,v,kind", *rows]))
    Path("asked.csv").write_text(
        "one,other,same\np0x,p2x,1\np0x,p1x,0\np4x,p6x,1\np5x,p6x,0\n", encoding="utf-8"
    )
    command = ["learn", "people.csv", "--labels", "kind", "--id", "name", "-o", "people.safetensors"]
    assert cli.main([*command, "--quiet"]) == cli.DONE
    yield here
    os.chdir(before)


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """The lines that a command writes on a terminal of 80 columns."""
    pty = pytest.importorskip("pty")
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    def run(*words: str) -> list[str]:
        leader, follower = pty.openpty()
        found: list[bytes] = []

        def listen() -> None:
            while True:
                try:
                    part = os.read(leader, 4096)
                except OSError:  # the other side is closed
                    return
                if not part:
                    return
                found.append(part)

        listener = threading.Thread(target=listen)
        listener.start()
        with os.fdopen(follower, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            assert cli.main(list(words)) == cli.DONE
        listener.join()
        os.close(leader)
        return b"".join(found).decode().replace("\r\n", "\n").splitlines()

    return run


@pytest.mark.parametrize("source", ["--pairs", "--calibrate"])
def test_decide_knows_the_ids_of_the_model(source: str, folder: Path) -> None:
    rule = ["--calibrate", "asked.csv"] if source == "--calibrate" else ["--threshold", "1.5"]
    command = ["decide", "people.safetensors", "people-only.csv", "--pairs", "asked.csv", *rule]
    assert cli.main([*command, "-o", "decided.csv", "--force", "--quiet"]) == cli.DONE
    with Path("decided.csv").open(encoding="utf-8") as file:
        assert [(row["first"], row["second"]) for row in csv.DictReader(file)][:2] == [
            ("p0x", "p2x"),
            ("p0x", "p1x"),
        ]


def test_duplicates_knows_the_ids_of_the_model(folder: Path) -> None:
    command = ["duplicates", "people.safetensors", "people-only.csv", "--threshold", "0.5"]
    assert cli.main([*command, "-o", "found.csv", "--force", "--quiet"]) == cli.DONE
    with Path("found.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert found
    assert all(row[side].endswith("x") for row in found for side in ("first", "second"))


def test_texts_beside_vectors_are_no_features(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    X = np.random.default_rng(1).normal(size=(40, 6))
    columns = {
        "id": [f"q{k}" for k in range(40)],
        "question": [f"what about {k}?" for k in range(40)],
        "embedding": pa.array(X.tolist(), pa.list_(pa.float64(), 6)),
    }
    parquet.write_table(pa.table(columns), "questions.parquet")
    lines = [f"q{k},q{k + 2},{k % 2}" for k in range(36)]
    Path("feedback.csv").write_text("\n".join(["one,other,similar", *lines]), encoding="utf-8")
    assert cli.main(["learn", "questions.parquet", "--id", "id", "--pairs", "feedback.csv"]) == cli.DONE
    said = [line for line in capsys.readouterr().err.splitlines() if "'question'" in line]
    assert len(said) == 1
    assert study.load("questions.safetensors").n_features == 6


def test_an_article_fits_its_noun(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2)) + 3.0 * (np.arange(40) % 2)[:, None]
    nw.save(nw.AutoLearner(random_state=0).fit(X, np.arange(40) % 2), "auto.safetensors")
    np.save("rows.npy", X)
    Path("numbers.csv").write_text("0,2\n0,1\n", encoding="utf-8")
    command = ["decide", "auto.safetensors", "rows.npy", "--pairs", "numbers.csv"]
    assert cli.main(command) == cli.BAD_INPUT
    said = capsys.readouterr().err
    assert "AutoLearner" in said
    assert re.search(r"\ba [AEIOU]", said) is None


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the text of a certificate contains the types of NumPy"
)
def test_a_certificate_is_written_in_plain_numbers() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    side = nw.constraints.similar([(0, 1), (2, 3)]) + nw.constraints.dissimilar([(4, 5), (6, 7)])
    certificate = nw.solve(nw.Problem(X, side, penalty=1.0)).certificate
    assert "np." not in str(certificate)


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the line that says what was chosen is wider than the terminal"
)
def test_what_was_chosen_fits_the_terminal(folder: Path, on_terminal: Lines) -> None:
    lines = on_terminal("learn", "dataset:iris", "--labels", "target", "--force")
    assert [len(line) for line in lines if line.startswith("chosen:") and len(line) > WIDTH] == []
    assert any(line.startswith("chosen:") for line in lines)


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the command to go on with is wider than the terminal"
)
def test_the_next_command_fits_the_terminal(folder: Path, on_terminal: Lines) -> None:
    lines = on_terminal(
        "learn", "people.csv", "--labels", "kind", "--id", "name", "--kernel", "linear", "--force"
    )
    start = next(k for k, line in enumerate(lines) if line.startswith("next:"))
    assert [len(line) for line in lines[start:] if len(line) > WIDTH] == []


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="info writes lines that are wider than the terminal"
)
def test_info_fits_the_terminal(folder: Path, on_terminal: Lines) -> None:
    names = [f"a_rather_long_name_{k}" for k in range(8)]
    X = np.random.default_rng(0).normal(size=(40, 8))
    rows = [",".join(map(str, row)) + f",{'ab'[k % 2]}" for k, row in enumerate(X)]
    Path("wide.csv").write_text("\n".join([",".join([*names, "kind"]), *rows]), encoding="utf-8")
    assert (
        cli.main(["learn", "wide.csv", "--labels", "kind", "--kernel", "linear", "--quiet", "--force"])
        == cli.DONE
    )
    lines = on_terminal("info", "wide.safetensors")
    assert all(any(name in line for line in lines) for name in names)
    assert [len(line) for line in lines if len(line) > WIDTH] == []


class Node:
    """An element of a page: its tag, classes and parts."""

    def __init__(self, tag: str, classes: set[str]) -> None:
        self.tag, self.classes = tag, classes
        self.parts: list[Node | str] = []

    def every(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            if isinstance(part, Node):
                yield from part.every()

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)


class Page(HTMLParser):
    """A page as a tree of elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.root = Node("page", set())
        self.open = [self.root]
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, set((dict(attrs).get("class") or "").split()))
        self.open[-1].parts.append(node)
        if tag not in ("meta", "img", "br", "link", "input", "hr"):
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if any(node.tag == tag for node in self.open):
            while self.open.pop().tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)

    def has_rule(self, classes: set[str], rule: str) -> bool:
        """Whether a rule of the style for elements of these classes has that text."""
        style = next(node.text for node in self.root.every() if node.tag == "style")
        found = False
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", style):
            for selector in selectors.split(","):
                names = set(re.findall(r"\.([\w-]+)", selector.split()[-1])) if selector.split() else set()
                if rule in body and names and names <= classes:
                    found = True
        return found


@pytest.fixture(scope="module")
def page() -> Page:
    """The report of a kernel's metric, which has no features."""
    settings = study.Settings(kernel="rbf", seed=0)
    known = study.from_files("dataset:iris", labels="target")
    return Page(report.render(report.from_outcome(study.learn(known, settings), "Iris")))


def test_the_legend_of_the_intervals_is_drawn_as_the_marks_are(page: Page) -> None:
    places = [
        node
        for node in page.root.every()
        if any(isinstance(p, Node) and "legend" in p.classes for p in node.parts)
    ]
    box = next(
        node
        for node in places
        if any(isinstance(p, Node) and p.tag == "figure" and "Intervals." in p.text for p in node.parts)
    )
    key = next(node for node in box.every() if node.tag == "li" and node.text == "before")
    mark = next(node for node in box.every() if {"before", "range"} <= node.classes)
    dotted = page.has_rule(key.classes, "border-top-style:dotted") or page.has_rule(key.classes, "dashed")
    assert dotted == page.has_rule(mark.classes, "stroke-dasharray")


def test_two_parts_side_by_side_both_have_something_to_show(page: Page) -> None:
    for pair in (node for node in page.root.every() if node.tag == "div" and "two" in node.classes):
        sections = [part for part in pair.parts if isinstance(part, Node) and part.tag == "section"]
        if len(sections) > 1:
            bare = [
                s.text for s in sections if not any(n.tag in ("svg", "table", "ul", "ol") for n in s.every())
            ]
            assert not bare
