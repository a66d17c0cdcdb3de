"""Metrics that are the Euclidean distance of coordinates: of columns, scores or a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearwise._common.markup import fact_table
from nearwise._common.memory import foresee
from nearwise._common.types import Array
from nearwise.learners.input_kernels import InputKernel
from nearwise.learners.metric import AnyMetric, Spectrum, two_vectors
from nearwise.linalg.distances import all_squared_distances


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalMetric(AnyMetric):
    """A squared distance sum_k w_k (x_k - y_k)^2 between vectors.

    Attributes
    ----------
    weights : w, d numbers >= 0

    Rows of data may be dense or scipy sparse; sparse ones stay sparse, also after `transform`.
    """

    weights: Array
    is_linear = True

    def __repr__(self) -> str:
        return f"<DiagonalMetric: weights of {self.n_features:,} features>"

    def _repr_html_(self) -> str:
        about = {"features": f"{self.n_features:,}"}
        if self.n_features:
            about["weights"] = f"{self.weights.min():.3g} to {self.weights.max():.3g}"
        return fact_table("Metric", about)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """The distance of two vectors, not squared."""
        first, second = two_vectors(x, y, self.n_features)
        return float(np.sqrt(self.weights @ np.square(first - second)))

    @property
    def n_features(self) -> int:
        """d, the length of a vector."""
        return len(self.weights)

    @property
    def factor(self) -> Array:
        """B with M = B B^T, written out: d x d."""
        return self._written_out(np.sqrt(self.weights))

    @property
    def matrix(self) -> Array:
        """M = diag(w), written out: d x d."""
        return self._written_out(self.weights)

    @property
    def components(self) -> Array:
        """The linear map of `transform`, written out."""
        return self.factor

    @property
    def n_coordinates(self) -> int:
        return self.n_features

    @property
    def dimensions(self) -> tuple[int, int | None]:
        return self.n_features, self.n_features

    @property
    def column_weights(self) -> Array:
        return self.weights

    def spectrum(self) -> Spectrum:
        return Spectrum(np.sort(self.weights[self.weights > 0])[::-1], self.n_features)

    def transform(self, X: Any) -> Any:
        """Coordinates whose Euclidean distance is the learned one; sparse where the rows are."""
        return scaled(X, np.sqrt(self.weights))

    def _written_out(self, diagonal: Array) -> Array:
        foresee(8 * self.n_features**2, f"the matrix of {self.n_features:,} features")
        return np.diag(diagonal)


@dataclass(frozen=True, eq=False, repr=False)
class JoinedMetric(AnyMetric):
    """The squared distance |B'(f(x) - f(y))|^2 of f(x) = (z, weights' k(z, points) + offset), z = x - centre.

    Attributes
    ----------
    kernel : k
    centre : (d,), which is taken off every vector: that changes no distance, and saves digits
    points : (m, d), the rows that the kernel compares with, less the centre
    weights : one row per point, one column per score
    offset : what is added to the scores
    factor : B
    joined : whether the vector itself is in f(x), or only the scores
    """

    kernel: InputKernel
    centre: Array
    points: Array
    weights: Array
    offset: Array
    factor: Array
    joined: bool = True

    def __repr__(self) -> str:
        parts = f"{self.n_features} features and " if self.joined else ""
        return f"<JoinedMetric: {parts}{self.weights.shape[1]} scores of kernel {self.kernel.name!r}>"

    @property
    def n_features(self) -> int:
        """d, the length of a vector."""
        return int(self.points.shape[1])

    def features(self, X: Array) -> Array:
        """f(x), one row per vector."""
        centred = X - self.centre
        scores = self.kernel.gram(centred, self.points) @ self.weights + self.offset
        return np.hstack([centred, scores]) if self.joined else np.asarray(scores)

    def transform(self, X: Any) -> Array:
        """Coordinates whose Euclidean distance is the learned one."""
        return self.features(X) @ self.factor


@dataclass(frozen=True, eq=False)
class KernelMap(AnyMetric):
    """A map of all objects that the input kernel accepts to coordinates: factor^T [k0(x, points)].

    Attributes
    ----------
    kernel : k0
    points : the training objects of the basis; for a precomputed kernel, their columns, None for all
    factor : one row per point, one column per coordinate
    training : the coordinates of all training objects, for a precomputed kernel only
    """

    kernel: InputKernel
    points: Any
    factor: Array
    training: Array | None = None

    def transform(self, X: Any) -> Array:
        """Coordinates, one row per object."""
        return self.kernel.features(X, self.points, self.factor)

    def gram(self, X: Any, Y: Any = None) -> Array:
        """Inner products of the coordinates of X with those of Y, by default of X.

        For a precomputed kernel, by default with the training objects.
        """
        left = self.transform(X)
        return left @ self._others(left, Y).T

    def squared_distances(self, X: Any, Y: Any = None) -> Array:
        """Of every row of X to every row of Y; defaults as in `gram`."""
        left = self.transform(X)
        return all_squared_distances(left, self._others(left, Y))

    def _others(self, left: Array, Y: Any) -> Array:
        if Y is not None:
            return self.transform(Y)
        return left if self.training is None else self.training


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """phi(x) = weights^T k0(x, points), with the inner products of the kernel on the span of the points."""

    kernel: InputKernel
    points: Any
    weights: Array

    def __call__(self, X: Any) -> Array:
        """One row per object."""
        return self.kernel.features(X, self.points, self.weights)


@dataclass(frozen=True, eq=False)
class LowRankKernelMetric(AnyMetric):
    """The squared distance |G^T (phi(x) - phi(y))|^2 of a factor G learned on kernel features."""

    features: KernelFeatures
    factor: Array

    def transform(self, X: Any) -> Array:
        """Coordinates whose Euclidean distance is the learned one."""
        return self.features(X) @ self.factor


def scaled(rows: Any, factors: Array) -> Any:
    """Every column times its factor; dense or CSR like the rows."""
    if sparse.issparse(rows):
        out = rows.tocsr(copy=True)
        out.data = out.data * factors[out.indices]
        return out
    return rows * factors
