"""What every benchmark shares: targets, tables of measured rows, and the command that runs and prints them.

A section is one or more functions that measure something and yield a `Table` or more. One that lacks its
data raises `DatasetUnavailable`, one that lacks its peer `Unavailable`; it is skipped with the reason, and
the rest runs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.baselines import Unavailable
from nearwise import __version__
from nearwise.data.datasets import DatasetUnavailable

Cell = str | float | int | None
Row = dict[str, Cell]
Sizes = TypeVar("Sizes")  # a dataclass, whose defaults are those of a full run
Part = Callable[[Sizes], Iterator["Table"]]
Item = TypeVar("Item")

_PACKAGES = (
    "nearwise",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "metric-learn",
    "cvxpy",
    "clarabel",
    "scs",
    "pymanopt",
    "mpmath",
)
_CHECKOUT = Path(__file__).parents[1]
_WIDTH = 132  # of the tables when they are not printed to a terminal


@dataclass(frozen=True)
class Target:
    """A figure to reach."""

    limit: float
    at_least: bool = False

    def verdict(self, value: float | None) -> str:
        if value is None:
            return "missed"
        return "met" if (value >= self.limit if self.at_least else value <= self.limit) else "missed"

    def judged(self, value: float | None, of: str = "") -> Row:
        """The column of a table that says whether it is reached; `of` says what, where there are several."""
        return {f"{of}, {self}" if of else str(self): self.verdict(value)}

    def __str__(self) -> str:
        return f"target {'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass
class Table:
    """What was found: how it was run, and one row per case. None is a figure that was never reached."""

    title: str
    notes: list[str]
    rows: list[Row] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """The same for JSON, which has no number for inf."""
        rows = [{key: _plain(cell) for key, cell in row.items()} for row in self.rows]
        return {"title": self.title, "notes": self.notes, "rows": rows}


def run(
    argv: Sequence[str],
    name: str,
    description: str,
    sections: Mapping[str, Sequence[Part[Sizes]]],
    full: Sizes,
    quick: Sizes,
    own_options: str = "",
) -> int:
    """Run the sections that the command line asks for, print their tables, and return the exit code.

    `own_options` are those that the benchmark has read by itself, for the line that says how to repeat it.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)
    parser.add_argument("--only", action="append", choices=sections, help="run this section; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs: no evidence")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    arguments = parser.parse_args(argv)
    if arguments.json and not arguments.json.absolute().parent.is_dir():
        parser.error(f"cannot write {arguments.json}: its folder does not exist")
    sizes = quick if arguments.quick else full
    environment = _environment()
    tables: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    console = _console()
    console.print(", ".join(f"{key} {value}" for key, value in environment.items()))
    if arguments.quick:
        console.print("small sizes: what follows shows that it runs, and is no evidence")
    for section in (key for key in sections if key in (arguments.only or sections)):
        options = f"--only {section}{' --quick' if arguments.quick else ''}{own_options}"
        repeat = f"python -m benchmarks {name} {options}"
        for part in sections[section]:
            label = section if len(sections[section]) == 1 else f"{section}, {part.__name__}"
            try:
                for table in part(sizes):
                    tables.append({"section": section, "load": _load(), **table.plain()})
                    _print(console, section, table, repeat)
            except (Unavailable, DatasetUnavailable) as error:
                skipped[label] = str(error)
                console.print(f"\n{label}: skipped: {error}")
    if arguments.json:
        plain_sizes = {name: _plain(value) for name, value in vars(sizes).items()}
        report = {"environment": environment, "sizes": plain_sizes, "tables": tables, "skipped": skipped}
        arguments.json.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return 0


def size(full: Any, quick: Any) -> Any:
    """The default of a field of sizes, and what it is in a quick run."""
    return field(default=full, metadata={"quick": quick})


def quick_sizes(sizes: type[Sizes]) -> Sizes:
    """Those of a quick run."""
    known: Any = sizes
    return sizes(**{one.name: one.metadata["quick"] for one in fields(known) if one.metadata})


def alone(*parts: Part[Sizes]) -> dict[str, tuple[Part[Sizes], ...]]:
    """Sections of one function each, by its name."""
    return {part.__name__.replace("_", "-"): (part,) for part in parts}


def counted(found: Iterable[Item], count: int) -> Iterator[Item]:
    """The same, and on standard error how many there are: in place, or ten lines in all in a log."""
    terminal, shown = sys.stderr.isatty(), 0
    for number, item in enumerate(found, 1):
        yield item
        if terminal:
            print(f"\r{number} of {count}", end="", file=sys.stderr)
        elif number * 10 // count > shown:
            shown = number * 10 // count
            print(f"{number} of {count}", file=sys.stderr, flush=True)
    if terminal:
        print("\r", end="", file=sys.stderr)


def timed(work: Callable[[], Item]) -> tuple[float, Item]:
    """Seconds by the clock, and what the work returns."""
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def in_turns(
    works: Sequence[Callable[[], Any]], repeats: int, enough: float = math.inf
) -> list[tuple[float, Any]]:
    """The least seconds of each, and what it returned last; after `enough` seconds three turns suffice."""
    best: list[tuple[float, Any]] = [(math.inf, None)] * len(works)
    begin = time.perf_counter()
    for turn in range(repeats):
        if turn >= 3 and time.perf_counter() - begin > enough:
            break
        for k, work in enumerate(works):
            seconds, found = timed(work)
            best[k] = min(best[k][0], seconds), found
    return best


def in_fresh_process(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function of a module returns in a process that does nothing else; arguments travel as JSON."""
    code = "import json, sys; sys.path.insert(0, sys.argv[1]); "
    code += f"from {work.__module__} import {work.__name__} as work; "
    code += "print(json.dumps(work(*json.loads(sys.argv[2]))))"
    command = [sys.executable, "-c", code, str(_CHECKOUT), json.dumps(arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def peak_bytes() -> int:
    """The largest resident size of this process so far.

    Linux's ru_maxrss of a new process starts at the size of its parent, so /proc is asked where it exists.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * next(
            int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line
        )
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def exponents(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[list[float], float]:
    """Of the growth of seconds with a size: from each size to the next, and from the first to the last."""
    x, y = np.log(sizes), np.log(seconds)
    return (np.diff(y) / np.diff(x)).tolist(), float((y[-1] - y[0]) / (x[-1] - x[0]))


def fitted_exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def least(values: Iterable[float | None]) -> float | None:
    """The least of the numbers that exist."""
    return min((value for value in values if value is not None), default=None)


def ratio(value: float | None, unit: float | None) -> float | None:
    """value / unit, where both exist."""
    return None if value is None or unit is None else value / unit


def _environment() -> dict[str, Any]:
    versions = {"nearwise": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"Python": platform.python_version(), **versions, "machine": platform.machine()}


def _load() -> str:
    """How busy the machine is; the benchmark itself is part of it."""
    loads = os.getloadavg() if hasattr(os, "getloadavg") else ()
    shown = ", ".join(f"{load:.1f}" for load in loads) or "unknown"
    return f"load average of the last 1, 5, 15 minutes, this run included: {shown}; cores: {os.cpu_count()}"


def _console() -> Any:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH
    return Console(width=width, markup=False, highlight=False)


def _print(console: Any, section: str, table: Table, repeat: str) -> None:
    from rich.box import SIMPLE
    from rich.padding import Padding
    from rich.table import Table as Grid

    console.print(f"\n{section}: {table.title}")
    for note in [*table.notes, _load(), f"repeat with: {repeat}"]:
        console.print(Padding(note, (0, 0, 0, 2)))
    columns = list(dict.fromkeys(key for row in table.rows for key in row))
    grid = Grid(box=SIMPLE, padding=(0, 1, 0, 0))
    for column in columns:
        grid.add_column(column, justify="right", vertical="bottom")
    for row in table.rows:
        grid.add_row(*(_text(row.get(column, "")) for column in columns))
    console.print(grid)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(cell: Cell) -> str:
    if cell is None:
        return "not reached"
    if isinstance(cell, float):
        return f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
