"""How multipliers are cleaned until they prove something."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c


def test_a_small_multiplier_of_another_row_is_left_out_of_a_proof() -> None:
    G = np.random.default_rng(0).normal(size=(8, 4))
    side = c.at_most([(0, 1)], 1.0) + c.at_least([(0, 1)], 2.0) + c.at_least([(3, 4)], 1.0)
    form = nw.Problem(G, side, penalty=math.inf).formulation
    clean = np.array([1.0, -1.0, 0.0])
    assert form.proof(clean - [0.0, 0.0, 1e-6]) == pytest.approx(clean)
    assert form.proof(-clean) is None
