"""The plan of methods that `solve` makes when the user names none."""

from __future__ import annotations

import math

import numpy as np

import nearwise as nw
from nearwise import constraints as c
from nearwise.solving.automatic import stages


def test_hard_rows_that_outnumber_the_unknowns_begin_with_projections() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(300, size=(2000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    half = len(pairs) // 2
    side = c.at_most(pairs[:half], 2.0) + c.at_least(pairs[half:], 3.0)
    problem = nw.Problem(rng.normal(size=(300, 3)), side, penalty=math.inf)
    plan = [stage.solver for stage in stages(problem.formulation, 1e-6)]
    assert plan == ["CyclicProjections", "InteriorPoint", "Newton"]
