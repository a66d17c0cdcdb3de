"""The benchmark of fixed-rank learning: its peers minimise the same cost, its tables are produced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _fixed_rank_peers as peers, _fixed_rank_trials as trials, fixed_rank
from benchmarks.__main__ import main


def figures(path: Path, section: str) -> dict:
    code = main(["fixed-rank", "--quick", "--only", section, "--json", str(path / "f.json")])
    assert code == 0
    return json.loads((path / "f.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("optimizer", peers.OPTIMIZERS)
def test_pymanopt_minimises_the_same_cost_from_the_same_start(optimizer: str) -> None:
    pytest.importorskip("pymanopt")
    data = peers.planted(8, 2, 200)
    theirs, ours = peers.pymanopt(data, optimizer, 20.0), peers.ours(data, "flat", 1e-12, 20.0)
    values = np.square(data.X @ data.start).sum(axis=1)
    assert theirs.costs[0] == pytest.approx(np.mean((values - data.y) ** 2) / 2)
    assert theirs.costs[-1] == pytest.approx(ours.costs[-1], rel=1e-4)
    assert theirs.time_to(theirs.costs[0]) == theirs.seconds[0]
    assert theirs.time_to(0.0) is None


@pytest.mark.parametrize(
    ("section", "n_rows", "verdicts"),
    [
        ("pymanopt", 3, 3),
        pytest.param("descent", 8, 16, marks=pytest.mark.slow),  # tests/fixed_rank runs such problems too
        ("streams", 3, 2),
        ("dimension", 3, 3),
        ("usps", 6, 2),
    ],
)
def test_tables(tmp_path: Path, section: str, n_rows: int, verdicts: int) -> None:
    if section == "pymanopt":
        pytest.importorskip("pymanopt")
    found = figures(tmp_path, section)
    if found["skipped"]:
        pytest.skip(found["skipped"][section])
    (table,) = found["tables"]
    assert len(table["rows"]) == n_rows
    cells = [cell for row in table["rows"] for cell in row.values()]
    assert sum(cell in ("met", "missed") for cell in cells) == verdicts
    if section in ("descent", "streams"):
        assert "missed" not in cells
    if section == "usps":
        nmi = {row["method"]: row["NMI"] for row in table["rows"]}
        assert nmi["polar"] > nmi["kernel PCA"]


def test_the_table_of_descents_counts_what_rises_and_what_ends_too_high(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(geometry: str, rank: str, rises: bool = False, excess: float = 0.0) -> trials.Trial:
        return trials.Trial("vectors", rank, geometry, rises, excess, 0.5, 2.0)

    made = [
        run("flat", "1"),
        run("flat", "1", excess=0.009),
        run("flat", "d", rises=True),
        run("polar", "1", excess=0.02),
        run("polar", "1", rises=True, excess=0.5),
    ]
    monkeypatch.setattr(trials, "trials", lambda *_: iter(made))
    [table] = fixed_rank.descent(fixed_rank.QUICK)
    shown = [
        (row["geometry"], row["rank"], row["runs"], row["rising"], row["over Armijo"], row["largest excess"])
        for row in table.rows
    ]
    assert shown == [
        ("flat", "1", 2, 0, 0, 0.009),
        ("flat", "d", 1, 1, 0, 0.0),
        ("polar", "1", 2, 1, 2, 0.5),
    ]
    verdicts = [[cell for cell in row.values() if cell in ("met", "missed")] for row in table.rows]
    assert verdicts == [["met", "met"], ["missed", "met"], ["missed", "missed"]]
    assert table.rows[2]["seconds, Armijo"] == 4.0


def test_every_target_is_used() -> None:
    source = Path(fixed_rank.__file__).read_text(encoding="utf-8")
    assert all(f'TARGETS["{name}"]' in source for name in fixed_rank.TARGETS)


def test_the_table_of_streams_counts_errors_beyond_ten_times_those_of_trivial_predictors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [(0.5, 0.4, 0.1), (12.0, 2.0, 9.0), (12.0, 11.0, 2.0), (9.0, 9.0, 11.0), (np.inf, np.inf, np.inf)]
    names = ["flat", "flat", "flat", "polar", "polar"]
    found = [(name, trials.Followed(*errors), None) for name, errors in zip(names, made, strict=True)]
    found[0] = (*found[0][:2], trials.Followed(1e214, 1e214, 1e214))
    monkeypatch.setattr(trials, "streams", lambda *_: iter(found))
    [table] = fixed_rank.streams(fixed_rank.QUICK)
    shown = [(row["steps"], row["streams"], row["exploded"]) for row in table.rows]
    assert shown == [("flat", 3, 1), ("polar", 2, 2), ("flat, (9) alone", 1, 1)]
    assert [row["largest error"] for row in table.rows] == [12.0, np.inf, 1e214]


def test_errors_of_streams_are_relative_to_those_of_trivial_predictors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Zero:
        def __init__(self, *_: object, **__: object) -> None: ...
        def partial_fit(self, X: np.ndarray, y: np.ndarray) -> None: ...
        def predict(self, X: np.ndarray) -> np.ndarray:
            return np.zeros(len(X))

    monkeypatch.setattr(trials.nw, "FixedRankRegressor", Zero)
    monkeypatch.setattr(trials, "_plain_steps", lambda X, y, _: [0.0 * y] * 6)
    for _, found, plain in trials.streams([0, 2, 3]):
        assert (found.everywhere, found.seen) == (1.0, 1.0)
        assert plain == found


def test_a_long_sample_to_come_is_no_explosion_and_a_large_matrix_is_one() -> None:
    """The last sample is a hundred times longer than the others, and across what W sees; then it is known."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[-1] = [1.0, 100.0]
    y = X[:, 0] ** 2
    half = 0.5 * np.square(X).sum(axis=1)
    long = trials._followed(X, y, [half] * 5 + [y])
    assert long.everywhere > 1e4
    assert not long.exploded
    assert trials._followed(X, y, [half] * 6).exploded
    assert trials._followed(X, y, [10 * half] * 5 + [y]).exploded
    assert trials._followed(X, y, [np.where(y == y[-1], 10 * half, y)] * 5 + [y]).exploded


def test_steps_without_the_rules_explode_on_the_same_streams() -> None:
    [(_, ours, plain)] = trials.streams([1])
    assert not ours.exploded
    assert plain is not None
    assert plain.exploded
