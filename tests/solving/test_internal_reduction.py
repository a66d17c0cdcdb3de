"""The formulation that solvers see is the same problem, in as few dimensions as its rows span."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose

import cases
import nearwise as nw
from cases import ThreeHalves
from nearwise import constraints as c
from nearwise.solvers import Formulation, Iterate
from nearwise.solving.reduction import reduced

DIVERGENCES = [*cases.DIVERGENCES, ThreeHalves()]


divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


built_in = pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)


seeds = st.integers(0, 2**32 - 1)


def grade(form: Formulation, factor: np.ndarray, y: np.ndarray) -> nw.Certificate:
    values = form.measurements.values_of_factor(factor)
    return form.certificate(Iterate(factor, values, y, form.measurements.adjoint(y)))


def root(M: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(M)
    return vectors * np.sqrt(np.maximum(values, 0.0))


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


@divergences
@SHAPES
@given(seed=seeds)
@settings(max_examples=5)
def test_reduced_problem_has_the_same_values_objective_and_dual(
    divergence: nw.Divergence, r: int, prior_scale: float | None, seed: int
) -> None:
    """At any M' = B' B'^T and y', not only at the optimum: B = lift(B'), y = dual_scale y'."""
    form = random_problem(divergence, r, prior_scale, seed).formulation
    small = reduced(form)
    rng = np.random.default_rng(seed)
    k = small.formulation.measurements.rank
    inside = cases.positive_definite(rng, k)
    B = small.lift(root(inside))
    M = B @ B.T

    values, small_values = form.measurements.values(M), small.formulation.measurements.values(inside)
    scale = small.formulation.losses.bounds / form.losses.bounds
    assert_allclose(small_values, scale * values, rtol=1e-9, atol=1e-9 * np.abs(small_values).max())

    y = 0.1 * np.where(form.losses.relations > 0, -1.0, 1.0) * rng.random(form.measurements.n_rows)
    unit = form.unit / small.formulation.unit
    ours, theirs = grade(form, root(M), y * small.dual_scale), grade(small.formulation, root(inside), y)
    assert_allclose(ours.primal, unit * theirs.primal, rtol=1e-8)
    assert_allclose(ours.dual, unit * theirs.dual, rtol=1e-6, atol=1e-8 * ours.primal)
    assert_allclose(ours.violation, theirs.violation, rtol=1e-8)


@divergences
@SHAPES
def test_reduced_prior_is_the_prior(divergence: nw.Divergence, r: int, prior_scale: float | None) -> None:
    form = random_problem(divergence, r, prior_scale, 0).formulation
    small = reduced(form)
    lifted = small.lift(np.diag(np.sqrt(np.maximum(small.formulation.prior, 0.0))))
    assert_allclose(lifted @ lifted.T, np.diag(form.prior), rtol=1e-12, atol=1e-12 * form.prior.max())


def test_few_constraints_reduce_to_their_span() -> None:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(40, 25))
    pairs = [(0, 1), (1, 2), (0, 2), (5, 6)]  # three objects span two dimensions
    prior = cases.positive_definite(rng, 25)
    for divergence in cases.DIVERGENCES:
        problem = nw.Problem(G, c.at_most(pairs, 3.0), divergence, penalty=math.inf)
        assert reduced(problem.formulation).formulation.measurements.rank == 3
        M = nw.solve(problem, tol=1e-10).matrix
        Z = np.array([G[i] - G[j] for i, j in pairs])
        outside = np.linalg.svd(Z)[2][3:]
        assert_allclose(M @ outside.T, outside.T, atol=1e-10)  # the representer theorem
        assert np.linalg.norm(M - np.eye(25)) > 0.5
    # LogDet moves any prior into the features; a prior that does not commute forbids this for the others
    logdet = nw.Problem(G, c.at_most(pairs, 3.0), nw.LogDet(), prior)
    assert reduced(logdet.formulation).formulation.measurements.rank == 3
    other = nw.Problem(G, c.at_most(pairs, 3.0), nw.VonNeumann(), prior)
    assert reduced(other.formulation).formulation.measurements.rank == 25


@built_in
def test_many_constraints_on_features_of_low_rank_reduce_to_their_span(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(3)
    G = rng.integers(-3, 4, size=(60, 5)).astype(float) @ rng.integers(-3, 4, size=(5, 24))
    pairs = rng.permutation(60).reshape(-1, 2)
    d = np.square(G[pairs[:, 0]] - G[pairs[:, 1]]).sum(axis=1)
    problem = nw.Problem(G, c.at_most(pairs, 0.5 * d), divergence, penalty=math.inf)
    reduction = reduced(problem.formulation)
    assert len(reduction.formulation.prior) == 5
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
    assert len(reduced(problem.formulation).formulation.prior) == 20
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.matrix[-1, -1], 4.0, rtol=1e-5)


def test_features_that_are_nearly_of_low_rank_are_not_reduced() -> None:
    rng = np.random.default_rng(5)
    G = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 20)) + 1e-9 * rng.normal(size=(60, 20))
    problem = nw.Problem(G, c.at_most(rng.permutation(60).reshape(-1, 2), 1.0), penalty=math.inf)
    assert len(reduced(problem.formulation).formulation.prior) == 20


@divergences
def test_reduced_rows_have_size_one(divergence: nw.Divergence) -> None:
    form = reduced(random_problem(divergence, 5, 1e4, 0).formulation).formulation
    assert 0.25 <= np.median(form.losses.sizes) <= 4.0
