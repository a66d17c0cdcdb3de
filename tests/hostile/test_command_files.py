"""Hostile files for the command line, one row a case: learned from, or one line that says why not."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import DONE, KINDS, REFUSED, ROWS, N, fill, run, text

import nearwise as nw


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("files"))


def table(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1], "kind": KINDS, **columns}), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


Made = Callable[[], bytes | str]
LEARN = ("learn", "FILE", "--labels", "kind", "--held-out", "0", "--penalty", "1", "--kernel", "linear")
BY_NAME = (*LEARN, "--id", "name")
NAMELESS = (*LEARN, "--drop", "name")

# how the file is called, what it holds, the command, and what is said about it; "" where the command is done
FILES: dict[str, tuple[str, Made, tuple[str, ...], str]] = {
    "text that is not UTF-8": (
        "a.csv",
        lambda: text().encode().replace(b"o3,", b"\xff\xfa,"),
        NAMELESS,
        "",
    ),
    "control characters": (
        "a.csv",
        lambda: b"a\x01\xff,kind\n1,u\n",
        LEARN,
        "line 1: this is not a text file",
    ),
    "a mark, CRLF and quotes": (
        "a.csv",
        lambda: "\ufeff" + text('"name","a","b","kind"').replace("\n", "\r\n"),
        NAMELESS,
        "",
    ),
    "columns like options": ("a.csv", lambda: text("name,--labels,-o,kind"), NAMELESS, ""),
    "ids with fractions": ("a.csv", lambda: text(ids=[k + 0.5 for k in range(N)]), BY_NAME, ""),
    "ids of 30 digits": ("a.csv", lambda: text(ids=[10**30 + k for k in range(N)]), BY_NAME, ""),
    "one id NaN": ("a.csv", lambda: text(ids=["NaN", *range(N - 1)]), BY_NAME, ""),
    "all ids NaN": (
        "a.csv",
        lambda: text(ids=["nan"] * N),
        BY_NAME,
        "the id 'nan' was already given in line 2",
    ),
    "blank ids": ("a.csv", lambda: text(ids=["  "] * N), BY_NAME, "the id is empty; every row needs an id"),
    "ids that differ in blanks": (
        "a.csv",
        lambda: text(ids=["x", "x ", *range(N - 2)]),
        BY_NAME,
        "the id 'x' was already given in line 2",
    ),
    "labels of mixed types": (
        "a.csv",
        lambda: text().replace(",u\n", ",1\n").replace(",v\n", ",x\n"),
        NAMELESS,
        "",
    ),
    "no labels": (
        "a.csv",
        lambda: text().replace(",u\n", ",\n").replace(",v\n", ",\n").replace(",w\n", ",\n"),
        NAMELESS,
        "no row has a label",
    ),
    "two columns of one name": ("a.csv", lambda: text("name,a,a,kind"), NAMELESS, "are both called 'a'"),
    "nothing": ("a.csv", lambda: b"", LEARN, "a.csv is empty"),
    "blank lines": ("a.csv", lambda: "\n\n \n", LEARN, "a.csv is empty"),
    "a quotation mark": ("a.csv", lambda: '"', LEARN, "a.csv is empty"),
    "a header": ("a.csv", lambda: "name,a,b,kind\n", LEARN, "the file has no rows of data"),
    "one row": ("a.csv", lambda: "a,b,kind\n1,2,u\n", LEARN, "the file has one row of data"),
    "a path of Unicode": ("d\u00e4t\u00e4 \u2603 \u8868.csv", text, NAMELESS, ""),
    "3,000 columns": (
        "a.csv",
        lambda: "\n".join(
            [",".join(["kind", *(f"c{k}" for k in range(3000))]), *(f"{kind}{',1' * 3000}" for kind in KINDS)]
        ),
        LEARN,
        "",
    ),
    "records": ("a.parquet", lambda: table(w=pa.array([{"x": 1}] * N)), LEARN, "row 0, column 'w'"),
    "maps": (
        "a.parquet",
        lambda: table(w=pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int32()))),
        LEARN,
        "row 0, column 'w'",
    ),
    "a gap": (
        "a.parquet",
        lambda: table(w=pa.array([None, *range(N - 1)])),
        LEARN,
        "row 0, column 'w': the value is",
    ),
    "a gap that is filled": (
        "a.parquet",
        lambda: table(w=pa.array([None, *range(N - 1)])),
        (*LEARN, "--missing", "impute"),
        "",
    ),
    "texts by dictionary": (
        "a.parquet",
        lambda: table(w=pa.array(["x", "y"] * (N // 2)).dictionary_encode()),
        LEARN,
        "row 0, column 'w': 'x' is not a number",
    ),
    "decimals": ("a.parquet", lambda: table(w=pa.array([Decimal("1.25")] * N)), LEARN, ""),
    "times": (
        "a.parquet",
        lambda: table(w=pa.array([datetime.datetime(2020, 1, 1)] * N)),
        LEARN,
        "column 'w'",
    ),
    "days after the year 9999": (
        "a.parquet",
        lambda: table(w=pa.array([10**7] * N, pa.int32()).cast(pa.date32())),
        LEARN,
        "column 'w': a date32[day] cannot be read: date value out of range",
    ),
    "bytes": ("a.parquet", lambda: table(w=pa.array([b"\xff"] * N)), LEARN, "row 0, column 'w'"),
    "a column of nothing": (
        "a.parquet",
        lambda: table(w=pa.nulls(N)),
        LEARN,
        "row 0, column 'w': the value is missing",
    ),
    "a label that is missing": ("a.parquet", lambda: table(kind=pa.array([None, *KINDS[1:]])), LEARN, ""),
    "labels yes and no": ("a.parquet", lambda: table(kind=[k % 2 == 0 for k in range(N)]), LEARN, ""),
    "a weight of 1e300": (
        "a.csv",
        lambda: "one,other,same,weight\no0,o3,1,1e300\no0,o1,0,1\n",
        ("learn", "good.csv", "--id", "name", "--drop", "kind", "--pairs", "FILE"),
        "a.csv, line 2: '1e300' is not a weight; 0 or a number from 1e-50 to 1e+50 is needed",
    ),
    "a negative weight": (
        "a.csv",
        lambda: "one,other,same,weight\no0,o3,1,-1\no0,o1,0,1\n",
        ("learn", "good.csv", "--id", "name", "--drop", "kind", "--pairs", "FILE"),
        "a.csv, line 2: '-1' is not a weight",
    ),
    "a rating that is none": (
        "a.csv",
        lambda: "one,other,rating\no0,o3,nan\no1,o3,4\n",
        ("learn", "good.csv", "--id", "name", "--drop", "kind", "--pairs", "FILE", "--similar-above", "2"),
        "a.csv, line 2: 'nan' is not a rating",
    ),
    "answers that differ": (
        "a.csv",
        lambda: "one,other,same\no0,o3,1\no3,o0,0\n",
        ("learn", "good.csv", "--id", "name", "--drop", "kind", "--pairs", "FILE"),
        "a.csv, line 3: 'o3' and 'o0' are similar and dissimilar; see line 2",
    ),
    "pairs of whole numbers that no double holds": (
        "a.csv",
        lambda: f"one,other,same\n{2**53},{2**53 + 1},1\n",
        ("learn", "good.csv", "--id", "name", "--drop", "kind", "--pairs", "FILE"),
        "a.csv, line 2: the id '9007199254740992' is not one of the data's ids",
    ),
    "a pair that nobody knows": (
        "a.csv",
        lambda: "one,other\no0,zz\n",
        ("decide", "model", "good.csv", "--id", "name", "--pairs", "FILE", "--threshold", "1"),
        "a.csv, line 2: the id 'zz' is not one of the data's ids",
    ),
    "pairs of one kind": (
        "a.csv",
        lambda: "one,other,same\no0,o3,1\no1,o4,1\n",
        ("decide", "model", "good.csv", "--id", "name", "--pairs", "pairs.csv", "--calibrate", "FILE"),
        "a.csv: all pairs are the same; both kinds are needed",
    ),
    "no pairs": (
        "a.csv",
        lambda: b"",
        ("decide", "model", "good.csv", "--id", "name", "--pairs", "FILE", "--threshold", "1"),
        "a.csv is empty",
    ),
    "an object and itself": (
        "a.csv",
        lambda: "one,other\no1,o1\n",
        ("decide", "model", "good.csv", "--id", "name", "--pairs", "FILE", "--threshold", "1"),
        "a.csv, line 2: the object 'o1' is paired with itself",
    ),
    "one row among which nothing is twice": (
        "a.csv",
        lambda: "name,a,b\nx,1,2\n",
        ("duplicates", "model", "FILE", "--id", "name", "--threshold", "1"),
        "the file has one row of data",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_hostile_files(
    case: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    name, make, words, expected = FILES[case]
    content = make()
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = ("-o", str(tmp_path / "out")) if words[0] == "learn" else ()
    code, _, lines = run(capsys, *(str(path) if word == "FILE" else word for word in words), *out, "--quiet")
    if expected:
        assert code == REFUSED
        assert len(lines) == 1
        assert expected in lines[0]
        assert [file.name for file in tmp_path.iterdir()] == [name]
    else:
        assert (code, lines) == (DONE, [])
        assert np.isfinite(nw.load(tmp_path / "out")[-1].metric_.factor).all()
