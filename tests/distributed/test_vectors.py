"""Rows in arrays, memory-mapped files and Parquet: the same rows wherever they are kept."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from nearwise.distributed import open_vectors, vectors_of

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3)).astype(np.float32)
ROWS = RNG.integers(0, 50, 200)


def columns_file(path: Path, rows: np.ndarray, first: int = 0, **options: int) -> Path:
    table = {f"x{k}": rows[:, k] for k in range(rows.shape[1])}
    table["key"] = np.array([f"object {first + k}" for k in range(len(rows))])
    parquet.write_table(pa.table(table), path, **options)
    return path


def test_npy_files_of_a_folder_are_one_matrix(tmp_path: Path) -> None:
    for k, part in enumerate(np.split(X, [20, 20])):
        np.save(tmp_path / f"{k}.npy", part)
    found = open_vectors(tmp_path)
    assert found.shape == X.shape
    assert found.take(ROWS).dtype == np.float32
    np.testing.assert_array_equal(found.take(ROWS), X[ROWS])


def test_parquet_of_several_files_and_row_groups(tmp_path: Path) -> None:
    paths = [
        columns_file(tmp_path / "a.parquet", X[:33], row_group_size=7),
        columns_file(tmp_path / "b.parquet", X[33:], 33, row_group_size=100),
    ]
    found = open_vectors(paths, ids="key")
    np.testing.assert_array_equal(found.take(ROWS), X[ROWS])
    assert found.dtype == np.float32
    assert found.ids is not None
    assert found.ids[40] == "object 40"


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet_with_a_column_of_vectors(tmp_path: Path, fixed: bool) -> None:
    kind = pa.list_(pa.float32(), 3) if fixed else pa.list_(pa.float32())
    parquet.write_table(
        pa.table({"v": pa.array(list(X), type=kind)}), tmp_path / "v.parquet", row_group_size=9
    )
    np.testing.assert_array_equal(open_vectors(tmp_path / "v.parquet").take(ROWS), X[ROWS])


def test_the_copy_of_a_parquet_file_is_removed_at_the_end(tmp_path: Path) -> None:
    path = columns_file(tmp_path / "a.parquet", X)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = open_vectors(path, ids="key", scratch=scratch)
    assert len(list(scratch.iterdir())) == 1
    del found
    assert list(scratch.iterdir()) == []


def test_memory_mapped_rows_travel_as_the_name_of_their_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((100_000, 3)))
    mapped = vectors_of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert mapped is not None
    mapped.take(np.arange(3))
    assert len(pickle.dumps(mapped)) < 2000
    again = pickle.loads(pickle.dumps(mapped))
    np.testing.assert_array_equal(again.take(np.array([5])), np.zeros((1, 3)))


def test_a_part_of_a_memory_mapped_file_is_that_part(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    part = np.load(tmp_path / "x.npy", mmap_mode="r")[10:, 1:]
    found = vectors_of(part)
    assert found is not None
    np.testing.assert_array_equal(found.take(np.arange(5)), X[10:15, 1:])


def test_ordinary_arrays_are_not_in_pieces() -> None:
    assert vectors_of(X) is None
    assert vectors_of([[1.0, 2.0]]) is None


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.npy: there is no such file"):
        open_vectors(tmp_path / "nothing.npy")
    with pytest.raises(ValueError, match="has no files that end in"):
        open_vectors(tmp_path)
    path = columns_file(tmp_path / "a.parquet", X)
    with pytest.raises(ValueError, match="column 'key' holds string, not numbers"):
        open_vectors(path)
    with pytest.raises(ValueError, match="has no column 'name'; it has x0, x1, x2, key"):
        open_vectors(path, ids="name")
    columns_file(tmp_path / "b.parquet", X.astype(np.float64))
    with pytest.raises(
        ValueError, match=r"b\.parquet, row group 0: 3 columns of float64, where those before"
    ):
        open_vectors([path, tmp_path / "b.parquet"], ids="key")
    np.save(tmp_path / "i.npy", np.zeros((3, 3), int))
    with pytest.raises(ValueError, match=r"i\.npy must have rows of floating-point numbers"):
        open_vectors(tmp_path / "i.npy")
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    with pytest.raises(ValueError, match=r"f\.npy is stored by columns"):
        open_vectors(tmp_path / "f.npy")


def test_half_precision_is_read_as_single(tmp_path: Path) -> None:
    half = X.astype(np.float16)
    np.save(tmp_path / "h.npy", half)
    np.testing.assert_array_equal(open_vectors(tmp_path / "h.npy").take(ROWS), half[ROWS])
    kind = pa.list_(pa.float16(), 3)
    parquet.write_table(pa.table({"v": pa.array(list(half), type=kind)}), tmp_path / "h.parquet")
    columns_file(tmp_path / "c.parquet", half)
    for found in (open_vectors(tmp_path / "h.parquet"), open_vectors(tmp_path / "c.parquet", ids="key")):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.take(ROWS), half[ROWS])


def test_files_without_rows_are_files(tmp_path: Path) -> None:
    for k, part in enumerate(np.split(X, [0, 20, 20])):
        columns_file(tmp_path / f"{k}.parquet", part)
    found = open_vectors(tmp_path, ids="key")
    np.testing.assert_array_equal(found.take(ROWS), X[ROWS])


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_what_is_no_such_file_is_named(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a{suffix}").write_bytes(b"")
    with pytest.raises(ValueError, match=rf"a\{suffix} (is damaged, or not a|cannot be read)"):
        open_vectors(tmp_path)


def test_an_entry_that_is_no_number_is_named_by_file_row_and_column(tmp_path: Path) -> None:
    wrong = X.copy()
    wrong[45, 1] = np.nan
    columns_file(tmp_path / "a.parquet", wrong[:20])
    columns_file(tmp_path / "b.parquet", wrong[20:], row_group_size=7)
    with pytest.raises(ValueError, match=r"b\.parquet, row 25, column 'x1': nan is no number"):
        open_vectors(tmp_path, ids="key")
    table = pa.table({"v": pa.array([[1.0, 2.0], [3.0, None]], type=pa.list_(pa.float32(), 2))})
    parquet.write_table(table, tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=r"v\.parquet, row 1, column 'v': nan is no number"):
        open_vectors(tmp_path / "v.parquet")


def test_files_of_other_columns_are_refused(tmp_path: Path) -> None:
    columns_file(tmp_path / "a.parquet", X[:20, :2])
    columns_file(tmp_path / "b.parquet", X[20:])
    with pytest.raises(ValueError, match=r"b\.parquet has a column 'x2', which .*a\.parquet has not"):
        open_vectors(tmp_path, ids="key")
    found = open_vectors(tmp_path, ids="key", columns=["x1", "x0"])
    np.testing.assert_array_equal(found.take(ROWS), X[ROWS][:, [1, 0]])


def test_ids_of_two_kinds_are_refused(tmp_path: Path) -> None:
    columns_file(tmp_path / "a.parquet", X[:20])
    table = {f"x{k}": X[20:, k] for k in range(3)} | {"key": np.arange(30)}
    parquet.write_table(pa.table(table), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: column 'key' holds numbers, and in the files before"):
        open_vectors(tmp_path, ids="key")


def test_an_id_in_two_files_is_named(tmp_path: Path) -> None:
    columns_file(tmp_path / "a.parquet", X[:20])
    columns_file(tmp_path / "b.parquet", X[20:], 19)
    side = nw.constraints.at_most([("object 1", "object 2")], 1.0)
    with pytest.raises(ValueError, match="the id 'object 19' occurs twice"):
        nw.Problem(open_vectors(tmp_path, ids="key"), side)


@pytest.mark.parametrize("what", ["problem", "open bounds", "constraints", "labels"])
def test_a_row_that_is_no_number_is_named_with_its_file(what: str, tmp_path: Path) -> None:
    wrong = X.copy()
    wrong[45, 1] = np.inf
    np.save(tmp_path / "a.npy", wrong[:20])
    np.save(tmp_path / "b.npy", wrong[20:])
    vectors, side = open_vectors(tmp_path), nw.constraints.at_most([(3, 45), (1, 2)], 1.0)
    learner = nw.MetricLearner(penalty=0.1)
    attempts = {
        "problem": lambda: nw.Problem(vectors, side),
        "open bounds": lambda: nw.Problem(vectors, nw.constraints.similar([(1, 2)])),
        "constraints": lambda: learner.fit(vectors, constraints=side),
        "labels": lambda: learner.fit(vectors, np.arange(50) % 2),
    }
    with pytest.raises(ValueError, match=r"row 25 of .*b\.npy"):
        attempts[what]()


def test_read_only_maps_and_copies_on_write_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").chmod(0o444)
    side = nw.constraints.at_most(ROWS[:40].reshape(-1, 2) % [25, 25] + [0, 25], 1.0)
    np.save(tmp_path / "other.npy", X)
    opened = open_vectors(tmp_path / "other.npy")
    expected = nw.solve(nw.Problem(opened, side, penalty=0.1)).matrix
    for mode in ("r", "c"):
        found = np.load(tmp_path / "x.npy", mmap_mode=mode)
        np.testing.assert_array_equal(nw.solve(nw.Problem(found, side, penalty=0.1)).matrix, expected)
