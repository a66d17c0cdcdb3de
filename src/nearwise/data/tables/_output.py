"""Writing tables: CSV, TSV, JSON, Parquet and NumPy files, by the suffix; whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.files import path_text, write_whole
from nearwise.data.tables._table import TableError, refuse_duplicate_names

WRITTEN = (".csv", ".tsv", ".json", ".parquet", ".npy", ".npz")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?")
_BLOCK = 4096  # rows that are Python objects at a time


def check_target(target: str, formats: Sequence[str] = WRITTEN) -> None:
    """Refuse a target whose suffix names no format, or one that needs a package that is missing."""
    suffix = _suffix(target)
    if target != "-" and suffix not in formats:
        raise TableError(
            f"cannot write {target}: the name must end in {', '.join(formats)} (CSV and TSV also in .gz)"
        )
    if suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise TableError(
                f'cannot write {target}: Parquet needs pyarrow: pip install "nearwise[tables]"'
            ) from error


def write(
    target: str | os.PathLike[str],
    names: Sequence[str],
    X: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    force: bool,
) -> tuple[str, ...]:
    """Write rows of numbers by name, with their ids and labels; returns what there is to say about it.

    In CSV and TSV, texts that a spreadsheet would take for a formula get an apostrophe in front, which makes
    them text there; the other formats hold them as they are.

    Parameters
    ----------
    target : a file that ends in .csv, .tsv (also .gz), .json, .parquet, .npy or .npz, or "-" for CSV on
        standard output. Numbers are written so that reading them gives the same bits.
    names : of the columns of X
    X : (n, d) numbers
    ids, labels : one per row; the columns "id" and "label". An .npy file cannot hold them.
    force : replace a file that exists
    """
    target = path_text(target, "target")
    check_target(target)
    matrix = np.asarray(X, dtype=np.float64)
    beside = {"id": ids, "label": labels}
    extra = {name: np.asarray(values) for name, values in beside.items() if values is not None}
    suffix = _suffix(target)
    if suffix == ".npy":
        if extra:
            raise TableError(f"cannot write {target}: an .npy file holds no ids or labels; use .npz or .csv")
        _put(target, _npy(matrix), force)
        return ()
    if suffix == ".npz":
        arrays = {"X": matrix, "feature_names": np.array(names, dtype=np.str_)}
        _put(target, _npz(arrays | {name: values.astype(np.str_) for name, values in extra.items()}), force)
        return ()
    columns = dict(zip(names, matrix.T, strict=True))
    refuse_duplicate_names(target, [*extra, *names])
    label = {name: extra.pop(name) for name in ("label",) if name in extra}
    return write_columns(target, {**extra, **columns, **label}, force=force)


def write_columns(target: str, columns: Mapping[str, NDArray[Any]], *, force: bool) -> tuple[str, ...]:
    """Write columns of any type, by name; targets and what is returned as in `write`, but no .npy."""
    check_target(target, [suffix for suffix in WRITTEN if suffix != ".npy"])
    if target == "-":
        return _notices(target, _write_text(sys.stdout, columns, ","))
    suffix = _suffix(target)
    if suffix == ".parquet":
        _put(target, _parquet(columns), force)
    elif suffix == ".npz":
        _put(target, _npz(columns), force)
    elif suffix == ".json":
        _put(target, _json(columns).encode(), force)
    else:
        buffer = io.StringIO()
        changed = _write_text(buffer, columns, "\t" if suffix == ".tsv" else ",")
        content = buffer.getvalue().encode()
        _put(target, gzip.compress(content, mtime=0) if target.lower().endswith(".gz") else content, force)
        return _notices(target, changed)
    return ()


def _json(columns: Mapping[str, NDArray[Any]]) -> str:
    """The rows as a JSON list of objects, one a line."""
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    objects = (json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False) for row in rows)
    return "[\n" + ",\n".join(objects) + "\n]\n"


def _suffix(target: str) -> str:
    """The suffix that names the format, in lower case; .gz counts for text alone."""
    path = Path(target.lower())
    if path.suffix == ".gz" and Path(path.stem).suffix in (".csv", ".tsv"):
        return Path(path.stem).suffix
    return path.suffix


def _put(target: str, content: bytes, force: bool) -> None:
    if Path(target).exists() and not force:
        raise TableError(f"{target} exists; give --force to replace it")
    write_whole(target, content)


def _write_text(file: Any, columns: Mapping[str, NDArray[Any]], separator: str) -> int:
    """Write the columns, and return how many texts are changed, because they would be formulas."""
    names = [_as_text(name) for name in columns]
    changed = sum(name != old for name, old in zip(names, columns, strict=True))
    values = []
    for column in columns.values():
        if column.dtype.kind in "UO":
            cells = column.tolist()
            column = np.array([_as_text(cell) for cell in cells], dtype=object)
            changed += sum(new is not old for new, old in zip(column, cells, strict=True))
        values.append(column)
    texts = [*names, *(cell for column in values if column.dtype == object for cell in column)]
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    if any(isinstance(text, str) and "\r" in text for text in texts):
        # before Python 3.13 the module writes a carriage return as it is, which would end the line
        writer = csv.writer(file, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(names)
    for start in range(0, len(values[0]), _BLOCK):
        writer.writerows(zip(*(column[start : start + _BLOCK].tolist() for column in values), strict=True))
    return changed


def _as_text(cell: Any) -> Any:
    """The cell, or, where a spreadsheet would run it as a formula, with an apostrophe in front.

    A cell is a formula by its first character, also behind a tab or a line end; a number with a sign is none.
    """
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    starts = cell.startswith(("\t", "\r")) or cell.lstrip(" \t\r\n\0").startswith(("=", "+", "-", "@"))
    return f"'{cell}" if starts else cell


def _notices(target: str, changed: int) -> tuple[str, ...]:
    if not changed:
        return ()
    what, it = ("1 text is", "it") if changed == 1 else (f"{changed} texts are", "them")
    return (f"{target}: {what} written with an apostrophe in front, so that no spreadsheet runs {it}",)


def _npy(matrix: NDArray[np.float64]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, matrix, allow_pickle=False)
    return buffer.getvalue()


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _parquet(columns: Mapping[str, NDArray[Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table(
        {
            name: pa.array(values.tolist()) if values.dtype.kind in "UO" else pa.array(values)
            for name, values in columns.items()
        }
    )
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
