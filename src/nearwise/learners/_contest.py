"""The contest: of the places where a matrix may be learned, the one that does best on what is held out.

Places stand in an order, and of those within half a standard error of the best the first wins. With `looks`,
one coarse solve grades each, which is enough for places that are alike; else every place brings its best
penalty, and what measured before learning competes too. Where too little is known to hold something out, the
place that is the default is taken: the last of alike ones, else the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearwise.learners._path import Fit, Interrupted, Learned, Settings, Step, best_of
from nearwise.learners._place import Place
from nearwise.learners._side import Side
from nearwise.learners.grades import Grade, first_as_good

BEFORE = "euclidean"  # the name of what measured before, where it competes


@dataclass(frozen=True, eq=False)
class Verdict:
    """The place that won, what was learned there, and the scores by name; none where nobody competed."""

    place: Place
    learned: Learned
    scores: tuple[tuple[Any, float], ...] = ()


def contest(places: list[Place], side: Side, settings: Settings, looks: bool = False) -> Verdict:
    """Learn in the place that wins."""
    memory = settings.opened(places, side)

    def fit(place: Place, compared: bool = False) -> Fit:
        return Fit.of(place, side, settings, memory, compared)

    if len(places) == 1:
        return Verdict(places[0], fit(places[0]).learned())
    return _by_looks(places, fit) if looks else _by_paths(places, fit)


def _by_looks(places: list[Place], fit: Callable[..., Fit]) -> Verdict:
    grades: list[Grade] = []
    for place in places:
        path = fit(place, compared=True)
        try:
            grade = path.look()
        except Interrupted as stop:
            return Verdict(place, path.stopped(stop))
        if grade is None:
            return Verdict(places[-1], fit(places[-1]).learned())
        grades.append(grade)
    winner = places[first_as_good(grades)]
    scores = ((place.name, grade.score) for place, grade in zip(places, grades, strict=True))
    return Verdict(winner, fit(winner).learned(), tuple(scores))


def _by_paths(places: list[Place], fit: Callable[..., Fit]) -> Verdict:
    entries: list[tuple[Any, Place, Fit, Step]] = []
    first = fit(places[0], compared=True)
    for place in places:
        path = first if place is places[0] else fit(place, compared=True)
        try:
            path.choose()
        except Interrupted as stop:
            return Verdict(places[0], first.so_far(stop), _scores(entries))
        if not path.steps:
            break
        entries += _entries(place, path)
    if not entries:
        return Verdict(places[0], first.finish(None))
    _, place, path, step = entries[first_as_good([step.grade for *_, step in entries])]
    return Verdict(place, path.finish(step), _scores(entries))


def _entries(place: Place, path: Fit) -> list[tuple[Any, Place, Fit, Step]]:
    """A place with its best penalty; where its features are no learned ones, its prior for itself."""
    if place.made_from is not None:
        return [(place.name, place, path, best_of(path.steps))]
    prior = [step for step in path.steps if step.share == 0.0 and path.settings.penalty is None]
    learned = best_of([step for step in path.steps if step.share != 0.0])
    return [*((BEFORE, place, path, step) for step in prior), (place.name, place, path, learned)]


def _scores(entries: list[tuple[Any, Place, Fit, Step]]) -> tuple[tuple[Any, float], ...]:
    return tuple((name, step.grade.score) for name, *_, step in entries)
