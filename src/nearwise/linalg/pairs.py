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
# which slices are multiplied: those whose product is not below the precision
_LEFT, _RIGHT = np.nonzero(np.add.outer(np.arange(_SLICES), np.arange(_SLICES)) < _SLICES)


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
    (high, low), (other, other_low) = (X if isinstance(X, Pair) else (X, None) for X in (A, B))
    found = _exact_product(high, other)
    for left, right in ((high, other_low), (low, other)):
        found = found if left is None or right is None else found.plus(left @ right)
    return found


def squared_lengths(A: Pair) -> Pair:
    """Of the rows of A: the diagonal of A A^T."""
    parts = _slices(A.high, _bits(A.high.shape[1]))
    found = _summed(np.einsum("tij,tij->ti", parts[_LEFT], parts[_RIGHT]))
    return found.plus(2.0 * np.einsum("ij,ij->i", A.high, A.low))


def _exact_product(A: Array, B: Array) -> Pair:
    bits = _bits(A.shape[1])
    return _summed(_slices(A, bits)[_LEFT] @ _slices(B.T, bits)[_RIGHT].swapaxes(1, 2))


def _summed(terms: Array) -> Pair:
    """The sum over the first axis, by pairs; what each rounds is added up by itself."""
    low = np.zeros(terms.shape[1:])
    while len(terms) > 1:
        half = len(terms) // 2
        total, error = two_sum(terms[:half], terms[half : 2 * half])
        low += error.sum(axis=0)
        terms = total if 2 * half == len(terms) else np.concatenate([total, terms[-1:]])
    return Pair(terms[0], low)


def _bits(terms: int) -> int:
    """Binary digits of numbers of which so many products are added up exactly."""
    return int((53 - np.ceil(np.log2(max(terms, 2)))) // 2)


def _slices(A: Array, bits: int) -> Array:
    """Matrices that add up to A as far as they go, each of few binary digits in a row."""
    out = np.empty((_SLICES, *A.shape))
    # what is left of a row is at most as large as a digit of the slice before
    shift = 0.75 * np.exp2(np.frexp(np.abs(A).max(axis=1, initial=0.0, keepdims=True))[1] + (53.0 - bits))
    left = A
    for part in out:
        np.subtract(left + shift, shift, out=part)
        left = left - part
        shift = shift * 2.0**-bits
    return out
