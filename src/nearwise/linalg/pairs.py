"""Matrices in twice the precision: sums of two arrays of numbers, the second below the rounding of the first.

Products are those of Ozaki, Ogita, Oishi and Rump 2012: of each matrix two slices are cut of so few binary
digits that their products are exact in double precision. What is left is so small that its products may be
rounded. On small matrices `dot` takes half the time of `@`, whose digits are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array

PRECISION = 2.0**-86  # relative error of a product, about: rounding of what is left, 2^-44 of the whole

_SPLIT = 2.0**27 + 1


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


class Cut(NamedTuple):
    """A matrix with two slices of few binary digits in a row, and what they leave of it.

    `low` is what is to be added to the whole, where that is a pair.
    """

    whole: Array
    first: Array
    second: Array
    rest: Array
    low: Array | None


def cut(A: Pair | Array) -> Cut:
    """A matrix made ready for several products; its rows are what is summed over."""
    whole, low = A if isinstance(A, Pair) else (A, None)
    # so many products of them are added up exactly
    bits = (53 - max(whole.shape[1] - 1, 1).bit_length()) // 2
    # what is left of a row is at most as large as a digit of the slice before
    largest = np.maximum.reduce(np.abs(whole), axis=1, initial=0.0, keepdims=True)
    shift = np.spacing(largest)
    shift *= 0.75 * 2.0 ** (106 - bits)
    first = whole + shift
    first -= shift
    left = whole - first
    shift *= 2.0**-bits
    second = left + shift
    second -= shift
    return Cut(whole, first, second, left - second, low)


def product(A: Pair | Array, B: Pair | Array) -> Pair:
    """A B with an error of about `PRECISION` of the product of the magnitudes, at most."""
    return times_transposed(cut(A), cut(B.T))


def times_transposed(A: Cut, B: Cut) -> Pair:
    """A B^T, as exact."""
    first, second, rest = B.first.T, B.second.T, B.rest.T
    small = A.first.dot(rest)
    small += A.second.dot(second + rest)
    small += A.rest.dot(B.whole.T)
    if B.low is not None:
        small += A.whole.dot(B.low.T)
    if A.low is not None:
        small += A.low.dot(B.whole.T)
    return _summed(A.first.dot(first), A.first.dot(second), A.second.dot(first), small)


def weighted(weights: Array, A: Pair) -> Pair:
    """diag(weights) A; only what belongs to the low part is rounded."""
    columns = weights[:, None]
    total, error = _two_product(columns, A.high)
    return Pair(*two_sum(total, error + columns * A.low))


def squared_lengths(A: Pair) -> Pair:
    """Of the rows of A: the diagonal of A A^T."""
    _, first, second, rest, _ = cut(A)
    small = _dots(second, second + rest) + _dots(rest, A.high + first) + 2.0 * _dots(A.high, A.low)
    return _summed(_dots(first, first), _dots(first, 2.0 * second), small)


def _summed(largest: Array, *terms: Array) -> Pair:
    """The sum, of which only that of the last of the terms is rounded."""
    small = terms[-1]
    for term in terms[:-1]:
        largest, error = two_sum(largest, term)
        small = small + error
    return Pair(*two_sum(largest, small))


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product and its rounding error (Dekker)."""
    total = a * b
    (first, rest), (other, other_rest) = _halves(a), _halves(b)
    error = ((first * other - total) + first * other_rest + rest * other) + rest * other_rest
    return total, error


def _halves(a: Array) -> tuple[Array, Array]:
    """Two numbers of half as many binary digits that add up to one (Veltkamp)."""
    far = _SPLIT * a
    first = far - (far - a)
    return first, a - first


def _dots(A: Array, B: Array) -> Array:
    """The products of the rows of A with those of B, one by one."""
    return np.asarray(np.einsum("ij,ij->i", A, B))
