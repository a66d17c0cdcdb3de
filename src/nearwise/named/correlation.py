"""`nearest_correlation` and `nearest_covariance`: repair a matrix that is not positive semidefinite.

Frobenius is solved on its dual (`_correlation_dual`), with weights of single entries in
`_correlation_weights`, or with given rank on a factor with rows of unit length (`_unit_rows`); LogDet and von
Neumann are `solve` with the constraints K_ii = 1 (`_by_divergence`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearwise._common import reading
from nearwise._common.types import Array, Index, Mask
from nearwise._common.warning import warn
from nearwise.core import Divergence, Frobenius, Problem
from nearwise.methods import Status, solve
from nearwise.named import _correlation_dual, _correlation_weights, _given, _unit_rows
from nearwise.named._result import NearestMatrix, certified, message
from nearwise.side import constraints

_MAX_ITER = 200
_LARGEST_VARIANCE = 1e200  # and one over the smallest: multipliers are divided by it
_TRIED = 10, 40, 160  # fixed entries among which a small contradiction is looked for
_SECONDS = 5.0  # for each of these searches, which take milliseconds
_NAMED = 10  # entries of a contradiction
_SLACK = 1.0  # penalty of a diagonal entry where not all of them can be met


def nearest_correlation(
    A: Any,
    divergence: str | Divergence = "frobenius",
    rank: int | None = None,
    fixed: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
    min_eigenvalue: float = 0.0,
) -> NearestMatrix:
    """The correlation matrix (positive semidefinite, ones on the diagonal) that is nearest to A.

    Correlations that were estimated from incomplete data, rounded, stressed or typed in often contradict each
    other: the matrix has negative eigenvalues, and no random variables have these correlations. This finds
    the least change that makes it valid.

    Parameters
    ----------
    A : (n, n) symmetric array, pandas frame or scipy sparse matrix; or a tuple (U, w), which stands for
        U diag(w) U^T with U of shape (n, r). NaN stands for a correlation that is not known (Frobenius, no
        rank); what is given on one side of the diagonal is known. With `rank`, a sparse matrix or a tuple is
        never made dense, and time and memory grow linearly with n. Under Frobenius the diagonal must be one
        up to rounding, or NaN; for a tuple, a warning says where it is not. Entries above one in size warn.
    divergence : what near means. "frobenius", the sum of squared changes, takes any A. "logdet" and
        "vonneumann" (or the divergence objects) take positive semidefinite A and keep its range (KSD09 6.3).
    rank : the largest rank of the result, for factor models. Under Frobenius the range is learned: the
        result is F F^T with rows of F of unit length. Under LogDet and von Neumann, A is cut to its leading
        `rank` eigenvalues, and their range is kept.
    fixed : entries of A to keep as they are: (n, n) array that is true (not zero) there, Frobenius only.
        Where they contradict each other, a warning names some that do, and the status is INFEASIBLE.
    weights : Frobenius only. n numbers from 1e-50 to 1e50: the squared change of entry (i, j) counts
        weights[i] * weights[j] times. Or a symmetric (n, n) array of numbers >= 0: it counts weights[i, j]
        times, which takes longer; where that is zero, A plays no part.
    tol : the certificate's relative gap, and violation of fixed entries, at which it is solved
    min_eigenvalue : the smallest eigenvalue that the result may have, from 0 to below 1, Frobenius only and
        without a rank. With the default 0 the result is singular where A has a negative eigenvalue, and
        rounding decides whether it has a Cholesky factor; with 1e-10 it has one.

    Returns
    -------
    `NearestMatrix`, with `matrix` (a frame where A is one), `factor`, `status`, `certificate` and `filled`,
    the entries that A says nothing about.

    Notes
    -----
    Objects with the same correlations to all others stay so, and are computed once. Under LogDet and von
    Neumann an A of rank r with n > r (r + 1) / 2 has in general no matrix of its range with ones on the
    diagonal: then ones are asked for with slack (penalty 1 each), and rows of the factor are scaled to unit
    length. The certificate is that of the problem with slack, and `message` says so.

    Where the known entries leave a choice, missing ones become one of several nearest matrices. A variable
    without any known correlation gets zeros, with a warning. With weights of single entries or missing ones
    the certificate's gap is relative to the distance, or to `tol` times the weighted sum of squares of A
    where that is more.

    >>> import nearwise as nw
    >>> nw.nearest_correlation([[1, 1, 0], [1, 1, 1], [0, 1, 1]]).matrix.round(4)
    array([[1.    , 0.7607, 0.1573],
           [0.7607, 1.    , 0.7607],
           [0.1573, 0.7607, 1.    ]])
    """
    return _nearest(A, divergence, rank, fixed, weights, tol, min_eigenvalue, is_scaled=False)


def _nearest(
    A: Any,
    divergence: str | Divergence,
    rank: int | None,
    fixed: ArrayLike | None,
    weights: ArrayLike | None,
    tol: float,
    min_eigenvalue: float,
    is_scaled: bool,
) -> NearestMatrix:
    """`is_scaled` says whether A is a covariance matrix in units of deviations, with whatever diagonal."""
    wanted = _given.divergence(divergence)
    n = _given.order(A)
    _given.check(rank, tol, min_eigenvalue, n)
    frame = _given.frame(A, fixed=fixed, weights=weights)
    importance = _given.weights(weights, n)
    if not isinstance(wanted, Frobenius):
        if fixed is not None or weights is not None or min_eigenvalue > 0:
            raise ValueError("fixed, weights and min_eigenvalue are for the Frobenius norm only")
        found = _by_divergence(A, wanted, rank, n, tol)
    else:
        labels = range(n) if frame is None else A.index
        check = None if is_scaled else _given.Correlations(A, importance, labels)
        if rank is None:
            found = _of_any_rank(A, check, fixed, importance, min_eigenvalue, tol, labels)
        else:
            found = _of_rank(A, check, rank, fixed, importance, min_eigenvalue, tol)
        if len(found.filled):
            _warn_of_unknown(found, labels)
    return found if frame is None else replace(found, frame=frame)


def nearest_covariance(
    A: Any,
    variances: ArrayLike | None = None,
    divergence: str | Divergence = "frobenius",
    rank: int | None = None,
    fixed: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
    min_eigenvalue: float = 0.0,
) -> NearestMatrix:
    """The covariance matrix with given variances that is nearest to A, in units of the standard deviations.

    It is the nearest correlation matrix to A_ij / (s_i s_j), scaled back, so that no unit of measurement of
    a variable matters.

    Parameters
    ----------
    A : (n, n) symmetric array, pandas frame or scipy sparse matrix with a positive diagonal, NaN where a
        covariance is not known
    variances : n numbers s_i^2 from 1e-200 to 1e200, the diagonal of the result; by default that of A
    divergence, rank, fixed, weights, tol : as for `nearest_correlation`
    min_eigenvalue : the smallest eigenvalue that the correlation matrix of the result may have

    Returns
    -------
    `NearestMatrix`. `certificate` is that of the correlation matrix; `dual` is about entries of the
    covariance matrix, while the units s_i stay as they are.

    >>> import nearwise as nw
    >>> nw.nearest_covariance([[4, 2, 0], [2, 1, 1], [0, 1, 1]]).matrix.round(3)
    array([[4.   , 1.521, 0.315],
           [1.521, 1.   , 0.761],
           [0.315, 0.761, 1.   ]])
    """
    frame = _given.frame(A, variances=variances, fixed=fixed, weights=weights)
    matrix, missing = _given.with_missing(A)
    if missing is not None:
        matrix[missing] = np.nan
    given = np.diag(matrix) if variances is None else variances
    n, least = len(matrix), 1 / _LARGEST_VARIANCE
    expected = f"a finite number > 0, from {least:g} to {_LARGEST_VARIANCE:g}"
    squares = reading.column(given, n, "variance", _is_variance, expected, unit="variable")
    deviations = np.sqrt(squares)
    scaled = matrix / deviations[:, None] / deviations
    labelled = scaled if frame is None else frame(scaled)
    found = _nearest(labelled, divergence, rank, fixed, weights, tol, min_eigenvalue, is_scaled=True)
    units = np.outer(deviations, deviations)
    pairs = _given.fixed_pairs(fixed, n)
    of_rows = squares if pairs is None else np.concatenate([squares, units[tuple(pairs.T)]])
    found = replace(found, diagonal=squares, dual=found.dual / of_rows)
    if found.stored_factor is not None:
        return replace(found, stored_factor=found.stored_factor * deviations[:, None], stored_matrix=None)
    X = found.array * units
    np.fill_diagonal(X, squares)
    return replace(found, stored_matrix=X)


def _is_variance(values: Array) -> Mask:
    return (values >= 1 / _LARGEST_VARIANCE) & (values <= _LARGEST_VARIANCE)


def _of_any_rank(
    A: Any,
    check: _given.Correlations | None,
    fixed: ArrayLike | None,
    weights: Array | None,
    min_eigenvalue: float,
    tol: float,
    labels: Any,
) -> NearestMatrix:
    """Frobenius: with weights of variables or of entries."""
    matrix, missing = _given.with_missing(A)
    pairs = _given.fixed_pairs(fixed, len(matrix))
    if check is not None:
        check(matrix, missing)
    if missing is not None or (weights is not None and weights.ndim == 2):
        found = _correlation_weights.nearest(matrix, missing, pairs, weights, min_eigenvalue, tol)
    else:
        root = None if weights is None else np.sqrt(weights)
        found = _correlation_dual.nearest(matrix, pairs, root, min_eigenvalue, tol)
    if found.status is Status.INFEASIBLE and pairs is not None:
        said = _contradiction(
            pairs, matrix[tuple(pairs.T)], found.dual[len(matrix) :], min_eigenvalue, labels
        )
        found = replace(found, message=f"{found.message} {said}.")
        warn(found.message)
    return found


def _contradiction(pairs: Index, values: Array, dual: Array, min_eigenvalue: float, labels: Any) -> str:
    """A few fixed entries that contradict each other by themselves, as words.

    They are looked for among those with the largest multipliers in the proof that all of them do.
    """
    order = np.argsort(-np.abs(dual), kind="stable")
    few, verb = order[: _TRIED[0]], "have the largest multipliers in the proof"
    for count in _TRIED:
        tried = np.sort(order[:count])
        names, places = np.unique(pairs[tried], return_inverse=True)
        n = len(names)
        rows = np.concatenate([np.stack([np.arange(n)] * 2, axis=1), places.reshape(-1, 2)])
        bounds = np.concatenate([np.full(n, 1.0 - min_eigenvalue), values[tried]])
        side = constraints.similarity(rows, bounds, "==")
        found = solve(Problem(np.eye(n), side, penalty=math.inf), max_seconds=_SECONDS)
        if found.status is Status.INFEASIBLE:
            few, verb = tried[found.dual[n:] != 0], "contradict each other"
            break
        if count >= len(order):
            break
    shown = [
        f"({reading.show(labels[i])}, {reading.show(labels[j])}) = {value:.6g}"
        for (i, j), value in zip(pairs[few], values[few], strict=True)
    ]
    if len(shown) == 1:
        return f"The entry {shown[0]} is impossible by itself; free it"
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"The entries {', '.join(shown[:_NAMED])}{more} {verb}; free one of them"


def _of_rank(
    A: Any,
    check: _given.Correlations | None,
    rank: int,
    fixed: ArrayLike | None,
    weights: Array | None,
    min_eigenvalue: float,
    tol: float,
) -> NearestMatrix:
    """Frobenius with given rank, on the factor."""
    if fixed is not None:
        raise ValueError("fixed entries and a rank cannot be combined: leave one of them out")
    if min_eigenvalue > 0:
        raise ValueError(
            f"min_eigenvalue {min_eigenvalue:g} and a rank cannot be combined: a matrix of smaller rank than "
            "order has the eigenvalue 0"
        )
    if weights is not None and weights.ndim == 2:
        raise ValueError("weights of single entries and a rank cannot be combined: leave one of them out")
    n = _given.order(A)
    root = np.ones(n) if weights is None else np.sqrt(weights)
    target = _target(A, root, check)
    found = _unit_rows.minimise(target, int(rank), tol, _MAX_ITER)
    certificate = certified(found.primal, found.primal - found.dual, 0.0, 1e-15 * target.squared_norm)
    factor = _unit_rows.with_rows_of_length(found.factor, np.ones(n))
    dual, said = -2 * found.y * root**2, message(found.status, certificate)
    end = found.status, certificate, found.n_iter, 0, "TrustRegion", said
    return NearestMatrix(np.ones(n), dual, *end, stored_factor=factor)


def _target(A: Any, root: Array, check: _given.Correlations | None) -> _unit_rows.Target:
    column = root[:, None]
    if isinstance(A, tuple):
        U, w = _given.low_rank(A)
        if check is not None:
            check.diagonal((U * U) @ w)
        U = U * column
        gram = U.T @ U

        def product(F: Array) -> Array:
            return U @ (w[:, None] * (U.T @ F))

        squared_norm = float(np.sum((gram * w) * (gram * w).T))
    else:
        matrix = _given.sparse_matrix(A) if sparse.issparse(A) else _given.dense(A)
        if check is not None:
            check(matrix, None)
        scale = sparse.diags_array(root)
        C: Any = scale @ matrix @ scale if sparse.issparse(matrix) else column * matrix * root

        def product(F: Array) -> Array:
            return np.asarray(C @ F, dtype=np.float64)

        squared_norm = float(C.multiply(C).sum() if sparse.issparse(C) else np.sum(C * C))
    return _unit_rows.Target(product, squared_norm, root**2)


def _warn_of_unknown(found: NearestMatrix, labels: Any) -> None:
    """Where nothing is known of a variable."""
    n = len(found.diagonal)
    unknown = np.flatnonzero(np.bincount(found.filled.ravel(), minlength=n) == max(n - 1, 1))
    if unknown.size:
        names = ", ".join(reading.show(labels[k]) for k in unknown[:10]) + (
            ", ..." if len(unknown) > 10 else ""
        )
        several = "variables" if len(unknown) > 1 else "variable"
        warn(f"no correlation of {several} {names} is known: all of them are set to 0")


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
    note = ""
    if not hard:
        note = f"A has rank {r}, and {n} ones do not fit its range: asked for with slack, rows then scaled"
    elif found.status is not Status.SOLVED:
        note = "The rows were then scaled to length 1, which takes them out of the range of A"
    end = found.status, found.certificate, found.n_iter, 0, found.solver
    said = f"{found.message} {note}.".strip(" .") + "."
    factor = _unit_rows.with_rows_of_length(found.kernel_factor, np.ones(n))
    return NearestMatrix(np.ones(n), found.dual, *end, said, stored_factor=factor)


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
