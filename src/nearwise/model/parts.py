"""Rows of constraints written out: of each, the vectors of which it is a sum of products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.memory import scratch
from nearwise._common.types import Array, Index
from nearwise.model.local import LocalAtoms


class Parts(NamedTuple):
    """Rows of a slice written out: value_i = sum_t c_t (x_t B) . (y_t B)."""

    x: NDArray[Any]
    y: NDArray[Any]  # the same object as x where every atom is a square
    coefficient: Array
    row: Index | None  # None where atom t is row t
    n_rows: int

    def in_basis(self, T: Array, into: str = "") -> Parts:
        """After a linear map, a matrix or the diagonal of one; with `into`, in memory of that name."""
        x = _mapped(self.x, T, into)
        y = x if self.y is self.x else _mapped(self.y, T, into and f"{into}, second")
        return self._replace(x=x, y=y)

    def values(self) -> Array:
        """Of every row under the identity."""
        return self._summed(self.coefficient * np.einsum("ij,ij->i", self.x, self.y))

    def parts(self) -> Array:
        """What the magnitudes of its parts add up to."""
        xx = np.einsum("ij,ij->i", self.x, self.x)
        size = xx if self.y is self.x else np.sqrt(xx) * np.sqrt(np.einsum("ij,ij->i", self.y, self.y))
        return self._summed(np.abs(self.coefficient) * size)

    def adjoint(self, weights: Array) -> Array:
        """sum_i weights_i A_i; only rows with a weight are multiplied out."""
        per_atom = self.coefficient * (weights if self.row is None else weights[self.row])
        if self.y is self.x:
            return self._positive_sum(per_atom) - self._positive_sum(-per_atom)
        used = np.flatnonzero(per_atom)
        total = self.x[used].T @ (per_atom[used, None] * self.y[used])
        return np.asarray((total + total.T) / 2)

    def _positive_sum(self, weights: Array) -> Array:
        """sum_t w_t x_t x_t^T over positive weights: x^T x takes half a product of two matrices."""
        used = np.flatnonzero(~(weights <= 0))  # and over what is not a number
        x = np.take(self.x, used, axis=0, out=scratch("used", (len(used), self.x.shape[1])), mode="clip")
        x *= np.sqrt(weights[used])[:, None]
        return np.asarray(x.T @ x)

    def _summed(self, per_atom: Array) -> Array:
        if self.row is None:
            return per_atom
        return np.asarray(np.bincount(self.row, per_atom, self.n_rows), dtype=np.float64)


def rows_of(parts: Parts, rows: Index) -> Parts:
    """Some of the rows of a slice."""
    atoms, row = rows, None
    if parts.row is not None:
        place = np.full(parts.n_rows, -1)
        place[rows] = np.arange(len(rows))
        atoms = np.flatnonzero(place[parts.row] >= 0)
        row = place[parts.row[atoms]]
    x = parts.x[atoms]
    y = x if parts.y is parts.x else parts.y[atoms]
    return Parts(x, y, parts.coefficient[atoms], row, len(rows))


def joined(found: list[Parts], width: int, dtype: type) -> LocalAtoms:
    """Rows of several slices as one."""
    empty = np.empty((0, width))
    squares = all(parts.x is parts.y for parts in found)
    x: NDArray[Any] = np.concatenate([empty, *(parts.x for parts in found)]).astype(dtype)
    y = x if squares else np.concatenate([empty, *(parts.y for parts in found)]).astype(dtype)
    coefficient: NDArray[Any] = np.concatenate([np.empty(0), *(parts.coefficient for parts in found)]).astype(
        dtype
    )
    row = None
    if any(parts.row is not None for parts in found):
        starts = np.cumsum([0, *(parts.n_rows for parts in found)])
        own = [np.arange(p.n_rows) if p.row is None else p.row for p in found]
        row = np.concatenate([part + start for part, start in zip(own, starts, strict=False)])
    return LocalAtoms(x, y, coefficient, row, sum(parts.n_rows for parts in found))


def joined_atoms(found: list[LocalAtoms], width: int, dtype: type) -> LocalAtoms:
    """Those of several pieces as one."""
    return joined([Parts(a.x, a.y, a.coefficient, a.row, a.n_rows) for a in found], width, dtype)


def _mapped(x: NDArray[Any], T: Array, into: str) -> NDArray[Any]:
    shape = (len(x), len(T) if T.ndim == 1 else T.shape[1])
    operation = np.multiply if T.ndim == 1 else np.matmul
    return np.asarray(operation(x, T, out=scratch(into, shape)) if into else operation(x, T))
