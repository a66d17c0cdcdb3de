"""Feedback as an online learner takes it: tuples of vectors, constraints, labels; and what fills open bounds.

Everything is read row by row in the order given, and nothing depends on how many rows come at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import column_or_1d

from nearwise._common import reading
from nearwise._common.errors import RowsError
from nearwise._common.types import Array, Index
from nearwise._common.warning import warn
from nearwise.side import Block, Constraints, LeftOutWarning, bounds, labelling

_MOST_REPEATED = 10_000_000  # pieces that weights may make
CALIBRATED = 200  # distances from which open bounds are filled


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of feedback on rows of some data, in order; see `online.streams.Stream`.

    `bound` is NaN where it is open. `weight` says how often a piece comes; None where each comes once.
    """

    rows: Index
    relation: NDArray[np.int8]
    bound: Array
    weight: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __add__(self, other: Pieces) -> Pieces:
        return Pieces(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.relation, other.relation]),
            np.concatenate([self.bound, other.bound]),
            None if self.weight is other.weight is None else np.concatenate([self.weights, other.weights]),
        )

    @property
    def weights(self) -> Array:
        """How often each comes."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def repeated(self) -> tuple[Pieces, Index]:
        """Each as often as it comes, one after the other, with a weight of at most 1; and which one it is.

        A weight of 2.5 makes two of weight 1 and one of weight 0.5, which is to be a share of the rate.
        """
        if self.weight is None:
            return self, np.arange(len(self))
        if self.weight.sum() > _MOST_REPEATED:
            raise ValueError(
                f"the weights of online feedback are repetitions, and {self.weight.sum():.3g} are too many: "
                "divide them by a number"
            )
        counts = np.ceil(self.weight).astype(np.int64)
        weight = np.ones(int(counts.sum()))
        weight[np.cumsum(counts) - 1] = self.weight - (counts - 1)
        which = np.repeat(np.arange(len(self)), counts)
        return replace(self.part(which), weight=weight), which

    def weighed(self, weights: Array | None) -> Pieces:
        """The same, each as often as its weight says; those of weight 0 left out."""
        if weights is None:
            return self
        return replace(self, weight=weights).part(np.flatnonzero(weights > 0))

    def part(self, chosen: Index) -> Pieces:
        """Some of them, in this order."""
        weight = None if self.weight is None else self.weight[chosen]
        return Pieces(self.rows[chosen], self.relation[chosen], self.bound[chosen], weight)

    def inside(self, outside: Array) -> Pieces:
        """The same for a subspace, outside which squared distances of the pairs (i, j), (k, l) are fixed."""
        fixed = outside[:, 0] - np.where(self.rows[:, 2] >= 0, outside[:, 1], 0.0)
        return replace(self, bound=self.bound - fixed)


def nothing() -> Pieces:
    """No feedback."""
    return Pieces(np.empty((0, 4), np.int64), np.empty(0, np.int8), np.empty(0))


def of_tuples(tuples: Any, y: ArrayLike | None, squared_distances: ArrayLike | None) -> tuple[Array, Pieces]:
    """Pairs (m, 2, d), triplets (m, 3, d) or quadruplets (m, 4, d) of vectors, and what they say."""
    if squared_distances is not None:
        if y is not None:
            raise ValueError("pairs have a kind (y) or squared_distances: give one of them")
        vectors, _ = reading.tuples_of_vectors(tuples, 1.0 if np.shape(tuples)[1] == 2 else None)
        if vectors.shape[1] != 2:
            raise ValueError(f"squared_distances belong to pairs, got tuples of {vectors.shape[1]} vectors")
        bound = reading.column(
            squared_distances, len(vectors), "squared distance", reading.positive, "a finite number > 0"
        )
        return _numbered(vectors, np.zeros(len(vectors), np.int8), bound)
    vectors, sign = reading.tuples_of_vectors(tuples, y)
    m, width, _ = vectors.shape
    if width == 2:
        return _numbered(vectors, (-sign).astype(np.int8), np.full(m, np.nan))
    rows, pieces = _numbered(vectors, np.full(m, -1, np.int8), np.zeros(m))
    return rows, replace(pieces, rows=np.where(sign[:, None] > 0, pieces.rows, pieces.rows[:, [2, 3, 0, 1]]))


def tell_of_equal(vectors: Array, pieces: Pieces) -> None:
    """Say which pairs of equal vectors are to be apart."""
    apart = np.flatnonzero((pieces.relation >= 0) & (pieces.rows[:, 2] < 0))
    i, j = pieces.rows[apart, :2].T
    equal = apart[(vectors[i] == vectors[j]).all(axis=1)]
    if len(equal):
        pairs = f"{len(equal)} pairs" if len(equal) > 1 else "the pair"
        where = f"row {equal[0]}" if len(equal) == 1 else f"row {equal[0]} first"
        message = f"the vectors of {pairs} ({where}) are equal, and no metric can set them apart"
        warn(LeftOutWarning(message))


def of_blocks(blocks: tuple[Block, ...]) -> Pieces:
    """Constraints by row number, of distances and comparisons."""
    found = nothing()
    first = 0
    for block in blocks:
        if block.of_kind.n_distances == 0:
            hint = "an online learner learns from distances and comparisons"
            raise RowsError([Constraints(blocks).stated(first)], after=f" is no bound on distances; {hint}")
        assert block.ids is not None
        rows = np.full((len(block), 4), -1, np.int64)
        rows[:, : block.ids.shape[1]] = block.ids
        found += Pieces(rows, np.full(len(block), block.relation, np.int8), block.bounds, block.weights)
        first += len(block)
    return found


def label_list(y: ArrayLike, n: int) -> list[Any]:
    """Labels of any type, None where there is none; `_labels` says what these are."""
    if reading.regular_array(y, "y").shape[1:] == (1,):
        y = column_or_1d(y, warn=True)
    mixed = isinstance(y, list) and any(isinstance(label, str) for label in y)
    labels = np.asarray(y, dtype=object if mixed else None)
    if labels.shape != (n,):
        raise ValueError(f"X has {n} rows, so there must be {n} labels, got an array of shape {labels.shape}")
    return labelling.in_stream(labels.tolist())


def of_labels(labels: list[Any], seen: list[Any]) -> tuple[Pieces, list[Any], list[int]]:
    """Each row with the latest row of its class, and with the latest row of another.

    A row without a label (None) says nothing. `seen` are the classes so far, the latest last; their rows have
    the numbers 0, 1, ..., and new rows those after. Returns the pieces, the classes seen after, and the
    numbers of their latest rows.
    """
    latest = {label: number for number, label in enumerate(seen)}
    rows: list[tuple[int, int, int, int]] = []
    relation: list[int] = []
    for number, label in enumerate(labels, start=len(seen)):
        if label is None:
            continue
        own = latest.pop(label, None)
        if own is not None:
            rows.append((own, number, -1, -1))
            relation.append(-1)
        if latest:
            rows.append((next(reversed(latest.values())), number, -1, -1))
            relation.append(1)
        latest[label] = number
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    pieces = Pieces(table, np.array(relation, np.int8), np.full(len(table), np.nan))
    return pieces, list(latest), list(latest.values())


def calibrated(distances: Array, known: Array) -> tuple[Array, Array]:
    """Upper bound, unit and lower bound for each of some squared distances, and the distances known after.

    They come from the first `CALIBRATED` distances that are not zero, of as many as there are so far. Of one
    distance alone the percentiles are itself, so that without the margin it would be its own bound and the
    first pair would teach nothing. The distances known are in ascending order.
    """
    found = np.zeros((len(distances), 3))
    k = 0
    while k < len(distances) and len(known) < CALIBRATED:
        if distances[k] > 0.0:
            known = np.insert(known, np.searchsorted(known, distances[k]), distances[k])
        if (filling := bounds.of_ascending(known)) is not None:
            found[k] = filling.upper, filling.threshold, filling.lower
        k += 1
    if k < len(distances) and (filling := bounds.of_ascending(known)) is not None:
        found[k:] = filling.upper, filling.threshold, filling.lower
    return found, known


def evenly_chosen(distances: Array) -> Array:
    """As many quantiles of all given squared distances, but for zeros, as calibration takes."""
    distances = distances[distances > 0.0]
    if not len(distances):
        return np.empty(0)
    return np.quantile(distances, (np.arange(CALIBRATED) + 0.5) / CALIBRATED)


def projected(X: Any, columns: Array) -> Array:
    """X @ columns, row by row."""
    from nearwise.linalg.loops.online import project_rows, project_sparse_rows

    out = np.empty((X.shape[0], columns.shape[1]))
    columns = np.ascontiguousarray(columns)
    if sparse.issparse(X):
        index = np.asarray(X.indices, np.int64), np.asarray(X.indptr, np.int64)
        project_sparse_rows(np.asarray(X.data, np.float64), *index, columns, out)
    else:
        project_rows(np.ascontiguousarray(X), columns, out)
    return out


def squared_lengths(features: Array, rows: Index) -> Array:
    """|f_i - f_j|^2 of pairs (i, j)."""
    from nearwise.linalg.loops.online import squared_lengths as fill

    out = np.empty(len(rows))
    fill(features, np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1]), out)
    return out


def _numbered(vectors: Array, relation: NDArray[np.int8], bound: Array) -> tuple[Array, Pieces]:
    """The vectors one below the other; triplets (a, p, n) as (a, p, a, n)."""
    m, width, d = vectors.shape
    numbers = np.arange(m * width).reshape(m, width)
    columns = {2: [0, 1], 3: [0, 1, 0, 2], 4: [0, 1, 2, 3]}[width]
    rows = np.full((m, 4), -1, np.int64)
    rows[:, : len(columns)] = numbers[:, columns]
    return vectors.reshape(m * width, d), Pieces(rows, relation, bound)
