"""Newton's method on the dual: the same optimum as another method, its steps, and where it hands over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearwise as nw
from nearwise import constraints as c

DIVERGENCES = (nw.LogDet(), nw.VonNeumann(), nw.Frobenius())
divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


def problem(divergence: nw.Divergence, penalty: Any, seed: int = 0) -> nw.Problem:
    """Rows of every kind and relation that a matrix near the identity meets."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(12, 5))
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    root = np.eye(5) + 0.2 * rng.normal(size=(5, 5))
    K = G @ root @ root.T @ G.T
    d = np.array([K[i, i] + K[j, j] - 2 * K[i, j] for i, j in pairs])
    side = c.at_most(pairs[:6], d[:6]) + c.at_least(pairs[6:11], d[6:11]) + c.equal(pairs[11:13], d[11:13])
    side = side + c.similarity([(7, 8)], K[7, 8], "==") + c.closer([(0, 1, 2) if d[0] < d[1] else (0, 2, 1)])
    return nw.Problem(G, side, divergence, penalty=penalty)


@divergences
@pytest.mark.parametrize("penalty", [0.1, 10.0, math.inf])
def test_it_finds_the_optimum_that_the_interior_point_method_finds(
    divergence: nw.Divergence, penalty: float
) -> None:
    given = problem(divergence, penalty)
    found = nw.solve(given)
    assert found.solver == "DualNewton"
    assert found.status is nw.Status.SOLVED
    other = nw.solve(given, nw.solvers.InteriorPoint(1e-10), tol=1e-9)
    assert_allclose(found.matrix, other.matrix, atol=1e-4 * np.abs(other.matrix).max())
    assert found.certificate.dual <= other.certificate.primal * (1 + 1e-9) + 1e-12
