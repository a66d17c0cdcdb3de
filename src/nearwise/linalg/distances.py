"""Squared Euclidean distances between rows, dense or sparse.

Distances of all rows to all others are |x|^2 + |y|^2 - 2 x'y, one product of matrices. That loses the digits
of a distance that is short beside the rows: rounding leaves an error of about d eps (|x|^2 + |y|^2). So what
is typical of the rows is taken off first, which one row with a huge entry does not move, and every distance
that rounding may still spoil is computed once more from the difference of its rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Index

ERROR = 1e-8  # largest relative error of a squared distance from products

_GATHERED = 1 << 18  # numbers in differences of rows at a time, few enough for a processor's cache
_AT_A_TIME = 1 << 19  # distances from products at a time, few enough for a processor's cache
_FEW_COLUMNS = 8  # up to which differences take less time than products (2,000 rows to each other)
_FEW_ENTRIES = 1 << 19  # of differences of all rows, which take less time than products and their checks
_MANY = 1 / 16  # of the distances to some rows: where more are spoilt, all of these are computed once more
_TYPICAL = 101  # rows that a centre comes from


def all_squared_distances(X: Any, Y: Any) -> Array:
    """Of every row of X, dense or sparse, to every row of Y; each has a relative error of at most `ERROR`."""
    X, Y = _doubled(X), _doubled(Y)
    if sparse.issparse(X) and sparse.issparse(Y):
        # Distances are sums over columns: those that are mostly filled are centred by themselves.
        filled = np.asarray((Y != 0).sum(axis=0)).ravel() > Y.shape[0] / 2
        if not filled.any():
            return _by_products(X, Y, X, Y)
        found = _by_products(*2 * (X[:, ~filled], Y[:, ~filled]))
        found += all_squared_distances(X[:, filled].toarray(), Y[:, filled].toarray())
        return found
    if sparse.issparse(X) or sparse.issparse(Y):
        return _by_products(X, Y, X, Y)
    few = X.shape[0] * Y.shape[0] * X.shape[1] <= _FEW_ENTRIES
    if few or X.shape[1] <= _FEW_COLUMNS:
        return _by_differences(X, Y)
    centre = centre_of(Y)
    return _by_products(X - centre, Y - centre, X, Y)


def squared_distances(X: Any, i: Index, j: Index, Y: Any = None) -> Array:
    """Of the rows i of X, dense or sparse, to the rows j of Y, by default of X; from their differences."""
    X = _by_rows(X)
    Y = X if Y is None else _by_rows(Y)
    widths = (M.nnz / max(M.shape[0], 1) if sparse.issparse(M) else M.shape[1] for M in (X, Y))
    out = np.empty(len(i))
    step = int(max(_GATHERED // max(*widths, 1), 1))
    are_sparse = sparse.issparse(X) and sparse.issparse(Y)
    for low in range(0, len(i), step):
        part = slice(low, low + step)
        left, right = _doubled(X[i[part]]), _doubled(Y[j[part]])
        if are_sparse:
            out[part] = squared_lengths(left - right)
        else:
            out[part] = squared_lengths(_dense(left) - _dense(right))
    return out


def squared_lengths(X: Any) -> Array:
    """Of the rows of X, dense or sparse."""
    if sparse.issparse(X):
        return np.asarray(X.power(2).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X))


def spoils(width: int, error: float) -> float:
    """The share of |x|^2 + |y|^2 above which a distance from products has a smaller relative error."""
    return (width + 4) * float(np.finfo(np.float64).eps) / error


def centre_of(X: Any) -> Array:
    """A typical row of dense X, to take off all of them: medians of columns, which no single row can move.

    Of many rows, a hundred are looked at.
    """
    n = X.shape[0]
    if not n:
        return np.zeros(X.shape[1])
    sample = np.asarray(X[np.linspace(0, n - 1, min(n, _TYPICAL)).astype(np.int64)], dtype=np.float64)
    middle = len(sample) // 2
    return np.asarray(
        np.partition(sample, middle, axis=0)[middle]
    )  # a number that is there, not a mean of two


def _by_products(X: Any, Y: Any, given: Any, others_given: Any) -> Array:
    """From products of the rows of X and Y, and where these may spoil it, from differences of those given."""
    (n, width), m = X.shape, Y.shape[0]
    columns = Y.T.tocsr() if sparse.issparse(Y) else Y.T
    found = np.empty((n, m))
    step = max(_AT_A_TIME // max(m, 1), 1)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, or computed once more
        lengths, others = squared_lengths(X), squared_lengths(Y)
        for low in range(0, n, step):
            part = slice(low, min(low + step, n))
            block = found[part]
            if sparse.issparse(X) and sparse.issparse(Y):
                (X[part] @ columns).toarray(out=block)
            else:
                block[:] = X[part] @ columns
            sums = lengths[part, np.newaxis] + others
            block *= -2.0
            block += sums
            sums *= spoils(width, ERROR)
            spoilt = np.flatnonzero(~(block >= sums).ravel())  # those that are not a number, too
            if spoilt.size:
                block.ravel()[spoilt] = _again(given[part], others_given, spoilt)
    return found


def _again(rows: Any, others: Any, places: Index) -> Array:
    """Some of the distances of rows to others, from differences; `places` are those in the flat matrix."""
    m = others.shape[0]
    are_dense = not sparse.issparse(rows) and not sparse.issparse(others)
    if are_dense and len(places) > _MANY * rows.shape[0] * m:
        return np.asarray(_by_differences(rows, others).ravel()[places])
    return squared_distances(rows, *np.divmod(places, m), others)


def _by_differences(X: Any, Y: Any) -> Array:
    from scipy.spatial.distance import cdist  # slow to import, and not always needed

    return np.asarray(cdist(X, Y, "sqeuclidean"))


def _by_rows(X: Any) -> Any:
    return X.tocsr() if sparse.issparse(X) else np.asarray(X)


def _doubled(X: Any) -> Any:
    """In double precision: whole numbers wrap around in squares, and products of single precision round."""
    return _by_rows(X).astype(np.float64, copy=False)


def _dense(X: Any) -> Any:
    return X.toarray() if sparse.issparse(X) else X
