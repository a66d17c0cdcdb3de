"""What constraints are stored as: blocks of rows of one kind and relation, and lists of blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common import reading
from nearwise._common.errors import RowsError
from nearwise._common.markup import fact_table, listing
from nearwise._common.reading import Ids
from nearwise._common.types import Array, Mask
from nearwise.model.kinds import KINDS, Kind
from nearwise.model.kinds.kind import Names
from nearwise.model.relations import SYMBOLS

_SHOWN = 5  # rows of a list in a notebook


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

    @property
    def norm(self) -> float:
        """A bound on the Frobenius norm of A and of what it is a sum of."""
        if self.factor is not None and self.weights is not None:
            return float(np.abs(self.weights) @ np.einsum("ij,ij->j", self.factor, self.factor))
        entries = self.matrix.data if sparse.issparse(self.matrix) else self.matrix
        return float(np.linalg.norm(entries))


@dataclass(frozen=True, eq=False)
class Block(_ReadOnly):
    """Constraint rows of one kind and one relation, stored by column.

    Attributes
    ----------
    kind : its name in `kinds.KINDS`: "distance", "comparison", "similarity" or "linear"
    relation : -1 for "<=", +1 for ">=", 0 for "=="
    ids : (m, 2) array of int64 or str; (m, 4) for comparisons, whose rows (i, j, k, l) mean
        d(i, j) - d(k, l) <= bound; linear: (n,), the objects of the rows of every matrix, or None for
        the objects 0, ..., n - 1, which then are all objects
    bounds : (m,) float64 array; NaN stands for "filled from the data"
    matrices : one `Linear` per row; empty unless the kind is "linear"
    weights : (m,) float64 array, how much a violation of every row counts; None where all count 1
    """

    kind: str
    relation: int
    ids: Ids | None
    bounds: Array
    matrices: tuple[Linear, ...] = ()
    weights: Array | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"{self.kind!r} is no kind of constraint; kinds are {known}")
        super().__post_init__()

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def object_ids(self) -> Ids:
        """`ids`, with the objects 0, ..., n - 1 written out where it is None."""
        return np.arange(self.matrices[0].size) if self.ids is None else self.ids

    @property
    def of_kind(self) -> Kind:
        """The atoms, words and grading of its kind."""
        return KINDS[self.kind]

    def describe(self, row: int, bound: float | None = None, names: Names = reading.show) -> str:
        """The constraint of one row as text, as in `d(12, 57) <= 0.25`.

        Parameters
        ----------
        row : its number in the block
        bound : what fills an open bound
        names : how an id is written
        """
        given = float(self.bounds[row])
        shown = bound if bound is not None and np.isnan(given) else given
        return self.of_kind.text(self, row, SYMBOLS[self.relation], shown, names)

    @property
    def tells_pairs(self) -> bool:
        """Whether its rows say which pairs shall be near (relation -1) or far (+1)."""
        return self.of_kind.n_distances == 1 and self.relation != 0

    @property
    def counts(self) -> Array:
        """The weights, also where all are 1."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def part(self, rows: NDArray[np.int64]) -> Block:
        """Some of the rows."""
        ids = self.ids if self.of_kind.shares_objects or self.ids is None else self.ids[rows]
        matrices = tuple(self.matrices[row] for row in rows) if self.matrices else ()
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, ids=ids, bounds=self.bounds[rows], matrices=matrices, weights=weights)

    def about_any(self, chosen: Mask) -> Mask:
        """The rows that name one or more of the chosen objects; `chosen` has the shape of `object_ids`."""
        if self.of_kind.shares_objects:
            return np.full(len(self), bool(chosen.any()))
        return np.asarray(chosen.any(axis=1))


@dataclass(frozen=True, eq=False)
class Stated:
    """One constraint of a list, for messages about it.

    Attributes
    ----------
    row : its number in the list
    block, place : a block, and the number of the constraint there
    bound : what fills an open bound, where that is known
    """

    row: int
    block: Block
    place: int = 0
    bound: float | None = None

    def __str__(self) -> str:
        return f"row {self.row}: {self.text()}"

    def text(self, names: Names = reading.show) -> str:
        """As in `d(12, 57) <= 0.25`, with the ids written by `names`."""
        return self.block.describe(self.place, self.bound, names)


@dataclass(frozen=True, eq=False, repr=False)
class Constraints:
    """An immutable list of constraints, grouped in blocks. Made by the constructors of `constraints`.

    `len` is the number of constraints and `+` joins; row numbers count through the blocks.
    """

    blocks: tuple[Block, ...] = ()

    def __len__(self) -> int:
        return sum([len(block.bounds) for block in self.blocks])

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
        return f"<Constraints: {self.counted()}>"

    def counted(self) -> str:
        """How many there are of every kind and relation, as text."""
        counts: Counter[tuple[str, int]] = Counter()
        for block in self.blocks:
            counts[block.kind, block.relation] += len(block)
        parts = [
            f"{count} {kind if count == 1 else KINDS[kind].plural} {SYMBOLS[relation]}"
            for (kind, relation), count in counts.items()
        ]
        return ", ".join(parts) or "none"

    def _repr_html_(self) -> str:
        rows = [(row, self.stated(row).text()) for row in range(min(len(self), _SHOWN))]
        more = [("...", f"{len(self) - _SHOWN:,} more")] if len(self) > _SHOWN else []
        about = {"in all": self.counted()}
        return fact_table("Constraints", about, listing(("row", "constraint"), [*rows, *more]))

    @property
    def relations(self) -> NDArray[np.int8]:
        """-1 for "<=", +1 for ">=", 0 for "==", one per row."""
        signs = np.array([block.relation for block in self.blocks], dtype=np.int8)
        return np.repeat(signs, [len(block.bounds) for block in self.blocks])

    @property
    def bounds(self) -> Array:
        """The right-hand sides, one per row; NaN where the bound is filled from the data."""
        return np.concatenate([np.empty(0), *[block.bounds for block in self.blocks]])

    @property
    def weights(self) -> Array:
        """How much a violation of every row counts; 1 unless the user says else."""
        if all(block.weights is None for block in self.blocks):
            return np.ones(len(self))
        return np.concatenate([np.empty(0), *(block.counts for block in self.blocks)])

    def describe(self, row: int) -> str:
        """One constraint as text, as in `row 3: d(12, 57) <= 0.25`."""
        return str(self.stated(row))

    def stated(self, row: int, bound: float | None = None) -> Stated:
        """One constraint alone; `bound` fills one that is open."""
        first = 0
        for block in self.blocks:
            place = row - first
            if 0 <= place < len(block):
                if len(block) == 1 or block.of_kind.shares_objects:  # which count their matrices
                    return Stated(row, block, place, bound)
                return Stated(row, block.part(np.array([place])), 0, bound)
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
        if sample_ids is None and self._are_row_numbers(n_objects):
            return self.blocks
        find = reading.row_finder(n_objects, sample_ids)
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
            shares = block.of_kind.shares_objects
            index = find(ids)
            unknown = np.argwhere(index < 0)
            if len(unknown):
                row = first if shares else first + int(unknown[0, 0])
                wrong = reading.show(ids[tuple(unknown[0])])
                raise RowsError([self.stated(row)], after=f": the id {wrong} is not {place}")
            in_order = shares and np.array_equal(index, np.arange(n_objects))
            resolved.append(replace(block, ids=None if in_order else index))
            first += len(block)
        return tuple(resolved)

    def _are_row_numbers(self, n: int) -> bool:
        """Whether all ids are row numbers of n objects, and all matrices are about all of them."""
        ids = [block.ids for block in self.blocks if block.ids is not None]
        whole = [block.matrices[0].size == n for block in self.blocks if block.ids is None]
        if not all(whole) or any(a.ndim == 1 or a.dtype != np.int64 for a in ids):
            return False
        flat = np.concatenate([np.empty(0, np.int64), *[a.ravel() for a in ids]])
        return not flat.size or bool(flat.min() >= 0 and flat.max() < n)

    def restricted_to(self, sample_ids: ArrayLike) -> tuple[Constraints, int]:
        """The constraints on the given objects alone, and the number of constraints dropped.

        A constraint stays if all its objects are in `sample_ids`.

        >>> from nearwise import constraints as c
        >>> c.similar([(0, 1), (1, 2), (0, 2)]).restricted_to([0, 2])
        (<Constraints: 1 distance <=>, 2)
        """
        known = reading.id_list(sample_ids, "sample_ids")
        kept: list[Block] = []
        for block in self.blocks:
            ids = block.object_ids
            present = np.isin(ids, known) if ids.dtype.kind == known.dtype.kind else np.zeros(ids.shape, bool)
            rows = np.flatnonzero(~block.about_any(~present))
            if len(rows):
                kept.append(replace(block, ids=ids).part(rows))
        restricted = Constraints(tuple(kept))
        return restricted, len(self) - len(restricted)
