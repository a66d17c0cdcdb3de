"""What is wanted: constraints, divergences and losses, bound to features as a problem with a certificate.

Other rooms import what stands here, and nothing else of this room."""

from nearwise.model.atoms import constraint_atoms
from nearwise.model.binding import unreachable
from nearwise.model.certificate import Certificate, InfeasibilityCheck, Violation, relative_gap
from nearwise.model.diagonal import DiagonalProblem
from nearwise.model.divergence_check import check_divergence
from nearwise.model.divergences import Divergence, Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.problem import Problem
from nearwise.model.proofs import check_infeasibility
from nearwise.model.squares import SquaresInPieces

__all__ = [
    "Certificate",
    "DiagonalProblem",
    "Divergence",
    "Formulation",
    "Frobenius",
    "InfeasibilityCheck",
    "Iterate",
    "LogDet",
    "Problem",
    "SpectralDivergence",
    "SquaresInPieces",
    "Violation",
    "VonNeumann",
    "check_divergence",
    "check_infeasibility",
    "constraint_atoms",
    "relative_gap",
    "unreachable",
]
