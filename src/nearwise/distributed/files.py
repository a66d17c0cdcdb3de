"""Vectors in files: `.npy`, memory-mapped, and Parquet, of which one row group is in memory at a time.

Parquet cannot be read a row at a time, and the two objects of a pair may be in different files. So its
numbers are copied once, in their own precision, to a file of plain rows that is memory-mapped from then on
and removed at the end; it takes as much room on disk as the numbers have bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import one_line
from nearwise.distributed.vectors import MappedRows, Stacked

PARQUET = (".parquet", ".pq")
_SUFFIXES = (".npy", *PARQUET)
_UNREADABLE = "it is damaged, holds Python objects, or is no array that NumPy wrote"


def open_vectors(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    ids: str | None = None,
    labels: str | None = None,
    columns: Sequence[str] | None = None,
    scratch: str | os.PathLike[str] | None = None,
    client: Any = None,
) -> Stacked:
    """Rows of numbers in one or several files, or in all files of a folder in the order of their names.

    Parameters
    ----------
    source : `.npy` files of one (n, d) array, or Parquet files of columns of numbers or a column of vectors
    ids, labels : of Parquet files, the columns of what rows are called and of their classes; attributes of
        what is returned
    columns : of Parquet files, the columns to use; by default all others
    scratch : the folder for a copy of Parquet's numbers by rows; by default the system's for temporary files
    client : a Dask client whose workers see these files and `scratch`; by default threads of this process

    >>> import numpy as np, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "a.npy", np.zeros((3, 2), np.float32))
    >>> np.save(folder / "b.npy", np.ones((2, 2), np.float32))
    >>> open_vectors(folder)
    <Stacked: 5 rows of 2 float32 in 2 parts>
    """
    paths = files_of(source)
    if are_npy(paths):
        for name, value in (("ids", ids), ("labels", labels), ("columns", columns)):
            if value is not None:
                raise ValueError(f"{name} names columns of Parquet files, and {paths[0]} has no names")
        return Stacked([_npy(path) for path in paths], client=client)
    return _parquet(paths, ids, labels, columns, scratch, client)


def files_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that are meant: themselves, or those of a folder; an error for what is not there."""
    if not isinstance(source, str | os.PathLike | Sequence):
        raise TypeError(f"expected the path of a file or a folder, or several, got {source!r}")
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    found: list[Path] = []
    for path in map(Path, given):
        own = [path]
        if path.is_dir():
            own = sorted(child for child in path.iterdir() if child.suffix in _SUFFIXES)
            if not own:
                raise ValueError(f"{path} has no files that end in {', '.join(_SUFFIXES)}")
        for one in own:
            if not one.exists():
                raise FileNotFoundError(f"{one}: there is no such file")
            if one.suffix not in _SUFFIXES:
                raise ValueError(f"{one}: only files that end in {', '.join(_SUFFIXES)} are read in pieces")
        found += own
    if not found:
        raise ValueError("expected one file or more, got none")
    return found


def are_npy(paths: list[Path]) -> bool:
    """Whether they are `.npy` files, and not Parquet; an error for some of each."""
    count = sum(path.suffix == ".npy" for path in paths)
    if 0 < count < len(paths):
        raise ValueError("files must be of one kind, .npy or Parquet")
    return count > 0


def titles_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str] | None:
    """The names of the columns of Parquet files, as the first has them; None for `.npy` files."""
    paths = files_of(source)
    return None if any(path.suffix == ".npy" for path in paths) else opened_parquet(paths[0])[1]


def opened_npy(path: Path) -> np.memmap[Any, Any]:
    """A `.npy` file, memory-mapped."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # NumPy reads a header as Python's syntax, which fails in many ways
        raise ValueError(f"{path} cannot be read: {_UNREADABLE}") from error


def _npy(path: Path) -> MappedRows:
    opened = opened_npy(path)
    if opened.ndim != 2 or opened.dtype.kind != "f":
        raise ValueError(
            f"{path} must have rows of floating-point numbers, got shape {opened.shape} {opened.dtype}"
        )
    if not opened.flags.c_contiguous:
        raise ValueError(f"{path} is stored by columns; save numpy.ascontiguousarray of it")
    return MappedRows(str(path.absolute()), opened.offset, opened.shape, opened.dtype)


def _parquet(
    paths: list[Path],
    ids: str | None,
    labels: str | None,
    columns: Sequence[str] | None,
    scratch: str | os.PathLike[str] | None,
    client: Any,
) -> Stacked:
    used: list[str] | None = None if columns is None else list(columns)
    beside: dict[str, list[NDArray[Any]]] = {name: [] for name in (ids, labels) if name is not None}
    folder = tempfile.mkdtemp(prefix="nearwise-", dir=scratch)
    target = Path(folder) / "rows"
    shape, dtype, is_vector = (0, 0), np.dtype(np.float32), False
    try:
        with target.open("wb") as out:
            for path in paths:
                file, present = opened_parquet(path)
                own = [name for name in present if name not in beside]
                used = own if used is None else used
                refuse_missing_columns(present, [*used, *beside], str(path))
                more = [name for name in own if name not in used] if columns is None else []
                if more:
                    raise ValueError(
                        f"{path} has a column {more[0]!r}, which {paths[0]} has not; name the columns to use"
                    )
                first = shape[0]
                for group in range(file.num_row_groups):
                    table = _group(file, group, [*used, *beside], path)
                    if not table.num_rows:  # whose columns may be of any type
                        continue
                    rows = _rows(table, used, path)
                    is_vector = len(used) == 1 and _is_list(table.schema.field(used[0]).type)
                    _refuse_missing(rows, used, path, shape[0] - first)
                    if ids is not None and table.column(ids).null_count:
                        row = shape[0] - first + table.column(ids).is_null().to_pylist().index(True)
                        raise ValueError(f"{path}, row {row}, column {ids!r}: there is no id")
                    if shape[0] == 0:
                        dtype = rows.dtype
                    elif rows.dtype != dtype or rows.shape[1] != shape[1]:
                        raise ValueError(
                            f"{path}, row group {group}: {rows.shape[1]} columns of {rows.dtype}, where "
                            f"those before have {shape[1]} of {dtype}"
                        )
                    out.write(np.ascontiguousarray(rows).tobytes())
                    shape = (shape[0] + len(rows), rows.shape[1])
                    for name, parts in beside.items():
                        parts.append(_names(table.column(name), name, path))
                        if _is_text(parts[-1]) != _is_text(parts[0]):
                            kinds = ("text", "numbers") if _is_text(parts[-1]) else ("numbers", "text")
                            raise ValueError(
                                f"{path}: column {name!r} holds {kinds[0]}, and in the files before "
                                f"{kinds[1]}: no two of them are the same"
                            )
        mapped = MappedRows(str(target.absolute()), 0, shape, dtype)
        joined = {name: np.concatenate(parts) for name, parts in beside.items() if parts}
        found = Stacked([mapped], joined.get(ids or ""), client=client)
        found.labels = joined.get(labels or "")
        if is_vector:
            found.vector_column = (used or [""])[0]
        else:
            found.names = tuple(used or ())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


def opened_parquet(path: Path) -> tuple[Any, list[str]]:
    """A Parquet file, and the names of its columns."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
    except (pa.ArrowException, ValueError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # of the system, not of the file's content
            raise
        raise ValueError(f"{path} is damaged, or not a Parquet file") from error
    twice = [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    if twice or not names:
        raise ValueError(f"{path} has two columns {twice[0]!r}" if twice else f"{path} has no columns")
    return file, names


def refuse_missing_columns(present: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """An error for the first column that is wanted and not there."""
    missing = [column for column in wanted if column not in present]
    if missing:
        raise ValueError(f"{name} has no column {missing[0]!r}; it has {', '.join(present)}")


def _group(file: Any, group: int, columns: list[str], path: Path) -> Any:
    import pyarrow as pa

    try:
        return file.read_row_group(group, columns=columns)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}, row group {group}: it is damaged") from error


def _refuse_missing(rows: NDArray[Any], columns: list[str], path: Path, before: int) -> None:
    """Refuse what is no finite number, by its place; `before` is how many rows of the file went before."""
    wrong = ~np.isfinite(rows)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        name = columns[column] if len(columns) == rows.shape[1] else columns[0]
        raise ValueError(
            f"{path}, row {before + row}, column {name!r}: {rows[row, column]} is no number to learn from"
        )


def _rows(table: Any, columns: list[str], path: Path) -> NDArray[Any]:
    """The numbers of a row group, in single precision where all of them are."""
    import pyarrow as pa

    kinds = [table.schema.field(name).type for name in columns]
    if len(columns) == 1 and _is_list(kinds[0]):
        column = table.column(columns[0]).combine_chunks()
        entries = column.flatten()
        if not _is_number(entries.type):
            raise ValueError(f"{path}: column {columns[0]!r} holds {kinds[0]}, not vectors of numbers")
        flat = entries.to_numpy(zero_copy_only=False)
        fixed = pa.types.is_fixed_size_list(kinds[0])
        lengths = np.empty(0) if fixed else np.diff(np.asarray(column.offsets))
        if column.null_count or len(flat) % max(len(column), 1) or (lengths != lengths[:1]).any():
            raise ValueError(f"{path}: the vectors of column {columns[0]!r} are not all of one length")
        rows = flat.reshape(len(column), -1)
        if rows.dtype == np.float16:
            return rows.astype(np.float32)
        return rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
    rows = np.empty((table.num_rows, len(columns)), np.float32 if single else np.float64)
    for k, (name, kind) in enumerate(zip(columns, kinds, strict=True)):
        if not _is_number(kind):
            raise ValueError(f"{path}: column {name!r} holds {kind}, not numbers; name those to use")
        rows[:, k] = table.column(name).to_numpy()
    return rows


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _names(column: Any, name: str, path: Path) -> NDArray[Any]:
    """Ids or classes: whole numbers, numbers, or text; where some are missing, as they are."""
    import pyarrow as pa

    try:
        values: NDArray[Any] = column.to_numpy()
    except (pa.ArrowException, ValueError) as error:  # text that is not UTF-8
        raise ValueError(f"{path}, column {name!r} cannot be read: {one_line(error)}") from None
    if values.dtype.kind in "iu" and values.max(initial=0) <= np.iinfo(np.int64).max:
        return values.astype(np.int64)
    return values if column.null_count or values.dtype.kind in "fb" else values.astype(str)


def _is_text(names: NDArray[Any]) -> bool:
    return names.dtype.kind in "OU"
