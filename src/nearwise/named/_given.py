"""Reads the arguments of the nearest-matrix functions, or says by name and value what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common import checks, reading
from nearwise._common.types import Array, Index, Mask
from nearwise._common.warning import warn
from nearwise.core import Divergence, Frobenius, LogDet, VonNeumann

Frame = Callable[[Array], Any]  # makes a table of a matrix

_DIVERGENCES: dict[str, Divergence] = {
    "frobenius": Frobenius(),
    "logdet": LogDet(),
    "vonneumann": VonNeumann(),
}
_LARGEST = 1e100  # entries of A
_ROUNDED = 1e-5  # by which ones on a diagonal may differ from 1: what rounding to five digits leaves


def order(A: Any) -> int:
    """The number of rows."""
    shape = np.shape(A[0]) if isinstance(A, tuple) else np.shape(A)
    if len(shape) != 2 or shape[0] == 0 or (not isinstance(A, tuple) and shape[0] != shape[1]):
        raise ValueError(f"A must be a square matrix or a tuple (U, w), got shape {shape}")
    return int(shape[0])


def frame(A: Any, **others: Any) -> Frame | None:
    """What puts the labels of a pandas frame A on a matrix; refuses labels that are in another order."""
    if not _is_frame(A):
        return None
    _refuse_another_order(A.columns, A.index, "the columns of A", "its rows")
    for name, values in others.items():
        for axis in ("index", "columns"):
            if hasattr(values, axis):
                labels = getattr(values, axis)
                _refuse_another_order(labels, A.index, f"the {axis} of {name}", "the rows of A")
    kind: Any = type(A)
    return partial(kind, index=A.index, columns=A.columns)


def dense(A: Any) -> Array:
    """A without missing entries."""
    matrix, missing = with_missing(A)
    if missing is not None:
        i, j = np.argwhere(missing)[0]
        raise ValueError(
            f"A[{i}, {j}] is nan; only the Frobenius norm, and without a rank, can fill a missing entry"
        )
    return matrix


def with_missing(A: Any) -> tuple[Array, Mask | None]:
    """A with zeros for missing entries, and which these are; one that is given on one side is not missing.

    None where no entry is missing.
    """
    if isinstance(A, tuple):
        U, w = low_rank(A)
        return (U * w) @ U.T, None
    values, missing = _numbers(A), None
    nan = np.isnan(values)
    if nan.any():
        values = np.where(nan, values.T, values)
        if (nan & nan.T).any():
            missing = nan & nan.T
            values[missing] = 0
    matrix = reading.symmetric(values, "A")
    if not len(matrix):
        raise ValueError("A must have at least one row, got shape (0, 0)")
    largest = max(float(matrix.max()), -float(matrix.min()))
    if largest > _LARGEST:
        raise ValueError(f"A has an entry of size {largest:g}, too large to be squared and added up")
    return matrix, missing


class Correlations:
    """Checks that a matrix can be one of correlations: ones on the diagonal, no entry above one in size."""

    def __init__(self, A: Any, weights: Array | None, labels: Any) -> None:
        self.is_low_rank = isinstance(A, tuple)
        self.weights = None if weights is None or weights.ndim == 1 else weights
        self.labels = labels
        self.tolerance = max(_ROUNDED, reading.rounding(A.to_numpy() if _is_frame(A) else A))

    def __call__(self, matrix: Any, missing: Mask | None) -> None:
        """Refuse another diagonal, then warn of entries that are too large; `matrix` may be sparse."""
        self.diagonal(matrix.diagonal(), None if missing is None else missing.diagonal())
        if not self.is_low_rank:
            self._entries(matrix)

    def diagonal(self, found: Array, missing: Mask | None = None) -> None:
        """Refuse a diagonal that is not one; that of a low-rank matrix nobody has written, so it warns."""
        wrong = np.abs(found - 1.0) > self.tolerance
        if missing is not None:
            wrong &= ~missing
        if self.weights is not None:
            wrong &= self.weights.diagonal() > 0
        rows = np.flatnonzero(wrong)
        if not len(rows):
            return
        i, n = rows[0], len(found)
        name = f" (variable {reading.show(self.labels[i])})" if not isinstance(self.labels, range) else ""
        place = f"U[{i}] diag(w) U[{i}]^T" if self.is_low_rank else f"A[{i}, {i}]"
        said = f"{place}{name} is {found[i]:.6g}, and {len(rows)} of {n} entries of the diagonal are not 1"
        if self.is_low_rank:
            warn(
                f"{said}: they play no part. If U diag(w) U^T is a covariance matrix, divide row i of U by "
                "the root of entry (i, i)"
            )
            return
        raise ValueError(
            f"{said}, as those of a correlation matrix are: use nearest_covariance for a covariance matrix, "
            "or set the diagonal to 1 where the other entries are correlations"
        )

    def _entries(self, matrix: Any) -> None:
        if sparse.issparse(matrix):
            above = sparse.coo_array(sparse.triu(matrix, 1))
            (i, j), values = above.coords, above.data
        else:
            largest = max(float(matrix.max()), -float(matrix.min()))
            if largest <= 1.0 + self.tolerance:
                return
            i, j = np.nonzero(np.triu(np.abs(matrix) > 1.0 + self.tolerance, 1))
            values = matrix[i, j]
        wrong = np.abs(values) > 1.0 + self.tolerance
        if self.weights is not None:
            wrong &= self.weights[i, j] > 0
        count = int(np.count_nonzero(wrong))
        if count:
            k = int(np.argmax(np.where(wrong, np.abs(values), 0.0)))
            several = "entries above the diagonal are" if count > 1 else "entry above the diagonal is"
            a, b = reading.show(self.labels[i[k]]), reading.show(self.labels[j[k]])
            warn(
                f"{count} {several} larger than 1 in size, which no correlation is; the largest is "
                f"A[{a}, {b}] = {values[k]:.6g}"
            )


def low_rank(A: tuple[Any, Any]) -> tuple[Array, Array]:
    """U and w of a tuple."""
    [(_, U, w)] = reading.matrices(A)
    if U is None or w is None:
        raise ValueError("a tuple A must be (U, w), an (n, r) array and r numbers")
    return U, w


def sparse_matrix(A: Any) -> Any:
    """A sparse A."""
    [(matrix, _, _)] = reading.matrices(A)
    return matrix


def fixed_pairs(fixed: ArrayLike | None, n: int) -> Index | None:
    """The fixed entries above the diagonal, (m, 2)."""
    if fixed is None:
        return None
    values = reading.numbers(fixed, "fixed")
    if values.shape != (n, n):
        raise ValueError(f"fixed must have the shape of A, {(n, n)}, got {values.shape}")
    if np.isnan(values).any():
        i, j = np.argwhere(np.isnan(values))[0]
        raise ValueError(f"fixed[{i}, {j}] is nan, expected true or false")
    pattern = values != 0
    if (pattern != pattern.T).any():
        i, j = np.argwhere(pattern != pattern.T)[0]
        raise ValueError(f"fixed must be symmetric, but fixed[{i}, {j}] and fixed[{j}, {i}] differ")
    return np.argwhere(np.triu(pattern, 1))


def weights(values: ArrayLike | None, n: int) -> Array | None:
    """n weights of the variables, whose products are numbers, or n x n weights >= 0 of the entries."""
    if values is None:
        return None
    array = reading.numbers(values, "weights")
    if array.ndim != 2:
        return reading.column(array, n, "weight", reading.is_weight, reading.A_WEIGHT, unit="variable")
    if array.shape != (n, n):
        raise ValueError(f"weights must be {n} numbers or a {n} x {n} matrix, got shape {array.shape}")
    matrix = reading.symmetric(values, "weights")
    if matrix.min() < 0:
        i, j = np.argwhere(matrix < 0)[0]
        raise ValueError(f"weights[{i}, {j}] is {matrix[i, j]:g}, expected a number >= 0")
    if matrix.max() > _LARGEST:
        raise ValueError(f"weights has an entry of size {matrix.max():g}, too large to be added up")
    return matrix


def divergence(wanted: str | Divergence) -> Divergence:
    """By its name or as it is."""
    if isinstance(wanted, str):
        return _DIVERGENCES[checks.one_of(wanted, "divergence", tuple(_DIVERGENCES))]
    if not isinstance(wanted, tuple(type(known) for known in _DIVERGENCES.values())):
        raise TypeError(f"divergence must be Frobenius, LogDet or VonNeumann, got {wanted!r}")
    return wanted


def check(rank: int | None, tol: float, min_eigenvalue: float, n: int) -> None:
    """Refuse numbers out of their range."""
    checks.whole_number_or_none(rank, "rank", most=n)
    checks.tolerance(tol)
    if (
        isinstance(min_eigenvalue, bool)
        or not isinstance(min_eigenvalue, Real)
        or not 0 <= min_eigenvalue < 1
    ):
        raise ValueError(
            "min_eigenvalue must be a number >= 0 and below 1, the mean of the eigenvalues of a correlation "
            f"matrix, got {min_eigenvalue!r}"
        )


def _numbers(A: Any) -> NDArray[Any]:
    """The entries of A as floating-point numbers in their own precision."""
    values = A.toarray() if sparse.issparse(A) else A.to_numpy() if _is_frame(A) else np.asarray(A)
    if values.dtype == object and _is_frame(A):
        values = A.to_numpy(dtype=np.float64, na_value=np.nan)
    return values if values.dtype.kind == "f" else reading.numbers(values, "A")


def _is_frame(A: Any) -> bool:
    return hasattr(A, "columns") and hasattr(A, "index") and hasattr(A, "to_numpy")


def _refuse_another_order(labels: Any, expected: Any, name: str, other: str) -> None:
    """Labels that are the same, but not in the same order, would mix up the variables."""
    if labels.equals(expected) or len(labels) != len(expected):
        return
    if set(labels) == set(expected):
        k = int(np.flatnonzero(np.asarray(labels != expected))[0])
        raise ValueError(
            f"{name} and {other} have the same labels in another order: number {k} is {labels[k]!r} and "
            f"{expected[k]!r}"
        )
