"""The same numbers in every type and container, for every learner: one result, and the data untouched."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from outcomes import LABELS, LEARNERS, QUICK, ROWS, N, crossed, numbers
from scipy import sparse

WHOLE = np.round(ROWS * 20).astype(np.int8)  # differences of up to 200, which int8 does not hold
NAMES = ["a", "b", "c"]
WORDS = np.array(["one", "two", "three"])[LABELS]

TYPES: dict[str, NDArray[Any]] = {
    **{name: WHOLE.astype(name) for name in ("int8", "int16", "int32", "int64", ">i4", "object")},
    **{name: WHOLE.astype(name) for name in ("float16", "float32", "float64", ">f8")},
    **{name: (WHOLE.astype(np.int64) + 128).astype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
    "longdouble": ROWS.astype(np.longdouble),
    "bool": ROWS > 1.0,
    "numerals": ROWS.astype(str),
}


@pytest.mark.parametrize(("learner", "kind"), crossed(TYPES, ["int8"]))
def test_every_type_is_read_as_its_numbers(learner: str, kind: str) -> None:
    given = TYPES[kind].copy()
    expected = numbers(
        LEARNERS[learner]().fit(np.array(given, np.float64), LABELS), np.array(given, np.float64)
    )
    for found, wanted in zip(numbers(LEARNERS[learner]().fit(given, LABELS), given), expected, strict=True):
        assert found.dtype == np.float64 or kind == "float32"  # whose coordinates are in single precision too
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))
    np.testing.assert_array_equal(given, TYPES[kind])
    assert given.dtype == TYPES[kind].dtype


@cache
def plain(learner: str) -> list[NDArray[Any]]:
    """What leaves the model of the rows as they are."""
    return numbers(LEARNERS[learner]().fit(ROWS, LABELS), ROWS)


def spread(rows: NDArray[Any]) -> NDArray[Any]:
    """Every second row and column of a larger array."""
    large = np.full((2 * N, 6), np.nan)
    large[::2, ::2] = rows
    return large[::2, ::2]


def read_only(rows: NDArray[Any]) -> NDArray[Any]:
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


def mapped(rows: NDArray[Any], folder: Path) -> NDArray[Any]:
    np.save(folder / "rows.npy", rows)
    return np.load(folder / "rows.npy", mmap_mode="r")


# the order in which numbers lie decides the order in which BLAS adds them up, and no more
LAYOUTS: dict[str, Callable[[NDArray[Any], Path], Any]] = {
    "read-only": lambda rows, _: read_only(rows),
    "memory-mapped": mapped,
    "by columns": lambda rows, _: np.asfortranarray(rows),
    "with gaps": lambda rows, _: spread(rows),
    "backwards": lambda rows, _: rows[::-1].copy()[::-1],
    "a list of lists": lambda rows, _: rows.tolist(),
    "pandas": lambda rows, _: pd.DataFrame(rows, columns=NAMES),
    "pandas of Arrow": lambda rows, _: pd.DataFrame(rows, columns=NAMES).convert_dtypes(
        dtype_backend="pyarrow"
    ),
    "polars": lambda rows, _: pl.DataFrame(rows, schema=NAMES),
    "Arrow": lambda rows, _: pa.table({name: rows[:, k] for k, name in enumerate(NAMES)}),
}


@pytest.mark.parametrize(("learner", "layout"), crossed(LAYOUTS, ["read-only"]))
def test_every_layout_is_the_same_data(learner: str, layout: str, tmp_path: Path) -> None:
    given = LAYOUTS[layout](ROWS, tmp_path)
    fitted = LEARNERS[learner]().fit(given, LABELS)
    for found, wanted in zip(numbers(fitted, given), plain(learner), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    np.testing.assert_array_equal(np.asarray(given, dtype=np.float64), ROWS)


FORMATS = [
    f"{name}_{of}" for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil") for of in ("array", "matrix")
]
THIN = np.where(np.abs(ROWS) < 0.4, 0.0, ROWS)


@cache
def by_rows(learner: str) -> list[NDArray[Any]]:
    rows = sparse.csr_array(THIN)
    return numbers(LEARNERS[learner]().fit(rows, LABELS), rows)


@pytest.mark.parametrize(("learner", "format"), crossed(FORMATS, ["coo_array"]))
def test_every_sparse_format_is_the_same_data(learner: str, format: str) -> None:
    given = getattr(sparse, format)(THIN)
    if learner in ("covariance", "blocks", "neighbors"):
        with pytest.raises(TypeError, match=r"Sparse data was passed.*but dense data is required"):
            LEARNERS[learner]().fit(given, LABELS)
        return
    for found, wanted in zip(
        numbers(LEARNERS[learner]().fit(given, LABELS), given), by_rows(learner), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    np.testing.assert_array_equal(given.toarray(), THIN)


@pytest.mark.parametrize("learner", ["metric", "kernel", *QUICK])
def test_sparse_and_dense_data_are_measured_the_same(learner: str) -> None:
    """Under one fitted model."""
    model = LEARNERS[learner]().fit(THIN, LABELS)
    for found, wanted in zip(numbers(model, sparse.csr_array(THIN)), numbers(model, THIN), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7 * np.abs(wanted).max())


LABEL_LISTS: dict[str, Callable[[], Any]] = {
    "texts": lambda: WORDS,
    "a list": lambda: WORDS.tolist(),
    "objects": lambda: WORDS.astype(object),
    "pandas": lambda: pd.Series(WORDS),
    "pandas of Arrow": lambda: pd.Series(WORDS, dtype="string[pyarrow]"),
    "categories": lambda: pd.Series(WORDS, dtype="category"),
    "polars": lambda: pl.Series(WORDS),
    "Arrow": lambda: pa.array(WORDS),
    "bytes": lambda: WORDS.astype("S"),
    "a column": lambda: LABELS.astype(np.int8),
    "floats": lambda: LABELS.astype(np.float32),
}


@cache
def of_words(learner: str) -> list[NDArray[Any]]:
    return numbers(LEARNERS[learner]().fit(ROWS, WORDS), ROWS)


@pytest.mark.parametrize(
    ("learner", "labels"),
    crossed(LABEL_LISTS, ["pandas of Arrow"], [name for name in LEARNERS if name != "regressor"]),
)
def test_every_list_of_labels_is_the_same_labels(learner: str, labels: str) -> None:
    given = LABEL_LISTS[labels]()
    # numbers have another order than texts, and pairs are drawn class by class
    expected = plain(learner) if labels in ("a column", "floats") else of_words(learner)
    for found, wanted in zip(numbers(LEARNERS[learner]().fit(ROWS, given), ROWS), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("learner", LEARNERS)
def test_columns_of_other_names_are_refused(learner: str) -> None:
    frame = pd.DataFrame(ROWS, columns=NAMES)
    fitted = LEARNERS[learner]().fit(frame, LABELS)
    ask = fitted.predict if learner == "regressor" else fitted.transform
    for other in (frame.rename(columns={"b": "z"}), frame[["b", "a", "c"]], frame[["a", "b"]]):
        text = r"^The feature names should match those that were passed during fit"
        with pytest.raises(ValueError, match=text):
            ask(other)
