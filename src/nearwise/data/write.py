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
from nearwise.data import formats
from nearwise.data.frame import TableError, check_installed, refuse_duplicate_names

Columns = Mapping[str, NDArray[Any]]
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?")
_BLOCK = 4096  # rows that are Python objects at a time


def check_target(target: str, suffixes: Sequence[str] = ()) -> None:
    """Refuse a target whose suffix names no format, or one that needs a package that is missing."""
    suffix, suffixes = formats.suffix(target), suffixes or formats.written()
    is_packed = target.lower().endswith(".gz") and suffix not in (".csv", ".tsv")
    if target != "-" and (suffix not in suffixes or is_packed):
        raise TableError(
            f"cannot write {target}: the name must end in {', '.join(suffixes)} (CSV and TSV also in .gz)"
        )
    if (found := formats.by_suffix(target)) is not None:
        check_installed(f"{target}: writing it", found)


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
    suffix = formats.suffix(target)
    if suffix == ".npy" and extra:
        raise TableError(f"cannot write {target}: an .npy file holds no ids or labels; use .npz or .csv")
    if suffix in (".npy", ".npz"):
        arrays = {"X": matrix, "feature_names": np.array(names, dtype=np.str_)}
        arrays |= {name: values.astype(np.str_) for name, values in extra.items()}
        return _put(target, arrays, force)
    refuse_duplicate_names(target, [*extra, *names])
    label = {name: extra.pop(name) for name in ("label",) if name in extra}
    return write_columns(target, {**extra, **dict(zip(names, matrix.T, strict=True)), **label}, force=force)


def write_columns(target: str, columns: Columns, *, force: bool) -> tuple[str, ...]:
    """Write columns of any type, by name; targets and what is returned as in `write`, but no .npy."""
    check_target(target, [suffix for suffix in formats.written() if suffix != ".npy"])
    return _put(target, columns, force)


def csv_of(columns: Columns, separator: str = ",") -> bytes:
    """A CSV file."""
    buffer = io.StringIO()
    _write_text(buffer, columns, separator)
    return buffer.getvalue().encode()


def tsv_of(columns: Columns) -> bytes:
    """The same with tabs."""
    return csv_of(columns, "\t")


def json_of(columns: Columns) -> bytes:
    """The rows as a JSON list of objects, one a line."""
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    objects = (json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False) for row in rows)
    return ("[\n" + ",\n".join(objects) + "\n]\n").encode()


def _put(target: str, columns: Columns, force: bool) -> tuple[str, ...]:
    """Write a file whole, in the format of its name; returns what there is to say about it."""
    found, notices = formats.TEXT if target == "-" else formats.by_suffix(target), tuple[str, ...]()
    assert found is not None
    if found.is_text:
        columns, changed = _without_formulas(columns)
        what, it = ("1 text is", "it") if changed == 1 else (f"{changed} texts are", "them")
        notice = f"{target}: {what} written with an apostrophe in front, so that no spreadsheet runs {it}"
        notices = (notice,) if changed else ()
    if target == "-":
        _write_text(sys.stdout, columns, ",")
        return notices
    content: bytes = found.call(found.writer, columns)
    if Path(target).exists() and not force:
        raise TableError(f"{target} exists; give --force to replace it")
    write_whole(target, gzip.compress(content, mtime=0) if target.lower().endswith(".gz") else content)
    return notices


def _without_formulas(columns: Columns) -> tuple[dict[str, NDArray[Any]], int]:
    """The columns with an apostrophe in front of what a spreadsheet would run, and how many texts have one.

    Names are counted too; they get it when they are written.
    """
    found, changed = dict(columns), sum(_as_text(name) != name for name in columns)
    for name, column in columns.items():
        if column.dtype.kind in "UO":
            cells = column.tolist()
            found[name] = np.array([_as_text(cell) for cell in cells], dtype=object)
            changed += sum(new is not old for new, old in zip(found[name], cells, strict=True))
    return found, changed


def _as_text(cell: Any) -> Any:
    """The cell, or, where a spreadsheet would run it as a formula, with an apostrophe in front.

    A cell is a formula by its first character, also behind a tab or a line end; a number with a sign is none.
    """
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    starts = cell.startswith(("\t", "\r")) or cell.lstrip(" \t\r\n\0").startswith(("=", "+", "-", "@"))
    return f"'{cell}" if starts else cell


def _write_text(file: Any, columns: Columns, separator: str) -> None:
    names = [_as_text(name) for name in columns]
    texts = [*names, *(cell for column in columns.values() if column.dtype == object for cell in column)]
    # before Python 3.13 the module writes a carriage return as it is, which would end the line
    returns = any(isinstance(text, str) and "\r" in text for text in texts)
    quoting: Any = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    writer = csv.writer(file, delimiter=separator, lineterminator="\n", quoting=quoting)
    writer.writerow(names)
    values = list(columns.values())
    for start in range(0, len(values[0]), _BLOCK):
        writer.writerows(zip(*(column[start : start + _BLOCK].tolist() for column in values), strict=True))
