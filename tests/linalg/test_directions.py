"""Signs of columns and turns of points, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearwise.linalg.directions import evened, turned, with_fixed_signs

rng = np.random.default_rng(0)


def test_signs_do_not_depend_on_rounding() -> None:
    root = np.sqrt(0.5)
    tied = np.array([[root, 0.0, 0.1], [-root, 0.0, 0.3], [0.0, 0.0, -0.5]])
    expected = np.array([[root, 0.0, -0.1], [-root, 0.0, -0.3], [0.0, 0.0, 0.5]])
    for row, factor in ((0, 1 + 1e-14), (1, 1 + 1e-14), (1, 1 - 1e-14)):
        for sign in (1.0, -1.0):
            rounded = sign * tied
            rounded[row, 0] *= factor
            np.testing.assert_allclose(with_fixed_signs(rounded), expected, atol=1e-13)
    coordinates = np.array([[0.0, 1.0, -2.0], [0.0, -3.0, 2.0]])
    np.testing.assert_array_equal(with_fixed_signs(tied, coordinates), tied * [1, -1, -1])


def test_turned_points_are_the_same_points_nearest_to_the_target() -> None:
    target = rng.normal(size=(9, 3))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    np.testing.assert_allclose(turned(target @ turn * 1e200, target * 1e-200), target * 1e200, rtol=1e-10)
    points = rng.normal(size=(9, 3))
    found = turned(points, target)
    np.testing.assert_allclose(found @ found.T, points @ points.T, atol=1e-12)
    # nearest: <found, target> is the sum of the singular values of points^T target
    assert np.sum(found * target) == pytest.approx(np.linalg.svd(points.T @ target, compute_uv=False).sum())


def test_vectors_are_evened_within_groups_and_down_to_a_share() -> None:
    W = np.random.default_rng(0).normal(size=(9, 4)) * (1.0, 1e-5, 1e3, 1e-14)
    alike = W @ evened(W, None, 1e-11)
    lengths = np.sort(np.linalg.norm(alike, axis=0))
    assert_allclose(lengths[1:], 1.0, rtol=1e-6)
    assert lengths[0] < 1e-4  # 1e-17 of the longest is not stretched to the end
    T = evened(W[:, :3], np.array([0, 1, 0]), 1e-11)
    assert not T[1, [0, 2]].any()
    assert not T[[0, 2], 1].any()
    one = W[:, [0, 2]] @ T[np.ix_([0, 2], [0, 2])]
    assert_allclose(one.T @ one, np.eye(2), atol=1e-9)
    assert np.isfinite(evened(np.zeros((3, 2)), None, 1e-11)).all()
