"""How numbers are written in text files: decided from all numbers that are read, never guessed silently."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import nearwise as nw
from nearwise import cli
from nearwise.data import side_files, tables
from nearwise.data.numerals import Numerals, number
from nearwise.data.side_files import Objects, Reading
from nearwise.data.tables import TableError

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the working folder and returns its name."""
    monkeypatch.chdir(tmp_path)

    def file(content: str, name: str = "data.tsv") -> str:
        Path(name).write_text(content, encoding="utf-8")
        return name

    return file


def column(*cells: str, other: tuple[str, ...] = ()) -> str:
    """A table with the cells in column a, and others in b."""
    beside = other or ("1",) * len(cells)
    return "a\tb\n" + "".join(f"{cell}\t{second}\n" for cell, second in zip(cells, beside, strict=True))


@pytest.mark.parametrize(
    ("cells", "cell", "values", "mark"),
    [
        (("960", "4,161"), "4,161", "4161 or 4.161", "comma"),
        (("1,234", "-5,678"), "1,234", "1234 or 1.234", "comma"),
        (("960", "-4.161"), "-4.161", "-4161 or -4.161", "point"),
        (("1.234", "4,161"), "4,161", "4161 or 4.161", "comma"),
    ],
)
def test_what_may_be_thousands_or_decimals_is_refused(
    cells: tuple[str, str], cell: str, values: str, mark: str, write: Write
) -> None:
    with pytest.raises(TableError) as caught:
        tables.read(write(column(*cells)))
    message = str(caught.value)
    assert message.startswith(f"data.tsv, line {2 + cells.index(cell)}, column 'a': '{cell}' may be {values}")
    assert f"--thousands {mark} or --decimal {mark}" in message


def test_a_quoted_comma_is_refused_between_commas_too(write: Write) -> None:
    with pytest.raises(TableError, match=r"line 3, column 'b': '4,161' may be 4161 or 4\.161"):
        tables.read(write('a,b\n1,960\n2,"4,161"\n', "data.csv"))


@pytest.mark.parametrize(
    ("cells", "other", "expected"),
    [
        (("960", "4,161"), ("0,5", "2"), [960.0, 4.161]),
        (("960", "4.161"), ("0.5", "2"), [960.0, 4.161]),
        (("1,5", "4,161"), (), [1.5, 4.161]),
        (("0,161", "4,161"), (), [0.161, 4.161]),
        (("1234,567", "4,161"), (), [1234.567, 4.161]),
        (("1,234e2", "4,161"), (), [123.4, 4.161]),
    ],
)
def test_numbers_of_all_columns_decide(
    cells: tuple[str, str], other: tuple[str, ...], expected: list[float], write: Write
) -> None:
    table = tables.read(write(column(*cells, other=other)))
    assert table.X[:, 0].tolist() == expected
    assert table.notices == ()


def test_points_with_three_digits_alone_are_decimals_with_a_note(write: Write) -> None:
    table = tables.read(write(column("1.234", "-5.678")))
    assert table.X[:, 0].tolist() == [1.234, -5.678]
    (notice,) = table.notices
    assert "line 2, column 'a': '1.234' is read with a decimal point" in notice
    assert "--thousands point" in notice


@pytest.mark.parametrize(
    ("cells", "other", "wrong", "mark", "expected"),
    [
        (("960", "4,161"), ("0.5", "2"), "4,161", "comma", [960.0, 4161.0]),
        (("960", "4.161"), ("0,5", "2"), "4.161", "point", [960.0, 4161.0]),
        (("1.234,5", "-4.161"), (), "1.234,5", "point", [1234.5, -4161.0]),
        (("1,234.5", "-4,161"), (), "1,234.5", "comma", [1234.5, -4161.0]),
        (("1,234,567", "4,161"), (), "1,234,567", "comma", [1234567.0, 4161.0]),
        (("1.234.567", "4.161"), (), "1.234.567", "point", [1234567.0, 4161.0]),
        (("1 234", "4 161,5"), (), "1 234", "space", [1234.0, 4161.5]),
        (("1 234", "4,161"), (), "1 234", "space", [1234.0, 4.161]),
        (("1\u202f234", "4\u00a0161"), (), "1\u202f234", "space", [1234.0, 4161.0]),
        (("1'234", "+4\u2019161.5"), (), "1'234", "apostrophe", [1234.0, 4161.5]),
    ],
)
def test_thousands_are_read_where_the_user_says_their_mark(
    cells: tuple[str, str],
    other: tuple[str, ...],
    wrong: str,
    mark: str,
    expected: list[float],
    write: Write,
) -> None:
    path = write(column(*cells, other=other))
    with pytest.raises(TableError) as caught:
        tables.read(path)
    message = str(caught.value)
    assert message.startswith(
        f"data.tsv, line {2 + cells.index(wrong)}, column 'a': {wrong!r} is not a number"
    )
    assert f"give --thousands {mark}" in message
    table = tables.read(path, thousands=mark)
    assert table.X[:, 0].tolist() == expected
    assert table.notices == ()


def test_a_proof_far_down_the_file_counts(write: Write) -> None:
    many = ["960", "4,161"] * 200
    table = tables.read(write(column(*many, "1,5")))
    assert table.X[:, 0].tolist() == [960.0, 4.161] * 200 + [1.5]
    with pytest.raises(TableError, match=r"line 403, column 'a': '1\.234,5' .*--thousands point"):
        tables.read(write(column(*many, "1,5", "1.234,5")))


def test_columns_that_are_no_features_do_not_decide(write: Write) -> None:
    path = write("a\tb\tc\n960\t1,5\tx\n4,161\t2,5\ty\n")
    assert tables.read(path, labels="c").X[1, 0] == 4.161
    for wishes in (
        {"drop": ["b", "c"]},
        {"features": ["a"]},
        {"labels": "b", "drop": ["c"]},
        {"known": ["a"]},
    ):
        with pytest.raises(TableError, match=r"column 'a': '4,161' may be 4161 or 4\.161"):
            tables.read(path, **wishes)
    plain = write("a\tb\n960\t1,5\n4.5\t2,5\n", "plain.tsv")
    assert tables.read(plain, drop=["b"]).X.tolist() == [[960.0], [4.5]]
    assert tables.read(plain, labels="b").labels.tolist() == ["1,5", "2,5"]


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"decimal": ","}, 4.161),
        ({"decimal": "comma"}, 4.161),
        ({"decimal": ".", "thousands": ","}, 4161.0),
        ({"thousands": "comma"}, 4161.0),
        ({"thousands": ""}, 4.161),
        ({"thousands": "none", "decimal": ","}, 4.161),
    ],
)
def test_who_says_it_is_believed_without_a_notice(
    wishes: dict[str, str], expected: float, write: Write
) -> None:
    table = tables.read(write(column("960", "4,161")), **wishes)
    assert table.X[:, 0].tolist() == [960.0, expected]
    assert table.notices == ()


@pytest.mark.parametrize(
    ("cells", "wishes", "message"),
    [
        (
            ("1,5", "2.5"),
            {},
            r"line 3, column 'a': '2\.5' and line 2, column 'a': '1,5' are not written",
        ),
        (
            ("1'234", "1 234"),
            {},
            r"line 2, column 'a': \"1'234\" is not a number.*--thousands apostrophe",
        ),
        (
            ("1,5", "2.5"),
            {"decimal": ","},
            r"'2\.5' is not a number with a decimal comma and nothing be",
        ),
        (
            ("1,50", "2"),
            {"thousands": ","},
            r"'1,50' is not a number with a decimal point and a comma be",
        ),
        (("1,234,5", "2"), {}, r"line 2, column 'a': '1,234,5' is not a number; correct it"),
        (("12,34,567", "2"), {}, r"line 2, column 'a': '12,34,567' is not a number; correct it"),
        (("12 34", "2"), {}, r"line 2, column 'a': '12 34' is not a number; correct it"),
        (("1,234,5", "2"), {"thousands": ","}, r"line 2, column 'a': '1,234,5' is not a number"),
        (("1", "2"), {"decimal": "x"}, r"decimal must be one of '\.', ',' or None, got 'x'"),
        (("1", "2"), {"thousands": "_"}, r"thousands must be one of .* or None, got '_'"),
        (("1", "2"), {"decimal": ",", "thousands": "comma"}, r"cannot both be the comma"),
    ],
)
def test_what_cannot_be_read_in_one_way_is_refused(
    cells: tuple[str, str], wishes: dict[str, str], message: str, write: Write
) -> None:
    with pytest.raises(TableError, match=message):
        tables.read(write(column(*cells)), **wishes)


marks = st.sampled_from([(".", ","), (",", "."), (",", " "), (".", "'"), (".", ""), (",", "")])


@pytest.mark.long
@given(value=st.integers(-(10**12), 10**12), places=st.integers(0, 6), written=marks)
def test_what_is_written_with_groups_is_read_back(value: int, places: int, written: tuple[str, str]) -> None:
    decimal, thousands = written
    text = f"{value:,}" + (f".{'123456'[:places]}" if places else "")
    expected = float(text.replace(",", ""))
    cell = text.translate(str.maketrans({",": thousands, ".": decimal}))
    assert number(cell, Numerals(decimal, thousands)) == expected


def test_distances_files_are_read_by_the_same_rule(write: Write) -> None:
    doubtful = write("0\t1\t960\n0\t2\t4,161\n", "distances.tsv")
    with pytest.raises(TableError, match=r"line 2, column 'x2': '4,161' may be 4161 or 4\.161"):
        side_files.read_distances(doubtful, Objects(3))
    for wishes, expected in (({"decimal": ","}, 4.161), ({"thousands": ","}, 4161.0)):
        side = side_files.read_distances(doubtful, Objects(3), Reading(squared=True, **wishes))
        assert side.constraints.bounds.tolist() == [960.0, expected]
    certain = write("0\t1\t0.5\n0\t2\t4,161\n", "certain.tsv")
    with pytest.raises(TableError, match=r"line 2, column 'x2': '4,161' is not a number.*--thousands comma"):
        side_files.read_distances(certain, Objects(3), Reading(squared=True))
    side = side_files.read_distances(certain, Objects(3), Reading(squared=True, thousands=","))
    assert side.constraints.bounds.tolist() == [0.5, 4161.0]


@pytest.mark.parametrize(
    "line",
    [
        "learn data.tsv --labels kind --held-out 0 -o new --json",
        "evaluate model data.tsv --labels kind --json",
        "apply model data.tsv --drop kind -o out.npy --json",
        "neighbors model data.tsv --drop kind -k 1 --json",
        "neighbors model plain.tsv --query data.tsv --drop kind -k 1 --json",
        "evaluate model plain.tsv --train data.tsv --labels kind --json",
    ],
)
def test_every_command_that_reads_a_table_asks_for_the_mark_and_takes_it(
    line: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(1, 999)}\t{4 + k % 2},{161 + k}\t{'xy'[k % 2]}\n" for k in range(24)]
    write("a\tb\tkind\n" + "".join(rows))
    write("a\tb\tkind\n" + "".join(row.replace(",", "") for row in rows), "plain.tsv")
    X = rng.standard_normal((9, 2))
    nw.save(nw.MetricLearner(penalty=1.0, random_state=0).fit(X, [0, 1, 2] * 3), "model")
    assert cli.main(shlex.split(line)) == cli.BAD_INPUT
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--thousands comma or --decimal comma" in error
    assert cli.main([*shlex.split(line), "--thousands", "comma"]) == cli.DONE
    assert json.loads(capsys.readouterr().out)["notices"] == []
    force = ["--force"] if "-o" in line else []
    assert cli.main([*shlex.split(line), "--decimal", ",", "--thousands", "comma", *force]) == cli.BAD_INPUT
    assert "cannot both be the comma" in capsys.readouterr().err


def test_the_next_command_of_learn_reads_as_learn_did(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a\tb\tkind\n" + "".join(f"{k}\t{1 + k},{161 + k}\t{'xy'[k % 2]}\n" for k in range(24)))
    assert cli.main(shlex.split("learn data.tsv --labels kind --decimal , -o model --json")) == cli.DONE
    following = shlex.split(json.loads(capsys.readouterr().out)["next"])
    assert cli.main(following[following.index("apply") :]) == cli.DONE
