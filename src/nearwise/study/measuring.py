"""How good a model is on other data than its own, beside the distance that it started from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import Refused
from nearwise._common.types import Index
from nearwise.data.memory import Seen
from nearwise.data.tables import Table, some_of
from nearwise.side import Constraints
from nearwise.study import figures as graded
from nearwise.study.before_after import Missing, measures
from nearwise.study.figures import Figure
from nearwise.study.fitted import Fitted, called
from nearwise.study.holding_out import FEWEST, counts, listed, numbered, with_enough
from nearwise.study.known import Known, class_codes


@dataclass(frozen=True, eq=False)
class Measurement:
    """What a model was measured on, and what came out.

    Attributes
    ----------
    text : what was measured on, as "120 labelled rows in 3 classes"
    figures : before and after
    rows_learned_from : how many of the rows the model learned from; None where it does not tell
    notices : what the user should know, one sentence each
    flattery : the one of them that says that the model learned from some of these rows; else empty
    """

    text: str
    figures: tuple[Figure, ...]
    rows_learned_from: int | None
    notices: tuple[str, ...]
    flattery: str = ""


def measure(
    fitted: Fitted, known: Known, *, train: Table | None = None, unseen_only: bool = False, seed: int = 0
) -> Measurement:
    """The figures of a model on what is known about some data.

    Parameters
    ----------
    fitted : the model
    known : the data, in the model's columns as `fitted.read` gives them, and what is known about them
    train : labelled rows among which neighbours are searched; by default those of `known`, leaving one out
    unseen_only : leave out the rows that the model learned from, and what is known about them
    seed : of all draws

    Raises `Refused` where there is too little to measure on.
    """
    if not hasattr(fitted.learner, "metric_"):  # a metric by itself, as `nearwise.save` writes it too
        lacks = "and no distance before learning to compare it with"
        raise Refused(f"{fitted.path} holds {called(fitted.learner)}, {lacks}")
    measured, seen, about = _unseen(fitted, known, unseen_only)
    rows, constraints, text, few = _given(known, measured)
    codes, n = known.codes, len(known.table.X)
    of_both: tuple[str, ...] = ()
    X, among = known.table.X, None
    if train is not None:
        if known.table.labels is None or train.labels is None:
            raise Refused(f"{train.source}: neighbours are searched among labelled rows")
        X = np.concatenate([known.table.X, train.X])
        labels = np.concatenate([known.table.labels, train.labels])
        codes, classes, notes = class_codes(labels, f"{known.table.source} and {train.source}")
        rows = rows[codes[rows] >= 0]
        asked = codes[:n][(codes[:n] >= 0) & measured]
        told = [note.partition(": ")[2] for note in known.notes]
        of_both = tuple(note for note in notes if note.partition(": ")[2] not in told)
        of_both += (_shared(classes, asked, codes[n:], known.table.source, train.source),)
        among = n + np.flatnonzero(codes[n:] >= 0)
        if len(among) < 2:
            raise Refused(f"{train.source}: two rows with a label or more are needed")
    try:
        before, after = measures(fitted.learner, fitted.entered(X))
    except Missing as error:
        raise fitted.refusal(error) from None
    if before is None:
        raise Refused(f"{fitted.path}: the model does not tell from which distance it started")
    figures: list[Figure] = []
    if codes is not None and len(rows):
        figures += graded.from_labels(before, after, codes, rows, among, seed)
    figures += graded.from_constraints(before, after, constraints, n, seed)
    said = (*known.notices, *of_both, about, few)
    notices = tuple(notice for notice in said if notice)
    return Measurement(text, tuple(figures), seen, notices, "" if unseen_only else about)


def _shared(classes: tuple[str, ...], asked: Index, among: Index, data: str, train: str) -> str:
    """That no class, or not every class, is in both files, as a sentence; empty where every one is."""
    here, there = set(asked.tolist()), set(among[among >= 0].tolist())
    alone = [(data, sorted(here - there)), (train, sorted(there - here))]
    named = [f"in {file} alone: {some_of([classes[k] for k in codes], 5)}" for file, codes in alone if codes]
    if not named:
        return ""
    if here.isdisjoint(there):
        return f"no class is in both files, so that no neighbour can be right; {'; '.join(named)}"
    return f"not every class is in both files; {'; '.join(named)}"


def _unseen(fitted: Fitted, known: Known, unseen_only: bool) -> tuple[NDArray[np.bool_], int | None, str]:
    """Which rows to measure on, how many the model learned from (None: it does not tell), and a sentence."""
    n, kept = len(known.table.X), Seen.in_model(fitted.learner)
    everything = np.ones(n, dtype=bool)
    if kept is None:
        if unseen_only:
            told = "the model does not tell which rows it learned from, as those of nearwise learn do"
            raise Refused(f"{fitted.path}: {told}")
        return everything, None, ""
    judged, seen = kept.judge(known.table.X)
    count = int(seen.sum())
    found = f"the model learned from {count:,} of these {n:,} rows"
    if kept.is_sample:
        count = round(n * count / max(int(judged.sum()), 1))
        sample = f"by a sample of {len(kept.fingerprints):,} of its {kept.n_rows:,} rows"
        found = f"{sample}, the model learned from about {count:,} of these {n:,} rows"
    if not unseen_only:
        return everything, count, f"{found}, which flatters it" if count else ""
    left = judged & ~seen  # of a row that cannot be judged, nobody knows
    return left, count, "" if left.all() else f"{found}; {n - int(left.sum()):,} rows are left out"


def _given(known: Known, measured: NDArray[np.bool_]) -> tuple[Index, Constraints, str, str]:
    """What there is enough of: rows with labels, constraints, both as text; and a sentence on what is not."""
    known_constraints = known.constraints.restricted_to(np.flatnonzero(measured))[0]
    rows, found = np.empty(0, np.int64), []
    if known.codes is not None:
        rows = np.flatnonzero((known.codes >= 0) & measured)
        found = [(len(rows), f"labelled rows in {len(np.unique(known.codes[rows]))} classes")]
    found += [(count, kind) for kind, count in counts(known_constraints).items()]
    enough = [numbered(count, kind) for count, kind in found if count >= FEWEST]
    few = [numbered(count, kind) for count, kind in found if count < FEWEST]
    needed = f"{FEWEST} or more of a kind are needed"
    if not enough:
        raise Refused(f"too little to measure on: {listed(few or ['nothing is left'])}; {needed}")
    left_out = f"too little to measure on, and left out: {listed(few)}; {needed}" if few else ""
    rows = rows if len(rows) >= FEWEST else rows[:0]
    return rows, with_enough(known_constraints), listed(enough), left_out
