"""Solvers: how a problem is solved. Each is a frozen dataclass of settings with one method, `iterates`.

`Newton`, `InteriorPoint`, `CyclicProjections` and `ApproximateProjections` solve problems with a divergence,
and `ThinFactor` those in the Frobenius norm whose solution has a low rank.
`ConjugateGradients` and `Armijo` go down on the geometries of fixed-rank and full-rank matrices and of
subspaces, which are here too: `minimise` runs them on a cost, `pass_over` goes over its samples online. A
cost is a `Regression` on the forms of vectors, matrices or constraints, or a `Projection` on subspaces.
"""

from nearwise.core import Formulation, Iterate
from nearwise.fixed_rank.cone import AffineInvariant, LogEuclidean
from nearwise.fixed_rank.conjugate import ConjugateGradients
from nearwise.fixed_rank.descent import Armijo
from nearwise.fixed_rank.driver import minimise
from nearwise.fixed_rank.geometry import Flat, Polar
from nearwise.fixed_rank.online import Schedule, Stream, pass_over, searched_schedule
from nearwise.fixed_rank.regression import Regression, constraint_forms, matrix_forms, vector_forms
from nearwise.fixed_rank.subspace import Grassmann, Projection
from nearwise.methods import InteriorPoint, Newton, ThinFactor
from nearwise.papers import ApproximateProjections, CyclicProjections

__all__ = [
    "AffineInvariant",
    "ApproximateProjections",
    "Armijo",
    "ConjugateGradients",
    "CyclicProjections",
    "Flat",
    "Formulation",
    "Grassmann",
    "InteriorPoint",
    "Iterate",
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
