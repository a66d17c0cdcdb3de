"""Conjugate gradients for D + omega * A^T A(omega * D) = R, symmetric r x r, preconditioned as for Gaussian
rows.

A maps D to <A_i, D> for rows A_i = sum_t sign_t sym(x_t y_t^T), omega multiplies elementwise. Were the
vectors Gaussian, then in the eigenbasis of sum_t |y_t|^2 x_t x_t^T the entries of A^T A(D) off the diagonal
would not interact and its diagonal would be one r x r matrix times that of D. Without omega this model is
inverted entry by entry. With it the model has an inner conjugate gradient, whose products cost O(r^3)
whatever the number of rows, or, where that costs more than the rows do, only its entries in the given basis
count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.linalg.conjugate import conjugate_gradients

Vectors = NDArray[Any]  # in single or double precision
Linear = Callable[[Array], Array]

MOST_STEPS = 200  # of conjugate gradients: 1,000 spare Newton's method no iterations on stiff rows
BLOCK = 1 << 17  # numbers of vectors in a block; a quarter of it and four times take as long
MOMENT_ROWS = 30  # rows per column that moments are from: with 10 or 100, MNIST takes as many iterations

# The model is solved to this accuracy if so many of its products take no longer than one with the rows. An
# inner solution takes about 20, and spares that many on ill-conditioned features: with 20 in place of 5,
# Frobenius took up to 3 times the iterations and 2.8 times as long (2,000 pairs, r = 20).
INNER_ACCURACY, INNER_PRODUCTS = 0.1, 5

OVERHEAD = 3e5  # operations that take as long as what a product costs beside its arithmetic, about 10 us


@dataclass(frozen=True, eq=False)
class RowVectors:
    """The vectors of rows A_i = sum_t sign_t sym(x_t y_t^T).

    Attributes
    ----------
    x, y : (atoms, r); the same object where all atoms are squares
    sign : of every atom; None where a row has one atom, so that A^T A does not depend on it
    start : of every row, its first atom, atoms of a row being neighbours; None where a row has one atom
    """

    x: Vectors
    y: Vectors
    sign: Vectors | None = None
    start: Index | None = None

    @classmethod
    def of(cls, x: Vectors, y: Vectors, scale: Array, row: Index | None) -> RowVectors:
        """From vectors and factors of the atoms; `row` ascends, and is None if atom t is row t."""
        root = np.sqrt(np.abs(scale)).astype(x.dtype)[:, None]
        left = x * root
        right = left if y is x else y * root
        if row is None:
            return cls(left, right)
        start = np.flatnonzero(np.diff(row, prepend=-1))
        return cls(left, right, np.sign(scale).astype(x.dtype), start)

    def squared(self, D: Array) -> Array:
        """A^T A(D) for a symmetric D."""
        x, y = self.x, self.y
        D = np.where(np.abs(D) < 1e-30, 0.0, D).astype(x.dtype)  # denormal numbers would be slow
        if self.start is not None:
            weights = self._per_atom(self._per_row(np.vecdot(x @ D, y)))
            return _symmetric(x.T @ (weights[:, None] * y))
        total, step = np.zeros(D.shape), max(1, BLOCK // x.shape[1])
        for low in range(0, len(x), step):
            own, other = x[low : low + step], y[low : low + step]
            left = own @ D
            np.multiply(np.vecdot(left, other)[:, None], other, out=left)
            total += own.T @ left
        return _symmetric(total)

    def moments(self, basis: Array | None) -> tuple[Array, Array]:
        """In a basis: what A^T A multiplies entries off the diagonal with, and its matrix of diagonals."""
        x, y = self.x, self.y
        if basis is not None:
            turn = basis.astype(x.dtype)
            x, y = x @ turn, x @ turn if y is x else y @ turn
        diagonals = self._per_row(x * y)
        block = (diagonals.T @ diagonals).astype(np.float64)
        if self.y is self.x and self.start is None:
            return 2 * block, block
        squares = (np.square(x).T @ np.square(y)).astype(np.float64)
        return squares + squares.T, block

    def eigenbasis(self) -> Array:
        """Of sum_t |y_t|^2 x_t x_t^T."""
        weighted = self.x * np.vecdot(self.y, self.y)[:, None]
        return np.asarray(np.linalg.eigh(_symmetric(self.x.T @ weighted))[1])

    def drawn(self, count: int) -> RowVectors:
        """About so many of the rows, the larger ones more likely, scaled to have the same moments."""
        size = np.sqrt(np.vecdot(self.x, self.x) * np.vecdot(self.y, self.y)).astype(np.float64)
        size = size if self.start is None else np.add.reduceat(size, self.start)
        if len(size) <= count:
            return self
        share = size / max(float(size.sum()), 1e-300)
        chance = np.minimum(count / 2 * (share + 1 / len(size)), 1.0)
        kept = np.random.default_rng(0).random(len(size)) < chance
        row = np.arange(len(size)) if self.start is None else self._row
        atoms = kept[row]
        x = self.x[atoms]
        y = x if self.y is self.x else self.y[atoms]
        scale = (1 / np.sqrt(chance[row[atoms]])) * (1.0 if self.sign is None else self.sign[atoms])
        return RowVectors.of(x, y, scale, None if self.start is None else row[atoms])

    @property
    def _row(self) -> Index:
        assert self.start is not None
        return np.repeat(np.arange(len(self.start)), np.diff(self.start, append=len(self.x)))

    def _per_row(self, of_atoms: Vectors) -> Vectors:
        if self.start is None or self.sign is None:
            return of_atoms
        signed = (self.sign if of_atoms.ndim == 1 else self.sign[:, None]) * of_atoms
        return np.asarray(np.add.reduceat(signed, self.start, axis=0))

    def _per_atom(self, of_rows: Vectors) -> Vectors:
        return of_rows if self.sign is None else self.sign * of_rows[self._row]


def gaussian_solution(rows: RowVectors, omega: Array | None, right: Array, accuracy: float) -> Array:
    """D for these rows and omega (None for ones); accuracy relative to R, in the preconditioner's norm."""
    preconditioned = _preconditioner(rows, omega)

    def product(D: Array) -> Array:
        return D + (rows.squared(D) if omega is None else omega * rows.squared(omega * D))

    return _solved(product, right, preconditioned, accuracy)


def _preconditioner(rows: RowVectors, omega: Array | None) -> Linear:
    r = rows.x.shape[1]
    some = rows.drawn(MOMENT_ROWS * r)
    if omega is not None:
        off_diagonal, block = some.moments(None)
        by_entries = _inverse(
            off_diagonal * np.square(omega), block * np.outer(omega.diagonal(), omega.diagonal())
        )
        if INNER_PRODUCTS * (16 * r**3 + OVERHEAD) > 4 * len(rows.x) * r**2:
            return by_entries
    Q = rows.eigenbasis()
    off_diagonal, block = some.moments(Q)
    if omega is None:
        inverse = _inverse(off_diagonal, block)
        return lambda R: _symmetric(Q @ inverse(Q.T @ R @ Q) @ Q.T)

    def modelled(D: Array) -> Array:
        """The product, were the vectors Gaussian."""
        turned = Q.T @ (omega * D) @ Q
        bent = off_diagonal * turned
        np.fill_diagonal(bent, block @ np.diag(turned))
        return D + omega * _symmetric(Q @ bent @ Q.T)

    return lambda R: _solved(modelled, R, by_entries, INNER_ACCURACY)


def _inverse(off_diagonal: Array, block: Array) -> Linear:
    """Of I plus what multiplies entries off the diagonal one by one, and the diagonal by a matrix."""
    of_entries = 1.0 / (1.0 + off_diagonal)
    of_diagonal = np.linalg.inv(np.eye(len(block)) + block)

    def inverse(R: Array) -> Array:
        D: Array = R * of_entries
        np.fill_diagonal(D, of_diagonal @ np.diag(R))
        return D

    return inverse


def _solved(product: Linear, right: Array, preconditioned: Linear, accuracy: float) -> Array:
    return conjugate_gradients(
        product, right, preconditioned, accuracy=accuracy, most_steps=MOST_STEPS, in_its_norm=True
    ).x


def _symmetric(D: Vectors) -> Array:
    """Without the antisymmetric part of rounding, which a preconditioner takes for far stiffer than it is."""
    D = D.astype(np.float64, copy=False)
    return np.asarray((D + D.T) / 2)
