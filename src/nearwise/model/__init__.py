"""What is wanted: constraints, divergences and losses, bound to features as a problem with a certificate.

Other rooms import what stands here, and nothing else of this room. Five modules are here as wholes, `bounds`,
`constraints`, `drawing`, `labelling` and `relations`, whose names others write with the module before them.
"""

from nearwise.model import bounds, constraints, drawing, labelling, relations
from nearwise.model.atoms import constraint_atoms
from nearwise.model.binding import unreachable
from nearwise.model.blocks import Block, Constraints, Stated
from nearwise.model.certificate import Certificate, InfeasibilityCheck, Violation, relative_gap
from nearwise.model.constraints import (
    at_least,
    at_most,
    closer,
    dissimilar,
    equal,
    from_labels,
    from_tuples,
    linear,
    similar,
    similarity,
)
from nearwise.model.diagonal import DiagonalProblem
from nearwise.model.divergence_check import check_divergence
from nearwise.model.divergences import Divergence, Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.model.drawn import (
    from_chunks,
    quadruplets_from_labels,
    triplets_from_labels,
    triplets_from_targets,
)
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.kinds import Grade, KindName as Kind, Measure
from nearwise.model.left_out import LeftOutWarning, UnknownIdsWarning
from nearwise.model.matrices import Linear
from nearwise.model.problem import Problem
from nearwise.model.proofs import check_infeasibility
from nearwise.model.relations import Relation
from nearwise.model.squares import SquaresInPieces

__all__ = [
    "Block",
    "Certificate",
    "Constraints",
    "DiagonalProblem",
    "Divergence",
    "Formulation",
    "Frobenius",
    "Grade",
    "InfeasibilityCheck",
    "Iterate",
    "Kind",
    "LeftOutWarning",
    "Linear",
    "LogDet",
    "Measure",
    "Problem",
    "Relation",
    "SpectralDivergence",
    "SquaresInPieces",
    "Stated",
    "UnknownIdsWarning",
    "Violation",
    "VonNeumann",
    "at_least",
    "at_most",
    "bounds",
    "check_divergence",
    "check_infeasibility",
    "closer",
    "constraint_atoms",
    "constraints",
    "dissimilar",
    "drawing",
    "equal",
    "from_chunks",
    "from_labels",
    "from_tuples",
    "labelling",
    "linear",
    "quadruplets_from_labels",
    "relations",
    "relative_gap",
    "similar",
    "similarity",
    "triplets_from_labels",
    "triplets_from_targets",
    "unreachable",
]
