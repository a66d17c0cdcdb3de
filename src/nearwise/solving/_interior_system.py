"""The linear system of an interior-point step."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array

_DEPENDENT = 1e-14  # added to the diagonal of the rows' Gram matrix, relatively: they may be dependent
_SMALLEST = 1e-300
_SHIFTS = tuple(1e-15 * 10.0**k for k in range(6))  # of a diagonal of 1, until there is a Cholesky factor


class System:
    """D + rows dy = K and rows^T D - compliance * dy = e, factorised in the smaller of the two spaces."""

    def __init__(self, rows: Array, compliance: Array) -> None:
        own = np.einsum("ij,ij->j", rows, rows)
        self._rows, self._compliance = rows, np.maximum(compliance, _DEPENDENT * own)
        self._in_rows = rows.shape[1] <= rows.shape[0]
        if self._in_rows:
            self._scale = 1 / np.sqrt(np.maximum(own + self._compliance, _SMALLEST))
            scaled = rows * self._scale
            gram, diagonal = scaled.T @ scaled, self._compliance * self._scale**2
        else:
            self._weights = 1 / np.maximum(self._compliance, _SMALLEST)
            scaled = rows * np.sqrt(self._weights)
            gram = scaled @ scaled.T
            self._scale = 1 / np.sqrt(1 + np.diagonal(gram))
            gram *= self._scale[:, None] * self._scale
            diagonal = self._scale**2
        gram.flat[:: len(gram) + 1] += diagonal
        for shift in _SHIFTS:
            self._cholesky, failed = lapack.dpotrf(gram, lower=1, clean=0)
            if not failed:
                break
            gram.flat[:: len(gram) + 1] += shift * len(gram)

    def solve(self, K: Array, e: Array, refinements: int) -> tuple[Array, Array]:
        """dy and D."""
        rows = self._rows
        if not len(e):
            return e, K
        if self._in_rows:
            dy = self._inverse(K @ rows - e)
            D = K - rows @ dy
            for _ in range(refinements):
                dy = dy + self._inverse(D @ rows - e - self._compliance * dy)
                D = K - rows @ dy
            return dy, D
        dy, D = self._reduced(K, e)
        for _ in range(refinements):
            more = self._reduced(K - D - rows @ dy, e - D @ rows + self._compliance * dy)
            dy, D = dy + more[0], D + more[1]
        return dy, D

    def _reduced(self, K: Array, e: Array) -> tuple[Array, Array]:
        D = self._inverse(K + self._rows @ (self._weights * e))
        return self._weights * (D @ self._rows - e), D

    def _inverse(self, right: Array) -> Array:
        solution, _ = lapack.dpotrs(self._cholesky, right * self._scale, lower=1)
        return np.asarray(solution * self._scale)
