"""Tables that lie about their size, hold formulas, or are cut: refused in one line, or written as text."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearwise import cli, tables
from nearwise._common import memory
from nearwise.data import frame
from nearwise.data.tables import TableError
from nearwise.distributed import open_vectors

ROWS = np.arange(12.0).reshape(4, 3)


def npy(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """An .npy file that says it has a shape."""
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + content


def npz(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def zeros(count: int) -> bytes:
    """An .npz file of many zeros, which is small."""
    return npz({"X.npy": npy((count, 1), bytes(8 * count))})


def parquet(rows: int) -> bytes:
    """A Parquet file of one number many times, which is small."""
    sink = pa.BufferOutputStream()
    dictionary = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([1.5]))
    pq.write_table(pa.table({"x": dictionary, "y": dictionary}), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


HUGE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "an array of 10^18 numbers": (
        ".npy",
        lambda: npy((10**9, 10**9)),
        "is damaged: it says that it holds an array of shape (1000000000, 1000000000), "
        "8,000,000,000,000,000,000 bytes, and has 0",
    ),
    "an array of more than 64 bits": (
        ".npy",
        lambda: npy((2**40, 2**40)),
        "is damaged: it says that it holds an array of shape (1099511627776, 1099511627776), ",
    ),
    "an array with one number too few": (
        ".npy",
        lambda: npy((4, 3), ROWS.tobytes()[:-8]),
        "is damaged: it says that it holds an array of shape (4, 3), 96 bytes, and has 88",
    ),
    "an array of negative length": (
        ".npy",
        lambda: npy((-4, -3), ROWS.tobytes()),
        "is damaged: it says that it holds an array of shape (-4, -3)",
    ),
    "a large array in an archive": (
        ".npz",
        lambda: npz({"X.npy": npy((10**9, 10**9))}),
        "is damaged: it says that it holds an array of shape (1000000000, 1000000000), ",
    ),
    "a zip bomb": (
        ".npz",
        lambda: zeros(100_000),
        "800,128 would come out of them, more than 100 times as many; unpack it first, if that is meant",
    ),
    "a gzip bomb": (
        ".csv.gz",
        lambda: gzip.compress(b"1,2\n" * 200_000),
        "would come out of them, more than 100 times as many; unpack it first, if that is meant",
    ),
    "a Parquet file of many rows": (
        ".parquet",
        lambda: parquet(50_000),
        "is too large: its content needs 0.0 GB of memory, and 0.0 GB are free",
    ),
}


@pytest.mark.parametrize("case", HUGE)
def test_sizes_are_checked_before_memory_is_set_aside(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix, make, text = HUGE[case]
    path = tmp_path / f"table{suffix}"
    path.write_bytes(make())
    monkeypatch.setattr(frame, "_ALWAYS", 10_000)
    monkeypatch.setattr(memory, "free_bytes", lambda: 700_000)
    monkeypatch.setattr(memory, "_SMALL", 0)
    tracemalloc.start()
    try:
        with pytest.raises(TableError) as refusal:
            tables.read(str(path))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert str(refusal.value).startswith(str(path))
    assert text in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.slow
def test_a_real_bomb_of_four_gigabytes(tmp_path: Path) -> None:
    """Without any monkey: 4 MB that unpack to 4 GB."""
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy((2**29, 1)))
        for _ in range(2**8):
            file.write(bytes(2**24))
    assert path.stat().st_size < 6_000_000
    with pytest.raises(TableError, match="more than 100 times as many"):
        tables.read(str(path))


def test_what_compresses_well_is_read(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    path.write_bytes(zeros(100_000))
    assert tables.read(str(path)).X.shape == (100_000, 1)


FORMATS: dict[str, Callable[[Path], None]] = {
    ".npy": lambda path: np.save(path, ROWS),
    ".npz": lambda path: np.savez(path, X=ROWS),
    ".parquet": lambda path: pq.write_table(pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]}), path),
    ".csv.gz": lambda path: path.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n5,6\n")) and None,  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("suffix", FORMATS)
def test_binary_tables_cut_at_every_percent(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{suffix}"
    FORMATS[suffix](path)
    content = path.read_bytes()
    for percent in range(100):
        path.write_bytes(content[: len(content) * percent // 100])
        with pytest.raises(TableError) as refusal:
            tables.read(str(path))
        assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("suffix", FORMATS)
def test_binary_tables_with_flipped_bits_are_read_or_refused(suffix: str, tmp_path: Path) -> None:
    """These formats have no digest: another number cannot be told from the right one, but that is all."""
    path = tmp_path / f"table{suffix}"
    FORMATS[suffix](path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for bit in rng.integers(0, 8 * len(content), size=250).tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with contextlib.suppress(TableError):
            assert np.isfinite(tables.read(str(path)).X).all()


@pytest.mark.parametrize("suffix", FORMATS)
def test_binary_tables_with_bytes_missing_are_read_or_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{suffix}"
    FORMATS[suffix](path)
    content = path.read_bytes()
    for start in range(0, len(content), max(len(content) // 50, 1)):
        path.write_bytes(content[:start] + content[start + 71 :])
        with contextlib.suppress(TableError):
            assert np.isfinite(tables.read(str(path)).X).all()


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_parquet_files_with_any_byte_of_their_end_changed_are_read_or_refused(
    compression: str, tmp_path: Path
) -> None:
    """What pyarrow is asked about a file's size must not end the process, as some of its answers do."""
    path = tmp_path / "table.parquet"
    columns = {"id": ["a", "b", "c"], "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}
    pq.write_table(pa.table(columns), path, compression=compression)
    content = path.read_bytes()
    for place in range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content) - 8):
        changed = bytearray(content)
        changed[place] = (changed[place] + 1) % 256
        path.write_bytes(changed)
        with contextlib.suppress(TableError):
            assert np.isfinite(tables.read(str(path), ids="id").X).all()


def test_parquet_text_that_is_not_utf8_is_named_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    wrong = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xe0a")]
    )
    pq.write_table(pa.table({"id": wrong, "x": [1.0, 2.0]}), path)
    with pytest.raises(
        TableError, match=r"table\.parquet, column 'id': a string cannot be read: 'utf-8' codec"
    ):
        tables.read(str(path), ids="id")
    path.rename(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows\.parquet, column 'id' cannot be read"):
        open_vectors(tmp_path / "rows.parquet", ids="id")


TEXT: dict[str, tuple[bytes, str | list[list[float]]]] = {
    "a byte-order mark": (b"\xef\xbb\xbfa,b\n1,2\n3,4\n", [[1.0, 2.0], [3.0, 4.0]]),
    "UTF-16 with its mark": ("\ufeffa,b\n1,2\n3,4\n".encode("utf-16-le"), [[1.0, 2.0], [3.0, 4.0]]),
    "a short row": (b"a,b\n1,2\n3\n5,6\n", "line 3"),
    "a long row": (b"a,b\n1,2\n3,4,5\n5,6\n", "line 3"),
    "a zero byte": (b"a,b\n1,2\n3,\x004\n", "line 3"),
    "an open quotation mark": (b'a,b\n1,2\n3,"4\n', [[1.0, 2.0], [3.0, 4.0]]),
    "an empty file": (b"", "is empty"),
    "a quotation mark": (b'"', "is empty"),
    "a separator for Excel and nothing else": (b'sep=;\n"\n', "is empty"),
    "a header only": (b"a,b\n", "row"),
    "no number": (b"a,b\n1,2\n3,nan\n", "line 3, column 'b'"),
    "infinity": (b"a,b\n1,2\n3,inf\n", "line 3, column 'b'"),
    "a number too large": (b"a,b\n1,2\n3,1e999\n", "line 3, column 'b'"),
    "a name with a line end": (b'a,"b\nc"\n1,2\n3,x\n', "'x' is not a number"),
    "two columns of one name": (b"a,a\n1,2\n3,4\n", "'a'"),
}


@pytest.mark.parametrize("case", TEXT)
def test_text_that_is_not_as_it_should_be(case: str, tmp_path: Path) -> None:
    content, expected = TEXT[case]
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    if isinstance(expected, list):
        np.testing.assert_array_equal(tables.read(str(path)).X, expected)
        return
    with pytest.raises(TableError) as refusal:
        tables.read(str(path))
    assert expected in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_ids_that_occur_twice_are_named(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,a,b\nx,1,2\nz,3,4\nx,5,6\n")
    with pytest.raises(TableError, match="'x'"):
        tables.read(str(path), ids="id")


# text that a spreadsheet runs, and what is written for it
FORMULAS = {
    "=1+1": "'=1+1",
    "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    "+SUM(A1)": "'+SUM(A1)",
    "-2+3": "'-2+3",
    "@SUM(A1)": "'@SUM(A1)",
    "\t=1": "'\t=1",
    "\r=1": "'\r=1",
    " =1": "' =1",
    "\tplain": "'\tplain",
    "-5": "-5",
    "+1.5e-3": "+1.5e-3",
    "a=b": "a=b",
    "mail@example.org": "mail@example.org",
    "": "",
    "'quoted": "'quoted",
}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_formulas_are_written_as_text(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"out{suffix}"
    ids = np.array(list(FORMULAS))
    X = np.linspace(-1.0, 1.0, len(ids))[:, np.newaxis]
    said = tables.write(str(target), ["=x"], X, ids=ids, force=False)
    assert said == (
        f"{target}: 10 texts are written with an apostrophe in front, so that no spreadsheet runs them",
    )
    content = gzip.decompress(target.read_bytes()) if suffix.endswith(".gz") else target.read_bytes()
    rows = list(
        csv.reader(io.StringIO(content.decode(), newline=""), delimiter="\t" if suffix == ".tsv" else ",")
    )
    assert rows[0] == ["id", "'=x"]
    assert [row[0] for row in rows[1:]] == list(FORMULAS.values())
    np.testing.assert_array_equal([float(row[1]) for row in rows[1:]], X[:, 0])  # numbers keep their sign


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_other_formats_hold_them_as_they_are(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"out{suffix}"
    ids = np.array([name for name in FORMULAS if name and name == name.strip()], dtype=object)
    assert tables.write(str(target), ["x"], np.ones((len(ids), 1)), ids=ids, force=False) == ()
    assert list(tables.read(str(target), ids="id").ids) == list(ids)


def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import nearwise as nw

    rng = np.random.default_rng(0)
    lines = [f"={k}+1,{a},{b}" for k, (a, b) in enumerate(rng.normal(size=(6, 2)))]
    (tmp_path / "data.csv").write_text("name,a,b\n" + "\n".join(lines) + "\n")
    model: Any = nw.MetricLearner(penalty=1.0, random_state=0)
    nw.save(model.fit(rng.normal(size=(20, 2)), np.arange(20) % 2), tmp_path / "model")
    words = [
        str(tmp_path / "model"),
        str(tmp_path / "data.csv"),
        "-o",
        str(tmp_path / "out.csv"),
        "--id",
        "name",
    ]
    note = "texts are written with an apostrophe in front"
    assert cli.main(["apply", *words]) == 0
    assert f"6 {note}" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("'=0+1,")
    (tmp_path / "pairs.csv").write_text("=0+1,=1+1\n=2+1,=3+1\n")
    pairs = ["--pairs", str(tmp_path / "pairs.csv"), "--threshold", "1", "--force"]
    assert cli.main(["decide", *words, *pairs]) == 0
    assert f"4 {note}" in capsys.readouterr().err
