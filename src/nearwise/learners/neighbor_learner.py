"""`NeighborLearner`: few dimensions in which neighbours tell classes, or numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearwise._common.checks import one_of, whole_number, whole_number_or_none
from nearwise._common.types import Array, Index, Limit
from nearwise._common.warning import warn
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult
from nearwise.learners import _side, _soft_neighbors
from nearwise.learners._progress import progress, whole, with_callbacks
from nearwise.learners._soft_neighbors import SoftNeighbors, descended
from nearwise.learners.base import LinearLearner, PriorKeptWarning, rank_wanted
from nearwise.learners.metric import Metric, euclidean
from nearwise.methods import Status
from nearwise.side import Constraints, drawing, labelling

_FEWEST = 8  # rows from which on a half is held out


class NeighborLearner(LinearLearner):
    """Learn a linear map after which an object's neighbours tell its class, or its number.

    Every object chooses another one at random, near ones more likely. The map minimises the mean of -log of
    the probability to choose one of the own class (target="labels"), or the mean squared error of the average
    of what would be chosen as a prediction of the own number (target="numbers"). That is a cost of the map
    itself, so few dimensions are used well: it is for maps that people look at, and for regression by nearest
    neighbours. With labels, a small multiple of the map's squared size is added, which falls in steps from a
    large one: neighbourhoods that are wide first narrow gradually. The cost is not convex: what is found is a
    stationary point, and never costs more than its start.

    Parameters
    ----------
    rank : int or None, default=2
        Dimensions of `transform`, at most d; None for d.
    target : "labels" or "numbers", default="labels"
        What y holds.
    affinity : "auto", "student" or "gauss", default="auto"
        How fast the probability falls with the squared distance d: like (1 + d / 3)^-2 or like exp(-d).
        "auto" is "student" for labels, and "gauss" for numbers.
    n_rows : int, default=2000
        How many rows to learn from at most, a random choice; time and memory of an iteration grow with its
        square.
    max_iter : int, default=100
        The largest number of iterations of the last step; those before it have up to 40. A fit starts from
        the directions of linear discriminant analysis with labels, and from principal ones with numbers.
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

    _stored: ClassVar[tuple[str, ...]] = (*LinearLearner._stored, "scores_")

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
    def fit(self, X: Any, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : (n, d) dense data
        y : n labels of any type, None, NaN and -1 meaning none; or with target="numbers" n numbers, NaN
            meaning none. Rows without one help to find the principal directions that a fit starts from.
        sample_weight : n numbers >= 0, as if a row of weight 2 were there twice
        """
        X = self._training_data(X)
        kind = one_of(self.target, "target", ("labels", "numbers"))
        chosen = one_of(self.affinity, "affinity", ("auto", "student", "gauss"))
        affinity = {"labels": "student", "numbers": "gauss"}[kind] if chosen == "auto" else chosen
        most = whole_number(self.n_rows, "n_rows", 2)
        whole_number_or_none(self.max_iter, "max_iter")
        rank = rank_wanted(self.rank, X.shape[1]) or X.shape[1]
        rng = check_random_state(self.random_state)
        targets, known, weights, nothing = self._read(X, y, kind, sample_weight)
        centred, scale = _soft_neighbors.in_unit(X, weights)
        others = _soft_neighbors.principal(centred, rank, weights)
        costs = SoftNeighbors(centred, targets, kind, affinity, weights).part(known)
        costs = costs.part(np.sort(rng.permutation(len(known))[:most]))
        self.scores_ = None
        self.result_ = None
        self.n_iter_, self.status_ = 0, Status.STATIONARY
        factor, self.kept_prior_ = others, True
        if not nothing:
            self.kept_prior_ = False
            if self.check and len(costs.X) >= _FEWEST:
                self.scores_, gain = self._held_out(costs, others, rng)
                self.kept_prior_ = gain <= 1.0 if rank == X.shape[1] else gain < -1.0
            factor = _soft_neighbors.start_of(costs, others)
        if not self.kept_prior_:
            with progress(self, X, y) as report:
                found: Any = self._learned(costs, factor, report)
            self.result_, self.status_, self.n_iter_ = found, found.status, report.n_iterations
            factor = found.factor
        self.metric_, self.start_metric_ = Metric(factor * scale), euclidean(X.shape[1])
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
        Z, targets = self.transform(X), labelling.read_targets(y)
        known = np.flatnonzero(~np.isnan(targets))
        count = min(drawing.N_NEIGHBORS, len(known) - 1)
        near = drawing.nearest_others(drawing.nearest_rows(Z), known, known, count)
        truth, predicted = targets[known], targets[near].mean(axis=1)
        total = float(np.sum(np.square(truth - truth.mean())))
        return 1.0 - float(np.sum(np.square(truth - predicted))) / total if total > 0 else 0.0

    @property
    def _accept_sparse(self) -> bool:
        return False

    def _read(self, X: Any, y: Any, kind: str, sample_weight: Any) -> tuple[Array, Index, Array | None, str]:
        """Targets, the rows that have one, their weights, and why they tell nothing, where that is so."""
        n = X.shape[0]
        if y is None:
            return np.zeros(n), np.empty(0, np.int64), _side.read_weights(sample_weight, n), "there is no y"
        useless = "" if np.ptp(X, axis=0).any() else "all rows of X are equal"
        if kind == "labels":
            side = _side.Side.read(n, y, sample_weight=sample_weight)
            if side.codes is None:
                return np.zeros(n), np.empty(0, np.int64), side.weights, side.nothing_known
            return side.codes.astype(np.float64), np.flatnonzero(side.codes >= 0), side.weights, useless
        targets, weights = labelling.read_targets(y), _side.read_weights(sample_weight, n)
        if len(targets) != n:
            raise ValueError(f"X has {n} rows, but there are {len(targets)} targets")
        counts = np.ones(n) if weights is None else weights
        known = np.flatnonzero(~np.isnan(targets) & (counts > 0.0))
        if len(known) < 3 or np.ptp(targets[known]) == 0.0:
            useless = "fewer than two different numbers, or three rows with one"
        return targets, known, weights, useless

    def _learned(self, costs: SoftNeighbors, start: Array, callback: Any) -> FixedRankResult:
        began = time.perf_counter()
        records: list[FixedRankRecord] = []

        def seen(iteration: int, cost: float, moved: float) -> bool:
            records.append(FixedRankRecord(iteration, time.perf_counter() - began, cost, moved))
            return bool(callback(records[-1]))

        factor, settled = descended(costs, start, self.max_iter, seen)
        cost = records[-1].cost if records else costs.cost(factor)[0]
        status = Status.INTERRUPTED if callback.stop else Status.STATIONARY if settled else Status.LIMIT
        message = {
            Status.INTERRUPTED: "Interrupted",
            Status.STATIONARY: "No step of the last ones lowered the cost much",
            Status.LIMIT: f"Stopped at the limit of {self.max_iter} iterations",
        }[status]
        said = f"{message}: cost {cost:.3g}."
        limit: Limit | None = "iterations" if status is Status.LIMIT else None
        return FixedRankResult(factor, cost, status, tuple(records), "L-BFGS", said, limit)

    def _held_out(
        self, costs: SoftNeighbors, others: Array, rng: np.random.RandomState
    ) -> tuple[tuple[float, float], float]:
        """On one half of the rows, the start's score and that of what the other half teaches.

        And what is gained, in standard errors of that gain.
        """
        X, targets, is_labels = costs.X, costs.targets, costs.kind == "labels"
        order = rng.permutation(len(X))
        if is_labels:
            order = order[np.argsort(targets[order], kind="stable")]
        part, rest = order[::2], order[1::2]
        half = costs.part(part)
        start = _soft_neighbors.start_of(half, others)
        learned, _ = descended(half, start, self.max_iter)

        def success(A: Array) -> Array:
            """Of every row held out; its mean is the score."""
            near = targets[drawing.nearest_rows(X @ A)(rest, part, min(drawing.N_NEIGHBORS, len(part)))]
            if is_labels:
                return np.asarray(np.mean(near == targets[rest, None], axis=1))
            variance = float(np.var(targets[rest])) or 1.0
            return np.asarray(1.0 - np.square(near.mean(axis=1) - targets[rest]) / variance)

        before, after = success(start), success(learned)
        counts = np.ones(len(rest)) if costs.weights is None else costs.weights[rest]
        scores = float(np.average(before, weights=counts)), float(np.average(after, weights=counts))
        gain = scores[1] - scores[0]
        error = float(np.sqrt(np.average(np.square(after - before - gain), weights=counts) / counts.sum()))
        return scores, gain / error if error > 0 else 0.0

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
