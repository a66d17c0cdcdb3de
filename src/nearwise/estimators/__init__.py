"""Learners with the interface of scikit-learn, one file each; what they share is in the private files.

`fit` validates the data, turns objects into features, learns a matrix for them, and exposes it: `_side` reads
labels and constraints, `_bases` and `_kernel_bases` make features, `_learning` learns, `_base` does the rest.
"""

from nearwise.estimators._base import PriorKeptWarning
from nearwise.estimators.kernel_learner import KernelLearner
from nearwise.estimators.kernel_reducer import KernelReducer
from nearwise.estimators.metric_learner import MetricLearner

__all__ = ["KernelLearner", "KernelReducer", "MetricLearner", "PriorKeptWarning"]
