"""Cholesky factors of matrices that are positive semidefinite, and singular up to rounding."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearwise._common.types import Array

ROUNDING = 1e-15
_TRIES = 5  # each with a regularisation a hundred times larger


def factored(matrix: Array, regularisation: float = ROUNDING) -> tuple[Array, bool]:
    """The factor of the matrix plus a small multiple of the identity, from `regularisation` on.

    For `scipy.linalg.cho_solve`; the diagonal is about one. LinAlgError where the matrix is not semidefinite.
    """
    for _ in range(_TRIES - 1):
        try:
            return _factor(matrix, regularisation)
        except np.linalg.LinAlgError:
            regularisation *= 100
    return _factor(matrix, regularisation)


def _factor(matrix: Array, regularisation: float) -> tuple[Array, bool]:
    shifted = matrix.copy()
    shifted.flat[:: len(matrix) + 1] += regularisation
    factor, lower = linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    return factor, bool(lower)
