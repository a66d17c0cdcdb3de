"""Coordinates for the objects of a kernel: an orthonormal basis of the span of R = Phi J, JKDD12 3.6 and 4.3.

With K^J = J' K0 J = V Lambda V', the coordinates of an object x are phi'(x) = weights' k0(x, points), where
weights = J V Lambda^(-1/2). J is the identity for the full basis, and has `rank` columns for a reduced one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse

from nearwise._common.reading import finite, symmetric
from nearwise._common.types import Array
from nearwise.learners._bases import k_means
from nearwise.learners._space import Outside
from nearwise.learners.input_kernels import InputKernel, first_equal_rows
from nearwise.linalg.directions import with_fixed_signs
from nearwise.linalg.distances import squared_distances
from nearwise.model.bounds import sampled_pairs

# the first of the reduced ones are spanned by some of the objects, and need no n x n matrix
OF_OBJECTS = ("principal", "leverage", "subset")
BASES = ("full", *OF_OBJECTS, "kmeans", "spectral", "class_means", "random")
LANDMARKS = 3  # objects for every principal direction of their span
RANK_TOLERANCE = 1e-8  # relative size below which an eigenvalue of the kernel counts as zero
NEGATIVE_TOLERANCE = 1e-6  # relative size of a negative eigenvalue that is more than rounding of float32
_EQUAL = 1e-12  # squared distance, relative to squared lengths, of equal objects after rounding
_CLUSTERING_STEPS = 30
_LOOKED_AT = 200  # pairs of objects that tell what a basis lacks
_ROUNDED = 64  # units of rounding of a squared length, up to which a squared distance is nothing else
_PROPOSED = 20  # objects of a basis that are drawn at a time


@dataclass(frozen=True, eq=False)
class KernelBasis:
    """A basis with the coordinates of the training objects; points and weights as in `KernelMetric`."""

    points: Any
    weights: Array
    features: Array
    is_reduced: bool


def kernel_basis(
    kernel: InputKernel,
    X: Any,
    kind: str | ArrayLike,
    rank: int,
    rng: np.random.RandomState,
    codes: NDArray[np.int64] | None = None,
) -> KernelBasis:
    """The basis of the given kind, or of the columns of a given J.

    Parameters
    ----------
    kernel : k0
    X : the training objects; for a precomputed kernel, the kernel matrix
    kind : "full" takes all objects and forgets `rank`; "subset" and "leverage" take `rank` of
        them, as `_landmarks` tells, and "principal" the `rank` directions in which all vary most, of the span
        of three times as many that are drawn as for "leverage"; "kmeans" the means of clusters in the space
        of the kernel (found by k-means there) and "spectral" those of clusters of the graph whose weights are
        the kernel's cosines, "class_means" the means of classes, "random" combinations of all with normal
        coefficients; an (n, k) array is J
    rank : the number of columns of J; dependent ones make fewer dimensions
    rng : draws
    codes : the class of every object, -1 for none; for "class_means"
    """
    n = X.shape[0]
    if kernel.is_precomputed:
        X = symmetric(X, "X (a precomputed kernel)")
    if isinstance(kind, str) and kind in OF_OBJECTS:
        chosen = _landmarks(kernel, X, kind, min(LANDMARKS * rank if kind == "principal" else rank, n), rng)
        points = chosen if kernel.is_precomputed else X[chosen]
        columns = kernel.gram(X, points)
        J: Array | None = np.eye(len(chosen))
        K_J = columns[chosen]
    else:
        columns = kernel.gram(X, None if kernel.is_precomputed else X)
        # A copy: the caller may change X, and scikit-learn computes the kernel of data with these very data
        # in another way, with other rounding, than after the points were stored and read.
        points = None if kernel.is_precomputed else X.copy()
        J = _coefficients(kind, columns, min(rank, n), rng, codes)
        K_J = columns if J is None else J.T @ columns @ J
    values, vectors = _spectrum(K_J)
    weights = vectors / np.sqrt(values)
    if J is None:
        features = vectors * np.sqrt(values)
    else:
        weights = J @ weights
        features = columns @ weights
        if isinstance(kind, str) and kind == "principal":
            leading = _principal_directions(features, rank)
            weights, features = weights @ leading, features @ leading
    # rounding would put equal objects at a distance that is not zero, and bounds are filled from distances
    return KernelBasis(points, weights, features[_first_equal(kernel, X)], J is not None)


def hidden_share(kernel: InputKernel, X: Any, features: Array) -> float:
    """How much of the squared distances of objects a basis of all of them lacks, as too small beside k0.

    Where objects are far from zero in the space of the kernel, parts of them below the tolerance may be all
    that differs between them.
    """
    pairs = sampled_pairs(X.shape[0])
    i, j = pairs[:: max(len(pairs) // _LOOKED_AT, 1)].T
    lengths = X[i, i] if kernel.is_precomputed else kernel.paired(X[i], X[i])
    lost = float(Outside(kernel, X, features).distances(i, j).mean())
    whole = lost + float(squared_distances(features, i, j).mean())
    rounding = _ROUNDED * np.finfo(np.float64).eps * float(np.abs(lengths).mean())
    return lost / whole if whole > rounding else 0.0


def _landmarks(
    kernel: InputKernel, X: Any, kind: str, rank: int, rng: np.random.RandomState
) -> NDArray[np.int64]:
    """Objects that span a basis, at most `rank`, by row number.

    "subset" draws uniformly. Otherwise they are drawn one after the other, each with a probability that goes
    with the squared distance to the span of those before it: what a Cholesky factor that grows with them
    leaves of the kernel's diagonal. Some are proposed at a time, so that the kernel is asked for many
    columns at once; one is taken with the probability by which its distance has shrunk since.
    """
    n = X.shape[0]
    if kind == "subset":
        return np.sort(rng.permutation(n)[:rank])
    left = np.maximum(np.diag(X) if kernel.is_precomputed else kernel.paired(X, X), 0.0)
    spanned = RANK_TOLERANCE * float(left.max(initial=0.0))
    factor, chosen = np.empty((rank, n)), list[int]()
    while len(chosen) < rank and left.any():
        before, total = left.copy(), np.cumsum(left)
        places = np.searchsorted(total, rng.random_sample(_PROPOSED) * total[-1], "right")
        proposed = np.minimum(places, np.flatnonzero(left)[-1])
        columns = kernel.gram(X, proposed if kernel.is_precomputed else X[proposed])
        for i, column, chance in zip(proposed, columns.T, rng.random_sample(_PROPOSED), strict=True):
            if len(chosen) == rank or chance * before[i] >= left[i]:
                continue
            k = len(chosen)
            factor[k] = (column - factor[:k, i] @ factor[:k]) / np.sqrt(left[i])
            left = left - np.square(factor[k])
            least = int(np.argmin(left))
            if left[least] < -NEGATIVE_TOLERANCE / RANK_TOLERANCE * spanned:
                raise ValueError(
                    "the kernel must be positive semidefinite, but what its matrix leaves of object "
                    f"{least} outside the span of others has the squared length {left[least]:.3g}"
                )
            left[left <= spanned] = 0.0
            left[i] = 0.0
            chosen.append(int(i))
    return np.sort(np.array(chosen, np.int64))


def _principal_directions(features: Array, count: int) -> Array:
    """Orthonormal columns along which the rows vary most, at most `count`."""
    centred = features - features.mean(axis=0)
    return with_fixed_signs(np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count])


def _coefficients(
    kind: Any,
    K: Array,
    rank: int,
    rng: np.random.RandomState,
    codes: NDArray[np.int64] | None,
) -> Array | None:
    """J, or None for the identity."""
    if not isinstance(kind, str):
        J = finite(kind.toarray() if sparse.issparse(kind) else kind, "basis", ndim=2)
        if len(J) != len(K):
            raise ValueError(f"basis must have {len(K)} rows, one per object, got shape {J.shape}")
        if not J.any():
            raise ValueError("basis must have a column that is not zero")
        return J
    if kind == "class_means":
        assert codes is not None
        return _averages(codes, len(K))
    if kind == "spectral":
        return _averages(_spectral_clusters(K, rank, rng), len(K))
    if kind == "full":
        return None
    if kind == "random":
        return rng.standard_normal((len(K), rank)) / np.sqrt(len(K))
    return _cluster_means(K, rank, rng)


def _cluster_means(K: Array, rank: int, rng: np.random.RandomState) -> Array:
    """Kernel k-means, started at `rank` of the objects; column k of J averages the objects of cluster k."""
    n = len(K)
    centres = rng.permutation(n)[:rank]
    cluster = np.argmin(np.diag(K)[centres] - 2.0 * K[:, centres], axis=1)
    for _ in range(_CLUSTERING_STEPS):
        J = _averages(cluster, n)
        products = K @ J
        moved = np.argmin(np.einsum("ik,ik->k", J, products) - 2.0 * products, axis=1)
        if np.array_equal(moved, cluster):
            break
        cluster = moved
    return _averages(cluster, n)


def _spectral_clusters(K: Array, rank: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Clusters of a graph: k-means on the leading eigenvectors of its normalised weights, in unit rows."""
    n, lengths = len(K), np.sqrt(np.maximum(np.diag(K), 0.0))
    lengths = np.where(lengths > 0, lengths, 1.0)
    weights = np.maximum(K / lengths[:, None] / lengths, 0.0)
    degrees = np.sqrt(np.maximum(weights.sum(axis=1), np.finfo(np.float64).tiny))
    _, V = linalg.eigh(weights / degrees[:, None] / degrees, subset_by_index=[n - rank, n - 1])
    norms = np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(k_means(V / np.where(norms > 0, norms, 1.0), rank, rng).labels_, dtype=np.int64)


def _averages(cluster: NDArray[np.int64], n: int) -> Array:
    """One column per cluster, which averages its objects; -1 is no cluster."""
    rows = np.flatnonzero(cluster >= 0)
    found, place = np.unique(cluster[rows], return_inverse=True)
    J = np.zeros((n, len(found)))
    J[rows, place] = 1.0
    return J / J.sum(axis=0)


def _first_equal(kernel: InputKernel, X: Any) -> NDArray[np.int64]:
    """For every object, the first one that is equal to it; in a precomputed kernel, up to rounding."""
    if kernel.is_precomputed:
        size = np.diag(X)[:, None] + np.diag(X)
        return np.argmax(size - 2.0 * X <= _EQUAL * size, axis=1)
    return first_equal_rows(X)


def _spectrum(K: Array) -> tuple[Array, Array]:
    """The eigenvalues above the tolerance, with their vectors; a kernel that is indefinite is refused."""
    K = symmetric(K, "the kernel matrix")
    values, vectors = np.linalg.eigh(K)
    largest = float(np.abs(values).max(initial=0.0))
    if values[0] < -NEGATIVE_TOLERANCE * largest:
        raise ValueError(
            f"the kernel must be positive semidefinite, but its matrix has the eigenvalue {values[0]:.6g} "
            f"(the largest is {values[-1]:.6g}); add {-values[0]:.6g} to its diagonal, set its negative "
            "eigenvalues to zero, or choose another kernel"
        )
    kept = values > max(RANK_TOLERANCE * largest, -2.0 * values[0])
    if not kept.any():
        raise ValueError("the kernel is zero on all training objects")
    return values[kept], with_fixed_signs(vectors[:, kept])
