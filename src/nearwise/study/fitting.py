"""How to learn from what is known: which estimator, progress, and an orderly end.

Ctrl-C asks the fit to end after its present iteration, a second one at once; the best iterate is kept.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from nearwise._common.errors import Refused
from nearwise._common.types import Index
from nearwise.data.steps import fitted, preparation
from nearwise.data.tables import Table
from nearwise.learners.base import PriorKeptWarning
from nearwise.methods import Status
from nearwise.side import Constraints

CHOOSING, LEARNING = "choosing the penalty", "learning"
FIXED_RANK, HIGHEST_RANK = 10, 30  # of the method "fixed-rank", unless a rank is given
# Solves that choose the penalty end at this gap (`learners._fits`): one that goes on is the last.
_COARSE = 1e-2


@dataclass(frozen=True)
class Settings:
    """How to learn.

    Attributes
    ----------
    method : "logdet" or "vonneumann", the divergence from the distance before; or "fixed-rank"
    structure : "diagonal" for weights of the features, "blocks" for a matrix of every group; None for all
    groups : of the columns, by name, for "blocks"
    rank : learn in so many dimensions only; by default what the estimator chooses
    kernel : the kernel to start from, as in `KernelLearner`; None or "linear" for a linear distance; "auto"
        lets a linear distance and a kernel compete, as in `AutoLearner`, unless a rank or structure is given
    penalty : cost of violating what is known, "auto" for one that is chosen on a part held out
    scale : standardise the features first
    seed : of everything that is drawn
    max_seconds, max_iter : after which the fit ends with the best found so far; max_iter of every solve
    held_out : the share of what is known that is measured on and not learned from, 0 for none; by default a
        fifth, at most 5,000
    checkpoint : a file that keeps the state while learning, and from which to go on if it exists
    """

    method: str = "logdet"
    structure: str | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    rank: int | None = None
    kernel: str | None = None
    penalty: float | str = "auto"
    scale: bool = False
    seed: int = 0
    max_seconds: float = math.inf
    max_iter: int | None = None
    held_out: float | None = None
    checkpoint: str | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model, and how it came about.

    Attributes
    ----------
    model : the learner, or a Pipeline that prepares the table before it: fills, encodes, standardises
    rows : the rows of the table that it was fitted to, in order; its certificate counts in these
    seconds : of the fit
    stopped : why it was ended early, else empty
    choosing : whether that was while the penalty was chosen
    notices : what else the user should know
    """

    model: Any
    rows: Index
    seconds: float
    stopped: str
    choosing: bool
    notices: tuple[str, ...]

    @property
    def learner(self) -> Any:
        return self.model[-1] if isinstance(self.model, Pipeline) else self.model

    @property
    def spans_rows(self) -> bool:
        """Whether what was learned is a kernel on the span of rows."""
        return hasattr(self.learner.metric_, "span")

    @property
    def reduced(self) -> tuple[int, int] | None:
        """The dimensions that were learned and all there are, or those of a kernel; None for all."""
        learner, metric = self.learner, self.learner.metric_
        found = (int(learner.rank_), int(learner.n_features_in_))
        if self.spans_rows:
            found = (int(metric.points.shape[0]), len(self.rows))
        elif not metric.is_linear:
            return None
        return found if found[0] < found[1] else None


class Contradiction(Refused):
    """Side information that contradicts itself or the settings.

    `cause` is the learner's error; `rows` are the rows of the table that were learned from.
    """

    def __init__(self, cause: ValueError, rows: Index) -> None:
        super().__init__(str(cause))
        self.cause, self.rows = cause, rows


class Watch:
    """Called after every iteration: shows it, and answers whether to end the fit."""

    def __init__(self, settings: Settings, show: Callable[[str], object] = lambda text: None) -> None:
        self.show, self.max_seconds = show, settings.max_seconds
        chooses = settings.penalty == "auto" and settings.method != "fixed-rank"
        self.phase = CHOOSING if chooses else LEARNING
        self.started = time.perf_counter()
        self.gap = math.inf
        self.asked = False
        self.stopped = ""  # why, once it has answered to end the fit

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def __call__(self, record: Any) -> bool:
        gap = getattr(record, "gap", None)
        if gap is not None:
            if record.iteration > 1 and self.gap <= _COARSE:
                self.phase = LEARNING
            self.gap = gap
        measure = f"cost {record.cost:.3g}" if gap is None else f"gap {gap:.1e}"
        measure = "no bound yet" if gap == math.inf else measure
        return self.step(f"iteration {record.iteration}   {measure}")

    def step(self, text: str) -> bool:
        """Show what is done, and answer whether to end."""
        self.show(f"{self.phase}   {text}   {self.seconds:.1f} s")
        if self.asked or self.seconds >= self.max_seconds:
            self.stopped = "interrupted" if self.asked else f"the limit of {self.max_seconds:g} s was reached"
        return bool(self.stopped)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the first Ctrl-C ask the fit to end, and the second interrupt it."""
        if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
            yield
            return

        def ask(*_: object) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True
            self.show("ending after this iteration; Ctrl-C again ends at once")

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def fit(
    table: Table,
    codes: Index | None,
    rows: Index,
    constraints: Constraints,
    settings: Settings,
    watch: Watch,
) -> Fit:
    """Learn from labels and constraints.

    Parameters
    ----------
    table : the data, of which the rows to learn from also fit the steps before the learner
    codes : the class of every row of the table, -1 for one without; or None
    rows : the labelled rows to learn from
    constraints : those to learn from, by row number
    settings, watch : how, and who looks on

    Raises `Contradiction` where the side information contradicts itself or the settings.
    """
    X = table.X
    rows, labels = _training(codes, rows, constraints) if codes is not None else (np.arange(len(X)), None)
    wanted = preparation(table.kinds, table.missing, settings.scale)
    steps, part = fitted(wanted, X[rows], table.names)

    def learned() -> Any:
        n_classes = 0 if labels is None else len(set(labels.tolist()) - {None})
        learner = estimator(settings, part.shape[1], n_classes).set_params(callback=watch)
        if settings.structure == "blocks":
            names = table.names if steps is None else steps.get_feature_names_out(table.names)
            learner.set_params(groups=column_groups(settings.groups, list(map(str, names))))
        learner.fit(part, labels, constraints=constraints, sample_ids=rows)
        return learner.set_params(callback=None, checkpoint=None)

    found = watched(learned, rows, settings, watch, labels is not None)
    return found if steps is None else replace(found, model=Pipeline([*steps.steps, ("learn", found.model)]))


def watched(
    learned: Callable[[], Any], rows: Index, settings: Settings, watch: Watch, from_labels: bool
) -> Fit:
    """What a function learns from rows of a table, and why it was ended early, where it was.

    A learner says itself when its time ran out.
    """
    with watch.interruptible(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.started = time.perf_counter()
        try:
            learner = learned()
        except ValueError as error:
            raise Contradiction(error, rows) from error
        fit = Fit(learner, rows, watch.seconds, "", False, _notices(caught))
    # a fit that was asked to end with its last iteration has reached its end
    ended = getattr(learner, "status_", None) in (Status.SOLVED, Status.STATIONARY)
    if ended or not watch.stopped:
        return fit
    if not watch.asked:
        _restate(learner, f"{settings.max_seconds:g} seconds")
    choosing = watch.phase == CHOOSING and not learner.penalty_scores_
    if choosing and from_labels and learner.result_ is not None:
        # of a part of the rows, drawn to choose the penalty: its certificate cannot say which rows
        unnamed = replace(learner.result_.certificate, worst=())
        learner.result_ = replace(learner.result_, certificate=unnamed)
    # where the scale of a kernel was being chosen there is none yet
    kept = settings.checkpoint is not None and Path(settings.checkpoint).exists()
    resume = f", and {settings.checkpoint} to go on from" if kept else ""
    phase = CHOOSING if choosing else LEARNING
    stopped = f"{watch.stopped} while {phase}; the best found so far is kept{resume}"
    return replace(fit, stopped=stopped, choosing=choosing)


def forget_times(learner: Any) -> None:
    """Let its result say nothing of seconds, so that equal fits make equal files."""
    result = getattr(learner, "result_", None)
    if result is not None:
        history = tuple(replace(record, seconds=0.0) for record in result.history)
        learner.result_ = replace(result, history=history)


def facts_of(learner: Any, status: str) -> dict[str, Any]:
    """How a fit ended, as numbers and texts for JSON, which has no infinity."""
    result = getattr(learner, "result_", None)
    holders = {"gap": getattr(result, "certificate", None), "cost": result, "penalty_": learner}
    numbers = {name.rstrip("_"): getattr(holder, name, None) for name, holder in holders.items()}
    return {
        "status": status,
        **{name: float(x) if x is not None and math.isfinite(x) else None for name, x in numbers.items()},
        "kept_prior": bool(getattr(learner, "kept_prior_", False)),
        "iterations": int(getattr(learner, "n_iter_", 0)),
    }


def estimator(settings: Settings, n_features: int, n_classes: int = 0) -> Any:
    """The learner of a batch method, of which alone the module is imported.

    The rank of a matrix of fixed rank is 10 by default, or one less than there are classes, up to 30: with
    fewer dimensions than it takes to tell the classes apart, neighbours are lost.
    """
    common: dict[str, Any] = {
        "random_state": settings.seed,
        "checkpoint": settings.checkpoint,
        "max_iter": settings.max_iter,
    }
    if settings.method == "fixed-rank":
        rank = min(n_features, max(FIXED_RANK, min(n_classes - 1, HIGHEST_RANK)))
        from nearwise.learners.fixed_rank_learner import FixedRankLearner

        return FixedRankLearner(settings.rank or rank, **common)
    common |= {"divergence": settings.method, "penalty": settings.penalty}
    if settings.kernel == "auto" and settings.rank is None and settings.structure is None:
        from nearwise.learners.auto_learner import AutoLearner

        return AutoLearner(**common)
    common["rank"] = settings.rank
    if settings.kernel not in (None, "auto", "linear"):
        from nearwise.learners.kernel_learner import KernelLearner

        return KernelLearner(settings.kernel, **common)
    from nearwise.learners.metric_learner import MetricLearner

    return MetricLearner(**common, structure=settings.structure)


def column_groups(groups: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[int]]:
    """Column numbers of groups of names; one that became several columns, as `colour_red`, means all."""

    def columns(name: str) -> list[int]:
        exact = [k for k, known in enumerate(names) if known == name]
        if made := exact or [k for k, known in enumerate(names) if known.startswith(f"{name}_")]:
            return made
        raise Refused(f"no column {name!r} is learned from; there are {', '.join(map(repr, names[:8]))}")

    return [[place for name in group for place in columns(name)] for group in groups]


def _training(codes: Index, rows: Index, constraints: Constraints) -> tuple[Index, NDArray[np.object_]]:
    """The rows of the fit, also those that only constraints speak of, and their labels, as texts or None."""
    named = np.unique(np.concatenate([rows, *(block.object_ids.ravel() for block in constraints.blocks)]))
    labels = codes[named].astype(str).astype(object)  # texts, so that class numbers are no measurements
    labels[~np.isin(named, rows) | (codes[named] < 0)] = None
    return named, labels


def _restate(learner: Any, limit: str) -> None:
    """Let a learner that was stopped say that its time ran out, as a solver does that knows its time."""
    if getattr(learner, "status_", None) is Status.INTERRUPTED:
        learner.status_ = Status.LIMIT
    result = getattr(learner, "result_", None)
    if result is not None and result.status is Status.INTERRUPTED:
        reached = result.message.partition(":")[2]
        message = f"Stopped at the limit of {limit}:{reached}"
        learner.result_ = replace(result, status=Status.LIMIT, limit="time", message=message)


def _notices(caught: list[warnings.WarningMessage]) -> tuple[str, ...]:
    """Warnings as sentences, each once. Those on convergence say what the status says."""
    told = [warning for warning in caught if not issubclass(warning.category, ConvergenceWarning)]
    return tuple(dict.fromkeys(map(_notice, told)))


def _notice(warning: warnings.WarningMessage) -> str:
    """A warning; of one that a learner keeps what it started from, the cause."""
    text = str(warning.message)
    who, _, cause = text.partition(": ")
    if not issubclass(warning.category, PriorKeptWarning) or " returns " not in who:
        return text
    return f"nothing was learned: {cause}; the model keeps what it started from"
