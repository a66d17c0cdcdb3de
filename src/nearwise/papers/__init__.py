"""The papers' own algorithms: Bregman projections onto one constraint after the other, exact or not."""

from nearwise.papers.approximate import ApproximateProjections, definite_step
from nearwise.papers.projections import CyclicProjections

__all__ = ["ApproximateProjections", "CyclicProjections", "definite_step"]
