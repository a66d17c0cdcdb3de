"""Online regression on fixed-rank matrices: mini-batches and the step sizes of MBS11 (9), (20), (23).

No stream makes a run explode: five rules make steps shorter than (23).

- They shrink with the square of the factor's length, as in appendix A.
- None is longer than the share p / (p + 1) of the step that would fit its mini-batch of p samples best, were
  predictions linear in it: one sample takes away at most half of its own error.
- Steps that make W larger wait until samples for the unknowns have come (`Schedule.caution`). Let H H^T be
  any matrix that fits a sample x, and s a flat step not beyond y^ = y. With y^ > y, |G - H|^2 falls by
  4 s (y^ - y) (x^T G (G - H)^T x - s (y^ - y) |x|^2 y^), and x^T G H^T x <= sqrt(y^ y), so the step comes
  nearer to H, and as well to H Q for every orthogonal Q. With y^ < y that holds for some Q only.
- None adds more to the trace of W than twice what its samples ask for. A W with <W, X> = y has a trace of at
  least y / |X|, so a sample with y^ < y asks for y / |X|, or y / |x|^2 (`Evaluated.missing`).
- Where the cost of the mini-batch has not fallen by half of what the slope promises, a step is halved.

So over any stream, in any geometry and with mini-batches of any size, the trace of W grows by at most the sum
of 2 |y| / |X| over its samples: a step that would add more is halved until it does not, or left out. With one
sample x a step, y^ ends between 0 and max(y^, 2 y). What no rule can promise is a small error on samples that
are still to come, where W has kept what the start says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.fixed_rank.descent import Objective
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult
from nearwise.fixed_rank.geometry import Flat, Geometry, Polar
from nearwise.fixed_rank.regression import Regression
from nearwise.methods import Loop, Status

_TRIED = tuple(2.0**k for k in range(-3, 4))  # for both s and t_0, section 7.4.2
_SHORTEST = 2.0**-20  # the search goes on below 2^-3 where that is not short enough
_GATHERED = 32  # mini-batches whose rows are gathered at once
_SEARCH_PASSES = 3  # over these samples: one would favour steps that shrink too soon
_ENOUGH = 0.5  # of the fall that the slope promises: a parabola has it up to its lowest point, not beyond
_GROWTH = 2.0  # of the trace that the samples of a mini-batch ask for, the most that its step adds to W
_ROUNDING = 1e-12
_MOVING_FACTORS = (Flat, Polar)
_HALVINGS = 30  # of a step after which its own mini-batch has not fallen enough, before it is left out
_SEARCH_BATCHES = 30  # mini-batches of the samples on which they are tried
# samples per row of the factor, over the size of a mini-batch, after which W may grow at half speed
_WAIT = 4


@dataclass(frozen=True)
class Schedule:
    """s_t = (s / mu) n t_0 / (n t_0 + t) after t samples, (23), over |G|^2 where that is large (appendix A).

    Attributes
    ----------
    step : s / mu, where mu is the mean length of the gradient of a mini-batch at the start
    horizon : n t_0; infinite for steps that never shrink, to follow data that change
    size : the larger of 1 and |G_0|^2; appendix A divides by the larger of 1 and |G_t|^2, that is, relative
        to the start, by how many times |G_t|^2 is larger than this
    caution : after t samples, steps that make W larger have the share t / (t + caution) of their length
    """

    step: float
    horizon: float
    size: float = np.inf
    caution: float = 0.0

    def at(self, seen: int, square: float = 0.0) -> float:
        """s_t, where `square` is |G_t|^2."""
        return self.step / (1.0 + seen / self.horizon) / max(square / self.size, 1.0)


@dataclass(frozen=True, eq=False)
class Stream:
    """Where an online run stands: the point, and the number of samples it has seen."""

    point: Any
    seen: int = 0


@dataclass(frozen=True, eq=False)
class _Passed:
    """Where a pass ended: its factor, the cost of all samples there, and how far the factor has moved."""

    stream: Stream
    factor: Array
    cost: float
    moved: float


class Passes(Loop[Stream, _Passed, FixedRankRecord]):
    """Passes over all samples, up to a number of them; the last one counts."""

    counts_start = True  # a point is the end of a pass

    def __init__(
        self,
        problem: Objective,
        geometry: Geometry,
        start: Stream,
        n_passes: int,
        callback: Callable[[FixedRankRecord], Any] | None = None,
    ) -> None:
        super().__init__(n_passes, None, callback)
        self.problem, self.geometry, self.start = problem, geometry, start
        self.factor = geometry.factor(start.point)  # that of the last pass

    def grade(self, point: Stream) -> _Passed:
        """The cost of all samples, and how far the pass has come."""
        before, self.factor = self.factor, self.geometry.factor(point.point)
        size = max(np.linalg.norm(before), np.finfo(float).tiny)
        moved = float(np.linalg.norm(self.factor - before) / size)
        return _Passed(point, self.factor, self.problem.evaluate(self.factor)[0], moved)

    def record(self, graded: _Passed, iteration: int, seconds: float) -> FixedRankRecord:
        """Its cost, and how far it moved."""
        return FixedRankRecord(iteration, seconds, graded.cost, graded.moved)

    def end(self, graded: _Passed) -> None:
        """Only a limit, a callback or Ctrl-C ends passes."""

    def result(
        self, schedule: Schedule, batch_size: int, rng: np.random.Generator | None
    ) -> tuple[FixedRankResult, Stream]:
        """Make the passes, in random order or (without `rng`) as samples come, and say where they ended."""
        status = self.follow(self._streams(schedule, batch_size, rng))
        assert self.best is not None
        last, n = self.best, self.problem.n_samples
        made = f"{len(self.history)} passes over {n} samples, {last.stream.seen} seen in all."
        message = f"Interrupted after {made}" if status is Status.INTERRUPTED else made
        history = tuple(self.history)
        found = FixedRankResult(last.factor, last.cost, status, history, "Online", message, self.limit)
        return found, last.stream

    def _streams(
        self, schedule: Schedule, batch_size: int, rng: np.random.Generator | None
    ) -> Iterator[Stream]:
        stream = self.start
        while True:
            stream = pass_over(self.problem, self.geometry, stream, schedule, batch_size, rng)
            yield stream


def pass_over(
    problem: Objective,
    geometry: Geometry,
    stream: Stream,
    schedule: Schedule,
    batch_size: int,
    rng: np.random.Generator | None,
) -> Stream:
    """One epoch: every sample once, in mini-batches, in random order or (without `rng`) as they come.

    A step longer than the geometry's reach is cut to it, so that a wild sample cannot throw the point far
    away, and so is one that goes beyond what its own mini-batch asks for.
    """
    n, point, seen = problem.n_samples, stream.point, stream.seen
    order = np.arange(n) if rng is None else rng.permutation(n)
    for first in range(0, n, _GATHERED * batch_size):
        # gathering the rows of many mini-batches at once, and slicing these, is cheaper than one by one
        chunk = problem.subset(order[first : first + _GATHERED * batch_size])
        asked = chunk.asked() if isinstance(chunk, Regression) else None
        for low in range(0, chunk.n_samples, batch_size):
            rows = slice(low, min(low + batch_size, chunk.n_samples))
            batch = chunk.subset(rows)
            point = _stepped(batch, geometry, point, schedule, seen, None if asked is None else asked[rows])
            seen += batch.n_samples
    return Stream(point, seen)


def _stepped(
    batch: Objective, geometry: Geometry, point: Any, schedule: Schedule, seen: int, asked: Array | None
) -> Any:
    """The point after one step; the same point where none is found after which the batch is better enough.

    `asked` is `Regression.asked` of the batch, None for other costs.
    """
    G = geometry.factor(point)
    trace = float(np.vdot(G, G))  # of W
    step, line = schedule.at(seen, trace), None
    here = batch.at(G) if isinstance(batch, Regression) else None
    cost, slope = batch.evaluate(G) if here is None else (here.cost, here.slope)
    if here is not None and isinstance(geometry, _MOVING_FACTORS):
        # their tangent vectors are changes of G, by which the cost, predictions and the trace of W change
        SG = slope(G)
        gradient = geometry.gradient(point, lambda _: SG)
        square = 2 * float(np.vdot(SG, gradient))
        line = here.along(gradient)
        bend = line.bend()
        if bend > 0:
            step = min(step, batch.n_samples / (batch.n_samples + 1) * square / bend)
        growth = -float(np.vdot(gradient, G))  # of the trace; of a start that fits best, 0 but for rounding
        if growth > _ROUNDING * math.sqrt(trace * float(np.vdot(gradient, gradient))):
            known = seen + batch.n_samples
            step *= known / (known + schedule.caution)
    else:
        gradient = geometry.gradient(point, slope)
        square = geometry.inner(point, gradient, gradient)
    if not square > 0:
        return point
    step = min(step, geometry.reach(point) / math.sqrt(square))
    straight = line if isinstance(geometry, Flat) else None  # no further product with the data is needed
    most: float | None = None  # that the trace may become
    for _ in range(_HALVINGS):
        new = geometry.retract(point, -step * gradient)
        factor = geometry.factor(new)
        new_cost = batch.evaluate(factor)[0] if straight is None else straight.cost(-step)
        if new_cost <= cost - _ENOUGH * step * square:
            new_trace = float(np.vdot(factor, factor))
            if here is None or asked is None or new_trace <= trace:
                return new
            if most is None:
                most = trace + _GROWTH * here.missing(asked)
            if new_trace <= most:
                return new
        step /= 2
    return point


def searched_schedule(
    problem: Objective,
    geometry: Geometry,
    point: Any,
    batch_size: int,
    rng: np.random.Generator,
    expected: int,
    constant: bool = False,
) -> Schedule:
    """s, then t_0, by trial on a small subset: those with the lowest cost after a few epochs over it.

    Where no step improves on the start, all steps are zero. `expected` is the n of the schedule itself, the
    number of samples that will come. With `constant`, t_0 is infinite and only s is sought.
    """
    n = problem.n_samples
    chosen = rng.choice(n, min(n, _SEARCH_BATCHES * batch_size), replace=False)
    subset = problem.subset(chosen)
    length = _mean_gradient(subset, geometry, point, batch_size)
    if length == 0.0:
        return Schedule(0.0, np.inf)
    G = geometry.factor(point)
    size = max(1.0, float(np.vdot(G, G)))

    def cost_after(schedule: Schedule) -> float:
        order, end = np.random.default_rng(0), Stream(point)
        for _ in range(_SEARCH_PASSES):
            end = pass_over(subset, geometry, end, schedule, batch_size, order)
        return subset.evaluate(geometry.factor(end.point))[0]

    horizon = np.inf if constant else float(len(chosen))
    best, best_cost = Schedule(0.0, np.inf), subset.evaluate(geometry.factor(point))[0]
    step = _TRIED[-1]
    while step >= _TRIED[0] or (best.step <= 2 * step / length and step > _SHORTEST):
        trial = Schedule(step / length, horizon, size)
        cost = cost_after(trial)
        if cost < best_cost:
            best, best_cost = trial, cost
        step /= 2  # and on below 2^-3, where the start is so good that only shorter steps improve it
    for share in () if constant or best.step == 0.0 else _TRIED:
        trial = Schedule(best.step, share * len(chosen), size)
        cost = cost_after(trial)
        if cost < best_cost:
            best, best_cost = trial, cost
    return Schedule(best.step, best.horizon * expected / len(chosen), size, _WAIT * len(G) / batch_size)


def _mean_gradient(problem: Objective, geometry: Geometry, point: Any, batch_size: int) -> float:
    """mu: the mean length of the gradient of a mini-batch."""
    lengths = []
    for low in range(0, problem.n_samples, batch_size):
        rows = slice(low, min(low + batch_size, problem.n_samples))
        _, slope = problem.subset(rows).evaluate(geometry.factor(point))
        gradient = geometry.gradient(point, slope)
        lengths.append(np.sqrt(max(geometry.inner(point, gradient, gradient), 0.0)))
    return float(np.mean(lengths))
