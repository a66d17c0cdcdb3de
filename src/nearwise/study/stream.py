"""The method "online": one pass over the feedback, in random order, that can be stopped and resumed.

The checkpoint is the learner itself, which knows how many pieces it has seen; a learner is the same bit by
bit whichever way a stream is cut, so a resumed pass ends where an uninterrupted one does.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearwise._common.digest import SHORT, digest
from nearwise._common.errors import RowsError
from nearwise._common.types import Array, Index
from nearwise.data.models import load, save
from nearwise.learners.base import PriorKeptWarning
from nearwise.learners.online_learner import OnlineLearner
from nearwise.learners.selection import tell_of_selection
from nearwise.online.feedback import of_blocks
from nearwise.side import Constraints, constraints as c

if TYPE_CHECKING:
    from nearwise.study.fitting import Settings, Watch


_AT_A_TIME = 500  # pieces between looks at the clock
_STORED_EVERY = 2.0  # seconds between checkpoints


def learn(
    X: Array,
    labels: NDArray[np.object_] | None,
    constraints: Constraints,
    rows: Index,
    settings: Settings,
    watch: Watch,
) -> OnlineLearner:
    """Follow the feedback to its end, or until `watch` asks to stop.

    Parameters
    ----------
    X : one row per object
    labels : their classes as texts, of which pairs are drawn, None for one without; or None
    constraints : by the row numbers of the table
    rows : which row of the table every row of X is
    """
    side = Constraints(constraints.resolve(len(rows), rows))
    if labels is not None:
        side = c.from_labels(labels, random_state=settings.seed) + side
    pieces, _ = of_blocks(side.blocks).repeated()  # the learner counts repetitions
    pieces = pieces.part(np.random.RandomState(settings.seed).permutation(len(pieces)))
    parts = (pieces.rows, pieces.relation, pieces.bound, pieces.weights)
    note = digest(X, settings.rank, settings.seed, *parts)[:SHORT]
    path = None if settings.checkpoint is None else Path(settings.checkpoint)
    learner = _resumed(path, note) if path is not None and path.exists() else _started(X, settings)
    stored, stop = time.perf_counter(), False
    while learner.n_feedback_ < len(pieces) and not stop:
        first = learner.n_feedback_
        part = pieces.constraints(first, first + _AT_A_TIME)
        try:
            learner.partial_fit(X, constraints=part)
        except RowsError as error:  # which names rows of the part, in its random order
            raise RowsError([part.stated(row) for row in error.rows], after=error.after) from None
        stop = watch.step(f"{learner.n_feedback_:,} of {len(pieces):,} pieces of feedback")
        unfinished = learner.n_feedback_ < len(pieces)
        if path is not None and unfinished and (stop or time.perf_counter() - stored > _STORED_EVERY):
            _store(learner, path, note)
            stored = time.perf_counter()
    given = Constraints(constraints.resolve(len(rows), rows))
    tell_of_selection(given, lambda pairs: learner.start_metric_.pair_squared_distances(X, *pairs.T))
    if learner.n_feedback_ == len(pieces):
        watch.stopped = ""  # a stop that came with the last piece stopped nothing
        if path is not None:
            path.unlink(missing_ok=True)
    return learner


def _started(X: Array, settings: Settings) -> OnlineLearner:
    """A learner that has seen the data, for bounds and subspace, and no feedback yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PriorKeptWarning)
        return OnlineLearner(rank=settings.rank, random_state=settings.seed).fit(X)


def _store(learner: OnlineLearner, path: Path, note: str) -> None:
    learner.checkpoint_of_ = note
    save(learner, path)
    del learner.checkpoint_of_


def _resumed(path: Path, note: str) -> OnlineLearner:
    learner = load(path)
    if not isinstance(learner, OnlineLearner) or not hasattr(learner, "checkpoint_of_"):
        raise ValueError(f"{path} is no checkpoint of the method online; name another file")
    if learner.checkpoint_of_ != note:
        raise ValueError(f"{path} is a checkpoint of other data or settings; remove it or name another file")
    del learner.checkpoint_of_
    return learner
