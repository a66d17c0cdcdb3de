"""Where tables of pairs come from: Parquet, arrays in files, and Dask, each read a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.columns import ROWS_AT_A_TIME, Stored
from nearwise._common.errors import one_line
from nearwise.distributed.files import opened_parquet, refuse_missing_columns
from nearwise.distributed.vectors import MappedRows, mapped

Columns = dict[str, Any]  # arrays of numbers, or Arrow's of texts
Batches = Callable[[list[str]], Iterator[tuple[int, Columns]]]  # of some columns, each with its first row


@dataclass(frozen=True)
class Part:
    """A part of a table that is read in one go."""

    name: str
    batches: Batches


class Source(NamedTuple):
    """The parts of a table, its columns of objects, and the file of which it is the plain numbers."""

    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    plain: Stored | None = None


def in_parquet(paths: list[Path], columns: Sequence[str] | None) -> Source:
    """Of Parquet files."""
    names = _objects(opened_parquet(paths[0])[1], columns, str(paths[0]))
    return Source(tuple(Part(str(path), _parquet_batches(path)) for path in paths), names)


def _objects(present: Sequence[str], columns: Sequence[str] | None, name: str) -> tuple[str, ...]:
    """The columns of the objects."""
    if columns is None and len(present) == 2:
        return tuple(present)
    if columns is None or isinstance(columns, str) or not 2 <= len(columns) <= 4:
        raise ValueError(f"columns must name two to four columns of objects; {name} has {', '.join(present)}")
    refuse_missing_columns(present, columns, name)
    return tuple(columns)


def _parquet_batches(path: Path) -> Batches:
    def batches(wanted: list[str]) -> Iterator[tuple[int, Columns]]:
        import pyarrow as pa

        file, present = opened_parquet(path)
        refuse_missing_columns(present, wanted, str(path))
        first = 0
        with file:
            try:
                for batch in file.iter_batches(ROWS_AT_A_TIME, columns=wanted):
                    yield first, {name: _plain(batch.column(name)) for name in wanted}
                    first += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                raise ValueError(f"{path}, after row {first}: it is damaged ({one_line(error)})") from error

    return batches


def of_arrays(arrays: list[tuple[str, Any]], columns: Sequence[str] | None) -> Source:
    """Of memory-mapped arrays of whole numbers."""
    if columns is not None:
        raise ValueError(f"columns are of Parquet files and dataframes; {arrays[0][0]} has no names")
    widths = {array.shape[1] if array.ndim == 2 else 0 for _, array in arrays}
    for name, array in arrays:
        if (
            array.ndim != 2
            or array.dtype.kind not in "iu"
            or len(widths) > 1
            or array.shape[1] not in (2, 3, 4)
        ):
            raise ValueError(
                f"{name} must have rows of two (for comparisons three or four) whole numbers, as all of its "
                f"kind, got shape {array.shape} {array.dtype}"
            )
    names = tuple(map(str, range(widths.pop())))
    sources = [mapped(array) if isinstance(array, np.memmap) else array for _, array in arrays]
    parts = tuple(
        Part(name, _array_batches(rows, names)) for (name, _), rows in zip(arrays, sources, strict=True)
    )
    plain = None
    if len(sources) == 1 and isinstance(rows := sources[0], MappedRows) and rows.dtype.isnative:
        plain = Stored(rows.path, rows.offset, rows.dtype, rows.shape[1], 0, rows.shape[0])
    return Source(parts, names, plain)


def _array_batches(rows: NDArray[Any] | MappedRows, names: tuple[str, ...]) -> Batches:
    def batches(wanted: list[str]) -> Iterator[tuple[int, Columns]]:
        refuse_missing_columns(names, wanted, "an array")
        for low in range(0, rows.shape[0], ROWS_AT_A_TIME):
            high = min(low + ROWS_AT_A_TIME, rows.shape[0])
            part = rows.read(low, high) if isinstance(rows, MappedRows) else np.asarray(rows[low:high])
            yield low, {name: part[:, k] for k, name in enumerate(names)}

    return batches


def on_dask(data: Any, columns: Sequence[str] | None, client: Any) -> Source:
    """Partitions of a dataframe, or chunks of an array, each of which is computed when it is read."""
    from nearwise.distributed.on_dask import compute, current_client

    chosen = current_client() if client is None else client
    if hasattr(data, "to_dask_array"):
        names = _objects([str(name) for name in data.columns], columns, "the dataframe")
        pieces = data.to_delayed()
    else:
        if columns is not None:
            raise ValueError("columns are of Parquet files and dataframes; a Dask array has no names")
        if getattr(data, "ndim", 0) != 2 or data.shape[1] not in (2, 3, 4):
            raise ValueError(f"a Dask array of pairs must have two (three, four) columns, got {data!r}")
        names = tuple(map(str, range(int(data.shape[1]))))
        pieces = data.rechunk({1: -1}).to_delayed().ravel()

    def batches_of(piece: Any, name: str) -> Batches:
        def batches(wanted: list[str]) -> Iterator[tuple[int, Columns]]:
            found = compute([piece], chosen)[0]
            if isinstance(found, np.ndarray):
                yield from _array_batches(found, names)(wanted)
                return
            import pyarrow as pa

            refuse_missing_columns([str(column) for column in found.columns], wanted, name)
            table = pa.Table.from_pandas(found[wanted], preserve_index=False)
            yield 0, {column: _plain(table.column(column)) for column in wanted}

        return batches

    named = [(f"partition {k}", piece) for k, piece in enumerate(pieces)]
    return Source(tuple(Part(name, batches_of(piece, name)) for name, piece in named), names)


def _plain(column: Any) -> Any:
    """Numbers without gaps as an array; texts, and numbers with gaps, as Arrow has them."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if numeric and column.null_count == 0:
        return column.to_numpy(zero_copy_only=False)
    return column
