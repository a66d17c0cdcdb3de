"""Learns a matrix for feature rows from class numbers and constraints; chooses the penalty if asked to.

`learn` does all of it. A fit can also be taken in its steps, to be compared with others on what is held out
before one of them is finished: `prepared` states it, `Fit.choose` scores its penalties, `Fit.finish` learns.
`penalty="auto"` tries a path of rising penalties on a part of what is known, scores each on what is held out,
and learns from everything with the best. The path is cheap: each of its solves starts where the one before
ended and is coarse, and it ends where the score falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from nearwise._common.types import Array, Codes, Index
from nearwise.core import DiagonalProblem, Divergence, Problem
from nearwise.distributed import Vectors
from nearwise.learners._checkpoint import Checkpoint, open_checkpoint
from nearwise.learners._grading import Grade, Trial, first_as_good, hold_out
from nearwise.learners._in_pieces import few_rows, fingerprint, sample_of_constraints
from nearwise.learners._space import Outside
from nearwise.learners._structure import AnyProblem, AnyResult, Structure
from nearwise.learners._task import Task, are_equal, in_range
from nearwise.learners.metric import root_of
from nearwise.methods import Record, Status, solve, solve_diagonal
from nearwise.side import Constraints

PATH = (0.25, 1.0, 4.0, 16.0, 64.0)  # penalties tried, per degree of freedom
FIRST_ROUND = 4.0  # the one with which neighbours are chosen again
UNTRIED = 1.0  # the one where too little is known to hold something out
_COARSE = 1e-2  # relative gap up to which the path and first rounds are solved
COARSE_ITERATIONS = 15  # after which they stop in any case
_FIRST_LOOK = 2_000  # pairs from labels that a first look learns from at most
_PATIENCE = 2  # penalties in a row that are worse than one before them, after which the path ends


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
    kept_prior : whether the prior is returned: nothing to learn from, or no penalty helped
    n_constraints : how many constraints there were, drawn and given
    n_restored : iterations that a checkpoint spared
    """

    factor: Array
    result: AnyResult | None
    penalty: float | None
    scores: tuple[tuple[float, float], ...]
    kept_prior: bool
    n_constraints: int
    n_restored: int = 0


def learn(features: Array | Vectors, **how: Any) -> Learned:
    """Learn M from pairs drawn from labels, from constraints, or from both; `prepared` has the parameters."""
    fit = prepared(features, **how)
    try:
        fit.choose()
    except Interrupted as stop:
        return fit.stopped(stop)
    return fit.finish()


def most_promising(
    kinds: Sequence[dict[str, Any]], **how: Any
) -> tuple[int, tuple[float, ...], Learned | None]:
    """The number of the kind of fit that does best after a first round, and the scores of all.

    Of those that are no more than half a standard error apart, it is the first. Where nothing is held out, it
    is the last, and there are no scores; where somebody asks to stop, what was learned so far comes third.

    Parameters
    ----------
    kinds : the arguments of `prepared` in which they differ
    how : the others; a checkpoint must be one that is opened, for all kinds
    """
    grades = []
    for place, own in enumerate(kinds):
        fit = prepared(compared=True, **(how | own))
        try:
            grade = fit.look()
        except Interrupted as stop:
            return place, (), fit.stopped(stop)
        if grade is None:
            return len(kinds) - 1, (), None
        grades.append(grade)
    return first_as_good(grades), tuple(grade.score for grade in grades), None


def prepared(
    features: Array | Vectors,
    *,
    codes: Codes | None,
    constraints: Constraints | None,
    divergence: Divergence,
    prior: Array | None,
    penalty: float | str,
    pairs: str,
    n_pairs: int | None,
    tol: float,
    max_iter: int | None,
    random_state: Any,
    callback: Callable[[Record], Any] | None,
    checkpoint: Any = None,
    outside: Outside | None = None,
    weights: Array | None = None,
    structure: Structure | None = None,
    made_from: Callable[[Index], Array] | None = None,
    compared: bool = False,
    scoring: str = "auto",
) -> Fit:
    """A fit of M to pairs drawn from labels, to constraints, or to both, before any of it is solved.

    Parameters
    ----------
    features : (n, r), one row per object, in memory or in pieces
    codes : the class of every object as a number, or None
    constraints : by row number, or None; open bounds are filled as `_task` explains
    divergence, prior : as in `Problem`
    penalty : the cost of violating a constraint, in the unit in which the median constraint has size 1 under
        the prior: for LogDet, which has no unit, the penalty of `Problem`. "auto" tries 1/4, 1, 4, 16 and 64
        times the degrees of freedom per constraint, min(r (r + 1) / 2, m) / m for m constraints (over the
        square of the learned share of a distance), and keeps the prior where none of them scores better on
        what is held out.
    pairs : how pairs are drawn from labels; "auto" is "local"
    n_pairs : how many at most; by default 20,000 local or 40 c^2 random pairs for c classes
    tol, max_iter : of the last solve; the others stop at a gap of 0.01 if that is larger
    random_state : of all draws
    callback : called after every iteration of every solve; a true answer ends the fit with what is there
    checkpoint : a file in which to keep what is found, and from which to go on; None for none
    outside : what a distance has besides the part that features tell; constraints, their open bounds,
        neighbours and the choice of the penalty are about the whole distance. The penalty is finite then.
    weights : of the objects, by which pairs drawn from labels count; the constraints have theirs
    structure : the form of M, by default full. Where M is diagonal, features may be sparse, the prior is a
        vector, and so are factors.
    made_from : for features that are made with the help of labels: the features of all objects, made again
        from some of them, by row number
    scoring : one of `SCORINGS`, what is held out is graded by
    compared : score the penalty on what is held out also where it is given, to compare this fit with others

    A prior that is zero tells no distances: open bounds and neighbours are then those of the features.
    """
    rng = check_random_state(random_state)
    side = Constraints() if constraints is None else constraints
    if isinstance(features, Vectors) and codes is None:
        few, named = few_rows(features, side)
        if named is not None and len(named):
            features, side = few, Constraints(side.resolve(len(named), named))
    if not isinstance(features, Vectors):
        features, side, outside, scale = in_range(features, side, outside)
        if made_from is not None and scale != 1.0:
            made_from = _times(scale, made_from)  # in the unit of the features that are there
    one = np.ones(features.shape[1])
    identity = one if structure is not None and structure.is_diagonal else np.diag(one)
    root = identity if prior is None else np.sqrt(prior) if prior.ndim == 1 else root_of(prior)
    known = root if root.any() else identity
    seed = int(rng.randint(2**31 - 1))
    drawing = "local" if pairs == "auto" else pairs
    task = Task(features, codes, side, known, drawing, n_pairs, seed, outside, weights, structure)
    given = None if isinstance(penalty, str) else penalty
    coarse_limit = min(max_iter or COARSE_ITERATIONS, COARSE_ITERATIONS)
    fit = Fit(task, root, divergence, prior, given, tol, max_iter, coarse_limit, callback, task)
    if are_equal(features):
        return fit
    if isinstance(checkpoint, Checkpoint):
        fit = replace(fit, checkpoint=checkpoint)
    elif checkpoint is not None:
        every = np.arange(features.shape[0])
        lengths = None if outside is None else outside.products(every, every)
        data = fingerprint(features) if isinstance(features, Vectors) else features
        settings = (divergence, prior, penalty, pairs, n_pairs, tol, coarse_limit)
        others = (lengths, weights, structure, scoring)
        opened = open_checkpoint(checkpoint, random_state, data, codes, side.blocks, *settings, *others)
        fit = replace(fit, checkpoint=opened)
    if given is not None and not compared:
        return fit
    looked_at, tried = features, task
    if isinstance(features, Vectors) and codes is None:
        looked_at, side = sample_of_constraints(features, side, rng)
        tried = replace(task, features=looked_at, constraints=side, weights=None)
    trial = hold_out(looked_at, codes, side, rng, outside, weights, made_from, scoring)
    if trial is not None and made_from is not None:
        there = None if outside is None else replace(outside, features=trial.features)
        tried = replace(task, features=trial.features, outside=there)
    return replace(fit, tried=tried, trial=trial, remade=made_from is not None)


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


def _times(scale: float, made_from: Callable[[Index], Array]) -> Callable[[Index], Array]:
    return lambda rows: scale * made_from(rows)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit that is prepared: `choose` scores penalties on what is held out, `finish` learns from it all."""

    task: Task
    root: Array
    divergence: Divergence
    prior: Array | None
    penalty: float | None  # None to choose it
    tol: float
    max_iter: int | None
    coarse_limit: int  # of the iterations of solves that choose a penalty or neighbours
    callback: Callable[[Record], Any] | None
    tried: Task
    trial: Trial | None = None
    remade: bool = False  # whether features are others in the trial, of which a factor says nothing here
    checkpoint: Checkpoint | None = None
    steps: list[Step] = field(default_factory=list)

    @cached_property
    def drawn(self) -> Constraints:
        """What is learned from, with neighbours under the prior."""
        return Constraints() if are_equal(self.task.features) else self.task.side(self.task.root)

    def choose(self) -> None:
        """Score the prior, if it may be kept, and rising penalties, or the one that is given.

        There are no steps where nothing is held out, or the part that is learned from has no pairs.
        """
        if self.trial is None or not len(self.drawn):
            return
        part, fixed, steps = self.tried.part(self.trial), self.penalty, self.steps
        drawn = part.side(self.tried.root)
        if len(drawn) == 0:
            return
        if self.root.any():
            steps.append(Step(0.0, self.trial.grade(part.root), part.root))
        if part.draws_again:
            drawn = part.side(self._first_round(part, drawn))
        one = part.penalty(1.0, drawn)
        problem, factor = part.problem(drawn, self.divergence, self.prior, fixed or PATH[0] * one), None
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
        if self.trial is None:
            return None
        part = self.tried.part(self.trial)
        part = replace(part, n_pairs=min(part.n_pairs or _FIRST_LOOK, _FIRST_LOOK))
        drawn = part.side(part.root)
        return self.trial.grade(self._first_round(part, drawn)) if len(drawn) else None

    def finish(self, step: Step | None = None) -> Learned:
        """Learn with the penalty of a step, by default of the best, or with the one that is given."""
        task, drawn, start = self.task, self.drawn, None
        best = best_of(self.steps) if step is None and self.steps else step
        if len(drawn) == 0 or (best is not None and best.share == 0.0 and self.penalty is None):
            if self.checkpoint is not None:
                self.checkpoint.remove()
            return self.before()
        if task.draws_again:
            try:
                start = self._first_round(task, drawn)
            except Interrupted as stop:
                return self.stopped(stop)
            drawn = task.side(start)
        share = UNTRIED if best is None else best.share
        gamma = task.penalty(share, drawn) if self.penalty is None else self.penalty
        problem = task.problem(drawn, self.divergence, self.prior, gamma)
        last: Callable[..., Any] = partial(self._solve, problem, gamma, self.tol)
        if self.checkpoint is None:
            result = last(start, self.max_iter)
        else:
            result = self.checkpoint.last(last, start, self.max_iter, Record)
        if result.status is Status.INTERRUPTED:
            return self.stopped(Interrupted(result, gamma))
        return self._learned(result.factor, result, gamma)

    def stopped(self, stop: Interrupted) -> Learned:
        """The best that is there when somebody asked to stop."""
        factor = stop.result.factor
        if self.trial is not None and self.steps and not self.remade:
            best = best_of(self.steps)
            if self.trial.score(factor) < best.grade.score:
                factor = best.factor  # a solve that has only begun is no better than the one before
        return self._learned(factor, stop.result, stop.penalty)

    def before(self) -> Learned:
        """The prior."""
        return replace(self._learned(self.root, None, None), n_constraints=len(self.drawn))

    def _learned(self, factor: Array, result: AnyResult | None, penalty: float | None) -> Learned:
        restored = 0 if self.checkpoint is None else self.checkpoint.n_restored
        count = 0 if result is None else len(result.dual)
        one = self.task.penalty(1.0, self.drawn) if self.steps else 0.0
        scores = tuple((step.share * one, step.grade.score) for step in self.steps)
        return Learned(factor, result, penalty, scores, result is None, count, restored)

    def _first_round(self, task: Task, drawn: Constraints) -> Array:
        """A factor with which neighbours are chosen again."""
        gamma = task.penalty(FIRST_ROUND, drawn) if self.penalty is None else self.penalty
        return self._coarse(task.problem(drawn, self.divergence, self.prior, gamma), gamma)

    def _coarse(self, problem: AnyProblem, penalty: float, start: Array | None = None) -> Array:
        def run() -> AnyResult:
            result = self._solve(problem, penalty, max(self.tol, _COARSE), start, self.coarse_limit)
            if result.status is Status.INTERRUPTED:
                raise Interrupted(result, penalty)
            return result

        return run().factor if self.checkpoint is None else self.checkpoint.stage(run)

    def _solve(
        self, problem: AnyProblem, penalty: float, tol: float, start: Array | None, max_iter: int | None
    ) -> AnyResult:
        if self.checkpoint is not None and isinstance(problem, Problem):
            problem = problem.keeping(self.checkpoint.passes)
        priced = problem.with_penalty(penalty * problem.penalty_unit)  # only LogDet's penalty has no unit
        if isinstance(priced, DiagonalProblem):
            return solve_diagonal(priced, tol, max_iter, self.callback, start)
        return solve(priced, None, tol, max_iter, None, self.callback, start)
