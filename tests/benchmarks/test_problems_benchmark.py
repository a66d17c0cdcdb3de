"""The benchmark of named problems produces its tables. Nothing is timed here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import problems
from nearwise.datasets import Dataset

TINY = problems.Sizes(
    names=("high02", "fing97"),
    repeats=1,
    bank=80,
    factor_orders=(40, 90),
    rank=3,
    mesh=24,
    small_mesh=8,
    reduced=(40,),
    roll=60,
    rolls=1,
)


@pytest.mark.parametrize("section", ["factor", "cut", "relaxation", "rolls"])
def test_sections_without_data_fill_their_tables(section: str) -> None:
    if section == "relaxation":
        pytest.importorskip("cvxpy")
    for part in problems.SECTIONS[section]:
        for table in part(TINY):
            assert table.rows
            assert table.notes


@pytest.mark.long
@pytest.mark.parametrize("section", ["small", "bank"])
def test_correlation_matrices_beside_statsmodels(
    section: str, load_dataset: Callable[[str], Dataset]
) -> None:
    pytest.importorskip("statsmodels")
    load_dataset("corr_invalid_bccd16")
    [part] = problems.SECTIONS[section]
    [table] = part(TINY)
    for row in table.rows[:2]:
        ratio = row["statsmodels, ms"] / row["nearwise, ms"]
        assert row["statsmodels / nearwise"] == pytest.approx(ratio)
        assert row["target >= 20"] in ("met", "missed")
        assert row["gap"] <= 1e-8


def test_the_cut_is_compared_with_spectral_bisection() -> None:
    [table] = problems.cut(TINY)
    spectral = next(row for row in table.rows if row["method"] == "spectral")
    for row in table.rows[2:]:
        assert row["cut / spectral"] == pytest.approx(row["cut"] / spectral["cut"])


def test_the_relaxation_agrees_with_cvxpy() -> None:
    pytest.importorskip("cvxpy")
    [table] = problems.relaxation(TINY)
    assert table.rows[0]["target <= 0.001"] == "met"


def test_leading_eigenpairs_and_all_of_them_give_the_same_reduction(
    load_dataset: Callable[[str], Dataset],
) -> None:
    load_dataset("usps")
    [table] = problems.reducer(TINY)
    [row] = table.rows
    assert row["all / leading"] == pytest.approx(row["all, s"] / row["leading, s"])
    assert row["difference"] < 2e-3
