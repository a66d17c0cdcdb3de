"""Files of pairs, triplets and distances: what they mean, and what is wrong in which line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.data import side_files
from nearwise.data.side_files import Objects, Reading
from nearwise.data.tables import TableError

IDS = np.array(["p", "q", "r", "7", "s t"])
READ = {
    "pairs": side_files.read_pairs,
    "triplets": side_files.read_triplets,
    "distances": side_files.read_distances,
}
FIVE, NAMED = Objects(5), Objects(5, IDS)
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file and returns its path."""

    def file(content: str | bytes, name: str = "side.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return file


def described(constraints: Constraints) -> list[str]:
    return [constraints.describe(row) for row in range(len(constraints))]


@pytest.mark.parametrize(
    "content",
    [
        "0,1,1\n2,3,0\n1,4,1\n",
        "0,1,1\n2,3,-1\n1,4,1\n",
        "left,right,same\n0,1,1.0\n2,3,0.0\n1,4,1.0\n",
        "0\t1\tYes\n2\t3\tNO\n1\t4\tyes\n",
        "0;1;similar\n2;3;Dissimilar\n1;4;same\n",
        "0,1,true\n2,3,different\n1,4,TRUE\n",
        "0.0,1.0,1\n2.0,3.0,0\n1,4,1\n",
    ],
)
def test_pairs_by_row_number(content: str, write: Write) -> None:
    side = side_files.read_pairs(write(content), FIVE)
    expected = c.similar([(0, 1), (1, 4)]) + c.dissimilar([(2, 3)])
    assert described(side.constraints) == described(expected)
    first = 2 if content.startswith("left") else 1
    assert side.lines.tolist() == [first, first + 2, first + 1]
    assert side.place(2) == f"line {first + 1}"


def test_two_columns_are_similar_pairs(write: Write) -> None:
    side = side_files.read_pairs(write("a,b\n\n0,1\n\n3,2\n"), FIVE)
    assert described(side.constraints) == described(c.similar([(0, 1), (3, 2)]))
    assert side.lines.tolist() == [3, 5]


@pytest.mark.parametrize("header", ["", "one,other,similar\n"])
def test_pairs_by_id_with_and_without_a_header(header: str, write: Write) -> None:
    side = side_files.read_pairs(write(f"{header}p,7,similar\n s t ,r,different\n"), NAMED)
    assert described(side.constraints) == described(c.similar([(0, 3)]) + c.dissimilar([(4, 2)]))
    assert side.lines.tolist() == ([2, 3] if header else [1, 2])
    assert side.notices == ()  # nobody calls an object "one" and another "other"


def test_names_are_told_where_they_may_be_ids(write: Write) -> None:
    for content in (
        "rose,tulip\np,q\n",
        "item1,item2\np,q\n",
        "rose,tulip,similar\np,q,1\n",
        "x,tulip,same\np,q,1\n",
    ):
        side = side_files.read_pairs(write(content), NAMED)
        assert len(side.constraints) == 1
        assert any("line 1 is read as column names" in notice for notice in side.notices)
    for content in ("rose,tulip,answer\np,q,1\n", "x,y\np,q\n", "left_id,right_id,similar\np,q,1\n"):
        assert side_files.read_pairs(write(content), NAMED).notices == ()


def test_triplets_and_quadruplets(write: Write) -> None:
    side = side_files.read_triplets(write("anchor,nearer,farther\n0,1,2\n3,4,0\n"), FIVE)
    assert described(side.constraints) == described(c.closer([(0, 1, 2), (3, 4, 0)]))
    assert side.lines.tolist() == [2, 3]
    side = side_files.read_triplets(write("p,q,r,7\nr,7,s t,p\n"), NAMED)
    assert described(side.constraints) == described(c.closer([(0, 1, 2, 3), (2, 3, 4, 0)]))


def test_distances_are_squared_once(write: Write) -> None:
    side = side_files.read_distances(write("0,1,3\n2,3,0.5\n"), FIVE)
    assert described(side.constraints) == described(c.equal([(0, 1), (2, 3)], [9.0, 0.25]))
    related = write("i,j,distance,relation\n0,1,3,>=\n2,3,2,<=\n1,4,1.5,==\n0,2,1,=\n")
    side = side_files.read_distances(related, FIVE)
    expected = c.at_most([(2, 3)], 4.0) + c.at_least([(0, 1)], 9.0) + c.equal([(1, 4), (0, 2)], [2.25, 1.0])
    assert described(side.constraints) == described(expected)
    assert side.lines.tolist() == [3, 2, 4, 5]
    for content, squared in (("i,j,Squared Distance\n0,1,3\n", False), ("0,1,3\n", True)):
        side = side_files.read_distances(write(content), FIVE, Reading(squared=squared))
        assert described(side.constraints) == described(c.equal([(0, 1)], 3.0))
    side = side_files.read_distances(write("0;1;1,5\n2;3;2,5\n"), FIVE)
    assert described(side.constraints) == described(c.equal([(0, 1), (2, 3)], [2.25, 6.25]))


BAD = {
    "empty": ("pairs", "", r"is empty"),
    "header only": ("pairs", "a,b\n", r"holds no pairs but column names"),
    "one column": ("pairs", "1\n2\n", r"has 1 columns; 2 or 3 are expected for pairs"),
    "five columns": ("triplets", "1,2,3,4,0\n", r"has 5 columns; 3 or 4"),
    "ragged": ("pairs", "0,1,1\n2,3\n", r"line 2 has 2 fields, but 3 are expected"),
    "too large a row": ("pairs", "0,1\n\n4,5\n", r"line 3: the data have no row 5; rows are 0 to 4"),
    "a negative row": ("pairs", "0,1\n-1,2\n", r"line 2: the data have no row -1"),
    "a fraction": ("pairs", "0,1\n1.5,2\n", r"line 2: '1.5' is not a row number"),
    "ids without --id": ("pairs", "p,q\nq,r\n", r"line 2: 'q' is not a row number.*--id"),
    "an empty cell": ("pairs", "0,1\n,2\n", r"line 2: an object is missing"),
    "itself": ("pairs", "0,1\n2,2\n", r"line 2: the object '2' is paired with itself"),
    "a bad word": ("pairs", "0,1,1\n2,3,maybe\n", r"line 2: 'maybe' does not say.*1 or 0"),
    "no word": ("pairs", "0,1,1\n2,3,\n", r"line 2: '' does not say"),
    "2": ("pairs", "0,1,1\n2,3,2\n", r"line 2: '2' does not say"),
    "contradiction": (
        "pairs",
        "a,b,c\n0,1,1\n2,3,1\n1,0,0\n",
        r"line 4: '1' and '0' are .*see line 2",
    ),
    "triplet with itself": ("triplets", "0,1,2\n3,3,2\n", r"line 2: the object '3' is paired with itself"),
    "far pair of itself": ("triplets", "0,1,2,2\n", r"line 1: the object '2' is paired with itself"),
    "same distance": ("triplets", "0,1,1\n", r"line 1: a distance is compared with itself"),
    "same distance turned": ("triplets", "0,1,1,0\n", r"line 1: a distance is compared with itself"),
    "zero distances alone": ("distances", "0,1,0\n", r"all distances are 0.*--pairs"),
    "negative distance": ("distances", "0,1,2\n0,2,-1\n", r"line 2: the distance '-1' is not possible"),
    "overflow": ("distances", "0,1,1e200\n", r"line 1: the distance '1e200' is not possible"),
    "infinite distance": ("distances", "0,1,inf\n", r"line 1: the distance 'inf' is not possible"),
    "text distance": ("distances", "0,1,2\n0,2,far\n", r"line 2: 'far' is not a distance"),
    "missing distance": ("distances", "0,1,2\n0,2,\n", r"line 2: '' is not a distance"),
    "relation": ("distances", "0,1,2,<\n", r"line 1: '<' is not a relation; <=, >= and == are"),
    "two distances": ("distances", "0,1,2\n1,0,3\n", r"line 2: '1' and '0' are at two distances; see line 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_with_its_line(name: str, write: Write) -> None:
    kind, content, message = BAD[name]
    path = write(content)
    with pytest.raises(TableError, match=message) as caught:
        READ[kind](path, FIVE)
    assert str(caught.value).startswith(path)


def test_unknown_ids_are_named(write: Write) -> None:
    for content, message in [
        ("p,q\np,nobody\n", r"line 2: the id 'nobody' is not one of the data's ids"),
        ("p,nobody\n", r"line 1: the id 'nobody'"),
        ("x,y,1\np,q,0\n", r"line 1: the id 'x'"),
        ("p,q\np,P\n", r"line 2: the id 'P'"),
    ]:
        with pytest.raises(TableError, match=message):
            side_files.read_pairs(write(content), NAMED)


def test_arrays_count_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "pairs.npy")
    np.save(path, np.array([[0, 1, 1], [2, 3, -1]]))
    side = side_files.read_pairs(path, FIVE)
    assert described(side.constraints) == described(c.similar([(0, 1)]) + c.dissimilar([(2, 3)]))
    assert (side.unit, side.lines.tolist(), side.place(1)) == ("row", [0, 1], "row 1")
    np.save(path, np.array([[0.0, 1.0], [2.0, 9.0]]))
    with pytest.raises(TableError, match=r"pairs\.npy, row 1: the data have no row 9"):
        side_files.read_pairs(path, FIVE)


def test_parquet_numbers_are_the_ids_of_a_text_file(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "distances.parquet")
    columns = {"one": [7, 12], "other": [12.0, 13.0], "squared_distance": [4.0, 2.0]}
    pq.write_table(pa.table(columns), path)
    side = side_files.read_distances(path, Objects(3, np.array(["12", "7", "13"])))
    assert described(side.constraints) == described(c.equal([(1, 0), (0, 2)], [4.0, 2.0]))
    assert side.place(0) == "row 0"


def test_columns_are_known_by_their_names_in_any_order(write: Write) -> None:
    content = (
        "timestamp,similar,item_b,weight,rater,item_a\n2024-01-01,yes,q,0.5,ann,p\n2024-01-02,no,r,2,bob,p\n"
    )
    side = side_files.read_pairs(write(content), NAMED)
    assert described(side.constraints) == described(c.similar([(0, 1)]) + c.dissimilar([(0, 2)]))
    assert side.constraints.weights.tolist() == [0.5, 2.0]
    assert [annotator.name for annotator in side.answers.annotators] == ["ann", "bob"]
    assert any(notice.endswith("not used: 'timestamp'") for notice in side.notices)
    triplets = write("negative,comment,anchor,positive\nr,fine,p,q\n")
    assert described(side_files.read_triplets(triplets, NAMED).constraints) == described(
        c.closer([(0, 1, 2)])
    )
    distances = write("relation,target,dist,source,by\n>=,q,2,p,ann\n")
    assert described(side_files.read_distances(distances, NAMED).constraints) == described(
        c.at_least([(0, 1)], 4.0)
    )


def test_columns_are_what_the_user_says(write: Write) -> None:
    path = write("when,what,thing,ok,who knows\n1,p,q,yes,3\n2,p,r,no,1\n")
    with pytest.raises(TableError, match=r"which are the objects, with --role first=COLUMN --role second"):
        side_files.read_pairs(path, NAMED)
    roles = {"first": "what", "second": "thing"}
    with pytest.raises(TableError, match=r"no column is called 'similar'; say which of 'when', 'ok', 'who"):
        side_files.read_pairs(path, NAMED, Reading(roles))
    roles |= {"similar": "ok", "weight": "who knows"}
    side = side_files.read_pairs(path, NAMED, Reading(roles))
    assert described(side.constraints) == described(c.similar([(0, 1)]) + c.dissimilar([(0, 2)]))
    assert side.constraints.weights.tolist() == [3.0, 1.0]
    with pytest.raises(TableError, match=r"'nonsense' is no role of a column; roles are first, second"):
        side_files.read_pairs(path, NAMED, Reading({"nonsense": "ok"}))


def test_a_column_called_different_means_the_contrary(write: Write) -> None:
    side = side_files.read_pairs(write("a,b,different\n0,1,1\n2,3,0\n1,4,different\n"), FIVE)
    expected = c.similar([(2, 3)]) + c.dissimilar([(0, 1), (1, 4)])
    assert described(side.constraints) == described(expected)
    assert any("1 in column 'different' is read as dissimilar" in notice for notice in side.notices)


def test_ratings_need_a_threshold(write: Write) -> None:
    for content in ("a,b,rating\n0,1,5\n2,3,1\n1,4,3\n", "0,1,5\n2,3,1\n1,4,3\n"):
        path = write(content)
        with pytest.raises(TableError, match="--similar-above T"):
            side_files.read_pairs(path, FIVE)
        side = side_files.read_pairs(path, FIVE, Reading(similar_above=3))
        assert described(side.constraints) == described(c.similar([(0, 1)]) + c.dissimilar([(2, 3)]))
        assert any("1 pair is left out, whose rating is 3 itself" in notice for notice in side.notices)
    with pytest.raises(TableError, match="line 2: 'x' is not a rating"):
        side_files.read_pairs(write("a,b,score\n0,1,x\n"), FIVE, Reading(similar_above=3))
    with pytest.raises(TableError, match=r"no column of ratings.*--role rating="):
        side_files.read_pairs(write("a,b\n0,1\n"), FIVE, Reading(similar_above=3))


def test_how_ratings_are_read_is_told_once(write: Write) -> None:
    path = write("a;b;rating\n0;1;4.500\n2;3;1.250\n")
    notices = side_files.read_pairs(path, FIVE, Reading(similar_above=3)).notices
    assert sum("'4.500' is read with a decimal point" in notice for notice in notices) == 1


CONFLICTING = "a,b,similar,annotator\n0,1,1,x\n1,0,1,y\n0,1,0,z\n2,3,1,x\n2,3,0,y\n3,4,0,z\n"


@pytest.mark.parametrize(
    ("conflicts", "similar", "dissimilar", "left_out"),
    [
        ("keep", [(0, 1), (1, 0), (2, 3)], [(0, 1), (2, 3), (3, 4)], 0),
        ("majority", [(0, 1), (1, 0)], [(3, 4)], 3),
        ("drop", [], [(3, 4)], 5),
    ],
)
def test_conflicting_answers(
    conflicts: str, similar: list[Any], dissimilar: list[Any], left_out: int, write: Write
) -> None:
    side = side_files.read_pairs(write(CONFLICTING), FIVE, Reading(conflicts=conflicts))
    assert described(side.constraints) == described(c.similar(similar) + c.dissimilar(dissimilar))
    found = side.answers
    assert (found.n_answers, found.n_questions, found.n_repeated, found.n_conflicting) == (6, 3, 2, 2)
    assert (found.n_ties, found.n_left_out, found.conflicts) == (1, left_out, conflicts)
    assert found.conflicting_lines == (2, 3, 4, 5, 6)
    # of the questions that have a majority, x and y answered (0, 1) with it, and z against it
    assert [tuple(annotator) for annotator in found.annotators] == [
        ("x", 2, 1, 1),
        ("y", 2, 1, 1),
        ("z", 2, 1, 0),
    ]
    (notice,) = side.notices
    assert "6 answers to 3 pairs by 3 annotators; 2 have more than one, 2 of them different ones" in notice
    assert notice.endswith("seldom with most of the others: 'z' (0 of 1)")
    assert found.as_json()["annotators"][0]["name"] == "x"


def test_a_majority_counts_weights(write: Write) -> None:
    path = write("a,b,similar,confidence\n0,1,1,20 %\n0,1,1,20 %\n0,1,0,50 %\n2,3,1,0\n")
    side = side_files.read_pairs(path, FIVE, Reading(conflicts="majority"))
    assert described(side.constraints) == described(c.dissimilar([(0, 1)]))
    assert side.constraints.weights.tolist() == [0.5]
    assert any("1 line is left out, of weight 0" in notice for notice in side.notices)
    with pytest.raises(TableError, match="line 2: '-1' is not a weight"):
        side_files.read_pairs(write("a,b,similar,weight\n0,1,1,-1\n"), FIVE)


def test_triplets_that_differ_are_kept_and_counted(write: Write) -> None:
    path = write("0,1,2\n0,2,1\n1,0,3\n")
    side = side_files.read_triplets(path, FIVE)
    assert len(side.constraints) == 3
    assert side.answers.n_conflicting == 1
    assert "1 of them different ones, of which all are kept" in side.notices[0]
    side = side_files.read_triplets(path, FIVE, Reading(conflicts="drop"))
    assert side.lines.tolist() == [3]


def test_distances_that_differ(write: Write) -> None:
    path = write("0,1,2\n1,0,3\n0,1,2\n0,2,1,\n".replace("1,\n", "1\n"))
    side = side_files.read_distances(path, FIVE, Reading(conflicts="majority"))
    assert described(side.constraints) == described(c.equal([(0, 1), (0, 1), (0, 2)], [4.0, 4.0, 1.0]))
    side = side_files.read_distances(path, FIVE, Reading(conflicts="drop"))
    assert side.lines.tolist() == [4]


def test_a_distance_of_zero_is_at_most_the_smallest_other(write: Write) -> None:
    content = "a,b,distance,relation\n0,1,0,==\n0,2,3,==\n1,2,0,>=\n3,4,2,<=\n"
    side = side_files.read_distances(write(content), FIVE)
    expected = c.at_most([(0, 1), (3, 4)], [4.0, 4.0]) + c.equal([(0, 2)], 9.0)
    assert described(side.constraints) == described(expected)
    assert any("2 distances are 0, and read as at most the smallest other one, 2" in n for n in side.notices)


def test_ids_that_pandas_wrote_with_a_point(write: Write) -> None:
    whole, pointed = Objects(3, np.array(["194", "7", "12"])), Objects(3, np.array(["194.0", "7.0", "12.0"]))
    for content, objects in (("194.0,7.0\n", whole), ("194,7\n", pointed), ("a,b\n194.0,7\n", whole)):
        side = side_files.read_pairs(write(content), objects)
        assert described(side.constraints) == described(c.similar([(0, 1)]))
        assert any("ids are matched without their decimals, as '194" in notice for notice in side.notices)
    both = Objects(2, np.array(["194", "194.0"]))
    assert side_files.read_pairs(write("194,194.0\n"), both).notices == ()
    with pytest.raises(TableError, match=r"the id '194\.00' is not one of"):
        side_files.read_pairs(write("194,194.00\n"), both)


def test_what_is_said_about_rows_that_are_left_out_is_left_out(write: Write) -> None:
    objects = Objects(2, np.array(["0", "2"]), frozenset({"1"}))
    side = side_files.read_pairs(write("0,2\n0,1\n1.0,2\n"), objects)
    assert described(side.constraints) == described(c.similar([(0, 1)]))
    assert any("2 lines are left out, on rows of the data that lack a value" in n for n in side.notices)
    with pytest.raises(TableError, match="nothing is left of it"):
        side_files.read_pairs(write("0,1\n"), objects)
    pointed = Objects(2, np.array(["0.0", "2.0"]), frozenset({"1.0"}))
    assert len(side_files.read_pairs(write("0,2\n0,1\n"), pointed).constraints) == 1
