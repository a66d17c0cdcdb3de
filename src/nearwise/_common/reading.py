"""Reads the arguments of the constraint constructors into fresh arrays, or says which row is wrong.

Ids become int64 or str arrays, numbers float64 arrays, and matrices symmetric ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common.errors import RowError
from nearwise._common.types import Array

Ids = NDArray[Any]  # int64 or str
Rows = ArrayLike | Iterable[Sequence[int] | Sequence[str]]

_DENSE = 8  # integer ids among so many numbers for each of them are looked up in a table of them
SYMMETRY_TOLERANCE = 1e-10  # relative to the largest entry: what rounding leaves in a computed matrix


def id_rows(rows: Any, *widths: int) -> Ids:
    """A table of ids with one of the given numbers of columns; an empty list is a table without rows."""
    ready = hasattr(rows, "__array__") or isinstance(rows, list | tuple)
    source = list(rows) if isinstance(rows, Iterable) and not ready else rows
    try:
        table = np.asarray(source)
    except ValueError:
        _raise_ragged(source, widths)
    if table.shape == (0,):
        return np.empty((0, widths[-1]), np.int64)
    if table.ndim != 2 or table.shape[1] not in widths:
        raise ValueError(
            f"expected a list of rows of {_either(widths)} ids, got an array of shape {table.shape}"
        )
    return _ids(table, source, "row")


def id_list(values: ArrayLike, name: str) -> Ids:
    """A list of ids."""
    table = regular_array(values, name)
    if table.ndim != 1:
        raise ValueError(f"{name} must be a list of ids, got an array of shape {table.shape}")
    return _ids(table, values, f"{name}, entry")


def numbers(values: Any, name: str) -> Array:
    """Real numbers of any shape, perhaps not finite."""
    array = regular_array(values, name)
    try:
        if array.dtype.kind in "biufO":
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"{name} must be real numbers, got {array.dtype} values")


def tuples_of_vectors(tuples: ArrayLike, y: ArrayLike | None) -> tuple[Array, Array]:
    """Pairs, triplets or quadruplets of vectors, shape (m, 2 to 4, d), and a sign +1 or -1 for each.

    Signs are read by `answers`.
    """
    vectors = numbers(tuples, "tuples")
    if vectors.ndim != 3 or vectors.shape[1] not in (2, 3, 4) or vectors.shape[2] == 0:
        raise ValueError(f"tuples must have shape (m, 2, d), (m, 3, d) or (m, 4, d), got {vectors.shape}")
    m, width, _ = vectors.shape
    infinite = np.argwhere(~np.isfinite(vectors))
    if len(infinite):
        raise ValueError(f"row {infinite[0, 0]}: the tuple contains {vectors[tuple(infinite[0])]}")
    if y is None and width == 2:
        raise ValueError("pairs need y: +1 (or 1, True) for similar, -1 (or 0, False) for dissimilar")
    if y is not None and width == 3:
        raise ValueError("triplets (a, p, n) say which distance is smaller, so y must be None")
    return vectors, answers(1.0 if y is None else y, m)


def told_apart(ids: NDArray[np.int64], X: Array) -> tuple[NDArray[np.int64], Array]:
    """Rows of one or two pairs of row numbers of X, where no pair is of one object and no two are the same.

    Where they were, the last object in question is another one, with the same features in a new row of X.
    """
    copy = np.zeros_like(ids)
    copy[:, 1::2] = ids[:, 1::2] == ids[:, ::2]
    if ids.shape[1] == 4:
        pairs = np.sort((ids + copy * len(X)).reshape(-1, 2, 2), axis=2)
        copy[:, 3] += (pairs[:, 0] == pairs[:, 1]).all(axis=1)
    numbers = ids + copy * len(X)
    added = np.unique(numbers[copy > 0])
    place = len(X) + np.searchsorted(added, numbers)
    return np.where(copy > 0, place, ids), np.concatenate([X, X[added % max(len(X), 1)]])


def finite(A: ArrayLike, name: str, ndim: int) -> Array:
    """A real array of finite numbers with the given number of dimensions."""
    try:
        is_complex = np.iscomplexobj(A)
        A = np.asarray(A if is_complex else np.asarray(A, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a regular array of numbers: {error}") from error
    if is_complex:
        raise ValueError(f"{name} must be real, got complex numbers")
    if A.ndim != ndim:
        raise ValueError(f"{name} must be {ndim}-dimensional, got shape {A.shape}")
    if np.count_nonzero(np.isfinite(A)) < A.size:
        place = np.argwhere(~np.isfinite(A))[0].tolist()
        raise ValueError(f"{name}{place} is {A[tuple(place)]}; every entry must be finite")
    return A


def symmetric(A: ArrayLike, name: str) -> Array:
    """A symmetric matrix; asymmetry of the size of rounding, by the precision of A, is averaged away."""
    tolerance = max(1e-8, rounding(A))
    A = finite(A, name, ndim=2)
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"{name} must be square, got shape {A.shape}")
    if not np.count_nonzero(A != A.T):
        return A.copy()
    half = A / 2.0  # the sum of two entries may overflow
    asymmetry = np.abs(half - half.T)
    if np.max(asymmetry, initial=0.0) > tolerance * np.max(np.abs(half), initial=0.0):
        i, j = divmod(int(np.argmax(asymmetry)), len(A))
        pair = f"{name}[{i}, {j}] = {A[i, j]} and {name}[{j}, {i}] = {A[j, i]}"
        raise ValueError(f"{name} must be symmetric, but {pair}")
    return half + half.T


def rounding(A: Any) -> float:
    """What rounding leaves in a matrix that was computed in single or half precision, relative to it."""
    kind = getattr(A, "dtype", None)
    if not isinstance(kind, np.dtype) or kind.kind != "f" or kind.itemsize >= 8:
        return 0.0
    return min(64 * float(np.finfo(kind).eps), 1e-2)


def stacked(matrices: Any) -> Array:
    """The symmetric parts of m >= 1 square matrices, (m, d, d)."""
    C = finite(matrices, "matrices", ndim=3)
    if C.shape[0] == 0 or C.shape[1] == 0 or C.shape[1] != C.shape[2]:
        raise ValueError(f"matrices must be square and at least one, got an array of shape {C.shape}")
    return np.asarray((C + C.swapaxes(1, 2)) / 2)


def column(
    values: ArrayLike,
    length: int,
    name: str,
    valid: Callable[[Array], NDArray[np.bool_]],
    expected: str,
    unit: str = "row",
) -> Array:
    """One valid number per row, from one number for all of them or one for each."""
    array = numbers(values, name)
    if array.shape not in ((), (length,)):
        raise ValueError(
            f"{name} must be one number or one per {unit}, {length} in all, got shape {array.shape}"
        )
    wrong = np.flatnonzero(~valid(array))
    if wrong.size:
        words = f"{name} is {float(array.flat[wrong[0]])}, expected {expected}"
        raise RowError(int(wrong[0]), words, unit) if array.ndim else ValueError(words)
    return np.array(np.broadcast_to(array, (length,)))


A_SIGN = "+1 or -1; or 1 and 0, or True and False, throughout"
WORDS = dict.fromkeys(("same", "similar", "yes", "y", "true", "1"), 1.0) | dict.fromkeys(
    ("different", "dissimilar", "no", "n", "false", "0", "-1"), -1.0
)


def answers(y: ArrayLike, length: int, unit: str = "row") -> Array:
    """+1 or -1 per row, given as such, as 1 and 0, True and False, or `WORDS`; 0 beside -1 is refused.

    A column of ones alone means +1 either way.
    """
    table = regular_array(y, "y")
    if table.dtype.kind in "UO" and all(isinstance(word, str) for word in table.flat):
        unknown = next((word for word in table.flat if word.casefold() not in WORDS), None)
        if unknown is not None:
            raise ValueError(f"y must be {A_SIGN}, or words as {', '.join(WORDS)}, got {str(unknown)!r}")
        table = np.reshape([WORDS[word.casefold()] for word in table.flat], table.shape)
    given = numbers(table, "y")
    if ((given == 0.0) | (given == 1.0)).all():
        given = 2.0 * given - 1.0
    return column(given, length, "y", lambda sign: np.abs(sign) == 1.0, A_SIGN, unit)


def column_groups(groups: ArrayLike, n_columns: int) -> NDArray[np.int64]:
    """The group of every column, as numbers from 0."""
    given = np.asarray(groups)
    if given.shape != (n_columns,):
        raise ValueError(
            f"groups must name the group of each of {n_columns} columns, got shape {given.shape}"
        )
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(f"groups: column {int(np.flatnonzero(np.isnan(given))[0])} has no group (NaN)")
    return np.asarray(np.unique(given, return_inverse=True)[1].ravel(), dtype=np.int64)


def regular_array(values: Any, name: str) -> NDArray[Any]:
    """An array of whatever type NumPy finds."""
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be a regular array, but its rows differ in length") from None


def positive(array: Array) -> NDArray[np.bool_]:
    """Where a number is finite and > 0."""
    return np.isfinite(array) & (array > 0.0)


MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none", "<na>", "#n/a"))  # texts, in small letters

LARGEST_WEIGHT = 1e50  # products of four weights, and their squares, are floating-point numbers
A_WEIGHT = f"a number from {1.0 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"


def is_weight(array: Array) -> NDArray[np.bool_]:
    """Where a number is one that rows, pairs or constraints can be weighed by."""
    return (array >= 1.0 / LARGEST_WEIGHT) & (array <= LARGEST_WEIGHT)


def not_negative(array: Array) -> NDArray[np.bool_]:
    """Where a number is finite and >= 0."""
    return np.isfinite(array) & (array >= 0.0)


def matrices(A: Any, symmetrise: bool = False) -> list[tuple[Any, Array | None, Array | None]]:
    """One triple per matrix in A: (matrix, None, None), or (None, factor, weights) for a low-rank one."""
    if not isinstance(A, list | tuple) or _is_low_rank(A):
        items = list(A) if _ndim(A) == 3 else [A]
    elif A and _ndim(A[0]) == 1 and not _is_low_rank(A[0]):
        items = [A]  # the rows of one matrix
    else:
        items = list(A)
    return [
        _low_rank(item, k) if _is_low_rank(item) else _symmetric(item, k, symmetrise)
        for k, item in enumerate(items)
    ]


def refuse_self_pairs(pairs: Ids) -> None:
    """Refuses rows (i, i)."""
    same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if same.size:
        raise RowError(int(same[0]), f"the object {show(pairs[same[0], 0])} is paired with itself")


def refuse_duplicates(ids: Ids, name: str) -> None:
    """Refuses an id that occurs twice in a list."""
    order = np.argsort(ids, kind="stable")
    repeated = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if repeated.size:
        first, second = order[repeated[0] : repeated[0] + 2]
        raise ValueError(f"{name}: the id {show(ids[first])} occurs twice, in entries {first} and {second}")


def row_finder(n_objects: int, sample_ids: ArrayLike | None) -> Callable[[Ids], NDArray[np.int64]]:
    """The function that turns an array of ids into row numbers, -1 for an unknown id."""
    known = np.arange(n_objects) if sample_ids is None else id_list(sample_ids, "sample_ids")
    if len(known) != n_objects:
        raise ValueError(f"sample_ids has {len(known)} entries, but there are {n_objects} objects")
    refuse_duplicates(known, "sample_ids")
    order = np.argsort(known)
    ordered = known[order]
    lowest, highest = (
        (int(ordered[0]), int(ordered[-1])) if known.dtype.kind == "i" and n_objects else (0, -1)
    )
    is_dense = 0 <= highest - lowest < _DENSE * n_objects
    row_of = np.full(highest - lowest + 2 if is_dense else 0, -1, np.int64)  # the last is that of no id
    if is_dense:
        row_of[known - lowest] = np.arange(n_objects)

    def find(ids: Ids) -> NDArray[np.int64]:
        if ids.dtype.kind != known.dtype.kind or n_objects == 0:
            return np.full(ids.shape, -1, np.int64)
        if is_dense:
            return row_of[np.where((ids >= lowest) & (ids <= highest), ids - lowest, -1)]
        place = np.minimum(np.searchsorted(ordered, ids), n_objects - 1)
        return np.where(ordered[place] == ids, order[place], -1)

    return find


def show(identifier: Any) -> str:
    """An id as the user wrote it: 12 or 'a'."""
    return repr(identifier.item() if isinstance(identifier, np.generic) else identifier)


def _ids(table: NDArray[Any], source: Any, place: str) -> Ids:
    """The ids in `table`, the array that NumPy made of `source`."""
    kind = table.dtype.kind
    if kind in "OT" or (kind == "U" and not hasattr(source, "dtype")):
        # NumPy makes strings of all entries of a list that mixes strings and numbers.
        return _ids_of_objects(np.asarray(source, dtype=object), place)
    if kind == "U":
        return table.astype(str)
    if kind not in "iuf":
        raise TypeError(f"ids must be all integers or all strings, got {table.dtype} values")
    if kind == "f":
        whole = (np.floor(table) == table) & (np.abs(table) <= 2.0**53)  # beyond, floats skip integers
        _raise_at(~whole, table, place, "is not a whole number, or too large for a float to hold exactly")
    if kind == "u":
        _raise_at(table > np.iinfo(np.int64).max, table, place, "does not fit in 64 bits")
    return table.astype(np.int64)


def _ids_of_objects(table: NDArray[Any], place: str) -> Ids:
    types = set(map(type, table.flat))
    if all(issubclass(kind, str) for kind in types):
        return table.astype(str)
    family: type = str if isinstance(table.flat[0], str) else Integral
    for index, value in np.ndenumerate(table):
        if not isinstance(value, family) or isinstance(value, bool):
            found = f"the id {show(value)} is of type {type(value).__name__}"
            raise TypeError(f"{place} {index[0]}: {found}; ids must be all integers or all strings")
    limits = np.iinfo(np.int64)
    _raise_at((table < limits.min) | (table > limits.max), table, place, "does not fit in 64 bits")
    return table.astype(np.int64)


def _raise_at(wrong: NDArray[np.bool_], table: NDArray[Any], place: str, reason: str) -> None:
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0])
        raise RowError(int(index[0]), f"the id {show(table[index])} {reason}", place)


def _raise_ragged(rows: Any, widths: tuple[int, ...]) -> NoReturn:
    """Names the first row that has not the length of the first good one."""
    for number, row in enumerate(rows):
        length = len(row) if hasattr(row, "__len__") and not isinstance(row, str) else None
        if length not in widths:
            found = "is not a row" if length is None else f"has {length} entries"
            raise ValueError(f"row {number} {found}, expected {_either(widths)} ids: {row!r}") from None
        widths = (len(row),)
    raise ValueError(f"expected a list of rows of {_either(widths)} ids") from None


def _either(widths: tuple[int, ...]) -> str:
    return " or ".join(map(str, widths))


def _ndim(value: Any) -> int | None:
    """The number of dimensions, or None where a nested list has no shape."""
    try:
        return int(np.ndim(value))
    except ValueError:
        return None


def _is_low_rank(A: Any) -> bool:
    return isinstance(A, tuple) and len(A) == 2 and _ndim(A[0]) == 2 and _ndim(A[1]) == 1


def _low_rank(pair: tuple[Any, Any], number: int) -> tuple[None, Array, Array]:
    columns = pair[0].toarray() if sparse.issparse(pair[0]) else pair[0]
    factor = numbers(columns, f"matrix {number}: the factor")
    weights = numbers(pair[1], f"matrix {number}: the weights")
    if factor.shape[1] != weights.size:
        count = f"{factor.shape[1]} columns, but there are {weights.size} weights"
        raise ValueError(f"matrix {number}: the factor has {count}")
    _refuse_infinite(factor, f"matrix {number}: factor")
    _refuse_infinite(weights, f"matrix {number}: weights")
    return None, factor, weights


def _symmetric(A: Any, number: int, symmetrise: bool) -> tuple[Any, None, None]:
    name = f"matrix {number}"
    is_sparse = sparse.issparse(A) and A.dtype.kind in "biuf"
    matrix = A.astype(np.float64) if is_sparse else numbers(A, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        hint = "a square matrix or a tuple (U, weights)"
        raise ValueError(f"{name} must be {hint}, got an array of shape {matrix.shape}")
    if is_sparse:
        matrix = sparse.csr_array(matrix)
        matrix.sum_duplicates()
    _refuse_infinite(matrix, f"{name}: A")
    with np.errstate(over="ignore"):
        gap = abs(matrix - matrix.T)
    if not symmetrise and gap.max() > max(SYMMETRY_TOLERANCE, rounding(A)) * abs(matrix).max():
        i, j = map(int, np.unravel_index(int(gap.argmax()), gap.shape))
        entries = f"A[{i}, {j}] is {float(matrix[i, j])}, but A[{j}, {i}] is {float(matrix[j, i])}"
        raise ValueError(f"{name} must be symmetric, or symmetrise=True be given: {entries}")
    return (matrix / 2.0 + matrix.T / 2.0 if gap.max() > 0.0 else matrix), None, None


def _refuse_infinite(array: Any, name: str) -> None:
    if not np.isfinite(array.data if sparse.issparse(array) else array).all():
        entries = sparse.coo_array(array)
        first = np.flatnonzero(~np.isfinite(entries.data))[0]
        index = ", ".join(str(axis[first]) for axis in entries.coords)
        raise ValueError(f"{name}[{index}] is {float(entries.data[first])}, expected a finite number")
