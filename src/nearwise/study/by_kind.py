"""What single figures summarise: every class, every measured distance, every triplet, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.model.blocks import Block, Constraints
from nearwise.study.before_after import Missing, learner_of, measures
from nearwise.study.evaluation import (
    LARGEST_SAMPLE,
    Distance,
    best_multiple,
    nearest_outcomes,
)

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
    if len(asked) > LARGEST_SAMPLE:
        asked = np.sort(np.random.RandomState(seed).permutation(asked)[:LARGEST_SAMPLE])
    known = asked if others is None else others
    if len(known) < 2:
        raise Missing("There are too few labelled rows to have neighbours.")
    counts = np.bincount(codes[asked], minlength=len(names))
    found = []
    for distance in (before, after):
        wrong, _ = nearest_outcomes(distance, codes, asked, known, others is None)
        right = np.bincount(codes[asked], 1.0 - wrong, minlength=len(names))
        found.append(right / np.maximum(counts, 1))
    kept = np.flatnonzero(counts).tolist()
    return ClassRecall(tuple(names[k] for k in kept), counts[kept], found[0][kept], found[1][kept])


def measured_distances(model: Any, X: Any, constraints: Constraints, seed: int = 0) -> MeasuredDistances:
    """Known distances beside the learned ones; constraints by row number."""
    blocks = [block for block in constraints.blocks if _is_measured(block)]
    if not blocks:
        raise Missing("No distances were measured.")
    before, after = _both(model, X)
    pairs = np.concatenate([block.object_ids for block in blocks])
    given = np.sqrt(np.concatenate([block.bounds for block in blocks]))
    if len(given) > POINTS:
        rows = np.sort(np.random.RandomState(seed).permutation(len(given))[:POINTS])
        pairs, given = pairs[rows], given[rows]
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
    start = next((score for penalty, score in scores if penalty == 0), float("nan"))
    penalties, found = np.array(tried, dtype=np.float64).T
    return PenaltyPath(penalties, found, float(start), getattr(learner, "penalty_", None))


def _both(model: Any, X: Any) -> tuple[Distance, Distance]:
    before, after = measures(model, X)
    if before is None:
        raise Missing("The distance before is not known.")
    return before, after


def _is_measured(block: Block) -> bool:
    return block.of_kind.n_distances == 1 and block.relation == 0
