"""Factorisations of dense matrices by LAPACK itself: on small ones, the checks of `numpy.linalg` take longer.

Symmetric matrices are read from their lower triangles.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array

RANK_TOLERANCE = 1e-12  # relative size below which an eigenvalue of a prior or kernel counts as zero


def spectrum(A: Array) -> tuple[Array, Array]:
    """Eigenvalues of a symmetric matrix in ascending order, and their vectors."""
    values, vectors, failed = lapack.dsyevd(A, lower=1)
    if failed:
        raise np.linalg.LinAlgError("eigenvalues did not converge")
    return values, vectors


def eigenvalues(A: Array) -> Array:
    """Those of a symmetric matrix in ascending order."""
    values, _, failed = lapack.dsyevd(A, compute_v=0, lower=1)
    if failed:
        raise np.linalg.LinAlgError("eigenvalues did not converge")
    return np.asarray(values)


def singular_spectrum(A: Array) -> tuple[Array, Array, Array]:
    """U, s and V^T with A = U diag(s) V^T and square U and V^T, the largest s first."""
    _refuse_infinite(A)
    U, s, Vt, failed = lapack.dgesdd(A)
    if failed:
        raise np.linalg.LinAlgError("singular values did not converge")
    return U, s, Vt


def singular_values(A: Array) -> Array:
    """The largest first."""
    _refuse_infinite(A)
    _, s, _, failed = lapack.dgesdd(A, compute_uv=0)
    if failed:
        raise np.linalg.LinAlgError("singular values did not converge")
    return np.asarray(s)


def cholesky(A: Array) -> Array:
    """The lower factor of a definite matrix."""
    L, failed = lapack.dpotrf(A, lower=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    return np.asarray(L)


def _refuse_infinite(A: Array) -> None:
    """What LAPACK prints a message of its own for."""
    if not math.isfinite(A.sum()):
        raise np.linalg.LinAlgError("a matrix is not finite, or too large")
