"""Sums of few rows that are semidefinite: coordinates, corrections, rows alone and in pairs, a program."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearwise.core.contradictions import of_one_or_two, sparsest, whitened
from nearwise.core.rows import Rows
from nearwise.linalg.packing import packing

RNG = np.random.default_rng(0)


def distances(features: np.ndarray) -> Rows:
    """Of all pairs of objects."""
    first, second = np.tril_indices(len(features), -1)
    m = len(first)
    return Rows.of(features, first, second, m, np.ones(m), np.arange(m), m)


def products(features: np.ndarray) -> Rows:
    """Of all objects with all."""
    first, second = np.tril_indices(len(features))
    m = len(first)
    return Rows.of(features, first, second, 0, np.ones(m), np.arange(m), m)


@pytest.mark.parametrize("kind", [distances, products])
def test_magnitudes_add_up_to_the_identity(kind) -> None:
    features = RNG.normal(size=(6, 4)) * [1.0, 1e-6, 1e6, 1.0]
    rows = kind(features)
    y = RNG.normal(size=rows.n_rows)
    y[3] = 0.0
    white = whitened(rows, y)
    x, z = white.x, white.y
    assert_allclose((x.T @ x + z.T @ z) / 2, np.eye(4), atol=1e-9)
    assert_allclose(white.matrices().sum(axis=0), white.total, atol=1e-12)
    assert len(white.rows) == rows.n_rows - 1
    assert white.magnitudes.sum() <= 4 + 1e-9  # the trace, less what vectors of products differ by
    assert -1 <= white.smallest <= 0
    assert whitened(rows, 1e-100 * y).smallest == pytest.approx(white.smallest)


def test_rows_that_measure_nothing_have_no_coordinates() -> None:
    assert whitened(distances(np.ones((3, 2))), np.ones(3)) is None


def test_a_correction_makes_eigenvalues_zero_quadratically() -> None:
    """From multipliers near those of an S of rank 2 of 4."""
    rng = np.random.default_rng(3)
    rows, B = products(rng.normal(size=(5, 4))), rng.normal(size=(4, 2))
    y = np.linalg.lstsq(rows.packed(np.eye(4)), packing(4).pack(B @ B.T), rcond=None)[0]
    y *= 1 + 1e-4 * rng.normal(size=len(y))
    left = []
    for _ in range(4):
        white = whitened(rows, y)
        left.append(np.sort(np.abs(np.linalg.eigvalsh(white.total)))[1])
        y[white.rows] *= 1 + white.towards_singular(1e-3)
    assert left[0] > 1e-6
    assert left[1] < 1e-2 * left[0]
    assert left[3] < 1e-14
    assert white.towards_singular(0.0) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_program_for_few_rows_is_solved(seed) -> None:
    rng = np.random.default_rng(seed)
    white = whitened(distances(rng.normal(size=(8, 4))), rng.choice([-1.0, 1.0], 28))
    weights, c = rng.uniform(0.5, 1.5, 28), rng.normal(size=28)
    c = c - (c.sum() + 5.0) / 28  # so that 1 is on the side where c^T u < 0
    u = cp.Variable(28)
    S = sum(u[i] * each for i, each in enumerate(white.matrices() + 0.2 * np.eye(4)))
    expected = cp.Problem(cp.Minimize(weights @ u), [S >> 0, u >= 0, c @ u == -5.0]).solve(solver=cp.CLARABEL)
    found = sparsest(white.matrices() + 0.2 * np.eye(4), c, weights)
    assert weights @ found == pytest.approx(expected, rel=1e-6)
    assert (found > 1e-6 * found.max()).sum() < 12


def test_rows_alone_and_in_pairs() -> None:
    A, B = np.diag([1.0, 2.0]), np.diag([1.0, -1.0])
    matrices, none = np.array([A, -2 * A, B, B, A]), np.zeros(5, bool)
    c = np.array([1.0, -3.0, -1.0, 2.0, -1.0])
    found = list(of_one_or_two(matrices, np.full(5, 3.0), c, none))
    assert_allclose(found[0], [0, 0, 0, 0, 1])
    assert_allclose(found[1] / found[1].max(), [0, 0.5, 0, 0, 1])  # the clearer of two pairs
    assert_allclose(found[2] / found[2].max(), [1, 0.5, 0, 0, 0])
    assert len(found) == 3
    free = np.array([False, False, True, True, False])
    found = list(of_one_or_two(matrices, np.full(5, 3.0), c, free))
    assert any(np.allclose(u / np.abs(u).max(), [0, 0, 1, -1, 0]) for u in found)
