"""What is known about some data: reading it, checking it, and naming its rows as the user does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import checks
from nearwise._common.errors import Refused, RowsError
from nearwise._common.files import path_text
from nearwise._common.reading import id_list
from nearwise._common.types import Index
from nearwise.data import tables
from nearwise.data.numerals import Numerals, number
from nearwise.data.side_files import CONFLICTS, READERS, Answers, Objects, Reading, Side, whole
from nearwise.data.tables import CATEGORY, Table
from nearwise.side import Block, Constraints, Stated, labelling

_LARGEST = 1e150  # numbers beyond it, or all below its inverse, have no squared distances
_SIDE = ("pairs", "triplets", "distances", "squared", "similar_above", "conflicts", "roles")
_ADVICE = (
    "name another column of labels, or write ranges into the file; with a letter before it, a number is a "
    "class of its own"
)


@dataclass(frozen=True, eq=False)
class Known:
    """A table and what is known about its rows.

    Attributes
    ----------
    table : the data
    codes : the class of every row as a number, -1 where the label is missing; or None
    classes : their names
    sides : what the side files say, by row number
    notes : what the user should know about how the labels were read
    """

    table: Table
    codes: Index | None
    classes: tuple[str, ...]
    sides: tuple[Side, ...]
    notes: tuple[str, ...] = ()

    @property
    def constraints(self) -> Constraints:
        """Of all side files."""
        return sum((side.constraints for side in self.sides), Constraints())

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about how the files were read."""
        return sum((side.notices for side in self.sides), self.table.notices + self.notes)

    @property
    def answers(self) -> tuple[Answers, ...]:
        """What the files of feedback hold, counted: repetitions, conflicts, annotators."""
        return tuple(side.answers for side in self.sides if side.answers is not None)

    @property
    def labels(self) -> NDArray[np.object_] | None:
        """The name of the class of every row, None for a row without one."""
        return None if self.codes is None else np.array([*self.classes, None], dtype=object)[self.codes]

    def name(self, row: int) -> str:
        """A row as the user names it: by its id, else by its number."""
        return str(self.table.row_names[row])

    def text(self, stated: Stated, rows: Index) -> str:
        """A constraint on fitted rows, in the user's names; `rows` says which rows of the table they are."""
        return stated.text(lambda i: self.name(rows[int(i)]))

    def refusal(self, error: ValueError, rows: Index) -> str:
        """A message about constraints, in the user's names, each with where it comes from."""

        def named(stated: Stated) -> str:
            origin = self.origin(stated, rows)
            return self.text(stated, rows) + (f" ({origin})" if origin else "")

        return error.retold(named) if isinstance(error, RowsError) else str(error)

    def origin(self, stated: Stated, rows: Index) -> str:
        """Where a constraint comes from: file and line, or the labels of the two rows."""
        if stated.block.of_kind.shares_objects:
            return ""
        pairs = rows[stated.block.object_ids[stated.place]].reshape(-1, 2)
        for side in self.sides:
            if place := _place(side, stated.block, pairs):
                return place
        if self.codes is not None and len(pairs) == 1 and min(self.codes[pairs[0]]) >= 0:
            return ", ".join(self.classes[code] for code in self.codes[pairs[0]])
        return ""


def from_files(
    data: str | os.PathLike[str],
    *,
    labels: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    **options: Any,
) -> Known:
    """A data file and files of side information, which name objects by id or by row number from 0.

    Parameters
    ----------
    data, labels, decimal, thousands : as in `nearwise.tables.read`
    options : pairs, triplets, distances and what else `with_files` takes; and further parameters of
        `nearwise.tables.read`: ids, drop, features, missing, categorical, convert, categories
    """
    marks: dict[str, Any] = {"decimal": decimal, "thousands": thousands}
    side = {name: options.pop(name) for name in _SIDE if name in options}
    return with_files(tables.read(data, labels=labels, **marks, **options), **side, **marks)


def with_files(
    table: Table,
    *,
    pairs: str | os.PathLike[str] | None = None,
    triplets: str | os.PathLike[str] | None = None,
    distances: str | os.PathLike[str] | None = None,
    squared: bool = False,
    similar_above: float | None = None,
    conflicts: str | None = None,
    roles: Mapping[str, str] | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
) -> Known:
    """A table, with its labels as classes, and what files say about it.

    Parameters
    ----------
    table : the data
    pairs, triplets, distances : files with two objects a line and 1 or 0 (similar or not); with three, the
        first nearer to the second than to the third; with two and their distance
    squared : whether these distances are squared ones
    similar_above : pairs with a rating above it are similar, those below it dissimilar
    conflicts : where answers about the same objects differ, "keep" all, those of the "majority", or "drop"
        them; by default such pairs and distances are refused, and triplets kept
    roles : columns of these files whose names do not say what they are, by role: "first", "second", "third",
        "fourth" (objects), "similar", "rating", "distance", "relation", "weight", "annotator"
    decimal, thousands : as in `nearwise.tables.read`
    """
    if not isinstance(table, Table):
        raise TypeError(f"table must be a Table, got {type(table).__name__}; arrays are for from_arrays")
    if conflicts is not None and conflicts not in CONFLICTS:
        raise Refused(
            f"conflicts must be one of {', '.join(map(repr, CONFLICTS))} or None, got {conflicts!r}"
        )
    if roles is not None and not isinstance(roles, Mapping):
        raise TypeError(f"roles must be columns by role, as in {{'first': 'left'}}, got {roles!r}")
    if squared and distances is None:
        raise Refused("squared says what the numbers in distances are; give distances")
    if similar_above is not None:
        try:
            checks.finite(similar_above, "similar_above")
        except ValueError as error:
            raise Refused(str(error)) from None
        if pairs is None:
            raise Refused("similar_above says which ratings in pairs are similar; give pairs")
    how = Reading(roles or {}, similar_above, conflicts, squared, decimal, thousands)
    # rows that are numbered with those that are left out are called by these numbers
    ids = table.row_names if table.ids is not None or table.rows is not None else None
    objects = Objects(len(table.X), ids, table.left_out)
    files = {"pairs": pairs, "triplets": triplets, "distances": distances}
    sides = tuple(
        READERS[kind](path_text(file, kind), objects, how) for kind, file in files.items() if file is not None
    )
    used = {role for side in sides for role in side.roles}
    for role, column in how.roles.items():
        if role not in used:
            raise Refused(f"no file of feedback has the column {column!r}, which shall be {role!r}")
    _check_magnitudes(table)
    return known_of(table, sides)


def from_arrays(
    X: ArrayLike,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    *,
    constraints: Constraints | None = None,
    ids: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    source: str = "the data",
) -> Known:
    """Arrays, or a DataFrame, and constraints made by `nearwise.constraints`.

    Parameters
    ----------
    X : (n, d) finite numbers; the columns of a DataFrame name the features
    labels : n classes as texts or numbers, None or NaN where one is missing
    constraints : bounds on distances, and comparisons, by id, or by row number where there are no ids
    ids : n different ids of the rows
    names : d names of the features
    source : what messages call the data
    """
    columns = getattr(X, "columns", None) if names is None else names
    rows = np.array(X, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise Refused(f"X must be an array of n rows and d columns, got shape {rows.shape}")
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        row, column = wrong[0]
        raise Refused(f"row {row} of X: the number in column {column} is {rows[row, column]}, not finite")
    n, d = rows.shape
    for what, found, count in (("labels", labels, n), ("names", columns, d), ("ids", ids, n)):
        if found is not None and len(np.asarray(found)) != count:
            raise Refused(f"X has {n} rows and {d} columns, but there are {len(np.asarray(found))} {what}")
    given = None if ids is None else id_list(ids, "ids")
    table = Table(
        source=source,
        X=rows,
        names=tuple(f"x{k}" for k in range(d)) if columns is None else tuple(map(str, columns)),
        labels=None if labels is None else tables.as_texts(map(_if_there, labels)),
        ids=None if given is None else given.astype(str),
        scalars=True,
        named=columns is not None,
    )
    _check_magnitudes(table)
    sides: tuple[Side, ...] = ()
    if constraints is not None and len(constraints):
        resolved = Constraints(constraints.resolve(n, given))
        sides = (Side(resolved, np.arange(len(resolved)), "the constraints", "row"),)
    return known_of(table, sides)


def _if_there(label: Any) -> Any:
    return label if labelling.is_there(label) else None


def known_of(table: Table, sides: tuple[Side, ...] = ()) -> Known:
    """A table, with its labels as classes, and side files."""
    if table.labels is None:
        return Known(table, None, (), sides)
    codes, classes, notes = class_codes(table.labels, table.source)
    count = int((codes >= 0).sum())
    if len(classes) < 2:
        found = "no row has a label" if count == 0 else f"all {count} labels are {classes[0]!r}"
        why = "".join(f"; {note.removeprefix(f'{table.source}: ')}" for note in notes)
        raise Refused(f"{table.source}: {found}; two classes or more are needed{why}")
    if len(classes) == count:
        raise Refused(
            f"{table.source}: all {count} labels differ, so no two rows are of one class; name another "
            "column of labels"
        )
    return Known(table, codes, classes, sides, notes)


def class_codes(labels: NDArray[np.object_], source: str) -> tuple[Index, tuple[str, ...], tuple[str, ...]]:
    """The class of every label as a number, -1 where there is none; the names of the classes; and notes.

    Texts that are numbers count as numbers: measurements are refused as labels, and "1" and "1.0", as pandas
    writes it where another label is missing, are one class.
    """
    matched, notes = _without_decimals(labels)
    try:
        found = labelling.read(matched, number=_as_number, name="the column of labels", advice=_ADVICE)
    except ValueError as error:
        raise Refused(f"{source}: {error}") from error
    order = np.argsort(np.array(found.classes, dtype=str))
    codes = np.append(np.argsort(order), -1)[found.codes]
    notes += found.notes
    return codes, tuple(str(found.classes[k]) for k in order), tuple(f"{source}: {note}" for note in notes)


def _without_decimals(labels: NDArray[np.object_]) -> tuple[NDArray[np.object_], tuple[str, ...]]:
    """The labels, those that are one whole number written in several ways as that, and a note on them."""
    written: dict[str, set[str]] = {}
    for label in set(labels.tolist()):
        if isinstance(label, str):
            written.setdefault(whole(label), set()).add(label)
    short = {label: name for name, forms in written.items() if len(forms) > 1 for label in forms}
    if not short:
        return labels, ()
    example = next(label for label in labels if short.get(label, label) != label)
    matched = np.array([short.get(label, label) for label in labels], dtype=object)
    return matched, (f"labels are matched without their decimals, {example!r} as {short[example]!r}",)


def _as_number(label: str) -> float | None:
    """The number that a text is, with a decimal point or comma."""
    value = number(label)
    return number(label, Numerals(",")) if value is None else value


def _check_magnitudes(table: Table) -> None:
    """Refuse numbers whose squares overflow, or all vanish: no distance could be measured."""
    columns, X = np.arange(table.X.shape[1]), table.X
    if table.kinds:  # texts have no size, and missing numbers none either
        columns = np.array([k for k, kind in enumerate(table.kinds) if kind != CATEGORY], dtype=np.int64)
        X = np.nan_to_num(table.X[:, columns].astype(np.float64))
    if not X.size:
        return
    places = (int(X.argmin()), int(X.argmax()))
    size, place = max((abs(float(X.flat[place])), place) for place in places)
    if 1.0 / _LARGEST <= size <= _LARGEST or size == 0.0:
        return
    row, column = divmod(place, X.shape[1])
    where = f"{table.source}, {table.place(row)}, column {table.names[columns[column]]!r}"
    what = "is too large" if size > 1.0 else "is the largest number in the data, and too small"
    raise Refused(f"{where}: {X[row, column]:g} {what} to be squared; take another unit")


def _place(side: Side, alike: Block, pairs: Index) -> str:
    """File and line of the constraint on these pairs, where the side file has it."""
    first = 0
    for block in side.constraints.blocks:
        ids = np.sort(block.object_ids.reshape(len(block), -1, 2), axis=2)
        if block.kind == alike.kind and block.relation == alike.relation:
            found = np.flatnonzero((ids == np.sort(pairs, axis=1)).all(axis=(1, 2)))
            if found.size:
                return f"{side.source}, {side.place(first + int(found[0]))}"
        first += len(block)
    return ""
