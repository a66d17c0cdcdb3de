"""The matrix M(y) = (phi')^-1(phi'(prior) - sum_i y_i A_i) that belongs to multipliers, factorised.

Under LogDet M^-1 is prior^-1 + sum_i y_i A_i, and its Cholesky factor says all; other divergences need the
eigenvectors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array
from nearwise.model.divergences import Divergence, Frobenius, LogDet, divided_differences
from nearwise.solving._written import WrittenRows

_SMALLEST = 1e-300


class Inverse(NamedTuple):
    """M = L^-T L^-1, with the constraint vectors L^-1 x and L^-1 y."""

    rows: WrittenRows
    lower: Array
    left: Array
    right: Array

    @classmethod
    def of(cls, rows: WrittenRows, divergence: Divergence, gradient: Array) -> Self | None:
        """For the gradient -M^-1, of which the lower triangle is read; None where it is not negative."""
        lower, failed = lapack.dpotrf(-gradient, lower=1)
        if failed:
            return None
        left = lapack.dtrtrs(lower, rows.x, lower=1)[0]
        return cls(rows, lower, left, left if rows.y is rows.x else lapack.dtrtrs(lower, rows.y, lower=1)[0])

    def values(self) -> Array:
        """<A_i, M>."""
        return self.rows.per_row(np.einsum("ij,ij->j", self.left, self.right))

    def hessian(self) -> Array:
        """<A_i, dM(A_j)>, where dM is how M answers to its gradient."""
        return self.rows.gram(self.left, self.right)

    @property
    def factor(self) -> Array:
        return np.asarray(lapack.dtrtri(self.lower, lower=1)[0].T)

    @property
    def spectrum(self) -> None:
        """Which nobody needs under LogDet."""


class Spectral(NamedTuple):
    """M = Q diag(x) Q^T, t the eigenvalues of its gradient, with the constraint vectors Q^T x and Q^T y."""

    rows: WrittenRows
    divergence: Divergence
    t: Array
    x: Array
    Q: Array
    left: Array
    right: Array

    @classmethod
    def of(cls, rows: WrittenRows, divergence: Divergence, gradient: Array) -> Self | None:
        """For the gradient phi'(M), of which the lower triangle is read; None where M is not finite."""
        t, Q, failed = lapack.dsyevd(gradient, lower=1)
        x = divergence.gradient_inverse(t)
        if failed or not math.isfinite(x.sum()):
            return None
        return cls(rows, divergence, t, x, Q, *rows.vectors_in(Q))

    def values(self) -> Array:
        """<A_i, M>."""
        return self.rows.per_row(self.x @ (self.left * self.right))

    def hessian(self) -> Array:
        """<A_i, dM(A_j)>, where dM is how M answers to its gradient: divided differences of (phi')^-1."""
        if isinstance(self.divergence, Frobenius):
            size = np.abs(self.t)
            slopes = (self.x[:, None] + self.x) / np.maximum(size[:, None] + size, _SMALLEST)
        else:
            slopes = divided_differences(self.divergence, self.t)
        scaled = self.rows.packed(self.left, self.right, np.sqrt(slopes))
        return np.asarray(scaled.T @ scaled)

    @property
    def factor(self) -> Array:
        return self.Q * np.sqrt(self.x)

    @property
    def spectrum(self) -> tuple[Array, Array]:
        return self.x, self.Q


def mirror_of(divergence: Divergence) -> Any:
    """The way to factorise M under a divergence."""
    return Inverse if isinstance(divergence, LogDet) else Spectral
