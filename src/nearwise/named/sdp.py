"""Semidefinite programs by nearest-matrix problems: `minimax_sdp` (TRW05 4.6) and `logdet_sdp` (JKDD12 (24)).

Both run `solve` with the LogDet divergence, which is a barrier: its multipliers are a feasible point of the
program's own dual, so that each answer comes with a lower bound on the program's optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import checks, reading
from nearwise.model import constraints
from nearwise.model.blocks import Constraints
from nearwise.model.certificate import Certificate
from nearwise.model.divergences import LogDet
from nearwise.model.problem import Problem
from nearwise.named._arguments import stacked
from nearwise.solving.driver import solve
from nearwise.solving.result import Result, Status

Array = NDArray[np.float64]

_SEARCH_STEPS = 60
# The next theta as a share of the interval, first near its lower end because lower bounds are sharper, and
# the accuracy of its problem, whose bounds hold in any case. The next pair follows where one brings nothing.
_ATTEMPTS = ((0.2, 1e-3), (0.5, 1e-3), (0.5, 1e-5), (0.8, 1e-5))
_PROJECTION_STEPS = 100
_STAGE_TOL = 1e-4  # of problems on the way to the wanted gamma


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
    matrices : (m, d, d), or m square arrays C_j; only their symmetric parts matter
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
    checks.positive(tol, "tol")
    game = _Game(C)
    status = game.search(tol)
    return game.result(status, tol)


class _Game:
    """The best W and the best distribution so far."""

    def __init__(self, C: Array) -> None:
        self.C = C
        m, d = C.shape[:2]
        spectra = np.linalg.eigvalsh(C)
        self.size = float(np.abs(spectra).max())
        self.W = np.eye(d) / d
        self.upper = float(np.einsum("jab,ab->j", C, self.W).max())
        best = int(np.argmax(spectra[:, 0]))
        self.a = np.eye(m)[best]
        self.lower = float(spectra[best, 0])
        self.solved = 0

    def search(self, tol: float) -> Status:
        failed = 0  # attempts in a row
        for _ in range(_SEARCH_STEPS):
            width = self.upper - self.lower
            if width <= tol * self.size:
                return Status.SOLVED
            if failed == len(_ATTEMPTS):
                return Status.STALLED
            share, accuracy = _ATTEMPTS[failed]
            self._try(self.lower + share * width, accuracy)
            failed = failed + 1 if self.upper - self.lower > 0.95 * width else 0
        return Status.SOLVED if self.upper - self.lower <= tol * self.size else Status.LIMIT

    def _try(self, theta: float, accuracy: float) -> None:
        d = self.C.shape[1]
        shifted = (self.C - theta * np.eye(d)) / self.size
        side = constraints.linear(shifted, 0.0, "<=") + constraints.linear(np.eye(d), 1.0, "==")
        problem = Problem(np.eye(d), side, LogDet(), np.eye(d) / d, math.inf)
        found = solve(problem, tol=accuracy, max_iter=_PROJECTION_STEPS)
        self.solved += 1
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

    def result(self, status: Status, tol: float) -> SdpResult:
        gap = (self.upper - self.lower) / self.size if self.size > 0 else 0.0
        certificate = Certificate(self.upper, self.lower, gap, 0.0, 0.0)
        ends = {
            Status.SOLVED: f"Solved within {tol:g}",
            Status.STALLED: f"No further progress; the tolerance {tol:g} was not reached",
            Status.LIMIT: "Stopped after the largest number of search steps",
        }
        message = f"{ends[status]}: gap {gap:.1e} after {self.solved} values of theta."
        return SdpResult(self.W, self.a, status, certificate, self.solved, message)


def logdet_sdp(cost: ArrayLike, side: Constraints, gamma: float = 1e-3, tol: float = 1e-6) -> SdpResult:
    """Minimise tr(C0 W) - gamma log det W over W > 0 under constraints on W: JKDD12 (24).

    Of the many solutions that a semidefinite program may have, the regularisation picks the one of largest
    determinant as gamma falls; W is within gamma * d of the program's optimum, and the certificate says so.
    Because tr(C0 W) - gamma log det W is gamma times the LogDet divergence to gamma C0^-1, it is one `solve`.

    Parameters
    ----------
    cost : (d, d) symmetric C0, positive definite; or such that it becomes so by adding multiples of the
        positive semidefinite matrices of equality constraints, like tr(W) = 1 or W_ii = 1
    side : constraints on W, all of them hard: `constraints.linear(A, b, relation)`, and
        `constraints.similarity([(i, j)], b, relation)` for single entries
    gamma : the regularisation
    tol : accuracy of the regularised problem, relative

    >>> import numpy as np
    >>> import nearwise as nw
    >>> side = nw.constraints.linear(np.eye(2), 1.0, "==")
    >>> nw.logdet_sdp(np.diag([1.0, 3.0]), side, gamma=1e-6)
    <SdpResult: SOLVED, optimum between 1 and 1>
    """
    C0 = reading.symmetric(cost, "cost")
    checks.positive(gamma, "gamma")
    plain = Problem(np.eye(len(C0)), side, LogDet(), None, math.inf)
    found, y = _by_continuation(C0, side, plain, gamma, tol)
    W = found.matrix
    value = float(np.sum(C0 * W))
    slack = float(np.linalg.eigvalsh(C0 + plain.formulation.measurements.adjoint(y))[0])
    size = float(np.abs(np.linalg.eigvalsh(C0)).max())
    proved = slack >= -1e-12 * size and found.status is not Status.INFEASIBLE
    lower = -float(y @ plain.bounds) if proved else -math.inf
    gap = abs(value - lower) / max(abs(value), abs(lower)) if proved and value != lower else value - lower
    inner = found.certificate
    certificate = Certificate(
        value, lower, gap, inner.violation, inner.hard_violation, inner.satisfied, inner.worst
    )
    return SdpResult(W, y, found.status, certificate, found.n_iter, found.message)


def _by_continuation(
    C0: Array, side: Constraints, plain: Problem, gamma: float, tol: float
) -> tuple[Result, Array]:
    """The solution and the multipliers for gamma, by way of larger ones.

    A multiple of an equality's matrix may be added to the cost at will. With the multipliers of the last
    gamma the prior is the last solution, scaled, and every problem is near its prior.
    """
    adjoint = plain.formulation.measurements.adjoint
    equalities = plain.relations == 0
    first = _shift(C0, plain)
    largest = float(np.abs(np.linalg.eigvalsh(C0 + adjoint(first))).max())
    shift = first
    for stage in range(max(math.ceil(math.log10(0.1 * largest / gamma)), 0), -1, -1):
        level = gamma * 10.0**stage
        values, V = np.linalg.eigh(C0 + adjoint(shift))
        if values[0] <= 0:  # what made it definite were multipliers of inequalities
            shift = first
            values, V = np.linalg.eigh(C0 + adjoint(shift))
        prior = (V * (level / values)) @ V.T
        problem = Problem(np.eye(len(C0)), side, LogDet(), (prior + prior.T) / 2, math.inf)
        found = solve(problem, tol=tol if stage == 0 else max(tol, _STAGE_TOL))
        y = level * found.dual + shift
        if found.status is Status.INFEASIBLE:
            break
        shift = np.where(equalities, y, 0.0)
    return found, y


def _shift(C0: Array, problem: Problem) -> Array:
    """Multipliers of equality rows with semidefinite matrices that make the cost positive definite."""
    rows = np.flatnonzero(problem.relations == 0)
    shift = np.zeros(len(problem.relations))
    values = np.linalg.eigvalsh(C0)
    size = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    if values[0] > 1e-8 * size:
        return shift
    weights = np.zeros_like(shift)
    adjoint = problem.formulation.measurements.adjoint
    for row in map(int, rows):
        spectrum = np.linalg.eigvalsh(adjoint(np.eye(1, len(shift), row)[0]))
        largest = float(np.abs(spectrum).max())
        if largest > 0 and (spectrum[0] >= -1e-12 * largest or spectrum[-1] <= 1e-12 * largest):
            weights[row] = math.copysign(1 / largest, spectrum[0] + spectrum[-1])
    S = adjoint(weights)
    s, U = np.linalg.eigh(S)
    if not rows.size or s[0] <= 1e-8 * s[-1]:
        raise ValueError(
            f"the cost must be positive definite, but has the eigenvalue {values[0]:.6g}, and no equality "
            "constraint with a positive semidefinite matrix, such as a fixed trace, makes up for it"
        )
    root = U / np.sqrt(s)
    lowest = float(np.linalg.eigvalsh(root.T @ C0 @ root)[0])
    return weights * (max(-lowest, 0.0) + size / float(s[-1]))
