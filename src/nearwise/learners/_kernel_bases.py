"""Coordinates for the objects of a kernel: an orthonormal basis of the span of R = Phi J, JKDD12 3.6 and 4.3.

With K^J = J' K0 J = V Lambda V', the coordinates of an object x are phi'(x) = weights' k0(x, points), where
weights = J V Lambda^(-1/2). J is the identity for the full basis, and has `rank` columns for a reduced one.

Objects that are far from zero in the space of the kernel share so much that what differs between them looks
like its rounding. So the span is put together of the differences in R, whose K^J is computed from objects
less their mean, and of what one more vector, a mean of R, has outside them. The span is the same.
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
from nearwise.learners.input_kernels import InputKernel, SumKernel, first_equal_rows
from nearwise.learners.metric import indefinite
from nearwise.linalg.directions import with_fixed_signs
from nearwise.linalg.distances import squared_distances
from nearwise.side import bounds

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
_CENTRE = 10  # objects, spread evenly, from whose mean distances are taken while others are drawn
_WHOLE = 2000  # objects up to which an indefinite kernel is told by the eigenvalues of all of its matrix
_NO_LENGTHS = 1e-6  # a diagonal that is so small beside other entries is that of a matrix of distances


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
        them, as `_landmarks` tells, and "principal" the `rank` directions in which all vary
        most, of the span of three times as many that are drawn as for "leverage"; "kmeans" the means of
        clusters in the space of the kernel (found by k-means there) and "spectral" those of clusters of the
        graph whose weights are the kernel's cosines, "class_means" the means of classes, "random"
        combinations of all with normal coefficients; an (n, k) array is J
    rank : the number of columns of J; dependent ones make fewer dimensions
    rng : draws
    codes : the class of every object, -1 for none; for "class_means"
    """
    n = X.shape[0]
    if kernel.is_precomputed:
        X = symmetric(X, "X (a precomputed kernel)")
    refuse_distances(kernel, X)
    if isinstance(kind, str) and kind in OF_OBJECTS:
        chosen = _landmarks(kernel, X, kind, min(LANDMARKS * rank if kind == "principal" else rank, n), rng)
        points = chosen if kernel.is_precomputed else X[chosen]
        J: Array | None = None
    else:
        chosen = np.arange(n)
        # A copy: the caller may change X, and scikit-learn computes the kernel of data with these very data
        # in another way, with other rounding, than after the points were stored and read.
        points = None if kernel.is_precomputed else X.copy()
        J = _coefficients(kind, kernel, X, min(rank, n), rng, codes)
    weights, features, differences = _coordinates(_Products(kernel, X, chosen), chosen, J)
    if isinstance(kind, str) and kind == "principal":
        if features.shape[1] > rank:  # where all objects are in the space of the kernel is no matter
            weights, features = weights[:, :differences], features[:, :differences]
        leading = _principal_directions(features, rank)
        weights, features = weights @ leading, features @ leading
    # rounding would put equal objects at a distance that is not zero, and bounds are filled from distances
    is_reduced = J is not None or len(chosen) < n or (isinstance(kind, str) and kind in OF_OBJECTS)
    return KernelBasis(points, weights, features[_first_equal(kernel, X)], is_reduced)


def _coordinates(objects: _Products, chosen: NDArray[np.int64], J: Array | None) -> tuple[Array, Array, int]:
    """Weights of the chosen objects, coordinates of all, and how many are those of differences.

    J is None for the identity. With s the sums of the columns of J, those of J (I - s s'/|s|^2) are
    differences: their sums are 0, so that products with them need no mean. Beside them the span has q, the
    combination J s / |s|^2.
    """
    columns, along = objects.columns(chosen), objects.along_mean()
    K = columns if len(chosen) == len(columns) else columns[chosen]
    raw = objects.raw(chosen)
    if J is None or len(raw) <= _WHOLE:
        _refuse_indefinite(raw)
    else:
        _refuse_indefinite(J.T @ raw @ J / np.linalg.norm(J, 2) ** 2)
    sums = np.ones(len(chosen)) if J is None else J.sum(axis=0)
    size = float(sums @ sums)
    if J is None:  # the mean is taken off K already
        values, vectors = _spectrum(K, objects.rounding())
        weights = vectors / np.sqrt(values)
        weights -= weights.mean(axis=0)
    else:
        D = J - np.outer(J @ sums, sums) / size if size > 0 else J
        values, vectors = _spectrum(D.T @ K @ D, objects.rounding())
        weights = D @ (vectors / np.sqrt(values))
    differences, centred = len(values), columns @ weights
    mean = weights.T @ along[chosen]  # the coordinates of the mean that was taken off
    if size > 0:
        j = np.full(len(chosen), 1.0 / len(chosen)) if J is None else J @ sums / size
        of_q = along + columns @ j
        mean_q = objects.mean + along[chosen] @ j
        length = mean_q + of_q[chosen] @ j
        inside = weights.T @ of_q[chosen]
        left = length - float(inside @ inside)
        largest = float(max(values.max(initial=0.0), size * length))
        # a rounded difference is off by an angle, and with it what q has along it
        rounding = objects.rounding() + len(K) * float(np.finfo(np.float64).eps * values.max(initial=0.0))
        unsure = rounding * length / float(values.min(initial=np.inf))
        if size * left > RANK_TOLERANCE * largest and left > unsure:
            root = np.sqrt(left)
            outside = (of_q - centred @ inside) / root
            weights = np.column_stack([weights, (j - weights @ inside) / root])
            centred = np.column_stack([centred, outside])
            mean = np.append(mean, (mean_q - mean @ inside) / root)
    if not weights.shape[1]:
        raise ValueError("the kernel is zero on all training objects")
    return weights, centred + mean, differences


def refuse_distances(kernel: InputKernel, X: Any) -> None:
    """Refuse a table or a function of distances: they are 0 where a kernel has squared lengths."""
    some = _spread(X.shape[0])
    K = X[np.ix_(some, some)] if kernel.is_precomputed else kernel.gram(X[some], X[some])
    lengths, largest = float(np.abs(np.diag(K)).max()), float(np.abs(K).max())
    if largest > 0 and lengths <= _NO_LENGTHS * largest:
        told = "0" if lengths == 0 else f"{lengths:.3g} at most, and other entries reach {largest:.3g}"
        raise ValueError(
            f"the kernel must be positive semidefinite, but its diagonal is {told}: this looks like a "
            "distance matrix. Give similarities, such as exp(-D**2 / np.median(D**2)) of distances D"
        )


def _spread(n: int) -> NDArray[np.int64]:
    """Some of n objects, evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, _CENTRE)).astype(np.int64))


class _Products:
    """Inner products of training objects in the space of a kernel, less the mean there of some of them.

    `reference` are these; None takes nothing off. `mean` is the squared length of the mean. Rows of data are
    centred themselves where the kernel is linear, which keeps digits that no sum of products keeps.
    """

    def __init__(self, kernel: InputKernel, X: Any, reference: NDArray[np.int64] | None) -> None:
        self.kernel, self.X, self.reference = kernel, X, reference
        self.parts, self.rows = list[tuple[float, _Products]](), None
        self.means, self.mean = np.zeros(X.shape[0]), 0.0
        if isinstance(kernel, SumKernel):
            self.parts = [
                (scale, _Products(part, X, reference))
                for part, scale in zip(kernel.parts, kernel.scales, strict=True)
            ]
            self.mean = sum(scale * part.mean for scale, part in self.parts)
        elif reference is not None and kernel.name == "linear" and not sparse.issparse(X):
            self.centre = X[reference].mean(axis=0)
            self.rows, self.mean = X - self.centre, float(self.centre @ self.centre)
        elif reference is not None:
            self.given = self._gram(reference)
            self.means = self.given.mean(axis=1)
            self.mean = float(self.means[reference].mean())

    def columns(self, chosen: NDArray[np.int64]) -> Array:
        """Of all objects with the chosen ones."""
        if self.parts:
            return sum((scale * part.columns(chosen) for scale, part in self.parts), start=np.zeros(()))
        if self.rows is not None:
            return np.asarray(self.rows @ self.rows[chosen].T)
        K = self.given if chosen is self.reference else self._gram(chosen)
        return np.asarray(K - self.means[:, None] - self.means[chosen] + self.mean)

    def along_mean(self) -> Array:
        """Of all objects with the mean that was taken off."""
        if self.parts:
            return sum((scale * part.along_mean() for scale, part in self.parts), start=np.zeros(()))
        if self.rows is not None:
            return np.asarray(self.rows @ self.centre)
        return self.means - self.mean

    def lengths(self) -> Array:
        """Of every object with itself."""
        if self.parts:
            return sum((scale * part.lengths() for scale, part in self.parts), start=np.zeros(()))
        if self.rows is not None:
            return np.asarray(np.square(self.rows).sum(axis=1))
        own = np.diag(self.X) if self.kernel.is_precomputed else self.kernel.paired(self.X, self.X)
        return np.asarray(own - 2.0 * self.means + self.mean)

    def rounding(self) -> float:
        """What rounding may leave in an eigenvalue of `columns`, of what was taken off."""
        if self.parts:
            return sum(scale * part.rounding() for scale, part in self.parts)
        if self.rows is not None or self.reference is None:
            return 0.0
        return self.given.size**0.5 * float(np.finfo(np.float64).eps * np.abs(self.given).max())

    def raw(self, chosen: NDArray[np.int64]) -> Array:
        """The kernel of the chosen objects, with nothing taken off."""
        if self.parts:
            return sum((scale * part.raw(chosen) for scale, part in self.parts), start=np.zeros(()))
        if self.reference is chosen and self.rows is None:
            return self.given if len(chosen) == len(self.given) else self.given[chosen]
        if self.kernel.is_precomputed:
            return np.asarray(self.X[np.ix_(chosen, chosen)])
        return self.kernel.gram(self.X[chosen], self.X[chosen])

    def _gram(self, chosen: NDArray[np.int64]) -> Array:
        return self.kernel.gram(self.X, chosen if self.kernel.is_precomputed else self.X[chosen])


def hidden_share(kernel: InputKernel, X: Any, features: Array) -> float:
    """How much of the squared distances of objects a basis of all of them lacks, as too small beside k0.

    Where objects are far from zero in the space of the kernel, parts of them below the tolerance may be all
    that differs between them.
    """
    pairs = bounds.sampled_pairs(X.shape[0])
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

    "subset" draws uniformly. Otherwise the first is one in the middle, and the others are drawn one after the
    other, each with a probability that goes with the squared distance to the affine span of those before it:
    what a Cholesky factor that grows with them leaves of the squared distances to the first. Some are
    proposed at a time, so that the kernel is asked for many columns at once; one is taken with the
    probability by which its distance has shrunk since.
    """
    n = X.shape[0]
    if kind == "subset":
        return np.sort(rng.permutation(n)[:rank])
    middle = int(np.argmin(_Products(kernel, X, _spread(n)).lengths()))
    objects = _Products(kernel, X, np.array([middle]))
    left = objects.lengths()
    left[middle] = 0.0
    largest = float(np.abs(left).max(initial=0.0))
    spanned = max(RANK_TOLERANCE * largest, objects.rounding())
    negative = max(NEGATIVE_TOLERANCE * largest, _ROUNDED * objects.rounding())
    _refuse_negative(left, negative, kernel, X, [middle])
    left = np.maximum(left, 0.0)
    factor, chosen = np.empty((rank, n)), [middle]
    while len(chosen) < rank and left.any():
        before, total = left.copy(), np.cumsum(left)
        places = np.searchsorted(total, rng.random_sample(_PROPOSED) * total[-1], "right")
        proposed = np.minimum(places, np.flatnonzero(left)[-1])
        columns = objects.columns(proposed)
        for i, column, chance in zip(proposed, columns.T, rng.random_sample(_PROPOSED), strict=True):
            if len(chosen) == rank or chance * before[i] >= left[i]:
                continue
            k = len(chosen) - 1
            factor[k] = (column - factor[:k, i] @ factor[:k]) / np.sqrt(left[i])
            left = left - np.square(factor[k])
            _refuse_negative(left, negative, kernel, X, [*chosen, int(i)])
            left[left <= spanned] = 0.0
            left[i] = 0.0
            chosen.append(int(i))
    return np.sort(np.array(chosen, np.int64))


def _refuse_negative(left: Array, negative: float, kernel: InputKernel, X: Any, chosen: list[int]) -> None:
    """Refuse a kernel where what is left of a squared distance beside the chosen objects is below 0.

    Of a kernel that is nearly the same for all objects, much less is left than its values are rounded by.
    """
    least, n = int(np.argmin(left)), len(left)
    if left[least] < -negative:
        some = np.arange(n) if n <= _WHOLE else np.unique([*chosen, least])
        matrix = "its matrix" if n <= _WHOLE else f"its matrix on {len(some)} of the objects"
        values = np.linalg.eigvalsh(_Products(kernel, X, None).raw(some))
        if values[0] < -_ROUNDED * np.finfo(np.float64).eps * np.abs(values).max():
            raise indefinite(values, matrix)


def _principal_directions(features: Array, count: int) -> Array:
    """Orthonormal columns along which the rows vary most, at most `count`."""
    centred = features - features.mean(axis=0)
    return with_fixed_signs(np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count])


def _coefficients(
    kind: Any,
    kernel: InputKernel,
    X: Any,
    rank: int,
    rng: np.random.RandomState,
    codes: NDArray[np.int64] | None,
) -> Array | None:
    """J, or None for the identity."""
    n = X.shape[0]
    if not isinstance(kind, str):
        J = finite(kind.toarray() if sparse.issparse(kind) else kind, "basis", ndim=2)
        if len(J) != n:
            raise ValueError(f"basis must have {n} rows, one per object, got shape {J.shape}")
        if not J.any():
            raise ValueError("basis must have a column that is not zero")
        return J
    if kind == "class_means":
        assert codes is not None
        return _averages(codes, n)
    if kind == "full":
        return None
    if kind == "random":
        return rng.standard_normal((n, rank)) / np.sqrt(n)
    everything = np.arange(n)
    if kind == "spectral":
        return _averages(_spectral_clusters(_Products(kernel, X, None).raw(everything), rank, rng), n)
    return _cluster_means(_Products(kernel, X, everything).columns(everything), rank, rng)


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


def _refuse_indefinite(K: Array) -> None:
    """Refuse a kernel matrix with an eigenvalue that is negative beyond rounding."""
    values = np.linalg.eigvalsh(symmetric(K, "the kernel matrix"))
    if values[0] < -NEGATIVE_TOLERANCE * np.abs(values).max(initial=0.0):
        raise indefinite(values, "its matrix")


def _spectrum(K: Array, rounding: float) -> tuple[Array, Array]:
    """The eigenvalues above the tolerance, and above what rounding may have left, with their vectors."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    largest = float(np.abs(values).max(initial=0.0))
    kept = values > max(RANK_TOLERANCE * largest, -2.0 * values[0], rounding)
    return values[kept], with_fixed_signs(vectors[:, kept])
