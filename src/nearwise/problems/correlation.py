"""`nearest_correlation` and `nearest_covariance`: repair a matrix that is not positive semidefinite.

Frobenius is solved on its dual (`_semismooth`), or with given rank on a factor with rows of unit length
(`_unit_rows`); LogDet and von Neumann are `solve` with the constraints K_ii = 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise import _reading, constraints
from nearwise.divergences import Divergence, Frobenius, LogDet, VonNeumann
from nearwise.problem import Problem
from nearwise.problems import _groups, _semismooth, _unit_rows
from nearwise.problems._result import NearestMatrix
from nearwise.result import Certificate, Result, Status
from nearwise.solve import solve

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_DIVERGENCES: dict[str, Divergence] = {
    "frobenius": Frobenius(),
    "logdet": LogDet(),
    "vonneumann": VonNeumann(),
}
_MAX_ITER = 200
_LARGEST = 1e100  # entries of A
_NO_PAIRS = np.empty((0, 2), np.int64)
_NO_VALUES = np.empty(0)
_SLACK = 1.0  # penalty of a diagonal entry where not all of them can be met
_ENDS = {
    Status.SOLVED: "Solved",
    Status.STATIONARY: "No small change of the factor comes nearer; whether another one does is not known",
    Status.INFEASIBLE: "No positive semidefinite matrix has the fixed entries",
    Status.LIMIT: "Stopped after the largest number of iterations",
    Status.STALLED: "No further progress",
}


def nearest_correlation(
    A: Any,
    divergence: str | Divergence = "frobenius",
    rank: int | None = None,
    fixed: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
) -> NearestMatrix:
    """The correlation matrix (positive semidefinite, ones on the diagonal) that is nearest to A.

    Correlations that were estimated from incomplete data, rounded, stressed or typed in often contradict each
    other: the matrix has negative eigenvalues, and no random variables have these correlations. This finds
    the least change that makes it valid.

    Parameters
    ----------
    A : (n, n) symmetric array or scipy sparse matrix; or a tuple (U, w), which stands for U diag(w) U^T
        with U of shape (n, r). Its diagonal need not be one. With `rank`, a sparse matrix or a tuple is never
        made dense, and time and memory grow linearly with n.
    divergence : what near means. "frobenius", the sum of squared changes, takes any A. "logdet" and
        "vonneumann" (or the divergence objects) take positive semidefinite A and keep its range (KSD09 6.3).
    rank : the largest rank of the result, for factor models. Under Frobenius the range is learned: the
        result is F F^T with rows of F of unit length. Under LogDet and von Neumann, A is cut to its leading
        `rank` eigenvalues, and their range is kept.
    fixed : entries of A to keep as they are: (n, n) array that is true (not zero) there, Frobenius only
    weights : n positive numbers; the change of entry (i, j) counts weights[i] * weights[j] times, Frobenius
        only
    tol : the certificate's relative gap, and violation of fixed entries, at which it is solved

    Returns
    -------
    `NearestMatrix`, with `matrix`, `factor`, `status` and `certificate`.

    Notes
    -----
    Objects with the same correlations to all others stay so, and are computed once. Under LogDet and von
    Neumann an A of rank r with n > r (r + 1) / 2 has in general no matrix of its range with ones on the
    diagonal: then ones are asked for with slack (penalty 1 each), and rows of the factor are scaled to unit
    length. The certificate is that of the problem with slack, and `message` says so.

    >>> import nearwise as nw
    >>> nw.nearest_correlation([[1, 1, 0], [1, 1, 1], [0, 1, 1]]).matrix.round(4)
    array([[1.    , 0.7607, 0.1573],
           [0.7607, 1.    , 0.7607],
           [0.1573, 0.7607, 1.    ]])
    """
    wanted = _divergence(divergence)
    n = _order(A)
    _check(rank, tol, n)
    root = None if weights is None else np.sqrt(_weights(weights, n))
    if not isinstance(wanted, Frobenius):
        if fixed is not None or weights is not None:
            raise ValueError("fixed and weights are for the Frobenius norm only")
        return _by_divergence(A, wanted, rank, n, tol)
    if rank is None:
        return _by_dual(_dense(A), None if fixed is None else _fixed_pairs(fixed, n), root, tol)
    if fixed is not None:
        raise ValueError("fixed entries and a rank cannot be combined: leave one of them out")
    return _by_factor(A, rank, np.ones(n) if root is None else root, tol)


def nearest_covariance(
    A: Any,
    variances: ArrayLike | None = None,
    divergence: str | Divergence = "frobenius",
    rank: int | None = None,
    fixed: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
) -> NearestMatrix:
    """The covariance matrix with given variances that is nearest to A, in units of the standard deviations.

    It is the nearest correlation matrix to A_ij / (s_i s_j), scaled back, so that no unit of measurement of
    a variable matters.

    Parameters
    ----------
    A : (n, n) symmetric array with a positive diagonal
    variances : n positive numbers s_i^2, the diagonal of the result; by default that of A
    divergence, rank, fixed, weights, tol : as for `nearest_correlation`

    >>> import nearwise as nw
    >>> nw.nearest_covariance([[4, 2, 0], [2, 1, 1], [0, 1, 1]]).matrix.round(3)
    array([[4.   , 1.521, 0.315],
           [1.521, 1.   , 0.761],
           [0.315, 0.761, 1.   ]])
    """
    matrix = _dense(A)
    given = np.diag(matrix) if variances is None else variances
    squares = _reading.column(
        given, len(matrix), "variance", _reading.positive, "a finite number > 0", unit="variable"
    )
    deviations = np.sqrt(squares)
    found = nearest_correlation(
        matrix / deviations[:, None] / deviations, divergence, rank, fixed, weights, tol
    )
    if found.stored_factor is not None:
        return replace(
            found,
            diagonal=squares,
            stored_factor=found.stored_factor * deviations[:, None],
            stored_matrix=None,
        )
    scaled = deviations[:, None] * found.matrix * deviations
    np.fill_diagonal(scaled, squares)
    return replace(found, diagonal=squares, stored_matrix=scaled)


def _by_dual(A: Array, pairs: Index | None, root: Array | None, tol: float) -> NearestMatrix:
    """Frobenius, any rank; weights by X -> root X root."""
    n = len(A)
    ones = np.ones(n)
    wanted = ones if root is None else root**2
    C = A.copy() if root is None else A * root[:, None] * root
    excess = C.diagonal() - wanted
    C.flat[:: n + 1] = wanted
    groups, inside = _groups.find(C) if pairs is None else (_groups.trivial(n), ones)
    block, difference = groups.reduced(C, inside)
    known = _NO_PAIRS if pairs is None else pairs
    problem = _semismooth.Entries(
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
        dual, others = dual * wanted, others * np.prod(root[known], axis=1)
    X.flat[:: n + 1] = 1.0
    certificate = _certificate(
        found.grade.primal, found.grade.gap, found.grade.violation, float(np.vdot(C, C))
    )
    return _result(
        ones,
        dual if pairs is None else np.concatenate([dual, others]),
        found.status,
        certificate,
        found.n_iter,
        found.n_decompositions,
        "SemismoothNewton",
        matrix=X,
        note="" if groups.is_trivial else f"{n} objects in {k} groups that may be interchanged",
    )


def _by_factor(A: Any, rank: int, root: Array, tol: float) -> NearestMatrix:
    """Frobenius with given rank, on the factor."""
    n = len(root)
    rank = min(rank, n)
    target = _target(A, root)
    found = _unit_rows.minimise(target, rank, tol, _MAX_ITER)
    certificate = _certificate(found.primal, found.primal - found.dual, 0.0, target.squared_norm)
    status = Status.SOLVED if found.proved else Status.STATIONARY if found.stationary else Status.LIMIT
    factor = _unit_rows.with_rows_of_length(found.factor, np.ones(n))
    return _result(
        np.ones(n), -2 * found.y * root**2, status, certificate, found.n_iter, 0, "TrustRegion", factor=factor
    )


def _by_divergence(A: Any, divergence: Divergence, rank: int | None, n: int, tol: float) -> NearestMatrix:
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
    return _unit_diagonal(found, hard, r)


def _unit_diagonal(found: Result, hard: bool, r: int) -> NearestMatrix:
    F = found.kernel_factor
    n = len(F)
    note = (
        ""
        if hard
        else f"A has rank {r}, and {n} ones do not fit its range: asked for with slack, rows then scaled"
    )
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
        U, w = _low_rank(A)
        negative = np.flatnonzero(w < 0)
        if negative.size:
            raise ValueError(f"weight {negative[0]} is {w[negative[0]]}; A must be positive semidefinite")
        V, s, _ = np.linalg.svd(U * np.sqrt(w), full_matrices=False)
        values = s**2
    else:
        ascending, V = np.linalg.eigh(_dense(A))
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


def _target(A: Any, root: Array) -> _unit_rows.Target:
    column = root[:, None]
    if isinstance(A, tuple):
        U, w = _low_rank(A)
        U = U * column
        gram = U.T @ U

        def product(F: Array) -> Array:
            return U @ (w[:, None] * (U.T @ F))

        squared_norm = float(np.sum((gram * w) * (gram * w).T))
    else:
        matrix = _sparse(A) if sparse.issparse(A) else _dense(A)
        scale = sparse.diags_array(root)
        C: Any = scale @ matrix @ scale if sparse.issparse(matrix) else column * matrix * root

        def product(F: Array) -> Array:
            return np.asarray(C @ F, dtype=np.float64)

        squared_norm = float(C.multiply(C).sum() if sparse.issparse(C) else np.sum(C * C))
    return _unit_rows.Target(product, squared_norm, root**2)


def _certificate(primal: float, gap: float, violation: float, squared_norm: float) -> Certificate:
    """`squared_norm` is that of C: differences below its rounding are zero."""
    relative = abs(gap) / max(abs(primal), abs(primal - gap), 1e-15 * squared_norm, 1e-300)
    return Certificate(primal, primal - gap, relative, violation, violation)


def _result(
    diagonal: Array,
    dual: Array,
    status: Status,
    certificate: Certificate,
    n_iter: int,
    n_decompositions: int,
    solver: str,
    matrix: Array | None = None,
    factor: Array | None = None,
    note: str = "",
) -> NearestMatrix:
    reached = f"relative gap {certificate.gap:.1e}, violation {certificate.violation:.1e}"
    message = f"{_ENDS[status]}: {reached}." + (f" {note}." if note else "")
    return NearestMatrix(
        diagonal, dual, status, certificate, n_iter, n_decompositions, solver, message, matrix, factor
    )


def _order(A: Any) -> int:
    shape = np.shape(A[0]) if isinstance(A, tuple) else np.shape(A)
    if len(shape) != 2 or shape[0] == 0 or (not isinstance(A, tuple) and shape[0] != shape[1]):
        raise ValueError(f"A must be a square matrix or a tuple (U, w), got shape {shape}")
    return int(shape[0])


def _dense(A: Any) -> Array:
    if isinstance(A, tuple):
        U, w = _low_rank(A)
        return (U * w) @ U.T
    matrix = _reading.symmetric(A.toarray() if sparse.issparse(A) else A, "A")
    largest = max(float(matrix.max()), -float(matrix.min()))
    if largest > _LARGEST:
        raise ValueError(f"A has an entry of size {largest:g}, too large to be squared and added up")
    return matrix


def _low_rank(A: tuple[Any, Any]) -> tuple[Array, Array]:
    [(_, U, w)] = _reading.matrices(A)
    if U is None or w is None:
        raise ValueError("a tuple A must be (U, w), an (n, r) array and r numbers")
    return U, w


def _sparse(A: Any) -> Any:
    [(matrix, _, _)] = _reading.matrices(A)
    return matrix


def _fixed_pairs(fixed: ArrayLike, n: int) -> Index:
    pattern = np.asarray(fixed)
    if pattern.shape != (n, n):
        raise ValueError(f"fixed must have the shape of A, {(n, n)}, got {pattern.shape}")
    pattern = pattern.astype(bool)
    if (pattern != pattern.T).any():
        i, j = np.argwhere(pattern != pattern.T)[0]
        raise ValueError(f"fixed must be symmetric, but fixed[{i}, {j}] and fixed[{j}, {i}] differ")
    return np.argwhere(np.triu(pattern, 1))


def _weights(weights: ArrayLike, n: int) -> Array:
    return _reading.column(weights, n, "weight", _reading.positive, "a finite number > 0", unit="variable")


def _divergence(divergence: str | Divergence) -> Divergence:
    if isinstance(divergence, str):
        if divergence not in _DIVERGENCES:
            names = ", ".join(map(repr, _DIVERGENCES))
            raise ValueError(f"divergence must be one of {names}, got {divergence!r}")
        return _DIVERGENCES[divergence]
    if not isinstance(divergence, tuple(type(known) for known in _DIVERGENCES.values())):
        raise TypeError(f"divergence must be Frobenius, LogDet or VonNeumann, got {divergence!r}")
    return divergence


def _check(rank: int | None, tol: float, n: int) -> None:
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, Integral) or not 1 <= rank <= n):
        raise ValueError(f"rank must be a whole number from 1 to {n} or None, got {rank!r}")
    if not (isinstance(tol, Real) and 0 < tol < 1):
        raise ValueError(f"tol must be a number between 0 and 1, got {tol!r}")
