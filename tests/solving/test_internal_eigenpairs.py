"""The positive eigenpairs that a thin factor needs."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.solving.thin import positive_eigenpairs


@pytest.mark.parametrize("expected", [1, 100])
def test_positive_eigenpairs_are_all_of_them(expected: int) -> None:
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.normal(size=(80, 80)))[0]
    wanted = np.concatenate([-rng.uniform(0, 1, 68), np.full(5, 1e-7), np.full(4, 1.0), [2.0, 2.0, 3.0]])
    values, V = positive_eigenpairs((Q * wanted) @ Q.T, expected)
    assert values == pytest.approx(wanted[68:], abs=1e-12)
    assert np.abs(V.T @ V - np.eye(12)).max() < 1e-10
    assert np.abs((V * values) @ V.T - (Q * np.maximum(wanted, 0)) @ Q.T).max() < 1e-12
