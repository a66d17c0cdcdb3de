"""Maximally collapsing metric learning (Globerson and Roweis, NIPS 2005), from its definition.

Every object shall be near its own class and far from all others: with p(j | i) proportional to exp(-d(i, j)),
it minimises sum_i KL(p0(. | i), p(. | i)), where p0 is uniform on the objects of i's class. That is convex in
M; here it is minimised over a square factor of M, which has no other minima than those of M.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from nearwise._common.types import Array

_MAX_ITER = 200


def mcml(X: Array, y: NDArray[np.int64], seed: int) -> Callable[[Array], Array]:
    """What maps rows to coordinates in which Euclidean distances are the learned ones."""
    d = X.shape[1]
    same = (y[:, None] == y) & ~np.eye(len(y), dtype=bool)
    partners = np.maximum(same.sum(axis=1, keepdims=True), 1)
    wanted = same / partners  # p0
    scale = 1.0 / max(float(np.mean(np.var(X, axis=0))) * d, 1e-300)  # distances of about two at the start

    def cost(flat: Array) -> tuple[float, Array]:
        L = flat.reshape(d, d)
        Z = X @ L
        squares = np.einsum("ij,ij->i", Z, Z)
        D = np.maximum(squares[:, None] + squares - 2 * Z @ Z.T, 0.0)
        np.fill_diagonal(D, np.inf)
        norms = logsumexp(-D, axis=1, keepdims=True)
        value = float(np.sum(wanted[same] * D[same]) + norms.sum())
        weights = wanted - np.exp(-D - norms)  # derivative by the distances
        both = weights + weights.T
        laplacian = np.diag(both.sum(axis=1)) - both
        return value, np.asarray(2.0 * X.T @ (laplacian @ Z)).ravel()

    start = (np.sqrt(scale) * np.eye(d)).ravel()
    found = minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": _MAX_ITER})
    L = found.x.reshape(d, d)
    return lambda rows: rows @ L
