"""Learning from rows in pieces: which of them are taken here, and neighbours found where the rows are.

A learner looks at few rows closely: those that its constraints name, if these are few, those among which the
penalty is chosen, and the objects that ask for neighbours. Only these are taken; all others are passed over
once for each round of neighbours, a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import _check_feature_names

from nearwise._common.digest import digest
from nearwise._common.types import Array, Codes, Index
from nearwise.distributed import NotFiniteError, Stacked, Vectors, is_dask, refuse_not_finite, vectors_of
from nearwise.learners._rows import refuse_too_few, row_numbers, rows_of
from nearwise.learners._side import Side, are_in_files
from nearwise.learners.metric import coordinates
from nearwise.linalg.distances import all_squared_distances, centre_of, squared_distances
from nearwise.linalg.nearest import smallest
from nearwise.side import Constraints, drawing

_TAKEN = 1 << 22  # numbers in rows that are taken here, at most: 32 MB
_AT_A_TIME = 1 << 22  # distances that are compared at a time


@dataclass(frozen=True, eq=False)
class SpaceInPieces:
    """Objects in pieces with the distances that a factor gives them; like `Space`."""

    vectors: Vectors
    factor: Array
    outside = None

    @property
    def inside(self) -> SpaceInPieces:
        """Itself: nothing is outside."""
        return self

    def distances(self, pairs: Index) -> Array:
        """Squared, of pairs of row numbers; few rows are here at a time."""
        out = np.empty(len(pairs))
        step = max(_TAKEN // (2 * self.vectors.shape[1]), 1)
        for low in range(0, len(pairs), step):
            part = pairs[low : low + step]
            rows, place = np.unique(part, return_inverse=True)
            coordinates = rows_of(self.vectors, rows) @ self.factor
            i, j = place.reshape(part.shape).T
            out[low : low + step] = squared_distances(coordinates, i, j)
        return out

    def neighbors(self, codes: Codes, asking: Index) -> tuple[Index, Index]:
        """Pairs of objects that ask with their nearest of their own class, and of the others.

        Each chunk finds its own nearest; the nearest of these are the nearest of all. The pairs are in the
        order in which `drawing.neighbors` has them, on which what stops early may depend.
        """
        taken = rows_of(self.vectors, asking)
        centre = centre_of(taken)  # distances between rows round less when they are centred
        coordinates = (taken - centre) @ self.factor
        arguments = coordinates, asking, codes[asking], centre, self.factor
        try:
            found = self.vectors.over_rows(_nearest_in, *arguments, beside=codes)
        except NotFiniteError as error:
            raise error.at(self.vectors) from None
        pairs = []
        for kind in (0, 1):
            distance = np.concatenate([part[kind][0] for part in found], axis=1)
            row = np.concatenate([part[kind][1] for part in found], axis=1)
            order = np.argsort(distance, axis=1, kind="stable")[:, : drawing.N_NEIGHBORS]
            near = np.take_along_axis(row, order, axis=1)
            place, column = np.nonzero(np.isfinite(np.take_along_axis(distance, order, axis=1)))
            pairs.append(np.stack([asking[place], near[place, column]], axis=1))
        own = codes[pairs[1][:, 0]]
        is_small = np.bincount(codes[codes >= 0])[own] <= drawing.SMALL_CLASS
        order = np.lexsort((np.where(is_small, 0, own), is_small))
        return pairs[0][np.argsort(codes[pairs[0][:, 0]], kind="stable")], pairs[1][order]


def limit() -> int:
    """How many numbers of rows are taken here at most."""
    return _TAKEN


def are_few(vectors: Vectors) -> bool:
    """Whether all rows may be taken."""
    return vectors.shape[0] * vectors.shape[1] <= _TAKEN


def known(
    learner: Any,
    X: Any,
    y: Any,
    constraints: Any,
    sample_ids: Any,
    sample_weight: Any,
    *,
    maps: Callable[[Any], bool],
    takes: Callable[[Vectors], bool],
) -> tuple[Any, Any, Side]:
    """Rows, in memory where they may be, labels, and what is known about the rows.

    Parameters
    ----------
    maps : whether a memory-mapped array is read into memory
    takes : whether rows in pieces are taken into memory, if they are few

    Rows and constraints in files stay there.
    """
    in_files = are_in_files(constraints)
    mapped = isinstance(X, np.memmap) and not in_files and maps(X)
    vectors = None if mapped else vectors_of(X)
    if vectors is not None and not in_files and are_few(vectors) and takes(vectors):
        rows: Any = rows_of(vectors, np.arange(len(vectors)))
        X = type(X._meta)(rows, columns=X.columns) if hasattr(X, "columns") else rows  # of a Dask dataframe
    elif vectors is not None:
        refuse_too_few(vectors)
        _check_feature_names(learner, getattr(X, "_meta", None), reset=True)
        X, learner.n_features_in_ = vectors, vectors.shape[1]
    if vectors is not None:
        y, sample_weight = (of.compute() if is_dask(of) else of for of in (y, sample_weight))
        sample_ids = vectors.ids if sample_ids is None else sample_ids
    if X is not vectors:
        X = learner._training_data(X)
        if in_files and sparse.issparse(X):
            raise TypeError("constraints in files need dense data, got a sparse matrix")
        X = Stacked([X]) if in_files else X
    if isinstance(X, Stacked):
        X = X.by_number()
    many = isinstance(X, Vectors)
    return X, y, Side.read(X.shape[0], y, constraints, sample_ids, sample_weight, in_files=many)


def few_rows(vectors: Vectors, constraints: Constraints) -> tuple[Vectors | Array, Index | None]:
    """The objects that constraints name and their row numbers, where they are few; else the vectors."""
    if constraints.is_stored:
        return vectors, None
    named = named_by(constraints)
    if len(named) * vectors.shape[1] > _TAKEN:
        return vectors, None
    return rows_of(vectors, named), named


def named_by(constraints: Constraints) -> Index:
    """The objects that constraints name, by row number, in order."""
    named = np.zeros(0, dtype=bool)
    for _, part in (chunk for block in constraints.blocks for chunk in block.chunks()):
        ids = np.asarray(part.object_ids, dtype=np.int64)
        named = np.pad(named, (0, max(int(ids.max(initial=-1)) + 1 - len(named), 0)))
        named[ids] = True
    return np.flatnonzero(named)


def sample_of_constraints(
    vectors: Vectors, constraints: Constraints, rng: np.random.RandomState
) -> tuple[Array, Constraints]:
    """As many of the constraints, drawn at random, as name few objects, and these objects."""
    most = _TAKEN // (4 * vectors.shape[1])
    share = min(1.0, most / len(constraints))
    blocks = []
    for block in constraints.blocks:
        count = max(1, int(share * len(block))) if len(block) else 0
        chosen = sample_without_replacement(len(block), count, random_state=rng)  # in the room of the sample
        blocks.append(block.part(np.sort(chosen)))
    sample = Constraints(tuple(blocks))
    named = named_by(sample)
    return rows_of(vectors, named), Constraints(sample.resolve(len(named), named))


def fingerprint(vectors: Vectors) -> str:
    """A digest of all rows, however they are stored and cut: a sum over rows that knows their places."""
    dtype = np.dtype(np.float32 if vectors.dtype.itemsize <= 4 else np.float64)
    n_words = vectors.shape[1] * dtype.itemsize // 4
    multipliers = np.random.default_rng(0).integers(1, 2**63, n_words, dtype=np.uint64) | np.uint64(1)
    beside = np.zeros(len(vectors), dtype=np.int64)
    found = vectors.over_rows(_hash_of, multipliers, dtype, beside=beside)
    return digest(vectors.shape, str(dtype), sum(found) % 2**64)


def _hash_of(first: int, rows: NDArray[Any], beside: Index, multipliers: Any, dtype: Any) -> int:
    """Of the bits of some rows, modulo 2^64."""
    words = np.ascontiguousarray(rows, dtype=dtype).view(np.uint32).astype(np.uint64)
    hashed = words @ multipliers + np.arange(first, first + len(rows), dtype=np.uint64) * multipliers[0]
    for shift in (33, 29, 32):  # so that what cancels in one row does not cancel in the sum
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * multipliers[-1]
    return int(hashed.sum(dtype=np.uint64))


def transformed(X: Any, metric: Any, n_features: int, name: str, whole: bool) -> Any:
    """Coordinates of the rows of a Dask array or dataframe, lazily; `whole` as in `coordinates`."""
    array = _checked_array(X, n_features, name)
    width = n_features if whole else metric.n_coordinates
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    return array.map_blocks(coordinates, metric, whole, dtype=dtype, chunks=(array.chunks[0], (width,)))


def pair_distances(pairs: Any, X: Any, metric: Any, n_features: int, squared: bool) -> Any:
    """Learned distances of pairs of vectors, or of pairs of row numbers of a Dask array, lazily."""
    import dask.array as da
    from dask.delayed import delayed

    if X is None:
        if pairs.ndim != 3 or pairs.shape[1:] != (2, n_features):
            raise ValueError(f"pairs must have shape (m, 2, {n_features}), got {pairs.shape}")
        whole = pairs.rechunk({1: -1, 2: -1})
        return whole.map_blocks(_between, metric, squared, dtype=np.float64, drop_axis=[1, 2])
    vectors: Any = vectors_of(_checked_array(X, n_features, "the learner"))
    rows = row_numbers(pairs, len(vectors))
    step = max(_TAKEN // (2 * n_features), 1)
    parts = []
    for low in range(0, len(rows), step):
        named, place = np.unique(rows[low : low + step], return_inverse=True)
        own = place.reshape(-1, 2)
        task = delayed(_among)(vectors.gathered(named), own, metric, squared)
        parts.append(da.from_delayed(task, (len(own),), np.float64))
    return da.concatenate(parts) if parts else da.zeros(0)


def _checked_array(X: Any, n_features: int, name: str) -> Any:
    array = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    if array.ndim != 2 or array.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} columns, as {name} was fitted with, got {array.shape}")
    return array.rechunk({1: -1})


def _between(pairs: Any, metric: Any, squared: bool) -> Array:
    flat = np.asarray(pairs, dtype=np.float64).reshape(-1, pairs.shape[2])
    return _among(flat, np.arange(len(flat)).reshape(-1, 2), metric, squared)


def _among(rows: Any, pairs: Index, metric: Any, squared: bool) -> Array:
    found = metric.pair_squared_distances(np.asarray(rows, dtype=np.float64), *pairs.T)
    return np.asarray(found if squared else np.sqrt(found))


def _nearest_in(
    first: int,
    rows: NDArray[Any],
    codes: Codes,
    coordinates: Array,
    asking: Index,
    own: Codes,
    centre: Array,
    factor: Array,
) -> list[tuple[Array, Index]]:
    """Of a chunk, the nearest objects of the same class as each that asks, and of the others."""
    labelled = np.flatnonzero(codes >= 0)
    refuse_not_finite(rows[labelled], first + labelled)
    labelled = labelled[np.argsort(codes[labelled], kind="stable")]  # so that a class is a run of columns
    others = (rows[labelled] - centre) @ factor
    count = min(drawing.N_NEIGHBORS, len(labelled))
    found = [
        (np.full((len(asking), count), np.inf), np.zeros((len(asking), count), np.int64)) for _ in range(2)
    ]
    step = max(_AT_A_TIME // max(len(labelled), 1), 1)
    for code in np.unique(own) if count else ():
        members = np.flatnonzero(own == code)
        begin, end = np.searchsorted(codes[labelled], [code, code + 1])
        for low in range(0, len(members), step):
            part = members[low : low + step]
            distances = all_squared_distances(coordinates[part], others)
            distances[asking[part, None] == first + labelled] = np.inf
            _keep_nearest(found[0], part, distances[:, begin:end], first + labelled[begin:end])
            distances[:, begin:end] = np.inf
            _keep_nearest(found[1], part, distances, first + labelled)
    return found


def _keep_nearest(found: tuple[Array, Index], part: Index, distances: Array, rows: Index) -> None:
    """Of some objects, the nearest rows and their distances; what is left over stays infinitely far.

    Of rows at the same distance the first are kept, and come first.
    """
    count = min(found[0].shape[1], len(rows))
    if count:
        near = smallest(distances, rows, count)
        apart = np.take_along_axis(distances, near, axis=1)
        order = np.lexsort((rows[near], apart), axis=1)
        found[0][part, :count] = np.take_along_axis(apart, order, axis=1)
        found[1][part, :count] = np.take_along_axis(rows[near], order, axis=1)
