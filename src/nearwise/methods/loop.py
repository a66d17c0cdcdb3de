"""`Loop`: what everything that iterates has in common, whatever its points are.

A method makes a stream of points. A loop follows it: it keeps the best point and a record of every iteration,
calls the callback, and ends at a limit, at Ctrl-C or where the points themselves end it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from nearwise._common.types import Limit
from nearwise.methods.result import Status

P = TypeVar("P")  # a point, as the method makes it
G = TypeVar("G")  # a point with what was measured at it
R = TypeVar("R")  # the record of an iteration


class Loop(Generic[P, G, R]):
    """Follows a stream of points; a method that iterates derives from it and says how points compare.

    Attributes
    ----------
    best : the best point, None before the first
    history : one record per iteration
    why : the reason for the end, where the loop itself ended
    limit : which limit was reached, where the status is LIMIT
    """

    counts_start: ClassVar[bool] = False  # whether the first point is an iteration

    def __init__(
        self,
        max_iter: int | None,
        max_seconds: float | None = None,
        callback: Callable[[R], Any] | None = None,
    ) -> None:
        self.max_iter = math.inf if max_iter is None else max_iter
        self.max_seconds = math.inf if max_seconds is None else max_seconds
        self.callback = callback
        self.began = time.perf_counter()
        self.best: G | None = None
        self.history: list[R] = []
        self.why = ""
        self.limit: Limit | None = None

    def grade(self, point: P) -> G | None:
        """The point with what is measured at it; None for one that counts for nothing."""
        raise NotImplementedError

    def is_better(self, graded: G) -> bool:
        """Whether it takes the place of `best`, as every point of a method that only improves does."""
        return True

    def record(self, graded: G, iteration: int, seconds: float) -> R:
        """What the history and the callback get to see of an iteration."""
        raise NotImplementedError

    def tell(self, record: R, graded: G) -> bool:
        """Call those who want to know of an iteration; whether one of them asks to stop."""
        return self.callback is not None and bool(self.callback(record))

    def end(self, graded: G) -> Status | None:
        """The status with which the run ends at this point, or None to go on."""
        raise NotImplementedError

    def exhausted(self) -> Status:
        """The status where the method makes no more points."""
        return Status.STALLED

    def follow(self, points: Iterable[P]) -> Status:
        """Go from point to point until there is a reason to end."""
        try:
            for point in points:
                status = self._visit(point)
                if status is not None:
                    return status
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.why = "interrupted"
            return Status.INTERRUPTED
        return self.exhausted()

    def _visit(self, point: P) -> Status | None:
        graded = self.grade(point)
        if graded is None:
            return None
        is_start = self.best is None
        if self.is_better(graded) or is_start:
            self.best = graded
        seconds = time.perf_counter() - self.began
        stop = False
        if self.counts_start or not is_start:
            self.history.append(self.record(graded, len(self.history) + 1, seconds))
            stop = self.tell(self.history[-1], graded)
        status = self.end(graded)
        if status is not None:
            return status
        if stop:
            self.why = "the callback asked to stop"
            return Status.INTERRUPTED
        if seconds >= self.max_seconds:
            self.why, self.limit = f"{self.max_seconds:g} seconds", "time"
        elif len(self.history) >= self.max_iter:
            self.why, self.limit = f"{self.max_iter} iterations", "iterations"
        return None if self.limit is None else Status.LIMIT


def quiet(points: Iterator[P]) -> Iterator[P]:
    """The same points: what overflows on the way shows in what is measured, not in NumPy's warnings."""
    points = iter(points)
    while True:
        with np.errstate(all="ignore"):
            point = next(points, None)
        if point is None:
            return
        yield point
