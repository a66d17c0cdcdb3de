"""Which methods `solve` runs when the user names none, best first; the next begins where one ends undecided.

1. Few hard constraints: a few steps of Newton's method on the dual. Near the prior they are all it takes.
2. Hard constraints that can be written out, and few soft ones: the interior-point method. It does not depend
   on how far the bounds are from the prior.
3. More hard constraints, far more than unknowns: some sweeps of the papers' cyclic projections.
4. Everything else: Newton's method, then the interior point where soft constraints can be written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nearwise.core.formulation import Formulation
from nearwise.core.in_chunks import loaded
from nearwise.core.iterates import Iterate
from nearwise.methods.dual import DualNewton
from nearwise.methods.interior import InteriorPoint
from nearwise.methods.newton import Newton
from nearwise.papers.projections import CyclicProjections

WRITTEN_OUT = (
    8_000_000  # numbers in all constraint matrices, 64 MB; above, forming them costs more than Newton
)
LARGEST_ORDER = 80  # of M for the interior point, whose steps take O(r^6) at worst: 1 s at 80
FEW_ROWS = 1000  # of which a dual Newton step takes less than one of the interior point
FEW_SOFT = 30_000  # numbers up to which soft rows are solved faster by the interior point than by Newton
PATIENCE = 100  # points of Newton's method before the interior point; those that converge need up to 60
SWEEPS = 48  # of projections; on contradictory rows they go on for ever


class Solver(Protocol):
    """How a problem is solved: settings, and a stream of better and better points.

    The first point is the start. The stream ends where the solver can make no more progress. A solver does
    not grade itself: `solve` certifies every point, and decides when to stop. One that can start elsewhere
    than at the prior takes a second argument `start`, a factor of M.
    """

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """Points of the formulation."""


class Stage(NamedTuple):
    """A solver, and how many of its points are followed; None for all."""

    solver: Solver
    most: int | None = None


def stages(form: Formulation, tol: float, has_start: bool) -> Iterator[Stage]:
    """The methods to try, best first."""
    unknowns = form.order * (form.order + 1) // 2
    m, any_hard = form.measured.n_rows, form.measured.any_hard
    numbers, in_memory = m * unknowns, form.measured.is_in_memory
    writable = form.order <= LARGEST_ORDER and numbers <= WRITTEN_OUT
    first = any_hard or (numbers <= FEW_SOFT and not has_start)
    if in_memory and first and m <= FEW_ROWS and numbers <= WRITTEN_OUT:
        yield Stage(DualNewton())
    if in_memory and first and writable:
        yield Stage(InteriorPoint(tol))
    elif any_hard and m > 10 * unknowns and _projections_are_cheap(form):
        yield Stage(CyclicProjections(), most=SWEEPS)
    if not writable:
        yield Stage(Newton())
    elif not any_hard:
        yield Stage(Newton(), most=PATIENCE)
        yield Stage(InteriorPoint(tol) if in_memory else OnLoadedRows(InteriorPoint(tol)))


def _projections_are_cheap(form: Formulation) -> bool:
    """Whether a projection takes O(r^2), as under LogDet, and no part of a value is fixed."""
    return form.divergence.congruence_invariant and form.rows.offsets is None


@dataclass(frozen=True)
class OnLoadedRows:
    """A solver that needs all rows, for rows in chunks that are few enough to be brought to memory."""

    solver: Solver

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """Its points; their multipliers are the slopes of the losses."""
        for point in self.solver.iterates(loaded(form)):
            yield Iterate(point.factor, solver=type(self.solver).__name__)
