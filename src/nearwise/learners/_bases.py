"""Small bases of a large space of vectors, for metrics that are the identity outside them: JKDD12 3.6.

`linear_basis` returns d x k orthonormal columns in O(dk) memory beside the data, which may be sparse.
`prior` and `subspace` are where an online learner starts: the metric, and the subspace in which it learns.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds

from nearwise._common import threads
from nearwise._common.checks import one_of
from nearwise._common.reading import finite, symmetric
from nearwise._common.types import Array, Codes
from nearwise.learners._soft_neighbors import neighbor_directions
from nearwise.learners.base import rank_wanted
from nearwise.learners.metric import Metric, symmetric_root

BASES = ("svd", "kmeans", "class_means", "class_clusters", "neighbors")
BY_CLASS = ("auto", "class_means", "class_clusters")  # those that labels make, where there are labels
_CLUSTERING_STEPS = 30  # centres that span a subspace need not be exact
_DEPENDENT = 1e-10  # relative singular value below which columns of a basis count as dependent
_WIDEST = 256  # features in which directions of neighbours are searched; of more, so many singular vectors
_MAPPED = 1_000  # rows that such directions are learned from at most
_SMALL = 500  # order up to which all singular vectors are computed
FULL_FEATURES = 1000  # the largest number of features for which all of M is learned by default
DEFAULT_RANK = 100  # of a subspace where not


def linear_basis(
    X: Any,
    kind: Any,
    rank: int,
    codes: Codes | None,
    rng: np.random.RandomState,
    weights: Array | None = None,
) -> Array:
    """Orthonormal columns that span the chosen subspace, at most `rank` of them.

    Parameters
    ----------
    X : the data, dense or sparse
    kind : "svd", "kmeans", "class_means", "class_clusters", "neighbors", "auto", or a d x k array; "auto" is
        "svd" without labels, and "class_clusters" with them, completed by singular vectors where centres are
        dependent
    rank : the number of dimensions wanted; dependent vectors make fewer
    codes : the class of every row, needed for the bases that say so
    rng : draws starting points
    weights : of the rows, for "neighbors"
    """
    if not isinstance(kind, str):
        columns = finite(kind.toarray() if sparse.issparse(kind) else kind, "basis", ndim=2)
        if len(columns) != X.shape[1]:
            raise ValueError(f"basis must have {X.shape[1]} rows, one per feature, got shape {columns.shape}")
        return _orthonormal(columns)
    if kind == "auto" and codes is not None:
        centres = linear_basis(X, "class_clusters", rank, codes, rng)
        return centres if centres.shape[1] >= rank else _completed(centres, _singular_vectors(X, rank, rng))
    if kind in ("class_means", "class_clusters", "neighbors") and codes is None:
        raise ValueError(f"basis={kind!r} needs labels y")
    if kind in ("auto", "svd"):
        return _singular_vectors(X, rank, rng)
    if kind == "kmeans":
        return _orthonormal(_centres(X, rank, rng).T)
    assert codes is not None
    if kind == "neighbors":
        known = np.flatnonzero(codes >= 0)
        rows = np.sort(known[rng.permutation(len(known))[:_MAPPED]])
        kept = None if weights is None else weights[rows]
        if X.shape[1] <= _WIDEST:  # few rows of few columns, which may be made dense
            chosen = X[rows].toarray() if sparse.issparse(X) else X[rows]
            return neighbor_directions(chosen, codes[rows], rank, kept)
        V = _singular_vectors(X, min(_WIDEST, *X.shape), rng)
        return V @ neighbor_directions(np.asarray(X[rows] @ V), codes[rows], min(rank, V.shape[1]), kept)
    return _orthonormal(_class_centres(X, codes, rank, kind == "class_clusters", rng).T)


def _singular_vectors(X: Any, rank: int, rng: np.random.RandomState) -> Array:
    """The leading right singular vectors."""
    if rank >= min(X.shape) or (min(X.shape) <= _SMALL and not sparse.issparse(X)):
        # a sparse X of so few rows or columns, made dense, is no larger than the basis or the features
        _, s, Vt = np.linalg.svd(X.toarray() if sparse.issparse(X) else X, full_matrices=False)
    else:
        _, s, Vt = svds(X, rank, v0=rng.standard_normal(min(X.shape)))
        s, Vt = s[::-1], Vt[::-1]
    kept = s[:rank] > _DEPENDENT * s.max(initial=0.0)
    return _at_least_one(Vt[:rank][kept].T)


def _class_centres(X: Any, codes: Codes, rank: int, several: bool, rng: np.random.RandomState) -> Array:
    """Means of classes or of clusters within classes; means in clusters where there are too many classes."""
    members = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
    if rank <= len(members) or not several:
        means = np.stack([np.asarray(X[rows].mean(axis=0)).ravel() for rows in members])
        return means if rank >= len(members) else _centres(means, rank, rng)
    share, extra = divmod(rank, len(members))
    by_size = np.argsort([-len(rows) for rows in members], kind="stable")
    wanted = np.full(len(members), share)
    wanted[by_size[:extra]] += 1
    return np.concatenate([_centres(X[rows], wanted[k], rng) for k, rows in enumerate(members)])


def _centres(X: Any, count: int, rng: np.random.RandomState) -> Array:
    count = min(int(count), X.shape[0])
    if count == 1:
        return np.asarray(X.mean(axis=0)).reshape(1, -1)
    return np.asarray(k_means(X, count, rng).cluster_centers_, dtype=np.float64)


def k_means(X: Any, count: int, rng: np.random.RandomState) -> Any:
    """scikit-learn's estimator, fitted: a short search, from one start."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    search = KMeans(count, n_init=1, max_iter=_CLUSTERING_STEPS, random_state=rng)
    with threads.by_work(float(count) * X.shape[0] * X.shape[1]), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal rows make fewer clusters, which is fine
        return search.fit(X)


def _orthonormal(columns: Array) -> Array:
    """An orthonormal basis of the span of some columns."""
    Q, R = np.linalg.qr(columns)
    U, s, _ = np.linalg.svd(R)
    return _at_least_one(Q @ U[:, s > _DEPENDENT * s.max(initial=0.0)])


def _completed(basis: Array, others: Array) -> Array:
    """As many orthonormal columns as `others` has: the basis, then what the first of the others add to it."""
    rest = others - basis @ (basis.T @ others)
    Q, R = np.linalg.qr(rest - basis @ (basis.T @ rest))
    new = Q[:, np.abs(np.diag(R)) > _DEPENDENT]
    return np.hstack([basis, new[:, : max(others.shape[1] - basis.shape[1], 0)]])


def _at_least_one(basis: Array) -> Array:
    """The basis, or where everything is zero the first axis, so that there is a space to learn in."""
    return basis if basis.shape[1] else np.eye(len(basis), 1)


def prior(given: Any, d: int) -> tuple[Array | None, Array | None]:
    """The basis of the prior's subspace and a factor of its matrix there; None for all of it, and for I.

    `given` is "identity", a matrix, a `Metric`, or a fitted learner.
    """
    found = getattr(given, "metric_", given)
    if isinstance(found, str):
        one_of(found, "prior", ("identity",))
        return None, None
    if isinstance(found, Metric):
        if found.n_features != d:
            raise ValueError(f"prior is a metric of {found.n_features} features, but X has {d}")
        return found.basis, found.factor
    if hasattr(found, "get_params"):
        raise ValueError("prior is a learner that is not fitted, as a clone is; pass its metric_")
    matrix = symmetric(found, "prior")
    if matrix.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)} like the features, got {matrix.shape}")
    values, V = np.linalg.eigh(matrix)
    if values[0] < -1e-8 * abs(values[-1]) or values[-1] <= 0.0:
        raise ValueError(f"prior must be positive semidefinite, but has the eigenvalue {values[0]:.3g}")
    return None, symmetric_root(V * np.sqrt(np.maximum(values, 0.0)))


def subspace(
    basis: Any, rank: Any, X: Any, codes: NDArray[np.int64] | None, rng: np.random.RandomState, d: int
) -> Array | None:
    """Orthonormal columns that span it; None for all d dimensions. X is None where no data are there yet."""
    wanted = rank_wanted(rank, d)
    if isinstance(basis, str):
        one_of(basis, "basis", ("auto", "random", *BASES))
        if wanted is None and basis == "auto" and d <= FULL_FEATURES:
            return None
        wanted = min(d, DEFAULT_RANK) if wanted is None else wanted
        if basis == "random" or (basis == "auto" and X is None):
            return np.linalg.qr(rng.standard_normal((d, wanted))).Q
        if X is None:
            raise ValueError(f"basis={basis!r} needs the data of a fit; 'random' or an array does not")
    return linear_basis(np.empty((0, d)) if X is None else X, basis, wanted or d, codes, rng)
