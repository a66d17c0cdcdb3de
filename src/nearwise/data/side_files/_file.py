"""A file of feedback: how it is read, its cells by role, how its objects are found, and what came out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearwise._common.reading import A_WEIGHT, is_weight
from nearwise._common.types import Array, Index, Mask
from nearwise.data.frame import TableError, open_frame, shown
from nearwise.data.numerals import PLAIN, Numerals, Wanted, decide, grouped, number
from nearwise.data.side_files._answers import Answers
from nearwise.data.side_files._roles import (
    OBJECTS,
    Layout,
    asked_for,
    by_position,
    by_title,
    named_role,
    unknown_value,
)
from nearwise.side import Constraints

Cells = NDArray[np.object_]
Read = TypeVar("Read")

_WHOLE = re.compile(r"[+-]?\d+\.0+", re.ASCII)  # as pandas writes whole numbers in a column with gaps


class Reading(NamedTuple):
    """How files of feedback are read.

    Attributes
    ----------
    roles : names of columns by what they are, see `ROLES`, where their names do not say it
    similar_above : pairs with a rating above it are similar, and those below are not
    conflicts : what to do where answers to one question differ: "keep" all, those of the "majority", or
        "drop" them; by default pairs and distances are refused, and triplets kept
    squared : whether distances are squared ones
    decimal, thousands : as in `tables.read`
    """

    roles: Mapping[str, str] = {}
    similar_above: float | None = None
    conflicts: str | None = None
    squared: bool = False
    decimal: str | None = None
    thousands: str | None = None


AS_IS = Reading()


@dataclass(frozen=True, eq=False)
class Side:
    """Constraints that a file held, by row number of the data.

    Attributes
    ----------
    constraints : by row number
    lines : the line of the file (of a text file; else its row) of every constraint, in their order
    source : the file, as the user named it
    unit : "line" or "row": what `lines` counts
    notices : what the user should know about how the file was read
    answers : repetitions, conflicts and annotators, counted; None for constraints that are from no file
    roles : those whose columns the file has
    """

    constraints: Constraints
    lines: NDArray[np.int64]
    source: str
    unit: str = "line"
    notices: tuple[str, ...] = ()
    answers: Answers | None = None
    roles: tuple[str, ...] = ()

    def place(self, constraint: int) -> str:
        """Where a constraint is in the file, for messages: "line 17"."""
        return f"{self.unit} {self.lines[constraint]}"


@dataclass(frozen=True, eq=False)
class Objects:
    """The objects of the data, as files of feedback name them.

    Attributes
    ----------
    n_rows : how many there are
    ids : what they are called; None where they are called by row number, from 0
    left_out : names of objects that the data had and that are left out, with what is said about them
    """

    n_rows: int
    ids: NDArray[Any] | None = None
    left_out: frozenset[str] = frozenset()

    @cached_property
    def known(self) -> dict[str, int]:
        """The row of every name."""
        return {} if self.ids is None else {str(name): row for row, name in enumerate(self.ids.tolist())}

    @cached_property
    def alike(self) -> dict[str, int]:
        """The rows of names, written as whole numbers; without those that two rows share then."""
        counts = Counter(map(whole, self.known))
        return {whole(name): row for name, row in self.known.items() if counts[whole(name)] == 1}

    def has(self, name: str) -> bool:
        """Whether an object is called so, with or without decimals."""
        return name in self.known or whole(name) in self.alike


@dataclass(eq=False)
class File:
    """The cells of a file, by role. Rows that are about objects left out are not in it.

    `places` are the lines (of a text file) or rows of the file, which `unit` says.
    """

    source: str
    cells: dict[str, Cells]
    titles: dict[str, str]
    places: Index
    unit: str
    separator: str
    objects: Objects
    notices: list[str]
    matched: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.cells.values())))

    def at(self, row: int) -> str:
        """The file and the place of a row, for messages."""
        return f"{self.source}, {self.where(row)}"

    def where(self, row: int) -> str:
        return f"{self.unit} {self.places[row]}"

    def keep(self, kept: Mask) -> None:
        """Forget the other rows."""
        if not kept.all():
            self.cells = {role: cells[kept] for role, cells in self.cells.items()}
            self.places = self.places[kept]

    def objects_and_weights(self) -> tuple[Index, Array | None]:
        """The objects of every row as row numbers of the data, and how much it counts, if the file says it.

        Rows on objects that are left out, and those of weight 0, are forgotten, with a note.
        """
        roles = [role for role in OBJECTS if role in self.cells]
        gone = self._about_left_out(roles)
        self._forget(gone, "on rows of the data that lack a value")
        if "weight" in self.cells:
            none = np.array(each(self.cells["weight"], self._weight)) == 0.0
            self._forget(none, "of weight 0")
        rows = np.empty((len(self), len(roles)), dtype=np.int64)
        for k, role in enumerate(roles):
            rows[:, k] = each(self.cells[role], self._row_number)
        if self.matched:
            self.notices.append(f"{self.source}: ids are matched without their decimals, {self.matched}")
        if "weight" not in self.cells:
            return rows, None
        return rows, np.array(each(self.cells["weight"], self._weight), dtype=np.float64)

    def refuse_self_pairs(self, pairs: Index, role: str) -> None:
        """Refuse rows (i, i); the cells of the role name their objects."""
        same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
        if same.size:
            name = shown(self.cells[role][same[0]])
            raise TableError(f"{self.at(same[0])}: the object {name} is paired with itself")

    def numerals(self, role: str, wish: Wanted) -> Numerals:
        """How the numbers of a column of a text file are written."""
        if self.unit == "row":
            return PLAIN
        cells = [cell or "" for cell in self.cells[role]]
        found, notice, doubt = decide({self.titles[role]: cells}, self.separator, wish, self.where)
        notice = f"{self.source}, {notice}" if notice else ""
        self.notices.extend({notice} - {"", *self.notices})
        unread = (row for row, cell in enumerate(cells) if number(cell, found) is None)
        row = doubt.row if doubt is not None else next(unread, 0)
        option = doubt.option if doubt is not None else grouped(cells[row], found.decimal)
        if doubt is not None or (option and number(cells[row], found) is None and wish.thousands is None):
            what = (
                f"{shown(cells[row])} is not a number with {found.describe()}"
                if doubt is None
                else doubt.what
            )
            where = f"{self.at(row)}, column {self.titles[role]!r}"
            raise TableError(f"{where}: {what}; {f'give {option}' if option else 'write all in one way'}")
        return found

    def _weight(self, row: int, cell: str | None) -> float:
        text = (cell or "").strip()
        value = number(text.removesuffix("%"))
        if value is None or not 0.0 <= value < np.inf:
            raise TableError(f"{self.at(row)}: {shown(text)} is not a weight; a number >= 0 is needed")
        weight = value / 100.0 if text.endswith("%") else value
        if weight and not is_weight(np.array(weight)):
            raise TableError(f"{self.at(row)}: {shown(text)} is not a weight; 0 or {A_WEIGHT} is needed")
        return weight

    def _about_left_out(self, roles: Iterable[str]) -> Mask:
        gone = self.objects.left_out | {whole(name) for name in self.objects.left_out}
        found: Mask = np.zeros(len(self), dtype=bool)
        for role in roles if gone else ():
            names = (cell or "" for cell in self.cells[role])
            found |= np.array([name in gone or whole(name) in gone for name in names], dtype=bool)
        return found

    def _forget(self, rows: Mask, why: str) -> None:
        if rows.any():
            count = int(rows.sum())
            lines = "1 line is" if count == 1 else f"{count:,} lines are"
            self.notices.append(f"{self.source}: {lines} left out, {why}")
            self.keep(~rows)
        if not len(self):
            raise TableError(f"{self.source}: nothing is left of it; all lines are {why}")

    def _row_number(self, row: int, cell: str | None) -> int:
        if cell is None:
            raise TableError(f"{self.at(row)}: an object is missing")
        if self.objects.ids is not None:
            if cell in self.objects.known:
                return self.objects.known[cell]
            if whole(cell) in self.objects.alike:
                self.matched = self.matched or f"as {shown(cell)} in {self.where(row)}"
                return self.objects.alike[whole(cell)]
            raise TableError(f"{self.at(row)}: the id {shown(cell)} is not one of the data's ids")
        value = number(cell)
        if value is None or not value.is_integer():
            raise TableError(
                f"{self.at(row)}: {shown(cell)} is not a row number of the data; to name objects by id, give "
                "the column of the data's ids with --id"
            )
        if not 0 <= value < self.objects.n_rows:
            last = self.objects.n_rows - 1
            raise TableError(f"{self.at(row)}: the data have no row {int(value)}; rows are 0 to {last}")
        return int(value)


def open_side(
    source: str,
    layout: Layout,
    objects: Objects,
    roles: Mapping[str, str],
    is_value: Callable[[str], bool],
) -> File:
    """Read all cells, take a first line that cannot be data for names, and find out what the columns are.

    Parameters
    ----------
    source : the file
    layout : what it holds
    objects : of the data
    roles : columns by role, as the user says; those that this file does not have are of other files
    is_value : whether a text can be an answer, and so no name of a column
    """
    opened = open_frame(source, header=False)
    columns, lines = [opened.texts(name) for name in opened.features], opened.lines
    titles = list(opened.features) if opened.named else []
    notices = list(opened.notices)
    first_line = "" if lines is None or not len(lines) else f"line {lines[0]}"
    if first_line:
        first = [column[0] or "" for column in columns]
        if _are_titles(first, objects, is_value):
            titles = first
            columns, lines = [column[1:] for column in columns], None if lines is None else lines[1:]
    if titles:
        asked = asked_for(titles, roles)
        assigned = by_title(opened.source, titles, layout, asked)
        # item1 and item2 may be names of columns, and ids that the data do not have
        numbered = any(character.isdigit() for title in titles for character in title)
        certain = (assigned.by_name and not numbered) or any(
            named_role(title) is not None and not is_value(title) for title in titles
        )
        if objects.ids is not None and not certain and first_line:
            notices.append(f"{opened.source}: {first_line} is read as column names, not as ids")
        if value := unknown_value(titles, layout, assigned, asked):
            notices.append(
                f"{opened.source}: no column is called {layout.value!r}; {value!r} is read as that"
            )
        used = assigned.columns.values()
        if unused := [repr(title) for k, title in enumerate(titles) if title and k not in used]:
            notices.append(f"{opened.source}: not used: {', '.join(unused)}")
    else:
        assigned = by_position(opened.source, len(columns), layout)
    if not len(columns[0]):
        reason = " but column names" if titles else ""
        raise TableError(f"{opened.source} holds no {layout.what}{reason}")
    return File(
        source=opened.source,
        cells={role: columns[column] for role, column in assigned.columns.items()},
        titles={role: titles[k] if titles else f"x{k}" for role, k in assigned.columns.items()},
        places=np.arange(len(columns[0])) if lines is None else lines,
        unit="row" if lines is None else "line",
        separator=opened.separator,
        objects=objects,
        notices=notices,
    )


def each(cells: Cells, read: Callable[[int, str | None], Read]) -> list[Read]:
    """What a function makes of every row and its cell; of equal cells, which files are full of, once."""
    found: dict[str | None, Read] = {}
    for row, cell in enumerate(cells):
        if cell not in found:
            found[cell] = read(row, cell)
    return [found[cell] for cell in cells]


def whole(cell: str) -> str:
    """A whole number without the point and zeros that pandas adds; other texts as they are."""
    return cell.partition(".")[0] if _WHOLE.fullmatch(cell) else cell


def _are_titles(first: list[str], objects: Objects, is_value: Callable[[str], bool]) -> bool:
    """Whether a first line holds names: no number, no id of the data, no answer but one that is a name."""
    if any(number(cell) is not None or objects.has(cell) for cell in first):
        return False
    return len(first) == 2 or not any(is_value(cell) and named_role(cell) is None for cell in first)
