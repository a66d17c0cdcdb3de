"""Von Neumann projections by updates of an eigendecomposition: KSD09 algorithm 3.

M = W exp(Theta) W^T with log M = log(prior) - sum_i y_i A_i throughout. This differs from the paper in:

1. A row is any linear function of M, as squares. One or two take O(r^2) and one or two products of W with the
   new eigenvectors, a few as many such updates one after the other; a multiple of the trace takes O(r), as it
   only scales M; general rows take dense eigendecompositions.
2. Soft rows have Bregman or quadratic slack, eliminated: it is where the slope of the row's loss is y_i.
3. y_i >= 0 for "<=" and y_i <= 0 for ">="; the paper's v_i is |y_i|. The zero finder searches among steps for
   which y_i keeps its sign, instead of cutting a longer one.
4. The zero finder uses derivatives (`linalg.loops.search`): three evaluations or so, where the paper has six.
5. New eigenvectors come from the formula of Gu and Eisenstat, so that they stay orthogonal. Their product
   with W is dense below the order `eigenupdate.FAST_FROM`, and then a fast multipole method
   (`linalg.cauchy`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from nearwise._common.threads import LARGE_MATRIX, one_blas_thread
from nearwise._common.types import Array, Index
from nearwise.core.chords import chords
from nearwise.core.formulation import Formulation
from nearwise.linalg import eigenupdate
from nearwise.papers.engine import FEW, Engine, slack_laws

# Relative size of singular values of a factor from which on they are 0: their squares would be denormal
# numbers, which are slow.
_NEGLIGIBLE = 1e-140

# The order of M per square of a row, from which on updates by one square after the other are faster than a
# dense eigendecomposition. Measured: between 15 and 25 for 3 to 8 squares, up to order 200, and twice that at
# order 400, where either takes at most a third longer than the other.
_ORDER_PER_SQUARE = 20

_ROUNDING = 1e-13  # relative, in the matrix of a row that is a multiple of I


class VonNeumannEngine(Engine):
    """The engine for von Neumann.

    Attributes
    ----------
    projections : how many projections moved M
    evaluations : how many evaluations of <A, M> their zero finder took, those before the step included
    """

    def __init__(self, form: Formulation) -> None:
        from nearwise.linalg.loops import search, secular, von_neumann as kernels

        super().__init__(form)
        self._kernels, self._search = kernels, search
        r, s, loss = form.order, self.squares, form.loss
        is_bregman, compliance = slack_laws(loss)
        by_logarithms = (is_bregman | loss.is_hard) & loss.is_definite & (loss.bounds > 0)
        otherwise = np.where(is_bregman, search.EXPONENTIAL, search.VALUES)
        equation = np.where(by_logarithms, search.LOGARITHMS, otherwise).astype(np.int8)
        squares = s.start, s.first, s.second, s.sign, s.coefficient, s.features
        self._rows = kernels.Rows(*squares, loss.relations, loss.bounds, compliance, equation)
        long = map(int, np.flatnonzero(s.counts >= max(r, FEW + 1)))
        self._traces = {row: self._trace(row) for row in long}  # of the trace of M, where a row is one
        self._state = kernels.State(np.empty(r), np.empty((r, r)), self.dual, np.zeros(2, np.int64))
        self._room = kernels.Room(
            secular.workspace(r),
            secular.workspace(r),
            np.zeros((6, r)),
            np.zeros((4, r)),
            np.zeros(search.STATE),
            np.zeros((2, r)),
        )
        self._is_compiled = r < eigenupdate.FAST_FROM
        self._spare = np.empty((r, r))
        self._matrices = (np.empty(r * r), np.empty((r, r)), self._spare) if self._is_compiled else ()
        self.refresh(form.rows.adjoint(self.dual))

    @property
    def projections(self) -> int:
        return int(self._state.counts[self._kernels.PROJECTIONS])

    @property
    def evaluations(self) -> int:
        return int(self._state.counts[self._kernels.EVALUATIONS])

    @property
    def note(self) -> str:
        mean = self.evaluations / max(self.projections, 1)
        return f"{self.projections} projections, {mean:.1f} evaluations of the zero finder each"

    def factor(self) -> Array:
        root = np.exp(self._state.theta / 2)
        return np.asarray(self._state.vectors.T * np.where(root > _NEGLIGIBLE * root.max(), root, 0.0))

    def drift(self, adjoint: Array) -> float:
        """The largest entry of W^T W - I, or of the error of log M, relative to max(1, |log M|)."""
        theta, vectors = self._state.theta, self._state.vectors
        orthogonality = np.abs(vectors @ vectors.T - np.eye(len(theta))).max(initial=0.0)
        error = np.abs((vectors.T * theta) @ vectors - self.form.theta(adjoint)).max(initial=0.0)
        return float(max(orthogonality, error / max(1.0, np.abs(theta).max(initial=0.0))))

    def refresh(self, adjoint: Array) -> None:
        theta, W = np.linalg.eigh(self.form.theta(adjoint))
        self._state.theta[:] = theta
        self._state.vectors[:] = W.T

    def _project_few(self, rows: Index) -> None:
        if self._is_compiled:
            with one_blas_thread(self.form.order > LARGE_MATRIX):
                self._kernels.sweep(rows, self._rows, self._state, self._room, *self._matrices)
            return
        for row in rows:
            if self._kernels.solve_row(row, self._rows, self._state, self._room) != 0.0:
                for workspace in (self._room.first, self._room.second)[: self.squares.counts[row]]:
                    old, new = self._state.vectors, self._spare
                    eigenupdate.RankOneUpdate(workspace).applied(old, new)
                    self._state, self._spare = self._state._replace(vectors=new), old

    def _project_many(self, row: int) -> None:
        """By eigendecompositions of log M - delta A for the steps delta that the zero finder asks for."""
        kernels, search, rows = self._kernels, self._search, self._rows
        theta, y = self._state.theta, float(self.dual[row])
        trial, least_eigenvalue, largest_eigenvalue = self._trials(row)
        growth, decay = max(largest_eigenvalue, 0.0), max(-least_eigenvalue, 0.0)
        if growth + decay == 0.0:
            return
        equation = int(rows.form[row])
        least, most = kernels.step_limits(theta[0], theta[-1], growth, decay, int(rows.relation[row]), y)
        search.begin(self._room.search, least, most, 1.0 / (growth + decay))
        delta, evaluations, is_done = 0.0, 0, False
        while not is_done:
            at = trial(delta)
            evaluations += 1
            f, scale, response, tol = search.residual(
                equation, at.theta[-1], at.value, at.size, rows.bound[row], rows.compliance[row], y, delta
            )
            if abs(f) <= tol or (f > 0 and delta >= most) or (f < 0 and delta <= least):
                break
            slope = -scale * at.slope() - response
            delta, is_done = search.advance(self._room.search, delta, f, slope, equation != search.LOGARITHMS)
        if delta != 0.0:
            self._state.counts[:] += 1, evaluations
            self.dual[row] = 0.0 if delta == -y else y + delta
            self._rotate(at.theta, at.rotate)

    def _move(self, row: int, step: float) -> None:
        """Subtract step A from log M."""
        X, c = self.squares.of_row(row)
        theta, _, rotate = decomposed(self._state.theta, X @ self._state.vectors.T, -step * c)
        self._rotate(theta, rotate)

    def _rotate(self, theta: Array, rotate: Rotation) -> None:
        self._state.vectors[:] = rotate(self._state.vectors)
        self._state.theta[:] = theta

    def _trials(self, row: int) -> tuple[Callable[[float], Trial], float, float]:
        """What measures a row after a step, and the least and the largest eigenvalue of its matrix."""
        theta = self._state.theta.copy()
        if (weight := self._traces.get(row)) is not None:
            return partial(_of_trace, theta, weight), weight, weight
        X, c = self.squares.of_row(row)
        vectors = X @ self._state.vectors.T
        low, high = extreme_eigenvalues(vectors, c)

        def trial(delta: float) -> Trial:
            m, V, rotate = decomposed(theta, vectors, -delta * c)
            t = m - m[-1]
            e, squares = np.exp(t), V**2

            def slope() -> float:
                law = self.form.divergence
                return float(np.vdot(((V.T * c) @ V) ** 2, chords(law, t[:, None], t, e[:, None], e)))

            return Trial(m, float(e @ (c @ squares)), float(e @ (np.abs(c) @ squares)), slope, rotate)

        return trial, low, high

    def _trace(self, row: int, tol: float = _ROUNDING) -> float | None:
        """Where A_i is w I, up to `tol`: w, else None. The row is w times the trace of M."""
        X, c = self.squares.of_row(row)
        r = X.shape[1]
        A = (X.T * c) @ X
        weight = float(np.trace(A)) / r
        return weight if weight and np.abs(A - weight * np.eye(r)).max() <= tol * abs(weight) else None


Rotation = Callable[[Array], Array]  # W^T -> the new one: eigenvectors are its rows


class Trial(NamedTuple):
    """A row after a trial step; value, size and slope are in units of the largest eigenvalue of M.

    Attributes
    ----------
    theta : eigenvalues of log M
    value, size : <A, M>, and what it would be if all squares counted positively
    slope : how fast the value falls with the step
    rotate : takes eigenvectors to the new ones
    """

    theta: Array
    value: float
    size: float
    slope: Callable[[], float]
    rotate: Rotation


def decomposed(theta: Array, vectors: Array, weights: Array) -> tuple[Array, Array, Rotation]:
    """Eigenvalues of diag(theta) + sum_t weight_t v_t v_t^T, the v_t in its eigenbasis Q, and Q^T.

    By one square after the other, O(r^2) each, where they are few; else by a dense decomposition.
    """
    if not weights.any():
        return theta, vectors, np.asarray
    if _ORDER_PER_SQUARE * len(weights) > len(theta):
        m, Q = np.linalg.eigh(np.diag(theta) + (vectors.T * weights) @ vectors)
        return m, vectors @ Q, lambda rows: np.asarray(Q.T @ rows)
    m, updates = theta, []
    for t, weight in enumerate(weights):
        updates.append(eigenupdate.rank_one_update(m, vectors[t], weight))
        m, vectors = updates[-1].values, np.array([updates[-1].transposed(v) for v in vectors])

    def rotate(rows: Array) -> Array:
        for update in updates:
            rows = update.applied(rows)
        return rows

    return m, vectors, rotate


def extreme_eigenvalues(X: Array, c: Array) -> tuple[float, float]:
    """The least and the largest eigenvalue of X^T diag(c) X."""
    R = np.asarray(np.linalg.qr(X.T, mode="r"))
    found = np.linalg.eigvalsh((R * c) @ R.T)
    outside = [0.0] if len(found) < X.shape[1] else []
    return float(min([*found, *outside])), float(max([*found, *outside]))


def _of_trace(theta: Array, weight: float, delta: float) -> Trial:
    """A multiple of the trace, after a step."""
    m = theta - delta * weight
    total = float(np.exp(m - m[-1]).sum())
    return Trial(m, weight * total, abs(weight) * total, lambda: weight * weight * total, np.asarray)
