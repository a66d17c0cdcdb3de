"""A checkpoint: what a fit has found so far, in a file, so that an interrupted fit goes on and ends the same.

A fit is a sequence of solves. The factors of those that are finished are kept. The last one, the long one,
runs in legs of 16, 32, 64, ... iterations, each of which starts afresh where the one before ended, whether
the fit was interrupted there or not. So the result does not depend on interruptions, bit by bit, and at most
half of the iterations are lost. Where rows are in pieces, what every pass over them finds is kept as well: a
fit that goes on repeats the arithmetic of a leg, and none of its passes.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nearwise import __version__
from nearwise._common.digest import digest
from nearwise._common.files import DamagedFile, OtherFormat, read_sealed, to_bytes, write_whole
from nearwise._common.types import Array, Kept
from nearwise.methods import DiagonalResult, Result, Status

if TYPE_CHECKING:
    from nearwise.fixed_rank.driver import FixedRankResult  # slow to import, and few fits need it

Solution = TypeVar("Solution", Result, DiagonalResult, "FixedRankResult")

FIRST_LEG = 16  # iterations
_FORMAT = "nearwise checkpoint"
_MAX_ITER = 1000  # of all legs, unless the user names another number


class Checkpoint:
    """The solves of one fit, known by what it learns from and how.

    Parameters
    ----------
    path : the file; made if it is not there, and read if it is
    job : `fingerprint` of data and settings; the file of another job is refused
    """

    def __init__(self, path: str | os.PathLike[str], job: str) -> None:
        self.path, self.job = Path(path), job
        self.finished: list[Array] = []  # factors of finished solves
        self.legs = 0  # finished ones of the last solve
        self.factor: Array | None = None  # where they ended
        self.records: list[list[float]] = []  # their history
        self.n_iterations = 0  # of all that is finished
        self.passes = _Passes(self._write)  # of the solve or the leg that is not finished
        if self.path.exists():
            self._read()
        else:
            self._write()  # whether it can be written is known before any work
        self.n_restored = self.n_iterations
        self._next = 0

    def stage(self, solve: Callable[[], Result | DiagonalResult | FixedRankResult]) -> Array:
        """The factor of the next solve, from the file if it is there."""
        self._next += 1
        if self._next > len(self.finished):
            result = solve()
            self.finished.append(result.factor)
            self.n_iterations += result.n_iter
            self.passes.clear()
            self._write()
        return self.finished[self._next - 1]

    def last(
        self,
        solve: Callable[[Array | None, int], Solution],
        start: Array | None,
        max_iter: int | None,
        record_type: type[Any],
    ) -> Solution:
        """The last solve, in legs; the file is removed when it is done.

        Parameters
        ----------
        solve : takes a factor to start from and the largest number of iterations
        start : of the first leg
        max_iter : of all legs together
        record_type : of the history's records, whose first two fields are iteration and seconds
        """
        limit = _MAX_ITER if max_iter is None else max_iter
        factor = start if self.factor is None else self.factor
        while True:
            left = max(limit - len(self.records), 1)
            leg = FIRST_LEG * 2**self.legs
            result = solve(factor, min(leg, left))
            history = list(self.records)  # and those of one more leg, counted on
            seconds = history[-1][1] if history else 0.0
            for record in result.history:
                iteration, taken, *others = map(float, dataclasses.astuple(record))
                history.append([iteration + len(self.records), taken + seconds, *others])
            records = tuple(record_type(int(row[0]), *row[1:]) for row in history)
            result = dataclasses.replace(result, history=records)
            if result.status is not Status.LIMIT or left <= leg:
                break
            factor = result.factor
            self.legs, self.factor, self.records = self.legs + 1, factor, history
            self.n_iterations += leg
            self.passes.clear()
            self._write()
        if result.status not in (Status.LIMIT, Status.INTERRUPTED):
            self.remove()
        return result

    def remove(self) -> None:
        """Remove the file: the fit is done."""
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        arrays: dict[str, Any] = {f"finished {k}": factor for k, factor in enumerate(self.finished)}
        for key, found in self.passes.items():
            arrays |= {f"pass {key} {name}": array for name, array in found.items()}
        if self.factor is not None:
            arrays |= {"factor": self.factor, "records": np.array(self.records)}
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        counts = {"legs": self.legs, "n_iterations": self.n_iterations}
        header = {"format": _FORMAT, "job": self.job, "counts": json.dumps(counts)}
        write_whole(self.path, to_bytes(arrays, header))

    def _read(self) -> None:
        try:
            header, arrays = read_sealed(self.path, _FORMAT)
        except OtherFormat:
            what = "is another kind of file; name a file that is not there"
            raise ValueError(f"checkpoint {self.path} {what}") from None
        except DamagedFile as error:
            what = f"is damaged, or something else ({error}); name another file"
            raise ValueError(f"checkpoint {self.path} {what}") from error
        if header.get("job") != self.job:
            raise ValueError(
                f"checkpoint {self.path} belongs to another fit: its data, constraints, settings or version "
                "of nearwise differ; remove it, or name another file"
            )
        try:
            self._take(json.loads(header["counts"]), arrays)
        except (KeyError, TypeError, ValueError, RecursionError) as error:  # of a digest made for it
            raise ValueError(f"checkpoint {self.path} is damaged; name another file") from error

    def _take(self, counts: dict[str, int], arrays: dict[str, Array]) -> None:
        self.legs, self.n_iterations = int(counts["legs"]), int(counts["n_iterations"])
        self.factor = arrays.pop("factor", None)
        self.records = arrays.pop("records", np.empty((0, 0))).tolist()
        for name in [name for name in arrays if name.startswith("pass ")]:
            _, key, field = name.split(" ")
            dict.setdefault(self.passes, key, {})[field] = arrays.pop(name)
        self.finished = [arrays[f"finished {k}"] for k in range(len(arrays))]


class _Passes(dict[str, Kept]):
    """What passes over rows in pieces found; each new one is written at once."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def __setitem__(self, key: str, found: Kept) -> None:
        super().__setitem__(key, found)
        self._write()


def open_checkpoint(path: Any, random_state: Any, *parts: Any) -> Checkpoint | None:
    """The checkpoint that the parameter `checkpoint` names, for a fit known by its parts."""
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"checkpoint must be a path or None, got {path!r}")
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise ValueError(
            f"with a checkpoint random_state must be a whole number, got {random_state!r}: a fit that goes "
            "on has to draw what it drew before"
        )
    return Checkpoint(path, digest(__version__, int(random_state), *parts))
