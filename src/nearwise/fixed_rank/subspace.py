"""Learning a subspace on the Grassmann manifold, MBS11 section 4: principal subspaces, and Oja's update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.fixed_rank.geometry import Slope


@dataclass(frozen=True)
class Grassmann:
    """Subspaces, as d x r matrices U with orthonormal columns; tangent vectors are orthogonal to U.

    Parameters
    ----------
    geodesic : move along geodesics (6) instead of making U + xi orthonormal by QR (7)
    """

    geodesic: bool = False

    def point(self, factor: Array) -> Array:
        return np.asarray(np.linalg.qr(factor)[0])

    def factor(self, point: Array) -> Array:
        return point

    def gradient(self, point: Array, slope: Slope) -> Array:
        """(5)."""
        return self._horizontal(point, 2 * slope(point))

    def inner(self, point: Array, a: Array, b: Array) -> float:
        return float(np.vdot(a, b))

    def retract(self, point: Array, step: Array) -> Array:
        if self.geodesic:
            Z, angles, Vt = np.linalg.svd(step, full_matrices=False)
            return np.asarray((point @ Vt.T * np.cos(angles) + Z * np.sin(angles)) @ Vt)
        Q, R = np.linalg.qr(point + step)
        return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))  # the frame nearest to the old one

    def transport(self, point: Array, step: Array, vector: Array) -> Array:
        """The part orthogonal to the new subspace."""
        return self._horizontal(self.retract(point, step), vector)

    def reach(self, point: Array) -> float:
        return float(np.sqrt(point.shape[1]))

    def _horizontal(self, U: Array, A: Array) -> Array:
        return np.asarray(A - U @ (U.T @ A))


@dataclass(frozen=True, eq=False)
class Projection:
    """The cost (4), the mean of |U U^T x - x|^2 / 2 over the rows x of `rows`.

    A step along its gradient with the retraction (7) is Oja's update, so `online.pass_over` is Oja's
    algorithm and `driver.minimise` finds principal subspaces.
    """

    rows: Array

    @property
    def n_samples(self) -> int:
        return len(self.rows)

    def evaluate(self, factor: Array) -> tuple[float, Callable[[Array], Array]]:
        image = self.rows @ factor
        outside = self.rows - image @ factor.T
        cost = float(np.vdot(outside, outside)) / (2 * len(self.rows))
        return cost, lambda D: self.rows.T @ (self.rows @ D) / (-2 * len(self.rows))

    def subset(self, rows: Index | slice) -> Projection:
        return Projection(self.rows[rows])
