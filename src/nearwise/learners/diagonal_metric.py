"""`DiagonalMetric`: a weight for every feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearwise._common.markup import fact_table
from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index
from nearwise.learners.input_kernels import in_parts, paired_products
from nearwise.learners.metric import two_vectors
from nearwise.model.drawing import squared_distances


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalMetric:
    """A squared distance sum_k w_k (x_k - y_k)^2 between vectors.

    Attributes
    ----------
    weights : w, d numbers >= 0

    Rows of data may be dense or scipy sparse; sparse ones stay sparse, also after `transform`.
    """

    weights: Array
    basis = None  # nothing lies outside a learned subspace

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
        foresee(8 * self.n_features**2, f"the matrix of {self.n_features:,} features")
        return np.diag(np.sqrt(self.weights))

    @property
    def matrix(self) -> Array:
        """M = diag(w), written out: d x d."""
        foresee(8 * self.n_features**2, f"the matrix of {self.n_features:,} features")
        return np.diag(self.weights)

    @property
    def components(self) -> Array:
        """The linear map of `transform`, written out."""
        return self.factor

    def transform(self, X: Any) -> Any:
        """Coordinates whose Euclidean distance is the learned one; sparse where the rows are."""
        return scaled(X, np.sqrt(self.weights))

    def isometric(self, X: Any) -> Any:
        """The same."""
        return self.transform(X)

    def squared_distances(self, X: Any, Y: Any) -> Array:
        """Of every row of X to every row of Y."""
        from sklearn.metrics.pairwise import euclidean_distances  # slow to import, and needed only here

        return euclidean_distances(self.transform(X), self.transform(Y), squared=True)

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        """Of the rows i of X to the rows j."""
        return squared_distances(self.transform(X), i, j)

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        """The learned inner products x^T M y of the rows i of X and the rows j."""
        return in_parts(paired_products, self.transform(X), i, j)


def scaled(rows: Any, factors: Array) -> Any:
    """Every column times its factor; dense or CSR like the rows."""
    if sparse.issparse(rows):
        out = rows.tocsr(copy=True)
        out.data = out.data * factors[out.indices]
        return out
    return rows * factors
