"""The pages a reader meets first: their code runs, shows what it prints, and they name what exists."""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import pytest

import nearwise as nw

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = DOCS / "results.md"  # by `make reproduce`, and without code
PAGES = [ROOT / "README.md", *(path for path in sorted(DOCS.glob("*.md")) if path != WRITTEN)]
ALL_PAGES = [*PAGES, WRITTEN, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# how many iterations a run takes and the gap it ends with depend on the machine; the rest of a line does not
RUN_DEPENDENT = re.compile(r"\d+ iterations|gap (?:\d\.\de-\d\d|0\.0e\+00)")


class Block(NamedTuple):
    """A block of code, what the page says it prints, and the line on which it begins."""

    code: str
    output: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The Python blocks of a page, each with the text block that is the next one, if it is."""
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] == "python":
            output = following[2] if following is not None and following[1] == "text" else ""
            yield Block(fence[2], output, text.count("\n", 0, fence.start(2)))


def run(block: Block, path: Path, namespace: dict[str, object]) -> str:
    """What the block prints; errors and tracebacks show the line of the page."""
    source = compile("\n" * block.line + block.code, str(path), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(source, namespace)
    return printed.getvalue()


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; `...` stands for anything."""
    shown, printed = (RUN_DEPENDENT.sub("#", text) for text in (shown, printed))
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_code_prints_what_the_page_shows(path: Path) -> None:
    found = list(blocks(path.read_text(encoding="utf-8")))
    assert found
    namespace: dict[str, object] = {}
    for block in found:
        printed = run(block, path, namespace)
        assert agrees(block.output, printed), f"{path.name}, line {block.line + 1} prints:\n{printed}"


def test_the_reader_of_pages_sees_code_output_and_lines() -> None:
    page = (
        "A\n\n```python\nprint(1)\n```\n\nB\n\n```text\n1\n```\n\n```sh\nls\n```\n\n```python\nx = 2\n```\n"
    )
    assert list(blocks(page)) == [Block("print(1)\n", "1\n", 3), Block("x = 2\n", "", 17)]
    assert run(Block("print(x)\n", "", 0), Path("page"), {"x": 3}) == "3\n"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("1\n", "1\n", True),
        ("1\n", "2\n", False),
        ("", "1\n", False),
        ("1\n", "", False),
        ("a ... c\n", "a b c\n", True),
        ("8 iterations, gap 6.3e-09, violation 0.1\n", "9 iterations, gap 1.0e-07, violation 0.1\n", True),
        ("8 iterations, gap 6.3e-09, violation 0.1\n", "8 iterations, gap 6.3e-09, violation 0.2\n", False),
        ("gap 1.6e-16\n", "gap 0.0e+00\n", True),
        ("gap 1.6e-16\n", "gap 1.6e+00\n", False),
    ],
)
def test_output_agrees_exactly_but_for_what_a_run_decides(shown: str, printed: str, same: bool) -> None:
    assert agrees(shown, printed) is same


@pytest.mark.parametrize("path", ALL_PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere_and_no_path_is_a_machine_s(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (path.parent / target).exists(), target
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|usr|opt|Users)/", text)


def test_every_page_is_reachable_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "LICENSE"):
        assert f"]({path.relative_to(ROOT).as_posix()})" in readme


def test_pages_name_everything_there_is() -> None:
    """Constructors, statuses, settings and fields: a new one needs its line in the docs."""
    public = [
        name for name in nw.constraints.__all__ if isinstance(getattr(nw.constraints, name), FunctionType)
    ]
    assert "from_labels" in public
    fields = {
        "solver.md": [f.name for f in dataclasses.fields(nw.solvers.Newton)],
        "projections.md": [
            f.name
            for solver in (nw.solvers.CyclicProjections, nw.solvers.ApproximateProjections)
            for f in dataclasses.fields(solver)
        ],
        "certificates.md": [
            *(status.name for status in nw.Status),
            *(f.name for f in dataclasses.fields(nw.Certificate)),
        ],
        "online.md": [*nw.OnlineLearner().get_params()],
        "learners.md": [*nw.MetricLearner().get_params(), *nw.KernelLearner().get_params()],
        "divergences.md": ["nw.LogDet()", "nw.VonNeumann()", "nw.Frobenius()"],
    }
    for page, names in fields.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        assert [name for name in names if f"`{name}`" not in text] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    guide = (DOCS / "constraints.md").read_text(encoding="utf-8")
    assert [name for name in public if f"`{name}(" not in readme] == []
    assert [name for name in public if f"c.{name}(" not in guide] == []


def test_the_order_of_modules_in_the_guide_is_the_one_that_is_enforced() -> None:
    from test_architecture import ORDER

    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.search(r"```text\n(.*?)```", guide, re.DOTALL)[1]
    modules = (re.split(r" {2,}", line)[0] for line in listed.splitlines())
    assert [tuple(names.split()) for names in modules] == list(ORDER)
