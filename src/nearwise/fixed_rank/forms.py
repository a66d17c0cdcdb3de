"""Quadratic forms of a factor, the data of MBS11: y_i = <X_i, G G^T> for d x r factors G.

Every kind of data is a linear map G -> Z followed by sums of squares of rows of Z: vectors (X_i = x_i x_i^T),
differences of objects (metric learning), unit vectors (kernel learning, multidimensional scaling) and
low-rank X_i all are `Squares`. Full matrices X_i are `Matrices`. No d x d matrix is built for squares, and
moving along a line G + s D needs no further product with the data, because the image Z is linear in G.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise._common.types import Array, Index

_SAMPLED = 500  # rows from which directions of large variance are found
_SAMPLED_WIDE, _WIDE = 200, 2000  # fewer where there are more than so many features
_TESTED = 100  # rows that tell whether there are any
_ANISOTROPIC = 3.0  # how many times fewer directions than d carry the variance
_MANY = 20_000  # samples from which on a product is no trifle
_LARGE = 1_000_000  # numbers from which on single precision pays for its copy


@dataclass(frozen=True, eq=False)
class Squares:
    """X_i = sum_t coefficient_t z_t z_t^T over its squares t, with z_t = F[first_t] + sign_t F[second_t].

    Attributes
    ----------
    features : F, (N, d), dense or sparse; None for the unit vectors of d objects
    dimension : d
    n_samples : n
    first, second, sign : the rows of F of each square; None where square t is the row F[t]
    coefficient : of each square; None for 1
    sample : the sample of each square; None where square t is the whole of sample t
    unit : features are read as multiples of this, so that extreme ones neither overflow nor vanish
    """

    features: Any
    dimension: int
    n_samples: int
    first: Index | None = None
    second: Index | None = None
    sign: Array | None = None
    coefficient: Array | None = None
    sample: Index | None = None
    unit: float = 1.0

    def image(self, D: Array) -> Array:
        """The linear image of a d x r matrix from which all values follow."""
        H = D if self.features is None else product(self.features, D / self.unit)
        return H if self.first is None else self._incidence[0] @ H

    def pull(self, Z: Array) -> Array:
        """The adjoint of `image`."""
        Y = Z if self.first is None else self._incidence[1] @ Z
        return Y if self.features is None else product(self.features.T, Y) / self.unit

    def cross(self, Z: Array, E: Array) -> Array:
        """<X_i, sym(G D^T)> for the images of G and D; with both the same, <X_i, G G^T>."""
        per_square: Array = np.einsum("ij,ij->i", Z, E)
        if self.coefficient is not None:
            per_square = self.coefficient * per_square
        if self.sample is None:
            return per_square
        return np.asarray(np.bincount(self.sample, per_square, self.n_samples), dtype=np.float64)

    def weigh(self, weights: Array, Z: Array) -> Array:
        """What `pull` turns into sum_i weights_i sym(X_i) G, for the image of G."""
        return self._per_square(weights)[:, None] * Z

    def moment(self, Z: Array, active: NDArray[np.bool_] | None) -> Array:
        """An r x r matrix C with |D C^1/2|^2 about the mean square of `cross` per unit of D."""
        weights = np.ones(self.n_samples) if active is None else active.astype(np.float64)
        if self.coefficient is None and self.sample is None:
            rows = Z if active is None else Z[active]
            return np.asarray(rows.T @ rows) / max(len(rows), 1)
        return np.asarray(Z.T @ (np.abs(self._per_square(weights))[:, None] * Z)) / max(weights.sum(), 1.0)

    def sizes(self) -> tuple[Array, Array]:
        """Upper bounds of the largest eigenvalues of X_i and of -X_i, not below 0."""
        squares = self._squared_lengths()
        if self.coefficient is None and self.sample is None:
            return squares, np.zeros(self.n_samples)
        weighted = self._per_square(np.ones(self.n_samples)) * squares
        if self.sample is None:
            return np.maximum(weighted, 0.0), np.maximum(-weighted, 0.0)
        parts = [
            np.bincount(self.sample, np.maximum(part, 0.0), self.n_samples) for part in (weighted, -weighted)
        ]
        return np.asarray(parts[0], dtype=np.float64), np.asarray(parts[1], dtype=np.float64)

    def subset(self, rows: Index | slice) -> Squares:
        """The forms of some samples; with features written out as rows, which is fastest for few of them."""
        if self.first is None and self.sample is None:  # a step of one sample costs little more than this
            kept_rows, kept_share = self.features[rows], self.coefficient
            share = None if kept_share is None else kept_share[rows]
            return Squares(kept_rows, self.dimension, kept_rows.shape[0], coefficient=share, unit=self.unit)
        chosen = np.arange(self.n_samples)[rows] if isinstance(rows, slice) else rows
        squares: Any = rows if self.sample is None else np.flatnonzero(np.isin(self.sample, chosen))
        coefficient = None if self.coefficient is None else self.coefficient[squares]
        sample, count = None, len(chosen)
        if self.sample is not None:
            place = np.empty(self.n_samples, dtype=np.int64)
            place[chosen] = np.arange(count)
            sample = place[self.sample[squares]]
        kept = replace(self, n_samples=count, coefficient=coefficient, sample=sample)
        if self.first is None or self.second is None or self.sign is None:
            return replace(kept, features=self.features[squares])
        if self.features is None:
            first, second, sign = self.first[squares], self.second[squares], self.sign[squares]
            return replace(kept, first=first, second=second, sign=sign)
        return replace(kept, features=self._written_out(squares), first=None, second=None, sign=None)

    def scaled(self, factors: Array) -> Squares:
        """Every form times a number of its own."""
        return replace(self, coefficient=self._per_square(factors))

    def whitening(self) -> Callable[[Array], Array] | None:
        """About the inverse of the mean X_i, as a map of d x r matrices; None where it changes little.

        From a sample: its principal directions, and one variance for all others.
        """
        if self.features is None:
            return self._by_degree()
        count = _SAMPLED if self.dimension <= _WIDE else _SAMPLED_WIDE
        rows = self._sampled(np.random.default_rng(0), count) / self.unit
        few = rows[:_TESTED]
        gram = few @ few.T
        trace = float(np.mean(np.diag(gram)))
        n_few = len(few)
        square = float(np.sum(gram * gram) - np.sum(np.diag(gram) ** 2)) / max(n_few * (n_few - 1), 1)
        # tr(S^2) d = tr(S)^2 where all directions are alike
        if not square * self.dimension > _ANISOTROPIC * trace * trace:
            return None
        values, left = np.linalg.eigh(rows @ rows.T / len(rows))
        kept = values > 1e-10 * values[-1]
        V = (rows.T @ left[:, kept]) / np.sqrt(values[kept] * len(rows))
        # What a sample leaves over is small, but not nothing: the least of the variances found stands for it.
        rest = max(float(np.quantile(values[kept], 0.1)), 1e-6 * float(values[-1]))
        shares = rest / (values[kept] + rest) - 1.0
        return lambda D: D + V @ (shares[:, None] * (V.T @ D))

    def _sampled(self, rng: np.random.Generator, count: int) -> Array:
        """Vectors z of some squares; for differences, centred rows of F, which vary alike."""
        differences = self.sign is not None and bool((self.sign == -1).all())
        total = self.features.shape[0] if differences or self.first is None else len(self.first)
        chosen = rng.permutation(total)[:count]
        rows = self.features[chosen] if differences else self._written_out(chosen)
        rows = np.asarray(rows.toarray() if sparse.issparse(rows) else rows)
        if differences:
            return np.asarray(rows - rows.mean(axis=0))
        if self.coefficient is not None:
            rows = rows * np.sqrt(np.abs(self.coefficient[chosen]))[:, None]
        return rows

    def _by_degree(self) -> Callable[[Array], Array] | None:
        """Of unit vectors, one weight per object: the number of squares in which it occurs."""
        if self.first is None:
            return None
        degree = np.asarray(abs(self._incidence[1]).sum(axis=1)).ravel()
        inverse = 1.0 / (degree + max(float(degree.mean()) * 1e-2, 1e-12))
        return lambda D: inverse[:, None] * D

    @property
    def light(self) -> bool:
        """Whether `image` costs little beside what else an iteration does."""
        F = self.features
        few = F is None or (F.nnz if sparse.issparse(F) else F.size) < _LARGE
        return few and self.n_samples <= _MANY

    def rough(self) -> Squares:
        """The same in single precision where that makes `image` and `pull` faster, else these forms."""
        F = self.features
        if F is None or sparse.issparse(F) or F.size < _LARGE:
            return self
        single = np.empty(F.shape, np.float32)
        np.divide(F, self.unit, out=single, casting="same_kind")
        return replace(self, features=single, unit=1.0)

    def _written_out(self, squares: Index | slice) -> Any:
        """The vectors z_t of some squares as rows."""
        F = self.features
        if self.first is None or self.second is None or self.sign is None:
            return F[squares]
        first, second, sign = self.first[squares], self.second[squares], self.sign[squares]
        if sparse.issparse(F):
            return F[first] + sparse.diags_array(sign) @ F[second]
        return F[first] + sign[:, None] * F[second]

    def _squared_lengths(self) -> Array:
        """|z_t|^2."""
        if self.features is None:
            assert self.sign is not None
            same = self.first == self.second
            return np.asarray(np.where(same, np.square(1 + self.sign), 1 + np.square(self.sign)))
        rows = self._written_out(slice(None)) / self.unit
        if sparse.issparse(rows):
            return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        return np.asarray(np.einsum("ij,ij->i", rows, rows))

    def _per_square(self, weights: Array) -> Array:
        per_square = weights if self.sample is None else weights[self.sample]
        return per_square if self.coefficient is None else self.coefficient * per_square

    @cached_property
    def _incidence(self) -> tuple[Any, Any]:
        """The sparse matrix with rows e_first + sign e_second, and its transpose, both by row."""
        assert self.first is not None
        assert self.second is not None
        assert self.sign is not None
        n_rows = self.dimension if self.features is None else self.features.shape[0]
        kept = self.sign != 0
        t = np.arange(len(self.first))
        entries = np.concatenate([np.ones(len(t)), self.sign[kept]])
        places = np.concatenate([t, t[kept]]), np.concatenate([self.first, self.second[kept]])
        matrix = sparse.csr_array((entries, places), shape=(len(t), n_rows))
        return matrix, matrix.T.tocsr()


@dataclass(frozen=True, eq=False)
class Matrices:
    """General symmetric X_i, stored as the rows of an n x d^2 array; methods as of `Squares`."""

    flat: Array
    dimension: int
    unit: float = 1.0  # matrices are read as multiples of the square of this

    @property
    def n_samples(self) -> int:
        return len(self.flat)

    def image(self, D: Array) -> Array:
        return D / self.unit

    def pull(self, Z: Array) -> Array:
        return Z / self.unit

    def cross(self, Z: Array, E: Array) -> Array:
        return np.asarray(self.flat @ (Z @ E.T).ravel())

    def weigh(self, weights: Array, Z: Array) -> Array:
        return np.asarray((weights @ self.flat).reshape(self.dimension, self.dimension) @ Z)

    def moment(self, Z: Array, active: NDArray[np.bool_] | None) -> Array:
        return np.asarray(Z.T @ Z)

    def sizes(self) -> tuple[Array, Array]:
        lengths = np.linalg.norm(self.flat, axis=1) / (self.unit * self.unit)
        return lengths, lengths

    def subset(self, rows: Index | slice) -> Matrices:
        return replace(self, flat=self.flat[rows])

    def scaled(self, factors: Array) -> Matrices:
        return replace(self, flat=factors[:, None] * self.flat)

    def whitening(self) -> None:
        return None

    @property
    def light(self) -> bool:
        return True

    def rough(self) -> Matrices:
        return self


Forms: TypeAlias = Squares | Matrices  # n quadratic forms X_i of d variables, seen through factors


def product(A: Any, B: Array) -> Array:
    """A @ B for a tall and thin B; written so that BLAS is about twice as fast on the dense case."""
    if sparse.issparse(A):
        return np.asarray(A @ B)
    return np.asarray((B.T.astype(A.dtype, copy=False) @ A.T).T, dtype=np.float64)
