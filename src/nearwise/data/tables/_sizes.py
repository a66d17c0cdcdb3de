"""What a file says about its own size, compared with the file and with memory before anything is set aside.

A compressed file of some kilobytes can unpack to gigabytes, and the header of an array or a Parquet file can
say anything. Whoever means it can unpack such a file first.
"""

from __future__ import annotations

import gzip
import io
import math
import zipfile
import zlib
from typing import Any, BinaryIO

from numpy.lib import format as npy

from nearwise._common.memory import foresee
from nearwise.data.tables._table import TableError

_ALWAYS = 1 << 28  # bytes that may come out of a compressed file of any size
_RATIO = 100  # bytes that may come out of one byte, beyond that
_CELL = 8  # bytes of a number


def decompressed(source: str, data: bytes) -> bytes:
    """The content of a gzip file; other data as they are."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    most = max(_ALWAYS, _RATIO * len(data))
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{source} is a damaged gzip file: {error}") from None
    if len(content) > most:
        _refuse_bomb(source, len(data), f"more than {most:,}")
    return content


def check_arrays(source: str, data: bytes) -> None:
    """Refuse a .npy or .npz file that says that it holds more than it does, or than fits into memory."""
    if not data.startswith(b"PK"):
        _check_array(source, io.BytesIO(data), len(data))
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            unpacked = sum(member.file_size for member in members)
            if unpacked > max(_ALWAYS, _RATIO * len(data)):
                _refuse_bomb(source, len(data), f"{unpacked:,}")
            _check_memory(source, unpacked)
            for member in members:
                with archive.open(member) as file:
                    _check_array(source, file, member.file_size)
    except TableError:
        raise
    except Exception:  # a damaged archive fails in many ways
        return  # the reader says what is wrong


def check_parquet(source: str, file: Any) -> None:
    """Refuse a Parquet file, opened by pyarrow, whose columns do not fit into memory as numbers.

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
    _check_memory(source, _CELL * max(stored, n_rows * len(leaves)))


def _check_array(source: str, file: BinaryIO | Any, size: int) -> None:
    try:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
    except Exception:  # NumPy reads a header as Python's syntax, which fails in many ways
        return  # the reader says what is wrong
    if dtype.hasobject:
        return
    stated, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if stated > there or any(length < 0 for length in shape):
        raise TableError(
            f"{source} is damaged: it says that it holds an array of shape {shape}, {stated:,} bytes, and "
            f"has {there:,}"
        )


def _check_memory(source: str, n_bytes: int) -> None:
    try:
        foresee(n_bytes, "its content")
    except MemoryError as error:
        raise TableError(f"{source} is too large: {error}") from None


def _refuse_bomb(source: str, packed: int, unpacked: str) -> None:
    raise TableError(
        f"{source} has {packed:,} bytes, and {unpacked} would come out of them, more than {_RATIO} times as "
        "many; unpack it first, if that is meant"
    )
