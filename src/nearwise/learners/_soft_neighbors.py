"""Soft neighbours: what a linear map makes of them, and its gradient.

An object i chooses another one, j, with a probability p_ij that falls with their distance after the map,
d_ij = |A'(x_i - x_j)|^2: like exp(-d) ("gauss"), or like 1 / (1 + d) ("student"), whose heavy tail lets few
dimensions hold many groups. Two costs, both means over the objects:

- "labels": -log of the probability that i chooses an object of its own class, sum_j p_ij [y_j = y_i]
  (Goldberger and others, NIPS 2004, have the probability itself, with "gauss"; the tail is that of Min and
  others, ICML 2010);
- "numbers": the squared error of sum_j p_ij y_j as a prediction of y_i, in units of the variance of y
  (Weinberger and Tesauro, AISTATS 2007).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from nearwise._common.types import Array

_LEAST = 1e-12  # probability of an own class


@dataclass(frozen=True, eq=False)
class SoftNeighbors:
    """The cost of a map for rows with targets.

    Attributes
    ----------
    X : (n, d), centred
    targets : class numbers, or numbers
    kind : "labels" or "numbers"
    affinity : "student" or "gauss"
    """

    X: Array
    targets: Array
    kind: str
    affinity: str

    def cost(self, A: Array) -> tuple[float, Array]:
        """Of the map x -> A'x, d x r, and its gradient."""
        Z = self.X @ A
        lengths = np.einsum("ij,ij->i", Z, Z)
        D = np.maximum(lengths[:, None] + lengths - 2.0 * (Z @ Z.T), 0.0)
        if self.affinity == "gauss":
            np.fill_diagonal(D, np.inf)
            P = np.exp(D.min(axis=1)[:, None] - D)
            slope: Any = -1.0  # of the logarithm of the affinity
        else:
            slope = -1.0 / (1.0 + D)
            P = -slope
            np.fill_diagonal(P, 0.0)
        P = P / P.sum(axis=1)[:, None]
        value, by_distance = self._labels(P) if self.kind == "labels" else self._numbers(P)
        by_distance *= slope
        pull = by_distance + by_distance.T
        by_coordinates = 2.0 * (pull.sum(axis=1)[:, None] * Z - pull @ Z)
        return value, self.X.T @ by_coordinates

    def _labels(self, P: Array) -> tuple[float, Array]:
        same = self.targets[:, None] == self.targets
        own = np.maximum((P * same).sum(axis=1), _LEAST)
        return float(-np.log(own).mean()), -P * (same / own[:, None] - 1.0) / len(P)

    def _numbers(self, P: Array) -> tuple[float, Array]:
        y = self.targets
        predicted = P @ y
        error = predicted - y
        unit = float(np.var(y)) * len(y)
        slopes = 2.0 * error[:, None] * P * (y - predicted[:, None]) / unit
        return float(error @ error) / unit, slopes


def descended(
    costs: SoftNeighbors,
    start: Array,
    max_iter: int,
    callback: Callable[[int, float, float], Any] | None = None,
) -> tuple[Array, bool]:
    """A map of lower or equal cost, by L-BFGS, and whether it has settled.

    The callback gets the iteration, its cost and the relative change of the map; a true answer ends the run.
    """
    shape, best, count = start.shape, start, 0

    def cost(a: Array) -> tuple[float, Array]:
        value, slope = costs.cost(a.reshape(shape))
        return value, slope.ravel()

    def seen(intermediate_result: Any) -> None:
        nonlocal best, count
        before, best = best, intermediate_result.x.reshape(shape).copy()
        count += 1
        moved = float(np.linalg.norm(best - before) / (np.linalg.norm(best) or 1.0))
        if callback is not None and callback(count, float(intermediate_result.fun), moved):
            raise StopIteration

    found = minimize(
        cost, start.ravel(), jac=True, method="L-BFGS-B", callback=seen, options={"maxiter": max_iter}
    )
    return best, bool(found.success)
