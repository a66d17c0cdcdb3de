"""Rows of data as a learner takes them: where they are, their shape, and how large their numbers may be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index
from nearwise.distributed import Vectors, finite_rows, is_dask
from nearwise.linalg.magnitudes import largest_entry

# The square of a distance lies between the least and the largest normal number, 2e-308 and 1.8e308.
_LARGEST = 5e153
_LEAST = 1e-153
MAPPED_NUMBERS = 2**27  # in a memory-mapped array, up to which it is read into memory: 1 GB
_FEW_NUMBERS = 1 << 22  # in sparse data, zeros included, up to which they are made dense: 32 MB


def refuse(X: Any, learner: object) -> None:
    """An error for rows on Dask or in files, which would be collected in memory without a word, or fail."""
    if is_dask(X):
        raise TypeError(
            f"{type(learner).__name__} cannot use Dask arrays here: fit, transform and pair_distance "
            "of MetricLearner and FixedRankLearner can; what fits in memory is an array after X.compute()"
        )
    if isinstance(X, Vectors) and not isinstance(X, np.ndarray):
        raise TypeError(
            f"{type(learner).__name__} cannot use rows in files here: fit of MetricLearner and "
            "FixedRankLearner can; X.take(rows) is an ordinary array of some rows"
        )


def refuse_tuples(X: Any) -> None:
    """Say how pairs and triplets of vectors are learned from, where they stand in place of the data."""
    try:
        shape: tuple[int, ...] = np.shape(X) if isinstance(X, list | tuple) else getattr(X, "shape", ())
    except ValueError:  # rows of different lengths, which the check of the data names
        return
    if len(shape) == 3:
        kind = {2: "pairs", 3: "triplets", 4: "quadruplets"}.get(shape[1], "tuples")
        raise ValueError(
            f"X must be an array of n rows and d columns, got shape {shape}; if these are {kind} of vectors, "
            "write X, side = nearwise.constraints.from_tuples(tuples, y), and fit(X, constraints=side)"
        )


def refuse_extreme(X: Any, name: str = "X", tiny: bool = False) -> None:
    """Refuse rows so long that the square of a distance between two may be no finite number.

    With `tiny`, also data, other than zeros, so small that the squares of all distances vanish.
    """
    size = largest_entry(X)
    if size * math.sqrt(X.shape[1]) > _LARGEST:
        raise ValueError(
            f"{name} has an entry of size {size:.3g}, and squares of distances between such rows are too "
            f"large for a floating-point number; divide {name} by a constant"
        )
    if tiny and 0.0 < size < _LEAST:
        raise ValueError(
            f"{name} has no entry above the size {size:.3g}, and squares of distances between such rows are "
            f"too small for a floating-point number; multiply {name} by a constant"
        )


def is_precomputed(kernel: Any) -> bool:
    """Whether rows of data are values of a kernel with the training objects."""
    return isinstance(kernel, str) and kernel == "precomputed"


def refuse_too_few(vectors: Vectors) -> None:
    """An error for rows that have no two objects, or no columns."""
    n, d = vectors.shape
    if n < 2 or d == 0:
        raise ValueError(f"X has {n} rows of {d} columns; two rows and one column are needed at least")


def rows_of(features: Any, rows: Index) -> Array:
    """Some rows in memory, in double precision; an error for what is no finite number or too large."""
    if not isinstance(features, Vectors):
        found: Array = features[rows]
        return found
    taken = finite_rows(features, rows)
    refuse_extreme(taken)
    return taken


def dense(X: Any) -> Array:
    """Rows as an array, with an error where it does not fit into memory."""
    if not sparse.issparse(X):
        return np.asarray(X)
    n, d = X.shape
    foresee(8 * n * d, f"{n:,} sparse rows of {d:,} features as a dense array")
    return np.asarray(X.toarray())


def like_dense(X: Any) -> Any:
    """Sparse rows as an array where they are few, so that they teach the same to the last bit.

    Products of sparse rows round otherwise, which decides between neighbours at the same distance.
    """
    return dense(X) if sparse.issparse(X) and X.shape[0] * X.shape[1] <= _FEW_NUMBERS else X


def row_numbers(pairs: Any, n_objects: int) -> Index:
    """Pairs of row numbers, checked."""
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise ValueError(f"with X, pairs must be row numbers of shape (m, 2), got {rows.dtype} {rows.shape}")
    wrong = np.argwhere((rows < 0) | (rows >= n_objects))
    if len(wrong):
        raise ValueError(f"pair {wrong[0, 0]}: X has {n_objects} rows, and no row {rows[tuple(wrong[0])]}")
    return rows.astype(np.int64)
