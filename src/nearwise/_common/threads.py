"""Holds BLAS to one thread where its threads would wait for each other, or fight with other threads."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

LARGE_MATRIX = (
    512  # from this order on, threads gain more on single matrices than they lose on a busy machine
)


@cache
def thread_pools() -> ThreadpoolController:
    """The thread pools of the BLAS libraries that are loaded; looking them up takes long."""
    import scipy.linalg  # noqa: F401  SciPy's own BLAS, which compiled loops use, is to be among them

    return ThreadpoolController().select(user_api="blas")


def one_blas_thread(needed: bool = True) -> AbstractContextManager[Any]:
    """A context in which BLAS uses one thread."""
    return thread_pools().limit(limits=1) if needed else nullcontext()


def blas_threads() -> int:
    """How many threads BLAS uses at the moment."""
    return max((pool.num_threads for pool in thread_pools().lib_controllers), default=1)
