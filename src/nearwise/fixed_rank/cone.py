"""Geometries of the full-rank cone, MBS11 section 5: affine-invariant and log-Euclidean.

The flat metric of section 5.1 is `geometry.Flat` with square factors. The other two move W = G G^T through
symmetric d x d matrices and cost O(d^3) a step, so they are for small d.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearwise._common.types import Array
from nearwise.fixed_rank.geometry import Slope, exponential, symmetric

_INSIDE = 0.9  # share of the way to the boundary of the cone that a straight step may go
_LARGEST = 300.0  # logarithm of an eigenvalue, so that a wild trial step has a cost that can be computed
_SMALLEST = 1e-12  # relative eigenvalue of a start: the cone has no singular points


@dataclass(frozen=True)
class AffineInvariant:
    """The metric (11), tr(Psi1 Psi2) for tangent vectors G Psi G^T; Psi is how they are stored.

    Parameters
    ----------
    straight : the retraction is W + xi, (14), instead of the exponential map (13). A gradient step is then
        the LogDet update of Davis et al. (2007), kept inside the cone.
    """

    straight: bool = False

    def point(self, factor: Array) -> Array:
        U, values, Vt = np.linalg.svd(_square(factor))
        return np.asarray((U * np.maximum(values, _SMALLEST * values[0])) @ Vt)

    def factor(self, point: Array) -> Array:
        return point

    def gradient(self, point: Array, slope: Slope) -> Array:
        """(12), W S W = G (G^T S G) G^T."""
        return symmetric(point.T @ slope(point))

    def inner(self, point: Array, a: Array, b: Array) -> float:
        return float(np.vdot(a, b))

    def retract(self, point: Array, step: Array) -> Array:
        if not self.straight:
            return np.asarray(point @ exponential(step / 2))
        values, Q = np.linalg.eigh(step)
        share = min(1.0, _INSIDE / max(-float(values[0]), _INSIDE))
        return np.asarray(point @ ((Q * np.sqrt(1 + share * values)) @ Q.T))

    def transport(self, point: Array, step: Array, vector: Array) -> Array:
        """Psi in the frame that moves along, which is parallel transport for the exponential map."""
        return vector

    def reach(self, point: Array) -> float:
        return float(np.sqrt(len(point)))


@dataclass(frozen=True, eq=False)
class LogPoint:
    """log W and its spectrum."""

    logarithm: Array

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        values, Q = np.linalg.eigh(self.logarithm)
        return np.clip(values, -_LARGEST, _LARGEST), Q

    @cached_property
    def factor(self) -> Array:
        values, Q = self.spectrum
        return np.asarray((Q * np.exp(values / 2)) @ Q.T)

    def differential(self, A: Array) -> Array:
        """How W = exp(S) changes with S: divided differences of exp in the eigenbasis of S."""
        values, Q = self.spectrum
        gap = np.abs(values[:, None] - values)
        ratio = np.divide(-np.expm1(-gap), gap, out=np.ones_like(gap), where=gap > 1e-8)
        larger = np.exp(np.maximum(values[:, None], values))
        return np.asarray(Q @ (larger * ratio * (Q.T @ A @ Q)) @ Q.T)


@dataclass(frozen=True)
class LogEuclidean:
    """W = exp(S) with steps in S, section 5.3.

    Parameters
    ----------
    mirror : the gradient is S = grad_W f itself, as the paper prints it. It is the gradient of W -> f in the
        metric <dS, dW> of the von Neumann divergence, not in tr(dS^2), with which it agrees only where W and
        the data commute; it makes the update the one of Tsuda et al. (2005). With False, the metric is
        tr(dS^2) and the gradient is its own.
    """

    mirror: bool = True

    def point(self, factor: Array) -> LogPoint:
        U, values, _ = np.linalg.svd(_square(factor))
        return LogPoint(symmetric((U * (2 * np.log(np.maximum(values, _SMALLEST * values[0])))) @ U.T))

    def factor(self, point: LogPoint) -> Array:
        return point.factor

    def gradient(self, point: LogPoint, slope: Slope) -> Array:
        of_W = symmetric(slope(np.eye(len(point.logarithm))))
        return of_W if self.mirror else point.differential(of_W)

    def inner(self, point: LogPoint, a: Array, b: Array) -> float:
        return float(np.vdot(a, point.differential(b) if self.mirror else b))

    def retract(self, point: LogPoint, step: Array) -> LogPoint:
        return LogPoint(point.logarithm + step)

    def transport(self, point: LogPoint, step: Array, vector: Array) -> Array:
        """S is a point of a vector space, so nothing changes."""
        return vector

    def reach(self, point: LogPoint) -> float:
        """Steps of length sqrt(d) in S, in the unit of the metric."""
        eye = np.eye(len(point.logarithm))
        return float(np.sqrt(self.inner(point, eye, eye)))


def _square(factor: Array) -> Array:
    d, r = factor.shape
    if d != r:
        raise ValueError(f"this geometry needs full rank: the factor must be {d} x {d}, got {d} x {r}")
    return factor
