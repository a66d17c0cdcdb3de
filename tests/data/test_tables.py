"""Data files as people have them: every format, every oddity of CSV, and errors that name the line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nearwise import datasets
from nearwise.data import formats, tables, text as text_files
from nearwise.data.frame import Frame
from nearwise.data.kinds import values
from nearwise.data.numerals import Numerals
from nearwise.data.tables import TableError
from nearwise.data.text import TextFrame

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file and returns its path."""

    def file(content: str | bytes, name: str = "data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return file


def saved(path: Path, array: np.ndarray) -> str:
    np.save(path, array)
    return str(path)


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2.5\n-3,4e2\n",
        "a,b\r\n1,2.5\r\n-3,4e2\r\n",
        "a,b\r1,2.5\r-3,4e2",
        "\n\na,b\n\n1,2.5\n   \n-3,4e2\n\n\n",
        "a;b\n1;2,5\n-3;4e2\n",
        "a;b\n1;2.5\n-3;4e2\n",
        "a\tb\n1\t2.5\n-3\t4e2\n",
        "a\tb\n1\t2,5\n-3\t4e2\n",
        "a|b\n1|2.5\n-3|4e2\n",
        " a , b \n 1 , 2.5 \n -3 , 4e2 \n",
        '"a","b"\n"1","2.5"\n"-3","4e2"\n',
        "sep=;\na;b\n1;2.5\n-3;4e2\n",
        "a b\n1 2.5\n-3   4e2\n",
        ",a,b\n0,1,2.5\n1,-3,4e2\n",
    ],
)
@pytest.mark.parametrize(
    "encode",
    [str.encode, lambda text: text.encode("utf-8-sig"), lambda text: text.encode("utf-16"), "gzip"],
    ids=["utf-8", "utf-8 with BOM", "utf-16", "gzip"],
)
def test_the_same_table_in_every_way_of_writing_it(
    content: str, encode: Callable[[str], bytes] | str, write: Write
) -> None:
    data = gzip.compress(content.encode()) if encode == "gzip" else encode(content)
    table = tables.read(write(data, "data.csv.gz" if encode == "gzip" else "data.csv"))
    np.testing.assert_array_equal(table.X, [[1.0, 2.5], [-3.0, 400.0]])
    assert table.names == ("a", "b")
    assert (table.scalars, table.named, table.labels, table.ids) == (True, True, None, None)


def test_without_a_header_columns_are_numbered(write: Write) -> None:
    path = write("5.1,3.5,setosa,7\n4.9,3.0,virginica,8\n")
    table = tables.read(path, labels="-2", ids="4")
    assert table.names == ("x0", "x1")
    assert not table.named
    assert table.labels.tolist() == ["setosa", "virginica"]
    assert table.ids.tolist() == ["7", "8"]
    assert table.place(0) == "line 1"
    assert tables.read(path, labels="x2", drop=["x3"]).names == ("x0", "x1")
    with pytest.raises(TableError, match=r"has no column '0'; .*it has 'x0', 'x1', 'x2', 'x3'"):
        tables.read(path, labels="0")


@pytest.mark.parametrize(
    ("content", "names", "rows", "noticed"),
    [
        ("0,1,2\n5,6,7\n8,9,1\n", ("0", "1", "2"), 2, True),
        ("0,1,kind\n5.5,6,a\n8,9.5,b\n", ("0", "1"), 2, True),
        ("age,2019,2020,kind\n5,6,7,a\n8,9,1,b\n", ("age", "2019", "2020"), 2, True),
        ("0,1,a\n1,0,b\n", ("x0", "x1"), 2, False),
        ("0,1,a\n1,1,b\n", ("x0", "x1"), 2, False),
        ("3,1,a\n1,0,b\n", ("x0", "x1"), 2, False),
    ],
)
def test_numbers_as_column_names_are_told_from_data(
    content: str, names: tuple[str, ...], rows: int, noticed: bool, write: Write
) -> None:
    labels = None if content.startswith("0,1,2") else "-1"
    table = tables.read(write(content), labels=labels)
    assert table.names == names
    assert len(table.X) == rows
    assert any("read as column names" in notice for notice in table.notices) is noticed


def test_cp1252_is_read_with_a_notice_that_names_the_line(write: Write) -> None:
    table = tables.read(write("größe,b\n1,2\n3,4\n".encode("cp1252")))
    assert table.names == ("größe", "b")
    assert re.search(r"data\.csv, line 1: not UTF-8; read as Windows-1252", table.notices[0])
    undefined = tables.read(write(b"a,kind\n1,\x81\n3,x\n"), labels="kind")
    assert undefined.labels.tolist() == ["\x81", "x"]


def test_quoted_separators_newlines_and_quotes_are_text_and_lines_stay_right(write: Write) -> None:
    content = 'a,"the\nlabel"\n1,"x, ""y""\n\nz"\n\n2,w\nq,v\n'
    with pytest.raises(TableError, match=r"line 8, column 'a': 'q' is not a number"):
        tables.read(write(content), labels="the\nlabel")
    table = tables.read(write(content.replace("q,", "5,")), labels="the\nlabel")
    assert table.labels.tolist() == ['x, "y"\n\nz', "w", "v"]
    assert [table.place(row) for row in range(3)] == ["line 3", "line 7", "line 8"]


def test_decimal_commas_leave_texts_alone(write: Write) -> None:
    table = tables.read(write('a;kind\n1,5;"x,y"\n2;z\n'), labels="kind")
    np.testing.assert_array_equal(table.X, [[1.5], [2.0]])
    assert table.labels.tolist() == ["x,y", "z"]


def test_labels_are_stripped_texts_and_none_where_missing(write: Write) -> None:
    table = tables.read(write("a,y\n1, k \n2,\n3,NA\n4,?\n5,01\n"), labels="y")
    assert table.labels.tolist() == ["k", None, None, None, "01"]


def test_columns_are_chosen_by_name_number_and_list(write: Write) -> None:
    path = write('a,b,c,"d,e"\n1,2,3,4\n5,6,7,8\n')
    assert tables.read(path, drop=["b", "d,e"]).names == ("a", "c")
    assert tables.read(path, drop=["a,c"]).names == ("b", "d,e")
    assert tables.read(path, features=["c", "1"]).names == ("c", "a")
    np.testing.assert_array_equal(tables.read(path, features=["c", "1"]).X, [[3, 1], [7, 5]])
    assert tables.read(path, known=["b", "a"]).names == ("b", "a")
    assert "does not use 'c', 'd,e'" in tables.read(path, known=["b", "a"]).notices[0]
    with pytest.raises(TableError, match=r"lacks 'z' of the 2 columns that the model .*; it has 'a', 'b'"):
        tables.read(path, known=["b", "z"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": "B"}, "no column 'B'; did you mean 'b'"),
        ({"labels": "nonsense"}, "no column 'nonsense'; it has 'a', 'b', 'c'"),
        ({"labels": "4"}, "no column '4'"),
        ({"ids": "-4"}, "no column '-4'"),
        ({"labels": "a", "drop": ["a"]}, "'a' cannot be the label and left out"),
        ({"ids": "a", "features": ["a"]}, "'a' cannot be the id and a feature"),
        ({"drop": ["a"], "features": ["a"]}, "'a' is both asked for and left out"),
        ({"drop": ["a,b,c"]}, "no column is left"),
    ],
)
def test_wishes_that_cannot_be_met(arguments: dict[str, object], message: str, write: Write) -> None:
    with pytest.raises(TableError, match=re.escape(message)):
        tables.read(write("a,b,c\n1,2,3\n4,5,6\n"), **arguments)


BAD = {
    "empty": ("", r"data\.csv is empty"),
    "blank": ("\n \n\n", r"data\.csv is empty"),
    "only a byte order mark": (b"\xef\xbb\xbf", r"data\.csv is empty"),
    "header only": ("a,b\n", r"data\.csv: the file has no rows of data"),
    "one row": ("a,b\n1,2\n", r"data\.csv, line 2: the file has one row of data; at least 2"),
    "ragged, long": ("a,b\n1,2\n\n3,4,5\n", r"line 4 has 3 fields, but the header in line 1 has 2"),
    "ragged, short": ("a,b\n1,2\n3\n", r"line 3 has 1 field, but the header in line 1 has 2"),
    "ragged without header": ("1,2\n3,4\n5,6,7\n", r"line 3 has 3 fields, but 2 are expected"),
    "R's row names": ("a,b\nr1,1,2\nr2,3,4\n", r"line 2 has 3 fields, but the header in line 1 has 2"),
    "duplicate names": ("a,b,a\n1,2,3\n4,5,6\n", r"line 1: columns 1 and 3 are both called 'a'"),
    "text": ("a,b\n1,2\n3,x y\n", r"line 3, column 'b': 'x y' is not a number.*--drop b .*--labels"),
    "text in a column with blanks": ("a,b c\n1,2\n3,x\n", r"line 3, column 'b c'.*--drop 'b c'"),
    "empty cell": ("a,b\n1,2\n\n3,\n", r"line 4, column 'b': the value is missing.*--drop b"),
    "NA": ("a,b\n1,NA\n3,4\n", r"line 2, column 'b': the value is missing"),
    "nan": ("a,b\n1,2\n3,NaN\n", r"line 3, column 'b': the value is missing"),
    "question mark": ("a,b\n1,2\n3,?\n", r"line 3, column 'b': the value is missing"),
    "null": ("a,b\n1,2\nnull,2\n", r"line 3, column 'a': the value is missing"),
    "infinite": ("a,b\n1,2\n3,-inf\n", r"line 3, column 'b': '-inf' is infinite"),
    "too large": ("a,b\n1,2\n3,1e400\n", r"line 3, column 'b': '1e400' is infinite or too large"),
    "underscore": ("a,b\n1,2\n3,1_000\n", r"line 3, column 'b': '1_000' is not a number"),
    "percent": ("a,b\n1,2\n3,4%\n", r"line 3, column 'b': '4%' is not a number"),
    "quote not closed": ('a,b\n1,2\n3,"4\n5,6\n', r"line 3, column 'b': '4\\n5,6' is not a number"),
    "quote not closed, wide": ('a,b\n1,2\n"3,4\n5,6\n', r"line 3 has 1 field.*quotation mark opened"),
    "endless quote": ('a,b\n1,2\n3,"4' + "x" * 200_000, r"line 3: .*quotation mark opened there"),
    "zero byte": (b"a,b\n1,2\n3,\x004\n", r"line 3: there is a zero byte"),
    "UTF-16 without mark": ("a,b\n1,2\n".encode("utf-16-le"), r"line 1: there is a zero byte"),
    "damaged UTF-16": ("a,b\n1,2\n".encode("utf-16")[:-1], r"begins as UTF-16 text, but is damaged"),
    "binary": (b"\x89PNG\r\n\x1a\n\x01\x02\xff\xfe\x07", r"line 1: this is not a text file"),
    "NumPy called CSV": (b"\x93NUMPY\x01\x00", r"not text but binary.*right suffix"),
    "damaged gzip": (gzip.compress(b"a,b\n1,2\n" * 99)[:-9], r"damaged gzip"),
    "a title above": ("My data\na,b\n1,2\n3,4\n", r"line 2 has 2 fields, but the header in line 1 has 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_with_its_line(name: str, write: Write) -> None:
    content, message = BAD[name]
    path = write(content)
    with pytest.raises(TableError, match=message) as caught:
        tables.read(path)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_a_cell_that_is_huge_is_cut_in_the_message(write: Write) -> None:
    with pytest.raises(TableError, match=r"'x{20}") as caught:
        tables.read(write("a,b\n1,2\n3," + "x" * 100_000 + "\n"))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,a\np,1\nq,2\np,3\n", r"line 4, column 'id': the id 'p' was already given in line 2"),
        ("id,a\np,1\n,2\n", r"line 3, column 'id': the id is empty"),
        ("id,a\np,1\n" + "q" * 1001 + ",2\n", r"line 3, column 'id': the id has 1001 characters"),
    ],
)
def test_ids_are_unique_and_not_empty(content: str, message: str, write: Write) -> None:
    with pytest.raises(TableError, match=message):
        tables.read(write(content), ids="id")


def test_ids_are_text_as_written(write: Write) -> None:
    table = tables.read(write("id,a\n007,1\nNA,2\n123456789012345678901234567890,3\n"), ids="id")
    assert table.ids.tolist() == ["007", "NA", "123456789012345678901234567890"]


def test_paths_that_are_no_files(tmp_path: Path, write: Write) -> None:
    with pytest.raises(TableError, match=r"absent\.csv: there is no such file"):
        tables.read(str(tmp_path / "absent.csv"))
    with pytest.raises(TableError, match="is a folder, not a file"):
        tables.read(str(tmp_path))
    with pytest.raises(TableError, match="cannot be read"):
        tables.read("a\0b")
    with pytest.raises(TableError, match=r"\.xlsx files are not read; save it as \.csv"):
        tables.read(write(b"PK\x03\x04", "data.xlsx"))


def test_an_unknown_suffix_is_read_by_its_content(write: Write, tmp_path: Path) -> None:
    assert tables.read(write("1,2\n3,4\n", "iris.data")).X.shape == (2, 2)
    buffer = io.BytesIO()
    np.save(buffer, np.eye(3))
    assert tables.read(write(buffer.getvalue(), "array.bin")).X.shape == (3, 3)


def test_a_format_is_a_line_and_a_module(
    monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path
) -> None:
    """As CONTRIBUTING says; reading, writing, messages and help know it then."""
    module = types.ModuleType("nearwise.data.json_lines")
    module.read = lambda source, data: Frame(
        source, {"a": np.array([json.loads(line)["a"] for line in data.splitlines()])}, ("a",)
    )
    module.write = lambda columns: "".join(f'{{"a": {a}}}\n' for a in columns["a"]).encode()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = write('{"a": 1}\n{"a": 2.5}\n', "rows.jsonl")
    with pytest.raises(TableError, match=r"\.jsonl files are not read"):
        tables.read(path)
    added = formats.Format(".jsonl", b"", "json_lines.read", "json_lines.write")
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, added))
    np.testing.assert_array_equal(tables.read(path).X, [[1.0], [2.5]])
    tables.write(str(tmp_path / "new.jsonl"), ["a"], [[3.0], [4.0]], force=False)
    np.testing.assert_array_equal(tables.read(str(tmp_path / "new.jsonl")).X, [[3.0], [4.0]])
    with pytest.raises(TableError, match=r"save it as .* or \.jsonl"):
        tables.read(write("", "data.xlsx"))
    with pytest.raises(TableError, match=r"must end in .*, \.jsonl "):
        tables.write(str(tmp_path / "t.xlsx"), ["a"], [[1.0]], force=False)
    assert ".jsonl" in formats.listed()


@pytest.mark.parametrize("kind", ["csv", "npy", "gzip"])
def test_standard_input(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([[1.0, 2.0], [3.0, 4.0]]))
    data = {"csv": b"a,b\n1,2\n3,4\n", "npy": buffer.getvalue(), "gzip": gzip.compress(b"a,b\n1,2\n3,4\n")}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data[kind])))
    np.testing.assert_array_equal(tables.read("-").X, [[1, 2], [3, 4]])
    with pytest.raises(TableError, match="standard input is empty"):
        tables.read("-")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint64, bool, ">f8", np.float16])
def test_arrays_of_every_real_type(dtype: object, tmp_path: Path) -> None:
    array = np.array([[1, 0], [0, 1], [1, 1]], dtype=dtype)
    table = tables.read(saved(tmp_path / "a.npy", array))
    assert table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X, array.astype(float))
    assert (table.names, table.scalars, table.named) == (("x0", "x1"), False, False)
    assert table.place(2) == "row 2"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"shape \(3,\); a matrix"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros((3, 0)), r"shape \(3, 0\)"),
        (np.zeros((0, 3)), "no rows"),
        (np.zeros((1, 3)), "row 0: the file has one row"),
        (np.zeros((2, 2), complex), "complex128; real numbers"),
        (np.array([["a", "b"]]), "real numbers are needed"),
        (np.array([[1.0, np.nan], [1, 1]]), "row 0, column 'x1': the value is missing"),
        (np.array([[1.0, 1], [-np.inf, 1]]), "row 1, column 'x0': the value is infinite"),
    ],
)
def test_arrays_that_cannot_be_used(array: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=message):
        tables.read(saved(tmp_path / "a.npy", array))


def test_python_objects_are_refused_and_damage_is_named(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([[object()]]), allow_pickle=True)
    with pytest.raises(TableError, match="Python objects, which are not read"):
        tables.read(str(path))
    for name in ("b.npy", "b.npz"):
        with pytest.raises(TableError, match="is damaged"):
            tables.read(write(saved_bytes(np.eye(5))[:100], name))


def saved_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_npz_has_labels_and_ids_by_the_name_of_the_array(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    X = np.arange(6.0).reshape(3, 2)
    np.savez(path, X=X, y=np.array([0, 1, 0]), who=np.array([10, 11, 12]), other=np.zeros((9, 9)))
    table = tables.read(path, labels="y", ids="who")
    np.testing.assert_array_equal(table.X, X)
    assert table.labels.tolist() == ["0", "1", "0"]
    assert table.ids.tolist() == ["10", "11", "12"]
    np.savez(path, embedding=X)
    np.testing.assert_array_equal(tables.read(path).X, X)
    np.savez(path, a=X, b=X)
    with pytest.raises(TableError, match=r"no array X and not one matrix, but a \(3, 2\), b \(3, 2\)"):
        tables.read(path)


def test_data_sets_by_name(load_dataset: Callable[[str], datasets.Dataset]) -> None:
    table = tables.read("dataset:iris", labels="target")
    assert table.X.shape == (150, 4)
    assert table.names[0] == "sepal length (cm)"
    assert sorted(set(table.labels)) == ["setosa", "versicolor", "virginica"]
    assert table.scalars
    assert load_dataset("balance_scale").X.shape == tables.read("dataset:balance_scale").X.shape
    with pytest.raises(TableError, match="no data set is called 'nonsense'"):
        tables.read("dataset:nonsense")


class TestParquet:
    """Parquet files, which need pyarrow."""

    @pytest.fixture(autouse=True)
    def modules(self) -> None:
        self.pa = pytest.importorskip("pyarrow")
        self.pq = pytest.importorskip("pyarrow.parquet")

    def file(self, path: Path, **columns: object) -> str:
        self.pq.write_table(self.pa.table(columns), path / "t.parquet")
        return str(path / "t.parquet")

    def test_columns_of_every_numeric_type(self, tmp_path: Path) -> None:
        pa = self.pa
        path = self.file(
            tmp_path,
            who=pa.array([2**60, 7], pa.int64()),
            kind=pa.array(["k", None]).dictionary_encode(),
            a=pa.array([1, 2], pa.int8()),
            b=pa.array([0.5, 1.5], pa.float32()),
            c=pa.array([True, False]),
            d=pa.array(["1.25", "2.5"]).cast(pa.decimal128(5, 2)),
        )
        table = tables.read(path, labels="kind", ids="who")
        np.testing.assert_array_equal(table.X, [[1, 0.5, 1, 1.25], [2, 1.5, 0, 2.5]])
        assert table.ids.tolist() == [str(2**60), "7"]
        assert table.labels.tolist() == ["k", None]
        assert (table.names, table.scalars) == (("a", "b", "c", "d"), True)

    @pytest.mark.parametrize("kind", ["list", "large_list", "fixed", "tensor"])
    def test_one_column_of_vectors(self, kind: str, tmp_path: Path) -> None:
        pa = self.pa
        vectors = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
        column = {
            "list": lambda: pa.array(vectors, pa.list_(pa.float32())),
            "large_list": lambda: pa.array(vectors, pa.large_list(pa.float64())),
            "fixed": lambda: pa.array(vectors, pa.list_(pa.float32(), 2)),
            "tensor": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(vectors)),
        }[kind]()
        path = self.file(tmp_path, who=pa.array(["p", "q", "r"]), v=column)
        table = tables.read(path, ids="who")
        np.testing.assert_array_equal(table.X, vectors)
        assert (table.names, table.scalars) == (("x0", "x1"), False)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"v": [[1.0], [2.0, 3.0]]}, r"row 1, column 'v': the vector has 2 numbers, but row 0 has 1"),
            ({"v": [[1.0], None]}, r"row 1, column 'v': the vector has 0 numbers, but row 0 has 1"),
            ({"v": [[1.0, 2.0], [3.0, None]]}, r"row 1, column 'v': a number of the vector is missing"),
            ({"v": [[1.0, 2.0], [3.0, np.inf]]}, r"row 1, column 'x1': the value is infinite"),
            ({"v": [[], []]}, r"column 'v' holds lists of null; vectors of numbers are needed"),
            ({"a": [1.0, 2.0], "n": [None, None]}, r"row 0, column 'n': the value is missing.*fill it in"),
            (
                {"a": [1.0, 2.0], "n": [None, "x"]},
                r"'n': 'x' is not a number \(row 1, .*the value is missing \(row 0",
            ),
            ({"v": [[], [], [1.0]]}, r"row 0, column 'v': the vector has 0 numbers"),
            ({"v": [["a"], ["b"]]}, r"lists of string"),
            ({"v": [[1.0], [2.0]], "a": [1, 2]}, r"'v' holds vectors.*'a'.*--features or --drop"),
            ({"a": [1.0, None]}, r"row 1, column 'a': the value is missing"),
            ({"a": [1.0, float("nan")]}, r"row 1, column 'a': the value is missing"),
            ({"a": ["x", "y"]}, r"column 'a': 'x' is not a number.*--drop a"),
            ({"a": [1.0]}, r"row 0: the file has one row"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_row(
        self, columns: dict[str, list[object]], message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(TableError, match=message):
            tables.read(self.file(tmp_path, **columns))

    def test_what_pandas_and_polars_write(self, tmp_path: Path) -> None:
        pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
        path = str(tmp_path / "f.parquet")
        pandas.DataFrame({"a": [1, 2], "b": [0.5, 1]}, index=["p", "q"]).to_parquet(path)
        table = tables.read(path)
        assert table.names == ("a", "b")
        assert "the index of pandas is not used" in table.notices[0]
        assert tables.read(path, ids="__index_level_0__").ids.tolist() == ["p", "q"]
        polars.DataFrame({"id": ["p", "q"], "v": [[1.0, 2.0], [3.0, 4.0]]}).write_parquet(path)
        np.testing.assert_array_equal(tables.read(path, ids="id").X, [[1, 2], [3, 4]])

    def test_damage_and_standard_input(
        self, tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(TableError, match="damaged, or not a Parquet file"):
            tables.read(write(b"PAR1 nonsense", "f.parquet"))
        data = Path(self.file(tmp_path, a=[1, 2])).read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        np.testing.assert_array_equal(tables.read("-").X, [[1], [2]])


def test_without_pyarrow_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r'pip install "nearwise\[tables\]"'):
        tables.read(write(b"PAR1", "f.parquet"))
    with pytest.raises(TableError, match=r'pip install "nearwise\[tables\]"'):
        tables.write(str(tmp_path / "g.parquet"), ["a"], [[1.0]], force=False)


numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1).filter(
    lambda text: (
        text.strip() == text
        and text.casefold() not in ("", "?", "na", "n/a", "nan", "null", "none", "<na>", "#n/a")
    )
)


@pytest.mark.long
@given(
    rows=st.lists(st.tuples(numbers, words, numbers), min_size=2, max_size=8),
    separator=st.sampled_from(",;\t|"),
    decimal_comma=st.booleans(),
)
def test_what_the_csv_module_writes_is_read_back_by_both_readers(
    rows: list[tuple[float, str, float]], separator: str, decimal_comma: bool
) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, lineterminator="\n")
    writer.writerow(["first", "word", "second"])
    decimal_comma = decimal_comma and separator != ","
    for first, word, second in rows:
        cells = [repr(first), word, repr(second)]
        writer.writerow(
            [cell.replace(".", ",") if decimal_comma and cell is not word else cell for cell in cells]
        )
    frames = [
        TextFrame(
            source="f",
            columns={"first": 0, "word": 1, "second": 2},
            features=("first", "word", "second"),
            separator=separator,
            rows=buffer.getvalue().split("\n")[:-1],
            head=1,
        )
        for _ in range(2)
    ]
    numerals = Numerals("," if decimal_comma else ".")
    quick = frames[0].matrix(["first", "second"], [numerals.decimal], certain=True)
    cells = [frames[1].texts(name).tolist() for name in ("first", "second")]
    slow = np.stack([values(column, "number", numerals)[0] for column in cells], axis=1)
    expected = np.array([(first, second) for first, _, second in rows])
    for X, frame in zip((quick, slow), frames, strict=True):
        np.testing.assert_array_equal(X, expected)
        assert frame.texts("word").tolist() == [word for _, word, _ in rows]
        ends = np.cumsum([word.count("\n") + 1 for _, word, _ in rows])
        assert frame.lines.tolist() == [2, *(ends[:-1] + 2)]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('ab"c', 'ab"c'),
        ('"ab"c', "abc"),
        ('"a""b"', 'a"b'),
        ('a""b', 'a""b'),
        ('""', ""),
        ("'a'", "'a'"),
        ('"a,\n\nb"', "a,\n\nb"),
        ("a\u2028b\x0cc\x85", "a\u2028b\x0cc\x85"),
    ],
)
def test_both_readers_agree_on_odd_quotes_and_line_ends(cell: str, text: str) -> None:
    content = f"w,n\n{cell},1\n\nz,2\n".encode()
    quick, slow = text_files.read("f", content), text_files.read("f", content)
    assert quick.matrix(["n"]).tolist() == [[1.0], [2.0]]
    assert slow.texts("n").tolist() == ["1", "2"]
    for frame in (quick, slow):
        assert frame.texts("w").tolist() == [text.strip() or None, "z"]
        assert frame.lines.tolist() == [2, 4 + cell.count("\n")]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.npz", "t.npy"])
def test_what_is_written_is_read_back_bit_by_bit(name: str, tmp_path: Path) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    X = np.random.default_rng(0).normal(size=(5000, 3)) * 10.0 ** np.array([-300, 0, 300])
    target = str(tmp_path / name)
    ids = np.array([f'p,"{row}"' for row in range(len(X))])
    labels = np.array(["k", "l"], dtype=object)[np.arange(len(X)) % 2]
    alone = name.endswith("npy")
    extra = {} if alone else {"ids": ids, "labels": labels}
    tables.write(target, ["a", "b,c", "d"], X, force=False, **extra)
    table = tables.read(target, **({} if alone else {"ids": "id", "labels": "label"}))
    assert table.X.tobytes() == X.tobytes()
    if not alone:
        assert table.names == ("a", "b,c", "d")
        assert table.ids.tolist() == ids.tolist()
        assert table.labels.tolist() == labels.tolist()
    with pytest.raises(TableError, match="exists; give --force"):
        tables.write(target, ["a", "b,c", "d"], X, force=False)
    tables.write(target, ["a", "b,c", "d"], X + 1, force=True)
    np.testing.assert_array_equal(tables.read(target).X, X + 1)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"must end in \.csv, \.tsv"):
        tables.write(str(tmp_path / "t.xlsx"), ["a"], [[1.0]], force=False)
    with pytest.raises(TableError, match=r"holds no ids"):
        tables.write(str(tmp_path / "t.npy"), ["a"], [[1.0]], ids=["p"], force=False)
    with pytest.raises(TableError, match=r"columns 1 and 2 are both called 'id'"):
        tables.write(str(tmp_path / "t.csv"), ["id"], [[1.0]], ids=["p"], force=False)


def test_standard_output_is_csv(capsys: pytest.CaptureFixture[str]) -> None:
    tables.write("-", ["a", "b"], [[1.0, 0.1]], ids=["p"], force=False)
    assert capsys.readouterr().out == "id,a,b\np,1.0,0.1\n"


def test_fingerprints_change_with_what_they_are_of(write: Write) -> None:
    content = "id,a,b,y\np,1,2,k\nq,3,4,l\n"

    def fingerprint(text: str, **arguments: object) -> str:
        return tables.read(write(text), **({"ids": "id", "labels": "y"} | arguments)).fingerprint()

    others = [
        fingerprint(content.replace("3", "5")),
        fingerprint(content.replace("p", "r")),
        fingerprint(content.replace("k", "l")),
        fingerprint(content.replace("a,b", "b,a")),
        fingerprint(content, ids=None, drop=["id"]),
    ]
    first = fingerprint(content)
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert first == fingerprint(content.replace("3", "3.0"))
    assert len({first, *others}) == 6
