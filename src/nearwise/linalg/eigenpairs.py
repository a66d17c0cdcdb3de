"""Eigenpairs of a symmetric matrix whose small eigenvalues are as exact, relatively, as the large ones.

`numpy.linalg.eigh` knows every eigenvalue only up to rounding errors of the largest. LogDet and von Neumann
feel them relatively. So the eigenvectors are corrected once (as in Ogita and Aishima 2018), and V^T A V is
summed without rounding errors: what its diagonal lacks is of the order of the square of what V lacks.
"""

from __future__ import annotations

import math

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg.dense import spectrum
from nearwise.linalg.pairs import Cut, Pair, cut, times_transposed

_ALIKE = 1e-3  # ratio of the eigenvalues from which on `eigh` is exact enough
_LARGEST_ORDER = 200  # up to which the correction takes two tenths of a second at most
_SMALL = 1e-4  # relative size of the eigenvalues that are told apart anew, among themselves
_APART = 1e-8  # relative distance of eigenvalues from which on the correction is of first order


def eigenpairs(A: Array | Pair) -> tuple[Array, Array]:
    """Eigenvalues, in ascending order, and orthonormal eigenvectors of a symmetric matrix.

    Up to order 200 an eigenvalue has an error of about 1e-15 of itself plus 1e-28 of the largest, given the
    entries of A; in larger matrices, one of about 1e-15 of the largest.
    """
    values, V = spectrum(A.rounded if isinstance(A, Pair) else A)
    sizes = np.abs(values)
    size = float(sizes.max(initial=0.0))
    if not 0 < size < np.inf or len(V) > _LARGEST_ORDER or sizes.min() >= _ALIKE * size:
        return values, V
    scale = 2.0 ** round(math.log2(size))
    unit = cut(Pair(A.high / scale, A.low / scale) if isinstance(A, Pair) else A / scale)
    inside, lack = _in_basis(unit, V)
    inside, _ = _in_basis(unit, V := (V - V.dot(lack) / 2).dot(_correction(inside)))
    found = inside.diagonal()
    order = found.argsort(kind="stable")
    return np.asarray(scale * found[order]), np.asarray(V[:, order])


def _in_basis(A: Cut, V: Array) -> tuple[Array, Array]:
    """A in the orthonormal basis that is next to V, and what V^T V is more than I."""
    of_V, n = cut(V.T), len(V)
    high, low = times_transposed(A, of_V)
    AV_and_V = Pair(np.concatenate([high.T, V.T]), np.concatenate([low.T, np.zeros((n, n))]))
    both = times_transposed(of_V, cut(AV_and_V))
    T, lack = both.rounded[:, :n], (both.high[:, n:] - np.eye(n)) + both.low[:, n:]  # the difference is exact
    # (I + lack)^-1/2 T (I + lack)^-1/2, to second order where T is large
    left = lack.dot(T)
    inside = T - (left + T.dot(lack)) / 2 + left.dot(lack) / 4
    return (inside + inside.T) / 2, lack


def _correction(C: Array) -> Array:
    """A rotation that takes the small eigenvalues of a nearly diagonal matrix apart from all others."""
    values = C.diagonal()
    sizes = np.abs(values)
    is_small = sizes < _SMALL * sizes.max()
    small, large = is_small.nonzero()[0], (~is_small).nonzero()[0]
    found, P = spectrum(C[small[:, None], small])
    apart = found - values[large][:, None]
    apart[np.abs(apart) <= _APART] = np.inf
    tilt = C[large[:, None], small].dot(P) / apart
    out = np.eye(len(C))
    out[small[:, None], small] = P
    out[large[:, None], small] = tilt
    out[small[:, None], large] = (-P).dot(tilt.T)
    return out
