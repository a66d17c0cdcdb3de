"""Where an interior-point method stands, and in which coordinates it takes its next step.

The optimum of every divergence D has a partner Z: grad D(M) + sum_i y_i A_i = Z, M >= 0, Z >= 0, M Z = 0.
The scaling of Nesterov and Todd treats both alike: in its coordinates M and Z are the same diagonal matrix.
LogDet keeps M inside the cone by itself; with -log det M left out of D, its optimum is the point M Z = I of
the central path, on which M Z = mu I.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from nearwise.model.divergences import Frobenius, LogDet, divided_differences
from nearwise.model.formulation import Formulation

Array = NDArray[np.float64]

_START = 10.0  # how much larger than anything asked for the first point is
_LARGEST_RATIO = 1e100  # of a bound to the size of its row, beyond which it does not set the start
_SMALLEST = 1e-300


@dataclass(frozen=True)
class MatrixStep:
    """How M and Z change, in local coordinates."""

    M: Array
    Z: Array


def start_sizes(form: Formulation, sizes: Array) -> tuple[float, float]:
    """Sizes of M and Z that are larger than anything asked for; `sizes` are those of the rows for M = I."""
    rows = sizes > 0
    wanted = np.minimum(np.abs(form.losses.bounds[rows]) / sizes[rows], _LARGEST_RATIO)
    largest = max(float(np.abs(form.prior).max(initial=0.0)), float(wanted.max(initial=0.0))) or 1.0
    if isinstance(form.divergence, LogDet):
        positive = wanted[form.losses.is_definite[rows] & (wanted > 0)]
        smallest = float(min(1.0, positive.min(initial=np.inf)))
        return _START * max(1.0, largest), _START / smallest
    return _START * largest, _START * (2 * largest if isinstance(form.divergence, Frobenius) else 1.0)


class Scaling:
    """M = L L^T and Z = N N^T with G^-1 M G^-T = G^T Z G = diag(d), turned where that helps.

    Near M a step is dM = G D G^T. The Hessian of the objective along D, with Z, is I plus that of D; its root
    takes D to coordinates in which it is I.

    Attributes
    ----------
    basis : G; constraint vectors z enter local coordinates as G^T z
    local : M and Z in local coordinates
    factor : L
    order : of M
    """

    def __init__(self, form: Formulation, L: Array, N: Array) -> None:
        self.form, self.factor, self.order = form, L, len(L)
        self.floor = 1.0 if isinstance(form.divergence, LogDet) else 0.0
        U, self.d, Vt = np.linalg.svd(N.T @ L)
        scale = np.sqrt(self.d)
        self.basis, self._dual_basis = (L @ Vt.T) / scale, (N @ U) / scale
        self._turn, self.local = np.eye(len(L)), np.diag(self.d)
        self._root, self._slope = self._differentiate()

    def _differentiate(self) -> tuple[Array, Array]:
        """The root of the Hessian, one number per unknown or a triangular matrix, and the gradient of D."""
        prior, r = self.form.prior, self.order
        upper = np.triu_indices(r)
        if self.floor:
            return np.ones(len(upper[0])), (self.basis.T / prior) @ self.basis
        if isinstance(self.form.divergence, Frobenius):
            # turned so that G^T G is diagonal, where the Hessian is elementwise
            _, s, Qt = np.linalg.svd(self.basis)
            self._turn, square = Qt.T, np.outer(s**2, s**2)
            self.basis, self._dual_basis = self.basis @ self._turn, self._dual_basis @ self._turn
            self.local = (self._turn.T * self.d) @ self._turn
            slope = 2 * (square * self.local - (self.basis.T * prior) @ self.basis)
            return np.sqrt(1 + 2 * square)[upper], slope
        V, s, _ = np.linalg.svd(self.factor)
        t = self.form.divergence.gradient(np.maximum(s**2, _SMALLEST))
        C = V.T @ self.basis
        slope = (C.T * t) @ C - (self.basis.T * self.form.divergence.gradient(prior)) @ self.basis
        a, b = upper
        to_eigenbasis = C[a][:, a] * C[b][:, b] + C[a][:, b] * C[b][:, a]
        to_eigenbasis *= np.where(a == b, 0.5, np.sqrt(0.5))[:, None] * np.where(a == b, 1.0, np.sqrt(2.0))
        to_eigenbasis /= np.sqrt(divided_differences(self.form.divergence, t)[a, b])[:, None]
        hessian = to_eigenbasis.T @ to_eigenbasis
        hessian.flat[:: len(hessian) + 1] += 1.0
        return np.linalg.cholesky(hessian), slope

    def whitened(self, rows: Array) -> Array:
        """Packed matrices, one per row, in coordinates where the Hessian is I."""
        if self._root.ndim == 1:
            return rows / self._root
        return np.asarray(solve_triangular(self._root, rows.T, lower=True, check_finite=False)).T

    def unwhitened(self, D: Array) -> Array:
        """A packed step back from there."""
        if self._root.ndim == 1:
            return D / self._root
        return np.asarray(solve_triangular(self._root, D, lower=True, trans=1, check_finite=False))

    @property
    def mu(self) -> float:
        """The mean of M Z above what the divergence itself asks for."""
        return max(float(np.mean(self.d**2)) - self.floor, 0.0)

    def both(self, mu: float, last: MatrixStep | None) -> Array:
        """What the changes of M and Z have to add up to, so that M Z becomes mu I."""
        owed = np.diag(max(mu, self.floor) - self.d**2)
        if last is not None:
            product = self._turn @ last.M @ last.Z @ self._turn.T
            owed = owed - (product + product.T) / 2
        return np.asarray(self._turn.T @ (2 * owed / (self.d[:, None] + self.d)) @ self._turn)

    def residual(self, pulled: Array) -> Array:
        """grad D(M) + sum_i y_i A_i - Z, where `pulled` is the sum in local coordinates."""
        return np.asarray(self._slope + pulled - self.local)

    @cached_property
    def _inverse_root(self) -> Array:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.local)))

    def longest(self, step: MatrixStep) -> tuple[float, float]:
        """How far M and Z may go until they are singular."""
        inverse = self._inverse_root
        low = np.linalg.eigvalsh(inverse @ np.stack([step.M, step.Z]) @ inverse.T)[:, 0]
        primal, dual = -float(low[0]), -float(low[1])
        return (1 / primal if primal > 0 else np.inf, 1 / dual if dual > 0 else np.inf)

    def mu_after(self, step: MatrixStep, primal: float, dual: float) -> float:
        """`mu` after a step."""
        product = np.sum((self.local + primal * step.M) * (self.local + dual * step.Z))
        return max(float(product) / self.order - self.floor, 0.0)

    def moved(self, step: MatrixStep, primal: float, dual: float) -> Scaling | None:
        """The point after a step; None where rounding takes it out of the cone."""
        try:
            L = self.basis @ np.linalg.cholesky(self.local + primal * step.M)
            N = self._dual_basis @ np.linalg.cholesky(self.local + dual * step.Z)
            return Scaling(self.form, L, N) if np.isfinite(L).all() and np.isfinite(N).all() else None
        except np.linalg.LinAlgError:
            return None
