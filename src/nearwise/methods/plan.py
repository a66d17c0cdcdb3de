"""Which methods `solve` runs when the user names none, best first; the next begins where one ends undecided.

1. Hard constraints that far outnumber the unknowns: the papers' cyclic projections, while they converge.
2. Few hard constraints: a few steps of Newton's method on the dual. Near the prior they are all it takes.
3. Hard constraints that can be written out, and few soft ones: the interior-point method. It does not depend
   on how far the bounds are from the prior.
4. Everything else: Newton's method, then the interior point where the constraints can be written out.
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

WRITTEN_OUT = (
    8_000_000  # numbers in all constraint matrices, 64 MB; above, forming them costs more than Newton
)
LARGEST_ORDER = 80  # of M for the interior point, whose steps take O(r^6) at worst: 1 s at 80
FEW_ROWS = 1000  # of which a dual Newton step takes less than one of the interior point
QUICK = 2_000_000  # numbers in the constraints up to which that is so
FEW_SOFT = 30_000  # numbers up to which soft rows are solved faster by the interior point than by Newton

# Points of Newton's method before the interior point, at least, and numbers in the constraints for one more:
# where they are many, a step of the interior point costs so much more.
PATIENCE, PER_STEP = 25, 20_000


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
    numbers = form.measured.n_rows * form.order * (form.order + 1) // 2
    any_hard = form.measured.any_hard
    writable = form.order <= LARGEST_ORDER and numbers <= WRITTEN_OUT
    in_memory = form.measured.is_in_memory
    quick = in_memory and form.measured.n_rows <= FEW_ROWS and numbers <= QUICK
    if quick and (any_hard or (numbers <= FEW_SOFT and not has_start)):
        yield Stage(DualNewton())
    if in_memory and writable and (any_hard or (numbers <= FEW_SOFT and not has_start)):
        yield Stage(InteriorPoint(tol))
        if any_hard:
            return
    if not writable:
        yield Stage(Newton())
        return
    yield Stage(Newton(), most=max(PATIENCE, numbers // PER_STEP))
    yield Stage(InteriorPoint(tol) if in_memory else OnLoadedRows(InteriorPoint(tol)))


@dataclass(frozen=True)
class OnLoadedRows:
    """A solver that needs all rows, for rows in chunks that are few enough to be brought to memory."""

    solver: Solver

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """Its points; their multipliers are the slopes of the losses."""
        for point in self.solver.iterates(loaded(form)):
            yield Iterate(point.factor, solver=type(self.solver).__name__)
