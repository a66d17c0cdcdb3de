"""`FixedRankLearner`: a Mahalanobis metric of fixed rank, whose subspace is learned too."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearwise._common.checks import one_of
from nearwise._common.threads import LARGE_MATRIX, one_blas_thread
from nearwise._common.types import Array
from nearwise._common.warning import warn
from nearwise.distributed import Stacked, Vectors
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult
from nearwise.fixed_rank.in_pieces import RegressionInPieces
from nearwise.fixed_rank.online import Schedule
from nearwise.learners import _fixed_rank_in_pieces as in_pieces, _side, fixed_rank as shared
from nearwise.learners._checkpoint import open_checkpoint
from nearwise.learners._in_pieces import sample_of_constraints
from nearwise.learners._place import Place
from nearwise.learners._progress import progress, whole, with_callbacks
from nearwise.learners._rows import rows_of
from nearwise.learners._trial import hold_out
from nearwise.learners.base import METADATA, LinearLearner, PriorKeptWarning, WorseThanEuclideanWarning
from nearwise.learners.coordinate_metrics import LowRankKernelMetric
from nearwise.learners.input_kernels import InputKernel, first_equal_rows
from nearwise.learners.metric import Metric, euclidean
from nearwise.methods import Status
from nearwise.side import Constraints, bounds, constraints as c

_COARSE = 1e-3  # tol of a run that only shows whether learning helps


@dataclass(frozen=True)
class HeldOutScores:
    """On what was held out: of the start, of what the rest teaches, and of the Euclidean distance."""

    start: float
    learned: float
    euclidean: float


class FixedRankLearner(LinearLearner):
    """Learn a squared distance (x - y)^T G G^T (x - y) with r columns in G. MBS11, sections 8.2 and 9.2.

    Unlike the other learners it moves the subspace in which it measures, so it reduces dimension by what is
    known about the objects, not by their variance. The cost is the mean over constraints of half the squared
    amount by which they fail. It is not convex: what is found is a stationary point.

    Parameters
    ----------
    rank : int or None, default=2
        Dimensions of `transform`, at most d; None for d.
    geometry, subspace_weight, solver, start, kernel, kernel_params, n_basis, tol, max_iter, batch_size,
    epochs, annealing : as for `FixedRankRegressor`
    pairs : "random" or "local", default="random"
        How pairs are drawn from labels: uniformly, or between near neighbours.
    n_pairs : int, default=None
        How many pairs to draw from labels; by default as `constraints.from_labels` does.
    random_state : int, RandomState or None, default=None
        Seed of all random choices.
    callback : callable, default=None
        Called with a `FixedRankRecord` after every iteration or epoch; a true answer ends the fit.
    checkpoint : path, default=None
        As for `MetricLearner`; not with solver="online", whose `partial_fit` goes on from what was saved.
    check : bool, default=True
        Learn from a part first, and return the start where that is worse on the rest than the start is. With
        labels, half of the objects are held out and their five nearest neighbours counted; without, a third
        of the constraints. Nothing is held out where there is too little, nor by `partial_fit`.

    Attributes
    ----------
    metric_ : the learned `Metric`
    start_metric_ : what measured before: the Euclidean distance, or that of the input kernel
    components_ : (rank, d) array, the linear map of `transform`; not with a kernel
    rank_ : its rows
    bounds_ : the squared distances that similar pairs shall not exceed and dissimilar ones shall, where no
        bound is given: percentiles 5 and 95 of the squared distances under the start, but half their median
        at most and twice it at least (`model.bounds` has the rule of all learners)
    margin_ : the margin of comparisons that have none, the median of the same distances: without one, the
        matrix 0 would do
    scores_ : `HeldOutScores` of the start, of what was learned and of the Euclidean distance on what was held
        out, each the higher the better; None where nothing was
    result_ : `FixedRankResult`; None where nothing was to be learned
    status_, n_iter_ : STATIONARY, LIMIT or INTERRUPTED; iterations or epochs
    schedule_, n_seen_ : step sizes and constraints seen, online only
    kept_prior_ : whether the metric is the start: nothing to learn from, or learning did not help
    n_constraints_used_, n_constraints_dropped_, n_features_in_, feature_names_in_ : as for `MetricLearner`

    Examples
    --------
    >>> import nearwise as nw
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = nw.FixedRankLearner(rank=2, random_state=0).fit(X, y)
    >>> learner.transform(X).shape
    (150, 2)
    >>> learner.status_
    <Status.STATIONARY: 'stationary'>
    """

    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = METADATA

    schedule_: Schedule | None
    result_: Any

    _stored: ClassVar[tuple[str, ...]] = (
        *LinearLearner._stored,
        *("features_", "units_", "bounds_", "margin_", "scores_", "schedule_", "n_seen_"),
    )

    def __init__(
        self,
        rank: int | None = 2,
        geometry: str = "polar",
        subspace_weight: float = 0.5,
        solver: str = "auto",
        start: str | ArrayLike = "principal",
        kernel: str | Callable[..., float] | None = None,
        kernel_params: Mapping[str, Any] | None = None,
        n_basis: int = 100,
        pairs: str = "random",
        n_pairs: int | None = None,
        tol: float = 1e-5,
        max_iter: int | None = None,
        batch_size: int = 32,
        epochs: int = 5,
        annealing: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[FixedRankRecord], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        check: bool = True,
    ) -> None:
        self.rank = rank
        self.geometry = geometry
        self.subspace_weight = subspace_weight
        self.solver = solver
        self.start = start
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_basis = n_basis
        self.pairs = pairs
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.epochs = epochs
        self.annealing = annealing
        self.random_state = random_state
        self.callback = callback
        self.checkpoint = checkpoint
        self.check = check

    @with_callbacks
    @whole
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the metric; arguments as for `MetricLearner`."""
        X, y, sample_ids, sample_weight = in_pieces.opened(
            self, X, y, sample_ids, sample_weight, constraints, first=True
        )
        if isinstance(X, Vectors) and self.solver == "online":
            raise ValueError(
                "solver='online' needs data and constraints in memory; partial_fit takes those in pieces too"
            )
        rng = check_random_state(self.random_state)
        given = _side.Side.read(X.shape[0], y, constraints, sample_ids, sample_weight, in_files=True)
        side = self._with_pairs(X, given, self.n_pairs, rng)
        rows, start, chosen = self._begin(X, rng)
        _side.tell_of_equal(given.constraints, X)
        if self.checkpoint is not None and chosen.solver == "online":
            raise ValueError("checkpoint is not for solver='online': save the learner between partial_fits")
        problem, units = self._problem(side, rows, None)
        found, self.schedule_, self.n_seen_ = None, None, 0
        self.scores_ = None if problem is None else self._scores(X, rows, given, start, chosen, rng)
        helps = self.scores_ is None or self.scores_.learned >= self.scores_.start
        if problem is not None and helps:
            with progress(self, X, y) as callback:
                found, self.schedule_, self.n_seen_ = self._solved(
                    problem, units.inward(start), chosen, rng, callback, self.checkpoint
                )
        self._keep(found, units, start, side, 0 if problem is None else len(side.constraints))
        if found is not None:
            shared.tell_end(self, found, chosen.solver)
        self._tell_of_selection(X, given.constraints)
        return self

    @whole
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more objects and constraints on them: one pass in mini-batches, (9) and (20).

        Pairs from labels are drawn within the objects of the call. The first call chooses start, bounds,
        units and step sizes from its data. Rows in pieces are as many calls as there are parts of
        constraints that name few objects.
        """
        first = not hasattr(self, "metric_")
        X, y, sample_ids, sample_weight = in_pieces.opened(
            self, X, y, sample_ids, sample_weight, constraints, first
        )
        if isinstance(X, Vectors):
            in_pieces.partial_fit(self, X, y, constraints, sample_ids, sample_weight)
            return self
        rng = check_random_state(self.random_state)
        given = _side.Side.read(X.shape[0], y, constraints, sample_ids, sample_weight)
        _side.tell_of_equal(given.constraints, X)
        side = self._with_pairs(X, given, self.n_pairs, rng)
        if first:
            rows, start, chosen = self._begin(X, rng)
            self.schedule_, self.n_seen_, self.scores_ = None, 0, None
        else:
            rows = X if self.features_ is None else self.features_(X)
            start, chosen = self.metric_.factor, shared.settings(self, rows.shape[1])
        problem, units = self._problem(side, rows, None if first else self.units_)
        found = None
        if problem is not None:
            found, self.schedule_, self.n_seen_ = shared.epochs(
                problem, units.inward(start), chosen, self.schedule_, self.n_seen_, rng
            )
        self._keep(found, units, start, side, 0 if problem is None else len(side.constraints))
        return self

    def _scores(
        self,
        X: Any,
        rows: Any,
        given: _side.Side,
        start: Array,
        chosen: shared.Settings,
        rng: np.random.RandomState,
    ) -> HeldOutScores | None:
        """What a coarse run on a part of what is known comes to on the rest; None without a rest."""
        looked_at = rows
        if isinstance(rows, Vectors) and given.codes is None and self.check:
            looked_at, some = sample_of_constraints(rows, given.constraints, rng)
            given = replace(given, n_objects=len(looked_at), constraints=some)
        trial = hold_out(Place(looked_at), given, rng) if self.check else None
        if trial is None:
            return None
        n_pairs, part = self.n_pairs, trial.side
        if n_pairs is not None and part.codes is not None:
            n_pairs = max(1, n_pairs * len(trial.rows) // X.shape[0])
        learned_from = rows_of(looked_at, trial.rows)
        near = learned_from if self.features_ is None else X[trial.rows]
        problem, units = self._problem(self._with_pairs(near, part, n_pairs, rng), learned_from, None)
        if problem is None:
            return None
        coarse = replace(chosen, tol=max(chosen.tol, _COARSE), thorough=False)
        found = self._solved(problem, units.inward(start), coarse, rng)[0]
        return HeldOutScores(trial.score(start), trial.score(units.outward(found.factor)), trial.score(None))

    def _solved(
        self,
        problem: Any,
        start: Array,
        chosen: shared.Settings,
        rng: np.random.RandomState,
        callback: Any = None,
        checkpoint: Any = None,
    ) -> tuple[FixedRankResult, Schedule | None, int]:
        """As `shared.solved`, also of a problem in pieces."""
        if isinstance(problem, RegressionInPieces):
            found = in_pieces.batch(problem, start, chosen, callback, checkpoint, self.random_state)
            return found, None, 0
        settings = (problem, start, self.geometry, self.subspace_weight, chosen.solver, chosen.tol)
        memory = open_checkpoint(checkpoint, self.random_state, *settings)
        return shared.solved(problem, start, chosen, rng, callback, memory)

    @property
    def start_metric_(self) -> Metric | InputKernel:
        """The distance of the data, or of the input kernel."""
        self._fitted_metric()
        return euclidean(self.n_features_in_) if self.features_ is None else self.features_.kernel

    def _with_pairs(
        self, X: Any, side: _side.Side, n_pairs: int | None, rng: np.random.RandomState
    ) -> _side.Side:
        """What is known, with the pairs drawn from labels written out."""
        draw: Any = one_of(self.pairs, "pairs", ("random", "local"))
        if draw == "local" and self._is_precomputed:
            raise ValueError("pairs='local' needs data, not a precomputed kernel: draw pairs='random'")
        drawn = Constraints()
        if side.codes is not None:
            near = X if draw == "local" else None
            same, different = in_pieces.pairs_of_classes(side.codes, near, draw, n_pairs, rng)
            drawn = _side.weighed(c.similar(same) + c.dissimilar(different), side.weights)
        return replace(side, constraints=drawn + side.constraints)

    def _begin(self, X: Any, rng: np.random.RandomState) -> tuple[Any, Array, shared.Settings]:
        """The rows on which the metric works, the start, and the settings; sets features and open bounds."""
        with one_blas_thread(
            X.shape[0] <= LARGE_MATRIX
        ):  # rounding of a start may decide where a descent ends
            self.features_ = shared.kernel_features(self, X, rng)
            rows = X if self.features_ is None else self.features_(X)[first_equal_rows(X)]
            chosen = shared.settings(self, rows.shape[1])
            seen = in_pieces.some_rows(rows)
            start = shared.start_factor(self.start, seen, rows.shape[1], chosen.rank, rng)
            distances = in_pieces.sampled_distances(rows, start)
        filling = bounds.of_sample(distances) or bounds.OpenBounds(0.0, 1.0, 0.0)
        self.bounds_, self.margin_ = (filling.upper, filling.lower), filling.threshold
        return rows, start, chosen

    def _problem(self, side: _side.Side, rows: Any, units: shared.Units | None) -> tuple[Any, shared.Units]:
        """The cost of the constraints, in pieces where the rows are; None where nothing is to be learned."""
        given = bounds.with_margins(side.constraints, self.margin_)
        all_open = all(block.has_open_bounds for block in given.blocks if len(block))
        if not len(given) or (all_open and self.bounds_[1] == 0.0):
            return None, units or shared.Units()
        filled = bounds.OpenBounds(self.bounds_[0], self.margin_, self.bounds_[1]).filled(given)
        shared.refuse_incomparable(side.constraints, filled, self.margin_)
        if isinstance(rows, Vectors) or filled.is_stored:
            vectors = rows if isinstance(rows, Vectors) else Stacked([rows])
            return in_pieces.regression(vectors, side.constraints, filled, units, self.checkpoint is not None)
        return shared.of_constraints(filled, rows, side.n_objects, units)

    def _keep(
        self,
        found: FixedRankResult | None,
        units: shared.Units,
        start: Array,
        side: _side.Side,
        n_used: int,
    ) -> None:
        name, scores = type(self).__name__, self.scores_
        self.units_ = units
        self.result_ = None if found is None else units.result(found)
        factor = start if self.result_ is None else self.result_.factor
        features = self.features_
        self.metric_ = Metric(factor) if features is None else LowRankKernelMetric(features, factor)
        self.rank_ = factor.shape[1]
        self.status_ = Status.STATIONARY if found is None else found.status
        self.n_iter_ = 0 if found is None else found.n_iter
        self.kept_prior_ = found is None
        self.n_constraints_used_, self.n_constraints_dropped_ = n_used, side.n_dropped
        if found is None:
            cause = side.nothing_known
            if n_used and scores is not None:
                worse = f"scores {scores.learned:.3g} on the rest, the start {scores.start:.3g}"
                cause = f"what is learned from a part of the data {worse}; check=False learns anyway"
            warn(f"{name} returns its start: {cause}", PriorKeptWarning)
        if scores is not None:
            reached = scores.start if self.kept_prior_ else scores.learned
            if reached < scores.euclidean:
                cause = f"it scores {reached:.3g} on what was held out, the Euclidean distance of the data"
                advice = f"{scores.euclidean:.3g}; a larger rank than {self.rank_} loses less"
                warn(f"{name}: {cause} {advice}", WorseThanEuclideanWarning)
