"""A data file of any format as one frame of columns, by name: texts, numbers, or vectors.

`open_frame` finds out the format and the names; a column is read when it is asked for. Text files are in
`text`, NumPy's in `arrays`, Parquet in `parquet`; `formats` lists them. `table` makes numbers of the columns
that are features, and side files take the texts.
"""

from __future__ import annotations

import difflib
import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.memory import foresee
from nearwise._common.reading import MISSING
from nearwise._common.types import Array, Index
from nearwise.data import formats

Texts = NDArray[np.object_]  # None where there is none
NUMBERS, TEXTS, VECTORS = "numbers", "texts", "vectors"  # what a column holds
DATASET = "dataset:"
_ALWAYS = 1 << 28  # bytes that may come out of a compressed file of any size
_RATIO = 100  # bytes that may come out of one byte, beyond that


class TableError(ValueError):
    """A data file that cannot be used; the message names the file, its line or row, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names in a file may have line ends


class NoColumn(TableError):
    """A column that is asked for by name and that the file does not have."""


@dataclass(eq=False)
class Frame:
    """The columns of a file, by name; this class holds arrays, others read their columns when asked.

    Attributes
    ----------
    source : the file, for messages
    columns : by name, as the format has them; here arrays of n numbers or texts, or (n, d) vectors
    features : the names of those that are features unless the user says otherwise
    named : whether the names are the file's own
    scalars : False where the columns are the entries of vectors
    notices : what the user should know about how the file is read
    separator : between the fields of a text file; else empty
    block : the features side by side, where the file has them so
    """

    source: str
    columns: Mapping[str, Any]
    features: tuple[str, ...]
    named: bool = True
    scalars: bool = True
    notices: tuple[str, ...] = ()
    separator: str = ""
    block: NDArray[Any] | None = None

    @property
    def lines(self) -> Index | None:
        """The line of the file on which every row begins; None where it has no lines."""
        return None

    def holds(self, name: str) -> str:
        """What a column holds: NUMBERS, TEXTS or VECTORS."""
        column = self.columns[name]
        return VECTORS if column.ndim == 2 else NUMBERS if column.dtype.kind in "biuf" else TEXTS

    def numbers(self, name: str) -> Array:
        """A column of numbers, NaN where one is missing, or of vectors."""
        return np.asarray(self.columns[name], dtype=np.float64)

    def texts(self, name: str) -> Texts:
        """A column as texts without blanks around them, None where there is nothing; 7 and 7.0 are "7"."""
        return as_texts(self.columns[name].tolist())

    def matrix(
        self, names: Sequence[str], decimals: Sequence[str] = (".", ","), certain: bool = False
    ) -> Array | None:
        """These columns side by side where all are plain finite numbers and nothing is in doubt; else None.

        `decimals` are the marks that a text file may have; `certain` says that what may be one is one.
        """
        if any(self.holds(name) == TEXTS for name in names):
            return None
        if self.block is not None and tuple(names) == self.features:
            X = np.array(self.block, dtype=np.float64, order="C")
        else:
            X = np.column_stack([self.numbers(name) for name in names])
        return X if np.isfinite(X).all() else None

    def place(self, row: int) -> str:
        """Where a row is in the file, for messages: "line 17" of a text file, else "row 16"."""
        return place(self.lines, row)

    def find(self, wanted: str) -> str | None:
        """The name of a column given by name, or by number from 1 or, from the end, -1; None where not."""
        for name in (wanted, wanted.strip()):
            if name in self.columns:
                return name
        names = tuple(self.columns)
        if wanted.isascii() and wanted.removeprefix("-").isdecimal() and 1 <= abs(int(wanted)) <= len(names):
            return names[int(wanted) - (int(wanted) > 0)]
        return None

    def name(self, wanted: str) -> str:
        """The same for a column that must be there."""
        if (found := self.find(wanted)) is not None:
            return found
        folded = {name.casefold(): name for name in self.columns}
        near = difflib.get_close_matches(wanted.casefold(), folded, n=1)
        hint = f"did you mean {folded[near[0]]!r}? " if near else ""
        raise NoColumn(f"{self.source} has no column {wanted!r}; {hint}it has {some_of(tuple(self.columns))}")

    def all_names(self, wanted: Iterable[str]) -> list[str]:
        """The same for several; a text that is no name may be several with commas between."""
        parts = ([text] if text in self.columns else text.split(",") for text in wanted)
        return list(dict.fromkeys(self.name(name) for part in parts for name in part))


def open_frame(source: str, *, header: bool | None = None) -> Frame:
    """A file of any format, by its suffix or, on standard input, by its first bytes; or a data set by name.

    `header` says whether the first line of a text file holds names; None finds it out.
    """
    if source.startswith(DATASET):
        from nearwise.data.arrays import from_dataset

        return from_dataset(source, source.removeprefix(DATASET))
    name = "standard input" if source == "-" else source
    known, suffix = formats.by_suffix(source), formats.suffix(source)
    if (known is None or not known.reader) and suffix in formats.OTHERS:
        raise TableError(f"{source}: {suffix} files are not read; save it as {formats.listed()}")
    data = _decompressed(name, _bytes(source))
    if not data:
        raise TableError(f"{name} is empty")
    content = formats.by_content(data)
    found = known or content
    if found.is_text and not content.is_text:
        raise TableError(f"{name} is not text but binary, such as NumPy or Parquet; give it the right suffix")
    check_installed(f"{name}: reading it", found)
    frame: Frame = found.call(found.reader, name, data, *([header] if found.is_text else []))
    return frame


def check_installed(what: str, found: formats.Format) -> None:
    """Refuse a format whose library is not installed."""
    try:
        import_module(found.library or "numpy")
    except ImportError as error:
        raise TableError(f'{what} needs {found.library}: pip install "nearwise[tables]"') from error


def check_unpacked(source: str, packed: int, unpacked: int) -> None:
    """Refuse a compressed file out of which far more comes than is usual: kilobytes can be gigabytes."""
    if unpacked > max(_ALWAYS, _RATIO * packed):
        raise TableError(
            f"{source} has {packed:,} bytes, and at least {unpacked:,} would come out of them, more than "
            f"{_RATIO} times as many; unpack it first, if that is meant"
        )


def check_memory(source: str, n_bytes: float) -> None:
    """Refuse a file whose content does not fit into memory."""
    try:
        foresee(n_bytes, "its content")
    except MemoryError as error:
        raise TableError(f"{source} is too large: {error}") from None


def place(lines: Index | None, row: int) -> str:
    """A row as a user finds it: by its line in a text file, else by its number from 0."""
    return f"row {row}" if lines is None else f"line {lines[row]}"


def shown(value: object) -> str:
    """A value in a message: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}...{text[-1]}"


def some_of(names: Sequence[str], most: int = 12) -> str:
    """Some names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def as_texts(values: Iterable[Any]) -> Texts:
    """Values of any type as texts, None where one is missing; 7 and 7.0 are both "7"."""
    return np.array([_text(value) for value in values], dtype=object)


def present(texts: Texts) -> Texts:
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


def _bytes(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        known: dict[type, str] = {
            FileNotFoundError: "there is no such file",
            IsADirectoryError: "this is a folder, not a file",
        }
        reason = known.get(type(error), f"it cannot be read: {getattr(error, 'strerror', None) or error}")
        raise TableError(f"{source}: {reason}") from None


def _decompressed(source: str, data: bytes) -> bytes:
    """The content of a gzip file; other data as they are."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(max(_ALWAYS, _RATIO * len(data)) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{source} is a damaged gzip file: {error}") from None
    check_unpacked(source, len(data), len(content))
    return content
