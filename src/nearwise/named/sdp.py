"""Semidefinite programs by nearest-matrix problems: `minimax_sdp` (TRW05 4.6) and `logdet_sdp` (JKDD12 (24)).

Both run `solve` with the LogDet divergence, which is a barrier: its multipliers are a feasible point of the
program's own dual, so that each answer comes with a lower bound on the program's optimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import checks, reading
from nearwise._common.reading import stacked
from nearwise._common.types import Array
from nearwise.core import Certificate, LogDet, Problem
from nearwise.methods import Loop, Status, solve
from nearwise.named import _logdet_program
from nearwise.side import Constraints, constraints

_SEARCH_STEPS = 60
# The next theta as a share of the interval, first near its lower end because lower bounds are sharper, and
# the accuracy of its problem, whose bounds hold in any case. The next pair follows where one brings nothing.
_ATTEMPTS = ((0.2, 1e-3), (0.5, 1e-3), (0.5, 1e-5), (0.8, 1e-5))
_PROJECTION_STEPS = 100
_FEASIBLE = 1e-6  # relative violation up to which W counts as feasible
_WORST = 10  # constraints named in a certificate


@dataclass(frozen=True, eq=False, repr=False)
class SdpResult:
    """A matrix, multipliers, and the interval in which the optimum lies.

    Attributes
    ----------
    matrix : W
    dual : the multipliers that prove the lower bound. For `minimax_sdp` a distribution a over the matrices:
        the smallest eigenvalue of sum_j a_j C_j is the bound. For `logdet_sdp` one per constraint.
    status : SOLVED when the interval is as narrow as was asked
    certificate : primal is the value at W, dual the lower bound on the program's optimum, gap their
        difference relative to the size of the matrices (`minimax_sdp`) or of the values (`logdet_sdp`)
    n_iter : problems solved, or iterations of the one
    message : one sentence on the outcome
    """

    matrix: Array
    dual: Array
    status: Status
    certificate: Certificate
    n_iter: int
    message: str

    def __repr__(self) -> str:
        c = self.certificate
        return f"<SdpResult: {self.status.name}, optimum between {c.dual:.6g} and {c.primal:.6g}>"


def minimax_sdp(matrices: ArrayLike | Sequence[ArrayLike], tol: float = 1e-5) -> SdpResult:
    """The W >= 0 of trace one whose largest tr(W C_j) is smallest: TRW05 (4.11), by search over theta.

    A zero-sum game: one side plays a density matrix W, the other one of the matrices. For a given theta,
    either some W has tr(W C_j) <= theta for all j, and lowers the upper bound, or multipliers prove that
    none has; and even in the first case the multipliers give a lower bound.

    Parameters
    ----------
    matrices : (m, d, d), or m symmetric arrays C_j
    tol : the width of the final interval, relative to the largest eigenvalue in size

    Returns
    -------
    `SdpResult`

    >>> import numpy as np
    >>> import nearwise as nw
    >>> result = nw.minimax_sdp([np.diag([1.0, 0.0]), np.diag([0.0, 3.0])])
    >>> round(result.certificate.primal, 4)
    0.75
    """
    C = stacked(matrices)
    for j, C_j in enumerate(matrices):  # type: ignore[arg-type]
        reading.symmetric(C_j, f"matrices[{j}]")
    checks.positive(tol, "tol")
    game = _Game(C, tol)
    return game.result(game.follow(game.intervals()))


class _Game(Loop[float, float, float]):
    """The best W and the best distribution so far; a point is the width of the interval between them."""

    def __init__(self, C: Array, tol: float) -> None:
        super().__init__(_SEARCH_STEPS)
        self.C, self.tol = C, tol
        m, d = C.shape[:2]
        spectra = np.linalg.eigvalsh(C)
        self.size = float(np.abs(spectra).max())
        self.W = np.eye(d) / d
        self.upper = float(np.einsum("jab,ab->j", C, self.W).max())
        best = int(np.argmax(spectra[:, 0]))
        self.a = np.eye(m)[best]
        self.lower = float(spectra[best, 0])

    def grade(self, point: float) -> float:
        """As it is."""
        return point

    def record(self, graded: float, iteration: int, seconds: float) -> float:
        """The width."""
        return graded

    def end(self, graded: float) -> Status | None:
        """SOLVED where the interval is narrow."""
        return Status.SOLVED if graded <= self.tol * self.size else None

    def intervals(self) -> Iterator[float]:
        """Widths, the first one before any value of theta; ends where further values change little."""
        width, failed = self.upper - self.lower, 0  # attempts in a row
        yield width
        while failed < len(_ATTEMPTS):
            share, accuracy = _ATTEMPTS[failed]
            self._try(self.lower + share * width, accuracy)
            before, width = width, self.upper - self.lower
            failed = failed + 1 if width > 0.95 * before else 0
            yield width

    def _try(self, theta: float, accuracy: float) -> None:
        d = self.C.shape[1]
        shifted = (self.C - theta * np.eye(d)) / self.size
        side = constraints.linear(shifted, 0.0, "<=") + constraints.linear(np.eye(d), 1.0, "==")
        problem = Problem(np.eye(d), side, LogDet(), np.eye(d) / d, math.inf)
        found = solve(problem, tol=accuracy, max_iter=_PROJECTION_STEPS)
        W = found.matrix / np.trace(found.matrix)
        upper = float(np.einsum("jab,ab->j", self.C, W).max())
        if upper < self.upper:
            self.W, self.upper = W, upper
        a = np.maximum(found.dual[:-1], 0.0)
        if a.any():
            a = a / a.sum()
            lower = float(np.linalg.eigvalsh(np.tensordot(a, self.C, axes=1))[0])
            if lower > self.lower:
                self.a, self.lower = a, lower
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt

    def result(self, status: Status) -> SdpResult:
        gap = (self.upper - self.lower) / self.size if self.size > 0 else 0.0
        certificate = Certificate(self.upper, self.lower, gap, 0.0, 0.0)
        ends = {
            Status.SOLVED: f"Solved within {self.tol:g}",
            Status.STALLED: f"No further progress; the tolerance {self.tol:g} was not reached",
            Status.LIMIT: "Stopped after the largest number of search steps",
            Status.INTERRUPTED: "Interrupted",
        }
        solved = len(self.history)
        message = f"{ends[status]}: gap {gap:.1e} after {solved} values of theta."
        return SdpResult(self.W, self.a, status, certificate, solved, message)


def logdet_sdp(
    cost: ArrayLike, side: Constraints, gamma: float = 1e-3, tol: float = 1e-6, penalty: float = math.inf
) -> SdpResult:
    """Minimise tr(C0 W) - gamma log det W over W > 0 under constraints on W: JKDD12 (24).

    Of the many solutions that a semidefinite program may have, the regularisation picks the one of largest
    determinant as gamma falls. Without it, the program is minimise tr(C0 W) plus the cost of slack: W is
    within gamma times the order of W of its optimum, and the certificate has an interval in which that lies.

    Parameters
    ----------
    cost : (d, d) symmetric C0. Some combination of it with the matrices of the constraints, of positive
        multiples for "<=", negative for ">=" and any for "==", must be positive definite; otherwise
        tr(C0 W) - gamma log det W has no minimum. A positive definite C0 needs no constraints for that,
        and tr(W) <= 1 or tr(W) = 1 allow any.
    side : constraints on W: `constraints.linear(A, b, relation)`, and
        `constraints.similarity([(i, j)], b, relation)` for single entries
    gamma : the regularisation
    tol : accuracy of the regularised problem, relative
    penalty : what it costs to violate a constraint by one, which also is the largest size of a multiplier;
        inf makes them hard

    >>> import numpy as np
    >>> import nearwise as nw
    >>> side = nw.constraints.linear(np.eye(2), 1.0, "==")
    >>> nw.logdet_sdp(np.diag([1.0, 3.0]), side, gamma=1e-6)
    <SdpResult: SOLVED, optimum between 1 and 1>
    """
    C0 = reading.symmetric(cost, "cost")
    checks.positive(gamma, "gamma")
    checks.positive(tol, "tol")
    checks.positive_or_infinite(penalty, "penalty")
    plain = Problem(np.eye(len(C0)), side, LogDet(), None, math.inf)
    found = _logdet_program.minimise(C0, plain, gamma, float(penalty), tol)
    if found is None:
        lowest = float(np.linalg.eigvalsh(C0)[0])
        raise ValueError(
            f"tr(C0 W) - gamma log det W has no minimum: the cost has the eigenvalue {lowest:.6g}, and no "
            "multiples of the constraints' matrices, such as a bound on the trace, up to the penalty make it "
            "positive definite"
        )
    if found.proof is not None:
        rows = plain.formulation.check(found.proof).rows
        certificate = Certificate(
            math.inf, -math.inf, math.inf, math.inf, math.inf, 0.0, plain.violations_of(found.matrix, rows)
        )
        message = f"The constraints contradict each other: {'; '.join(map(plain.describe, rows[:3]))}."
        return SdpResult(found.matrix, found.proof, Status.INFEASIBLE, certificate, found.steps, message)
    return _graded(C0, plain, found, float(penalty), tol)


def _graded(C0: Array, plain: Problem, found: _logdet_program.Point, penalty: float, tol: float) -> SdpResult:
    """What multipliers and W prove of the program without -gamma log det W."""
    W, y, loss = found.matrix, found.y, plain.formulation.loss
    values = plain.values(W)
    violations = loss.violations(values)
    excess = violations * loss.references
    lower = found.lower
    violation = float(violations.max(initial=0.0))
    hard_violation = violation if math.isinf(penalty) else 0.0
    if math.isfinite(penalty):
        upper = float(np.sum(C0 * W)) + penalty * float(excess.sum())
    elif hard_violation <= _FEASIBLE:
        # W may be cheaper than a feasible matrix by what its violations are worth
        upper = float(np.sum(C0 * W)) + 2.0 * float(np.abs(y) @ excess)
    else:
        upper = math.inf
    size = max(abs(upper), abs(lower), np.finfo(np.float64).tiny)
    gap = (upper - lower) / size if upper < math.inf else upper
    order = np.argsort(-violations, kind="stable")[:_WORST]
    worst = plain.violations_of(W, [int(row) for row in order if violations[row] > 0])
    satisfied = loss.satisfied(violations)
    certificate = Certificate(upper, lower, gap, violation, hard_violation, satisfied, worst)
    status = Status.SOLVED if found.converged and upper < math.inf else Status.LIMIT
    message = f"Stopped after {found.steps} Newton steps; the largest relative violation is {violation:.1e}."
    if status is Status.SOLVED:
        message = f"Solved within {tol:g} after {found.steps} Newton steps."
    return SdpResult(W, y, status, certificate, found.steps, message)
