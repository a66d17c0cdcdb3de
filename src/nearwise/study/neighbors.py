"""The k nearest rows by a learned distance, exactly, in memory that does not grow with the number of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.linalg.distances import centre_of
from nearwise.linalg.nearest import Search, nearest as tiled

# For every row of a block, so many rows of the data that are nearest up to rounding, in any order;
# the last argument is the row of the data that the first of the block is, or None.
Candidates = Callable[[Array, int, int | None], Index]

TILE = 2048  # queries at a time, after which progress is told
SPARE = 8  # more candidates than asked for: blocks of distances are rounded, the final ones are not


def nearest(
    metric: Any,
    data: Array,
    queries: Array | None,
    k: int,
    progress: Callable[[float], object] = lambda share: None,
) -> tuple[Index, Array]:
    """Row numbers of the k nearest rows of `data`, nearest first, and their distances.

    Parameters
    ----------
    metric : what measures: `squared_distances(X, Y)` and `pair_squared_distances(X, i, j)`
    data : (n, d) rows to search
    queries : (m, d) rows to search for; by default those of `data`, each without itself
    k : how many, at most n, or n - 1 without queries
    progress : is told the share that is done

    Returns
    -------
    (m, k) row numbers and (m, k) distances. Of equal distances, the smaller row number is first.
    """
    candidates: Candidates = partial(_in_tiles, metric, data)
    if metric.is_linear:  # moving all objects keeps digits, and the distances
        centre = centre_of(data)
        data = data - centre
        queries = None if queries is None else queries - centre
        candidates = partial(_among_coordinates, metric, Search(metric.isometric(data), by_products=True))
    itself = queries is None
    objects = data if queries is None else queries
    count = min(k + SPARE, len(data) - itself)
    rows = np.empty((len(objects), k), dtype=np.int64)
    distances = np.empty((len(objects), k))
    for start in range(0, len(objects), TILE):
        block = slice(start, start + TILE)
        found = candidates(objects[block], count, start if itself else None)
        rows[block], distances[block] = _ordered(metric, objects[block], data, found, k)
        progress(min(start + TILE, len(objects)) / len(objects))
    return rows, distances


def _among_coordinates(metric: Any, search: Search, block: Array, count: int, itself: int | None) -> Index:
    """Candidates by a search among coordinates: a linear metric's distances are Euclidean."""
    found = search.nearest(metric.isometric(block), count + (itself is not None))
    if itself is None:
        return found
    # The row itself, which need not be the first of equal ones, or else the last, makes room for the others.
    own = found == np.arange(itself, itself + len(block))[:, np.newaxis]
    own[~own.any(axis=1), -1] = True
    return found[~own].reshape(len(block), count)


def _in_tiles(metric: Any, data: Array, block: Array, count: int, itself: int | None) -> Index:
    """Candidates by blocks of distances, which a kernel metric gives."""
    own = None if itself is None else np.arange(itself, itself + len(block))
    return tiled(
        lambda rows, others: metric.squared_distances(block[rows], data[others]),
        len(block),
        len(data),
        count,
        own,
    )


def _ordered(metric: Any, block: Array, data: Array, found: Index, k: int) -> tuple[Index, Array]:
    """The k nearest of the rows found, by distances that are computed from differences."""
    used, position = np.unique(found, return_inverse=True)
    objects = np.vstack([block, data[used]])
    own = np.repeat(np.arange(len(block)), found.shape[1])
    squared = metric.pair_squared_distances(objects, own, len(block) + position.ravel())
    squared = squared.reshape(found.shape)
    order = np.lexsort((found, squared), axis=1)[:, :k]
    return np.take_along_axis(found, order, axis=1), np.sqrt(np.take_along_axis(squared, order, axis=1))
