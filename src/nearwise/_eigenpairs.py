"""Eigenpairs of a symmetric matrix whose small eigenvalues are as exact, relatively, as the large ones.

`numpy.linalg.eigh` knows every eigenvalue only up to rounding errors of the largest. LogDet and von Neumann
feel them relatively. So the eigenvectors are corrected once (as in Ogita and Aishima 2018), and V^T A V is
summed without rounding errors: what its diagonal lacks is of the order of the square of what V lacks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ALIKE = 1e-3  # ratio of the eigenvalues from which on `eigh` is exact enough
_LARGEST_ORDER = 200  # up to which the correction takes two tenths of a second at most
_SMALL = 1e-4  # relative size of the eigenvalues that are told apart anew, among themselves
_APART = 1e-8  # relative distance of eigenvalues from which on the correction is of first order
_SLICES = 4  # parts of a matrix, each short enough that products of two are summed without rounding


def eigenpairs(A: Array) -> tuple[Array, Array]:
    """Eigenvalues, in ascending order, and orthonormal eigenvectors of a symmetric matrix.

    Up to order 200 an eigenvalue has an error of about 1e-15 of itself plus 1e-28 of the largest, given the
    entries of A; in larger matrices, one of about 1e-15 of the largest.
    """
    values, V = np.linalg.eigh(A)
    size = float(np.abs(values).max(initial=0.0))
    if not 0 < size < np.inf or len(A) > _LARGEST_ORDER or np.abs(values).min() >= _ALIKE * size:
        return values, V
    scale = 2.0 ** np.round(np.log2(size))
    unit = A / scale
    inside, lack = _in_basis(unit, V)
    inside, _ = _in_basis(unit, V := (V - V @ lack / 2) @ _correction(inside))
    found = np.diagonal(inside)
    order = np.argsort(found, kind="stable")
    return np.asarray(scale * found[order]), np.asarray(V[:, order])


def _in_basis(A: Array, V: Array) -> tuple[Array, Array]:
    """A in the orthonormal basis that is next to V, and what V^T V is more than I."""
    high, low = _product(A, V)
    T, rest = _product(V.T, high)
    T = T + (rest + V.T @ low)
    gram, rest = _product(V.T, V)
    lack = (gram - np.eye(len(V))) + rest
    # (I + lack)^-1/2 T (I + lack)^-1/2, to second order where T is large
    inside = T - (lack @ T + T @ lack) / 2 + lack @ T @ lack / 4
    return (inside + inside.T) / 2, lack


def _correction(C: Array) -> Array:
    """A rotation that takes the small eigenvalues of a nearly diagonal matrix apart from all others."""
    values = np.diagonal(C)
    small = np.abs(values) < _SMALL * np.abs(values).max()
    found, P = np.linalg.eigh(C[np.ix_(small, small)])
    apart = found - values[~small][:, None]
    clear = np.abs(apart) > _APART
    coupling = C[np.ix_(~small, small)] @ P
    tilt = np.where(clear, coupling / np.where(clear, apart, 1.0), 0.0)
    out = np.eye(len(C))
    out[np.ix_(small, small)] = P
    out[np.ix_(~small, small)] = tilt
    out[np.ix_(small, ~small)] = -P @ tilt.T
    return out


def _product(A: Array, B: Array) -> tuple[Array, Array]:
    """A B in two parts, the second of rounding errors of the first (Ozaki, Ogita, Oishi and Rump 2012)."""
    bits = int((53 - np.ceil(np.log2(max(A.shape[1], 2)))) // 2)
    left, right = _slices(A, bits), [part.T for part in _slices(B.T, bits)]
    high, low = np.zeros((len(A), B.shape[1])), np.zeros((len(A), B.shape[1]))
    for total in range(_SLICES):
        for i in range(total + 1):
            part = left[i] @ right[total - i]
            sum_ = high + part
            kept = sum_ - high
            low += (high - (sum_ - kept)) + (part - kept)
            high = sum_
    return high, low


def _slices(A: Array, bits: int) -> list[Array]:
    """Matrices that add up to A up to the last of their digits, with few binary digits in each row."""
    out, left = [], A
    for _ in range(_SLICES):
        largest = np.abs(left).max(axis=1, initial=0.0, keepdims=True)
        shift = 0.75 * np.exp2(np.frexp(largest)[1] + 53 - bits)
        part = (left + shift) - shift
        out.append(part)
        left = left - part
    return out
