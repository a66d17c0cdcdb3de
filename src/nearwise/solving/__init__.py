"""How a problem is solved: one driver, the solvers it runs, and what it hands back.

Other rooms import what stands here, and nothing else of this room.
"""

from nearwise.solving.approximate import ApproximateProjections, definite_step
from nearwise.solving.diagonal import DiagonalResult, solve_diagonal
from nearwise.solving.driver import Solver, solve
from nearwise.solving.interior import InteriorPoint
from nearwise.solving.loop import Loop
from nearwise.solving.newton import Newton
from nearwise.solving.projections import CyclicProjections
from nearwise.solving.result import CONTRADICTION, Record, Result, Status
from nearwise.solving.thin import ThinFactor

__all__ = [
    "CONTRADICTION",
    "ApproximateProjections",
    "CyclicProjections",
    "DiagonalResult",
    "InteriorPoint",
    "Loop",
    "Newton",
    "Record",
    "Result",
    "Solver",
    "Status",
    "ThinFactor",
    "definite_step",
    "solve",
    "solve_diagonal",
]
