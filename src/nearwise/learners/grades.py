"""How well a metric orders objects: scores, and the share that every unit has in them.

A `Grade` is a score with what its single units (objects, constraints) contribute to it, so that the standard
error of a difference is known where two metrics are graded on the same units. `first_as_good` chooses by it,
and the figures of `nearwise.study` have their intervals from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Codes, Index
from nearwise.learners._side import Side, counting
from nearwise.side import drawing

NOISE = 0.5  # standard errors by which a score has to be higher than that of something simpler
_SCORED_PAIRS = 50_000  # of all pairs of labelled objects, above which a sample is graded


@dataclass(frozen=True, eq=False)
class Grade:
    """A score on what is held out, higher is better; `each` of its units has one, and it is their mean."""

    score: float
    each: Array

    def lead(self, other: Grade) -> tuple[float, float]:
        """By how much this score is higher than another on the same units, and the standard error of that."""
        if len(self.each) < 2:
            return self.score - other.score, 0.0
        difference = self.each - other.each
        return self.score - other.score, float(np.std(difference, ddof=1) / np.sqrt(len(difference)))


def first_as_good(grades: Sequence[Grade], noise: float = NOISE) -> int:
    """The first whose score is within `noise` standard errors of the highest; they stand simplest first."""
    best = grades[int(np.argmax([grade.score for grade in grades]))]
    leads = (best.lead(grade) for grade in grades)
    return next(place for place, (lead, error) in enumerate(leads) if lead <= noise * error)


def by_neighbors(scoring: str, found: Codes, own: Codes, weights: Array | None) -> Grade:
    """How well the classes of the neighbours tell that of an object.

    Parameters
    ----------
    scoring : "neighbors", the share of the own class among the neighbours; "accuracy", whether it is the one
        that most of them have, among equals the first; "balanced_accuracy", the same with every class
        counting alike
    found : the classes of the neighbours, one row per object
    own : the class of every object
    weights : of the objects
    """
    if scoring == "neighbors":
        right = np.mean(found == own[:, np.newaxis], axis=1)
    else:
        votes = np.zeros((len(found), int(max(found.max(), own.max())) + 1))
        np.add.at(votes, (np.arange(len(found))[:, np.newaxis], found), 1.0)
        right = (votes.argmax(axis=1) == own).astype(np.float64)
    weight = np.ones(len(own)) if weights is None else weights[:]
    if scoring == "balanced_accuracy":
        totals = np.bincount(own, weights=weight)
        weight = weight / np.where(totals > 0, totals, 1.0)[own]
    right = right * weight / weight.mean()
    return Grade(float(right.mean()), right)


@dataclass(frozen=True, eq=False)
class Part:
    """A mean as a part of a score: what its members have, their weights, that of the part, and the mean.

    `samples` is the number of samples that the mean depends on: an area under the ROC curve depends on near
    and on far pairs, and each of the two means over one of them moves by what the other sample has, too.
    """

    values: Array
    weights: Array
    total: float
    mean: float
    samples: int = 1


def area_under_roc(near: Array, far: Array, near_weights: Array, far_weights: Array) -> tuple[Part, Part]:
    """How often what shall be near is nearer than what shall be far: both parts have the area as their mean.

    The value of a similar pair is the share of the dissimilar ones that are farther, and that of a dissimilar
    pair the share of the similar ones that are nearer; equal distances count half.
    """
    total = float(near_weights.sum() + far_weights.sum())
    not_beyond, nearer = _below(near, far, far_weights), _below(far, near, near_weights)
    # of whole weights a sum of whole numbers, which does not depend on their order
    area = float(far_weights @ nearer) / float(near_weights.sum() * far_weights.sum())
    return (
        Part(1.0 - not_beyond / far_weights.sum(), near_weights, total / 2, area, samples=2),
        Part(nearer / near_weights.sum(), far_weights, total / 2, area, samples=2),
    )


def together(parts: Sequence[Part], units: Sequence[Index] | None = None, n_units: int = 0) -> Grade:
    """The mean of parts by their totals, with what each member contributes, or each unit that has a part.

    `units` are the units that every member of a part consists of, one row per member: a pair consists of two
    objects. What an object contributes is all that would be missing without it, so that the error of a mean
    over pairs that share objects is not that of independent pairs.
    """
    share = np.array([part.total for part in parts]) / sum(part.total for part in parts)
    score = float(np.sum([a * part.mean for a, part in zip(share, parts, strict=True)]))
    moved = [
        a * part.samples * part.weights * (part.values - part.mean) / part.weights.sum()
        for a, part in zip(share, parts, strict=True)
    ]
    if units is None:
        contributions = np.concatenate(moved)
        return Grade(score, score + len(contributions) * contributions)
    contributions = np.zeros(n_units)
    for rows, change in zip(units, moved, strict=True):
        np.add.at(contributions, rows, change[:, np.newaxis])
    return Grade(score, score + n_units * contributions)


def share_in_order(
    side: Side,
    squared_distances: Callable[[Index, Index], Array],
    rng: np.random.RandomState,
    weights: Array | None = None,
) -> float:
    """How often something that shall be nearer is nearer, under the given squared distances of rows i, j.

    From labels and from bounds on distances: of all combinations of a similar with a dissimilar pair, the
    share in which the similar one is nearer (the area under the ROC curve). From comparisons: the share that
    holds. From measured distances ("=="): of all combinations of two that differ, the share in which the
    smaller one is (the index of concordance). Where there are several, their mean, weighted by the number of
    pairs, of comparisons and of measurements. Constraints count by their weights; where the objects have
    weights too, times the product of those of its objects.
    """
    parts = parts_in_order(side, squared_distances, rng, weights)
    parts += _concordance(side, squared_distances, rng, weights)
    if not parts:
        raise ValueError(
            "nothing to score by: needs labels y with two classes and two objects of one class, or "
            "constraints with similar and dissimilar pairs, comparisons, or two different measured distances "
            "among these objects. In "
            "cross-validation, cv=StratifiedKFold() keeps all classes in all parts, and constraints and "
            "sample_ids reach score by metadata routing: sklearn.set_config(enable_metadata_routing=True)"
        )
    return together(parts).score


def parts_in_order(
    side: Side,
    squared_distances: Callable[[Index, Index], Array],
    rng: np.random.RandomState,
    weights: Array | None = None,
) -> list[Part]:
    """What `share_in_order` is the mean of; none where there is nothing that has an order."""
    similar, dissimilar = (counting(rows, counts, weights) for rows, counts in _graded_pairs(side, rng))
    parts: list[Part] = []
    if len(similar[0]) and len(dissimilar[0]):
        near, far = (squared_distances(*rows.T) for rows, _ in (similar, dissimilar))
        parts += area_under_roc(near, far, similar[1], dissimilar[1])
    for block in side.constraints.blocks:
        if block.of_kind.n_distances != 2:
            continue
        rows, weight = counting(block.object_ids, block.counts, weights)
        if len(rows):
            margin = squared_distances(*rows[:, 2:].T)
            margin -= squared_distances(*rows[:, :2].T)
            holds, total = (np.sign(margin) + 1.0) / 2.0, float(weight.sum())
            parts.append(Part(holds, weight, total, float(weight @ holds) / total))
    return parts


def _concordance(
    side: Side,
    squared_distances: Callable[[Index, Index], Array],
    rng: np.random.RandomState,
    weights: Array | None,
) -> list[Part]:
    """How often the smaller of two measured distances is the smaller one; of many, some are drawn."""
    wanted, rows, counts = [np.empty(0)], [drawing.NO_PAIRS], [np.empty(0)]
    for block in side.constraints.blocks:
        if block.kind == "distance" and block.relation == 0:
            ids = block.object_ids
            kept = np.ones(len(ids), bool) if weights is None else (weights[ids] > 0).all(axis=1)
            named, weight = counting(ids, block.counts, weights)
            wanted, rows, counts = [*wanted, block.bounds[kept]], [*rows, named], [*counts, weight]
    given, pairs, weight = np.concatenate(wanted), np.concatenate(rows), np.concatenate(counts)
    m = len(given)
    many = m * (m - 1) // 2 > _SCORED_PAIRS
    i, j = rng.randint(m, size=(2, _SCORED_PAIRS)) if many else np.triu_indices(m, 1)
    differ = given[i] != given[j]
    i, j = i[differ], j[differ]
    if not len(i):
        return []
    found = squared_distances(*pairs.T)
    holds = (np.sign((found[j] - found[i]) * np.sign(given[j] - given[i])) + 1.0) / 2.0
    relative = weight / weight.max()
    both = relative[i] * relative[j]
    share = min(float(both @ holds) / float(both.sum()), 1.0)  # which rounding may exceed
    return [Part(holds, both, float(weight.sum()), share)]


def _graded_pairs(side: Side, rng: np.random.RandomState) -> tuple[tuple[Index, Array], tuple[Index, Array]]:
    """Similar and dissimilar pairs, each with their weights."""
    blocks = [block for block in side.constraints.blocks if block.tells_pairs]
    drawn: tuple[Index, ...] = (np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
    if side.codes is not None:
        drawn = drawing.random_pairs(side.codes, _SCORED_PAIRS, rng)
    found = []
    for sign, others in zip((-1, 1), drawn, strict=True):
        given = [block for block in blocks if block.relation == sign]
        rows = np.concatenate([*(block.object_ids for block in given), others])
        found.append((rows, np.concatenate([*(block.counts for block in given), np.ones(len(others))])))
    return found[0], found[1]


def _below(values: Array, others: Array, weights: Array) -> Array:
    """The weight of the others that are smaller than each value; equal ones count half."""
    order = np.argsort(others, kind="stable")
    sums: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(weights[order])])
    ordered = others[order]
    below, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray((sums[below] + sums[upto]) / 2.0)
