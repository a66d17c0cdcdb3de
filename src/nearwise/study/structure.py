"""Metrics of a simple form: what weighs how much, and groups of columns by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearwise._common.errors import Refused
from nearwise._common.types import Array
from nearwise.learners.coordinate_metrics import DiagonalMetric
from nearwise.learners.metric import Metric
from nearwise.study.before_after import Missing, learner_of, start_metric
from nearwise.study.inspection import input_names


@dataclass(frozen=True, eq=False)
class Weights:
    """How much every feature, or every block of features, weighs: its entries on the diagonal of M, averaged.

    Attributes
    ----------
    names : of the features or blocks
    columns : the names of the features of every block
    before, after : the weights that the fit started from and ended with
    of_blocks : whether the features are in blocks
    """

    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    before: Array
    after: Array
    of_blocks: bool


def weights(model: Any, names: Sequence[str] | None = None) -> Weights:
    """Of a `MetricLearner` with a `structure`; `names` are those of the features of the data."""
    learner = learner_of(model)
    if getattr(learner, "structure", None) is None:
        raise Missing("Only a learner with structure='diagonal' or 'blocks' has weights of its own.")
    metric = learner.metric_
    named = input_names(model, names, metric.n_features)
    before, after = (_diagonal(found) for found in (start_metric(learner, None), metric))
    if isinstance(metric, DiagonalMetric):
        return Weights(named, tuple((name,) for name in named), before, after, of_blocks=False)
    groups = learner.groups_
    columns = [np.flatnonzero(groups == group) for group in range(int(groups.max()) + 1)]
    lists = tuple(tuple(named[k] for k in part) for part in columns)
    given = learner.groups if isinstance(learner.groups, dict) else {}
    called = tuple(
        str(name) if name is not None else " + ".join(part)
        for name, part in zip([*given, *[None] * (len(lists) - len(given))], lists, strict=True)
    )
    old, new = (np.array([values[part].mean() for part in columns]) for values in (before, after))
    return Weights(called, lists, old, new, of_blocks=True)


def column_groups(groups: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[int]]:
    """Column numbers of groups of names; one that became several columns, as `colour_red`, means all."""
    found = []
    for group in groups:
        places: list[int] = []
        for name in group:
            exact = [k for k, known in enumerate(names) if known == name]
            made = exact or [k for k, known in enumerate(names) if known.startswith(f"{name}_")]
            if not made:
                known_names = ", ".join(map(repr, names[:8]))
                raise Refused(f"no column {name!r} is learned from; there are {known_names}")
            places += made
        found.append(places)
    return found


def _diagonal(metric: Any) -> Array:
    if isinstance(metric, DiagonalMetric):
        return metric.weights
    assert isinstance(metric, Metric)
    if metric.basis is not None:
        return np.ones(metric.n_features)  # the Euclidean distance
    return np.einsum("ij,ij->i", metric.factor, metric.factor)
