"""Files of side information: pairs, triplets and distances, by row number of the data or by id.

Columns count by their position; a header is optional. Every error names the file and its line (of a text
file) or row (counted from 0, of the others).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearwise.data.tables import TableError, open_file
from nearwise.data.tables._table import place, shown
from nearwise.data.tables._text import TextFile
from nearwise.data.tables.numerals import PLAIN, Numerals, Wanted, decide, is_numeral, number, wanted
from nearwise.model import constraints as c
from nearwise.model.blocks import Constraints
from nearwise.model.relations import RELATIONS, SIGNS, sign_written

Rows = NDArray[np.int64]
Cells = NDArray[np.object_]
Read = TypeVar("Read")

_TITLES = ("similar", "dissimilar", "same", "different")  # words that may also be the name of their column
_WORDS = {word: True for word in ("1", "yes", "y", "true", "similar", "same")} | {
    word: False for word in ("0", "-1", "no", "n", "false", "dissimilar", "different")
}


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
    """

    constraints: Constraints
    lines: NDArray[np.int64]
    source: str
    unit: str = "line"
    notices: tuple[str, ...] = ()

    def place(self, constraint: int) -> str:
        """Where a constraint is in the file, for messages: "line 17"."""
        return f"{self.unit} {self.lines[constraint]}"


def read_pairs(source: str, n_rows: int, ids: NDArray[np.str_] | None) -> Side:
    """Pairs of objects and what they are: 1 or 0, yes or no, similar or dissimilar, same or different.

    With two columns, all pairs are similar. A pair that is both similar and dissimilar is an error.

    Parameters
    ----------
    source : CSV, TSV, Parquet or .npy file, or "-" for standard input
    n_rows : the number of rows of the data
    ids : their ids, or None where objects are given by row number, from 0
    """
    file = _open(source, "pairs", (2, 3), 2, n_rows, ids, _may_be_titles_of_pairs)
    pairs = file.objects(2)
    similar = np.ones(len(pairs), dtype=bool)
    if len(file.columns) == 3:
        similar[:] = _each(file.columns[2], lambda row, cell: _is_similar(file, row, cell))
    file.refuse_contradictions(pairs, similar, "similar and dissimilar")
    order = np.argsort(~similar, kind="stable")
    both = c.similar(pairs[similar]) + c.dissimilar(pairs[~similar])
    return file.side(both, order)


def read_triplets(source: str, n_rows: int, ids: NDArray[np.str_] | None) -> Side:
    """Comparisons: anchor, nearer, farther; or four objects i, j, k, l, for "i is nearer to j than k to l".

    Parameters as in `read_pairs`.
    """
    file = _open(source, "triplets", (3, 4), None, n_rows, ids, lambda cells: True)
    rows = file.objects(len(file.columns))
    near, far = (rows[:, [0, 1]], rows[:, [0, 2]]) if rows.shape[1] == 3 else (rows[:, :2], rows[:, 2:])
    file.refuse_self_pairs(near, file.columns[0])
    file.refuse_self_pairs(far, file.columns[0 if rows.shape[1] == 3 else 2])
    same = np.flatnonzero((np.sort(near, axis=1) == np.sort(far, axis=1)).all(axis=1))
    if same.size:
        raise TableError(f"{file.at(same[0])}: a distance is compared with itself")
    return file.side(c.closer(rows), np.arange(len(rows)))


def read_distances(
    source: str,
    n_rows: int,
    ids: NDArray[np.str_] | None,
    *,
    squared: bool = False,
    decimal: str | None = None,
    thousands: str | None = None,
) -> Side:
    """Two objects, their distance, and perhaps how it is meant: <=, >= or == (the default).

    Distances are plain ones, not squared, unless the header calls them "squared_distance" or `squared` is
    true. `decimal` and `thousands` as in `tables.read`, other parameters as in `read_pairs`.
    """
    wish = wanted(decimal, thousands)
    file = _open(source, "distances", (3, 4), 2, n_rows, ids, lambda cells: not is_numeral(cells[2] or ""))
    numerals, notices = file.numerals(2, wish)
    pairs = file.objects(2)
    title = re.sub("[^a-z]", "", file.titles[2].casefold()) if file.titles else ""
    squared = squared or title in ("squareddistance", "distancesquared")
    bounds = np.array(
        [_squared_distance(file, row, cell, squared, numerals) for row, cell in enumerate(file.columns[2])]
    )
    signs = np.full(len(pairs), SIGNS["=="])
    if len(file.columns) == 4:
        signs[:] = _each(file.columns[3], lambda row, cell: _sign(file, row, cell))
    exact = np.flatnonzero(signs == SIGNS["=="])
    file.refuse_contradictions(pairs[exact], bounds[exact], "at two distances", exact)
    found, orders = Constraints(), []
    for relation in RELATIONS:
        chosen = np.flatnonzero(signs == SIGNS[relation])
        found += c.bounded(pairs[chosen], bounds[chosen], relation)
        orders.append(chosen)
    side = file.side(found, np.concatenate(orders))
    return replace(side, notices=side.notices + notices)


@dataclass(frozen=True, eq=False)
class _File:
    """The cells of a file of side information, by column, and how its objects are found in the data."""

    source: str
    columns: list[Cells]
    titles: tuple[str, ...]
    lines: NDArray[np.int64] | None
    separator: str
    n_rows: int
    known: dict[str, int] | None
    notices: tuple[str, ...]

    def at(self, row: int) -> str:
        """The file and the place of a row, for messages."""
        return f"{self.source}, {place(self.lines, row)}"

    def objects(self, count: int) -> Rows:
        """The first columns as row numbers of the data; where they are pairs, none with itself."""
        rows = np.empty((len(self.columns[0]), count), dtype=np.int64)
        for k in range(count):
            rows[:, k] = _each(self.columns[k], self._row_number)
        if count == 2:
            self.refuse_self_pairs(rows, self.columns[0])
        return rows

    def refuse_self_pairs(self, pairs: Rows, cells: Cells) -> None:
        """Refuse rows (i, i); `cells` name their objects."""
        same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
        if same.size:
            raise TableError(f"{self.at(same[0])}: the object {shown(cells[same[0]])} is paired with itself")

    def refuse_contradictions(
        self, pairs: Rows, said: NDArray[np.generic], both: str, rows: Rows | None = None
    ) -> None:
        """Refuse a pair of which two different things are said; `rows` are the pairs' rows in the file."""
        ordered = np.sort(pairs, axis=1)
        order = np.lexsort((np.arange(len(pairs)), ordered[:, 1], ordered[:, 0]))
        repeated = (ordered[order][1:] == ordered[order][:-1]).all(axis=1) & (
            said[order][1:] != said[order][:-1]
        )
        if repeated.any():
            position = int(np.flatnonzero(repeated)[0])
            first, second = (
                int(order[k] if rows is None else rows[order[k]]) for k in (position, position + 1)
            )
            names = " and ".join(shown(column[second]) for column in self.columns[:2])
            raise TableError(f"{self.at(second)}: {names} are {both}; see {place(self.lines, first)}")

    def side(self, constraints: Constraints, order: Rows) -> Side:
        """The result, for constraints whose rows in the file are `order`."""
        lines = np.arange(len(self.columns[0])) if self.lines is None else self.lines
        unit = "row" if self.lines is None else "line"
        return Side(constraints, lines[order], self.source, unit, self.notices)

    def numerals(self, column: int, wish: Wanted) -> tuple[Numerals, tuple[str, ...]]:
        """How the numbers of a column of a text file are written, and what the user should know about it."""
        if self.lines is None:
            return PLAIN, ()
        name = self.titles[column] if self.titles else f"x{column}"
        places = [f"line {line}" for line in self.lines]
        cells = {name: [cell or "" for cell in self.columns[column]]}
        return decide(self.source, cells, places, self.separator, wish)

    def _row_number(self, row: int, cell: str | None) -> int:
        if cell is None:
            raise TableError(f"{self.at(row)}: an object is missing")
        if self.known is not None:
            if cell not in self.known:
                raise TableError(f"{self.at(row)}: the id {shown(cell)} is not one of the data's ids")
            return self.known[cell]
        value = number(cell)
        if value is None or not value.is_integer():
            raise TableError(
                f"{self.at(row)}: {shown(cell)} is not a row number of the data; to name objects by id, give "
                "the column of the data's ids with --id"
            )
        if not 0 <= value < self.n_rows:
            raise TableError(
                f"{self.at(row)}: the data have no row {int(value)}; rows are 0 to {self.n_rows - 1}"
            )
        return int(value)


def _open(
    source: str,
    what: str,
    widths: tuple[int, int],
    n_objects: int | None,
    n_rows: int,
    ids: NDArray[np.str_] | None,
    may_be_header: Callable[[list[str | None]], bool],
) -> _File:
    """Read all cells, and take a first line that cannot be data for a header."""
    opened = open_file(source, header=False)
    columns, lines = opened.cells()
    if len(columns) not in widths:
        expected = f"{widths[0]} or {widths[1]} are expected for {what}"
        raise TableError(f"{opened.source} has {len(columns)} columns; {expected}")
    known = None if ids is None else {text: row for row, text in enumerate(ids.tolist())}
    titles = opened.columns if opened.named else ()
    notices = opened.notices
    if isinstance(opened, TextFile) and len(columns[0]):
        first = [column[0] for column in columns]
        objects = [cell or "" for cell in first[:n_objects]]
        unknown = all(number(cell) is None if known is None else cell not in known for cell in objects)
        if unknown and (len(first) == 2 or may_be_header(first)):
            titles = tuple(cell or "" for cell in first)
            if known is not None:
                notices += (f"{opened.source}: line {opened.first + 1} is read as column names, not as ids",)
            columns, lines = [column[1:] for column in columns], None if lines is None else lines[1:]
    if not len(columns[0]):
        reason = " but column names" if titles else ""
        raise TableError(f"{opened.source} holds no {what}{reason}")
    separator = opened.separator if isinstance(opened, TextFile) else ""
    return _File(opened.source, columns, titles, lines, separator, n_rows, known, notices)


def _may_be_titles_of_pairs(cells: list[str | None]) -> bool:
    return _word(cells[2]) is None or (cells[2] or "").casefold() in _TITLES


def _each(cells: Cells, read: Callable[[int, str | None], Read]) -> list[Read]:
    """What a function makes of every row and its cell; of equal cells, which files are full of, once."""
    found: dict[str | None, Read] = {}
    for row, cell in enumerate(cells):
        if cell not in found:
            found[cell] = read(row, cell)
    return [found[cell] for cell in cells]


def _is_similar(file: _File, row: int, cell: str | None) -> bool:
    word = _word(cell)
    if word is None:
        wanted = "1 or 0, yes or no, similar or dissimilar, same or different"
        raise TableError(f"{file.at(row)}: {shown(cell or '')} does not say what the pair is; {wanted} do")
    return word


def _sign(file: _File, row: int, cell: str | None) -> int:
    sign = sign_written(cell)
    if sign is None:
        raise TableError(f"{file.at(row)}: {shown(cell or '')} is not a relation; <=, >= and == are")
    return sign


def _word(cell: str | None) -> bool | None:
    """Whether a pair is similar, by what a cell says; None for a cell that does not say."""
    text = (cell or "").casefold()
    value = number(text)
    if value is not None and value.is_integer():
        text = str(int(value))
    return _WORDS.get(text)


def _squared_distance(file: _File, row: int, cell: str | None, squared: bool, numerals: Numerals) -> float:
    value = number(cell or "", numerals)
    if value is None:
        raise TableError(f"{file.at(row)}: {shown(cell or '')} is not a distance; a number > 0 is needed")
    with np.errstate(over="ignore", under="ignore"):
        bound = float(value if squared else np.square(value))
    if not (value > 0.0 and 0.0 < bound < np.inf):
        raise TableError(
            f"{file.at(row)}: the distance {shown(cell)} is not possible; a number > 0 is needed"
        )
    return bound
