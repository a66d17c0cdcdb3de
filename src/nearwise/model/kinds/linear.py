"""Bounds on linear functions tr(A K) of the kernel of some objects, for any symmetric A."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Mask
from nearwise.linalg.eigenpairs import eigenpairs
from nearwise.linalg.pairs import Pair, product
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
_CANCELS = 0.1  # share of |A| |G| that is left of A G, below which sums are in twice the precision
_IN_PAIRS = 300  # objects and columns up to which that is so


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

    `core` has the eigenvalues of G^T A G other than zero, and is that matrix where there are no vectors.
    Rounding of the features may change them by `noise`, and `cancels` says whether A G is a small sum of
    large terms.
    """

    vectors: Array | None
    weights: Array
    core: Array
    noise: float
    cancels: bool


class _Sizes(NamedTuple):
    """What the features G of objects are measured by: their own lengths, and those before restriction."""

    G: Array
    before: Array

    def noise(self, AG: Array, magnitude: Array) -> tuple[Array, Array]:
        """Of matrices, from A G and |A| `before`: how far rounding of the features changes G^T A G.

        That is to first order |G|^T |A G|. Also whether A G is what large terms leave when they cancel.
        """
        found = np.sqrt((AG * AG).sum(axis=-1)) @ self.before
        unit = _ROUNDING * self.G.shape[1]
        return unit * found, found < _CANCELS * (magnitude @ self.before)


def _low_rank(matrices: tuple[Linear, ...], G: Array, sizes: Array) -> Iterator[_Squares]:
    """The squares of every A: those of A itself where it has few, since G^T A G loses the digits of small
    columns of G, else the eigenvectors of G^T A G. What is within rounding of the features counts as zero.
    """
    few = _FEW_VECTORS * G.shape[1]
    for A, (vectors, weights, core, noise, cancels) in zip(
        matrices, _spectra(matrices, _Sizes(G, sizes), few), strict=True
    ):
        if not (np.isfinite(core).all() and np.isfinite(noise)):
            yield _Squares(np.full((1, G.shape[1]), np.inf), np.ones(1), False)  # which is refused by row
            continue
        in_pairs = cancels and max(G.shape) <= _IN_PAIRS
        if in_pairs or vectors is None:
            values, inside = eigenpairs(_core(A, G)) if in_pairs else np.linalg.eigh((core + core.T) / 2)
            found = np.abs(values) > noise
            vectors, weights = inside[:, found].T, values[found]
            is_definite = bool((weights > 0).all())
        else:
            values = np.linalg.eigvalsh((core + core.T) / 2)
            values = values[np.abs(values) > noise]
            is_definite = bool((values > 0).all())
            if not len(values):
                vectors, weights = vectors[:0], weights[:0]
        scaled = vectors * np.sqrt(np.abs(weights))[:, None]  # so that no square overflows
        yield _Squares(np.ascontiguousarray(scaled), np.sign(weights), is_definite)


def _core(A: Linear, G: Array) -> Pair:
    """G^T A G in twice the precision."""
    if A.factor is not None and A.weights is not None:
        inside = product(A.factor.T, G)
        return product(inside.T, product(np.diag(A.weights), inside))
    return product(G.T, product(_dense(A), G))


def _spectra(matrices: tuple[Linear, ...], sizes: _Sizes, few: int) -> list[_Spectrum]:
    """Of every A on the objects that it is about; without vectors where these are many."""
    G, before = sizes
    found: list[_Spectrum | None] = [None] * len(matrices)
    dense = []
    for t, A in enumerate(matrices):
        if A.factor is not None and A.weights is not None:
            vectors, magnitude = A.factor.T @ G, np.abs(A.factor)
            AG = A.factor @ (A.weights[:, None] * vectors)
            noise = sizes.noise(AG, magnitude @ (np.abs(A.weights) * (before @ magnitude)))
            found[t] = spectrum = next(_of_vectors(vectors[None], A.weights[None], *np.atleast_1d(*noise)))
            if len(spectrum.weights) > few:
                whole = (vectors.T * A.weights) @ vectors
                found[t] = spectrum._replace(vectors=None, core=whole)
        elif sparse.issparse(A.matrix) and A.size > _SMALL:
            support, AG = np.unique(A.matrix.nonzero()[0]), A.matrix @ G
            noise = sizes.noise(AG, abs(A.matrix) @ before)
            if len(support) > few:
                found[t] = _Spectrum(None, _NONE, G.T @ AG, float(noise[0]), bool(noise[1]))
            else:
                inside = A.matrix[support][:, support].toarray()
                found[t] = next(_of_matrices(inside[None], G[support][None], *np.atleast_1d(*noise)))
        else:
            dense.append(t)
    if dense:
        stack = np.array([_dense(matrices[t]) for t in dense])
        present = (stack != 0).any(axis=2)
        count, AG = present.sum(axis=1), stack @ G
        lost, cancels = sizes.noise(AG, np.abs(stack) @ before)
        for size in sorted(set(count.tolist())):
            of = np.flatnonzero(count == size)
            if size > few:
                for k in of:
                    found[dense[k]] = _Spectrum(None, _NONE, G.T @ AG[k], float(lost[k]), bool(cancels[k]))
                continue
            place = np.nonzero(present[of])[1].reshape(len(of), size)
            inside = stack[of[:, None, None], place[:, :, None], place[:, None, :]]
            spectra = _of_matrices(inside, G[place], lost[of], cancels[of])
            for k, spectrum in zip(of, spectra, strict=True):
                found[dense[k]] = spectrum
    return [spectrum for spectrum in found if spectrum is not None]


def _of_matrices(inside: Array, G: Array, noise: Array, cancels: Array) -> Iterator[_Spectrum]:
    """Of matrices of one order and the features of the objects that each is about."""
    weights, small = np.linalg.eigh(inside)
    return _of_vectors(small.swapaxes(1, 2) @ G, weights, noise, cancels)


def _of_vectors(vectors: Array, weights: Array, noise: Array, cancels: Array) -> Iterator[_Spectrum]:
    """Of sums of equally many squares."""
    R: Array = np.asarray(np.linalg.qr(vectors.swapaxes(1, 2), mode="r"))
    cores = (R * weights[:, None]) @ R.swapaxes(1, 2)
    sizes = np.abs(weights)
    own = sizes > _ROUNDING * weights.shape[1] * sizes.max(axis=1, initial=0.0, keepdims=True)
    for t, used in enumerate(own):
        yield _Spectrum(vectors[t, used], weights[t, used], cores[t], float(noise[t]), bool(cancels[t]))


def _dense(A: Linear) -> Array:
    return np.asarray(A.matrix.toarray() if sparse.issparse(A.matrix) else A.matrix)
