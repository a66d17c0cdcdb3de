"""The nearest of many objects by distances in blocks, in memory that does not grow with their number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nearwise._common.types import Array, Index

NUMBERS = 2**22  # distances in a block: 32 MB


def nearest(
    between: Callable[[slice, slice], Array],
    n_queries: int,
    n_others: int,
    k: int,
    own: Index | None = None,
) -> Index:
    """For every query the k others at the smallest distances, in any order.

    Parameters
    ----------
    between : distances, squared or not, of some queries to some others, as an array that may be changed
    n_queries, n_others : how many there are
    k : how many to find, at most as many as there are, the query itself not counted
    own : the number among the others that each query itself has, which is no neighbour; -1 for none

    Returns
    -------
    (n_queries, k) array of numbers of others
    """
    found = np.empty((n_queries, k), dtype=np.int64)
    # Every block computes its objects anew: blocks that are about square compute the fewest.
    height = max(min(n_queries, math.isqrt(NUMBERS)), 1)
    width = max(NUMBERS // height, k)
    for low in range(0, n_queries, height):
        asking = slice(low, min(low + height, n_queries))
        best = np.empty((asking.stop - low, 0))
        numbers = np.empty(best.shape, dtype=np.int64)
        for left in range(0, n_others, width):
            others = slice(left, min(left + width, n_others))
            block = between(asking, others)
            if own is not None:
                place = own[asking] - left
                inside = np.flatnonzero((place >= 0) & (place < block.shape[1]))
                block[inside, place[inside]] = np.inf
            candidates = np.broadcast_to(np.arange(others.start, others.stop), block.shape)
            best, numbers = np.hstack([best, block]), np.hstack([numbers, candidates])
            if best.shape[1] > k:
                chosen = np.argpartition(best, k - 1, axis=1)[:, :k]
                best, numbers = np.take_along_axis(best, chosen, 1), np.take_along_axis(numbers, chosen, 1)
        found[asking] = numbers
    return found
