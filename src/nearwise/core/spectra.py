"""Eigenpairs of singular matrices: which eigenvalues are zero up to rounding, and which ranges lie in which.

KSD09 section 4 defines divergences of singular matrices by their restriction to a range. Two tolerances
decide. An eigenvalue counts as zero below 8 n eps times the largest magnitude (of a factor, a singular value
below 8 max(n, k) eps times the largest). A range counts as inside another, onto which P projects, if the
leakage sum_i lambda_i |(I - P) v_i|^2 is at most sum_i lambda_i a_i. Here a_i, at most 1e-6, is the relative
size of a zero eigenvalue plus the squared angle by which a perturbation of that size can tilt the other range
at v_i: much only if the other matrix is ill-conditioned on its range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array

_EPS = float(np.finfo(np.float64).eps)
_NOISE = 8.0  # times n eps: the relative size of what eigh, svd and the products before them leave of a zero
_LARGEST_LEAKAGE = 1e-6  # the share outside a range that no ill-conditioning excuses


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
        return cls._without_zeros(values, vectors, max(A.shape), power=1)

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
