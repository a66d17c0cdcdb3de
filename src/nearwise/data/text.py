"""CSV, TSV and the like: encoding, separator and header are found out, and lines are counted.

Columns that are plain numbers are read by NumPy's compiled reader, four times as fast as record by record.
Where it cannot, or where texts are asked for, every record is read once, with the line on which it begins.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.data.frame import TEXTS, Frame, TableError, Texts, refuse_duplicate_names
from nearwise.data.header import counts_rows, holds_names
from nearwise.data.numerals import is_numeral, number, proves_decimals

SEPARATORS = ",;\t|"
_SAMPLE = 100  # records that are looked at to find out how the file is written
_NOT_IN_CP1252 = set(b"\x81\x8d\x8f\x90\x9d")
_BLANKS = re.compile(r"[ \t]+")
_BYTE_ORDER_MARKS = {  # UTF-32 first: its mark begins with that of UTF-16
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
# decimal commas as points for NumPy, and points as what no text has, so that texts can be turned back
_NO_TEXT = "\ue000"
_AS_POINTS = str.maketrans({",": ".", ".": _NO_TEXT})
_BACK = str.maketrans({".": ",", _NO_TEXT: "."})


class Record(NamedTuple):
    """One record of the file and the line on which it begins."""

    line: int
    cells: list[str]


@dataclass(eq=False)
class TextFrame(Frame):
    """A text file whose columns, by name, are numbers from 0.

    Attributes
    ----------
    rows : the lines of the file without their ends
    first : how many of them come before the first record
    head : how many records come before the data: the names, or none
    """

    rows: Sequence[str] = ()
    first: int = 0
    head: int = 0

    def __post_init__(self) -> None:
        self._kept: dict[str, Iterable[str]] = {}
        self._lines: Index | None = None

    @property
    def lines(self) -> Index:
        """The line of every row."""
        if self._lines is None:
            self._lines = self._records[0]
        return self._lines

    def holds(self, name: str) -> str:
        """All are texts at first."""
        return TEXTS

    def texts(self, name: str) -> Texts:
        """The cells of a column without blanks around them, None where nothing is left."""
        cells = self._kept[name] if name in self._kept else self._records[1][self.columns[name]]
        return np.array([cell.strip() or None for cell in cells], dtype=object)

    def matrix(
        self, names: Sequence[str], decimals: Sequence[str] = (".", ","), certain: bool = False
    ) -> Array | None:
        """These columns side by side where all are plain finite numbers with one of the marks; else None.

        A point is in doubt, where it may group thousands: where no number shows that it is a decimal one, and
        fields are not separated by commas. So is a comma.
        """
        for decimal in decimals:
            if (X := self._matrix(names, decimal)) is not None:
                commas = decimal == "." and self.separator == ","
                if certain or commas or proves_decimals(X):
                    return X
                return None if decimal == "," or any("." in row for row in self.rows) else X
        return None

    def _matrix(self, names: Sequence[str], decimal: str) -> Array | None:
        """What NumPy reads, or None where it cannot."""
        records = islice(_records(self.source, self.rows, self.first, self.separator), self.head, None)
        start = next((record.line - 1 for record in records), len(self.rows))
        turned = decimal == ","
        if start == len(self.rows) or decimal == self.separator:
            return None
        if turned and any(_NO_TEXT in row for row in self.rows):
            return None
        # neighbouring columns that are numbers, or are not
        wanted, titles = set(names), list(self.columns)
        runs = [(key, list(run)) for key, run in groupby(titles, wanted.__contains__)]
        kinds = [(f"f{k}", "f8" if key else "O", (len(run),)) for k, (key, run) in enumerate(runs)]
        rows: Iterable[str] = (f"{row}\n" for row in islice(self.rows, start, None))
        rows = (row.translate(_AS_POINTS) for row in rows) if turned else rows
        try:
            read = np.loadtxt(
                rows, dtype=kinds, delimiter=self.separator, quotechar='"', comments=None, ndmin=1
            )
        except ValueError:
            return None
        X = np.empty((len(read), len(names)))
        place = {name: k for k, name in enumerate(names)}
        for k, (is_number, run) in enumerate(runs):
            if is_number:
                X[:, [place[name] for name in run]] = read[f"f{k}"]
        if not np.isfinite(X).all():
            return None
        if len(read) == len(self.rows) - start:
            self._lines = np.arange(start + 1, len(self.rows) + 1)
        elif len(read) != len(self.lines):
            return None
        for k, (is_number, run) in enumerate(runs):
            for offset, name in enumerate(() if is_number else run):
                cells = read[f"f{k}"][:, offset]
                self._kept[name] = [cell.translate(_BACK) for cell in cells] if turned else cells
        return X

    @cached_property
    def _records(self) -> tuple[Index, list[Sequence[str]]]:
        """The lines of all rows, and the cells of all columns; rows of another width are refused."""
        found = list(_records(self.source, self.rows, self.first, self.separator))
        width, below = len(self.columns), found[self.head :]
        wrong = [record for record in below if len(record.cells) != width]
        if wrong:
            count = len(wrong[0].cells)
            fields = "1 field" if count == 1 else f"{count} fields"
            head = f"the header in line {found[0].line} has {width}" if self.head else f"{width} are expected"
            more = f" (so it is with {len(wrong)} lines)" if len(wrong) > 1 else ""
            quoted = any("\n" in cell for cell in wrong[0].cells)
            hint = "; is a quotation mark opened there and never closed?" if quoted else ""
            raise TableError(f"{self.source}, line {wrong[0].line} has {fields}, but {head}{more}{hint}")
        lines = np.array([record.line for record in below], dtype=np.int64)
        columns: list[Sequence[str]] = list(zip(*(record.cells for record in below), strict=True))
        return lines, columns or [()] * width


def read(source: str, data: bytes, header: bool | None = None) -> TextFrame:
    """The frame of a text file; `header` says whether its first record holds names, None finds it out."""
    text, notices = _decoded(source, data)
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if "\r" in text else text.split("\n")
    while rows and not rows[-1].strip():
        rows.pop()
    if not rows:
        raise TableError(f"{source} is empty")
    first, separator, rows = _separator(source, rows)
    sample = list(islice(_records(source, rows, first, separator), _SAMPLE))
    if not sample:
        raise TableError(f"{source} is empty: there are quotation marks and blanks alone")
    where = f"{source}, line {sample[0].line}"
    if header is None:
        header, notice = holds_names(
            where,
            [record.cells for record in sample],
            lambda: [record.cells for record in _records(source, rows, first, separator)],
        )
        notices += (notice,) if notice else ()
    titles = [cell.strip() if header else "" for cell in sample[0].cells]
    names = tuple(title or f"x{k}" for k, title in enumerate(titles))
    refuse_duplicate_names(where, names)
    features, below = names, [record.cells[0].strip() for record in sample[1:] if record.cells]
    if header and len(names) > 1 and not titles[0] and counts_rows(below):
        features = names[1:]
        notices += (f"{source}: the first column has no name and counts the rows; it is not used",)
    return TextFrame(
        source=source,
        columns={name: k for k, name in enumerate(names)},
        features=features,
        named=header,
        notices=notices,
        separator=separator,
        rows=rows,
        first=first,
        head=int(header),
    )


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
    if any(byte < 32 and byte not in b"\t\n\r\f\x1a" for byte in data[:4096]):
        raise TableError(f"{source}, line {line}: this is not a text file; save it as CSV")
    has_all = not set(data) & _NOT_IN_CP1252
    notice = f"{source}, line {line}: not UTF-8; read as Windows-1252 (Latin-1)"
    return data.decode("cp1252" if has_all else "latin-1"), (notice,)


def _separator(source: str, rows: list[str]) -> tuple[int, str, list[str]]:
    """The number of lines before the first record, the separator, and the lines with it between cells."""
    first = next(k for k, row in enumerate(rows) if row.strip())
    declared = re.fullmatch(r'"?sep=(.)"?', rows[first].strip(), re.IGNORECASE)  # a line for Excel
    if declared and first + 1 < len(rows):
        return first + 1, declared[1], rows
    best, most = ",", (0.0, 0.0, 0)
    for separator in SEPARATORS:
        try:
            sample = [record.cells for record in islice(_records(source, rows, first, separator), _SAMPLE)]
        except TableError:
            continue
        width = len(sample[0]) if sample else 1
        if width > 1:
            regular = sum(len(cells) == width for cells in sample) / len(sample)
            numeric = [is_numeral(cell) for cells in sample for cell in cells]
            # how regular the records are, how many of their cells are numbers, and their width
            if (score := (regular, sum(numeric) / len(numeric), width)) > most:
                best, most = separator, score
    if most[0] == 0.0 and _is_blank_separated(rows[first : first + _SAMPLE]):
        return first, "\t", [_BLANKS.sub("\t", row.strip()) for row in rows]
    return first, best, rows


def _is_blank_separated(rows: list[str]) -> bool:
    """Whether all lines but the first are numbers with blanks between, as numpy.savetxt writes them."""
    cells = [row.split() for row in rows if row.strip()]
    return len(cells[0]) > 1 and all(number(cell) is not None for row in cells[1:] or cells for cell in row)


def _records(source: str, rows: Sequence[str], first: int, separator: str) -> Iterator[Record]:
    """The records from a line on, without blank ones; a record may span lines where it is quoted."""
    reader = csv.reader((f"{row}\n" for row in islice(rows, first, None)), delimiter=separator)
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
