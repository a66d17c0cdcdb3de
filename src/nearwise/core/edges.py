"""Atoms as the edges of a graph whose nodes are the rows of a feature matrix F.

An edge between the nodes i and j is a difference f_i - f_j or a product of f_i and f_j. What is computed over
all edges costs O(r) per edge beside products of F with r x r matrices: rows of F are gathered a block at a
time, and a weighted sum of all edges is F^T W F with the Laplacian W of the graph, a sparse matrix. Many
numbers are gathered by compiled loops, on all threads that `nearwise.threads` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise._common.threads import worker_threads
from nearwise._common.types import Array, Index, Mask

Found = TypeVar("Found")

# Numbers that a pass goes over from which on threads are worth starting, in 0.1 ms, and compiled loops worth
# loading, once in a process and in 0.3 s.
LARGE = 1_000_000
# Numbers in a block of gathered vectors: they stay in the cache, and four times as many may take
# five times as long per number.
BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges whose vectors are x = y = F[first] - F[second], or x = F[first] and y = F[second] for products.

    F is an argument of the methods, because a change of basis leaves the graph as it is. `is_product` is None
    where all are differences.
    """

    first: Index
    second: Index
    is_product: Mask | None

    @classmethod
    def of(cls, first: Index, second: Index, is_product: Mask) -> Edges:
        """Edges of which some may be products."""
        return cls(first, second, is_product if is_product.any() else None)

    @property
    def has_products(self) -> bool:
        """Whether there are others than differences."""
        return self.is_product is not None

    @cached_property
    def are_squares(self) -> bool:
        """Whether all have x = y: a product may be that of a row of F with itself."""
        chosen = self.is_product
        return chosen is None or bool((self.first[chosen] == self.second[chosen]).all())

    def subset(self, atoms: Index) -> Edges:
        """Some of the edges."""
        if self.is_product is None:
            return Edges(self.first[atoms], self.second[atoms], None)
        return Edges.of(self.first[atoms], self.second[atoms], self.is_product[atoms])

    def repeated(self, n: int) -> Edges:
        """Every edge n times, one after the other, in a graph in which n nodes stand for each."""
        shift = np.tile(np.arange(n), len(self.first))
        first, second = np.repeat(self.first, n) * n + shift, np.repeat(self.second, n) * n + shift
        return Edges(first, second, None if self.is_product is None else np.repeat(self.is_product, n))

    def ends(
        self,
        F: NDArray[Any],
        atoms: slice | Index = slice(None),
        dtype: type[np.floating[Any]] = np.float64,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """x and y of some edges; the same object where all of the graph are squares."""
        first, second = self.first[atoms], self.second[atoms]
        if self.is_product is None and len(first) * F.shape[1] >= LARGE:
            from nearwise.linalg.loops.graph import gathered_differences

            x = np.empty((len(first), F.shape[1]), dtype)
            side_by_side(len(x), x.size, lambda own: gathered_differences(F, first[own], second[own], x[own]))
            return x, x
        exact = F.astype(np.result_type(F, dtype), copy=False)
        x, y = self._pair(exact, exact, atoms)
        x = x.astype(dtype, copy=False)
        return x, x if self.are_squares else y.astype(dtype, copy=False)

    def inner(self, left: NDArray[Any], right: NDArray[Any]) -> Array:
        """(edges,) x^T y, with x from rows of `left` and y from rows of `right`."""
        out, columns = np.empty(len(self.first)), left.shape[1]
        if self.is_product is None and left is right and len(out) * columns >= LARGE:
            from nearwise.linalg.loops.graph import squared_distances

            def part(own: slice) -> None:
                squared_distances(left, self.first[own], self.second[own], out[own])
        else:

            def part(own: slice) -> None:
                for block in blocks(own, columns):
                    out[block] = products(*self._pair(left, right, block))

        side_by_side(len(out), len(out) * columns, part)
        return out

    def lengths(self, F: NDArray[Any]) -> Array:
        """(edges,) |x| |y|."""
        if self.is_product is None:
            return self.inner(F, F)
        norm = np.sqrt(products(F, F))
        found = (norm[self.first] * norm[self.second]).astype(np.float64, copy=False)
        differences = np.flatnonzero(~self.is_product)
        found[differences] = self.subset(differences).inner(F, F)
        return found

    def weighted_sum(self, F: NDArray[Any], c: Array) -> Array:
        """A matrix F^T W F whose symmetric part is sum_t c_t sym(x_t y_t^T).

        W has the diagonal of the symmetric one, and off it both halves on one side: half as many numbers.
        """
        n, r = F.shape
        of_differences = c if self.is_product is None else np.where(self.is_product, 0.0, c)
        diagonal = np.bincount(self.first, of_differences, n) + np.bincount(self.second, of_differences, n)
        is_used = c != 0
        used = self._by_first if is_used.all() else self._by_first[is_used[self._by_first]]
        entries = c[used] if self.is_product is None else (c - 3 * of_differences)[used]
        if self.is_product is None:
            entries *= -2
        begin = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.first[used], minlength=n), out=begin[1:])
        W = sparse.csr_array((entries.astype(F.dtype, copy=False), self.second[used], begin), shape=(n, n))

        def part(own: slice) -> Array:
            total = np.zeros((r, r))
            for nodes in blocks(own, r):
                image = W[nodes] @ F
                image += diagonal[nodes, None].astype(F.dtype) * F[nodes]
                total += F[nodes].T @ image
            return total

        return np.asarray(sum(side_by_side(n, len(c) * r, part)))

    @cached_property
    def _by_first(self) -> Index:
        """The edges sorted by their first node."""
        node = self.first.astype(np.min_scalar_type(self.first.max(initial=0)))  # 16 bits take linear time
        return np.argsort(node, kind="stable")

    def _pair(
        self, left: NDArray[Any], right: NDArray[Any], atoms: slice | Index
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """x from rows of `left` and y from rows of `right`, for some edges."""
        first, second = self.first[atoms], self.second[atoms]
        x, is_product = left.take(first, axis=0), self.is_product
        if is_product is None and left is right:
            x -= left.take(second, axis=0)
            return x, x
        y = right.take(second, axis=0)
        d = slice(None) if is_product is None else np.flatnonzero(~is_product[atoms])
        x[d] -= left[second[d]]
        y[d] = right[first[d]] - y[d]
        return x, y


def products(x: NDArray[Any], y: NDArray[Any]) -> Array:
    """x_t^T y_t for all rows of two arrays."""
    return np.asarray(np.einsum("ij,ij->i", x, y))


def side_by_side(n: int, numbers: int, task: Callable[[slice], Found]) -> list[Found]:
    """Results of the task for slices of range(n), one per thread where it goes over many numbers."""
    workers = worker_threads() if numbers >= LARGE else 1
    if workers == 1:
        return [task(slice(0, n))]
    ends = np.linspace(0, n, workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, map(slice, ends[:-1], ends[1:])))


def blocks(part: slice, columns: int) -> Iterator[slice]:
    """Slices of a slice; vectors of so many columns have at most about BLOCK numbers in each."""
    step = max(1, BLOCK // max(columns, 1))
    return (slice(low, min(low + step, part.stop)) for low in range(part.start, part.stop, step))
