"""`NeighborLearner`: few dimensions in which neighbours tell classes, or numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearwise._common.checks import one_of, whole_number, whole_number_or_none
from nearwise._common.types import Array, Index
from nearwise._common.warning import warn
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult
from nearwise.learners import _side
from nearwise.learners._progress import progress, with_callbacks
from nearwise.learners._soft_neighbors import SoftNeighbors, descended
from nearwise.learners._whole import whole
from nearwise.learners.base import Learner, PriorKeptWarning, rank_wanted
from nearwise.learners.metric import Metric, euclidean
from nearwise.model import drawing
from nearwise.model.blocks import Constraints
from nearwise.model.drawn import read_targets
from nearwise.solving.result import Limit, Status

_FEWEST = 8  # rows from which on a half is held out
_SCALES = (1.0, 2.0, 4.0)  # of the starts, whose coordinates have variance 1
_RIDGE = 1e-3  # of the mean variance within classes, added to all of them


class NeighborLearner(Learner):
    """Learn a linear map after which an object's neighbours tell its class, or its number.

    Every object chooses another one at random, near ones more likely. The map minimises the mean of -log of
    the probability to choose one of the own class (target="labels"), or the mean squared error of the average
    of what would be chosen as a prediction of the own number (target="numbers"). That is a cost of the map
    itself, so few dimensions are used well: it is for maps that people look at, and for regression by nearest
    neighbours. It is not convex: what is found is a stationary point, and never costs more than its start.

    Parameters
    ----------
    rank : int or None, default=2
        Dimensions of `transform`, at most d; None for d.
    target : "labels" or "numbers", default="labels"
        What y holds.
    affinity : "auto", "student" or "gauss", default="auto"
        How fast the probability falls with the squared distance d: like 1 / (1 + d) or like exp(-d). "auto"
        is "student" for labels, and "gauss" for numbers.
    n_rows : int, default=2000
        How many rows to learn from at most, a random choice; time and memory of an iteration grow with its
        square.
    max_iter : int, default=100
        The largest number of iterations from a start: principal directions and, with labels, those of linear
        discriminant analysis.
    check : bool, default=True
        Learn from a half first, and look how well the five nearest neighbours of the other half tell their
        classes, or numbers. A start of `rank` dimensions is kept where it is better by more than one standard
        error; with rank=None, where it is the distance of the data, also where it is not worse by that much.
    random_state : int, RandomState or None, default=None
        Seed of all random choices.
    callback : callable, default=None
        Called with a `FixedRankRecord` after every iteration; a true answer ends the fit.

    Attributes
    ----------
    metric_ : the learned `Metric`
    start_metric_ : the Euclidean distance of the data
    components_ : (rank, d) array, the linear map of `transform`
    rank_ : the number of coordinates
    result_ : `FixedRankResult` with the cost of every iteration; None where the start is kept
    status_, n_iter_ : how the fit ended, and its iterations
    scores_ : on the half held out, of the start and of what the other half teaches: the share of the own
        class among five neighbours, or R^2; None without a check
    kept_prior_ : whether the start is kept
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn

    Examples
    --------
    >>> import nearwise as nw
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_wine(return_X_y=True)
    >>> nw.NeighborLearner(2, random_state=0).fit(scale(X), y).transform(scale(X)).shape
    (178, 2)
    """

    def __init__(
        self,
        rank: int | None = 2,
        target: str = "labels",
        affinity: str = "auto",
        n_rows: int = 2000,
        max_iter: int = 100,
        check: bool = True,
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[FixedRankRecord], Any] | None = None,
    ) -> None:
        self.rank = rank
        self.target = target
        self.affinity = affinity
        self.n_rows = n_rows
        self.max_iter = max_iter
        self.check = check
        self.random_state = random_state
        self.callback = callback

    @with_callbacks
    @whole
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : (n, d) dense data
        y : n labels of any type, None, NaN and -1 meaning none; or with target="numbers" n numbers, NaN
            meaning none. Rows without one help to find the principal directions that a fit starts from.
        """
        X = self._training_data(X)
        kind = one_of(self.target, "target", ("labels", "numbers"))
        chosen = one_of(self.affinity, "affinity", ("auto", "student", "gauss"))
        affinity = {"labels": "student", "numbers": "gauss"}[kind] if chosen == "auto" else chosen
        most = whole_number(self.n_rows, "n_rows", 2)
        whole_number_or_none(self.max_iter, "max_iter")
        rank = rank_wanted(self.rank, X.shape[1]) or X.shape[1]
        rng = check_random_state(self.random_state)
        targets, known, nothing = self._read(X, y, kind)
        centred = X - X.mean(axis=0)
        rows = np.sort(known[rng.permutation(len(known))[:most]])
        self.scores_ = None
        self.result_ = None
        self.n_iter_, self.status_ = 0, Status.STATIONARY
        start = _principal(centred, rank)
        factor, keeps = start, True
        if not nothing:
            kept = False
            if self.check and len(rows) >= _FEWEST:
                self.scores_, gain = self._held_out(centred, targets, rows, kind, affinity, rank, rng)
                kept = gain <= 1.0 if rank == X.shape[1] else gain < -1.0
            starts = _starts(centred, targets, rows, kind, rank)
            costs = SoftNeighbors(centred[rows], targets[rows], kind, affinity)
            start = min(starts, key=lambda A: costs.cost(A)[0])
            factor, keeps = start, kept
        if not nothing and not keeps:
            with progress(self, X, y) as report:
                found: Any = self._learned(costs, starts, report)
            self.result_, self.status_, self.n_iter_ = found, found.status, report.n_iterations
            factor = found.factor
        self.kept_prior_ = keeps
        self.metric_, self.start_metric_ = Metric(factor), euclidean(X.shape[1])
        self.rank_ = rank
        self._tell(nothing)
        return self

    def score(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """As of other learners; with target="numbers" R^2 of the mean of the five nearest other rows."""
        if self.target != "numbers":
            return super().score(
                X, y, constraints=constraints, sample_ids=sample_ids, sample_weight=sample_weight
            )
        if constraints is not None or sample_weight is not None or y is None:
            raise ValueError("with target='numbers' a score is of numbers y alone")
        Z, targets = self.transform(X), read_targets(y)
        known = np.flatnonzero(~np.isnan(targets))
        count = min(drawing.N_NEIGHBORS, len(known) - 1)
        near = drawing.nearest_others(drawing.nearest_rows(Z), known, known, count)
        return _r_squared(targets[known], targets[near].mean(axis=1))

    @property
    def components_(self) -> Array:
        return self._linear_map()

    def get_mahalanobis_matrix(self) -> Array:
        """M = A A^T, d x d."""
        return self._fitted_metric().matrix  # type: ignore[attr-defined]

    @property
    def _accept_sparse(self) -> bool:
        return False

    def _read(self, X: Any, y: Any, kind: str) -> tuple[Array, Index, str]:
        """Targets, the rows that have one, and why they tell nothing, where that is so."""
        n = X.shape[0]
        if y is None:
            return np.zeros(n), np.empty(0, np.int64), "there is no y"
        equal = "" if np.ptp(X, axis=0).any() else "all rows of X are equal"
        if kind == "labels":
            side = _side.read(n, y, None, None)
            if side.codes is None:
                return np.zeros(n), np.empty(0, np.int64), side.nothing_known
            return side.codes.astype(np.float64), np.flatnonzero(side.codes >= 0), equal
        targets = read_targets(y)
        if len(targets) != n:
            raise ValueError(f"X has {n} rows, but there are {len(targets)} targets")
        known = np.flatnonzero(~np.isnan(targets))
        useless = len(known) < 3 or bool(np.ptp(targets[known]) == 0.0)
        return (
            targets,
            known,
            "fewer than two different numbers, or three rows with one" if useless else equal,
        )

    def _learned(self, costs: SoftNeighbors, starts: list[Array], callback: Any) -> FixedRankResult:
        """The lowest end of all starts."""
        began = time.perf_counter()
        best: tuple[Array, list[FixedRankRecord], bool] | None = None
        for start in _one_of_each(costs, starts):
            records: list[FixedRankRecord] = []

            def seen(iteration: int, cost: float, moved: float, records: Any = records) -> bool:
                records.append(FixedRankRecord(iteration, time.perf_counter() - began, cost, moved))
                return bool(callback(records[-1]))

            factor, settled = descended(costs, start, self.max_iter, seen)
            if best is None or (records and (not best[1] or records[-1].cost < best[1][-1].cost)):
                best = factor, records, settled
            if callback.stop:
                break
        assert best is not None
        factor, found, settled = best
        cost = costs.cost(factor)[0]
        status = Status.INTERRUPTED if callback.stop else Status.STATIONARY if settled else Status.LIMIT
        message = {
            Status.INTERRUPTED: "Interrupted",
            Status.STATIONARY: "No step of the last ones lowered the cost much",
            Status.LIMIT: f"Stopped at the limit of {self.max_iter} iterations",
        }[status]
        said = f"{message}: cost {cost:.3g}."
        limit: Limit | None = "iterations" if status is Status.LIMIT else None
        return FixedRankResult(factor, cost, status, tuple(found), "L-BFGS", said, limit)

    def _held_out(
        self,
        X: Array,
        targets: Array,
        rows: Index,
        kind: str,
        affinity: str,
        rank: int,
        rng: np.random.RandomState,
    ) -> tuple[tuple[float, float], float]:
        """On one half of the rows, the start's score and that of what the other half teaches.

        And what is gained, in standard errors of that gain.
        """
        order = rng.permutation(rows)
        if kind == "labels":
            order = order[np.argsort(targets[order], kind="stable")]
        part, rest = order[::2], order[1::2]
        costs = SoftNeighbors(X[part], targets[part], kind, affinity)
        starts = _one_of_each(costs, _starts(X, targets, part, kind, rank))
        start = min(starts, key=lambda A: costs.cost(A)[0])
        ends = [descended(costs, A, self.max_iter)[0] for A in starts]
        learned = min(ends, key=lambda A: costs.cost(A)[0])

        def success(A: Array) -> Array:
            """Of every row held out; its mean is the score."""
            near = targets[drawing.nearest_rows(X @ A)(rest, part, min(drawing.N_NEIGHBORS, len(part)))]
            if kind == "labels":
                return np.asarray(np.mean(near == targets[rest, None], axis=1))
            variance = float(np.var(targets[rest])) or 1.0
            return np.asarray(1.0 - np.square(near.mean(axis=1) - targets[rest]) / variance)

        before, after = success(start), success(learned)
        gain = after - before
        error = float(np.std(gain)) / np.sqrt(len(gain))
        scores = float(before.mean()), float(after.mean())
        return scores, float(gain.mean()) / error if error > 0 else 0.0

    def _tell(self, nothing: str) -> None:
        name = type(self).__name__
        if nothing:
            warn(f"{name} returns its start: {nothing}", PriorKeptWarning)
        elif self.kept_prior_ and self.scores_ is not None:
            start, learned = self.scores_
            cause = f"what a half teaches scores {learned:.3f} on the rest, the start {start:.3f}"
            warn(f"{name} returns its start: {cause}; check=False learns anyway", PriorKeptWarning)
        elif self.result_ is not None and self.result_.status is Status.INTERRUPTED:
            warn(f"{name}: {self.result_.message}", ConvergenceWarning)


def _starts(X: Array, targets: Array, rows: Index, kind: str, rank: int) -> list[Array]:
    """Principal directions of all rows and, with labels, discriminant ones, each at some scales."""
    found = [_principal(X, rank)]
    if kind == "labels":
        found.append(_discriminant(X[rows], targets[rows], found[0]))
    return [scale * A for A in found for scale in _SCALES]


def _one_of_each(costs: SoftNeighbors, starts: list[Array]) -> list[Array]:
    """Of the scales of every start, the one of lowest cost."""
    step = len(_SCALES)
    parts = [starts[k : k + step] for k in range(0, len(starts), step)]
    return [min(part, key=lambda A: costs.cost(A)[0]) for part in parts]


def _principal(X: Array, rank: int) -> Array:
    """The first principal directions, all alike long: coordinates have variance 1 on average."""
    d = X.shape[1]
    V = np.eye(d)
    if rank < d:
        V = np.linalg.svd(X, full_matrices=True)[2][:rank].T
        V = V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(rank)])
    return _unit(V, X)


def _discriminant(X: Array, codes: Array, others: Array) -> Array:
    """Directions of linear discriminant analysis, completed by the others where classes are few."""
    rank = others.shape[1]
    classes, place = np.unique(codes, return_inverse=True)
    means = np.stack([X[place == k].mean(axis=0) for k in range(len(classes))])
    inner = X - means[place]
    within = inner.T @ inner / len(X)
    within[np.diag_indices_from(within)] += _RIDGE * max(float(np.trace(within)) / len(within), 1e-300)
    spread = means[place] - X.mean(axis=0)
    _, V = linalg.eigh(spread.T @ spread / len(X), within)
    count = min(rank, len(classes) - 1)
    V = V[:, ::-1][:, :count]
    V = V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(count)])
    rest = others[:, : rank - count]
    return _unit(np.hstack([_unit(part, X) for part in (V, rest) if part.shape[1]]), X)


def _unit(V: Array, X: Array) -> Array:
    size = float(np.sqrt(np.mean(np.square(X @ V))))
    return V / size if size > 0 else V


def _r_squared(truth: Array, predicted: Array) -> float:
    total = float(np.sum(np.square(truth - truth.mean())))
    return 1.0 - float(np.sum(np.square(truth - predicted))) / total if total > 0 else 0.0
