"""The benchmark of many pairs: its parts run alone and smaller, and count what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from benchmarks import scale
from benchmarks._timed_rows import TimedRows, spent_so_far


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
    assert "repeat with: python -m benchmarks scale --only parquet --quick --pairs 3000" in printed.out
    (table,) = json.loads((tmp_path / "found.json").read_text())["tables"]
    (row,) = table["rows"]
    assert row["gap"] <= 1e-4
    assert printed.err.count("iteration ") == row["iterations"] > 1


def test_timed_rows_change_nothing_and_tell_what_jobs_take(
    in_files: Callable[..., nw.distributed.Vectors],
) -> None:
    rng = np.random.default_rng(0)
    X, pairs = rng.normal(size=(200, 5)), rng.integers([0, 100], [100, 200], (3000, 2))
    side = nw.constraints.at_most(pairs, 5.0)
    rows = TimedRows([X])
    before = spent_so_far(rows)
    with nw.threads(1):
        found = nw.solve(nw.Problem(rows, side, penalty=0.01))
    spent = spent_so_far(rows).since(before)
    expected = nw.solve(nw.Problem(in_files(X), side, penalty=0.01))
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    assert 0.0 < spent.job <= spent.all * 1.05  # two clocks of the processor
    assert spent.job >= 0.5 * spent.all  # nothing but this thread works
    assert spent.all == spent.here
