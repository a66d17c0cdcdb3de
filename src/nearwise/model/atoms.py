"""Constraints as atoms over one feature matrix; `kinds` has what each kind of constraint says.

Every constraint matrix is a short sum of *atoms*, A_i = sum_t coefficient_t sym(x_t y_t^T), over rows of a
feature matrix F: a distance is one atom with x = y = f_i - f_j (a *difference*), an inner product one atom
with x = f_i, y = f_j (a *product*), a comparison two differences of opposite sign. A general symmetric
matrix is a sum of squares of its eigenvectors, which are appended to F as rows of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.model.blocks import Block
from nearwise.model.kinds import Part

_ROUNDING = 8 * np.finfo(float).eps
_WRITTEN_OUT = 200_000  # numbers in all differences, up to which they may be written out
_CANCELS = 1e-2  # size of a difference beside the rows themselves from which on digits are lost


@dataclass(frozen=True, eq=False)
class Atoms:
    """Atoms by column, differences first: two rows of F, a coefficient, and the row of the constraint."""

    first: Index
    second: Index
    coefficient: Array
    row: Index
    is_difference: NDArray[np.bool_]
    n_rows: int  # of the constraints
    definite: Index = field(default_factory=lambda: np.empty(0, np.int64))  # rows that are, as a whole
    general: Index = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # rows that are any matrix's squares

    @cached_property
    def graph(self) -> tuple[Index, Index, Index]:
        """Adjacency lists: where those of each row of F begin, its neighbours, and the atom of each."""
        node = np.concatenate([self.first, self.second])
        start = np.zeros(int(node.max(initial=-1)) + 2, dtype=np.int64)
        # numbers of up to 16 bits are sorted in linear time
        order = np.argsort(node.astype(np.min_scalar_type(len(start))), kind="stable")
        neighbour = np.concatenate([self.second, self.first])[order]
        np.cumsum(np.bincount(node, minlength=len(start) - 1), out=start[1:])
        return start, neighbour, order % max(len(self.first), 1)

    @cached_property
    def n_differences(self) -> int:
        """How many of the atoms, the first ones, are differences."""
        return int(np.count_nonzero(self.is_difference))

    @cached_property
    def of_row(self) -> Index | None:
        """Where every constraint is one atom, which one; else None."""
        if not (np.bincount(self.row, minlength=self.n_rows) == 1).all():
            return None
        place = np.empty(self.n_rows, dtype=np.int64)
        place[self.row] = np.arange(len(self.row))
        return place

    @cached_property
    def in_order(self) -> Index:
        """The atoms, those of one row beside each other, in the order of the rows."""
        return np.argsort(self.row, kind="stable") if self.of_row is None else self.of_row

    @cached_property
    def is_definite(self) -> Mask:
        """Whether A_i is positive semidefinite: a sum of squares with positive coefficients, or known so."""
        square = self.is_difference | (self.first == self.second)
        definite = np.ones(self.n_rows, dtype=bool)
        definite[self.row[~square | (self.coefficient < 0)]] = False
        definite[self.definite] = True
        return definite

    def squares(self) -> SignedSquares:
        """The same constraints as signed squares, by row: x y^T + y x^T = ((x + y)^2 - (x - y)^2) / 2."""
        product = ~self.is_difference & (self.first != self.second)
        sign = np.where(self.is_difference | product, -1.0, 0.0)
        coefficient = np.where(product, -self.coefficient / 4, self.coefficient)
        atom = np.concatenate([np.arange(len(self.first)), np.flatnonzero(product)])
        order = np.argsort(self.row[atom], kind="stable")
        start = np.zeros(self.n_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.row[atom], minlength=self.n_rows), out=start[1:])
        return SignedSquares(
            start,
            self.first[atom[order]],
            self.second[atom[order]],
            np.concatenate([sign, np.ones(int(product.sum()))])[order],
            np.concatenate([coefficient, self.coefficient[product] / 4])[order],
        )


@dataclass(frozen=True, eq=False)
class SignedSquares:
    """Signed squares by row: A_i is the sum of coefficient_t x_t x_t^T for start_i <= t < start_{i+1}.

    x_t = F[first_t] + sign_t F[second_t].
    """

    start: Index
    first: Index
    second: Index
    sign: Array  # -1 for a difference, 0 for the row F[first_t] alone, +1 for a sum
    coefficient: Array


def constraint_atoms(
    blocks: tuple[Block, ...],
    features: Array,
    basis: Array | None = None,
    scale: Array | None = None,
    as_they_are: bool = False,
) -> tuple[Array, Atoms]:
    """The rows F of the features that occur in some constraint, and the atoms over them.

    Parameters
    ----------
    blocks : resolved constraints
    features : one row per object
    basis : rows x of F become basis^T x; differences of features are formed before
    scale : for every object, the size of the numbers that its features were computed from; by default they
        are exact. An atom whose vectors are rounding errors of that, or of what `basis` removes, is left out.
    as_they_are : whether every row of F has to be a row of the features, even where differences of them lose
        digits to a large part that they have in common
    """
    inside = features if basis is None else features @ basis
    sizes = scale
    if sizes is None and any(block.matrices for block in blocks):
        sizes = _lengths(features)
    parts = sorted(_parts(blocks, inside, sizes), key=lambda found: not found[0].is_difference)
    extra = [part.vectors for part, _ in parts if part.vectors is not None]
    places = np.cumsum([len(features), *map(len, extra)])
    shifts = iter(places)
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part, _ in parts:
        shift = 0 if part.vectors is None else int(next(shifts))
        first.append(part.first + shift)
        second.append(part.second + shift)
    row = np.concatenate([np.empty(0, np.int64), *[rows[part.row] for part, rows in parts]])
    coefficient = np.concatenate([np.empty(0), *[part.coefficient for part, _ in parts]])
    is_difference = np.zeros(len(row), dtype=bool)
    is_difference[: sum([len(part.row) for part, _ in parts if part.is_difference])] = True
    ends = np.concatenate([*first, *second])
    used, compact = _compacted(ends, int(places[-1]))
    objects = used[used < len(features)]
    definite = np.concatenate([np.empty(0, np.int64), *[rows[part.definite] for part, rows in parts]])
    first_end, second_end = compact[: len(row)], compact[len(row) :]
    n_rows = sum([len(block.bounds) for block in blocks])
    general = [rows for part, rows in parts if part.vectors is not None]
    whole = np.concatenate([np.empty(0, np.int64), *general])
    atoms = Atoms(first_end, second_end, coefficient, row, is_difference, n_rows, definite, whole)
    n = len(objects)
    rows = features[objects]
    if len(used) > n:
        rows = np.concatenate([rows, np.zeros((len(used) - n, rows.shape[1]))])
    if not as_they_are:
        rows, atoms = _without_offset(rows, atoms)
    projected = rows if basis is None else rows @ basis
    if basis is not None or scale is not None:
        of = np.where(ends < len(features), ends, -1).reshape(2, -1)
        atoms = _without_rounding(atoms, rows, projected, scale, of)
    if extra:
        projected[n : len(used)] = np.concatenate(extra)[used[n:] - len(features)]
    return np.ascontiguousarray(projected), atoms


def is_rounding(vectors: Array, scale: Array, columns: int) -> NDArray[np.bool_]:
    """Which vectors are rounding errors of numbers of this size, from features of so many columns."""
    return np.asarray(_lengths(vectors) <= _ROUNDING * math.sqrt(columns) * scale)


def _parts(blocks: tuple[Block, ...], features: Array, sizes: Array | None) -> Iterator[tuple[Part, Index]]:
    """The atoms of all blocks, those of one kind, of which there may be many, at once; and of which rows.

    Blocks of matrices on other objects than all of them stay alone.
    """
    numbers: dict[tuple[str, int], int] = {}
    groups: list[list[Block]] = []
    group_of: list[int] = []
    for place, block in enumerate(blocks):
        alone = block.matrices and block.ids is not None
        number = numbers.setdefault((block.kind, place if alone else -1), len(groups))
        if number == len(groups):
            groups.append([])
        groups[number].append(block)
        group_of.append(number)
    of_row = np.array(group_of, dtype=np.int64).repeat([len(block.bounds) for block in blocks])
    for number, members in enumerate(groups):
        block, rows = members[0], np.flatnonzero(of_row == number)
        if len(members) > 1:
            ids = None if block.ids is None else np.concatenate([member.ids for member in members])
            matrices = tuple(itertools.chain.from_iterable([member.matrices for member in members]))
            block = Block(block.kind, block.relation, ids, np.empty(len(rows)), matrices)
        yield block.of_kind.atoms(block, features, sizes), rows


def _without_offset(rows: Array, atoms: Atoms) -> tuple[Array, Atoms]:
    """Rows whose differences lose no digits to a large part that they have in common, and atoms over them.

    A few differences are written out, as rows of their own beside a row of zeros; of many, the columns are
    centred.
    """
    d = atoms.n_differences
    i, j = atoms.first[:d], atoms.second[:d]
    if d * rows.shape[1] <= _WRITTEN_OUT:
        z = rows[i] - rows[j]
        norms = np.einsum("ij,ij->i", rows, rows)
        if not (np.einsum("ij,ij->i", z, z) < _CANCELS**2 * (norms[i] + norms[j])).any():
            return rows, atoms
        first, second = atoms.first.copy(), atoms.second.copy()
        first[:d], second[:d] = len(rows) + np.arange(d), len(rows) + d
        return np.vstack([rows, z, np.zeros(rows.shape[1])]), replace(atoms, first=first, second=second)
    if d == len(atoms.first):  # products need the features as they are
        lowest, highest = rows.min(axis=0), rows.max(axis=0)
        centre = lowest / 2 + highest / 2
        common = np.abs(centre) > (highest / 2 - lowest / 2) / _CANCELS
        if common.any():
            rows = rows - np.where(common, centre, 0.0)
    return rows, atoms


def _without_rounding(
    atoms: Atoms, rows: Array, projected: Array, scale: Array | None, objects: Index
) -> Atoms:
    """The same, with coefficients of zero for atoms of features whose vectors are rounding errors.

    `objects` has the objects of every atom, or -1 for vectors that are not features.
    """
    d, columns = atoms.n_differences, rows.shape[1]
    first, second = atoms.first[:d], atoms.second[:d]
    vanishes = np.zeros(len(atoms.first), dtype=bool)
    whole = _lengths(rows[first] - rows[second]) if scale is None else scale[objects[:, :d]].sum(axis=0)
    vanishes[:d] = is_rounding(projected[first] - projected[second], whole, columns)
    product = d + np.flatnonzero(objects[0, d:] >= 0)
    for place, of in zip((atoms.first, atoms.second), objects, strict=True) if len(product) else ():
        of_one = _lengths(rows[place[product]]) if scale is None else scale[of[product]]
        vanishes[product] |= is_rounding(projected[place[product]], of_one, columns)
    return replace(atoms, coefficient=np.where(vanishes, 0.0, atoms.coefficient)) if vanishes.any() else atoms


def _lengths(vectors: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))


def _compacted(ends: Index, n: int) -> tuple[Index, Index]:
    """The distinct numbers among `ends`, and the position of each end in that list."""
    present = np.zeros(n, dtype=bool)
    present[ends] = True
    used = np.flatnonzero(present)
    position = np.empty(n, dtype=np.int64)
    position[used] = np.arange(len(used))
    return used, position[ends]
