"""Side information: what is known about some objects, by their ids.

The constructors (`similar`, `at_most`, `closer`, `linear`, `from_labels`, ...) check their arguments and
return `Constraints`, which are immutable; `+` joins them. Distances are squared distances throughout. An id
is an integer or a string; ids are row numbers of the data unless `sample_ids` names the rows.

>>> from nearwise import constraints as c
>>> side = c.at_most([(0, 1), (0, 2)], 0.25) + c.closer([(0, 1, 3)], margin=0.5)
>>> side
<Constraints: 2 distances <=, 1 comparison <=>
>>> side.describe(2)
'row 2: d(0, 1) + 0.5 <= d(0, 3)'
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise import _drawing, _labels, _reading
from nearwise._reading import Array, Ids, Rows

Kind = Literal["distance", "comparison", "similarity", "linear"]
Relation = Literal["<=", ">=", "=="]

_SIGNS = {"<=": -1, ">=": 1, "==": 0}
_PLURALS = {"similarity": "similarities", "linear": "linear"}
_SYMBOLS = {sign: symbol for symbol, sign in _SIGNS.items()}


class _ReadOnly:
    """Sets the arrays of a dataclass read-only, in a copy and after unpickling too."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            parts = (value.data, value.indices, value.indptr) if sparse.issparse(value) else (value,)
            for array in parts:
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()


@dataclass(frozen=True, eq=False)
class Linear(_ReadOnly):
    """A symmetric matrix A: `matrix`, or else `factor @ diag(weights) @ factor.T`.

    Attributes
    ----------
    matrix : (size, size) float64 array, `scipy.sparse.csr_array`, or None
    factor : (size, k) float64 array or None
    weights : (k,) float64 array or None
    """

    matrix: Any = None
    factor: Array | None = None
    weights: Array | None = None

    @property
    def size(self) -> int:
        """The number of rows of A."""
        rows: int = (self.matrix if self.factor is None else self.factor).shape[0]
        return rows


@dataclass(frozen=True, eq=False)
class Block(_ReadOnly):
    """Constraint rows of one kind and one relation, stored by column.

    Attributes
    ----------
    kind : "distance", "comparison", "similarity" or "linear"
    relation : -1 for "<=", +1 for ">=", 0 for "=="
    ids : (m, 2) array of int64 or str; (m, 4) for comparisons, whose rows (i, j, k, l) mean
        d(i, j) - d(k, l) <= bound; linear: (n,), the objects of the rows of every matrix, or None for
        the objects 0, ..., n - 1, which then are all objects
    bounds : (m,) float64 array; NaN stands for "filled from the data"
    matrices : one `Linear` per row; empty unless the kind is "linear"
    """

    kind: Kind
    relation: int
    ids: Ids | None
    bounds: Array
    matrices: tuple[Linear, ...] = ()

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def object_ids(self) -> Ids:
        """`ids`, with the objects 0, ..., n - 1 written out where it is None."""
        return np.arange(self.matrices[0].size) if self.ids is None else self.ids

    def describe(self, row: int) -> str:
        """The constraint of one row as text, as in `d(12, 57) <= 0.25`."""
        bound = float(self.bounds[row])
        if self.kind == "linear" or self.ids is None:
            left = f"tr(A[{row}] X)"
        elif self.kind == "comparison":
            margin = f" + {-bound:.6g}" if bound else ""
            return f"{_pair('d', self.ids[row, :2])}{margin} <= {_pair('d', self.ids[row, 2:])}"
        else:
            left = _pair("d" if self.kind == "distance" else "K", self.ids[row])
        right = "a bound filled from the data" if np.isnan(bound) else f"{bound:.6g}"
        return f"{left} {_SYMBOLS[self.relation]} {right}"


@dataclass(frozen=True, eq=False, repr=False)
class Constraints:
    """An immutable list of constraints, grouped in blocks. Made by the constructors of this module.

    `len` is the number of constraints and `+` joins; row numbers count through the blocks.
    """

    blocks: tuple[Block, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> object:
            # In cross-validation scikit-learn slices every fit parameter that has an attribute __len__ and as
            # many entries as X has rows. len() works without the attribute: Python asks the class.
            if name == "__len__":
                raise AttributeError(name)
            return super().__getattribute__(name)

    def __add__(self, other: object) -> Constraints:
        return Constraints(self.blocks + other.blocks) if isinstance(other, Constraints) else NotImplemented

    def __repr__(self) -> str:
        counts: Counter[tuple[Kind, int]] = Counter()
        for block in self.blocks:
            counts[block.kind, block.relation] += len(block)
        parts = [
            f"{count} {kind if count == 1 else _PLURALS.get(kind, kind + 's')} {_SYMBOLS[relation]}"
            for (kind, relation), count in counts.items()
        ]
        return f"<Constraints: {', '.join(parts) or 'none'}>"

    @property
    def relations(self) -> NDArray[np.int8]:
        """-1 for "<=", +1 for ">=", 0 for "==", one per row."""
        signs = np.array([block.relation for block in self.blocks], dtype=np.int8)
        return np.repeat(signs, np.array([len(block) for block in self.blocks], dtype=np.int64))

    @property
    def bounds(self) -> Array:
        """The right-hand sides, one per row; NaN where the bound is filled from the data."""
        return np.concatenate([np.empty(0), *(block.bounds for block in self.blocks)])

    def describe(self, row: int) -> str:
        """One constraint as text, as in `row 3: d(12, 57) <= 0.25`."""
        first = 0
        for block in self.blocks:
            if 0 <= row - first < len(block):
                return f"row {row}: {block.describe(row - first)}"
            first += len(block)
        raise IndexError(f"there is no row {row} in {self!r}")

    def resolve(self, n_objects: int, sample_ids: ArrayLike | None = None) -> tuple[Block, ...]:
        """The blocks with row numbers of the data (int64) in place of ids.

        Parameters
        ----------
        n_objects : the number of rows of the data
        sample_ids : their ids, all different; by default the row numbers themselves

        Returns
        -------
        The same blocks in the same order. The `ids` of a linear block are None where its matrices cover all
        rows of the data in order.
        """
        find = _reading.row_finder(n_objects, sample_ids)
        place = f"a row number below {n_objects}" if sample_ids is None else "in sample_ids"
        resolved: list[Block] = []
        first = 0
        for block in self.blocks:
            ids = block.object_ids
            if block.ids is None and len(ids) != n_objects:
                raise ValueError(
                    f"row {first}: the matrix A has {len(ids)} rows, but there are {n_objects} objects; "
                    "ids in linear() says which of them they are"
                )
            index = find(ids)
            unknown = np.argwhere(index < 0)
            if len(unknown):
                row = first if block.kind == "linear" else first + int(unknown[0, 0])
                wrong = _reading.show(ids[tuple(unknown[0])])
                raise ValueError(f"{self.describe(row)}: the id {wrong} is not {place}")
            in_order = block.kind == "linear" and np.array_equal(index, np.arange(n_objects))
            resolved.append(replace(block, ids=None if in_order else index))
            first += len(block)
        return tuple(resolved)

    def restricted_to(self, sample_ids: ArrayLike) -> tuple[Constraints, int]:
        """The constraints on the given objects alone, and the number of constraints dropped.

        A constraint stays if all its objects are in `sample_ids`.

        >>> from nearwise import constraints as c
        >>> c.similar([(0, 1), (1, 2), (0, 2)]).restricted_to([0, 2])
        (<Constraints: 1 distance <=>, 2)
        """
        known = _reading.id_list(sample_ids, "sample_ids")
        kept: list[Block] = []
        for block in self.blocks:
            ids = block.object_ids
            present = np.isin(ids, known) if ids.dtype.kind == known.dtype.kind else np.zeros(ids.shape, bool)
            if present.all():
                kept.append(replace(block, ids=ids))
            elif block.kind != "linear" and (rows := present.all(axis=1)).any():
                kept.append(replace(block, ids=ids[rows], bounds=block.bounds[rows]))
        restricted = Constraints(tuple(kept))
        return restricted, len(self) - len(restricted)


def similar(pairs: Rows) -> Constraints:
    """Pairs (i, j) that shall be close: d(i, j) <= a bound that is filled from the data."""
    return _distances("<=", pairs, None)


def dissimilar(pairs: Rows) -> Constraints:
    """Pairs (i, j) that shall be far apart: d(i, j) >= a bound that is filled from the data."""
    return _distances(">=", pairs, None)


def at_most(pairs: Rows, b: ArrayLike) -> Constraints:
    """Squared distances d(i, j) <= b, with b > 0 one number or one per pair."""
    return _distances("<=", pairs, b)


def at_least(pairs: Rows, b: ArrayLike) -> Constraints:
    """Squared distances d(i, j) >= b, with b > 0 one number or one per pair."""
    return _distances(">=", pairs, b)


def equal(pairs: Rows, b: ArrayLike) -> Constraints:
    """Squared distances d(i, j) == b, with b > 0 one number or one per pair."""
    return _distances("==", pairs, b)


def closer(tuples: Rows, margin: ArrayLike = 0.0) -> Constraints:
    """Relative comparisons of squared distances.

    Parameters
    ----------
    tuples : rows (a, p, n), which mean d(a, p) + margin <= d(a, n), or rows (i, j, k, l), which mean
        d(i, j) + margin <= d(k, l)
    margin : one number >= 0, or one per row
    """
    ids = _reading.id_rows(tuples, 3, 4)
    if ids.shape[1] == 3:
        ids = ids[:, [0, 1, 0, 2]]
    margins = _reading.column(margin, len(ids), "margin", _reading.not_negative, "a finite number >= 0")
    near, far = ids[:, :2], ids[:, 2:]
    _reading.refuse_self_pairs(near)
    _reading.refuse_self_pairs(far)
    same = np.flatnonzero((near == far).all(axis=1) | (near == far[:, ::-1]).all(axis=1))
    if same.size:
        raise ValueError(f"row {same[0]}: {_pair('d', near[same[0]])} is compared with itself")
    return _constraints("comparison", "<=", ids, 0.0 - margins)


def similarity(pairs: Rows, b: ArrayLike, relation: Relation) -> Constraints:
    """Inner products K_ij `relation` b; i == j is allowed and means the diagonal entry K_ii.

    Parameters
    ----------
    pairs : rows (i, j)
    b : one number or one per pair; positive where it bounds a diagonal entry from above
    relation : "<=", ">=" or "=="
    """
    _check_relation(relation)
    ids = _reading.id_rows(pairs, 2)
    bounds = _reading.column(b, len(ids), "bound", np.isfinite, "a finite number")
    impossible = np.flatnonzero((ids[:, 0] == ids[:, 1]) & (bounds <= 0.0) & (relation != ">="))
    if impossible.size:
        row = impossible[0]
        entry = f"{_pair('K', ids[row])} {relation} {float(bounds[row])}"
        raise ValueError(f"row {row}: {entry} is impossible, because a diagonal entry is > 0")
    return _constraints("similarity", relation, ids, bounds)


def linear(A: Any, b: ArrayLike, relation: Relation, ids: ArrayLike | None = None) -> Constraints:
    """Linear constraints tr(A X) `relation` b on the kernel X.

    Parameters
    ----------
    A : a symmetric matrix (2-D array or scipy sparse), a tuple (U, weights) for U diag(weights) U^T, or
        several of these in a list or a 3-D array, all of one size
    b : one number or one per matrix
    relation : "<=", ">=" or "=="
    ids : the objects of the rows of every A; by default the objects 0, ..., n - 1, which then must be all

    >>> import numpy as np
    >>> from nearwise import constraints as c
    >>> c.linear(np.eye(4), 1.0, "==")
    <Constraints: 1 linear ==>
    """
    _check_relation(relation)
    matrices = tuple(Linear(*parts) for parts in _reading.matrices(A))
    bounds = _reading.column(b, len(matrices), "bound", np.isfinite, "a finite number", unit="matrix")
    for number, matrix in enumerate(matrices):
        if matrix.size != matrices[0].size:
            raise ValueError(f"matrix {number} has {matrix.size} rows, but matrix 0 has {matrices[0].size}")
    objects = None if ids is None else _reading.id_list(ids, "ids")
    if objects is not None:
        _reading.refuse_duplicates(objects, "ids")
        if matrices and len(objects) != matrices[0].size:
            raise ValueError(f"ids has {len(objects)} entries, but matrix 0 has {matrices[0].size} rows")
    return _constraints("linear", relation, objects, bounds, matrices)


def from_labels(
    y: ArrayLike,
    X: Any = None,
    draw: Literal["random", "local"] = "random",
    n_pairs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
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

    >>> from nearwise import constraints as c
    >>> c.from_labels(["a", "a", "b", "b"], random_state=0)
    <Constraints: 2 distances <=, 4 distances >=>
    """
    codes = _labels.read(y).for_pairs(stacklevel=2)
    same, different = _drawing.pairs_of_classes(codes, X, draw, n_pairs, random_state)
    return similar(same) + dissimilar(different)


def from_tuples(tuples: ArrayLike, y: ArrayLike | None = None) -> tuple[Array, Constraints]:
    """Tuples of vectors, in the layout of metric-learn, as data and constraints.

    Parameters
    ----------
    tuples : array of shape (m, 2, d): pairs, similar where y is +1 and dissimilar where it is -1;
        (m, 3, d): triplets (a, p, n), for d(a, p) <= d(a, n);
        (m, 4, d): quadruplets (i, j, k, l), for d(i, j) <= d(k, l), or the reverse where y is -1
    y : +1 or -1 per tuple; needed for pairs, optional for quadruplets, not allowed for triplets

    Returns
    -------
    The distinct vectors as rows of X, and constraints by row number of X, similar pairs before dissimilar.
    Two equal vectors that are compared are two objects: learners leave a pair out that wants them apart.
    """
    vectors, signs = _reading.tuples_of_vectors(tuples, y)
    m, width, d = vectors.shape
    X, inverse = np.unique(vectors.reshape(m * width, d), axis=0, return_inverse=True)
    ids = inverse.reshape(m, width)
    if width == 2:
        ids, X = _reading.told_apart(ids, X)
        return X, similar(ids[signs > 0]) + dissimilar(ids[signs < 0])
    pairs = ids[:, [0, 1, 0, 2]] if width == 3 else ids
    pairs, X = _reading.told_apart(np.where(signs[:, np.newaxis] > 0, pairs, pairs[:, [2, 3, 0, 1]]), X)
    return X, closer(pairs)


def _distances(relation: Relation, pairs: Rows, b: ArrayLike | None) -> Constraints:
    ids = _reading.id_rows(pairs, 2)
    bounds = np.full(len(ids), np.nan)
    if b is not None:
        bounds = _reading.column(b, len(ids), "bound", _reading.positive, "a finite number > 0")
    _reading.refuse_self_pairs(ids)
    return _constraints("distance", relation, ids, bounds)


def _constraints(
    kind: Kind, relation: Relation, ids: Ids | None, bounds: Array, matrices: tuple[Linear, ...] = ()
) -> Constraints:
    return Constraints((Block(kind, _SIGNS[relation], ids, bounds, matrices),) if len(bounds) else ())


def _check_relation(relation: str) -> None:
    if relation not in _SIGNS:
        raise ValueError(f"relation must be '<=', '>=' or '==', got {relation!r}")


def _pair(symbol: str, pair: Ids) -> str:
    return f"{symbol}({_reading.show(pair[0])}, {_reading.show(pair[1])})"
