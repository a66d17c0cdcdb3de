"""Docstrings are whole: in a list of parameters or attributes, what is not indented names one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nearwise

SOURCE = Path(nearwise.__file__).parent
CHECKOUT = Path(__file__).parents[1]
FOLDERS = (SOURCE, CHECKOUT / "benchmarks", CHECKOUT / "experiments")
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_every_entry_of_a_list_has_a_name() -> None:
    texts = [
        (path.as_posix(), ast.get_docstring(node) or "")
        for path in FILES
        for node in documented(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(texts) > 1000
    assert [(name, line) for name, text in texts for line in stray(text)] == []


def test_a_line_that_lost_its_indentation_is_seen() -> None:
    broken = (
        "Do.\n\nParameters\n----------\na : whether it is so,\nat\n    most\nb, c,\nd : else\n\nWhy not.\n"
    )
    assert list(stray(broken)) == ["at"]


def documented(node: ast.stmt | ast.Module) -> Iterator[Documented]:
    """What may have a docstring: the module, its classes and functions, and those inside them."""
    if isinstance(node, Documented):
        yield node
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt):
            yield from documented(inner)


def stray(text: str) -> Iterator[str]:
    """Lines that name nothing: neither "name : meaning", nor names that go on in the next line."""
    for part in text.split("\n\n"):
        title, _, entries = part.partition("\n----------\n")
        if title in ("Parameters", "Attributes"):
            lines = [line for line in entries.split("\n") if line and not line.startswith(" ")]
            yield from (line for line in lines if " : " not in line and not line.endswith(","))
