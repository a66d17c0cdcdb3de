"""`definite_boost`: DefiniteBoost, boosting with positive definite matrices in place of distributions.

    minimise tr(W log W - W log W1)   over W >= 0 with tr(W) = 1 and tr(W C_j) <= 0 for all j      TRW05 (4.1)

W is always exp(log W1 - sum_j a_j C_j) / Z for multipliers a >= 0, and -log Z is the dual objective (4.2). A
step takes the constraint furthest from its optimality condition and changes its multiplier. On diagonal
matrices and with no corrections that is AdaBoost.

A positive semidefinite C_j is met by a singular W only, one that is zero on the range of C_j, which no finite
multiplier reaches: then all happens on the subspace that is left, with log W1 restricted to it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from nearwise._common import checks, reading
from nearwise._common.reading import stacked
from nearwise._common.types import Array
from nearwise.core import Certificate, Violation
from nearwise.methods import Loop, Status
from nearwise.papers import definite_step

_EXPANSIONS = 200  # doublings of a step until the constraint is met
_ROUNDING = 1e-12  # of the dual objective, which may end at the highest that a singular W has


@dataclass(frozen=True)
class BoostStep:
    """One step.

    Attributes
    ----------
    constraint : j, the number of the constraint matrix
    violation : r = tr(W C_j) before the step
    size : by how much its multiplier changed; negative for a correction
    dual : the dual objective -log Z after the step, TRW05 (4.9)
    bound : what theorem 4.1 guarantees for it: minus the sum of the logarithms of rho
    """

    constraint: int
    violation: float
    size: float
    dual: float
    bound: float


@dataclass(frozen=True, eq=False, repr=False)
class BoostResult:
    """W with its multipliers.

    Attributes
    ----------
    matrix : W, of trace one; singular where positive semidefinite constraint matrices leave nothing else
    dual : a >= 0, one multiplier per constraint matrix; for AdaBoost, the weights of the hypotheses. It is
        infinite where W is zero on the range of a positive semidefinite matrix.
    status : SOLVED when all conditions hold up to epsilon; INFEASIBLE when the dual objective is higher than
        any W could have, or no W is zero on the ranges of all positive semidefinite matrices; LIMIT or
        INTERRUPTED otherwise
    certificate : divergence to the prior, dual objective, gap, and the worst violation
    steps : one record per step
    most_steps : corollary 4.2's bound on their number for a feasible problem, 2 lambda^2 log(d) / epsilon^2
    message : one sentence on the outcome
    """

    matrix: Array
    dual: Array
    status: Status
    certificate: Certificate
    steps: tuple[BoostStep, ...]
    most_steps: int
    message: str

    @property
    def n_iter(self) -> int:
        """The number of steps."""
        return len(self.steps)

    def __repr__(self) -> str:
        c = self.certificate
        return (
            f"<BoostResult: {self.status.name}, {self.n_iter} steps, divergence {c.primal:.6g}, "
            f"dual {c.dual:.6g}, violation {c.violation:.1e}>"
        )


def definite_boost(
    matrices: ArrayLike | Sequence[ArrayLike],
    prior: ArrayLike | None = None,
    epsilon: float = 1e-3,
    projections: Literal["exact", "approximate"] = "exact",
    corrections: bool = True,
    eigenvalue_range: tuple[float, float] | None = None,
    max_iter: int = 10_000,
) -> BoostResult:
    """The matrix of trace one nearest to a prior with tr(W C_j) <= 0 for all given matrices. TRW05 section 4.

    Parameters
    ----------
    matrices : (m, d, d), or m square arrays C_j; only their symmetric parts matter
    prior : (d, d) positive definite, scaled to trace one; the identity by default
    epsilon : every condition holds up to this at the end
    projections : "exact" makes the chosen constraint hold with equality; "approximate" takes the step of
        TRW05 (4.6) in closed form, which is shorter
    corrections : also take back multipliers of constraints that are met with room to spare, which the
        optimum needs (KSD09 appendix B). False is the algorithm as printed: it stops as soon as nothing is
        violated, and on diagonal matrices it is AdaBoost.
    eigenvalue_range : an interval that holds all eigenvalues, used in place of each matrix's own for
        approximate steps: (-1, 1) for AdaBoost. A singular W is then approached, step by step.
    max_iter : the largest number of steps

    >>> import numpy as np
    >>> import nearwise as nw
    >>> result = nw.definite_boost([np.diag([1.0, -1.0, 0.5])], epsilon=1e-9)
    >>> abs(np.trace(result.matrix @ np.diag([1.0, -1.0, 0.5]))) < 1e-9
    True
    """
    C = stacked(matrices)
    log_prior = _log_prior(prior, C.shape[1])
    checks.positive(epsilon, "epsilon")
    checks.one_of(projections, "projections", ("exact", "approximate"))
    checks.whole_number(max_iter, "max_iter")
    whole = _extremes(C)
    ranges = whole if eigenvalue_range is None else _common_range(eigenvalue_range, whole)
    basis, is_limit = np.eye(C.shape[1]), np.zeros(len(C), bool)
    if eigenvalue_range is None or ranges[0, 0] >= 0:
        basis, is_limit = _face(C)
    settings = epsilon, projections == "exact", corrections, max_iter
    if not basis.shape[1]:
        return _Boost(C, log_prior, ranges, *settings).result(Status.INFEASIBLE)
    if is_limit.any():
        C, log_prior = basis.T @ C @ basis, basis.T @ log_prior @ basis
        ranges = _extremes(C) if eigenvalue_range is None else ranges
        if (ranges[:, 0] > epsilon).any():  # what seemed to be zero beside the largest eigenvalue is not
            return _Boost(C, log_prior, ranges, *settings).result(Status.INFEASIBLE)
    boost = _Boost(C, log_prior, ranges, *settings)
    found = boost.result(boost.follow(boost.states()))
    return _on_whole_space(found, basis, is_limit) if is_limit.any() else found


class _State(NamedTuple):
    """W and its multipliers, tr(W C_j) for all j, the dual objective, and the step that led there."""

    W: Array
    dual: Array
    values: Array
    objective: float
    step: BoostStep | None


class _Boost(Loop[_State, _State, BoostStep]):
    """The run of one step after the other."""

    def __init__(
        self,
        C: Array,
        log_prior: Array,
        ranges: Array,
        epsilon: float,
        exact: bool,
        corrections: bool,
        max_iter: int,
    ) -> None:
        super().__init__(max_iter)
        self.C, self.log_prior, self.ranges = C, log_prior, ranges
        self.epsilon, self.exact, self.corrections = epsilon, exact, corrections
        self.highest = -float(np.linalg.eigvalsh(log_prior)[0])  # of the divergence to the prior
        self.start = self._at(np.zeros(len(C)))

    def states(self) -> Iterator[_State]:
        """The start, and the state after every step."""
        state = self.start
        bound = max(state.objective, 0.0)  # above zero on a subspace, on which no W is the prior
        while True:
            yield state
            state, bound = self._stepped(state, int(np.argmax(self._distances(state))), bound)

    def grade(self, point: _State) -> _State:
        return point

    def record(self, graded: _State, iteration: int, seconds: float) -> BoostStep:
        assert graded.step is not None
        return graded.step

    def end(self, graded: _State) -> Status | None:
        if graded.objective > self.highest + _ROUNDING:
            return Status.INFEASIBLE
        return Status.SOLVED if self._distances(graded).max() <= self.epsilon else None

    def _distances(self, state: _State) -> Array:
        """How far every constraint is from its optimality condition."""
        if not self.corrections:
            return state.values
        return np.where(state.dual > 0, np.abs(state.values), state.values)

    def _stepped(self, state: _State, j: int, bound: float) -> tuple[_State, float]:
        """The state after the step along constraint j, and theorem 4.1's bound there."""
        low, high = map(float, self.ranges[j])
        r, before = float(state.values[j]), float(state.dual[j])
        approximate = definite_step(r, low, high)
        wanted = self._exact_step(state, j, approximate) if self.exact else approximate
        size = max(wanted, -before)
        # an exact step gains at least as much as the approximate one, unless it stops at a multiplier of 0
        length = approximate if size == wanted else size
        share = (high - r) / (high - low)
        bound -= math.log(share * math.exp(-length * low) + (1 - share) * math.exp(-length * high))
        dual = state.dual.copy()
        dual[j] = 0.0 if size != wanted else before + size
        following = self._at(dual)
        return following._replace(step=BoostStep(j, r, size, following.objective, bound)), bound

    def _exact_step(self, state: _State, j: int, start: float) -> float:
        """The step after which tr(W C_j) = 0; the value falls as the step grows."""
        base = self._exponent(state.dual)

        def value(step: float) -> float:
            return float(np.sum(_normalised(base - step * self.C[j])[0] * self.C[j]))

        before, end = 0.0, start
        for _ in range(_EXPANSIONS):
            if value(end) * math.copysign(1.0, start) <= 0:
                break
            before, end = end, 2 * end
        return float(brentq(value, before, end, xtol=1e-15, rtol=1e-14))

    def _exponent(self, dual: Array) -> Array:
        return self.log_prior - np.tensordot(dual, self.C, axes=1)

    def _at(self, dual: Array) -> _State:
        W, log_trace = _normalised(self._exponent(dual))
        return _State(W, dual, np.einsum("jab,ab->j", self.C, W), -log_trace, None)

    def result(self, status: Status) -> BoostResult:
        """The last state, graded."""
        W, a, values, objective, _ = self.best or self.start
        # Delta(W, W1) = -log Z - sum_j a_j tr(W C_j)
        gap = -float(a @ values)
        primal = objective + gap
        order = np.argsort(-values, kind="stable")[:10]
        worst = tuple(
            Violation(int(j), float(values[j]), 0.0, float(values[j]), f"tr(W C_{j}) <= 0")
            for j in order
            if values[j] > 0
        )
        violation = float(np.max(values, initial=0.0))
        relative = abs(gap) / max(abs(primal), abs(objective), 1e-15)
        satisfied = float(np.mean(values <= self.epsilon))
        certificate = Certificate(primal, objective, relative, violation, violation, satisfied, worst)
        reach = float(np.abs(self.ranges).max(initial=0.0))
        steps = 2 * (reach / self.epsilon) * (reach / self.epsilon) * self.highest
        most = math.ceil(steps) if math.isfinite(steps) else sys.maxsize  # more than anybody counts
        ends = {
            Status.SOLVED: f"All conditions hold up to {self.epsilon:g}",
            Status.INFEASIBLE: "No positive semidefinite W of trace one meets all constraints",
            Status.LIMIT: f"Stopped after the largest number of steps, {self.max_iter}",
            Status.INTERRUPTED: "Interrupted",
        }
        message = (
            f"{ends[status]}: worst violation {violation:.1e}, {len(self.history)} steps; for a feasible "
            f"problem approximate steps without corrections need at most {most:,} (TRW05 corollary 4.2)."
        )
        return BoostResult(W, a, status, certificate, tuple(self.history), most, message)


def _extremes(C: Array) -> Array:
    """The smallest and the largest eigenvalue of each matrix."""
    return np.asarray(np.linalg.eigvalsh(C)[:, [0, -1]], dtype=np.float64)


def _face(C: Array) -> tuple[Array, NDArray[np.bool_]]:
    """A basis of the subspace on which W may differ from zero, and the matrices that make it smaller.

    W is zero on the range of each C_j >= 0 with tr(W C_j) <= 0; on what is left, others may become such.
    """
    d = C.shape[1]
    rounding = 16 * d * np.finfo(np.float64).eps * np.abs(np.linalg.eigvalsh(C)).max(axis=1)
    basis, is_limit = np.eye(d), np.zeros(len(C), bool)
    while basis.shape[1]:
        values, V = np.linalg.eigh(basis.T @ C @ basis)
        forced = np.flatnonzero((values[:, 0] >= -rounding) & (values[:, -1] > rounding))
        if not forced.size:
            break
        j = forced[0]
        is_limit[j] = True
        basis = basis @ V[j][:, values[j] <= rounding[j]]
    return basis, is_limit


def _on_whole_space(found: BoostResult, basis: Array, is_limit: NDArray[np.bool_]) -> BoostResult:
    """W back from a subspace, with infinite multipliers for the constraints that leave only that."""
    numbers = ", ".join(map(str, np.flatnonzero(is_limit)[:10])) + (", ..." if is_limit.sum() > 10 else "")
    note = f"W is singular: zero on the range of the positive semidefinite matrices {numbers}."
    W = basis @ found.matrix @ basis.T
    return replace(
        found,
        matrix=(W + W.T) / 2,
        dual=np.where(is_limit, np.inf, found.dual),
        message=f"{found.message} {note}",
    )


def _normalised(exponent: Array) -> tuple[Array, float]:
    """exp(exponent) / Z and log Z, where Z is its trace."""
    values, V = np.linalg.eigh(exponent)
    log_trace = float(np.logaddexp.reduce(values))
    W = (V * np.exp(values - log_trace)) @ V.T
    return (W + W.T) / 2, log_trace


def _log_prior(prior: ArrayLike | None, d: int) -> Array:
    if prior is None:
        return np.eye(d) * -math.log(d)
    W = reading.symmetric(prior, "prior")
    if W.shape != (d, d):
        raise ValueError(f"prior must have the shape of the matrices, {(d, d)}, got {W.shape}")
    values, V = np.linalg.eigh(W)
    if values[0] <= 1e-14 * values[-1]:
        raise ValueError(f"prior must be positive definite, but has the eigenvalue {values[0]:.6g}")
    return (V * np.log(values / values.sum())) @ V.T


def _common_range(interval: tuple[float, float], own: Array) -> Array:
    low, high = map(float, interval)
    outside = np.flatnonzero((own[:, 0] < low - 1e-12) | (own[:, 1] > high + 1e-12))
    if outside.size:
        j = int(outside[0])
        raise ValueError(
            f"matrix {j} has eigenvalues from {own[j, 0]:.6g} to {own[j, 1]:.6g}, outside the "
            f"eigenvalue_range from {low:g} to {high:g}"
        )
    return np.tile([low, high], (len(own), 1))
