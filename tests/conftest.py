"""What every test file shares: hypothesis profile, header, the fast tier, data sets that skip when absent."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numba
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_info

from nearwise import datasets

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
