"""Small random problems of every kind, solved again from the definitions: their dual, and a conic program."""

from __future__ import annotations

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

import cases
import kkt
import nearwise as nw
from nearwise.constraints import Constraints

Array = NDArray[np.float64]

N_PROBLEMS = 22  # for each divergence: every kind of constraint twice
TOLERANCES = (1e-10, 1e-9, 1e-8)  # of Clarabel: the first that it can reach, and all it reports as reached


# --- the dual ----------------------------------------------------------------------------------------------


def dual_oracle(dense: kkt.Dense) -> tuple[float, Array]:
    """A lower bound on every objective, and the matrix it belongs to.

    Multipliers of the right signs give a bound whatever they are, so no minimiser has to be trusted: the
    bound is the better one of two.
    """
    sign = dense.relations
    signs = list(zip(np.where(sign < 0, 0, -np.inf), np.where(sign > 0, 0, np.inf), strict=True))

    def negative(y: Array) -> tuple[float, Array]:
        value, slope, _ = _dual(dense, y)
        # outside the domain of the dual, where the minimisers need a number: one worse than any inside
        return (-value, -slope) if np.isfinite(value) else (1e6, np.zeros_like(y))

    start = np.zeros(len(dense.bounds))
    found = [
        minimize(negative, start, jac=True, bounds=signs, method=method, options=options).x
        for method, options in (
            ("TNC", {"ftol": 0.0, "xtol": 0.0, "gtol": 1e-14, "maxfun": 20_000}),
            ("SLSQP", {"ftol": 1e-16, "maxiter": 2000}),
        )
    ]
    for y in found:
        assert np.all(y * sign <= 0)
    value, _, X = max((_dual(dense, y) for y in found), key=lambda bound: bound[0])
    return value, X


def _dual(dense: kkt.Dense, y: Array) -> tuple[float, Array, Array]:
    """min over X and q of D(X, M0) + losses(q) + y^T (values(X) - q): its value, its slope in y, and X."""
    P = kkt.range_basis(dense.prior, dense.divergence)
    M0, S = P.T @ dense.prior @ P, P.T @ np.einsum("k,kij->ij", y, dense.A) @ P
    value, X = _least_divergence(type(dense.divergence).__name__, M0, S)
    X = P @ X @ P.T
    costs, q = np.array([_least_loss(dense, k, y[k]) for k in range(len(y))]).T
    return value + float(costs.sum()), dense.values(X) - q, X


def _least_divergence(name: str, M0: Array, S: Array) -> tuple[float, Array]:
    """min over X of D(X, M0) + <S, X>, and where: phi'(X) = phi'(M0) - S."""
    if name == "LogDet":
        values, V = np.linalg.eigh(np.linalg.inv(M0) + S)
        if values[0] <= 0:
            return -math.inf, np.zeros_like(M0)
        return float(np.log(values).sum() + np.linalg.slogdet(M0)[1]), (V / values) @ V.T
    if name == "VonNeumann":
        values, V = np.linalg.eigh(kkt.spectral(np.log, M0) - S)
        return float(np.trace(M0) - np.exp(values).sum()), (V * np.exp(values)) @ V.T
    values, V = np.linalg.eigh(M0 - S / 2)
    values = np.maximum(values, 0)
    return float(np.sum(M0**2) - values @ values), (V * values) @ V.T


def _least_loss(dense: kkt.Dense, k: int, y: float) -> tuple[float, float]:
    """min over q of loss(q) - y q for row k, and where."""
    name, b, gamma = type(dense.divergence).__name__, dense.bounds[k], dense.penalties[k]
    if np.isinf(gamma):
        return -y * b, b
    if not dense.is_bregman[k]:
        stiffness = gamma * float(kkt.phi_of(dense.divergence).curvature(dense.sizes[k : k + 1])[0])
        return -y * b - y**2 / (2 * stiffness), b + y / stiffness
    if name == "LogDet":  # gamma (q / b - log(q / b) - 1) - y q
        left = 1 - y * b / gamma
        return (gamma * math.log(left), b / left) if left > 0 else (-math.inf, b)
    if name == "VonNeumann":
        return -gamma * b * math.expm1(y / gamma), b * math.exp(y / gamma)
    q = max(b + y / (2 * gamma), 0.0)
    return gamma * (q - b) ** 2 - y * q, q


# --- a conic program ---------------------------------------------------------------------------------------


def conic_oracle(dense: kkt.Dense) -> tuple[float, Array] | None:
    """The optimum as a conic program, where the slack variable of KSD09 (22) is not eliminated.

    None where Clarabel itself calls its answer inaccurate, which it does for some problems on some
    processors.
    """
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
            return float(program.value), P @ X.value @ P.T
    return None


def _divergence(name: str, X: cp.Variable, M0: Array) -> cp.Expression:
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


def random_problem(seed: int, divergence: nw.Divergence) -> tuple[nw.Problem, Array | None]:
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


every_problem = pytest.mark.parametrize(
    ("divergence", "seed"),
    [(divergence, seed) for divergence in cases.DIVERGENCES for seed in range(N_PROBLEMS)],
    ids=lambda value: str(value) if isinstance(value, int) else type(value).__name__,
)


@every_problem
def test_agrees_with_the_oracles(divergence: nw.Divergence, seed: int) -> None:
    problem, prior = random_problem(seed, divergence)
    assert 3 <= len(problem.constraints) <= 15
    result = nw.solve(problem, tol=1e-11)
    assert result.status is nw.Status.SOLVED
    dense = kkt.written_out(problem, prior)
    bound, X = dual_oracle(dense)
    assert bound > 1e-4  # else the prior would be the answer, which says little
    np.testing.assert_allclose(result.certificate.primal, bound, rtol=1e-9)
    np.testing.assert_allclose(result.certificate.dual, bound, rtol=1e-9)
    np.testing.assert_allclose(result.matrix, X, rtol=0, atol=2e-5 * np.abs(X).max())
    conic = conic_oracle(dense)
    if conic is not None:
        optimum, X = conic
        np.testing.assert_allclose(result.certificate.primal, optimum, rtol=1e-6)
        np.testing.assert_allclose(result.matrix, X, rtol=0, atol=2e-4 * np.abs(X).max())
