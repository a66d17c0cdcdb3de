"""Solvers: how a problem is solved. Each is a frozen dataclass of settings with one method, `iterates`.

`Newton`, `InteriorPoint`, `CyclicProjections` and `ApproximateProjections` solve problems with a divergence,
and `ThinFactor` those in the Frobenius norm whose solution has a low rank.
`ConjugateGradients` and `Armijo` go down on the geometries of fixed-rank and full-rank matrices and of
subspaces, which are here too: `minimise` runs them on a cost, `pass_over` goes over its samples online. A
cost is a `Regression` on the forms of vectors, matrices or constraints, or a `Projection` on subspaces.
"""

from nearwise.solvers._cone import AffineInvariant, LogEuclidean
from nearwise.solvers._conjugate import ConjugateGradients
from nearwise.solvers._descent import Armijo
from nearwise.solvers._geometry import Flat, Polar
from nearwise.solvers._regression import Regression, constraint_forms, matrix_forms, vector_forms
from nearwise.solvers.approximate import ApproximateProjections
from nearwise.solvers.fixed_rank import minimise
from nearwise.solvers.fixed_rank_online import Schedule, Stream, pass_over, searched_schedule
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
    "Regression",
    "Schedule",
    "Stream",
    "ThinFactor",
    "constraint_forms",
    "matrix_forms",
    "minimise",
    "pass_over",
    "searched_schedule",
    "vector_forms",
]
