"""What `learn` keeps aside to measure on: labelled rows, or pairs, triplets and distances.

With labels, a part of every class is held out, and with these rows everything that the side files say about
them. Without labels, a part of every kind of constraint is: all that name the same objects stay together, so
that a pair that is measured is in no other line of what is learned from, neither way round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Index, Mask
from nearwise.data.side_files import equal_rows, questions_of
from nearwise.side import Block, Constraints
from nearwise.study.figures import LARGEST_SAMPLE

SHARE = 0.2  # held out by default, and at most as many as are measured
FEWEST = 10  # rows or constraints on which a figure says something


@dataclass(frozen=True, eq=False)
class Split:
    """What is learned from and what is measured.

    Attributes
    ----------
    learned_rows, held_rows : rows with a label
    learned, held : constraints by row number
    note : one sentence where something could not be held out, else empty
    """

    learned_rows: Index
    held_rows: Index
    learned: Constraints
    held: Constraints
    note: str = ""


def hold_out(codes: Index | None, constraints: Constraints, share: float | None, seed: int) -> Split:
    """Split rows and constraints.

    Parameters
    ----------
    codes : the class of every row, -1 for rows without a label; or None
    constraints : by row number
    share : what part to hold out, 0 for nothing; by default a fifth, at most 5,000
    seed : of the draw
    """
    rng = np.random.RandomState(seed)
    labelled = np.empty(0, np.int64) if codes is None else np.flatnonzero(codes >= 0)
    nothing = np.empty(0, np.int64)
    if share == 0.0:
        return Split(labelled, nothing, constraints, Constraints())
    held = nothing
    if codes is not None:
        held = _some_of_every_class(codes, labelled, _wanted(share, len(labelled)), rng)
    if codes is not None and len(held) >= FEWEST:
        is_held = np.isin(np.arange(len(codes)), held)
        touched = [block.about_any(is_held[block.object_ids]) for block in constraints.blocks]
        kept = [np.logical_not(mask) for mask in touched]
        measured = with_enough(_part(constraints, touched))
        return Split(np.setdiff1d(labelled, held), held, _part(constraints, kept), measured)
    masks, few = _some_of_every_kind(constraints, share, rng)
    if len(labelled):
        few = {"labelled rows": len(labelled), **few}
    found = [numbered(count, kind) for kind, count in few.items()]
    note = f"too little to hold a part out and measure on it: {listed(found)}" if found else ""
    rest = [np.logical_not(mask) for mask in masks]
    return Split(labelled, nothing, _part(constraints, rest), _part(constraints, masks), note)


def counts(constraints: Constraints) -> dict[str, int]:
    """How many constraints there are of every kind."""
    kinds = [kind for block in constraints.blocks for kind in _kinds(block).tolist()]
    return dict(Counter(kinds))


def numbered(count: int, things: str) -> str:
    """So many things, as text: "1 pair", "2,000 pairs"."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def listed(things: Sequence[str]) -> str:
    """Things as text: "a, b and c"."""
    *others, last = things
    return f"{', '.join(others)} and {last}" if others else last


def _wanted(share: float | None, count: int) -> float:
    return share if share is not None else min(SHARE, LARGEST_SAMPLE / max(count, 1))


def _some_of_every_class(codes: Index, labelled: Index, share: float, rng: np.random.RandomState) -> Index:
    """That share of every class, rounded so that the total is right too; never the last row of a class."""
    order = rng.permutation(labelled)
    order = order[np.argsort(codes[order], kind="stable")]
    counts = np.bincount(codes[order])
    ends = np.round(share * np.cumsum(counts)).astype(np.int64)
    wanted = np.minimum(np.diff(ends, prepend=0), np.maximum(counts - 1, 0))
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[place < np.repeat(wanted, counts)])


def _some_of_every_kind(
    constraints: Constraints, share: float | None, rng: np.random.RandomState
) -> tuple[list[Mask], dict[str, int]]:
    """Which constraints of every block are held out, and the numbers of the kinds that are too few."""
    groups = _groups(constraints)
    kinds = np.concatenate([np.empty(0, dtype="U9"), *(_kinds(block) for block in constraints.blocks)])
    is_held = np.zeros(groups.max(initial=-1) + 1, dtype=bool)
    few: dict[str, int] = {}
    for kind in dict.fromkeys(kinds.tolist()):
        count = int(np.sum(kinds == kind))
        part = _wanted(share, count)
        if part * count < FEWEST:
            few[kind] = count
            continue
        for relation in (-1, 0, 1):
            mine = np.unique(groups[(kinds == kind) & (constraints.relations == relation)])
            free = rng.permutation(mine[~is_held[mine]])
            wanted = round(part * len(mine)) - int(is_held[mine].sum())
            is_held[free[: max(wanted, 0)]] = True
    ends = np.cumsum([len(block) for block in constraints.blocks])
    return np.split(is_held[groups], ends[:-1]) if len(ends) else [], few


def with_enough(constraints: Constraints) -> Constraints:
    """Without the kinds of which there are too few to measure on."""
    enough = [kind for kind, count in counts(constraints).items() if count >= FEWEST]
    return _part(constraints, [np.isin(_kinds(block), enough) for block in constraints.blocks])


def _groups(constraints: Constraints) -> Index:
    """A number for every constraint, equal for those that name the same pair, or compare the same pairs."""
    keys = [np.empty((0, 4), np.int64)]
    for number, block in enumerate(constraints.blocks):
        if block.of_kind.shares_objects:
            alone = np.stack([np.full(len(block), -2 - number), np.arange(len(block))], axis=1)
            keys.append(np.pad(alone, ((0, 0), (0, 2))))
            continue
        asked, _ = questions_of(block.object_ids)
        keys.append(np.pad(asked, ((0, 0), (0, 4 - asked.shape[1])), constant_values=-1))
    return equal_rows(np.concatenate(keys))


def _kinds(block: Block) -> NDArray[np.str_]:
    """What a user calls every row."""
    grades = block.of_kind.grades(block)
    return np.select([rows for _, rows in grades], [grade.things for grade, _ in grades], default="")


def _part(constraints: Constraints, masks: list[Mask]) -> Constraints:
    blocks = [
        block.part(np.flatnonzero(rows))
        for block, rows in zip(constraints.blocks, masks, strict=True)
        if rows.any()
    ]
    return Constraints(tuple(blocks))
