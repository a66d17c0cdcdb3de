"""How pairs are numbered when they are drawn."""

from __future__ import annotations

import numpy as np

from nearwise.side import drawing


def test_pairs_are_decoded_exactly_at_any_size():
    high = np.array([1, 2, 3, 94906267, 1_000_000_001, 3_000_000_001], dtype=np.int64)
    for low in (np.zeros_like(high), high - 1):
        found = drawing._triangle(high * (high - 1) // 2 + low)
        assert (found[0].tolist(), found[1].tolist()) == (low.tolist(), high.tolist())
