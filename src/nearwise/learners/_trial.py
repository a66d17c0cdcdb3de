"""What is held out while a penalty is chosen or learning is checked, and the grade of a matrix on it.

With labels, half of the objects are held out, because near neighbours make pairs of one object tell much
about the others: the score is the share of a held-out object's class among its five nearest learned-from
objects. Without labels, a third of the constraints is held out: the score is how often the pair that should
be closer is closer, and for constraints that do not order distances how little they are violated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Index
from nearwise.core import Problem
from nearwise.distributed import Vectors
from nearwise.learners._in_pieces import named_by
from nearwise.learners._place import Place
from nearwise.learners._rows import rows_of
from nearwise.learners._side import Side
from nearwise.learners._space import Space, mapped
from nearwise.learners.grades import Grade, Part, area_under_roc, by_neighbors, parts_in_order, together
from nearwise.linalg.distances import centre_of
from nearwise.side import Block, Constraints, constraints as c, drawing

SCORINGS = ("auto", "neighbors", "accuracy", "balanced_accuracy", "roc_auc")
_LARGEST_SAMPLE = 4_000  # objects that a choice of the penalty looks at, half of them held out
_HELD_OUT = 3  # hold out every third constraint of a sort
_GRADED_PAIRS = 20_000  # pairs of held-out objects that scoring="roc_auc" looks at
_STAND_INS = 1_000  # random pairs that stand in for the kind of pairs of which there are none


@dataclass(frozen=True, eq=False)
class Trial:
    """What is learned from, and the grade of a factor of M on the rest; None stands for M = I.

    `place` has the features of all objects, as they are where only `rows` are known, and `side` what is known
    of these.
    """

    place: Place
    rows: Index
    side: Side
    grade: Callable[[Array | None], Grade]

    def score(self, factor: Array | None) -> float:
        """The grade without its parts."""
        return self.grade(factor).score


def hold_out(place: Place, side: Side, rng: np.random.RandomState, scoring: str = "auto") -> Trial | None:
    """A trial; None where there is too little to hold something out.

    Features that are made with the help of labels are made again, from the labels of those objects that are
    learned from. `scoring` is one of `SCORINGS`; without labels it is always how often what shall be nearer
    is.
    """
    codes, constraints, weights = side.codes, side.constraints, side.weights
    if codes is None:
        return _without_constraints(place, side, rng)
    labelled = np.flatnonzero(codes >= 0)
    sample = labelled[rng.permutation(len(labelled))[:_LARGEST_SAMPLE]]
    sample = sample[np.argsort(codes[sample], kind="stable")]
    starts = np.flatnonzero(np.diff(codes[sample], prepend=-1))
    number = np.arange(len(sample)) - np.repeat(starts, np.diff(np.append(starts, len(sample))))
    learned_from, asking = np.sort(sample[number % 2 == 0]), np.sort(sample[number % 2 == 1])
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
    part = Side(len(rows), codes[rows], constraints, weights=None if weights is None else weights[rows])

    place = place.without_labels_but_of(learned_from)
    known, row = place.features, np.arange(len(codes))
    if isinstance(known, Vectors):  # only these are looked at
        looked_at = np.union1d(learned_from, asking)
        known = rows_of(known, looked_at)
        row[looked_at] = np.arange(len(looked_at))
    row_of = np.empty(known.shape[0], np.int64)
    row_of[row[learned_from]] = learned_from
    if not sparse.issparse(known):  # distances between rows round less when they are centred
        known = known - centre_of(known)

    measure = "neighbors" if scoring == "auto" else scoring
    of_asking = None if weights is None else weights[asking]
    drawn = drawing.random_pairs(codes[asking], _GRADED_PAIRS, rng) if measure == "roc_auc" else ()
    if any(len(pairs) == 0 for pairs in drawn):
        return None
    objects = np.ones(len(asking)) if of_asking is None else of_asking
    pair_weights = [objects[pairs].prod(axis=1) for pairs in drawn]  # of every pair, those of its objects

    def grade(factor: Array | None) -> Grade:
        coordinates = known if factor is None else mapped(known, factor)
        if sparse.issparse(known) and not sparse.issparse(coordinates):
            coordinates = coordinates - centre_of(coordinates)
        space = Space(coordinates, place.outside)
        if drawn:
            near, far = (space.distances(row[asking][pairs]) for pairs in drawn)
            return together(area_under_roc(near, far, *pair_weights), drawn, len(asking))
        count = min(drawing.N_NEIGHBORS, len(learned_from))
        found = row_of[space.nearest(row[asking], row[learned_from], count)]
        return by_neighbors(measure, codes[found], codes[asking], of_asking)

    return Trial(place, rows, part, grade)


def _without_constraints(place: Place, given: Side, rng: np.random.RandomState) -> Trial | None:
    kept, held = _divided(given.constraints, rng)
    features, outside, n = place.features, place.outside, given.n_objects
    ordering = [block for block in held if len(block) and _orders(block)]
    # of sparse features, values of other constraints would need them written out
    others = [block for block in held if len(block) and not _orders(block) and not sparse.issparse(features)]
    if not ordering and not others:
        return None
    side = Side(n, None, _with_both_kinds(ordering, n, rng))
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
            violations = problem.formulation.loss.violations(problem.values(M))
            counts = problem.constraints.weights
            kept, total = 1.0 - np.minimum(violations, 1.0), float(counts.sum())
            parts.append(Part(kept, counts, total, float(counts @ kept) / total))
        return together(parts)

    part = replace(given, constraints=Constraints(tuple(kept)))
    return Trial(place, np.arange(n), part, grade)


def _divided(constraints: Constraints, rng: np.random.RandomState) -> tuple[list[Block], list[Block]]:
    """The blocks without those rows that are held out, and the rows: a third of those of one sort.

    Blocks of one kind and relation are one sort, so that rows may come in one block or in one each.
    """
    sorts: dict[tuple[str, int], list[Block]] = {}
    for block in constraints.blocks:
        sorts.setdefault((block.kind, block.relation), []).append(block)
    kept, held = list[Block](), list[Block]()
    for blocks in sorts.values():
        ends = np.cumsum([len(block) for block in blocks])
        order = rng.permutation(ends[-1])
        is_held = np.zeros(ends[-1], bool)
        is_held[order[: ends[-1] // _HELD_OUT]] = True
        for block, chosen in zip(blocks, np.split(is_held, ends[:-1]), strict=True):
            held.append(block.part(np.flatnonzero(chosen)))
            kept.append(block.part(np.flatnonzero(~chosen)))
    return kept, held


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
