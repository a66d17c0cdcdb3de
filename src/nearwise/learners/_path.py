"""One place's fit: the path of rising penalties, scored on what is held out, and what is learned from it all.

`penalty="auto"` tries a path of penalties on a part of what is known, scores each on what is held out, and
learns from everything with the best. The path is cheap: each of its solves starts where the one before ended
and is coarse, and it ends where the score falls. A fit can be taken in its steps, to be compared with those
of other places before one of them is finished (`_contest`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from sklearn.utils import check_random_state

from nearwise._common.types import Array
from nearwise.core import DiagonalProblem, Divergence, LogDet, Problem
from nearwise.distributed import Vectors
from nearwise.learners._checkpoint import Checkpoint, open_checkpoint
from nearwise.learners._in_pieces import few_rows, sample_of_constraints
from nearwise.learners._place import Place
from nearwise.learners._side import Side
from nearwise.learners._structure import AnyProblem, AnyResult
from nearwise.learners._task import Task
from nearwise.learners._trial import Trial, hold_out
from nearwise.learners.grades import Grade, first_as_good
from nearwise.methods import Record, Status, solve, solve_diagonal
from nearwise.side import Constraints

PATH = (0.25, 1.0, 4.0, 16.0, 64.0)  # penalties tried, per degree of freedom
FIRST_ROUND = 4.0  # the one with which neighbours are chosen again
UNTRIED = 1.0  # the one where too little is known to hold something out
_COARSE = 1e-2  # relative gap up to which the path and first rounds are solved
_COARSE_ITERATIONS = 15  # after which they stop in any case
_FIRST_LOOK = 2_000  # pairs from labels that a first look learns from at most
_PATIENCE = 2  # penalties in a row that are worse than one before them, after which the path ends


@dataclass(frozen=True, eq=False)
class Settings:
    """How a fit learns, wherever and from whatever.

    Attributes
    ----------
    divergence : as in `Problem`
    penalty : the cost of violating a constraint, in the unit in which the median constraint has size 1 under
        the prior: for LogDet, which has no unit, the penalty of `Problem`. None tries 1/4, 1, 4, 16 and 64
        times the degrees of freedom per constraint (`Task.penalty`), and keeps the prior where none of them
        scores better on what is held out.
    pairs : how pairs are drawn from labels: "random", "local", or "auto", which the place decides
    n_pairs : how many at most; by default 20,000 local or 40 c^2 random pairs for c classes
    tol, max_iter : of the last solve; the others stop at a gap of 0.01 if that is larger
    scoring : one of `SCORINGS`, by which what is held out is graded
    random_state : of all draws
    callback : called after every iteration of every solve; a true answer ends the fit with what is there
    checkpoint : a file in which to keep what is found, and from which to go on; None for none
    """

    divergence: Divergence = field(default_factory=LogDet)
    penalty: float | None = None
    pairs: str = "auto"
    n_pairs: int | None = None
    tol: float = 1e-6
    max_iter: int | None = None
    scoring: str = "auto"
    random_state: Any = None
    callback: Callable[[Record], Any] | None = None
    checkpoint: Any = None

    @property
    def coarse_limit(self) -> int:
        """Of the iterations of solves that choose a penalty or neighbours."""
        return min(self.max_iter or _COARSE_ITERATIONS, _COARSE_ITERATIONS)

    def opened(self, places: list[Place], side: Side) -> Checkpoint | None:
        """The checkpoint of a fit in these places, and all that it is known by.

        Other limits of the last solve, callbacks and files are of no matter: a fit goes on under them.
        """
        if self.checkpoint is None:
            return None
        how = (
            self.divergence,
            self.penalty,
            self.pairs,
            self.n_pairs,
            self.tol,
            self.scoring,
            self.coarse_limit,
        )
        what = side.codes, side.weights, side.constraints.blocks
        where = [place.known_by() for place in places]
        return open_checkpoint(self.checkpoint, self.random_state, where, what, how)


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned.

    Attributes
    ----------
    factor : B with M = B B^T, in the coordinates of the features; after an interruption, the best that was
        tried
    result : of the last solve; None where the prior is returned
    penalty : the penalty of that solve; None where the prior is returned
    scores : pairs (penalty, score on what was held out) along the path, the prior's first with penalty 0
    n_constraints : how many constraints there were, drawn and given
    kept_prior : whether the prior is returned: nothing to learn from, or no penalty helped
    n_restored : iterations that a checkpoint spared
    """

    factor: Array
    result: AnyResult | None
    penalty: float | None
    scores: tuple[tuple[float, float], ...]
    n_constraints: int
    kept_prior: bool
    n_restored: int = 0


@dataclass(frozen=True, eq=False)
class Step:
    """One penalty of the path, per degree of freedom; its grade, and the factor that has it."""

    share: float
    grade: Grade
    factor: Array


def best_of(steps: list[Step]) -> Step:
    """Of those whose score is that of the highest up to noise, the one nearest to the prior."""
    return steps[first_as_good([step.grade for step in steps])]


class Interrupted(Exception):
    """Somebody asked to stop; carries what was found so far."""

    def __init__(self, result: AnyResult, penalty: float) -> None:
        self.result, self.penalty = result, penalty


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit that is prepared: `choose` scores penalties on what is held out, `finish` learns from it all."""

    task: Task
    settings: Settings
    memory: Checkpoint | None
    trial: Trial | None = None
    tried: Task | None = None  # the task with what the trial has for features
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def of(
        cls, place: Place, side: Side, settings: Settings, memory: Checkpoint | None, compared: bool = False
    ) -> Fit:
        """Before any of it is solved.

        `compared` says to score also a penalty that is given, to compare this fit with others. A prior that
        is zero determines no distances: open bounds and neighbours are then those of the features.
        """
        rng = check_random_state(settings.random_state)
        if isinstance(place.features, Vectors) and side.codes is None:
            few, named = few_rows(place.features, side.constraints)
            if named is not None and len(named):
                place = replace(place, features=few)
                numbered = Constraints(side.constraints.resolve(len(named), named))
                side = replace(side, n_objects=len(named), constraints=numbered)
        place, side = place.in_range(side)
        root = place.root if place.root.any() else place.identity
        seed = int(rng.randint(2**31 - 1))
        pairs = place.pairs if settings.pairs == "auto" else settings.pairs
        task = Task(place, side, root, pairs, settings.n_pairs, seed)
        if place.is_flat or (settings.penalty is not None and not compared):
            return cls(task, settings, memory)
        tried = task
        if isinstance(place.features, Vectors) and side.codes is None:
            features, some = sample_of_constraints(place.features, side.constraints, rng)
            sample = replace(side, n_objects=len(features), constraints=some, weights=None)
            tried = replace(task, place=replace(place, features=features), side=sample)
        trial = hold_out(tried.place, tried.side, rng, settings.scoring)
        return cls(task, settings, memory, trial, tried)

    @cached_property
    def drawn(self) -> Constraints:
        """What is learned from, with neighbours under the prior."""
        return Constraints() if self.task.place.is_flat else self.task.drawn(self.task.root)

    def learned(self) -> Learned:
        """With the best penalty, or the one that is given."""
        try:
            self.choose()
        except Interrupted as stop:
            return self.stopped(stop)
        return self.finish(best_of(self.steps) if self.steps else None)

    def choose(self) -> None:
        """Score the prior, if it may be kept, and rising penalties, or the one that is given.

        There are no steps where nothing is held out, or the part that is learned from has no pairs.
        """
        if self.trial is None or self.tried is None or not len(self.drawn):
            return
        part, fixed, steps = self.tried.part(self.trial), self.settings.penalty, self.steps
        drawn = part.drawn(part.root)
        if len(drawn) == 0:
            return
        if self.task.place.root.any():
            steps.append(Step(0.0, self.trial.grade(part.root), part.root))
        if part.draws_again:
            drawn = part.drawn(self._first_round(part, drawn))
        one = part.penalty(1.0, drawn)
        problem, factor = part.place.problem(drawn, self.settings.divergence, fixed or PATH[0] * one), None
        for share in PATH if fixed is None else (UNTRIED,):
            factor = self._coarse(problem, fixed or share * one, factor)
            steps.append(Step(share, self.trial.grade(factor), factor))
            highest = max(step.grade.score for step in steps)
            if all(step.grade.score < highest for step in steps[-_PATIENCE:]):
                break

    def look(self) -> Grade | None:
        """The grade on what is held out after a coarse solve, with neighbours under the prior.

        None where nothing is held out, or there are no pairs.
        """
        if self.trial is None or self.tried is None:
            return None
        part = self.tried.part(self.trial)
        part = replace(part, n_pairs=min(part.n_pairs or _FIRST_LOOK, _FIRST_LOOK))
        drawn = part.drawn(part.root)
        return self.trial.grade(self._first_round(part, drawn)) if len(drawn) else None

    def finish(self, best: Step | None) -> Learned:
        """Learn with the penalty of a step, or with the one that is given."""
        task, drawn, given, start = self.task, self.drawn, self.settings.penalty, None
        if len(drawn) == 0 or (best is not None and best.share == 0.0 and given is None):
            if self.memory is not None:
                self.memory.remove()
            return self._learned(task.place.root, None, None)
        if task.draws_again:
            try:
                start = self._first_round(task, drawn)
            except Interrupted as stop:
                return self.stopped(stop)
            drawn = task.drawn(start)
        share, limit = UNTRIED if best is None else best.share, self.settings.max_iter
        penalty = task.penalty(share, drawn) if given is None else given
        problem = task.place.problem(drawn, self.settings.divergence, penalty)
        last: Callable[..., Any] = partial(self._solve, problem, penalty, self.settings.tol)
        memory = self.memory
        result = last(start, limit) if memory is None else memory.last(last, start, limit, Record)
        if result.status is Status.INTERRUPTED:
            return self.stopped(Interrupted(result, penalty))
        return self._learned(result.factor, result, penalty)

    def stopped(self, stop: Interrupted) -> Learned:
        """The best that is there when somebody asked to stop."""
        factor = stop.result.factor
        # where features are made again in the trial, its factors say nothing here
        if self.trial is not None and self.steps and self.task.place.made_from is None:
            best = best_of(self.steps)
            if self.trial.score(factor) < best.grade.score:
                factor = best.factor  # a solve that has only begun is no better than the one before
        return self._learned(factor, stop.result, stop.penalty)

    def so_far(self, stop: Interrupted) -> Learned:
        """The same while others compete, and it is not known which penalty is the best."""
        if not self.steps:
            return self.stopped(stop)
        found = self._learned(best_of(self.steps).factor, stop.result, stop.penalty)
        return replace(found, scores=(), n_constraints=len(self.drawn))

    def _learned(self, factor: Array, result: AnyResult | None, penalty: float | None) -> Learned:
        restored = 0 if self.memory is None else self.memory.n_restored
        count = len(self.drawn) if result is None else len(result.dual)
        one = self.task.penalty(1.0, self.drawn) if self.steps else 0.0
        scores = tuple((step.share * one, step.grade.score) for step in self.steps)
        kept = result is None and self.task.place.unlabelled is None  # else features are learned themselves
        return Learned(factor, result, penalty, scores, count, kept, restored)

    def _first_round(self, task: Task, drawn: Constraints) -> Array:
        """A factor with which neighbours are chosen again."""
        given = self.settings.penalty
        penalty = task.penalty(FIRST_ROUND, drawn) if given is None else given
        return self._coarse(task.place.problem(drawn, self.settings.divergence, penalty), penalty)

    def _coarse(self, problem: AnyProblem, penalty: float, start: Array | None = None) -> Array:
        def run() -> AnyResult:
            tol, limit = max(self.settings.tol, _COARSE), self.settings.coarse_limit
            result = self._solve(problem, penalty, tol, start, limit)
            if result.status is Status.INTERRUPTED:
                raise Interrupted(result, penalty)
            return result

        return run().factor if self.memory is None else self.memory.stage(run)

    def _solve(
        self, problem: AnyProblem, penalty: float, tol: float, start: Array | None, max_iter: int | None
    ) -> AnyResult:
        if self.memory is not None and isinstance(problem, Problem):
            problem = problem.keeping(self.memory.passes)
        priced = problem.with_penalty(penalty * problem.penalty_unit)  # only LogDet's penalty has no unit
        if isinstance(priced, DiagonalProblem):
            return solve_diagonal(priced, tol, max_iter, self.settings.callback, start)
        return solve(priced, None, tol, max_iter, None, self.settings.callback, start)
