"""The synthetic regression problems of MBS11 10.1."""

from __future__ import annotations

import numpy as np

import nearwise as nw
from nearwise._common.types import Array

NOISE = 0.1  # v_i of (28) has the variance 0.01


def observed(X: Array, W_factor: Array, rng: np.random.Generator) -> Array:
    """y_i = x_i^T W x_i (1 + v_i) for W = G G^T, MBS11 (28)."""
    clean = np.square(X @ W_factor).sum(axis=1)
    return np.asarray(clean * (1 + NOISE * rng.standard_normal(len(X))))


def random_problem(n: int, d: int, rank: int, seed: int) -> tuple[Array, Array]:
    """n samples of a random target of that rank in d dimensions."""
    rng = np.random.default_rng(seed)
    X, G = rng.standard_normal((n, d)), rng.standard_normal((d, rank))
    return X, observed(X, G, rng)


def error(model: nw.FixedRankRegressor, X: Array, y: Array) -> float:
    """The mean of (y^ - y)^2 / 2, the paper's cost."""
    return float(np.mean((model.predict(X) - y) ** 2) / 2)
