"""Little work is done by one thread of OpenMP, much by all."""

from __future__ import annotations

import sklearn.neighbors  # noqa: F401  whose loops have the threads
from threadpoolctl import ThreadpoolController, threadpool_limits

from nearwise._common import threads


def openmp() -> list[int]:
    return [pool.num_threads for pool in ThreadpoolController().select(user_api="openmp").lib_controllers]


def test_little_work_has_one_thread() -> None:
    threads._openmp_pools.cache_clear()  # another test may have loaded a library with threads since
    with threadpool_limits(3, user_api="openmp"):
        assert set(openmp()) == {3}
        with threads.by_work(1e6):
            assert set(openmp()) == {1}
        with threads.by_work(1e12):
            assert set(openmp()) == {3}
        assert set(openmp()) == {3}
