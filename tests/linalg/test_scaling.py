"""Classical scaling finds points again, up to a turn, from their squared distances."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.linalg.scaling import inner_products, principal_coordinates

rng = np.random.default_rng(0)
POINTS = rng.standard_normal((30, 3)) * [3.0, 1.0, 0.1]
SQUARED = np.square(POINTS[:, None] - POINTS).sum(axis=2)


def test_inner_products_are_those_of_the_centred_points() -> None:
    centred = POINTS - POINTS.mean(axis=0)
    np.testing.assert_allclose(inner_products(SQUARED), centred @ centred.T, atol=1e-12)


@pytest.mark.parametrize("unit", [1.0, 1e-150, 1e150])
def test_coordinates_have_the_distances_and_fall_in_variance(unit: float) -> None:
    found = principal_coordinates(SQUARED * unit)
    assert found.shape == (30, 3)
    again = np.square(found[:, None] - found).sum(axis=2)
    np.testing.assert_allclose(again / unit, SQUARED, atol=1e-11)
    variances = np.sum((found / np.sqrt(unit)) ** 2, axis=0)
    expected = np.linalg.svd(POINTS - POINTS.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(variances, expected, rtol=1e-8)
    assert (found[np.abs(found).argmax(axis=0), range(3)] > 0).all()


def test_equal_objects_have_no_coordinates() -> None:
    assert principal_coordinates(np.zeros((4, 4))).shape == (4, 0)


def test_what_no_points_have_is_left_out() -> None:
    squared = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 1.0], [9.0, 1.0, 0.0]])  # 1 + 1 < 3: no triangle
    values = np.linalg.eigvalsh(inner_products(squared))
    assert values[0] < 0
    found = principal_coordinates(squared)
    assert found.shape == (3, 1)
    assert np.sum(found**2) == pytest.approx(values[-1])
