"""Rows with their losses for the new core, and the same written out as dense matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearwise.core.divergences import SpectralDivergence
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows


class ThreeHalves(SpectralDivergence):
    """A user's divergence, phi(x) = x^1.5, with a finite slope at 0."""

    degree = 1.5

    def scalar(self, x, y):
        a, b = np.sqrt(x), np.sqrt(y)
        return (a - b) ** 2 * (a + b / 2)

    def gradient(self, x):
        return 1.5 * np.sqrt(x)

    def gradient_inverse(self, t):
        return (np.maximum(t, 0) / 1.5) ** 2

    def curvature(self, x):
        with np.errstate(divide="ignore"):
            return 0.75 / np.sqrt(x)


@dataclass(frozen=True, eq=False)
class Written:
    """Rows, their losses, and the matrices (m, r, r) of the rows."""

    rows: Rows
    loss: Loss
    A: np.ndarray

    def formulation(self) -> Formulation:
        return Formulation.of(self.loss.divergence, np.ones(self.rows.order), self.rows, self.loss)


def distances(
    divergence: SpectralDivergence,
    order: int,
    m: int,
    *,
    objects: int | None = None,
    comparisons: bool = False,
    penalty: float = 1.0,
    feasible: bool = False,
    seed: int = 0,
) -> Written:
    """Squared distances between random objects, with bounds of all relations near their values under I.

    With comparisons, every other row is a difference of two distances. Where feasible, an M meets all bounds.
    """
    rng = np.random.default_rng(seed)
    n = objects or max(m // 2, 3)
    F = rng.normal(size=(n, order))
    i = rng.integers(n, size=(m, 2))
    j = (i + rng.integers(1, n, size=(m, 2))) % n
    is_comparison = np.arange(m) % 2 == 1 if comparisons else np.zeros(m, dtype=bool)
    second = np.flatnonzero(is_comparison)
    first_end, second_end = np.concatenate([i[:, 0], i[second, 1]]), np.concatenate([j[:, 0], j[second, 1]])
    row = np.concatenate([np.arange(m), second])
    coefficient = np.concatenate([np.ones(m), -np.ones(len(second))])
    rows = Rows.of(F, first_end, second_end, len(row), coefficient, row, m)
    z = F[first_end] - F[second_end]
    A = np.zeros((m, order, order))
    np.add.at(A, row, coefficient[:, None, None] * z[:, :, None] * z[:, None, :])
    L = rng.normal(size=(order, order)) / np.sqrt(order)
    inside = np.einsum("kij,ij->k", A, np.eye(order) + L @ L.T)
    relations = rng.integers(-1, 1 if feasible else 2, size=m).astype(np.int8)
    if feasible:
        relations = np.where(relations == 0, 1, -1).astype(np.int8)
        margin = 0.02 * np.maximum(np.abs(inside), 0.1)
        bounds = inside - relations * margin
    else:
        bounds = np.einsum("kii->k", A) * rng.uniform(0.5, 1.6, size=m)
    sizes = np.bincount(row, np.einsum("ij,ij->i", z, z), m)
    penalties = np.full(m, penalty)
    return Written(rows, Loss(divergence, relations, bounds, penalties, sizes, ~is_comparison), A)
