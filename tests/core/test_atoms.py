"""Constraints bound as rows: values by definition, which rows are positive semidefinite, and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise import constraints as c
from nearwise.core.atoms import bind_rows, row_sizes
from nearwise.side.blocks import Constraints

RNG = np.random.default_rng(5)
G = RNG.normal(size=(9, 4))
A = RNG.normal(size=(9, 9))
SIDE = (
    c.at_most([(0, 1), (2, 3)], 1.0)
    + c.closer([(0, 1, 2)])
    + c.similarity([(4, 5), (6, 6)], 1.0, ">=")
    + c.linear(A + A.T, 1.0, "==")
    + c.linear(A @ A.T, 1.0, "<=")
)


def bound(side: Constraints, features: np.ndarray, basis: np.ndarray | None = None, many: bool = False):
    if many:  # enough rows for a graph over the features
        more = RNG.integers(len(features), size=(200_000, 2))
        side = side + c.at_most(more[more[:, 0] != more[:, 1]], 1.0)
    return bind_rows(side.resolve(len(features)), features, basis)


def expected(M: np.ndarray) -> np.ndarray:
    K = G @ M @ G.T

    def d(i: int, j: int) -> float:
        return K[i, i] + K[j, j] - 2 * K[i, j]

    values = [d(0, 1), d(2, 3), d(0, 1) - d(0, 2), K[4, 5], K[6, 6]]
    return np.array([*values, np.sum((A + A.T) * K), np.sum(A @ A.T * K)])


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_values_are_those_of_the_kernel(rotated: bool, many: bool) -> None:
    basis = np.linalg.qr(RNG.normal(size=(4, 4)))[0] if rotated else None
    rows = bound(SIDE, G, basis, many).rows
    B = RNG.normal(size=(4, 4))
    M = B @ B.T if basis is None else basis @ B @ B.T @ basis.T
    np.testing.assert_allclose(rows.values(B)[:7], expected(M), rtol=1e-9, atol=1e-9)


def test_definite_rows_go_by_the_kind_and_not_by_the_numbers() -> None:
    """K_ij of two equal objects is a square, but nothing changes when one of them moves a little."""
    np.testing.assert_array_equal(bound(SIDE, G).is_definite[:7], [1, 1, 0, 0, 1, 0, 1])
    same = G.copy()
    same[5] = same[4]
    np.testing.assert_array_equal(bound(SIDE, same).is_definite, bound(SIDE, G).is_definite)


@pytest.mark.parametrize("many", [False, True])
def test_differences_are_formed_before_the_change_of_basis(many: bool) -> None:
    far = G + 1e9
    side = c.at_most([(0, 1)], 1.0)
    basis = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    rows = bound(side, far, basis, many).rows
    z = far[0] - far[1]
    assert rows.values(np.eye(4))[0] == pytest.approx(z @ z, rel=1e-12)


def test_an_atom_that_the_range_of_the_prior_cuts_to_rounding_is_left_out() -> None:
    basis = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    inside = G.copy()
    inside[1] = inside[0] + basis[:, 3]  # their difference lies outside of the first three directions
    rows = bound(c.at_most([(0, 1), (0, 2)], 1.0), inside, basis[:, :3]).rows
    assert rows.values(np.eye(3))[0] == 0.0
    assert rows.values(np.eye(3))[1] > 0.1


def test_sizes_bound_values() -> None:
    found = bound(SIDE, G)
    diagonal = np.array([4.0, 1.0, 0.25, 9.0])
    sizes, values = row_sizes(found, diagonal), expected(np.diag(diagonal))
    assert (np.abs(values) <= sizes * (1 + 1e-12)).all()
    np.testing.assert_allclose(sizes[[0, 1, 4, 6]], values[[0, 1, 4, 6]])
    K = (G * diagonal) @ G.T
    assert sizes[2] == pytest.approx(K[0, 0] + K[1, 1] - 2 * K[0, 1] + K[0, 0] + K[2, 2] - 2 * K[0, 2])
    assert sizes[3] == pytest.approx(np.sqrt(K[4, 4] * K[5, 5]))
    root = G * np.sqrt(diagonal)
    assert sizes[5] == pytest.approx(np.abs(np.linalg.eigvalsh(root.T @ (A + A.T) @ root)).sum())
