"""What the page shows: `Report`, and `from_estimator`, which fills one from a fitted learner and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearwise._common.digest import SHORT, digest
from nearwise.model import labelling
from nearwise.model.certificate import Violation
from nearwise.show.report._maps import row_label
from nearwise.show.report._text import count
from nearwise.solving.result import Status
from nearwise.study import inspection
from nearwise.study.before_after import Missing, learner_of, start_note
from nearwise.study.evaluation import Figure
from nearwise.study.inspection import Classes, Convergence, Distances, FeatureShares, Maps, Spectrum

Part = TypeVar("Part")

FINGERPRINT = "data fingerprint"  # the setting that says which data these were
WORST = 10  # violated constraints that are shown


@dataclass(frozen=True, eq=False)
class Report:
    """What the page shows. A part that is not there is a sentence that says why.

    Attributes
    ----------
    title, summary : what was learned, in a line and in a sentence
    settings : what it takes to repeat the run, by name; "command" is shown as one
    notice : what the reader should know before the figures; empty for nothing
    figures : before and after, with intervals
    distances, pairs : squared distances of pairs, and which pairs these are
    maps, point_labels : two maps, and the hover labels of their rows
    classes, n_rows : of all rows, shown or not
    features, spectrum, convergence, worst : as `inspection` has them; the constraints violated most
    """

    title: str
    summary: str
    settings: Mapping[str, object]
    notice: str = ""
    figures: Sequence[Figure] = ()
    distances: Distances | str = ""
    pairs: str = ""
    maps: Maps | str = ""
    point_labels: Sequence[str] = ()
    classes: Classes | None = None
    n_rows: int = 0
    features: FeatureShares | str = ""
    spectrum: Spectrum | str = ""
    convergence: Convergence | str = ""
    worst: Sequence[Violation] | str = field(default="")


def from_estimator(
    model: Any,
    X: Any,
    *,
    y: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    figures: Sequence[Figure] = (),
    title: str,
    summary: str,
    settings: Mapping[str, object],
    describe: Callable[[int], str] | None = None,
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
    figures : before and after
    title, summary : what was learned, in a line and in a sentence
    settings : what it takes to repeat it
    describe : the text of a constraint of the fit by its row number; by default the certificate's own
    """
    learner = learner_of(model)
    n = _n_rows(X)
    labels, called = _column(y, "y", n), _column(ids, "ids", n)
    labels = None if labels is None else labelling.cleaned(labels)
    distances, pairs = _distances(model, X, labels, held_out)
    found = _part(lambda: inspection.maps(model, X))
    shown = isinstance(found, Maps)
    rows = found.rows if isinstance(found, Maps) else ()
    return Report(
        title=title,
        summary=summary,
        settings={**settings, **_fingerprint(settings, X, labels, called, names)},
        notice=_notice(learner),
        figures=tuple(figures),
        distances=distances,
        pairs=pairs,
        maps=found,
        point_labels=[row_label(int(row), called, labels) for row in rows],
        classes=inspection.classes(labels) if shown and labels is not None else None,
        n_rows=n,
        features=_part(lambda: inspection.feature_shares(model, X, names)),
        spectrum=_part(lambda: inspection.spectrum(model, X)),
        convergence=_part(lambda: inspection.convergence(model)),
        worst=_worst(learner, describe),
    )


def _part(make: Callable[[], Part]) -> Part | str:
    """The part, or the sentence that says why there is none."""
    try:
        return make()
    except Missing as error:
        return str(error)


def _distances(
    model: Any, X: Any, labels: Sequence[Any] | None, held_out: tuple[ArrayLike, ArrayLike] | None
) -> tuple[Distances | str, str]:
    """The distances of held-out pairs, or else of pairs of labels; and which pairs they are."""
    if held_out is None and labels is None:
        return "Neither labels nor held-out pairs say which rows are similar.", ""

    def make() -> Distances:
        pairs, similar = inspection.label_pairs(labels) if held_out is None else held_out  # type: ignore[arg-type]
        return inspection.pair_distances(model, X, pairs, similar)

    found = _part(make)
    if isinstance(found, str):
        return found, ""
    many = count(len(found.after), "pair")
    if held_out is None:
        return (
            found,
            f"{many} of equal and of different labels, drawn at random, also among rows learned from.",
        )
    return found, f"{many} that {'was' if len(found.after) == 1 else 'were'} not learned from."


def _notice(learner: Any) -> str:
    if note := start_note(learner):
        return f"{note[:1].upper()}{note[1:]}."
    if getattr(learner, "kept_prior_", False):
        return "Nothing was learned: the learner kept what it started from, so before and after are the same."
    status = getattr(learner, "status_", None)
    if status in (None, Status.SOLVED, Status.STATIONARY) or getattr(learner, "result_", None) is None:
        return ""
    return f"The fit ended before it converged ({status.name}). {learner.result_.message}"


def _worst(learner: Any, describe: Callable[[int], str] | None) -> Sequence[Violation] | str:
    """The constraints violated most, named by the caller."""
    certificate = getattr(getattr(learner, "result_", None), "certificate", None)
    if certificate is None:
        return "This fit has no certificate, which would name them."
    if not certificate.worst:
        done = certificate.satisfied == 1.0
        return "Every constraint is satisfied." if done else "The fit ended before it could name them."
    worst = certificate.worst[:WORST]
    return worst if describe is None else [replace(v, name=describe(v.row)) for v in worst]


def _fingerprint(settings: Mapping[str, object], X: Any, *others: Sequence[Any] | None) -> dict[str, str]:
    """A hash of the data, unless the settings have one."""
    if FINGERPRINT in settings:
        return {}
    data = X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    columns = [None if column is None else [str(value) for value in column] for column in others]
    return {FINGERPRINT: digest(data, *columns)[:SHORT]}


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _column(values: ArrayLike | None, name: str, n: int) -> list[Any] | None:
    if values is None:
        return None
    found = list(np.asarray(values, dtype=object))
    if len(found) != n:
        raise ValueError(f"{name} has {len(found)} entries, but X has {n} rows")
    return found
