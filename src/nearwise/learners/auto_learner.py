"""`AutoLearner`: a linear metric, one from a kernel, or both, whichever does best on what is held out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from nearwise._common.checks import one_of
from nearwise._common.types import Array, Index
from nearwise.core import Divergence
from nearwise.distributed import vectors_of
from nearwise.learners import _in_pieces, _side, metric_learner
from nearwise.learners._checkpoint import open_checkpoint
from nearwise.learners._discriminants import Scores, discriminants
from nearwise.learners._fits import Fit, Interrupted, Learned, Step, best_of, prepared
from nearwise.learners._grading import first_as_good
from nearwise.learners._progress import progress, whole, with_callbacks
from nearwise.learners._rows import dense
from nearwise.learners.base import Learner
from nearwise.learners.coordinate_metrics import JoinedMetric
from nearwise.learners.metric import Metric, euclidean, symmetric_root
from nearwise.learners.metric_learner import MetricLearner
from nearwise.methods import Record
from nearwise.side import Constraints

LINEAR, KERNEL, SUM = "linear", "rbf", "linear+rbf"
BEFORE = "euclidean"  # the name of the prior of the linear kind
MOST_CLASSES = 100  # for which there are scores
_FEWEST_OBJECTS = 20  # labelled ones, below which there are no scores


class AutoLearner(Learner):
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

    def __init__(
        self,
        kernel: str = "auto",
        divergence: str | Divergence = "logdet",
        penalty: float | str = "auto",
        pairs: str = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[Record], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        scoring: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.divergence = divergence
        self.penalty = penalty
        self.pairs = pairs
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.callback = callback
        self.checkpoint = checkpoint
        self.scoring = scoring

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
        """Learn the metric.

        Parameters
        ----------
        X : (n, d) data, dense or sparse, or in pieces as for `MetricLearner`
        y, constraints, sample_ids, sample_weight : as for `MetricLearner`
        """
        wanted = one_of(self.kernel, "kernel", ("auto", LINEAR, KERNEL, SUM))
        given: dict[str, Any] = {
            "constraints": constraints,
            "sample_ids": sample_ids,
            "sample_weight": sample_weight,
        }
        vectors = None if isinstance(X, np.memmap) else vectors_of(X)
        in_files = _side.are_in_files(constraints)
        if wanted != LINEAR and vectors is not None and not in_files and _in_pieces.are_few(vectors):
            taken = _in_pieces.taken(X, y, sample_ids, sample_weight, vectors)
            X, y, given["sample_ids"], given["sample_weight"] = taken
            vectors = None
        reason = "" if vectors is None else "the data are not in memory"
        if in_files:
            reason = "the constraints are in files"
        if wanted == LINEAR:
            return self._fit_linear(X, y, reason, given)
        if not reason:
            data = self._training_data(X)
            side = _side.read(data.shape[0], y, **given)
            reason = self._obstacle(data, side)
        if reason and wanted != "auto":
            raise ValueError(f"kernel={wanted!r} cannot be learned: {reason}")
        if reason:
            return self._fit_linear(X, y, reason, given)
        return self._fit_contest(dense(data), y, side, wanted)

    def _fit_linear(self, X: Any, y: Any, reason: str, given: dict[str, Any]) -> Self:
        """What `MetricLearner` learns."""
        names = set(MetricLearner().get_params()) & set(self.get_params())
        linear = MetricLearner(**{name: getattr(self, name) for name in names})
        linear._told_as = type(self).__name__
        if callbacks := getattr(self, "_skl_callbacks", None):
            linear.set_callbacks(*callbacks)
        linear.fit(X, y, **given)
        for name, value in vars(linear).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(self, name, value)
        self.choice_ = BEFORE if linear.kept_prior_ else LINEAR
        self.choice_scores_: tuple[tuple[str, float], ...] = ()
        self.choice_reason_ = reason
        return self

    def _fit_contest(self, X: Array, y: Any, side: _side.SideInformation, wanted: str) -> Self:
        rng = check_random_state(self.random_state)
        side, how = self._how(X, side, None)
        # the same draws for every kind, and for the linear one those of MetricLearner
        seeded = isinstance(self.random_state, int | np.integer)
        how["random_state"] = int(self.random_state) if seeded else int(rng.randint(2**31 - 1))  # type: ignore[arg-type]
        settings = [value for name, value in how.items() if name not in ("checkpoint", "constraints")]
        how["checkpoint"] = open_checkpoint(
            self.checkpoint, self.random_state, wanted, X, side.constraints.blocks, *settings
        )
        found: list[Scores] = []
        kinds = (LINEAR, SUM, KERNEL) if wanted == "auto" else (wanted,)
        with progress(self, X, y) as report:
            candidates = _candidates(kinds, X, side, how["random_state"], found)
            name, learned, scores = _compete(candidates, callback=report, **how)
        if name not in (BEFORE, LINEAR):
            learned = replace(learned, kept_prior=False)  # the scores are learned, whatever M is
        self.choice_, self.choice_reason_ = BEFORE if learned.kept_prior else name, ""
        self.choice_scores_ = scores if len(kinds) > 1 else ()
        self._keep_learned(learned, side, report.n_iterations)
        factor = symmetric_root(learned.factor)
        if name in (BEFORE, LINEAR):
            self.metric_: Metric | JoinedMetric = Metric(factor)
        else:
            s = found[0]
            self.metric_ = JoinedMetric(
                s.kernel, s.centre, s.points, s.weights, s.offset, factor, name == SUM
            )
        self.start_metric_ = euclidean(X.shape[1])
        self.rank_ = len(factor)
        self._tell_of_selection(X, side.constraints)
        return self

    def _obstacle(self, X: Any, side: _side.SideInformation) -> str:
        """Why kernels do not take part; empty where they do."""
        if side.codes is None or self.pairs == "none":
            return "there are no labels to learn scores from"
        most = metric_learner.FULL_FEATURES
        if X.shape[1] > most:
            return f"the data have more than {most} features"
        labelled = side.codes[side.codes >= 0]
        if len(labelled) < _FEWEST_OBJECTS or len(np.unique(labelled)) > MOST_CLASSES:
            return f"scores need {_FEWEST_OBJECTS} labelled rows and at most {MOST_CLASSES} classes"
        if any(block.kind not in ("distance", "comparison") for block in side.constraints.blocks):
            return "some constraints are not about distances"
        return "hard constraints are for a linear metric" if self.penalty == np.inf else ""

    def _is_linear(self) -> bool:
        return isinstance(getattr(self, "metric_", None), Metric)

    @property
    def components_(self) -> Array:
        """The linear map of `transform`, where the metric is linear."""
        if not self._is_linear():
            raise AttributeError("components_: the learned metric is not linear, see choice_")
        return self._linear_map()

    @available_if(lambda self: self._is_linear())
    def get_mahalanobis_matrix(self) -> Array:
        """M, d x d, where the metric is linear."""
        return self._fitted_metric().matrix


class _Candidate(NamedTuple):
    """A kind of fit; `made_from` as in `prepared`."""

    name: str
    features: Array
    made_from: Callable[[Index], Array] | None = None


def _candidates(
    kinds: tuple[str, ...], X: Array, side: _side.SideInformation, seed: int, found: list[Scores]
) -> Iterator[_Candidate]:
    """The kinds that compete, in their order; what gives scores is put in `found`."""
    codes, weights = side.codes, side.weights
    assert codes is not None
    made: dict[bytes, Array] = {}

    def left_out(rows: Index) -> Array:
        """Scores of all rows, from the labels of some; made once for both kinds that ask."""
        key = rows.tobytes()
        if key not in made:
            made[key] = discriminants(X, codes, rows, np.random.RandomState(seed), weights)[1]
        return made[key]

    if LINEAR in kinds:
        yield _Candidate(LINEAR, X)
    if len(kinds) == 1 and LINEAR in kinds:
        return
    fitted, scores = discriminants(X, codes, np.arange(len(X)), np.random.RandomState(seed), weights)
    found.append(fitted)
    if SUM in kinds:
        centred = X - fitted.centre
        yield _Candidate(SUM, np.hstack([centred, scores]), lambda rows: np.hstack([centred, left_out(rows)]))
    if KERNEL in kinds:
        yield _Candidate(KERNEL, scores, left_out)


def _compete(
    candidates: Iterable[_Candidate], **how: Any
) -> tuple[str, Learned, tuple[tuple[str, float], ...]]:
    """Finish the fit of the candidate that does best on what is held out; its name, and the scores of all.

    Candidates come in an order, the prior before a linear one, unless a penalty is given. Of those whose
    score is within half a standard error of the highest, the first wins. Where too little is
    known to hold something out, it is the first; and where somebody asks to stop, the best of the first.

    `how` are the arguments of `prepared`.
    """
    entries: list[tuple[str, Fit, Step]] = []
    first: tuple[str, Fit] | None = None
    for candidate in candidates:
        fit = prepared(candidate.features, made_from=candidate.made_from, compared=True, **how)
        first = first or (candidate.name, fit)
        try:
            fit.choose()
        except Interrupted as stop:
            return first[0], _stopped(first[1], stop), _scores(entries)
        if not fit.steps:
            break
        entries += _entries(candidate, fit)
    assert first is not None
    if not entries:
        return first[0], first[1].finish(), ()
    name, fit, step = entries[first_as_good([step.grade for _, _, step in entries])]
    return name, fit.finish(step), _scores(entries)


def _entries(candidate: _Candidate, fit: Fit) -> list[tuple[str, Fit, Step]]:
    """The candidate with its best penalty; where its features are no learned ones, its prior for itself."""
    if candidate.made_from is not None:
        return [(candidate.name, fit, best_of(fit.steps))]
    prior = [step for step in fit.steps if step.share == 0.0 and fit.penalty is None]
    learned = best_of([step for step in fit.steps if step.share != 0.0])
    return [*((BEFORE, fit, step) for step in prior), (candidate.name, fit, learned)]


def _stopped(first: Fit, stop: Interrupted) -> Learned:
    """What the first candidate has, whichever was asked to stop."""
    if not first.steps:
        return first.stopped(stop)
    found = replace(first.before(), factor=best_of(first.steps).factor)
    # without scores: it is not known which penalty is the best, as long as others compete
    return replace(found, result=stop.result, penalty=stop.penalty, scores=(), kept_prior=False)


def _scores(entries: list[tuple[str, Fit, Step]]) -> tuple[tuple[str, float], ...]:
    return tuple((name, step.grade.score) for name, _, step in entries)
