"""Solvers: how a problem is solved. Each is a frozen dataclass of settings with one method, `iterates`."""

from nearwise.solvers.approximate import ApproximateProjections
from nearwise.solvers.newton import Newton
from nearwise.solvers.projections import CyclicProjections

__all__ = ["ApproximateProjections", "CyclicProjections", "Newton"]
