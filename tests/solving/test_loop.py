"""The loop that all methods share: best point, history, limits, callbacks, interruption; and who uses it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.named import _augmented, _entries, _unit_rows, boosting, cut
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


# --- what uses it ------------------------------------------------------------------------------------------


def problem() -> nw.Problem:
    G = np.random.default_rng(0).normal(size=(20, 4))
    pairs = np.arange(20).reshape(10, 2)
    d = np.sum((G[pairs[:, 0]] - G[pairs[:, 1]]) ** 2, axis=1)
    side = c.at_most(pairs[:5], 0.3 * d[:5]) + c.at_least(pairs[5:], 2 * d[5:])
    return nw.Problem(G, side, penalty=np.inf)


def test_solve_says_which_limit_it_reached() -> None:
    few = nw.solve(problem(), nw.solvers.Newton(), max_iter=2)
    assert (few.status, few.limit) == (nw.Status.LIMIT, "iterations")
    assert "limit of 2 iterations" in few.message
    short = nw.solve(
        problem(), nw.solvers.Newton(), max_seconds=0.001, callback=lambda record: time.sleep(0.002)
    )
    assert (short.status, short.limit) == (nw.Status.LIMIT, "time")
    assert "limit of 0.001 seconds" in short.message
    assert nw.solve(problem()).limit is None


def correlations(n: int = 12) -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=(n, n))
    A = np.clip(0.3 + 0.6 * (noise + noise.T), -1, 1)
    np.fill_diagonal(A, 1.0)
    return A


def path(n: int = 8) -> np.ndarray:
    return np.eye(n, k=1) + np.eye(n, k=-1) + 0.1 * (1 - np.eye(n))


def boosted() -> nw.BoostResult:
    C = [np.diag([1.0, -1.0, 0.5]), np.diag([-0.5, 1.0, -2.0]), np.diag([-1.0, 0.3, 0.4])]
    return nw.definite_boost(C, projections="approximate")


WEIGHTS = 1 + np.abs(np.subtract.outer(np.arange(40), np.arange(40))) % 3  # many: augmented Lagrangian

# A problem, and the function whose calls are counted: the third one is interrupted.
USERS = {
    "semismooth": (lambda: nw.nearest_correlation(correlations(40)), _entries.Point, "direction"),
    "unit rows": (lambda: nw.nearest_correlation(correlations(), rank=3), _unit_rows._Point, "moved"),
    "weighted": (lambda: nw.nearest_correlation(correlations(40), weights=WEIGHTS), _augmented, "_graded"),
    "cut": (lambda: nw.balanced_cut(path()), cut._Relaxation, "_newton"),
    "boosting": (
        boosted,
        boosting._Boost,
        "_stepped",
    ),
}


@pytest.mark.parametrize("name", USERS)
def test_an_interrupted_method_hands_back_what_it_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solve, owner, method = USERS[name]
    assert solve().status in (nw.Status.SOLVED, nw.Status.STATIONARY)
    calls, true = itertools.count(1), getattr(owner, method)

    def interrupting(*arguments: object) -> object:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return true(*arguments)

    monkeypatch.setattr(owner, method, interrupting)
    found = solve()
    assert found.status is nw.Status.INTERRUPTED
    assert "Interrupted" in found.message
    assert found.n_iter <= 2
    assert np.isfinite(found.certificate.primal)
