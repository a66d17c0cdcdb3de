"""What is held out while the penalty is chosen or learning is checked, and how a metric is scored on it.

With labels, half of the objects are held out, because near neighbours make pairs of one object tell much
about the others: the score is the share of a held-out object's class among its five nearest learned-from
objects. Without labels, a third of the constraints is held out: the score is how often what shall be nearer
is nearer, and for constraints that do not order distances how little they are violated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Codes, Index
from nearwise.distributed import Vectors
from nearwise.learners._grading import Grade, Part, area_under_roc, by_neighbors, together
from nearwise.learners._in_pieces import named_by, rows_of
from nearwise.learners._side import SideInformation, parts_in_order
from nearwise.learners._space import Outside, Space, mapped
from nearwise.model import constraints as c, drawing
from nearwise.model.blocks import Block, Constraints
from nearwise.model.problem import Problem

_LARGEST_SAMPLE = 4_000  # objects that a choice of the penalty looks at, half of them held out
_HELD_OUT = 3  # one of so many constraints of a block is held out
_GRADED_PAIRS = 20_000  # pairs of held-out objects that scoring="roc_auc" looks at
_STAND_INS = 1_000  # random pairs that stand in for the kind of pairs of which there are none


@dataclass(frozen=True, eq=False)
class Trial:
    """What is learned from, and the grade of a factor of M on the rest; None stands for M = I.

    `features` are those of all objects, as they are where only `rows` are known.
    """

    features: Any
    rows: Index
    codes: Codes | None
    constraints: Constraints
    grade: Callable[[Array | None], Grade]

    def score(self, factor: Array | None) -> float:
        """The grade without its parts."""
        return self.grade(factor).score


def hold_out(
    features: Any,
    codes: Codes | None,
    constraints: Constraints,
    rng: np.random.RandomState,
    outside: Outside | None = None,
    weights: Array | None = None,
    made_from: Callable[[Index], Array] | None = None,
    scoring: str = "auto",
) -> Trial | None:
    """A trial on features, dense or sparse; None where there is too little to hold something out.

    Distances are those of the features in the coordinates of a factor, plus those outside a basis. `weights`
    are those of the objects. Features that are made with the help of labels are made again, from the labels
    of those objects that are learned from: `made_from` does that. `scoring` is one of `SCORINGS`; without
    labels it is always how often what shall be nearer is.
    """
    if codes is None:
        return _without_constraints(features, constraints, rng, outside)
    return _without_objects(features, codes, constraints, rng, outside, weights, made_from, scoring)


def _without_objects(
    features: Any,
    codes: Codes,
    constraints: Constraints,
    rng: np.random.RandomState,
    outside: Outside | None,
    weights: Array | None,
    made_from: Callable[[Index], Array] | None,
    scoring: str,
) -> Trial | None:
    labelled = np.flatnonzero(codes >= 0)
    sample = labelled[rng.permutation(len(labelled))[:_LARGEST_SAMPLE]]
    sample = sample[np.argsort(codes[sample], kind="stable")]
    starts = np.flatnonzero(np.diff(codes[sample], prepend=-1))
    place = np.arange(len(sample)) - np.repeat(starts, np.diff(np.append(starts, len(sample))))
    learned_from, asking = np.sort(sample[place % 2 == 0]), np.sort(sample[place % 2 == 1])
    # Every class is in the part that is learned from; classes of one object are in no other.
    if np.bincount(codes[learned_from]).max() < 2 or len(np.unique(codes[learned_from])) < 2:
        return None
    rows = learned_from
    if constraints.blocks:
        # objects without a class cannot be asked for theirs, but constraints speak of some
        if len(labelled) < len(codes):
            named = named_by(constraints)
            rows = np.union1d(learned_from, named[codes[named] < 0])
        constraints = Constraints(constraints.restricted_to(rows)[0].resolve(len(rows), rows))

    if made_from is not None:
        features = made_from(learned_from)
        outside = None if outside is None else replace(outside, features=features)
    known, place = features, np.arange(len(codes))
    if isinstance(features, Vectors):  # only these are looked at
        looked_at = np.union1d(learned_from, asking)
        known = rows_of(features, looked_at)
        place[looked_at] = np.arange(len(looked_at))
    row_of = np.empty(known.shape[0], np.int64)
    row_of[place[learned_from]] = learned_from
    if not sparse.issparse(known):  # distances between rows round less when they are centred
        known = known - known.mean(axis=0)

    measure = "neighbors" if scoring == "auto" else scoring
    of_asking = None if weights is None else weights[asking]
    drawn = drawing.random_pairs(codes[asking], _GRADED_PAIRS, rng) if measure == "roc_auc" else ()
    if any(len(pairs) == 0 for pairs in drawn):
        return None
    pair_weights = [_products(of_asking, pairs) for pairs in drawn]

    def grade(factor: Array | None) -> Grade:
        coordinates = known if factor is None else mapped(known, factor)
        if sparse.issparse(known) and not sparse.issparse(coordinates):
            coordinates = coordinates - coordinates.mean(axis=0)
        space = Space(coordinates, outside)
        if drawn:
            near, far = (space.distances(place[asking][pairs]) for pairs in drawn)
            return together(area_under_roc(near, far, *pair_weights), drawn, len(asking))
        count = min(drawing.N_NEIGHBORS, len(learned_from))
        found = row_of[space.nearest(place[asking], place[learned_from], count)]
        return by_neighbors(measure, codes[found], codes[asking], of_asking)

    return Trial(features, rows, codes[rows], constraints, grade)


def _without_constraints(
    features: Any, constraints: Constraints, rng: np.random.RandomState, outside: Outside | None
) -> Trial | None:
    kept: list[Block] = []
    held: list[Block] = []
    for block in constraints.blocks:
        order = rng.permutation(len(block))
        n_held = len(block) // _HELD_OUT
        held.append(block.part(np.sort(order[:n_held])))
        kept.append(block.part(np.sort(order[n_held:])))
    n = features.shape[0]
    ordering = [block for block in held if len(block) and _orders(block)]
    # of sparse features, values of other constraints would need them written out
    others = [block for block in held if len(block) and not _orders(block) and not sparse.issparse(features)]
    if not ordering and not others:
        return None
    side = SideInformation(n, None, _with_both_kinds(ordering, n, rng))
    rest = Constraints(tuple(others))
    fixed = None if outside is None else outside.values(rest)
    problem = Problem(features, rest, fixed=fixed) if others else None

    def grade(factor: Array | None) -> Grade:
        parts: list[Part] = []
        if ordering:
            rows = features if factor is None else mapped(features, factor)
            space = Space(rows, outside)

            def distances(i: Index, j: Index) -> Array:
                return space.distances(np.stack([i, j], axis=1))

            parts += parts_in_order(side, distances, np.random.RandomState(0))
        if problem is not None:
            root = np.ones(features.shape[1]) if factor is None else factor
            M = np.diag(np.square(root)) if root.ndim == 1 else root @ root.T
            violations = problem.formulation.losses.violations(problem.values(M))
            counts = problem.constraints.weights
            kept, total = 1.0 - np.minimum(violations, 1.0), float(counts.sum())
            parts.append(Part(kept, counts, total, float(counts @ kept) / total))
        return together(parts)

    return Trial(features, np.arange(n), None, Constraints(tuple(kept)), grade)


def _products(weights: Array | None, pairs: Index) -> Array:
    """The weight of every pair: the product of those of its objects."""
    return np.ones(len(pairs)) if weights is None else np.asarray(weights[pairs].prod(axis=1))


def _orders(block: Block) -> bool:
    return block.of_kind.n_distances == 2 or block.tells_pairs


def _with_both_kinds(blocks: list[Block], n_objects: int, rng: np.random.RandomState) -> Constraints:
    """The blocks, with random pairs as the other kind where all pairs are similar or all dissimilar."""
    relations = {block.relation for block in blocks if block.tells_pairs}
    side = Constraints(tuple(blocks))
    if len(relations) != 1 or n_objects < 2:
        return side
    i, j = rng.randint(n_objects, size=(2, _STAND_INS))
    pairs = np.stack([i, j], axis=1)[i != j]
    return side + (c.dissimilar(pairs) if -1 in relations else c.similar(pairs))
