"""Hostile rows in files and in pieces, one row a case: learned from, or refused by file, row and column."""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.distributed import open_vectors
from nearwise.learners import _in_pieces

ROWS = np.random.default_rng(0).normal(size=(30, 3))
COLUMNS = {name: ROWS[:, k] for k, name in enumerate("abc")}
SIDE = c.similar([(0, 1), (2, 3)]) + c.dissimilar([(4, 5), (0, 7)])


def with_entry(value: float) -> Any:
    rows = ROWS.copy()
    rows[4, 1] = value
    return rows


def array(rows: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, rows)
    return buffer.getvalue()


def archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, X=ROWS)
    return buffer.getvalue()


def table(columns: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), sink, **options)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def beside(column: Any) -> bytes:
    return table({**COLUMNS, "w": column}, row_group_size=20)


def vectors(rows: list[Any], kind: Any = None) -> bytes:
    return table({"v": pa.array(rows, kind)})


LEARNED = ""
UNREADABLE = "FILE cannot be read: it is damaged, holds Python objects, or is no array that NumPy wrote"
NOT_PARQUET = "FILE is damaged, or not a Parquet file"
LENGTHS = "FILE: the vectors of column 'v' are not all of one length"
# suffix, content, and what is said
FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "doubles": (".npy", lambda: array(ROWS), LEARNED),
    "half precision": (".npy", lambda: array(ROWS.astype(np.float16)), LEARNED),
    "extended precision": (".npy", lambda: array(ROWS.astype(np.longdouble)), LEARNED),
    "the other byte order": (".npy", lambda: array(ROWS.astype(">f8")), LEARNED),
    "whole numbers": (
        ".npy",
        lambda: array(ROWS.astype(int)),
        "FILE must have rows of floating-point numbers",
    ),
    "one dimension": (".npy", lambda: array(ROWS[:, 0]), "FILE must have rows of floating-point numbers"),
    "records": (".npy", lambda: array(np.zeros(3, [("a", float)])), "FILE must have rows of floating-point"),
    "by columns": (".npy", lambda: array(np.asfortranarray(ROWS)), "FILE is stored by columns"),
    "no rows": (".npy", lambda: array(ROWS[:0]), "X has 0 rows of "),
    "no columns": (".npy", lambda: array(ROWS[:, :0]), "X has 30 rows of 0 columns; two rows and one column"),
    "one row": (".npy", lambda: array(ROWS[:1]), "X has 1 rows of 3 columns; two rows and one column"),
    "objects": (".npy", lambda: array(np.array([[1, "a"]], object)), UNREADABLE),
    "a pickle": (".npy", lambda: pickle.dumps([1, 2]), UNREADABLE),
    "text": (".npy", lambda: b"hello", UNREADABLE),
    "nothing": (".npy", lambda: b"", UNREADABLE),
    "cut": (".npy", lambda: array(ROWS)[:-9], UNREADABLE),
    "cut in its header": (".npy", lambda: array(ROWS)[:40], UNREADABLE),
    "an archive": (".npy", archive, UNREADABLE),
    "not a number": (
        ".npy",
        lambda: array(with_entry(np.nan)),
        "row 4: entry 1 is nan; every entry must be a finite number",
    ),
    "infinity": (
        ".npy",
        lambda: array(with_entry(np.inf)),
        "row 4: entry 1 is inf; every entry must be a finite number",
    ),
    "1e200": (".npy", lambda: array(ROWS * 1e200), "X has an entry of size "),
    "columns": (".parquet", lambda: table(COLUMNS), LEARNED),
    "encoded by dictionary": (".parquet", lambda: beside(pa.array([1.5] * 30).dictionary_encode()), LEARNED),
    "whole numbers of 64 bits": (".parquet", lambda: beside(pa.array([2**63] * 30, pa.uint64())), LEARNED),
    "vectors": (".parquet", lambda: vectors(ROWS.tolist()), LEARNED),
    "long vectors": (".parquet", lambda: vectors(ROWS.tolist(), pa.large_list(pa.float64())), LEARNED),
    "vectors of one length": (".parquet", lambda: vectors(ROWS.tolist(), pa.list_(pa.float64(), 3)), LEARNED),
    "a cut Parquet file": (".parquet", lambda: table(COLUMNS)[:-30], NOT_PARQUET),
    "text as Parquet": (".parquet", lambda: b"hello", NOT_PARQUET),
    "nothing as Parquet": (".parquet", lambda: b"", NOT_PARQUET),
    "texts": (".parquet", lambda: beside(["x"] * 30), "FILE: column 'w' holds string, not numbers"),
    "truth": (".parquet", lambda: beside([True] * 30), "FILE: column 'w' holds bool, not numbers"),
    "decimals": (
        ".parquet",
        lambda: beside(pa.array([1] * 30).cast(pa.decimal128(21, 2))),
        "FILE: column 'w' holds decimal128(21, 2), not numbers",
    ),
    "times": (
        ".parquet",
        lambda: beside(pa.array([1] * 30).cast(pa.timestamp("ms"))),
        "FILE: column 'w' holds timestamp[ms], not numbers",
    ),
    "records in Parquet": (".parquet", lambda: vectors([{"a": 1.0}] * 30), "FILE: column 'v' holds struct<"),
    "a value that is missing": (
        ".parquet",
        lambda: beside(pa.array([*([1.0] * 25), None, *([1.0] * 4)])),
        "FILE, row 25, column 'w': nan is no number to learn from",
    ),
    "a whole number that is missing": (
        ".parquet",
        lambda: beside(pa.array([None, *([1] * 29)])),
        "FILE, row 0, column 'w': nan is no number to learn from",
    ),
    "a vector that is missing": (".parquet", lambda: vectors([*ROWS[1:].tolist(), None]), LENGTHS),
    "a vector of one length that is missing": (
        ".parquet",
        lambda: vectors([*ROWS[1:].tolist(), None], pa.list_(pa.float64(), 3)),
        LENGTHS,
    ),
    "a gap in a vector": (
        ".parquet",
        lambda: vectors([*ROWS[1:].tolist(), [1.0, None, 2.0]]),
        "FILE, row 29, column 'v': nan is no number to learn from",
    ),
    "vectors of two lengths": (
        ".parquet",
        lambda: vectors([*ROWS[2:].tolist(), [1.0, 2.0], [1.0, 2.0, 3.0, 4.0]]),
        LENGTHS,
    ),
    "vectors of words": (".parquet", lambda: vectors([["a", "b"]] * 30), "FILE: column 'v' holds list<"),
    "vectors of vectors": (".parquet", lambda: vectors([[[1.0]]] * 30), "FILE: column 'v' holds list<"),
    "two columns of one name": (
        ".parquet",
        lambda: table(pa.Table.from_arrays([pa.array(ROWS[:, 0])] * 2, names=["a", "a"])),
        "FILE has two columns 'a'",
    ),
    "no rows in Parquet": (
        ".parquet",
        lambda: table({name: column[:0] for name, column in COLUMNS.items()}),
        "X has 0 rows of ",
    ),
    "no columns in Parquet": (".parquet", lambda: table(pa.table({})), "FILE has no columns"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_of_rows(case: str, tmp_path: Path) -> None:
    suffix, make, text = FILES[case]
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(make())
    learner = nw.MetricLearner(penalty=1.0, random_state=0)
    if text == LEARNED:
        found = open_vectors(path)
        rows = found.take(np.arange(30)).astype(np.float64)
        expected = nw.MetricLearner(penalty=1.0, random_state=0).fit(rows, constraints=SIDE)
        np.testing.assert_allclose(
            learner.fit(found, constraints=SIDE).distances(rows),
            expected.distances(rows),
            rtol=1e-6,
            atol=1e-9,
        )
        return
    with pytest.raises(ValueError, match="^" + re.escape(text.replace("FILE", str(path)))) as refusal:
        learner.fit(open_vectors(path), constraints=SIDE)
    assert len(str(refusal.value).splitlines()) == 1
    assert not hasattr(learner, "metric_")


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_files_cut_anywhere_or_with_flipped_bits_are_read_or_refused_by_name(
    suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"rows{suffix}"
    content = array(ROWS) if suffix == ".npy" else table(COLUMNS)
    rng = np.random.default_rng(0)

    def attempt(changed: bytes) -> None:
        path.write_bytes(changed)
        said = ""
        try:
            open_vectors(path).take(np.arange(2))
        except ValueError as error:
            said = str(error)
        assert not said or (said.startswith(str(path)) and len(said.splitlines()) == 1), said

    for percent in range(100):
        attempt(content[: len(content) * percent // 100])
    for bit in rng.integers(0, 8 * len(content), size=200).tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        attempt(bytes(changed))


PATHS: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "a number": (lambda folder: 5, TypeError, "expected the path of a file or a folder, or several, got 5"),
    "nothing": (lambda folder: [], ValueError, "expected one file or more, got none"),
    "an empty folder": (lambda folder: folder, ValueError, "has no files that end in .npy, .parquet, .pq"),
    "what is not there": (lambda folder: folder / "a.npy", FileNotFoundError, "a.npy: there is no such file"),
    "a link to itself": (lambda folder: loop(folder), FileNotFoundError, "loop.npy: there is no such file"),
    "a path with a zero byte": (lambda folder: "a\0.npy", FileNotFoundError, "there is no such file"),
    "a table": (lambda folder: os.devnull, ValueError, "only files that end in .npy, .parquet, .pq"),
}


def loop(folder: Path) -> Path:
    (folder / "loop.npy").symlink_to(folder / "loop.npy")
    return folder / "loop.npy"


@pytest.mark.parametrize("case", PATHS)
def test_paths_of_rows(case: str, tmp_path: Path) -> None:
    make, kind, text = PATHS[case]
    with pytest.raises(kind, match=re.escape(text)):
        open_vectors(make(tmp_path))


def test_files_of_different_widths_or_kinds_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    np.save(tmp_path / "b.npy", ROWS[:, :2])
    (tmp_path / "c.parquet").write_bytes(table(COLUMNS))
    with pytest.raises(ValueError, match=r"must have as many columns, got \[2, 3\]"):
        open_vectors([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(ValueError, match="files must be of one kind"):
        open_vectors([tmp_path / "a.npy", tmp_path / "c.parquet"])


def test_ids_of_a_file_are_all_there_and_are_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    large = [2**63 + k for k in range(30)]
    path.write_bytes(table({**COLUMNS, "id": pa.array(large, pa.uint64())}))
    found = open_vectors(path, ids="id").ids
    assert found is not None
    assert [int(name) for name in found.tolist()] == large  # 64 bits with a sign do not hold these
    path.write_bytes(table({**COLUMNS, "id": pa.array([*range(29), None])}, row_group_size=12))
    with pytest.raises(ValueError, match=r"rows\.parquet, row 29, column 'id': there is no id"):
        open_vectors(path, ids="id")


BOUNDED = c.at_most([(0, 1), (2, 3)], 0.5) + c.at_least([(4, 5), (0, 7)], 4.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("known", ["labels", "pairs", "bounds"])
@pytest.mark.parametrize("kind", ["file", "Dask"])
def test_what_is_no_number_is_found_where_many_rows_are_named(
    kind: str, known: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where these are too many to be taken at once."""
    monkeypatch.setattr(_in_pieces, "_TAKEN", 1)
    np.save(tmp_path / "rows.npy", with_entry(value))
    X = open_vectors(tmp_path / "rows.npy") if kind == "file" else da.from_array(with_entry(value), (10, 3))
    learner = nw.MetricLearner(penalty=1.0, pairs="random", random_state=0)
    y = np.arange(30) % 2 if known == "labels" else None
    side = {"labels": None, "pairs": SIDE, "bounds": BOUNDED}[known]
    with pytest.raises(ValueError, match=r"row 4: entry 1 is (nan|inf)|row \d+: d\("):
        learner.fit(X, y, constraints=side)
    assert not hasattr(learner, "metric_")


@pytest.mark.parametrize("learner", ["KernelLearner", "NeighborLearner", "OnlineLearner"])
def test_learners_that_need_memory_say_so(learner: str, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    X = open_vectors(tmp_path / "rows.npy")
    with pytest.raises(TypeError, match=f"{learner} cannot use rows in files here: fit of MetricLearner"):
        getattr(nw, learner)().fit(X, np.arange(30) % 2)
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, np.arange(30) % 2)
    with pytest.raises(TypeError, match=r"X\.take\(rows\) is an ordinary array"):
        fitted.transform(X)
