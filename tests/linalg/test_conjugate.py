"""Conjugate gradients against direct solutions, curvature and trust regions against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nearwise.linalg.conjugate import End, Solution, conjugate_gradients


def _system(n: int, lowest: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """H with eigenvalues from `lowest` to 10 (a negative one alone, where it is), and b."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = np.linspace(1.0, 10.0, n)
    values[0] = lowest
    return (Q * values) @ Q.T, rng.normal(size=n)


def _model(H: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
    return float(x @ H @ x / 2 - b @ x)


@pytest.mark.parametrize("accuracy", [1e-2, 1e-6, 1e-11])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_residual_is_as_small_as_asked_for_and_as_said(accuracy: float, scaled: bool) -> None:
    H, b = _system(40, 0.5)
    scale = np.diagonal(H)
    found = conjugate_gradients(
        lambda p: H @ p, b, lambda r: r / scale, accuracy=accuracy, most_steps=200, in_its_norm=scaled
    )
    weight = 1 / scale if scaled else np.ones(40)
    residual = b - H @ found.x
    assert found.end is End.SOLVED
    assert math.sqrt(residual**2 @ weight) <= accuracy * math.sqrt(b**2 @ weight) * (1 + 1e-3)
    np.testing.assert_allclose(found.residual, residual, atol=1e-12 * np.abs(b).max())
    np.testing.assert_allclose(
        found.x, np.linalg.solve(H, b), atol=2 * accuracy / 0.5 * np.linalg.norm(b) * scale.max()
    )


def test_it_ends_after_as_many_steps_as_there_are_different_eigenvalues() -> None:
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30)))[0]
    H = (Q * np.repeat([1.0, 4.0, 9.0], 10)) @ Q.T
    products: list[np.ndarray] = []

    def product(p: np.ndarray) -> np.ndarray:
        products.append(p)
        return H @ p

    found = conjugate_gradients(product, np.ones(30), accuracy=1e-10, most_steps=30)
    assert found.end is End.SOLVED
    assert len(products) == 3
    assert abs(products[0] @ H @ products[2]) < 1e-10


def test_a_preconditioner_may_differ_from_step_to_step() -> None:
    """As that of an inner solver does, which ends at an accuracy of its own."""
    H, b = _system(300, 1e-3)
    inverse, noise = np.linalg.inv(H), np.random.default_rng(4)

    def nearly_inverse(r: np.ndarray) -> np.ndarray:
        return inverse @ r * noise.uniform(0.9, 1.1, len(r))

    found = conjugate_gradients(lambda p: H @ p, b, nearly_inverse, accuracy=1e-8, most_steps=60)
    assert found.end is End.SOLVED
    np.testing.assert_allclose(H @ found.x, b, atol=2e-8 * np.linalg.norm(b))


def test_the_unknown_may_be_a_matrix_in_any_order_of_memory() -> None:
    H, _ = _system(12, 1.0)
    B = np.asfortranarray(np.random.default_rng(2).normal(size=(12, 3)))
    found = conjugate_gradients(lambda P: H @ P, B, accuracy=1e-12, most_steps=100)
    np.testing.assert_allclose(found.x, np.linalg.solve(H, B), atol=1e-10)


def test_steps_are_limited() -> None:
    H, b = _system(40, 0.01)
    found = conjugate_gradients(lambda p: H @ p, b, accuracy=1e-12, most_steps=3)
    assert found.end is End.LIMIT
    assert np.linalg.norm(b - H @ found.x) > 1e-3
    assert _model(H, b, found.x) < 0


def test_negative_curvature_is_found_and_shown() -> None:
    H, b = _system(20, -2.0)
    found = conjugate_gradients(lambda p: H @ p, b, accuracy=1e-12, most_steps=100)
    assert found.end is End.CURVED
    assert found.direction @ H @ found.direction < 0
    assert found.x.any()
    assert _model(H, b, found.x) < 0
    first = conjugate_gradients(lambda p: -p, b, accuracy=1e-12, most_steps=100)
    assert first.end is End.CURVED
    assert not first.x.any()
    np.testing.assert_array_equal(first.direction, b)


def test_curvature_that_is_small_beside_the_largest_counts_as_none() -> None:
    H, b = np.diag([1.0, 1e-14]), np.ones(2)
    assert conjugate_gradients(lambda p: H @ p, b, accuracy=1e-9, most_steps=9).end is End.SOLVED
    flat = conjugate_gradients(lambda p: H @ p, b, accuracy=1e-9, most_steps=9, flat=1e-12)
    assert flat.end is End.CURVED
    assert flat.direction @ H @ flat.direction <= 1e-12 * (flat.direction @ flat.direction)


@pytest.mark.parametrize("lowest", [0.5, -2.0])
def test_a_step_stays_in_the_trust_region_and_its_residual_predicts_the_decrease(lowest: float) -> None:
    H, b = _system(20, lowest)

    def within(radius: float) -> Solution:
        return conjugate_gradients(lambda p: H @ p, b, accuracy=1e-10, most_steps=100, radius=radius)

    models = []
    for radius in (0.01, 0.1, 1.0):
        found = within(radius)
        assert found.end is End.EDGE
        assert np.linalg.norm(found.x) == pytest.approx(radius, rel=1e-12)
        models.append(_model(H, b, found.x))
        assert -(found.x @ found.residual + found.x @ b) / 2 == pytest.approx(models[-1], rel=1e-10)
    assert models == sorted(models, reverse=True)
    assert within(1e6).end is (End.SOLVED if lowest > 0 else End.EDGE)


@pytest.mark.parametrize("flat", [0.0, 1e-12])
def test_nothing_to_solve_is_zero(flat: float) -> None:
    found = conjugate_gradients(lambda p: p, np.zeros(3), accuracy=1e-6, most_steps=5, flat=flat)
    assert found.end is End.SOLVED
    np.testing.assert_array_equal(found.x, np.zeros(3))
