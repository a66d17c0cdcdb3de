"""Learns a matrix for feature rows from class numbers and constraints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise import _drawing, constraints as c
from nearwise.constraints import Constraints
from nearwise.divergences import Divergence
from nearwise.problem import Problem
from nearwise.result import Record, Result
from nearwise.solve import solve

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned: B with M = B B^T in the coordinates of the features."""

    factor: Array
    result: Result | None
    penalty: float | None
    scores: tuple[tuple[float, float], ...]
    kept_prior: bool
    n_constraints: int


def learn(
    features: Array,
    *,
    codes: NDArray[np.int64] | None,
    constraints: Constraints | None,
    divergence: Divergence,
    prior: Array | None,
    penalty: float | str,
    pairs: str,
    n_pairs: int | None,
    tol: float,
    max_iter: int | None,
    random_state: Any,
    callback: Callable[[Record], Any] | None,
) -> Learned:
    """Learn M from pairs drawn from the class numbers, and from the constraints."""
    side = Constraints() if constraints is None else constraints
    if codes is not None:
        same, different = _drawing.random_pairs(codes, n_pairs, np.random.RandomState(0))
        size = np.square(features).sum(axis=1)
        apart = np.square(features[different[:, 0]] - features[different[:, 1]]).sum(axis=1)
        apart = apart > 1e-12 * (size[different[:, 0]] + size[different[:, 1]])
        side = c.similar(same) + c.dissimilar(different[apart]) + side
    root = np.eye(features.shape[1]) if prior is None else _root(prior)
    if len(side) == 0 or np.ptp(features, axis=0).max(initial=0.0) == 0:
        return Learned(root, None, None, (), True, 0)
    gamma = 1.0 if isinstance(penalty, str) else penalty
    result = solve(Problem(features, side, divergence, prior, gamma), None, tol, max_iter, None, callback)
    return Learned(result.factor, result, gamma, (), False, len(side))


def _root(prior: Array) -> Array:
    values, vectors = np.linalg.eigh(prior)
    return vectors * np.sqrt(np.maximum(values, 0.0))
