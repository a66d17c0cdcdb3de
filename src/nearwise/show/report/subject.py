"""What a page is about: a fitted learner, the rows that are shown, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common.types import Index, Mask
from nearwise.show.report.objects import Objects
from nearwise.side import Constraints
from nearwise.study import inspection
from nearwise.study.before_after import Missing
from nearwise.study.figures import Figure
from nearwise.study.inspection import Classes
from nearwise.study.suspicion import Suspect

CLASSES = 80  # that are told apart on maps, by colour and shape
_NUMBERS = 5  # features that are shown of a row


@dataclass(frozen=True, eq=False)
class Subject:
    """What a section of a page may ask: the arguments of `report.from_estimator`, checked.

    `objects` are the rows as they are shown, with ids and labels; `held` and `pairs` are what was not learned
    from, or None.
    """

    model: Any = None
    X: Any = None
    names: Sequence[str] | None = None
    objects: Objects = field(default_factory=Objects)
    held: Index | None = None
    pairs: tuple[Index, Mask] | None = None
    constraints: Constraints = field(default_factory=Constraints)
    graded: str = ""
    figures: Sequence[Figure] = ()
    suspects: Sequence[Suspect] | None = None
    conflicts: Sequence[str] = ()
    color_by: tuple[str, Sequence[Any]] | None = None
    describe: Callable[[int], str] | None = None

    @cached_property
    def n_rows(self) -> int:
        """How many rows there are, shown or not."""
        return n_rows(self.X)

    @cached_property
    def codes(self) -> Index | None:
        """The class of every row as a number, -1 for none; None without labels."""
        return None if self.objects.labels is None else inspection.label_codes(self.objects.labels)[0]

    @cached_property
    def learned(self) -> Index | None:
        """The rows with a label that were not held out, or None where none was."""
        if self.held is None:
            return None
        labelled = np.arange(self.n_rows) if self.codes is None else np.flatnonzero(self.codes >= 0)
        return np.setdiff1d(labelled, self.held)

    @cached_property
    def colours(self) -> Classes | None:
        """The classes that colour the maps."""
        if self.color_by is not None:
            values = self.color_by[1]
            return inspection.ranges(values) or inspection.classes(values, CLASSES)
        labels = self.objects.labels
        return None if labels is None else inspection.classes(labels, CLASSES)


def n_rows(X: Any) -> int:
    """Of an array of any kind."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def column(values: ArrayLike | None, name: str, n: int) -> list[Any] | None:
    """A value for every row, or None."""
    if values is None:
        return None
    found = list(np.asarray(values, dtype=object))
    if len(found) != n:
        raise ValueError(f"{name} has {len(found)} entries, but X has {n} rows")
    return found


def rows_held_out(rows: ArrayLike | None, n: int) -> Index | None:
    """Row numbers, each once; None where there are none."""
    held = np.unique(np.asarray([] if rows is None else rows, dtype=np.int64))
    for row in held[[0, -1]] if len(held) else ():
        if not 0 <= row < n:
            raise ValueError(f"held_rows: X has {n} rows, and no row {row}")
    return held if len(held) else None


def numbers_shown(model: Any, X: Any, names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """A few columns of the data, by name: those that carry most of the learned distance, in their order."""
    columns = getattr(X, "columns", None) if names is None else names
    if sparse.issparse(X) or columns is None:
        return {}
    values, found = np.asarray(X), tuple(map(str, columns))
    if values.ndim != 2 or values.shape[1] != len(found) or values.dtype.kind not in "iuf":
        return {}
    places = np.arange(len(found))
    if len(found) > _NUMBERS:
        try:
            shares = inspection.feature_shares(model, X, names)
        except Missing:
            return {}
        if shares.names != found:
            return {}
        places = np.sort(np.argsort(-np.abs(shares.after), kind="stable")[:_NUMBERS])
    return {found[k]: values[:, k] for k in places}
