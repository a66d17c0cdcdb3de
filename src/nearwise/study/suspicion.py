"""Labels and answers that may be wrong: those that the learned distance contradicts most, by id.

A label is suspected where nearly all nearest rows are of one other class. A similar pair is where it is
farther apart than most dissimilar ones, and the other way round; a triplet where it does not hold; a measured
distance where the learned one is far from it. None of this proves anything: it says where to look first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.side import Block, Constraints
from nearwise.study.before_after import Distance, Measured, measures
from nearwise.study.by_kind import relative_margins
from nearwise.study.figures import LARGEST_SAMPLE, nearest_rows
from nearwise.study.known import Known
from nearwise.study.outcome import Outcome

_NEIGHBORS, _FEWEST = 10, 5  # nearest rows that are asked about a label, and with how many it is worth it
_OTHERS, _OWN = 0.8, 0.1  # shares of them of one other class, and of the row's own, from which on it is one
_PAIRS = 0.5  # the share of pairs of the other kind beyond which a pair lies
_DISTANCE = 1 / 3  # how far a distance may be off, relative to the larger one of given and learned
_RANDOM = 2_000  # random pairs that stand in for a kind of which there is none
_MOST = 1_000  # of a kind


@dataclass(frozen=True)
class Suspect:
    """One label or answer.

    Attributes
    ----------
    kind : "label", "pair", "triplet" or "distance"
    rows : the rows that it names
    given : what it says
    suggested : what the learned distance would say
    score : how clearly, from 0 to 1; scores of different kinds are no measure of each other
    why : a sentence
    where : the line of the side file, or empty
    held_out : whether it was not learned from
    """

    kind: str
    rows: tuple[int, ...]
    given: str
    suggested: str
    score: float
    why: str
    where: str
    held_out: bool


def suspects(outcome: Outcome) -> tuple[Suspect, ...]:
    """The labels and answers to look at first; kind by kind, the clearest first."""
    known = outcome.known
    _, after = measures(outcome.fit.model, known.table.X)
    held = _held(outcome.split.held)
    found: dict[str, list[Suspect]] = {}
    if known.codes is not None:
        found["label"] = list(_labels(after, known.codes, known.classes, outcome.split.held_rows))
    rng = np.random.RandomState(outcome.settings.seed)
    similar = _distances_of(after, known.constraints, -1, rng)
    dissimilar = _distances_of(after, known.constraints, 1, rng)
    for side in known.sides:
        first = 0
        for block in side.constraints.blocks:
            for place, told in _of_block(after, known, block, similar, dissimilar):
                where = f"{side.source}, {side.place(first + place)}"
                suspect = Suspect(*told, where, _key(block, place) in held)
                found.setdefault(suspect.kind, []).append(suspect)
            first += len(block)
    ordered = (sorted(some, key=lambda s: (-s.score, s.rows))[:_MOST] for some in found.values())
    return tuple(suspect for some in ordered for suspect in some)


def left_out(known: Known) -> str | None:
    """That some labels are not looked at, as a sentence; None where all are."""
    n = 0 if known.codes is None else int((known.codes >= 0).sum())
    if n <= LARGEST_SAMPLE:
        return None
    return f"to check: {LARGEST_SAMPLE:,} of {n:,} labels were looked at, held-out rows first"


def as_columns(found: Iterable[Suspect], known: Known) -> dict[str, NDArray[np.object_]]:
    """Suspects as columns of a table, in the user's names; `tables.write_columns` takes care of formulas."""
    objects = ("object_1", "object_2", "object_3", "object_4")
    names = ("kind", *objects, "given", "suggested", "score", "reason", "source", "held_out")
    lines = []
    for suspect in found:
        called = [known.name(row) for row in suspect.rows] + [""] * (4 - len(suspect.rows))
        score, aside = round(suspect.score, 3), "yes" if suspect.held_out else "no"
        told = [suspect.given, suspect.suggested, score, suspect.why, suspect.where, aside]
        lines.append([suspect.kind, *called, *told])
    return {name: np.array([line[k] for line in lines], dtype=object) for k, name in enumerate(names)}


def _labels(after: Measured, codes: Index, classes: tuple[str, ...], held: Index) -> Iterable[Suspect]:
    labelled = np.flatnonzero(codes >= 0)
    k = min(_NEIGHBORS, len(labelled) - 1)
    if k < _FEWEST:
        return
    asked = labelled
    if len(asked) > LARGEST_SAMPLE:  # of more, those that were held out, then others
        rest = np.random.RandomState(0).permutation(np.setdiff1d(labelled, held))
        asked = np.sort(np.concatenate([held, rest])[:LARGEST_SAMPLE])
    every, votes = np.arange(len(asked)), np.zeros((len(asked), len(classes)))
    np.add.at(votes, (every[:, np.newaxis], codes[nearest_rows(after, asked, labelled, k)]), 1 / k)
    mine = votes[every, codes[asked]]
    votes[every, codes[asked]] = -1.0
    best = votes.argmax(axis=1)
    share = votes[every, best]
    aside = np.isin(asked, held)
    for place in np.flatnonzero((share >= _OTHERS - 1e-9) & (mine <= _OWN + 1e-9)):
        other = classes[best[place]]
        why = f"{round(share[place] * k)} of its {k} nearest rows are {other}"
        label = classes[codes[asked[place]]]
        row = (int(asked[place]),)
        yield Suspect("label", row, label, other, float(share[place]), why, "", bool(aside[place]))


_Told = tuple[str, tuple[int, ...], str, str, float, str]


def _of_block(
    after: Distance, known: Known, block: Block, similar: Array, dissimilar: Array
) -> Iterable[tuple[int, _Told]]:
    """Suspects of one block with their places in it, without where they come from."""
    if block.of_kind.n_distances == 2:
        yield from _triplets(after, known, block)
    elif block.tells_pairs and np.isnan(block.bounds).all():
        yield from _pairs(after, block, dissimilar if block.relation < 0 else similar)
    elif block.of_kind.n_distances == 1 and block.relation == 0:
        yield from _distances(after, block)


def _pairs(after: Distance, block: Block, others: Array) -> Iterable[tuple[int, _Told]]:
    ids = block.object_ids
    values = after.pairs(*ids.T)
    places = np.searchsorted(others, values) / max(len(others), 1)
    is_similar = block.relation < 0
    scores = places if is_similar else 1.0 - places
    kinds = ("similar", "dissimilar") if is_similar else ("dissimilar", "similar")
    how = "farther apart" if is_similar else "nearer"
    for place in np.flatnonzero(scores >= _PAIRS):
        why = f"{how} than {scores[place]:.0%} of the {kinds[1]} pairs"
        yield int(place), ("pair", _rows(ids[place]), *kinds, float(scores[place]), why)


def _triplets(after: Distance, known: Known, block: Block) -> Iterable[tuple[int, _Told]]:
    ids = block.object_ids
    margin = relative_margins(after, ids)
    for place in np.flatnonzero(margin < 0):
        a, b, c, d = ids[place]
        shared = a == c
        near, far = (known.name(int(row)) for row in (b, d))
        pairs = [f"{known.name(int(i))} and {known.name(int(j))}" for i, j in ((a, b), (c, d))]
        given = f"nearer to {near}" if shared else f"{pairs[0]} nearer"
        other = f"nearer to {far}" if shared else f"{pairs[1]} nearer"
        ratio = (1 - margin[place]) / max(1 + margin[place], 1e-12)
        why = f"the distance that should be smaller is {ratio:.3g} times the other"
        rows = _rows((a, b, d) if shared else ids[place])
        yield int(place), ("triplet", rows, given, other, float(-margin[place]), why)


def _distances(after: Distance, block: Block) -> Iterable[tuple[int, _Told]]:
    given = np.sqrt(block.bounds)
    learned = np.sqrt(np.maximum(after.pairs(*block.object_ids.T), 0.0))
    largest = np.maximum(given, learned)
    off = np.abs(given - learned) / np.where(largest > 0, largest, 1.0)
    for place in np.flatnonzero(off > _DISTANCE):
        texts = f"{given[place]:.3g}", f"{learned[place]:.3g}"
        why = f"the learned distance is {texts[1]}, not {texts[0]}"
        yield int(place), ("distance", _rows(block.object_ids[place]), *texts, float(off[place]), why)


def _distances_of(
    after: Measured, constraints: Constraints, relation: int, rng: np.random.RandomState
) -> Array:
    """Squared distances of all pairs of a kind, sorted; of random pairs where there are none."""
    blocks = [block for block in constraints.blocks if block.tells_pairs and block.relation == relation]
    i, j = rng.randint(after.n_rows, size=(2, _RANDOM))
    pairs = np.stack([i, j], axis=1)[i != j]
    if blocks:
        pairs = np.concatenate([block.object_ids for block in blocks])
    return np.sort(after.pairs(*pairs.T))


def _rows(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(row) for row in ids)


def _key(block: Block, place: int) -> tuple[str, int, tuple[int, ...]]:
    return block.kind, block.relation, _rows(block.object_ids[place])


def _held(constraints: Constraints) -> set[tuple[str, int, tuple[int, ...]]]:
    blocks = [block for block in constraints.blocks if not block.of_kind.shares_objects]
    return {_key(block, place) for block in blocks for place in range(len(block))}
