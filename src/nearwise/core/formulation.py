"""The mathematics of a problem, and the only judge of points.

The problem is to minimise D(M, diag(prior)) + sum_i loss_i(<A_i, M>) over M >= 0. Its dual (KSD09 section 2):
for any multipliers y, M^ = argmin phi(M) - <theta, M> over M >= 0 with theta = phi'(prior) - sum_i y_i A_i
minimises the Lagrangian, so that

    objective(M) - bound(y) = D(M, M^) + sum_i [loss_i(p_i) + conjugate_i(y_i) - y_i p_i],     p_i = <A_i, M>.

This is how the gap is computed: a sum of terms >= 0 for a feasible M, in which nothing cancels. Where y are
the slopes of the losses at p, the sum over rows is zero, and at a share t of these slopes it is at most
(1 - t) sum_i loss_i(p_i), as conjugates are convex and zero at 0: rows in pieces need no second pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array
from nearwise.core import farkas, scaling
from nearwise.core.certificate import Certificate, InfeasibilityCheck, relative_gap
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.iterates import Iterate
from nearwise.core.losses import Loss
from nearwise.core.measured import InMemory, Measured
from nearwise.core.rows import Rows

# Of multipliers outside the dual's domain, until they lie inside: a share of 1e-12 proves nothing any more.
HALVINGS = 40

# Of an objective, relative to the sizes that it is summed up from: gaps below it are gaps of zero.
ROUNDING = 1e-15


class Certified(NamedTuple):
    """A certificate and the multipliers that prove it.

    Attributes
    ----------
    certificate : names no constraint yet
    dual : None where they are `share` times the slopes of the losses; `Formulation.multipliers` has these
    share : of the multipliers of the iterate
    """

    certificate: Certificate
    dual: Array | None
    share: float = 1.0


class _AtPoint(NamedTuple):
    """What rows have to do with a certificate.

    Attributes
    ----------
    cost : sum_i loss_i(p_i)
    dual, adjoint : multipliers, as in `Certified`, and sum_i y_i A_i
    residual : of a share of the multipliers, sum_i loss_i(p_i) + conjugate_i(y_i) - y_i p_i
    violation, hard_violation, satisfied : as in `Certificate`
    """

    cost: float
    dual: Array | None
    adjoint: Array
    residual: Callable[[float], float]
    violation: float
    hard_violation: float
    satisfied: float


@dataclass(frozen=True, eq=False)
class Formulation:
    """minimise D(M, diag(prior)) + sum_i loss_i(<A_i, M>) over M >= 0.

    Attributes
    ----------
    divergence : D
    prior : its eigenvalues; M is expressed in its eigenbasis
    measured : the rows A_i with their losses, in memory or in pieces
    """

    divergence: SpectralDivergence
    prior: Array
    measured: Measured

    @classmethod
    def of(cls, divergence: SpectralDivergence, prior: Array, rows: Rows, loss: Loss) -> Formulation:
        """With rows in memory."""
        return cls(divergence, prior, InMemory(rows, loss))

    @property
    def order(self) -> int:
        """r, of M."""
        return len(self.prior)

    @property
    def rows(self) -> Rows:
        """The linear map M -> <A_i, M>, which rows in pieces do not have."""
        return self._in_memory.rows

    @property
    def loss(self) -> Loss:
        """What values cost, which rows in pieces do not have."""
        return self._in_memory.loss

    @property
    def _in_memory(self) -> InMemory:
        if isinstance(self.measured, InMemory):
            return self.measured
        raise TypeError("this solver needs the constraints in memory; nearwise.solvers.Newton() takes chunks")

    @cached_property
    def unit(self) -> float:
        """Of the objective: how it scales with the prior."""
        return self.divergence.unit_of(self.prior)

    @cached_property
    def gradient_at_prior(self) -> Array:
        """phi'(prior), the diagonal of a matrix."""
        return self.divergence.gradient(self.prior)

    def theta(self, adjoint: Array) -> Array:
        """phi'(prior) - sum_i y_i A_i, of which the minimiser of the Lagrangian is a function."""
        theta = -adjoint
        theta.flat[:: len(theta) + 1] += self.gradient_at_prior
        return theta

    # ---- certificates -------------------------------------------------------------------------------------

    @np.errstate(all="ignore")  # what overflows is not finite, and proves nothing
    def certify(self, iterate: Iterate) -> Certified:
        """Objective, bound, gap and violations at a point: no other code judges points.

        Multipliers outside the dual's domain prove nothing; they are halved until they lie inside.
        """
        point = self._at_slopes(iterate) if iterate.dual is None else self._at(iterate, iterate.dual)
        primal = self.divergence.distance(iterate.factor, self.prior) + point.cost
        gap, share = math.inf, 1.0
        if math.isfinite(primal):
            for _ in range(HALVINGS):
                theta = self.theta(point.adjoint if share == 1.0 else share * point.adjoint)
                apart = self.divergence.distance_to_minimiser(iterate.factor, theta)
                gap = apart + point.residual(share) if math.isfinite(apart) else math.inf
                if math.isfinite(gap):
                    break
                share /= 2
        gap = gap if math.isfinite(gap) else math.inf
        certificate = Certificate(
            primal=primal,
            dual=primal - gap if math.isfinite(gap) else -math.inf,
            gap=self.relative(gap, primal),
            violation=point.violation,
            hard_violation=point.hard_violation,
            satisfied=point.satisfied,
        )
        return Certified(certificate, None if point.dual is None else share * point.dual, share)

    def _at(self, iterate: Iterate, dual: Array) -> _AtPoint:
        """At multipliers of their own, with rows in memory."""
        rows, loss = self.rows, self.loss
        y = loss.signed(dual)
        y = y if np.isfinite(y).all() else np.zeros_like(y)
        values = rows.values(iterate.factor) if iterate.values is None else iterate.values
        adjoint = iterate.adjoint if np.array_equal(y, dual) else None
        adjoint = rows.adjoint(y) if adjoint is None else adjoint
        cost, _, _, violations, hard_violation = loss.at(values)
        return _AtPoint(
            cost=cost,
            dual=y,
            adjoint=adjoint,
            residual=lambda share: loss.fenchel(values, share * y, cost),
            violation=float(violations.max(initial=0.0)),
            hard_violation=hard_violation,
            satisfied=loss.satisfied(violations),
        )

    def _at_slopes(self, iterate: Iterate) -> _AtPoint:
        """At the slopes of the losses, from the sums over all rows."""
        sums = self.measured.measure(iterate.factor) if iterate.sums is None else iterate.sums
        return _AtPoint(
            cost=sums.cost,
            dual=None,
            adjoint=sums.adjoint,
            residual=lambda share: (1 - share) * sums.cost,
            violation=float(sums.worst[0, 0]) if len(sums.worst) else 0.0,
            hard_violation=sums.hard_violation,
            satisfied=sums.satisfied / sums.n_rows if sums.n_rows else 1.0,
        )

    def multipliers(self, factor: Array, found: Certified) -> Array:
        """Those of a certificate of M = factor factor^T, one per row."""
        return found.share * self.measured.slopes(factor) if found.dual is None else found.dual

    def relative(self, gap: float, primal: float) -> float:
        """The gap relative to the larger of objective and bound, or to rounding where both vanish."""
        return relative_gap(gap, primal, ROUNDING * self.order * self.unit)

    def joint(self, best: Certificate, bound: Certificate) -> Certificate:
        """That of the best point with the highest bound: where nothing is hard, every bound holds for all."""
        return replace(best, dual=bound.dual, gap=self.relative(best.primal - bound.dual, best.primal))

    # ---- proofs of infeasibility -----------------------------------------------------------------

    @np.errstate(all="ignore")  # of rows that hardly measure anything, which prove nothing
    def farkas(self, multipliers: Array) -> Array | None:
        """A proof that the hard rows contradict each other, of as few of them as suffice; or None."""
        return farkas.proof(self.rows, self.loss, self.divergence, multipliers)

    @np.errstate(all="ignore")
    def check(self, proof: Array) -> InfeasibilityCheck:
        """Whether multipliers prove that the hard rows contradict each other: no other code judges proofs."""
        return farkas.check(self.rows, self.loss, self.divergence, proof)

    # ---- smaller and well-scaled formulations ----------------------------------------------------

    def scaled(self) -> scaling.Scaled:
        """The same in units in which prior and rows have size one, by powers of four, with the way back."""
        return scaling.scaled(self)

    def spanned(self) -> scaling.Spanned:
        """The same on the span of the rows, where that is smaller, with the way back."""
        return scaling.spanned(self)
