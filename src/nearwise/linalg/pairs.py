"""Matrices in twice the precision: sums of two arrays of numbers, the second below the rounding of the first.

Products are those of Ozaki, Ogita, Oishi and Rump 2012: each matrix is cut into slices of so few binary
digits that the products of slices are exact in double precision, and only their sum is rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array

PRECISION = 2.0**-86  # relative error of a product, about: four slices, each of 22 binary digits at least
_SLICES = 4


class Pair(NamedTuple):
    """high + low."""

    high: Array
    low: Array

    @property
    def T(self) -> Pair:
        return Pair(self.high.T, self.low.T)

    @property
    def rounded(self) -> Array:
        return np.asarray(self.high + self.low)

    def reshaped(self, *shape: int) -> Pair:
        return Pair(self.high.reshape(shape), self.low.reshape(shape))

    def plus(self, other: Pair | Array) -> Pair:
        """The sum, entry by entry."""
        high, low = (other.high, other.low) if isinstance(other, Pair) else (other, 0.0)
        total, error = two_sum(self.high, high)
        return Pair(*two_sum(total, error + (self.low + low)))


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def product(A: Pair | Array, B: Pair | Array) -> Pair:
    """A B with an error of about `PRECISION` of the product of the magnitudes, at most."""
    left, right = (X if isinstance(X, Pair) else Pair(X, np.zeros_like(X)) for X in (A, B))
    found = _exact_product(left.high, right.high)
    return found.plus(left.high @ right.low + left.low @ right.high)


def squared_lengths(A: Pair) -> Pair:
    """Of the rows of A: the diagonal of A A^T."""
    parts = _slices(A.high, _bits(A.high.shape[1]))
    high, low = np.zeros(len(A.high)), np.zeros(len(A.high))
    for order in range(_SLICES):
        for i in range(order + 1):
            high, error = two_sum(high, np.einsum("ij,ij->i", parts[i], parts[order - i]))
            low += error
    return Pair(high, low).plus(2.0 * np.einsum("ij,ij->i", A.high, A.low))


def _exact_product(A: Array, B: Array) -> Pair:
    bits = _bits(A.shape[1])
    left, right = _slices(A, bits), [part.T for part in _slices(B.T, bits)]
    high, low = np.zeros((len(A), B.shape[1])), np.zeros((len(A), B.shape[1]))
    for order in range(_SLICES):
        for i in range(order + 1):
            high, error = two_sum(high, left[i] @ right[order - i])
            low += error
    return Pair(high, low)


def _bits(terms: int) -> int:
    """Binary digits of numbers of which so many products are added up exactly."""
    return int((53 - np.ceil(np.log2(max(terms, 2)))) // 2)


def _slices(A: Array, bits: int) -> list[Array]:
    """Matrices that add up to A as far as they go, each of few binary digits in a row."""
    out, left = [], A
    for _ in range(_SLICES):
        largest = np.abs(left).max(axis=1, initial=0.0, keepdims=True)
        shift = 0.75 * np.exp2(np.frexp(largest)[1] + 53.0 - bits)
        part = (left + shift) - shift
        out.append(part)
        left = left - part
    return out
