"""Classical scaling: from squared distances to inner products and principal coordinates."""

from __future__ import annotations

import numpy as np

from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array
from nearwise.linalg.directions import with_fixed_signs

_NEGLIGIBLE = 1e-12  # eigenvalue relative to the largest that is only rounding


def inner_products(squared: Array) -> Array:
    """Of the centred points that have these squared distances: -J D J / 2 with J = I - 1 1^T / n."""
    centred = squared - squared.mean(axis=0)
    centred -= centred.mean(axis=1)[:, np.newaxis]
    return (centred + centred.T) / -4.0


def principal_coordinates(squared: Array) -> Array:
    """Coordinates with these finite squared distances, as far as there are any, by falling variance.

    Of each coordinate the number of largest size is positive. There are as many as eigenvalues of the inner
    products that are positive beyond rounding.
    """
    size = float(squared.max(initial=0.0)) or 1.0  # distances of any size neither overflow nor vanish
    with one_blas_thread():  # of which more are much slower on a busy machine
        values, vectors = np.linalg.eigh(inner_products(squared / size))
    kept = np.flatnonzero(values > _NEGLIGIBLE * max(float(values[-1]), 0.0))[::-1]
    return with_fixed_signs(vectors[:, kept] * np.sqrt(values[kept] * size))
