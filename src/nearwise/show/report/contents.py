"""What the page shows: `Report`, and `from_estimator`, which fills one from a fitted learner and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common.digest import SHORT, digest
from nearwise.methods import Status
from nearwise.show.report.objects import Objects
from nearwise.show.report.pictures import Pictures
from nearwise.show.report.sections import drawn
from nearwise.show.report.subject import Subject, column, n_rows, numbers_shown, rows_held_out
from nearwise.show.text import count
from nearwise.side import Constraints, labelling
from nearwise.study.before_after import learner_of
from nearwise.study.figures import Figure
from nearwise.study.suspicion import Suspect

FINGERPRINT = "data fingerprint"  # the setting that says which data these were


@dataclass(frozen=True, eq=False)
class Report:
    """A page before it is written.

    Attributes
    ----------
    title, summary : what was learned, in a line and in a sentence
    settings : what it takes to repeat the run, by name; "command" is shown as one
    body : its sections, as HTML
    notice : what the reader should know before the figures; empty for nothing
    pictures : whether the body has some
    suspects : labels and answers to check
    """

    title: str
    summary: str
    settings: Mapping[str, object]
    body: str = ""
    notice: str = ""
    pictures: bool = False
    suspects: Sequence[Suspect] = ()


def from_estimator(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    ids: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    held_rows: ArrayLike | None = None,
    constraints: Constraints | None = None,
    show: Mapping[str, ArrayLike] | None = None,
    images: Sequence[Any] | NDArray[Any] | None = None,
    color_by: tuple[str, ArrayLike] | None = None,
    figures: Sequence[Figure] = (),
    title: str = "",
    summary: str = "",
    settings: Mapping[str, object] | None = None,
    describe: Callable[[int], str] | None = None,
    graded: str = "",
    suspects: Sequence[Suspect] | None = None,
    conflicts: Sequence[str] = (),
) -> Report:
    """Gather what there is to see in a fitted learner.

    Parameters
    ----------
    model : an estimator of nearwise, or a scikit-learn Pipeline whose last step is one
    X : the data to show; for `FixedRankEmbedding` the matrix of the fit
    y : labels of the rows, None, NaN or empty where there is none
    ids : what the rows are called, by default their numbers
    names : of the features of X
    held_out : (m, 2) row numbers of pairs that were not learned from, and whether they are similar; by
        default pairs are drawn from the labels
    held_rows : numbers of labelled rows that were not learned from; with them, the others that have a label
        count as learned from
    constraints : measured distances and triplets to compare with the learned distance, by row number
    show : texts of every row, by a name, which are shown beside neighbours and at the marks of the maps
    images : pictures of the rows: files, None for no picture, or an array (n, height, width) of numbers
    color_by : a name and a value of every row that colours the maps, by default the labels
    figures : before and after
    title, summary : what was learned, in a line and in a sentence; by default from the learner
    settings : what it takes to repeat it; by default the learner's parameters
    describe : the text of a constraint of the fit by its row number; by default the certificate's own
    graded : a sentence that says which `constraints` these are
    suspects : labels and answers to check, as `nearwise.study.suspects` finds them
    conflicts : sentences about answers that are repeated or differ
    """
    learner, n = learner_of(model), n_rows(X)
    labels = column(y, "y", n)
    texts = {str(name): column(values, f"show[{name!r}]", n) or [] for name, values in (show or {}).items()}
    if images is not None and len(images) != n:
        raise ValueError(f"images has {len(images)} entries, but X has {n} rows")
    objects = Objects(
        column(ids, "ids", n), None if labels is None else labelling.cleaned(labels), texts, Pictures(images),
        numbers_shown(model, X, names),
    )  # fmt: skip
    pairs = None
    if held_out is not None:
        pairs = np.asarray(held_out[0], dtype=np.int64).reshape(-1, 2), np.asarray(held_out[1], dtype=bool)
    given = Constraints() if constraints is None else Constraints(constraints.resolve(n))
    coloured = None if color_by is None else (color_by[0], column(color_by[1], "color_by", n) or [])
    subject = Subject(
        model, X, names, objects, rows_held_out(held_rows, n), pairs, given, graded, tuple(figures), suspects,
        conflicts, coloured, describe,
    )  # fmt: skip
    settings = {"learner": repr(learner)} if settings is None else settings
    return Report(
        title=title or f"What {type(learner).__name__} learned",
        summary=summary or _summary(learner, subject),
        settings={**settings, **_fingerprint(settings, subject)},
        body=drawn(subject),
        notice=_notice(learner),
        pictures=images is not None,
        suspects=suspects or (),
    )


def _summary(learner: Any, subject: Subject) -> str:
    """What a learner tells without a study around it."""
    if getattr(learner, "kept_prior_", False):
        return "Nothing better than the distance before was found."
    known = "" if subject.codes is None else f", {int((subject.codes >= 0).sum()):,} of them with a label"
    rows = count(subject.n_rows, "row")
    return f"The distance of a fitted {type(learner).__name__}, shown on {rows}{known}."


def _notice(learner: Any) -> str:
    if getattr(learner, "kept_prior_", False):
        return "Nothing was learned: the learner kept what it started from, so before and after are the same."
    status = getattr(learner, "status_", None)
    if status in (None, Status.SOLVED, Status.STATIONARY) or getattr(learner, "result_", None) is None:
        return ""
    return f"The fit ended before it converged ({status.name}). {learner.result_.message}"


def _fingerprint(settings: Mapping[str, object], subject: Subject) -> dict[str, str]:
    """A hash of the data, unless the settings have one."""
    if FINGERPRINT in settings:
        return {}
    data = subject.X if sparse.issparse(subject.X) else np.asarray(subject.X, dtype=np.float64)
    columns = (subject.objects.labels, subject.objects.ids, subject.names)
    texts = [None if column is None else [str(value) for value in column] for column in columns]
    return {FINGERPRINT: digest(data, *texts)[:SHORT]}
