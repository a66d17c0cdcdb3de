"""The papers' algorithm: Bregman projections onto one constraint after the other, with dual corrections.

Each projection changes one multiplier so that its row is optimal given all others: coordinate ascent on the
dual, KSD09 algorithms 2 and 3 and JKDD12 algorithm 1. An *engine* keeps M in step with the multipliers, one
per divergence (`logdet`, `von_neumann`); this file decides on the order of the rows, measures the drift
of M by rounding, and says when the papers would stop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise._common.checks import one_of, positive, whole_number
from nearwise._common.types import Array, Index
from nearwise.model.divergences import LogDet, VonNeumann
from nearwise.model.formulation import Formulation, Iterate
from nearwise.solving.logdet import LogDetEngine
from nearwise.solving.von_neumann import VonNeumannEngine

_ROUNDING = 4 * np.finfo(float).eps
_DRIFT = 1e-10  # of M from its multipliers, from which on it is computed from them anew
Order = Literal["cyclic", "interleaved", "shuffled", "violated"]
_ORDERS = ("cyclic", "interleaved", "shuffled", "violated")
_FORMS = ("factored", "symmetric")


class Engine(Protocol):
    """M and its multipliers, changed by one projection after the other."""

    @property
    def dual(self) -> Array:
        """The multipliers."""

    @property
    def note(self) -> str:
        """What was done so far, for the message of the result."""

    def spectrum(self) -> tuple[Array, Array] | None:
        """Eigenvalues and eigenvectors of M, where they are at hand."""

    def sweep(self, rows: Index) -> None:
        """Project onto the given rows in turn."""

    def tracked(self, row: int, values: Array) -> Array:
        """Project onto one row; the values of all rows after that, given those before."""

    def factor(self) -> Array:
        """B with M = B B^T."""

    def drift(self, pullback: Array) -> float:
        """How far rounding has taken M from its multipliers, whose sum_i y_i A_i is `pullback`."""

    def refresh(self, pullback: Array) -> None:
        """Compute M from its multipliers."""


@dataclass(frozen=True)
class CyclicProjections:
    """Exact Bregman projections onto one constraint after the other; an iteration is a sweep over all.

    For LogDet and von Neumann, with every kind of constraint, hard or soft. Each projection takes O(r^2)
    for LogDet and O(r^2) to O(r^3) for von Neumann. Convergence is linear: a few sweeps where the penalty is
    small or the constraints hardly share dimensions, thousands where they pull against each other. As in the
    papers, the last point is the result, also where hard constraints contradict each other.

    Parameters
    ----------
    order : "shuffled" takes the rows in a new random order each sweep, "cyclic" as they come, "interleaved"
        upper bounds, lower bounds and equations in turn, in the same order every sweep, and "violated"
        always the row furthest from its optimality condition (the most violated one, TRW05 4.2), so that a
        sweep is as many projections as there are rows, not one onto each
    form : for LogDet, "factored" keeps a triangular B with M = B B^T (KSD09 algorithm 1), which stays
        positive definite whatever the rounding; "symmetric" keeps M itself
    multiplier_tol : None stops by the relative gap, as every solver does. A number adds the papers' rule:
        the run also ends, as STATIONARY, when a sweep changed the multipliers by at most this, relative to
        their norm. That proves nothing; the result's certificate says what was reached.
    seed : of the random orders
    """

    max_iter: ClassVar[int] = 10_000
    returns_last: ClassVar[bool] = True

    order: Order = "shuffled"
    form: Literal["factored", "symmetric"] = "factored"
    multiplier_tol: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_schedule(self)
        one_of(self.form, "form", _FORMS)

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior, then the point after each sweep."""
        return sweeps(self._engine(form), form, self)

    def _engine(self, form: Formulation) -> Engine:
        if form.measurements.offsets is not None:
            raise ValueError("CyclicProjections knows no values with a fixed part; use Newton() for them")
        if isinstance(form.divergence, LogDet):
            return LogDetEngine(form, self.form == "factored")
        if isinstance(form.divergence, VonNeumann):
            return VonNeumannEngine(form)
        raise TypeError(
            f"CyclicProjections knows LogDet and VonNeumann, not {form.divergence!r}; use Newton() for it"
        )


class Schedule(Protocol):
    """In which order rows are taken, and the papers' rule for stopping."""

    @property
    def order(self) -> Order: ...

    @property
    def multiplier_tol(self) -> float | None: ...

    @property
    def seed(self) -> int: ...


def check_schedule(schedule: Schedule) -> None:
    """Refuse settings that make no sense, by name."""
    one_of(schedule.order, "order", _ORDERS)
    if schedule.multiplier_tol is not None:
        positive(schedule.multiplier_tol, "multiplier_tol", " or None")
    whole_number(schedule.seed, "seed", least=0)


def sweeps(engine: Engine, form: Formulation, schedule: Schedule) -> Iterator[Iterate]:
    """The engine's point, then its point after each sweep, until a sweep changes nothing."""
    rng = np.random.default_rng(schedule.seed)
    yield _settled(engine, form, 0, False)
    for count in itertools.count(1):
        before = engine.dual.copy()
        _sweep(engine, form, schedule.order, rng)
        if not (np.isfinite(engine.dual).all() and np.isfinite(engine.factor()).all()):
            return  # rows far from what rounding leaves of them: no sweep leads on from here
        change, norm = (float(np.linalg.norm(y)) for y in (engine.dual - before, engine.dual))
        final = schedule.multiplier_tol is not None and change <= schedule.multiplier_tol * norm
        yield _settled(engine, form, count, final)
        if change == 0:
            return


def _sweep(engine: Engine, form: Formulation, order: str, rng: np.random.Generator) -> None:
    n_rows = len(engine.dual)
    if order != "violated":
        fixed = _interleaved(form.losses.relations) if order == "interleaved" else np.arange(n_rows)
        engine.sweep(rng.permutation(n_rows) if order == "shuffled" else fixed)
        return
    values = form.measurements.values_of_factor(engine.factor())
    for _ in range(n_rows):
        discrepancies = form.losses.discrepancies(values, engine.dual)
        row = int(np.argmax(discrepancies))
        if discrepancies[row] == 0:
            return
        values = engine.tracked(row, values)


def _interleaved(relations: NDArray[np.int8]) -> NDArray[np.int64]:
    """Rows of every relation evenly among the others, in their own order."""
    place = np.empty(len(relations))
    for relation in np.unique(relations):
        rows = np.flatnonzero(relations == relation)
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(place, kind="stable")


def _settled(engine: Engine, form: Formulation, count: int, final: bool) -> Iterate:
    """The engine's point, with M computed anew where rounding has taken it from its multipliers."""
    pullback, factor = form.measurements.adjoint(engine.dual), engine.factor()
    drift = engine.drift(pullback)
    if drift > _DRIFT and drift > _ROUNDING * (
        np.abs(engine.dual) @ form.measurements.parts_of_factor(factor)
    ):
        engine.refresh(pullback)  # more exact than M, unless rounding of the multipliers is the larger error
        factor = engine.factor()
    # Multipliers of hard rows that grow without end point at a contradiction; looked at ever more rarely.
    suspicious = count >= 16 and count & (count - 1) == 0 and form.losses.any_hard
    return Iterate(
        factor,
        form.measurements.values_of_factor(factor),
        engine.dual.copy(),
        pullback,
        engine.spectrum(),
        engine.dual.copy() if suspicious else None,
        note=engine.note,
        final=final,
    )
