"""Data that are not text: NumPy arrays, Parquet files, and the data sets of `nearwise.datasets`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import one_line
from nearwise.data import datasets
from nearwise.data.tables._sizes import check_arrays, check_parquet
from nearwise.data.tables._table import (
    Loaded,
    Raw,
    Table,
    TableError,
    as_texts,
    not_a_number_advice,
    present,
    refuse_duplicate_names,
)

INDEX_COLUMN = "__index_level_0__"  # where pandas keeps the index of a table in a Parquet file
_MOST_ENTRIES = 500_000_000  # of a sparse data set that is made dense: 4 GB


@dataclass(frozen=True, eq=False)
class Arrays:
    """Rows of numbers, and beside them named arrays with one entry per row."""

    source: str
    matrix: NDArray[Any]
    beside: Mapping[str, NDArray[Any]]
    columns: tuple[str, ...]
    named: bool
    scalars: bool
    notices: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[int, ...]:
        return tuple(range(self.matrix.shape[1]))

    def load(self, numbers: Sequence[int], texts: Sequence[int]) -> Loaded:
        """Those columns as numbers, and those as texts."""
        for column in numbers:
            if column not in self.features:
                raise TableError(f"{self.source}: {self.columns[column]!r} is not a column of the matrix")
        names = tuple(self.columns[column] for column in numbers)
        whole = tuple(numbers) == self.features
        X = np.array(self.matrix if whole else self.matrix[:, list(numbers)], dtype=np.float64, order="C")
        table = Table(self.source, X, names, scalars=self.scalars, named=self.named)
        return Loaded(table, {column: self._texts(column) for column in texts})

    def holds_vectors(self, columns: Sequence[int]) -> bool:
        return not self.scalars

    def raw(self, columns: Sequence[int], texts: Sequence[int]) -> Raw:
        """Those columns as numbers, and those as texts."""
        loaded = self.load(columns, texts)
        return Raw(list(loaded.table.X.T), loaded.texts, self.scalars)

    def _texts(self, column: int) -> NDArray[np.object_]:
        in_matrix = column < self.matrix.shape[1]
        values = self.matrix[:, column] if in_matrix else self.beside[self.columns[column]]
        return as_texts(values.tolist())


def open_arrays(source: str, data: bytes) -> Arrays:
    """A .npy file with one matrix, or a .npz file with the matrix X and perhaps labels and ids beside it."""
    check_arrays(source, data)
    try:
        stored = np.load(io.BytesIO(data), allow_pickle=False)
        arrays = {"X": stored} if isinstance(stored, np.ndarray) else dict(stored)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a member of the archive is no array")
    except Exception as error:  # NumPy reads a header as Python's syntax, which fails in many ways
        reason = "it holds Python objects, which are not read, for safety"
        if "allow_pickle" not in str(error):
            reason = "it is damaged, or not a file that NumPy wrote"
        raise TableError(f"{source} cannot be read: {reason}") from error
    given = arrays.pop("feature_names", None)
    name = "X"
    if "X" not in arrays:
        matrices = [key for key, array in arrays.items() if array.ndim == 2]
        if len(matrices) != 1:
            held = ", ".join(f"{key} {array.shape}" for key, array in arrays.items()) or "nothing"
            raise TableError(f"{source} has no array X and not one matrix, but {held}; call the matrix X")
        name = matrices[0]
    matrix = arrays.pop(name)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise TableError(
            f"{source} holds an array of shape {matrix.shape}; a matrix with one row per object is needed"
        )
    if matrix.dtype.kind not in "biuf":
        raise TableError(f"{source} holds an array of {matrix.dtype}; real numbers are needed")
    n, d = matrix.shape
    names = tuple(f"x{k}" for k in range(d)) if given is None else tuple(map(str, given.ravel()))
    if len(names) != d:
        raise TableError(f"{source} has {d} columns, but {len(names)} feature_names")
    beside = {key: array for key, array in arrays.items() if array.shape == (n,) and key not in names}
    columns = (*names, *beside)
    refuse_duplicate_names(source, columns)
    return Arrays(source, matrix, beside, columns, named=given is not None, scalars=False)


def open_dataset(source: str, name: str) -> Arrays:
    """A data set by name, with its classes in the column "target"."""
    try:
        data = datasets.load(name)
    except (ValueError, LookupError) as error:
        raise TableError(f"{source}: {error.args[0]}") from error
    matrix = data.X
    if hasattr(matrix, "toarray") and np.prod(matrix.shape, dtype=float) <= _MOST_ENTRIES:
        matrix = matrix.toarray()
    if not isinstance(matrix, np.ndarray):
        raise TableError(f"{source}: this data set is not a matrix of numbers")
    matrix = matrix.reshape(len(matrix), -1)
    names = data.feature_names or tuple(f"x{k}" for k in range(matrix.shape[1]))
    beside = {}
    if data.y is not None:
        beside["target"] = np.array(data.target_names)[data.y] if data.target_names else data.y
    scalars = data.feature_names is not None
    return Arrays(source, matrix, beside, (*names, *beside), named=scalars, scalars=scalars)


@dataclass(frozen=True, eq=False)
class ParquetFile:
    """A Parquet file: columns of numbers, or one column of vectors."""

    source: str
    table: Any
    columns: tuple[str, ...]
    features: tuple[int, ...]
    notices: tuple[str, ...]
    named: bool = True

    def load(self, numbers: Sequence[int], texts: Sequence[int]) -> Loaded:
        """Those columns as numbers, and those as texts."""
        found = {column: self._texts(column) for column in texts}
        vectors = [column for column in numbers if self._is_list(column)]
        if not vectors:
            X = np.empty((self.table.num_rows, len(numbers)))
            for k, column in enumerate(numbers):
                X[:, k] = self._numbers(column)
            return Loaded(Table(self.source, X, tuple(self.columns[column] for column in numbers)), found)
        if len(numbers) > 1:
            other = next(column for column in numbers if column != vectors[0])
            raise TableError(
                f"{self.source}: column {self.columns[vectors[0]]!r} holds vectors, and "
                f"{self.columns[other]!r} is a column beside it; choose with --features or --drop"
            )
        X = self._vectors(vectors[0])
        names = tuple(f"x{k}" for k in range(X.shape[1]))
        table = Table(self.source, X, names, scalars=False, vector_column=self.columns[vectors[0]])
        return Loaded(table, found)

    def holds_vectors(self, columns: Sequence[int]) -> bool:
        return any(map(self._is_list, columns))

    def raw(self, columns: Sequence[int], texts: Sequence[int]) -> Raw | None:
        """Those columns as numbers, or as texts where they are something else; None for vectors."""
        if self.holds_vectors(columns):
            return None
        found = []
        for column in columns:
            values = _storage(self.table.column(column))
            found.append(_as_floats(values) if _is_numeric(values.type) else present(self._texts(column)))
        return Raw(found, {column: self._texts(column) for column in texts})

    def _texts(self, column: int) -> NDArray[np.object_]:
        return as_texts(self._values(self.table.column(column), column))

    def _values(self, values: Any, column: int) -> list[Any]:
        """As Python's objects, which hold no text that is not UTF-8, nor every date of Arrow."""
        try:
            found: list[Any] = values.to_pylist()
        except (ValueError, OverflowError) as error:
            name = self.columns[column]
            raise TableError(
                f"{self.source}, column {name!r}: a {values.type} cannot be read: {one_line(error)}"
            ) from None
        return found

    def _is_list(self, column: int) -> bool:
        import pyarrow as pa

        kind = _storage(self.table.column(column)).type
        return bool(
            pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        )

    def _numbers(self, column: int) -> NDArray[np.float64]:
        values = _storage(self.table.column(column))
        name = self.columns[column]
        if not _is_numeric(values.type):
            found = enumerate(self._values(values, column))
            row, first = next(((k, value) for k, value in found if value is not None), (0, None))
            advice = not_a_number_advice(str(first), name)
            raise TableError(f"{self.source}, row {row}, column {name!r}: {advice}")
        return _as_floats(values)

    def _vectors(self, column: int) -> NDArray[np.float64]:
        import pyarrow.compute as pc

        values, name = _storage(self.table.column(column)), self.columns[column]
        lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            raise TableError(f"{self.source}, row {row}, column {name!r}: there is no vector in this row")
        entries = pc.list_flatten(values)
        if not len(lengths) or not _is_numeric(entries.type):
            found = "no rows" if not len(lengths) else f"lists of {entries.type}"
            raise TableError(f"{self.source}, column {name!r} holds {found}; vectors of numbers are needed")
        wrong = np.flatnonzero(lengths != lengths[0])
        if wrong.size or lengths[0] == 0:
            row = wrong[0] if wrong.size else 0
            expected = f"row 0 has {lengths[0]}" if wrong.size else "a vector needs one or more"
            raise TableError(
                f"{self.source}, row {row}, column {name!r}: the vector has {lengths[row]} numbers, "
                f"but {expected}"
            )
        if entries.null_count:
            row = entries.is_null().to_pylist().index(True) // int(lengths[0])
            raise TableError(f"{self.source}, row {row}, column {name!r}: a number of the vector is missing")
        return np.ascontiguousarray(_as_floats(entries).reshape(len(lengths), int(lengths[0])))


def open_parquet(source: str, data: bytes) -> ParquetFile:
    """A Parquet file, read whole."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise TableError(
            f'{source}: reading Parquet needs pyarrow: pip install "nearwise[tables]"'
        ) from error
    try:
        check_parquet(source, pq.ParquetFile(pa.BufferReader(data)))
        table = pq.read_table(pa.BufferReader(data))
        columns = tuple(table.column_names)
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{source} is damaged, or not a Parquet file") from error
    if not columns:
        raise TableError(f"{source} has no columns")
    refuse_duplicate_names(source, columns)
    features = tuple(k for k, name in enumerate(columns) if name != INDEX_COLUMN)
    notices = () if len(features) == len(columns) else (f"{source}: the index of pandas is not used",)
    return ParquetFile(source, table, columns, features, notices)


def _storage(values: Any) -> Any:
    """The values of a column, decoded where they are stored by dictionary or as an extension type."""
    import pyarrow as pa

    if isinstance(values.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if pa.types.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(check(kind) for check in checks)


def _as_floats(values: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
