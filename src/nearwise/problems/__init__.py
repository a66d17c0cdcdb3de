"""Named problems: well-known uses of the framework, one function each."""

from nearwise.problems._result import NearestMatrix
from nearwise.problems.boosting import BoostResult, BoostStep, definite_boost
from nearwise.problems.correlation import nearest_correlation, nearest_covariance
from nearwise.problems.cut import Cut, balanced_cut
from nearwise.problems.embedding import Embedding, isometric_embedding
from nearwise.problems.sdp import SdpResult, logdet_sdp, minimax_sdp

__all__ = [
    "BoostResult",
    "BoostStep",
    "Cut",
    "Embedding",
    "NearestMatrix",
    "SdpResult",
    "balanced_cut",
    "definite_boost",
    "isometric_embedding",
    "logdet_sdp",
    "minimax_sdp",
    "nearest_correlation",
    "nearest_covariance",
]
