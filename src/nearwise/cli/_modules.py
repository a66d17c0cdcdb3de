"""Finds the public modules of a package and what they say of themselves, without importing them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path


def found(package: str) -> dict[str, str]:
    """The public modules of the package, by the name with which the command line calls them."""
    folder = importlib.import_module(package).__path__
    modules = (m.name for m in pkgutil.iter_modules(folder) if not m.ispkg and not m.name.startswith("_"))
    return {name.replace("_", "-"): f"{package}.{name}" for name in modules}


def first_line(module: str) -> str:
    """The first line of a module's docstring."""
    spec = importlib.util.find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
