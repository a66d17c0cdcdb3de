"""LogDet projections in O(r^2): KSD09 algorithm 2, and with slack JKDD12 algorithm 1.

M^-1 = diag(1/prior) + sum_i y_i A_i throughout. This differs from the papers in:

1. A row is any linear function of M, as squares. One square has the papers' closed form. For two (those of a
   comparison or an inner product) the step solves a quadratic equation, or is the root of a monotone function
   of two eigenvalues; for k squares it is that of k eigenvalues. M changes by one rank-one update per square,
   or by one dense eigendecomposition where k is not small beside r.
2. The slack variable xi_i of JKDD12 is eliminated: it is where the slope of the row's loss is y_i.
3. y_i >= 0 for "<=" and y_i <= 0 for ">="; the papers' lambda_i is |y_i|.
4. B is upper triangular and its transpose is stored, so that compiled loops run along rows of memory from
   their first entry on. KSD09 algorithm 1, for a lower triangular one, is in `linalg.loops.logdet`.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.core.formulation import Formulation
from nearwise.papers.engine import Engine, slack_laws

# Of eigenvalues of B^T A B, relative to the largest, times their number: zeros moved by rounding, which a
# step would take for poles.
_ROUNDING = 1e-15


class LogDetEngine(Engine):
    """The engine for LogDet. It keeps an upper triangular B with M = B B^T, or M itself if not `factored`.

    Attributes
    ----------
    projections : how many projections were made
    """

    def __init__(self, form: Formulation, factored: bool = True) -> None:
        super().__init__(form)
        self.factored, self.projections = factored, 0
        self._state = np.diag(np.sqrt(form.prior) if factored else form.prior)  # B^T or M
        self._scratch = np.empty((6, form.order))
        s, loss = self.squares, form.loss
        is_bregman, compliance = slack_laws(loss)
        self._squares = s.features, s.first, s.second, s.sign, s.coefficient
        self._conditions = loss.relations, loss.bounds, compliance, is_bregman, loss.is_definite

    @property
    def note(self) -> str:
        return f"{self.projections} projections"

    def tracked(self, row: int, values: Array) -> Array:
        """Project onto one row; the values of all rows after that, from those before, in O(n r + m)."""
        X, c = self.squares.of_row(row)
        before, image = self.dual[row], self._times(X.T)
        self.sweep(np.array([row]))
        step = self.dual[row] - before
        if step == 0:
            return values
        # M' = M + image change image^T, by Woodbury's formula
        change = -step * c[:, None] * np.linalg.inv(np.eye(len(c)) + step * (X @ image) * c)
        e, Q = np.linalg.eigh((change + change.T) / 2)
        moved = image @ (Q * np.sqrt(np.abs(e)))
        measured = self.form.rows.values
        return values + measured(moved[:, e > 0]) - measured(moved[:, e < 0])

    def factor(self) -> Array:
        if self.factored:
            return np.ascontiguousarray(self._state.T)
        return np.asarray(np.linalg.cholesky((self._state + self._state.T) / 2))

    def drift(self, adjoint: Array) -> float:
        """The largest entry of B^T M^-1 B - I."""
        B = self.factor()
        return float(np.abs(B.T @ self.form.theta(adjoint) @ B + np.eye(len(B))).max(initial=0.0))

    def refresh(self, adjoint: Array) -> None:
        found = self.form.divergence.minimiser(self.form.theta(adjoint))
        if found is None:
            raise np.linalg.LinAlgError("rounding has left no matrix that belongs to these multipliers")
        transposed = np.ascontiguousarray(found[0].T)
        self._state = transposed if self.factored else transposed.T @ transposed

    def _project_few(self, rows: Index) -> None:
        from nearwise.linalg.loops import logdet

        self.projections += len(rows)
        F, *squares = self._squares
        logdet.sweep(
            F,
            self.squares.start,
            *squares,
            *self._conditions,
            rows,
            self._state,
            self.factored,
            self.dual,
            self._scratch,
        )

    def _project_many(self, row: int) -> None:
        """By the eigenvalues of B^T A B, of which as many are not 0 as A has squares."""
        from nearwise.linalg.loops import logdet

        self.projections += 1
        X, c = self.squares.of_row(row)
        is_low_rank = 2 * len(c) <= X.shape[1]
        if is_low_rank:
            d, V = np.linalg.eigh(X @ self._times(X.T))
            root = V * np.sqrt(np.maximum(d, 0.0))
            e = np.linalg.eigvalsh(root.T @ (c[:, None] * root))
        else:
            B = self.factor()
            W = (X @ B).T
            e, Q = np.linalg.eigh((W * c) @ W.T)
        e[np.abs(e) <= _ROUNDING * len(e) * np.abs(e).max(initial=0.0)] = 0.0
        nonzero = e[e != 0]
        conditions = (condition[row] for condition in self._conditions)
        step = logdet.projection_step(nonzero, len(nonzero), *conditions, self.dual[row])
        self.dual[row] += step
        if is_low_rank:
            low, high = map(int, self.squares.start[row : row + 2])
            logdet.apply_squares(*self._squares, low, high, step, self._state, self.factored, self._scratch)
            return
        changed = (B @ Q) / np.sqrt(1 + step * e)
        self._state = _triangular(changed) if self.factored else changed @ changed.T

    def _times(self, X: Array) -> Array:
        """M X."""
        return self._state.T @ (self._state @ X) if self.factored else self._state @ X


def _triangular(B: Array) -> Array:
    """A lower triangular S with S^T S = B B^T."""
    upper = np.asarray(np.linalg.qr(B.T[:, ::-1], mode="r"))
    return np.ascontiguousarray(upper[::-1, ::-1])
