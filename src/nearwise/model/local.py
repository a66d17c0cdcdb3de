"""What is computed with atoms: rows written out in a basis, as Newton's methods use them, and sums of atoms.

`LocalAtoms` are a few rows. `sum_of_atoms` is sum_t w_t sym(x_t y_t^T), an r x r matrix, in the way that
costs least. Differences are gathered a block at a time and their squares
summed up, those of positive and of negative weights apart, since x^T x takes half the time of a product of
two matrices: O(m r^2 / 2) for m atoms with a weight. Where that are more than two for each of the n rows of
F, and where atoms are no squares, the sum is F^T W F with the sparse matrix W of the graph: O(n r^2 + m r).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise._common.threads import worker_threads
from nearwise._common.types import Array, Index
from nearwise.model.atoms import Atoms

T = TypeVar("T")

SINGLE = 200_000  # numbers in rows of Newton's system, from which on single precision is enough
_SIDE_BY_SIDE = 500_000  # numbers touched in one pass, from which on blocks run side by side


@dataclass(frozen=True, eq=False)
class LocalAtoms:
    """A few atoms written out as vectors in some basis: value_i = sum_t coefficient_t x_t^T D y_t."""

    x: NDArray[Any]  # (atoms, r)
    y: NDArray[Any]  # (atoms, r); the same object as x where every atom is a square
    coefficient: NDArray[Any]
    row: Index | None  # None where atom t is the whole of row t
    n_rows: int

    def values(self, D: NDArray[Any]) -> NDArray[Any]:
        out = np.empty(len(self.x), self.x.dtype)

        def part(block: slice) -> None:
            np.einsum("ij,ij->i", self.x[block] @ D, self.y[block], out=out[block])

        in_blocks(len(self.x), part, self.x.size >= _SIDE_BY_SIDE)
        return self._per_row(out)

    def adjoint(self, weights: NDArray[Any]) -> NDArray[Any]:
        per_atom = self.coefficient * (weights if self.row is None else weights[self.row])

        def part(block: slice) -> NDArray[Any]:
            return self.x[block].T @ (per_atom[block, None] * self.y[block])

        total = np.sum(in_blocks(len(self.x), part, self.x.size >= _SIDE_BY_SIDE), axis=0)
        return total if self.x is self.y else (total + total.T) / 2

    def scaled(self, columns: Array) -> LocalAtoms:
        """The same with every column of the vectors times a number."""
        x = self.x * columns
        return replace(self, x=x, y=x if self.x is self.y else self.y * columns)

    def in_order(self) -> LocalAtoms:
        """The same, with the atoms of one row beside each other."""
        if self.row is None:
            return self
        order = np.argsort(self.row, kind="stable")
        x = self.x[order]
        y = x if self.x is self.y else self.y[order]
        return replace(self, x=x, y=y, coefficient=self.coefficient[order], row=self.row[order])

    def gram(self) -> NDArray[Any]:
        """<A_i, A_j> for all pairs of rows."""
        x, y, c = self.x, self.y, self.coefficient
        products = (x @ x.T) ** 2 if x is y else ((x @ x.T) * (y @ y.T) + (x @ y.T) * (y @ x.T)) / 2
        products *= c[:, None] * c
        if self.row is None:
            return products
        sums = np.zeros((self.n_rows, len(x)), products.dtype)
        sums[self.row, np.arange(len(x))] = 1
        return sums @ products @ sums.T

    def written_out(self) -> NDArray[Any]:
        """(rows, r (r + 1) / 2): upper triangles of the A_i, scaled so that <A_i, A_j> is their product."""
        r, x, y = self.x.shape[1], self.coefficient[:, None] * self.x, self.y
        products, end = np.empty((len(x), r * (r + 1) // 2), x.dtype), 0
        for a in range(r):  # several times faster than products of gathered columns
            part, end = products[:, end : end + r - a], end + r - a
            np.multiply(x[:, a, None], y[:, a:], out=part)
            if self.x is not y:
                part += y[:, a, None] * x[:, a:]
        products *= _triangle(r) if self.x is y else _triangle(r) / 2
        if self.row is None:
            return products
        merged = np.zeros((self.n_rows, products.shape[1]), products.dtype)
        np.add.at(merged, self.row, products)
        return merged

    def diagonals(self) -> NDArray[Any]:
        """(rows, r): the diagonal of each A_i."""
        products = self.coefficient[:, None] * (self.x * self.y)
        if self.row is None:
            return products
        out = np.zeros((self.n_rows, products.shape[1]), products.dtype)
        np.add.at(out, self.row, products)
        return out

    def _per_row(self, per_atom: NDArray[Any]) -> NDArray[Any]:
        weighted = self.coefficient * per_atom
        if self.row is None:
            return weighted
        return np.bincount(self.row, weighted, self.n_rows).astype(weighted.dtype)


@lru_cache(maxsize=8)
def _triangle(r: int) -> Array:
    """What makes products of the upper triangles of two matrices inner products."""
    a, b = np.triu_indices(r)
    return np.where(a == b, 1.0, np.sqrt(2.0))


def drawn_rows(count: int, most: int, rng: np.random.Generator) -> Index:
    """The rows of a sample, in order."""
    return np.sort(rng.choice(count, most, replace=False))


def in_blocks(n: int, task: Callable[[slice], T], large: bool) -> list[T]:
    """The task for blocks of range(n): side by side where there is much to do, else in one go."""
    workers = worker_threads() if large else 1
    if workers == 1:
        return [task(slice(0, n))]
    ends = np.linspace(0, n, workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, map(slice, ends[:-1], ends[1:])))


_BLOCK = 1 << 19  # numbers in a block of gathered rows: small enough to stay in the cache
_PER_OBJECT = 2  # differences with a weight, up to which their squares cost less than the graph


def sum_of_atoms(F: NDArray[Any], atoms: Atoms, weights: Array, large: bool) -> Array:
    """The sum for a weight per atom; `large` where compiled loops are worth their start-up."""
    count, d = len(weights), atoms.n_differences
    if (large and d < count) or np.count_nonzero(weights) > _PER_OBJECT * len(F):
        total = _over_graph(F, atoms, weights, d, large)
    elif d < count:
        x, y = F[atoms.first], F[atoms.second]
        x[:d] -= y[:d]
        y[:d] = x[:d]
        total = x.T @ (weights[:, None] * y)
    else:
        total = _of_squares(F, atoms, weights, large) - _of_squares(F, atoms, -weights, large)
    return np.asarray((total + total.T) / 2)


def fill_differences(
    F: NDArray[Any], first: Index, second: Index, out: NDArray[Any], compiled: bool
) -> NDArray[Any]:
    """F[first] - F[second], in the precision of `out`."""
    if compiled:
        from nearwise.linalg.loops.graph import gathered_differences

        gathered_differences(F, first, second, out)
    else:
        np.subtract(F[first], F[second], out=out, casting="same_kind")
    return out


def sum_by(index: Index, values: Array, n: int) -> Array:
    """out[k] = the sum of the values whose index is k."""
    return np.asarray(np.bincount(index, values, n), dtype=np.float64)


def turned(vectors: Array, T: Array) -> Array:
    """Vectors T^T x, for a matrix T or the diagonal of one."""
    return np.asarray(vectors * T if T.ndim == 1 else vectors @ T)


def _of_squares(F: NDArray[Any], atoms: Atoms, weights: Array, large: bool) -> Array:
    """sum_t w_t x_t x_t^T over the differences of positive weight."""
    chosen = np.flatnonzero(~(weights <= 0))  # and over what is not a number
    root = np.sqrt(weights[chosen]).astype(F.dtype)[:, None]
    first, second = atoms.first[chosen], atoms.second[chosen]
    r = F.shape[1]
    step = max(1, _BLOCK // max(r, 1))

    def part(block: slice) -> Array:
        total, room = np.zeros((r, r)), np.empty((min(step, block.stop - block.start), r), F.dtype)
        for low in range(block.start, block.stop, step):
            own = slice(low, min(low + step, block.stop))
            x = fill_differences(F, first[own], second[own], room[: own.stop - low], large)
            x *= root[own]
            total += x.T @ x
        return total

    return np.asarray(np.sum(in_blocks(len(chosen), part, large), axis=0))


def _over_graph(F: NDArray[Any], atoms: Atoms, weights: Array, d: int, large: bool) -> Array:
    """F^T W F, the differences being the first d atoms."""
    start, neighbour, edge_atom = atoms.graph
    weight = np.where(atoms.is_difference, -weights, weights / 2)[edge_atom]
    diagonal = sum_by(atoms.first[:d], weights[:d], len(F)) + sum_by(atoms.second[:d], weights[:d], len(F))
    if not large:
        W = sparse.csr_array((weight, neighbour, start), shape=(len(F), len(F)))
        return np.asarray(F.T @ (W @ F + diagonal[:, None] * F))
    from nearwise.linalg.loops.graph import graph_product

    r = F.shape[1]
    step = max(1, _BLOCK // max(r, 1))

    def part(block: slice) -> Array:
        total = np.zeros((r, r))
        for low in range(block.start, block.stop, step):
            own = slice(low, min(low + step, block.stop))
            product = np.empty((own.stop - low, r), F.dtype)
            graph_product(F, start, neighbour, weight, diagonal, low, product)
            total += F[own].T @ product
        return total

    return np.asarray(np.sum(in_blocks(len(F), part, True), axis=0))
