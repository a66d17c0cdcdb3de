"""Rows in arrays, memory-mapped files and Parquet: the same rows wherever they are kept."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from nearwise.distributed import open_vectors, vectors_of
from nearwise.distributed.vectors import MappedRows, Stacked

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
    assert isinstance(mapped, Stacked)
    assert isinstance(mapped.parts[0], MappedRows)
    mapped.take(np.arange(3))
    assert len(pickle.dumps(mapped)) < 2000
    again = pickle.loads(pickle.dumps(mapped))
    np.testing.assert_array_equal(again.take(np.array([5])), np.zeros((1, 3)))
    assert np.shares_memory(again.parts[0].opened(), mapped.parts[0].opened())  # one mapping for a process


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
