"""Bregman projections onto one constraint after the other: the order of rows, and when to stop.

This differs from the papers (KSD09 algorithms 2 and 3, JKDD12 algorithm 1, TRW05 section 4.2) in:

1. Constraints of every kind, upper and lower bounds and equations, hard or soft. Dual corrections are made
   throughout: a multiplier stops at zero, as without them the limit is not the optimum (KSD09 appendix B).
2. Rows are taken in a new random order each sweep, unless one asks for another order.
3. `solve` stops by the certified gap; the papers' rule, that multipliers hardly change, is a setting.
4. After each sweep the drift of M from its multipliers is measured, and M is computed anew where it matters.

How a projection is made is up to an engine: `logdet`, `von_neumann`, `approximate`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nearwise._common.checks import one_of, positive, whole_number
from nearwise._common.types import Array, Index
from nearwise.core.divergences import LogDet, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.losses import Loss
from nearwise.papers.engine import Engine
from nearwise.papers.logdet import LogDetEngine
from nearwise.papers.von_neumann import VonNeumannEngine

# Drift from which on M is computed anew. 1e5 projections leave 1e-13 to 1e-11 (bench projections), so that is
# rare, and what is left changes no certificate to 1e-9.
DRIFT = 1e-10

ROUNDING = 4 * float(np.finfo(float).eps)  # of the sum of multipliers, relative; M from them is no better

Order = Literal["cyclic", "interleaved", "shuffled", "violated"]
ORDERS = ("cyclic", "interleaved", "shuffled", "violated")
FORMS = ("factored", "symmetric")


class Sweeps:
    """Settings of sweeps over all rows, and the points after each of them."""

    max_iter: ClassVar[int] = 10_000
    returns_last: ClassVar[bool] = True

    order: Order
    multiplier_tol: float | None
    seed: int

    def __post_init__(self) -> None:
        one_of(self.order, "order", ORDERS)
        if self.multiplier_tol is not None:
            positive(self.multiplier_tol, "multiplier_tol", " or None")
        whole_number(self.seed, "seed", least=0)

    def _points(self, engine: Engine) -> Iterator[Iterate]:
        """The engine's point, then its point after each sweep, until a sweep changes nothing."""
        rng = np.random.default_rng(self.seed)
        yield _point(engine, 0)
        for count in itertools.count(1):
            before = engine.dual.copy()
            self._sweep(engine, rng)
            change, norm = (float(np.linalg.norm(y)) for y in (engine.dual - before, engine.dual))
            if not (np.isfinite(norm) and np.isfinite(engine.factor()).all()):
                return  # rounding leaves too little of some rows: no sweep leads on from here
            final = self.multiplier_tol is not None and change <= self.multiplier_tol * norm
            yield _point(engine, count, final)
            if change == 0:
                return

    def _sweep(self, engine: Engine, rng: np.random.Generator) -> None:
        """One sweep over all rows in the order that is set."""
        n_rows = len(engine.dual)
        if self.order == "shuffled":
            engine.sweep(rng.permutation(n_rows))
        elif self.order == "cyclic":
            engine.sweep(np.arange(n_rows))
        elif self.order == "interleaved":
            engine.sweep(_interleaved(engine.form.loss.relations))
        else:
            _sweep_violated(engine)


@dataclass(frozen=True)
class CyclicProjections(Sweeps):
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

    order: Order = "shuffled"
    form: Literal["factored", "symmetric"] = "factored"
    multiplier_tol: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.form, "form", FORMS)

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior, then the point after each sweep."""
        return self._points(self._engine(form))

    def _engine(self, form: Formulation) -> Engine:
        if isinstance(form.divergence, LogDet):
            return LogDetEngine(form, self.form == "factored")
        if isinstance(form.divergence, VonNeumann):
            return VonNeumannEngine(form)
        raise TypeError(
            f"CyclicProjections knows LogDet and VonNeumann, not {form.divergence!r}; use Newton() for it"
        )


def _point(engine: Engine, count: int, final: bool = False) -> Iterate:
    """The engine's point after some sweeps, with M computed anew where it drifted from its multipliers."""
    rows, dual = engine.form.rows, engine.dual.copy()
    adjoint, factor = rows.adjoint(dual), engine.factor()
    drift = engine.drift(adjoint)
    if drift > DRIFT and drift > ROUNDING * (np.abs(dual) @ rows.magnitudes(factor)):
        engine.refresh(adjoint)
        factor = engine.factor()
    # Multipliers of hard rows that grow without end point at a contradiction; suspected ever more rarely.
    is_suspicious = count >= 16 and count & (count - 1) == 0 and engine.form.loss.any_hard
    return Iterate(
        factor,
        dual,
        values=rows.values(factor),
        adjoint=adjoint,
        farkas=dual if is_suspicious else None,
        note=engine.note,
        final=final,
    )


def _sweep_violated(engine: Engine) -> None:
    """As many projections as there are rows, each onto the row furthest from its optimality condition."""
    loss, values = engine.form.loss, engine.form.rows.values(engine.factor())
    is_stuck = np.zeros(len(values), dtype=bool)
    for _ in range(len(values)):
        discrepancies = np.where(is_stuck, 0.0, _discrepancies(loss, values, engine.dual))
        row = int(np.argmax(discrepancies))
        if discrepancies[row] == 0:
            return
        before = engine.dual[row]
        values = engine.tracked(row, values)
        is_stuck[row] = engine.dual[row] == before  # by rounding, or because its bound is out of reach


@np.errstate(all="ignore")
def _discrepancies(loss: Loss, values: Array, dual: Array) -> Array:
    """How far rows are from their optimality condition, relative to what violations are relative to."""
    from_reply = np.abs(values - loss.reply(dual)) / loss.references
    return np.where(dual == 0, loss.violations(values), from_reply)


def _interleaved(relations: NDArray[np.int8]) -> Index:
    """Rows of every relation evenly among the others, in their own order."""
    place = np.empty(len(relations))
    for relation in np.unique(relations):
        rows = np.flatnonzero(relations == relation)
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(place, kind="stable")
