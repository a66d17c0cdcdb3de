"""Data sets by name: four that come with scikit-learn, and those in the folder that NEARWISE_DATA names.

Some of these OpenML has too; nothing is fetched from there unless that is asked for. The values are handed
over as they are stored: nothing is scaled, centred or reshaped. Arrays are read with `allow_pickle=False`.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise.data import openml

VARIABLE = "NEARWISE_DATA"
FETCH_VARIABLE = "NEARWISE_FETCH"


class DatasetUnavailable(LookupError):
    """A known data set whose file is not on this machine; the message names the file and the variable."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """One data set.

    `X` has one row per object: a dense array, a sparse array, or a tuple of texts; it is None for the sets of
    correlation matrices, which are in `extra`. `y` counts classes from 0, and `target_names[y]` is the class.
    `X_test` and `y_test` are there when the set has a standard split. `extra` holds what else is stored.
    """

    name: str
    X: Any
    y: NDArray[np.int64] | None = None
    X_test: Any = None
    y_test: NDArray[np.int64] | None = None
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    extra: Mapping[str, NDArray[Any]] = field(default_factory=lambda: MappingProxyType({}))

    def __repr__(self) -> str:
        rows = "no rows" if self.X is None else f"{_length(self.X)} rows"
        test = "" if self.X_test is None else f", {_length(self.X_test)} test rows"
        return f"<Dataset {self.name}: {rows}{test}>"


def load(name: str, fetch: bool | None = None) -> Dataset:
    """The data set of that name; `DatasetUnavailable` when its file is not there.

    Where the file is not there, `fetch=True` asks OpenML for the set, over the network; scikit-learn keeps
    what it fetches in its own folder. None, the default, does so where the environment variable
    NEARWISE_FETCH is set to 1.
    """
    if name in _BUNDLED:
        return _read_bundled(name)
    if name not in _FILES:
        raise ValueError(
            f"no data set is called {name!r}; known names: {', '.join(sorted({*_BUNDLED, *_FILES}))}"
        )
    path = _path(name)
    if path is not None and path.is_file():
        return _read_texts(name, path) if name in _LABEL_FIELDS else _read_arrays(name, path)
    if fetch or (fetch is None and os.environ.get(FETCH_VARIABLE) == "1"):
        return _fetch(name)
    ask = f", or ask for it: {FETCH_VARIABLE}=1 fetches it from OpenML" if name in openml.SOURCES else ""
    if path is None:
        raise DatasetUnavailable(
            f"data set {name!r} is read from {_filename(name)}: set {VARIABLE} to the folder that holds "
            f"it{ask}"
        )
    raise DatasetUnavailable(
        f"data set {name!r}: no file {path} (the folder is the value of {VARIABLE}){ask}"
    )


def _fetch(name: str) -> Dataset:
    if name not in openml.SOURCES:
        raise DatasetUnavailable(
            f"data set {name!r} cannot be fetched, as OpenML does not have it: it is read from "
            f"{_filename(name)} in the folder that {VARIABLE} names"
        )
    try:
        arrays = openml.fetched(name)
    except (openml.NotTheSet, OSError, ValueError) as error:  # the last two are scikit-learn's
        raise DatasetUnavailable(f"data set {name!r} could not be fetched from OpenML: {error}") from error
    return _from_arrays(name, arrays.pop("X"), arrays)


def available() -> tuple[str, ...]:
    """The names that `load` can serve now, sorted: the bundled sets, and those with a file in the folder."""
    found = {name for name in _FILES if (path := _path(name)) is not None and path.is_file()}
    return tuple(sorted({*_BUNDLED, *found}))


def _filename(name: str) -> str:
    return name + (".jsonl.gz" if name in _LABEL_FIELDS else ".npz")


def _path(name: str) -> Path | None:
    folder = os.environ.get(VARIABLE)
    return Path(folder) / _filename(name) if folder else None


def _read_bundled(name: str) -> Dataset:
    from sklearn import datasets as bundled

    data = getattr(bundled, f"load_{name}")()
    return Dataset(
        name,
        X=data.data,
        y=data.target.astype(np.int64),
        feature_names=tuple(map(str, data.feature_names)),
        target_names=tuple(map(str, data.target_names)),
    )


def _read_arrays(name: str, path: Path) -> Dataset:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    if "indptr" not in arrays:
        return _from_arrays(name, arrays.pop("X", None), arrays)
    from scipy.sparse import csr_array

    parts = arrays.pop("data"), arrays.pop("indices"), arrays.pop("indptr")
    return _from_arrays(name, csr_array(parts, shape=tuple(map(int, arrays.pop("shape")))), arrays)


def _from_arrays(name: str, rows: Any, arrays: dict[str, Any]) -> Dataset:
    """A data set of those rows; `arrays` are its other members by their stored name."""
    names = {
        key: tuple(map(str, arrays.pop(key))) if key in arrays else None
        for key in ("feature_names", "target_names")
    }
    return Dataset(
        name,
        X=rows,
        y=arrays.pop("y", None),
        X_test=arrays.pop("X_test", None),
        y_test=arrays.pop("y_test", None),
        feature_names=names["feature_names"],
        target_names=names["target_names"],
        extra=MappingProxyType(arrays),
    )


def _read_texts(name: str, path: Path) -> Dataset:
    """One JSON object a line: `text`, `label`, the name of the label, `split` or not; the rest is extra."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    target = {record["label"]: record[_LABEL_FIELDS[name]] for record in records}
    others = [key for key in records[0] if key not in ("text", "label", "split", _LABEL_FIELDS[name])]
    arrays: dict[str, Any] = {"target_names": [target[label] for label in sorted(target)]}
    for part, suffix in (("train", ""), ("test", "_test")):
        chosen = [record for record in records if record.get("split", "train") == part]
        if chosen:
            arrays[f"X{suffix}"] = tuple(record["text"] for record in chosen)
            arrays[f"y{suffix}"] = np.array([record["label"] for record in chosen], dtype=np.int64)
            arrays |= {key + suffix: np.array([record[key] for record in chosen]) for key in others}
    return _from_arrays(name, arrays.pop("X"), arrays)


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


_BUNDLED = ("breast_cancer", "digits", "iris", "wine")

# the text sets, and the field that names the label
_LABEL_FIELDS = {"banking77": "intent", "classic3": "collection", "newsgroups20": "group"}

# every set read from a file: the text sets, those that OpenML has too, and others
_FILES = {
    *_LABEL_FIELDS,
    *openml.SOURCES,
    *("banking77_minilm", "classic3_counts", "corr_invalid_bccd16", "corr_invalid_small"),
}
