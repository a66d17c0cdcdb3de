"""The system of a step by an orthogonal factorisation, where rows are dependent but for their last digits."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.solving._interior_starts import WORK
from nearwise.solving._interior_system import OrthogonalSystem


@pytest.mark.parametrize("m", [3, 9])
@pytest.mark.parametrize("apart", [1.0, 1e-7])
def test_both_conditions_hold(m: int, apart: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=6) + apart * rng.normal(size=(m, 6))
    compliance = 10.0 ** rng.uniform(-12, 2, m)
    D, dy = rng.normal(size=6), rng.normal(size=m)
    K, e = D + rows.T @ dy, rows @ D - compliance * dy
    found_dy, found_D = OrthogonalSystem(rows.T, compliance).solve(K, e, 1)
    assert np.abs(found_D + rows.T @ found_dy - K).max() <= 1e-12 * np.abs(K).max()
    assert np.abs(rows @ found_D - compliance * found_dy - e).max() <= 1e-12 * np.abs(e).max()


def test_large_systems_are_left_to_others() -> None:
    assert OrthogonalSystem.work(78, 60) < WORK
    assert OrthogonalSystem.work(1830, 2000) > WORK
