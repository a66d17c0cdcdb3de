"""Weighted medians against those of repeated numbers."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.linalg.magnitudes import median


@pytest.mark.parametrize("seed", range(20))
def test_a_weight_is_a_number_of_repetitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 6, rng.integers(1, 9)).astype(float)
    counts = rng.integers(1, 4, len(values))
    expected = np.median(np.repeat(values, counts))
    assert median(values, counts.astype(float)) == expected
    assert median(values, counts / 3) == expected
    assert median(values) == np.median(values)
