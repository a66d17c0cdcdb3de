"""What labels and open bounds become: pairs of objects with bounds on their squared distances.

`model.bounds` has the rule that fills bounds. Pairs between near neighbours get the threshold of their own
neighbourhood, random pairs and pairs that the user gives one threshold in common.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearwise.model import bounds, constraints as c, drawing
from nearwise.model.blocks import Constraints
from nearwise.model.drawing import Pairs
from nearwise.model.labelling import Codes

Array = NDArray[np.float64]

LOCAL_PAIRS = 20_000  # drawn at most by default: the neighbours of 2,000 objects
_LEAST = 1e-3  # of the median threshold: objects whose neighbours are nearly equal get no smaller one
_EQUAL = 1e-12  # of the median squared distance, below which two objects count as equal


def local_pairs(
    codes: Codes, rows: Array, prior_rows: Array, n_pairs: int | None, rng: np.random.RandomState
) -> Constraints:
    """Objects with their five nearest of their own class and of the others, at the objects' own thresholds.

    Parameters
    ----------
    codes : the class of every object as a number, -1 for one that has none and is in no pair
    rows : coordinates of the objects, in which neighbours are searched
    prior_rows : coordinates in which Euclidean distances are the prior's, for the bounds
    n_pairs : how many pairs to draw at most; 20,000 by default. Where there are more, those of a random
        choice of objects.
    rng : for that choice
    """
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < len(codes):
        found = local_pairs(codes[labelled], rows[labelled], prior_rows[labelled], n_pairs, rng)
        return Constraints(tuple(replace(b, ids=labelled[b.object_ids]) for b in found.blocks))
    limit = LOCAL_PAIRS if n_pairs is None else n_pairs
    n_asking = min(len(codes), -(-limit // (2 * drawing.N_NEIGHBORS)))
    asking = np.sort(rng.permutation(len(codes))[:n_asking])
    near, far = drawing.neighbors(codes, rows - rows.mean(axis=0), asking)
    d_near, d_far = squared_distances(prior_rows, near), squared_distances(prior_rows, far)
    is_different = _positive(np.concatenate([d_near, d_far]))
    keep_near, keep_far = is_different[: len(near)], is_different[len(near) :]
    near, far, d_near, d_far = near[keep_near], far[keep_far], d_near[keep_near], d_far[keep_far]
    if len(near) == 0 or len(far) == 0:
        return Constraints()
    below, above = _medians(near[:, 0], d_near, len(codes)), _medians(far[:, 0], d_far, len(codes))
    # An object without neighbours of one kind has the threshold that the other kind alone gives.
    threshold = np.sqrt(np.where(below > 0, below, above) * np.where(above > 0, above, below))
    threshold = np.maximum(threshold, _LEAST * np.median(threshold[threshold > 0]))
    near, far = _at_most(near, limit - limit // 2, rng), _at_most(far, max(limit // 2, 1), rng)
    upper, lower = threshold[near[:, 0]] / bounds.MARGIN, threshold[far[:, 0]] * bounds.MARGIN
    return c.at_most(near, upper) + c.at_least(far, lower)


def random_pairs(
    codes: Codes, prior_rows: Array, n_pairs: int | None, rng: np.random.RandomState
) -> Constraints:
    """Pairs drawn uniformly, half of them similar where the labels permit; 40 c^2 by default (KSD09 7.2)."""
    same, different = drawing.random_pairs(codes, n_pairs, rng)
    distances = squared_distances(prior_rows, np.concatenate([same, different]))
    is_different = _positive(distances)
    same, different = same[is_different[: len(same)]], different[is_different[len(same) :]]
    if len(same) == 0 or len(different) == 0:
        return Constraints()
    return with_bounds(c.similar(same) + c.dissimilar(different), prior_rows)


def with_bounds(constraints: Constraints, prior_rows: Array) -> Constraints:
    """The constraints, by row number, with their open bounds filled from the pairs in question."""
    of_relation: dict[int, list[Array]] = {-1: [np.empty(0)], 1: [np.empty(0)]}
    for block in constraints.blocks:
        open_rows = np.isnan(block.bounds)
        if open_rows.any():
            distances = squared_distances(prior_rows, block.object_ids[open_rows])
            of_relation[block.relation].append(distances)
    similar, dissimilar = (np.concatenate(parts) for parts in of_relation.values())
    found = bounds.of_pairs(similar, dissimilar)
    return constraints if found is None else found.filled(constraints)


def squared_distances(rows: Array, pairs: Pairs) -> Array:
    """Of the given pairs of rows, a block of pairs at a time."""
    out = np.empty(len(pairs))
    step = max(1, (1 << 22) // max(rows.shape[1], 1))
    for low in range(0, len(pairs), step):
        z = rows[pairs[low : low + step, 0]] - rows[pairs[low : low + step, 1]]
        np.einsum("ij,ij->i", z, z, out=out[low : low + step])
    return out


def _positive(distances: Array) -> NDArray[np.bool_]:
    """Which pairs are of different objects."""
    found = distances[distances > 0]
    return distances > (_EQUAL * np.median(found) if len(found) else 0.0)


def _medians(group: NDArray[np.int64], values: Array, n_groups: int) -> Array:
    """The median of the values of every group; 0 for a group without any."""
    order = np.lexsort((values, group))
    ordered, counts = values[order], np.bincount(group, minlength=n_groups)
    starts = np.cumsum(counts) - counts
    out, some = np.zeros(n_groups), counts > 0
    low, high = starts[some] + (counts[some] - 1) // 2, starts[some] + counts[some] // 2
    out[some] = (ordered[low] + ordered[high]) / 2
    return out


def _at_most(pairs: Pairs, count: int, rng: np.random.RandomState) -> Pairs:
    return pairs if len(pairs) <= count else pairs[np.sort(rng.permutation(len(pairs))[:count])]
