"""Finished experiments, kept so that a run of many can be interrupted and taken up again.

A record holds all of an outcome, and the digest of what it depends on: code, packages, data, seed and form.
It is used again only where that is the same.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import benchmarks
import nearwise
from experiments._outcome import Curve, Outcome, Panel, Row
from nearwise._common.digest import digest
from nearwise._common.files import write_whole
from nearwise.data.datasets import VARIABLE

_FOLDER = ".finished"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "metric-learn", "cvxpy")
_WITHOUT_INFLUENCE = ("cli", "show", "__main__.py")  # they change no figure


def fingerprint(name: str, quick: bool, seed: int) -> str:
    """A digest of all that the figures of an experiment depend on.

    That is the code but for other experiments, the command line and drawings; the versions of packages; the
    files of data by name, size and time; seed and form.
    """
    folder = os.environ.get(VARIABLE)
    files = sorted(Path(folder).iterdir()) if folder and Path(folder).is_dir() else []
    data = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.is_file()]
    return digest(_code(name), [_version(package) for package in _PACKAGES], data, quick, seed)


def keep(outcome: Outcome, folder: Path, mark: str) -> None:
    """Write the record of an outcome beside its files."""
    (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
    content = json.dumps({"fingerprint": mark, "outcome": asdict(outcome)}, default=_plain)
    write_whole(_path(outcome.name, folder), content.encode())


def kept(name: str, folder: Path, mark: str) -> Outcome | None:
    """The outcome in that folder, where what it depends on is the same; None otherwise."""
    try:
        record = json.loads(_path(name, folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if record["fingerprint"] != mark:
        return None
    stored = record["outcome"]
    panels = [
        Panel(**{**panel, "curves": [Curve(**curve) for curve in panel["curves"]]})
        for panel in stored["panels"]
    ]
    return Outcome(**{**stored, "rows": [Row(**row) for row in stored["rows"]], "panels": panels})


def _path(name: str, folder: Path) -> Path:
    return folder / _FOLDER / f"{name}.json"


def _code(name: str) -> list[tuple[str, str]]:
    here = Path(__file__).parent
    found = []
    for root in (Path(nearwise.__file__).parent, Path(benchmarks.__file__).parent, here):
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(root)
            other = root == here and not place.name.startswith("_") and place.stem != name.replace("-", "_")
            if not other and place.parts[0] not in _WITHOUT_INFLUENCE:
                found.append((path.relative_to(root.parent).as_posix(), path.read_text(encoding="utf-8")))
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _plain(value: Any) -> Any:
    """What JSON does not know: arrays, numbers of NumPy, ranges."""
    return np.asarray(value).tolist()
