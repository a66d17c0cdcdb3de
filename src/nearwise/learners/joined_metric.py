"""`JoinedMetric`: a Mahalanobis metric on vectors together with scores that a kernel gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.types import Array, Index
from nearwise.learners.input_kernels import InputKernel, in_parts, paired_products
from nearwise.learners.metric import distance_of_two, store_by_rows
from nearwise.model.drawing import squared_distances


@dataclass(frozen=True, eq=False, repr=False)
class JoinedMetric:
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

    def __post_init__(self) -> None:
        store_by_rows(self)

    def __repr__(self) -> str:
        parts = f"{self.n_features} features and " if self.joined else ""
        return f"<JoinedMetric: {parts}{self.weights.shape[1]} scores of kernel {self.kernel.name!r}>"

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """The learned distance of two vectors, not squared."""
        return distance_of_two(self, x, y)

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

    def squared_distances(self, X: Any, Y: Any) -> Array:
        """Of every row of X to every row of Y."""
        from sklearn.metrics.pairwise import euclidean_distances  # slow to import, and needed only here

        return np.asarray(euclidean_distances(self.transform(X), self.transform(Y), squared=True))

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        """Of the rows i of X to the rows j."""
        return squared_distances(self.transform(X), i, j)

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        """The learned inner products of the rows i of X and the rows j."""
        return in_parts(paired_products, self.transform(X), i, j)
