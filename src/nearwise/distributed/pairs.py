"""Tables of pairs, or of three or four objects a row, that need not be in memory.

`open_pairs` only says where a table is. The constructors of `nearwise.constraints` take it in place of an
array of pairs, and read it once, a part at a time: every row is checked, and copied to numbers in a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.columns import Stored
from nearwise._common.errors import RowError
from nearwise._common.reading import id_list
from nearwise.distributed.files import PARQUET, are_npy, files_of, opened_npy, opened_parquet
from nearwise.distributed.pair_sources import Part, in_parquet, of_arrays, on_dask
from nearwise.distributed.vectors import is_dask

_LARGE = 1 << 22  # rows of a memory-mapped array of pairs, from which on it is not read into memory


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    of, first : the file or partition that they are in, and the number of the first row there
    rows : their numbers from there on; None where they are all rows in order
    ids : one row of ids each, whole numbers, or the places of texts in a list
    others : other columns, by name
    """

    of: str
    first: int
    rows: NDArray[np.int64] | None
    ids: NDArray[np.int64]
    others: dict[str, NDArray[Any]]

    def place(self, row: int) -> str:
        """Where the k-th of these rows is, in words."""
        return f"{self.of}, row {self.first + (row if self.rows is None else int(self.rows[row]))}"


@dataclass(frozen=True, eq=False)
class PairTable:
    """Rows of two, three or four objects in files or on Dask, made by `open_pairs`.

    Attributes
    ----------
    parts : the files or partitions
    columns : those of the objects, by name
    conditions : columns, and the values of which a row has to have one
    scratch : the folder for copies
    plain : where the rows are plain numbers in one file, that file
    """

    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    conditions: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    scratch: str | os.PathLike[str] | None = None
    plain: Stored | None = None

    def where(self, column: str, *values: Any) -> PairTable:
        """The rows that have one of these values in a column, or for which a function of them all is true."""
        if not values:
            raise ValueError(f"name the values of column {column!r} that rows shall have")
        return replace(self, conditions=(*self.conditions, (column, values)), plain=None)

    def batches(self, texts: Texts, *others: str) -> Iterator[Batch]:
        """All rows, some at a time, with other columns of numbers; ids that are texts go to the list."""
        asked = [column for column, _ in self.conditions]
        wanted = list(dict.fromkeys([*self.columns, *asked, *others]))
        for part in self.parts:
            for first, columns in part.batches(wanted):
                count = len(columns[self.columns[0]])
                if not count:
                    continue
                rows = None
                if self.conditions:
                    kept = np.ones(count, dtype=bool)
                    for column, values in self.conditions:
                        kept &= _is_one_of(columns[column], values, f"{part.name}, column {column!r}")
                    rows = np.flatnonzero(kept)
                    if not len(rows):
                        continue
                    columns = {name: _taken(column, rows) for name, column in columns.items()}
                batch = Batch(part.name, first, rows, np.empty((0, 0), np.int64), {})
                ids = np.stack([texts.numbers(columns[name], name, batch) for name in self.columns], axis=1)
                numbers = {name: _numbers(columns[name], name, batch) for name in others}
                yield batch._replace(ids=ids, others=numbers)

    def distinct(self, column: str) -> dict[Any, str]:
        """The values of a column, each with the place where it is first."""
        found: dict[Any, str] = {}
        for part in self.parts:
            for first, columns in part.batches([column]):
                values = columns[column]
                if isinstance(values, np.ndarray):
                    own, rows = np.unique(values, return_index=True)
                    new = list(zip(own.tolist(), rows.tolist(), strict=True))
                else:
                    new = [(value, values.index(value).as_py()) for value in values.unique().to_pylist()]
                for value, row in new:
                    found.setdefault(value, f"{part.name}, row {first + row}")
        return found

    def place(self, row: int) -> str:
        """Where a row is, by its number among those that meet the conditions; it is looked for."""
        for batch in self.batches(Texts()):
            if row < len(batch.ids):
                return batch.place(row)
            row -= len(batch.ids)
        raise IndexError(f"there is no such row in {self!r}")

    def __repr__(self) -> str:
        kept = "".join(f", {column} in {values}" for column, values in self.conditions)
        parts = "1 part" if len(self.parts) == 1 else f"{len(self.parts)} parts"
        return f"<PairTable: {', '.join(self.columns)}{kept}, in {parts}>"


@dataclass(eq=False)
class Texts:
    """The list of all texts that are ids; empty where ids are whole numbers."""

    known: Any = None
    kind: str = ""
    _array: NDArray[Any] | None = None

    def numbers(self, column: Any, name: str, batch: Batch) -> NDArray[np.int64]:
        """Whole numbers as they are; texts as their places in the list, which grows."""
        is_text = not isinstance(column, np.ndarray)
        if is_text:
            _refuse_gaps(column, name, "id", batch)
        kind = "text" if is_text else "numbers"
        self.kind = self.kind or kind
        if kind != self.kind:
            raise ValueError(
                f"{batch.of}: column {name!r} holds {kind}, and those before hold {self.kind}: no two are "
                "the same"
            )
        if not is_text:
            return _whole(column, name, batch)
        import pyarrow as pa
        from pyarrow import compute

        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            raise ValueError(f"{batch.of}: column {name!r} holds {column.type}, which are no ids")
        own = compute.unique(column)
        if self.known is None:
            self.known = own
        else:
            new = own.filter(compute.invert(compute.is_in(own, value_set=self.known)))
            self.known = pa.concat_arrays([self.known, new]) if len(new) else self.known
        found = compute.index_in(column, value_set=self.known)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    def array(self) -> NDArray[Any] | None:
        """The texts by their places; None where ids are whole numbers."""
        if self.known is None:
            return None
        if self._array is None or len(self._array) != len(self.known):
            self._array = np.array(self.known.to_pylist(), dtype=str)
        return self._array


def open_pairs(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    scratch: str | os.PathLike[str] | None = None,
    client: Any = None,
) -> PairTable:
    """A table of pairs in files or on Dask, for the constructors of `nearwise.constraints`.

    Parameters
    ----------
    source : Parquet files, `.npy` files of one (m, 2) array of whole numbers each, or a folder of them; or a
        `numpy.memmap`, a Dask array or a Dask dataframe
    columns : of Parquet files and dataframes, the columns of the objects: two, or for comparisons three or
        four; by default all, where there are only two
    scratch : the folder for copies, 16 bytes a pair; by default the system's for temporary files. Dask's
        workers must see it.
    client : the Dask client that computes partitions; by default the current one

    Of a Parquet file, a bound or weight is the name of its column: `constraints.at_most(table, "limit")`, and
    `table.where("same", 1)` has only the rows with that value.

    >>> import numpy as np, tempfile, pathlib
    >>> import nearwise as nw
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pairs.npy"
    >>> np.save(path, [(0, 1), (1, 2)])
    >>> nw.constraints.at_most(nw.distributed.open_pairs(path), 0.5)
    <Constraints: 2 distances <=>
    """
    if isinstance(source, PairTable):
        return source
    if is_dask(source):
        found = on_dask(source, columns, client)
    elif isinstance(source, np.ndarray):
        found = of_arrays([("the array", source)], columns)
    elif are_npy(paths := files_of(source)):
        found = of_arrays([(str(path), opened_npy(path)) for path in paths], columns)
    else:
        found = in_parquet(paths, columns)
    return PairTable(found.parts, found.columns, scratch=scratch, plain=found.plain)


def table_of(pairs: Any) -> PairTable | None:
    """What is in files, too large for memory or on Dask; None for what constructors read themselves."""
    if isinstance(pairs, PairTable | str | os.PathLike):
        return open_pairs(pairs)
    large = isinstance(pairs, np.memmap) and pairs.ndim == 2 and len(pairs) >= _LARGE
    return open_pairs(pairs) if large or is_dask(pairs) else None


def is_large(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a folder, or a Parquet file of so many rows that it is not read into memory."""
    path = Path(source)
    if path.is_dir() or path.suffix not in PARQUET or not path.is_file():
        return path.is_dir()
    return int(opened_parquet(path)[0].metadata.num_rows) >= _LARGE


def _taken(column: Any, rows: NDArray[np.int64]) -> Any:
    return column[rows] if isinstance(column, np.ndarray) else column.take(rows)


def _is_one_of(column: Any, values: tuple[Any, ...], where: str) -> NDArray[np.bool_]:
    if callable(values[0]):
        return np.asarray(values[0](np.asarray(column)), dtype=bool)
    if isinstance(column, np.ndarray):
        if any(isinstance(value, str) for value in values):
            raise ValueError(f"{where} holds {column.dtype}, and not {values}")
        return np.isin(column, values)
    import pyarrow as pa
    from pyarrow import compute

    try:
        wanted = pa.array(values, type=column.type)
    except pa.ArrowException as error:
        raise ValueError(f"{where} holds {column.type}, and not {values}") from error
    return np.asarray(compute.is_in(column, value_set=wanted).to_numpy(zero_copy_only=False))


def _whole(column: NDArray[Any], name: str, batch: Batch) -> NDArray[np.int64]:
    """Ids that are whole numbers."""
    if column.dtype == np.int64:
        return column
    try:
        return np.asarray(id_list(column, "ids"), dtype=np.int64)
    except RowError as error:
        raise ValueError(f"{batch.place(error.row)}, column {name!r}: {error.words}") from None
    except TypeError:
        raise ValueError(f"{batch.of}: column {name!r} holds {column.dtype}, which are no ids") from None


def _numbers(column: Any, name: str, batch: Batch) -> NDArray[Any]:
    """Bounds or weights."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iuf":
        return column.astype(np.float64)
    if not isinstance(column, np.ndarray):
        _refuse_gaps(column, name, "number", batch)
    raise ValueError(f"{batch.of}: column {name!r} holds no numbers")


def _refuse_gaps(column: Any, name: str, what: str, batch: Batch) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(f"{batch.place(row)}, column {name!r}: there is no {what}")
