"""Hard rows that are nearly dependent: room within the tolerance, and a share of the multipliers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c


def nearly_parallel(divergence: nw.Divergence) -> nw.Result:
    """Lengths along directions that differ by 1e-10: M = diag(1, 2e14), or half of that with room."""
    G = np.array([[1.0, 0.0], [1.0, 1e-10], [1.0, -1e-10], [0.0, 0.0]])
    side = c.equal([(0, 3), (1, 3), (2, 3)], [1.0, 1.0 + 2e-6, 1.0 + 2e-6])
    return nw.solve(nw.Problem(G, side, divergence, penalty=math.inf))


def test_a_relaxed_answer_says_so_and_bounds_the_stated_problem() -> None:
    result = nearly_parallel(nw.Frobenius())
    assert result.status is nw.Status.SOLVED, result.message
    assert "within the tolerance lower the objective" in result.message
    assert 4e-7 < result.certificate.hard_violation <= 1e-6
    assert result.certificate.dual <= (2e14 - 1) ** 2
    assert result.certificate.primal == pytest.approx((1e14 - 1) ** 2, rel=1e-3)


def test_rows_have_room_only_where_no_exact_answer_is_found() -> None:
    result = nearly_parallel(nw.LogDet())
    assert result.status is nw.Status.SOLVED, result.message
    assert "tolerance lower the objective" not in result.message
    assert result.certificate.primal == pytest.approx(2e14 - math.log(2e14) - 1, rel=1e-5)
