"""Soft neighbours: what a linear map makes of them, its gradient, and the way down.

An object i chooses another one, j, with a probability p_ij that falls with their distance after the map,
d_ij = |A'(x_i - x_j)|^2: like exp(-d) ("gauss"), or like (1 + d / 3)^-2, Student's density with three degrees
of freedom ("student"), whose heavy tail lets few dimensions hold many groups. Two costs, both means over the
objects:

- "labels": -log of the probability that i chooses an object of its own class, sum_j p_ij [y_j = y_i]
  (Goldberger and others, NIPS 2004, have the probability itself, with "gauss"; a heavy tail is the idea of
  Min and others, ICML 2010);
- "numbers": the squared error of sum_j p_ij y_j as a prediction of y_i, in units of the variance of y
  (Weinberger and Tesauro, AISTATS 2007).

A ridge, a multiple of |A|^2, keeps neighbourhoods wide, since a small map has soft neighbours. On the way
down it falls in steps: where it is strong there is hardly more than one minimum, from which the others
follow.

`start_of` and `neighbor_directions` are about maps to few dimensions: where they start, and how they end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg
from scipy.optimize import minimize

from nearwise._common.types import Array, Codes, Index
from nearwise.linalg.directions import with_fixed_signs

_LEAST = 1e-12  # probability of an own class
_BLOCK = 2**17  # distances at a time, few enough for a processor's cache
_DEGREES = 3.0  # of freedom
_RIDGES = {"labels": (0.1, 0.03, 0.01, 0.003, 0.001), "numbers": (0.0,)}  # along the way
_EARLY = 40  # iterations with each ridge but the last
_SCALES = (0.5, 1.0, 2.0, 4.0)  # of a start whose coordinates have variance 1
_RIDGE = 1e-3  # of the mean variance within classes, added to all of them
_ITERATIONS = 100  # of the last step to directions


@dataclass(frozen=True, eq=False)
class SoftNeighbors:
    """The cost of a map for rows with targets.

    Attributes
    ----------
    X : (n, d), centred
    targets : class numbers, or numbers
    kind : "labels" or "numbers"
    affinity : "student" or "gauss"
    weights : how often every row is there; None for once. An object that is there more than once can choose
        itself.
    ridge : what |A|^2 costs, in units in which columns of X have variance 1 on average
    """

    X: Array
    targets: Array
    kind: str
    affinity: str
    weights: Array | None = None
    ridge: float = 0.0

    def cost(self, A: Array) -> tuple[float, Array]:
        """Of the map x -> A'x, d x r, and its gradient."""
        Z = self.X @ A
        n, lengths = len(Z), np.einsum("ij,ij->i", Z, Z)
        weights = np.ones(n) if self.weights is None else self.weights
        value, by_coordinates = 0.0, np.zeros_like(Z)
        step = max(_BLOCK // n, 1)
        for low in range(0, n, step):
            rows = np.arange(low, min(low + step, n))
            D = (-2.0 * Z[rows]) @ Z.T
            D += lengths[rows, None]
            D += lengths
            np.maximum(D, 0.0, out=D)
            P, slope = self._affinities(D, rows, weights)
            part, pull = self._labels(P, rows) if self.kind == "labels" else self._numbers(P, rows)
            value += float(weights[rows] @ part)
            pull *= weights[rows, None]
            pull *= slope
            by_coordinates[rows] += pull.sum(axis=1)[:, None] * Z[rows] - pull @ Z
            by_coordinates += pull.sum(axis=0)[:, None] * Z - pull.T @ Z[rows]
        total = float(weights.sum())
        unit = self.ridge * float(weights @ np.square(self.X).mean(axis=1)) / total
        gradient = self.X.T @ (by_coordinates * (2.0 / total)) + (2.0 * unit) * A
        return value / total + unit * float(np.square(A).sum()), gradient

    def part(self, rows: Index) -> SoftNeighbors:
        """The same of some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, X=self.X[rows], targets=self.targets[rows], weights=weights)

    def _affinities(self, D: Array, rows: Index, weights: Array) -> tuple[Array, Any]:
        """Probabilities of a choice, in place of squared distances, and the slopes of their logarithms."""
        place = np.arange(len(rows)), rows
        again = np.maximum(weights[rows] - 1.0, 0.0)  # an object beside itself
        slope: Any = -1.0
        if self.affinity == "gauss":
            D[place] = np.where(again > 0.0, 0.0, np.inf)
            np.exp(np.subtract(D.min(axis=1)[:, None], D, out=D), out=D)
            P = D
        else:
            D /= _DEGREES
            D += 1.0
            slope = np.divide(1.0, D, out=D)
            P = np.square(slope)
            slope *= -(_DEGREES + 1.0) / (2.0 * _DEGREES)
            P[place] = 1.0
        own = P[place] * again
        if self.weights is not None:
            P *= weights
        P[place] = own
        P /= P.sum(axis=1)[:, None]
        return P, slope

    def _labels(self, P: Array, rows: Index) -> tuple[Array, Array]:
        """The cost of every row, and by the logarithm of every affinity, in place of the probabilities."""
        same = self.targets[rows, None] == self.targets
        own = np.maximum((P @ self._members)[np.arange(len(rows)), self._places[rows]], _LEAST)
        P *= np.where(same, (1.0 - 1.0 / own)[:, None], 1.0)
        return -np.log(own), P

    def _numbers(self, P: Array, rows: Index) -> tuple[Array, Array]:
        y, weights = self.targets, self.weights
        predicted = P @ y
        error = predicted - y[rows]
        mean = np.average(y, weights=weights)
        variance = float(np.average(np.square(y - mean), weights=weights))
        P *= (2.0 / variance * error)[:, None] * (y - predicted[:, None])
        return np.square(error) / variance, P

    @cached_property
    def _places(self) -> Index:
        """The class of every row, counted from 0."""
        return np.unique(self.targets, return_inverse=True)[1]

    @cached_property
    def _members(self) -> Array:
        """Which rows are of a class, a column for each."""
        return np.eye(int(self._places.max()) + 1)[self._places]

    @property
    def ridges(self) -> tuple[float, ...]:
        """Those of the way down, the last one that of its end."""
        return _RIDGES[self.kind]


def descended(
    costs: SoftNeighbors,
    start: Array,
    max_iter: int,
    callback: Callable[[int, float, float], Any] | None = None,
) -> tuple[Array, bool]:
    """A map of lower or equal cost, by L-BFGS with one ridge after the other, and whether it has settled.

    There are at most `max_iter` iterations with the last ridge, and up to 40 of these with each before it.
    The callback gets the iteration, its cost with the ridge of the moment, and the relative change of the
    map; a true answer ends the run.
    """
    shape, best, count, stopped = start.shape, start, 0, False

    def seen(intermediate_result: Any) -> None:
        nonlocal best, count, stopped
        before, best = best, intermediate_result.x.reshape(shape).copy()
        count += 1
        moved = float(np.linalg.norm(best - before) / (np.linalg.norm(best) or 1.0))
        if callback is not None and callback(count, float(intermediate_result.fun), moved):
            stopped = True
            raise StopIteration

    settled = False
    for ridge in costs.ridges:
        with_ridge = replace(costs, ridge=ridge)

        def cost(a: Array, stage: SoftNeighbors = with_ridge) -> tuple[float, Array]:
            value, slope = stage.cost(a.reshape(shape))
            return value, slope.ravel()

        limit = max_iter if ridge == costs.ridges[-1] else min(max_iter, _EARLY)
        found = minimize(
            cost, best.ravel(), jac=True, method="L-BFGS-B", callback=seen, options={"maxiter": limit}
        )
        settled = bool(found.success)
        if stopped:
            break
    return best, settled and not stopped


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
        V = with_fixed_signs(np.linalg.svd(rows, full_matrices=len(X) < rank)[2][:rank].T)
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
    V = with_fixed_signs(V[:, ::-1][:, :count])
    rest = others[:, : rank - count]
    return _unit(np.hstack([_unit(part, X, w) for part in (V, rest) if part.shape[1]]), X, w)


def _unit(V: Array, X: Array, weights: Array | None = None) -> Array:
    size = float(np.sqrt(np.average(np.square(X @ V).mean(axis=1), weights=weights)))
    return V / size if size > 0 else V
