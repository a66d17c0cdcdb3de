"""Maximum variance unfolding (MVU): Weinberger, Sha and Saul 2004, as a semidefinite program for cvxpy."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from nearwise._common.types import Array

_NEIGHBOURS = 5
_LONGEST = 3_000  # iterations of SCS


def maximum_variance_unfolding(K: Array, rank: int) -> Array:
    """(n, rank) coordinates: the kernel of largest trace that keeps the distances of neighbours under K.

    ModuleNotFoundError without cvxpy. The program has n (n + 1) / 2 unknowns: a few hundred objects at most.
    """
    cvxpy: Any = importlib.import_module("cvxpy")
    n = len(K)
    squares = np.diag(K)[:, None] + np.diag(K) - 2 * K
    i, j = _edges(squares)
    m, unit = len(i), float(np.mean(squares[i, j]))
    L: Any = cvxpy.Variable((n, n), PSD=True)
    # one row per edge picks L_ii + L_jj - 2 L_ij out of vec(L)
    rows = np.tile(np.arange(m), 4)
    cells = np.concatenate([i * n + i, j * n + j, i * n + j, j * n + i])
    weights = np.repeat([1.0, 1.0, -1.0, -1.0], m)
    measured = csr_array((weights, (rows, cells)), shape=(m, n * n))
    kept = measured @ cvxpy.vec(L, order="C") == squares[i, j] / unit
    program = cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(L)), [kept, cvxpy.sum(L) == 0])
    program.solve(solver=cvxpy.SCS, eps_abs=1e-3, eps_rel=1e-3, max_iters=_LONGEST)
    if L.value is None:
        raise RuntimeError(f"maximum variance unfolding: SCS ends with the status {program.status!r}")
    values, vectors = np.linalg.eigh((L.value + L.value.T) / 2)
    return np.asarray(vectors[:, ::-1][:, :rank] * np.sqrt(np.maximum(values[::-1][:rank], 0.0) * unit))


def _edges(squares: Array) -> tuple[Any, Any]:
    """Neighbours, as many as it takes to connect all objects: else their trace has no bound."""
    n = len(squares)
    order = np.argsort(squares + np.diag(np.full(n, -np.inf)), axis=1)[:, 1:]
    for count in range(min(_NEIGHBOURS, n - 1), n):
        joined = np.repeat(np.arange(n), count), order[:, :count].ravel()
        near = csr_array((np.ones(n * count), joined), (n, n))
        if connected_components(near, directed=False)[0] == 1:
            break
    i, j = (near + near.T).nonzero()
    return i[i < j], j[i < j]
