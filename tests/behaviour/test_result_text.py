"""What a `Result` shows of itself: how many constraints are met, and an objective that can be asked for."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c

G = np.random.default_rng(0).normal(size=(40, 4))
PAIRS = [(k, k + 1) for k in range(0, 34, 2)]


def met(values: np.ndarray, bounds: np.ndarray) -> int:
    return int(np.count_nonzero(values <= bounds * (1 + 1e-3)))


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 1.0])
def test_the_repr_counts_the_constraints_that_are_met(penalty: float) -> None:
    bounds = np.linspace(0.05, 12.0, len(PAIRS))
    result = nw.solve(nw.Problem(G, c.at_most(PAIRS, bounds), penalty=penalty))
    assert result.status is nw.Status.SOLVED
    i, j = np.transpose(PAIRS)
    Z = G[i] - G[j]
    count = met(np.einsum("ma,ab,mb->m", Z, result.matrix, Z), bounds)
    assert 0 < count < len(PAIRS)
    assert count == round(result.certificate.satisfied * len(PAIRS))
    shown = [int(number) for number in re.findall(r"(?<![\w.+-])\d+(?![\w.+-])", repr(result))]
    assert {count, len(PAIRS)} <= set(shown)
    assert f"{result.certificate.violation:.1e}" not in repr(result)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
@pytest.mark.parametrize("penalty", [1.0, np.inf])
def test_the_objective_that_the_repr_shows_is_an_attribute(divergence: nw.Divergence, penalty: float) -> None:
    problem = nw.Problem(G, c.at_most(PAIRS[:3], 1.0), divergence, penalty=penalty)
    result = nw.solve(problem)
    assert result.objective == result.certificate.primal
    assert result.objective == pytest.approx(problem.objective(result.matrix), rel=1e-6)
