"""What `learn` holds out: a part of every class and kind, and nothing of it is learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.study.holding_out import FEWEST, counts, hold_out


def pairs_of(constraints: Constraints) -> set[frozenset[int]]:
    return {
        frozenset(map(int, pair))
        for block in constraints.blocks
        for pair in block.object_ids.reshape(-1, 2)
        if block.kind == "distance"
    }


@pytest.mark.long
@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=8), st.floats(0.05, 0.9), st.integers(0, 5), st.data()
)
def test_a_share_of_every_class_is_held_out(sizes: list[int], share: float, seed: int, data: Any) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    codes[data.draw(st.integers(0, len(codes) - 1))] = -1  # a row without a label
    split = hold_out(codes, Constraints(), share, seed)
    labelled = np.flatnonzero(codes >= 0)
    assert np.array_equal(np.sort(np.concatenate([split.learned_rows, split.held_rows])), labelled)
    if len(split.held_rows):
        assert not split.note
        assert len(split.held_rows) >= FEWEST
        held, learned = (
            np.bincount(codes[rows], minlength=len(sizes)) for rows in (split.held_rows, split.learned_rows)
        )
        present = held + learned > 0
        assert (learned[present] >= 1).all()
        assert (np.abs(held - share * (held + learned)) <= 1.0).all()
    else:
        assert "labelled row" in split.note
        assert share * len(labelled) < FEWEST + len(sizes)


def test_large_data_give_up_no_more_than_is_measured() -> None:
    codes = np.arange(60_000) % 10
    assert len(hold_out(codes, Constraints(), None, 0).held_rows) == 5_000
    assert len(hold_out(codes, Constraints(), 0.5, 0).held_rows) == 30_000
    assert len(hold_out(codes[:100], Constraints(), None, 0).held_rows) == 20
    assert len(hold_out(codes, Constraints(), 0.0, 0).held_rows) == 0


def test_a_pair_that_is_measured_is_nowhere_in_what_is_learned_from() -> None:
    rng = np.random.RandomState(0)
    pairs = rng.permutation(200).reshape(-1, 2)
    similar, dissimilar = pairs[:60], pairs[60:]
    # every pair again the other way round, and as a measured distance
    side = c.similar(np.concatenate([similar, similar[:, ::-1]])) + c.dissimilar(dissimilar)
    side += c.equal(pairs[:, ::-1], 1.0)
    split = hold_out(None, side, None, 0)
    assert len(split.learned) + len(split.held) == len(side)
    assert pairs_of(split.held)
    assert not pairs_of(split.held) & pairs_of(split.learned)
    assert counts(split.held) == {"pairs": 32, "distances": 20}
    held_similar = sum(len(block) for block in split.held.blocks if block.relation < 0)
    assert held_similar == 24  # twelve of sixty, both ways round


def test_comparisons_of_the_same_distances_stay_together() -> None:
    rng = np.random.RandomState(0)
    triplets = rng.permutation(300).reshape(-1, 3)
    a, p, n = triplets.T
    again = np.stack([n, a, p, a], axis=1)  # d(n, a) < d(p, a): the same two distances the other way round
    side = c.closer(triplets) + c.closer(again)
    split = hold_out(None, side, None, 0)

    def keys(constraints: Constraints) -> set[frozenset[frozenset[int]]]:
        rows = [row for block in constraints.blocks for row in block.object_ids.tolist()]
        return {frozenset((frozenset(row[:2]), frozenset(row[2:]))) for row in rows}

    assert counts(split.held) == {"triplets": 40}
    assert not keys(split.held) & keys(split.learned)


def test_with_labels_everything_about_held_rows_is_held_out() -> None:
    codes = np.arange(200) % 4
    codes[:20] = -1
    rng = np.random.RandomState(0)
    pairs = np.stack([rng.permutation(200), rng.permutation(200)], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    split = hold_out(codes, c.similar(pairs), None, 0)
    held = set(split.held_rows.tolist())
    assert all(pair & held for pair in pairs_of(split.held))
    assert not any(pair & held for pair in pairs_of(split.learned))
    assert len(split.held) + len(split.learned) == len(pairs)
    few = hold_out(codes, c.similar(pairs[:12]), None, 0)
    assert len(few.held) == 0  # too few of them to be measured, and not learned from either
    assert not any(pair & held for pair in pairs_of(few.learned))


def test_too_little_is_said_and_learned_from() -> None:
    split = hold_out(None, c.similar([(0, 1), (2, 3)]) + c.closer([(0, 1, 2)]), None, 0)
    assert len(split.learned) == 3
    assert len(split.held) == 0
    assert split.note == "too little to hold a part out and measure on it: 2 pairs and 1 triplet"
    small = hold_out(np.array([0, 0, 1, 1, -1]), Constraints(), None, 0)
    assert small.learned_rows.tolist() == [0, 1, 2, 3]
    assert small.note == "too little to hold a part out and measure on it: 4 labelled rows"
    assert hold_out(None, c.similar([(0, 1)]), 0.0, 0).note == ""


@pytest.mark.parametrize("seed", [0, 1])
def test_same_seed_same_split(seed: int) -> None:
    codes = np.arange(300) % 3
    side = c.similar(np.arange(200).reshape(-1, 2))
    one, two = (hold_out(codes, side, None, seed) for _ in range(2))
    assert np.array_equal(one.held_rows, two.held_rows)
    other = hold_out(codes, side, None, seed + 7)
    assert not np.array_equal(one.held_rows, other.held_rows)
