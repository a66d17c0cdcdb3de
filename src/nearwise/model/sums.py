"""sum_t w_t sym(x_t y_t^T) over atoms, an r x r matrix, in the way that costs least.

Few atoms are written out. Many differences are gathered a block at a time and their squares summed up, those
of positive and of negative weights apart, since x^T x takes half the time of a product of two matrices:
O(m r^2 / 2) for m atoms with a weight. Where that are more than two for each of the n rows of F, and where
atoms are no squares, the sum is F^T W F with the sparse matrix W of the graph: O(n r^2 + m r).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.model.atoms import Atoms
from nearwise.model.local import in_blocks

_BLOCK = 1 << 19  # numbers in a block of gathered rows: small enough to stay in the cache
_FEW = 20_000  # numbers in the vectors of all atoms, up to which they are written out
_PER_OBJECT = 2  # differences with a weight, up to which their squares cost less than the graph


def sum_of_atoms(F: NDArray[Any], atoms: Atoms, weights: Array, large: bool) -> Array:
    """The sum for a weight per atom; `large` where compiled loops are worth their start-up."""
    count, d = len(weights), int(np.count_nonzero(atoms.is_difference))
    if large and (d < count or np.count_nonzero(weights) > _PER_OBJECT * len(F)):
        total = _over_graph(F, atoms, weights, d)
    elif d < count or count * F.shape[1] <= _FEW:
        x, y = F[atoms.first], F[atoms.second]
        x[:d] -= y[:d]
        y[:d] = x[:d]
        total = x.T @ (weights[:, None] * y)
    else:
        total = _of_squares(F, atoms, weights, large) - _of_squares(F, atoms, -weights, large)
    return np.asarray((total + total.T) / 2)


def fill_differences(
    F: NDArray[Any], first: Index, second: Index, out: NDArray[Any], compiled: bool
) -> NDArray[Any]:
    """F[first] - F[second], in the precision of `out`."""
    if compiled:
        from nearwise.linalg.loops.graph import gathered_differences

        gathered_differences(F, first, second, out)
    else:
        np.subtract(F[first], F[second], out=out, casting="same_kind")
    return out


def sum_by(index: Index, values: Array, n: int) -> Array:
    """out[k] = the sum of the values whose index is k."""
    return np.asarray(np.bincount(index, values, n), dtype=np.float64)


def _of_squares(F: NDArray[Any], atoms: Atoms, weights: Array, large: bool) -> Array:
    """sum_t w_t x_t x_t^T over the differences of positive weight."""
    chosen = np.flatnonzero(~(weights <= 0))  # and over what is not a number
    root = np.sqrt(weights[chosen]).astype(F.dtype)[:, None]
    first, second = atoms.first[chosen], atoms.second[chosen]
    r = F.shape[1]
    step = max(1, _BLOCK // max(r, 1))

    def part(block: slice) -> Array:
        total, room = np.zeros((r, r)), np.empty((min(step, block.stop - block.start), r), F.dtype)
        for low in range(block.start, block.stop, step):
            own = slice(low, min(low + step, block.stop))
            x = fill_differences(F, first[own], second[own], room[: own.stop - low], large)
            x *= root[own]
            total += x.T @ x
        return total

    return np.asarray(np.sum(in_blocks(len(chosen), part, large), axis=0))


def _over_graph(F: NDArray[Any], atoms: Atoms, weights: Array, d: int) -> Array:
    """F^T W F, the differences being the first d atoms."""
    from nearwise.linalg.loops.graph import graph_product

    start, neighbour, edge_atom = atoms.graph
    weight = np.where(atoms.is_difference, -weights, weights / 2)[edge_atom]
    diagonal = sum_by(atoms.first[:d], weights[:d], len(F)) + sum_by(atoms.second[:d], weights[:d], len(F))
    r = F.shape[1]
    step = max(1, _BLOCK // max(r, 1))

    def part(block: slice) -> Array:
        total = np.zeros((r, r))
        for low in range(block.start, block.stop, step):
            own = slice(low, min(low + step, block.stop))
            product = np.empty((own.stop - low, r), F.dtype)
            graph_product(F, start, neighbour, weight, diagonal, low, product)
            total += F[own].T @ product
        return total

    return np.asarray(np.sum(in_blocks(len(F), part, True), axis=0))
