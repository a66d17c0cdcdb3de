"""Interchangeable objects are found as groups, from which the matrix comes back."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.named import _groups


def test_groups_are_found_and_expanded() -> None:
    small = np.tanh(np.random.default_rng(3).normal(size=(12, 12)))
    small = (small + small.T) / 2
    np.fill_diagonal(small, 1.0)
    member_of = np.random.default_rng(0).integers(12, size=90)
    A = small[np.ix_(member_of, member_of)] * 0.9
    np.fill_diagonal(A, 1.0)
    groups, inside = _groups.find(A)
    assert len(groups.sizes) == 12
    assert groups.expanded(*groups.reduced(A, inside)) == pytest.approx(A, abs=1e-14)


def test_rows_that_only_look_alike_are_no_group() -> None:
    A = np.eye(80) + 0.9 * (np.roll(np.eye(80), 1, 0) + np.roll(np.eye(80), -1, 0))
    groups, _ = _groups.find(A)
    assert groups.is_trivial
