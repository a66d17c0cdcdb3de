"""Learners with the interface of scikit-learn, one file each; what they share is in the private files.

`fit` validates the data, turns objects into features, learns a matrix for them, and exposes it: `_side` reads
labels and constraints, `_bases` and `_kernel_bases` make features, `_fits` learns, and `base` does the rest.
"""

from nearwise.learners._side import UnknownIdsWarning
from nearwise.learners.auto_learner import AutoLearner
from nearwise.learners.base import PriorKeptWarning, WorseThanEuclideanWarning
from nearwise.learners.fixed_rank_embedding import FixedRankEmbedding
from nearwise.learners.fixed_rank_learner import FixedRankLearner
from nearwise.learners.fixed_rank_regressor import FixedRankRegressor
from nearwise.learners.kernel_learner import KernelLearner
from nearwise.learners.kernel_reducer import KernelReducer, TruncationWarning
from nearwise.learners.metric_learner import MetricLearner
from nearwise.learners.neighbor_learner import NeighborLearner
from nearwise.learners.online_learner import OnlineLearner

__all__ = [
    "AutoLearner",
    "FixedRankEmbedding",
    "FixedRankLearner",
    "FixedRankRegressor",
    "KernelLearner",
    "KernelReducer",
    "MetricLearner",
    "NeighborLearner",
    "OnlineLearner",
    "PriorKeptWarning",
    "TruncationWarning",
    "UnknownIdsWarning",
    "WorseThanEuclideanWarning",
]
