"""What all test files share: hypothesis profile, header, fast tier, data sets, thresholds, rows in files."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numba
import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_info

from nearwise import datasets, distributed

settings.register_profile("nearwise", deadline=None, derandomize=True)
settings.load_profile("nearwise")


def pytest_report_header() -> str:
    """Whose code runs; OPENBLAS_CORETYPE and NUMBA_CPU_NAME choose that of another processor."""
    import_module("scipy.linalg")  # has a BLAS of its own, beside NumPy's
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    cores = {pool.get("architecture", pool["internal_api"]) for pool in pools}
    return f"code for: {', '.join(sorted(cores))} (BLAS), {numba.config.CPU_NAME or 'this processor'} (numba)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--fast, for daily work: something of everything that is quick."""
    parser.addoption(
        "--fast", action="store_true", help="the first case of every test, without those marked long"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --fast, keep the first case of every test function that is marked neither long nor slow."""
    if not config.getoption("fast"):
        return
    seen: set[tuple[object, str]] = set()
    kept, left_out = [], []
    for item in items:
        test = item.parent, getattr(item, "originalname", item.name)
        takes_long = item.get_closest_marker("long") or item.get_closest_marker("slow")
        is_kept = test not in seen and not takes_long
        (kept if is_kept else left_out).append(item)
        if is_kept:
            seen.add(test)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def load_dataset() -> Callable[[str], datasets.Dataset]:
    """`datasets.load`, where an absent file skips the test and says which file it was."""

    def load(name: str) -> datasets.Dataset:
        try:
            return datasets.load(name)
        except datasets.DatasetUnavailable as error:
            pytest.skip(str(error))

    return load


# What only much more data would cross. This is the only place that knows how the thresholds are called.
THRESHOLDS = {
    "rows_of_a_piece": ["nearwise.core.chunks.FEWEST"],
    "numbers_of_a_slice": ["nearwise.core.chunks.NUMBERS"],
    "numbers_that_learners_take": ["nearwise.learners._in_pieces._TAKEN"],
    "numbers_of_vectors_at_a_time": ["nearwise.distributed.vectors._ROWS_AT_A_TIME"],
    "rows_of_a_table_at_a_time": [
        "nearwise._common.columns.ROWS_AT_A_TIME",
        "nearwise.side.rows.ROWS_AT_A_TIME",
        "nearwise.distributed.pair_sources.ROWS_AT_A_TIME",
    ],
    "rows_of_a_large_map": ["nearwise.distributed.pairs._LARGE"],
}


@pytest.fixture
def set_thresholds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make thresholds so small that few data cross them, by the names above."""

    def chosen(**sizes: int) -> None:
        for name, size in sizes.items():
            for place in THRESHOLDS[name]:
                monkeypatch.setattr(place, size)

    return chosen


@pytest.fixture
def in_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., distributed.Vectors]:
    """The rows of several arrays, one after the other, each array in a file of its own."""

    def opened(*parts: np.ndarray) -> distributed.Vectors:
        folder = tmp_path_factory.mktemp("vectors")
        for k, part in enumerate(parts):
            np.save(folder / f"{k:02}.npy", part)
        return distributed.open_vectors(folder)

    return opened
