"""When rounding hides what multipliers prove."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.solvers import Iterate


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()])
def test_multipliers_whose_square_overflows_are_lost_to_rounding(divergence: Any) -> None:
    form = nw.Problem(np.eye(2), c.at_most([(0, 1)], 1.0), divergence).formulation
    point = Iterate(np.eye(2), np.array([2.0]), np.array([1e250]), np.zeros((2, 2)))
    assert form.is_lost_to_rounding(point, point.dual, 1.0, 1e-6)
