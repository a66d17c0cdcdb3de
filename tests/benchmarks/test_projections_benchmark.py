"""The benchmark of projections produces its tables. Nothing is timed here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _von_neumann as benchmark, _workload, projections


def test_the_product_s_table() -> None:
    table = benchmark.fast_product(orders=(130, 260), repeats=1)
    assert [row["r"] for row in table.rows] == [130, 260, "fitted exponent", "crossover at r"]
    for row in table.rows[:2]:
        assert 0 < float(row["error"]) < 1e-13
        assert row["target <= 1e-12"] == "met"
        assert float(row["dense / fast"]) == pytest.approx(float(row["dense, s"]) / float(row["fast, s"]))
    assert table.rows[2]["target <= 2.3"] in ("met", "missed")


@pytest.mark.long
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


TINY = projections.Sizes(
    objects=120,
    orders=(16,),
    sweep_pairs=30,
    sweeps=1,
    repeats=1,
    product_orders=(32, 64),
    projection_orders=(8, 16),
    kernel=8,
    distances=6,
    most_sweeps=40,
    drift_projections=1000,
    choice_orders=(4,),
    choice_pairs=(30,),
    penalties=(1.0, math.inf),
    longest=2.0,
)


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn's digits stand in for MNIST, which may be absent."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    features = X[:120] @ np.random.default_rng(0).normal(size=(64, 64))
    monkeypatch.setattr(
        _workload, "load", lambda sizes: _workload.Data(features[:, : sizes.components], y[:120])
    )


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("section", [name for name in projections.SECTIONS if name != "sweep"])
def test_every_section_fills_its_tables(section: str) -> None:
    for part in projections.SECTIONS[section]:
        for table in part(TINY):
            assert table.rows
            assert table.notes


@pytest.mark.usefixtures("digits")
def test_a_sweep_beside_metric_learn() -> None:
    pytest.importorskip("metric_learn")
    [table] = projections.sweep(TINY)
    [row] = table.rows
    assert row["target"] == "target >= 30"
    assert row["metric-learn / factored"] == pytest.approx(row["metric-learn, ms"] / row["factored, ms"])


@pytest.mark.long
@pytest.mark.usefixtures("digits")
def test_the_choice_is_compared_with_the_better_solver() -> None:
    [table] = projections.choice(TINY)
    *cells, worst = table.rows
    assert len(cells) == 4
    for row in cells:
        better = min(row["Newton, s"], row["projections, s"])
        assert row["chosen / better"] == pytest.approx(row["chosen, s"] / better)
        assert row["by"] in ("Newton", "CyclicProjections", "InteriorPoint", "DualNewton")
    assert worst["chosen / better"] == max(row["chosen / better"] for row in cells)


@pytest.mark.usefixtures("digits")
def test_infinite_penalties_are_written_as_text(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projections, "QUICK", TINY)
        assert projections.main(["--quick", "--only", "drift", "--json", str(written)]) == 0
    assert json.loads(written.read_text())["sizes"]["penalties"] == [1.0, "inf"]
