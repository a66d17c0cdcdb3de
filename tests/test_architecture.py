"""The shape of the package: imports point one way, exports are what is listed, importing it is cheap."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import nearwise
from nearwise import constraints, distributed, solvers

# Each line may import only from the lines above it. A folder is a room: its files may use each other, and of
# other rooms only what has no leading underscore. "__init__" stands for `import nearwise` itself, so for
# everything it exports, and the files on its line are public names for what the rooms hold.
ORDER = (
    ("_common",),
    ("linalg",),
    ("distributed",),
    ("side",),
    ("core",),
    ("papers",),
    ("methods",),
    ("fixed_rank",),
    ("online",),
    ("named",),
    ("learners",),
    ("data",),
    ("study",),
    ("show",),
    ("__init__", "constraints", "datasets", "inspection", "plotting", "report", "solvers", "tables"),
    ("cli",),
    ("__main__",),
)
# Folders beside the package, which are not installed: the package imports none of them, and each may import
# the rooms of the package and the folders before it.
BESIDE = ("benchmarks", "experiments")
# What outer rooms ask of these three beside what is public. Their `__init__` offers it, and nothing
# else of them is imported. What is asked of the modules among these names stands below.
DOORWAY = {
    "distributed": {
        "ClusterError",
        "NotFiniteError",
        "Stacked",
        "finite_rows",
        "is_dask",
        "is_large",
        "refuse_not_finite",
        "titles_of",
    },
    "side": {"Grade", "Measure", "Stated", "bounds", "drawing", "labelling", "relations"},
    "core": {"SATISFIED", "DiagonalProblem", "SquaresInPieces", "relative_gap", "unreachable"},
    "papers": {"definite_step"},
    "methods": {"CONTRADICTION", "DiagonalResult", "Loop", "Solver", "solve_diagonal"},
}
OF_MODULES = {
    "bounds": {
        "ALL_EQUAL",
        "LARGEST_CHANGE",
        "NO_MARGIN",
        "OpenBounds",
        "around",
        "of_ascending",
        "of_pairs",
        "of_sample",
        "sampled_bounds",
        "sampled_pairs",
        "with_margins",
    },
    "drawing": {
        "NO_PAIRS",
        "N_NEIGHBORS",
        "SMALL_CLASS",
        "nearest_of",
        "nearest_others",
        "nearest_rows",
        "neighbors",
        "pairs_of_classes",
        "random_pairs",
    },
    "labelling": {"cleaned", "coded_objects", "has_label", "in_stream", "is_there", "read", "read_targets"},
    "relations": {"SIGNS", "sign_written", "signs_of"},
}
# What benchmarks measure by itself, which no room offers.
MEASURED = {
    "papers.logdet.LogDetEngine",
    "papers.von_neumann.VonNeumannEngine",
}

SOURCE = Path(nearwise.__file__).parent
CHECKOUT = Path(__file__).parents[1]
FILES = [
    path
    for folder in (SOURCE, *(CHECKOUT / name for name in BESIDE))
    for path in sorted(folder.rglob("*.py"))
]
TESTS = sorted(Path(__file__).parent.rglob("*.py"))
RANK = {name: rank for rank, line in enumerate((*ORDER, *((name,) for name in BESIDE))) for name in line}


def faults(check: Callable[[str, Path], object], files: Sequence[Path] = FILES) -> dict[str, object]:
    """What a check of text and path finds in the files, by their names."""
    found = ((path, check(path.read_text(encoding="utf-8"), path)) for path in files)
    return {path.as_posix(): wrong for path, wrong in found if wrong}


def test_every_room_has_its_line() -> None:
    homes = {place(path).parts[0] for path in FILES}
    assert homes == RANK.keys(), "give it the line of ORDER it belongs to, or take it away there"


def test_contributing_tells_the_same_order() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = text.partition("```text\n")[2].partition("```")[0]
    assert [line.partition("  ")[0].split() for line in block.splitlines()] == [list(line) for line in ORDER]


def test_imports_point_one_way() -> None:
    assert faults(upward_imports) == {}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from nearwise.methods.driver import solve", ["methods"]),
        ("from nearwise import solve", ["methods"]),
        ("from ..learners import MetricLearner", ["learners"]),
        ("def late():\n    import nearwise.fixed_rank.driver", ["fixed_rank"]),
        ("import nearwise as nw", ["__init__"]),
        ("from nearwise import constraints", ["constraints"]),
        ("from nearwise import __version__", []),
        ("from nearwise.linalg import cauchy", []),
        ("from .newton import Newton\nfrom .._common import reading", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nearwise.methods import newton", []),
    ],
)
def test_the_import_rule_sees(source: str, seen: list[str]) -> None:
    assert upward_imports(source, SOURCE / "core" / "a.py") == seen


@pytest.mark.parametrize(
    ("home", "source", "seen"),
    [
        (SOURCE / "learners", "from benchmarks.baselines import mcml", ["benchmarks"]),
        (SOURCE / "cli", "import experiments", ["experiments"]),
        (CHECKOUT / "benchmarks", "from experiments import digits", ["experiments"]),
        (CHECKOUT / "benchmarks", "import nearwise as nw\nfrom nearwise.cli import main", []),
        (CHECKOUT / "experiments", "from benchmarks import baselines\nfrom nearwise.core import blocks", []),
    ],
)
def test_the_import_rule_sees_the_folders_beside_the_package(
    home: Path, source: str, seen: list[str]
) -> None:
    assert upward_imports(source, home / "a.py") == seen


def test_nothing_private_of_another_room_is_used() -> None:
    assert faults(private_imports) == {}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from nearwise.methods._systems import newton_step", ["methods._systems.newton_step"]),
        ("from nearwise.methods import _systems", ["methods._systems"]),
        ("from nearwise.methods.newton import _step", ["methods.newton._step"]),
        ("from ..methods._systems import newton_step", ["methods._systems.newton_step"]),
        ("from nearwise.learners._side import read\nfrom . import _bases", []),
        ("from nearwise._common import reading\nfrom nearwise._common.files import write_whole", []),
        ("from nearwise._common.files import _temporary", ["_common.files._temporary"]),
        ("from nearwise import __version__", []),
    ],
)
def test_the_rule_of_rooms_sees(source: str, seen: list[str]) -> None:
    assert private_imports(source, SOURCE / "learners" / "a.py") == seen


def test_the_rule_of_rooms_sees_the_folders_beside_the_package() -> None:
    source = "from benchmarks import _tables\nfrom nearwise.learners._side import read"
    in_experiments, in_benchmarks = (
        private_imports(source, CHECKOUT / name / "a.py") for name in BESIDE[::-1]
    )
    assert sorted(in_experiments) == ["benchmarks._tables", "learners._side.read"]
    assert in_benchmarks == ["learners._side.read"]


def test_the_doorway_is_as_narrow_as_the_list_says() -> None:
    public = {*nearwise._EXPORTS, *constraints.__all__, *distributed.__all__, *solvers.__all__}
    assert {room: offered(room) - public for room in DOORWAY} == DOORWAY
    assert sum(map(len, DOORWAY.values())) <= 26


def test_outer_rooms_go_through_the_doorway() -> None:
    beside = [path for path in FILES if place(path).parts[0] in BESIDE]
    assert faults(around_the_doorway, [path for path in FILES if path not in beside]) == {}
    assert {
        name for path in beside for name in around_the_doorway(path.read_text(encoding="utf-8"), path)
    } == MEASURED


def test_nothing_is_offered_that_nobody_asks_for() -> None:
    asked = {name for path in FILES for name in _asked_of_rooms(path.read_text(encoding="utf-8"), path)}
    offers = {f"{room}.{name}" for room in DOORWAY for name in offered(room)}
    assert offers - asked == set()


def test_modules_in_the_doorway_are_asked_for_what_the_list_says() -> None:
    asked: dict[str, set[str]] = {name: set() for name in (*OF_MODULES, "constraints")}
    for path in FILES:
        for name, attribute in asked_of_modules(path.read_text(encoding="utf-8"), path):
            asked[name].add(attribute)
    assert asked.pop("constraints") <= set(constraints.__all__)
    assert asked == OF_MODULES


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from nearwise.side.blocks import Block", ["side.blocks.Block"]),
        ("from nearwise.side import blocks", ["side.blocks"]),
        ("from nearwise.side import Block, bounds, constraints as c", []),
        ("from nearwise.side.bounds import of_sample", ["side.bounds.of_sample"]),
        ("from ..methods import solver", ["methods.solver"]),
        ("def late():\n    import nearwise.methods.newton", ["methods.newton"]),
        ("from nearwise import core, methods", ["core", "methods"]),
        ("import nearwise.methods", ["methods"]),
        ("from nearwise.distributed import Stacked, on_dask", ["distributed.on_dask"]),
        ("if TYPE_CHECKING:\n    from nearwise.methods import loop", ["methods.loop"]),
        ("from nearwise.linalg.dense import spectrum\nfrom nearwise import constraints, distributed", []),
    ],
)
def test_the_rule_of_the_doorway_sees(source: str, seen: list[str]) -> None:
    assert around_the_doorway(source, SOURCE / "learners" / "a.py") == seen
    assert around_the_doorway(source, SOURCE / "core" / "a.py") == []


def test_the_rule_of_modules_sees_what_is_asked_of_them() -> None:
    source = "from nearwise.side import bounds as b, drawing, Grade\nb.of_sample(drawing.neighbors.x)\n"
    seen = set(asked_of_modules(source, SOURCE / "learners" / "a.py"))
    assert seen == {("bounds", "of_sample"), ("drawing", "neighbors")}


def test_no_file_needs_itself_to_be_imported() -> None:
    """A circle of imports, which would make it matter what is imported first."""
    needs = {module(path): set(_needed(path)) for path in FILES}
    while needs:
        free = {name for name, needed in needs.items() if not needed & needs.keys() - {name}}
        assert free, f"these import each other in a circle: {sorted(needs)}"
        needs = {name: needed for name, needed in needs.items() if name not in free}


def test_all_is_what_is_exported_and_every_name_resolves() -> None:
    assert set(nearwise.__all__) == {*nearwise._EXPORTS, "__version__"}
    assert set(dir(nearwise)) == set(nearwise.__all__)
    for name in nearwise.__all__:
        assert getattr(nearwise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        nearwise.nonsense  # noqa: B018


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if is_for_type_checkers(node))
    declared = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == nearwise._EXPORTS


@pytest.mark.parametrize("statement", ["import nearwise", "import nearwise.cli"])
def test_import_is_cheap(statement: str) -> None:
    loaded = set(
        run(f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})").split()
    )
    assert "nearwise" in loaded
    assert not loaded & {"numba", "matplotlib", "dask", "scipy", "sklearn", "numpy", "rich"}


@pytest.mark.long
def test_a_learner_is_imported_without_the_others() -> None:
    """Each import of a module takes its milliseconds, and `nearwise learn` starts with all that it needs."""
    loaded = run("import sys\nimport nearwise as nw\nnw.MetricLearner\nprint(*sys.modules)").split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("nearwise.")}
    assert "methods" in rooms
    assert not rooms & {"fixed_rank", "online", "named", "data", "study", "show", "cli"}
    assert not {"numba", "matplotlib", "dask", "sklearn.compose"} & set(loaded)


def test_no_pickle() -> None:
    assert faults(pickles) == {}


def pickles(source: str, path: Path) -> list[str]:
    """What a file does that could run code from data."""
    tree = parsed(source)
    names = {name.partition(".")[0] for node in _import_statements(tree) for name in _imported(node)}
    found = sorted(names & {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"})
    allowed = [
        k.value
        for node in (ast.walk(tree) if "allow_pickle" in source else ())
        if isinstance(node, ast.Call)
        for k in node.keywords
        if k.arg == "allow_pickle"
    ]
    refused = all(isinstance(value, ast.Constant) and value.value is False for value in allowed)
    return found if refused else [*found, "allow_pickle"]


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import joblib.parallel", ["joblib"]),
        ("np.load(file, allow_pickle=True)", ["allow_pickle"]),
        ("np.load(file, allow_pickle=chosen)", ["allow_pickle"]),
        ("np.load(file, allow_pickle=False)", []),
    ],
)
def test_the_rule_of_pickles_sees(source: str, seen: list[str]) -> None:
    assert pickles(source, SOURCE) == seen


def test_every_file_says_what_it_holds() -> None:
    assert faults(lambda source, _: not ast.get_docstring(parsed(source))) == {}


def test_no_absolute_path() -> None:
    machine = re.compile(r"(?<![\w.>])/(?:home|root|tmp|work|usr|opt|var|etc|mnt|Users)/|\b[A-Z]:\\\\?\w")
    assert faults(lambda source, _: machine.findall(source), FILES + TESTS) == {}


def upward_imports(source: str, path: Path) -> list[str]:
    """The rooms that the file at `path` imports from although they do not stand above its own in ORDER."""
    home = place(path).parts[0]
    wrong = []
    for name in _imports_of_the_package(source, path):
        first = name.partition(".")[0] or "__init__"
        room = (nearwise._EXPORTS.get(first) or first).partition(".")[0]
        if room != home and RANK[room] >= RANK[home]:
            wrong.append(room)
    return wrong


def private_imports(source: str, path: Path) -> list[str]:
    """What the file at `path` imports of other rooms that has a leading underscore there."""
    home = place(path).parts[0]
    return [
        name
        for name in _imports_of_the_package(source, path)
        if name.partition(".")[0] != home and any(part.startswith("_") for part in name.split(".")[1:])
    ]


def around_the_doorway(source: str, path: Path) -> list[str]:
    """What the file at `path` imports of the rooms of DOORWAY, not being in one, that these do not offer."""
    return [
        name
        for name in _asked_of_rooms(source, path)
        if (room := name.partition(".")[0]) != name or room not in nearwise._EXPORTS
        if name.removeprefix(f"{room}.") not in offered(room)
    ]


@cache
def offered(room: str) -> set[str]:
    """The names that the `__init__` of a room imports."""
    source = (SOURCE / room / "__init__.py").read_text(encoding="utf-8")
    return {alias.asname or alias.name for node in _all_imports(source) for alias in node.names}


def asked_of_modules(source: str, path: Path) -> Iterator[tuple[str, str]]:
    """The modules of the doorway that the file at `path` imports, each with a name that is asked of it."""
    if place(path).parts[0] in DOORWAY:
        return
    modules = {
        alias.asname or alias.name: alias.name
        for node in _all_imports(source)
        if isinstance(node, ast.ImportFrom) and node.module == "nearwise.side"
        for alias in node.names
        if alias.name in (*OF_MODULES, "constraints")
    }
    for node in ast.walk(parsed(source)) if modules else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def _asked_of_rooms(source: str, path: Path) -> list[str]:
    """What the file at `path`, in another room, imports of the rooms of DOORWAY, for type checkers too."""
    if place(path).parts[0] in DOORWAY:
        return []
    names = (name for node in _all_imports(source) for name in _imported(node, _package(path)))
    inside = (name.removeprefix("nearwise.") for name in names if name.startswith("nearwise."))
    return [name for name in inside if name.partition(".")[0] in DOORWAY]


@cache
def _all_imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The import statements, also those that only type checkers follow."""
    return [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def place(path: Path) -> Path:
    """Where a file is, without its ending: in the package, or in the checkout if it is beside the package."""
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else CHECKOUT).with_suffix("")


def module(path: Path) -> str:
    """Its dotted name inside the package, "" for the package itself; its whole name beside the package."""
    parts = place(path).parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {module(file) for file in FILES}


@cache
def parsed(source: str) -> ast.Module:
    """Its syntax tree, which nothing here changes."""
    return ast.parse(source)


def _needed(path: Path) -> Iterator[str]:
    """The modules of FILES that importing the file at `path` imports first."""
    for node in _import_statements(parsed(path.read_text(encoding="utf-8")), late=False):
        for name in _imported(node, _package(path)):
            if name.partition(".")[0] in ("nearwise", *BESIDE):
                inside = name.removeprefix("nearwise").removeprefix(".")
                found = inside if inside in KNOWN else inside.rpartition(".")[0]
                if found:  # the package itself imports nothing
                    yield found


def _imports_of_the_package(source: str, path: Path) -> Iterator[str]:
    """Dotted names inside the package, "" for itself, and beside it: modules and what is imported of them."""
    for node in _import_statements(parsed(source)):
        for name in _imported(node, _package(path)):
            if name.partition(".")[0] in ("nearwise", *BESIDE) and name != "nearwise.__version__":
                yield name.removeprefix("nearwise").removeprefix(".")


def _package(path: Path) -> list[str]:
    return [*(["nearwise"] if path.is_relative_to(SOURCE) else []), *place(path).parts[:-1]]


@cache
def _import_statements(tree: ast.AST, late: bool = True) -> list[ast.AST]:
    """The import statements, but for those that only type checkers follow; `late`: those in functions too."""
    found, left = [], [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not late:
            continue
        elif isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
            left += ast.iter_child_nodes(node) if not is_for_type_checkers(node) else []
    return found


def is_for_type_checkers(node: ast.AST) -> bool:
    """Whether it is `if TYPE_CHECKING:`, with or without the name of the module."""
    if not isinstance(node, ast.If):
        return False
    return "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))


def _imported(node: ast.AST, package: list[str] | None = None) -> list[str]:
    """The dotted names that an import statement asks for, with the names that it takes from modules."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = ".".join((package or [])[: len(package or []) - node.level + 1]) if node.level else ""
    origin = ".".join(piece for piece in (base, node.module) if piece)
    return [f"{origin}.{alias.name}" for alias in node.names]


def run(code: str) -> str:
    """What a fresh interpreter prints when it runs the code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
