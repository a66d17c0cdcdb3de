"""Loops over the rows of a feature matrix that pairs of objects name: distances, differences, graph sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise.linalg.loops.compiling import compiled


@compiled(reassociate=True)
def squared_distances(
    rows: NDArray[np.float64], first: NDArray[np.int64], second: NDArray[np.int64], out: NDArray[np.float64]
) -> None:
    """out[t] = |rows[first[t]] - rows[second[t]]|^2."""
    for t in range(first.shape[0]):
        i = first[t]
        j = second[t]
        total = 0.0
        for a in range(rows.shape[1]):
            difference = rows[i, a] - rows[j, a]
            total += difference * difference
        out[t] = total


@compiled(reassociate=True)
def graph_product(
    rows: NDArray[np.float64],
    start: NDArray[np.int64],
    neighbour: NDArray[np.int64],
    weight: NDArray[np.float64],
    diagonal: NDArray[np.float64],
    lowest: int,
    out: NDArray[np.float64],
) -> None:
    """out[k] = (W rows)[lowest + k] for the symmetric W with off-diagonal `weight` and the given `diagonal`.

    The neighbours of node i are neighbour[start[i] : start[i + 1]], with the weights at the same places.
    """
    for k in range(out.shape[0]):
        i = lowest + k
        for a in range(rows.shape[1]):
            out[k, a] = diagonal[i] * rows[i, a]
        for e in range(start[i], start[i + 1]):
            w = weight[e]
            if w != 0.0:
                j = neighbour[e]
                for a in range(rows.shape[1]):
                    out[k, a] += w * rows[j, a]


@compiled(reassociate=True)
def gathered_differences(
    rows: NDArray[np.float64], first: NDArray[np.int64], second: NDArray[np.int64], out: NDArray[Any]
) -> None:
    """out[t] = rows[first[t]] - rows[second[t]], in the precision of `out`."""
    for t in range(first.shape[0]):
        i = first[t]
        j = second[t]
        for a in range(rows.shape[1]):
            out[t, a] = rows[i, a] - rows[j, a]
