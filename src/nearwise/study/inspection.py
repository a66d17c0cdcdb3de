"""What there is to see in a fitted learner, as arrays: the numbers behind `plotting` and `report`.

Every function takes an estimator of the package, or a scikit-learn Pipeline whose last step is one, and
raises `Missing`, whose message says why, where there is no such thing to see. "Before" is the distance that
the fit started from, which the learner keeps as `start_metric_`: its prior, or the input kernel's distance;
for learners of fixed rank, which have no prior, the distance of their input as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common import checks
from nearwise._common.types import Array, Index
from nearwise.learners.metric import Metric, dense_product
from nearwise.linalg.directions import turned
from nearwise.linalg.scaling import principal_coordinates
from nearwise.side import labelling
from nearwise.study.before_after import Missing, learner_of, measures, rows_of, start_metric
from nearwise.study.figures import PAIRS, labelled_pairs

MAP_POINTS = 1000  # rows on a map; of more, a sample is shown
SHARE_PAIRS = 4000  # random pairs over which the features' shares are summed
COLOURS = 10  # classes that are told apart
RANGES = 7  # of numbers, told apart by the depth of a colour
OTHER, UNKNOWN = "other", "none"  # further classes, and rows without a label
TOO_LARGE = "Some distances are unknown or too large for a floating-point number."
_GATHERED = 2**22  # numbers gathered at a time


@dataclass(frozen=True, eq=False)
class Convergence:
    """One value per iteration of the last solve.

    Attributes
    ----------
    iteration, seconds : when it was
    series : what was recorded, by its name; values may not be finite
    solver, status : who solved, and how it ended
    n_all : iterations of all solves, also of those that chose a penalty or pairs
    """

    iteration: Index
    seconds: Array
    series: dict[str, Array]
    solver: str
    status: str
    n_all: int


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances of pairs; `before` is None where the learner starts from no distance."""

    similar: NDArray[np.bool_]
    before: Array | None
    after: Array


@dataclass(frozen=True, eq=False)
class Maps:
    """Two principal coordinates of some rows, before and after, turned so that they can be compared.

    Attributes
    ----------
    rows : the row numbers that are shown
    before, after : one row of two coordinates for each; `before` is None where there is no such distance
    shares : of the squared distances that the two coordinates keep, before and after
    """

    rows: Index
    before: Array | None
    after: Array
    shares: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Classes:
    """Labels as few classes that can be told apart.

    Attributes
    ----------
    slots : for every row its class: the text of a number from 0, `OTHER` or `UNKNOWN`
    names : what a legend calls every class that occurs, in its order
    sizes : how many rows have it
    ordered : whether the classes are ranges of a number, in their order
    """

    slots: Sequence[str]
    names: dict[str, str]
    sizes: dict[str, int]
    ordered: bool = False


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues in falling order.

    Attributes
    ----------
    values : of the learned matrix, those above rounding
    prior : those that it started from; None where that is no matrix of the same space
    dimension : the number of eigenvalues, zeros and those outside the learned subspace included
    outside : how many of them lie outside the learned subspace, where the matrix is the identity
    """

    values: Array
    prior: Array | None
    dimension: int
    outside: int = 0

    @property
    def effective_rank(self) -> float:
        """The exponential of the entropy of the eigenvalues divided by their sum."""
        share = self.values / self.values.sum()
        return float(np.exp(-np.sum(share * np.log(share))))


@dataclass(frozen=True, eq=False)
class FeatureShares:
    """How much of the squared distance every feature carries over random pairs: z_k (M z)_k, summed.

    The shares add up to 1; one is negative where a feature takes away from what others contribute.
    """

    names: tuple[str, ...]
    before: Array
    after: Array


def convergence(model: Any) -> Convergence:
    """What every iteration recorded: relative gap and worst violation, or for fixed rank the cost."""
    learner = learner_of(model)
    if hasattr(learner, "n_feedback_"):
        raise Missing(
            f"An online learner keeps no history. It has seen {learner.n_feedback_:,} pieces of feedback, of "
            f"which {learner.n_violated_:,} did not hold when they came."
        )
    found = learner.result_
    if found is None or not found.history:
        raise Missing("There were no iterations: the learner kept what it started from.")

    def column(name: str) -> Array:
        return np.array([getattr(record, name) for record in found.history], dtype=np.float64)

    titles = {"gap": "relative gap", "violation": "worst violation", "cost": "cost"}
    series = {title: column(name) for name, title in titles.items() if hasattr(found.history[0], name)}
    iteration = column("iteration").astype(np.int64)
    status, n_all = found.status.name, int(learner.n_iter_)
    return Convergence(iteration, column("seconds"), series, found.solver, status, n_all)


def label_pairs(y: ArrayLike, n_pairs: int = PAIRS, seed: int = 0) -> tuple[Index, NDArray[np.bool_]]:
    """Random pairs of rows with a label, half of them of equal labels where possible, and which are those."""
    count = checks.whole_number(n_pairs, "n_pairs")
    codes, _ = label_codes(labelling.cleaned(np.asarray(y, dtype=object)))
    known = np.flatnonzero(codes >= 0)
    if known.size < 2:
        raise Missing("Fewer than two rows have a label.")
    return labelled_pairs(codes, known, count, checks.seed(seed))


has_label = labelling.has_label


def label_codes(labels: Sequence[Any]) -> tuple[Index, tuple[str, ...]]:
    """Labels as numbers, -1 for none, and the names of their classes."""
    codes, found = labelling.coded_objects([label if has_label(label) else None for label in labels])
    return codes.astype(np.int64), tuple(label_text(label) for label in found)


def classes(y: Sequence[Any], most: int = COLOURS) -> Classes:
    """The most frequent labels, sorted, each as a class of its own, and the others together."""
    checks.whole_number(most, "most")
    texts = [None if label is None else label_text(label) for label in labelling.cleaned(y)]
    sizes = Counter(text for text in texts if text is not None)
    frequent = sorted(sizes, key=lambda text: (-sizes[text], _by_value(text)))[:most]
    names = {str(k): text for k, text in enumerate(sorted(frequent, key=_by_value))}
    slot_of = {text: slot for slot, text in names.items()}
    if (others := len(sizes) - most) > 0:
        names[OTHER] = f"{others:,} other classes" if others > 1 else "1 other class"
    slots = [UNKNOWN if text is None else slot_of.get(text, OTHER) for text in texts]
    return _classes(slots, names, "no label")


def ranges(values: Sequence[Any], most: int = RANGES) -> Classes | None:
    """Numbers as ranges that hold about equally many; None where they are not numbers, or too few differ."""
    checks.whole_number(most, "most")
    sizes = [_by_value(label_text(value) if has_label(value) else "nan") for value in values]
    if any(is_text for is_text, _, _ in sizes):
        return None
    found = np.array([value for _, value, _ in sizes], dtype=np.float64)
    known = np.isfinite(found)
    if len(np.unique(found[known])) <= most:
        return None
    edges = np.unique(np.quantile(found[known], np.linspace(0, 1, most + 1)))
    places = np.clip(np.searchsorted(edges, found, side="right") - 1, 0, len(edges) - 2)
    slots = [str(place) if is_known else UNKNOWN for place, is_known in zip(places, known, strict=True)]
    names = {str(k): f"{low:.4g} to {high:.4g}" for k, (low, high) in enumerate(pairwise(edges))}
    return _classes(slots, names, "no number", ordered=True)


def _classes(slots: list[str], names: dict[str, str], unknown: str, ordered: bool = False) -> Classes:
    """With the names of those that occur."""
    sizes = dict(Counter(slots))
    shown = {slot: name for slot, name in (names | {UNKNOWN: unknown}).items() if slot in sizes}
    return Classes(slots, shown, sizes, ordered)


def label_text(label: Any) -> str:
    """A label as people write it: 3 rather than 3.0."""
    if isinstance(label, float | np.floating) and float(label).is_integer():
        return str(int(label))
    return str(label)


def pair_distances(model: Any, X: Any, pairs: ArrayLike, is_similar: ArrayLike) -> Distances:
    """Squared distances of pairs of rows of X, before and after."""
    before, after = measures(model, X)
    rows = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    similar = np.asarray(is_similar, dtype=bool)
    if similar.shape != (len(rows),):
        raise ValueError(f"there are {len(rows)} pairs, but is_similar has shape {similar.shape}")
    wrong = np.flatnonzero(((rows < 0) | (rows >= after.n_rows)).any(axis=1))
    if wrong.size:
        raise ValueError(f"pair {wrong[0]}: there are {after.n_rows} rows, and not both of {rows[wrong[0]]}")
    if not len(rows):
        raise Missing("There are no pairs whose distances could be shown.")
    first, second = rows.T
    old = None if before is None else before.pairs(first, second)
    new = after.pairs(first, second)
    if not all(np.isfinite(found).all() for found in (old, new) if found is not None):
        raise Missing(TOO_LARGE)
    return Distances(similar, old, new)


def maps(
    model: Any, X: Any = None, n_points: int = MAP_POINTS, seed: int = 0, first: Index | None = None
) -> Maps:
    """Principal coordinates of a sample of the rows of X, under the distance before and the learned one.

    The rows `first` come before others into a sample.
    """
    checks.whole_number(n_points, "n_points", least=2)
    random = np.random.RandomState(checks.seed(seed))
    before, after = measures(model, X)
    if after.n_rows < 2:
        raise Missing("A map needs two rows or more.")
    rows = np.arange(after.n_rows)
    if len(rows) > n_points:
        rows = random.permutation(len(rows))
        if first is not None:
            rows = np.concatenate([first, rows[~np.isin(rows, first)]])
        rows = np.sort(rows[:n_points])
    new, new_share = _map(after.between(rows, rows))
    squared = None if before is None else before.between(rows, rows)
    if squared is None or not np.isfinite(squared).all():
        return Maps(rows, None, new, (0.0, new_share))
    old, old_share = _map(squared)
    return Maps(rows, old, turned(new, old), (old_share, new_share))


def spectrum(model: Any, X: Any = None) -> Spectrum:
    """The eigenvalues of what was learned: M, W of a kernel, or the matrix of fixed rank; X is not needed."""
    from nearwise.learners.fixed_rank_learner import FixedRankLearner  # slow to import, needed only here

    learner = learner_of(model)
    if hasattr(learner, "eigenvalues_"):
        if learner.kept_prior_:
            raise Missing("Nothing was learned: the coordinates are those of kernel PCA.")
        return Spectrum(learner.eigenvalues_, None, learner.rank_)
    if not hasattr(learner, "metric_"):
        metric: Any = Metric(learner.embedding_ if hasattr(learner, "embedding_") else learner.factor_)
    else:
        metric = learner.metric_
    values, dimension, outside = metric.spectrum()
    if not hasattr(learner, "metric_") or isinstance(learner, FixedRankLearner):
        return Spectrum(values, None, dimension)  # it starts from no matrix
    if not metric.is_linear or metric.basis is not None:
        return Spectrum(values, np.ones(len(metric.factor)), dimension, outside)
    start = start_metric(learner)
    weights = start.column_weights if hasattr(start, "weights") else np.linalg.eigvalsh(start.matrix)
    return Spectrum(values, np.sort(weights)[::-1], dimension)


def feature_shares(model: Any, X: Any, names: Sequence[str] | None = None, seed: int = 0) -> FeatureShares:
    """The share of the squared distance that every input feature of a linear metric carries."""
    learner = learner_of(model)
    metric = getattr(learner, "metric_", None)
    if metric is None or not metric.is_linear:
        raise Missing("Only a distance that is linear in the features can be divided among them.")
    named = input_names(model, names, metric.n_features)
    rows = rows_of(model, X)
    pairs = np.random.RandomState(checks.seed(seed)).randint(rows.shape[0], size=(2, SHARE_PAIRS))
    old, new = (_carried(found, rows, *pairs) for found in (start_metric(learner), metric))
    totals = float(old.sum()), float(new.sum())
    if not all(np.isfinite(total) and total > 0 for total in totals):
        raise Missing("All rows are at distance zero from each other, or too far apart to be measured.")
    return FeatureShares(named, old / totals[0], new / totals[1])


def _map(squared: Array) -> tuple[Array, float]:
    """Two coordinates by classical scaling, the principal ones of the points, and the share they keep."""
    if not np.isfinite(squared).all():
        raise Missing(TOO_LARGE)
    points = principal_coordinates(squared)
    variances = np.sum((points / (float(np.abs(points).max(initial=0.0)) or 1.0)) ** 2, axis=0)
    shown = np.zeros((len(squared), 2))
    shown[:, : points.shape[1]] = points[:, :2]
    return shown, float(variances[:2].sum() / variances.sum()) if len(variances) else 1.0


def _carried(metric: Any, rows: Any, i: Index, j: Index) -> Array:
    """The sum over pairs of z_k (M z)_k, for every k; for M = A B^T the row sums of (Z^T Z A) * B."""
    total = np.zeros(rows.shape[1])
    step = len(i) if sparse.issparse(rows) else max(_GATHERED // max(rows.shape[1], 1), 1)
    for first in range(0, len(i), step):
        z = rows[i[first : first + step]] - rows[j[first : first + step]]
        squares = z.multiply(z) if sparse.issparse(z) else z * z
        if hasattr(metric, "weights"):
            total += metric.weights * np.asarray(squares.sum(axis=0)).ravel()
            continue
        outer = metric.factor if metric.basis is None else metric.basis
        inner = dense_product(z, outer)
        if metric.basis is not None:  # M is the identity outside it
            total += np.asarray(squares.sum(axis=0)).ravel()
            inner = inner @ (metric.factor @ metric.factor.T) - inner
        total += np.einsum("kc,kc->k", dense_product(z.T, inner), outer)
    return total


def input_names(model: Any, names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The names of what the learner is given: of its own input where the steps before it change them."""
    found: Any = getattr(model, "feature_names_in_", None) if names is None else names
    if learner_of(model) is not model and len(model.steps) > 1:
        before = model[:-1]
        n_input = getattr(before, "n_features_in_", count)
        if names is not None and len(names) != n_input:
            raise ValueError(f"there are {n_input} features, but {len(names)} names")
        try:
            found = before.get_feature_names_out(None if found is None else np.asarray(found, dtype=object))
        except (AttributeError, ValueError):  # a step without names, or fitted with other ones
            found = found if found is not None and len(found) == count else None
    elif names is not None and len(names) != count:
        raise ValueError(f"there are {count} features, but {len(names)} names")
    return tuple(f"x{k}" for k in range(count)) if found is None else tuple(map(str, found))


def _by_value(text: str) -> tuple[int, float, str]:
    """Numbers by size and before other texts."""
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
