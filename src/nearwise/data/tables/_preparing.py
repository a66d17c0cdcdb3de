"""Tables as people have them: columns with missing values, categories, dates, truth values, amounts of money.

`prepared` reads the chosen columns of a file as the user wants them, or as a model knows them, and refuses
what cannot be used in one message that names every such column, and the options that would make it work.
What it takes the rows learned from to say, the median that fills a gap and the columns of a category, is a
step of the model and not done here: `data.steps` makes these.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Mask
from nearwise.data.tables import _kinds
from nearwise.data.tables._kinds import CATEGORY, NUMBER, TEXT
from nearwise.data.tables._table import (
    Choice,
    Loaded,
    Opened,
    Raw,
    Table,
    TableError,
    as_texts,
    missing_advice,
    not_a_number_advice,
    place,
    shown,
)
from nearwise.data.tables._text import TextFile
from nearwise.data.tables.numerals import HOW_TO_SAY, PLAIN, Numerals, decide, is_numeral, number

REFUSE = "refuse"
MISSING_CHOICES = (REFUSE, "impute", "drop")
CATEGORICAL_CHOICES = (REFUSE, "onehot", "drop")
_MOST_SHOWN = 20  # columns in one message

Cells = NDArray[np.object_]


class Handling(NamedTuple):
    """What the user wants done about columns that are not numbers throughout; see `tables.read`."""

    missing: str = REFUSE
    categorical: str = REFUSE
    convert: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _Problem(NamedTuple):
    """A column that cannot be used: what it holds, where the first such cell is, and what would help."""

    column: str
    what: str
    where: str
    option: str
    alone: str  # the whole sentence, where there is no other problem

    @property
    def hint(self) -> str:
        return f"{self.where}, {self.option}" if self.option else self.where


class _Read(NamedTuple):
    """A column as it will be: its name, kind and values."""

    name: str
    kind: str
    values: NDArray[Any]
    is_missing: Mask


def handling(missing: str, categorical: str, convert: Sequence[str], categories: Sequence[str]) -> Handling:
    """The user's wishes, checked; `categories` as names of columns."""
    for name, value, allowed in (
        ("missing", missing, MISSING_CHOICES),
        ("categorical", categorical, CATEGORICAL_CHOICES),
        *(("convert", word, _kinds.CONVERSIONS) for word in convert),
    ):
        if value not in allowed:
            raise TableError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return Handling(missing, categorical, tuple(convert), tuple(categories))


def prepared(
    file: Opened, choice: Choice, wishes: Handling, known: Mapping[str, str] | None = None
) -> Loaded | None:
    """The chosen columns; None for vectors, which have nothing to prepare.

    Parameters
    ----------
    file, choice : what is read
    wishes : what to do about what is not a number
    known : the kind of every column in a model, by name; these are then read as that kind, or refused
    """
    raw = file.raw(choice.features, choice.texts)
    if raw is None:
        return None
    names = [file.columns[column] for column in choice.features]
    reading = _Reading(file, raw, wishes, known is not None)
    columns, left_out = reading.columns(names, known or {})
    if reading.problems:
        problems = sorted(reading.problems, key=lambda problem: names.index(problem.column))
        raise TableError(_refusal(file.source, problems, len(names), known is not None))
    if not columns:
        raise TableError(f"{file.source}: no column is left to be a feature")
    notices = [*reading.notices]
    if left_out:
        listed = ", ".join(map(repr, left_out))
        notices.append(f"{file.source}: left out, because their texts are no numbers: {listed}")
    if known is None and (changed := _conversions(columns)):
        notices.append(f"{file.source}: {changed}")
    return _with_rows(file, choice, raw, columns, wishes, notices)


class _Reading:
    """Reads columns one by one and gathers what cannot be used."""

    def __init__(self, file: Opened, raw: Raw, wishes: Handling, applying: bool) -> None:
        self.file, self.raw, self.wishes, self.applying = file, raw, wishes, applying
        self.problems: list[_Problem] = []
        self.notices: tuple[str, ...] = ()

    def columns(self, names: Sequence[str], known: Mapping[str, str]) -> tuple[list[_Read], list[str]]:
        """The columns that are used, and the names of those that are left out."""
        kinds = [self._kind(*column, known) for column in zip(names, self.raw.columns, strict=True)]
        numerals = self._numerals(names, kinds)
        found: list[_Read] = []
        for name, values, kind in zip(names, self.raw.columns, kinds, strict=True):
            if kind is not None and kind != TEXT:
                found.append(self._read(name, values, kind, numerals))
        if not self.raw.scalars:
            self._note_missing_vectors(found)
        else:
            for column in found:
                self._note_missing(column)
        return found, [name for name, kind in zip(names, kinds, strict=True) if kind is None]

    def _kind(self, name: str, values: Array | Cells, known: Mapping[str, str]) -> str | None:
        """As what a column is read; None for one to be left out, TEXT for one that cannot be used."""
        if name in self.wishes.categories:
            return CATEGORY
        if self.applying or values.dtype != object:
            return known.get(name, NUMBER)
        kind = _kinds.kind_of(values.tolist())
        if kind == NUMBER:
            return kind
        first = next(row for row, cell in enumerate(values) if cell is not None)
        cell = values[first]
        if kind in (CATEGORY, TEXT) and self.wishes.categorical == "drop":
            return None
        if kind == CATEGORY:
            if self.wishes.categorical == "onehot":
                return kind
            self._refuse_text(name, _kinds.described(kind, cell), first, cell, "--categorical onehot")
        elif kind == TEXT:
            count = len(set(values.tolist()) - {None})
            self._refuse_text(name, f"holds {count:,} different texts, as {shown(cell)}", first, cell, "")
        else:
            wanted = _kinds.converted(kind, self.wishes.convert)
            if wanted is not None:
                return wanted
            option = f"--convert {_kinds.conversion(kind)}"
            self._refuse_text(name, _kinds.described(kind, cell), first, cell, option)
        if kind != TEXT:  # what is missing would be the next error
            gaps = np.array([cell is None for cell in values], dtype=bool)
            self._note_missing(_Read(name, kind, values, gaps))
        return TEXT

    def _numerals(self, names: Sequence[str], kinds: Sequence[str | None]) -> Numerals:
        """How the numbers of a text file are written."""
        if not isinstance(self.file, TextFile) or self.raw.lines is None:
            return PLAIN
        cells = {
            name: _kinds.numerals_in(values.tolist(), kind)
            for name, values, kind in zip(names, self.raw.columns, kinds, strict=True)
            if kind is not None
        }
        places = [f"line {line}" for line in self.raw.lines]
        numerals, self.notices = decide(
            self.file.source, cells, places, self.file.separator, self.file.wanted
        )
        return numerals

    def _read(self, name: str, values: Array | Cells, kind: str, numerals: Numerals) -> _Read:
        if kind == CATEGORY:
            texts = values.tolist() if values.dtype == object else as_texts(values.tolist()).tolist()
            levels = _kinds.levels(texts)
            return _Read(name, kind, levels, np.array([text is None for text in texts], dtype=bool))
        if values.dtype != object:
            numbers, wrong = np.asarray(values, dtype=np.float64), np.flatnonzero(np.isinf(values)).tolist()
            if _kinds.family(kind) not in (NUMBER, _kinds.BOOLEAN):
                wrong = np.flatnonzero(~np.isnan(numbers)).tolist()
        else:
            numbers, wrong = _kinds.values(values.tolist(), kind, numerals)
        if wrong:
            self._wrong(name, kind, values[wrong[0]], wrong[0], numerals)
        return _Read(name, kind, numbers, np.isnan(numbers))

    def _wrong(self, name: str, kind: str, cell: Any, row: int, numerals: Numerals) -> None:
        text = str(cell)
        value = number(text)
        if kind == NUMBER and value is not None and not np.isfinite(value):
            said = shown(cell) if isinstance(cell, str) else "the value"
            what, tail = f"{said} is infinite or too large", "numbers must be finite"
        elif kind == NUMBER and is_numeral(text):
            what = f"{shown(cell)} is not a number with {numerals.describe()}"
            tail = f"correct it, or {HOW_TO_SAY}"
        elif kind == NUMBER and not self.applying:
            advice = not_a_number_advice(text, name)
            what, _, tail = advice.partition("; ")
        else:
            what, tail = f"{shown(cell)} is not {_kinds.expected(kind)}", "correct it"
        self._refuse(name, what, row, "", f"{what}; {tail}")

    def _note_missing(self, column: _Read) -> None:
        count = int(column.is_missing.sum())
        if count == 0:
            return
        first, option = int(np.flatnonzero(column.is_missing)[0]), "--missing impute"
        what = "lacks 1 value" if count == 1 else f"lacks {count:,} values"
        if count == len(column.values) and not self.applying:
            what, option = "holds no value at all", ""
        elif self.wishes.missing != REFUSE:
            return
        advice = "the value is missing, which the data learned from never are"
        self._refuse(
            column.name, what, first, option, advice if self.applying else missing_advice(column.name)
        )

    def _note_missing_vectors(self, columns: Sequence[_Read]) -> None:
        """A vector with a gap is one problem, however many numbers it has."""
        gaps = np.stack([column.is_missing for column in columns], axis=1)
        rows = np.flatnonzero(gaps.any(axis=1))
        if rows.size and self.wishes.missing == REFUSE:
            name = columns[int(np.argmax(gaps[rows[0]]))].name
            more = "" if len(rows) == 1 else f", as in {len(rows):,} rows"
            help_ = "" if self.applying else "; --missing drop leaves such rows out, impute fills them"
            advice = f"the value is missing{more}{help_}"
            self._refuse(name, "lacks a value", int(rows[0]), "--missing drop", advice)

    def _refuse_text(self, name: str, what: str, row: int, cell: str, option: str) -> None:
        give = f", or give {option}" if option else ""
        if option.endswith("-dmy"):
            give = f"{give} or dates-mdy, which say whether the day or the month comes first"
        self._refuse(name, what, row, option, f"{not_a_number_advice(cell, name)}{give}")

    def _refuse(self, name: str, what: str, row: int, option: str, advice: str) -> None:
        """Note what is wrong with a column, and what to say where nothing else is."""
        where = place(self.raw.lines, row)
        alone = f"{self.file.source}, {where}, column {name!r}: {advice}"
        self.problems.append(_Problem(name, what, where, option, alone))


def _refusal(source: str, problems: Sequence[_Problem], n_columns: int, applying: bool) -> str:
    """One sentence on every column that cannot be used, and the options that would make it work."""
    if len(problems) == 1:
        return problems[0].alone
    by_column: dict[str, list[_Problem]] = {}
    for problem in problems:
        by_column.setdefault(problem.column, []).append(problem)
    said = []
    for name, found in list(by_column.items())[:_MOST_SHOWN]:
        parts = [f"{problem.what} ({problem.hint})" for problem in found]
        said.append(f"{name!r} {' and '.join(parts)}")
    more = len(by_column) - len(said)
    listed = "; ".join(said) + (f"; and {more} more" if more else "")
    text = f"{source}: {len(by_column)} of {n_columns} columns cannot be used as they are: {listed}"
    if applying:
        return f"{text}; the model needs them as they were in the data learned from"
    drop = [name for name, found in by_column.items() if not all(problem.option for problem in found)]
    options = dict.fromkeys(p.option for p in problems if p.option and p.column not in drop)
    several = [option for option in options if option.startswith("--convert") and "-dmy" not in option]
    if len(several) > 1:
        options = {"--convert all" if option in several else option: None for option in options}
    options |= dict.fromkeys(f"--drop {shlex.quote(name)}" for name in drop)
    return f"{text}; to use what can be used, give {' '.join(options)}"


def _conversions(columns: Sequence[_Read]) -> str:
    """What becomes of columns that are not numbers, in one sentence; empty where all are."""
    became = {
        _kinds.BOOLEAN: "1 and 0",
        _kinds.DATE: "days since 1970",
        _kinds.PERCENT: "fractions of 1",
        _kinds.CURRENCY: "amounts without their currency",
        CATEGORY: "one column for each of their texts",
    }
    said = []
    for kind, what in became.items():
        if names := [repr(column.name) for column in columns if _kinds.family(column.kind) == kind]:
            said.append(f"{', '.join(names)} as {what}")
    return f"read {'; '.join(said)}" if said else ""


def _with_rows(
    file: Opened,
    choice: Choice,
    raw: Raw,
    columns: Sequence[_Read],
    wishes: Handling,
    notices: list[str],
) -> Loaded:
    """The columns side by side, without the rows that have a gap, if so wished."""
    n = len(columns[0].values)
    gaps = np.stack([column.is_missing for column in columns], axis=1)
    kept: Mask = np.ones(n, dtype=bool)
    rows, left_out = None, np.empty(0, dtype=object)
    if gaps.any() and wishes.missing == "drop":
        kept = np.logical_not(gaps.any(axis=1))
        rows, first = np.flatnonzero(kept), int(np.flatnonzero(~kept)[0])
        name = columns[int(np.argmax(gaps[first]))].name
        where = f"as in {place(raw.lines, first)}, column {name!r}"
        if not len(rows):
            raise TableError(f"{file.source}: every row lacks a value, {where}; --missing drop leaves none")
        names = np.arange(n).astype(str) if choice.ids is None else raw.texts[choice.ids]
        left_out = names[~kept]
        lost = f"{n - len(rows):,} of {n:,} rows are left out"
        notices.append(f"{file.source}: {lost}, because a value is missing, {where}")
    elif gaps.any():
        count = int(gaps.sum())
        filled = "1 missing value is filled" if count == 1 else f"{count:,} missing values are filled"
        by = "a number by the median and a category by the most frequent one of the rows learned from"
        notices.append(f"{file.source}: {filled}, {by}")
    mixed = any(column.kind == CATEGORY for column in columns)
    X = np.empty((n, len(columns)), dtype=object if mixed else np.float64)
    for k, column in enumerate(columns):
        X[:, k] = column.values if column.kind == CATEGORY else column.values + 0.0  # -0.0 is 0.0
    table = Table(
        source=file.source,
        X=X[kept],
        names=tuple(column.name for column in columns),
        scalars=raw.scalars,
        named=file.named,
        lines=None if raw.lines is None else raw.lines[kept],
        notices=tuple(notices),
        kinds=tuple(column.kind for column in columns),
        missing=wishes.missing,
        rows=rows,
        left_out=frozenset(map(str, left_out.tolist())),
    )
    return Loaded(table, {column: cells[kept] for column, cells in raw.texts.items()})
