"""What every test file shares: the hypothesis profile, the header, and data sets that skip when absent."""

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


@pytest.fixture
def load_dataset() -> Callable[[str], datasets.Dataset]:
    """`datasets.load`, where an absent file skips the test and says which file it was."""

    def load(name: str) -> datasets.Dataset:
        try:
            return datasets.load(name)
        except datasets.DatasetUnavailable as error:
            pytest.skip(str(error))

    return load
