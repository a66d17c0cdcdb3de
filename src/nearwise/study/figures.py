"""How good a distance is on objects that it was not learned from, before and after, with intervals.

From labels: the error of five nearest neighbours, the share of queries that find one of their class, how
well clusters match classes, and how often a similar pair is nearer than a dissimilar one. From constraints:
the same order of pairs, the share of comparisons and bounds that hold, and the error of measured distances.

The statistic is the one by which learners choose: a `Grade`, a score that is the mean of what every unit
(object, pair, constraint) contributes. Its 95 % interval is 1.96 standard errors wide to both sides, more for
few units (Student's t); that of a share is the exact one of Clopper and Pearson. Before and after are graded
on the same units, so that the change has an interval too, usually a much narrower one. Of 112 figures of 14
data sets, 111 have the verdict that 1,000 resamples give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.learners.grades import Grade, area_under_roc, by_neighbors, together
from nearwise.linalg.nearest import nearest
from nearwise.linalg.scaling import principal_coordinates
from nearwise.side import Block, Constraints, Grade as Graded, drawing
from nearwise.study.before_after import Distance

VERDICTS = ("better", "worse", "not clear")
UNCLEAR = f"{VERDICTS[-1]}: chance alone may explain the change"
LARGEST_SAMPLE = 5_000  # queries and constraints measured; of more, a sample says as much
PAIRS = 20_000  # drawn from labels
_NEIGHBORS = drawing.N_NEIGHBORS
_FEWEST_PAIRS = 5  # of a kind; with fewer, a standard error is too uncertain to call a change clear
_CLUSTERED = 1_000  # objects that are clustered at most
_STARTS = 4  # of k-means
_BY = ("order", "share", "error")  # the order of figures


class Interval(NamedTuple):
    """A figure and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def with_zero(self) -> Interval:
        """The same, reaching to 0: what chance alone may explain."""
        return Interval(self.value, min(self.low, 0.0), max(self.high, 0.0))


@dataclass(frozen=True)
class Figure:
    """One figure before and after learning.

    Attributes
    ----------
    name : what was measured
    before, after : under the distance that the learner started from, and under the learned one
    lower_is_better : whether it is an error
    change : after - before, on the same units; None where that is not known
    n : objects, pairs or comparisons measured
    percent : whether `texts` shows percentages
    """

    name: str
    before: Interval
    after: Interval
    lower_is_better: bool
    change: Interval | None = None
    n: int = 0
    percent: bool = True

    def texts(self) -> tuple[str, str]:
        """Before and after as text, like "10.3 % (8.9 to 11.8)"."""
        return self._text(self.before), self._text(self.after)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: "not clear" where the change is no larger than chance explains."""
        better, worse, unclear = VERDICTS
        if self.change is None or self.change.low <= 0.0 <= self.change.high:
            return unclear
        return better if (self.change.value < 0) is self.lower_is_better else worse

    def as_json(self) -> dict[str, Any]:
        """Everything as numbers and texts."""
        parts = {"before": self.before, "after": self.after, "change": self.change}
        return {
            "name": self.name,
            **{name: None if part is None else part._asdict() for name, part in parts.items()},
            "lower_is_better": self.lower_is_better,
            "verdict": self.verdict,
            "n": self.n,
        }

    def _text(self, found: Interval) -> str:
        if self.percent:
            return f"{found.value:.1%} ({100 * found.low:.1f} to {100 * found.high:.1f})".replace("%", " %")
        return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def figure(name: str, grades: Sequence[Grade], lower_is_better: bool, n: int, highest: float = 1.0) -> Figure:
    """A figure between 0 and `highest` of n units from its grades before and after."""
    before, after = (_interval(*_error(grade), len(grade.each), 0.0, highest) for grade in grades)
    change = _interval(*grades[1].lead(grades[0]), len(grades[0].each), -np.inf, np.inf)
    return Figure(name, before, after, lower_is_better, change, n)


def share(name: str, outcomes: Sequence[Array], lower_is_better: bool) -> Figure:
    """A share of outcomes before and after, each 0 or 1.

    The change is clear only where the sign test says so too: of the few outcomes that changed, more went one
    way than a coin's tosses would.
    """
    from scipy.stats import binomtest  # slow to import, and needed only here

    old, new = outcomes
    found = figure(name, [Grade(float(part.mean()), part) for part in outcomes], lower_is_better, len(old))
    assert found.change is not None
    exact = [binomtest(int(part.sum()), len(part)).proportion_ci(0.95) for part in outcomes]
    before, after = (
        Interval(whole.value, float(part.low), float(part.high))
        for whole, part in zip((found.before, found.after), exact, strict=True)
    )
    risen, fallen = int(np.sum(new > old)), int(np.sum(new < old))
    sure = risen + fallen > 0 and binomtest(risen, risen + fallen).pvalue <= 0.05
    change = found.change if sure else found.change.with_zero()
    return replace(found, before=before, after=after, change=change)


def from_labels(
    before: Distance, after: Distance, codes: Index, queries: Index, known: Index | None = None, seed: int = 0
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
    both, found = (before, after), list[Figure]()
    if len(among) > 1:
        near = [nearest_classes(distance, codes, queries, among, known is None) for distance in both]
        own = codes[queries]
        errors = [1.0 - rightly_called(classes, own) for classes in near]
        hits = [(classes == own[:, np.newaxis]).any(axis=1).astype(float) for classes in near]
        found.append(share(f"{_NEIGHBORS}-NN error", errors, True))
        found.append(share(f"recall@{_NEIGHBORS}", hits, False))
    rows = sample(queries, _CLUSTERED, rng)
    labels = _dense(codes[rows])
    if 1 <= labels.max() < len(rows) - 1:
        count, start = int(labels.max()) + 1, int(rng.randint(2**31 - 1))
        found_again = [_k_means(distance.between(rows, rows), count, start) for distance in both]
        grades = [_information(labels, clusters) for clusters in found_again]
        found.append(replace(figure("clustering NMI", grades, False, len(rows)), percent=False))
    pairs, is_similar = labelled_pairs(codes, queries, PAIRS, int(rng.randint(2**31 - 1)))
    if is_similar.any() and not is_similar.all():
        places, n = np.searchsorted(queries, pairs), len(queries)
        grades = [_order(distance, pairs, is_similar, places, n) for distance in both]
        found.append(figure("pair ROC-AUC", grades, False, n))
    return found


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
    both, parts = (before, after), dict[Graded, list[Block]]()
    for block in constraints.blocks:
        for grade, rows in block.of_kind.grades(block):
            parts.setdefault(grade, []).append(block.part(np.flatnonzero(rows)))
    found: list[Figure] = []
    for grade, blocks in sorted(parts.items(), key=lambda item: _BY.index(item[0].by)):
        blocks = _sampled(blocks, rng)
        if grade.by == "order":
            found.append(_order_of_pairs(both, grade.figure, blocks, n_rows, rng))
        elif grade.by == "share":
            graded = Constraints(tuple(blocks))
            off = [graded.relations * (_values(distance, blocks) - graded.bounds) for distance in both]
            found.append(share(grade.figure, [(part >= 0.0).astype(float) for part in off], False))
        else:
            found.append(_missed(both, grade, blocks))
    return found


def labelled_pairs(codes: Index, rows: Index, n_pairs: int, seed: int) -> tuple[Index, NDArray[np.bool_]]:
    """Pairs of the given rows, half of them within a class where possible, and which of them are."""
    same, different = drawing.random_pairs(_dense(codes[rows]), n_pairs, np.random.RandomState(seed))
    is_similar = np.arange(len(same) + len(different)) < len(same)
    return rows[np.concatenate([same, different])], is_similar


def nearest_classes(distance: Distance, codes: Index, queries: Index, among: Index, leave_out: bool) -> Index:
    """The classes of the five nearest neighbours of every query."""
    count = min(_NEIGHBORS, len(among) - leave_out)
    return codes[nearest_rows(distance, queries, among, count, leave_out)]


def rightly_called(near: Index, own: Index) -> Array:
    """Whether the classes of an object's neighbours call it by its own class."""
    return by_neighbors("accuracy", near, own, None).each


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


def best_multiple(values: Array, targets: Array) -> float:
    """The c >= 0 that minimises the mean of |c v - t|: a median of t / v weighted by |v|."""
    kept = values != 0
    if not kept.any():
        return 1.0
    ratios, weights = targets[kept] / values[kept], np.abs(values[kept])
    order = np.argsort(ratios, kind="stable")
    place = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return max(float(ratios[order[min(int(place), len(order) - 1)]]), 0.0)


def _error(grade: Grade) -> tuple[float, float]:
    """A score and its standard error."""
    return grade.lead(Grade(0.0, np.zeros_like(grade.each)))


def _interval(value: float, error: float, n: int, lowest: float, highest: float) -> Interval:
    from scipy.special import stdtrit

    reach = error * float(stdtrit(max(n - 1, 1), 0.975))
    # rounded, so that a change that is none is 0 and not -1e-17
    low, high = (round(float(value + part), 12) + 0.0 for part in (-reach, reach))
    value = float(value)
    return Interval(value, min(max(low, lowest), value), max(min(high, highest), value))


def _information(labels: Index, clusters: Index) -> Grade:
    """How much clusters say about classes: scikit-learn's normalised mutual information, with its error.

    It is 2 - 2 H(class, cluster) / (H(class) + H(cluster)). What an object contributes is the derivative by
    its share: that of an entropy is -log p of the object's own cell, less the entropy.
    """
    from sklearn.metrics import normalized_mutual_info_score

    score = float(normalized_mutual_info_score(labels, clusters))
    cells = (labels, clusters, _dense(labels * (int(clusters.max()) + 1) + clusters))
    of_class, of_cluster, of_both = (-np.log(np.bincount(cell)[cell] / len(cell)) for cell in cells)
    both, total = of_both.mean(), (of_class + of_cluster).mean()
    if total == 0.0:
        return Grade(score, np.full(len(labels), score))
    change = of_both - both - both / total * (of_class + of_cluster - total)
    return Grade(score, score - 2.0 / total * change)


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


def _order(
    distance: Distance,
    pairs: Index,
    is_similar: NDArray[np.bool_],
    units: Index | None = None,
    n_units: int = 0,
) -> Grade:
    """The area under the ROC curve; what contributes are the pairs, or the units that these are of."""
    values = distance.pairs(*pairs.T)
    kinds = (is_similar, ~is_similar)
    near, far = (values[kind] for kind in kinds)
    parts = area_under_roc(near, far, np.ones(len(near)), np.ones(len(far)))
    return together(parts, None if units is None else [units[kind] for kind in kinds], n_units)


def _order_of_pairs(
    both: Sequence[Distance], name: str, blocks: list[Block], n_rows: int, rng: np.random.RandomState
) -> Figure:
    similar, dissimilar = (
        np.concatenate([drawing.NO_PAIRS, *(b.object_ids for b in blocks if b.relation == relation)])
        for relation in (-1, 1)
    )
    if not len(similar) or not len(dissimilar):
        i, j = rng.randint(n_rows, size=(2, LARGEST_SAMPLE))
        random = np.stack([i, j], axis=1)[i != j]
        name = f"{name}, against random ones"
        similar, dissimilar = (similar, random) if len(similar) else (random, dissimilar)
    pairs = np.concatenate([similar, dissimilar])
    is_similar = np.arange(len(pairs)) < len(similar)
    grades = [_order(distance, pairs, is_similar) for distance in both]
    found = figure(name, grades, False, len(pairs))
    if min(len(similar), len(dissimilar)) >= _FEWEST_PAIRS or found.change is None:
        return found
    return replace(found, change=found.change.with_zero())


def _missed(both: Sequence[Distance], grade: Graded, blocks: list[Block]) -> Figure:
    """The mean of |v - t| / s of values v and targets t, with s = t for distances, else the mean of |t|."""
    targets = np.concatenate([block.bounds for block in blocks])
    old, new = (_values(distance, blocks) for distance in both)
    if grade.root:
        old, new, targets = np.sqrt(old), np.sqrt(new), np.sqrt(targets)
    sizes = targets if grade.root else np.full(len(targets), np.mean(np.abs(targets)) or 1.0)
    old = old * best_multiple(old / sizes, targets / sizes)
    off = [np.abs(values - targets) / sizes for values in (old, new)]
    return figure(grade.figure, [Grade(float(p.mean()), p) for p in off], True, len(targets), highest=np.inf)


def _values(distance: Distance, blocks: list[Block]) -> Array:
    """Of the constraints, under a distance."""
    return np.concatenate([block.of_kind.values(block, distance) for block in blocks])


def _sampled(blocks: list[Block], rng: np.random.RandomState) -> list[Block]:
    """At most 5,000 rows of each relation."""
    found: list[Block] = []
    for relation in dict.fromkeys(block.relation for block in blocks):
        mine = [block for block in blocks if block.relation == relation]
        ends = np.cumsum([0, *map(len, mine)])
        chosen = sample(np.arange(ends[-1]), LARGEST_SAMPLE, rng)
        for block, low, high in zip(mine, ends[:-1], ends[1:], strict=True):
            rows = chosen[(chosen >= low) & (chosen < high)] - low
            found += [block.part(rows)] if len(rows) else []
    return found


def _dense(codes: Index) -> Index:
    """The classes that occur, counted from 0."""
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)
