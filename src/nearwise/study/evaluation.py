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

from nearwise._common.types import Array, Index
from nearwise.linalg.nearest import nearest
from nearwise.linalg.scaling import principal_coordinates
from nearwise.side import Block, Constraints, Grade, Measure, drawing
from nearwise.study.resampling import Figure, Statistic, figure, mean, share

NEIGHBORS = 5
LARGEST_SAMPLE = 5_000  # queries and constraints measured; of more, a sample says as much
PAIRS = 20_000  # drawn from labels
_FEWEST_PAIRS = 5  # of a kind: resamples of fewer are too much alike to call a change clear
_CLUSTERED = 1_000  # objects that are clustered at most
_STARTS = 4  # of k-means


class Distance(Measure, Protocol):
    """Squared distances and inner products of the rows of one table, by row number."""

    def between(self, rows: Index, others: Index) -> Array:
        """The squared distances of all rows to all others."""


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
    queries = sample(queries, LARGEST_SAMPLE, rng)
    found: list[Figure] = []
    if len(among) > 1:
        outcomes = [
            nearest_outcomes(distance, codes, queries, among, known is None) for distance in (before, after)
        ]
        errors, hits = zip(*outcomes, strict=True)
        found.append(share(f"{NEIGHBORS}-NN error", errors, True, seed))
        found.append(share(f"recall@{NEIGHBORS}", hits, False, seed))
    others = [grade(before, after, codes, queries, rng) for grade in (_clustering, _order_of_labels)]
    return found + [figure for figure in others if figure is not None]


def from_constraints(
    before: Distance, after: Distance, constraints: Constraints, n_rows: int, seed: int = 0
) -> list[Figure]:
    """Figures of constraints by row number; of more than 5,000 of a kind, of a sample.

    Each kind of constraint says how (`Kind.grades`). Pairs without bounds, similar or dissimilar, are graded
    by their order, against random pairs where all are of one kind; comparisons and bounds by the share that
    holds; equalities by their error, before in the unit in which that is smallest. The error of measured
    distances is relative to each of them, that of other equalities to the mean magnitude of their bounds.
    """
    rng = np.random.RandomState(seed)
    parts: dict[Grade, list[Block]] = {}
    for block in constraints.blocks:
        for grade, rows in block.of_kind.grades(block):
            parts.setdefault(grade, []).append(block.part(np.flatnonzero(rows)))
    found: list[Figure] = []
    for grade, blocks in sorted(parts.items(), key=lambda item: _BY.index(item[0].by)):
        blocks = _sampled(blocks, rng)
        if grade.by == "order":
            found.append(_order_of_pairs(before, after, grade.figure, blocks, n_rows, rng))
        elif grade.by == "share":
            graded = Constraints(tuple(blocks))
            off = [_values(distance, blocks) - graded.bounds for distance in (before, after)]
            holds = [(graded.relations * part >= 0.0).astype(float) for part in off]
            found.append(share(grade.figure, holds, False, seed))
        else:
            found.append(_error(before, after, grade, blocks, seed))
    return found


def labelled_pairs(codes: Index, rows: Index, n_pairs: int, seed: int) -> tuple[Index, NDArray[np.bool_]]:
    """Pairs of the given rows, half of them within a class where possible, and which of them are."""
    same, different = drawing.random_pairs(_dense(codes[rows]), n_pairs, np.random.RandomState(seed))
    is_similar = np.arange(len(same) + len(different)) < len(same)
    return rows[np.concatenate([same, different])], is_similar


def nearest_outcomes(
    distance: Distance, codes: Index, queries: Index, among: Index, leave_out: bool
) -> tuple[Array, Array]:
    """Whether five nearest neighbours err on every query, and whether one of them is of its class."""
    near = nearest_rows(distance, queries, among, min(NEIGHBORS, len(among) - leave_out), leave_out)
    votes = np.zeros((len(queries), int(codes.max()) + 1), dtype=np.int64)
    np.add.at(votes, (np.arange(len(queries))[:, np.newaxis], codes[near]), 1)
    wrong = votes.argmax(axis=1) != codes[queries]  # of classes with equal votes, the first one
    hit = (codes[near] == codes[queries][:, np.newaxis]).any(axis=1)
    return wrong.astype(float), hit.astype(float)


def nearest_rows(distance: Distance, rows: Index, among: Index, k: int, leave_out: bool = True) -> Index:
    """The k of the rows `among` that are nearest to every row, in any order; with `leave_out`, not itself."""
    own = np.full(int(max(rows.max(), among.max())) + 1, -1)
    own[among] = np.arange(len(among))
    found = nearest(
        lambda part, rest: distance.between(rows[part], among[rest]),
        len(rows),
        len(among),
        k,
        own[rows] if leave_out else None,
    )
    return among[found]


def sample(rows: Index, most: int, rng: np.random.RandomState) -> Index:
    """The rows, or of more than `most` so many, drawn and sorted."""
    return rows if len(rows) <= most else np.sort(rng.permutation(rows)[:most])


def _clustering(
    before: Distance, after: Distance, codes: Index, queries: Index, rng: np.random.RandomState
) -> Figure | None:
    """How well k-means, asked for as many clusters as there are classes, finds the classes again."""
    from scipy import sparse

    rows = sample(queries, _CLUSTERED, rng)
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
    name: str,
    blocks: list[Block],
    n_rows: int,
    rng: np.random.RandomState,
) -> Figure:
    similar, dissimilar = (
        np.concatenate([_NO_PAIRS, *(block.object_ids for block in blocks if block.relation == relation)])
        for relation in (-1, 1)
    )
    if not len(similar) or not len(dissimilar):
        i, j = rng.randint(n_rows, size=(2, LARGEST_SAMPLE))
        random = np.stack([i, j], axis=1)[i != j]
        name = f"{name}, against random ones"
        similar, dissimilar = (similar, random) if len(similar) else (random, dissimilar)
    pairs = np.concatenate([similar, dissimilar])
    is_similar = np.arange(len(pairs)) < len(similar)
    statistics = [_area(distance.pairs(*pairs.T), is_similar) for distance in (before, after)]
    seed = int(rng.randint(2**31 - 1))
    found = figure(name, statistics, [len(similar), len(dissimilar)], False, seed)
    if min(len(similar), len(dissimilar)) >= _FEWEST_PAIRS or found.change is None:
        return found
    return replace(found, change=found.change.with_zero())


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


def _values(distance: Distance, blocks: list[Block]) -> Array:
    """Of the constraints, under a distance."""
    return np.concatenate([block.of_kind.values(block, distance) for block in blocks])


def _error(before: Distance, after: Distance, grade: Grade, blocks: list[Block], seed: int) -> Figure:
    """The mean of |v - t| / s of values v and targets t, with s = t for distances, else the mean of |t|."""
    targets = np.concatenate([block.bounds for block in blocks])
    old, new = (_values(distance, blocks) for distance in (before, after))
    if grade.root:
        old, new, targets = np.sqrt(old), np.sqrt(new), np.sqrt(targets)
    sizes = targets if grade.root else np.full(len(targets), np.mean(np.abs(targets)) or 1.0)
    old = old * best_multiple(old / sizes, targets / sizes)
    statistics = [mean(np.abs(values - targets) / sizes) for values in (old, new)]
    return figure(grade.figure, statistics, [len(targets)], True, seed, largest=np.inf)


def best_multiple(values: Array, targets: Array) -> float:
    """The c >= 0 that minimises the mean of |c v - t|: a median of t / v weighted by |v|."""
    kept = values != 0
    if not kept.any():
        return 1.0
    ratios, weights = targets[kept] / values[kept], np.abs(values[kept])
    order = np.argsort(ratios, kind="stable")
    place = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return max(float(ratios[order[min(int(place), len(order) - 1)]]), 0.0)


def _sampled(blocks: list[Block], rng: np.random.RandomState) -> list[Block]:
    """At most 5,000 rows of each relation."""
    found: list[Block] = []
    for relation in dict.fromkeys(block.relation for block in blocks):
        mine = [block for block in blocks if block.relation == relation]
        count = sum(map(len, mine))
        chosen = sample(np.arange(count), LARGEST_SAMPLE, rng)
        ends = np.cumsum([0, *map(len, mine)])
        for block, low, high in zip(mine, ends[:-1], ends[1:], strict=True):
            rows = chosen[(chosen >= low) & (chosen < high)] - low
            found += [block.part(rows)] if len(rows) else []
    return found


def _dense(codes: Index) -> Index:
    """The classes that occur, counted from 0."""
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


_ORDER = "pair ROC-AUC"
_BY = ("order", "share", "error")  # the order of figures
_NO_PAIRS = np.empty((0, 2), np.int64)
