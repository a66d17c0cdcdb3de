"""Kernels for the fixed-rank estimators, MBS11 8.3: coordinates in the span of some basis objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.types import Array, Index
from nearwise.learners._kernel_bases import kernel_basis
from nearwise.learners.input_kernels import (
    InputKernel,
    is_precomputed,
    paired_products,
    paired_squared_distances,
)
from nearwise.learners.metric import distance_of_two


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """phi(x) = weights^T k0(x, points), with the inner products of the kernel on the span of the points."""

    kernel: InputKernel
    points: Any
    weights: Array

    def __call__(self, X: Any) -> Array:
        """One row per object."""
        return self.kernel.gram(X, self.points) @ self.weights


@dataclass(frozen=True, eq=False)
class LowRankKernelMetric:
    """The squared distance |G^T (phi(x) - phi(y))|^2 of a factor G learned on kernel features."""

    features: KernelFeatures
    factor: Array

    def transform(self, X: Any) -> Array:
        """Coordinates whose Euclidean distance is the learned one."""
        return self.features(X) @ self.factor

    def __call__(self, x: ArrayLike, y: ArrayLike) -> float:
        """The learned distance of two objects, not squared."""
        return distance_of_two(self, x, y)

    def squared_distances(self, X: Any, Y: Any) -> Array:
        """Of every row of X to every row of Y."""
        from sklearn.metrics.pairwise import euclidean_distances  # slow to import, and needed only here

        return np.asarray(euclidean_distances(self.transform(X), self.transform(Y), squared=True))

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        """Of the rows i of X to the rows j."""
        H = self.transform(X)
        return paired_squared_distances(H[i], H[j])

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        """The learned inner products of the rows i of X and the rows j."""
        H = self.transform(X)
        return paired_products(H[i], H[j])


def kernel_features(
    kernel: Any, kernel_params: Any, X: Any, n_basis: int, rng: np.random.RandomState
) -> KernelFeatures:
    """The features of a kernel on `n_basis` objects drawn from X, or on all if there are fewer.

    The kernel is a name, a function of two rows, or "precomputed", with X its square matrix. For the kernels
    that have one, gamma is 1 / (d var(X)) unless `kernel_params` says otherwise.
    """
    parameters = dict(kernel_params or {})
    if not isinstance(kernel, str) and not callable(kernel):
        raise TypeError(f"kernel must be None, a name or a function of two rows, got {kernel!r}")
    if is_precomputed(kernel) and X.shape[0] != X.shape[1]:
        raise ValueError(f"kernel='precomputed' needs a square kernel matrix for fit, got shape {X.shape}")
    if kernel in ("rbf", "laplacian", "poly", "polynomial", "sigmoid"):
        squares = X.multiply(X).mean() if hasattr(X, "multiply") else np.square(X).mean()
        variance = float(squares - X.mean() ** 2)
        parameters.setdefault("gamma", 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0)
    source = InputKernel(kernel, parameters)
    basis = kernel_basis(source, X, "subset", n_basis, rng)
    return KernelFeatures(source, basis.points, basis.weights)
