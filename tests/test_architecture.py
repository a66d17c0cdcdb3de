"""The shape of the package: imports point one way, exports are what is listed, importing it is cheap."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearwise

# Each line may import only from the lines above it. A folder stands for its files, which may use each other,
# and "__init__" for `import nearwise` itself, so for everything it exports.
ORDER = (
    ("_writing",),
    ("_pairs",),
    ("_eigenpairs", "_kernels", "_reading", "result"),
    ("_labels",),
    ("_drawing",),
    ("constraints", "divergences"),
    ("atoms", "losses"),
    ("measurements",),
    ("_binding",),
    ("formulation",),
    ("problem",),
    ("_recheck",),
    ("reduction",),
    ("solvers",),
    ("online",),
    ("solve",),
    ("input_kernels",),
    ("metric",),
    ("estimators",),
    ("problems",),
    ("models",),
    ("datasets",),
    ("tables",),
    ("side_files",),
    ("_resampling",),
    ("evaluation",),
    ("_before_after",),
    ("inspection",),
    ("plotting",),
    ("__init__",),
    ("report",),
    ("benchmarks",),
    ("cli",),
    ("__main__",),
)

SOURCE = Path(nearwise.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))
RANK = {name: rank for rank, line in enumerate(ORDER) for name in line}

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


@each_file
def test_imports_point_one_way(path: Path) -> None:
    home = path.relative_to(SOURCE).with_suffix("").parts[0]
    assert home in RANK, f"{home} is not in ORDER: give it the line it belongs to"
    assert upward_imports(path.read_text(encoding="utf-8"), path) == []


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from nearwise.problem import Problem", ["problem"]),
        ("from nearwise import solve", ["solve"]),
        ("from .measurements import Measurements", ["measurements"]),
        ("def late():\n    import nearwise.solvers.newton", ["solvers"]),
        ("import nearwise as nw", ["__init__"]),
        ("from nearwise import __version__", []),
        ("from nearwise.result import Status", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nearwise.problem import Problem", []),
    ],
)
def test_the_import_rule_sees(source: str, seen: list[str]) -> None:
    assert upward_imports(source, SOURCE / "constraints.py") == seen


def test_relative_imports_inside_a_folder_are_its_own() -> None:
    assert (
        upward_imports("from .newton import Newton\nfrom ..problem import P", SOURCE / "solvers" / "a.py")
        == []
    )
    assert upward_imports("from ..solve import solve", SOURCE / "solvers" / "a.py") == ["solve"]


def test_all_is_what_is_exported_and_every_name_resolves() -> None:
    assert set(nearwise.__all__) == {*nearwise._EXPORTS, "__version__"}
    assert set(dir(nearwise)) == set(nearwise.__all__)
    for name in nearwise.__all__:
        assert getattr(nearwise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        nearwise.nonsense  # noqa: B018


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and _is_type_checking(node.test))
    declared = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == nearwise._EXPORTS


def test_solve_is_the_function_whatever_was_imported_before() -> None:
    for first in (
        "import nearwise.solve",
        "from nearwise.solve import solve",
        "import nearwise; nearwise.Problem",
        "",
    ):
        assert run(f"{first}\nimport nearwise\nprint(type(nearwise.solve).__name__)") == "function"
        assert run(f"{first}\nfrom nearwise import solve\nprint(type(solve).__name__)") == "function"


@pytest.mark.parametrize("statement", ["import nearwise", "import nearwise.cli"])
def test_import_is_cheap(statement: str) -> None:
    loaded = set(
        run(f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})").split()
    )
    assert "nearwise" in loaded
    assert not loaded & {"numba", "matplotlib", "dask", "scipy", "sklearn", "numpy", "rich"}


@each_file
def test_no_pickle(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {name.partition(".")[0] for node in ast.walk(tree) for name in _imported(node)}
    assert not names & {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    allowed = [
        k.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for k in node.keywords
        if k.arg == "allow_pickle"
    ]
    assert all(isinstance(value, ast.Constant) and value.value is False for value in allowed)


@each_file
def test_a_file_is_short_and_says_what_it_holds(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "the module has no docstring"
    assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("path", FILES + TESTS, ids=lambda path: path.name)
def test_no_absolute_path(path: Path) -> None:
    machine = re.compile(r"(?<![\w.>])/(?:home|root|tmp|work|usr|opt|var|etc|mnt|Users)/|\b[A-Z]:\\\\?\w")
    assert machine.findall(path.read_text(encoding="utf-8")) == []


def upward_imports(source: str, path: Path) -> list[str]:
    """The package's modules that the file at `path` imports although they do not stand above it in ORDER."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    package = ["nearwise", *parts[:-1]]
    wrong = []
    for node in _outside_type_checking(ast.parse(source)):
        for name in _imported(node, package):
            pieces = name.split(".")
            if pieces[0] != "nearwise" or pieces[1:] == ["__version__"]:
                continue
            target = pieces[1] if len(pieces) > 1 else "__init__"
            target = nearwise._EXPORTS.get(target) or target
            if target != parts[0] and RANK[target] >= RANK[parts[0]]:
                wrong.append(target)
    return wrong


def _outside_type_checking(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            continue
        yield node
        yield from _outside_type_checking(node)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imported(node: ast.AST, package: list[str] | None = None) -> list[str]:
    """The dotted names of the modules an import statement asks for, and of names taken from `nearwise`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = ".".join((package or [])[: len(package or []) - node.level + 1]) if node.level else ""
    module = ".".join(piece for piece in (base, node.module) if piece)
    return [f"{module}.{alias.name}" for alias in node.names] if module == "nearwise" else [module]


def run(code: str) -> str:
    """What a fresh interpreter prints when it runs the code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
