"""The linear map of the constraints, M -> (<A_1, M>, ..., <A_m, M>), and all that solvers ask of it.

Every A_i is a short sum of atoms, A_i = sum_t c_t sym(x_t y_t^T). A squared distance is one square, of
x = f_i - f_j; an inner product has x = f_i and y = f_j; a comparison is two squares of opposite sign. Few
atoms are written out as vectors. Many are the edges of a graph whose nodes are the rows of a feature matrix F
(`edges`): then <A_i, B B^T> needs F B once and two of its rows per edge, and sum_i w_i A_i is F^T W F with a
sparse W. Both cost O(n r^2 + m r) for m rows over n objects, and no m x r array is built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index, Mask
from nearwise.core.edges import BLOCK, LARGE, Edges, blocks, products, side_by_side
from nearwise.linalg.packing import packing

WRITTEN = 200_000  # numbers in the vectors of all atoms; a pass over more takes less time over a graph
TRIED = 1_000  # differences whose digits in single precision are looked at
OFF_CENTRE = 100.0  # a column's middle beside its half range from which on its differences lose two digits
ROUGH = 1e-5  # their largest relative error; F^T W F then has one of 1e-3 at most, where all are that large


def is_written_out(n_atoms: int, order: int) -> bool:
    """Whether the vectors of so many atoms are few enough to be written out."""
    return n_atoms * order <= WRITTEN


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows A_1, ..., A_m, made by `of` or `written`.

    Attributes
    ----------
    x, y : (atoms, r) vectors of all atoms, one object for both where all are squares; F for both with `edges`
    edges : None, or which rows of F every atom is made of
    coefficient : (atoms,) the numbers c_t
    row : (atoms,) the row of every atom, ascending; None where atom t is row t
    n_rows : m
    offsets : None, or (m,) what is added to the values: parts of them that do not depend on M
    """

    x: Array
    y: Array
    edges: Edges | None
    coefficient: Array
    row: Index | None
    n_rows: int
    offsets: Array | None = None

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
    ) -> Rows:
        """Rows from atoms over features: differences features[first] - features[second], then products.

        Vectors are written out where they are few, or no more than the features. A graph takes differences
        after a change of basis, so what is large and common to its features goes before.
        """
        by_row = np.argsort(row, kind="stable")
        edges = Edges.of(first[by_row], second[by_row], by_row >= n_differences)
        coefficient, row = coefficient[by_row], row[by_row]
        if _takes_less(len(row), features):
            x, y = edges.ends(features.astype(np.float64, copy=False))
            return cls.written(x, y, coefficient, row, n_rows, offsets)
        F = features if edges.has_products else _centred(features)
        F, alone = np.ascontiguousarray(F), _unless_alone(row, n_rows)
        return cls(F, F, edges, coefficient, alone, n_rows, offsets)

    @classmethod
    def written(
        cls,
        x: Array,
        y: Array,
        coefficient: Array,
        row: Index,
        n_rows: int,
        offsets: Array | None = None,
    ) -> Rows:
        """Rows from the vectors of their atoms; `y` is the object `x` where all atoms are squares."""
        if (row[1:] < row[:-1]).any():
            by_row = np.argsort(row, kind="stable")
            coefficient, row, squares = coefficient[by_row], row[by_row], y is x
            x = x[by_row]
            y = x if squares else y[by_row]
        return cls(x, y, None, coefficient, _unless_alone(row, n_rows), n_rows, offsets)

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
        """Whether vectors are written out; else they are gathered when they are needed."""
        return self.edges is None

    @property
    def row_of_atoms(self) -> Index:
        """(atoms,) the row of every atom, ascending."""
        return np.arange(self.n_rows) if self.row is None else self.row

    # ---- the map and its adjoint ----

    def values(self, B: Array) -> Array:
        """(m,) <A_i, B B^T> plus offsets. Squares are sums of squares of B^T x, in which nothing cancels."""
        values = self._summed(self._inner(*self._images(B)) * self.coefficient)
        return values if self.offsets is None else values + self.offsets

    def of_matrix(self, D: Array) -> Array:
        """(m,) <A_i, D> for a symmetric D, without offsets."""
        return self._summed(self._inner(_image(self.x, D), self.y) * self.coefficient)

    def adjoint(self, w: Array) -> Array:
        """(r, r) sum_i w_i A_i."""
        c = self.coefficient * (w if self.row is None else w[self.row])
        used = np.flatnonzero(c)  # a weight that is not a number is used
        # per node, 1.5 squares take as long as F^T W F (measured at r = 20 to 200)
        if self.edges is not None and (self.edges.has_products or len(used) > 1.5 * len(self.x)):
            total = self.edges.weighted_sum(self.x, c)
        elif self.edges is None and (self.y is not self.x or self.x.size <= BLOCK):
            own = used if 2 * len(used) < len(c) else slice(None)
            x, y = self.vectors(own, self.x.dtype.type)
            total = (x.T * c[own]) @ y
        else:
            negative = c[used] < 0
            total = self._sum_of_squares(used[~negative], c) - self._sum_of_squares(used[negative], -c)
        return np.asarray((total + total.T) / 2, dtype=np.float64)

    @np.errstate(over="ignore", invalid="ignore")
    def magnitudes(self, B: Array) -> Array:
        """(m,) sums of |c_t| |B^T x_t| |B^T y_t|, which rounding errors of values are relative to.

        `B` is a matrix, or a vector for the diagonal of one.
        """
        left, right = self._images(B)
        if self.edges is not None:
            lengths = self.edges.lengths(left)
        else:
            lengths = products(left, left)
            if right is not left:
                lengths = np.sqrt(lengths) * np.sqrt(products(right, right))
        return self._summed(lengths * np.abs(self.coefficient))

    # ---- other rows made of these ----

    def subset(self, rows: Index | Mask) -> Rows:
        """Some of the rows, by ascending numbers or a mask."""
        numbers: Index = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64, copy=False)
        place = np.full(self.n_rows, -1)
        place[numbers] = np.arange(len(numbers))
        row = place[self.row_of_atoms]
        atoms = np.flatnonzero(row >= 0)
        chosen = replace(
            self,
            coefficient=self.coefficient[atoms],
            row=_unless_alone(row[atoms], len(numbers)),
            n_rows=len(numbers),
            offsets=None if self.offsets is None else self.offsets[numbers],
        )
        if self.edges is not None and not _takes_less(len(atoms), self.x):
            return replace(chosen, edges=self.edges.subset(atoms))
        x, y = self.vectors(atoms, self.x.dtype.type)
        return replace(chosen, x=x, y=y, edges=None)

    def transformed(self, T: Array, unit: float = 1.0) -> Rows:
        """Rows of M' where M = T M' T^T: vectors x become T^T x, and offsets are in another unit.

        `T` is a matrix, or a vector for the diagonal of one.
        """
        x, y = self._images(T)
        return replace(self, x=x, y=y, offsets=None if self.offsets is None else self.offsets / unit)

    def by_groups(self, groups: Index) -> Rows:
        """Rows of an M that is zero between groups of columns; `groups` has that of every column, from 0.

        <A, M> = sum_g <A_gg, M_gg>: every atom becomes one for each group, with vectors cut to its columns.
        """
        inside = np.arange(groups.max(initial=0) + 1)[:, None] == groups
        n_groups = len(inside)
        foresee(8.0 * self.x.size * n_groups, f"{len(self.x):,} vectors in {n_groups:,} groups of columns")

        def cut(vectors: Array) -> Array:
            return np.asarray((vectors[:, None] * inside).reshape(-1, self.order))

        x = cut(self.x)
        return replace(
            self,
            x=x,
            y=x if self.y is self.x else cut(self.y),
            edges=None if self.edges is None else self.edges.repeated(n_groups),
            coefficient=np.repeat(self.coefficient, n_groups),
            row=_unless_alone(np.repeat(self.row_of_atoms, n_groups), self.n_rows),
        )

    def in_single(self) -> Rows | None:
        """The same in single precision, for half the time; None where that gains little or loses digits."""
        if self.n_atoms * self.order < LARGE or (self.edges is not None and self.edges.has_products):
            return None
        if self.edges is None:
            vectors: NDArray[Any] = self.x.astype(np.float32)
            others: NDArray[Any] = vectors if self.y is self.x else self.y.astype(np.float32)
            return replace(self, x=vectors, y=others)
        F = self.x - self.x.mean(axis=0)  # differences stay what they are
        single = F.astype(np.float32)
        some = self.edges.subset(np.arange(0, self.n_atoms, max(1, self.n_atoms // TRIED)))
        exact = some.ends(F)[0]
        error = some.ends(single)[0] - exact
        if not (products(error, error) <= ROUGH**2 * products(exact, exact)).all():
            return None
        return replace(self, x=single, y=single)

    # ---- the matrices A_i ----

    def vectors(
        self, atoms: slice | Index = slice(None), dtype: type[np.floating[Any]] = np.float64
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """x and y of some atoms; the same object where all are squares."""
        if self.edges is not None:
            return self.edges.ends(self.x, atoms, dtype)
        x = self.x[atoms].astype(dtype, copy=False)
        return x, x if self.y is self.x else self.y[atoms].astype(dtype, copy=False)

    def span(self) -> Array:
        """Vectors that span the ranges of all A_i: x and y, or the features of a graph."""
        return self.x if self.y is self.x else np.concatenate([self.x, self.y])

    def packed(self, G: Array) -> Array:
        """(q, m) matrix whose columns are the packed G^T A_i G; see `packing`."""
        x, y = self.vectors()
        left = np.ascontiguousarray((x @ G).T)
        right = left if y is x else np.ascontiguousarray((y @ G).T)
        weighted, r = left * self.coefficient, len(left)
        out, end = np.empty((r * (r + 1) // 2, self.n_rows)), 0
        for a in range(r):  # row a of the upper triangle, from the diagonal on
            entries = weighted[a] * right[a:]
            if right is not left:
                entries += right[a] * weighted[a:]
                entries *= 0.5
            out[end : end + r - a] = self._summed(entries)
            end += r - a
        out *= packing(r).scale[:, None]
        return out

    def gram(self) -> Array:
        """(m, m) inner products <A_i, A_j>."""
        x, y = self.vectors()
        gram = (x @ x.T) ** 2 if y is x else ((x @ x.T) * (y @ y.T) + (x @ y.T) * (y @ x.T)) / 2
        gram *= self.coefficient[:, None] * self.coefficient
        return self._summed(self._summed(gram).T)

    # ---- helpers ----

    def _images(self, T: Array) -> tuple[Array, Array]:
        """x and y after T^T."""
        x = _image(self.x, T)
        return x, x if self.y is self.x else _image(self.y, T)

    def _inner(self, left: Array, right: Array) -> Array:
        """(atoms,) products x_t^T y_t, with `left` for x and `right` for y."""
        return products(left, right) if self.edges is None else self.edges.inner(left, right)

    def _sum_of_squares(self, atoms: Index, c: Array) -> Array:
        """sum_t c_t x_t x_t^T over some atoms, with c_t > 0; x^T x takes half the time of other products."""
        root = np.sqrt(c[atoms]).astype(self.x.dtype)[:, None]

        def part(own: slice) -> Array:
            total = np.zeros((self.order, self.order))
            for block in blocks(own, self.order):
                x = self.vectors(atoms[block], self.x.dtype.type)[0]
                x *= root[block]
                total += x.T @ x
            return total

        return np.asarray(sum(side_by_side(len(atoms), len(atoms) * self.order, part)))

    def _summed(self, of_atoms: Array) -> Array:
        """Sums over the atoms of every row, along the last axis."""
        if self.row is None:
            return of_atoms
        begin, rows = self._begin
        if len(rows) == self.n_rows:
            return np.add.reduceat(of_atoms, begin, axis=-1)
        out = np.zeros((*of_atoms.shape[:-1], self.n_rows), of_atoms.dtype)
        if len(rows):
            out[..., rows] = np.add.reduceat(of_atoms, begin, axis=-1)
        return out

    @cached_property
    def _begin(self) -> tuple[Index, Index]:
        """Where the atoms of every row begin that has any, and the numbers of these rows."""
        begin = np.flatnonzero(np.diff(self.row_of_atoms, prepend=-1))
        return begin, self.row_of_atoms[begin]


def _takes_less(n_atoms: int, features: Array) -> bool:
    """Whether vectors are written out: where they are few, or take no more room than the features."""
    return is_written_out(n_atoms, features.shape[1]) or n_atoms <= len(features)


def _centred(features: Array) -> Array:
    """Features without what is large and common to all of them in a column."""
    lowest, highest = features.min(axis=0), features.max(axis=0)
    centre = lowest / 2 + highest / 2
    is_far = np.abs(centre) > OFF_CENTRE * (highest / 2 - lowest / 2)
    return features - np.where(is_far, centre, 0.0) if is_far.any() else features


def _unless_alone(row: Index, n_rows: int) -> Index | None:
    """Ascending `row`, or None where atom t is row t."""
    return None if len(row) == n_rows and (row == np.arange(n_rows)).all() else row


def _image(vectors: Array, T: Array) -> Array:
    """Vectors T^T x, for a matrix T or the diagonal of one, in the precision of the vectors."""
    T = T.astype(vectors.dtype, copy=False)
    if T.ndim == 1:
        return vectors * T
    out = np.empty((len(vectors), T.shape[1]), vectors.dtype)
    side_by_side(len(out), vectors.size, lambda own: np.matmul(vectors[own], T, out=out[own]))
    return out
