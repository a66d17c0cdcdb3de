"""Constraints as atoms over one feature matrix; `kinds` has what each kind of constraint says.

Every constraint matrix is a short sum of *atoms*, A_i = sum_t coefficient_t sym(x_t y_t^T), over rows of a
feature matrix F: a distance is one atom with x = y = f_i - f_j (a *difference*), an inner product one atom
with x = f_i, y = f_j (a *product*), a comparison two differences of opposite sign. A general symmetric
matrix is a sum of squares of its eigenvectors, which are appended to F as rows of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.side.blocks import Bindable, Merged, merged
from nearwise.side.kinds import Part
from nearwise.side.kinds.kind import NO_ROWS

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
    n_differences: int  # of the atoms, the first ones
    n_rows: int  # of the constraints
    definite: Index = field(default_factory=lambda: NO_ROWS)  # rows that are, as a whole
    general: Index = field(default_factory=lambda: NO_ROWS)  # rows that are any matrix's squares

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
    def is_difference(self) -> Mask:
        """Which of the atoms are differences; the others are products."""
        return np.arange(len(self.first)) < self.n_differences

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
        indefinite, d = self.coefficient < 0, self.n_differences
        indefinite[d:] |= self.first[d:] != self.second[d:]
        may_be_negative = np.zeros(self.n_rows, dtype=bool)
        may_be_negative[self.row[indefinite]] = True
        may_be_negative[self.definite] = False
        return ~may_be_negative

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
    blocks: Bindable,
    features: Array,
    basis: Array | None = None,
    scale: Array | None = None,
    as_they_are: bool = False,
) -> tuple[Array, Atoms]:
    """The rows F of the features that occur in some constraint, and the atoms over them.

    Parameters
    ----------
    blocks : resolved constraints, or these by kind
    features : one row per object
    basis : rows x of F become basis^T x; differences of features are formed before
    scale : for every object, the size of the numbers that its features were computed from; by default they
        are exact. An atom whose vectors are rounding errors of that, or of what `basis` removes, is left out.
    as_they_are : whether every row of F has to be a row of the features, even where differences of them lose
        digits to a large part that they have in common
    """
    groups = blocks if isinstance(blocks, list) else merged(blocks)
    parts = sorted(_parts(groups, features, basis, scale), key=lambda found: not found[0].is_difference)
    first, second, extra, end = [], [], [], len(features)
    for part, _ in parts:
        if part.vectors is None:
            first.append(part.first)
            second.append(part.second)
        else:
            first.append(part.first + end)
            second.append(part.second + end)
            extra.append(part.vectors)
            end += len(part.vectors)
    used, compact = _compacted(_joined([*first, *second]), end)
    row = _joined([rows[part.row] for part, rows in parts])
    d = sum([len(part.row) for part, _ in parts if part.is_difference])
    n, objects = len(used), used
    if extra:
        n = int(np.count_nonzero(used < len(features)))
        objects = used[:n]
    F = features.take(objects, axis=0)
    if extra:
        F = np.concatenate([F, np.zeros((len(used) - n, F.shape[1]))])
    ends, sizes = (compact[: len(row)], compact[len(row) :]), None if scale is None else scale[objects]
    projected, first_end, second_end, vanishes = _projected(F, *ends, d, n, basis, sizes, as_they_are)
    coefficient = np.concatenate([part.coefficient for part, _ in parts] or [np.empty(0)])
    if vanishes is not None:
        coefficient[vanishes] = 0.0
    if extra:
        projected[n : len(used)] = np.concatenate(extra)[used[n:] - len(features)]
    atoms = Atoms(
        first_end,
        second_end,
        coefficient,
        row,
        d,
        sum([len(rows) for _, rows in parts]),
        _joined([rows[part.definite] for part, rows in parts if len(part.definite)]),
        _joined([rows for part, rows in parts if part.vectors is not None]),
    )
    return np.ascontiguousarray(projected), atoms


def is_rounding(vectors: Array, scale: Array, columns: int) -> NDArray[np.bool_]:
    """Which vectors are rounding errors of numbers of this size, from features of so many columns."""
    return _is_small(lengths(vectors), _ROUNDING * math.sqrt(columns) * scale)


def lengths(vectors: Array) -> Array:
    """Of the rows."""
    return np.sqrt(_squared_lengths(vectors))


def _is_small(found: Array, most: Array) -> Mask:
    """Where lengths are at most so large; those that overflow are not small beside others that do."""
    small: Mask = found <= most
    return small & (found < np.inf) if np.count_nonzero(small) else small


def _parts(
    groups: list[Merged], features: Array, basis: Array | None, scale: Array | None
) -> Iterator[tuple[Part, Index]]:
    """The atoms of every kind, and of which rows."""
    inside, sizes = features, scale
    if any([group.matrices for group in groups]):
        inside = features if basis is None else features @ basis
        sizes = lengths(features) if scale is None else scale
    for group in groups:
        yield group.of_kind.atoms(group, inside, sizes), group.rows


def _projected(
    F: Array,
    first: Index,
    second: Index,
    d: int,
    n: int,
    basis: Array | None,
    sizes: Array | None,
    as_they_are: bool,
) -> tuple[Array, Index, Index, Mask | None]:
    """The rows F in a basis, the two of every atom there, and which atoms are rounding errors, if any can be.

    Differences of the rows must lose no digits to a large part that they have in common. A few differences
    are written out, as rows of their own beside a row of zeros; of many, the columns are centred.

    Parameters
    ----------
    F : features of n objects, and zeros in place of other vectors
    first, second : rows of F of every atom, of which d, the first ones, are differences
    basis, sizes, as_they_are : as in `constraint_atoms`, with the sizes (`scale`) of the n objects
    """
    columns = F.shape[1]
    may_write_out = not as_they_are and d * columns <= _WRITTEN_OUT
    if not (as_they_are or may_write_out) and d == len(first):  # products need the features as they are
        F = _centred(F)
    is_restricted = basis is not None or sizes is not None
    if not (may_write_out or is_restricted):
        return F, first, second, None
    i, j = first[:d], second[:d]
    z = F.take(i, axis=0) - F.take(j, axis=0)
    of_difference, of_row = _squared_lengths(z), _squared_lengths(F)
    rows = F
    if may_write_out and np.count_nonzero(of_difference < _CANCELS**2 * (of_row[i] + of_row[j])):
        rows = np.concatenate([F, z, np.zeros((1, columns))])
        first, second = first.copy(), second.copy()
        first[:d], second[:d] = np.arange(len(F), len(F) + d), len(F) + d
    if not is_restricted:
        return rows, first, second, None
    projected = rows if basis is None else rows.dot(basis)
    unit = _ROUNDING * math.sqrt(columns)
    # a rotation leaves vectors as long as they are
    may_shorten = sizes is not None or basis is None or basis.shape[1] < columns
    whole = np.sqrt(of_difference) if sizes is None else sizes[i] + sizes[j]
    left = whole
    if may_shorten:
        inside = projected.take(first[:d], axis=0)
        inside -= projected.take(second[:d], axis=0)
        left = lengths(inside)
    vanishes = _is_small(left, unit * whole)
    if d < len(first):
        is_lost = np.zeros(len(F), dtype=bool)
        own = np.sqrt(of_row[:n]) if sizes is None else sizes
        is_lost[:n] = _is_small(lengths(projected[:n]) if may_shorten else own, unit * own)
        vanishes = np.concatenate([vanishes, is_lost[first[d:]] | is_lost[second[d:]]])
    return projected, first, second, vanishes


def _centred(rows: Array) -> Array:
    """The rows without what is large and common to them in some columns."""
    lowest, highest = rows.min(axis=0), rows.max(axis=0)
    centre = lowest / 2 + highest / 2
    common = np.abs(centre) > (highest / 2 - lowest / 2) / _CANCELS
    return rows - np.where(common, centre, 0.0) if common.any() else rows


def _joined(numbers: list[Index]) -> Index:
    return np.concatenate(numbers) if numbers else NO_ROWS


def _squared_lengths(vectors: Array) -> Array:
    found: Array = np.einsum("ij,ij->i", vectors, vectors)
    return found


def _compacted(ends: Index, n: int) -> tuple[Index, Index]:
    """The distinct numbers among `ends`, and the position of each end in that list."""
    present = np.zeros(n, dtype=bool)
    present[ends] = True
    used = present.nonzero()[0]
    position = np.empty(n, dtype=np.int64)
    position[used] = np.arange(len(used))
    return used, position[ends]
