"""The same problems for other solvers: cvxpy's cones for LogDet and Frobenius, a dense dual for von Neumann.

Both get the problem from its definition, scaled as well as it can be: the prior is the identity under LogDet
and has a mean eigenvalue of one otherwise, and each row is divided by what its violation is relative to.
"""

from __future__ import annotations

import importlib
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import nearwise as nw
from benchmarks._definition import Definition
from benchmarks._judge import Outcome, attempt
from benchmarks._random_problems import Case, Family
from benchmarks.baselines import require
from nearwise._common.types import Array

TURNS = 5
_LONG = 2.0  # seconds of a peer, which are not measured again
SMALL = 1e-2  # objectives below, in units of the prior, are compared as if they were this
AGREEMENT = 1e-4  # relative, of objectives: the peers' own tolerances are on residuals, not on these
_STEEPEST = 60.0  # exponents beyond are outside what the dense dual evaluates


@dataclass(frozen=True)
class PeerAnswer:
    """What a peer found.

    Attributes
    ----------
    status : "optimal", or the peer's word for something else
    objective : in the problem's own unit; of the dense dual, a lower bound on it
    violation : the worst relative violation of a hard row
    excess : the violation of every hard row in the row's own unit, 0 for other rows
    seconds, solver_seconds : of CPU, in all and of the solver alone
    unit : of the objective
    """

    status: str
    objective: float
    violation: float
    excess: Array
    seconds: float
    solver_seconds: float
    unit: float


@dataclass(frozen=True, eq=False)
class DenseProblem:
    """A problem in double precision: q_i = <A_i, X> beside the bound, both relative.

    Attributes
    ----------
    count : of all rows; those that vanish are left out of what follows
    numbers : of the rows
    references : what a row's violation is relative to
    prior : X0; the identity under LogDet
    unit : the objective is this many times the one in X
    matrices : (m, k * k)
    relations, bounds : as in `Losses`
    penalties : of a loss in q, in the objective's unit
    ratios : size of each row relative to its reference
    has_slack : whether the loss is the divergence's own slack
    """

    count: int
    numbers: NDArray[np.int64]
    references: Array
    prior: Array
    unit: float
    matrices: Array
    relations: NDArray[np.int64]
    bounds: Array
    penalties: Array
    ratios: Array
    has_slack: NDArray[np.bool_]

    @classmethod
    def of(cls, case: Case, definite: bool = True) -> DenseProblem:
        """`definite` decides for rows of which rounding hides whether A >= 0."""
        exact = Definition(case)
        one = exact.mp.mpf(1)
        mean = one if exact.is_logdet else exact.mean or one
        degree = 0 if exact.is_logdet else 2 if exact.is_frobenius else 1
        if exact.eigenvalues is not None:
            prior = np.diag([float(x / mean) for x in exact.eigenvalues])
        else:
            prior = np.eye(exact.T.shape[1]) if exact.is_logdet else _doubles(exact.prior / mean)
        numbers = [i for i, row in enumerate(exact.rows) if not row.vanishes]
        rows = [exact.rows[i] for i in numbers]
        positive = [definite if row.is_definite is None else row.is_definite for row in rows]
        references = [
            row.bound if p and row.bound > 0 else row.size for row, p in zip(rows, positive, strict=True)
        ]
        scaled = [(row, u, p) for row, u, p in zip(rows, references, positive, strict=True)]
        k = len(prior)
        matrices = [_doubles(exact.dense(row) * (mean / u)).ravel() for row, u, _ in scaled]
        return cls(
            len(exact.rows),
            np.array(numbers, dtype=np.int64),
            np.array([float(u) for u in references]),
            prior,
            float(mean**degree),
            np.array(matrices).reshape(len(rows), k * k),
            np.array([row.relation for row in rows], dtype=int),
            np.array([float(row.bound / u) for row, u, _ in scaled]),
            np.array([float(row.penalty * (u / mean) ** degree) for row, u, _ in scaled]),
            np.array([float(row.size / u) for row, u, _ in scaled]),
            np.array([row.has_slack(p) for row, _, p in scaled], dtype=bool),
        )

    def violations(self, X: Array) -> Array:
        """The relative violation of every hard row, 0 for soft ones."""
        difference = self.matrices @ X.ravel() - self.bounds
        wrong = np.where(self.relations == 0, np.abs(difference), -difference * self.relations)
        return np.where(np.isinf(self.penalties), np.maximum(wrong, 0.0), 0.0)

    def answer(
        self, status: str, objective: float, X: Array | None, seconds: float, solver_seconds: float
    ) -> PeerAnswer:
        """What a peer found, with the violations of its matrix, if it has one."""
        relative = np.zeros(len(self.numbers)) if X is None else self.violations(X)
        excess = np.zeros(self.count)
        excess[self.numbers] = relative * self.references
        worst = np.nan if X is None else float(relative.max(initial=0.0))
        return PeerAnswer(status, objective * self.unit, worst, excess, seconds, solver_seconds, self.unit)


@dataclass(frozen=True)
class Comparison:
    """One problem, by us and by a peer.

    Attributes
    ----------
    outcome : ours, not judged
    peer : its answer
    difference : our objective less the peer's, relative to the larger
    explained : how much of it what the peer violates may account for: by weak duality, a matrix that violates
        rows by e_i costs at least our lower bound less sum |y_i| e_i
    seconds, solver_seconds : of CPU, for Problem and solve, and for solve alone
    """

    outcome: Outcome
    peer: PeerAnswer
    difference: float
    explained: float = 0.0
    seconds: float = np.nan
    solver_seconds: float = np.nan

    @classmethod
    def of(cls, result: nw.Result | None, outcome: Outcome, peer: PeerAnswer) -> Comparison:
        if result is None or not np.isfinite(peer.objective):
            return cls(outcome, peer, np.nan)
        ours, theirs = result.certificate.primal, peer.objective
        larger = max(abs(ours), abs(theirs), SMALL * peer.unit)
        explained = float(np.abs(result.dual) @ peer.excess) / larger
        return cls(outcome, peer, (ours - theirs) / larger, explained)

    @property
    def is_common(self) -> bool:
        """Whether both have an optimum."""
        return self.outcome.ending == "SOLVED" and self.peer.status == "optimal"

    @property
    def ratio(self) -> float:
        """How many times longer the peer took with its model than Problem and solve."""
        return self.peer.seconds / self.seconds

    @property
    def ratio_alone(self) -> float:
        """How many times longer the peer's solver took than solve."""
        return self.peer.solver_seconds / self.solver_seconds

    @property
    def disagrees(self) -> bool:
        """Whether one of the two must be wrong."""
        if self.is_common:
            if self.outcome.divergence == "VonNeumann":  # the dense dual may stop short of the optimum
                return -self.difference > AGREEMENT
            return not -AGREEMENT <= self.difference <= AGREEMENT + self.explained
        if self.outcome.ending == "SOLVED":
            return self.peer.status == "infeasible"
        return (
            self.outcome.ending == "INFEASIBLE"
            and self.peer.status == "optimal"
            and self.peer.violation <= 1e-6
        )


def compared(case: Case, number: int, family: Family) -> Comparison | None:
    """Both in turns, the least seconds of each; None if the problem is refused."""
    result, outcome = attempt(case, number, family)
    if outcome.ending == "refused":
        return None
    found = Comparison.of(result, outcome, answer(case))
    if found.disagrees and any(row.is_definite is None for row in Definition(case).rows):
        found = Comparison.of(result, outcome, answer(case, definite=False))
    if not found.is_common:
        return found  # there are no times to compare
    turns = TURNS if found.peer.seconds < _LONG else 1
    ours = np.min([_seconds(case) for _ in range(turns)], axis=0)
    theirs = [found.peer, *(answer(case) for _ in range(turns - 1))]
    seconds, alone = (min(getattr(peer, name) for peer in theirs) for name in ("seconds", "solver_seconds"))
    peer = replace(found.peer, seconds=seconds, solver_seconds=alone)
    return replace(found, peer=peer, seconds=float(ours[0]), solver_seconds=float(ours[1]))


def _seconds(case: Case) -> tuple[float, float]:
    """Of CPU, for Problem and solve, and for solve alone."""
    start = time.process_time()
    problem = case.problem()
    middle = time.process_time()
    nw.solve(problem)
    end = time.process_time()
    return end - start, end - middle


def answer(case: Case, definite: bool = True) -> PeerAnswer:
    """Clarabel's answer (SCS's where Clarabel fails), or the dense dual's under von Neumann.

    `definite` decides for rows of which rounding hides whether A >= 0.
    """
    problem = DenseProblem.of(case, definite)
    if isinstance(case.divergence, nw.VonNeumann):
        return von_neumann_dual(problem)
    found = conic(problem, isinstance(case.divergence, nw.LogDet), "CLARABEL")
    if found.status.startswith(("optimal", "infeasible")):
        return found
    return conic(problem, isinstance(case.divergence, nw.LogDet), "SCS")


def conic(problem: DenseProblem, is_logdet: bool, solver: str) -> PeerAnswer:
    """The problem modelled in cvxpy, rows of one kind as one constraint of vectors, and solved."""
    require("cvxpy", "cvxpy")
    cp: Any = importlib.import_module("cvxpy")
    k = len(problem.prior)
    start = time.process_time()
    X = cp.Variable((k, k), PSD=True)
    cost = cp.trace(X) - cp.log_det(X) - k if is_logdet else cp.sum_squares(X - problem.prior)
    losses, limits = _modelled(cp, cp.vec(X, order="C"), problem, is_logdet)
    model = cp.Problem(cp.Minimize(sum(losses, cost)), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inaccurate answers, which the status tells
        data, chain, inverse = model.get_problem_data(solver, solver_opts={})
        begin = time.process_time()
        answer = chain.solve_via_data(model, data)
        solver_seconds = time.process_time() - begin
        try:
            model.unpack_results(answer, chain, inverse)
        except cp.SolverError:
            return problem.answer("failed", np.nan, None, time.process_time() - start, np.inf)
    seconds = time.process_time() - start
    found = None if X.value is None else np.asarray(X.value)
    objective = np.nan if found is None else float(model.value)
    return problem.answer(str(model.status), objective, found, seconds, solver_seconds)


def _modelled(cp: Any, x: Any, problem: DenseProblem, is_logdet: bool) -> tuple[list[Any], list[Any]]:
    """What soft rows cost, and what holds: one expression for all rows of one loss and one relation."""
    losses: list[Any] = []
    limits: list[Any] = []
    hard = np.isinf(problem.penalties)
    own = ~hard & problem.has_slack & is_logdet
    for sign in (-1, 0, 1):
        for kind in (hard, own, ~hard & ~own):
            rows = kind & (problem.relations == sign)
            if not rows.any():
                continue
            b, gamma, ratios = problem.bounds[rows], problem.penalties[rows], problem.ratios[rows]
            if kind is own:
                t = cp.Variable(len(b))  # the values as multiples of their bounds
                multiples = (problem.matrices[rows] / b[:, None]) @ x
                inside = [t == multiples] if sign == 0 else [sign * (t - multiples) <= 0, sign * (t - 1) <= 0]
                limits += inside
                losses.append(gamma @ (t - cp.log(t) - 1))
                continue
            excess = problem.matrices[rows] @ x - b
            if kind is hard:
                limits.append(excess == 0 if sign == 0 else sign * excess >= 0)
                continue
            stiffness = gamma / (2 * ratios**2) if is_logdet else gamma
            losses.append(stiffness @ cp.square(excess if sign == 0 else cp.pos(-sign * excess)))
    return losses, limits


def von_neumann_dual(problem: DenseProblem) -> PeerAnswer:
    """The best lower bound that L-BFGS-B finds on the concave dual, every matrix dense."""
    start = time.process_time()
    logs = np.diag(np.log(np.diag(problem.prior)))
    k, m = len(logs), len(problem.bounds)
    hard = np.isinf(problem.penalties)
    soft_slack, quadratic = ~hard & problem.has_slack, ~hard & ~problem.has_slack
    gamma = np.where(hard, 1.0, problem.penalties)

    def negative(y: Array) -> tuple[float, Array]:
        theta, V = np.linalg.eigh(logs - (y @ problem.matrices).reshape(k, k))
        x = np.exp(np.minimum(theta, _STEEPEST))
        exponent = np.minimum(y / gamma, _STEEPEST)
        conjugate = y * problem.bounds
        slope = problem.bounds.copy()
        conjugate[soft_slack] = (gamma * problem.bounds * np.expm1(exponent))[soft_slack]
        slope[soft_slack] *= np.exp(exponent)[soft_slack]
        give = (problem.ratios / gamma * y)[quadratic]
        conjugate[quadratic] += give * y[quadratic] / 2
        slope[quadratic] += give
        values = problem.matrices @ ((V * x) @ V.T).ravel()
        return float(x.sum() - np.trace(problem.prior) + conjugate.sum()), slope - values

    sides = {-1: (0.0, None), 1: (None, 0.0), 0: (None, None)}
    found = minimize(
        negative,
        np.zeros(m),
        jac=True,
        method="L-BFGS-B",
        bounds=[sides[int(s)] for s in problem.relations],
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30},
    )
    seconds = time.process_time() - start
    within = float(np.linalg.eigvalsh(logs - (found.x @ problem.matrices).reshape(k, k))[-1]) < _STEEPEST
    within = within and bool(np.all((found.x / gamma)[soft_slack] < _STEEPEST))
    status = "optimal" if found.success and within else "limit"
    return problem.answer(status, -float(found.fun), None, seconds, seconds)


def _doubles(A: Any) -> Array:
    return np.array([[float(x) for x in row] for row in A])
