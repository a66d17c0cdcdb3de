"""Maps to few dimensions in which neighbours tell classes or numbers: where they start, and how they end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from nearwise._common.types import Array, Codes
from nearwise.learners._soft_neighbors import SoftNeighbors, descended

_SCALES = (0.5, 1.0, 2.0, 4.0)  # of a start whose coordinates have variance 1
_RIDGE = 1e-3  # of the mean variance within classes, added to all of them
_ITERATIONS = 100  # of the last step to directions


def in_unit(X: Array, weights: Array | None = None) -> tuple[Array, float]:
    """Centred rows times a power of two that makes them about 1 in size, and that number."""
    centred = X - np.average(X, axis=0, weights=weights)
    size = float(np.abs(centred).max(initial=0.0))
    scale = float(2.0 ** -np.round(np.log2(size))) if size > 0.0 else 1.0
    return centred * scale, scale


def start_of(costs: SoftNeighbors, others: Array) -> Array:
    """Directions of linear discriminant analysis or regression, completed by the others.

    All d dimensions are those of the data where targets are numbers. The length is the one of some at which a
    way down begins lowest.
    """
    first = replace(costs, ridge=costs.ridges[0])
    found = others
    if costs.kind == "labels" or others.shape[1] < len(others):
        found = _telling(costs, others)
    return min((scale * found for scale in _SCALES), key=lambda A: first.cost(A)[0])


def neighbor_directions(X: Array, codes: Codes, rank: int, weights: Array | None = None) -> Array:
    """Orthonormal columns that span the few directions in which neighbours tell classes best."""
    rows, _ = in_unit(X, weights)
    costs = SoftNeighbors(rows, codes.astype(np.float64), "labels", "student", weights)
    A, _ = descended(costs, start_of(costs, principal(rows, rank, weights)), _ITERATIONS)
    # complete also where columns are dependent
    return np.linalg.svd(A, full_matrices=True)[0][:, :rank]


def principal(X: Array, rank: int, weights: Array | None = None) -> Array:
    """The first principal directions, all alike long: coordinates have variance 1 on average."""
    d = X.shape[1]
    V = np.eye(d)
    if rank < d:
        rows = X if weights is None else X * np.sqrt(weights)[:, None]
        V = np.linalg.svd(rows, full_matrices=len(X) < rank)[2][:rank].T
        V = V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(rank)])
    return _unit(V, X, weights)


def _telling(costs: SoftNeighbors, others: Array) -> Array:
    """Directions that tell targets apart most by their means, as many as there are, and then the others."""
    X, y, rank = costs.X, costs.targets, others.shape[1]
    w = np.ones(len(X)) if costs.weights is None else costs.weights
    X = X - np.average(X, axis=0, weights=w)
    if costs.kind == "labels":
        classes, place = np.unique(y, return_inverse=True)
        one_of_each = place[:, None] == np.arange(len(classes))
        told = ((one_of_each * w[:, None]).T @ X / (w @ one_of_each)[:, None])[place]
        count = min(rank, len(classes) - 1)
        rest = X - told
    else:
        slope = X.T @ (w * (y - np.average(y, weights=w)))
        told, count, rest = np.outer(np.ones(len(X)), slope), 1, X
    within = rest.T @ (rest * w[:, None]) / w.sum()
    within[np.diag_indices_from(within)] += _RIDGE * max(float(np.trace(within)) / len(within), 1e-300)
    _, V = linalg.eigh(told.T @ (told * w[:, None]) / w.sum(), within)
    V = V[:, ::-1][:, :count]
    V = V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(count)])
    rest = others[:, : rank - count]
    return _unit(np.hstack([_unit(part, X, w) for part in (V, rest) if part.shape[1]]), X, w)


def _unit(V: Array, X: Array, weights: Array | None = None) -> Array:
    size = float(np.sqrt(np.average(np.square(X @ V).mean(axis=1), weights=weights)))
    return V / size if size > 0 else V
