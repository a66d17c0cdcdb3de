"""Problems that are stated with more than rows: matrices in blocks, fixed parts, own divergences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cases
import kkt
import nearwise as nw
from nearwise import constraints as c

divergences = pytest.mark.parametrize(
    "divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=lambda d: type(d).__name__
)
GROUPS = np.array([0, 1, 0, 1, 2, 0])
BETWEEN = np.not_equal.outer(GROUPS, GROUPS)


def every_kind(rng: np.random.Generator) -> tuple[np.ndarray, nw.Constraints]:
    G = rng.normal(size=(10, 6))
    A = rng.normal(size=(10, 10))
    side = (
        c.at_most([(0, 1), (2, 3)], 2.0)
        + c.at_least([(4, 5)], 12.0)
        + c.closer([(6, 7, 8)], 1.0)
        + c.similarity([(0, 9), (3, 3)], 2.5, "<=")
        + c.linear([A @ A.T / 10], 30.0, "==")
    )
    return G, side


@divergences
@pytest.mark.parametrize("has_prior", [False, True], ids=["identity", "prior"])
def test_a_matrix_in_blocks_is_zero_between_them(divergence: nw.Divergence, has_prior: bool) -> None:
    rng = np.random.default_rng(0)
    G, side = every_kind(rng)
    root = np.where(BETWEEN, 0.0, rng.normal(size=(6, 6)))
    prior = root @ root.T if has_prior else None
    result = nw.solve(nw.Problem(G, side, divergence, prior, 5.0, groups=GROUPS))
    assert result.status is nw.Status.SOLVED
    assert (result.matrix[BETWEEN] == 0).all()
    assert np.count_nonzero(result.matrix) >= 10  # under Frobenius a block may be zero


@divergences
@pytest.mark.parametrize("rank", [6, 4], ids=["whole range", "part of it"])
def test_certificates_of_blocks_are_those_of_dense_matrices(divergence: nw.Divergence, rank: int) -> None:
    """In every row's matrix the entries between blocks do not count."""
    rng = np.random.default_rng(1)
    G, side = every_kind(rng)
    root = np.where(BETWEEN, 0.0, rng.normal(size=(6, 6)))[:, np.arange(6) < rank]
    prior = root @ root.T
    problem = nw.Problem(G, side, divergence, prior, 5.0, groups=GROUPS)
    stated = kkt.written_out(problem, prior)
    dense = replace(stated, A=np.where(BETWEEN, 0.0, stated.A))
    result = nw.solve(problem, max_iter=3)  # where the gap is open yet
    M = result.matrix
    assert problem.values(M) == pytest.approx(dense.values(M), rel=1e-9, abs=1e-9)
    assert result.certificate.primal == pytest.approx(dense.objective(M), rel=1e-8)
    again = problem.certificate(M, result.dual)
    assert again.primal == pytest.approx(dense.objective(M), rel=1e-8)
    assert again.gap == pytest.approx(result.certificate.gap, rel=1e-6)
    solved = nw.solve(problem, tol=1e-10)
    assert again.dual <= solved.certificate.primal * (1 + 1e-9)
    assert kkt.stationarity_error(dense, solved.matrix, solved.dual) <= 1e-4 * max(1.0, again.primal)


@divergences
def test_a_value_with_a_negative_fixed_part_may_be_negative(divergence: nw.Divergence) -> None:
    penalty, fixed, bound = 0.01, -50.0, 42.0
    problem = nw.Problem([[0.0], [1.0]], c.equal([(0, 1)], bound), divergence, None, penalty, fixed=[fixed])
    result = nw.solve(problem)
    m = np.linspace(0.01, 100.0, 100_000)
    size = 1.0 + abs(fixed)
    cost = penalty / 2 * divergence.curvature(np.array([size])) * (m + fixed - bound) ** 2
    objective = divergence.scalar(m, np.ones_like(m)) + cost
    assert result.status is nw.Status.SOLVED
    assert result.certificate.primal == pytest.approx(objective.min(), rel=1e-4)
    assert result.matrix[0, 0] == pytest.approx(m[objective.argmin()], abs=0.01)
    assert result.matrix[0, 0] + fixed < 0


@pytest.mark.parametrize("seed", [3, 6, 22])
def test_penalties_of_very_different_sizes_under_a_divergence_of_the_user_s(seed: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(10, 5))
    pairs = [rng.choice(10, 2, replace=False) for _ in range(30)]
    side = c.at_most(pairs[:15], 10.0 ** rng.uniform(-1, 3, 15))
    side += c.at_least(pairs[15:], 10.0 ** rng.uniform(0, 3, 15))
    result = nw.solve(nw.Problem(G, side, cases.ThreeHalves(), penalty=10.0 ** rng.uniform(-6, 6, 30)))
    assert result.status is nw.Status.SOLVED, result.message
    assert result.n_iter < 300
