"""Comparisons and chunks: what else labels, groups of objects, and measured targets say about distances.

`constraints.from_labels` draws pairs; these functions draw triplets and quadruplets, which need no bounds,
take the pairs of given chunks, and compare objects by a target that is a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.checks import whole_number, whole_number_or_none
from nearwise._common.types import Index
from nearwise.side import drawing, labelling
from nearwise.side.blocks import Constraints
from nearwise.side.constraints import closer, similar


def triplets_from_labels(
    y: ArrayLike,
    X: Any,
    n_same: int = 3,
    n_different: int = 10,
    margin: ArrayLike = 0.0,
    n_triplets: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Constraints:
    """Every object nearer to its nearest of its own class than to its nearest of other classes.

    Parameters
    ----------
    y : labels, as in `from_labels`
    X : the data, dense or sparse, whose Euclidean distance tells what is nearest
    n_same, n_different : how many neighbours of its own class and of the others an object is compared with,
        each with each, or all if there are fewer
    margin : of the squared distances, as in `closer`
    n_triplets : the number of triplets, drawn at random; by default all
    random_state : seed or `numpy.random.RandomState`, as in scikit-learn

    >>> import numpy as np
    >>> from nearwise import constraints as c
    >>> c.triplets_from_labels(["a", "a", "b", "b"], np.array([[0.0], [2.0], [3.0], [5.0]])).describe(0)
    'row 0: d(0, 1) <= d(0, 2)'
    """
    codes = labelling.read(y).for_pairs()
    whole_number(n_same, "n_same"), whole_number(n_different, "n_different")
    X = drawing.checked_data(X, codes.size)
    asking = np.flatnonzero(codes >= 0)
    near, far = drawing.neighbors(codes, drawing.nearest_rows(X), asking, n_same, n_different)
    return closer(_some(_joined(near, far), n_triplets, "n_triplets", random_state), margin)


def quadruplets_from_labels(
    y: ArrayLike,
    n_quadruplets: int | None = None,
    margin: ArrayLike = 0.0,
    random_state: int | np.random.RandomState | None = None,
) -> Constraints:
    """Random pairs of one class nearer than random pairs of two classes.

    Parameters
    ----------
    y : labels, as in `from_labels`
    n_quadruplets : how many, or fewer where there are not as many pairs; by default 20 c^2 for c classes
    margin : of the squared distances, as in `closer`
    random_state : seed or `numpy.random.RandomState`, as in scikit-learn
    """
    from sklearn.utils import check_random_state  # slow to import, and needed only here

    codes = labelling.read(y).for_pairs()
    count = whole_number_or_none(n_quadruplets, "n_quadruplets")
    n_pairs = None if count is None else 2 * count
    same, different = drawing.random_pairs(codes, n_pairs, check_random_state(random_state))
    count = min(len(same), len(different)) if count is None else min(len(same), len(different), count)
    return closer(np.hstack([same[:count], different[:count]]), margin)


def from_chunks(chunks: ArrayLike) -> Constraints:
    """Groups of objects that belong together: all pairs within a chunk are similar.

    Parameters
    ----------
    chunks : the chunk of every object, of any type; None, NaN and -1 for an object that is in none

    >>> from nearwise import constraints as c
    >>> c.from_chunks([0, 0, 1, -1, 1, 0])
    <Constraints: 4 distances <=>
    """
    codes = labelling.read(chunks).codes
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]
    pairs = [group[np.stack(np.triu_indices(len(group), 1), axis=1)] for group in members]
    return similar(np.concatenate([np.empty((0, 2), np.int64), *pairs]))


def triplets_from_targets(
    y: ArrayLike,
    X: Any,
    n_neighbors: int = 10,
    margin: ArrayLike = 0.0,
    n_triplets: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Constraints:
    """For targets that are numbers: of two neighbours, the one with the nearer target shall be nearer.

    Every object asks its `n_neighbors` nearest in X. They are ordered by how far their targets are from its
    own; each of the first half shall be nearer than its counterpart in the second half, unless their targets
    are equally far.

    Parameters
    ----------
    y : one number per row of X; NaN for an object without a target, which is in no triplet
    X : the data, dense or sparse
    n_neighbors : how many neighbours an object asks, at least 2, or all if there are fewer
    margin : of the squared distances, as in `closer`
    n_triplets : the number of triplets, drawn at random; by default all
    random_state : seed or `numpy.random.RandomState`, as in scikit-learn

    >>> import numpy as np
    >>> from nearwise import constraints as c
    >>> c.triplets_from_targets([0.0, 5.0, 0.1], np.array([[0.0], [1.0], [2.0]])).describe(0)
    'row 0: d(0, 2) <= d(0, 1)'
    """
    targets = labelling.read_targets(y)
    X = drawing.checked_data(X, targets.size)
    known = np.flatnonzero(~np.isnan(targets))
    count = min(whole_number(n_neighbors, "n_neighbors", 2), len(known) - 1)
    if count < 2:
        return Constraints()
    near = drawing.nearest_others(drawing.nearest_rows(X), known, known, count)
    halves = targets / 2.0  # the difference of two targets may overflow
    off = np.abs(halves[near] - halves[known, np.newaxis])
    order = np.argsort(off, axis=1, kind="stable")
    near, off = np.take_along_axis(near, order, axis=1), np.take_along_axis(off, order, axis=1)
    half = count // 2
    low, high = slice(0, half), slice(count - half, count)
    row, place = np.nonzero(off[:, low] < off[:, high])
    triplets = np.stack([known[row], near[:, low][row, place], near[:, high][row, place]], axis=1)
    return closer(_some(triplets, n_triplets, "n_triplets", random_state), margin)


def _joined(near: Index, far: Index) -> Index:
    """Rows (a, p, n) for every pair (a, p) and every pair (a, n) of the same object a."""
    far = far[np.argsort(far[:, 0], kind="stable")]
    first = np.searchsorted(far[:, 0], near[:, 0], side="left")
    counts = np.searchsorted(far[:, 0], near[:, 0], side="right") - first
    pair = np.repeat(np.arange(len(near)), counts)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.column_stack([near[pair], far[first[pair] + place, 1]])


def _some(rows: Index, count: int | None, name: str, random_state: Any) -> Index:
    """So many of the rows, drawn at random, in their order."""
    from sklearn.utils import check_random_state  # slow to import, and needed only here

    wanted = whole_number_or_none(count, name)
    if wanted is None or wanted >= len(rows):
        return rows
    return rows[np.sort(check_random_state(random_state).permutation(len(rows))[:wanted])]
