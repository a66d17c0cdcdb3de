"""Solvers: how a problem is solved. Each is a frozen dataclass of settings with one method, `iterates`.

`Newton`, `InteriorPoint`, `CyclicProjections` and `ApproximateProjections` solve problems with a divergence,
and `ThinFactor` those in the Frobenius norm whose solution has a low rank.
`ConjugateGradients` and `Armijo` go down on the geometries of fixed-rank and full-rank matrices and of
subspaces, which are here too.
"""

from nearwise.solvers._cone import AffineInvariant, LogEuclidean
from nearwise.solvers._conjugate import ConjugateGradients
from nearwise.solvers._descent import Armijo
from nearwise.solvers._geometry import Flat, Polar
from nearwise.solvers.approximate import ApproximateProjections
from nearwise.solvers.interior import InteriorPoint
from nearwise.solvers.newton import Newton
from nearwise.solvers.projections import CyclicProjections
from nearwise.solvers.subspace import Grassmann, Projection
from nearwise.solvers.thin import ThinFactor

__all__ = [
    "AffineInvariant",
    "ApproximateProjections",
    "Armijo",
    "ConjugateGradients",
    "CyclicProjections",
    "Flat",
    "Grassmann",
    "InteriorPoint",
    "LogEuclidean",
    "Newton",
    "Polar",
    "Projection",
    "ThinFactor",
]
