"""What a fit learns from: features, class numbers and constraints, and the pairs that these become.

A fit from labels with local pairs has two rounds: the neighbours under the prior give a first metric, with
which the neighbours are chosen again. `Task.penalty` divides shares of the degrees of freedom among the
constraints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.types import Array, Codes
from nearwise.distributed import Vectors
from nearwise.learners._in_pieces import SpaceInPieces, few_rows, rows_of
from nearwise.learners._pairs import local_pairs, random_pairs, with_bounds
from nearwise.learners._selection import Trial
from nearwise.learners._side import weighed
from nearwise.learners._space import Outside, Space, mapped
from nearwise.learners._structure import AnyProblem, Structure
from nearwise.learners.input_kernels import in_parts, paired_squared_distances
from nearwise.model.blocks import Constraints
from nearwise.model.divergences import Divergence
from nearwise.model.problem import Problem

_LEAST_SHARE = 1e-2  # of the learned part of a distance, for which penalties make up
_LARGEST_SCALE = 1e60  # of the features, beyond which they are rescaled


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned from."""

    features: Array | Vectors
    codes: Codes | None
    constraints: Constraints
    root: Array  # a factor of the metric that tells open bounds and the first neighbours: the prior
    pairs: str
    n_pairs: int | None
    seed: int
    outside: Outside | None
    weights: Array | None
    structure: Structure | None

    @property
    def freedom(self) -> float:
        """How many numbers M has that the objects can tell."""
        n, d = self.features.shape
        if self.structure is not None:
            return self.structure.freedom(n)
        r = min(d, n - 1)
        return r * (r + 1) / 2

    @property
    def draws_again(self) -> bool:
        return self.codes is not None and self.pairs == "local"

    def side(self, factor: Array) -> Constraints:
        """All constraints with their bounds, neighbours being those under a metric."""
        prior = self._space(self.root)
        given = with_bounds(self.constraints, prior)
        if self.codes is None:
            return given
        rng = np.random.RandomState(self.seed)
        if self.pairs == "random":
            return random_pairs(self.codes, prior, self.n_pairs, rng, self.weights) + given
        drawn = local_pairs(self.codes, self._space(factor), prior, self.n_pairs, rng)
        return (drawn if self.weights is None else weighed(drawn, self.weights)) + given

    def _space(self, factor: Array) -> Space | SpaceInPieces:
        if isinstance(self.features, Vectors):
            return SpaceInPieces(self.features, factor)
        return Space(mapped(self.features, factor), self.outside)

    def penalty(self, share: float, side: Constraints) -> float:
        """That of every constraint which gives all of them `share` times the degrees of freedom.

        The slack costs the square of what a distance lacks, relative to the whole distance. Where only a part
        of it is learned, it is that part that shall count, so that the square of its share is made up for. A
        row of weight 2 counts as two.
        """
        total = side.total_weight
        learned = 1.0 if self.outside is None else _learned_share(self, self.outside, side)
        return share * min(self.freedom, total) / total / learned**2

    def problem(
        self, side: Constraints, divergence: Divergence, prior: Array | None, penalty: float
    ) -> AnyProblem:
        """The problem that the constraints state, at one of the penalties with which it will be solved."""
        if self.structure is not None:
            return self.structure.stated(self.features, side, divergence, prior, penalty)
        if isinstance(self.features, Vectors):
            features, names = few_rows(self.features, side)
            return Problem(features, side, divergence, prior, penalty, names)
        fixed = None if self.outside is None else self.outside.values(side)
        return Problem(self.features, side, divergence, prior, penalty, fixed=fixed)

    def part(self, trial: Trial) -> Task:
        """What a trial learns from."""
        rows, n_pairs = trial.rows, self.n_pairs
        if n_pairs is not None and trial.codes is not None:
            n_pairs = max(1, n_pairs * len(rows) // self.features.shape[0])
        return replace(
            self,
            features=rows_of(self.features, rows),
            codes=trial.codes,
            constraints=trial.constraints,
            n_pairs=n_pairs,
            outside=None if self.outside is None else self.outside.restricted(rows),
            weights=None if self.weights is None else self.weights[rows],
        )


def are_equal(features: Array | Vectors) -> bool:
    """Whether all objects are; of those in pieces, whose pairs tell it too, it is not asked."""
    if isinstance(features, Vectors):
        return False
    lowest, highest = features.min(axis=0), features.max(axis=0)
    return bool((abs(highest - lowest)).max() == 0.0) if features.shape[1] else True


def _learned_share(task: Task, outside: Outside, side: Constraints) -> float:
    """How much of the median distance that is bounded can be learned."""
    pairs = [np.asarray(b.ids)[:, -2:] for b in side.blocks if b.kind in ("distance", "comparison")]
    if not pairs:
        return 1.0
    i, j = np.concatenate(pairs).T
    learned = in_parts(paired_squared_distances, mapped(task.features, task.root), i, j)
    whole = np.median(learned + outside.distances(i, j))
    return max(float(np.median(learned) / whole), _LEAST_SHARE) if whole > 0 else 1.0


def in_range(
    features: Array, constraints: Constraints, outside: Outside | None
) -> tuple[Array, Constraints, Outside | None, float]:
    """Features and bounds in a unit in which squares neither overflow nor vanish, and what it is times.

    M does not depend on it.
    """
    size = float(abs(features).max()) if 0 not in features.shape else 0.0
    if size == 0.0 or 1.0 / _LARGEST_SCALE <= size <= _LARGEST_SCALE:
        return features, constraints, outside, 1.0
    scale = float(2.0 ** -np.round(np.log2(size)))
    blocks = [replace(block, bounds=block.bounds * scale**2) for block in constraints.blocks]
    fixed = None if outside is None else outside.scaled(scale)
    return features * scale, Constraints(tuple(blocks)), fixed, scale
