"""CSV, TSV and the like: encoding, separator and header are found out, lines are counted.

The numbers are read by NumPy's compiled reader. Where it cannot, or finds a value that is not finite, the
file is read again record by record, which is slower and finds the line and the value to name. How numbers are
written is decided when the columns that are numbers are known (`_numerals`): no other column has a say.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from nearwise.data.tables._header import counts_rows, holds_names
from nearwise.data.tables._table import (
    Loaded,
    Raw,
    Table,
    TableError,
    present,
    refuse_duplicate_names,
    shown,
    stripped,
)
from nearwise.data.tables.numerals import (
    NO_WISHES,
    PLAIN,
    Numerals,
    Wanted,
    decide,
    is_numeral,
    number,
    proves_decimals,
)

SEPARATORS = ",;\t|"
SAMPLE = 100  # records that are looked at to find out how the file is written
_POINTS = str.maketrans(",.", "._")
_BLANKS = re.compile(r"[ \t]+")
_BYTE_ORDER_MARKS = {  # UTF-32 first: its mark begins with that of UTF-16
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


# numbers, texts by column, lines
_Columns = tuple[NDArray[np.float64], dict[int, Iterable[str]], NDArray[np.int64]]


class Record(NamedTuple):
    """One record of the file and the line on which it begins."""

    line: int
    cells: list[str]


@dataclass(frozen=True, eq=False)
class TextFile:
    """A text file whose separator and header are known.

    `lines` are its lines without their ends, `first` the number of lines before the first record,
    `header` the record of the column names, or None.
    """

    source: str
    lines: list[str]
    first: int
    separator: str
    header: Record | None
    columns: tuple[str, ...]
    features: tuple[int, ...]
    notices: tuple[str, ...]
    wanted: Wanted = NO_WISHES

    @property
    def named(self) -> bool:
        return self.header is not None

    def load(self, numbers: Sequence[int], texts: Sequence[int]) -> Loaded:
        """Those columns as numbers, and those as texts."""
        (X, cells, lines), notices = self._load(numbers, texts)
        names = tuple(self.columns[column] for column in numbers)
        table = Table(self.source, X, names, named=self.named, lines=lines, notices=notices)
        return Loaded(table, {column: stripped(cells[column]) for column in texts})

    def _load(self, numbers: Sequence[int], texts: Sequence[int]) -> tuple[_Columns, tuple[str, ...]]:
        quick: dict[Numerals, _Columns | None] = {}
        for decimal in (".", ","):
            if self.wanted.thousands or self.wanted.decimal not in (None, decimal):
                continue
            found = quick[Numerals(decimal)] = self._load_fast(numbers, texts, decimal)
            if found is not None:
                if self.wanted.decimal == decimal or self._is_certain(found[0], decimal):
                    return found, ()
                break
        rows = list(self.rows())
        cells = {self.columns[column]: [row.cells[column] for row in rows] for column in numbers}
        places = [f"line {row.line}" for row in rows]
        numerals, notices = decide(self.source, cells, places, self.separator, self.wanted)
        return quick.get(numerals) or self._load_by_record(numbers, texts, numerals), notices

    def _is_certain(self, X: NDArray[np.float64], decimal: str) -> bool:
        """Whether numbers that were read with that decimal mark cannot be grouped by it."""
        if proves_decimals(X):
            return True
        return decimal == "." and (self.separator == "," or not any("." in line for line in self.lines))

    def holds_vectors(self, columns: Sequence[int]) -> bool:
        return False

    def raw(self, columns: Sequence[int], texts: Sequence[int]) -> Raw:
        """Those columns as texts, without those that mean a missing value, and the others as they are."""
        rows = list(self.rows())
        found = {k: stripped(row.cells[k] for row in rows) for k in {*columns, *texts}}
        lines = np.array([row.line for row in rows], dtype=np.int64)
        return Raw([present(found[k]) for k in columns], {k: found[k] for k in texts}, lines=lines)

    def rows(self) -> Iterator[Record]:
        """The records after the header, without blank ones; a record of another width is an error."""
        records = _records(self.source, self.lines, self.first, self.separator)
        if self.header is not None:
            next(records)
        width = len(self.columns)
        for record in records:
            if len(record.cells) != width:
                _refuse_width(self, record)
            yield record

    def _load_fast(self, numbers: Sequence[int], texts: Sequence[int], decimal: str) -> _Columns | None:
        """What NumPy reads, or None where it cannot or where a value must be explained."""
        start, decimal_comma = self._data_start(), decimal == ","
        if start == len(self.lines) or decimal == self.separator:
            return None
        wanted = set(numbers)
        # neighbouring columns that are numbers, or are not
        runs = [(key, list(run)) for key, run in groupby(range(len(self.columns)), wanted.__contains__)]
        kinds = [
            (f"f{k}", "f8" if is_number else "O", (len(run),)) for k, (is_number, run) in enumerate(runs)
        ]
        try:
            read = words = self._loadtxt(start, kinds, decimal_comma)
            if decimal_comma and texts:  # their commas are none of the decimal ones
                words = self._loadtxt(start, [(name, "O", shape) for name, _, shape in kinds], False)
        except ValueError:
            return None
        X = np.empty((len(read), len(numbers)))
        position = {column: k for k, column in enumerate(numbers)}
        cells: dict[int, Iterable[str]] = {}
        for (is_number, run), (name, _, _) in zip(runs, kinds, strict=True):
            for offset, column in enumerate(run):
                if is_number:
                    X[:, position[column]] = read[name][:, offset]
                elif column in texts:
                    cells[column] = words[name][:, offset]
        if not np.isfinite(X).all():
            return None
        if len(read) == len(self.lines) - start:
            return X, cells, np.arange(start + 1, len(self.lines) + 1)
        places = np.array([record.line for record in self.rows()], dtype=np.int64)
        return (X, cells, places) if len(places) == len(read) else None

    def _loadtxt(self, start: int, kinds: list[Any], decimal_comma: bool) -> NDArray[Any]:
        lines: Iterable[str] = (f"{line}\n" for line in islice(self.lines, start, None))
        if decimal_comma:  # and a number with a point is none
            lines = (line.translate(_POINTS) for line in lines)
        return np.loadtxt(lines, dtype=kinds, delimiter=self.separator, quotechar='"', comments=None, ndmin=1)

    def _load_by_record(self, numbers: Sequence[int], texts: Sequence[int], numerals: Numerals) -> _Columns:
        values, lines = array("d"), array("q")
        cells: dict[int, list[str]] = {column: [] for column in texts}
        for record in self.rows():
            values.extend(self._numbers(record, numbers, numerals))
            lines.append(record.line)
            for column in texts:
                cells[column].append(record.cells[column])
        X = np.array(values).reshape(len(lines), len(numbers))
        return X, dict(cells), np.array(lines, dtype=np.int64)

    def _numbers(self, record: Record, columns: Sequence[int], numerals: Numerals) -> list[float]:
        found = [record.cells[column] for column in columns]
        try:
            plain = "".join(found)
            if numerals == PLAIN and "_" not in plain and plain.isascii():
                row = list(map(float, found))
                if math.isfinite(sum(row)):
                    return row
        except ValueError:
            pass
        return [self._number(record, column, numerals) for column in columns]

    def _number(self, record: Record, column: int, numerals: Numerals) -> float:
        cell = record.cells[column].strip()
        value = number(cell, numerals)
        if value is None or not np.isfinite(value):  # `tables.read` then finds out what the column is
            where = f"{self.source}, line {record.line}, column {self.columns[column]!r}"
            raise TableError(f"{where}: {shown(cell)} is not a finite number")
        return value

    def _data_start(self) -> int:
        """The number of lines before the data."""
        if self.header is None:
            return self.first
        after = islice(_records(self.source, self.lines, self.first, self.separator), 1, 2)
        return next((record.line - 1 for record in after), len(self.lines))


def open_text(
    source: str, data: bytes, *, header: bool | None = None, wanted: Wanted = NO_WISHES
) -> TextFile:
    """Find out how a text file is written; `header` and `wanted` are what the user says about it.

    `header` says whether the first line holds the names of the columns; None finds it out.
    """
    text, notices = _decoded(source, data)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if "\r" in text else text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise TableError(f"{source} is empty")
    first, separator, lines = _separator(source, lines)
    sample = list(islice(_records(source, lines, first, separator), SAMPLE))
    if not sample:
        raise TableError(f"{source} is empty: there are quotation marks and blanks alone")
    where = f"{source}, line {sample[0].line}"
    is_header, notice = header is True, ""
    if header is None:
        is_header, notice = holds_names(
            where,
            [record.cells for record in sample],
            lambda: [record.cells for record in _records(source, lines, first, separator)],
        )
    names = sample[0] if is_header else None
    width = len(sample[0].cells)
    cells = [cell.strip() for cell in names.cells] if names else [""] * width
    columns = tuple(cell or f"x{k}" for k, cell in enumerate(cells))
    refuse_duplicate_names(where, columns)
    notices += (notice,) if notice else ()
    features = tuple(range(width))
    if names and width > 1 and not cells[0] and counts_rows(_column(sample[1:], 0)):
        features = features[1:]
        notices += (f"{source}: the first column has no name and counts the rows; it is not used",)
    return TextFile(source, lines, first, separator, names, columns, features, notices, wanted)


def _decoded(source: str, data: bytes) -> tuple[str, tuple[str, ...]]:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            try:
                return data.decode(encoding), ()
            except UnicodeDecodeError as error:
                raise TableError(f"{source} begins as {encoding.upper()} text, but is damaged") from error
    if b"\x00" in data:
        line = data.count(b"\n", 0, data.index(b"\x00")) + 1
        raise TableError(
            f"{source}, line {line}: there is a zero byte, so this is not a text file, or one in UTF-16 "
            "without a byte order mark; save it as CSV in UTF-8"
        )
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        control = sum(byte < 32 and byte not in b"\t\n\r\f\x1a" for byte in data[:4096])
        if control:
            raise TableError(f"{source}, line {line}: this is not a text file; save it as CSV") from None
        try:
            text = data.decode("cp1252")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
        return text, (f"{source}, line {line}: not UTF-8; read as Windows-1252 (Latin-1)",)


def _separator(source: str, lines: list[str]) -> tuple[int, str, list[str]]:
    """The number of lines before the first record, the separator, and the lines with it between cells."""
    first = next(k for k, line in enumerate(lines) if line.strip())
    declared = re.fullmatch(r'"?sep=(.)"?', lines[first].strip(), re.IGNORECASE)  # a line for Excel
    if declared and first + 1 < len(lines):
        return first + 1, declared[1], lines
    best, best_score = ",", (0.0, 0.0, 0)
    for separator in SEPARATORS:
        try:
            sample = list(islice(_records(source, lines, first, separator), SAMPLE))
        except TableError:
            continue
        width = len(sample[0].cells) if sample else 1
        if width == 1:
            continue
        regular = sum(len(record.cells) == width for record in sample) / len(sample)
        cells = [cell for record in sample for cell in record.cells]
        numeric = sum(map(is_numeral, cells)) / len(cells)
        score = (regular, numeric, width)
        if score > best_score:
            best, best_score = separator, score
    if best_score[0] == 0.0 and _is_blank_separated(lines[first : first + SAMPLE]):
        return first, "\t", [_BLANKS.sub("\t", line.strip()) for line in lines]
    return first, best, lines


def _is_blank_separated(lines: list[str]) -> bool:
    """Whether all lines but the first are numbers with blanks between, as numpy.savetxt writes them."""
    rows = [line.split() for line in lines if line.strip()]
    cells = (cell for row in rows[1:] or rows for cell in row)
    return len(rows[0]) > 1 and all(number(cell) is not None for cell in cells)


def _records(source: str, lines: list[str], first: int, separator: str) -> Iterator[Record]:
    """The records from a line on, without blank ones; a record may span lines where it is quoted."""
    reader = csv.reader((f"{line}\n" for line in islice(lines, first, None)), delimiter=separator)
    line = first + 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise TableError(
                f"{source}, line {line}: {error}; is a quotation mark opened there and never closed?"
            ) from None
        if cells is None:
            return
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield Record(line, cells)
        line = first + reader.line_num + 1


def _refuse_width(file: TextFile, record: Record) -> NoReturn:
    found, width = len(record.cells), len(file.columns)
    fields = "1 field" if found == 1 else f"{found} fields"
    expected = f"but {width} are expected"
    if file.header is not None:
        expected = f"but the header in line {file.header.line} has {width}"
    hint = ""
    if any("\n" in cell for cell in record.cells):
        hint = "; is a quotation mark opened there and never closed?"
    raise TableError(f"{file.source}, line {record.line} has {fields}, {expected}{hint}")


def _column(sample: list[Record], column: int) -> list[str]:
    return [record.cells[column].strip() for record in sample if len(record.cells) > column]
