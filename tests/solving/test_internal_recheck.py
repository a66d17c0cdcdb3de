"""Certificates and proofs in twice the precision."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.model.recheck import Recheck

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
@pytest.mark.parametrize("rank", [6, 4], ids=["whole range", "part of it"])
def test_blocks_are_certified_in_twice_the_precision(divergence: nw.Divergence, rank: int) -> None:
    rng = np.random.default_rng(1)
    G, side = every_kind(rng)
    root = np.where(BETWEEN, 0.0, rng.normal(size=(6, 6)))[:, np.arange(6) < rank]
    problem = nw.Problem(G, side, divergence, root @ root.T, 5.0, groups=GROUPS)
    assert Recheck.of(problem) is not None
    result = nw.solve(problem, max_iter=3)  # where the gap is open yet
    stated = problem.certificate(result.matrix, 0.9 * result.dual)
    found, _ = Recheck(problem).certificate(
        problem.lift(problem.within_groups(problem.lower(result.factor))), 0.9 * result.dual
    )
    assert found.primal == pytest.approx(stated.primal, rel=1e-9)
    assert found.gap == pytest.approx(stated.gap, rel=1e-6)
