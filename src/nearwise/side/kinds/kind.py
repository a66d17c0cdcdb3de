"""What a kind of constraint is: its atoms, its words and its grading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask

if TYPE_CHECKING:
    from nearwise.side.blocks import Block
    from nearwise.side.matrices import Linear

Names = Callable[[Any], str]  # an id -> how it is written

NO_ROWS = np.empty(0, np.int64)


class Measure(Protocol):
    """Squared distances and inner products of objects, by row number."""

    def pairs(self, i: Index, j: Index) -> Array:
        """Squared distances of the objects i to the objects j, one by one."""

    def products(self, i: Index, j: Index) -> Array:
        """Their inner products."""


class RowsOfKind(Protocol):
    """Rows of one kind whose objects are named by row number, as `Rows` documents them."""

    @property
    def ids(self) -> NDArray[Any] | None: ...

    @property
    def matrices(self) -> tuple[Linear, ...]: ...

    def __len__(self) -> int: ...


class Part(NamedTuple):
    """The atoms of one block: coefficient sym(x y^T) of two rows x, y, or of their difference with itself.

    Attributes
    ----------
    first, second : row numbers of the features; with `vectors`, of these instead
    coefficient, row : of every atom, and the row of the block that it belongs to
    is_difference : whether x = y = f_first - f_second; else x = f_first and y = f_second
    vectors : rows of their own
    definite : rows that are positive semidefinite as a whole, though not by their coefficients
    """

    first: Index
    second: Index
    coefficient: Array
    row: Index
    is_difference: bool
    vectors: Array | None = None
    definite: Index = NO_ROWS


@dataclass(frozen=True)
class Grade:
    """How a metric is graded by some constraints.

    Attributes
    ----------
    things : what a user calls these constraints
    figure : what the figure is called
    by : "order", whether similar pairs are nearer than dissimilar ones; "share" of constraints that hold;
        "error", by how much values miss their bounds
    root : whether the error is that of square roots, of distances where the constraint has squared ones
    """

    things: str
    figure: str
    by: Literal["order", "share", "error"]
    root: bool = False


class Kind(ABC):
    """One kind of constraint: <A, K> bounded, for the kernel K of the objects.

    Attributes
    ----------
    name, plural : as `Constraints` names it
    n_distances : 1 where a row bounds the distance of its two objects, 2 where it compares the distances of
        two pairs, else 0
    shares_objects : whether all rows of a block are about the same objects, which `ids` then lists once
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    n_distances: ClassVar[int] = 0
    shares_objects: ClassVar[bool] = False

    @abstractmethod
    def atoms(self, block: RowsOfKind, features: Array, sizes: Array | None) -> Part:
        """The constraint matrices of a resolved block.

        `sizes` are those of the numbers that the features were computed from, one per object; None where the
        block has no matrices.
        """

    @abstractmethod
    def text(self, block: Block, row: int, symbol: str, bound: float, names: Names) -> str:
        """A row as text; the bound is NaN where it is open."""

    @abstractmethod
    def grades(self, block: Block) -> list[tuple[Grade, Mask]]:
        """How a metric is graded by the block, and by which of its rows each."""

    def values(self, block: Block, measure: Measure) -> Array:
        """<A, K> of every row of a resolved block."""
        part = self.atoms(block, np.empty((0, 0)), None)
        of_atom = measure.pairs if part.is_difference else measure.products
        weighted = part.coefficient * of_atom(part.first, part.second)
        return np.asarray(np.bincount(part.row, weighted, len(block)), dtype=np.float64)

    def is_definite(self, block: Block) -> Mask:
        """The rows whose A is positive semidefinite whatever the features are, as that of a distance."""
        part = self.atoms(block, np.empty((0, 0)), None)
        square = (part.first == part.second) | part.is_difference
        definite = np.ones(len(block), dtype=bool)
        definite[part.row[~square | (part.coefficient < 0)]] = False
        return definite


def rows_of(block: RowsOfKind) -> Index:
    """The objects of every row of a resolved block."""
    assert block.ids is not None
    return np.asarray(block.ids, dtype=np.int64)


def shown_pair(symbol: str, pair: Any, names: Names) -> str:
    """Two objects, like d(3, 5)."""
    return f"{symbol}({names(pair[0])}, {names(pair[1])})"


def bounded(left: str, symbol: str, bound: float) -> str:
    """A value and its bound, like d(3, 5) <= 0.25."""
    right = "a bound filled from the data" if np.isnan(bound) else f"{bound:.6g}"
    return f"{left} {symbol} {right}"


def by_relation(block: Block, limited: Grade, equal: Grade) -> list[tuple[Grade, Mask]]:
    """One grade for all rows: by whether they hold, or by how far equalities miss."""
    return [(equal if block.relation == 0 else limited, np.ones(len(block), dtype=bool))]
