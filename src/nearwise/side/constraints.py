"""Side information: what is known about some objects, by their ids.

The constructors (`similar`, `at_most`, `closer`, `linear`, `from_labels`, ...) check their arguments and
return `Constraints`, immutable, which `+` joins. Distances are squared throughout. An id is an integer or a
string, a row number of the data unless `sample_ids` names the rows. `weights`, one number > 0 or one per row,
multiplies the penalty: a row of weight 2 counts like two rows of weight 1. They are from 1e-50 to 1e50.

Pairs and tuples may be more than memory has room for: a file, what `nearwise.distributed.open_pairs` opened,
a Dask array or dataframe. Bounds and weights are then one number, or the name of a column.

>>> from nearwise import constraints as c
>>> side = c.at_most([(0, 1), (0, 2)], 0.25) + c.closer([(0, 1, 3)], margin=0.5)
>>> side
<Constraints: 2 distances <=, 1 comparison <=>
>>> side.describe(2)
'row 2: d(0, 1) + 0.5 <= d(0, 3)'
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import reading
from nearwise._common.columns import ColumnWriter, Constant
from nearwise._common.errors import RowError
from nearwise._common.reading import Ids, Rows
from nearwise._common.types import Array
from nearwise.distributed.pairs import Batch, PairTable, Texts, table_of
from nearwise.linalg.distances import squared_distances
from nearwise.side import drawing, labelling
from nearwise.side.blocks import Block, Constraints
from nearwise.side.kinds.kind import shown_pair
from nearwise.side.matrices import Linear
from nearwise.side.relations import Relation, sign_of

Table = Rows | PairTable | os.PathLike[str]
Made = Callable[[Ids, Any, Any], Constraints]  # of ids, bounds and weights of some rows


def similar(pairs: Table, weights: ArrayLike | None = None) -> Constraints:
    """Pairs (i, j) that shall be close: d(i, j) <= a bound that is filled from the data."""
    return _distances("<=", pairs, None, weights)


def dissimilar(pairs: Table, weights: ArrayLike | None = None) -> Constraints:
    """Pairs (i, j) that shall be far apart: d(i, j) >= a bound that is filled from the data."""
    return _distances(">=", pairs, None, weights)


def at_most(pairs: Table, b: ArrayLike, weights: ArrayLike | None = None) -> Constraints:
    """Squared distances d(i, j) <= b, with b > 0 one number or one per pair."""
    return bounded(pairs, b, "<=", weights)


def at_least(pairs: Table, b: ArrayLike, weights: ArrayLike | None = None) -> Constraints:
    """Squared distances d(i, j) >= b, with b > 0 one number or one per pair."""
    return bounded(pairs, b, ">=", weights)


def equal(pairs: Table, b: ArrayLike, weights: ArrayLike | None = None) -> Constraints:
    """Squared distances d(i, j) == b, with b > 0 one number or one per pair."""
    return bounded(pairs, b, "==", weights)


def bounded(pairs: Table, b: ArrayLike, relation: Relation, weights: ArrayLike | None = None) -> Constraints:
    """Squared distances d(i, j) `relation` b, with b > 0 one number or one per pair."""
    return _distances(relation, pairs, b, weights)


def closer(tuples: Table, margin: ArrayLike = 0.0, weights: ArrayLike | None = None) -> Constraints:
    """Relative comparisons of squared distances.

    Parameters
    ----------
    tuples : rows (a, p, n), which mean d(a, p) + margin <= d(a, n), or rows (i, j, k, l), which mean
        d(i, j) + margin <= d(k, l)
    margin : one number >= 0, or one per row
    weights : how much a violation counts, one number > 0 or one per row; by default 1
    """
    if (table := table_of(tuples)) is not None:
        return from_table(table, margin, weights, closer)
    ids = reading.id_rows(tuples, 3, 4)
    if ids.shape[1] == 3:
        ids = ids[:, [0, 1, 0, 2]]
    margins = reading.column(margin, len(ids), "margin", reading.not_negative, "a finite number >= 0")
    near, far = ids[:, :2], ids[:, 2:]
    reading.refuse_self_pairs(near)
    reading.refuse_self_pairs(far)
    same = np.flatnonzero((near == far).all(axis=1) | (near == far[:, ::-1]).all(axis=1))
    if same.size:
        pair = shown_pair("d", near[same[0]], reading.show)
        raise RowError(int(same[0]), f"{pair} is compared with itself")
    return _constraints("comparison", "<=", ids, 0.0 - margins, weights=weights)


def similarity(
    pairs: Table, b: ArrayLike, relation: Relation, weights: ArrayLike | None = None
) -> Constraints:
    """Inner products K_ij `relation` b; i == j is allowed and means the diagonal entry K_ii.

    Parameters
    ----------
    pairs : rows (i, j)
    b : one number or one per pair; positive where it bounds a diagonal entry from above
    relation : "<=", ">=" or "=="
    weights : how much a violation counts, one number > 0 or one per pair; by default 1
    """
    sign_of(relation)
    if (table := table_of(pairs)) is not None:
        return from_table(table, b, weights, lambda rows, b, weights: similarity(rows, b, relation, weights))
    ids = reading.id_rows(pairs, 2)
    bounds = reading.column(b, len(ids), "bound", np.isfinite, "a finite number")
    impossible = np.flatnonzero((ids[:, 0] == ids[:, 1]) & (bounds <= 0.0) & (relation != ">="))
    if impossible.size:
        row = impossible[0]
        entry = f"{shown_pair('K', ids[row], reading.show)} {relation} {float(bounds[row])}"
        raise RowError(int(row), f"{entry} is impossible, because a diagonal entry is > 0")
    return _constraints("similarity", relation, ids, bounds, weights=weights)


def linear(
    A: Any,
    b: ArrayLike,
    relation: Relation,
    ids: ArrayLike | None = None,
    symmetrise: bool = False,
    weights: ArrayLike | None = None,
) -> Constraints:
    """Linear constraints tr(A X) `relation` b on the kernel X.

    Parameters
    ----------
    A : a symmetric matrix (2-D array or scipy sparse), a tuple (U, weights) for U diag(weights) U^T, or
        several of these in a list or a 3-D array, all of one size
    b : one number or one per matrix
    relation : "<=", ">=" or "=="
    ids : the objects of the rows of every A; by default the objects 0, ..., n - 1, which then must be all
    symmetrise : whether A may be other than symmetric, as x y^T is (KSD06): tr(A X) is that of its symmetric
        part, because X is symmetric. By default such an A is refused, as it may be a mistake.
    weights : how much a violation counts, one number > 0 or one per matrix; by default 1

    >>> import numpy as np
    >>> from nearwise import constraints as c
    >>> c.linear(np.eye(4), 1.0, "==")
    <Constraints: 1 linear ==>
    """
    sign_of(relation)
    matrices = tuple(Linear(*parts) for parts in reading.matrices(A, symmetrise))
    bounds = reading.column(b, len(matrices), "bound", np.isfinite, "a finite number", unit="matrix")
    for number, matrix in enumerate(matrices):
        if matrix.size != matrices[0].size:
            raise ValueError(f"matrix {number} has {matrix.size} rows, but matrix 0 has {matrices[0].size}")
    objects = None if ids is None else reading.id_list(ids, "ids")
    if objects is not None:
        reading.refuse_duplicates(objects, "ids")
        if matrices and len(objects) != matrices[0].size:
            raise ValueError(f"ids has {len(objects)} entries, but matrix 0 has {matrices[0].size} rows")
    return _constraints("linear", relation, objects, bounds, matrices, weights)


def from_labels(
    y: ArrayLike,
    X: Any = None,
    draw: Literal["random", "local"] = "random",
    n_pairs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    bounds: tuple[float, float] | None = None,
    per_class: int | None = None,
) -> Constraints:
    """Similar pairs of equal labels, dissimilar pairs of different labels; bounds are filled from the data.

    Parameters
    ----------
    y : labels of any type, one per row of the data; None, NaN and -1 mean no label (-1 and +1 alone are two
        classes, with a warning), and numbers that can be no classes are refused
    X : the data; needed for `draw="local"`
    draw : "random" draws pairs uniformly, half of them similar where the labels permit (KSD09 7.2);
        "local" takes every object with its five nearest objects of its class and of the other classes
    n_pairs : the number of pairs, if there are as many; by default 40 c^2 for c classes, and all for "local"
    random_state : seed or `numpy.random.RandomState`, as in scikit-learn
    bounds : two factors, as (0.75, 1.25): a similar pair shall come below the first times its own squared
        distance in X, a dissimilar one above the second times it (KSD09 7.1, MBS11 10.2). Pairs of equal rows
        are left out then. By default bounds are left open, and filled by who learns from them.
    per_class : in place of `n_pairs`, so many pairs within each class and so many of its objects with others,
        or all if there are fewer (JKDD12 6 takes 100), so that small classes say as much as large ones

    >>> from nearwise import constraints as c
    >>> c.from_labels(["a", "a", "b", "b"], random_state=0)
    <Constraints: 2 distances <=, 4 distances >=>
    """
    codes = labelling.read(y).for_pairs()
    same, different = drawing.pairs_of_classes(codes, X, draw, n_pairs, random_state, per_class)
    if bounds is None:
        pairs = similar(same) + dissimilar(different)
        return Constraints(tuple(replace(block, drawn=True) for block in pairs.blocks))
    if X is None:
        raise ValueError("bounds are multiples of the squared distances in X: give X")
    below, above = reading.column(bounds, 2, "bounds", reading.positive, "a finite number > 0")
    found = [(pairs, squared_distances(X, *pairs.T)) for pairs in (same, different)]
    (near, d_near), (far, d_far) = ((pairs[d > 0], d[d > 0]) for pairs, d in found)
    return at_most(near, below * d_near) + at_least(far, above * d_far)


def from_tuples(
    tuples: ArrayLike, y: ArrayLike | None = None, weights: ArrayLike | None = None
) -> tuple[Array, Constraints]:
    """Tuples of vectors, in the layout of metric-learn, as data and constraints.

    Parameters
    ----------
    tuples : array of shape (m, 2, d): pairs, similar where y is +1 and dissimilar where it is -1 or 0;
        (m, 3, d): triplets (a, p, n), for d(a, p) <= d(a, n);
        (m, 4, d): quadruplets (i, j, k, l), for d(i, j) <= d(k, l), or the reverse where y is -1
    y : +1 or -1 per tuple, or 1 and 0, or True and False; needed for pairs, optional for quadruplets, not
        allowed for triplets
    weights : how much a violation counts, one number > 0 or one per tuple; by default 1

    Returns
    -------
    The distinct vectors as rows of X, and constraints by row number of X, similar pairs before dissimilar.
    Two equal vectors that are compared are two objects: learners leave a pair out that wants them apart.
    """
    vectors, signs = reading.tuples_of_vectors(tuples, y)
    m, width, d = vectors.shape
    X, inverse = np.unique(vectors.reshape(m * width, d), axis=0, return_inverse=True)
    ids = inverse.reshape(m, width)
    counts = None if weights is None else _weights(weights, m, "tuple")
    if width == 2:
        ids, X = reading.told_apart(ids, X)
        near, far = signs > 0, signs < 0
        parts = (None, None) if counts is None else (counts[near], counts[far])
        return X, similar(ids[near], parts[0]) + dissimilar(ids[far], parts[1])
    pairs = ids[:, [0, 1, 0, 2]] if width == 3 else ids
    pairs, X = reading.told_apart(np.where(signs[:, np.newaxis] > 0, pairs, pairs[:, [2, 3, 0, 1]]), X)
    return X, closer(pairs, weights=counts)


def _distances(
    relation: Relation, pairs: Table, b: ArrayLike | None, weights: ArrayLike | None
) -> Constraints:
    if (table := table_of(pairs)) is not None:
        return from_table(table, b, weights, lambda rows, b, weights: _distances(relation, rows, b, weights))
    ids = reading.id_rows(pairs, 2)
    bounds = np.full(len(ids), np.nan)
    if b is not None:
        bounds = reading.column(b, len(ids), "bound", reading.positive, "a finite number > 0")
    reading.refuse_self_pairs(ids)
    return _constraints("distance", relation, ids, bounds, weights=weights)


def _constraints(
    kind: str,
    relation: Relation,
    ids: Ids | None,
    bounds: Array,
    matrices: tuple[Linear, ...] = (),
    weights: ArrayLike | None = None,
) -> Constraints:
    counts = None if weights is None else _weights(weights, len(bounds), "matrix" if matrices else "row")
    block = Block(kind, sign_of(relation), ids, bounds, matrices, counts)
    return Constraints((block,) if len(bounds) else ())


def _weights(weights: ArrayLike, count: int, unit: str) -> Array:
    return reading.column(weights, count, "weight", reading.is_weight, reading.A_WEIGHT, unit=unit)


def from_table(table: PairTable, bound: Any, weights: Any, made: Made) -> Constraints:
    """The constraints of all rows of a table, each part of which `made` checks as it does arrays.

    Parameters
    ----------
    table : the rows
    bound, weights : one number for all rows, the name of a column, or None
    made : the constructor
    """
    given = {"bounds": bound, "weights": weights}
    columns = {name: value for name, value in given.items() if isinstance(value, str)}
    for name, value in given.items():
        if value is not None and not isinstance(value, str | Real):
            raise TypeError(
                f"{name} of a table of pairs must be one number or the name of a column, got {value!r:.60}"
            )
    writer, texts, first = ColumnWriter(table.scratch), Texts(), None
    smallest, largest, count = np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0
    in_place = table.plain is not None
    try:
        for batch in table.batches(texts, *columns.values()):
            own = {
                name: batch.others[columns[name]] if name in columns else value
                for name, value in given.items()
            }
            block = _checked(made, batch, texts, own)
            first = first or block
            kept: dict[str, Any] = {name: getattr(block, name) for name in columns}
            in_place = in_place and block.ids is not None and block.ids.shape == batch.ids.shape
            if not in_place:
                width = np.int64 if texts.known is None else np.int32
                kept["ids"] = block.object_ids.astype(width, copy=False)
            if kept:
                writer.append(**kept)
            smallest = min(smallest, int(block.object_ids.min()))
            largest = max(largest, int(block.object_ids.max()))
            count += len(block)
        found: dict[str, Any] = dict(writer.columns())
    finally:
        writer.close()
    if first is None:
        return Constraints()
    ids: Any = found.get("ids", table.plain)
    span = (smallest, largest) if texts.known is None else None
    found["ids"] = replace(ids, texts=texts.array(), span=span, origin=table)
    for name in given:
        if name not in found and getattr(first, name) is not None:
            found[name] = Constant(float(getattr(first, name)[0]), count)
    return Constraints((replace(first, **found),))


def _checked(made: Made, batch: Batch, texts: Texts, own: dict[str, Any]) -> Block:
    """The rows of a batch as a block; an error names the file and the row."""
    try:
        try:
            return made(batch.ids, own["bounds"], own["weights"]).blocks[0]
        except RowError:
            if (names := texts.array()) is None:
                raise
            return made(names[batch.ids], own["bounds"], own["weights"]).blocks[0]  # which names the ids
    except RowError as error:
        raise ValueError(f"{batch.place(error.row)}: {error.words}") from None
