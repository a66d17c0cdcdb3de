"""Von Neumann projections onto one row after the other: KSD09 algorithm 3, exact, with dual corrections.

The matrix is M = W exp(Theta) W^T with log M = log(prior) - sum_i y_i A_i, where y are the multipliers. A
projection onto row i finds the step delta for which M meets the row's optimality condition, takes as much of
it as the sign of y_i allows, and updates the eigendecomposition. Rows of one square (distances, K_ii) or two
(comparisons, inner products) do so in O(r^2) besides one or two products of W with the new eigenvectors, rows
of few squares by as many such updates one after the other, a multiple of the trace in O(r), since M is only
scaled; general rows by dense eigendecompositions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from nearwise._common.threads import LARGE_MATRIX, one_blas_thread
from nearwise._common.types import Array, Index
from nearwise.linalg import eigenupdate
from nearwise.model.divergences import VonNeumann, divided_differences
from nearwise.model.formulation import Formulation
from nearwise.model.measurements import InMemory, in_memory

_NEGLIGIBLE = 1e-140  # relative size of singular values of a factor that make no difference to anything
_FEWER = 20  # times the squares of a row: the order from which on updates by each of them are faster
_LAW = VonNeumann()


class VonNeumannEngine:
    """The state of a run of von Neumann projections.

    Parameters
    ----------
    form : a problem under the von Neumann divergence
    dual : multipliers to start from, zeros by default: M is the prior then

    Attributes
    ----------
    dual : one multiplier per row
    projections : how many projections moved M
    evaluations : how many evaluations of p(delta) their zero finder took, the one at delta = 0 included
    """

    def __init__(self, form: Formulation, dual: Array | None = None) -> None:
        from nearwise.linalg.loops import search, secular, von_neumann as kernels

        self._kernels, self._search = kernels, search
        self.form = form
        self.measurements = in_memory(form.measurements, "CyclicProjections")
        losses, squares = form.losses, self.measurements.squares
        r, m = len(form.prior), form.measurements.n_rows
        logarithms = (losses.is_bregman | losses.is_hard) & losses.is_definite & (losses.bounds > 0)
        equation = np.where(
            logarithms, search.LOGARITHMS, np.where(losses.is_bregman, search.EXPONENTIAL, search.VALUES)
        )
        self._rows = kernels.Rows(
            squares.start,
            squares.first,
            squares.second,
            squares.sign,
            squares.coefficient,
            np.ascontiguousarray(self.measurements.features),
            losses.relations,
            losses.bounds,
            losses.compliance,
            equation.astype(np.int8),
        )
        self._n_squares = np.diff(squares.start)
        self._traces: dict[
            int, float | None
        ] = {}  # of rows that were met, which multiple of the trace they are
        self._state = kernels.State(
            np.empty(r),
            np.empty((r, r)),
            np.zeros(m) if dual is None else np.array(dual, dtype=np.float64),
            np.zeros(2, np.int64),
        )
        self._room = kernels.Room(
            secular.workspace(r),
            secular.workspace(r),
            np.zeros((6, r)),
            np.zeros((4, r)),
            np.zeros(search.STATE),
            np.zeros((2, r)),
        )
        self._compiled = r < eigenupdate.FAST_FROM
        self._spare = np.empty((r, r))
        self._matrices = (np.empty(r * r), np.empty((r, r)), self._spare) if self._compiled else ()
        self.refresh(form.measurements.adjoint(self.dual))

    @property
    def dual(self) -> Array:
        return self._state.dual

    @property
    def projections(self) -> int:
        return int(self._state.counts[self._kernels.PROJECTIONS])

    @property
    def evaluations(self) -> int:
        return int(self._state.counts[self._kernels.EVALUATIONS])

    def sweep(self, rows: Index) -> None:
        """Project onto these rows, in this order, once each."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        short = self._n_squares[rows] <= 2
        for run in np.split(rows, np.flatnonzero(np.diff(short)) + 1):
            if not len(run):
                continue
            if self._n_squares[run[0]] > 2:
                for row in run:
                    self._project_densely(int(row))
            elif self._compiled:
                with one_blas_thread(len(self.form.prior) > LARGE_MATRIX):
                    self._kernels.sweep(run, self._rows, self._state, self._room, *self._matrices)
            else:
                for row in run:
                    self._project(int(row))

    @property
    def note(self) -> str:
        mean = self.evaluations / max(self.projections, 1)
        return f"{self.projections} projections, {mean:.1f} evaluations of the zero finder each"

    def tracked(self, row: int, values: Array) -> Array:
        """Project onto one row; the values of all rows after that, measured anew."""
        before = self.projections
        self.sweep(np.array([row]))
        unchanged = self.projections == before
        return values if unchanged else self.form.measurements.values_of_factor(self.factor())

    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues of M, ascending, and its eigenvectors as columns."""
        return np.exp(self._state.theta), self._state.vectors.T.copy()

    def factor(self) -> Array:
        """B with M = B B^T."""
        root = np.exp(self._state.theta / 2)
        # squares of what is negligible would be denormal numbers, which are slow
        factor: Array = self._state.vectors.T * np.where(root > _NEGLIGIBLE * root.max(), root, 0.0)
        return factor

    def drift(self, pullback: Array) -> float:
        """How far rounding errors have led away from W^T W = I and log M = log(prior) - sum_i y_i A_i.

        The larger of the largest entries of both differences, the second relative to the largest |theta|
        where that exceeds 1. `pullback` is the sum.
        """
        theta, vectors = self._state.theta, self._state.vectors
        orthogonality = np.abs(vectors @ vectors.T - np.eye(len(theta))).max(initial=0.0)
        logarithm = np.diag(np.log(self.form.prior)) - pullback
        identity = np.abs((vectors.T * theta) @ vectors - logarithm).max(initial=0.0)
        return float(max(orthogonality, identity / max(1.0, np.abs(theta).max(initial=0.0))))

    def refresh(self, pullback: Array) -> None:
        """Compute the eigendecomposition anew from the multipliers, which removes all drift."""
        theta, W = np.linalg.eigh(np.diag(np.log(self.form.prior)) - pullback)
        self._state.theta[:] = theta
        self._state.vectors[:] = W.T

    def _project(self, row: int) -> None:
        """Onto a row of at most two squares, with the fast product of eigenvectors."""
        if self._kernels.solve_row(row, self._rows, self._state, self._room) != 0.0:
            for workspace in (self._room.first, self._room.second)[: self._n_squares[row]]:
                old, new = self._state.vectors, self._spare
                eigenupdate.RankOneUpdate(workspace).applied(old, new)
                self._state, self._spare = self._state._replace(vectors=new), old

    def _project_densely(self, row: int) -> None:
        """Onto any row, by eigendecompositions of its own."""
        kernels, search, state, rows = self._kernels, self._search, self._state, self._rows
        theta, y = state.theta, float(state.dual[row])
        measured, least_eigenvalue, largest_eigenvalue = self._measuring(row)
        growth, decay = max(largest_eigenvalue, 0.0), max(-least_eigenvalue, 0.0)
        if growth + decay == 0.0:
            return
        relation, form = int(rows.relation[row]), int(rows.form[row])
        least, most = kernels.step_limits(theta[0], theta[-1], growth, decay, relation, y)
        search.begin(self._room.search, least, most, 1.0 / (growth + decay))
        delta, evaluations, done = 0.0, 0, False
        while not done:
            at = measured(delta)
            evaluations += 1
            f, scale, pull, tol = search.residual(
                form, at.theta[-1], at.value, at.total, rows.bound[row], rows.compliance[row], y, delta
            )
            if abs(f) <= tol or (f > 0 and delta >= most) or (f < 0 and delta <= least):
                break
            slope = -scale * at.slope() - pull
            delta, done = search.advance(self._room.search, delta, f, slope, form != search.LOGARITHMS)
        if delta == 0.0 or at.turn is None:
            return
        state.counts[:] += 1, evaluations
        state.dual[row] = 0.0 if delta == -y else y + delta
        state.theta[:] = at.theta
        state.vectors[:] = at.turn(state.vectors)

    def _measuring(self, row: int) -> tuple[Callable[[float], _Measured], float, float]:
        """What measures a row after a step, and the least and the largest eigenvalue of its matrix."""
        theta, W = self._state.theta.copy(), self._state.vectors
        if row not in self._traces:
            self._traces[row] = multiple_of_trace(self.measurements, row)
        if (weight := self._traces[row]) is not None:
            return partial(_scaled, theta, weight), weight, weight
        x, c = self.measurements.squares_of(row)
        vectors = x @ W.T
        R = np.asarray(np.linalg.qr(vectors.T, mode="r"), dtype=np.float64)
        extent = np.linalg.eigvalsh((R * c) @ R.T)
        decomposed = _updated if _FEWER * len(c) <= len(theta) else _decomposed

        def measured(delta: float) -> _Measured:
            m, turned, turn = theta, vectors, None
            if delta != 0.0:
                m, turned, turn = decomposed(theta, vectors, -delta * c)
            e, squares = np.exp(m - m[-1]), turned**2

            def slope() -> float:
                S = (turned.T * c) @ turned
                return float(np.sum(S**2 * divided_differences(_LAW, m - m[-1])))

            return _Measured(m, float(e @ (c @ squares)), float(e @ (np.abs(c) @ squares)), slope, turn)

        return measured, float(extent[0]), float(extent[-1])


class _Measured(NamedTuple):
    """A row after a step; in units of the largest eigenvalue of M.

    Attributes
    ----------
    theta : eigenvalues of log M
    value, total : of the row, and what the magnitudes of its parts add up to
    slope : how fast the value falls with the step
    turn : takes eigenvectors to the new ones; None where there was no step
    """

    theta: Array
    value: float
    total: float
    slope: Callable[[], float]
    turn: Callable[[Array], Array] | None


def multiple_of_trace(measurements: InMemory, row: int, tol: float = 1e-13) -> float | None:
    """How many times the trace of M a row is, where its matrix is a multiple of I up to `tol`; else None."""
    r = measurements.rank
    if measurements.squares.start[row + 1] - measurements.squares.start[row] < r:
        return None
    A = measurements.adjoint(np.eye(1, measurements.n_rows, row)[0])
    weight = float(np.trace(A)) / r
    return weight if weight and np.abs(A - weight * np.eye(r)).max() <= tol * abs(weight) else None


def _scaled(theta: Array, weight: float, delta: float) -> _Measured:
    """A multiple of the trace, after a step."""
    m = theta - delta * weight
    total = float(np.exp(m - m[-1]).sum())
    turn = None if delta == 0.0 else np.asarray
    return _Measured(m, weight * total, abs(weight) * total, lambda: weight * weight * total, turn)


Decomposed = tuple[Array, Array, Callable[[Array], Array]]


def _decomposed(theta: Array, vectors: Array, weights: Array) -> Decomposed:
    """Eigenvalues of diag(theta) + sum_t weight_t v_t v_t^T, the v_t in its eigenbasis Q, and Q^T."""
    m, Q = np.linalg.eigh(np.diag(theta) + (vectors.T * weights) @ vectors)
    return m, vectors @ Q, lambda rows: np.asarray(Q.T @ rows)


def _updated(theta: Array, vectors: Array, weights: Array) -> Decomposed:
    """The same, by one square after the other, O(r^2) each."""
    m, turned, updates = theta, vectors, []
    for t, weight in enumerate(weights):
        updates.append(eigenupdate.rank_one_update(m, turned[t], weight))
        m, turned = updates[-1].values, np.array([updates[-1].transposed(v) for v in turned])

    def turn(rows: Array) -> Array:
        for update in updates:
            rows = update.applied(rows)
        return rows

    return m, turned, turn
