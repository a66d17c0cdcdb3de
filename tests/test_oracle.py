"""Small random problems of every kind, solved a second time by cvxpy from the definitions."""

from __future__ import annotations

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest

import cases
import kkt
import nearwise as nw
from nearwise.constraints import Constraints

N_PROBLEMS = 22  # for each divergence: every kind of constraint twice
TOLERANCES = (1e-10, 1e-9, 1e-8)  # of Clarabel: the first that it can reach, and all it reports as reached


def oracle(dense: kkt.Dense) -> tuple[float, np.ndarray]:
    """The optimum and its value, as a conic program: the slack variable of KSD09 (22) is not eliminated."""
    name = type(dense.divergence).__name__
    P = kkt.range_basis(dense.prior, dense.divergence)
    M0 = P.T @ dense.prior @ P
    r = P.shape[1]
    X = cp.Variable((r, r), PSD=True)
    objective, limits = _divergence(name, X, M0), []
    for k in range(len(dense.A)):
        A = P.T @ dense.A[k] @ P
        p, b, relation = cp.trace((A + A.T) / 2 @ X), dense.bounds[k], dense.relations[k]
        gamma = dense.penalties[k]
        if np.isinf(gamma):
            limits.append(_related(p, relation, b))
        elif dense.is_bregman[k]:
            moved = cp.Variable(nonneg=True)
            limits.append(_related(p, relation, moved))
            objective = objective + gamma * _slack(name, moved, b)
        else:
            stiffness = gamma / 2 * float(kkt.phi_of(dense.divergence).curvature(dense.sizes[k : k + 1])[0])
            excess = p - b if relation == 0 else cp.pos(-int(relation) * (p - b))
            objective = objective + stiffness * cp.square(excess)
    program = cp.Problem(cp.Minimize(objective), limits)
    for tol in TOLERANCES:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            program.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        if program.status == "optimal":
            break
    assert program.status == "optimal"
    return float(program.value), P @ X.value @ P.T


def _divergence(name: str, X: cp.Variable, M0: np.ndarray) -> cp.Expression:
    r = len(M0)
    if name == "LogDet":
        return cp.trace(np.linalg.inv(M0) @ X) - cp.log_det(X) + np.linalg.slogdet(M0)[1] - r
    if name == "VonNeumann":
        log_prior = kkt.gradient_of(nw.VonNeumann(), M0)
        log_prior = (log_prior + log_prior.T) / 2
        return -cp.von_neumann_entr(X) - cp.trace(log_prior @ X) - cp.trace(X) + np.trace(M0)
    return cp.sum_squares(X - M0)


def _slack(name: str, moved: cp.Variable, b: float) -> cp.Expression:
    if name == "LogDet":
        return moved / b - cp.log(moved / b) - 1
    return cp.kl_div(moved, b) if name == "VonNeumann" else cp.square(moved - b)


def _related(p: cp.Expression, relation: int, bound: float | cp.Variable) -> cp.Constraint:
    return p == bound if relation == 0 else (p <= bound if relation < 0 else p >= bound)


def random_problem(seed: int, divergence: nw.Divergence) -> tuple[nw.Problem, np.ndarray | None]:
    """r in 2..6, m in 3..15: one kind of constraint or two, one kind of prior, soft, hard or mixed."""
    rng = np.random.default_rng([seed, 7])
    r, n = int(rng.integers(2, 7)), int(rng.integers(5, 8))
    G = rng.normal(size=(n, r)) / np.sqrt(r)
    prior = [None, cases.positive_definite(rng, r), cases.positive_definite(rng, r, rank=max(2, r - 1))][
        seed % 3
    ]
    M0 = np.eye(r) if prior is None else prior
    factor = M0 @ rng.normal(size=(r, r))  # bounds come from a matrix far from the prior
    K = G @ (factor @ factor.T + 0.1 * M0) @ G.T
    kinds = list(cases.KINDS)[:-1]
    side = cases.KINDS[kinds[seed % len(kinds)]](rng, K)
    if len(side) < 8 and seed % 2:
        side = side + cases.KINDS[kinds[(seed + 3) % len(kinds)]](rng, K)
    side = _first(side, 15)
    penalty = rng.choice([0.05, 1.0, 20.0, math.inf], size=len(side))
    if seed % 4 == 0:
        penalty = math.inf
    elif seed % 4 == 1:
        penalty = float(rng.choice([0.05, 1.0, 20.0]))
    return nw.Problem(G, side, divergence, prior, penalty), prior


def _first(side: Constraints, m: int) -> Constraints:
    kept = Constraints()
    for block in side.blocks:
        kept = kept + Constraints((block,)) if len(kept) + len(block) <= m else kept
    return kept


@pytest.mark.parametrize("seed", range(N_PROBLEMS))
@pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)
def test_agrees_with_a_conic_solver(divergence: nw.Divergence, seed: int) -> None:
    problem, prior = random_problem(seed, divergence)
    assert 3 <= len(problem.constraints) <= 15
    result = nw.solve(problem, tol=1e-11)
    assert result.status is nw.Status.SOLVED
    optimum, X = oracle(kkt.written_out(problem, prior))
    assert optimum > 1e-4  # else the prior would be the answer, which says little
    np.testing.assert_allclose(result.certificate.primal, optimum, rtol=1e-6)
    np.testing.assert_allclose(result.certificate.dual, optimum, rtol=1e-6)
    np.testing.assert_allclose(result.matrix, X, rtol=0, atol=2e-4 * np.abs(X).max())
