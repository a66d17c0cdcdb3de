"""The papers' experiments on the data that can be had, one file each: `run` measures, `Outcome` says what.

Every public module is an experiment. Its docstring begins with a line that `make reproduce` shows, and
its function `run(quick, seed, progress)` returns an `Outcome`: rows with the published figure beside ours,
curves for the figure, and sentences on what differs. `quick` is the same experiment on less data, for tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments._outcome import Outcome, Progress


def finished(name: str, folder: Path, quick: bool, seed: int) -> Outcome | None:
    """What an earlier run with the same code, data, seed and form left in the folder, if there was one."""
    from experiments import _finished

    return _finished.kept(name, folder, _finished.fingerprint(name, quick, seed))


def measure(name: str, folder: Path, quick: bool, seed: int, progress: Progress) -> Outcome:
    """Run an experiment, and leave in the folder what `finished` takes up."""
    import importlib
    import time
    from dataclasses import replace

    from experiments import _finished

    mark = _finished.fingerprint(name, quick, seed)
    started = time.process_time()
    experiment = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    outcome: Outcome = experiment.run(quick, seed, progress)
    outcome = replace(outcome, seconds=time.process_time() - started)
    _finished.keep(outcome, folder, mark)
    return outcome
