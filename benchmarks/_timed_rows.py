"""Rows in pieces that know how long the jobs on them take, here and on the workers of a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nearwise.distributed import Stacked


class Spent(NamedTuple):
    """Seconds: of the processor in jobs, in this process and on each worker; and those of the clock."""

    job: float
    here: float
    theirs: tuple[float, ...]
    clock: float

    @property
    def all(self) -> float:
        """Of the processor in all processes."""
        return self.here + sum(self.theirs)

    def since(self, before: Spent) -> Spent:
        """What came after a point in time."""
        theirs = tuple(b - a for a, b in zip(before.theirs, self.theirs, strict=True))
        return Spent(self.job - before.job, self.here - before.here, theirs, self.clock - before.clock)


def mean_of(found: list[Spent]) -> Spent:
    """Of several times, on the same workers."""
    job, here, clock = (float(np.mean([getattr(one, name) for one in found])) for name in _SINGLE)
    return Spent(job, here, tuple(np.mean([one.theirs for one in found], axis=0).tolist()), clock)


def spent_so_far(rows: TimedRows | None) -> Spent:
    """By this process, and by the workers of the rows, where they have some.

    A job is also what this thread computes between runs.
    """
    client = None if rows is None else rows.client
    theirs = [] if client is None else [value for _, value in sorted(client.run(_spent).items())]
    between = time.thread_time() - (0.0 if rows is None else rows.in_runs)
    job = between + sum(own for own, _ in [_spent(), *theirs])
    return Spent(job, time.process_time(), tuple(whole for _, whole in theirs), time.perf_counter())


class TimedRows(Stacked):
    """Rows whose runner adds up the seconds of its jobs."""

    in_runs = 0.0  # processor seconds that the thread that asks for runs has spent in them

    def runner(self, pieces: Sequence[Any]) -> Any:
        """That of the rows, timed."""
        return TimedRunner(super().runner(pieces), self)


class TimedRunner:
    """A runner that adds up the processor seconds of its jobs, where they run."""

    def __init__(self, runner: Any, rows: TimedRows) -> None:
        self.runner, self.rows = runner, rows

    def some(self, places: Sequence[int]) -> TimedRunner:
        """The same for some of the pieces."""
        return TimedRunner(self.runner.some(places), self.rows)

    def run(self, job: Callable[..., Any], *arguments: Any, each: Any = None, added: Any = None) -> list[Any]:
        """As the runner does."""
        start = time.thread_time()
        found: list[Any] = self.runner.run(_timed, job, *arguments, each=each, added=added)
        self.rows.in_runs += time.thread_time() - start
        return found


_in_jobs = [0.0]  # processor seconds of this process


def _timed(piece: Any, job: Callable[..., Any], *arguments: Any) -> Any:
    start = time.thread_time()
    try:
        return job(piece, *arguments)
    finally:
        _in_jobs[0] += time.thread_time() - start


def _spent() -> tuple[float, float]:
    """Processor seconds of this process so far, in jobs and in all."""
    return _in_jobs[0], sum(os.times()[:2])


_SINGLE = ("job", "here", "clock")
