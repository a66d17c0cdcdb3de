"""What single figures summarise, before and after: every class, measured distance, triplet and weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearwise._common import checks
from nearwise._common.types import Array, Index
from nearwise.side import Constraints
from nearwise.study.before_after import Distance, Missing, learner_of, measures, start_metric
from nearwise.study.figures import LARGEST_SAMPLE, best_multiple, nearest_classes, rightly_called, sample
from nearwise.study.inspection import input_names

POINTS = 1_000  # measured distances that are shown; of more, a sample


@dataclass(frozen=True, eq=False)
class ClassRecall:
    """The share of objects of every class that five nearest neighbours call by it.

    Attributes
    ----------
    names, counts : of the classes, and how many objects of each were asked for
    before, after : the shares
    """

    names: tuple[str, ...]
    counts: Index
    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class MeasuredDistances:
    """Distances that are known, beside those before, in the unit in which they fit best, and after."""

    given: Array
    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class Margins:
    """(far - near) / (far + near) of the two distances of every triplet: positive where it holds."""

    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """The penalties that were tried, with their scores on what was held out then.

    Attributes
    ----------
    penalties, scores : of what was tried, in the order of the penalties
    start : the score of the distance before; NaN where it was no candidate
    chosen : the penalty that was taken; None where the distance before was kept
    """

    penalties: Array
    scores: Array
    start: float
    chosen: float | None


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


def class_recall(
    model: Any,
    X: Any,
    codes: Index,
    names: Sequence[str],
    queries: Index | None = None,
    among: Index | None = None,
    seed: int = 0,
) -> ClassRecall:
    """The recall of every class; by default of all labelled rows, each among the others."""
    before, after = _both(model, X)
    labelled = np.flatnonzero(codes >= 0)
    asked = labelled if queries is None or not len(queries) else queries
    others = None if among is None or not len(among) else among
    asked = sample(asked, LARGEST_SAMPLE, np.random.RandomState(checks.seed(seed)))
    known = asked if others is None else others
    if len(known) < 2:
        raise Missing("There are too few labelled rows to have neighbours.")
    counts = np.bincount(codes[asked], minlength=len(names))
    found = []
    for distance in (before, after):
        right = rightly_called(nearest_classes(distance, codes, asked, known, others is None), codes[asked])
        found.append(np.bincount(codes[asked], right, minlength=len(names)) / np.maximum(counts, 1))
    kept = np.flatnonzero(counts).tolist()
    return ClassRecall(tuple(names[k] for k in kept), counts[kept], found[0][kept], found[1][kept])


def measured_distances(model: Any, X: Any, constraints: Constraints, seed: int = 0) -> MeasuredDistances:
    """Known distances beside the learned ones; constraints by row number."""
    blocks = [b for b in constraints.blocks if b.of_kind.n_distances == 1 and b.relation == 0]
    if not blocks:
        raise Missing("No distances were measured.")
    before, after = _both(model, X)
    pairs = np.concatenate([block.object_ids for block in blocks])
    rows = sample(np.arange(len(pairs)), POINTS, np.random.RandomState(checks.seed(seed)))
    pairs, given = pairs[rows], np.sqrt(np.concatenate([block.bounds for block in blocks])[rows])
    old, new = (np.sqrt(np.maximum(distance.pairs(*pairs.T), 0.0)) for distance in (before, after))
    sizes = np.where(given > 0, given, 1.0)
    return MeasuredDistances(given, old * best_multiple(old / sizes, given / sizes), new)


def margins(model: Any, X: Any, constraints: Constraints) -> Margins:
    """How clearly triplets hold; constraints by row number."""
    blocks = [block for block in constraints.blocks if block.of_kind.n_distances == 2]
    if not blocks:
        raise Missing("There are no triplets.")
    before, after = _both(model, X)
    ids = np.concatenate([block.object_ids for block in blocks])
    old, new = (relative_margins(distance, ids) for distance in (before, after))
    return Margins(old, new)


def relative_margins(distance: Distance, ids: Index) -> Array:
    """(far - near) / (far + near) of comparisons of two pairs; 0 where both distances are."""
    near, far = (np.sqrt(np.maximum(distance.pairs(*ids[:, part].T), 0.0)) for part in ([0, 1], [2, 3]))
    total = near + far
    return np.asarray((far - near) / np.where(total > 0, total, 1.0))


def penalty_path(model: Any) -> PenaltyPath:
    """The penalties that the learner tried."""
    learner = learner_of(model)
    scores = getattr(learner, "penalty_scores_", ())
    tried = sorted((penalty, score) for penalty, score in scores if penalty > 0)
    if not tried:
        raise Missing("No penalty was chosen: it was given, or too little is known to choose one.")
    # where kinds compete and scores are learned, penalty 0 keeps these scores, not the distance before
    made = getattr(learner, "choice_", "") in ("linear+rbf", "rbf")
    kept = float("nan") if made else dict(scores).get(0.0, float("nan"))
    compared: dict[str, float] = dict(getattr(learner, "choice_scores_", ()))
    start = float(compared.get("euclidean", kept))
    penalties, found = np.array(tried, dtype=np.float64).T
    return PenaltyPath(penalties, found, start, getattr(learner, "penalty_", None))


def weights(model: Any, names: Sequence[str] | None = None) -> Weights:
    """Of a `MetricLearner` with a `structure`; `names` are those of the features of the data."""
    learner = learner_of(model)
    if getattr(learner, "structure", None) is None:
        raise Missing("Only a learner with structure='diagonal' or 'blocks' has weights of its own.")
    metric = learner.metric_
    named = input_names(model, names, metric.n_features)
    before, after = start_metric(learner).column_weights, metric.column_weights
    if learner.structure == "diagonal":
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


def _both(model: Any, X: Any) -> tuple[Distance, Distance]:
    before, after = measures(model, X)
    if before is None:
        raise Missing("The distance before is not known.")
    return before, after
