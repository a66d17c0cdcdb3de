"""Some objects and their nearest neighbours, before and after: what a learned distance means, by example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearwise._common import checks
from nearwise._common.types import Array, Index
from nearwise.study.before_after import Distance, Missing, measures
from nearwise.study.figures import nearest_rows
from nearwise.study.inspection import TOO_LARGE

EXAMPLES, NEIGHBORS = 6, 5
_ASKED = 400  # objects whose neighbours are looked at, to find those that changed most
_RANDOM = 4  # examples that are drawn; the others are those that gained and lost most


@dataclass(frozen=True, eq=False)
class Example:
    """One object, why it is shown, and the rows nearest to it, nearest first; `before` None for unknown."""

    row: int
    why: str
    before: Index | None
    after: Index


@dataclass(frozen=True, eq=False)
class Examples:
    """Some objects with their neighbours.

    Attributes
    ----------
    examples : the objects
    n_asked : of how many objects these were chosen
    kept : the share of neighbours that are the same before and after, over those; NaN where before is unknown
    held_out : whether these were not learned from, and the neighbours were
    """

    examples: tuple[Example, ...]
    n_asked: int
    kept: float
    held_out: bool


def examples(
    model: Any,
    X: Any,
    codes: Index | None = None,
    asked: Index | None = None,
    among: Index | None = None,
    seed: int = 0,
) -> Examples:
    """Objects drawn at random, the one whose neighbours gained most, and the one whose lost most.

    Gain is the share of neighbours of the object's own class, after less before; where there are no classes,
    an object is shown whose neighbours changed most.

    Parameters
    ----------
    model, X : the learner or Pipeline, and the data
    codes : the class of every row as a number, -1 for none; or None
    asked : the rows of which examples are chosen, such as those that were held out; by default all
    among : the rows that are neighbours, such as those learned from; by default all others
    seed : of the draw
    """
    before, after = measures(model, X)
    every = np.arange(after.n_rows)
    held_out = asked is not None and among is not None
    rows, others = (every if part is None or not len(part) else part for part in (asked, among))
    if len(others) < 2:
        raise Missing("There are too few rows to have neighbours.")
    order = np.random.RandomState(checks.seed(seed)).permutation(rows)[:_ASKED]
    k = min(NEIGHBORS, len(others) - int(np.isin(order, others).any()))
    old, new = (_nearest(distance, order, others, k) for distance in (before, after))
    if new is None:
        raise Missing(TOO_LARGE)
    chosen = [(place, "drawn at random") for place in range(min(_RANDOM, len(order)))]
    kept = float("nan")
    if old is not None:
        shared = np.array([len(np.intersect1d(*pair)) for pair in zip(old, new, strict=True)]) / max(k, 1)
        kept = float(shared.mean())
        chosen += _changed(
            shared, _own_shares(codes, order, old), _own_shares(codes, order, new), len(chosen)
        )
    found = tuple(
        Example(int(order[place]), why, None if old is None else old[place], new[place])
        for place, why in chosen
    )
    return Examples(found, len(order), kept, held_out)


def _nearest(distance: Distance | None, rows: Index, others: Index, k: int) -> Index | None:
    """The k nearest of the others, nearest first; None where there is no such distance."""
    if distance is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        near = nearest_rows(distance, rows, others, k)
        squared = distance.pairs(np.repeat(rows, k), near.ravel()).reshape(near.shape)
    if not np.isfinite(squared).all():
        return None
    order = np.lexsort((near, squared), axis=1)
    return np.take_along_axis(near, order, axis=1)


def _own_shares(codes: Index | None, rows: Index, near: Index) -> Array | None:
    """The share of neighbours of a row's own class, NaN for a row without one."""
    if codes is None:
        return None
    same = codes[near] == codes[rows][:, np.newaxis]
    return np.where(codes[rows] >= 0, same.mean(axis=1), np.nan)


def _changed(shared: Array, old: Array | None, new: Array | None, drawn: int) -> list[tuple[int, str]]:
    """The places, after those drawn, of the objects that gained, lost or changed most."""
    if old is None or new is None:
        place = int(np.argmin(shared[drawn:])) + drawn if len(shared) > drawn else -1
        return [(place, "whose neighbours changed most")] if place >= 0 and shared[place] < 1.0 else []
    gain = np.nan_to_num(new - old)[drawn:]
    if not len(gain):
        return []
    best, worst = int(np.argmax(gain)), int(np.argmin(gain))
    found = [(best + drawn, "whose neighbours gained most")] if gain[best] > 0 else []
    return found + ([(worst + drawn, "whose neighbours lost most")] if gain[worst] < 0 else [])
