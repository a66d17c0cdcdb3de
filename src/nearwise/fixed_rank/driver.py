"""Batch regression on fixed-rank positive semidefinite matrices, MBS11 sections 6 and 7.

`minimise` runs a descent method on a geometry until one of the paper's stopping rules (24) holds. The problem
is not convex, so what it finds is a stationary point, never certified to be the best one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise.fixed_rank.conjugate import ConjugateGradients
from nearwise.fixed_rank.descent import Armijo, Objective, Step
from nearwise.fixed_rank.geometry import Flat, Geometry, Polar
from nearwise.solving.result import Status

Array = NDArray[np.float64]

MAX_ITER = 1000


class Descent(Protocol):
    """How the cost is made smaller, and how many small steps in a row mean that it is done."""

    patience: int

    def iterates(self, problem: Any, geometry: Any, factor: Array) -> Iterator[Step]:
        """The start and better and better points; the stream ends where no step brings anything."""


@dataclass(frozen=True)
class FixedRankRecord:
    """One iteration: seconds since the start, the cost, and the relative change of the factor."""

    iteration: int
    seconds: float
    cost: float
    moved: float


@dataclass(frozen=True, repr=False)
class FixedRankResult:
    """A low-rank matrix W = factor factor^T, and how it was found.

    Attributes
    ----------
    factor : G, d x r
    cost : the mean of (y^ - y)^2 / 2
    status : STATIONARY when a rule of (24) ended the run, else LIMIT or INTERRUPTED; never SOLVED
    history : one record per iteration, the start not counted
    solver : the name of the method
    message : one sentence on the outcome
    """

    factor: Array
    cost: float
    status: Status
    history: tuple[FixedRankRecord, ...]
    solver: str
    message: str

    @property
    def matrix(self) -> Array:
        """W, d x d."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def n_iter(self) -> int:
        """The number of iterations."""
        return len(self.history)

    def __repr__(self) -> str:
        d, r = self.factor.shape
        return (
            f"<FixedRankResult: {self.status.name}, {self.n_iter} iterations of {self.solver}, "
            f"cost {self.cost:.6g}, {d} x {d} matrix of rank {r}>"
        )


def minimise(
    problem: Objective,
    geometry: Geometry,
    start: Array,
    solver: Descent | None = None,
    tol: float = 1e-5,
    max_iter: int | None = None,
    max_seconds: float | None = None,
    callback: Callable[[FixedRankRecord], Any] | None = None,
    negligible: float = 0.0,
) -> FixedRankResult:
    """Go down from a start until one of the rules (24) holds.

    Parameters
    ----------
    problem : the cost
    geometry : where to move
    start : G_0, d x r
    solver : `ConjugateGradients()` by default, or `Armijo()` where the geometry has no plane search
    tol : the run ends when the cost is at most `tol * negligible`, or when it or the factor changes by at
        most this, relatively: in one step of Armijo's or Newton's, in several in a row of conjugate gradients
    max_iter : 1000 by default
    max_seconds : no limit by default
    callback : called with a record after every iteration; a true answer ends the run as INTERRUPTED
    negligible : the cost that counts as 1, for the first rule; that of W = 0, say
    """
    method: Descent = solver or (ConjugateGradients() if isinstance(geometry, Flat | Polar) else Armijo())
    began = time.perf_counter()
    best: Step | None = None
    history: list[FixedRankRecord] = []
    status, small, why = Status.STATIONARY, 0, "no step makes the cost smaller"
    try:
        for step in method.iterates(problem, geometry, start):
            before, best = best, step
            if before is not None:
                seconds = time.perf_counter() - began
                history.append(FixedRankRecord(len(history) + 1, seconds, step.cost, step.moved))
                stop = callback is not None and callback(history[-1])
                relative = (before.cost - step.cost) / before.cost
                small = small + 1 if relative <= tol or step.moved <= tol else 0
                if small >= method.patience or (small and step.complete):
                    why = f"cost or factor changed by at most {tol:g}"
                    break
                if stop:
                    status, why = Status.INTERRUPTED, "the callback asked to stop"
                    break
            if step.cost <= tol * negligible:
                why = f"the cost is at most {tol:g} of that of zero"
                break
            if len(history) >= (max_iter or MAX_ITER):
                status, why = Status.LIMIT, f"{len(history)} iterations"
                break
            if max_seconds is not None and time.perf_counter() - began >= max_seconds:
                status, why = Status.LIMIT, f"{max_seconds:g} seconds"
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        status, why = Status.INTERRUPTED, "interrupted"
    assert best is not None
    cost = problem.evaluate(best.factor)[0]  # without the rounding that a method may allow itself on the way
    if history:
        history[-1] = replace(history[-1], cost=cost)
    name = type(method).__name__
    message = f"{status.name.capitalize()} after {len(history)} iterations of {name}: {why}."
    return FixedRankResult(best.factor, cost, status, tuple(history), name, message)
