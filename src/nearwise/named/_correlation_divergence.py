"""The nearest correlation matrix in a matrix divergence: `solve` with the constraints K_ii = 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.model import constraints
from nearwise.model.divergences import Divergence
from nearwise.model.problem import Problem
from nearwise.named import _given, _unit_rows
from nearwise.named._result import NearestMatrix
from nearwise.solving.driver import solve
from nearwise.solving.result import Result, Status

_SLACK = 1.0  # penalty of a diagonal entry where not all of them can be met


def nearest(A: Any, divergence: Divergence, rank: int | None, n: int, tol: float) -> NearestMatrix:
    """LogDet or von Neumann: `solve` with K_ii = 1, hard where the range leaves room for it."""
    V, values = _range(A, rank)
    zero = np.flatnonzero(np.einsum("ij,ij->i", V, V) < 1e-20)
    if zero.size:
        raise ValueError(f"row {zero[0]} of A is zero, and so it is in every matrix of the same range")
    r = len(values)
    hard = n <= r * (r + 1) // 2
    side = constraints.similarity(np.stack([np.arange(n)] * 2, axis=1), 1.0, "==")
    found = solve(Problem(V, side, divergence, np.diag(values), math.inf if hard else _SLACK), tol=tol)
    if found.status is Status.INFEASIBLE:
        hard = False
        found = solve(Problem(V, side, divergence, np.diag(values), _SLACK), tol=tol)
    return _with_unit_diagonal(found, hard, r)


def _with_unit_diagonal(found: Result, hard: bool, r: int) -> NearestMatrix:
    F = found.kernel_factor
    n = len(F)
    note = ""
    if not hard:
        note = f"A has rank {r}, and {n} ones do not fit its range: asked for with slack, rows then scaled"
    elif found.status is not Status.SOLVED:
        note = "The rows were then scaled to length 1, which takes them out of the range of A"
    return NearestMatrix(
        np.ones(n),
        found.dual,
        found.status,
        found.certificate,
        found.n_iter,
        0,
        found.solver,
        f"{found.message} {note}.".strip(" .") + ".",
        stored_factor=_unit_rows.with_rows_of_length(F, np.ones(n)),
    )


def _range(A: Any, rank: int | None) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues of a positive semidefinite A on its range, or on its leading part."""
    if isinstance(A, tuple):
        U, w = _given.low_rank(A)
        negative = np.flatnonzero(w < 0)
        if negative.size:
            raise ValueError(f"weight {negative[0]} is {w[negative[0]]}; A must be positive semidefinite")
        V, s, _ = np.linalg.svd(U * np.sqrt(w), full_matrices=False)
        values = s**2
    else:
        ascending, V = np.linalg.eigh(_given.dense(A))
        if ascending[0] < -1e-8 * max(abs(ascending[-1]), abs(ascending[0])):
            raise ValueError(
                f"A must be positive semidefinite for this divergence, but has the eigenvalue "
                f'{ascending[0]:.6g}; use divergence="frobenius", whose answer has none below zero'
            )
        values, V = ascending[::-1], V[:, ::-1]
    kept = int(np.sum(values > 1e-10 * values[0])) if values[0] > 0 else 0
    if kept == 0:
        raise ValueError("A is zero, and so is every matrix of its range")
    kept = kept if rank is None else min(kept, rank)
    return np.ascontiguousarray(V[:, :kept]), values[:kept]
