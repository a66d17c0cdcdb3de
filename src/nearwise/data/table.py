"""The table that is learned from: numbers by row, and perhaps a label and an id for every row.

`read` opens a file as a `Frame`, chooses the columns that are meant, and makes numbers of them: all at once
where they are plain, else one by one (`columns`). All that is wrong with a file is refused in one message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.digest import SHORT, digest
from nearwise._common.files import path_text
from nearwise._common.types import Index, Mask
from nearwise.data.columns import REFUSE, Features, Problem, Wishes, refusal
from nearwise.data.frame import (
    TEXTS,
    VECTORS,
    Frame,
    TableError,
    Texts,
    open_frame,
    place,
    present,
    shown,
    some_of,
)
from nearwise.data.kinds import CATEGORY, said as kind_said
from nearwise.data.numerals import wanted

MISSING_CHOICES = (REFUSE, "impute", "drop")
CATEGORICAL_CHOICES = (REFUSE, "onehot", "drop")
_LONGEST_ID = 1000


@dataclass(frozen=True, eq=False)
class Table:
    """A data file: numbers by row, and perhaps a label and an id for every row.

    Attributes
    ----------
    source : as the user named it
    X : (n, d) finite numbers; where the user asked to fill missing ones NaN, and where there are categories
        an array of numbers and texts: what the first step of a model takes
    names : d names of features; "x0", "x1", ... where the file has none
    labels : (n,) texts, None where a label is missing; or None
    ids : (n,) texts, unique; or None
    scalars : True for columns of numbers, False for vectors (arrays, a list column)
    named : whether `names` are the file's own
    lines : (n,) the line of the file of every row, for text files; or None
    notices : what the user should know about how the file was read
    kinds : d words, what every feature is in the file: "number", "boolean", "category", and where they were
        converted "date", "percent", "currency EUR"; empty where all are numbers and none is missing
    missing : what is done about missing values: "refuse", "impute" (by a step of the model) or "drop"
    rows : (n,) the row of the file of every row, counted from 0, where some are left out; or None
    left_out : what these rows are called, by id or number
    label_column, id_column, vector_column : their names, or None
    """

    source: str
    X: NDArray[Any]
    names: tuple[str, ...]
    labels: Texts | None = None
    ids: NDArray[np.str_] | None = None
    scalars: bool = True
    named: bool = True
    lines: NDArray[np.int64] | None = None
    notices: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    missing: str = REFUSE
    rows: Index | None = None
    left_out: frozenset[str] = frozenset()
    label_column: str | None = None
    id_column: str | None = None
    vector_column: str | None = None

    @property
    def row_names(self) -> NDArray[Any]:
        """What the user calls every row: its id, else its number in the file, counted from 0."""
        if self.ids is not None:
            return self.ids
        return np.arange(len(self.X)) if self.rows is None else self.rows

    def place(self, row: int) -> str:
        """Where a row is in the file, for messages: "line 17" of a text file, else "row 16"."""
        return place(self.lines, row)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that change when numbers, labels, ids or names do."""
        texts = [None if column is None else column.tolist() for column in (self.labels, self.ids)]
        return digest(self.X, self.names, *texts)[:SHORT]


def read(
    source: str | os.PathLike[str],
    *,
    labels: str | None = None,
    ids: str | None = None,
    ids_optional: bool = False,
    ids_hint: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] = (),
    known: Sequence[str] = (),
    least: int = 2,
    decimal: str | None = None,
    thousands: str | None = None,
    header: bool | str | None = None,
    missing: str = REFUSE,
    categorical: str = REFUSE,
    convert: Mapping[str, str] | None = None,
    categories: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
) -> Table:
    """Read a data file.

    A column is given by its name, or by its number from 1, or from the end by -1, -2, ...

    Parameters
    ----------
    source : a path (.csv, .tsv, .txt, also gzipped, .parquet, .npy, .npz), "-" for standard input, or
        "dataset:iris" for a set of `nearwise.datasets`, whose label column is "target". Encoding, separator
        and header of text are found out.
    labels : the column of labels
    ids : the column of ids
    ids_optional : there are no ids where the file has no such column, instead of an error
    ids_hint : where no ids are asked for, the column of ids beside `known` or given features, if the file has
        it and its ids are all different
    drop : columns to leave out
    features : the columns to use; by default all others, but no texts beside one column of vectors
    known : names of features that a model knows; the others are left out, and none of these may be missing
        where the file has names
    least : the number of rows that are needed
    decimal : the decimal mark of a text file, "." or "," (or "point", "comma"). By default it follows from
        the numbers of all features; where none says whether `4,161` is 4161 or 4.161, that is an error.
    thousands : its mark between groups of three digits: ",", ".", " ", "'" (or "comma", "point", "space",
        "apostrophe"), or "" for none. By default numbers with such a mark are refused.
    header : whether the first line of a text file holds the names of its columns, True ("yes") or False
        ("no"). By default that is found out; where it is in doubt, that is an error.
    missing : "refuse" missing values, "impute" them by a step of the model (they are NaN in `Table.X`), or
        "drop" the rows that have one
    categorical : "refuse" columns of texts, "onehot" encode them by a step of the model, or "drop" them
    convert : columns to be read as numbers, and what they hold: "date" (days since 1970), "date-dmy",
        "date-mdy", "percent", "currency-EUR" or another currency
    categories : columns of numbers that are categories, such as codes
    kinds : the kind of every column in a model, as in `Table.kinds`, by name: they are read as that, and
        `categorical`, `convert` and `categories` have no say
    """
    for name, value, allowed in (
        ("missing", missing, MISSING_CHOICES),
        ("categorical", categorical, CATEGORICAL_CHOICES),
    ):
        if value not in allowed:
            raise TableError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    marks = wanted(decimal, thousands)
    frame = open_frame(path_text(source, "source"), header=_said_of_header(header))
    choice = _choose(frame, labels, ids, ids_optional, ids_hint, drop, features, known)
    said = {frame.name(name): kind_said(kind) for name, kind in (convert or {}).items()}
    said |= dict.fromkeys(frame.all_names(categories), CATEGORY)
    wishes = Wishes(missing, categorical, said if kinds is None else kinds, kinds is not None, marks)
    return _table(frame, choice, wishes, least)


class _Choice(NamedTuple):
    """The names of columns: features, label and id; and what the user should know about the choice."""

    features: tuple[str, ...]
    label: str | None
    id: str | None
    notices: tuple[str, ...]
    id_hinted: bool = False


def _choose(
    frame: Frame,
    labels: str | None,
    ids: str | None,
    ids_optional: bool,
    ids_hint: str | None,
    drop: Sequence[str],
    features: Sequence[str],
    known: Sequence[str],
) -> _Choice:
    """The columns that are meant; see `read` for the arguments."""
    source = frame.source
    label = None if labels is None else frame.name(labels)
    id_ = None if ids is None or (ids_optional and frame.find(ids) is None) else frame.name(ids)
    dropped, asked = frame.all_names(drop), frame.all_names(features)
    taken = {label: "label", id_: "id"}
    for name in (*dropped, *asked):
        if name in taken:
            other = "left out" if name in dropped else "a feature"
            raise TableError(f"{source}: column {name!r} cannot be the {taken[name]} and {other}")
        if name in dropped and name in asked:
            raise TableError(f"{source}: column {name!r} is both asked for and left out")
    free = [name for name in frame.features if name not in taken and name not in dropped]
    hinted = ids_hint if id_ is None and ids_hint in frame.columns else None
    chosen, notice = asked, ""
    if not asked and known and frame.named:
        chosen, notice = _known(frame, [name for name in free if name != hinted], known)
    if not chosen:
        chosen, notice = _vectors_alone(frame, free)
    vectors = [name for name in chosen if frame.holds(name) == VECTORS]
    if vectors and len(chosen) > 1:
        other = next(name for name in chosen if name != vectors[0])
        what = f"column {vectors[0]!r} holds vectors, and {other!r} is a column beside it"
        raise TableError(f"{source}: {what}; choose with --features or --drop")
    if not chosen:
        raise TableError(f"{source}: no column is left to be a feature")
    notices = (*frame.notices, f"{source}: {notice}") if notice else frame.notices
    is_hinted = hinted is not None and hinted not in (label, *dropped, *chosen)
    return _Choice(tuple(chosen), label, hinted if is_hinted else id_, notices, is_hinted)


def _known(frame: Frame, free: Sequence[str], known: Sequence[str]) -> tuple[list[str], str]:
    """The columns of a model, and a note on others; none where there are vectors instead."""
    missing, has = [name for name in known if name not in free], some_of(tuple(frame.columns))
    if not missing:
        unused = [name for name in free if name not in known]
        return list(known), f"the model does not use {some_of(unused)}" if unused else ""
    if any(frame.holds(name) == VECTORS for name in free):
        return [], ""
    if taken := [name for name in missing if name in frame.columns]:
        what = f"the model needs {some_of(taken)}, which cannot be left out, a label or an id"
        raise TableError(f"{frame.source}: {what}")
    n = len(known)
    which = f"{some_of(missing)} of the {n} columns" if n > 1 else f"the column {missing[0]!r}"
    raise TableError(f"{frame.source} lacks {which} that the model was learned with; it has {has}")


def _vectors_alone(frame: Frame, free: Sequence[str]) -> tuple[list[str], str]:
    """All columns, or the one of vectors where the others are texts, with a note."""
    texts = [name for name in free if frame.holds(name) == TEXTS]
    others = [name for name in free if name not in texts]
    if len(others) != 1 or not texts or frame.holds(others[0]) != VECTORS:
        return list(free), ""
    return others, f"beside the vectors in column {others[0]!r}, texts are no features: {some_of(texts)}"


def _table(frame: Frame, choice: _Choice, wishes: Wishes, least: int) -> Table:
    """The table of the chosen columns, or one refusal of all that is wrong."""
    features, notices = Features(frame, choice.features, wishes), list(choice.notices)
    _check_count(frame, len(features), least)
    features.read()
    ids = None if choice.id is None else frame.texts(choice.id)
    problem = None if ids is None else _problem_of_ids(frame, choice.id or "", ids)
    if choice.id_hinted and problem is not None:
        said = refusal(frame, (), [problem], False)
        notices, ids = [*notices, f"{said}; the rows are called by their numbers"], None
    elif choice.id_hinted:
        notices.append(f"{frame.source}: ids are in column {choice.id!r}, as in the data learned from")
    elif problem is not None:
        features.problems.append(problem)
    if features.problems:
        raise TableError(refusal(frame, features.names, features.problems, wishes.applied))
    assert features.X is not None
    table = Table(
        source=frame.source,
        X=features.X,
        names=features.names,
        labels=None if choice.label is None else present(frame.texts(choice.label)),
        ids=None if ids is None else ids.astype(np.str_),
        scalars=frame.scalars and features.vectors is None,
        named=frame.named,
        lines=frame.lines,
        notices=(*notices, *features.notices),
        kinds=features.kinds,
        missing=wishes.missing,
        label_column=choice.label,
        id_column=None if ids is None else choice.id,
        vector_column=features.vectors,
    )
    if features.gaps is not None and features.gaps.any():
        table = _with_gaps(table, features.gaps)
    _check_count(frame, len(table.X), least)
    return table


def _with_gaps(table: Table, gaps: Mask) -> Table:
    """A table with missing values: with a note on them, or without their rows, as the user wishes."""
    row = int(np.argmax(gaps.any(axis=1)))
    where = f"as in {table.place(row)}, column {table.names[int(np.argmax(gaps[row]))]!r}"
    kept, n, source = ~gaps.any(axis=1), len(gaps), table.source
    if table.missing == "impute":
        count = int(gaps.sum())
        filled = "1 missing value is filled" if count == 1 else f"{count:,} missing values are filled"
        by = "a number by the median and a category by the most frequent one of the rows learned from"
        return replace(table, notices=(*table.notices, f"{source}: {filled}, {by}"))
    if not kept.any():
        raise TableError(f"{source}: every row lacks a value, {where}; --missing drop leaves none")
    lost = f"{n - int(kept.sum()):,} of {n:,} rows are left out, because a value is missing, {where}"
    return replace(
        table,
        X=table.X[kept],
        labels=None if table.labels is None else table.labels[kept],
        ids=None if table.ids is None else table.ids[kept],
        lines=None if table.lines is None else table.lines[kept],
        rows=np.flatnonzero(kept),
        left_out=frozenset(map(str, table.row_names[~kept].tolist())),
        notices=(*table.notices, f"{source}: {lost}"),
    )


def _check_count(frame: Frame, n: int, least: int) -> None:
    """Refuse too few rows."""
    if n < least:
        count = "no rows" if n == 0 else "one row" if n == 1 else f"{n} rows"
        where = f", {frame.place(0)}" if n else ""
        needed = f"at least {least} are needed" if least > 1 else "nothing can be done with it"
        raise TableError(f"{frame.source}{where}: the file has {count} of data; {needed}")


def _problem_of_ids(frame: Frame, name: str, ids: Texts) -> Problem | None:
    """Why a column does not name the rows."""
    first: dict[str, int] = {}
    for row, text in enumerate(ids):
        if text is None:
            return Problem(name, row, "the id is empty", None, "every row needs an id of its own")
        if len(text) > _LONGEST_ID:
            what = f"the id has {len(text)} characters"
            return Problem(name, row, what, None, f"at most {_LONGEST_ID} are allowed")
        if text in first:
            what = f"the id {shown(text)} was already given in {frame.place(first[text])}"
            return Problem(name, row, what, None, "ids must differ")
        first[text] = row
    return None


def _said_of_header(header: bool | str | None) -> bool | None:
    for said, meant in (("yes", True), ("no", False), (None, None)):
        if header is meant or header == said:
            return meant
    raise TableError(f"header must be True or 'yes', False or 'no', or None, got {header!r}")
