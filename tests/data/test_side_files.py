"""Files of pairs, triplets and distances: what they mean, and what is wrong in which line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.data import side_files
from nearwise.data.tables import TableError

IDS = np.array(["p", "q", "r", "7", "s t"])
READ = {
    "pairs": side_files.read_pairs,
    "triplets": side_files.read_triplets,
    "distances": side_files.read_distances,
}
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
    side = side_files.read_pairs(write(content), 5, None)
    expected = c.similar([(0, 1), (1, 4)]) + c.dissimilar([(2, 3)])
    assert described(side.constraints) == described(expected)
    first = 2 if content.startswith("left") else 1
    assert side.lines.tolist() == [first, first + 2, first + 1]
    assert side.place(2) == f"line {first + 1}"


def test_two_columns_are_similar_pairs(write: Write) -> None:
    side = side_files.read_pairs(write("a,b\n\n0,1\n\n3,2\n"), 5, None)
    assert described(side.constraints) == described(c.similar([(0, 1), (3, 2)]))
    assert side.lines.tolist() == [3, 5]


@pytest.mark.parametrize("header", ["", "one,other,similar\n"])
def test_pairs_by_id_with_and_without_a_header(header: str, write: Write) -> None:
    side = side_files.read_pairs(write(f"{header}p,7,similar\n s t ,r,different\n"), 5, IDS)
    assert described(side.constraints) == described(c.similar([(0, 3)]) + c.dissimilar([(4, 2)]))
    assert side.lines.tolist() == ([2, 3] if header else [1, 2])
    assert any("line 1 is read as column names" in notice for notice in side.notices) is bool(header)


def test_triplets_and_quadruplets(write: Write) -> None:
    side = side_files.read_triplets(write("anchor,nearer,farther\n0,1,2\n3,4,0\n"), 5, None)
    assert described(side.constraints) == described(c.closer([(0, 1, 2), (3, 4, 0)]))
    assert side.lines.tolist() == [2, 3]
    side = side_files.read_triplets(write("p,q,r,7\nr,7,s t,p\n"), 5, IDS)
    assert described(side.constraints) == described(c.closer([(0, 1, 2, 3), (2, 3, 4, 0)]))


def test_distances_are_squared_once(write: Write) -> None:
    side = side_files.read_distances(write("0,1,3\n2,3,0.5\n"), 5, None)
    assert described(side.constraints) == described(c.equal([(0, 1), (2, 3)], [9.0, 0.25]))
    related = write("i,j,distance,relation\n0,1,3,>=\n2,3,2,<=\n1,4,1.5,==\n0,2,1,=\n")
    side = side_files.read_distances(related, 5, None)
    expected = c.at_most([(2, 3)], 4.0) + c.at_least([(0, 1)], 9.0) + c.equal([(1, 4), (0, 2)], [2.25, 1.0])
    assert described(side.constraints) == described(expected)
    assert side.lines.tolist() == [3, 2, 4, 5]
    for content, squared in (("i,j,Squared Distance\n0,1,3\n", False), ("0,1,3\n", True)):
        side = side_files.read_distances(write(content), 5, None, squared=squared)
        assert described(side.constraints) == described(c.equal([(0, 1)], 3.0))
    side = side_files.read_distances(write("0;1;1,5\n2;3;2,5\n"), 5, None)
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
    "zero distance": ("distances", "0,1,0\n", r"line 1: the distance '0' is not possible"),
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
        READ[kind](path, 5, None)
    assert str(caught.value).startswith(path)


def test_unknown_ids_are_named(write: Write) -> None:
    for content, message in [
        ("p,q\np,nobody\n", r"line 2: the id 'nobody' is not one of the data's ids"),
        ("p,nobody\n", r"line 1: the id 'nobody'"),
        ("x,y,1\np,q,0\n", r"line 1: the id 'x'"),
        ("p,q\np,P\n", r"line 2: the id 'P'"),
    ]:
        with pytest.raises(TableError, match=message):
            side_files.read_pairs(write(content), 5, IDS)


def test_arrays_count_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "pairs.npy")
    np.save(path, np.array([[0, 1, 1], [2, 3, -1]]))
    side = side_files.read_pairs(path, 5, None)
    assert described(side.constraints) == described(c.similar([(0, 1)]) + c.dissimilar([(2, 3)]))
    assert (side.unit, side.lines.tolist(), side.place(1)) == ("row", [0, 1], "row 1")
    np.save(path, np.array([[0.0, 1.0], [2.0, 9.0]]))
    with pytest.raises(TableError, match=r"pairs\.npy, row 1: the data have no row 9"):
        side_files.read_pairs(path, 5, None)


def test_parquet_numbers_are_the_ids_of_a_text_file(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "distances.parquet")
    columns = {"one": [7, 12], "other": [12.0, 13.0], "squared_distance": [4.0, 2.0]}
    pq.write_table(pa.table(columns), path)
    side = side_files.read_distances(path, 3, np.array(["12", "7", "13"]))
    assert described(side.constraints) == described(c.equal([(1, 0), (0, 2)], [4.0, 2.0]))
    assert side.place(0) == "row 0"
