"""What the learners share that solve a problem: their parameters, checked, and one `fit` for all of them.

Such an estimator is its parameters and `places`, which lists where it may learn (`_place`). `fit` reads what
is known about the rows (`_side`), lets the places compete (`_contest`), and reports on the winner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from nearwise._common.checks import one_of, positive_or_infinite, whole_number_or_none
from nearwise._common.errors import RowsError
from nearwise._common.warning import warn
from nearwise.core import Divergence, Frobenius, LogDet, VonNeumann
from nearwise.distributed import Vectors
from nearwise.learners._contest import Verdict, contest
from nearwise.learners._path import Learned, Settings
from nearwise.learners._place import Place
from nearwise.learners._progress import progress, whole, with_callbacks
from nearwise.learners._side import Side
from nearwise.learners._structure import AnyResult
from nearwise.learners._trial import SCORINGS
from nearwise.learners.base import Learner, PriorKeptWarning
from nearwise.methods import CONTRADICTION, Record, Status
from nearwise.side import Constraints

DIVERGENCES: dict[str, Divergence] = {
    "logdet": LogDet(),
    "vonneumann": VonNeumann(),
    "frobenius": Frobenius(),
}


@dataclass(kw_only=True, eq=False, repr=False)
class SolvingLearner(Learner):
    """An estimator with parameters that `MetricLearner` explains, and places to learn in."""

    _looks: ClassVar[bool] = False  # whether a look at each place decides, as in `contest`

    _stored: ClassVar[tuple[str, ...]] = (*Learner._stored, "penalty_", "penalty_scores_")

    divergence: str | Divergence = "logdet"
    penalty: float | str = "auto"
    scoring: str = "auto"
    pairs: str = "auto"
    n_pairs: int | None = None
    tol: float = 1e-6
    max_iter: int | None = None
    random_state: int | np.random.RandomState | None = None
    callback: Callable[[Record], Any] | None = None
    checkpoint: str | os.PathLike[str] | None = None

    def places(self, X: Any, side: Side, random_state: Any) -> list[Place]:
        """Where to learn from rows as `_known` gives them; the first of those that are as good is taken."""
        raise NotImplementedError

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
        X : (n, d) data, dense or sparse; with kernel="precomputed" the (n, n) kernel matrix. For
            `MetricLearner` and `AutoLearner` also a Dask array or dataframe, or rows in files
            (`nearwise.distributed.open_vectors`), of which only few rows are ever in memory.
        y : n labels of any type; None, NaN and -1 mean no label (-1 and +1 alone are two classes, with a
            warning), and measurements are refused
        constraints : what else is known; learned from together with the labels, if there are both. Those of a
            table in files or on Dask (`nearwise.distributed.open_pairs`) are passed over a part at a time.
        sample_ids : n ids, by which the constraints name the rows of X; by default they do by row number.
            Constraints on ids that are not among them are left out and counted, with an `UnknownIdsWarning`;
            not so in scikit-learn's cross-validation, which hands over a part of the data.
        sample_weight : n numbers >= 0, how much every row counts: a pair drawn from labels and a constraint
            count times the weights of their rows, as if a row of weight 2 were there twice. Rows of weight 0
            are ignored.
        """
        rows, labels, side = self._known(X, y, constraints, sample_ids, sample_weight)
        seed = self._seed()
        places, used, settings = self._stated(self.places(rows, side, seed), side)
        with progress(self, X, labels) as report:
            settings = replace(settings, random_state=seed, callback=report)
            verdict = contest(places, used, settings, self._looks)
        self._keep(verdict, used, report.n_iterations)
        self._tell_of_selection(rows, side.constraints)
        return self

    def _known(
        self, X: Any, y: Any, constraints: Any, sample_ids: Any, sample_weight: Any
    ) -> tuple[Any, Any, Side]:
        """Rows that are checked, labels, and what is known about the rows."""
        X = self._training_data(X)
        return X, y, Side.read(X.shape[0], y, constraints, sample_ids, sample_weight)

    def _seed(self) -> Any:
        """What all draws of a fit come from."""
        return self.random_state

    def _stated(self, places: list[Place], side: Side) -> tuple[list[Place], Side, Settings]:
        """Places, what of the side information is learned from there, and how."""
        divergence, first, penalty = self._divergence(), places[0], None
        if not (isinstance(self.penalty, str) and self.penalty == "auto"):
            penalty = positive_or_infinite(self.penalty, "penalty", "'auto', ")
        pairs = one_of(self.pairs, "pairs", ("auto", "random", "local", "none"))
        if pairs == "none":
            why = "pairs='none' draws nothing from labels, and there are no constraints on these objects"
            side = replace(side, codes=None, useless=why)
        if isinstance(first.features, Vectors):
            pass  # `Problem` leaves out what nothing can meet, and says so
        elif penalty != np.inf:
            side = first.reachable(side, divergence)
        elif first.outside is not None:
            # hard constraints hold for what the basis contributes, or for nothing
            side, places = side.inside(first.outside), [replace(first, outside=None)]
        # labels that tell nothing grade nothing either, which matters only where something is learned
        gradable = side.codes is not None or bool(side.useless and not len(side.constraints))
        scoring = one_of(self.scoring, "scoring", SCORINGS)
        if not gradable and scoring not in ("auto", "roc_auc"):
            hint = "without them, 'roc_auc' looks at constraints"
            raise ValueError(f"scoring={scoring!r} needs labels y; {hint}")
        n_pairs, max_iter = (
            whole_number_or_none(getattr(self, name), name) for name in ("n_pairs", "max_iter")
        )
        settings = Settings(divergence, penalty, pairs, n_pairs, self.tol, max_iter, scoring)
        return places, side, replace(settings, checkpoint=self.checkpoint)

    def _divergence(self) -> Divergence:
        given = self.divergence
        return (
            DIVERGENCES[one_of(given, "divergence", tuple(DIVERGENCES))] if isinstance(given, str) else given
        )

    def _keep(self, verdict: Verdict, side: Side, n_iterations: int) -> None:
        """Set the metric and what reports on it, and warn where that is not what was asked."""
        place, learned = verdict.place, verdict.learned
        self.metric_ = place.metric(learned.factor)
        self.rank_ = place.features.shape[1]
        if place.start is not None:  # the same as the metric to the last digit where that was kept
            self.start_metric_ = self.metric_ if learned.kept_prior and place.is_known else place.start
        self.result_ = learned.result
        self.status_ = Status.SOLVED if learned.result is None else learned.result.status
        self.n_iter_ = learned.n_restored + n_iterations
        self.penalty_ = learned.penalty
        self.penalty_scores_ = learned.scores
        self.kept_prior_ = learned.kept_prior
        self.n_constraints_used_ = learned.n_constraints
        self.n_constraints_dropped_ = side.n_dropped
        self._tell(learned, side)

    def _tell(self, learned: Learned, side: Side) -> None:
        result, name = learned.result, type(self).__name__
        if learned.n_constraints == 0:
            left_out = "are left out: they name unknown objects, or equal ones"
            dropped = side.n_dropped
            cause = f"all {dropped} constraints {left_out}" if dropped else side.nothing_known
            warn(f"{name} returns the prior: {cause}", PriorKeptWarning)
        elif learned.kept_prior:
            cause = "no penalty that was tried does better on what was held out; a number learns anyway"
            warn(f"{name} returns the prior: {cause}", PriorKeptWarning)
        elif result is not None and result.status is Status.INFEASIBLE:
            raise contradiction(result)
        elif result is not None and not learned.factor.any():
            cause = "which meets all constraints; dissimilar pairs keep objects apart"
            warn(f"{name} learned the zero matrix, {cause}", PriorKeptWarning)
        elif result is not None and result.status is not Status.SOLVED:
            warn(f"{name}: {result.message}", ConvergenceWarning)


def contradiction(found: AnyResult) -> RowsError:
    """The error for a solve whose hard constraints contradict each other."""
    rows = [violation.stated for violation in found.certificate.worst]
    return RowsError(rows, before=CONTRADICTION, after="; a finite penalty lets them give way")
