"""The negative eigenvalues of a large symmetric matrix that has few of them, and a proof that these are all.

A block Krylov method with Rayleigh-Ritz projections and restarts, which starts from the eigenvectors of a
nearby matrix where there is one: products of the matrix with a few vectors, in place of the n^3 operations
of an eigendecomposition. A Cholesky factorisation of the rest tells whether it missed any.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array

_GUARD = 4  # vectors more than there are negative eigenvalues
_DEPTH = 8  # products with the matrix in one cycle
_CYCLES = 2  # where the eigenvalues lie too close together for that, a whole decomposition takes less time
_ACCURACY = 1e-13  # of eigenpairs, relative to the norm of the matrix: their residuals
_ROUNDING = 1e-14  # relative size of a negative eigenvalue that a positive semidefinite matrix may have


def negative_eigenpairs(Z: Array, start: Array | None) -> tuple[Array, Array] | None:
    """The negative eigenvalues, rising, and their vectors; None where they are not found fast.

    `start` holds approximate vectors. Eigenvalues may be missed that `start` and a few random vectors do not
    lead to; see `is_semidefinite`.
    """
    V = np.random.default_rng(0).standard_normal((len(Z), 2 * _GUARD))
    if start is not None:
        V = np.hstack([start, V[:, :_GUARD]])
    V = np.linalg.qr(V)[0]
    for _ in range(_CYCLES):
        values, V, errors, size = _cycle(Z, V)
        count = int(np.sum(values < 0))
        if count == len(values):
            return None
        if np.all(errors[:count] <= _ACCURACY * size):
            return values[:count], V[:, :count]
    return None


def is_semidefinite(X: Array) -> bool:
    """Whether X is positive semidefinite up to rounding."""
    n = len(X)
    diagonal = X.diagonal().copy()
    X.flat[:: n + 1] += _ROUNDING * n * float(np.abs(diagonal).max())
    try:
        np.linalg.cholesky(X)
    except np.linalg.LinAlgError:
        return False
    finally:
        X.flat[:: n + 1] = diagonal
    return True


def _cycle(Z: Array, V: Array) -> tuple[Array, Array, Array, float]:
    """The lowest Ritz values in a block Krylov space, as many as V has columns; vectors, residuals, norm."""
    width = V.shape[1]
    blocks, images = [V], [Z @ V]
    for _ in range(_DEPTH):
        Q = np.hstack(blocks)
        W = images[-1]
        for _ in range(2):  # the second time against rounding
            W = W - Q @ (Q.T @ W)
        norms = np.linalg.norm(W, axis=0)
        W, R = np.linalg.qr(W)
        kept = np.abs(np.diag(R)) > 1e-12 * max(float(norms.max()), 1e-300)
        if not kept.any():
            break
        W = W[:, kept] - Q @ (Q.T @ W[:, kept])
        W = np.linalg.qr(W)[0]
        blocks.append(W)
        images.append(Z @ W)
    Q, ZQ = np.hstack(blocks), np.hstack(images)
    T = Q.T @ ZQ
    values, Y = np.linalg.eigh((T + T.T) / 2)
    size = float(np.abs(values).max())
    Y = Y[:, :width]
    vectors, image = Q @ Y, ZQ @ Y
    errors = np.linalg.norm(image - vectors * values[:width], axis=0)
    return values[:width], vectors, errors, size
