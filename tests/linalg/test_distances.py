"""Squared distances of rows: of pairs of them, and of all rows of two tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nearwise.linalg import distances


@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("n", [7, 400], ids=["few", "many"])
def test_squared_distances_are_those_of_the_definition(as_given: Any, n: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n, 20)), rng.standard_normal((n + 3, 20))
    every = np.square(X[:, None] - Y).sum(axis=2)
    assert (X.shape[0] * Y.shape[0] * X.shape[1] <= distances._FEW_ENTRIES) is (n == 7)
    np.testing.assert_allclose(distances.all_squared_distances(as_given(X), as_given(Y)), every, atol=1e-12)
    i, j = rng.integers(0, n, (2, 50))
    pairs = distances.squared_distances(as_given(X), i, j)
    np.testing.assert_allclose(pairs, np.square(X[i] - X[j]).sum(axis=1), atol=1e-12)


def test_no_pairs_have_no_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    X, none = np.eye(3), np.empty(0, np.int64)
    assert distances.squared_distances(X, none, none).shape == (0,)
    monkeypatch.setattr(distances, "_GATHERED", 3)  # one pair at a time
    np.testing.assert_array_equal(
        distances.squared_distances(X, np.array([0, 1]), np.array([1, 1])), [2.0, 0.0]
    )
