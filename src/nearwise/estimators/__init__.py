"""Learners with the interface of scikit-learn, one file each; what they share is in the private files.

`fit` validates the data, turns objects into features, learns a matrix for them, and exposes it: `_side` reads
labels and constraints, `_bases` and `_kernel_bases` make features, `_learning` learns, `_feedback` reads
streams, `_base` does the rest.
"""

from nearwise.estimators._base import PriorKeptWarning, WorseThanEuclideanWarning
from nearwise.estimators._side import UnknownIdsWarning
from nearwise.estimators.fixed_rank_embedding import FixedRankEmbedding
from nearwise.estimators.fixed_rank_learner import FixedRankLearner
from nearwise.estimators.fixed_rank_regressor import FixedRankRegressor
from nearwise.estimators.kernel_learner import KernelLearner
from nearwise.estimators.kernel_reducer import KernelReducer
from nearwise.estimators.metric_learner import MetricLearner
from nearwise.estimators.online_learner import OnlineLearner

__all__ = [
    "FixedRankEmbedding",
    "FixedRankLearner",
    "FixedRankRegressor",
    "KernelLearner",
    "KernelReducer",
    "MetricLearner",
    "OnlineLearner",
    "PriorKeptWarning",
    "UnknownIdsWarning",
    "WorseThanEuclideanWarning",
]
