"""DefiniteBoost: approximate von Neumann projections with a step in closed form, TRW05 section 4.

For matrices of fixed trace. With W = M / trace, a constraint <A, M> <= b becomes tr(W C) <= 0 where
C = A - (b / trace) I, and the step along C minimises an upper bound (Golden-Thompson) on what the exact
projection minimises. It needs no zero finder, and many more sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from nearwise._common.checks import one_of, positive
from nearwise._common.types import Array, Index
from nearwise.linalg.eigenupdate import rank_one_update
from nearwise.model.divergences import VonNeumann
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.measurements import InMemory
from nearwise.solving.projections import Order, check_schedule, sweeps
from nearwise.solving.von_neumann import VonNeumannEngine, multiple_of_trace

_TINY = 1e-300
_SAME = 1e-10  # relative difference of a row's matrix from a multiple of I that fixes the trace
_FEW_SQUARES = 2  # up to so many, rank-one updates are faster than a dense eigendecomposition


@dataclass(frozen=True)
class ApproximateProjections:
    """DefiniteBoost's steps with trace normalisation, and dual corrections; an iteration is a sweep.

    For the von Neumann divergence with hard constraints, one of which fixes the trace of M, for instance
    `constraints.linear(np.eye(n), 1.0, "==")` for an n x n kernel. It has the same optimum as exact
    projections (`CyclicProjections`) and takes many more sweeps to get there (KSD09 7.1). The result's
    message states the bound of TRW05 corollary 4.2 on the number of projections.

    Parameters
    ----------
    order : as for `CyclicProjections`; TRW05 takes the most violated row
    eigenvalues : what the step knows of a constraint's matrix C. "own" is the smallest and the largest
        eigenvalue of each C, which nearly gives the exact step for distances; "symmetric" is the
        interval [-lambda, lambda] that holds those of all of them, as in corollary 4.2 and in AdaBoost, with
        far shorter steps.
    epsilon : the accuracy for which the bound is stated: every constraint met up to epsilon times the trace
    multiplier_tol : as for `CyclicProjections`
    seed : of the random orders
    """

    max_iter: ClassVar[int] = 10_000
    returns_last: ClassVar[bool] = True

    order: Order = "shuffled"
    eigenvalues: Literal["own", "symmetric"] = "own"
    epsilon: float = 1e-3
    multiplier_tol: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_schedule(self)
        one_of(self.eigenvalues, "eigenvalues", ("own", "symmetric"))
        positive(self.epsilon, "epsilon")

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior scaled to the trace, then the point after each sweep."""
        engine = ApproximateEngine(form, self.eigenvalues == "symmetric")
        most = engine.most_projections(self.epsilon)
        bound = f"at most {most:.3g} are needed for violations below {self.epsilon:g} (TRW05 corollary 4.2)"
        for point in sweeps(engine, form, self):
            yield replace(point, note=f"{point.note}; {bound}")


class ApproximateEngine(VonNeumannEngine):
    """M of fixed trace and its multipliers, changed by one approximate projection after the other."""

    def __init__(self, form: Formulation, symmetric: bool = False) -> None:
        if not isinstance(form.divergence, VonNeumann):
            raise TypeError(f"ApproximateProjections knows VonNeumann only, not {form.divergence!r}")
        if not form.losses.is_hard.all():
            raise ValueError("ApproximateProjections takes hard constraints only: penalty=inf")
        super().__init__(form)
        self._trace_row, self._trace_weight = _trace_row(form, self.measurements)
        self._trace = float(form.losses.bounds[self._trace_row]) / self._trace_weight
        self._extent = self._eigenvalue_ranges()
        self._reach = float(np.abs(np.delete(self._extent, self._trace_row, axis=0)).max(initial=0.0))
        if symmetric:
            self._extent[:] = -self._reach, self._reach
        self._normalise()

    @property
    def note(self) -> str:
        return f"{self.projections} approximate projections"

    def sweep(self, rows: Index) -> None:
        """An approximate projection onto each of the given rows in turn."""
        for row in rows:
            if row != self._trace_row:
                self._project_approximately(int(row))

    def most_projections(self, epsilon: float) -> float:
        """2 lambda^2 log(d) / epsilon^2, where log(d) is the largest divergence to the prior."""
        share = self.form.prior / self.form.prior.sum()
        return math.ceil(2 * (self._reach / epsilon) ** 2 * -math.log(float(share.min())))

    def _project_approximately(self, row: int) -> None:
        """`definite_step`, and no further than to a multiplier of 0."""
        relation, bound = self.form.losses.relations[row], float(self.form.losses.bounds[row])
        theta, y = self._state.theta, float(self.dual[row])
        value = float(np.exp(theta) @ self._squares_in_eigenbasis(row))
        excess = (value - bound) / self._trace
        low, high = self._extent[row]
        if low < 0 < high:
            wanted = y + definite_step(excess, low, high)
        else:  # on one side of the bound lies every matrix of this trace
            wanted = 0.0 if excess * relation >= 0 else y + excess / max(-low, high)
        wanted = wanted if relation == 0 else -relation * max(-relation * wanted, 0.0)
        if wanted != y:
            self._move(row, wanted - y)
            self.dual[row] = wanted
            self._normalise()

    def _move(self, row: int, step: float) -> None:
        """Subtract step A from log M."""
        X, c = self.measurements.squares_of(row)
        self._state.counts[self._kernels.PROJECTIONS] += 1
        if len(c) > _FEW_SQUARES:
            logarithm = (self._state.vectors.T * self._state.theta) @ self._state.vectors
            theta, W = np.linalg.eigh(logarithm - step * (X.T * c) @ X)
            self._state.theta[:], self._state.vectors[:] = theta, W.T
            return
        for x, coefficient in zip(X, c, strict=True):
            update = rank_one_update(self._state.theta, self._state.vectors @ x, -step * coefficient)
            self._state.vectors[:] = update.applied(self._state.vectors)
            self._state.theta[:] = update.values

    def _normalise(self) -> None:
        """Scale M to its trace, which moves the multiplier of the trace."""
        theta = self._state.theta
        shift = math.log(self._trace) - float(np.logaddexp.reduce(theta))
        theta += shift
        self.dual[self._trace_row] -= shift / self._trace_weight

    def _squares_in_eigenbasis(self, row: int) -> Array:
        """The diagonal of W^T A W."""
        X, c = self.measurements.squares_of(row)
        return (self._state.vectors @ X.T) ** 2 @ c

    def _eigenvalue_ranges(self) -> Array:
        """The smallest and the largest eigenvalue of C = A - (b / trace) I of every row."""
        r = len(self.form.prior)
        ranges = np.empty((len(self.dual), 2))
        for row in range(len(self.dual)):
            X, c = self.measurements.squares_of(row)
            R = np.asarray(np.linalg.qr(X.T, mode="r"), dtype=np.float64)
            values = np.linalg.eigvalsh((R * c) @ R.T)
            outside = [0.0] if len(values) < r else []
            ranges[row] = min([*values, *outside]), max([*values, *outside])
        return ranges - (self.form.losses.bounds / self._trace)[:, None]


def definite_step(value: float, low: float, high: float) -> float:
    """By how much the multiplier of tr(W C) <= 0 rises: TRW05 (4.6), with the signs corrected.

    For W of trace one with tr(W C) = `value` and C with all eigenvalues in [low, high], low < 0 < high. After
    the exact step tr(W C) is zero; this one is never longer.
    """
    return math.log((1 - value / low) / max(1 - value / high, _TINY)) / (high - low)


def _trace_row(form: Formulation, measurements: InMemory) -> tuple[int, float]:
    """The equality whose matrix is a multiple of I, and that multiple."""
    for row in map(int, np.flatnonzero(form.losses.relations == 0)):
        if (weight := multiple_of_trace(measurements, row, _SAME)) is not None:
            return row, weight
    raise ValueError(
        "ApproximateProjections needs a constraint that fixes the trace of M, for a kernel of n objects "
        'nearwise.constraints.linear(np.eye(n), 1.0, "==")'
    )
