"""Benchmarks: every public module here is one, run by `make bench NAME=...` through its `main(argv)`.

A benchmark measures us and what we are compared with in one run and in turns, so that both see the same
machine, and prints ratios beside their targets.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from pathlib import Path


def public_modules(package: str) -> dict[str, str]:
    """The public modules of a package, none of them imported, by what the command line calls them."""
    folder = importlib.import_module(package).__path__
    modules = (m.name for m in pkgutil.iter_modules(folder) if not m.ispkg and not m.name.startswith("_"))
    return {name.replace("_", "-"): f"{package}.{name}" for name in modules}


def first_line(module: str) -> str:
    """The first line of the docstring of a module, which is not imported."""
    spec = importlib.util.find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
