"""A primal-dual interior-point method, which decides small problems however far the prior is from the bounds.

Every row has a slack (`_slacks`), the matrix a scaling (`_scalings`); a step is a predictor and a corrector
on the same factorised system (Mehrotra). It starts far inside and need not be feasible before the end, so
neither the distance of the prior nor penalties of very different sizes matter much: 10 to 40 steps are usual.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.types import Index, Mask
from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.model.formulation import Formulation, Iterate, bare_prior_point
from nearwise.solving._contradictions import contradiction
from nearwise.solving._interior_run import Run
from nearwise.solving._interior_starts import runs
from nearwise.solving._looks import first_look, next_look
from nearwise.solving._relaxation import ROOM, Relaxed
from nearwise.solving._written import WrittenForm, WrittenRows
from nearwise.solving.dual import polished

_UNSTRETCHED = 2  # runs before a contradiction is looked for where rows measure little
_RELAXED = 3  # runs with room at hard rows, after all others
_RELAXED_WORK = 2e9  # multiplications in a factorisation there: some tenths of a second
_WEIGHTLESS = 1e-40  # what a soft row costs in units of the objective, below which it is left out


@dataclass(frozen=True)
class InteriorPoint:
    """A primal-dual interior-point method for LogDet, von Neumann and Frobenius.

    It writes the constraints out as vectors of all r (r + 1) / 2 unknowns, so it is for small problems: r up
    to 60 and a few thousand rows. There it decides what other methods cannot: hard rows far from the prior,
    rows that contradict each other, penalties that differ by many orders of magnitude.

    Parameters
    ----------
    tol : the tolerance of the run. Points that cannot be that good yet are kept back, because to certify one
        takes as long as one or two steps.
    """

    tol: float = 1e-6

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior, then points whose gap and violation fall together."""
        if not isinstance(form.divergence, LogDet | VonNeumann | Frobenius):
            raise TypeError(
                f"InteriorPoint knows LogDet, VonNeumann and Frobenius, not {form.divergence!r}; use Newton()"
            )
        yield bare_prior_point(form)
        yield from self.points(form)

    def points(self, form: Formulation) -> Iterator[Iterate]:
        """The same without the prior."""
        losses = form.losses
        written = WrittenForm(form.divergence, form.prior, WrittenRows.of(form.measurements), losses)
        rows = np.flatnonzero(_has_weight(form))
        all_rows = len(rows) == len(losses.bounds)
        weighty = written if all_rows else written.only(rows)

        def whole(point: Iterate) -> Iterate:
            return point if all_rows else _with_all_rows(point, rows, written.rows)

        stuck: Iterate | None = None  # the first run, where hard rows may contradict each other

        def search(run: Run) -> Iterator[Iterate]:
            nonlocal stuck
            stuck = whole(run.point())
            if form.is_strict:  # rows that only singular matrices meet have bounds of 0
                yield replace(stuck, ray=np.where(losses.bounds == 0, stuck.dual, 0.0))
            for proof in contradiction(written, form):
                yield replace(stuck, ray=proof)

        for place, run in enumerate(runs(weighty)):
            if place == _UNSTRETCHED and stuck is not None:
                for proof in contradiction(written, form, is_stretched=True):
                    yield replace(stuck, ray=proof)
            is_open, worth = place == 0 and losses.any_hard, first_look(self.tol)
            while run.is_promising and not run.is_blocked and run.advance():
                if run.is_worth_a_look(worth, form.unit):
                    yield whole(run.point())
                    worth = next_look(worth, self.tol)
                if is_open and run.is_stuck:
                    is_open = False
                    yield from search(run)
            if is_open:
                yield from search(run)
            # where M is nearly singular, its values are known better from the multipliers than by themselves
            yield from map(whole, polished(weighty, run.slacks.y, first_look(self.tol)))
        if losses.any_hard:
            yield from map(whole, self._relaxed_points(weighty, form.unit))

    def _relaxed_points(self, form: WrittenForm, unit: float) -> Iterator[Iterate]:
        """Points of the problem with room at its hard rows."""
        relaxed = Relaxed.of(form, ROOM * self.tol)
        for run in itertools.islice(runs(relaxed.form, _RELAXED_WORK), _RELAXED):
            while run.is_promising and run.advance():
                if run.is_worth_a_look(self.tol, unit):
                    yield relaxed.point(run.point())
            yield relaxed.point(run.point())
            for found in polished(relaxed.form, run.slacks.y, self.tol):
                yield relaxed.point(found)


@np.errstate(all="ignore")
def _has_weight(form: Formulation) -> Mask:
    """The rows that can move the optimum; what the others cost is far below rounding, and they get y = 0."""
    losses = form.losses
    sizes = np.maximum(losses.sizes, np.abs(losses.bounds))
    weight = losses.penalties * sizes ** (form.divergence.degree or 0.0)
    return losses.is_hard | ~(weight < _WEIGHTLESS * form.unit)


def _with_all_rows(point: Iterate, rows: Index, written: WrittenRows) -> Iterate:
    dual = np.zeros(written.n_rows)
    dual[rows] = point.dual
    return replace(point, values=written.values(point.factor), dual=dual)
