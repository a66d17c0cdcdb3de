"""The matrix that belongs to multipliers: both factorisations, against definitions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearwise as nw
from cases import ThreeHalves
from nearwise import constraints as c
from nearwise._common.types import Array
from nearwise.solving._mirrors import Inverse, Spectral, mirror_of
from nearwise.solving._written import WrittenRows

DIVERGENCES = [nw.LogDet(), nw.VonNeumann(), nw.Frobenius(), ThreeHalves()]


@pytest.fixture
def rows() -> WrittenRows:
    """Squares, sums of squares and products."""
    G = np.random.default_rng(3).normal(size=(7, 4))
    side = c.at_most([(0, 1), (2, 3)], 1.0) + c.closer([(0, 1, 4)]) + c.similarity([(5, 6)], 0.3, "==")
    return WrittenRows.of(nw.Problem(G, side).formulation.measurements)


def gradient_at(divergence: nw.Divergence, seed: int) -> tuple[Array, Array]:
    """phi'(M) of a random definite M, and M."""
    root = np.random.default_rng(seed).normal(size=(4, 4))
    x, V = np.linalg.eigh(root @ root.T + 0.5 * np.eye(4))
    return (V * divergence.gradient(x)) @ V.T, (V * x) @ V.T


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
def test_factor_values_and_hessian_are_those_of_the_matrix(
    divergence: nw.Divergence, rows: WrittenRows
) -> None:
    gradient, M = gradient_at(divergence, 1)
    found = mirror_of(divergence).of(rows, divergence, -np.tril(gradient))
    assert isinstance(found, Inverse if isinstance(divergence, nw.LogDet) else Spectral)
    assert_allclose(found.factor @ found.factor.T, M, atol=1e-12)
    assert_allclose(found.values(), rows.values(np.linalg.cholesky(M)), atol=1e-12)
    hessian, h = found.hessian(), 1e-6
    for j, unit in enumerate(np.eye(rows.n_rows)):
        A = rows.adjoint(unit)
        above, below = (
            mirror_of(divergence).of(rows, divergence, -gradient - sign * h * A).values() for sign in (1, -1)
        )
        assert_allclose(hessian[:, j], (above - below) / (2 * h), rtol=1e-6, atol=1e-7)


def test_both_ways_agree_under_logdet(rows: WrittenRows) -> None:
    gradient, _ = gradient_at(nw.LogDet(), 2)
    inverse, spectral = (way.of(rows, nw.LogDet(), -gradient) for way in (Inverse, Spectral))
    assert inverse is not None
    assert spectral is not None
    assert_allclose(inverse.values(), spectral.values(), rtol=1e-12)
    assert_allclose(inverse.hessian(), spectral.hessian(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", [Inverse, Spectral])
def test_outside_the_domain_there_is_none(way, rows: WrittenRows) -> None:
    with np.errstate(all="ignore"):
        assert way.of(rows, nw.LogDet(), np.diag([1.0, 2.0, -0.5, 1.0])) is None


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
def test_at_the_prior_it_is_what_a_factorisation_finds(divergence: nw.Divergence, rows: WrittenRows) -> None:
    prior = np.array([0.3, 1.0, 2.0, 7.0])
    way = mirror_of(divergence)
    found, expected = (
        way.at_prior(rows, divergence, prior),
        way.of(rows, divergence, -np.diag(divergence.gradient(prior))),
    )
    assert_allclose(found.factor @ found.factor.T, np.diag(prior), atol=1e-14)
    assert_allclose(found.values(), expected.values(), rtol=1e-12)
    assert_allclose(found.hessian(), expected.hessian(), rtol=1e-10, atol=1e-12)


def test_the_boundary_of_logdet_s_domain_is_where_it_is_said_to_be(rows: WrittenRows) -> None:
    gradient, _ = gradient_at(nw.LogDet(), 4)
    change = rows.adjoint(np.array([-3.0, 1.0, 2.0, -1.0]))
    inverse = Inverse.of(rows, nw.LogDet(), -gradient)
    assert inverse is not None
    end = 1 / inverse.closeness(change)
    for share, is_inside in ((0.999, True), (1.001, False)):
        smallest = np.linalg.eigvalsh(share * end * change - gradient)[0]
        assert bool(smallest > 0) is is_inside
    assert inverse.closeness(rows.adjoint(np.array([1.0, 1.0, 0.0, 0.0]))) < 1e-10  # where there is no end
    t, push = np.array([-2.0, -0.5]), np.array([1.0, -1.0])
    assert Inverse.reply_closeness(t, push) == 0.5  # -2 + 2 is 0
    assert Inverse.replies(nw.LogDet(), t + 1.999 * push) is not None
    assert Inverse.replies(nw.LogDet(), t + 2.001 * push) is None
