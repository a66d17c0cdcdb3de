"""Searching in blocks finds what all distances at once show, whatever the size of the blocks."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.linalg import nearest

rng = np.random.default_rng(0)
POINTS = rng.standard_normal((41, 3))
SQUARED = np.square(POINTS[:, None] - POINTS).sum(axis=2)


@pytest.mark.parametrize("numbers", [1, 10, 100, 3000])
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("leave_out", [True, False])
def test_blocks_of_any_size(numbers: int, k: int, leave_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "NUMBERS", numbers)
    queries = rng.permutation(41)[:17]
    own = queries if leave_out else None
    found = nearest.nearest(lambda rows, others: SQUARED[queries[rows], others], 17, 41, k, own)
    masked = SQUARED[queries].copy()
    if leave_out:
        masked[np.arange(17), queries] = np.inf
    expected = np.argsort(masked, axis=1, kind="stable")[:, :k]
    assert np.array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))


def test_one_that_is_not_among_the_others_is_no_neighbour_of_its_own() -> None:
    found = nearest.nearest(lambda rows, others: SQUARED[rows, others], 2, 41, 1, np.array([-1, 1]))
    assert found[0, 0] == 0
    assert found[1, 0] != 1


def test_there_may_be_no_queries() -> None:
    assert nearest.nearest(lambda rows, others: SQUARED[rows, others], 0, 41, 3).shape == (0, 3)
