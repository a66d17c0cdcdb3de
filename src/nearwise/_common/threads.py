"""Holds BLAS and OpenMP to one thread where threads would wait for each other, or fight with others."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

LARGE_MATRIX = 512  # from this order on, threads gain more on a matrix than they lose on a busy machine
_MUCH_WORK = 5e8  # multiplications of one compiled loop, from which on the same holds of it


@cache
def thread_pools() -> ThreadpoolController:
    """The thread pools of the BLAS libraries that are loaded; looking them up takes long."""
    import scipy.linalg  # noqa: F401  SciPy's own BLAS, which compiled loops use, is to be among them

    return ThreadpoolController().select(user_api="blas")


def one_blas_thread(needed: bool = True) -> AbstractContextManager[Any]:
    """A context in which BLAS uses one thread."""
    return thread_pools().limit(limits=1) if needed else nullcontext()


def by_work(multiplications: float) -> AbstractContextManager[Any]:
    """A context in which scikit-learn's compiled loops use one thread where they have little to do.

    To be entered once the loops are imported. Their threads wait for each other, which takes ten times as
    long as the work where other processes keep the machine busy.
    """
    return _openmp_pools().limit(limits=1) if multiplications < _MUCH_WORK else nullcontext()


@cache
def _openmp_pools() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")


def blas_threads() -> int:
    """How many threads BLAS uses at the moment."""
    return max((pool.num_threads for pool in thread_pools().lib_controllers), default=1)
