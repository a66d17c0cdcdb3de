"""The nearest correlation matrix where every entry has a weight of its own, or where entries are missing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array, Index, Mask
from nearwise.methods import Status
from nearwise.named import _augmented, _correlation_dual, _interior, _weighted
from nearwise.named._result import NearestMatrix, certified, message
from nearwise.named._weighted import Solution, Weighted, best_of

_FEW = 500  # free entries up to which the interior-point method is the faster one
_MAX_ITER = 100
_PATIENCE = 150  # eigendecompositions of the augmented Lagrangian method, where the other one can take over
_LIFTS = (0.1, 1e-2, 1e-4, 1e-6)  # how far inside the cone a start is looked for
_SMALL = 32  # order up to which BLAS uses one thread by itself


def nearest(
    A: Array,
    missing: Mask | None,
    pairs: Index | None,
    weights: Array | None,
    min_eigenvalue: float,
    tol: float,
) -> NearestMatrix:
    """`weights` are those of the variables, of the entries, or None; a missing entry has none."""
    n = len(A)
    off_diagonal = ~np.eye(n, dtype=bool)
    missing = np.zeros((n, n), bool) if missing is None else missing
    A = np.where(missing & ~off_diagonal, 1.0, A)  # what the diagonal is in any case
    missing = missing & off_diagonal
    fixed = _pattern(pairs, missing)
    W = np.ones((n, n)) if weights is None else weights if weights.ndim == 2 else np.outer(weights, weights)
    W = np.where(missing, 0.0, W)
    root = _rank_one(W)
    if root is not None or not (off_diagonal & ~fixed).any():
        return _correlation_dual.nearest(A, pairs, root, min_eigenvalue, tol)
    known = off_diagonal & (fixed | (W > 0))
    rest = np.flatnonzero(known.any(axis=1))
    if not len(rest):
        raise ValueError("A has no known entry off its diagonal: each is nan or has the weight zero")
    part = np.ix_(rest, rest)
    found = _connected(np.where(known, A, 0.0)[part], fixed[part], W[part], min_eigenvalue, tol)
    excess = float((A.diagonal() - 1) ** 2 @ W.diagonal())
    filled = np.argwhere(np.triu(off_diagonal & ~known))
    return _whole(found, rest, excess, filled, n)


def _connected(A: Array, fixed: Mask, W: Array, min_eigenvalue: float, tol: float) -> NearestMatrix:
    """The same where every variable has a known entry."""
    n = len(A)
    free = np.array(np.nonzero(np.triu(~fixed, 1)))
    weights = W[tuple(free)]
    unit = float(weights.max(initial=0.0)) or 1.0
    given = np.where(fixed, A, 0.0)
    given.flat[:: n + 1] = 1 - min_eigenvalue
    problem = Weighted(given, fixed, free, np.where(weights > 0, A[tuple(free)], 0.0), weights / unit)
    pairs = np.argwhere(np.triu(fixed, 1))
    inside = _inside(problem, A, pairs, min_eigenvalue)
    plain: NearestMatrix | None = None
    if inside is None or len(weights) > _FEW:
        plain = _correlation_dual.nearest(A, pairs if len(pairs) else None, None, min_eigenvalue, tol)
        if plain.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # before there is anything to hand back
        if plain.status is Status.INFEASIBLE:
            primal = unit * problem.objective(plain.array[tuple(free)])
            return replace(plain, certificate=certified(primal, primal, plain.certificate.violation, 0.0))
    found, solver = _solved(problem, inside, None if plain is None else plain.array[tuple(free)], tol)
    point, S = found.point, unit * found.point.multiplier
    floor = unit * _weighted.floor(problem, tol)
    certificate = certified(unit * point.primal, unit * (point.primal - point.dual), point.violation, floor)
    X = point.matrix.copy()
    X.flat[:: n + 1] = 1.0
    dual, said = np.concatenate([S.diagonal(), 2 * S[tuple(pairs.T)]]), message(found.status, certificate)
    end = found.status, certificate, found.n_iter, found.n_decompositions, solver, said
    return NearestMatrix(np.ones(n), dual, *end, stored_matrix=X)


def _inside(problem: Weighted, A: Array, pairs: Index, min_eigenvalue: float) -> Array | None:
    """Free entries with which X is positive definite; None where none were found."""
    if not len(pairs):
        return np.zeros(problem.pairs.shape[1])
    for lift in _LIFTS:
        lowest = min_eigenvalue + lift * (1 - min_eigenvalue)
        found = _correlation_dual.nearest(A, pairs, None, lowest, 1e-8)
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # before there is anything to hand back
        free = found.array[tuple(problem.pairs)]
        if found.status is Status.SOLVED and _is_definite(problem.matrix(free)):
            return free
    return None


def _is_definite(X: Array) -> bool:
    try:
        np.linalg.cholesky(X)
    except np.linalg.LinAlgError:
        return False
    return True


def _solved(problem: Weighted, inside: Array | None, near: Array | None, tol: float) -> tuple[Solution, str]:
    """From `near` by the method for many free entries; where that fails, from `inside` by the other."""
    can_be_formed = inside is not None and len(inside) <= _interior.MOST_FREE
    found: Solution | None = None
    if near is not None:
        patience = _PATIENCE if can_be_formed else math.inf
        with one_blas_thread(len(problem.given) > _SMALL):
            found = best_of(_augmented.points(problem, near), problem, tol, _MAX_ITER, patience)
        if found.status in (Status.SOLVED, Status.INTERRUPTED) or not can_be_formed:
            return found, "AugmentedLagrangian"
    assert inside is not None
    return best_of(_interior.points(problem, inside), problem, tol, _MAX_ITER), "InteriorPoint"


def _whole(found: NearestMatrix, rest: Index, excess: float, filled: Index, n: int) -> NearestMatrix:
    """With the variables of which nothing is known, and the distance on the diagonal, which is fixed."""
    notes = []
    if len(filled):
        several = "entries were not known and are" if len(filled) > 1 else "entry was not known and is"
        notes.append(f"{len(filled)} {several} filled.")
    if n > len(rest):
        notes.append(f"{n - len(rest)} of {n} variables have no known entry and get zeros.")
    X = np.eye(n)
    X[np.ix_(rest, rest)] = found.array
    dual = np.zeros(n)
    dual[rest] = found.dual[: len(rest)]
    c = found.certificate
    gap = min(c.gap, (c.primal - c.dual) / (c.primal + excess)) if excess > 0 else c.gap
    return replace(
        found,
        diagonal=np.ones(n),
        dual=np.concatenate([dual, found.dual[len(rest) :]]),
        certificate=replace(c, primal=c.primal + excess, dual=c.dual + excess, gap=gap),
        message=" ".join([found.message, *notes]),
        stored_matrix=X,
        filled=filled,
    )


def _pattern(pairs: Index | None, missing: Mask) -> Mask:
    """Which entries are fixed; a missing one cannot be."""
    fixed = np.zeros_like(missing)
    if pairs is not None:
        fixed[tuple(pairs.T)] = fixed[tuple(pairs.T[::-1])] = True
    both = np.argwhere(fixed & missing)
    if len(both):
        i, j = both[0]
        raise ValueError(f"fixed[{i}, {j}] is true, but A[{i}, {j}] is nan: there is no value to keep")
    return fixed


def _rank_one(W: Array) -> Array | None:
    """sqrt(w) where all W_ij = w_i w_j > 0: that is a weight per variable."""
    w = np.sqrt(W.diagonal())
    if (w > 0).all() and np.allclose(W, np.outer(w, w), rtol=1e-14, atol=0.0):
        return np.sqrt(w)
    return None
