"""Where an interior-point method stands, and in which coordinates it takes its next step.

The optimum of every divergence D has a partner Z: grad D(M) + sum_i y_i A_i = Z, M >= 0, Z >= 0, M Z = 0.
The scaling of Nesterov and Todd treats both alike: in its coordinates M and Z are the same diagonal matrix.
LogDet keeps M inside the cone by itself; with -log det M left out of D, its optimum is the point M Z = I of
the central path, on which M Z = mu I.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array
from nearwise.linalg.dense import cholesky, eigenvalues, singular_spectrum
from nearwise.model.divergences import Frobenius, LogDet, divided_differences
from nearwise.solving._written import WrittenForm, packing

_START = 10.0  # how much larger than anything asked for the first point is
_LARGEST_RATIO = 1e100  # of a bound to the size of its row, beyond which it does not set the start
_SMALLEST = 1e-300
_CLOSE = 1e-4  # ratio of squares of singular values that are close together


class MatrixStep(NamedTuple):
    """How M and Z change, in local coordinates."""

    M: Array
    Z: Array


def start_sizes(form: WrittenForm, sizes: Array) -> tuple[float, float]:
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

    def __init__(self, form: WrittenForm, L: Array, N: Array) -> None:
        self.form, self.factor, self.order = form, L, len(L)
        self.packing = packing(self.order)
        self.floor = 1.0 if isinstance(form.divergence, LogDet) else 0.0
        U, self.d, V = _svd_near_centre(N.T @ L)
        scale = np.sqrt(self.d)
        self.basis, self._dual_basis = (L @ V) / scale, (N @ U) / scale
        self._shrunk = 1 / (scale[:, None] * scale)
        self._mean = 2 / (self.d[:, None] + self.d)
        self._turn: Array | None = None
        self.local = self.packing.identity * self.d
        self._root, self._slope = self._differentiate()

    def _differentiate(self) -> tuple[Array | None, Array]:
        """The root of the Hessian, one number per unknown or a triangular matrix, and the gradient of D.

        No root where the Hessian is I.
        """
        prior = self.form.prior
        if self.floor:
            return None, (self.basis.T / prior) @ self.basis
        a, b = self.packing.a, self.packing.b
        if isinstance(self.form.divergence, Frobenius):
            # turned so that G^T G is diagonal, where the Hessian is elementwise
            _, s, Qt = singular_spectrum(self.basis)
            square, self._turn = s**2, Qt.T
            self.basis, self._dual_basis = self.basis @ self._turn, self._dual_basis @ self._turn
            self.local = (Qt * self.d) @ self._turn
            slope = 2 * (square[:, None] * self.local * square - (self.basis.T * prior) @ self.basis)
            return np.sqrt(1 + 2 * square[a] * square[b]), slope
        V, s, _ = singular_spectrum(self.factor)
        x = np.maximum(s**2, _SMALLEST)
        t = self.form.divergence.gradient(x)
        self._spectrum = x, t
        C = V.T @ self.basis
        slope = (C.T * t) @ C - (self.basis.T * self.form.divergence.gradient(prior)) @ self.basis
        left, right = C.take(a, 0), C.take(b, 0)
        root = left.take(a, 1)
        root *= right.take(b, 1)
        mixed = left.take(b, 1)
        mixed *= right.take(a, 1)
        root += mixed
        slopes = divided_differences(self.form.divergence, t).take(self.packing.flat)
        root *= (0.5 * self.packing.scale / np.sqrt(slopes))[:, None] * self.packing.scale
        hessian = root.T @ root
        hessian.reshape(-1)[:: len(hessian) + 1] += 1.0
        return cholesky(hessian), slope

    def whitened(self, packed: Array) -> Array:
        """Packed matrices, one or one per column, in coordinates where the Hessian is I."""
        if self._root is None:
            return packed
        if self._root.ndim == 1:
            return packed / (self._root if packed.ndim == 1 else self._root[:, None])
        return np.asarray(lapack.dtrtrs(self._root, packed, lower=1)[0])

    def unwhitened(self, D: Array) -> Array:
        """A packed step back from there."""
        if self._root is None:
            return D
        if self._root.ndim == 1:
            return D / self._root
        return np.asarray(lapack.dtrtrs(self._root, D, lower=1, trans=1)[0])

    @property
    def distance(self) -> float:
        """The divergence of M from the prior, to a few digits."""
        prior, L = self.form.prior, self.factor
        if self.floor:
            size = np.log(np.abs(np.diagonal(lapack.dgetrf(L)[0]))).sum()
            return float(np.sum(L**2, axis=1) @ (1 / prior) - 2 * size + np.log(prior).sum()) - self.order
        if isinstance(self.form.divergence, Frobenius):
            apart = L @ L.T
            apart.reshape(-1)[:: self.order + 1] -= prior
            return float(np.vdot(apart, apart))
        x, t = self._spectrum
        within = np.sum(L**2, axis=1) @ self.form.divergence.gradient(prior)
        return float(x @ t - x.sum() - within + prior.sum())

    @property
    def mu(self) -> float:
        """The mean of M Z above what the divergence itself asks for."""
        return max(float(self.d @ self.d) / self.order - self.floor, 0.0)

    def both(self, mu: float, last: MatrixStep | None) -> Array:
        """What the changes of M and Z have to add up to, so that M Z becomes mu I, after a straight step."""
        turn, wanted = self._turn, max(mu, self.floor) - self.d**2
        if last is None:
            owed = wanted / self.d
            return self.packing.identity * owed if turn is None else (turn.T * owed) @ turn
        product = self._times(float(np.vdot(last.M, last.Z)), -float(wanted.sum())) ** 2 * (last.M @ last.Z)
        if turn is not None:
            product = turn @ product @ turn.T
        owed = (product + product.T) * -0.5
        owed.reshape(-1)[:: self.order + 1] += wanted
        owed *= self._mean
        return owed if turn is None else np.asarray(turn.T @ owed @ turn)

    def _times(self, bend: float, left: float) -> float:
        """How many times a straight step, at least one, makes M Z fall by `left`, as in `Slacks.aim`.

        Far inside, where M and Z halve in a straight step, it is almost 2; Mehrotra's correction, which is
        for one, would leave a seventh of M Z there.
        """
        above = float(self.d @ self.d) - self.order * self.floor
        if not above > 0:
            return 1.0
        share = left / above
        return max(1.0, 2 * share / (1 + sqrt(max(0.0, 1 - 4 * share * (bend / above)))))

    def residual(self, pulled: Array) -> Array:
        """grad D(M) + sum_i y_i A_i - Z, where `pulled` is the sum in local coordinates."""
        return self._slope + pulled - self.local

    def longest(self, step: MatrixStep) -> tuple[float, float]:
        """How far M and Z may go until they are singular."""
        return self._to_boundary(step.M), self._to_boundary(step.Z)

    def _to_boundary(self, change: Array) -> float:
        if self._turn is not None:
            change = self._turn @ change @ self._turn.T
        smallest = float(eigenvalues(change * self._shrunk)[0])
        return -1 / smallest if smallest < 0 else np.inf

    def mu_after(self, step: MatrixStep, primal: float, dual: float) -> float:
        """`mu` after a step."""
        product = np.vdot(self.local + primal * step.M, self.local + dual * step.Z)
        return max(float(product) / self.order - self.floor, 0.0)

    def moved(self, step: MatrixStep, primal: float, dual: float) -> Scaling | None:
        """The point after a step; None where rounding takes it out of the cone."""
        try:
            L = self.basis @ cholesky(self.local + primal * step.M)
            N = self._dual_basis @ cholesky(self.local + dual * step.Z)
            return Scaling(self.form, L, N)
        except np.linalg.LinAlgError:
            return None


def _svd_near_centre(A: Array) -> tuple[Array, Array, Array]:
    """U, s and V, from the eigenvalues of A^T A where these are close together: it takes half the time."""
    squares, V, failed = lapack.dsyevd(A.T @ A)
    if failed or not squares[0] > _CLOSE * squares[-1] or not np.isfinite(squares[-1]):
        U, s, Vt = singular_spectrum(A)
        return U, s, Vt.T
    s = np.sqrt(squares)
    return (A @ V) / s, s, V
