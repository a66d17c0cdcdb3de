"""The loop that all methods share: best point, history, limits, callbacks, interruption."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

import nearwise as nw
from nearwise.solving.loop import Loop


class Lowest(Loop[float, float, tuple[int, float]]):
    """Keeps the lowest number; ends as SOLVED at one that is not positive, and passes over infinite ones."""

    def grade(self, point: float) -> float | None:
        return point if np.isfinite(point) else None

    def is_better(self, graded: float) -> bool:
        return self.best is None or graded < self.best

    def record(self, graded: float, iteration: int, seconds: float) -> tuple[int, float]:
        assert seconds >= 0
        return iteration, graded

    def end(self, graded: float) -> nw.Status | None:
        return nw.Status.SOLVED if graded <= 0 else None


class CountsStart(Lowest):
    counts_start = True


def interrupted(points: Iterable[float]) -> Iterator[float]:
    yield from points
    raise KeyboardInterrupt


def test_the_best_point_is_kept_and_every_other_is_recorded() -> None:
    loop = Lowest(None)
    assert loop.follow([5.0, 3.0, np.inf, 4.0]) is nw.Status.STALLED
    assert loop.best == 3.0
    assert loop.history == [(1, 3.0), (2, 4.0)]
    counting = CountsStart(None)
    counting.follow([5.0, 3.0])
    assert counting.history == [(1, 5.0), (2, 3.0)]


def test_a_point_may_end_it_also_the_first() -> None:
    for points, count in (([0.0, 1.0], 0), ([2.0, -1.0, 1.0], 1)):
        loop = Lowest(1)
        assert loop.follow(points) is nw.Status.SOLVED  # also where it is the last that the limit allows
        assert len(loop.history) == count
        assert loop.limit is None


def test_limits_say_which_they_are() -> None:
    loop = Lowest(3)
    assert loop.follow(itertools.repeat(1.0)) is nw.Status.LIMIT
    assert (loop.limit, loop.why, len(loop.history)) == ("iterations", "3 iterations", 3)
    late = Lowest(None, max_seconds=1e-9)
    assert late.follow(itertools.repeat(1.0)) is nw.Status.LIMIT
    assert (late.limit, late.why, len(late.history)) == ("time", "1e-09 seconds", 0)


def test_the_callback_sees_records_and_may_end_it() -> None:
    seen: list[tuple[int, float]] = []

    def callback(record: tuple[int, float]) -> bool:
        seen.append(record)
        return record[0] == 2

    loop = Lowest(None, callback=callback)
    assert loop.follow(itertools.count(5.0)) is nw.Status.INTERRUPTED
    assert seen == loop.history == [(1, 6.0), (2, 7.0)]
    assert loop.why == "the callback asked to stop"
    solved = Lowest(None, callback=lambda record: True)
    assert solved.follow([1.0, 0.0]) is nw.Status.SOLVED  # what is solved is not interrupted


def test_ctrl_c_keeps_the_best_point_and_is_raised_where_there_is_none() -> None:
    loop = Lowest(None)
    assert loop.follow(interrupted([2.0, 1.0, 3.0])) is nw.Status.INTERRUPTED
    assert loop.best == 1.0
    with pytest.raises(KeyboardInterrupt):
        Lowest(None).follow(interrupted([np.inf]))
    with pytest.raises(ZeroDivisionError):  # errors are not interruptions
        Lowest(None).follow(1 / n for n in (1, 0))
