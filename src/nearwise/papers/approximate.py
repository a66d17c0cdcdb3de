"""DefiniteBoost: approximate von Neumann projections with a step in closed form, TRW05 section 4.

For matrices of fixed trace. With W = M / trace, a constraint <A, M> <= b becomes tr(W C) <= 0 where
C = A - (b / trace) I, and the step along C minimises an upper bound (Golden-Thompson) on what the exact
projection minimises. It needs no zero finder, and many more sweeps. This differs from the paper in:

1. The step (4.6) has the signs that its derivation gives; as printed it is right only for
   lambda_min = -lambda_max.
2. Multipliers may fall, and stop at zero. The paper's only rise, and its limit need not be the optimum
   (KSD09 appendix B).
3. Equations, lower bounds, and any order of rows, as in `projections`.
4. The trace may be any number. A constraint fixes it, whose multiplier is the normalisation's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nearwise._common.checks import one_of, positive
from nearwise._common.types import Array, Index
from nearwise.core.divergences import VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.papers.projections import Order, Sweeps
from nearwise.papers.von_neumann import VonNeumannEngine, extreme_eigenvalues

_TINY = 1e-300
_SAME = 1e-10  # relative difference of a row's matrix from a multiple of I that fixes the trace


@dataclass(frozen=True)
class ApproximateProjections(Sweeps):
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

    order: Order = "shuffled"
    eigenvalues: Literal["own", "symmetric"] = "own"
    epsilon: float = 1e-3
    multiplier_tol: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.eigenvalues, "eigenvalues", ("own", "symmetric"))
        positive(self.epsilon, "epsilon")

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior scaled to the trace, then the point after each sweep."""
        engine = ApproximateEngine(form, self.eigenvalues == "symmetric")
        most = engine.most_projections(self.epsilon)
        bound = f"at most {most:.3g} are needed for violations below {self.epsilon:g} (TRW05 corollary 4.2)"
        for point in self._points(engine):
            yield replace(point, note=f"{point.note}; {bound}")


class ApproximateEngine(VonNeumannEngine):
    """M of fixed trace and its multipliers, changed by one approximate projection after the other."""

    solver = "ApproximateProjections"

    def __init__(self, form: Formulation, symmetric: bool = False) -> None:
        if not isinstance(form.divergence, VonNeumann):
            raise TypeError(f"ApproximateProjections knows VonNeumann only, not {form.divergence!r}")
        if not form.loss.all_hard:
            raise ValueError("ApproximateProjections takes hard constraints only: penalty=inf")
        super().__init__(form)
        self._trace_row, self._trace_weight = self._fixed_trace()
        self._total = float(form.loss.bounds[self._trace_row]) / self._trace_weight
        self._ranges = self._eigenvalue_ranges()
        self._reach = float(np.abs(np.delete(self._ranges, self._trace_row, axis=0)).max(initial=0.0))
        if symmetric:
            self._ranges[:] = -self._reach, self._reach
        self._normalise()

    @property
    def note(self) -> str:
        return f"{self.projections} approximate projections"

    def sweep(self, rows: Index) -> None:
        """An approximate projection onto each of these rows, in this order."""
        for row in rows:
            if row != self._trace_row:
                self._project_approximately(int(row))

    def most_projections(self, epsilon: float) -> float:
        """2 lambda^2 log(d) / epsilon^2, where log(d) is the largest divergence to the prior."""
        share = self.form.prior / self.form.prior.sum()
        return math.ceil(2 * (self._reach / epsilon) ** 2 * -math.log(float(share.min())))

    def _project_approximately(self, row: int) -> None:
        """By `definite_step`, and no further than to a multiplier of 0."""
        relation, y = int(self.form.loss.relations[row]), float(self.dual[row])
        excess = (self._value(row) - float(self.form.loss.bounds[row])) / self._total
        low, high = self._ranges[row]
        if low < 0 < high:
            wanted = y + definite_step(excess, low, high)
        else:  # on one side of the bound lies every matrix of this trace
            wanted = 0.0 if excess * relation >= 0 else y + excess / max(-low, high)
        wanted = wanted if relation == 0 else -relation * max(-relation * wanted, 0.0)
        if wanted != y:
            self._move(row, wanted - y)
            self._state.counts[self._kernels.PROJECTIONS] += 1
            self.dual[row] = wanted
            self._normalise()

    def _value(self, row: int) -> float:
        """<A_i, M>."""
        X, c = self.squares.of_row(row)
        return float(c @ (X @ self._state.vectors.T) ** 2 @ np.exp(self._state.theta))

    def _normalise(self) -> None:
        """Scale M to its trace, which moves the multiplier of the trace."""
        theta = self._state.theta
        shift = math.log(self._total) - float(np.logaddexp.reduce(theta))
        theta += shift
        self.dual[self._trace_row] -= shift / self._trace_weight

    def _fixed_trace(self) -> tuple[int, float]:
        """The equality whose matrix is a multiple of I, and that multiple."""
        is_possible = (self.form.loss.relations == 0) & (self.squares.counts >= self.form.order)
        for row in map(int, np.flatnonzero(is_possible)):
            if (weight := self._trace(row, _SAME)) is not None:
                return row, weight
        raise ValueError(
            "ApproximateProjections needs a constraint that fixes the trace of M, for a kernel of n objects "
            'nearwise.constraints.linear(np.eye(n), 1.0, "==")'
        )

    def _eigenvalue_ranges(self) -> Array:
        """The smallest and the largest eigenvalue of C = A - (b / trace) I of every row."""
        ranges = [extreme_eigenvalues(*self.squares.of_row(row)) for row in range(len(self.dual))]
        return np.array(ranges) - (self.form.loss.bounds / self._total)[:, None]


def definite_step(value: float, low: float, high: float) -> float:
    """By how much the multiplier of tr(W C) <= 0 rises: TRW05 (4.6), with the signs corrected.

    For W of trace one with tr(W C) = `value` and C with all eigenvalues in [low, high], low < 0 < high. After
    the exact step tr(W C) is zero; this one is never longer.
    """
    return math.log((1 - value / low) / max(1 - value / high, _TINY)) / (high - low)
