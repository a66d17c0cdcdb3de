"""The smaller side of a spectrum: positive and negative part of a symmetric matrix from the fewer eigenpairs.

All eigenpairs of a small matrix are computed. Of a large one with few negative (or few positive) eigenvalues
only these are, from those of a nearby matrix on: by a block Krylov method with Rayleigh-Ritz projections and
restarts, products of the matrix with a few vectors in place of the n^3 operations of an eigendecomposition. A
Cholesky factorisation of the rest tells whether it missed any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearwise._common.types import Array

_LARGE = 500  # order from which on computing few eigenpairs is faster
_GUARD = 4  # vectors more than there are negative eigenvalues
_DEPTH = 8  # products with the matrix in one cycle
_CYCLES = 2  # where the eigenvalues lie too close together for that, a whole decomposition takes less time
_ACCURACY = 1e-13  # of eigenpairs, relative to the norm of the matrix: their residuals
_ROUNDING = 1e-14  # relative size of a negative eigenvalue that a positive semidefinite matrix may have


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Z = positive part - negative part, the smaller one of which is vectors diag(sizes) vectors^T.

    Attributes
    ----------
    by_positive : whether the positive part is the smaller one
    sizes, vectors : its eigenvalues without their sign, and eigenvectors
    others, other_vectors : those of the other part; None where they were not computed
    """

    by_positive: bool
    sizes: Array
    vectors: Array
    others: Array | None = None
    other_vectors: Array | None = None

    @property
    def is_partial(self) -> bool:
        return self.others is None

    @property
    def part(self) -> Array:
        """The smaller part."""
        return (self.vectors * self.sizes) @ self.vectors.T

    def positive_part(self, Z: Array) -> Array:
        if self.by_positive:
            return self.part
        if self.others is None or self.other_vectors is None:
            return Z + self.part
        return (self.other_vectors * self.others) @ self.other_vectors.T

    def positive_diagonal(self, Z: Array) -> Array:
        own = self.vectors**2 @ self.sizes
        return own if self.by_positive else Z.diagonal() + own

    def squared_norm(self, Z: Array) -> float:
        """Of the positive part."""
        if self.by_positive:
            return float(self.sizes @ self.sizes)
        if self.others is not None:
            return float(self.others @ self.others)
        return float(np.vdot(Z, Z) - self.sizes @ self.sizes)

    def negative_product(self, X: Array, Z: Array) -> float:
        """<X, negative part>."""
        if not self.by_positive:
            return float(np.einsum("ia,ia->a", self.vectors, X @ self.vectors) @ self.sizes)
        if self.others is None or self.other_vectors is None:
            return float(np.vdot(X, self.part) - np.vdot(X, Z))
        return float(np.einsum("ia,ia->a", self.other_vectors, X @ self.other_vectors) @ self.others)


def whole(Z: Array) -> Spectrum:
    """All eigenpairs."""
    values, V = np.linalg.eigh(Z)
    cut = int(values.searchsorted(0.0, side="right"))
    low, high = V[:, :cut], V[:, cut:]
    if 2 * cut >= len(values):
        return Spectrum(True, values[cut:], high, -values[:cut], low)
    return Spectrum(False, -values[:cut], low, values[cut:], high)


def smaller_side(Z: Array, near: Spectrum | None) -> Spectrum:
    """The smaller side alone where that is fast; `near` is the spectrum of a similar matrix.

    Where nothing is known, both sides are tried: that takes a small share of the time for all eigenpairs.
    """
    if len(Z) < _LARGE or (near is not None and not near.is_partial):
        return whole(Z)
    for by_positive in (False, True) if near is None else (near.by_positive,):
        start = None if near is None else near.vectors
        found = negative_eigenpairs(-Z if by_positive else Z, start)
        if found is not None:
            return Spectrum(by_positive, -found[0], found[1])
    return whole(Z)


def misses_none(Z: Array, spectrum: Spectrum, positive_part: Array) -> bool:
    """Whether no eigenvalue of the sign of a partial spectrum is left in the rest of Z."""
    return is_semidefinite(spectrum.part - Z if spectrum.by_positive else positive_part)


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
