"""Interchangeable objects: rows of a symmetric matrix that may be swapped without changing it.

The nearest matrix is unique, so it is the same under every such swap, and the whole computation happens on
one row per group. In the orthonormal basis of group means and of differences inside groups, a matrix that is
constant on pairs of groups is block diagonal: one k x k block, and for every group of size s the number
"diagonal less off-diagonal entry", s - 1 times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index

_WORTHWHILE = 64  # objects; below, looking for groups takes longer than it saves
_MOST_SPLITS = 4  # of candidates that look alike, per group that they would have to form


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of n objects; `sizes` and `first` (one member) by group, `member_of` by object."""

    sizes: Array
    first: Index
    member_of: Index

    @property
    def is_trivial(self) -> bool:
        return len(self.sizes) == len(self.member_of)

    def reduced(self, C: Array, inside: Array) -> tuple[Array, Array]:
        """The k x k block of C and the numbers of the groups, where `inside` are the off-diagonal values."""
        if self.is_trivial:
            return C, inside
        root = np.sqrt(self.sizes)
        diagonal = np.diag(C)[self.first]
        block = root[:, None] * C[np.ix_(self.first, self.first)] * root
        block[np.diag_indices_from(block)] = diagonal + (self.sizes - 1) * inside
        return block, diagonal - inside

    def expanded(self, block: Array, difference: Array) -> Array:
        """The n x n matrix of a k x k block and the numbers of the groups."""
        if self.is_trivial:
            return block
        root = np.sqrt(self.sizes)
        values = block / (root[:, None] * root)
        values[np.diag_indices_from(values)] -= difference / self.sizes
        full = values[np.ix_(self.member_of, self.member_of)]
        full[np.diag_indices_from(full)] += difference[self.member_of]
        return full


def trivial(n: int) -> Groups:
    """Every object alone."""
    each = np.arange(n)
    return Groups(np.ones(n), each, each)


def find(C: Array) -> tuple[Groups, Array]:
    """The groups of interchangeable rows of C, diagonal included, and the value inside each group.

    Rows whose entries are the same up to order are candidates; a candidate belongs to a group if its row
    agrees with the first member's except in the two columns of the pair. Only worth it if it halves C.
    """
    n = len(C)
    none = trivial(n), np.zeros(n)
    if n < _WORTHWHILE:
        return none
    _, signature = np.unique(_signatures(C), return_inverse=True)
    if signature.max() + 1 > n // 2:
        return none
    member_of = np.full(n, -1)
    first: list[int] = []
    inside: list[float] = []
    for label in range(signature.max() + 1):
        waiting = np.flatnonzero(signature == label)
        splits = 0
        while waiting.size:
            leader = int(waiting[0])
            same = _agrees(C, leader, waiting)
            members = waiting[same]
            member_of[members] = len(first)
            first.append(leader)
            inside.append(float(C[leader, members[1]]) if len(members) > 1 else 0.0)
            waiting = waiting[~same]
            splits += 1
            if splits > _MOST_SPLITS and waiting.size > splits:
                return none
    if len(first) > n // 2:
        return none
    sizes = np.bincount(member_of).astype(np.float64)
    return Groups(sizes, np.array(first), member_of), np.array(inside)


def _agrees(C: Array, leader: int, rows: Index) -> NDArray[np.bool_]:
    """Which rows equal the leader's row, up to swapping the two objects; then they equal each other's too."""
    differs = C[rows] != C[leader]
    differs[:, leader] = False
    differs[np.arange(len(rows)), rows] = C[rows, rows] != C[leader, leader]
    return ~differs.any(axis=1)


def _signatures(C: Array) -> NDArray[np.uint64]:
    """A number for every row that depends on its entries, not on their order; exact, by wrapping integers."""
    signature = np.empty(len(C), np.uint64)
    for i, row in enumerate(C + 0.0):  # -0.0 becomes 0.0
        bits = row.view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        signature[i] = np.sum(mixed ^ (mixed >> np.uint64(32)), dtype=np.uint64)
    return signature
