"""The bounds of pairs that are only called similar or dissimilar, and the margins of bare comparisons.

One rule fills them, in every learner. With squared distances under the metric that a learner starts from,

    upper = min(q5, t / m)  for similar pairs,      lower = max(q95, t m)  for dissimilar ones,

where t is a threshold between what is near and what is far, m >= 1 a margin, and q5, q95 are percentiles
(KSD09 7.2). What differs is which distances are known:

- a *sample*, of all pairs of objects or of a stream so far: t is its median, and q5, q95 its percentiles;
- the *pairs in question* themselves: t is the geometric mean of the median distances of the similar and of
  the dissimilar ones, and there are no percentiles. This adapts to pairs that are all near, as neighbours.

Where a part of every distance is fixed, the margin is asked of the part u of t that is not: t - u (1 - 1/m)
and t + u (m - 1). The margin of learners of a metric is 2. That of `Problem` is 1, which leaves the
percentiles alone as in KSD09, and so does `KernelReducer`, which looks for few directions, not a distance.
Everything is a ratio of distances, so that no unit matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.columns import Constant
from nearwise._common.types import Array, Index
from nearwise.linalg.magnitudes import median
from nearwise.side.blocks import Block, Constraints

MARGIN = 2.0  # of learners: similar pairs come below half the threshold, dissimilar ones above twice that
NO_MARGIN = 1.0  # the percentiles alone
LARGEST_CHANGE = 1e25  # of a row's value under the prior that its bound may ask for
ALL_EQUAL = "all objects have the same features, so no bound can be filled from their distances"
_TAILS = (0.05, 0.95)
_SAMPLED_PAIRS = 10_000


@dataclass(frozen=True)
class OpenBounds:
    """What fills open bounds: squared distances for similar and for dissimilar pairs, and one between."""

    upper: float
    threshold: float
    lower: float

    def fill(self, bounds: Array, relations: NDArray[np.integer]) -> Array:
        """The bounds, with those that are NaN filled by the relation of each row, -1 or +1."""
        return np.where(np.isnan(bounds), np.where(relations < 0, self.upper, self.lower), bounds)

    def filled(self, constraints: Constraints) -> Constraints:
        """The constraints, without open bounds."""
        return Constraints(tuple(self._filled(block) for block in constraints.blocks))

    def _filled(self, block: Block) -> Block:
        if not block.has_open_bounds:
            return block
        bounds: Any = block.bounds
        filling: Any
        if isinstance(bounds, Constant):
            filling = Constant(self.upper if block.relation < 0 else self.lower, len(block))
        else:
            filling = self.fill(bounds, np.full(len(block), block.relation))
        return replace(block, bounds=filling)


def of_sample(distances: Array, margin: float = MARGIN) -> OpenBounds | None:
    """From squared distances of any pairs; zeros do not count, and None is for a sample of nothing else."""
    return of_ascending(np.sort(distances[distances > 0.0]), margin)


def of_ascending(distances: Array, margin: float = MARGIN) -> OpenBounds | None:
    """The same from positive distances in ascending order."""
    if not len(distances):
        return None
    low, middle, high = (_quantile(distances, share) for share in (_TAILS[0], 0.5, _TAILS[1]))
    return OpenBounds(min(low, middle / margin), middle, max(high, middle * margin))


def of_pairs(
    similar: Array,
    dissimilar: Array,
    margin: float = MARGIN,
    weights: tuple[Array | None, Array | None] = (None, None),
) -> OpenBounds | None:
    """From the squared distances of the pairs in question, of which one sort may be missing.

    `weights` are those of the similar and of the dissimilar ones; by default all count alike.
    """
    medians = []
    for distances, counts in zip((similar, dissimilar), weights, strict=True):
        known = distances > 0.0
        if known.any():
            medians.append(median(distances[known], None if counts is None else counts[known]))
    if not medians:
        return None
    threshold = float(np.exp(np.mean(np.log(medians))))
    return OpenBounds(threshold / margin, threshold, threshold * margin)


def around(threshold: Array, learned: Array, margin: float = MARGIN) -> tuple[Array, Array]:
    """What similar pairs shall come below and dissimilar ones above, where a part of distances is fixed.

    The margin is asked of `learned`, the part of the threshold that is not.
    """
    part = np.minimum(learned, threshold)
    return threshold - (1.0 - 1.0 / margin) * part, threshold + (margin - 1.0) * part


@lru_cache(maxsize=32)  # of 160 kB at most; others of as many objects ask for the same
def sampled_pairs(n: int) -> Index:
    """Pairs of n objects, (m, 2): all of them where they are few, else always the same random ones."""
    if n * (n - 1) // 2 <= _SAMPLED_PAIRS:
        objects = np.arange(n)
        pairs = np.argwhere(objects[:, None] < objects)
    else:
        drawn = np.random.default_rng(0).integers(0, n, (2, _SAMPLED_PAIRS))
        pairs = drawn[:, drawn[0] != drawn[1]].T
    pairs = np.ascontiguousarray(pairs)
    pairs.setflags(write=False)
    return pairs


def with_margins(constraints: Constraints, margin: float) -> Constraints:
    """The constraints, with a margin for comparisons that have none.

    The matrix 0 satisfies every comparison without a margin, and a descent that may shrink would end there.
    """
    return Constraints(tuple(_with_margin(block, margin) for block in constraints.blocks))


def sampled_bounds(constraints: Constraints, most: int = 1_000_000) -> Array:
    """The bounds of every k-th row, about `most` of them."""
    step, first, found = max(len(constraints) // most, 1), 0, [np.empty(0)]
    for block in constraints.blocks:
        found.append(block.bounds[np.arange(-first % step, len(block), step)])
        first += len(block)
    return np.concatenate(found)


def _with_margin(block: Block, margin: float) -> Block:
    is_bare = any(bool((part == 0.0).any()) for _, part in block.bound_chunks())
    if block.of_kind.n_distances != 2 or not is_bare:
        return block
    if isinstance(block.bounds, Constant):
        same: Any = Constant(-margin, len(block))
        return replace(block, bounds=same)
    return block.rewritten(
        lambda part: replace(part, bounds=np.where(part.bounds == 0.0, -margin, part.bounds)), "bounds"
    )


def _quantile(ascending: Array, share: float) -> float:
    """As `np.quantile` has it, in a tenth of the time."""
    place = share * (len(ascending) - 1)
    low = int(place)
    below, above = float(ascending[low]), float(ascending[min(low + 1, len(ascending) - 1)])
    part = place - low
    return below + part * (above - below) if part < 0.5 else above - (1.0 - part) * (above - below)
