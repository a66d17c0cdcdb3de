"""Which of several equally good factors: signs of columns and turns that rounding does not choose."""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array

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
