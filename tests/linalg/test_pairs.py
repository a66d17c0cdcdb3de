"""Products in twice the precision, compared with exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from nearwise.linalg.pairs import PRECISION, Pair, product, squared_lengths, two_sum, weighted


def exact(A: Pair | np.ndarray) -> list[list[Fraction]]:
    high, low = A if isinstance(A, Pair) else (A, np.zeros_like(A))
    return [
        [Fraction(h) + Fraction(x) for h, x in zip(*rows, strict=True)]
        for rows in zip(high, low, strict=True)
    ]


def test_products_are_exact_to_twice_the_precision() -> None:
    rng = np.random.default_rng(0)
    A = Pair(rng.normal(size=(5, 30)), 1e-17 * rng.normal(size=(5, 30)))
    B = rng.normal(size=(30, 4)) * 10.0 ** rng.uniform(-6, 6, (30, 1))
    found, left, right = exact(product(A, B)), exact(A), exact(B)
    for i in range(5):
        for j in range(4):
            true = sum(left[i][k] * right[k][j] for k in range(30))
            size = sum(abs(left[i][k] * right[k][j]) for k in range(30))
            assert abs(found[i][j] - true) <= 30 * Fraction(PRECISION) * size


def test_squared_lengths_are_as_exact() -> None:
    rng = np.random.default_rng(1)
    A = Pair(rng.normal(size=(6, 9)) * 10.0 ** rng.uniform(-6, 6, (6, 9)), 1e-20 * rng.normal(size=(6, 9)))
    found, rows = exact(squared_lengths(A).reshaped(6, 1)), exact(A)
    for [length], row in zip(found, rows, strict=True):
        true = sum(entry**2 for entry in row)
        assert abs(length - true) <= 9 * Fraction(PRECISION) * true


def test_weighted_rows_are_exact_to_the_last_digit_of_both_parts() -> None:
    rng = np.random.default_rng(2)
    A = Pair(rng.normal(size=(5, 4)) * 10.0 ** rng.uniform(-90, 90, (5, 4)), np.zeros((5, 4)))
    weights = rng.normal(size=5) * 10.0 ** rng.uniform(-90, 90, 5)
    found, rows = exact(weighted(weights, A)), exact(A)
    for i, weight in enumerate(weights.tolist()):
        assert found[i] == [Fraction(weight) * entry for entry in rows[i]]
    low = Pair(np.ones((1, 1)), np.array([[2.0**-60]]))
    assert exact(weighted(np.array([3.0]), low))[0][0] == 3 + Fraction(3, 2**60)


def test_what_cancels_keeps_its_digits() -> None:
    A, B = np.array([[1.0 + 2.0**-40, -1.0]]), np.array([[2.0**40 + 2.0**-10], [2.0**40 + 1.0]])
    true = (1 + Fraction(1, 2**40)) * (2**40 + Fraction(1, 2**10)) - 2**40 - 1
    assert exact(product(A, B))[0][0] == true
    assert (A @ B)[0, 0] != float(true)


def test_sums() -> None:
    total, error = two_sum(np.array([1.0]), np.array([1e-20]))
    assert total[0] == 1.0
    assert error[0] == 1e-20
    pair = Pair(total, error).plus(np.array([-1.0]))
    assert pair.rounded[0] == 1e-20
    assert pair.reshaped(1, 1).T.high.shape == (1, 1)
