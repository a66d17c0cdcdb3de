"""The smaller side of a spectrum: positive and negative part of a symmetric matrix from the fewer eigenpairs.

All eigenpairs of a small matrix are computed. Of a large one with few negative (or few positive) eigenvalues
only these are, by products with a few vectors (`extreme`), from those of a nearby matrix on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg import extreme

_LARGE = 500  # order from which on computing few eigenpairs is faster


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
        found = extreme.negative_eigenpairs(-Z if by_positive else Z, start)
        if found is not None:
            return Spectrum(by_positive, -found[0], found[1])
    return whole(Z)


def misses_none(Z: Array, spectrum: Spectrum, positive_part: Array) -> bool:
    """Whether no eigenvalue of the sign of a partial spectrum is left in the rest of Z."""
    return extreme.is_semidefinite(spectrum.part - Z if spectrum.by_positive else positive_part)
