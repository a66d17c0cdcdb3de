"""Draws pairs of objects from class labels: at random (KSD09 7.2) or between near neighbours.

Labels are class numbers, -1 for an object without one, which is in no pair. A draw returns two arrays of row
numbers with two columns each: the pairs within a class and the pairs across classes. No pair occurs twice and
no object is paired with itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise._common.checks import whole_number_or_none
from nearwise._common.types import Codes, Index
from nearwise.linalg.distances import all_squared_distances
from nearwise.linalg.nearest import Search

_FEW_DISTANCES = 1 << 14  # that are sorted here, in less time than a search takes to begin
Pairs = NDArray[np.int64]
Nearest = Callable[[Index, Index, int], Index]

NO_PAIRS: Pairs = np.empty((0, 2), np.int64)
N_NEIGHBORS = 5
# Up to this size of a class, one search among all objects finds the nearest objects of other classes.
SMALL_CLASS = 30


def pairs_of_classes(
    codes: Codes,
    X: Any,
    draw: str,
    n_pairs: int | None,
    random_state: int | np.random.RandomState | None,
    per_class: int | None = None,
) -> tuple[Pairs, Pairs]:
    """Checks the arguments of `constraints.from_labels`, the labels being class numbers, and draws."""
    from sklearn.utils import check_random_state  # slow to import, and needed only here

    if draw not in ("random", "local"):
        raise ValueError(f"draw must be 'random' or 'local', got {draw!r}")
    whole_number_or_none(n_pairs, "n_pairs")
    whole_number_or_none(per_class, "per_class")
    if per_class is not None and (n_pairs is not None or draw != "random"):
        raise ValueError("per_class is how many pairs draw='random' takes of each class, without n_pairs")
    rng = check_random_state(random_state)
    if X is None and draw == "local":
        raise ValueError("draw='local' needs X, the data whose neighbours it takes")
    if X is not None:
        X = checked_data(X, codes.size)
    if per_class is not None:
        return class_pairs(codes, per_class, rng)
    return random_pairs(codes, n_pairs, rng) if draw == "random" else nearest_pairs(codes, X, n_pairs, rng)


def checked_data(X: Any, n_labels: int) -> Any:
    """Data, dense or sparse, with as many rows as there are labels."""
    from sklearn.utils import check_array  # slow to import, and needed only here

    X = check_array(X, accept_sparse="csr", input_name="X")
    if X.shape[0] != n_labels:
        raise ValueError(f"X has {X.shape[0]} rows, but there are {n_labels} labels")
    return X


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


def class_pairs(codes: Codes, per_class: int, rng: np.random.RandomState) -> tuple[Pairs, Pairs]:
    """Of every class, so many pairs within it and so many with other classes: JKDD12 6; fewer if there are.

    A pair across two classes that both have drawn counts once.
    """
    labelled = np.flatnonzero(codes >= 0)
    same, different = [NO_PAIRS], [NO_PAIRS]
    for code in range(int(codes.max(initial=-1)) + 1):
        group, others = np.flatnonzero(codes == code), labelled[codes[labelled] != code]
        within, across = len(group) * (len(group) - 1) // 2, len(group) * len(others)
        low, high = _triangle(_distinct(min(per_class, within), within, rng))
        same.append(np.stack([group[low], group[high]], axis=1))
        if across:
            drawn = _distinct(min(per_class, across), across, rng)
            different.append(np.stack([group[drawn // len(others)], others[drawn % len(others)]], axis=1))
    return np.concatenate(same), _distinct_pairs(np.concatenate(different), codes.size)


def nearest_pairs(
    codes: Codes, X: Any, n_pairs: int | None, rng: np.random.RandomState
) -> tuple[Pairs, Pairs]:
    """Every row of X with its five nearest rows of its own class and its five nearest of other classes.

    If there are more than `n_pairs` of these, a random choice, half within a class where the labels permit.
    """
    near, far = neighbors(codes, nearest_rows(X), np.flatnonzero(codes >= 0))
    same_pairs, different_pairs = _distinct_pairs(near, codes.size), _distinct_pairs(far, codes.size)
    n_same, n_different = len(same_pairs), len(different_pairs)
    if n_pairs is not None and n_pairs < n_same + n_different:
        n_same, n_different = _halves(n_pairs, n_same, n_different)
    return (
        same_pairs[_distinct(n_same, len(same_pairs), rng)],
        different_pairs[_distinct(n_different, len(different_pairs), rng)],
    )


def neighbors(
    codes: Codes,
    nearest: Nearest,
    rows: NDArray[np.int64],
    n_same: int = N_NEIGHBORS,
    n_different: int = N_NEIGHBORS,
) -> tuple[Pairs, Pairs]:
    """Pairs (row, neighbour) of the given rows: the nearest of their own class, and of the other classes.

    The rows have a class. `nearest(asking, among, count)` finds neighbours by row number, nearest first.
    """
    labelled = np.flatnonzero(codes >= 0)
    counts = np.bincount(codes[labelled])
    by_class = labelled[np.argsort(codes[labelled], kind="stable")]
    members = np.split(by_class, np.cumsum(counts)[:-1])
    wanted = np.zeros(codes.size, dtype=bool)
    wanted[rows] = True
    same, different = [NO_PAIRS], [NO_PAIRS]
    for group in members:
        asking = group[wanted[group]]
        if asking.size and group.size > 1:
            found = nearest_others(nearest, asking, group, min(n_same, group.size - 1))
            same.append(_fan(asking, found))
        large = group.size > SMALL_CLASS
        others = labelled[codes[labelled] != codes[group[0]]] if large else np.empty(0, np.int64)
        if asking.size and others.size:
            different.append(_fan(asking, nearest(asking, others, min(n_different, others.size))))

    asking = np.flatnonzero(wanted)
    asking = asking[counts[codes[asking]] <= SMALL_CLASS]
    if asking.size:
        near = nearest(asking, labelled, min(SMALL_CLASS + n_different, labelled.size))
        other = codes[near] != codes[asking, np.newaxis]
        row, place = np.nonzero(other & (np.cumsum(other, axis=1) <= n_different))
        different.append(np.stack([asking[row], near[row, place]], axis=1))
    return np.concatenate(same), np.concatenate(different)


def nearest_others(nearest: Nearest, asking: Index, among: Index, count: int) -> Index:
    """The nearest to every object that asks, but itself; those that ask are among the others.

    Where twins take an object's own place in its list, its last neighbour is left out instead of itself.
    """
    found = nearest(asking, among, count + 1)
    itself = found == asking[:, np.newaxis]
    itself[~itself.any(axis=1), -1] = True
    return found[~itself].reshape(len(asking), -1)


def nearest_rows(X: Any) -> Nearest:
    """For `neighbors`: by the Euclidean distance of rows, dense or sparse."""
    return partial(nearest_of, X)


def nearest_of(X: Any, asking: Index, among: Index, count: int) -> Index:
    """The rows of X among some that are nearest to each that asks, nearest first."""
    if len(asking) * len(among) <= _FEW_DISTANCES and not sparse.issparse(X):
        distances = all_squared_distances(X[asking], X[among])
        return np.asarray(among[np.argsort(distances, axis=1, kind="stable")[:, :count]])
    return np.asarray(among[Search(X[among]).nearest(X[asking], count)])


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


def _distinct_pairs(pairs: Pairs, n_objects: int) -> Pairs:
    low, high = np.sort(pairs, axis=1).T
    return np.stack(np.divmod(_without_repeats(low * n_objects + high), n_objects), axis=1)


def _without_repeats(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct ones of some numbers >= 0, sorted; `np.unique` of NumPy 2.4 is far slower."""
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]
