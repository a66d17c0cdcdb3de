"""The features of a frame as numbers and categories, and one refusal of all columns that cannot be used.

Columns that are plain numbers are taken at once. Otherwise they are read one by one, and problems are
gathered: each with its line or row, the value, and the option that helps. What it takes the rows learned from
to say, the median that fills a gap and the columns of a category, is a step of the model (`data.steps`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Mask
from nearwise.data.frame import NUMBERS, VECTORS, Frame, TableError, present, shown
from nearwise.data.kinds import BOOLEAN, CATEGORY, NUMBER, TEXT, as_said, kind_of, numeral, values
from nearwise.data.numerals import PLAIN, Numerals, Wanted, decide, grouped, is_numeral, number

REFUSE = "refuse"
_LEFT_OUT = "left out"
_IMPUTE = "--missing impute"
_MOST_SHOWN = 20  # columns in one message


class Wishes(NamedTuple):
    """What is wanted, as in `tables.read`; `kinds` by column, of all of them where a model is `applied`."""

    missing: str
    categorical: str
    kinds: Mapping[str, str]
    applied: bool
    marks: Wanted


class Problem(NamedTuple):
    """Why a column cannot be used: where that is seen first, what it is, and what helps.

    `option` is empty where leaving the column out helps, None where that does not either.
    """

    column: str
    row: int
    what: str
    option: str | None = ""
    remedy: str = "correct it"


class Features:
    """The features of n rows, which `read` makes of the columns of a frame.

    Attributes
    ----------
    names, kinds : of the columns; no kinds where all are numbers and none is missing
    X : (n, d) numbers, or numbers and texts
    gaps : (n, d), where a value is missing; None where none is
    vectors : the name of the column that holds them, or None
    problems, notices : why columns cannot be used, and what the user should know
    """

    def __init__(self, frame: Frame, names: Sequence[str], wishes: Wishes) -> None:
        self.frame, self.wishes, self.names = frame, wishes, tuple(names)
        self.kinds: tuple[str, ...] = ()
        self.gaps: Mask | None = None
        self.vectors = names[0] if frame.holds(names[0]) == VECTORS else None
        self.notices: list[str] = []
        self.problems: list[Problem] = []
        self._in_doubt = False  # how numbers are written, which is a problem of its own
        self.X: NDArray[Any] | None = self._plain()
        if self.X is not None:
            self._cells = list(self.X.T)
        elif self.vectors is not None:
            self._cells = list(frame.numbers(self.vectors).T)
        else:
            self._cells = [self._texts_or_numbers(name) for name in names]
        if self.vectors is not None:
            self.names = tuple(f"x{k}" for k in range(len(self._cells)))

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._cells[0])

    def read(self) -> None:
        """Make X of the columns, where they are not plain; what cannot be used is a problem."""
        if self.X is not None:
            return
        kinds = [self._kind(name, cells) for name, cells in zip(self.names, self._cells, strict=True)]
        numerals = self._numerals(kinds)
        used = [k for k, kind in enumerate(kinds) if kind not in (TEXT, _LEFT_OUT)]
        found = [self._column(self.names[k], kinds[k], self._cells[k], numerals) for k in used]
        left = [repr(self.names[k]) for k, kind in enumerate(kinds) if kind == _LEFT_OUT]
        truths = [repr(self.names[k]) for k in used if kinds[k] == BOOLEAN and not self.wishes.applied]
        if left:
            self._note(f"left out, because their texts are no numbers: {', '.join(left)}")
        if truths:
            self._note(f"read {', '.join(truths)} as 1 and 0")
        if not found and not self.problems:
            raise TableError(f"{self.frame.source}: no column is left to be a feature")
        self.X = np.empty((len(self), len(used)), dtype=object if CATEGORY in kinds else np.float64)
        for k, column in enumerate(found):
            self.X[:, k] = column
        self.gaps = np.stack([_gaps(column) for column in found], axis=1) if found else None
        if self.gaps is not None and self.frame.scalars and self.vectors is None:
            for k, gaps in zip(used, self.gaps.T, strict=True):
                self._note_missing(self.names[k], gaps)
        elif self.gaps is not None:  # a vector with a gap is one problem, however many numbers it lacks
            rows: Mask = np.asarray(self.gaps.any(axis=1))
            name = self.names[int(np.argmax(self.gaps[np.argmax(rows)]))]
            self._note_missing(name, rows, "--missing drop")
        if not self.problems:
            self.names, kinds = tuple(self.names[k] for k in used), [kinds[k] for k in used]
            is_plain = set(kinds) == {NUMBER} and self.gaps is not None and not self.gaps.any()
            self.kinds = () if is_plain else tuple(kinds)

    def _plain(self) -> Array | None:
        """All columns at once, where they are plain finite numbers and nothing about them is in doubt."""
        marks, kinds = self.wishes.marks, self.wishes.kinds
        if marks.thousands or any(kinds.get(name, NUMBER) != NUMBER for name in self.names):
            return None
        decimals = (".", ",") if marks.decimal is None else (marks.decimal,)
        return self.frame.matrix(self.names, decimals, certain=marks != Wanted())

    def _texts_or_numbers(self, name: str) -> NDArray[Any]:
        """A column as numbers, or as texts where it holds something else or shall be read as that."""
        if self.frame.holds(name) == NUMBERS and self.wishes.kinds.get(name, NUMBER) == NUMBER:
            return self.frame.numbers(name)
        return present(self.frame.texts(name))

    def _kind(self, name: str, cells: NDArray[Any]) -> str:
        """As what a column is read; TEXT for one that cannot be used."""
        wishes = self.wishes
        if wishes.applied or name in wishes.kinds or cells.dtype != object:
            return wishes.kinds.get(name, NUMBER)
        kind = kind_of(cells.tolist())
        if kind in (NUMBER, BOOLEAN) or (kind == CATEGORY and wishes.categorical == "onehot"):
            return kind
        if kind in (CATEGORY, TEXT) and wishes.categorical == "drop":
            return _LEFT_OUT
        gaps = _gaps(cells)
        row, option = int(np.argmin(gaps)), f"--convert {shlex.quote(name)}={as_said(kind)}"
        what = f"{shown(cells[row])} is not a number"
        if kind == TEXT:
            what, option = f"{what}, one of {len(set(cells[~gaps])):,} different texts", ""
        elif kind == CATEGORY:
            option = "--categorical onehot"
        self.problems.append(Problem(name, row, what, option))
        if option:  # what is missing would be the next error
            self._note_missing(name, gaps)
        return TEXT

    def _numerals(self, kinds: Sequence[str]) -> Numerals:
        """How the numbers of a text file are written."""
        if not self.frame.separator:
            return PLAIN
        texts = {
            name: [cell and numeral(cell, kind) for cell in cells.tolist()]
            for name, kind, cells in zip(self.names, kinds, self._cells, strict=True)
        }
        found, notice, doubt = decide(texts, self.frame.separator, self.wishes.marks, self.frame.place)
        if notice:
            self.notices.append(f"{self.frame.source}, {notice}")
        if doubt is not None:
            self._in_doubt = True
            self.problems.append(Problem(*doubt, remedy="" if doubt.option else "write all in one way"))
        return found

    def _column(self, name: str, kind: str, cells: NDArray[Any], numerals: Numerals) -> NDArray[Any]:
        """A column of numbers, or of texts of a category, NaN where one is missing."""
        if kind == CATEGORY:
            return np.where(_gaps(cells), np.nan, cells)
        if cells.dtype == object:
            found, wrong = values(cells.tolist(), kind, numerals)
        else:
            found, wrong = cells, np.flatnonzero(np.isinf(cells)).tolist()
        if self._in_doubt:
            wrong = [row for row in wrong if not is_numeral(numeral(str(cells[row]), kind))]
        if wrong:
            self._note_wrong(name, kind, wrong[0], cells[wrong[0]], numerals)
        return found

    def _note_wrong(self, name: str, kind: str, row: int, cell: Any, numerals: Numerals) -> None:
        """Note a cell that is not of the kind of its column."""
        text, option, remedy = numeral(str(cell), kind), "", "correct it"
        said = shown(cell) if isinstance(cell, str) else "the value"
        what = f"{said} is not {'a number' if kind == NUMBER else f'of the kind {kind!r}'}"
        if kind == NUMBER and number(text, numerals) is not None:
            what, remedy = f"{said} is infinite or too large", "numbers must be finite"
        else:
            option = grouped(text, numerals.decimal) if self.wishes.marks.thousands is None else ""
            if option or (kind == NUMBER and is_numeral(text)):
                what = f"{what} with {numerals.describe()}"
        self.problems.append(Problem(name, row, what, option, remedy))

    def _note_missing(self, name: str, gaps: Mask, option: str = _IMPUTE) -> None:
        """Note the values that a column lacks, unless something shall be done about them."""
        count, applied = int(gaps.sum()), self.wishes.applied
        is_empty = count == len(gaps) and option == _IMPUTE and not applied
        if count and (is_empty or self.wishes.missing == REFUSE):
            more = "" if count == 1 else f", as in {'all' if is_empty else f'{count:,}'} rows"
            option = "" if is_empty or applied else option
            what = f"the value is missing{more}"
            self.problems.append(Problem(name, int(np.argmax(gaps)), what, option, "fill it in"))

    def _note(self, text: str) -> None:
        self.notices.append(f"{self.frame.source}: {text}")


def _gaps(values: NDArray[Any]) -> Mask:
    """Where a number is NaN, or a text missing."""
    if values.dtype != object:
        return np.isnan(values)
    return np.array([value is None or value != value for value in values], dtype=bool)


def refusal(frame: Frame, names: Sequence[str], problems: Sequence[Problem], applied: bool) -> str:
    """One sentence on every column that cannot be used, and the options that would make it work.

    `names` are those of all features; `applied` says that a model needs these.
    """
    needed = "; the model needs it as it was in the data learned from" if applied else ""
    if len(problems) == 1:
        column, row, what, option, remedy = problems[0]
        drop = f"leave the column out with --drop {shlex.quote(column)} (or name it with --labels or --id)"
        may_drop = option is not None and not applied and column in frame.columns
        ways = [remedy, f"give {option}" if option else "", f"or {drop}" if may_drop else ""]
        help_ = ", ".join(filter(None, ways))
        return f"{frame.source}, {frame.place(row)}, column {column!r}: {what}; {help_}{needed}"
    by_column: dict[str, list[Problem]] = {name: [] for name in names}
    for problem in problems:
        by_column.setdefault(problem.column, []).append(problem)
    wrong = {name: found for name, found in by_column.items() if found}
    listed = []
    for name, found in list(wrong.items())[:_MOST_SHOWN]:
        hints = (", ".join(filter(None, (frame.place(p.row), p.option))) for p in found)
        parts = (f"{p.what} ({hint})" for p, hint in zip(found, hints, strict=True))
        listed.append(f"column {name!r}: {' and '.join(parts)}")
    more = f"; and {len(wrong) - len(listed)} more" if len(wrong) > len(listed) else ""
    text = f"{frame.source}: {len(wrong)} of {len(by_column)} columns cannot be used as they are: "
    text += "; ".join(listed) + more
    useless = [name for name, found in wrong.items() if any(p.option == "" for p in found) and not applied]
    options = [p.option for p in problems if p.option and p.column not in useless]
    options += [f"--drop {shlex.quote(name)}" for name in useless]
    sure = sorted(dict.fromkeys(options), key=lambda option: " or " in option)  # those to choose from last
    give = f"; to use what can be used, give {' '.join(sure)}" if sure else ""
    return f"{text}{give}{needed}"
