"""The nearest correlation matrix in the Frobenius norm, with one weight per variable at most: by its dual."""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.named import _groups, _semismooth
from nearwise.named._entries import Entries
from nearwise.named._result import NearestMatrix, certified, result

_MAX_ITER = 200
_NO_PAIRS = np.empty((0, 2), np.int64)
_NO_VALUES = np.empty(0)


def nearest(
    A: Array, pairs: Index | None, root: Array | None, min_eigenvalue: float, tol: float
) -> NearestMatrix:
    """Weights by X -> root X root, and X >= min_eigenvalue I by X -> X - min_eigenvalue I.

    What is solved for has 1 - min_eigenvalue on its diagonal, and otherwise the same entries, so that neither
    the distance nor the bound on it changes.
    """
    n = len(A)
    ones = np.ones(n)
    squares = ones if root is None else root**2
    C = A.copy() if root is None else A * root[:, None] * root
    excess = C.diagonal() - squares
    wanted = (1 - min_eigenvalue) * squares
    C.flat[:: n + 1] = wanted
    groups, inside = _groups.find(C) if pairs is None else (_groups.trivial(n), ones)
    block, difference = groups.reduced(C, inside)
    known = _NO_PAIRS if pairs is None else pairs
    problem = Entries(
        block,
        difference,
        groups,
        wanted if groups.is_trivial else wanted[groups.first],
        known,
        _NO_VALUES if pairs is None else C[tuple(known.T)],
    )
    found = _semismooth.minimise(problem, float(excess @ excess), tol, _MAX_ITER)
    X = groups.expanded((found.block + found.block.T) / 2, found.difference)
    # a multiplier belongs to X_ij = b_ij before the weights, and to |X - C|^2 without 1/2
    k = len(groups.sizes)
    dual = -2 * (found.y[:k] if groups.is_trivial else found.y[:k][groups.member_of])
    others = -2 * found.y[k:]
    if root is not None:
        X = X / root[:, None] / root
        X = (X + X.T) / 2
        dual, others = dual * squares, others * np.prod(root[known], axis=1)
    X.flat[:: n + 1] = 1.0
    return result(
        ones,
        dual if pairs is None else np.concatenate([dual, others]),
        found.status,
        certified(found.grade.primal, found.grade.gap, found.grade.violation, 1e-15 * float(np.vdot(C, C))),
        found.n_iter,
        found.n_decompositions,
        "SemismoothNewton",
        matrix=X,
        notes=() if groups.is_trivial else (f"{n} objects in {k} groups that may be interchanged",),
        min_eigenvalue=min_eigenvalue,
    )
