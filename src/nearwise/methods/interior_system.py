"""The linear algebra of an interior-point step: coordinates of Nesterov and Todd, and Newton's equations.

M and Z are the same matrix X in these coordinates, so that a step D of M and E of Z obeys the symmetric

    D + E = target,      target = 2 (aim - d^2) / (d_a + d_b) in an eigenbasis of X = diag(d),

and the Hessian of the divergence, on packed symmetric matrices, is I plus a positive semidefinite rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array
from nearwise.core.divergences import SpectralDivergence
from nearwise.linalg.dense import cholesky, eigenvalues, singular_spectrum

DEPENDENT = 1e-14  # compliance of hard rows in the factors, in sizes of the row; 1e-15 solves fewer
TINY = 1e-300


class RowState(NamedTuple):
    """Of each row: the slack s (1 for an equality), the multiplier y, and the reply xi."""

    slack: Array
    dual: Array
    reply: Array


class Scaling(NamedTuple):
    """M = G X G^T and Z = H X H^T with H = G^-T and X = rotation^T diag(d) rotation.

    Attributes
    ----------
    factor : of M
    primal, dual : G and H
    d : the square roots of the eigenvalues of M Z, descending
    rotation : None where X is diagonal
    matrix : X
    root : of I + Hessian of the divergence's rest: None for I, its diagonal, or a lower triangular matrix
    gradient : of the rest, less phi'(prior): G^T [...] G
    """

    factor: Array
    primal: Array
    dual: Array
    d: Array
    rotation: Array | None
    matrix: Array
    root: Array | None
    gradient: Array

    @classmethod
    def of(cls, divergence: SpectralDivergence, prior: Array, L: Array, N: Array) -> Self:
        """At M = L L^T and Z = N N^T; a LinAlgError where M Z is singular to rounding."""
        U, d, Vt = singular_spectrum(N.T @ L)
        if not d[-1] > 0:
            raise np.linalg.LinAlgError("M Z is singular")
        G, H, X = (L @ Vt.T) / np.sqrt(d), (N @ U) / np.sqrt(d), np.diag(d)
        rotation, root, gradient = divergence.scaled_hessian(L, G, prior)
        if rotation is not None:
            G, H, X = G @ rotation, H @ rotation, (rotation.T * d) @ rotation
        return cls(L, G, H, d, rotation, X, root, gradient)

    def whitened(self, v: Array) -> Array:
        """root^-1 v, for a packed matrix or one per column."""
        if self.root is None:
            return v
        if self.root.ndim == 1:
            return v / (self.root if v.ndim == 1 else self.root[:, None])
        return lapack.dtrtrs(self.root, v, lower=1)[0]

    def unwhitened(self, v: Array) -> Array:
        """root^-T v."""
        if self.root is None or self.root.ndim == 1:
            return self.whitened(v)
        return lapack.dtrtrs(self.root, v, lower=1, trans=1)[0]

    def target(self, aim: float, second_order: Array | None = None) -> Array:
        """D + E for M Z = aim I; `second_order` is the product D E of an earlier step."""
        short = np.diag(aim - self.d**2)
        if second_order is not None:
            product = self._in_eigenbasis(second_order)
            short -= (product + product.T) / 2
        short *= 2 / (self.d[:, None] + self.d)
        return short if self.rotation is None else self.rotation.T @ short @ self.rotation

    def to_boundary(self, change: Array) -> float:
        """The t at which X + t change becomes singular; inf where it never does."""
        root = np.sqrt(self.d)
        least = float(eigenvalues(self._in_eigenbasis(change) / root / root[:, None])[0])
        return -1 / least if least < 0 else np.inf

    def moved(self, D: Array, E: Array) -> tuple[Array, Array]:
        """Factors of M and Z after steps D and E."""
        return (
            self.primal @ cholesky(self.matrix + D),
            self.dual @ cholesky(self.matrix + E),
        )

    def _in_eigenbasis(self, A: Array) -> Array:
        return A if self.rotation is None else self.rotation @ A @ self.rotation.T


@dataclass(frozen=True, eq=False)
class System:
    """D + A dy = K and A^T D - compliance dy = e, for packed D: Cholesky in the smaller of the two spaces.

    Hard rows that depend on each other make it singular. So a system with a little more compliance is
    factorised, and `solve` refines its solutions for the true one.

    Attributes
    ----------
    columns : A
    weights : 1 / compliance where the system is solved for D; None where it is solved for dy
    factor, scale : of the smaller system, scaled to a diagonal of ones
    """

    columns: Array
    compliance: Array
    weights: Array | None
    factor: Array
    scale: Array

    @classmethod
    def of(cls, A: Array, compliance: Array) -> Self:
        """A LinAlgError where rounding leaves it indefinite."""
        sizes = np.einsum("ij,ij->j", A, A)
        definite = np.maximum(compliance, DEPENDENT * sizes)
        if A.shape[1] <= A.shape[0]:
            weights = None
            scale = 1 / np.sqrt(np.maximum(sizes + definite, TINY))
            scaled = A * scale
            matrix, diagonal = scaled.T @ scaled, definite * scale**2
        else:
            weights = 1 / np.maximum(definite, TINY)
            scaled = A * np.sqrt(weights)
            matrix = scaled @ scaled.T
            scale = 1 / np.sqrt(1 + matrix.diagonal())
            matrix *= scale * scale[:, None]
            diagonal = scale**2
        matrix.flat[:: len(matrix) + 1] += diagonal
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=0) if len(matrix) else (matrix, 0)
        if failed:
            raise np.linalg.LinAlgError("the system is indefinite to rounding")
        return cls(A, compliance, weights, factor, scale)

    def solve(self, K: Array, e: Array, refinements: int) -> tuple[Array, Array]:
        """D and dy."""
        D, dy = self._once(K, e)
        for _ in range(refinements):
            more = self._once(K - D - self.columns @ dy, e - D @ self.columns + self.compliance * dy)
            D, dy = D + more[0], dy + more[1]
        return D, dy

    def _once(self, K: Array, e: Array) -> tuple[Array, Array]:
        if self.weights is None:
            dy = self._inverse(K @ self.columns - e)
            return K - self.columns @ dy, dy
        D = self._inverse(K + self.columns @ (self.weights * e))
        return D, self.weights * (D @ self.columns - e)

    def _inverse(self, right: Array) -> Array:
        if not len(right):
            return right
        return np.asarray(lapack.dpotrs(self.factor, right * self.scale, lower=1)[0] * self.scale)
