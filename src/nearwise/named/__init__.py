"""Named problems: well-known uses of the framework, one function each."""

from nearwise.named._result import NearestMatrix
from nearwise.named.boosting import BoostResult, BoostStep, definite_boost
from nearwise.named.correlation import nearest_correlation, nearest_covariance
from nearwise.named.cut import Cut, balanced_cut
from nearwise.named.embedding import Embedding, isometric_embedding
from nearwise.named.sdp import SdpResult, logdet_sdp, minimax_sdp

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
