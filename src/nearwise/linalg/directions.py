"""Which of several equally good coordinates: signs of columns, turns that rounding does not choose, units."""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array, Index

_TIE = 1e-6  # entries that differ by this share are equal but for rounding


def with_fixed_signs(columns: Array, shown: Array | None = None) -> Array:
    """Columns that are known up to sign, such as eigenvectors, each with a definite one.

    The first entry of a column that is as large as any is positive. It is looked up in the columns of `shown`
    where these are what a user sees of them, such as the coordinates of objects.
    """
    seen = columns if shown is None else shown
    sizes = np.abs(seen)
    first = np.argmax(sizes >= (1 - _TIE) * sizes.max(axis=0, initial=0.0), axis=0)
    largest = seen[first, np.arange(columns.shape[1])]
    return np.ascontiguousarray(np.where(largest < 0, -columns, columns))


def turned(points: Array, target: Array) -> Array:
    """The points turned or mirrored to lie as nearly as possible like the target (Procrustes)."""
    sizes = [float(np.abs(part).max(initial=0.0)) or 1.0 for part in (points, target)]
    U, _, Vt = np.linalg.svd((points / sizes[0]).T @ (target / sizes[1]))
    return np.asarray(points @ (U @ Vt))


def evened(W: Array, groups: Index | None, flattest: float) -> Array:
    """T, zero between groups of columns, such that W T has orthogonal columns of length 1.

    They are shorter where W has less than a share `flattest` of what it has most. In these coordinates an
    eigenvalue of a sum of squares of such rows, of both signs, is told from 0 relative to what is summed up.
    """
    T = np.zeros(2 * W.shape[1:])
    for group in [None] if groups is None else np.unique(groups):
        columns = np.arange(len(T)) if group is None else (groups == group).nonzero()[0]
        _, s, Vt = np.linalg.svd(np.linalg.qr(W[:, columns], mode="r"))
        lengths = np.zeros(len(columns))
        lengths[: len(s)] = s
        largest = lengths.max(initial=0.0)
        T[np.ix_(columns, columns)] = Vt.T / np.maximum(lengths, flattest * largest if largest > 0 else 1.0)
    return T
