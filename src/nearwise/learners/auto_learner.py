"""`AutoLearner`: a linear metric, one from a kernel, or both, whichever does best on what is held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from nearwise._common.checks import one_of
from nearwise._common.types import Array, Index
from nearwise.distributed import Vectors
from nearwise.learners import _in_pieces
from nearwise.learners._contest import BEFORE, Verdict
from nearwise.learners._discriminants import discriminants
from nearwise.learners._estimator import SolvingLearner
from nearwise.learners._place import FULL_FEATURES, Place, all_of, in_subspace, is_wide
from nearwise.learners._rows import MAPPED_NUMBERS, dense
from nearwise.learners._side import Side
from nearwise.learners.base import LinearLearner
from nearwise.learners.coordinate_metrics import JoinedMetric
from nearwise.learners.metric import euclidean, symmetric_root

LINEAR, KERNEL, SUM = "linear", "rbf", "linear+rbf"
MOST_CLASSES = 100  # for which there are scores
_FEWEST_OBJECTS = 20  # labelled ones, below which there are no scores


@dataclass(kw_only=True, eq=False, repr=False)
class AutoLearner(SolvingLearner, LinearLearner):
    """Learn a metric for vectors of the kind that does best on what is held out.

    From labels, three kinds compete: a linear metric as `MetricLearner` learns it; one of the vectors
    together with scores that an RBF kernel gives them; and one of these scores alone. The scores are those of
    a kernel ridge regression on the labels, one fewer than there are classes, and every object has those that
    it has without its own label; the scale of the kernel and the ridge are chosen by leaving objects out. In
    each kind, M is the matrix nearest to the identity that respects the side information, JKDD12 section 3.

    Kernels take part where there are labels of 2 to 100 classes, 20 labelled rows or more, and data of up to
    256 features in memory, and constraints besides the labels, if any, are about distances. Up to 4 million
    numbers of a Dask array or of files are taken into memory. Elsewhere the metric is the one of
    `MetricLearner`, and `choice_reason_` says why.

    Parameters
    ----------
    kernel : "auto", "linear", "rbf" or "linear+rbf", default="auto"
        Which kinds compete: all, or only the one that is named.
    divergence, penalty, scoring, pairs, n_pairs, tol, max_iter, random_state, callback,
    checkpoint : as for `MetricLearner`; a penalty that is given is that of all kinds

    Attributes
    ----------
    choice_ : the kind that was learned, or "euclidean" where no kind does better than the data as they are.
        Of kinds that are no more than half a standard error apart, the one is taken that keeps more of the
        data as they are: "euclidean", "linear", "linear+rbf", "rbf".
    choice_scores_ : pairs (kind, score on what was held out), in this order; none where only one
        kind takes part, or too little is known to hold anything out
    choice_reason_ : why only the linear kind took part; empty where others did, or it was asked for
    metric_ : the learned `Metric` or `JoinedMetric`
    start_metric_ : the Euclidean `Metric`
    result_, status_, n_iter_, penalty_, penalty_scores_, kept_prior_, n_constraints_used_,
    n_constraints_dropped_, n_features_in_, feature_names_in_ : as for `MetricLearner`; `n_iter_` counts all
        kinds, and the others are about the one that was chosen

    Examples
    --------
    >>> import nearwise as nw
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = nw.AutoLearner(random_state=0).fit(X, y)
    >>> [name for name, score in learner.choice_scores_]
    ['euclidean', 'linear', 'linear+rbf', 'rbf']
    """

    _stored: ClassVar[tuple[str, ...]] = (
        *SolvingLearner._stored,
        *("choice_", "choice_scores_", "choice_reason_"),
    )

    kernel: str = field(default="auto", kw_only=False)

    def places(self, X: Any, side: Side, random_state: Any) -> list[Place]:
        """The kinds that compete, in the order in which they keep less of the data as they are."""
        reason = "" if self.kernel == LINEAR else self._obstacle(X, side)
        if reason and self.kernel != "auto":
            raise ValueError(f"kernel={self.kernel!r} cannot be learned: {reason}")
        self.choice_reason_ = reason
        kinds = (LINEAR, SUM, KERNEL) if self.kernel == "auto" and not reason else (self.kernel,)
        if reason or kinds == (LINEAR,):
            wide = is_wide(X) and not isinstance(X, Vectors)
            rows = X if isinstance(X, Vectors) else dense(X)
            return [in_subspace(X, side, "auto", None, random_state) if wide else all_of(rows, None)]
        scored = _by_scores(dense(X), side, random_state)
        return [all_of(dense(X), None) if kind == LINEAR else scored[kind] for kind in kinds]

    def _known(
        self, X: Any, y: Any, constraints: Any, sample_ids: Any, sample_weight: Any
    ) -> tuple[Any, Any, Side]:
        kernels = one_of(self.kernel, "kernel", ("auto", LINEAR, KERNEL, SUM)) != LINEAR
        return _in_pieces.known(
            self,
            *(X, y, constraints, sample_ids, sample_weight),
            maps=lambda rows: kernels or rows.ndim != 2 or is_wide(rows) or rows.size <= MAPPED_NUMBERS,
            takes=lambda rows: kernels or is_wide(rows),
        )

    def _seed(self) -> int:
        """The same draws for every kind, and for the linear one those of MetricLearner."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _obstacle(self, X: Any, side: Side) -> str:
        """Why kernels do not take part; empty where they do."""
        if isinstance(X, Vectors):
            in_files = side.constraints.is_stored
            return "the constraints are in files" if in_files else "the data are not in memory"
        if side.codes is None or self.pairs == "none":
            return "there are no labels to learn scores from"
        if is_wide(X):
            return f"the data have more than {FULL_FEATURES} features"
        labelled = side.codes[side.codes >= 0]
        if len(labelled) < _FEWEST_OBJECTS or len(np.unique(labelled)) > MOST_CLASSES:
            return f"scores need {_FEWEST_OBJECTS} labelled rows and at most {MOST_CLASSES} classes"
        if any(block.kind not in ("distance", "comparison") for block in side.constraints.blocks):
            return "some constraints are not about distances"
        return "hard constraints are for a linear metric" if self.penalty == np.inf else ""

    def _keep(self, verdict: Verdict, side: Side, n_iterations: int) -> None:
        self.choice_ = BEFORE if verdict.learned.kept_prior else verdict.place.name
        self.choice_scores_ = verdict.scores
        super()._keep(verdict, side, n_iterations)


def _by_scores(X: Array, side: Side, seed: int) -> dict[str, Place]:
    """The scores of a kernel as a place, and the vectors together with these."""
    codes, weights = side.codes, side.weights
    assert codes is not None
    s, scores = discriminants(X, codes, np.arange(len(X)), np.random.RandomState(seed), weights)
    centred = X - s.centre

    @cache  # made once for both kinds that ask
    def left_out(rows: bytes) -> Array:
        """Scores of all rows, from the labels of some."""
        among = np.frombuffer(rows, np.int64)
        return discriminants(X, codes, among, np.random.RandomState(seed), weights)[1]

    def place(name: str, features: Callable[[Array], Array]) -> Place:
        def metric(factor: Array) -> JoinedMetric:
            root = symmetric_root(factor)
            return JoinedMetric(s.kernel, s.centre, s.points, s.weights, s.offset, root, name == SUM)

        def made_from(rows: Index) -> Array:
            return features(left_out(rows.tobytes()))

        start = euclidean(X.shape[1])
        return Place(features(scores), metric, name, start, made_from=made_from, unlabelled=X)

    return {
        SUM: place(SUM, lambda found: np.hstack([centred, found])),
        KERNEL: place(KERNEL, lambda found: found),
    }
