"""What a fit learns from: features, class numbers and constraints, and the pairs that these become.

A fit from labels with local pairs has two rounds: the neighbours under the prior give a first metric, with
which the neighbours are chosen again. `Task.penalty` divides shares of the degrees of freedom among the
constraints.

`model.bounds` has the rule that fills bounds: with a threshold t between what is similar and what is not,
similar pairs shall come below t / 2 and dissimilar ones above 2 t. Where a part of every distance is fixed,
that is asked of the part u of the threshold that is not: the bounds are t - u / 2 and t + u. Pairs between
near neighbours get the threshold of their own neighbourhood, random pairs and pairs that the user gives one
threshold in common.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Codes, Index
from nearwise.learners._in_pieces import SpaceInPieces
from nearwise.learners._place import Place
from nearwise.learners._side import Side, weighed
from nearwise.learners._space import Space, mapped
from nearwise.learners._trial import Trial
from nearwise.linalg.distances import squared_distances
from nearwise.side import Block, Constraints, bounds, constraints as c, drawing

_LEAST_SHARE = 1e-2  # of the learned part of a distance, for which penalties make up


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned from: a place, what is known, and how pairs are drawn there.

    Attributes
    ----------
    root : a factor of the metric that determines open bounds and the first neighbours: the prior, or where
        that is zero, and determines no distances, the identity
    pairs, n_pairs : "random" or "local", and how many at most; None for the default
    seed : of the draws
    """

    place: Place
    side: Side
    root: Array
    pairs: str
    n_pairs: int | None
    seed: int

    @property
    def draws_again(self) -> bool:
        return self.side.codes is not None and self.pairs == "local"

    def drawn(self, factor: Array) -> Constraints:
        """All constraints with their bounds, neighbours being those under a metric."""
        prior, codes, weights = self.place.seen_by(self.root), self.side.codes, self.side.weights
        given = with_bounds(self.side.constraints, prior)
        if codes is None:
            return given
        rng = np.random.RandomState(self.seed)
        if self.pairs == "random":
            return random_pairs(codes, prior, self.n_pairs, rng, weights) + given
        return (
            weighed(local_pairs(codes, self.place.seen_by(factor), prior, self.n_pairs, rng), weights) + given
        )

    def penalty(self, share: float, drawn: Constraints) -> float:
        """That of every constraint which gives all of them `share` times the degrees of freedom.

        The slack costs the square of what a distance lacks, relative to the whole distance. Where only a part
        of it is learned, it is that part that shall count, so that the square of its share is made up for. A
        row of weight 2 counts as two.
        """
        freedom, total = self.place.structure.freedom(*self.place.features.shape), drawn.total_weight
        return share * min(freedom, total) / total / self._learned_share(drawn) ** 2

    def part(self, trial: Trial) -> Task:
        """What a trial learns from."""
        rows, n_pairs = trial.rows, self.n_pairs
        if n_pairs is not None and trial.side.codes is not None:
            n_pairs = max(1, n_pairs * len(rows) // self.place.features.shape[0])
        return replace(self, place=trial.place.of(rows), side=trial.side, n_pairs=n_pairs)

    def _learned_share(self, drawn: Constraints) -> float:
        """How much of the median distance that is bounded can be learned."""
        outside = self.place.outside
        pairs = [np.asarray(b.ids)[:, -2:] for b in drawn.blocks if b.kind in ("distance", "comparison")]
        if outside is None or not pairs:
            return 1.0
        i, j = np.concatenate(pairs).T
        learned = squared_distances(mapped(self.place.features, self.root), i, j)
        whole = np.median(learned + outside.distances(i, j))
        return max(float(np.median(learned) / whole), _LEAST_SHARE) if whole > 0 else 1.0


LOCAL_PAIRS = 20_000  # drawn at most by default: the neighbours of 2,000 objects
_LEAST = 1e-3  # of the median threshold: objects whose neighbours are nearly equal get no smaller one
_MEASURED = 1 << 20  # pairs of each relation in pieces whose distances are looked at to fill open bounds
_EQUAL = 1e-12  # of the median squared distance, below which two objects count as equal


def local_pairs(
    codes: Codes,
    space: Space | SpaceInPieces,
    prior: Space | SpaceInPieces,
    n_pairs: int | None,
    rng: np.random.RandomState,
) -> Constraints:
    """Objects with their five nearest of their own class and of the others, at the objects' own thresholds.

    Parameters
    ----------
    codes : the class of every object as a number, -1 for one that has none and is in no pair
    space : the distances by which neighbours are searched
    prior : the distances of the prior, for the bounds
    n_pairs : how many pairs to draw at most; 20,000 by default. Where there are more, those of a random
        choice of objects.
    rng : for that choice
    """
    labelled = np.flatnonzero(codes >= 0)
    limit = LOCAL_PAIRS if n_pairs is None else n_pairs
    n_asking = min(len(labelled), -(-limit // (2 * drawing.N_NEIGHBORS)))
    asking = np.sort(labelled[rng.permutation(len(labelled))[:n_asking]])
    near, far = _apart(*space.neighbors(codes, asking), prior)
    if len(near) == 0 or len(far) == 0:
        return Constraints()
    learned = _own_thresholds(prior.inside, near, far, len(codes))
    whole = learned if prior.outside is None else _own_thresholds(prior, near, far, len(codes))
    lower, upper = bounds.around(whole, learned)
    near, far = _at_most(near, limit - limit // 2, rng), _at_most(far, max(limit // 2, 1), rng)
    similar = Block("distance", -1, near, lower[near[:, 0]])
    return Constraints((similar, Block("distance", 1, far, upper[far[:, 0]])))


def random_pairs(
    codes: Codes,
    prior: Space | SpaceInPieces,
    n_pairs: int | None,
    rng: np.random.RandomState,
    weights: Array | None = None,
) -> Constraints:
    """Pairs drawn uniformly, half of them similar where the labels permit; 40 c^2 by default (KSD09 7.2).

    `weights` are those of the objects.
    """
    same, different = _apart(*drawing.random_pairs(codes, n_pairs, rng), prior)
    if len(same) == 0 or len(different) == 0:
        return Constraints()
    return with_bounds(weighed(c.similar(same) + c.dissimilar(different), weights), prior)


def with_bounds(constraints: Constraints, prior: Space | SpaceInPieces) -> Constraints:
    """The constraints, by row number, with their open bounds filled from the pairs in question."""
    if not any(block.has_open_bounds for block in constraints.blocks):
        return constraints
    most = _MEASURED if isinstance(prior, SpaceInPieces) else None
    near, far = (_open_rows(constraints, sign, most) for sign in (-1, 1))
    weights = (near.counts, far.counts)
    whole, learned = (
        bounds.of_pairs(space.distances(near.object_ids), space.distances(far.object_ids), weights=weights)
        for space in (prior, prior.inside)
    )
    if whole is None or learned is None:
        return constraints
    below, above = bounds.around(np.array(whole.threshold), np.array(learned.threshold))
    return replace(whole, upper=float(below), lower=float(above)).filled(constraints)


def _open_rows(constraints: Constraints, relation: int, most: int | None) -> Block:
    """The pairs of a relation whose bounds are open; of more than `most`, every k-th."""
    blocks = [block for block in constraints.blocks if block.relation == relation and block.has_open_bounds]
    step = 1 if most is None else max(-(-sum(map(len, blocks)) // most), 1)
    found = [Block("distance", relation, drawing.NO_PAIRS, np.empty(0))]
    for block in blocks:
        if block.is_stored:  # all of them are open
            rows = np.arange(0, len(block), step)
        else:
            rows = np.flatnonzero(np.isnan(block.bounds))[::step]
        found.append(block.part(rows))
    ids = np.concatenate([block.object_ids for block in found])
    counts = np.concatenate([block.counts for block in found])
    return Block("distance", relation, ids, np.full(len(ids), np.nan), weights=counts)


def _own_thresholds(space: Space | SpaceInPieces, near: Index, far: Index, n_objects: int) -> Array:
    """The threshold of every object, from the pairs in which it is the first."""
    below = _medians(near[:, 0], space.distances(near), n_objects)
    above = _medians(far[:, 0], space.distances(far), n_objects)
    # An object without neighbours of one kind has the threshold that the other kind alone gives.
    # roots first: the product of two squared distances may not be a floating-point number
    threshold = np.sqrt(np.where(below > 0, below, above)) * np.sqrt(np.where(above > 0, above, below))
    return np.maximum(threshold, _LEAST * np.median(threshold[threshold > 0]))


def _apart(near: Index, far: Index, prior: Space | SpaceInPieces) -> tuple[Index, Index]:
    """Those of objects with different coordinates, without which nothing can be learned."""
    distances = prior.inside.distances(np.concatenate([near, far]))
    found = distances[distances > 0]
    kept = distances > (_EQUAL * np.median(found) if len(found) else 0.0)
    return near[kept[: len(near)]], far[kept[len(near) :]]


def _medians(group: NDArray[np.int64], values: Array, n_groups: int) -> Array:
    """The median of the values of every group; 0 for a group without any."""
    order = np.lexsort((values, group))
    ordered, counts = values[order], np.bincount(group, minlength=n_groups)
    starts = np.cumsum(counts) - counts
    out, some = np.zeros(n_groups), counts > 0
    low, high = starts[some] + (counts[some] - 1) // 2, starts[some] + counts[some] // 2
    out[some] = (ordered[low] + ordered[high]) / 2
    return out


def _at_most(pairs: Index, count: int, rng: np.random.RandomState) -> Index:
    return pairs if len(pairs) <= count else pairs[np.sort(rng.permutation(len(pairs))[:count])]
