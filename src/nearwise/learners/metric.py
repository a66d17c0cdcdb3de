"""The learned thing: a squared distance between objects, and what may be asked of it.

`AnyMetric` says what every metric answers: coordinates, distances, its spectrum and dimensions, or `Missing`
with the reason where it has no such thing. `Metric` measures vectors, `KernelMetric` the objects of a kernel;
`coordinate_metrics` has the others. Where only a subspace was learned, with orthonormal basis U, the metric
is the old one outside it (JKDD12 (10)):

    d(x, y) = a [d0(x, y) - |U'z|^2] + |B'U'z|^2        z = x - y, a = 1, and M = B B' is the learned matrix

which is computed as it stands, so that a distance is a sum of two terms that are not negative; between many
dense vectors, as the Euclidean distance of x + U (B' - I) U'x, which is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import lapack, solve_triangular

from nearwise._common.markup import fact_table
from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index
from nearwise.learners.input_kernels import InputKernel, in_parts, paired_products
from nearwise.linalg.distances import all_squared_distances, centre_of, squared_distances

# squared length, relative to the spread, of what is left of an object that others span; the next is for a
# kernel that was computed in single precision
_DEPENDENT = (1e-10, 1e-8, 1e-6)


class Missing(ValueError):
    """A metric has no such thing; the message is a sentence that says why."""


class Spectrum(NamedTuple):
    """Eigenvalues above rounding in falling order, the order of the matrix, and how many were not learned."""

    values: Array
    dimension: int
    outside: int = 0


class StoredByRows:
    """All arrays are laid out alike: a metric that was stored and read computes the same bits."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, field.name, np.ascontiguousarray(value))


class AnyMetric(StoredByRows, ABC):
    """A squared distance: the Euclidean one of the coordinates of `transform`, unless a class differs.

    Attributes
    ----------
    is_linear : whether it is z^T M z of the difference z of two vectors, so that `components`, `matrix` and
        `column_weights` are there
    factor : B, by which the coordinates of what was learned are multiplied
    basis : of the subspace outside which the distance is the old one; None where all of it was learned
    """

    is_linear: ClassVar[bool] = False
    factor: Any
    basis: Any = None

    @abstractmethod
    def transform(self, X: Any) -> Any:
        """Coordinates of objects in what was learned; their Euclidean distance is the learned one there."""

    def isometric(self, X: Any) -> Any:
        """Coordinates whose Euclidean distance is the whole learned one."""
        return self.transform(X)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """The distance of two objects, not squared; of a precomputed kernel, of two rows of it."""
        rows = np.stack(two_vectors(x, y))
        return float(np.sqrt(self.pair_squared_distances(rows, np.array([0]), np.array([1]))[0]))

    def squared_distances(self, X: Any, Y: Any) -> Array:
        """Of every row of X to every row of Y."""
        return all_squared_distances(self.transform(X), self.transform(Y))

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        """Of the rows i of X to the rows j."""
        return squared_distances(self.transform(X), i, j)

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        """The learned inner products of the rows i of X and the rows j."""
        return in_parts(paired_products, self.transform(X), i, j)

    @property
    def n_coordinates(self) -> int:
        """The number of columns of `transform`."""
        return int(self.factor.shape[1])

    @property
    def dimensions(self) -> tuple[int, int | None]:
        """How many dimensions were learned, and of how many; None for those of a kernel's space."""
        return len(self.factor), None

    @property
    def components(self) -> Array:
        """The linear map of `transform`, one row per coordinate."""
        raise Missing(self._not_linear)

    @property
    def matrix(self) -> Array:
        """M, d x d."""
        raise Missing(self._not_linear)

    @property
    def column_weights(self) -> Array:
        """The diagonal of M."""
        raise Missing(self._not_linear)

    def spectrum(self) -> Spectrum:
        """The eigenvalues of the learned matrix."""
        values = np.linalg.svd(self.factor, compute_uv=False) ** 2
        kept = values > len(self.factor) * np.finfo(np.float64).eps * values.max(initial=0.0)
        if not kept.any():
            raise Missing("The learned matrix is zero.")
        learned, of = self.dimensions
        order = len(self.factor) if of is None else of
        return Spectrum(values[kept], order, order - learned)

    @property
    def _not_linear(self) -> str:
        return f"The distance of a {type(self).__name__} is not linear: no matrix stands for it."


@dataclass(frozen=True, eq=False, repr=False)
class Metric(AnyMetric):
    """A squared distance z^T M z between vectors, with M = B B^T or M = I + U (B B^T - I) U^T.

    Attributes
    ----------
    factor : B, d x k, or k x k beside a basis
    basis : U, d x k with orthonormal columns; None where M is learned in all d dimensions

    Rows of data may be dense or scipy sparse; sparse ones are never made dense.
    """

    factor: Array
    basis: Array | None = None
    is_linear = True

    def __repr__(self) -> str:
        form = "" if self.basis is None else f", identity outside {self.basis.shape[1]} dimensions"
        return f"<Metric: {self.n_features} features{form}>"

    def _repr_html_(self) -> str:
        sizes = np.linalg.svd(self.factor, compute_uv=False)[: len(self.factor)] ** 2
        about = {"features": f"{self.n_features:,}", "learned dimensions": f"{self.factor.shape[1]:,}"}
        if self.basis is not None:
            about["in the others"] = "Euclidean, as before"
        if len(sizes):
            about["eigenvalues of the learned part"] = f"{sizes[0]:.3g} to {sizes[-1]:.3g}"
        return fact_table("Metric", about)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """The distance of two vectors, not squared, as SciPy, scikit-learn and UMAP ask for it."""
        first, second = two_vectors(x, y, self.n_features)
        z = first - second
        inside = z if self.basis is None else z @ self.basis
        learned = inside @ self.factor
        outside = 0.0 if self.basis is None else max(float(z @ z - inside @ inside), 0.0)
        return float(np.sqrt(learned @ learned + outside))

    @property
    def n_features(self) -> int:
        """d, the length of a vector."""
        return len(self.factor if self.basis is None else self.basis)

    @property
    def dimensions(self) -> tuple[int, int | None]:
        return len(self.factor), self.n_features

    @property
    def matrix(self) -> Array:
        foresee(8 * self.n_features**2, f"the matrix of {self.n_features:,} features")
        learned = self.factor @ self.factor.T
        if self.basis is not None:
            low_rank = learned - np.eye(len(learned))
            learned = np.eye(self.n_features) + self.basis @ low_rank @ self.basis.T
        return (learned + learned.T) / 2

    @property
    def column_weights(self) -> Array:
        if self.basis is None:
            return np.einsum("ij,ij->i", self.factor, self.factor)
        change = self.basis @ (self.factor @ self.factor.T - np.eye(len(self.factor)))
        return 1.0 + np.einsum("ij,ij->i", change, self.basis)

    @property
    def components(self) -> Array:
        return (self.factor if self.basis is None else self.basis @ self.factor).T

    def transform(self, X: Any) -> Array:
        return dense_product(self._inside(X), self.factor)

    def isometric(self, X: Any) -> Array:
        if self.basis is None:
            return self.transform(X)
        inside = X @ self.basis
        return np.asarray(X + (inside @ self.factor - inside) @ self.basis.T)

    def squared_distances(self, X: Any, Y: Any) -> Array:
        if self.basis is not None and not self.basis.shape[1]:
            return all_squared_distances(X, Y)
        if not sparse.issparse(X) and not sparse.issparse(Y):  # moving all vectors keeps digits
            centre = centre_of(Y)
            X, Y = X - centre, Y - centre
            return all_squared_distances(self.isometric(X), self.isometric(Y))
        learned = all_squared_distances(self.transform(X), self.transform(Y))
        if self.basis is None:
            return learned
        inside = all_squared_distances(self._inside(X), self._inside(Y))
        return learned + np.maximum(all_squared_distances(X, Y) - inside, 0.0)

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        inside = self._inside(X)
        learned = squared_distances(dense_product(inside, self.factor), i, j)
        if self.basis is None:
            return learned
        return learned + np.maximum(squared_distances(X, i, j) - squared_distances(inside, i, j), 0.0)

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        inside = self._inside(X)
        learned = in_parts(paired_products, dense_product(inside, self.factor), i, j)
        if self.basis is None:
            return learned
        return learned + in_parts(paired_products, X, i, j) - in_parts(paired_products, inside, i, j)

    def _inside(self, X: Any) -> Any:
        """Coordinates in the basis."""
        return X if self.basis is None else dense_product(X, self.basis)


@dataclass(frozen=True, eq=False, repr=False)
class KernelMetric(AnyMetric):
    """A learned kernel and its squared distance, on all objects that the input kernel accepts.

    With phi'(x) = weights^T [k0(x, points)], the coordinates of x in an orthonormal basis of the span of some
    training objects, the learned kernel is a k0(x, y) + phi'(x)^T (B B^T - a I) phi'(y): JKDD12 (6), (18).

    Attributes
    ----------
    kernel : k0
    points : the training objects of the basis; for a precomputed kernel, their columns, None for all
    weights : one row per point, one column per dimension of the basis
    factor : B
    training : phi' of all training objects, for a precomputed kernel only
    span : for a precomputed kernel with a reduced basis, what its rows tell outside the basis
    alpha : a, what W is a multiple of the identity by outside the basis

    A precomputed kernel gives rows k0(x, training objects), which determine the projection of x on the span
    of all training objects, and nothing else of x. Where a distance needs k0(x, x), or k0(x, y) of two new
    objects, they are those of the projections: of training objects the kernel itself, and of a new object a
    number by which all its squared distances to training objects are less than they are.
    """

    kernel: InputKernel
    points: Any
    weights: Array
    factor: Array
    training: Array | None = None
    span: ObjectSpan | None = None
    alpha: float = 1.0

    def __repr__(self) -> str:
        return f"<KernelMetric: kernel {self.kernel.name!r}, learned in {len(self.factor)} dimensions>"

    def features(self, X: Any) -> Array:
        """phi'(x), one row per object."""
        return self.kernel.features(X, self.points, self.weights)

    def transform(self, X: Any) -> Array:
        """B^T phi'(x): coordinates whose inner products are the learned kernel on the span of the basis."""
        return self.features(X) @ self.factor

    def isometric(self, X: Any) -> Any:
        """Missing: a kernel's space has no coordinates that could be written down."""
        raise Missing("The distance is that of a kernel, which has no whole coordinates.")

    @property
    def start(self) -> KernelMetric:
        """The metric of the input kernel, in the same basis."""
        return replace(self, factor=np.eye(len(self.factor)), alpha=1.0)

    def gram(self, X: Any, Y: Any = None) -> Array:
        """The learned kernel of the rows of X with those of Y, by default with those of X itself.

        For a precomputed kernel, by default with the training objects.
        """
        left = self.features(X)
        right = left if Y is None else self.features(Y)
        if self.kernel.is_precomputed and Y is None:
            base, right = X, self._training
        elif not self.kernel.is_precomputed:
            base = self.kernel.gram(X, X if Y is None else Y)
        elif self.span is None:
            base = left @ right.T
        else:
            base = self.span.coordinates(X) @ self.span.coordinates(Y).T
        learned = (left @ self.factor) @ (right @ self.factor).T
        return np.asarray(learned + self.alpha * (base - left @ right.T))

    def squared_distances(self, X: Any, Y: Any = None) -> Array:
        """Of every row of X to every row of Y; defaults as in `gram`."""
        left = self.features(X)
        others = X if Y is None else Y
        right = self._training if self.kernel.is_precomputed and Y is None else self.features(others)
        learned = all_squared_distances(left @ self.factor, right @ self.factor)
        if self._is_whole:
            return learned
        if self.span is None:
            whole = self.kernel.squared_distances(X, others)
        elif Y is None:
            whole = np.square(self.span.coordinates(X)).sum(axis=1)[:, None] + self.span.diagonal - 2.0 * X
        else:
            whole = all_squared_distances(self.span.coordinates(X), self.span.coordinates(Y))
        return learned + self.alpha * np.maximum(whole - all_squared_distances(left, right), 0.0)

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        inside = self.features(X)
        learned = squared_distances(inside @ self.factor, i, j)
        if self._is_whole:
            return learned
        if self.span is None:
            whole = in_parts(self.kernel.paired_squared_distances, X, i, j)
        else:
            whole = squared_distances(self.span.coordinates(X), i, j)
        return learned + self.alpha * np.maximum(whole - squared_distances(inside, i, j), 0.0)

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        """The learned kernel of the rows i of X with the rows j."""
        inside = self.features(X)
        learned = in_parts(paired_products, inside @ self.factor, i, j)
        if self._is_whole:
            return learned
        if self.span is None:
            whole = in_parts(self.kernel.paired, X, i, j)
        else:
            whole = in_parts(paired_products, self.span.coordinates(X), i, j)
        return learned + self.alpha * (whole - in_parts(paired_products, inside, i, j))

    @property
    def _is_whole(self) -> bool:
        """Whether nothing that rows tell lies outside the basis."""
        return self.kernel.is_precomputed and self.span is None

    @property
    def _training(self) -> Array:
        assert self.training is not None
        return self.training


@dataclass(frozen=True, eq=False)
class ObjectSpan(StoredByRows):
    """The span of all training objects of a precomputed kernel, as a pivoted Cholesky factor of their kernel.

    Attributes
    ----------
    columns : training objects that span all of them up to rounding
    root : lower triangular L, with L L^T the kernel of these
    diagonal : k0 of every training object with itself
    """

    columns: Index
    root: Array
    diagonal: Array

    @classmethod
    def of(cls, K: Array) -> ObjectSpan:
        """The span of the objects of a positive semidefinite kernel matrix."""
        diagonal = np.diag(K).copy()
        largest = float(diagonal.max(initial=0.0))
        # of what differs between objects, where they share more than that; never less than rounding
        spread = max(float(diagonal.mean() - K.mean()), len(K) * np.finfo(np.float64).eps * largest)
        for least in (*(tolerance * spread for tolerance in _DEPENDENT), _DEPENDENT[-1] * largest):
            least = max(least, len(K) * np.finfo(np.float64).eps * largest)
            L, order, rank, _ = lapack.dpstrf(K, tol=least, lower=1)
            L = np.tril(L)[:, :rank]
            left = diagonal[order - 1] - np.einsum("ij,ij->i", L, L)
            if left.min(initial=0.0) >= -least:
                return cls((order - 1)[:rank].astype(np.int64), L[:rank], diagonal)
        raise indefinite(np.linalg.eigvalsh(K), "its matrix")

    def coordinates(self, X: Array) -> Array:
        """Of the projections of objects, given by rows of kernel values with the training objects."""
        return np.asarray(solve_triangular(self.root, X[:, self.columns].T, lower=True).T)


def indefinite(values: NDArray[Any], matrix: str) -> ValueError:
    """The refusal of a kernel by the eigenvalues, in rising order, of a matrix of its values."""
    return ValueError(
        f"the kernel must be positive semidefinite, but {matrix} has the eigenvalue {values[0]:.6g} "
        f"(the largest is {values[-1]:.6g}); add at least {-values[0]:.6g} to its diagonal, set its negative "
        "eigenvalues to zero, or choose another kernel"
    )


def coordinates(rows: Any, metric: Any, whole: bool) -> NDArray[Any]:
    """Of some rows, in their precision and computed in double; `whole` for those of the whole distance."""
    doubled = rows.astype(np.float64, copy=False)
    found = metric.isometric(doubled) if whole else metric.transform(doubled)
    precision = np.float32 if rows.dtype == np.float32 else np.float64
    return found.astype(precision) if sparse.issparse(found) else np.asarray(found, dtype=precision)


def dense_product(X: Any, A: Array) -> Array:
    """X @ A as a dense array, for dense or sparse X and dense A."""
    return np.asarray(X @ A, dtype=np.float64)


def euclidean(n_features: int) -> Metric:
    """The Euclidean distance, as the metric that is the identity outside a subspace without dimensions."""
    return Metric(np.empty((0, 0)), np.empty((n_features, 0)))


def symmetric_root(factor: Array) -> Array:
    """The symmetric B with the same B B^T: of all factors the one that moves the data least."""
    U, s, _ = np.linalg.svd(factor, full_matrices=False)
    root = (U * s) @ U.T
    return (root + root.T) / 2


def root_of(matrix: Array) -> Array:
    """B with B B^T = matrix, for one that is positive semidefinite up to rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def two_vectors(x: ArrayLike, y: ArrayLike, length: int | None = None) -> tuple[Array, Array]:
    """The arguments of a function of two vectors, checked."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        shapes = f"{first.shape} and {second.shape}"
        raise ValueError(f"the distance is that of two vectors of one length, got shapes {shapes}")
    if length is not None and len(first) != length:
        raise ValueError(f"the metric is for vectors of {length} numbers, got {len(first)}")
    return first, second
