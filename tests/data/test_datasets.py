"""Data sets: the bundled ones always load, the others from the folder; an absent one says what is missing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from nearwise import datasets
from nearwise.datasets import Dataset, DatasetUnavailable

Load = Callable[[str], Dataset]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1797, 64), 10),
        ("iris", (150, 4), 3),
        ("wine", (178, 13), 3),
        ("breast_cancer", (569, 30), 2),
    ],
)
def test_bundled_sets_need_no_folder(
    name: str, shape: tuple[int, int], classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    data = datasets.load(name)
    assert data.X.shape == shape
    assert data.y.dtype == np.int64
    assert sorted(set(data.y)) == list(range(classes))
    assert len(data.target_names) == classes
    assert len(data.feature_names) == shape[1]
    assert repr(data) == f"<Dataset {name}: {shape[0]} rows>"
    assert name in datasets.available()


def test_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for unset in (True, False):
        if unset:
            monkeypatch.delenv(datasets.VARIABLE, raising=False)
        else:
            monkeypatch.setenv(datasets.VARIABLE, "")
        with pytest.raises(DatasetUnavailable, match=r"mnist\.npz: set NEARWISE_DATA"):
            datasets.load("mnist")
    assert datasets.available() == ("breast_cancer", "digits", "iris", "wine")


def test_absent_file_is_named(folder: Path) -> None:
    with pytest.raises(LookupError, match=r"no file .*classic3\.jsonl\.gz.*NEARWISE_DATA"):
        datasets.load("classic3")


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        ValueError, match=r"no data set is called '\.\./secret'; known names: balance_scale, "
    ):
        datasets.load("../secret")


def test_arrays_come_back_as_stored(folder: Path) -> None:
    X, y = np.arange(6, dtype=np.uint8).reshape(3, 2), np.array([0, 1, 0])
    part = np.array([1, 2, 3])
    np.savez(
        folder / "isolet.npz", X=X, y=y, X_test=X + 1, y_test=y, part=part, target_names=np.array(["A", "B"])
    )
    data = datasets.load("isolet")
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.X_test, X + 1)
    np.testing.assert_array_equal(data.y_test, y)
    assert data.X.dtype == np.uint8
    assert data.target_names == ("A", "B")
    assert data.feature_names is None
    assert list(data.extra) == ["part"]
    assert datasets.available() == ("breast_cancer", "digits", "iris", "isolet", "wine")


def test_a_pickled_array_is_refused(folder: Path) -> None:
    np.savez(folder / "mnist.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        datasets.load("mnist")


def test_sparse_counts_are_put_together(folder: Path) -> None:
    counts = csr_array(np.array([[0, 2, 0], [1, 0, 3]], dtype=np.uint8))
    np.savez(
        folder / "classic3_counts.npz",
        data=counts.data,
        indices=counts.indices,
        indptr=counts.indptr,
        shape=np.array(counts.shape),
        y=np.array([0, 1]),
    )
    data = datasets.load("classic3_counts")
    assert issparse(data.X)
    np.testing.assert_array_equal(data.X.toarray(), counts.toarray())
    assert data.extra == {}


def test_texts_are_split_and_their_labels_named(folder: Path) -> None:
    lines = [
        {"split": "train", "label": 1, "group": "b", "id": 7, "text": "grüße\nzwei"},
        {"split": "test", "label": 0, "group": "a", "id": 8, "text": "other"},
        {"split": "train", "label": 0, "group": "a", "id": 9, "text": ""},
    ]
    with gzip.open(folder / "newsgroups20.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    data = datasets.load("newsgroups20")
    assert data.X == ("grüße\nzwei", "")
    assert data.X_test == ("other",)
    assert data.y.tolist() == [1, 0]
    assert data.y_test.tolist() == [0]
    assert data.target_names == ("a", "b")
    assert {key: value.tolist() for key, value in data.extra.items()} == {"id": [7, 9], "id_test": [8]}


@pytest.mark.parametrize(
    ("name", "rows", "test_rows"),
    [
        ("banking77", 10003, 3080),
        ("banking77_minilm", 10003, 3080),
        ("classic3", 3891, 0),
        ("classic3_counts", 3891, 0),
        ("ionosphere", 351, 0),
        ("pendigits", 7494, 3498),
        ("soybean_large", 683, 0),
        ("usps", 7291, 2007),
    ],
)
def test_real_files(name: str, rows: int, test_rows: int, load_dataset: Load) -> None:
    data = load_dataset(name)
    assert data.y.shape == (rows,)
    assert (data.X.shape[0] if hasattr(data.X, "shape") else len(data.X)) == rows
    assert (0 if data.y_test is None else len(data.y_test)) == test_rows
    assert len(data.target_names) == data.y.max() + 1


def test_texts_and_embeddings_are_in_the_same_order(load_dataset: Load) -> None:
    texts, vectors = load_dataset("banking77"), load_dataset("banking77_minilm")
    np.testing.assert_array_equal(texts.y, vectors.y)
    assert texts.target_names == vectors.target_names


def test_correlation_matrices_are_extra(load_dataset: Load) -> None:
    data = load_dataset("corr_invalid_small")
    assert data.X is None
    assert np.linalg.eigvalsh(data.extra["high02"])[0] == pytest.approx(1 - np.sqrt(2))
