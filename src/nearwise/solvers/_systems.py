"""Newton's linear system: D + omega * A^T(w A(omega * D)) = -omega * gradient, for symmetric D.

A holds the constraint rows that bend the objective, w their second derivatives. Few rows or few unknowns
are solved directly; otherwise by conjugate gradients. Their preconditioner takes each row's vector as
Gaussian: then, in the eigenbasis of sum_i w_i |u_i|^2 u_i u_i^T, off-diagonal entries of D do not interact
and the diagonal solves one r x r system.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearwise.measurements import LocalAtoms

Array = NDArray[np.float64]

_DENSE_ENTRIES = 4_000_000  # rows times unknowns, up to which the rows are written out
_DENSE_ORDER = 1_500  # the largest system solved directly
_MAX_CG = 200


def newton_step(
    rows: LocalAtoms, weights: Array, gradient: Array, omega: Array | None, tol: float
) -> tuple[Array, Array]:
    """D and A^T(w A(omega * D)).

    Parameters
    ----------
    rows : the constraint rows in local coordinates
    weights : w > 0, one per row
    gradient : before omega is applied
    omega : None for ones
    tol : relative accuracy of conjugate gradients
    """
    r = len(gradient)
    unknowns = r * (r + 1) // 2
    target = -gradient if omega is None else -omega * gradient
    if rows.n_rows == 0:
        return target, np.zeros_like(gradient)
    if rows.n_rows * unknowns <= _DENSE_ENTRIES and min(rows.n_rows, unknowns) <= _DENSE_ORDER:
        return _direct(rows, weights, target, omega)
    return _Gaussian(rows, weights, omega).solve(target, tol)


def _direct(rows: LocalAtoms, weights: Array, target: Array, omega: Array | None) -> tuple[Array, Array]:
    """Write the rows out as vectors of unknowns; solve in the smaller of the two spaces."""
    r = len(target)
    a, b = np.triu_indices(r)
    root_two = np.where(a == b, 1.0, np.sqrt(2.0))
    products = rows.x[:, a] * rows.y[:, b]
    if rows.x is not rows.y:
        products = (products + rows.x[:, b] * rows.y[:, a]) / 2
    products *= rows.coefficient[:, None]
    if rows.row is not None:
        merged = np.zeros((rows.n_rows, len(a)))
        np.add.at(merged, rows.row, products)
        products = merged
    bare = products * (root_two * np.sqrt(weights)[:, None])
    R = bare if omega is None else bare * omega[a, b]
    t = target[a, b] * root_two
    if len(R) <= R.shape[1]:
        pulled = _solved(R @ R.T, R @ t)
        d = t - R.T @ pulled
        curved = bare.T @ pulled
    else:
        d = _solved(R.T @ R, t)
        curved = bare.T @ (R @ d)
    return _unpacked(d / root_two, r), _unpacked(curved / root_two, r)


def _solved(gram: Array, right: Array) -> Array:
    """(I + gram)^-1 right."""
    return linalg.cho_solve(linalg.cho_factor(np.eye(len(gram)) + gram), right)


def _unpacked(upper: Array, r: int) -> Array:
    full = np.zeros((r, r))
    full[np.triu_indices(r)] = upper
    return full + np.triu(full, 1).T


class _Gaussian:
    """Conjugate gradients with the Gaussian preconditioner, in the precision of the rows."""

    def __init__(self, rows: LocalAtoms, weights: Array, omega: Array | None) -> None:
        dtype = rows.x.dtype
        scale = (weights**0.25).astype(dtype)[slice(None) if rows.row is None else rows.row, None]
        x = rows.x * scale
        y = x if rows.x is rows.y else rows.y * scale
        self.rotation = np.eye(x.shape[1])
        if omega is None:
            squared_norm = np.einsum("ij,ij->i", y, y)
            covariance = x.T @ (x * (squared_norm * rows.coefficient**2)[:, None])
            self.rotation = np.linalg.eigh(((covariance + covariance.T) / 2).astype(np.float64))[1]
            rotation = self.rotation.astype(dtype)
            x, y = x @ rotation, (x @ rotation if x is y else y @ rotation)
            y = x if rows.x is rows.y else y
        self.rows = LocalAtoms(x, y, rows.coefficient, rows.row, rows.n_rows)
        self.omega = np.ones((x.shape[1],) * 2) if omega is None else omega
        squares = (x * x * (rows.coefficient**2)[:, None]).T @ (y * y)
        self.inverse = 1.0 / (1.0 + (squares + squares.T).astype(np.float64) * self.omega**2)
        diagonals = self.rows.diagonals()
        weight = np.diag(self.omega)
        block = (diagonals.T @ diagonals).astype(np.float64) * np.outer(weight, weight)
        self.factor = linalg.cho_factor(np.eye(len(weight)) + block)

    def solve(self, target: Array, tol: float) -> tuple[Array, Array]:
        Q = self.rotation
        residual = Q.T @ target @ Q
        step = np.zeros_like(residual)
        z = self._preconditioned(residual)
        direction, product = z, float(np.sum(residual * z))
        goal = tol**2 * product
        for _ in range(_MAX_CG):
            image = self._hessian(direction)
            curvature = float(np.sum(direction * image))
            if not curvature > 0:
                break
            length = product / curvature
            step = step + length * direction
            residual = residual - length * image
            z = self._preconditioned(residual)
            previous, product = product, float(np.sum(residual * z))
            if not product > goal:
                break
            direction = z + (product / previous) * direction
        step = (step + step.T) / 2
        # The rows' part of the Hessian, before omega: what the chart needs to move theta.
        bent = self._bent(self.omega * step)
        return Q @ step @ Q.T, Q @ bent @ Q.T

    def _hessian(self, D: Array) -> Array:
        return D + self.omega * self._bent(self.omega * D)

    def _bent(self, D: Array) -> Array:
        dtype: Any = self.rows.x.dtype
        return self.rows.adjoint(self.rows.values(D.astype(dtype))).astype(np.float64)

    def _preconditioned(self, residual: Array) -> Array:
        z = residual * self.inverse
        np.fill_diagonal(z, linalg.cho_solve(self.factor, np.diag(residual)))
        return z
