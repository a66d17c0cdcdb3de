"""Newton's linear system: each way of solving it, put into the equation written out."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.model.local import LocalAtoms
from nearwise.solving import _systems


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "r", "squares"), [(30, 12, True), (700, 40, True), (300, 30, False)])
def test_the_step_solves_the_equation(m: int, r: int, squares: bool, dtype: type) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(m, r)) / np.sqrt(r)).astype(dtype)
    y = x if squares else (rng.normal(size=(m, r)) / np.sqrt(r)).astype(dtype)
    coefficient = rng.choice([-1.0, 1.0], m)
    rows = LocalAtoms(x, y, coefficient, None, m)
    weights = 10 ** rng.uniform(-1, 2, m)
    gradient = rng.normal(size=(r, r))
    gradient = gradient + gradient.T
    D, curved = _systems.newton_step(rows, weights, gradient, None, 1e-8, False)
    A = coefficient[:, None, None] * np.einsum("ti,tj->tij", x.astype(float), y.astype(float))
    A = (A + A.swapaxes(1, 2)) / 2
    expected = np.einsum("t,tij->ij", weights * np.einsum("tij,ij->t", A, D), A)
    size = np.abs(gradient).max()
    assert curved == pytest.approx(expected, abs=1e-8 * size)
    assert D + expected == pytest.approx(-gradient, abs=1e-8 * size)
