"""What the page shows: `Report`, and `from_estimator`, which fills one from a fitted learner and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common.digest import SHORT, digest
from nearwise._common.types import Index, Mask
from nearwise.core import Violation
from nearwise.show.report._maps import CLASSES, PAIRS as MOST_PAIRS, Look
from nearwise.show.report._objects import Objects
from nearwise.show.report._pictures import Pictures
from nearwise.show.report._text import count
from nearwise.side import Constraints, labelling
from nearwise.methods import Status
from nearwise.study import by_kind, inspection
from nearwise.study.before_after import Missing, learner_of, start_note
from nearwise.study.by_kind import ClassRecall, Margins, MeasuredDistances, PenaltyPath, Weights
from nearwise.study.examples import Examples, examples
from nearwise.study.inspection import Convergence, Distances, FeatureShares, Maps, Spectrum
from nearwise.study.resampling import Figure
from nearwise.study.suspicion import Suspect

Part = TypeVar("Part")
Pairs = tuple[ArrayLike, ArrayLike]

FINGERPRINT = "data fingerprint"  # the setting that says which data these were
WORST = 10  # violated constraints that are shown
NUMBERS = 5  # features that are shown of a row


@dataclass(frozen=True, eq=False)
class Report:
    """What the page shows. A part that is not there is a sentence that says why; or empty, for no section.

    Attributes
    ----------
    title, summary : what was learned, in a line and in a sentence
    settings : what it takes to repeat the run, by name; "command" is shown as one
    notice : what the reader should know before the figures; empty for nothing
    figures : before and after, with intervals
    examples, objects : some rows with their neighbours, and how rows are shown
    recall : of every class
    distances, pairs : squared distances of pairs, and which pairs these are
    measured, margins, graded : known distances, margins of triplets, and which these are
    maps, look : two maps, and how their rows are shown
    features, weights, spectrum, penalties, convergence : as `inspection` has them
    worst : the constraints violated most
    suspects : labels and answers to look at first
    conflicts : repeated and different answers, and what was done with them, one text for each file
    """

    title: str
    summary: str
    settings: Mapping[str, object]
    notice: str = ""
    figures: Sequence[Figure] = ()
    examples: Examples | str = ""
    objects: Objects = field(default_factory=Objects)
    recall: ClassRecall | str = ""
    distances: Distances | str = ""
    pairs: str = ""
    measured: MeasuredDistances | str = ""
    margins: Margins | str = ""
    graded: str = ""
    maps: Maps | str = ""
    look: Look = field(default_factory=lambda: Look((), 0))
    features: FeatureShares | str = ""
    weights: Weights | str = ""
    spectrum: Spectrum | str = ""
    penalties: PenaltyPath | str = ""
    convergence: Convergence | str = ""
    worst: Sequence[Violation] | str = field(default="")
    suspects: Sequence[Suspect] | str = ""
    conflicts: Sequence[str] = ()


def from_estimator(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    ids: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    held_out: Pairs | None = None,
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
    title, summary : what was learned, in a line and in a sentence; by default what the learner tells
    settings : what it takes to repeat it; by default the learner's parameters
    describe : the text of a constraint of the fit by its row number; by default the certificate's own
    """
    learner = learner_of(model)
    n = _n_rows(X)
    labels, called = _column(y, "y", n), _column(ids, "ids", n)
    labels = None if labels is None else labelling.cleaned(labels)
    shown = {str(name): _column(values, f"show[{name!r}]", n) or [] for name, values in (show or {}).items()}
    if images is not None and len(images) != n:
        raise ValueError(f"images has {len(images)} entries, but X has {n} rows")
    shares = _part(lambda: inspection.feature_shares(model, X, names))
    objects = Objects(called, labels, shown, Pictures(images), _some_features(X, shares, names))
    codes, classes = (None, ()) if labels is None else inspection.label_codes(labels)
    held, learned = _held(held_rows, codes, n)
    distances, pairs = _distances(model, X, labels, held_out)
    drawn = _drawn_pairs(held_out) if labels is None else None
    found = _part(lambda: inspection.maps(model, X, first=None if drawn is None else np.unique(drawn[0])))
    given = Constraints() if constraints is None else Constraints(constraints.resolve(n))
    settings = {"learner": repr(learner)} if settings is None else settings
    return Report(
        title=title or f"What {type(learner).__name__} learned",
        summary=summary or _summary(learner, n, codes),
        settings={**settings, **_fingerprint(settings, X, labels, called, names)},
        notice=_notice(learner),
        figures=tuple(figures),
        examples=_part(lambda: examples(model, X, codes, held, learned)),
        objects=objects,
        recall="" if codes is None else _part(lambda: _recall(model, X, codes, classes, held, learned)),
        distances=distances,
        pairs=pairs,
        measured=_part(lambda: by_kind.measured_distances(model, X, given), optional=True),
        margins=_part(lambda: by_kind.margins(model, X, given), optional=True),
        maps=found,
        look=_look(found, objects, n, held, drawn, color_by),
        features=shares,
        weights=_part(lambda: by_kind.weights(model, names), optional=True),
        spectrum=_part(lambda: inspection.spectrum(model, X)),
        penalties=_part(lambda: by_kind.penalty_path(model), optional=True),
        convergence=_part(lambda: inspection.convergence(model)),
        worst=_worst(learner, describe),
    )


def _look(
    found: Maps | str,
    objects: Objects,
    n: int,
    held: Index | None,
    drawn: tuple[Index, Mask] | None,
    color_by: tuple[str, ArrayLike] | None,
) -> Look:
    if isinstance(found, str):
        return Look((), n)
    labels = [objects.hover(int(row)) for row in found.rows]
    name = "" if color_by is None else color_by[0]
    values = objects.labels if color_by is None else _column(color_by[1], "color_by", n)
    classes = None
    if values is not None:
        classes = inspection.ranges(values) if color_by is not None else None
        classes = classes or inspection.classes(values, CLASSES)
    is_held = None if held is None else np.isin(np.arange(n), held)
    return Look(labels, n, classes, name, is_held, drawn)


def _recall(
    model: Any,
    X: Any,
    codes: Index,
    classes: Sequence[str],
    held: Index | None,
    learned: Index | None,
) -> ClassRecall:
    found = by_kind.class_recall(model, X, codes, classes, held, learned)
    if len(found.names) < 2:
        raise Missing("Only one class was asked for.")
    return found


def _held(rows: ArrayLike | None, codes: Index | None, n: int) -> tuple[Index | None, Index | None]:
    """The rows that were held out, and those with a label that were not; neither where none was."""
    held = np.unique(np.asarray([] if rows is None else rows, dtype=np.int64))
    if not len(held):
        return None, None
    if held[0] < 0 or held[-1] >= n:
        raise ValueError(f"held_rows: X has {n} rows, and no row {held[0] if held[0] < 0 else held[-1]}")
    labelled = np.arange(n) if codes is None else np.flatnonzero(codes >= 0)
    return held, np.setdiff1d(labelled, held)


def _drawn_pairs(held_out: Pairs | None) -> tuple[Index, Mask] | None:
    """Pairs to draw on the maps, as many of either kind as can be seen."""
    if held_out is None:
        return None
    pairs, similar = np.asarray(held_out[0], dtype=np.int64).reshape(-1, 2), np.asarray(held_out[1], bool)
    some = [np.flatnonzero(similar == kind)[:MOST_PAIRS] for kind in (True, False)]
    chosen = np.sort(np.concatenate(some))
    return (pairs[chosen], similar[chosen]) if len(chosen) else None


def _some_features(
    X: Any, shares: FeatureShares | str, names: Sequence[str] | None
) -> dict[str, NDArray[Any]]:
    """A few columns of the data, by name: those that carry most of the learned distance, in their order."""
    columns = getattr(X, "columns", None) if names is None else names
    if sparse.issparse(X) or columns is None:
        return {}
    values, found = np.asarray(X), tuple(map(str, columns))
    if values.ndim != 2 or values.shape[1] != len(found) or values.dtype.kind not in "iuf":
        return {}
    places = np.arange(len(found))
    if len(found) > NUMBERS:
        if isinstance(shares, str) or shares.names != found:
            return {}
        places = np.sort(np.argsort(-np.abs(shares.after), kind="stable")[:NUMBERS])
    return {found[k]: values[:, k] for k in places}


def _summary(learner: Any, n: int, codes: Index | None) -> str:
    """What a learner tells without a study around it."""
    if getattr(learner, "kept_prior_", False):
        return "Nothing better than the distance before was found."
    known = "" if codes is None else f", {int((codes >= 0).sum()):,} of them with a label"
    return f"The distance of a fitted {type(learner).__name__}, shown on {count(n, 'row')}{known}."


def _part(make: Callable[[], Part], optional: bool = False) -> Part | str:
    """The part, or the sentence that says why there is none; of an optional part, no section."""
    try:
        return make()
    except Missing as error:
        return "" if optional else str(error)


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
    return worst if describe is None else [replace(v, stated=describe(v.row)) for v in worst]


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
