"""Bounds on linear functions tr(A K) of the kernel of some objects, for any symmetric A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Mask
from nearwise.model.kinds.kind import Grade, Kind, Measure, Names, Part, bounded, by_relation

if TYPE_CHECKING:
    from nearwise.model.blocks import Block, Linear

_BOUNDS = Grade("linear constraints", "linear constraints that hold", "share")
_MEASURED = Grade("linear constraints", "error of linear constraints", "error")
_ROUNDING = 8 * np.finfo(float).eps
_FEW_VECTORS = 3  # for each dimension of the features: so many are kept of a general matrix A


class LinearFunction(Kind):
    """tr(A K). A is a sum of squares of its eigenvectors, which are rows beside the features."""

    name: ClassVar[str] = "linear"
    plural: ClassVar[str] = "linear"
    shares_objects: ClassVar[bool] = True

    def atoms(self, block: Block, features: Array, sizes: Array | None) -> Part:
        """A = sum_t weight_t u_t u_t^T, so G^T A G = sum_t weight_t (G^T u_t)(G^T u_t)^T."""
        assert sizes is not None
        G, sizes = (features, sizes) if block.ids is None else (features[block.ids], sizes[block.ids])
        vectors, weights, rows = [np.empty((0, features.shape[1]))], [np.empty(0)], [np.empty(0, np.int64)]
        definite = []
        for row, matrix in enumerate(block.matrices):
            factor, weight, is_definite = _low_rank(matrix, G, sizes)
            vectors.append(factor)
            weights.append(weight)
            rows.append(np.full(len(weight), row))
            definite += [row] if is_definite else []
        stacked, row_of = np.concatenate(vectors), np.concatenate(rows)
        index = np.arange(len(stacked))
        whole = np.array(definite, dtype=np.int64)
        return Part(index, index, np.concatenate(weights), row_of, False, stacked, whole)

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


def _low_rank(matrix: Linear, G: Array, sizes: Array) -> tuple[Array, Array, bool]:
    """Vectors u_t and signs with G^T A G = sum_t sign_t u_t u_t^T, and whether that is positive semidefinite.

    They are those of A itself where it has few, since G^T A G loses the digits of small columns of G, else
    the eigenvectors of G^T A G.
    """
    if matrix.factor is not None and matrix.weights is not None:
        vectors, weights = matrix.factor.T @ G, matrix.weights
        whole = float(np.abs(weights) @ (np.abs(matrix.factor).T @ sizes) ** 2)
    else:
        whole = float(sizes @ (abs(matrix.matrix) @ sizes))
        support = np.unique(matrix.matrix.nonzero()[0])
        if len(support) > _FEW_VECTORS * G.shape[1]:
            pairs, signs = _eigenpairs(G.T @ (matrix.matrix @ G), np.eye(G.shape[1]), whole)
            return pairs, signs, bool(np.all(signs > 0))
        inside = matrix.matrix[support][:, support]
        weights, small = np.linalg.eigh(inside.toarray() if sparse.issparse(inside) else inside)
        vectors = small.T @ G[support]
    Q, R = np.linalg.qr(vectors.T)
    pairs, signs = _eigenpairs((R * weights) @ R.T, Q, whole)
    kept = np.abs(weights) > _ROUNDING * len(weights) * np.abs(weights).max(initial=0.0)
    if len(signs) and kept.sum() <= _FEW_VECTORS * G.shape[1]:
        pairs = np.ascontiguousarray(vectors[kept] * np.sqrt(np.abs(weights[kept]))[:, None])
        return pairs, np.sign(weights[kept]), bool(np.all(signs > 0))
    return pairs, signs, bool(np.all(signs > 0))


def _eigenpairs(core: Array, basis: Array, whole: float) -> tuple[Array, Array]:
    """Of basis core basis^T: vectors as rows, scaled by the roots of their values, and the signs of these.

    `whole` is the size of the terms that core sums up, of which values may be rounding errors.
    """
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    kept = np.abs(values) > _ROUNDING * len(values) * whole
    scaled = (basis @ vectors[:, kept]) * np.sqrt(np.abs(values[kept]))  # so that no square overflows
    return np.ascontiguousarray(scaled.T), np.sign(values[kept])
