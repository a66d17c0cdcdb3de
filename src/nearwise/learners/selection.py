"""Whether given pairs look selected: pairs that are called different though they are near, or the like.

People answer questions that a search put before them, so that their "different" pairs are near ones. What is
learned from them moves near objects apart, and such pairs grade it by themselves alone. Two signs tell them
from pairs drawn at random, both under the distance before learning:

1. A pair that is called different is nearer than its two objects are to those of other such pairs. Drawn at
   random, it is nearer in half of these comparisons, or in fewer.
2. Similar pairs are farther apart than dissimilar ones.

Only pairs that share no object with another are compared, so that they are independent; a sign has to be
`_ERRORS` standard errors off, and by more than a margin. With fewer than nine pairs nothing can be told.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.utils.random import sample_without_replacement

from nearwise._common.types import Array, Index, Mask
from nearwise._common.warning import warn
from nearwise.side import Constraints

_PAIRS = 300  # of a kind, that are compared
_LOOKED_AT = 20_000  # of a kind, among which they are searched
_OTHERS = 10  # other pairs that each is compared with
_ERRORS = 4.5  # standard errors
_NEARER, _REVERSED = 0.15, 0.05  # margins beside one half, of the two signs


class SelectedFeedbackWarning(UserWarning):
    """Given pairs look selected: what is learned from them may make search worse, and they cannot show it."""


def tell_of_selection(constraints: Constraints, before: Callable[[Index], Array]) -> None:
    """Warn where similar and dissimilar pairs look selected.

    Parameters
    ----------
    constraints : by row number. Pairs with bounds of their own, and those that `from_labels` drew, are not
        looked at.
    before : squared distances before learning, of (m, 2) row numbers
    """
    rng = np.random.RandomState(0)
    similar, dissimilar = _given(constraints, -1, rng), _given(constraints, 1, rng)
    signs = [_nearer_than_others(dissimilar, before, rng), _reversed(similar, dissimilar, before, rng)]
    found = " and ".join(sign for sign in signs if sign)
    if found:
        warn(
            f"the pairs look selected: before learning, {found}. A distance that is learned from such pairs "
            "moves near objects apart, and search by it may become worse; figures on such pairs cannot show "
            "that. Compare the nearest neighbours before and after on objects with labels, and add pairs "
            "drawn at random",
            SelectedFeedbackWarning,
        )


def _given(constraints: Constraints, relation: int, rng: np.random.RandomState) -> Index:
    """Pairs of a kind that somebody gave, in random order; some of very many."""
    blocks = [
        block
        for block in constraints.blocks
        if block.tells_pairs and block.relation == relation and block.has_open_bounds and not block.drawn
    ]
    total = sum(len(block) for block in blocks)
    found = [np.empty((0, 2), np.int64)]
    for block in blocks:
        count = min(len(block), -(-_LOOKED_AT * len(block) // total))
        chosen = np.sort(sample_without_replacement(len(block), count, random_state=rng))
        part = block.part(chosen)
        is_open = np.isnan(np.asarray(part.bounds, dtype=np.float64))
        found.append(np.asarray(part.object_ids, dtype=np.int64)[is_open])
    pairs = np.concatenate(found)
    return pairs[rng.permutation(len(pairs))]


def _nearer_than_others(pairs: Index, before: Callable[[Index], Array], rng: np.random.RandomState) -> str:
    """The first sign, as a clause; empty where it is not there."""
    alone = pairs[_disjoint(pairs, np.zeros(len(pairs), dtype=bool))]
    k = len(alone)
    others = min(_OTHERS, k - 1)
    if others < 1:
        return ""
    swap = rng.rand(k) < 0.5
    alone[swap] = alone[swap, ::-1]
    i, j = alone.T
    shifted = [np.stack([i, np.roll(j, -s)], axis=1) for s in range(1, others + 1)]
    found = before(np.concatenate([alone, *shifted])).reshape(others + 1, k)
    share = float(np.mean((np.sign(found[1:] - found[0]) + 1.0) / 2.0))
    error = np.sqrt((1 / 12 + 1 / (6 * others)) / k)
    if share - 0.5 <= max(_NEARER, _ERRORS * error):
        return ""
    return f"a dissimilar pair is nearer than its objects are to others in {share:.0%} of comparisons"


def _reversed(
    similar: Index, dissimilar: Index, before: Callable[[Index], Array], rng: np.random.RandomState
) -> str:
    """The second sign, as a clause; empty where it is not there."""
    pairs = np.concatenate([similar, dissimilar])
    order = rng.permutation(len(pairs))
    pairs, far = pairs[order], (np.arange(len(pairs)) >= len(similar))[order]
    kept = _disjoint(pairs, far)
    pairs, far = pairs[kept], far[kept]
    n_near, n_far = int((~far).sum()), int(far.sum())
    if not n_near or not n_far:
        return ""
    distances = before(pairs)
    area = float(np.mean((np.sign(distances[far] - distances[~far, None]) + 1.0) / 2.0))
    error = np.sqrt((n_near + n_far + 1) / (12 * n_near * n_far))
    if 0.5 - area <= max(_REVERSED, _ERRORS * error):
        return ""
    return f"similar pairs are nearer than dissimilar ones in only {area:.0%} of comparisons (ROC-AUC)"


def _disjoint(pairs: Index, kind: Mask) -> Index:
    """The places of pairs of which no two share an object, at most `_PAIRS` of either kind."""
    seen: set[int] = set()
    room, kept = {False: _PAIRS, True: _PAIRS}, []
    for place, (i, j, of) in enumerate(zip(*pairs.T.tolist(), kind.tolist(), strict=True)):
        if room[of] and i not in seen and j not in seen:
            seen |= {i, j}
            room[of] -= 1
            kept.append(place)
    return np.array(kept, dtype=np.int64)
