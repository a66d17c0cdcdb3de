"""What a data file becomes: a `Table`, checked. `Opened` is what the readers of every format hand over.

A reader opens a file, which tells the names of its columns; `select` turns the user's wishes into column
numbers; the reader then loads those columns; `checked` makes a `Table` of them or names what is wrong.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise._common.digest import SHORT, digest
from nearwise._common.reading import MISSING
from nearwise._common.types import Array, Index

LONGEST_ID = 1000


class TableError(ValueError):
    """A data file that cannot be used; the message names the file, its line or row, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names in a file may have line ends


class NoColumn(TableError):
    """A column that is asked for by name and that the file does not have."""


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
    kinds : d words, what every feature is in the file: "number", "boolean", "date", "percent",
        "currency EUR", "category"; empty where all are numbers
    missing : what is done about missing values: "refuse", "impute" (by a step of the model) or "drop"
    rows : (n,) the row of the file of every row, counted from 0, where some are left out; or None
    left_out : what these rows are called, by id or number
    label_column, id_column, vector_column : their names, or None
    """

    source: str
    X: NDArray[Any]
    names: tuple[str, ...]
    labels: NDArray[np.object_] | None = None
    ids: NDArray[np.str_] | None = None
    scalars: bool = True
    named: bool = True
    lines: NDArray[np.int64] | None = None
    notices: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    missing: str = "refuse"
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


class Loaded(NamedTuple):
    """Columns that were asked for: a table of numbers, and texts by column number (None: missing)."""

    table: Table
    texts: dict[int, NDArray[np.object_]]


@dataclass(frozen=True, eq=False)
class Raw:
    """Columns as a file has them: numbers with NaN, or texts with None, where a value is missing.

    `texts` and `lines` as in `Loaded`; `scalars` as in `Table`.
    """

    columns: list[Array | NDArray[np.object_]]
    texts: dict[int, NDArray[np.object_]]
    scalars: bool = True
    lines: NDArray[np.int64] | None = None


class Opened(Protocol):
    """A file whose columns are known; `features` are those that are features unless the user says else."""

    @property
    def source(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def named(self) -> bool: ...

    @property
    def features(self) -> tuple[int, ...]: ...

    @property
    def notices(self) -> tuple[str, ...]: ...

    def load(self, numbers: Sequence[int], texts: Sequence[int]) -> Loaded:
        """Those columns as numbers, and those as texts."""

    def holds_vectors(self, columns: Sequence[int]) -> bool:
        """Whether one of these columns holds, or all of them are, vectors, whose numbers have no names."""

    def raw(self, columns: Sequence[int], texts: Sequence[int]) -> Raw | None:
        """Those columns as they are, and those as texts; None for a column of vectors."""


@dataclass(frozen=True)
class Choice:
    """Column numbers: of the features, the label and the id; and what the user should know about it."""

    features: tuple[int, ...]
    labels: int | None
    ids: int | None
    notices: tuple[str, ...] = ()
    ids_hinted: bool = False

    @property
    def texts(self) -> list[int]:
        """The columns that are read as texts."""
        return [column for column in (self.labels, self.ids) if column is not None]


def select(
    file: Opened,
    labels: str | None,
    ids: str | None,
    ids_optional: bool,
    ids_hint: str | None,
    drop: Sequence[str],
    features: Sequence[str],
    known: Sequence[str],
) -> Choice:
    """The columns that are meant; see `tables.read` for the arguments."""
    label = None if labels is None else _column(file, labels)
    identifier = None
    if ids is not None and not (ids_optional and _find(file, ids) is None):
        identifier = _column(file, ids)
    dropped = find_columns(file, drop)
    asked = find_columns(file, features)
    taken = {label: "label", identifier: "id"}
    for column in (*dropped, *asked):
        if column in taken and column is not None:
            other = "left out" if column in dropped else "a feature"
            raise TableError(
                f"{file.source}: column {file.columns[column]!r} cannot be the {taken[column]} and {other}"
            )
    if both := set(dropped) & set(asked):
        raise TableError(f"{file.source}: column {file.columns[both.pop()]!r} is both asked for and left out")
    free = [column for column in file.features if column not in taken and column not in dropped]
    chosen, notices = asked or free, file.notices
    names = {file.columns[column] for column in free}
    hinted = file.columns.index(ids_hint) if identifier is None and ids_hint in file.columns else None
    if not asked and known and file.named and set(known) <= names:
        chosen = [file.columns.index(name) for name in known]
        if unused := [file.columns[column] for column in free if column not in (*chosen, hinted)]:
            notices += (f"{file.source}: the model does not use {some_of(unused)}",)
    elif not asked and known and file.named and not file.holds_vectors(chosen):
        raise TableError(_lacking(file, [name for name in known if name not in names], len(known)))
    if not chosen:
        raise TableError(f"{file.source}: no column is left to be a feature")
    if hinted is not None and hinted not in (label, *dropped, *chosen):
        return Choice(tuple(chosen), label, hinted, notices, ids_hinted=True)
    return Choice(tuple(chosen), label, identifier, notices)


def checked(file: Opened, choice: Choice, loaded: Loaded, least: int) -> Table:
    """The table of the chosen columns, after the checks that are the same for every format."""
    table, n = loaded.table, len(loaded.table.X)
    ids, notices = None, choice.notices + table.notices
    if n < least:
        count = "no rows" if n == 0 else "one row" if n == 1 else f"{n} rows"
        where = f", {table.place(0)}" if n else ""
        expected = f"at least {least} are needed" if least > 1 else "nothing can be done with it"
        raise TableError(f"{file.source}{where}: the file has {count} of data; {expected}")
    finite = np.isfinite(table.X) if not table.kinds else np.True_  # else every kind has been checked
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        where = f"{file.source}, {table.place(row)}, column {table.names[column]!r}"
        if np.isnan(table.X[row, column]):
            raise TableError(f"{where}: the value is missing")
        raise TableError(f"{where}: the value is infinite or too large; numbers must be finite")
    if choice.ids is not None:
        try:
            ids = _unique_ids(file, choice.ids, loaded)
        except TableError as error:
            if not choice.ids_hinted:
                raise
            notices += (f"{error}; the rows are called by their numbers",)
        else:
            if choice.ids_hinted:
                column = file.columns[choice.ids]
                notices += (f"{file.source}: ids are in column {column!r}, as in the data learned from",)
    return replace(
        table,
        labels=None if choice.labels is None else present(loaded.texts[choice.labels]),
        ids=ids,
        notices=notices,
        label_column=None if choice.labels is None else file.columns[choice.labels],
        id_column=None if choice.ids is None else file.columns[choice.ids],
    )


def place(lines: NDArray[np.int64] | None, row: int) -> str:
    """A row as a user finds it: by its line in a text file, else by its number from 0."""
    return f"row {row}" if lines is None else f"line {lines[row]}"


def missing_advice(column: str) -> str:
    """What to do about a value that is not there."""
    drop = f"leave the column out with --drop {shlex.quote(column)}"
    return f"the value is missing; fill it in, {drop}, or let --missing impute fill it"


def not_a_number_advice(value: str, column: str) -> str:
    """What to do about a text where a number should be."""
    return (
        f"{shown(value)} is not a number; correct it, or leave the column out with --drop "
        f"{shlex.quote(column)} (or name it with --labels or --id)"
    )


def shown(value: object) -> str:
    """A value in a message: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}...{text[-1]}"


def as_texts(values: Iterable[Any]) -> NDArray[np.object_]:
    """Values of any type as texts, None where one is missing; 7 and 7.0 are both "7"."""
    return np.array([_text(value) for value in values], dtype=object)


def stripped(cells: Iterable[str]) -> NDArray[np.object_]:
    """Cells of a text file without the blanks around them, None where nothing is left."""
    return np.array([cell.strip() or None for cell in cells], dtype=object)


def present(texts: NDArray[np.object_]) -> NDArray[np.object_]:
    """Texts, None where one says that it is missing."""
    found = texts.copy()
    found[[text is not None and text.casefold() in MISSING for text in texts]] = None
    return found


def refuse_duplicate_names(where: str, names: Sequence[str]) -> None:
    """Refuse two columns of one name: nobody could say which is meant."""
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name in seen:
            raise TableError(
                f"{where}: columns {seen[name]} and {number} are both called {name!r}; rename one of them"
            )
        seen[name] = number


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return None
        value = float(value)
        value = int(value) if value.is_integer() and abs(value) <= 2.0**53 else value
    return str(value).strip() or None


def find_columns(file: Opened, wanted: Sequence[str]) -> list[int]:
    """Column numbers of several names; a text that is no name may be several with commas between."""
    found: list[int] = []
    for text in wanted:
        whole = text in file.columns or "," not in text
        found += (_column(file, name) for name in ([text] if whole else text.split(",")))
    return list(dict.fromkeys(found))


def _find(file: Opened, wanted: str) -> int | None:
    """The number, from 0, of a column that the user gave by name or by number, from 1 or from the end."""
    for name in (wanted, wanted.strip()):
        if name in file.columns:
            return file.columns.index(name)
    count = len(file.columns)
    if wanted.isascii() and wanted.removeprefix("-").isdecimal() and 1 <= abs(int(wanted)) <= count:
        number = int(wanted)
        return number - 1 if number > 0 else count + number
    return None


def _column(file: Opened, wanted: str) -> int:
    """The number of a column that must be there."""
    found = _find(file, wanted)
    if found is not None:
        return found
    folded = {name.casefold(): name for name in file.columns}
    near = difflib.get_close_matches(wanted.casefold(), folded, n=1)
    hint = f"did you mean {folded[near[0]]!r}? " if near else ""
    raise NoColumn(f"{file.source} has no column {wanted!r}; {hint}it has {some_of(file.columns)}")


def _lacking(file: Opened, missing: Sequence[str], n_known: int) -> str:
    """That a file does not have the columns of a model, or that they are to be something else."""
    taken = [name for name in missing if name in file.columns]
    if taken:
        return f"{file.source}: the model needs {some_of(taken)}, which cannot be left out, a label or an id"
    which = f"{some_of(missing)} of the {n_known} columns" if n_known > 1 else f"the column {missing[0]!r}"
    return f"{file.source} lacks {which} that the model was learned with; it has {some_of(file.columns)}"


def some_of(names: Sequence[str], most: int = 12) -> str:
    """Some names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _unique_ids(file: Opened, column: int, loaded: Loaded) -> NDArray[np.str_]:
    texts = loaded.texts[column]
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        where = f"{file.source}, {loaded.table.place(row)}, column {file.columns[column]!r}"
        if text is None:
            raise TableError(f"{where}: the id is empty; every row needs an id of its own")
        if len(text) > LONGEST_ID:
            raise TableError(f"{where}: the id has {len(text)} characters; at most {LONGEST_ID} are allowed")
        if text in first:
            before = loaded.table.place(first[text])
            raise TableError(f"{where}: the id {shown(text)} was already given in {before}; ids must differ")
        first[text] = row
    return texts.astype(np.str_)
