"""A small problem with its constraint matrices written out, as an interior-point method uses them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.model.divergences import Divergence
from nearwise.model.losses import Losses
from nearwise.model.measurements import InMemory, Measurements

_BLOCK = 1 << 21  # numbers in products of atoms that are summed up to rows at once
_SUMMED = 1 << 15  # numbers in the matrix that sums them up


class Packing:
    """Symmetric matrices as vectors of their upper triangles, whose products are those of the matrices.

    Attributes
    ----------
    a, b : row and column of every number
    flat : its place in the matrix
    scale, half_scale : its factor, and half of it
    identity : the identity matrix
    """

    def __init__(self, order: int) -> None:
        self.a, self.b = np.triu_indices(order)
        self.flat, self.scale = self.a * order + self.b, np.where(self.a == self.b, 1.0, np.sqrt(2.0))
        self.half_scale, self._unscale = 0.5 * self.scale, 1 / self.scale
        place = np.zeros((order, order), dtype=np.int64)
        place[self.a, self.b] = np.arange(len(self.a))
        self._place = np.maximum(place, place.T)
        self.identity = np.eye(order)

    def packed(self, A: Array) -> Array:
        return A.take(self.flat) * self.scale

    def unpacked(self, a: Array) -> Array:
        return (a * self._unscale).take(self._place)


packing = lru_cache(maxsize=128)(Packing)


@dataclass(frozen=True, eq=False)
class WrittenRows:
    """The constraint matrices A_i = sum_t weight_t sym(x_t y_t^T).

    Attributes
    ----------
    x, y : (r, atoms), sorted by row; the same object where every atom is a square
    weights : of the atoms
    row : of every atom; None where atom t is the whole of row t
    n_rows : how many rows
    offsets : None, or what is added to the values
    """

    x: Array
    y: Array
    weights: Array
    row: Index | None
    n_rows: int
    offsets: Array | None = None

    @classmethod
    def of(cls, measurements: Measurements) -> WrittenRows:
        if isinstance(measurements, InMemory):
            atoms = measurements.in_order()
        else:
            every, basis = np.arange(measurements.n_rows), np.eye(measurements.rank)
            atoms = measurements.local(every, basis, np.float64).in_order()
        x = np.ascontiguousarray(atoms.x.T)
        y = x if atoms.x is atoms.y else np.ascontiguousarray(atoms.y.T)
        return cls(x, y, atoms.coefficient, atoms.row, atoms.n_rows, measurements.offsets)

    @property
    def order(self) -> int:
        """r."""
        return len(self.x)

    def turned(self, T: Array) -> WrittenRows:
        """The same for M' where M = T M' T^T."""
        x = T.T @ self.x
        return replace(self, x=x, y=x if self.y is self.x else T.T @ self.y)

    def only(self, rows: Index) -> WrittenRows:
        """Some rows alone, by their numbers in ascending order; one may come several times."""
        kept, row = rows, None
        if self.row is not None:
            start, stop = (np.searchsorted(self.row, rows, side) for side in ("left", "right"))
            count = stop - start
            row = np.repeat(np.arange(len(rows)), count)
            kept = np.arange(len(row)) + np.repeat(stop - np.cumsum(count), count)
        x = self.x[:, kept]
        return WrittenRows(
            x,
            x if self.y is self.x else self.y[:, kept],
            self.weights[kept],
            row,
            len(rows),
            None if self.offsets is None else self.offsets[rows],
        )

    def vectors_in(self, G: Array) -> tuple[Array, Array]:
        """G^T x and G^T y of all atoms; the same object where every atom is a square."""
        return self.split(G.T @ self.vectors)

    @cached_property
    def vectors(self) -> Array:
        """x, and beside it y where not every atom is a square; by columns, as LAPACK wants them."""
        return np.asfortranarray(self.x if self.y is self.x else np.concatenate((self.x, self.y), axis=1))

    def split(self, vectors: Array) -> tuple[Array, Array]:
        """What became of x and of y in `vectors`; the same object where every atom is a square."""
        if self.y is self.x:
            return vectors, vectors
        n_atoms = len(self.weights)
        return vectors[:, :n_atoms], vectors[:, n_atoms:]

    def in_basis(self, G: Array) -> Array:
        """(r (r + 1) / 2, rows): G^T A_i G, packed."""
        return self.packed(*self.vectors_in(G))

    def packed(self, x: Array, y: Array, weights: Array | None = None) -> Array:
        """The matrices of the rows whose atoms have these vectors, packed; weighted entry by entry."""
        if self.row is None:
            rows = self._products(x, y)
            if not self._are_units:
                rows *= self.weights
        elif len(self._sums) == 1:
            rows = self._products(x, y) @ self._sums[0][2]
        else:
            rows = np.empty((len(self._packing.a), self.n_rows))
            for atoms, of, sums in self._sums:
                part = x[:, atoms]
                rows[:, of] = self._products(part, part if x is y else y[:, atoms]) @ sums
        scale = self._packing.scale if x is y else self._packing.half_scale
        rows *= (scale if weights is None else scale * weights.take(self._packing.flat))[:, None]
        return rows

    def gram(self, x: Array, y: Array) -> Array:
        """<A_i, A_j> for all pairs of rows whose atoms have these vectors."""
        if self.row is not None or x is not y:
            rows = self.packed(x, y)
            return np.asarray(rows.T @ rows)
        products = x.T @ x
        products *= products
        if not self._are_units:
            products *= self.weights[:, None]
            products *= self.weights
        return products

    def values(self, B: Array) -> Array:
        """<A_i, B B^T>, plus `offsets`."""
        x, y = self.vectors_in(B)
        return self.shifted(self.per_row(np.vecdot(x.T, y.T)))

    def shifted(self, values: Array) -> Array:
        """Values of the linear part, plus `offsets`."""
        return values if self.offsets is None else values + self.offsets

    def adjoint(self, w: Array) -> Array:
        """sum_i w_i A_i."""
        left, right, row = self._halves
        return np.asarray((left * (w if row is None else w[row])) @ right)

    @cached_property
    def sizes(self) -> Array:
        """Bounds on |<A_i, M>| for matrices M with eigenvalues of at most 1 in magnitude."""
        squares = np.vecdot(self.vectors.T, self.vectors.T)
        if self.y is not self.x:
            roots = np.sqrt(squares)
            squares = roots[: len(self.weights)] * roots[len(self.weights) :]
        return self.per_row(squares if self._are_units else np.sign(self.weights) * squares)

    def per_row(self, of_atoms: Array) -> Array:
        """What the values of atoms add up to."""
        weighted = of_atoms if self._are_units else self.weights * of_atoms
        if self.row is None:
            return weighted
        return np.asarray(np.bincount(self.row, weighted, self.n_rows), dtype=np.float64)

    @cached_property
    def _halves(self) -> tuple[Array, Array, Index | None]:
        """Vectors (r, k), weighted, and (k, r) whose products add up to A_i, and the row of each of the k.

        An atom that is no square is there twice, as y x^T / 2 and as x y^T / 2.
        """
        if self.x is self.y:
            return self.x if self._are_units else self.x * self.weights, self.x.T, self.row
        left = np.concatenate((self.y, self.x), axis=1)
        halved = 0.5 * self.weights
        left *= np.concatenate((halved, halved))
        row = np.arange(self.n_rows) if self.row is None else self.row
        return left, self.vectors.T, np.concatenate((row, row))

    @cached_property
    def _are_units(self) -> bool:
        return bool((self.weights == 1).all())

    @cached_property
    def _packing(self) -> Packing:
        return packing(self.order)

    def _products(self, x: Array, y: Array) -> Array:
        """x_a x_b of squares; x_a y_b + x_b y_a, which is twice that, where not all are squares."""
        a, b = self._packing.a, self._packing.b
        products: Array = x.take(a, axis=0)
        products *= y.take(b, axis=0)
        if x is not y:
            products += x.take(b, axis=0) * y.take(a, axis=0)
        return products

    @cached_property
    def _sums(self) -> list[tuple[slice, slice, Array]]:
        """Which atoms make up which rows, in blocks: atoms, rows, and the matrix that sums them up."""
        assert self.row is not None
        if len(self.row) * len(self._packing.a) <= _BLOCK and len(self.row) * self.n_rows <= _SUMMED:
            return [self._block(0, len(self.row), 0, self.n_rows)]
        start = np.searchsorted(self.row, np.arange(self.n_rows + 1)).tolist()
        blocks, low = [], 0
        while low < self.n_rows:
            high = low + 1
            while high < self.n_rows:
                count = start[high + 1] - start[low]
                if count * len(self._packing.a) > _BLOCK or count * (high + 1 - low) > _SUMMED:
                    break
                high += 1
            blocks.append(self._block(start[low], start[high], low, high))
            low = high
        return blocks

    def _block(self, first: int, end: int, low: int, high: int) -> tuple[slice, slice, Array]:
        """One of them, from the first atom and row up to the end."""
        assert self.row is not None
        atoms, sums = slice(first, end), np.zeros((end - first, high - low))
        sums[np.arange(end - first), self.row[atoms] - low] = self.weights[atoms]
        return atoms, slice(low, high), sums


@dataclass(frozen=True, eq=False)
class WrittenForm:
    """minimise D(M, diag(prior)) + sum_i loss_i(<A_i, M>) over M >= 0, as `Formulation`."""

    divergence: Divergence
    prior: Array
    rows: WrittenRows
    losses: Losses

    def only(self, rows: Index) -> WrittenForm:
        """The same with some rows alone."""
        return replace(self, rows=self.rows.only(rows), losses=self.losses.only(rows))
