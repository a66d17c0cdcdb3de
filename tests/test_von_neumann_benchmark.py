"""The benchmark of von Neumann projections produces its tables. Nothing is timed here."""

from __future__ import annotations

import pytest

from nearwise.benchmarks import _von_neumann as benchmark


def test_the_product_s_table() -> None:
    table = benchmark.fast_product(orders=(130, 260), repeats=1)
    assert [row["r"] for row in table.rows] == [130, 260, "fitted exponent", "crossover at r"]
    for row in table.rows[:2]:
        assert 0 < float(row["error"]) < 1e-13
        assert row["target <= 1e-12"] == "met"
        assert float(row["dense / fast"]) == pytest.approx(float(row["dense, s"]) / float(row["fast, s"]))
    assert table.rows[2]["target <= 2.3"] in ("met", "missed")


def test_the_projection_s_table() -> None:
    table = benchmark.whole_projection(orders=(8, 16), repeats=1)
    assert [row["r"] for row in table.rows] == [8, 16, "fitted exponent"]
    for row in table.rows[:2]:
        assert float(row["seconds"]) > 0
        assert 2 <= float(row["evaluations"]) <= 6


def test_exponents_and_crossovers_of_known_curves() -> None:
    orders = [100, 200, 400, 800]
    fast, dense = [r**2 / 300 for r in orders], [r**3 / 90_000 for r in orders]
    assert benchmark.fitted_exponent(orders, fast) == pytest.approx(2)
    assert benchmark.fitted_exponent(orders, dense) == pytest.approx(3)
    assert benchmark.crossover(orders, fast, dense) == pytest.approx(300)
    assert benchmark.crossover(orders, dense, [2 * x for x in dense]) == 100
    assert benchmark.crossover(orders, [2 * x for x in dense], dense) is None
