"""Input kernels: the functions that a kernel learner starts from, on rows of data, dense or sparse.

`InputKernel` names one of scikit-learn's kernels, a function of two rows, or "precomputed", and evaluates it
on all pairs of rows or row by row; `SumKernel` adds several up. Functions on rows that metrics share stand at
the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index
from nearwise.learners._rows import is_precomputed
from nearwise.linalg.distances import all_squared_distances, centre_of

_GATHERED = 2**22  # numbers gathered at a time
_SAMPLE, _STRIDES = 500, 10  # rows that tell the variance of a kernel, and partners of each


@dataclass(frozen=True, eq=False)
class InputKernel:
    """k0(x, y).

    Attributes
    ----------
    name : a kernel of `sklearn.metrics.pairwise`, a function of two rows, or "precomputed"
    parameters : what it is called with, such as gamma
    """

    name: str | Callable[..., float]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_precomputed(self) -> bool:
        return is_precomputed(self.name)

    def gram(self, X: Any, Y: Any) -> Array:
        """k0 of every row of X with every row of Y; precomputed, the columns Y of X (None for all)."""
        if self.is_precomputed:
            return X if Y is None else X[:, Y]
        n, m = X.shape[0], X.shape[0] if Y is None else Y.shape[0]
        foresee(8 * n * m, f"the kernel matrix of {n:,} by {m:,} objects")
        if self.name == "rbf" and not sparse.issparse(X) and not sparse.issparse(Y):
            # of differences only: without what all rows share, their squares lose no digits
            centre = centre_of(X if Y is None else Y)
            X, Y = X - centre, None if Y is None else Y - centre
            if set(self.parameters) == {"gamma"}:
                K = all_squared_distances(X, X if Y is None else Y)
                K *= -self.parameters["gamma"]
                return np.exp(K, out=K)
        from sklearn.metrics.pairwise import pairwise_kernels  # slow to import, and needed only here

        return np.asarray(pairwise_kernels(X, Y, metric=self.name, **self.parameters), dtype=np.float64)

    def features(self, X: Any, points: Any, weights: Array) -> Array:
        """[k0(x, points)] weights, one row per row x of X."""
        if self.name == "linear":  # one matrix for all rows, so that what they share costs no digits
            return np.asarray(X @ np.asarray(points.T @ weights), dtype=np.float64)
        return np.asarray(self.gram(X, points) @ weights)

    def paired(self, X: Any, Y: Any) -> Array:
        """k0 of every row of X with the same row of Y; not for a precomputed kernel."""
        p = self.parameters
        if self.name == "rbf":
            return np.exp(-p["gamma"] * paired_squared_distances(X, Y))
        if self.name == "laplacian":
            return np.exp(-p["gamma"] * np.asarray(abs(X - Y).sum(axis=1)).ravel())
        if self.name == "cosine":
            from sklearn.preprocessing import normalize  # slow to import, and needed only here

            return paired_products(normalize(X), normalize(Y))
        if self.name == "linear":
            return paired_products(X, Y)
        if self.name in ("poly", "polynomial"):
            return (p["gamma"] * paired_products(X, Y) + p["coef0"]) ** p["degree"]
        if self.name == "sigmoid":
            return np.tanh(p["gamma"] * paired_products(X, Y) + p["coef0"])
        single = [self.gram(X[i : i + 1], Y[i : i + 1])[0, 0] for i in range(X.shape[0])]
        return np.array(single, dtype=np.float64)

    def paired_squared_distances(self, X: Any, Y: Any) -> Array:
        """k0(x, x) + k0(y, y) - 2 k0(x, y), row by row."""
        if self.name == "linear":
            return paired_squared_distances(X, Y)
        return self.paired(X, X) + self.paired(Y, Y) - 2.0 * self.paired(X, Y)

    def squared_distances(self, X: Any, Y: Any) -> Array:
        """The kernel's own squared distance of every row of X to every row of Y."""
        if self.name == "linear":
            return all_squared_distances(X, Y)
        lengths = self.paired(X, X)[:, None] + self.paired(Y, Y)
        return np.maximum(lengths - 2.0 * self.gram(X, Y), 0.0)

    def pair_squared_distances(self, X: Any, i: Index, j: Index) -> Array:
        """The kernel's own squared distance of the rows i of X to the rows j."""
        return np.maximum(in_parts(self.paired_squared_distances, X, i, j), 0.0)

    def pair_products(self, X: Any, i: Index, j: Index) -> Array:
        """The kernel of the rows i of X with the rows j."""
        return in_parts(self.paired, X, i, j)


@dataclass(frozen=True, eq=False)
class SumKernel(InputKernel):
    """The sum of kernels, each times a number; its space joins theirs.

    Attributes
    ----------
    name : the names of the parts, joined by "+"
    parts, scales : the kernels, none of them precomputed, and the numbers
    """

    parts: tuple[InputKernel, ...] = ()
    scales: tuple[float, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[InputKernel], X: Any) -> SumKernel:
        """Kernels whose parts have the same total variance on the rows of X, that of the first.

        A part without variance on these rows keeps its scale.
        """
        variances = [_total_variance(part, X) for part in parts]
        scales = [variances[0] / v if v > 0 and variances[0] > 0 else 1.0 for v in variances]
        name = "+".join(str(getattr(part.name, "__name__", part.name)) for part in parts)
        return cls(name, {}, tuple(parts), tuple(scales))

    def gram(self, X: Any, Y: Any) -> Array:
        return self._sum(lambda part: part.gram(X, Y))

    def features(self, X: Any, points: Any, weights: Array) -> Array:
        return self._sum(lambda part: part.features(X, points, weights))

    def paired(self, X: Any, Y: Any) -> Array:
        return self._sum(lambda part: part.paired(X, Y))

    def squared_distances(self, X: Any, Y: Any) -> Array:
        return self._sum(lambda part: part.squared_distances(X, Y))

    def paired_squared_distances(self, X: Any, Y: Any) -> Array:
        return self._sum(lambda part: part.paired_squared_distances(X, Y))

    def _sum(self, values: Callable[[InputKernel], Array]) -> Array:
        terms = [scale * values(part) for part, scale in zip(self.parts, self.scales, strict=True)]
        return np.asarray(sum(terms[1:], start=terms[0]))


def _total_variance(kernel: InputKernel, X: Any) -> float:
    """Half the mean squared distance of two rows, in the space of the kernel.

    From rows spread evenly over X, each with others at some strides from it: distances, unlike lengths, lose
    no digits where all rows are far from zero.
    """
    n = X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    strides = np.unique(np.linspace(1, max(n - 1, 1), min(n, _STRIDES)).astype(np.int64))
    i, j = np.repeat(rows, len(strides)), (rows[:, None] + strides).ravel() % n
    return float(kernel.pair_squared_distances(X, i, j).mean()) / 2


def scale_gamma(X: Any) -> float:
    """1 / (d * variance of X), for dense or sparse data; 1 where all numbers are equal."""
    if sparse.issparse(X):
        # from differences to the mean: a difference of squares loses the digits of data far from zero
        mean, count = X.mean(), X.shape[0] * X.shape[1]
        variance = (np.square(X.data - mean).sum() + (count - X.nnz) * mean**2) / count
    else:
        variance = X.var()
    return float(1.0 / (X.shape[1] * variance)) if variance > 0 else 1.0


def paired_products(X: Any, Y: Any) -> Array:
    """The inner product of every row of X with the same row of Y."""
    if sparse.issparse(X):
        return np.asarray(X.multiply(Y).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", X, Y)


def paired_squared_distances(X: Any, Y: Any) -> Array:
    """The squared Euclidean distance of every row of X to the same row of Y."""
    difference = X - Y
    return paired_products(difference, difference)


def in_parts(paired: Callable[[Any, Any], Array], X: Any, i: Index, j: Index) -> Array:
    """`paired` of the rows i and j of X, some thousand pairs at a time, so that no m x d array is made."""
    width = X.nnz / max(X.shape[0], 1) if sparse.issparse(X) else X.shape[1]
    size = int(max(_GATHERED // max(width, 1), 1))
    parts = [paired(X[i[k : k + size]], X[j[k : k + size]]) for k in range(0, len(i), size)]
    return np.concatenate([np.empty(0), *parts])


def first_equal_rows(X: Any) -> Index:
    """For every row of dense or sparse data the first one that is equal to it.

    In products with the data, rounding sets equal rows apart: which numbers are added first depends on where
    in a matrix a row is.
    """
    rows = sparse.csr_array(X) if sparse.issparse(X) else X
    first: dict[bytes, int] = {}
    keys = (_bytes_of(rows, i) for i in range(rows.shape[0]))
    return np.array([first.setdefault(key, i) for i, key in enumerate(keys)], dtype=np.int64)


def _bytes_of(rows: Any, i: int) -> bytes:
    if sparse.issparse(rows):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        return bytes(rows.indices[part].tobytes() + b"|" + rows.data[part].tobytes())
    return bytes((rows[i] + 0.0).tobytes())  # -0.0 becomes 0.0
