"""NumPy files, and the data sets of `nearwise.datasets`, as frames; and NumPy files written."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nearwise.data import datasets
from nearwise.data.frame import Frame, TableError, check_memory, check_unpacked, refuse_duplicate_names

_MOST_ENTRIES = 500_000_000  # of a sparse data set that is made dense: 4 GB


def read(source: str, data: bytes) -> Frame:
    """A .npy file with one matrix, or a .npz file with the matrix X and perhaps labels and ids beside it."""
    arrays = _members(source, data) if data.startswith(b"PK") else {"X": _array(source, data)}
    names = arrays.pop("feature_names", None)
    matrices = [key for key, array in arrays.items() if array.ndim == 2]
    if "X" not in arrays and len(matrices) != 1:
        held = ", ".join(f"{key} {array.shape}" for key, array in arrays.items()) or "nothing"
        raise TableError(f"{source} has no array X and not one matrix, but {held}; call the matrix X")
    X = arrays.pop("X" if "X" in arrays else matrices[0])
    if X.ndim != 2 or X.shape[1] == 0:
        shape = f"an array of shape {X.shape}"
        raise TableError(f"{source} holds {shape}; a matrix with one row per object is needed")
    if X.dtype.kind not in "biuf":
        raise TableError(f"{source} holds an array of {X.dtype}; real numbers are needed")
    given = None if names is None else tuple(map(str, names.ravel()))
    if given is not None and len(given) != X.shape[1]:
        raise TableError(f"{source} has {X.shape[1]} columns, but {len(given)} feature_names")
    beside = {key: array for key, array in arrays.items() if array.shape == X.shape[:1]}
    return _frame(source, X, given, beside, scalars=False)


def from_dataset(source: str, name: str) -> Frame:
    """A data set by name, with its classes in the column "target"."""
    try:
        data = datasets.load(name)
    except (ValueError, LookupError) as error:
        raise TableError(f"{source}: {error.args[0]}") from error
    X, y, names = data.X, data.y, data.feature_names
    if hasattr(X, "toarray") and np.prod(X.shape, dtype=float) <= _MOST_ENTRIES:
        X = X.toarray()
    if not isinstance(X, np.ndarray):
        raise TableError(f"{source}: this data set is not a matrix of numbers")
    classes = y if y is None or not data.target_names else np.array(data.target_names)[y]
    beside = {} if classes is None else {"target": classes}
    return _frame(source, X.reshape(len(X), -1), names, beside, scalars=names is not None)


def write_matrix(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """An .npy file of the matrix X."""
    buffer = io.BytesIO()
    np.save(buffer, arrays["X"], allow_pickle=False)
    return buffer.getvalue()


def write(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """An .npz file of arrays by name."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _frame(
    source: str,
    X: NDArray[Any],
    given: tuple[str, ...] | None,
    beside: Mapping[str, NDArray[Any]],
    scalars: bool,
) -> Frame:
    names = tuple(f"x{k}" for k in range(X.shape[1])) if given is None else given
    refuse_duplicate_names(source, names)
    columns = {**beside, **dict(zip(names, X.T, strict=True))}
    ordered = {name: columns[name] for name in (*names, *columns)}
    return Frame(source, ordered, names, named=given is not None, scalars=scalars, block=X)


def _members(source: str, data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file, whose size is checked before any of them is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            check_unpacked(source, len(data), unpacked)
            check_memory(source, unpacked)
            names = archive.namelist()
            return {name.removesuffix(".npy"): _array(source, archive.read(name)) for name in names}
    except TableError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        raise TableError(f"{source} cannot be read: it is damaged, or not a file that NumPy wrote") from error


def _array(source: str, data: bytes) -> NDArray[Any]:
    """The array of a .npy file, without a copy; NumPy would set aside what the file says before it looks."""
    file = io.BytesIO(data)
    try:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = header(file)
        stated, there = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
        if stated <= there and not dtype.hasobject and all(length >= 0 for length in shape):
            flat = np.frombuffer(data, dtype, math.prod(shape), file.tell())
            return flat.reshape(shape, order="F" if is_fortran else "C")
    except Exception as error:  # NumPy reads a header as Python's syntax, which fails in many ways
        raise TableError(f"{source} cannot be read: it is damaged, or not a file that NumPy wrote") from error
    if dtype.hasobject:
        raise TableError(f"{source} cannot be read: it holds Python objects, which are not read, for safety")
    raise TableError(
        f"{source} is damaged: it says that it holds an array of shape {shape}, {stated:,} bytes, and has "
        f"{there:,}"
    )
