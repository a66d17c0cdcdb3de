"""Options of `study.from_files` and `with_files`: each beside what the file says, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearwise import study, tables

X = np.random.default_rng(0).normal(size=(12, 2))
IDS = [f"r{k}" for k in range(12)]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables.write("data.csv", ["a", "b"], X, ids=IDS, force=False)
    Path("ratings.csv").write_text("u,v,w\nr0,r1,1\nr2,r3,2\nr4,r5,3\nr6,r7,5\n", encoding="utf-8")
    Path("lengths.csv").write_text("first;second;distance\nr0;r1;1,5\nr2;r3;1.200,5\n", encoding="utf-8")
    Path("triplets.csv").write_text("r0,r1,r2\nr3,r4,r5\n", encoding="utf-8")
    Path("twice.csv").write_text("r0,r1,1\nr0,r1,1\nr1,r0,0\nr2,r3,0\n", encoding="utf-8")


def known(**options: Any) -> study.Known:
    return study.with_files(tables.read(Path("data.csv"), ids="id"), **options)


def bounds(found: study.Known) -> list[tuple[str, int, list[list[int]]]]:
    return [(b.kind, b.relation, b.object_ids.tolist()) for b in found.constraints.blocks]


def test_ratings_above_and_below_a_number_and_roles() -> None:
    roles = {"first": "u", "second": "v", "rating": "w"}
    found = known(pairs=Path("ratings.csv"), roles=roles, similar_above=2)
    similar, dissimilar = bounds(found)
    assert similar[1:] == (-1, [[4, 5], [6, 7]])
    assert dissimilar[1:] == (1, [[0, 1]])
    assert any("1 pair is left out, whose rating is 2 itself" in notice for notice in found.notices)


@pytest.mark.parametrize(("squared", "power"), [(False, 2), (True, 1)])
def test_distances_are_plain_or_squared_in_the_numerals_of_the_file(squared: bool, power: int) -> None:
    found = known(distances="lengths.csv", squared=squared, decimal=",", thousands=".")
    (block,) = found.constraints.blocks
    np.testing.assert_allclose(block.bounds, np.array([1.5, 1200.5]) ** power)


@pytest.mark.parametrize(
    ("conflicts", "expected"),
    [
        ("keep", [(-1, [[0, 1], [0, 1]]), (1, [[1, 0], [2, 3]])]),
        ("majority", [(-1, [[0, 1], [0, 1]]), (1, [[2, 3]])]),
        ("drop", [(1, [[2, 3]])]),
    ],
)
def test_answers_that_differ(conflicts: str, expected: Any) -> None:
    found = bounds(known(pairs="twice.csv", conflicts=conflicts))
    assert [(relation, rows) for _, relation, rows in found if rows] == expected


def test_files_go_together_and_need_not_be_named_by_texts() -> None:
    found = study.from_files(Path("data.csv"), ids="id", triplets=Path("triplets.csv"))
    assert bounds(found)[0][2] == [[0, 1, 0, 2], [3, 4, 3, 5]]
    both = study.from_files(
        "data.csv", ids="id", triplets="triplets.csv", pairs="twice.csv", conflicts="drop"
    )
    assert len(both.constraints) == 3
    np.testing.assert_array_equal(both.table.X, X)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"pairs": "ratings.csv", "similar_above": math.nan},
            "similar_above must be a finite number, got nan",
        ),
        ({"pairs": "ratings.csv", "similar_above": "2"}, "similar_above must be a finite number, got '2'"),
        ({"triplets": "triplets.csv", "similar_above": 2}, "which ratings in pairs are similar; give pairs"),
        ({"triplets": "triplets.csv", "squared": True}, "what the numbers in distances are; give distances"),
        ({"pairs": "twice.csv", "conflicts": "ask"}, "conflicts must be one of .* or None, got 'ask'"),
        ({"pairs": "twice.csv"}, "line 3: 'r1' and 'r0' are similar and dissimilar; see line 2"),
        ({"pairs": "ratings.csv", "roles": "first"}, "roles must be columns by role"),
        ({"pairs": "ratings.csv", "roles": {"left": "u"}}, "'left' is no role of a column"),
        ({"pairs": "ratings.csv", "roles": {"first": "x"}}, "no file of feedback has the column 'x'"),
        ({"pairs": np.array([[0, 1]])}, "pairs must be the path of a file, got ndarray"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        known(**options)


def test_arrays_are_no_tables_and_no_paths() -> None:
    with pytest.raises(TypeError, match="table must be a Table, got ndarray; arrays are for from_arrays"):
        study.with_files(X)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="source must be the path of a file, got ndarray"):
        tables.read(X)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target must be the path of a file, got int"):
        tables.write(3, ["a", "b"], X, force=False)  # type: ignore[arg-type]


def test_hinted_ids_are_taken_beside_features_where_they_are_all_different() -> None:
    assert tables.read("data.csv", ids_hint="id", known=["a", "b"]).ids.tolist() == IDS
    assert tables.read("data.csv", ids_hint="id", features=["b"]).ids.tolist() == IDS
    assert tables.read("data.csv", ids_hint="name", known=["a"]).ids is None
    assert tables.read("data.csv", ids="b", ids_hint="id", known=["a"]).ids[0] != "r0"
    tables.write("alike.csv", ["a", "b"], X, ids=["r0"] * 12, force=False)
    assert tables.read("alike.csv", ids_hint="id", known=["a", "b"]).ids is None
