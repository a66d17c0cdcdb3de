"""Very many soft rows: solvers begin with some of them and in single precision, and the end is exact."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm

import kkt
import nearwise as nw
from nearwise import constraints as c

pytestmark = pytest.mark.long

N, R, COUNT = 400, 20, 60_000
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, N)
NEAR = RNG.normal(size=(N, R)) * np.linspace(0.3, 2, R) + RNG.normal(size=(4, R))[LABELS]
HALVES = RNG.integers(0, N // 2, (COUNT, 2)) + N // 2 * RNG.integers(0, 2, (COUNT, 1))
PAIRS = HALVES[HALVES[:, 0] != HALVES[:, 1]]
SAME = LABELS[PAIRS[:, 0]] == LABELS[PAIRS[:, 1]]
PAIRS, SAME = np.concatenate([PAIRS[SAME], PAIRS[~SAME]]), np.sort(SAME)[::-1]


@pytest.mark.parametrize("penalty", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize(
    "divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=lambda d: type(d).__name__
)
@pytest.mark.parametrize("apart", [0.0, 1e5], ids=["one cloud", "two clouds"])
def test_the_optimum_is_one_by_definition(apart: float, divergence: nw.Divergence, penalty: float) -> None:
    """Of two clouds far from each other, differences within one lose their digits in single precision."""
    G = NEAR + apart * (np.arange(N) < N // 2)[:, None]
    Z = G[PAIRS[:, 0]] - G[PAIRS[:, 1]]
    d = np.square(Z).sum(axis=1)
    near, far = np.percentile(d, [20, 80])
    side = c.at_most(PAIRS[SAME], near) + c.at_least(PAIRS[~SAME], far)
    bounds = np.where(SAME, near, far)
    problem = nw.Problem(G, side, divergence)
    gamma = penalty * problem.penalty_unit
    result = nw.solve(problem.with_penalty(gamma), nw.solvers.Newton(), tol=1e-9)
    assert result.status is nw.Status.SOLVED
    assert result.n_iter <= 60

    M = result.matrix
    p = np.sum(Z @ M * Z, axis=1)
    wrong = np.where(SAME, p > bounds, p < bounds)
    losses = gamma * divergence.scalar(p, bounds)[wrong]
    expected = divergence.value(M, np.eye(R)) + losses.sum()
    assert result.certificate.primal == pytest.approx(expected, rel=1e-9)

    slopes = np.where(wrong, gamma * (divergence.gradient(p) - divergence.gradient(bounds)), 0.0)
    assert np.asarray(result.dual) == pytest.approx(slopes, rel=1e-3, abs=1e-3 * np.abs(slopes).max())
    S = Z.T @ (slopes[:, None] * Z)
    residual = kkt.gradient_of(divergence, M) - kkt.gradient_of(divergence, np.eye(R)) + S
    root = np.real(sqrtm(M))
    along = np.abs(root @ residual @ root).max()
    assert along <= 1e-4 * max(np.abs(root @ S @ root).max(), 1.0)
    assert np.abs(M - np.eye(R)).max() > 0.01
