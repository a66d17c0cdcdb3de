"""Learns a matrix for feature rows from class numbers and constraints; chooses the penalty if asked to.

`learn` does all of it. A fit can also be taken in its steps, to be compared with others on what is held out
before one of them is finished: `prepared` states it, `Fit.choose` scores its penalties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from nearwise._common.types import Array, Codes, Index
from nearwise.distributed import Vectors
from nearwise.learners._checkpoint import Checkpoint, open_checkpoint
from nearwise.learners._grading import Grade
from nearwise.learners._in_pieces import fingerprint, sample_of_constraints, what_is_named
from nearwise.learners._learning import (
    COARSE_ITERATIONS,
    UNTRIED,
    Interrupted,
    Run,
    Step,
    Task,
    are_equal,
    best_of,
    in_range,
    per_row,
)
from nearwise.learners._selection import Trial, hold_out
from nearwise.learners._space import Outside
from nearwise.learners._structure import AnyResult, Structure
from nearwise.learners.metric import root_of
from nearwise.model.blocks import Constraints
from nearwise.model.divergences import Divergence
from nearwise.solving.result import Record


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
        return fit.finish()
    except Interrupted as stop:
        return fit.stopped(stop)


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
    constraints : by row number, or None; open bounds are filled as `_pairs` explains
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
    if isinstance(features, Vectors):
        features, side = what_is_named(features, side, codes)
    if not isinstance(features, Vectors):
        features, side, outside, scale = in_range(features, side, outside)
        made_from = _times(made_from, scale)
    one = np.ones(features.shape[1])
    identity = one if structure is not None and structure.is_diagonal else np.diag(one)
    root = identity if prior is None else np.sqrt(prior) if prior.ndim == 1 else root_of(prior)
    known = root if root.any() else identity
    seed = int(rng.randint(2**31 - 1))
    drawing = "local" if pairs == "auto" else pairs
    task = Task(features, codes, side, known, drawing, n_pairs, seed, outside, weights, structure)
    coarse_limit = COARSE_ITERATIONS if max_iter is None else min(max_iter, COARSE_ITERATIONS)
    run = Run(divergence, prior, tol, max_iter, coarse_limit, callback, None, structure)
    if are_equal(features):
        return Fit(task, root, run, penalty, task, None)
    if isinstance(checkpoint, Checkpoint):
        run = replace(run, checkpoint=checkpoint)
    elif checkpoint is not None:
        every = np.arange(features.shape[0])
        lengths = None if outside is None else outside.products(every, every)
        settings = (
            divergence,
            prior,
            penalty,
            pairs,
            n_pairs,
            tol,
            coarse_limit,
            lengths,
            weights,
            structure,
            scoring,
        )
        data = fingerprint(features) if isinstance(features, Vectors) else features
        run = replace(
            run, checkpoint=open_checkpoint(checkpoint, random_state, data, codes, side.blocks, *settings)
        )
    looked_at, tried = features, task
    tries = penalty == "auto" or compared
    if tries and isinstance(features, Vectors) and codes is None:
        looked_at, sample = sample_of_constraints(features, side, rng)
        side, tried = sample, replace(task, features=looked_at, constraints=sample, weights=None)
    trial = hold_out(looked_at, codes, side, rng, outside, weights, made_from, scoring) if tries else None
    if trial is not None and made_from is not None:
        there = None if outside is None else replace(outside, features=trial.features)
        tried = replace(task, features=trial.features, outside=there)
    return Fit(task, root, run, penalty, tried, trial, made_from is not None)


def _times(made_from: Callable[[Index], Array] | None, scale: float) -> Callable[[Index], Array] | None:
    """Features made again, in the unit of those that are there."""
    if made_from is None or scale == 1.0:
        return made_from
    return lambda rows: scale * made_from(rows)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit that is prepared: `choose` scores penalties on what is held out, `finish` learns from it all."""

    task: Task
    root: Array
    run: Run
    penalty: float | str
    tried: Task
    trial: Trial | None
    remade: bool = False  # whether features are others in the trial, of which a factor says nothing here
    steps: list[Step] = field(default_factory=list)

    @cached_property
    def drawn(self) -> Constraints:
        """What is learned from, with neighbours under the prior."""
        return Constraints() if are_equal(self.task.features) else self.task.side(self.task.root)

    @property
    def best(self) -> Step | None:
        """Of the steps whose score is the highest up to noise, the one nearest to the prior."""
        return best_of(self.steps) if self.steps else None

    def choose(self) -> None:
        """Score the prior and rising penalties."""
        if self.trial is not None and len(self.drawn):
            fixed = None if isinstance(self.penalty, str) else self.penalty
            self.run.path(self.tried, self.trial, self.steps, bool(self.root.any()), fixed)

    def look(self) -> Grade | None:
        """The grade on what is held out after the first round alone; None where nothing is held out."""
        if self.trial is None:
            return None
        return self.run.look(self.tried, self.trial, None if isinstance(self.penalty, str) else self.penalty)

    def finish(self, step: Step | None = None) -> Learned:
        """Learn with the penalty of a step, by default of the best."""
        memory, best = self.run.checkpoint, self.best if step is None else step
        fixed = None if isinstance(self.penalty, str) else self.penalty
        if len(self.drawn) == 0 or (best is not None and best.share == 0.0 and fixed is None):
            if memory is not None:
                memory.remove()
            return self.before()
        share = UNTRIED if best is None else best.share
        result, gamma = self.run.fit(self.task, self.drawn, share, fixed)
        return Learned(result.factor, result, gamma, self.scores, False, len(result.dual), self._n_restored)

    def stopped(self, stop: Interrupted) -> Learned:
        """The best that is there when somebody asked to stop."""
        found, factor, best, trial = stop.result, stop.result.factor, self.best, self.trial
        if (
            trial is not None
            and best is not None
            and not self.remade
            and trial.score(factor) < best.grade.score
        ):
            factor = best.factor  # a solve that has only begun is no better than the one before
        return Learned(factor, found, stop.penalty, self.scores, False, len(found.dual), self._n_restored)

    @property
    def scores(self) -> tuple[tuple[float, float], ...]:
        """Pairs of a penalty and its score."""
        one = per_row(1.0, self.task, self.drawn) if self.steps else 0.0
        return tuple((step.share * one, step.grade.score) for step in self.steps)

    def before(self) -> Learned:
        """The prior."""
        return Learned(self.root, None, None, self.scores, True, len(self.drawn), self._n_restored)

    @property
    def _n_restored(self) -> int:
        return 0 if self.run.checkpoint is None else self.run.checkpoint.n_restored
