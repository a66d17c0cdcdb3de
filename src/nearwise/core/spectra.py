"""Divergences of two spectra by KSD09 (3), also of singular matrices: what is zero, what range is in which.

`SpectralDivergence` documents both tolerances.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg.dense import singular_spectrum

if TYPE_CHECKING:
    from nearwise.core.divergences import SpectralDivergence

_EPS = float(np.finfo(np.float64).eps)
# times n eps: the relative size of what eigh, svd and the products before them leave of a zero. On random
# matrices of known rank, 1 takes rounding for a dimension, and 1000 a share of 1e-12 outside for rounding.
_NOISE = 8.0
_LARGEST_LEAKAGE = 1e-6  # the share outside a range that no ill-conditioning excuses: chosen, not measured


class Spectrum(NamedTuple):
    """The eigenpairs of a matrix outside its null space, and how well they are known."""

    values: Array  # (p,)
    vectors: Array  # (n, p)
    noise: float  # the size, relative to the largest eigenvalue, below which one counts as zero
    tilt: Array  # (p,) squared angles by which a perturbation of that size tilts the vectors out of the range

    @classmethod
    def of_matrix(cls, A: Array) -> Spectrum:
        """Of a symmetric matrix."""
        values, vectors = np.linalg.eigh(A)
        return cls._without_zeros(values, vectors, len(A), power=1)

    @classmethod
    def of_factor(cls, B: Array) -> Spectrum:
        """Of B B^T, from the singular values of B."""
        vectors, values = np.linalg.svd(B, full_matrices=False)[:2]
        return cls._without_zeros(values, vectors, max(B.shape), power=2)

    @classmethod
    @np.errstate(all="ignore")
    def _without_zeros(cls, values: Array, vectors: Array, size: int, power: int) -> Spectrum:
        noise = _NOISE * size * _EPS
        zero = noise * np.max(np.abs(values), initial=0.0)
        kept = np.abs(values) > zero
        return cls(values[kept] ** power, vectors[:, kept], noise**power, (zero / values[kept]) ** 2)

    def outside(self, other: Spectrum) -> Array:
        """|(I - P) v_i|^2 for each eigenvector, with P the projection onto the other's range."""
        U = other.vectors
        return np.asarray(np.sum((self.vectors - U @ (U.T @ self.vectors)) ** 2, axis=0))

    @np.errstate(all="ignore")
    def is_inside(self, other: Spectrum) -> bool:
        """Whether the range lies in the other's, up to rounding."""
        weight = np.abs(self.values) / np.max(np.abs(self.values), initial=1.0)  # a sum may overflow
        overlap = (self.vectors.T @ other.vectors) ** 2
        allowed = np.minimum(self.noise + overlap @ other.tilt, _LARGEST_LEAKAGE)
        return bool(weight @ self.outside(other) <= weight @ allowed)


def spectrum_of_factor(B: Array) -> tuple[Array, Array]:
    """All eigenvalues and eigenvectors of B B^T, as many as B has rows."""
    U, s, _ = singular_spectrum(B)
    x = np.zeros(len(U))
    x[: len(s)] = s**2
    return x, U


def value_on_ranges(divergence: SpectralDivergence, X: Spectrum, Y: Spectrum) -> float:
    """D(X, Y), infinite where a range or a negative eigenvalue forbids it."""
    if not divergence.indefinite_prior and (np.any(X.values < 0) or np.any(Y.values < 0)):
        return np.inf
    zero, one = np.zeros(1), np.ones(1)
    total = value_of_numbers(divergence, X.values[:, None], Y.values, (X.vectors.T @ Y.vectors) ** 2)
    if np.isfinite(value_of_numbers(divergence, one, zero, one)):
        total += value_of_numbers(divergence, X.values, zero, X.outside(Y))
    elif not X.is_inside(Y):
        return np.inf
    if np.isfinite(value_of_numbers(divergence, zero, one, one)):
        total += value_of_numbers(divergence, zero, Y.values, Y.outside(X))
    elif not Y.is_inside(X):
        return np.inf
    return total


def value_of_numbers(divergence: SpectralDivergence, x: Array, y: Array, weight: Array) -> float:
    """`weighted_sum`, which has to be a number."""
    total = weighted_sum(divergence, x, y, weight)
    if math.isnan(total):
        raise ValueError(f"{type(divergence).__name__}.scalar must not return NaN for numbers x, y >= 0")
    return total


@np.errstate(all="ignore")
def weighted_sum(divergence: SpectralDivergence, x: Array, y: Array, weight: Array) -> float:
    """sum weight * scalar(x, y), where a weight of exactly zero removes even an infinite term."""
    terms = weight * divergence.scalar(x, y)
    total = float(terms.sum())
    return total if math.isfinite(total) else float(np.where(weight == 0, 0.0, terms).sum())
