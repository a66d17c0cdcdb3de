"""Holds BLAS and OpenMP to one thread where threads would wait for each other, or fight with others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_MOST = 8  # threads of our own, unless somebody asks for more
_threads: ContextVar[int | None] = ContextVar("threads", default=None)
LARGE_MATRIX = 512  # from this order on, threads gain more on a matrix than they lose on a busy machine
_MUCH_WORK = 5e8  # multiplications of one compiled loop, from which on the same holds of it


@cache
def thread_pools() -> ThreadpoolController:
    """The thread pools of the BLAS libraries that are loaded; looking them up takes long."""
    import scipy.linalg  # noqa: F401  SciPy's own BLAS, which compiled loops use, is to be among them

    return ThreadpoolController().select(user_api="blas")


def one_blas_thread(needed: bool = True) -> AbstractContextManager[Any]:
    """A context in which BLAS uses one thread."""
    return thread_pools().limit(limits=1) if needed and blas_threads() > 1 else nullcontext()


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
    return max([pool.get_num_threads() for pool in thread_pools().lib_controllers], default=1)


def worker_threads() -> int:
    """How many threads work side by side on many constraints: what `threads` says, or all cores."""
    return _threads.get() or min(_usable_cores(), _MOST)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """A context in which at most that many threads work side by side, BLAS's or our own.

    By default, all cores that the process may use, and at most eight. None leaves the number as it is.

    >>> import nearwise as nw
    >>> with nw.threads(1):
    ...     nw.Problem([[0.0], [1.0]], nw.constraints.at_most([(0, 1)], 0.5)).penalty_unit
    1.0
    """
    token = _threads.set(_threads.get() if count is None else count)
    try:
        with thread_pools().limit(limits=count) if count is not None else nullcontext():
            yield
    finally:
        _threads.reset(token)


def _usable_cores() -> int:
    """Those that this process may use, which containers and `taskset` make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
