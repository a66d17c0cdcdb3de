"""Fits of several kinds compete on the same held-out objects, and the first of the best is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearwise._common.types import Array, Index
from nearwise.learners._fits import Fit, Interrupted, Learned, Step, best_of, prepared
from nearwise.learners._grading import Grade, first_as_good

BEFORE = "euclidean"  # the name of the prior of a linear candidate


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kind of fit.

    Attributes
    ----------
    name : how it is called
    features : of all objects
    made_from : where features are made with the help of labels, as in `prepared`
    """

    name: str
    features: Array
    made_from: Callable[[Index], Array] | None = None


@dataclass(frozen=True, eq=False)
class Won:
    """The name of the candidate that won, what it learned, and the scores of all, none without a contest."""

    name: str
    learned: Learned
    scores: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, eq=False)
class _Entry:
    name: str
    fit: Fit
    step: Step

    @property
    def grade(self) -> Grade:
        return self.step.grade


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


def compete(candidates: Iterable[Candidate], **how: Any) -> Won:
    """Finish the fit of the candidate that does best on what is held out.

    Candidates come in an order, the prior before a linear one, unless a penalty is given. Of those whose
    score is within half a standard error of the highest, the first wins. Where too little is
    known to hold something out, it is the first; and where somebody asks to stop, the best of the first.

    `how` are the arguments of `prepared`.
    """
    entries: list[_Entry] = []
    first: tuple[str, Fit] | None = None
    for candidate in candidates:
        fit = prepared(candidate.features, made_from=candidate.made_from, compared=True, **how)
        first = first or (candidate.name, fit)
        try:
            fit.choose()
        except Interrupted as stop:
            return Won(first[0], _stopped(first[1], stop), _scores(entries))
        if not fit.steps:
            break
        entries += _entries(candidate, fit)
    assert first is not None
    if not entries:
        return Won(first[0], _finished(first[1]))
    won = entries[first_as_good([entry.grade for entry in entries])]
    return Won(won.name, _finished(won.fit, won.step), _scores(entries))


def _entries(candidate: Candidate, fit: Fit) -> list[_Entry]:
    """The candidate with its best penalty; where its features are no learned ones, its prior for itself."""
    prior = [step for step in fit.steps if step.share == 0.0]
    if candidate.made_from is not None:
        return [_Entry(candidate.name, fit, best_of(fit.steps))]
    learned = best_of([step for step in fit.steps if step.share != 0.0])
    chosen = fit.penalty is None
    return [_Entry(BEFORE, fit, step) for step in prior if chosen] + [_Entry(candidate.name, fit, learned)]


def _finished(fit: Fit, step: Step | None = None) -> Learned:
    try:
        return fit.finish(step)
    except Interrupted as stop:
        return fit.stopped(stop)


def _stopped(first: Fit, stop: Interrupted) -> Learned:
    """What the first candidate has, whichever was asked to stop."""
    if not first.steps:
        return first.stopped(stop)
    found = replace(first.before(), factor=best_of(first.steps).factor)
    # without scores: it is not known which penalty is the best, as long as others compete
    return replace(found, result=stop.result, penalty=stop.penalty, scores=(), kept_prior=False)


def _scores(entries: list[_Entry]) -> tuple[tuple[str, float], ...]:
    return tuple((entry.name, entry.grade.score) for entry in entries)
