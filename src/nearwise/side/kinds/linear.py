"""Bounds on linear functions tr(A K) of the kernel of some objects, for any symmetric A."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Mask
from nearwise.linalg.dense import eigenvalues, spectrum
from nearwise.linalg.eigenpairs import eigenpairs
from nearwise.linalg.pairs import Pair, product
from nearwise.side.kinds.kind import Grade, Kind, Measure, Names, Part, RowsOfKind, bounded, by_relation

if TYPE_CHECKING:
    from nearwise.side.blocks import Block
    from nearwise.side.matrices import Linear

_BOUNDS = Grade("linear constraints", "linear constraints that hold", "share")
_MEASURED = Grade("linear constraints", "error of linear constraints", "error")
_ROUNDING = 8 * np.finfo(float).eps
_SMALL_ORDER = 16  # of a matrix whose eigenvalues take less time than what would make it smaller
_SMALL = 100  # objects up to which a sparse matrix is written out
_AT_ONCE = 1 << 20  # numbers in the matrices that are worked on together
_FEW_VECTORS = 3  # for each dimension of the features: so many are kept of a general matrix A
_CANCELS = 0.1  # share of |A| |G| that is left of A G, below which sums are in twice the precision
_IN_PAIRS = 300  # objects and columns up to which that is so


class LinearFunction(Kind):
    """tr(A K). A is a sum of squares of its eigenvectors, which are rows beside the features."""

    name: ClassVar[str] = "linear"
    plural: ClassVar[str] = "linear"
    shares_objects: ClassVar[bool] = True

    def atoms(self, block: RowsOfKind, features: Array, sizes: Array | None) -> Part:
        """A = sum_t weight_t u_t u_t^T, so G^T A G = sum_t weight_t (G^T u_t)(G^T u_t)^T."""
        assert sizes is not None
        G, sizes = (features, sizes) if block.ids is None else (features[block.ids], sizes[block.ids])
        at_once = max(1, _AT_ONCE // max(G.shape) ** 2)
        found = [_Squares(np.empty((0, features.shape[1])), np.empty(0), False)]
        for first in range(0, len(block), at_once):
            found += _low_rank(block.matrices[first : first + at_once], G, sizes)
        vectors, weights, is_definite = zip(*found, strict=True)
        whole = np.concatenate(weights)
        scaled = np.concatenate(vectors)
        scaled *= np.sqrt(np.abs(whole))[:, None]  # so that no square overflows
        index = np.arange(len(whole))
        row = np.arange(len(block)).repeat([len(own) for own in weights[1:]])
        definite = np.array(is_definite[1:], dtype=bool).nonzero()[0]
        return Part(index, index, np.sign(whole), row, False, scaled, definite)

    def text(self, block: Block, row: int, symbol: str, bound: float, names: Names) -> str:
        return bounded(f"tr(A[{row}] X)", symbol, bound)

    def grades(self, block: Block) -> list[tuple[Grade, Mask]]:
        return by_relation(block, _BOUNDS, _MEASURED)

    def values(self, block: Block, measure: Measure) -> Array:
        rows = np.asarray(block.object_ids, dtype=np.int64)
        K = np.stack([measure.products(np.full_like(rows, row), rows) for row in rows])
        return np.array([_trace(matrix, K) for matrix in block.matrices])

    def is_definite(self, block: Block) -> Mask:
        return np.zeros(len(block), dtype=bool)  # that of a general A is not looked for


def _trace(A: Any, K: Array) -> float:
    if A.factor is not None:
        return float(np.einsum("ik,ij,jk,k->", A.factor, K, A.factor, A.weights, optimize=True))
    return float(A.matrix.multiply(K).sum() if sparse.issparse(A.matrix) else np.sum(A.matrix * K))


class _Squares(NamedTuple):
    """Vectors v_t and weights with G^T A G = sum_t weight_t v_t v_t^T, and whether that is semidefinite."""

    vectors: Array
    weights: Array
    is_definite: bool


class _Spectra(NamedTuple):
    """Of every A vectors and weights, None where these are many; A G, and |A| times the objects' sizes."""

    found: list[tuple[Array, Array] | None]
    AG: Array
    magnitude: Array


def _low_rank(matrices: tuple[Linear, ...], G: Array, sizes: Array) -> Iterator[_Squares]:
    """The squares of every A: those of A itself where it has few, since G^T A G loses the digits of small
    columns of G, else the eigenvectors of G^T A G. What is within rounding of the features counts as zero.

    `sizes` are the lengths of the features before restriction.
    """
    found, AG, magnitude = _spectra(matrices, G, sizes)
    # of |G|^T |A G|, to first order what rounding is of
    total = np.sqrt(np.add.reduce(AG * AG, axis=2)).dot(sizes)
    noises = (_ROUNDING * G.shape[1] * total).tolist()
    cancels = total < _CANCELS * magnitude.dot(sizes)  # A G is a small sum of large terms
    may_be_in_pairs = max(G.shape) <= _IN_PAIRS
    for t, (squares, noise) in enumerate(zip(found, noises, strict=True)):
        if not math.isfinite(noise):
            yield _Squares(np.full((1, G.shape[1]), np.inf), np.ones(1), False)  # which is refused by row
            continue
        in_pairs = may_be_in_pairs and cancels[t]
        if in_pairs or squares is None:
            values, inside = (
                eigenpairs(_core(matrices[t], G)) if in_pairs else spectrum(_symmetric(G.T @ AG[t]))
            )
            kept = np.abs(values) > noise
            yield _Squares(inside[:, kept].T, values[kept], bool((values[kept] > 0).all()))
        else:
            yield _graded(*squares, noise)


def _graded(vectors: Array, weights: Array, noise: float) -> _Squares:
    """Squares with whether their sum is semidefinite; none, where all that is left of it is noise."""
    k, n_positive = len(weights), int(np.count_nonzero(weights > 0))
    # of squares of one sign the sum is semidefinite, and an eigenvalue at least the mean of their traces
    if n_positive in (0, k) and np.abs(weights) @ np.einsum("ij,ij->i", vectors, vectors) > k * noise:
        return _Squares(vectors, weights, n_positive > 0)
    X = vectors.T
    if 2 * k < len(X) > _SMALL_ORDER:  # then a matrix of order k is worth the factorisation
        X = np.asarray(np.linalg.qr(X, mode="r"))
    core = (X * weights).dot(X.T)
    diagonal = core.diagonal().tolist()
    # then eigenvalues have both signs; the matrix 0 has no diagonal here
    if diagonal and min(diagonal) < -2 * noise and max(diagonal) > 2 * noise:
        return _Squares(vectors, weights, False)
    values = eigenvalues(_symmetric(core))
    left = values[np.abs(values) > noise]
    return (
        _Squares(vectors, weights, not np.count_nonzero(left <= 0))
        if len(left)
        else _Squares(vectors[:0], weights[:0], True)
    )


def _core(A: Linear, G: Array) -> Pair:
    """G^T A G in twice the precision."""
    if A.factor is not None and A.weights is not None:
        inside = product(A.factor.T, G)
        return product(inside.T, product(np.diag(A.weights), inside))
    return product(G.T, product(_dense(A), G))


def _spectra(matrices: tuple[Linear, ...], G: Array, sizes: Array) -> _Spectra:
    """Of every A on the objects that it is about."""
    few = _FEW_VECTORS * G.shape[1]
    found: list[tuple[Array, Array] | None] = [None] * len(matrices)
    AG, magnitude = np.empty((len(matrices), *G.shape)), np.empty((len(matrices), len(G)))
    for t, A in enumerate(matrices):
        if A.factor is not None and A.weights is not None:
            vectors, entries = A.factor.T @ G, np.abs(A.factor)
            AG[t] = A.factor @ (A.weights[:, None] * vectors)
            magnitude[t] = entries @ (np.abs(A.weights) * (sizes @ entries))
            squares = _others_than_zero(vectors, A.weights)
            found[t] = squares if len(squares[1]) <= few else None
            continue
        matrix: Any = A.matrix if A.size > _SMALL else _dense(A)
        AG[t], magnitude[t] = matrix @ G, abs(matrix).dot(sizes)
        is_sparse = sparse.issparse(matrix)
        support = np.unique(matrix.nonzero()[0]) if is_sparse else matrix.any(axis=1).nonzero()[0]
        if len(support) <= few:
            inside = matrix if len(support) == len(G) else matrix[support][:, support]
            weights, small = spectrum(inside.toarray() if is_sparse else inside)
            found[t] = _others_than_zero(small.T.dot(G.take(support, axis=0)), weights)
    return _Spectra(found, AG, magnitude)


def _others_than_zero(vectors: Array, weights: Array) -> tuple[Array, Array]:
    """Those of weights that are more than rounding errors of the largest."""
    magnitudes = np.abs(weights)
    used = magnitudes > _ROUNDING * len(weights) * np.maximum.reduce(magnitudes, initial=0.0)
    return (vectors, weights) if np.count_nonzero(used) == len(used) else (vectors[used], weights[used])


def _symmetric(A: Array) -> Array:
    return (A + A.T) / 2


def _dense(A: Linear) -> Array:
    return np.asarray(A.matrix.toarray() if sparse.issparse(A.matrix) else A.matrix)
