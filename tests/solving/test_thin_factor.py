"""ThinFactor: the same matrix as by Newton's method on all of it, known answers, clusters of eigenvalues."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.solvers import ThinFactor


def random_problem(seed: int) -> nw.Problem:
    """Distances, and in turns comparisons and inner products, with a trace norm; features of falling size."""
    rng = np.random.default_rng(seed)
    n, r, m = (int(rng.integers(low, high)) for low, high in ((20, 80), (8, 70), (6, 50)))
    G = rng.normal(size=(n, r)) * np.exp(-rng.uniform(0, 3, size=r))
    G /= np.sqrt(2 * np.sum(G.var(axis=0)))
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
    squared = np.sum((G[pairs[:, 0]] - G[pairs[:, 1]]) ** 2, axis=1)
    half = m // 2
    side = c.at_most(pairs[:half], squared[:half] * rng.uniform(0.1, 0.8, half))
    side += c.at_least(pairs[half:], squared[half:] * rng.uniform(0.5, 3, m - half))
    if seed % 3 == 1:
        side += c.closer([rng.choice(n, 3, replace=False) for _ in range(5)], 0.1)
    if seed % 3 == 2:
        side += c.similarity([rng.choice(n, 2, replace=False) for _ in range(5)], 0.3, ">=")
    tau, penalty = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1, 2)
    return nw.Problem(G, side, nw.Frobenius(), -tau / 2 * np.eye(r), penalty)


@pytest.mark.parametrize("seed", range(24))
def test_the_matrix_is_that_of_newtons_method(seed: int) -> None:
    problem = random_problem(seed)
    thin, full = (nw.solve(problem, solver, tol=1e-9) for solver in (ThinFactor(), nw.solvers.Newton()))
    assert thin.status is full.status is nw.Status.SOLVED
    size = max(np.linalg.norm(full.matrix), 1e-3)
    assert np.linalg.norm(thin.matrix - full.matrix) <= 3e-4 * size  # |M - optimum|^2 is at most the gap
    assert thin.certificate.primal == pytest.approx(full.certificate.primal, rel=2e-9)


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-5, 1e-2])
def test_eigenvalues_clustered_at_the_threshold(spread: float) -> None:
    """Of K_ii >= b_i with penalty gamma the solution is known: (gamma b_i - tau / 2)_+ / (1 + gamma)."""
    rng = np.random.default_rng(0)
    r, tau, gamma = 60, 2.0, 5.0
    Q = np.linalg.qr(rng.normal(size=(r, r)))[0]
    bounds = tau / (2 * gamma) * (1 + spread * rng.normal(size=r))
    bounds[:6] = tau / (2 * gamma) * np.linspace(2, 8, 6)
    side = c.similarity([(i, i) for i in range(r)], bounds, ">=")
    problem = nw.Problem(Q, side, nw.Frobenius(), -tau / 2 * np.eye(r), gamma)
    found = nw.solve(problem, ThinFactor(), tol=1e-12)
    assert found.status is nw.Status.SOLVED
    known = Q.T @ np.diag(np.maximum(gamma * bounds - tau / 2, 0) / (1 + gamma)) @ Q
    assert found.matrix == pytest.approx(known, abs=1e-5)


def test_the_factor_is_as_thin_as_the_rank() -> None:
    problem = random_problem(0)
    found = nw.solve(problem, ThinFactor())
    assert found.solver == "ThinFactor"
    rank = np.linalg.matrix_rank(found.matrix, tol=1e-4)
    assert rank <= found.factor.shape[1] <= rank + 5 < problem.features.shape[1] / 2


def test_nothing_violated_gives_zero() -> None:
    problem = nw.Problem(np.eye(4), c.at_most([(0, 1)], 1.0), nw.Frobenius(), -np.eye(4))
    found = nw.solve(problem, ThinFactor())
    assert found.status is nw.Status.SOLVED
    assert found.factor.shape == (4, 0)
    assert not found.matrix.any()


@pytest.mark.parametrize("penalty", [1.0, math.inf])
def test_high_rank_and_hard_rows_are_left_to_newton(penalty: float) -> None:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(40, 8))
    pairs = [rng.choice(40, 2, replace=False) for _ in range(30)]
    side = c.at_least(pairs, rng.uniform(5, 30, 30))
    problem = nw.Problem(G, side, nw.Frobenius(), -0.005 * np.eye(8), penalty)
    thin, full = (nw.solve(problem, solver, tol=1e-10) for solver in (ThinFactor(), None))
    assert thin.status is full.status is nw.Status.SOLVED
    assert thin.solver == "Newton"
    assert thin.matrix == pytest.approx(full.matrix, abs=1e-4)


def test_a_prior_that_is_positive_stays_where_nothing_is_measured() -> None:
    side = c.at_least([(0, 1)], 8.0)
    problems = [nw.Problem(np.eye(5), side, nw.Frobenius(), scale * np.eye(5)) for scale in (0.5, -0.5)]
    for problem in problems:
        thin, full = (nw.solve(problem, solver, tol=1e-10) for solver in (ThinFactor(), None))
        assert thin.matrix == pytest.approx(full.matrix, abs=1e-4)


def test_other_divergences_are_refused() -> None:
    with pytest.raises(TypeError, match="Frobenius"):
        nw.solve(nw.Problem(np.eye(3), c.at_most([(0, 1)], 1.0)), ThinFactor())
