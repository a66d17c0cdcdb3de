"""Names of columns in files of feedback: followed where they say it, refused where they contradict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearwise import cli, study
from nearwise.study import Known, Refused
from nearwise.tables import TableError

Read = Callable[..., Known]
ROWS = 8


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """What a file of a kind says, given its lines."""
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text(
        "u,v\n" + "".join(f"{k * 1.1},{k % 3}\n" for k in range(ROWS)), encoding="utf-8"
    )

    def known(kind: str, *lines: str, suffix: str = ".csv", **how: Any) -> Known:
        Path(f"side{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return study.from_files("data.csv", **{kind: f"side{suffix}"}, **how)

    return known


def objects(known: Known) -> list[list[int]]:
    return [row for block in known.constraints.blocks for row in np.asarray(block.object_ids).tolist()]


def similar(known: Known) -> list[list[int]]:
    """The pairs that are near ones."""
    near = known.constraints.relations < 0
    return [row for row, is_near in zip(objects(known), near, strict=True) if is_near]


@pytest.mark.parametrize(
    "header",
    [
        "anchor,farther,nearest",
        "anchor,negative,match",
        "query,loser,best",
        "item,different,same",
        "anchor_id,negative_id,positive_id",
        "anchorId,negativeId,positiveId",
        "AnchorID,NegativeID,PositiveID",
        "x,neg,pos",
        "x,less_similar,more_similar",
        "thing,not_chosen,chosen",
        "thing,mismatch,match",
        "thing,dissimilar_item,similar_item",
        "a,n,p",
        "i,k,j",
        "first,third,second",
        "query,distractor,x",
        "ref,x,closest",
        "q,irrelevant,relevant",
        "probe,impostor,genuine",
        "x,bad,good",
        "x,disliked,liked",
        "query,not_picked,picked",
        "anchor,notClicked,clicked",
    ],
)
def test_the_names_of_a_triplet_say_which_is_nearer(header: str, read: Read) -> None:
    assert objects(read("triplets", header, "0,1,2", "3,4,5")) == [[0, 2, 0, 1], [3, 5, 3, 4]]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("anchor,x,y", [0, 1, 0, 2]),
        ("x,y,negative", [0, 1, 0, 2]),
        ("x,near,y", [0, 1, 0, 2]),
        ("item1,item2,item3", [0, 1, 0, 2]),
        ("thing,one,two", [0, 1, 0, 2]),
        ("positive,negative,anchor", [2, 0, 2, 1]),
        ("near,thing,far", [1, 0, 1, 2]),
    ],
)
def test_names_that_fit_their_position_are_read_by_it(header: str, expected: list[int], read: Read) -> None:
    assert objects(read("triplets", header, "0,1,2")) == [expected]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("i,j,k,l", [0, 1, 2, 3]),
        ("a,b,c,d", [0, 1, 2, 3]),
        ("far_a,far_b,near_a,near_b", [2, 3, 0, 1]),
        ("near_a,near_b,far_a,far_b", [0, 1, 2, 3]),
        ("trial,anchor,far,near", [1, 3, 1, 2]),
        ("id,i,j,k", [1, 2, 1, 3]),
    ],
)
def test_four_columns_of_triplets(header: str, expected: list[int], read: Read) -> None:
    assert objects(read("triplets", header, "0,1,2,3")) == [expected]


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("x,negative,y", "negative"),
        ("x,anchor,y", "anchor"),
        ("positive,x,y", "positive"),
        ("x,y,match", "match"),
        ("x,y,label", "label"),
        ("odd,x,y", "odd"),
        ("id,x,y,z", "id"),
        ("anchor,x,y,z", "anchor"),
        ("x,y,z,answer", "answer"),
        ("x,negative,y,z", "negative"),
        ("x,y,z,positive_id", "positive_id"),
    ],
)
def test_a_name_that_contradicts_its_position_is_refused(header: str, named: str, read: Read) -> None:
    line = ",".join(map(str, range(header.count(",") + 1)))
    with pytest.raises(TableError, match=repr(named)):
        read("triplets", header, line)


def test_what_the_user_says_of_columns_comes_first(read: Read) -> None:
    roles = {"first": "x", "second": "negative", "third": "y"}
    assert objects(read("triplets", "x,negative,y", "0,1,2", roles=roles)) == [[0, 1, 0, 2]]
    found = read("distances", "a,b,similarity", "0,1,2", "2,3,4", roles={"distance": "similarity"})
    assert found.constraints.bounds.tolist() == [4.0, 16.0]


@pytest.mark.parametrize(
    "name",
    [
        "mismatch",
        "different",
        "is_not_match",
        "isNotMatch",
        "not_same",
        "nonmatch",
        "unrelated",
        "cannot_link",
        "nomatch",
        "irrelevant",
        "is_diff",
        "difference",
        "not_dup",
        "cannot_join",
    ],
)
def test_one_in_a_column_about_differences_means_different(name: str, read: Read) -> None:
    found = read("pairs", f"a,b,{name}", "0,1,1", "2,3,0")
    assert similar(found) == [[2, 3]]
    assert any(name in notice for notice in found.notices)


@pytest.mark.parametrize("name", ["match", "must_link", "positive", "is_same", "not_different", "linked"])
def test_one_in_a_column_about_likeness_means_the_same(name: str, read: Read) -> None:
    found = read("pairs", f"a,b,{name}", "0,1,1", "2,3,0")
    assert similar(found) == [[0, 1]]
    assert not any(name in notice for notice in found.notices)


@pytest.mark.parametrize("kind", ["pairs", "distances"])
def test_a_name_that_says_nothing_is_told(kind: str, read: Read) -> None:
    assert any("'flag'" in notice for notice in read(kind, "a,b,flag", "0,1,1", "2,3,1").notices)


@pytest.mark.parametrize(
    "lines",
    [
        ["a,b,distance", "0,1,1", "2,3,0"],
        ["a,b,dissimilarity", "0,1,1", "2,3,0"],
        ["a,b,rank", "0,1,1", "2,3,0"],
        ["anchor,negative", "0,1", "2,3"],
        ["query,nonmatch", "0,1", "2,3"],
        ["id,shown,clicked,similar", "0,1,2,1", "3,4,5,0"],
    ],
    ids=lambda lines: lines[0],
)
def test_pairs_whose_names_contradict_are_refused(lines: list[str], read: Read) -> None:
    with pytest.raises(TableError, match=r"'(distance|dissimilarity|rank|negative|nonmatch|id)'"):
        read("pairs", *lines)


def test_ratings_in_a_column_of_distances_are_not_similarities(read: Read) -> None:
    with pytest.raises(TableError, match="'distance'"):
        read("pairs", "a,b,distance", "0,1,0.5", "2,3,4", similar_above=1.0)


def test_a_column_of_answers_says_what_far_pairs_are(read: Read) -> None:
    assert similar(read("pairs", "anchor,negative,same", "0,1,0", "2,3,1")) == [[2, 3]]
    assert similar(read("pairs", "anchor,positive", "0,1", "2,3")) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "name",
    [
        "dist_squared",
        "dist_sqrd",
        "sq_distance",
        "squared_euclidean_distance",
        "sqdist",
        "distSq",
        "d_sq",
        "d^2",
        "d²",
        "sqeuclidean",
        "Squared Distance",
    ],
)
@pytest.mark.parametrize("said", [{}, {"squared": True}], ids=["by name", "by option too"])
def test_squared_distances_are_not_squared_again(name: str, said: dict[str, bool], read: Read) -> None:
    assert read("distances", f"a,b,{name}", "0,1,2", "2,3,4", **said).constraints.bounds.tolist() == [
        2.0,
        4.0,
    ]
    role = {"roles": {"distance": name}}
    assert read("distances", f"a,b,{name}", "0,1,2", **role, **said).constraints.bounds.tolist() == [2.0]


@pytest.mark.parametrize(
    "name", ["distance", "euclidean_distance", "sqrt_distance", "squad_distance", "dist"]
)
def test_plain_distances_are_squared(name: str, read: Read) -> None:
    assert read("distances", f"a,b,{name}", "0,1,2", "2,3,4").constraints.bounds.tolist() == [4.0, 16.0]


@pytest.mark.parametrize(
    "name", ["similarity", "cosine_sim", "affinity", "score", "same", "max_distance", "lower"]
)
def test_what_is_no_distance_by_its_name_is_refused(name: str, read: Read) -> None:
    with pytest.raises(TableError, match=repr(name)):
        read("distances", f"a,b,{name}", "0,1,2", "2,3,4")


def test_the_command_line_learns_triplets_by_their_names(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is learned does not depend on the order of named columns."""
    with pytest.raises(Refused):
        read("triplets", "anchor,nearer,farther", "0,1,2", roles={"second": "nothing"})
    generator = np.random.default_rng(0)
    lines = []
    while len(lines) < 60:
        a, b, c = generator.choice(ROWS, 3, replace=False).tolist()
        near, far = (b, c) if abs(a - b) < abs(a - c) else (c, b)
        lines.append((a, near, far))
    summaries = []
    for header, order in (("item,same,different", (0, 1, 2)), ("item,different,same", (0, 2, 1))):
        text = "".join(",".join(str(line[k]) for k in order) + "\n" for line in lines)
        Path("t.csv").write_text(f"{header}\n{text}", encoding="utf-8")
        command = ["learn", "data.csv", "--triplets", "t.csv", "--force", "--held-out", "0", "--penalty", "1"]
        assert cli.main([*command, "-o", "m.safetensors", "--quiet"]) == cli.DONE
        assert cli.main(["apply", "m.safetensors", "data.csv"]) == cli.DONE
        summaries.append(capsys.readouterr().out)
    assert summaries[0] == summaries[1]
