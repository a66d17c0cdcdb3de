"""Exact LogDet projections with dual corrections: KSD09 algorithm 2, with slack as in JKDD12 algorithm 1.

M^-1 = diag(1/prior) + sum_i y_i A_i throughout. A projection onto row i changes y_i, and M by an update of
the rank of A_i. Rows of one or two squares (distances, comparisons, inner products, single diagonal entries)
take O(r^2) in a compiled loop; rows of higher rank k the eigenvalues of a k x k matrix and k such updates, or
one dense eigendecomposition where k is not small beside r.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.model.formulation import Formulation
from nearwise.model.measurements import in_memory

COMPILED_RANK = 2  # squares of a row, at most, for which the compiled loop has formulas


class LogDetEngine:
    """M and its multipliers, changed by one projection after the other.

    Parameters
    ----------
    form : what is solved
    factored : whether to keep an upper triangular B with M = B B^T (KSD09 algorithm 1), or M itself

    Attributes
    ----------
    dual : the multipliers y
    projections : how many projections were made
    """

    def __init__(self, form: Formulation, factored: bool = True) -> None:
        r = len(form.prior)
        self.form, self.factored = form, factored
        self.measurements = in_memory(form.measurements, "CyclicProjections")
        self.dual = np.zeros(form.measurements.n_rows)
        self.projections = 0
        self._state = np.diag(np.sqrt(form.prior)) if factored else np.diag(form.prior)
        self._scratch = np.empty((6, r))
        squares, losses = self.measurements.squares, form.losses
        self._rank = np.diff(squares.start)
        self._rows = (
            np.ascontiguousarray(self.measurements.features),
            squares.start,
            squares.first,
            squares.second,
            squares.sign,
            squares.coefficient,
            losses.relations,
            losses.bounds,
            losses.compliance,
            losses.is_bregman,
            losses.is_definite,
        )

    @property
    def largest_rank(self) -> int:
        """Of the rows, in squares."""
        return int(self._rank.max(initial=0))

    @property
    def note(self) -> str:
        return f"{self.projections} projections"

    def sweep(self, rows: Index) -> None:
        """Project onto the given rows in turn."""
        from nearwise.linalg.loops import logdet

        self.projections += len(rows)
        for part, compiled in _runs(self._rank[rows] <= COMPILED_RANK):
            if compiled:
                logdet.sweep(*self._rows, rows[part], self._state, self.factored, self.dual, self._scratch)
            else:
                for row in rows[part]:
                    self._project_by_hand(row)

    def tracked(self, row: int, values: Array) -> Array:
        """Project onto one row; the values of all rows after that, from those before, in O(n r + m)."""
        squares, F = self.measurements.squares, self.measurements.features
        X, c = self.measurements.squares_of(row)
        image = self._times(X.T)
        before = self.dual[row]
        self.sweep(np.array([row]))
        step = self.dual[row] - before
        if step == 0:
            return values
        change = -step * c[:, None] * np.linalg.inv(np.eye(len(c)) + step * (X @ image) * c)
        H = F @ image
        vectors = H[squares.first] + squares.sign[:, None] * H[squares.second]
        per_square = squares.coefficient * np.einsum("ij,jk,ik->i", vectors, change, vectors)
        return values + np.add.reduceat(per_square, squares.start[:-1])

    def factor(self) -> Array:
        """B with M = B B^T."""
        if self.factored:
            return np.ascontiguousarray(self._state.T)
        return np.asarray(np.linalg.cholesky((self._state + self._state.T) / 2), np.float64)

    def spectrum(self) -> None:
        """Not at hand."""

    def drift(self, pullback: Array) -> float:
        """How far rounding has taken M from its multipliers: the largest entry of B^T M^-1 B - I."""
        factor = self.factor()
        inverse = np.diag(1 / self.form.prior) + pullback
        return float(np.abs(factor.T @ inverse @ factor - np.eye(len(factor))).max(initial=0.0))

    def refresh(self, pullback: Array) -> None:
        """M from the multipliers."""
        inverse = np.diag(1 / self.form.prior) + pullback
        transposed = np.tril(np.linalg.inv(np.linalg.cholesky(inverse)))
        self._state = transposed if self.factored else transposed.T @ transposed

    def _project_by_hand(self, row: int) -> None:
        """Onto a row of more squares than the compiled loop has formulas for."""
        from nearwise.linalg.loops import logdet

        X, c = self.measurements.squares_of(row)
        few = 2 * len(c) <= X.shape[1]
        if few:
            d, V = np.linalg.eigh(X @ self._times(X.T))
            root = V * np.sqrt(np.maximum(d, 0.0))
            e = np.linalg.eigvalsh(root.T @ (c[:, None] * root))
        else:
            B = self.factor()
            W = (X @ B).T
            e, Q = np.linalg.eigh((W * c) @ W.T)
        e[np.abs(e) <= 1e-15 * np.abs(e).max(initial=0.0) * len(e)] = 0.0
        nonzero, losses = e[e != 0], self.form.losses
        step = logdet.projection_step(
            nonzero,
            len(nonzero),
            losses.relations[row],
            losses.bounds[row],
            losses.compliance[row],
            losses.is_bregman[row],
            losses.is_definite[row],
            self.dual[row],
        )
        self.dual[row] += step
        if few:
            start = self.measurements.squares.start
            squares = (*self._rows[0:1], *self._rows[2:6], int(start[row]), int(start[row + 1]))
            logdet.apply_squares(*squares, step, self._state, self.factored, self._scratch)
            return
        changed = (B @ Q) / np.sqrt(1 + step * e)
        self._state = _triangular(changed) if self.factored else changed @ changed.T

    def _times(self, X: Array) -> Array:
        """M X."""
        return self._state.T @ (self._state @ X) if self.factored else self._state @ X


def _triangular(B: Array) -> Array:
    """A lower triangular S with S^T S = B B^T."""
    upper = np.asarray(np.linalg.qr(B.T[:, ::-1], mode="r"), dtype=np.float64)
    return np.ascontiguousarray(upper[::-1, ::-1])


def _runs(flags: NDArray[np.bool_]) -> Iterator[tuple[slice, bool]]:
    """The stretches over which flags keep their value."""
    ends = [0, *(np.flatnonzero(np.diff(flags)) + 1), len(flags)]
    for low, high in itertools.pairwise(ends):
        if high > low:
            yield slice(low, high), bool(flags[low])
