"""The benchmark of fixed-rank learning: its peers minimise the same cost, its tables are produced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nearwise import cli
from nearwise.benchmarks import _fixed_rank_peers as peers, fixed_rank


def figures(path: Path, section: str) -> dict:
    code = cli.main(["bench", "fixed-rank", "--quick", "--only", section, "--json", str(path / "f.json")])
    assert code == cli.DONE
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
    [("pymanopt", 3, 3), ("descent", 8, 16), ("streams", 2, 2), ("dimension", 3, 3), ("usps", 6, 2)],
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


def test_every_target_is_used() -> None:
    source = Path(fixed_rank.__file__).read_text(encoding="utf-8")
    assert all(f'TARGETS["{name}"]' in source for name in fixed_rank.TARGETS)
