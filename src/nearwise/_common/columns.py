"""Columns of tables that need not be in memory: numbers in a file, and one number that all rows have.

Both are like arrays of which a slice is again such a column; rows by number, and `numpy.asarray` of one, are
arrays in memory. A `ColumnWriter` makes files of what comes a part at a time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS_AT_A_TIME = 1 << 18


@dataclass(frozen=True, eq=False)
class Stored:
    """Rows of numbers in a file.

    Attributes
    ----------
    path, offset, kept_as : the file, the byte at which its rows begin, and the type of its numbers
    width : numbers in a row; None for a column of single numbers
    low, high : the rows that are meant
    texts : what whole numbers are places in, where the rows are texts; else None
    span : the smallest and the largest of whole numbers, of the whole file; None where they are not known
    origin : which rows of which files these were, where that is known: has a method `place`
    folder : where a copy is, which goes when nothing refers to it any more; None for a file of the user's
    """

    path: str
    offset: int
    kept_as: np.dtype[Any]
    width: int | None
    low: int
    high: int
    texts: NDArray[Any] | None = None
    span: tuple[int, int] | None = None
    origin: Any = None
    folder: ScratchFolder | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what is read."""
        if self.texts is not None:
            return self.texts.dtype
        return np.dtype(np.int64 if self.kept_as.kind in "iu" else np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return (len(self),) if self.width is None else (len(self), self.width)

    def __len__(self) -> int:
        return self.high - self.low

    def __getitem__(self, rows: Any) -> Any:
        """A slice as a column; rows by their numbers in memory."""
        if isinstance(rows, slice):
            low, high, _ = rows.indices(len(self))
            return replace(self, low=self.low + low, high=self.low + max(low, high))
        wanted = np.asarray(rows)
        order = np.argsort(wanted, axis=None, kind="stable")
        ascending = wanted.ravel()[order]
        found = np.empty((wanted.size, *self.shape[1:]), self.dtype)
        for low, part in self.chunks():
            begin, end = np.searchsorted(ascending, [low, low + len(part)])
            if begin < end:
                found[order[begin:end]] = np.asarray(part)[ascending[begin:end] - low]
        return found.reshape(wanted.shape + self.shape[1:])

    def chunks(self) -> Iterator[tuple[int, Stored]]:
        """All rows in order, some at a time, with the number of the first."""
        for low in range(0, len(self), ROWS_AT_A_TIME):
            yield low, self[low : low + ROWS_AT_A_TIME]

    def places(self) -> NDArray[Any]:
        """The numbers of the file, where the rows are texts."""
        size = self.width or 1
        count, skipped = len(self) * size, self.offset + self.low * size * self.kept_as.itemsize
        found = np.fromfile(self.path, self.kept_as, count, offset=skipped) if count else np.empty(0)
        if len(found) != count:
            raise OSError(f"{self.path} has fewer rows than when it was opened")
        return found.reshape(self.shape).astype(np.int64 if self.kept_as.kind in "iu" else np.float64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self.places()
        read = found if self.texts is None else self.texts[found]
        return np.asarray(read, dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "origin": None, "folder": None}  # who reads it elsewhere must not remove it


@dataclass(frozen=True, eq=False)
class Constant:
    """One number that all rows have."""

    value: float
    length: int
    dtype = np.dtype(np.float64)

    @property
    def shape(self) -> tuple[int]:
        """As of an array."""
        return (self.length,)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            low, high, _ = rows.indices(self.length)
            return replace(self, length=max(high - low, 0))
        return np.full(np.shape(rows), self.value)

    def chunks(self) -> Iterator[tuple[int, Constant]]:
        """All rows, some at a time, with the number of the first."""
        for low in range(0, self.length, ROWS_AT_A_TIME):
            yield low, self[low : low + ROWS_AT_A_TIME]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.full(self.length, self.value, dtype)


class ScratchFolder:
    """A folder for copies, removed when nothing refers to it any more; `parent` is where it was asked for."""

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.parent = parent
        self.path = Path(tempfile.mkdtemp(prefix="nearwise-", dir=parent))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(eq=False)
class ColumnWriter:
    """Files of columns, which come a part at a time.

    Attributes
    ----------
    parent : the folder in which to make one; None for the system's for temporary files
    """

    parent: str | os.PathLike[str] | None = None
    _files: dict[str, Any] = field(default_factory=dict)
    _folder: ScratchFolder | None = None

    def append(self, **parts: NDArray[Any]) -> None:
        """More rows of every column; numbers are kept in the type in which the first ones come."""
        if self._folder is None:
            self._folder = ScratchFolder(self.parent)
        for name, part in parts.items():
            if name not in self._files:
                self._files[name] = ((self._folder.path / name).open("wb"), part.dtype, part.shape[1:])
            file, dtype, _ = self._files[name]
            file.write(np.ascontiguousarray(part, dtype=dtype).data)

    def columns(self) -> dict[str, Stored]:
        """What was written."""
        found = {}
        for name, (file, dtype, shape) in self._files.items():
            file.close()
            width = shape[0] if shape else None
            n_rows = os.path.getsize(file.name) // (dtype.itemsize * (width or 1))
            found[name] = Stored(file.name, 0, dtype, width, 0, n_rows, folder=self._folder)
        return found

    def close(self) -> None:
        """Close the files where something went wrong; the folder goes with the last who refers to it."""
        for file, *_ in self._files.values():
            file.close()
