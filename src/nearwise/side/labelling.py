"""What labels mean, the same for every learner, for `constraints.from_labels` and for the command line.

A label is a class, of any type. None, NaN (also pandas.NA and NaT) mean that a row has none, and so do -1, as
in scikit-learn's semi-supervised learning, and the texts that mean a missing value in files ("", "NA", "NaN",
"null", "none", "?" and the like, in capitals or not), as NumPy makes "nan" of a NaN among texts. Since -1 and
these texts may be meant as classes, a note says how many rows they leave out. There is one exception: where y
holds -1 and +1 and nothing else, these are two classes, as many data sets have them, and a note says so.

Measurements are not classes. Numbers are refused as labels where hardly any occurs twice, or where they have
fractions and more than a few values; whole numbers in floats (1.0, 2.0) are classes like others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.reading import MISSING, regular_array
from nearwise._common.types import Array, Codes, Mask
from nearwise._common.warning import warn

UNLABELLED = -1  # the code of a row without a label
_FEW = (
    20  # rows up to which numbers that occur once say nothing, and values with fractions that may be classes
)
_ALONE = 2 / 3  # of the rows: where more have a number of their own, the numbers are measurements
_RARE = 3  # rows per class on average, below which whole numbers may be measurements


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as class numbers.

    Attributes
    ----------
    codes : the class of every row, -1 where it has no label
    classes : the label of every class, in the order in which they first appear
    notes : what the user should know about how y was read, one sentence each
    """

    codes: Codes
    classes: tuple[Any, ...]
    notes: tuple[str, ...] = ()

    @property
    def useless(self) -> str:
        """Why nothing can be learned from these labels, as a clause; empty where something can."""
        count = int((self.codes >= 0).sum())
        if count == 0:
            return "no row has a label"
        if len(self.classes) == 1:
            return f"all {count} labels are {self.classes[0]!r}, and one class does not tell what differs"
        if len(self.classes) == count:
            return f"all {count} labels differ, so no two rows are of one class"
        return ""

    def of_rows(self, counting: Mask) -> Labels:
        """Those of some rows; the others have none, and classes that only these had are no classes.

        Classes are in the order in which these rows have them, as if the others had come without a label.
        """
        codes = np.where(counting, self.codes, UNLABELLED)
        codes[codes >= 0], kept = _in_order(codes[codes >= 0])
        return Labels(codes, tuple(self.classes[k] for k in kept), self.notes)

    def for_pairs(self) -> Codes:
        """The codes, to draw pairs from; says the notes, and where there can be no dissimilar pairs."""
        self.warn()
        if len(self.classes) < 2:
            warn(f"no dissimilar pairs: {self.useless}")
        return self.codes

    def warn(self) -> None:
        """Say the notes as warnings."""
        for note in self.notes:
            warn(note)


def as_number(label: Any) -> float | None:
    """The number that a label is, or None: texts and truth values are none."""
    return float(label) if isinstance(label, Real) and not isinstance(label, bool | np.bool_) else None


_ADVICE = (
    "cut numbers into ranges (numpy.digitize), or make texts of them (y.astype(str)) to take each for a class"
    "; NeighborLearner(None, target='numbers') learns from the numbers themselves"
)


def read(
    y: ArrayLike,
    *,
    complete: bool = True,
    number: Callable[[Any], float | None] = as_number,
    name: str = "y",
    advice: str = _ADVICE,
) -> Labels:
    """Read labels, or refuse what cannot be classes.

    Parameters
    ----------
    y : one label per row
    complete : whether these are all rows. A part of them, as in a score, does not tell how often a whole
        number occurs.
    number : the number that a label is; the command line also reads texts as numbers
    name, advice : for messages: what holds the labels, and what to do about measurements
    """
    codes, classes = _coded(y)
    notes: tuple[str, ...] = ()
    signs = _are_signs(classes)
    if signs:
        both = " and ".join(repr(label) for label in classes if not means_missing(label))
        notes += (f"{name} holds {both} only: taken for two classes, though else -1 means no label",)
    none = [k for k, label in enumerate(classes) if means_missing(label) or (_is(label, -1) and not signs)]
    if none:
        kept = np.setdiff1d(np.arange(len(classes)), none)
        place = np.full(len(classes) + 1, UNLABELLED)
        place[kept] = np.arange(len(kept))
        if len(kept):
            count = int(np.isin(codes, none).sum())
            notes += (_left_out(name, count, len(codes), [classes[k] for k in none]),)
        codes, classes = place[codes], [classes[k] for k in kept]
    doubt, refused = _doubt(codes, [number(label) for label in classes], complete)
    if refused:
        raise ValueError(f"{name} holds {doubt}: measurements are not labels of classes; {advice}")
    if doubt:
        notes += (f"{name} holds {doubt}: each is taken for a class; if they are measurements, {advice}",)
    return Labels(codes, tuple(classes), notes)


def read_targets(y: ArrayLike) -> Array:
    """Numbers, one per object, NaN for none."""
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("y must hold one number per object; texts are labels: from_labels") from None
    if targets.ndim != 1:
        raise ValueError(f"y must hold one number per object, got shape {targets.shape}")
    infinite = np.flatnonzero(np.isinf(targets))
    if len(infinite):
        raise ValueError(
            f"y must be finite, or NaN for no target, got {targets[infinite[0]]} at row {infinite[0]}"
        )
    return targets


def _doubt(codes: Codes, numbers: list[float | None], complete: bool) -> tuple[str, bool]:
    """What is strange about classes that may be measurements, else empty; and whether they must be these."""
    counts = np.bincount(codes[codes >= 0], minlength=len(numbers))
    k, n = len(numbers), int(counts.sum())
    if k < 2 or any(value is None or not np.isfinite(value) for value in numbers):
        return "", False
    said = f"{k} different numbers in {n} rows"
    fraction = next((value for value in numbers if value is not None and not value.is_integer()), None)
    if fraction is not None:
        return f"{said}, such as {fraction:g}", k > _FEW or 2 * k > n
    if not complete or n <= _FEW:
        return "", False
    if int((counts == 1).sum()) > _ALONE * n:
        return f"{said}, most of them once", True
    return (said, False) if k > _FEW and k * _RARE > n else ("", False)


def _left_out(name: str, count: int, n: int, labels: Sequence[Any]) -> str:
    """How many rows have no label because of such labels, and how to keep them."""
    said, verb = " and ".join(map(repr, labels)), "means" if len(labels) == 1 else "mean"
    rows = f"{count} of {n} rows {'is' if count == 1 else 'are'} left out"
    silent = "None, NaN and, in a file, an empty cell leave rows out without this note"
    advice = f"to keep them as a class, give it another name; {silent}"
    return f"{name}: {rows}, because {said} {verb} that a row has no label; {advice}"


def _coded(y: ArrayLike) -> tuple[Codes, list[Any]]:
    """Class numbers in the order in which the classes first appear, -1 for a missing label; the classes."""
    labels = regular_array(y, "y")
    if labels.ndim != 1 or labels.size < 2:
        raise ValueError(f"y must be a column of at least two labels, got shape {labels.shape}")
    if labels.dtype.kind not in "biufMm" and not (labels.dtype.kind == "U" and isinstance(y, np.ndarray)):
        # NumPy would turn the list [1, "1"] into two equal strings, and cannot sort mixed objects.
        return coded_objects(np.asarray(y, dtype=object))
    there = labels == labels  # NaN and NaT are not
    codes = np.full(labels.size, UNLABELLED, np.int64)
    codes[there], values = _in_order(labels[there])
    return codes, values.tolist()


def _in_order(labels: NDArray[Any]) -> tuple[Codes, NDArray[Any]]:
    """Every label as a number, and the different ones in the order in which they first appear."""
    values, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[inverse], values[order]


def coded_objects(labels: Sequence[Any] | NDArray[np.object_]) -> tuple[Codes, list[Any]]:
    """Class numbers, -1 for a label that is not there, and the classes."""
    classes: dict[Any, int] = {}
    codes = np.full(len(labels), UNLABELLED, np.int64)
    for row, label in enumerate(labels):
        if is_there(label):
            codes[row] = classes.setdefault(label, len(classes))
    return codes, list(classes)


def in_stream(labels: list[Any]) -> list[Any]:
    """Labels of a part of a stream, with None for those that mean none.

    Each is judged by itself, so that it does not matter how a stream is cut: -1 always means none, and a
    number with a fraction is refused.
    """
    found = [label if has_label(label) and not _is(label, -1) else None for label in labels]
    none = [label for label, kept in zip(labels, found, strict=True) if kept is None and is_there(label)]
    for row, label in enumerate(found):
        value = as_number(label)
        if value is not None and not value.is_integer():
            raise ValueError(f"row {row}: {label!r} is a measurement, not the label of a class; {_ADVICE}")
    if _are_signs(labels):
        text = "y holds -1 and 1 only, and in a stream -1 means no label; give two classes other names"
        warn(text)
    elif none and any(label is not None for label in found):
        warn(_left_out("y", len(none), len(labels), [*dict.fromkeys(none)]))
    return found


def cleaned(labels: Iterable[Any]) -> list[Any]:
    """The labels, with None for those that mean none."""
    given = list(labels)
    signs = _are_signs(given)
    return [label if has_label(label) and (signs or not _is(label, -1)) else None for label in given]


def has_label(label: Any) -> bool:
    """Whether a label is there, and no text that says that it is missing."""
    return is_there(label) and not means_missing(label)


def means_missing(label: Any) -> bool:
    """Whether a label is a text that means a missing value."""
    text = _text_of(label)
    return text is not None and text.strip().casefold() in MISSING


def is_there(label: Any) -> bool:
    """Whether a label is not None, NaN, NaT or pandas.NA."""
    try:
        return label is not None and not bool(label != label)
    except TypeError:  # pandas.NA has no truth value
        return False


def _are_signs(labels: list[Any]) -> bool:
    """Whether -1 and 1 are there, and nothing else."""
    there = [label for label in labels if has_label(label)]
    signs = {sign for sign in (-1, 1) if any(_is(label, sign) for label in there)}
    return signs == {-1, 1} and all(_is(label, -1) or _is(label, 1) for label in there)


def _is(label: Any, value: int) -> bool:
    """Whether a label is that number, or its text."""
    text = _text_of(label)
    if text is not None:
        return text.strip().removeprefix("+").removesuffix(".0") == str(value)
    return as_number(label) == value


def _text_of(label: Any) -> str | None:
    """The text that a label is, or None."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    return label if isinstance(label, str) else None
