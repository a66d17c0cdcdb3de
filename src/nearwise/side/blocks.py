"""What constraints are stored as: blocks of rows of one kind and relation, and lists of blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import reading
from nearwise._common.columns import Stored
from nearwise._common.errors import RowsError
from nearwise._common.markup import fact_table, listing
from nearwise._common.reading import Ids
from nearwise._common.types import Array, Index, Mask
from nearwise.side.kinds import KINDS
from nearwise.side.kinds.kind import Kind, Names, RowsOfKind
from nearwise.side.matrices import Linear
from nearwise.side.relations import SYMBOLS
from nearwise.side.rows import Rows

T = TypeVar("T", bound=np.generic)

_SHOWN = 5  # rows of a list in a notebook
_SIGNED, _UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)


@dataclass(frozen=True, eq=False)
class Block(Rows):
    """Constraint rows of one kind and one relation, with the words for them; `Rows` has the attributes."""

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
            return object.__getattribute__(self, name)

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
    def is_stored(self) -> bool:
        """Whether some rows are in files."""
        return any([isinstance(block.ids, Stored) for block in self.blocks])

    def refuse_stored(self, who: str) -> None:
        """An error where some are in files, given to who needs them in memory."""
        if self.is_stored:
            raise ValueError(
                f"{who} needs constraints in memory, and these are in files: constraints.loaded() reads "
                "them, 24 bytes a pair"
            )

    def refuse_linear(self) -> None:
        """An error for constraints that speak of all objects at once, where data are in pieces."""
        first = 0
        for block in self.blocks:
            if block.matrices:
                raise ValueError(
                    f"{self.stated(first)}: general linear constraints need data in memory; distances, "
                    "comparisons and inner products can be in pieces"
                )
            first += len(block)

    def loaded(self) -> Constraints:
        """The same in memory, 16 bytes for a pair and 8 for its bound."""
        return Constraints(tuple(block.loaded() for block in self.blocks)) if self.is_stored else self

    @property
    def total_weight(self) -> float:
        """Of all rows together."""
        return sum(block.total_weight for block in self.blocks)

    @property
    def relations(self) -> NDArray[np.int8]:
        """-1 for "<=", +1 for ">=", 0 for "==", one per row."""
        blocks = self.blocks
        return _per_row(np.array([block.relation for block in blocks], dtype=np.int8), blocks)

    @property
    def bounds(self) -> Array:
        """The right-hand sides, one per row; NaN where the bound is filled from the data."""
        return np.concatenate([block.bounds for block in self.blocks] or [np.empty(0)])

    @property
    def weights(self) -> Array:
        """How much a violation of every row counts; 1 unless the user says else."""
        return np.ones(len(self)) if (given := self.given_weights) is None else given

    @property
    def given_weights(self) -> Array | None:
        """The same; None where all are 1 because the user does not say else."""
        blocks = self.blocks
        if all([block.weights is None for block in blocks]):
            return None
        return np.concatenate([block.counts for block in blocks])

    def describe(self, row: int) -> str:
        """One constraint as text, as in `row 3: d(12, 57) <= 0.25`."""
        return str(self.stated(row))

    def stated(self, row: int, bound: float | None = None) -> Stated:
        """One constraint alone; `bound` fills one that is open."""
        if not 0 <= row < self._starts[-1]:
            raise IndexError(f"there is no row {row} in {self!r}")
        number = bisect_right(self._starts, row) - 1
        block, place = self.blocks[number], row - self._starts[number]
        if len(block) == 1 or block.of_kind.shares_objects:  # which count their matrices
            return Stated(row, block, place, bound)
        return Stated(row, block.part(np.array([place])), 0, bound)

    @cached_property
    def _starts(self) -> list[int]:
        """The number of the first row of every block, and of all rows."""
        return list(accumulate([len(block.bounds) for block in self.blocks], initial=0))

    def resolve(
        self, n_objects: int, sample_ids: ArrayLike | None = None, known_as: str = "in sample_ids"
    ) -> tuple[Block, ...]:
        """The blocks with row numbers of the data (int64) in place of ids.

        Parameters
        ----------
        n_objects : the number of rows of the data
        sample_ids : their ids, all different; by default the row numbers themselves
        known_as : what an id is that is among them, for messages

        Returns
        -------
        The same blocks in the same order. The `ids` of a linear block are None where its matrices cover all
        rows of the data in order.
        """
        if sample_ids is None and _have_row_numbers(self.blocks, n_objects):
            return self.blocks
        find = reading.row_finder(n_objects, sample_ids)
        place = f"a row number below {n_objects}" if sample_ids is None else known_as
        resolved: list[Block] = []
        first = 0
        for block in self.blocks:
            if block.ids is None and len(block.object_ids) != n_objects:
                raise ValueError(
                    f"row {first}: the matrix A has {len(block.object_ids)} rows, but there are {n_objects} "
                    "objects; ids in linear() says which of them they are"
                )
            is_numbered = sample_ids is None and _have_row_numbers((block,), n_objects)
            resolved.append(block if is_numbered else self._resolved(block, find, first, place, n_objects))
            first += len(block)
        return tuple(resolved)

    def merged(self, n_objects: int, sample_ids: ArrayLike | None = None) -> list[Merged]:
        """The rows of all blocks by kind, with row numbers of the data as in `resolve`."""
        if sample_ids is None:
            found = merged(self.blocks)
            if _have_row_numbers(found, n_objects):
                return found
        return merged(self.resolve(n_objects, sample_ids))

    def _resolved(
        self, block: Block, find: Callable[[Ids], Index], first: int, place: str, n_objects: int
    ) -> Block:
        """A block with row numbers in place of ids; `first` is the number of its first row."""
        shares, done = block.of_kind.shares_objects, 0
        origin = None if block.stored_ids is None else block.stored_ids.origin
        block, texts = block.by_number()
        if texts is not None:  # each is looked for once, and not wherever it occurs
            row_of = find(texts)
            find = row_of.__getitem__

        def resolved(part: Block) -> Block:
            nonlocal done
            named = part.object_ids
            index = find(named)
            unknown = np.argwhere(index < 0)
            if len(unknown):
                row, wrong = done + int(unknown[0, 0]), named[tuple(unknown[0])]
                reason = f"the id {reading.show(wrong if texts is None else texts[wrong])} is not {place}"
                where = "" if origin is None else f" ({origin.place(row)})"
                raise RowsError([self.stated(first if shares else first + row)], after=f": {reason}{where}")
            done += len(part)
            in_order = shares and np.array_equal(index, np.arange(n_objects))
            return replace(part, ids=None if in_order else index)

        return block.rewritten(resolved)

    def restricted_to(self, sample_ids: ArrayLike) -> tuple[Constraints, int]:
        """The constraints on the given objects alone, and the number of constraints dropped.

        A constraint stays if all its objects are in `sample_ids`.

        >>> from nearwise import constraints as c
        >>> c.similar([(0, 1), (1, 2), (0, 2)]).restricted_to([0, 2])
        (<Constraints: 1 distance <=>, 2)
        """
        known = reading.id_list(sample_ids, "sample_ids")
        kept: list[Block] = []

        def about(block: Block, among: Ids) -> Block:
            ids = block.object_ids
            present = np.isin(ids, among) if ids.dtype.kind == among.dtype.kind else np.zeros(ids.shape, bool)
            return replace(block, ids=ids).part(np.flatnonzero(~block.about_any(~present)))

        for block in self.blocks:
            numbered, texts = block.by_number()
            among = known if texts is None else np.flatnonzero(np.isin(texts, known))
            parts = numbered.chunks() if block.is_stored else ()
            if block.is_stored and all(len(about(part, among)) == len(part) for _, part in parts):
                kept.append(block)
                continue
            found = numbered.rewritten(lambda part: about(part, among))  # noqa: B023
            if len(found):
                kept.append(found.with_texts(texts))
        restricted = Constraints(tuple(kept))
        return restricted, len(self) - len(restricted)


@dataclass(frozen=True, eq=False, slots=True)
class Merged:
    """The rows of some blocks of one kind together; `ids` and `matrices` as in `Rows`.

    Attributes
    ----------
    of_kind : their kind
    rows : their numbers among the rows of all blocks
    """

    of_kind: Kind
    ids: Ids | None
    matrices: tuple[Linear, ...]
    rows: Index

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def object_ids(self) -> Ids:
        """As in `Rows`."""
        return np.arange(self.matrices[0].size) if self.ids is None else self.ids


Bindable = tuple[Block, ...] | list[Merged]  # resolved constraints, or these by kind


def merged(blocks: tuple[Block, ...]) -> list[Merged]:
    """The rows of blocks in memory by kind, of which there may be many blocks.

    Blocks of matrices on other objects than all of them stay alone.
    """
    groups: dict[str | int, list[Block]] = {}
    numbers: dict[str | int, int] = {}
    group_of: list[int] = []
    for place, block in enumerate(blocks):
        key = place if block.matrices and block.ids is not None else block.kind
        if key not in groups:
            numbers[key], groups[key] = len(groups), []
        groups[key].append(block)
        group_of.append(numbers[key])
    of_row = _per_row(np.array(group_of, dtype=np.int64), blocks)
    found = []
    for number, members in enumerate(groups.values()):
        block, rows = members[0], (of_row == number).nonzero()[0]
        ids, matrices = block.ids, block.matrices
        if len(members) > 1:
            ids = None if ids is None else np.concatenate([member.ids for member in members])
            matrices = tuple(chain.from_iterable([member.matrices for member in members])) if matrices else ()
        found.append(Merged(block.of_kind, ids, matrices, rows))
    return found


def _per_row(of_block: NDArray[T], blocks: tuple[Block, ...]) -> NDArray[T]:
    """What is told of every block, for every row."""
    counts = [len(block.bounds) for block in blocks]
    return of_block if counts == [1] * len(counts) else of_block.repeat(counts)


def _have_row_numbers(blocks: Sequence[RowsOfKind], n: int) -> bool:
    """Whether the ids of blocks are row numbers of n objects, or their matrices about all n."""
    for block in blocks:
        ids = block.ids
        if ids is None:
            known = all([matrix.size == n for matrix in block.matrices])
        elif isinstance(ids, Stored):
            known = ids.span is not None and ids.span[0] >= 0 and ids.span[1] < n
        else:  # a list is that of objects which rows share; as unsigned numbers, negative ones are large
            known = ids.ndim == 2 and ids.dtype == _SIGNED and ids.view(_UNSIGNED).max(initial=0) < n
        if not known:
            return False
    return True
