"""How good a distance is on objects that it was not learned from, before and after, with intervals.

From labels: the error of five nearest neighbours, the share of queries that find one of their class, how
well clusters match classes, and how often a similar pair is nearer than a dissimilar one. From constraints:
the same order of pairs, the share of comparisons and bounds that hold, and the error of measured distances.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise.linalg.nearest import nearest
from nearwise.linalg.scaling import principal_coordinates
from nearwise.model import drawing
from nearwise.model.blocks import Constraints
from nearwise.study.resampling import (
    UNCLEAR,
    VERDICTS,
    Figure,
    Interval,
    Statistic,
    figure,
    mean,
    share,
)

Array = NDArray[np.float64]
Index = NDArray[np.int64]

__all__ = [
    "UNCLEAR",
    "VERDICTS",
    "Distance",
    "Figure",
    "Interval",
    "from_constraints",
    "from_labels",
    "labelled_pairs",
]

NEIGHBORS = 5
LARGEST_SAMPLE = 5_000  # queries and constraints measured; of more, a sample says as much
PAIRS = 20_000  # drawn from labels
_FEWEST_PAIRS = 5  # of a kind: resamples of fewer are too much alike to call a change clear
_CLUSTERED = 1_000  # objects that are clustered at most
_STARTS = 4  # of k-means


class Distance(Protocol):
    """Squared distances of the rows of one table, by row number."""

    def pairs(self, i: Index, j: Index) -> Array:
        """Of the rows i to the rows j, one by one."""

    def between(self, rows: Index, others: Index) -> Array:
        """Of all rows to all others."""


def from_labels(
    before: Distance,
    after: Distance,
    codes: Index,
    queries: Index,
    known: Index | None = None,
    seed: int = 0,
) -> list[Figure]:
    """Figures of labelled objects.

    Parameters
    ----------
    before, after : the two distances
    codes : the class of every row as a number, counted from 0 in the order of the labels
    queries : the rows that are measured; of more than 5,000 a sample
    known : the rows among which neighbours are searched; by default all queries but the one that asks
    seed : of all draws
    """
    rng = np.random.RandomState(seed)
    among = queries if known is None else known
    if len(queries) > LARGEST_SAMPLE:
        queries = np.sort(rng.permutation(queries)[:LARGEST_SAMPLE])
    found: list[Figure] = []
    if len(among) > 1:
        outcomes = [_outcomes(distance, codes, queries, among, known is None) for distance in (before, after)]
        errors, hits = zip(*outcomes, strict=True)
        found.append(share(f"{NEIGHBORS}-NN error", errors, True, seed))
        found.append(share(f"recall@{NEIGHBORS}", hits, False, seed))
    if (clustering := _clustering(before, after, codes, queries, rng)) is not None:
        found.append(clustering)
    if (order := _order_of_labels(before, after, codes, queries, rng)) is not None:
        found.append(order)
    return found


def from_constraints(
    before: Distance, after: Distance, constraints: Constraints, n_rows: int, seed: int = 0
) -> list[Figure]:
    """Figures of constraints by row number; of more than 5,000 of a kind, of a sample.

    Pairs without bounds, similar or dissimilar, are graded by their order, against random pairs where all are
    of one kind; comparisons and bounds by the share that holds; measured distances by their relative error,
    before in the unit in which that is smallest.
    """
    rng = np.random.RandomState(seed)
    ids: dict[str, list[Index]] = {}
    bounds: dict[str, list[Array]] = {}
    for block in constraints.blocks:
        is_open = np.isnan(block.bounds)
        for part, rows in (("open", is_open), ("given", ~is_open)):
            if rows.any() and block.ids is not None:
                kind = "comparison" if block.kind == "comparison" else f"{part} {block.relation:+d}"
                ids.setdefault(kind, []).append(block.ids[rows])
                bounds.setdefault(kind, []).append(block.bounds[rows])
    parts = {kind: _sampled(np.concatenate(ids[kind]), np.concatenate(bounds[kind]), rng) for kind in ids}
    found: list[Figure] = []
    none = np.empty((0, 2), np.int64)
    similar, dissimilar = (parts.get(kind, (none, None))[0] for kind in ("open -1", "open +1"))
    if len(similar) or len(dissimilar):
        found.append(_order_of_pairs(before, after, similar, dissimilar, n_rows, rng))
    if "comparison" in parts:
        rows, bound = parts["comparison"]
        holds = [(_difference(distance, rows) <= bound).astype(float) for distance in (before, after)]
        found.append(share("triplets in order", holds, False, seed))
    bounded = [(*parts[kind], sign) for kind, sign in (("given -1", -1), ("given +1", 1)) if kind in parts]
    if bounded:
        holds = [
            np.concatenate([sign * (distance.pairs(*rows.T) - bound) >= 0.0 for rows, bound, sign in bounded])
            for distance in (before, after)
        ]
        found.append(share("bounds that hold", [kept.astype(float) for kept in holds], False, seed))
    if "given +0" in parts:
        found.append(_measured(before, after, *parts["given +0"], seed))
    return found


def labelled_pairs(codes: Index, rows: Index, n_pairs: int, seed: int) -> tuple[Index, NDArray[np.bool_]]:
    """Pairs of the given rows, half of them within a class where possible, and which of them are."""
    same, different = drawing.random_pairs(_dense(codes[rows]), n_pairs, np.random.RandomState(seed))
    is_similar = np.arange(len(same) + len(different)) < len(same)
    return rows[np.concatenate([same, different])], is_similar


def _outcomes(
    distance: Distance, codes: Index, queries: Index, among: Index, leave_out: bool
) -> tuple[Array, Array]:
    """Whether five nearest neighbours err on every query, and whether one of them is of its class."""
    own = np.full(int(max(queries.max(), among.max())) + 1, -1)
    own[among] = np.arange(len(among))
    found = nearest(
        lambda rows, others: distance.between(queries[rows], among[others]),
        len(queries),
        len(among),
        min(NEIGHBORS, len(among) - leave_out),
        own[queries] if leave_out else None,
    )
    near = among[found]
    votes = np.zeros((len(queries), int(codes.max()) + 1), dtype=np.int64)
    np.add.at(votes, (np.arange(len(queries))[:, np.newaxis], codes[near]), 1)
    wrong = votes.argmax(axis=1) != codes[queries]  # of classes with equal votes, the first one
    hit = (codes[near] == codes[queries][:, np.newaxis]).any(axis=1)
    return wrong.astype(float), hit.astype(float)


def _clustering(
    before: Distance, after: Distance, codes: Index, queries: Index, rng: np.random.RandomState
) -> Figure | None:
    """How well k-means, asked for as many clusters as there are classes, finds the classes again."""
    from scipy import sparse

    rows = queries if len(queries) <= _CLUSTERED else np.sort(rng.permutation(queries)[:_CLUSTERED])
    labels = _dense(codes[rows])
    n_classes = int(labels.max()) + 1
    if n_classes < 2 or len(rows) <= n_classes:
        return None
    seed = int(rng.randint(2**31 - 1))
    statistics = []
    for distance in (before, after):
        clusters = _k_means(distance.between(rows, rows), n_classes, seed)
        cells = sparse.csr_array(
            (np.ones(len(rows)), (np.arange(len(rows)), labels * n_classes + clusters)),
            shape=(len(rows), n_classes**2),
        )

        def information(weights: Array, cells: sparse.csr_array = cells) -> Array:
            return _normalised_information((weights @ cells).reshape(len(weights), n_classes, n_classes))

        statistics.append(information)
    return figure("clustering NMI", statistics, [len(rows)], False, seed, percent=False)


def _k_means(squared: Array, n_clusters: int, seed: int) -> Index:
    """Clusters of objects of which only distances are known, by their principal coordinates."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    points = principal_coordinates(squared / (float(squared.max()) or 1.0))
    points = points if points.shape[1] else np.zeros((len(squared), 1))
    if len(np.unique(points.round(12), axis=0)) < n_clusters:
        points = points + 1e-9 * np.random.RandomState(seed).standard_normal(points.shape)
    with threadpool_limits(limits=1):  # sums of several threads come in any order
        found = KMeans(n_clusters, n_init=_STARTS, random_state=seed).fit_predict(points)
    return np.asarray(found, dtype=np.int64)


def _normalised_information(table: Array) -> Array:
    """Mutual information of the rows and columns of tables of counts, divided by their mean entropy.

    By hand, because scikit-learn's takes one clustering at a time and no weights, and a thousand resamples of
    weighted objects come at once here.
    """
    joint = table / table.sum(axis=(1, 2), keepdims=True)
    entropies = [_entropy(joint.sum(axis=axis)) for axis in (1, 2)]
    mean = (entropies[0] + entropies[1]) / 2
    information = entropies[0] + entropies[1] - _entropy(joint.reshape(len(table), -1))
    return np.where(mean > 0, np.maximum(information, 0.0) / np.where(mean > 0, mean, 1.0), 1.0)


def _entropy(shares: Array) -> Array:
    return -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)


def _order_of_labels(
    before: Distance, after: Distance, codes: Index, queries: Index, rng: np.random.RandomState
) -> Figure | None:
    """Resamples are of objects: a pair counts as often as the product of its objects' numbers."""
    seed = int(rng.randint(2**31 - 1))
    pairs, is_similar = labelled_pairs(codes, queries, PAIRS, seed)
    if is_similar.all() or not is_similar.any():
        return None
    places = np.searchsorted(queries, pairs)

    def statistic(distance: Distance) -> Statistic:
        area = _area(distance.pairs(*pairs.T), is_similar)
        return lambda weights: area(weights[:, places[:, 0]] * weights[:, places[:, 1]])

    return figure(_ORDER, [statistic(before), statistic(after)], [len(queries)], False, seed, len(pairs))


def _order_of_pairs(
    before: Distance,
    after: Distance,
    similar: Index,
    dissimilar: Index,
    n_rows: int,
    rng: np.random.RandomState,
) -> Figure:
    name = _GIVEN
    if not len(similar) or not len(dissimilar):
        i, j = rng.randint(n_rows, size=(2, LARGEST_SAMPLE))
        random = np.stack([i, j], axis=1)[i != j]
        name = _AGAINST_RANDOM
        similar, dissimilar = (similar, random) if len(similar) else (random, dissimilar)
    pairs = np.concatenate([similar, dissimilar])
    is_similar = np.arange(len(pairs)) < len(similar)
    statistics = [_area(distance.pairs(*pairs.T), is_similar) for distance in (before, after)]
    seed = int(rng.randint(2**31 - 1))
    found = figure(name, statistics, [len(similar), len(dissimilar)], False, seed)
    if min(len(similar), len(dissimilar)) >= _FEWEST_PAIRS or found.change is None:
        return found
    value, low, high = found.change
    return replace(found, change=Interval(value, min(low, 0.0), max(high, 0.0)))


def _area(values: Array, is_similar: NDArray[np.bool_]) -> Statistic:
    """The share of combinations in which the similar pair is nearer; ties count half, pairs by weight."""
    far = np.flatnonzero(~is_similar)
    near = np.flatnonzero(is_similar)
    near = near[np.argsort(values[near], kind="stable")]
    # how many similar pairs are nearer than each dissimilar one, and how many are not farther
    nearer, not_farther = (np.searchsorted(values[near], values[far], side) for side in ("left", "right"))
    no_ties = np.array_equal(nearer, not_farther)

    def statistic(weights: Array) -> Array:
        similar = np.zeros((len(weights), len(near) + 1))
        np.cumsum(weights[:, near], axis=1, out=similar[:, 1:])
        below = similar[:, nearer] if no_ties else (similar[:, nearer] + similar[:, not_farther]) / 2
        dissimilar = weights[:, far]
        total = similar[:, -1] * dissimilar.sum(axis=1)
        ordered = np.einsum("ij,ij->i", dissimilar, below)
        return np.where(total > 0, ordered / np.where(total > 0, total, 1.0), np.nan)

    return statistic


def _measured(before: Distance, after: Distance, pairs: Index, squares: Array, seed: int) -> Figure:
    """The mean of |d - t| / t of plain distances d and their targets t."""
    targets = np.sqrt(squares)
    old, new = (np.sqrt(distance.pairs(*pairs.T)) / targets for distance in (before, after))
    old = old * _best_multiple(old)
    statistics = [mean(np.abs(ratio - 1.0)) for ratio in (old, new)]
    return figure("relative error of distances", statistics, [len(pairs)], True, seed, largest=np.inf)


def _best_multiple(ratios: Array) -> float:
    """The c that minimises the mean of |c r - 1|: a median of 1 / r weighted by r."""
    positive = np.sort(ratios[ratios > 0])[::-1]  # 1 / r ascending
    if not len(positive):
        return 1.0
    return float(1.0 / positive[np.searchsorted(np.cumsum(positive), positive.sum() / 2)])


def _difference(distance: Distance, rows: Index) -> Array:
    return distance.pairs(*rows[:, :2].T) - distance.pairs(*rows[:, 2:].T)


def _sampled(ids: Index, bounds: Array, rng: np.random.RandomState) -> tuple[Index, Array]:
    if len(ids) <= LARGEST_SAMPLE:
        return ids, bounds
    rows = np.sort(rng.permutation(len(ids))[:LARGEST_SAMPLE])
    return ids[rows], bounds[rows]


def _dense(codes: Index) -> Index:
    """The classes that occur, counted from 0."""
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


_ORDER = "pair ROC-AUC"
_GIVEN = "given pairs' ROC-AUC"
_AGAINST_RANDOM = "given pairs' ROC-AUC, against random ones"
