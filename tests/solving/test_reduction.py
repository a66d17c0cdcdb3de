"""Solutions do not depend on the unit of the data; where nothing is measured the prior stays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cases
import nearwise as nw
from nearwise import constraints as c

built_in = pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)


def random_problem(
    divergence: nw.Divergence, r: int, prior_scale: float | None, seed: int, penalty: float = 0.6
) -> nw.Problem:
    rng = np.random.default_rng(seed)
    G = 30.0 * rng.normal(size=(9, r))
    K = (prior_scale or 1.0) * G @ cases.positive_definite(rng, r) @ G.T
    pairs = [(0, 1), (2, 3), (1, 2)]
    d = np.array([K[i, i] + K[j, j] - 2 * K[i, j] for i, j in pairs])
    side = c.at_most(pairs[:1], d[:1]) + c.at_least(pairs[1:], d[1:]) + c.closer([(4, 5, 6)], 3.0)
    side = side + c.similarity([(0, 3), (7, 7)], [abs(K[0, 3]), K[7, 7]], "<=")
    prior = None if prior_scale is None else prior_scale * cases.positive_definite(rng, r)
    return nw.Problem(G, side, divergence, prior, penalty)


SHAPES = pytest.mark.parametrize(
    ("r", "prior_scale"), [(3, None), (3, 1.0), (3, 1e5), (14, None), (14, 1.0), (14, 1e-3)]
)


@built_in
@SHAPES
@pytest.mark.parametrize("penalty", [0.6, math.inf])
def test_reduced_solution_solves_the_original(
    divergence: nw.Divergence, r: int, prior_scale: float | None, penalty: float
) -> None:
    """The certificate is that of the original data, so it needs no second solver."""
    problem = random_problem(divergence, r, prior_scale, 4, penalty)
    result = nw.solve(problem, tol=1e-9)
    assert result.status is nw.Status.SOLVED
    for certificate in (result.certificate, problem.certificate(result.matrix, result.dual)):
        assert certificate.gap <= 1e-8
        assert certificate.hard_violation <= 1e-8


def test_outside_the_span_of_few_constraints_the_prior_stays() -> None:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(40, 25))
    pairs = [(0, 1), (1, 2), (0, 2), (5, 6)]  # three objects span two dimensions
    for divergence in cases.DIVERGENCES:
        problem = nw.Problem(G, c.at_most(pairs, 3.0), divergence, penalty=math.inf)
        M = nw.solve(problem, tol=1e-10).matrix
        Z = np.array([G[i] - G[j] for i, j in pairs])
        outside = np.linalg.svd(Z)[2][3:]
        assert_allclose(M @ outside.T, outside.T, atol=1e-10)  # the representer theorem
        assert np.linalg.norm(M - np.eye(25)) > 0.5


@built_in
def test_outside_the_span_of_features_of_low_rank_the_prior_stays(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(3)
    G = rng.integers(-3, 4, size=(60, 5)).astype(float) @ rng.integers(-3, 4, size=(5, 24))
    pairs = rng.permutation(60).reshape(-1, 2)
    d = np.square(G[pairs[:, 0]] - G[pairs[:, 1]]).sum(axis=1)
    problem = nw.Problem(G, c.at_most(pairs, 0.5 * d), divergence, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    outside = np.linalg.svd(G)[2][5:]
    assert_allclose(outside @ result.matrix @ outside.T, np.eye(19), atol=1e-9)


@pytest.mark.parametrize("size", [1e-6, 1e-12, 1e-30])
def test_a_direction_that_only_short_features_have_is_kept(size: float) -> None:
    """A column in a small unit is all that one of the objects has."""
    rng = np.random.default_rng(4)
    G = rng.normal(size=(40, 20))
    G[:, -1] = 0.0
    G[-2:] = 0.0
    G[-1, -1] = size
    pairs = [(k, k + 1) for k in range(37)]
    problem = nw.Problem(
        G, c.similarity([(39, 39)], 4 * size**2, "==") + c.at_most(pairs, 1e3), penalty=math.inf
    )
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.matrix[-1, -1], 4.0, rtol=1e-5)


# --- the unit of the data ----------------------------------------------------------------------------------


def scaled_problem(divergence: nw.Divergence, scale: float, penalty: float, seed: int = 0) -> nw.Problem:
    """Features times `scale`, bounds times its square: the same problem in another unit."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(8, 3))
    K = G @ cases.positive_definite(rng, 3) @ G.T

    def d(i: int, j: int) -> float:
        return K[i, i] + K[j, j] - 2 * K[i, j]

    square = scale**2
    near, far = sorted([(0, 5), (1, 6)], key=lambda pair: d(*pair))
    margin = (d(*far) - d(*near)) / 2
    side = (
        c.at_most([(0, 1), (2, 3)], np.array([d(0, 1), d(2, 3)]) * square)
        + c.at_least([(4, 5)], d(4, 5) * square)
        + c.equal([(6, 7)], d(6, 7) * square)
        + c.closer([(*near, *far)], margin * square)
        + c.similarity([(0, 4), (3, 3)], np.array([K[0, 4], K[3, 3]]) * square, ">=")
    )
    return nw.Problem(G * scale, side, divergence, penalty=penalty)


def assert_same_answer(
    divergence: nw.Divergence, scale: float, penalty: float, scaled_penalty: float
) -> None:
    here = nw.solve(scaled_problem(divergence, 1.0, penalty), tol=1e-11)
    there = nw.solve(scaled_problem(divergence, scale, scaled_penalty), tol=1e-11)
    assert here.status is there.status is nw.Status.SOLVED
    assert here.certificate.primal > 1e-3
    assert_allclose(there.matrix, here.matrix, atol=1e-5)
    assert_allclose(there.certificate.primal, here.certificate.primal, rtol=1e-8)
    # multipliers are slopes with respect to squared distances
    assert_allclose(there.dual * scale * scale, here.dual, rtol=1e-3, atol=1e-3 * np.abs(here.dual).max())


EXTREME = [1e-150, 1e-100, 1e-30, 1e-3, 7.0, 1e30, 1e100, 1e150]


@built_in
@pytest.mark.parametrize("scale", EXTREME)
def test_hard_problems_do_not_depend_on_the_unit(divergence: nw.Divergence, scale: float) -> None:
    assert_same_answer(divergence, scale, math.inf, math.inf)


@pytest.mark.parametrize("scale", EXTREME)
def test_soft_logdet_does_not_depend_on_the_unit(scale: float) -> None:
    assert_same_answer(nw.LogDet(), scale, 2.0, 2.0)


@pytest.mark.parametrize("scale", [1e-40, 1e-6, 0.3, 1e3, 1e40])
@pytest.mark.parametrize(("divergence", "power"), [(nw.VonNeumann(), 2), (nw.Frobenius(), 4)])
def test_soft_problems_depend_on_the_unit_as_their_slack_does(
    divergence: nw.Divergence, power: int, scale: float
) -> None:
    assert_same_answer(divergence, scale, 2.0, 2.0 / scale**power)


@built_in
@pytest.mark.parametrize("exponent", [-400, -1, 1, 300])
def test_powers_of_two_change_no_bit(divergence: nw.Divergence, exponent: int) -> None:
    here = nw.solve(scaled_problem(divergence, 1.0, math.inf))
    there = nw.solve(scaled_problem(divergence, 2.0**exponent, math.inf))
    assert np.array_equal(there.matrix, here.matrix)


@built_in
@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_priors_of_any_size_are_equal(divergence: nw.Divergence, scale: float) -> None:
    """Prior and bounds times `scale` give M times `scale`."""
    plain = scaled_problem(divergence, 1.0, math.inf)
    tiny = scaled_problem(divergence, math.sqrt(scale), math.inf)
    here = nw.solve(nw.Problem(plain.features, plain.constraints, divergence, penalty=math.inf), tol=1e-11)
    there = nw.solve(
        nw.Problem(plain.features, tiny.constraints, divergence, scale * np.eye(3), math.inf), tol=1e-11
    )
    assert there.status is nw.Status.SOLVED
    assert_allclose(there.matrix / scale, here.matrix, atol=1e-5)


def test_outside_the_measured_span_a_negative_prior_leaves_nothing() -> None:
    """Frobenius to -I/2 with one measured direction: M is 0 in all others, by the optimality condition."""
    z = np.array([1.0, 2.0, 0.0, -1.0])
    side = c.at_least([(0, 1)], 3.0)
    problem = nw.Problem([z, 0 * z], side, nw.Frobenius(), prior=-0.5 * np.eye(4), penalty=np.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    assert result.matrix == pytest.approx(3.0 / (z @ z) ** 2 * np.outer(z, z), abs=1e-6)
