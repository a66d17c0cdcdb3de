"""Symmetric matrices as vectors: upper triangles, scaled so that inner products stay what they are."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nearwise._common.types import Array


class Packing:
    """Packs symmetric r x r matrices into vectors of q = r (r + 1) / 2 numbers: <A, B> = pack(A) @ pack(B).

    Attributes
    ----------
    order : r
    a, b : (q,) rows and columns of the upper triangle, row by row
    flat : (q,) positions of the same entries in a flattened matrix
    scale : (q,) 1 on the diagonal and sqrt(2) off it
    """

    def __init__(self, order: int) -> None:
        self.order = order
        self.a, self.b = np.triu_indices(order)
        self.flat = self.a * order + self.b
        self.scale = np.where(self.a == self.b, 1.0, np.sqrt(2.0))
        place = np.zeros((order, order), dtype=np.int64)
        place[self.a, self.b] = np.arange(len(self.a))
        self._place = np.maximum(place, place.T)

    def pack(self, A: Array) -> Array:
        """(q,) vector of a symmetric matrix, whose upper triangle is read."""
        return A.take(self.flat) * self.scale

    def unpack(self, v: Array) -> Array:
        """(r, r) symmetric matrix of a vector."""
        return (v / self.scale).take(self._place)


@lru_cache(maxsize=16)
def packing(order: int) -> Packing:
    """Packing of matrices of this order; the last few orders are kept."""
    return Packing(order)
