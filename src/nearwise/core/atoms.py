"""From constraints to `Rows`: the atoms of every kind, in the eigenbasis of the prior.

A kind of constraint says which atoms it has: differences f_i - f_j, products f_i f_j^T, or its own vectors.
Differences are formed before any change of basis, so that a large part that all features have in common costs
no digits. An atom that the prior's range cuts down to rounding errors is left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.core.rows import Rows
from nearwise.linalg.dense import eigenvalues
from nearwise.side.blocks import Bindable, Merged, merged
from nearwise.side.kinds import Part
from nearwise.side.kinds.kind import NO_ROWS

ROUNDING = 8 * float(
    np.finfo(float).eps
)  # of a sum of d squares: a length below this times sqrt(d) is rounding
AT_ONCE = 1 << 20  # numbers of differences that are formed together when only their lengths are asked for


class BoundRows(NamedTuple):
    """Rows, and what is known about them.

    Attributes
    ----------
    rows : A_1, ..., A_m
    is_definite : which are positive semidefinite whatever the features are, as those of distances and K_ii
    linear : the numbers of general linear functions, whose size needs eigenvalues
    """

    rows: Rows
    is_definite: Mask
    linear: Index


def bind_rows(
    constraints: Bindable, features: Array, basis: Array | None = None, scale: Array | None = None
) -> BoundRows:
    """The rows of resolved constraints.

    Parameters
    ----------
    constraints : resolved blocks, or these by kind (`Constraints.merged`)
    features : (n, d), one row per object
    basis : (d, r), of the range of the prior; a vector x becomes basis^T x
    scale : for every object the size of the numbers that its features were computed from; by default they
        are exact
    """
    groups = constraints if isinstance(constraints, list) else merged(constraints)
    parts = sorted(_parts(groups, features, basis, scale), key=lambda part: not part[0].is_difference)
    named = [(part, rows) for part, rows in parts if part.vectors is None]
    n_rows = sum(len(rows) for _, rows in parts)
    first = _joined([part.first for part, _ in named])
    second = _joined([part.second for part, _ in named])
    used, first, second = _compacted(first, second, len(features))
    row = _joined([rows[part.row] for part, rows in named])
    coefficient = np.concatenate([part.coefficient for part, _ in named] or [np.empty(0)])
    n_differences = sum(len(part.row) for part, _ in named if part.is_difference)
    rows = Rows.of(features[used], first, second, n_differences, coefficient, row, n_rows)
    inside = rows if basis is None else rows.transformed(basis)
    if scale is not None or inside.order < rows.order:  # a rotation leaves vectors as long as they are
        sizes = None if scale is None else _sizes(scale[used], first, second, n_differences, row)
        vanishes = _vanishing(rows, inside, sizes)
        inside = replace(inside, coefficient=np.where(vanishes, 0.0, inside.coefficient))
    by_row = np.argsort(row, kind="stable")  # the order of atoms in `Rows`
    is_square = (by_row < n_differences) | (first == second)[by_row]
    is_definite = np.ones(n_rows, dtype=bool)
    is_definite[row[by_row][~(is_square & (inside.coefficient >= 0))]] = False
    own = [(part, of) for part, of in parts if part.vectors is not None]
    for part, of in own:
        is_definite[of] = False
        is_definite[of[part.definite]] = True
    return BoundRows(
        _with_vectors(inside, own) if own else inside, is_definite, _joined([of for _, of in own])
    )


@np.errstate(over="ignore", invalid="ignore")
def row_sizes(bound: BoundRows, diagonal: Array) -> Array:
    """The size of every row's parts under M = diag(diagonal), which bounds |<A_i, M>|; inf if it overflows.

    d(i, j) for a distance, d(i, j) + d(k, l) for a comparison, sqrt(K_ii K_jj) for an inner product; for a
    general A the sum of the magnitudes of the eigenvalues of M^1/2 A M^1/2.
    """
    rows, root = bound.rows, np.sqrt(diagonal)
    sizes = rows.magnitudes(root)
    if not len(bound.linear):
        return sizes
    atoms_of = np.split(
        np.arange(rows.n_atoms), np.searchsorted(rows.row_of_atoms, np.arange(1, rows.n_rows))
    )
    for row in bound.linear:
        atoms = atoms_of[row]
        c = rows.coefficient[atoms]
        if (c > 0).all() or (c < 0).all():
            continue  # eigenvalues of one sign add up to the traces
        x = rows.vectors(atoms)[0] * root
        core = (x.T * c) @ x
        sizes[row] = np.abs(eigenvalues(core)).sum() if np.isfinite(core).all() else np.inf
    return sizes


def is_rounding(vectors: Array, whole: Array, columns: int) -> Mask:
    """Which vectors are rounding errors of numbers of the size `whole`, from features of so many columns."""
    small: Mask = lengths(vectors) <= ROUNDING * math.sqrt(columns) * whole
    return small & np.isfinite(whole)


def lengths(vectors: Array) -> Array:
    """Of the rows."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))


def _parts(
    groups: list[Merged], features: Array, basis: Array | None, scale: Array | None
) -> list[tuple[Part, Index]]:
    """The atoms of every kind, and of which rows. Vectors of general linear functions are in the basis."""
    inside, sizes = features, scale
    if any(group.matrices for group in groups):
        inside = features if basis is None else features @ basis
        sizes = lengths(features) if scale is None else scale
    return [(group.of_kind.atoms(group, inside, sizes), group.rows) for group in groups]


def _with_vectors(rows: Rows, parts: list[tuple[Part, Index]]) -> Rows:
    """The rows with atoms whose vectors are their own, as those of general linear functions are."""
    x, y = rows.vectors()
    vectors = np.concatenate([np.asarray(part.vectors) for part, _ in parts])
    both = np.concatenate([x, vectors])
    return Rows.written(
        both,
        both if y is x else np.concatenate([y, vectors]),
        np.concatenate([rows.coefficient, *(part.coefficient for part, _ in parts)]),
        np.concatenate([rows.row_of_atoms, *(of[part.row] for part, of in parts)]),
        rows.n_rows,
    )


def _sizes(scale: Array, first: Index, second: Index, n_differences: int, row: Index) -> tuple[Array, Array]:
    """How large the numbers are that x and y of every atom were computed from, in the order of `Rows`."""
    x, y = scale[first], scale[second]
    x[:n_differences] = y[:n_differences] = (x + y)[:n_differences]
    order = np.argsort(row, kind="stable")
    return x[order], y[order]


def _vanishing(rows: Rows, inside: Rows, sizes: tuple[Array, Array] | None) -> Mask:
    """Which atoms are rounding errors after a change of basis."""
    vanishes = np.zeros(rows.n_atoms, dtype=bool)
    step = max(1, AT_ONCE // rows.order)
    for low in range(0, rows.n_atoms, step):
        atoms = slice(low, low + step)
        whole = map(lengths, rows.vectors(atoms)) if sizes is None else (size[atoms] for size in sizes)
        for vector, size in zip(inside.vectors(atoms), whole, strict=True):
            vanishes[atoms] |= is_rounding(vector, size, rows.order)
    return vanishes


def _compacted(first: Index, second: Index, n: int) -> tuple[Index, Index, Index]:
    """The objects that occur, ascending, and the two of every atom among these."""
    occurs = np.zeros(n, dtype=bool)
    occurs[first] = occurs[second] = True
    used, place = np.flatnonzero(occurs), np.empty(n, dtype=np.int64)
    place[used] = np.arange(len(used))
    return used, place[first], place[second]


def _joined(numbers: list[Index]) -> Index:
    return np.concatenate(numbers) if numbers else NO_ROWS
