"""The nearest of many objects, in memory that does not grow with their number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common import threads
from nearwise._common.types import Array, Index
from nearwise.linalg.distances import (
    all_squared_distances,
    centre_of,
    spoils,
    squared_distances,
    squared_lengths,
)

NUMBERS = 2**22  # distances in a block: 32 MB
_ERROR = 1e-6  # relative, of the distance to the last neighbour, above which a search is not trusted
_TREES = 15  # columns up to which a tree finds neighbours faster than products do, as scikit-learn has it
_SPARE = 8  # more than asked for in blocks: their distances are rounded, the final ones are not


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
    (n_queries, k) array of numbers of others; of those at the same distance, the lowest
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
                chosen = smallest(best, numbers, k)
                best, numbers = np.take_along_axis(best, chosen, 1), np.take_along_axis(numbers, chosen, 1)
        found[asking] = numbers
    return found


def smallest(distances: Array, numbers: Index, k: int) -> Index:
    """(n, k) columns of the smallest distances of every row, in any order; of equal ones the lowest numbers.

    `numbers` are those of the columns, or of every entry an own one.
    """
    chosen = np.argpartition(distances, k - 1, axis=1)[:, :k]
    largest = np.take_along_axis(distances, chosen, axis=1).max(axis=1, keepdims=True)
    tied = np.flatnonzero(((distances <= largest).sum(axis=1) > k) & np.isfinite(largest[:, 0]))
    if tied.size:
        among, last = distances[tied], largest[tied]
        of_equal = np.broadcast_to(numbers, distances.shape)[tied]
        rank = np.where(among < last, -1, np.where(among == last, of_equal, np.iinfo(np.int64).max))
        chosen[tied] = np.argpartition(rank, k - 1, axis=1)[:, :k]
    return np.asarray(chosen)


class Search:
    """The nearest of many points by their Euclidean distance, dense or sparse.

    Of points at the same distance, the first are nearest.
    scikit-learn searches, of many columns by products. Their error may spoil what is found for a query that
    is much farther from the centre than from its neighbours: there, distances with a bounded error decide.
    """

    def __init__(self, points: Any, by_products: bool | None = None) -> None:
        """`by_products` says whether to search by products, else by a tree; by default what is faster."""
        from sklearn.neighbors import NearestNeighbors  # slow to import, and needed only here

        self._points = points
        self._centre = None if sparse.issparse(points) else centre_of(points)
        many = self._centre is None or points.shape[1] > _TREES
        self._by_products = many if by_products is None else by_products
        search = NearestNeighbors(algorithm="brute" if self._by_products else "kd_tree")
        self._search = search.fit(self._moved(points))

    def nearest(self, queries: Any, count: int) -> Index:
        """(n_queries, count) row numbers of the points nearest to each query, nearest first."""
        if not queries.shape[0]:
            return np.empty((0, count), dtype=np.int64)
        moved, (n, width) = self._moved(queries), self._points.shape
        with threads.by_work(float(queries.shape[0]) * n * width):
            distances, found = self._search.kneighbors(moved, min(count + 1, n))
        is_tied = distances[:, 1:] == distances[:, :-1]
        unsorted, missed = is_tied.any(axis=1), is_tied[:, count - 1 :].any(axis=1)
        if self._by_products:
            with np.errstate(over="ignore"):
                # Points four times as far from the centre as the query and its neighbours are not near.
                bound = 17.0 * spoils(width, _ERROR) * squared_lengths(moved)
                doubtful = ~(np.square(distances[:, :count]) >= bound[:, np.newaxis])
            unsorted |= doubtful.sum(axis=1) > 1  # one alone comes first
            missed |= doubtful[:, -1] & (count < n)
        nearest = np.array(found[:, :count])
        if (unsorted & ~missed).any():
            again = np.flatnonzero(unsorted & ~missed)
            nearest[again] = self._sorted(queries[again], nearest[again], count)
        if missed.any():
            nearest[missed] = self._in_blocks(queries[np.flatnonzero(missed)], count)
        return nearest

    def _moved(self, rows: Any) -> Any:
        return rows if self._centre is None else np.asarray(rows, dtype=np.float64) - self._centre

    def _in_blocks(self, queries: Any, count: int) -> Index:
        n, m = queries.shape[0], self._points.shape[0]
        found = nearest(
            lambda rows, others: all_squared_distances(queries[rows], self._points[others]),
            n,
            m,
            min(count + _SPARE, m),
        )
        return self._sorted(queries, found, count)

    def _sorted(self, queries: Any, found: Index, count: int) -> Index:
        """The nearest of those found, by distances from differences."""
        own = np.repeat(np.arange(len(found)), found.shape[1])
        squared = squared_distances(queries, own, found.ravel(), self._points).reshape(found.shape)
        order = np.lexsort((found, squared), axis=1)[:, :count]
        return np.take_along_axis(found, order, axis=1)
