"""The benchmark of many pairs: its parts run alone and smaller, and count what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nearwise.benchmarks import scale


def test_options_make_every_part_smaller() -> None:
    sizes = scale._smaller(scale.Sizes(), 300_000, 50_000)
    assert sizes.growing == (100_000, 300_000)
    assert (sizes.pairs, sizes.worker_pairs, sizes.client_pairs) == (300_000, 300_000, 200_000)
    assert (sizes.vectors, sizes.client_vectors) == (50_000, 500_000)
    assert scale._smaller(scale.Sizes(), None, None) == scale.Sizes()


@pytest.mark.long
def test_a_part_runs_alone_and_tells_of_its_iterations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--quick", "--pairs", "3000", "--only", "parquet", "--json", str(tmp_path / "found.json")]
    assert scale.main(options) == 0
    printed = capsys.readouterr()
    assert "repeat with: nearwise bench scale --only parquet --quick --pairs 3000" in printed.out
    (table,) = json.loads((tmp_path / "found.json").read_text())["tables"]
    (row,) = table["rows"]
    assert row["gap"] <= 1e-4
    assert printed.err.count("iteration ") == row["iterations"] > 1
