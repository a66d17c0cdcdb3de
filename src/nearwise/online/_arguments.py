"""Reads the arguments of online updates, or says what is wrong with them before anything has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import reading
from nearwise._common.errors import RowsError
from nearwise._common.types import Array, Index

_LARGEST = 1e300  # entries of a matrix, so that its eigenvalues are numbers
_SEMIDEFINITE = 1e-10  # negative eigenvalues up to this multiple of the largest are rounding


def vectors(z: ArrayLike, d: int, name: str) -> tuple[Array, bool]:
    """Finite vectors of length d as rows, and whether it was a single one."""
    rows = reading.numbers(z, name)
    if rows.shape[-1:] != (d,) or rows.ndim > 2:
        raise ValueError(f"{name} must be a vector of length {d}, or rows of such, got shape {rows.shape}")
    if not np.isfinite(rows).all():
        wrong = np.argwhere(~np.isfinite(rows))
        place = f"row {wrong[0, 0]}: " if rows.ndim == 2 else ""
        raise ValueError(f"{place}{name} contains {rows[tuple(wrong[0])]}")
    return np.ascontiguousarray(np.atleast_2d(rows)), rows.ndim == 1


def not_finite(row: int, name: str) -> RowsError:
    """What to raise where the square of a row overflows."""
    reason = f": the squared length of {name} is not a finite number; scale the data"
    return RowsError([row], before="row ", after=reason)


def targets(y: ArrayLike, m: int) -> Array:
    """One finite number per row."""
    return reading.column(y, m, "y", np.isfinite, "a finite number")


def signs(y: ArrayLike, m: int) -> Array:
    """+1 or -1 per row; 1 and 0, or True and False, are taken too."""
    return reading.answers(y, m)


def semidefinite(matrix: ArrayLike, d: int, name: str, definite: bool = False) -> NDArray[Any]:
    """A Hermitian positive semidefinite, or definite, d x d matrix; real where its imaginary part is zero."""
    M = square(matrix, d, name)
    largest = float(np.abs(M).max())
    if largest > _LARGEST:
        raise ValueError(f"{name} has an entry of size {largest:.3g}, too large to compute with")
    asymmetry, rounding = np.abs(M - M.conj().T).max(), reading.rounding(matrix)
    if asymmetry > max(1e-8, rounding) * largest:
        raise ValueError(f"{name} must be symmetric, or Hermitian, but entries differ by {asymmetry:.3g}")
    M = (M + M.conj().T) / 2
    values = np.linalg.eigvalsh(M)
    least = float(values[0])
    if (definite and least <= 0.0) or least < -max(_SEMIDEFINITE, rounding) * max(float(values[-1]), 0.0):
        kind = "definite" if definite else "semidefinite"
        raise ValueError(f"{name} must be positive {kind}, but has the eigenvalue {least:.3g}")
    return M


def square(A: Any, d: int, name: str) -> NDArray[Any]:
    """A d x d array of finite numbers, real or complex; real where all imaginary parts are zero."""
    array = reading.regular_array(A, name)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{name} must be an array of numbers, got {array.dtype} values")
    if array.shape != (d, d):
        raise ValueError(f"{name} must have shape {(d, d)}, got {array.shape}")
    if not np.isfinite(array).all():
        i, j = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{name}[{i}, {j}] is {array[i, j]}, expected a finite number")
    if array.dtype.kind == "c" and np.any(array.imag):
        return array.astype(np.complex128)
    return np.array(array.real, dtype=np.float64)


def pairs(ij: ArrayLike, d: int) -> Index:
    """Rows (i, j) of two different numbers below d."""
    rows = np.atleast_2d(reading.regular_array(ij, "a pair")).astype(np.int64)
    wrong = np.argwhere((rows < 0) | (rows >= d))
    if len(wrong):
        index = rows[tuple(wrong[0])]
        raise ValueError(f"pair {wrong[0, 0]}: the index {index} is not between 0 and {d - 1}")
    reading.refuse_self_pairs(rows)
    return rows


def is_pair(A: Any) -> bool:
    """Whether an instance is two whole numbers."""
    array = reading.regular_array(A, "the instance")
    return array.shape == (2,) and array.dtype.kind in "iu"


def added(total: float, terms: Array) -> float:
    """The sum, in order, so that it does not depend on how a stream is cut."""
    if len(terms) == 1:
        return total + float(terms[0])
    return float(np.add.accumulate(np.concatenate([[total], terms]))[-1])


def with_squares(total: float, errors: Array) -> float:
    """The same of the squares of errors; inf where these are too large."""
    with np.errstate(over="ignore"):
        return added(total, np.square(errors))


def predicted(form: Callable[[], Array], single: bool, name: str) -> Any:
    """The values of a quadratic form, or the row of the vectors `name` for which there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = form()
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise not_finite(int(wrong[0]), name)
    return answer(values, single)


def answer(values: Array, single: bool) -> Any:
    """One number for a single example, else an array."""
    return float(values[0]) if single else values
