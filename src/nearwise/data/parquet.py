"""Parquet files as frames, and written: columns of numbers and texts, or lists that are vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types

from nearwise._common.errors import one_line
from nearwise._common.types import Array
from nearwise.data.frame import (
    NUMBERS,
    TEXTS,
    VECTORS,
    Frame,
    TableError,
    Texts,
    as_texts,
    check_memory,
    refuse_duplicate_names,
)

INDEX_COLUMN = "__index_level_0__"  # where pandas keeps the index of a table
_NUMERIC = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
_LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list)


class ParquetFrame(Frame):
    """A Parquet file; its columns are pyarrow's."""

    def holds(self, name: str) -> str:
        """By the type of the column; a list holds a vector."""
        kind = _storage(self.columns[name]).type
        return VECTORS if _is(kind, _LISTS) else NUMBERS if _is(kind, _NUMERIC) else TEXTS

    def numbers(self, name: str) -> Array:
        """A column of numbers, NaN where one is missing, or of vectors of one length without gaps."""
        values = _storage(self.columns[name])
        if not _is(values.type, _LISTS):
            return _as_floats(values)
        entries, n = pc.list_flatten(values), len(values)
        if not n or not (_is(entries.type, _NUMERIC) or values.null_count):
            found = f"lists of {entries.type}" if n else "no rows"
            raise TableError(f"{self.source}, column {name!r} holds {found}; vectors of numbers are needed")
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        gaps = np.repeat(np.arange(n), lengths)[entries.is_null().to_numpy(zero_copy_only=False)]
        wrong = (lengths != lengths[0]) | (lengths == 0)
        wrong[gaps] = True
        if wrong.any():
            row = int(np.argmax(wrong))
            needed = f"row 0 has {lengths[0]}" if lengths[0] else "one or more are needed"
            what = f"the vector has {lengths[row]} numbers, but {needed}"
            what = "a number of the vector is missing" if row in gaps else what
            raise TableError(f"{self.source}, row {row}, column {name!r}: {what}")
        return np.ascontiguousarray(_as_floats(entries).reshape(n, lengths[0]))

    def texts(self, name: str) -> Texts:
        """A column of any type; pyarrow finds text that is not UTF-8, and dates that Python does not have."""
        values = self.columns[name]
        try:
            return as_texts(values.to_pylist())
        except (ValueError, OverflowError) as error:
            what = f"a {values.type} cannot be read: {one_line(error)}"
            raise TableError(f"{self.source}, column {name!r}: {what}") from None


def read(source: str, data: bytes) -> ParquetFrame:
    """A Parquet file, read whole."""
    try:
        _check(source, pq.ParquetFile(pa.BufferReader(data)))
        table = pq.read_table(pa.BufferReader(data))
        names = tuple(table.column_names)
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{source} is damaged, or not a Parquet file") from error
    if not names:
        raise TableError(f"{source} has no columns")
    refuse_duplicate_names(source, names)
    features = tuple(name for name in names if name != INDEX_COLUMN)
    notices = () if features == names else (f"{source}: the index of pandas is not used",)
    return ParquetFrame(source, dict(zip(names, table.columns, strict=True)), features, notices=notices)


def write(columns: Mapping[str, NDArray[Any]]) -> bytes:
    """A Parquet file of columns by name."""
    found = {
        name: values.tolist() if values.dtype.kind in "UO" else values for name, values in columns.items()
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.array(values) for name, values in found.items()}), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _check(source: str, file: Any) -> None:
    """Refuse a file, opened by pyarrow, whose columns do not fit into memory as numbers.

    A column of numbers has as many as there are rows; of a column of lists the file says how many. Where what
    it says there is damaged, asking for it ends the process, unless a reader has been there before.
    """
    metadata = file.metadata
    n_rows, leaves = metadata.num_rows, range(metadata.num_columns)
    nested = [k for k in leaves if metadata.schema.column(k).max_repetition_level > 0]
    stored = n_rows * (len(leaves) - len(nested))
    if nested:
        file.scan_contents([metadata.schema.column(k).path for k in nested])
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        stored += sum(group.column(k).num_values for group in groups for k in nested)
    if n_rows < 0 or stored < 0:
        raise TableError(f"{source} is damaged: it says that it has {n_rows} rows")
    check_memory(source, 8 * max(stored, n_rows * len(leaves)))  # bytes of a number


def _storage(values: Any) -> Any:
    """The values of a column, decoded where they are stored by dictionary or as an extension type."""
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    return values.cast(values.type.value_type) if types.is_dictionary(values.type) else values


def _is(kind: Any, checks: Any) -> bool:
    return any(check(kind) for check in checks)


def _as_floats(values: Any) -> Array:
    values = values.cast(pa.uint8()) if types.is_boolean(values.type) else values
    found: Array = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found
