"""Named problems: well-known uses of the framework, one function each."""

from nearwise.problems._result import NearestMatrix
from nearwise.problems.correlation import nearest_correlation, nearest_covariance

__all__ = ["NearestMatrix", "nearest_correlation", "nearest_covariance"]
