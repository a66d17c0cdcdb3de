"""How a problem is solved: one loop, the solvers it runs, and what it hands back.

Other rooms import what stands here, and nothing else of this room.
"""

from nearwise.methods.diagonal import DiagonalResult, solve_diagonal
from nearwise.methods.interior import InteriorPoint
from nearwise.methods.loop import Loop
from nearwise.methods.low_rank import ThinFactor
from nearwise.methods.newton import Newton
from nearwise.methods.plan import Solver
from nearwise.methods.result import CONTRADICTION, Record, Result, Status
from nearwise.methods.solve import solve

__all__ = [
    "CONTRADICTION",
    "DiagonalResult",
    "InteriorPoint",
    "Loop",
    "Newton",
    "Record",
    "Result",
    "Solver",
    "Status",
    "ThinFactor",
    "solve",
    "solve_diagonal",
]
