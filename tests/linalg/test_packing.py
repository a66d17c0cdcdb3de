"""Packed symmetric matrices."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.linalg.packing import packing


def symmetric(r: int, seed: int) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(r, r))
    return A + A.T


@pytest.mark.parametrize("r", [0, 1, 2, 7])
def test_inner_products_stay_what_they_are(r: int) -> None:
    of_order, A, B = packing(r), symmetric(r, 0), symmetric(r, 1)
    assert of_order.pack(A).shape == (r * (r + 1) // 2,)
    assert of_order.pack(A) @ of_order.pack(B) == pytest.approx(np.sum(A * B))


@pytest.mark.parametrize("r", [0, 1, 2, 7])
def test_unpacking_undoes_packing(r: int) -> None:
    A = symmetric(r, 2)
    found = packing(r).unpack(packing(r).pack(A))
    np.testing.assert_allclose(found, A, rtol=1e-15)
    np.testing.assert_array_equal(found, found.T)


def test_index_arrays_name_the_upper_triangle() -> None:
    of_order, A = packing(4), symmetric(4, 3)
    np.testing.assert_array_equal(A.take(of_order.flat), A[of_order.a, of_order.b])
    assert (of_order.a <= of_order.b).all()
    np.testing.assert_array_equal(of_order.scale, np.where(of_order.a == of_order.b, 1, np.sqrt(2)))


def test_one_object_per_order() -> None:
    assert packing(5) is packing(5)
    assert packing(5).order == 5
