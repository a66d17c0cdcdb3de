"""Bounds on linear functions tr(A K) of the kernel of some objects, for any symmetric A."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Mask
from nearwise.model.kinds.kind import Grade, Kind, Measure, Names, Part, bounded, by_relation

if TYPE_CHECKING:
    from nearwise.model.blocks import Block, Linear

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
    """A as sum_t weight_t v_t v_t^T for few rows v_t of G's columns, G^T A G, and the size of its terms."""

    vectors: Array | None
    weights: Array
    core: Array
    whole: float


def _low_rank(matrices: tuple[Linear, ...], G: Array, sizes: Array) -> Iterator[_Squares]:
    """The squares of every A: those of A itself where it has few, since G^T A G loses the digits of small
    columns of G, else the eigenvectors of G^T A G.
    """
    few = _FEW_VECTORS * G.shape[1]
    spectra = _spectra(matrices, G, sizes, few)
    cores = np.array([found.core for found in spectra])
    noise = _ROUNDING * G.shape[1] * np.array([found.whole for found in spectra])
    eigenvalues = np.linalg.eigvalsh((cores + cores.swapaxes(1, 2)) / 2)
    vanishes = (np.abs(eigenvalues) <= noise[:, None]).all(axis=1)
    is_definite = (eigenvalues >= -noise[:, None]).all(axis=1)
    for t, (vectors, weights, core, _) in enumerate(spectra):
        kept = np.abs(weights) > _ROUNDING * len(weights) * np.abs(weights).max(initial=0.0)
        if vectors is None or vanishes[t] or np.count_nonzero(kept) > few:
            yield _Squares(*_eigenpairs(core, noise[t]), bool(is_definite[t]))
        else:
            scaled = vectors[kept] * np.sqrt(np.abs(weights[kept]))[:, None]
            yield _Squares(scaled, np.sign(weights[kept]), bool(is_definite[t]))


def _spectra(matrices: tuple[Linear, ...], G: Array, sizes: Array, few: int) -> list[_Spectrum]:
    """Of every A on the objects that it is about; without vectors where these are many."""
    found: list[_Spectrum | None] = [None] * len(matrices)
    dense = []
    for t, A in enumerate(matrices):
        if A.factor is not None and A.weights is not None:
            vectors = A.factor.T @ G
            whole = float(np.abs(A.weights) @ (np.abs(A.factor).T @ sizes) ** 2)
            found[t] = _Spectrum(vectors, A.weights, (vectors.T * A.weights) @ vectors, whole)
        elif sparse.issparse(A.matrix) and A.size > _SMALL:
            support = np.unique(A.matrix.nonzero()[0])
            inside = A.matrix[support][:, support].toarray() if len(support) <= few else None
            whole = float(sizes @ (abs(A.matrix) @ sizes))
            if inside is None:
                found[t] = _Spectrum(None, _NONE, G.T @ (A.matrix @ G), whole)
            else:
                found[t] = next(_spectra_inside(inside[None], G[support][None], np.array([whole])))
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
                    found[dense[k]] = _Spectrum(None, _NONE, G.T @ stack[k] @ G, float(wholes[k]))
                continue
            place = np.nonzero(present[of])[1].reshape(len(of), size)
            inside = stack[of[:, None, None], place[:, :, None], place[:, None, :]]
            for k, spectrum in zip(of, _spectra_inside(inside, G[place], wholes[of]), strict=True):
                found[dense[k]] = spectrum
    return [spectrum for spectrum in found if spectrum is not None]


def _spectra_inside(inside: Array, G: Array, wholes: Array) -> Iterator[_Spectrum]:
    """Of matrices of one order and the features of the objects that each is about."""
    weights, small = np.linalg.eigh(inside)
    vectors = small.swapaxes(1, 2) @ G
    cores = (vectors.swapaxes(1, 2) * weights[:, None]) @ vectors
    for t, whole in enumerate(wholes):
        yield _Spectrum(vectors[t], weights[t], cores[t], float(whole))


def _dense(A: Linear) -> Array:
    return np.asarray(A.matrix.toarray() if sparse.issparse(A.matrix) else A.matrix)


def _eigenpairs(core: Array, noise: float) -> tuple[Array, Array]:
    """Vectors as rows, scaled by the roots of their eigenvalues, and the signs of these.

    Values up to `noise` are rounding errors of the terms that core sums up.
    """
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    kept = np.abs(values) > noise
    scaled = vectors[:, kept] * np.sqrt(np.abs(values[kept]))  # so that no square overflows
    return np.ascontiguousarray(scaled.T), np.sign(values[kept])
