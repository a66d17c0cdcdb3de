"""`OnlineLearner`: a metric for vectors that follows a stream of feedback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from nearwise._common.checks import one_of, positive, share, whole_number_or_none, yes_or_no
from nearwise._common.errors import RowsError
from nearwise._common.types import Array, Codes
from nearwise._common.warning import warn
from nearwise.learners import _bases, _rows, _side
from nearwise.learners._progress import whole
from nearwise.learners.base import METADATA, LinearLearner, PriorKeptWarning
from nearwise.learners.metric import Metric, euclidean, symmetric_root
from nearwise.linalg.distances import squared_distances
from nearwise.online import feedback
from nearwise.online.feedback import Pieces
from nearwise.online.streams import UPDATES, State, Stream, Update
from nearwise.side import Constraints, bounds, drawing

_SETTLING = 100.0  # pieces of feedback after which the learning rate falls
_ORDINARY = 200  # exponents of two up to which fourth powers of entries are in range


class OnlineLearner(LinearLearner):
    """Learn a squared distance (x - y)^T M (x - y) from feedback that arrives piece by piece.

    `partial_fit` takes any number of pieces, and the metric is the same bit by bit whichever way a stream is
    cut. An error in a batch leaves the learner as it was. `fit` starts anew and passes once over its data.

    Parameters
    ----------
    update : "logdet", "exponentiated_gradient" or "pola", default="logdet"
        Implicit updates in the LogDet divergence; unnormalised matrix exponentiated gradients; or projections
        with a learned threshold (`nearwise.online` describes them).
    learning_rate : float, default=None
        How far the first updates go; by default 0.2 for "logdet", 0.1 for "exponentiated_gradient", and 1,
        all the way, for "pola". Errors count relative to the distances compared: no unit of the data matters.
    decay : float, default=None
        The rate of piece t is learning_rate / (1 + t / 100)^decay: 0.75 settles, 0 goes on following a stream
        that changes. By default 0.75, and 0 for "pola".
    prior : "identity", (d, d) array, `Metric`, or a fitted learner of a metric, default="identity"
        M before all feedback. A `Metric` or fitted learner with a basis brings its subspace.
    rank : int, default=None
        Learn M = I + U (L - I) U^T in a subspace of this dimension only. The subspace is drawn at random in
        `partial_fit`, which has not seen the data, and from the data in `fit`. By default all of M is learned
        for up to 1000 features, and 100 dimensions otherwise.
    basis : "auto", "random", "svd", "kmeans", "class_means", "class_clusters", "neighbors" or (d, k)
        array, default="auto"
        The subspace. The names other than "random" need the data of a `fit`.
    bounds : (upper, lower), default=None
        Squared distances for similar and dissimilar pairs that come without bounds; where only a subspace is
        learned, those in it, while bounds of constraints are on whole distances. By default the 5th and the
        95th percentile of the prior's distances, but half their median at most and twice it at least: in the
        data of `fit`, or of the first 200 pairs of the stream as they come, so that the first pair teaches
        too ("pola" learns a threshold in units of the median instead).
    n_pairs : int, default=None
        How many pairs `fit` draws from labels; by default 40 c^2 for c classes.
    random_state : int, RandomState or None, default=None
        Seed of all random choices.
    whole : bool, default=False
        Coordinates of `transform` for the whole distance, as for `MetricLearner`.

    Attributes
    ----------
    metric_ : the learned `Metric`
    start_metric_ : the `Metric` that it started from, which `prior` was then
    components_ : (n_components, d) array, the linear map of `transform`
    rank_ : dimensions of the learned subspace, d where all of M is learned
    n_feedback_, n_violated_ : pieces of feedback so far, and how many of them did not hold when they came
    pola_threshold_ : squared distance below which a pair counts as similar; None unless update="pola"
    n_constraints_dropped_ : constraints so far that named objects which were not there
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn

    Examples
    --------
    >>> import numpy as np, nearwise as nw
    >>> x = np.random.default_rng(0).standard_normal((100, 2, 3))
    >>> learner = nw.OnlineLearner().partial_fit(x, squared_distances=4.0 * (x[:, 0, 0] - x[:, 1, 0]) ** 2)
    >>> int(learner.get_mahalanobis_matrix().diagonal().argmax())
    0
    """

    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = METADATA

    state_: State
    _made: dict[str, Metric]  # the metric, once it was asked for
    _subspace: Array | None
    _prior_factor: Array | None
    _exponent: int | None  # vectors are learned from in units of two to this power; None before any entry
    _calibration: Array
    _seen_labels: list[Any]  # classes in the order of their latest rows, whose features follow
    _seen_features: Array

    _stored: ClassVar[tuple[str, ...]] = (
        *LinearLearner._stored,
        *("state_", "n_feedback_", "n_violated_", "_made", "_subspace", "_prior_factor", "_exponent"),
        *("_calibration", "_seen_labels", "_seen_features"),
    )
    _absent: ClassVar[dict[str, Any]] = {"_exponent": 0}

    def __init__(
        self,
        update: str = "logdet",
        learning_rate: float | None = None,
        decay: float | None = None,
        prior: Any = "identity",
        rank: int | None = None,
        basis: str | ArrayLike = "auto",
        bounds: tuple[float, float] | None = None,
        n_pairs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        whole: bool = False,
    ) -> None:
        self.update = update
        self.learning_rate = learning_rate
        self.decay = decay
        self.prior = prior
        self.rank = rank
        self.basis = basis
        self.bounds = bounds
        self.n_pairs = n_pairs
        self.random_state = random_state
        self.whole = whole

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
        """Start anew and pass once over pairs drawn from labels, shuffled, and over constraints, in order.

        Parameters as in `MetricLearner.fit`.
        """
        n_pairs = whole_number_or_none(self.n_pairs, "n_pairs")
        X = self._training_data(X)
        side = _side.Side.read(X.shape[0], y, constraints, sample_ids, sample_weight)
        _side.tell_of_equal(side.constraints, X)
        rng = check_random_state(self.random_state)
        exponent = _exponent(X)
        X = _in_unit(X, exponent)
        self._start(X, side.codes, X.shape[1], rng)
        inside, features = self._features(X)
        sample = feedback.squared_lengths(features, bounds.sampled_pairs(X.shape[0]))
        self._calibration = feedback.evenly_chosen(sample)
        pieces = feedback.nothing()
        if side.codes is not None:
            same, different = drawing.random_pairs(side.codes, n_pairs, rng)
            rows = np.full((len(same) + len(different), 4), -1, np.int64)
            rows[:, :2] = np.concatenate([same, different])
            relation = np.where(np.arange(len(rows)) < len(same), -1, 1).astype(np.int8)
            order = rng.permutation(len(rows))
            counts = None if side.weights is None else side.weights[rows[order, :2]].prod(axis=1)
            pieces = Pieces(rows[order], relation[order], np.full(len(rows), np.nan), counts)
        given = feedback.of_blocks(side.constraints.blocks)
        pieces += self._inside(X, inside, _bounds_in_unit(given, exponent))
        self.n_constraints_dropped_ = side.n_dropped
        if not len(pieces):
            warn(f"OnlineLearner returns the prior: {side.nothing_known}", PriorKeptWarning)
        self._follow(features, pieces, exponent)
        self._tell_of_selection(X, side.constraints)
        return self

    @whole
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        squared_distances: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one or more pieces of feedback, in their order.

        Parameters
        ----------
        X : (m, 2, d) pairs, (m, 3, d) triplets (a, p, n) with a nearer to p than to n, or (m, 4, d)
            quadruplets (i, j, k, l) with i, j nearer than k, l; or (n, d) data, dense or sparse, to which
            labels or constraints refer
        y : for pairs +1 (similar) or -1 (dissimilar), for quadruplets -1 where k, l are nearer; 1 and 0, or
            True and False, mean the same; for data, labels of any type: each row is compared with the
            latest of its class and of another class. None, NaN and -1 mean no label (here always, because a
            part of a stream does not show all classes).
        constraints : bounds on distances, and comparisons, of rows of the data
        sample_ids : ids by which the constraints name the rows; those on others are left out and counted
        squared_distances : of pairs: one number > 0, or one each
        sample_weight : how often every tuple, or every row of data with what it says, comes: numbers >= 0
        """
        _rows.refuse(X, self)
        first = not hasattr(self, "state_")
        if np.ndim(X) == 3 and not sparse.issparse(X):
            if constraints is not None or sample_ids is not None:
                raise ValueError("constraints and sample_ids refer to rows of (n, d) data, not to tuples")
            vectors, pieces = feedback.of_tuples(X, y, squared_distances)
            feedback.tell_of_equal(vectors, pieces)
            pieces = pieces.weighed(_side.read_weights(sample_weight, len(pieces)))
            if first:
                validate_data(self, vectors, dtype=np.float64, ensure_min_samples=0)
            elif vectors.shape[1] != self.n_features_in_:
                known = f"this OnlineLearner has seen {self.n_features_in_}"
                raise ValueError(f"the vectors have {vectors.shape[1]} features, but {known}")
            if first:
                self._start(None, None, vectors.shape[1])
            exponent = self._exponent_for(vectors)
            vectors, pieces = _in_unit(vectors, exponent), _bounds_in_unit(pieces, exponent)
            inside, features = self._features(vectors)
            self._follow(features, self._inside(vectors, inside, pieces), exponent)
            return self
        if squared_distances is not None:
            raise ValueError("squared_distances belong to pairs of vectors, X of shape (m, 2, d)")
        X = validate_data(self, X, reset=first, accept_sparse="csr", dtype=np.float64)
        if y is None and constraints is None:
            raise ValueError("no feedback: give y, constraints, or tuples of vectors")
        labels = None if y is None else feedback.label_list(y, X.shape[0])
        side = _side.Side.read(X.shape[0], None, constraints, sample_ids, sample_weight)
        _side.tell_of_equal(side.constraints, X)
        if labels is not None and side.weights is not None:
            labels = [
                label if weight > 0 else None for label, weight in zip(labels, side.weights, strict=True)
            ]
        bounded = feedback.of_blocks(side.constraints.blocks)
        if first:
            self._start(None, None, X.shape[1])
        exponent = self._exponent_for(X)
        X, bounded = _in_unit(X, exponent), _bounds_in_unit(bounded, exponent)
        inside, features = self._features(X)
        pieces = feedback.nothing()
        if labels is not None:
            seen = len(self._seen_labels)
            features = np.concatenate([self._seen_features, features])
            pieces, self._seen_labels, latest = feedback.of_labels(labels, self._seen_labels)
            if side.weights is not None:  # what a row says, it says when it comes, and as often
                pieces = pieces.weighed(side.weights[pieces.rows[:, 1] - seen])
            self._seen_features = features[latest]
            shifted = np.where(bounded.rows >= 0, bounded.rows + seen, -1)
        else:
            shifted = bounded.rows
        bounded = self._inside(X, inside, bounded)
        self.n_constraints_dropped_ += side.n_dropped
        self._follow(features, pieces + replace(bounded, rows=shifted), exponent)
        return self

    @property
    def metric_(self) -> Metric:
        """The learned metric, worked out when it is asked for."""
        if not hasattr(self, "state_"):
            raise AttributeError("metric_ exists after fit or partial_fit")
        if "metric" not in self._made:
            factor = self._rule().factor(self.state_)
            if self._prior_factor is not None:
                factor = self._prior_factor @ factor
            self._made["metric"] = Metric(symmetric_root(factor), self._subspace)
        return self._made["metric"]

    @property
    def start_metric_(self) -> Metric:
        """The metric before any feedback."""
        if not hasattr(self, "state_"):
            raise AttributeError("start_metric_ exists after fit or partial_fit")
        if self._prior_factor is None:
            return euclidean(self.n_features_in_)
        return Metric(self._prior_factor, self._subspace)

    @property
    def pola_threshold_(self) -> float | None:
        """Between the distances of similar and of dissimilar pairs."""
        self._fitted_metric()
        if "threshold" not in self.state_:
            return None
        found = float(self.state_["threshold"][0])
        if not len(self._calibration):
            return found
        return float(np.ldexp(np.median(self._calibration) * found, 2 * (self._exponent or 0)))

    def _rule(self) -> Update:
        return UPDATES[one_of(self.update, "update", tuple(UPDATES))]

    def _rates(self, m: int) -> Array:
        """Of the next m pieces."""
        rule = self._rule()
        rate: Any = rule.learning_rate if self.learning_rate is None else self.learning_rate
        decay: Any = rule.decay if self.decay is None else self.decay
        rate, decay = positive(rate, "learning_rate", " or None"), share(decay, "decay", " or None")
        age = 1.0 + np.arange(self.n_feedback_, self.n_feedback_ + m) / _SETTLING
        return np.asarray(rate / age**decay, dtype=np.float64)

    def _start(self, X: Any, codes: Codes | None, d: int, rng: np.random.RandomState | None = None) -> None:
        """The prior, its subspace, and a state in which nothing is learned; without data X is None."""
        yes_or_no(self.whole, "whole")
        self._subspace, self._prior_factor = _bases.prior(self.prior, d)
        if self._subspace is None and self._prior_factor is None:
            draws = check_random_state(self.random_state) if rng is None else rng
            self._subspace = _bases.subspace(self.basis, self.rank, X, codes, draws, d)
        elif self.rank is not None or not (isinstance(self.basis, str) and self.basis == "auto"):
            raise ValueError("rank and basis choose a subspace for the prior 'identity'")
        widths = (self._prior_factor, self._subspace)
        self.rank_ = next((part.shape[1] for part in widths if part is not None), d)
        self.state_ = self._rule().start(self.rank_)
        self._made = {}
        self._exponent = None
        self._calibration = np.empty(0)
        self._seen_labels = []
        self._seen_features = np.empty((0, self.rank_))
        self.n_feedback_ = self.n_violated_ = self.n_constraints_dropped_ = 0

    def _exponent_for(self, X: Any) -> int | None:
        """The exponent so far, or that of the first vector that is not zero."""
        return _exponent(X) if self._exponent is None else self._exponent

    def _features(self, X: Any) -> tuple[Array | None, Array]:
        """Coordinates in the subspace, None where there is none, and features in which the prior is I."""
        inside = None if self._subspace is None else feedback.projected(X, self._subspace)
        if self._prior_factor is not None:
            return inside, feedback.projected(X if inside is None else inside, self._prior_factor)
        if inside is not None:
            return inside, inside
        # numba compiles a loop anew for arrays that cannot be written, which takes many seconds
        return None, np.require(X.toarray() if sparse.issparse(X) else X, requirements=["C", "W"])

    def _inside(self, X: Any, inside: Array | None, pieces: Pieces) -> Pieces:
        """Bounds on what the subspace contributes to distances."""
        if inside is None or not len(pieces):
            return pieces
        fixed = np.stack([_outside(X, inside, pieces.rows[:, k : k + 2]) for k in (0, 2)], axis=1)
        return pieces.inside(fixed)

    def _follow(self, features: Array, pieces: Pieces, exponent: int | None) -> None:
        """Fill open bounds, and update the state; `exponent` is that of the unit of all lengths."""
        pieces, given = pieces.repeated()
        target, slope = pieces.bound.copy(), np.zeros(len(pieces))
        vacant = np.isnan(target)
        if self.bounds is not None:
            upper, lower = np.ldexp(self._given_bounds(), -2 * (exponent or 0))
            target[vacant] = np.where(pieces.relation[vacant] < 0, upper, lower)
        elif vacant.any():
            lengths = feedback.squared_lengths(features, pieces.rows[vacant])
            if not np.isfinite(lengths).all():
                raise _overflow(int(given[np.flatnonzero(vacant)[np.argmin(np.isfinite(lengths))]]))
            filled, self._calibration = feedback.calibrated(lengths, self._calibration)
            upper, unit, lower = filled.T
            relation = pieces.relation[vacant]
            if self.update == "pola":
                target[vacant], slope[vacant] = relation * unit, unit
            else:
                target[vacant] = np.where(relation < 0, upper, lower)
        rates = pieces.weights * self._rates(len(pieces))
        stream = Stream(features, pieces.rows, pieces.relation, target, slope, rates)
        state, done, missed = self._rule().follow(self.state_, stream)
        if done < len(pieces):
            raise _overflow(int(given[done]))
        self.state_, self._made, self._exponent = state, {}, exponent
        self.n_feedback_ += len(pieces)
        self.n_violated_ += missed

    def _given_bounds(self) -> tuple[float, float]:
        found = np.asarray(self.bounds, dtype=np.float64)
        if found.shape != (2,) or not np.all(np.isfinite(found) & (found > 0.0)):
            raise ValueError(f"bounds must be two finite numbers > 0 or None, got {self.bounds!r}")
        if found[0] > found[1]:
            raise ValueError(
                "bounds are the largest squared distance of similar pairs and the least of dissimilar ones: "
                f"the first must not be above the second, got {self.bounds!r}"
            )
        return float(found[0]), float(found[1])


def _overflow(row: int) -> RowsError:
    what = "a squared distance, or its ratio to its bound, is too large for a floating-point number"
    reason = f"{what}; scale X, or lower learning_rate"
    return RowsError([row], before="row ", after=f" of the feedback: {reason}")


def _exponent(X: Any) -> int | None:
    """Of a power of two near the largest entry of a row, where that is huge or tiny, else 0.

    Updates multiply squared distances, which else leave the range of numbers. The row is the first one with
    an entry that is not zero, so that it does not matter how a stream is cut; None if there is none.
    """
    rows = sparse.csr_array(X) if sparse.issparse(X) else X
    for i in range(rows.shape[0]):
        largest = float(abs(rows[[i]]).max())
        if largest > 0.0:
            found = int(np.frexp(largest)[1])
            return 0 if abs(found) <= _ORDINARY else found
    return None


def _in_unit(X: Any, exponent: int | None) -> Any:
    """Rows in units of two to this power."""
    if not exponent:
        return X
    if sparse.issparse(X):
        scaled = X.copy()
        scaled.data = np.ldexp(X.data, -exponent)
        return scaled
    return np.ldexp(X, -exponent)


def _bounds_in_unit(pieces: Pieces, exponent: int | None) -> Pieces:
    """Bounds on squared distances of such rows."""
    return replace(pieces, bound=np.ldexp(pieces.bound, -2 * exponent)) if exponent else pieces


def _outside(X: Any, inside: Array, rows: NDArray[np.int64]) -> Array:
    """Squared distances of pairs of rows outside the subspace; 0 where a pair is missing."""
    rows = np.maximum(rows, 0)
    if sparse.issparse(X):
        everything = squared_distances(X, *rows.T)
    else:
        everything = feedback.squared_lengths(np.ascontiguousarray(X), rows)
    return np.maximum(everything - feedback.squared_lengths(inside, rows), 0.0)
