"""Named problems: well-known uses of the framework, one function each."""

from nearwise.problems._result import NearestMatrix
from nearwise.problems.boosting import BoostResult, BoostStep, definite_boost
from nearwise.problems.correlation import nearest_correlation, nearest_covariance

__all__ = [
    "BoostResult",
    "BoostStep",
    "NearestMatrix",
    "definite_boost",
    "nearest_correlation",
    "nearest_covariance",
]
