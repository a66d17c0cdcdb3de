"""The problem: rows, divergences, losses, the formulation that judges points and proofs, and `Problem`.

Other rooms import what stands here, and nothing else of this room.
"""

from nearwise.core.binding import unreachable
from nearwise.core.certificate import Certificate, InfeasibilityCheck, Violation, relative_gap
from nearwise.core.diagonal import DiagonalProblem
from nearwise.core.divergence_check import check_divergence
from nearwise.core.divergences import (
    Frobenius,
    LogDet,
    SpectralDivergence,
    SpectralDivergence as Divergence,
    VonNeumann,
)
from nearwise.core.formulation import Formulation
from nearwise.core.in_chunks import SquaresInPieces
from nearwise.core.iterates import Iterate
from nearwise.core.losses import SATISFIED
from nearwise.core.problem import Problem
from nearwise.core.tolerance import Tolerance
from nearwise.core.verify import check_infeasibility, verify

__all__ = [
    "SATISFIED",
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
    "Tolerance",
    "Violation",
    "VonNeumann",
    "check_divergence",
    "check_infeasibility",
    "relative_gap",
    "unreachable",
    "verify",
]
