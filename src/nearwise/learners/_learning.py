"""Solves of a fit: what is learned from, how it is solved, and the path along which a penalty is chosen.

A fit from labels with local pairs has two rounds: the neighbours under the prior give a first metric, with
which the neighbours are chosen again. `penalty="auto"` tries a path of rising penalties on a part of what is
known, scores each on what is held out, and learns from everything with the best. The path is cheap: each of
its solves starts where the one before ended and is coarse, and it ends where the score falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Codes
from nearwise.distributed import Vectors
from nearwise.learners._checkpoint import Checkpoint
from nearwise.learners._grading import Grade, first_as_good
from nearwise.learners._in_pieces import SpaceInPieces, few_rows, rows_of
from nearwise.learners._pairs import local_pairs, random_pairs, with_bounds
from nearwise.learners._selection import Trial
from nearwise.learners._side import weighed
from nearwise.learners._space import Outside, Space, mapped
from nearwise.learners._structure import AnyProblem, AnyResult, Structure, solved
from nearwise.model.blocks import Constraints
from nearwise.model.divergences import Divergence
from nearwise.model.problem import Problem
from nearwise.solving.result import Record, Status

PATH = (0.25, 1.0, 4.0, 16.0, 64.0)  # penalties tried, per degree of freedom
FIRST_ROUND = 4.0  # the one with which neighbours are chosen again
UNTRIED = 1.0  # the one where too little is known to hold something out
_COARSE = 1e-2  # relative gap up to which the path and first rounds are solved
COARSE_ITERATIONS = 15  # after which they stop in any case
_FIRST_LOOK = 2_000  # pairs from labels that a first look learns from at most
_PATIENCE = 2  # penalties in a row that are worse than one before them, after which the path ends
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
        return weighed(drawn, self.weights) + given

    def _space(self, factor: Array) -> Space | SpaceInPieces:
        if isinstance(self.features, Vectors):
            return SpaceInPieces(self.features, factor)
        return Space(mapped(self.features, factor), self.outside)

    def part(self, rows: NDArray[np.int64], codes: Codes | None, constraints: Constraints) -> Task:
        n_pairs = self.n_pairs
        if n_pairs is not None and codes is not None:
            n_pairs = max(1, n_pairs * len(rows) // self.features.shape[0])
        return replace(
            self,
            features=rows_of(self.features, rows),
            codes=codes,
            constraints=constraints,
            n_pairs=n_pairs,
            outside=None if self.outside is None else self.outside.restricted(rows),
            weights=None if self.weights is None else self.weights[rows],
        )


@dataclass(frozen=True, eq=False)
class Run:
    """How it is learned."""

    divergence: Divergence
    prior: Array | None
    tol: float
    max_iter: int | None
    coarse_limit: int
    callback: Callable[[Record], Any] | None
    checkpoint: Checkpoint | None
    structure: Structure | None

    def fit(
        self, task: Task, drawn: Constraints, share: float, penalty: float | None
    ) -> tuple[AnyResult, float]:
        """Learn with a penalty, or with the one that gives the constraints a share of the freedom."""
        start = None
        if task.draws_again:
            first = penalty if penalty is not None else per_row(FIRST_ROUND, task, drawn)
            start = self._coarse(self._stated(task, drawn, first), first)
            drawn = task.side(start)
        gamma = penalty if penalty is not None else per_row(share, task, drawn)
        problem = self._stated(task, drawn, gamma)

        def last(start: Array | None, max_iter: int | None) -> Any:
            return self._solve(problem, gamma, self.tol, max_iter, start)

        if self.checkpoint is None:
            result = last(start, self.max_iter)
        else:
            result = self.checkpoint.last(last, start, self.max_iter, Record)
        if result.status is Status.INTERRUPTED:
            raise Interrupted(result, gamma)
        return result, gamma

    def path(
        self, task: Task, trial: Trial, steps: list[Step], keeps_prior: bool, fixed: float | None
    ) -> None:
        """Append the prior if it may be kept, then the penalties tried, or the one that is fixed.

        Nothing where the part that is learned from has no pairs.
        """
        part = task.part(trial.rows, trial.codes, trial.constraints)
        drawn = part.side(task.root)
        if len(drawn) == 0:
            return
        if keeps_prior:
            steps.append(Step(0.0, trial.grade(task.root), task.root))
        if part.draws_again:
            penalty = fixed or per_row(FIRST_ROUND, part, drawn)
            drawn = part.side(self._coarse(self._stated(part, drawn, penalty), penalty))
        one = per_row(1.0, part, drawn)
        problem, factor = self._stated(part, drawn, fixed or PATH[0] * one), None
        for share in PATH if fixed is None else (UNTRIED,):
            factor = self._coarse(problem, fixed or share * one, factor)
            steps.append(Step(share, trial.grade(factor), factor))
            highest = max(step.grade.score for step in steps)
            if all(step.grade.score < highest for step in steps[-_PATIENCE:]):
                break

    def look(self, task: Task, trial: Trial, fixed: float | None) -> Grade | None:
        """The grade after one coarse solve, with neighbours under the prior; None without pairs."""
        part = task.part(trial.rows, trial.codes, trial.constraints)
        part = replace(part, n_pairs=min(part.n_pairs or _FIRST_LOOK, _FIRST_LOOK))
        drawn = part.side(task.root)
        if len(drawn) == 0:
            return None
        penalty = fixed or per_row(FIRST_ROUND, part, drawn)
        return trial.grade(self._coarse(self._stated(part, drawn, penalty), penalty))

    def _coarse(self, problem: AnyProblem, penalty: float, start: Array | None = None) -> Array:
        def run() -> AnyResult:
            tol = max(self.tol, _COARSE)
            result = self._solve(problem, penalty, tol, self.coarse_limit, start)
            if result.status is Status.INTERRUPTED:
                raise Interrupted(result, penalty)
            return result

        return run().factor if self.checkpoint is None else self.checkpoint.stage(run)

    def _stated(self, task: Task, side: Constraints, penalty: float) -> AnyProblem:
        """The problem, at one of the penalties with which it will be solved."""
        if self.structure is not None:
            return self.structure.stated(task.features, side, self.divergence, self.prior, penalty)
        if isinstance(task.features, Vectors):
            features, names = few_rows(task.features, side)
            return Problem(features, side, self.divergence, self.prior, penalty, names)
        fixed = None if task.outside is None else task.outside.values(side)
        return Problem(task.features, side, self.divergence, self.prior, penalty, fixed=fixed)

    def _solve(
        self,
        problem: AnyProblem,
        penalty: float,
        tol: float,
        max_iter: int | None,
        start: Array | None,
    ) -> AnyResult:
        if self.checkpoint is not None and isinstance(problem, Problem):
            problem = problem.keeping(self.checkpoint.passes)
        gamma = penalty * problem.penalty_unit  # only LogDet's penalty has no unit
        return solved(problem.with_penalty(gamma), tol, max_iter, self.callback, start)


@dataclass(frozen=True, eq=False)
class Step:
    """One penalty of the path, per degree of freedom; its grade, and the factor that has it."""

    share: float
    grade: Grade
    factor: Array


def best_of(steps: list[Step]) -> Step:
    """Of those whose score is that of the highest up to noise, the one nearest to the prior."""
    return first_as_good(steps, lambda step: step.grade)


class Interrupted(Exception):
    """Somebody asked to stop; carries what was found so far."""

    def __init__(self, result: AnyResult, penalty: float) -> None:
        self.result, self.penalty = result, penalty


def per_row(share: float, task: Task, side: Constraints) -> float:
    """The penalty of every constraint that gives all of them `share` times the degrees of freedom.

    The slack costs the square of what a distance lacks, relative to the whole distance. Where only a part of
    it is learned, it is that part that shall count, so that the square of its share is made up for. A row of
    weight 2 counts as two.
    """
    total = float(side.weights.sum())
    return share * min(task.freedom, total) / total / _learned_share(task, side) ** 2


def are_equal(features: Array | Vectors) -> bool:
    """Whether all objects are; of those in pieces, whose pairs tell it too, it is not asked."""
    if isinstance(features, Vectors):
        return False
    lowest, highest = features.min(axis=0), features.max(axis=0)
    return bool((abs(highest - lowest)).max() == 0.0) if features.shape[1] else True


def _learned_share(task: Task, side: Constraints) -> float:
    """How much of the median distance that is bounded can be learned."""
    pairs = [np.asarray(b.ids)[:, -2:] for b in side.blocks if b.kind in ("distance", "comparison")]
    if task.outside is None or isinstance(task.features, Vectors) or not pairs:
        return 1.0
    learned = np.median(Space(task.features @ task.root).distances(np.concatenate(pairs)))
    whole = np.median(Space(task.features @ task.root, task.outside).distances(np.concatenate(pairs)))
    return max(float(learned / whole), _LEAST_SHARE) if whole > 0 else 1.0


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
