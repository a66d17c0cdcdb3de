"""Triplets, quadruplets, chunks and targets that are numbers, against brute force from their definitions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nearwise import constraints as c


def _rows(side: c.Constraints) -> list[tuple[int, ...]]:
    """Comparisons as (i, j, k, l)."""
    return [tuple(int(i) for i in row) for block in side.blocks for row in np.asarray(block.ids)]


def _data(n: int = 40, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.integers(3, size=n)


@pytest.mark.parametrize(("n_same", "n_different"), [(3, 10), (1, 1), (2, 100)])
@pytest.mark.parametrize("n", [40, 120])  # classes below and above the size that has a search of its own
def test_triplets_are_the_nearest_of_both_sorts(n: int, n_same: int, n_different: int) -> None:
    X, y = _data(n)
    y = np.where(np.arange(n) == 5, -1, y)
    distances = ((X[:, None] - X) ** 2).sum(axis=2)
    expected = set()
    for a in np.flatnonzero(y >= 0):
        order = [j for j in np.argsort(distances[a]) if j != a and y[j] >= 0]
        same = [j for j in order if y[j] == y[a]][:n_same]
        different = [j for j in order if y[j] != y[a]][:n_different]
        expected |= {(a, p, a, q) for p in same for q in different}
    labels = np.where(y < 0, np.nan, y)
    found = _rows(c.triplets_from_labels(labels, X, n_same, n_different))
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert set(_rows(c.triplets_from_labels(labels, sparse.csr_array(X), n_same, n_different))) == expected


def test_a_draw_of_triplets_is_a_part_of_all_and_repeats() -> None:
    X, y = _data()
    every, some = c.triplets_from_labels(y, X), c.triplets_from_labels(y, X, n_triplets=50, random_state=3)
    assert len(some) == 50
    assert set(_rows(some)) < set(_rows(every))
    assert _rows(some) == _rows(c.triplets_from_labels(y, X, n_triplets=50, random_state=3))


def test_a_margin_is_that_of_closer() -> None:
    X, y = _data()
    assert set(c.triplets_from_labels(y, X, margin=0.5).bounds) == {-0.5}


def test_quadruplets_compare_a_pair_of_one_class_with_a_pair_of_two() -> None:
    _, y = _data()
    found = np.array(_rows(c.quadruplets_from_labels(y, random_state=0)))
    assert len(found) == 20 * 3**2
    assert np.all(y[found[:, 0]] == y[found[:, 1]])
    assert np.all(y[found[:, 2]] != y[found[:, 3]])
    assert len(_rows(c.quadruplets_from_labels(y, 7, random_state=0))) == 7
    assert len(_rows(c.quadruplets_from_labels([0, 0, 1], 7, random_state=0))) == 1


def test_chunks_are_all_pairs_within_them() -> None:
    chunks = ["a", None, "b", "a", "b", "a", "c"]
    expected = {(0, 3), (0, 5), (3, 5), (2, 4)}
    assert {tuple(row) for block in c.from_chunks(chunks).blocks for row in block.ids} == expected
    assert len(c.from_chunks([-1, -1])) == 0


@pytest.mark.parametrize("n_neighbors", [2, 5, 6, 100])
def test_triplets_of_targets_compare_near_targets_with_far_ones(n_neighbors: int) -> None:
    X, _ = _data()
    y = np.random.default_rng(1).normal(size=len(X)).round(1)
    y[7] = np.nan
    known = [j for j in range(len(X)) if j != 7]
    count = min(n_neighbors, len(known) - 1)
    expected = set()
    for a in known:
        near = sorted((j for j in known if j != a), key=lambda j: float(((X[a] - X[j]) ** 2).sum()))[:count]
        near.sort(key=lambda j: abs(y[j] - y[a]))
        pairs = zip(near[: count // 2], near[count - count // 2 :], strict=True)
        expected |= {
            (abs(y[a] - y[p]), abs(y[a] - y[q]), a) for p, q in pairs if abs(y[p] - y[a]) < abs(y[q] - y[a])
        }
    found = _rows(c.triplets_from_targets(y, X, n_neighbors))
    assert {(abs(y[a] - y[p]), abs(y[a] - y[q]), a) for a, p, _, q in found} == expected
    assert all(7 not in row for row in found)


def test_equal_targets_say_nothing() -> None:
    X, _ = _data()
    assert len(c.triplets_from_targets(np.ones(len(X)), X)) == 0
    assert len(c.triplets_from_targets([1.0, 2.0], X[:2])) == 0


def test_twins_are_neighbours_and_never_compared_with_themselves() -> None:
    X = np.repeat(np.arange(6.0), 4)[:, np.newaxis]
    y = np.arange(24.0)
    found = _rows(c.triplets_from_targets(y, X, 5))
    assert found
    assert all(a not in (p, q) and p != q for a, p, _, q in found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: c.triplets_from_labels([0, 1], np.ones((3, 2))), "X has 3 rows, but there are 2 labels"),
        (lambda: c.triplets_from_labels([0, 1], np.ones((2, 2)), 0), "n_same must be"),
        (lambda: c.triplets_from_targets(["a", "b"], np.ones((2, 2))), "texts are labels: from_labels"),
        (lambda: c.triplets_from_targets([[1.0], [2.0]], np.ones((2, 2))), r"got shape \(2, 1\)"),
        (lambda: c.triplets_from_targets([1.0, np.inf], np.ones((2, 2))), "got inf at row 1"),
        (lambda: c.triplets_from_targets([1.0, 2.0], np.ones((2, 2)), 1), "n_neighbors must be"),
        (lambda: c.quadruplets_from_labels([0, 1], 0), "n_quadruplets must be"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_pairs_of_three_classes_are_counted_by_hand() -> None:
    y = [0, 0, 1, 1, 2]
    side = c.quadruplets_from_labels(y, 100, random_state=0)
    within = {pair for pair in combinations(range(5), 2) if y[pair[0]] == y[pair[1]]}
    assert {tuple(sorted(row[:2])) for row in _rows(side)} == within


def test_a_draw_of_triplets_of_targets_is_a_part_of_all_and_has_the_margin() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    every = c.triplets_from_targets(y, X).blocks[0]
    drawn, again, other = (
        c.triplets_from_targets(y, X, n_triplets=40, margin=0.5, random_state=seed).blocks[0]
        for seed in (0, np.random.RandomState(0), 1)
    )
    assert (drawn.bounds == -0.5).all()
    np.testing.assert_array_equal(drawn.object_ids, again.object_ids)
    assert drawn.object_ids.tolist() != other.object_ids.tolist()
    assert len(set(map(tuple, drawn.object_ids))) == 40
    assert set(map(tuple, drawn.object_ids)) < set(map(tuple, every.object_ids))
    assert (c.quadruplets_from_labels([0, 0, 1, 1], margin=0.5).blocks[0].bounds == -0.5).all()


@pytest.mark.parametrize("unit", [1e-307, 1.0, 5e307])
def test_triplets_of_targets_do_not_depend_on_their_unit(unit: float) -> None:
    y, X = np.array([-3.0, -1.0, 0.0, 2.0, 3.0]), np.arange(5.0)[:, np.newaxis]
    found, expected = (c.triplets_from_targets(targets, X).blocks[0] for targets in (unit * y, y))
    np.testing.assert_array_equal(found.object_ids, expected.object_ids)
