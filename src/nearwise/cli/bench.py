"""`nearwise bench`: list the benchmarks, or run one."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path

from nearwise.cli._common import DONE


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        choices=tuple(_found()),
        help="the benchmark; without it, list them",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark")


def run(arguments: argparse.Namespace) -> int:
    """Run one benchmark with its own options, or list them all."""
    found = _found()
    if arguments.name is None:
        for name, module in found.items():
            print(f"{name:12} {_first_line(module)}")
        return DONE
    code: int = importlib.import_module(found[arguments.name]).main(arguments.arguments)
    return code


def _found() -> dict[str, str]:
    """The modules of the benchmarks by name."""
    package = importlib.import_module("nearwise.benchmarks")
    modules = (m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))
    return {name.replace("_", "-"): f"{package.__name__}.{name}" for name in modules}


def _first_line(module: str) -> str:
    """The first line of a module's docstring, read without importing what the module needs."""
    spec = importlib.util.find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
