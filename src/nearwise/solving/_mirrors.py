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
    def of(cls, rows: WrittenRows, divergence: Divergence, descent: Array) -> Self | None:
        """For minus the gradient, M^-1, by its lower triangle; None where it is not positive."""
        lower, failed = lapack.dpotrf(descent, lower=1)
        if failed:
            return None
        return cls(rows, lower, *rows.split(lapack.dtrtrs(lower, rows.vectors, lower=1)[0]))

    @classmethod
    def at_prior(cls, rows: WrittenRows, divergence: Divergence, prior: Array) -> Self:
        """For a diagonal M, which needs no factorisation."""
        root = np.sqrt(prior)
        return cls(rows, np.diag(1 / root), *rows.split(rows.vectors * root[:, None]))

    def values(self) -> Array:
        """<A_i, M>."""
        return self.rows.per_row(np.vecdot(self.left.T, self.right.T))

    def hessian(self) -> Array:
        """<A_i, dM(A_j)>, where dM is how M answers to its gradient."""
        return self.rows.gram(self.left, self.right)

    def closeness(self, change: Array) -> float:
        """1 / t for the t up to which M^-1 + t change is positive, at least 0; its lower triangle is read."""
        turned, _ = lapack.dsygst(change, self.lower, lower=1)
        eigenvalues, _, failed = lapack.dsyevd(turned, compute_v=0, lower=1)
        return max(-float(eigenvalues[0]), 0.0) if not failed else 0.0

    @staticmethod
    def replies(divergence: Divergence, t: Array) -> Array | None:
        """(phi')^-1(t); None where one is not finite."""
        return -1.0 / t if t.max() < 0 else None

    @staticmethod
    def reply_slopes(divergence: Divergence, t: Array) -> Array:
        """The derivative of `replies`."""
        return 1.0 / (t * t)

    @staticmethod
    def reply_closeness(t: Array, change: Array) -> float:
        """1 / s for the s up to which t + s change has replies, at least 0."""
        return max(float((change / -t).max()), 0.0)

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
    def of(cls, rows: WrittenRows, divergence: Divergence, descent: Array) -> Self | None:
        """For minus the gradient phi'(M), by its lower triangle; None where M is not finite."""
        falls, Q, failed = lapack.dsyevd(descent, lower=1)
        t = -falls
        x = divergence.gradient_inverse(t)
        if failed or not math.isfinite(x.sum()):
            return None
        return cls(rows, divergence, t, x, Q, *rows.vectors_in(Q))

    @classmethod
    def at_prior(cls, rows: WrittenRows, divergence: Divergence, prior: Array) -> Self:
        """For a diagonal M, or the part of it that is not negative, which needs no factorisation."""
        t, x = divergence.gradient(prior), np.maximum(prior, 0.0)
        return cls(rows, divergence, t, x, np.eye(len(x)), *rows.split(rows.vectors))

    def values(self) -> Array:
        """<A_i, M>."""
        return self.rows.per_row(self.x @ (self.left * self.right))

    def hessian(self) -> Array:
        """<A_i, dM(A_j)>, where dM is how M answers to its gradient: divided differences of (phi')^-1."""
        if isinstance(self.divergence, Frobenius):
            size = np.abs(self.t)
            slopes = np.add.outer(self.x, self.x)
            slopes /= np.maximum(np.add.outer(size, size), _SMALLEST)
        else:
            slopes = divided_differences(self.divergence, self.t)
        scaled = self.rows.packed(self.left, self.right, np.sqrt(slopes))
        return np.asarray(scaled.T @ scaled)

    def closeness(self, change: Array) -> float:
        """As `Inverse` has it: 0, because no matrix is outside the domain, but for overflow."""
        return 0.0

    @staticmethod
    def replies(divergence: Divergence, t: Array) -> Array | None:
        """(phi')^-1(t)."""
        return divergence.gradient_inverse(t)

    @staticmethod
    def reply_slopes(divergence: Divergence, t: Array) -> Array:
        """The derivative of `replies`."""
        return divergence.gradient_inverse_slope(t)

    @staticmethod
    def reply_closeness(t: Array, change: Array) -> float:
        """As `Inverse` has it."""
        return 0.0

    @property
    def factor(self) -> Array:
        return self.Q * np.sqrt(self.x)

    @property
    def spectrum(self) -> tuple[Array, Array]:
        return self.x, self.Q


def mirror_of(divergence: Divergence) -> Any:
    """The way to factorise M under a divergence."""
    return Inverse if isinstance(divergence, LogDet) else Spectral
