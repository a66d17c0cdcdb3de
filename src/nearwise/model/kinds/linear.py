"""Bounds on linear functions tr(A K) of the kernel of some objects, for any symmetric A."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Mask
from nearwise.model.kinds.kind import Grade, Kind, Measure, Names, Part, bounded, by_relation

if TYPE_CHECKING:
    from nearwise.model.blocks import Block
    from nearwise.model.matrices import Linear

_BOUNDS = Grade("linear constraints", "linear constraints that hold", "share")
_MEASURED = Grade("linear constraints", "error of linear constraints", "error")
_ROUNDING = 8 * np.finfo(float).eps
_SMALL = 100  # objects up to which a sparse matrix is written out
_AT_ONCE = 1 << 20  # numbers in the matrices that are worked on together
_NONE: Array = np.empty(0)
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
        at_once = max(1, _AT_ONCE // max(G.shape) ** 2)
        for first in range(0, len(block), at_once):
            for row, found in enumerate(_low_rank(block.matrices[first : first + at_once], G, sizes), first):
                vectors.append(found.vectors)
                weights.append(found.signs)
                rows.append(np.full(len(found.signs), row))
                definite += [row] if found.is_definite else []
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


class _Squares(NamedTuple):
    """Vectors u_t and signs with G^T A G = sum_t sign_t u_t u_t^T, and whether that is semidefinite."""

    vectors: Array
    signs: Array
    is_definite: bool


class _Spectrum(NamedTuple):
    """A as sum_t weight_t v_t v_t^T: rows v_t of G^T, None where these are many.

    G^T A G is basis core basis^T, and `whole` the size of the terms that it sums up.
    """

    vectors: Array | None
    weights: Array
    core: Array
    basis: Array
    whole: float


def _low_rank(matrices: tuple[Linear, ...], G: Array, sizes: Array) -> Iterator[_Squares]:
    """The squares of every A: those of A itself where it has few, since G^T A G loses the digits of small
    columns of G, else the eigenvectors of G^T A G.
    """
    few = _FEW_VECTORS * G.shape[1]
    for vectors, weights, core, basis, whole in _spectra(matrices, G, sizes, few):
        noise = _ROUNDING * len(core) * whole
        values, inside = np.linalg.eigh((core + core.T) / 2)
        kept = np.abs(values) > noise
        signs = np.sign(values[kept])
        is_definite = bool(np.all(signs > 0))
        own = np.abs(weights) > _ROUNDING * len(weights) * np.abs(weights).max(initial=0.0)
        if vectors is not None and len(signs) and np.count_nonzero(own) <= few:
            scaled = vectors[own] * np.sqrt(np.abs(weights[own]))[:, None]
            yield _Squares(scaled, np.sign(weights[own]), is_definite)
        else:
            scaled = (basis @ inside[:, kept]) * np.sqrt(np.abs(values[kept]))  # so that no square overflows
            yield _Squares(np.ascontiguousarray(scaled.T), signs, is_definite)


def _spectra(matrices: tuple[Linear, ...], G: Array, sizes: Array, few: int) -> list[_Spectrum]:
    """Of every A on the objects that it is about; without vectors where these are many."""
    found: list[_Spectrum | None] = [None] * len(matrices)
    dense, whole_space = [], np.eye(G.shape[1])
    for t, A in enumerate(matrices):
        if A.factor is not None and A.weights is not None:
            whole = np.abs(A.weights) @ (np.abs(A.factor).T @ sizes) ** 2
            found[t] = next(_of_vectors((A.factor.T @ G)[None], A.weights[None], whole[None]))
        elif sparse.issparse(A.matrix) and A.size > _SMALL:
            support, whole = np.unique(A.matrix.nonzero()[0]), sizes @ (abs(A.matrix) @ sizes)
            if len(support) > few:
                found[t] = _Spectrum(None, _NONE, G.T @ (A.matrix @ G), whole_space, float(whole))
            else:
                inside = A.matrix[support][:, support].toarray()
                found[t] = next(_of_matrices(inside[None], G[support][None], np.array([whole])))
        else:
            dense.append(t)
    if dense:
        stack = np.array([_dense(matrices[t]) for t in dense])
        present = (stack != 0).any(axis=2)
        count, wholes = present.sum(axis=1), np.abs(stack) @ sizes @ sizes
        for size in np.unique(count):
            of = np.flatnonzero(count == size)
            if size > few:
                for k in of:
                    core = G.T @ (stack[k] @ G)
                    found[dense[k]] = _Spectrum(None, _NONE, core, whole_space, float(wholes[k]))
                continue
            place = np.nonzero(present[of])[1].reshape(len(of), size)
            inside = stack[of[:, None, None], place[:, :, None], place[:, None, :]]
            for k, spectrum in zip(of, _of_matrices(inside, G[place], wholes[of]), strict=True):
                found[dense[k]] = spectrum
    return [spectrum for spectrum in found if spectrum is not None]


def _of_matrices(inside: Array, G: Array, wholes: Array) -> Iterator[_Spectrum]:
    """Of matrices of one order and the features of the objects that each is about."""
    weights, small = np.linalg.eigh(inside)
    return _of_vectors(small.swapaxes(1, 2) @ G, weights, wholes)


def _of_vectors(vectors: Array, weights: Array, wholes: Array) -> Iterator[_Spectrum]:
    """Of sums of equally many squares."""
    Q, R = np.linalg.qr(vectors.swapaxes(1, 2))
    cores = (R * weights[:, None]) @ R.swapaxes(1, 2)
    for t, whole in enumerate(wholes):
        yield _Spectrum(vectors[t], weights[t], cores[t], Q[t], float(whole))


def _dense(A: Linear) -> Array:
    return np.asarray(A.matrix.toarray() if sparse.issparse(A.matrix) else A.matrix)
