"""Batch regression on fixed-rank positive semidefinite matrices, MBS11 sections 6 and 7.

`minimise` runs a descent method on a geometry until one of the paper's stopping rules (24) holds. The problem
is not convex, so what it finds is a stationary point, never certified to be the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from nearwise._common.types import Array, Limit
from nearwise.fixed_rank.conjugate import ConjugateGradients
from nearwise.fixed_rank.descent import Armijo, Objective, Step
from nearwise.fixed_rank.geometry import Flat, Geometry, Polar
from nearwise.methods import Loop, Status

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
    limit : "time" or "iterations" where the status is LIMIT, else None
    """

    factor: Array
    cost: float
    status: Status
    history: tuple[FixedRankRecord, ...]
    solver: str
    message: str
    limit: Limit | None = None

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
    run = _Run(method.patience, tol, tol * negligible, max_iter or MAX_ITER, max_seconds, callback)
    status = run.follow(method.iterates(problem, geometry, start))
    assert run.best is not None
    factor, history = run.best.factor, run.history
    cost = problem.evaluate(factor)[0]  # without the rounding that a method may allow itself on the way
    if history:
        history[-1] = replace(history[-1], cost=cost)
    name = type(method).__name__
    message = f"{status.name.capitalize()} after {len(history)} iterations of {name}: {run.why}."
    return FixedRankResult(factor, cost, status, tuple(history), name, message, run.limit)


class _Run(Loop[Step, Step, FixedRankRecord]):
    """The rules (24): a small cost, or small changes of it or of the factor, `patience` times in a row."""

    def __init__(
        self,
        patience: int,
        tol: float,
        least_cost: float,
        max_iter: int,
        max_seconds: float | None,
        callback: Callable[[FixedRankRecord], Any] | None,
    ) -> None:
        super().__init__(max_iter, max_seconds, callback)
        self.patience, self.tol, self.least_cost = patience, tol, least_cost
        self.cost: float | None = None  # of the point before
        self.small = 0  # changes in a row

    def grade(self, point: Step) -> Step:
        """As it is: a step knows its cost."""
        return point

    def record(self, graded: Step, iteration: int, seconds: float) -> FixedRankRecord:
        """Its cost, and how far it moved."""
        return FixedRankRecord(iteration, seconds, graded.cost, graded.moved)

    def end(self, graded: Step) -> Status | None:
        """STATIONARY where a rule holds."""
        before, self.cost = self.cost, graded.cost
        if before is not None:
            relative = (before - graded.cost) / before
            self.small = self.small + 1 if relative <= self.tol or graded.moved <= self.tol else 0
            if self.small >= self.patience or (self.small and graded.complete):
                self.why = f"cost or factor changed by at most {self.tol:g}"
                return Status.STATIONARY
        if graded.cost <= self.least_cost:
            self.why = f"the cost is at most {self.tol:g} of that of zero, or of the start if zero has none"
            return Status.STATIONARY
        return None

    def exhausted(self) -> Status:
        """STATIONARY, as far as steps of the method tell."""
        self.why = "no step makes the cost smaller"
        return Status.STATIONARY
