"""Draws pairs of objects from class labels: at random (KSD09 7.2) or between near neighbours.

Labels are class numbers, -1 for an object without one, which is in no pair. A draw returns two arrays of row
numbers with two columns each: the pairs within a class and the pairs across classes. No pair occurs twice and
no object is paired with itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.checks import whole_number_or_none
from nearwise.model.labelling import Codes

Pairs = NDArray[np.int64]

N_NEIGHBORS = 5
# Up to this size of a class, one search among all objects finds the nearest objects of other classes.
SMALL_CLASS = 30


def pairs_of_classes(
    codes: Codes, X: Any, draw: str, n_pairs: int | None, random_state: int | np.random.RandomState | None
) -> tuple[Pairs, Pairs]:
    """Checks the arguments of `constraints.from_labels`, the labels being class numbers, and draws."""
    from sklearn.utils import check_array, check_random_state  # slow to import, and needed only here

    if draw not in ("random", "local"):
        raise ValueError(f"draw must be 'random' or 'local', got {draw!r}")
    whole_number_or_none(n_pairs, "n_pairs")
    rng = check_random_state(random_state)
    if X is None and draw == "local":
        raise ValueError("draw='local' needs X, the data whose neighbours it takes")
    if X is not None:
        X = check_array(X, accept_sparse="csr", input_name="X")
        if X.shape[0] != codes.size:
            raise ValueError(f"X has {X.shape[0]} rows, but there are {codes.size} labels")
    return random_pairs(codes, n_pairs, rng) if draw == "random" else nearest_pairs(codes, X, n_pairs, rng)


def random_pairs(codes: Codes, n_pairs: int | None, rng: np.random.RandomState) -> tuple[Pairs, Pairs]:
    """`n_pairs` distinct pairs drawn uniformly, half of them within a class where the labels permit.

    The default number is 40 c^2 for c classes (KSD09 7.2), or all pairs if there are fewer.
    """
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < len(codes):
        same, different = random_pairs(codes[labelled], n_pairs, rng)
        return labelled[same], labelled[different]
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    later = codes.size - starts - counts
    within, across = counts * (counts - 1) // 2, counts * later
    n_pairs = 40 * counts.size**2 if n_pairs is None else n_pairs
    n_within, n_across = _halves(n_pairs, int(within.sum()), int(across.sum()))

    # All pairs are numbered, class by class, in the order of the objects sorted by class; numbers are drawn.
    group, rank = _locate(_distinct(n_within, int(within.sum()), rng), within)
    low, high = _triangle(rank)
    same = np.stack([starts[group] + low, starts[group] + high], axis=1)
    group, rank = _locate(_distinct(n_across, int(across.sum()), rng), across)
    partner = starts[group] + counts[group] + rank % later[group]
    different = np.stack([starts[group] + rank // later[group], partner], axis=1)
    by_class = np.argsort(codes, kind="stable")
    return by_class[same], by_class[different]


def nearest_pairs(
    codes: Codes, X: Any, n_pairs: int | None, rng: np.random.RandomState
) -> tuple[Pairs, Pairs]:
    """Every row of X with its five nearest rows of its own class and its five nearest of other classes.

    If there are more than `n_pairs` of these, a random choice, half within a class where the labels permit.
    """
    near, far = neighbors(codes, X, np.flatnonzero(codes >= 0))
    same_pairs, different_pairs = _distinct_pairs(near, codes.size), _distinct_pairs(far, codes.size)
    n_same, n_different = len(same_pairs), len(different_pairs)
    if n_pairs is not None and n_pairs < n_same + n_different:
        n_same, n_different = _halves(n_pairs, n_same, n_different)
    return (
        same_pairs[_distinct(n_same, len(same_pairs), rng)],
        different_pairs[_distinct(n_different, len(different_pairs), rng)],
    )


def neighbors(codes: Codes, X: Any, rows: NDArray[np.int64]) -> tuple[Pairs, Pairs]:
    """Pairs (row, neighbour) of the given rows: the nearest of their own class, and of the other classes.

    The rows have a class.
    """
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < len(codes):
        near, far = neighbors(codes[labelled], X[labelled], np.searchsorted(labelled, rows))
        return labelled[near], labelled[far]
    from sklearn.neighbors import NearestNeighbors  # slow to import, and needed only here

    counts = np.bincount(codes)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    wanted = np.zeros(codes.size, dtype=bool)
    wanted[rows] = True
    same, different = [_no_pairs()], [_no_pairs()]
    for group in members:
        asking = group[wanted[group]]
        if asking.size and group.size > 1:
            search = NearestNeighbors(n_neighbors=min(N_NEIGHBORS + 1, group.size)).fit(X[group])
            found = group[search.kneighbors(X[asking], return_distance=False)]
            same.append(_fan(asking, _without_self(asking, found)))
        others = np.empty(0, int) if group.size <= SMALL_CLASS else np.flatnonzero(codes != codes[group[0]])
        if asking.size and others.size:
            search = NearestNeighbors(n_neighbors=min(N_NEIGHBORS, others.size)).fit(X[others])
            different.append(_fan(asking, others[search.kneighbors(X[asking], return_distance=False)]))

    asking = np.flatnonzero(wanted & (counts[codes] <= SMALL_CLASS))
    if asking.size:
        search = NearestNeighbors(n_neighbors=min(SMALL_CLASS + N_NEIGHBORS, codes.size)).fit(X)
        near = search.kneighbors(X[asking], return_distance=False)
        other = codes[near] != codes[asking, np.newaxis]
        row, place = np.nonzero(other & (np.cumsum(other, axis=1) <= N_NEIGHBORS))
        different.append(np.stack([asking[row], near[row, place]], axis=1))
    return np.concatenate(same), np.concatenate(different)


def _halves(n_pairs: int, n_within: int, n_across: int) -> tuple[int, int]:
    """How many pairs of either kind to draw: half and half, and more of one kind where the other runs out."""
    across = min(n_across, n_pairs // 2)
    within = min(n_within, n_pairs - across)
    return within, min(n_across, n_pairs - within)


def _distinct(count: int, population: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """`count` distinct numbers below `population`, uniform and in random order, in O(count) memory."""
    if 2 * count >= population:
        return rng.permutation(population)[:count].astype(np.int64, copy=False)
    drawn = np.empty(0, np.int64)
    while drawn.size < count:
        more = rng.randint(population, size=count - drawn.size, dtype=np.int64)
        drawn = _without_repeats(np.concatenate([drawn, more]))
    return rng.permutation(drawn)


def _locate(numbers: NDArray[np.int64], sizes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The group of each number and its rank there, where group k holds the next `sizes[k]` numbers."""
    ends = np.cumsum(sizes)
    group = np.searchsorted(ends, numbers, side="right")
    return group, numbers - (ends - sizes)[group]


def _triangle(rank: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pair low < high with rank = high (high - 1) / 2 + low."""
    high = ((1.0 + np.sqrt(1.0 + 8.0 * rank)) / 2.0).astype(np.int64)
    high -= high * (high - 1) // 2 > rank  # beyond 2**53 the square root may be rounded up
    return rank - high * (high - 1) // 2, high


def _fan(rows: NDArray[Any], partners: NDArray[Any]) -> Pairs:
    """Row k of `partners` holds the partners of `rows[k]`."""
    return np.stack([np.repeat(rows, partners.shape[1]), partners.ravel()], axis=1)


def _without_self(rows: NDArray[Any], partners: NDArray[Any]) -> NDArray[Any]:
    """`partners` less one column: in every line the row itself, or the last one where a twin displaced it."""
    itself = partners == rows[:, np.newaxis]
    itself[~itself.any(axis=1), -1] = True
    return partners[~itself].reshape(len(rows), -1)


def _distinct_pairs(pairs: Pairs, n_objects: int) -> Pairs:
    low, high = np.sort(pairs, axis=1).T
    return np.stack(np.divmod(_without_repeats(low * n_objects + high), n_objects), axis=1)


def _without_repeats(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct ones of some numbers >= 0, sorted; `np.unique` of NumPy 2.4 is far slower."""
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]


def _no_pairs() -> Pairs:
    return np.empty((0, 2), np.int64)
