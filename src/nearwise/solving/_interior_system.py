"""The linear system of an interior-point step, by a Gram matrix or by an orthogonal factorisation."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, qr

from nearwise._common.types import Array

_DEPENDENT = 1e-14  # added to the diagonal of the rows' Gram matrix, relatively: they may be dependent
_DEPENDENT_OF_ORTHOGONAL = 1e-24  # the same of the square of a row, where no Gram matrix is formed
_REFINEMENTS = 3  # of an orthogonal factorisation, for each that is asked for
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
            self._scale = 1 / np.sqrt(1 + gram.diagonal())
            gram *= self._scale[:, None] * self._scale
            diagonal = self._scale**2
        gram.reshape(-1)[:: len(gram) + 1] += diagonal
        for shift in _SHIFTS:
            self._cholesky, failed = lapack.dpotrf(gram, lower=1, clean=0)
            if not failed:
                break
            gram.reshape(-1)[:: len(gram) + 1] += shift * len(gram)

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


class OrthogonalSystem:
    """D + rows dy = K and rows^T D - compliance * dy = e, as `System`.

    They are the conditions of the least squares |D - K|^2 + |(rows^T D - e) / sqrt(compliance)|^2, and of the
    same in dy. Their QR factorisation has the square root of the condition that a Gram matrix has, so that
    rows that are dependent but for their last digits keep these; it takes a few times longer.
    """

    def __init__(self, rows: Array, compliance: Array) -> None:
        own = np.einsum("ij,ij->j", rows, rows)
        self.rows, self.compliance = rows, np.maximum(compliance, _DEPENDENT_OF_ORTHOGONAL * own + 1e-300)
        self.root = np.sqrt(self.compliance)
        self.in_rows = rows.shape[1] <= len(rows)
        stacked = (
            np.vstack([np.diag(self.root), rows])
            if self.in_rows
            else np.vstack([np.eye(len(rows)), (rows / self.root).T])
        )
        self.scale = 1 / np.maximum(np.sqrt(np.einsum("ij,ij->j", stacked, stacked)), 1e-300)
        stacked *= self.scale
        # Rows of very different sizes keep their digits if the large ones come first (Powell and Reid 1969).
        self.order = np.argsort(-np.abs(stacked).max(axis=1), kind="stable")
        self.Q, self.R, self.pivots = qr(
            stacked[self.order], mode="economic", pivoting=True, check_finite=False
        )

    @staticmethod
    def work(n_unknowns: int, n_rows: int) -> float:
        """About how many multiplications the factorisation takes."""
        return (n_rows + n_unknowns) * float(min(n_rows, n_unknowns)) ** 2

    def solve(self, K: Array, e: Array, refinements: int) -> tuple[Array, Array]:
        """dy and D."""
        dy, D = self._solve(K, e)
        for _ in range(_REFINEMENTS * refinements):
            more = self._solve(K - D - self.rows @ dy, e - D @ self.rows + self.compliance * dy)
            dy, D = dy + more[0], D + more[1]
        return dy, D

    def _solve(self, K: Array, e: Array) -> tuple[Array, Array]:
        if self.in_rows:
            dy = self._least_squares(np.concatenate([-e / self.root, K]))
            return dy, K - self.rows @ dy
        D = self._least_squares(np.concatenate([K, e / self.root]))
        return (D @ self.rows - e) / self.compliance, D

    def _least_squares(self, right: Array) -> Array:
        found, _ = lapack.dtrtrs(self.R, self.Q.T @ right[self.order])
        out = np.empty_like(found)
        out[self.pivots] = found
        return np.asarray(out * self.scale)
