"""The linear map of the constraints, M -> (<A_1, M>, ..., <A_m, M>), and all that solvers ask of it.

Every A_i is a short sum of atoms, A_i = sum_t c_t sym(x_t y_t^T): a squared distance is one square, of
x = f_i - f_j, an inner product has x = f_i and y = f_j, a comparison is two squares of opposite sign. Few atoms
are written out as vectors. Many are the edges of a graph whose nodes are the rows of a feature matrix F:
<A_i, B B^T> needs F B once and then two of its rows per edge, and sum_i w_i A_i is F^T W F with a sparse W. So
both cost O(n r^2 + m r) for m rows over n objects, and no m x r array is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise._common.types import Array, Index, Mask
from nearwise.linalg.packing import packing

_WRITTEN = 1_000_000  # numbers in the vectors of all atoms, up to which they are written out
_BLOCK = 1 << 17  # numbers in a block of gathered vectors: it stays in the cache
_PER_NODE = 2  # squares with a weight for each row of F, up to which their sum costs less than F^T W F
_COMMON = 1e2  # how many times its half range a column's middle may be before differences lose digits to it


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows A_1, ..., A_m, made by `of` or `written`.

    Attributes
    ----------
    x, y : (atoms, r) vectors of all atoms, or where there are `edges`, F for both. The same object where all
        atoms are squares
    edges : None, or what names the rows of F that atoms are made of
    coefficient : (atoms,) the numbers c_t
    row : (atoms,) the row of every atom, ascending; None where atom t is row t
    n_rows : m
    offsets : None, or (m,) what is added to the values: parts of them that do not depend on M
    definite : None, or which rows are known to be positive semidefinite as a whole, whatever their atoms say
    """

    x: Array
    y: Array
    edges: Edges | None
    coefficient: Array
    row: Index | None
    n_rows: int
    offsets: Array | None = None
    definite: Mask | None = None

    @classmethod
    def of(
        cls,
        features: Array,
        first: Index,
        second: Index,
        n_differences: int,
        coefficient: Array,
        row: Index,
        n_rows: int,
        offsets: Array | None = None,
        definite: Mask | None = None,
    ) -> Rows:
        """Rows from atoms over features: differences features[first] - features[second] first, then products.

        Vectors are written out where they are few, or not more than the features.
        """
        order = np.argsort(row, kind="stable")
        is_product = None if n_differences == len(row) else order >= n_differences
        edges = Edges(first[order], second[order], is_product)
        if _may_be_written(len(row), features):
            x, y = edges.gathered(features, slice(None), np.float64)
            return cls.written(x, y, coefficient[order], row[order], n_rows, offsets, definite)
        F = features if edges.has_products else _centred(features)
        return cls(
            F, F, edges, coefficient[order], _unless_alone(row[order], n_rows), n_rows, offsets, definite
        )

    @classmethod
    def written(
        cls,
        x: Array,
        y: Array,
        coefficient: Array,
        row: Index,
        n_rows: int,
        offsets: Array | None = None,
        definite: Mask | None = None,
    ) -> Rows:
        """Rows from the vectors of their atoms; `y` is the object `x` where all atoms are squares."""
        if (np.diff(row) < 0).any():
            order = np.argsort(row, kind="stable")
            x, y = x[order], x[order] if y is x else y[order]
            coefficient, row = coefficient[order], row[order]
        return cls(x, y, None, coefficient, _unless_alone(row, n_rows), n_rows, offsets, definite)

    @property
    def order(self) -> int:
        """r, the order of M."""
        return int(self.x.shape[1])

    @property
    def n_atoms(self) -> int:
        """How many atoms all rows have together."""
        return len(self.coefficient)

    @property
    def is_written(self) -> bool:
        """Whether vectors are written out, so that nothing is gathered."""
        return self.edges is None

    @property
    def row_of_atoms(self) -> Index:
        """(atoms,) the row of every atom, ascending."""
        return np.arange(self.n_rows) if self.row is None else self.row

    @cached_property
    def is_definite(self) -> Mask:
        """(m,) whether A_i is known to be positive semidefinite and its offset is not negative."""
        may_be_negative = np.zeros(self.n_rows, dtype=bool)
        may_be_negative[self.row_of_atoms[~(self._is_square & (self.coefficient >= 0))]] = True
        found = ~may_be_negative if self.definite is None else ~may_be_negative | self.definite
        return found if self.offsets is None else found & (self.offsets >= 0)

    # ---- the map and its adjoint ----------------------------------------------------------------------------

    def values(self, B: Array) -> Array:
        """<A_i, B B^T> plus offsets. They are sums of products of B^T x, so that nothing cancels within a square."""
        values = self._summed(self.coefficient * self._inner(*self._images(B)))
        return values if self.offsets is None else values + self.offsets

    def of_matrix(self, D: Array) -> Array:
        """<A_i, D> for a symmetric D, without offsets."""
        return self._summed(
            self.coefficient * self._inner(self.x @ D.astype(self.x.dtype, copy=False), self.y)
        )

    def adjoint(self, w: Array) -> Array:
        """sum_i w_i A_i, an r x r matrix."""
        c = self.coefficient * (w if self.row is None else w[self.row])
        used = np.flatnonzero(c)  # also where c is not a number
        if self.edges is not None and (self.edges.has_products or len(used) > _PER_NODE * len(self.x)):
            total = self.edges.laplacian(self.x, c)
        elif self.y is self.x:
            positive = c[used] > 0
            total = self._sum_of_squares(used[positive], c) - self._sum_of_squares(used[~positive], -c)
        else:
            total = self.x.T @ (c[:, None] * self.y)
        return (total + total.T) / 2

    @np.errstate(over="ignore", invalid="ignore")
    def magnitudes(self, B: Array) -> Array:
        """(m,) sums of |c_t| |B^T x_t| |B^T y_t|: rounding errors of values are relative to them.

        `B` is a matrix, or a vector for the diagonal of one. For squares these are the values of |c_t|.
        """
        left, right = self._images(B)
        if self.edges is None or not self.edges.has_products:
            found = self._inner(left, left)
            if right is not left:
                found = np.sqrt(found) * np.sqrt(self._inner(right, right))
        else:
            found = self.edges.lengths(left)
        return self._summed(np.abs(self.coefficient) * found)

    # ---- other rows from these --------------------------------------------------------------------------------

    def subset(self, rows: Index | Mask) -> Rows:
        """Some of the rows, by ascending numbers or a mask."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        atoms, row = rows, rows
        if self.row is not None:
            place = np.full(self.n_rows, -1)
            place[rows] = np.arange(len(rows))
            atoms = np.flatnonzero(place[self.row] >= 0)
            row = place[self.row[atoms]]
        kept = {
            "coefficient": self.coefficient[atoms],
            "row": None if self.row is None else _unless_alone(row, len(rows)),
            "n_rows": len(rows),
            "offsets": None if self.offsets is None else self.offsets[rows],
            "definite": None if self.definite is None else self.definite[rows],
        }
        if self.edges is not None and not _may_be_written(len(atoms), self.x):
            return replace(self, edges=self.edges.subset(atoms), **kept)
        x, y = self.vectors(atoms)
        return replace(self, x=x, y=y, edges=None, **kept)

    def transformed(self, T: Array, unit: float = 1.0) -> Rows:
        """Rows of M' where M = T M' T^T: vectors x become T^T x, and offsets are in another unit.

        `T` is a matrix, or a vector for the diagonal of one.
        """
        x, y = self._images(T)
        offsets = None if self.offsets is None else self.offsets / unit
        return replace(self, x=x, y=y, offsets=offsets)

    def by_groups(self, groups: Index) -> Rows:
        """Rows of an M that is zero between groups of columns; `groups` has that of every column, from 0.

        <A, M> = sum_g <A_gg, M_gg>, so every atom becomes one per group, with vectors cut to its columns.
        """
        inside = np.equal.outer(np.arange(groups.max(initial=0) + 1), groups)
        n_groups, n_atoms = len(inside), self.n_atoms
        if self.edges is None:  # the atoms of one row stay beside each other
            x = (self.x[:, None] * inside).reshape(-1, self.order)
            y = x if self.y is self.x else (self.y[:, None] * inside).reshape(-1, self.order)
            edges = None
        else:
            x = y = (inside[:, None] * self.x).reshape(-1, self.order)
            edges = self.edges.subset(np.repeat(np.arange(n_atoms), n_groups)).shifted(
                np.tile(len(self.x) * np.arange(n_groups), n_atoms)
            )
        row, coefficient = np.repeat(self.row_of_atoms, n_groups), np.repeat(self.coefficient, n_groups)
        return replace(
            self, x=x, y=y, edges=edges, coefficient=coefficient, row=_unless_alone(row, self.n_rows)
        )

    def in_single(self) -> Rows | None:
        """The same with features in single precision, or None where that gains nothing or loses digits."""
        return None

    # ---- the rows themselves ----------------------------------------------------------------------------------

    def vectors(
        self, atoms: slice | Index = slice(None), dtype: type = np.float64
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """x and y of some atoms; the same object where all are squares."""
        if self.edges is not None:
            return self.edges.gathered(self.x, atoms, dtype)
        x = self.x[atoms].astype(dtype, copy=False)
        return x, x if self.y is self.x else self.y[atoms].astype(dtype, copy=False)

    def span(self) -> Array:
        """Vectors that span the ranges of all A_i: all x and y, or the features."""
        return self.x if self.y is self.x else np.concatenate([self.x, self.y])

    def packed(self, G: Array) -> Array:
        """(q, m) matrix whose columns are the packed G^T A_i G; see `packing`."""
        x, y = self.vectors()
        left = np.ascontiguousarray((x @ G).T)
        right = left if y is x else np.ascontiguousarray((y @ G).T)
        weighted = self.coefficient * left
        of_size = packing(G.shape[1])
        out, end = np.empty((len(of_size.a), self.n_rows)), 0
        for a in range(G.shape[1]):
            products = weighted[a] * right[a:]
            if right is not left:
                products += right[a] * weighted[a:]
                products *= 0.5
            products[1:] *= np.sqrt(2.0)
            out[end : end + len(products)] = self._summed(products)
            end += len(products)
        return out

    def gram(self) -> Array:
        """(m, m) inner products <A_i, A_j>."""
        x, y = self.vectors()
        products = (x @ x.T) ** 2 if y is x else ((x @ x.T) * (y @ y.T) + (x @ y.T) * (y @ x.T)) / 2
        products *= self.coefficient[:, None] * self.coefficient
        return self._summed(self._summed(products).T)

    # ---- helpers ----------------------------------------------------------------------------------------------

    def _images(self, T: Array) -> tuple[Array, Array]:
        """x and y after T^T, for a matrix or the diagonal of one."""
        T = T.astype(self.x.dtype, copy=False)
        x = self.x * T if T.ndim == 1 else self.x @ T
        return x, x if self.y is self.x else (self.y * T if T.ndim == 1 else self.y @ T)

    def _inner(self, left: Array, right: Array) -> Array:
        """(atoms,) x_t^T y_t, where `left` and `right` stand in for x and y."""
        if self.edges is not None:
            return self.edges.inner(left, right)
        return np.asarray(np.einsum("ij,ij->i", left, right))

    def _sum_of_squares(self, atoms: Index, c: Array) -> Array:
        """sum_t c_t x_t x_t^T over atoms with c_t > 0."""
        root = np.sqrt(c[atoms])
        total = np.zeros((self.order, self.order))
        for block in _blocks(len(atoms), self.order):
            x = self.vectors(atoms[block], self.x.dtype.type)[0] * root[block, None].astype(self.x.dtype)
            total += x.T @ x
        return total

    def _summed(self, of_atoms: Array) -> Array:
        """Sums over the atoms of every row, along the last axis."""
        if self.row is None:
            return of_atoms
        out = np.zeros((*of_atoms.shape[:-1], self.n_rows))
        begin, rows = self._begin
        if len(begin):
            out[..., rows] = np.add.reduceat(of_atoms, begin, axis=-1)
        return out

    @cached_property
    def _begin(self) -> tuple[Index, Index]:
        """Where the atoms of rows begin that have any, and the numbers of these rows."""
        begin = np.flatnonzero(np.diff(self.row_of_atoms, prepend=-1))
        return begin, self.row_of_atoms[begin]

    @cached_property
    def _is_square(self) -> Mask:
        """Which atoms are squares."""
        if self.y is not self.x:
            return np.asarray((self.x == self.y).all(axis=1))
        if self.edges is None or self.edges.is_product is None:
            return np.ones(self.n_atoms, dtype=bool)
        return ~self.edges.is_product | (self.edges.first == self.edges.second)


@dataclass(frozen=True, eq=False)
class Edges:
    """Atoms as edges of a graph: x = y = F[first] - F[second], or a product of x = F[first] and y = F[second].

    F is an argument of the methods, because a change of basis leaves the graph as it is.
    """

    first: Index
    second: Index
    is_product: Mask | None  # None where all are differences

    @property
    def has_products(self) -> bool:
        """Whether there are others than differences."""
        return self.is_product is not None

    @cached_property
    def are_squares(self) -> bool:
        """Whether x = y for all atoms: a product may be that of a row of F with itself."""
        products = self.is_product
        return products is None or bool((self.first[products] == self.second[products]).all())

    def subset(self, atoms: Index) -> Edges:
        """Some of the edges."""
        products = None if self.is_product is None else self.is_product[atoms]
        return Edges(self.first[atoms], self.second[atoms], products)

    def shifted(self, by: Index) -> Edges:
        """The same edges between other rows."""
        return replace(self, first=self.first + by, second=self.second + by)

    def gathered(
        self, F: NDArray[Any], atoms: slice | Index, dtype: type
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """x and y of some atoms; the same object where all edges are squares."""
        x, y = self._ends(F, F, atoms)
        x = x.astype(dtype, copy=False)
        return x, x if self.are_squares else y.astype(dtype, copy=False)

    def inner(self, left: NDArray[Any], right: NDArray[Any]) -> Array:
        """(atoms,) products x^T y, with x from the rows of `left` and y from those of `right`."""
        out = np.empty(len(self.first))
        for block in _blocks(len(out), left.shape[1]):
            np.einsum("ij,ij->i", *self._ends(left, right, block), out=out[block])
        return out

    def lengths(self, F: NDArray[Any]) -> Array:
        """(atoms,) |x| |y|."""
        norms = np.sqrt(np.einsum("ij,ij->i", F, F))
        found = norms[self.first] * norms[self.second]
        differences = np.flatnonzero(~np.asarray(self.is_product))
        found[differences] = self.subset(differences).inner(F, F)
        return np.asarray(found)

    def laplacian(self, F: NDArray[Any], c: Array) -> Array:
        """A matrix whose symmetric part is half of sum_t c_t sym(x_t y_t^T) = F^T W F."""
        n = len(F)
        half, own = -c, c / 2
        if self.is_product is not None:
            half, own = np.where(self.is_product, c / 2, -c), np.where(self.is_product, 0.0, own)
        W = sparse.csr_array((half, (self.first, self.second)), shape=(n, n))
        diagonal = np.bincount(self.first, own, n) + np.bincount(self.second, own, n)
        return np.asarray(2 * (F.T @ (W @ F + diagonal[:, None] * F)))

    def _ends(
        self, left: NDArray[Any], right: NDArray[Any], atoms: slice | Index
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        first, second = self.first[atoms], self.second[atoms]
        x, y = left[first], right[second]
        if self.is_product is None:
            x -= y if left is right else left[second]
            return x, x if left is right else right[first] - y
        d = np.flatnonzero(~self.is_product[atoms])
        x[d] -= left[second[d]]
        y[d] = right[first[d]] - y[d]
        return x, y


def _may_be_written(n_atoms: int, features: Array) -> bool:
    return n_atoms <= len(features) or n_atoms * features.shape[1] <= _WRITTEN


def _unless_alone(row: Index, n_rows: int) -> Index | None:
    """Ascending `row`, or None where atom t is row t."""
    return None if len(row) == n_rows and (row == np.arange(n_rows)).all() else row


def _centred(features: Array) -> Array:
    """Features without what is large and common to all in a column: it takes digits from products with them."""
    lowest, highest = features.min(axis=0), features.max(axis=0)
    centre = lowest / 2 + highest / 2
    is_common = np.abs(centre) > _COMMON * (highest / 2 - lowest / 2)
    return features - np.where(is_common, centre, 0) if is_common.any() else features


def _blocks(n: int, columns: int) -> Iterator[slice]:
    """Slices of range(n) whose vectors have at most about _BLOCK numbers."""
    step = max(1, _BLOCK // max(columns, 1))
    return (slice(low, min(low + step, n)) for low in range(0, n, step))
