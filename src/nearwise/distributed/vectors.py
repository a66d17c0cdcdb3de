"""`Vectors`: rows of numbers that need not be in memory, of which some are taken at a time.

`Stacked` has them in arrays and memory-mapped files, one after the other. What is on a Dask cluster is
`nearwise.distributed.on_dask.Chunked`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast, runtime_checkable
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Index
from nearwise.distributed.running import InThreads, Runner

R = TypeVar("R")

_ROWS_AT_A_TIME = 1 << 22  # numbers


@runtime_checkable
class Vectors(Protocol):
    """(n, d) rows of numbers, in single or double precision."""

    @property
    def shape(self) -> tuple[int, int]:
        """n and d."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""

    @property
    def ids(self) -> NDArray[Any] | None:
        """What the rows are called, where that was read with them."""

    def take(self, rows: Index, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Some of the rows, in that order, in memory; `out` may be used for them."""

    def place(self, row: int) -> str:
        """Where a row is, in words."""

    def runner(self, pieces: Sequence[Any]) -> Runner:
        """What works on pieces, each with attributes and methods as `model.pieces.Piece`, of these rows."""

    def over_rows(self, job: Callable[..., R], *arguments: Any, beside: Index) -> list[R]:
        """job(first row, rows, their part of `beside`, *arguments) over all rows, in parts, in order."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class MappedRows:
    """An (n, d) array in a file, by rows; it is opened where it is read, and travels as its name."""

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def opened(self) -> NDArray[Any]:
        """The array, memory-mapped."""
        return np.empty(self.shape, self.dtype) if 0 in self.shape else np.asarray(self._map)

    @cached_property
    def _map(self) -> np.memmap[Any, Any]:
        """One for each file in a process: pages of a second one would count as memory of their own."""
        found = os.stat(self.path)
        key = (self.path, self.offset, self.shape, self.dtype.str, found.st_ino, found.st_mtime_ns)
        opened = _mappings.get(key)
        if opened is None:
            opened = _mappings[key] = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        return opened

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Consecutive rows, read without the mapping, whose pages would stay in memory."""
        skipped = self.offset + low * self.shape[1] * self.dtype.itemsize
        found = np.fromfile(self.path, self.dtype, (high - low) * self.shape[1], offset=skipped)
        return found.reshape(-1, self.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_map"}


_mappings: WeakValueDictionary[Any, np.memmap[Any, Any]] = WeakValueDictionary()


class Stacked:
    """Rows of several arrays, one after the other.

    Parameters
    ----------
    parts : arrays of the same width, in memory or in files
    ids : what the rows are called; the attributes `labels`, `names` and `vector_column` have their classes,
        the names of the columns of numbers, and that of the column of vectors, where these were read
    client : a Dask client whose workers see the same files; None for threads of this process
    """

    def __init__(
        self,
        parts: list[NDArray[Any] | MappedRows],
        ids: NDArray[Any] | None = None,
        client: Any = None,
    ) -> None:
        self.parts, self.ids, self.client = parts, ids, client
        self._keeps: object = None  # what has to live as long as the rows, such as the folder of their files
        self.labels: NDArray[Any] | None = None
        self.names: tuple[str, ...] = ()
        self.vector_column: str | None = None
        self._ends = np.cumsum([0, *(part.shape[0] for part in parts)])
        widths = {part.shape[1] for part in parts}
        if len(widths) != 1:
            raise ValueError(f"all parts of the data must have as many columns, got {sorted(widths)}")
        self.dtype: np.dtype[Any] = np.result_type(*(part.dtype for part in parts))
        self.shape: tuple[int, int] = (int(self._ends[-1]), int(widths.pop()))

    def take(self, rows: Index, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Some of the rows, in that order; in `out`, where that is given."""
        arrays = [part.opened() if isinstance(part, MappedRows) else part for part in self.parts]
        if len(arrays) == 1:
            if out is None:
                return np.take(arrays[0], rows, axis=0)
            return np.take(arrays[0], rows, axis=0, out=out, mode="clip")  # others are written twice
        out = np.empty((len(rows), self.shape[1]), self.dtype) if out is None else out
        part_of = np.searchsorted(self._ends, rows, side="right") - 1
        for k in np.unique(part_of):
            chosen = np.flatnonzero(part_of == k)
            out[chosen] = arrays[k][rows[chosen] - self._ends[k]]
        return out

    def between(self, low: int, high: int) -> NDArray[Any]:
        """Consecutive rows; for one look at each, which leaves nothing of files in memory."""
        found = []
        for part, begin, end in zip(self.parts, self._ends[:-1], self._ends[1:], strict=True):
            a, b = max(low - int(begin), 0), min(high, int(end)) - int(begin)
            if a < b:
                found.append(part.read(a, b) if isinstance(part, MappedRows) else part[a:b])
        return np.concatenate(found) if found else np.empty((0, self.shape[1]), self.dtype)

    def place(self, row: int) -> str:
        """The row and the file it is in, if there are several."""
        k = int(np.searchsorted(self._ends, row, side="right")) - 1
        part = self.parts[k]
        if len(self.parts) == 1 or not isinstance(part, MappedRows):
            return f"row {row}"
        return f"row {row - int(self._ends[k])} of {part.path}"

    def runner(self, pieces: Sequence[Any]) -> Runner:
        """Threads of this process, or the workers of the client."""
        if self.client is None:
            return InThreads(pieces)
        from nearwise.distributed.on_dask import OnDask, grouped, refuse_unseen, taken_with

        groups = grouped(pieces, self.client, sum(map(len, pieces)))
        sizes = [len(group) for group in groups]
        files = self._files()
        if files is None:
            return OnDask(self.client, [taken_with(group, self) for group in groups], sizes)
        of_pairs = dict.fromkeys(file for piece in pieces for file in piece.files())
        refuse_unseen(self.client, [*files, *of_pairs])
        return OnDask(self.client, groups, sizes)

    def over_rows(self, job: Callable[..., R], *arguments: Any, beside: Index) -> list[R]:
        """job(first row, rows, their part of `beside`, *arguments) over all rows, a slice at a time."""
        step = max(_ROWS_AT_A_TIME // max(self.shape[1], 1), 1)
        starts = range(0, self.shape[0], step)
        files, runner = self._files(), cast(Runner, InThreads(starts))
        if self.client is not None and files is not None:
            from nearwise.distributed.on_dask import OnDask, grouped, refuse_unseen

            refuse_unseen(self.client, files)
            groups = grouped(starts, self.client, self.shape[0])
            runner = OnDask(self.client, groups, [len(group) for group in groups])
        each = [beside[start : start + step] for start in starts]
        return runner.run(_on_slice, self, job, step, arguments, each=each)

    def _files(self) -> list[str] | None:
        """In which the rows are; None where some are in memory."""
        files = [part.path for part in self.parts if isinstance(part, MappedRows)]
        return files if len(files) == len(self.parts) else None

    def by_number(self) -> Stacked:
        """The same rows without ids, for who has looked these up."""
        found = copy.copy(self)  # which leaves out what does not travel
        found.client, found._keeps = self.client, self
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | dict.fromkeys(("ids", "labels", "_keeps", "client"))  # only the rows travel

    def __repr__(self) -> str:
        return f"<Stacked: {self.shape[0]} rows of {self.shape[1]} {self.dtype} in {len(self.parts)} parts>"


def _on_slice(
    start: int, rows: Stacked, job: Callable[..., R], step: int, arguments: tuple[Any, ...], beside: Index
) -> R:
    chosen = np.arange(start, min(start + step, len(rows)))
    return job(start, rows.take(chosen), beside, *arguments)


def vectors_of(data: Any, client: Any = None) -> Vectors | None:
    """Rows that are used in pieces: what is memory-mapped or on Dask; None for anything else.

    Parameters
    ----------
    data : a `numpy.memmap`, a Dask array or dataframe, or what this function returned before
    client : the Dask client whose workers do the work. By default the current one for what is on Dask, or, if
        there is none, Dask's own threads; for files, which other machines may not see, threads of this
        process.
    """
    if isinstance(data, np.ndarray):
        if not isinstance(data, np.memmap):
            return None
        if data.ndim != 2:
            raise ValueError(f"memory-mapped data must have rows and columns, got shape {data.shape}")
        if data.dtype.kind != "f":
            raise TypeError(f"memory-mapped data must be floating-point numbers, got {data.dtype}")
        return Stacked([mapped(data)], client=client)
    if isinstance(data, Vectors):
        return data
    if is_dask(data):
        from nearwise.distributed.on_dask import chunked

        return chunked(data, client)
    return None


class NotFiniteError(ValueError):
    """A row of vectors has an entry that is no finite number."""

    def __init__(self, row: int, place: str, entry: int, value: float) -> None:
        super().__init__(f"{place}: entry {entry} is {value}; every entry must be a finite number")
        self.row, self.entry, self.value = row, entry, value

    def __reduce__(self) -> Any:
        return NotFiniteError, (self.row, f"row {self.row}", self.entry, self.value)

    def at(self, vectors: Vectors) -> NotFiniteError:
        """The same with the place that the vectors know."""
        return NotFiniteError(self.row, vectors.place(self.row), self.entry, self.value)


def refuse_not_finite(rows: NDArray[Any], numbers: Index) -> None:
    """An error for the first entry that is no finite number; `numbers` are those of the rows."""
    if np.isfinite(rows).all():
        return
    k, entry = np.argwhere(~np.isfinite(rows))[0].tolist()
    row = int(numbers[k])
    raise NotFiniteError(row, f"row {row}", entry, float(rows[k, entry]))


def finite_rows(vectors: Vectors, rows: Index) -> NDArray[np.float64]:
    """Some of the rows in double precision; an error names one that is no finite number, and its file."""
    found = vectors.take(rows).astype(np.float64)
    try:
        refuse_not_finite(found, rows)
    except NotFiniteError as error:
        raise error.at(vectors) from None
    return found


def is_dask(data: Any) -> bool:
    """Whether it is a Dask collection, such as an array or a dataframe."""
    return callable(getattr(data, "__dask_graph__", None))


def mapped(data: np.memmap[Any, Any]) -> NDArray[Any] | MappedRows:
    """An array in a file as the name of that file, where it is the whole of what was mapped."""
    whole = data.flags.c_contiguous and data.filename is not None and type(data.base).__name__ == "mmap"
    return MappedRows(str(data.filename), data.offset, data.shape, data.dtype) if whole else np.asarray(data)
