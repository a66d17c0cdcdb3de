"""The geometries of fixed-rank positive semidefinite matrices, MBS11 section 6: flat and polar.

A point is W = G G^T, and G Q is the same point for every orthogonal Q. A tangent vector is a d x r matrix D
that moves W by D G^T + G D^T. In the polar geometry G = U R with orthonormal U, and D = xi R + G Psi / 2 for
a slope xi of the subspace, orthogonal to U, and a symmetric Psi, which moves R R^T by R Psi R^T.

Steps and transports only multiply G and D by r x r matrices from the right, so the same object also moves
their images under the data (`forms`), and a step costs no product with the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from nearwise._common.types import Array

# D -> grad_W f D, with the symmetric d x d gradient of the cost with respect to W
Slope = Callable[[Array], Array]

_LONGEST_LOG = 8.0  # of one step of R R^T: a factor of 3000 is more than any step means
_SINGULAR = 1e14  # condition number from which on R counts as singular
_SMALLEST = 1e-4  # relative eigenvalue of a preconditioner


class Geometry(Protocol):
    """What gradient descent on a manifold needs: MBS11 sections 2 and 3. A tangent vector is an array."""

    def point(self, factor: Array) -> Any:
        """The point G G^T."""

    def factor(self, point: Any) -> Array:
        """G."""

    def gradient(self, point: Any, slope: Slope) -> Array:
        """The tangent vector with Df[V] = inner(gradient, V) for all V."""

    def inner(self, point: Any, a: Array, b: Array) -> float:
        """The metric."""

    def retract(self, point: Any, step: Array) -> Any:
        """The point that a step leads to."""

    def transport(self, point: Any, step: Array, vector: Array) -> Array:
        """A tangent vector at `point` as one at `retract(point, step)`."""

    def reach(self, point: Any) -> float:
        """The length, in the metric, of the longest step that is sensible without a line search."""


@dataclass(frozen=True, eq=False)
class Mix:
    """G @ start + D @ step, for factors G and steps D or for their images; None stands for the identity."""

    start: Array | None
    step: Array | None

    @cached_property
    def growth(self) -> float:
        """How many times larger rounding in G and D can become, at least 1."""
        parts = [part for part in (self.start, self.step) if part is not None]
        if not all(np.isfinite(part).all() for part in parts):
            return np.inf
        return max([1.0, *(float(np.linalg.norm(part, 2)) for part in parts)])

    def __call__(self, G: Array, D: Array) -> Array:
        return (G if self.start is None else G @ self.start) + (D if self.step is None else D @ self.step)


@dataclass(frozen=True, eq=False)
class FlatPoint:
    """G."""

    factor: Array


@dataclass(frozen=True)
class Flat:
    """W = G G^T with the metric tr(D1^T D2), under which lines G + s D are geodesics: MBS11 (9), (10)."""

    @property
    def fixes_scale(self) -> bool:
        """Whether W cannot become a multiple of itself."""
        return False

    def point(self, factor: Array) -> FlatPoint:
        return FlatPoint(factor)

    def factor(self, point: FlatPoint) -> Array:
        return point.factor

    def gradient(self, point: FlatPoint, slope: Slope) -> Array:
        return 2 * slope(point.factor)

    def preconditioned(
        self, point: FlatPoint, SG: Array, moment: Array, whiten: Callable[[Array], Array] | None
    ) -> tuple[Array, Array | None]:
        """A direction D for the slope SG, and K for a direction G K, None where that may not move.

        The gradient in the metric 4 tr(D1^T S D2 C), about the Hessian for data with mean square S.
        """
        return (SG if whiten is None else whiten(SG)) @ inverse_of(moment) / 2, None

    def allowed(self, point: FlatPoint, D: Array) -> Array:
        """The part of a d x r matrix in which the point may move."""
        return D

    def inner(self, point: FlatPoint, a: Array, b: Array) -> float:
        return float(np.vdot(a, b))

    def retract(self, point: FlatPoint, step: Array) -> FlatPoint:
        return FlatPoint(point.factor + step)

    def retraction(self, point: FlatPoint, step: Array) -> tuple[FlatPoint, Mix]:
        """The new point, and how its factor mixes the old one and the step."""
        return self.retract(point, step), Mix(None, None)

    def straight(self, point: FlatPoint, step: Array) -> None:
        """The point G + D, where that is another way to take the step; else None."""
        return None

    def transport(self, point: FlatPoint, step: Array, vector: Array) -> Array:
        """The part of the vector that turns no frame: V - G' O, O skew, so that G'^T of it is symmetric."""
        new, turn = self._turn(point, step, vector)
        return vector - new @ turn

    def reach(self, point: FlatPoint) -> float:
        return float(np.linalg.norm(point.factor)) / 2

    def carried(self, point: FlatPoint, step: Array, new: FlatPoint, mix: Mix) -> Mix:
        """The transport of the step itself as a mix, after a retraction to `new` by `mix`."""
        _, turn = self._turn(point, step, step)
        return Mix(-turn, np.eye(len(turn)) - turn)

    def _turn(self, point: FlatPoint, step: Array, vector: Array) -> tuple[Array, Array]:
        G = point.factor + step
        values, Q = np.linalg.eigh(G.T @ G)
        product = G.T @ vector
        rotated = Q.T @ (product - product.T) @ Q
        sums = values[:, None] + values
        return G, Q @ np.divide(rotated, sums, out=np.zeros_like(rotated), where=sums > 0) @ Q.T


@dataclass(frozen=True, eq=False)
class PolarPoint:
    """U, d x r with orthonormal columns, and R, r x r, with W = U R R^T U^T."""

    basis: Array
    core: Array

    @cached_property
    def factor(self) -> Array:
        """G = U R."""
        return self.basis @ self.core

    @cached_property
    def core_inverse(self) -> Array:
        """R^-1, or the least-norm inverse where the rank has dropped."""
        try:
            inverse = np.linalg.inv(self.core)
        except np.linalg.LinAlgError:
            return np.asarray(np.linalg.pinv(self.core))
        singular = np.linalg.norm(inverse) * np.linalg.norm(self.core) > _SINGULAR
        return np.asarray(np.linalg.pinv(self.core) if singular else inverse)

    def parts(self, D: Array) -> tuple[Array, Array]:
        """xi R and K of a matrix D = xi R + G K, where K + K^T is Psi; for tangent vectors K = Psi / 2."""
        inside = self.basis.T @ D
        return D - self.basis @ inside, self.core_inverse @ inside


@dataclass(frozen=True)
class Polar:
    """W = U R^2 U^T with the metric (17), which weighs subspace against distance: MBS11 (20), (21).

    Both parts of a step use the retraction of the paper but for one choice: U + xi is made orthonormal by its
    polar factor, not by QR (18), because the result of QR depends on the basis in which U and R are written.

    Parameters
    ----------
    subspace_weight : lambda in [0, 1]; 0 keeps the subspace, 1 learns nothing else
    """

    subspace_weight: float = 0.5

    @property
    def fixes_scale(self) -> bool:
        return self.subspace_weight == 1.0

    def point(self, factor: Array) -> PolarPoint:
        U, R = np.linalg.qr(factor)
        return PolarPoint(U, R)

    def factor(self, point: PolarPoint) -> Array:
        return point.factor

    def gradient(self, point: PolarPoint, slope: Slope) -> Array:
        """xi = 2 lambda (I - U U^T) S U R R^T and Psi = (1 - lambda) G^T S G, for S = grad_W f."""
        G, weight = point.factor, self.subspace_weight
        SG = slope(G)
        outside = SG - point.basis @ (point.basis.T @ SG)
        half_psi = (1 - weight) / 2 * symmetric(G.T @ SG)
        return 2 * weight * outside @ (point.core.T @ point.core) + G @ half_psi

    def preconditioned(
        self, point: PolarPoint, SG: Array, moment: Array, whiten: Callable[[Array], Array] | None
    ) -> tuple[Array, Array | None]:
        """As for `Flat`, and the part inside the subspace once more by itself; lambda says which may move."""
        inverse, slope = inverse_of(moment), self.allowed(point, SG)
        direction = self.allowed(point, (slope if whiten is None else whiten(slope)) @ inverse / 2)
        if self.subspace_weight == 1:
            return direction, None
        return direction, inverse @ symmetric(point.factor.T @ SG) @ inverse / 4

    def allowed(self, point: PolarPoint, D: Array) -> Array:
        """Inside the subspace where lambda is 0, outside where it is 1."""
        if 0 < self.subspace_weight < 1:
            return D
        inside = point.basis @ (point.basis.T @ D)
        return inside if self.subspace_weight == 0 else D - inside

    def inner(self, point: PolarPoint, a: Array, b: Array) -> float:
        """(17); a part with weight 0 has no tangent vectors."""
        xi_R_a, half_a = point.parts(a)
        xi_R_b, half_b = (xi_R_a, half_a) if a is b else point.parts(b)
        weight, total = self.subspace_weight, 0.0
        if weight > 0:
            total += float(np.vdot(xi_R_a @ point.core_inverse, xi_R_b @ point.core_inverse)) / weight
        psi_a, psi_b = half_a + half_a.T, half_b + half_b.T
        return total + (float(np.vdot(psi_a, psi_b)) / (1 - weight) if weight < 1 else 0.0)

    def retract(self, point: PolarPoint, step: Array) -> PolarPoint:
        """U' = (U + xi)(I + xi^T xi)^-1/2, and R' = R exp(Psi / 2) as in (20)."""
        return self._moved(point, step)[0]

    def retraction(self, point: PolarPoint, step: Array) -> tuple[PolarPoint, Mix]:
        new, half, whiten = self._moved(point, step)
        onward = point.core_inverse @ whiten @ new.core
        return new, Mix(onward - half @ onward, onward)

    def _moved(self, point: PolarPoint, step: Array) -> tuple[PolarPoint, Array, Array]:
        """The new point, K, and (I + xi^T xi)^-1/2."""
        outside, half = point.parts(step)
        core = point.core @ exponential(symmetric(half))
        if self.subspace_weight == 0:
            return PolarPoint(point.basis, core), half, np.eye(len(half))
        moved = point.basis + outside @ point.core_inverse
        whiten = inverse_of(moved.T @ moved, smallest=0.0, power=0.5)
        return PolarPoint(moved @ whiten, core), half, whiten

    def straight(self, point: PolarPoint, step: Array) -> PolarPoint | None:
        return None if self.subspace_weight == 1 else self.point(point.factor + step)

    def transport(self, point: PolarPoint, step: Array, vector: Array) -> Array:
        """xi projected on what is orthogonal to the new subspace, Psi kept in the new frame.

        The second is parallel transport along the geodesic of R R^T.
        """
        new = self.retract(point, step)
        outside, half = point.parts(vector)
        moved = outside @ exponential(symmetric(point.parts(step)[1]))
        return moved - new.basis @ (new.basis.T @ moved) + new.factor @ symmetric(half)

    def reach(self, point: PolarPoint) -> float:
        return float(np.sqrt(len(point.core)))

    def carried(self, point: PolarPoint, step: Array, new: PolarPoint, mix: Mix) -> Mix:
        outside, half = point.parts(step)
        growth = exponential(symmetric(half))
        along = symmetric(half) - new.core_inverse @ (new.basis.T @ (outside @ growth))
        assert mix.start is not None
        assert mix.step is not None
        return Mix(mix.start @ along - half @ growth, mix.step @ along + growth)


MixingGeometry: TypeAlias = Flat | Polar  # whose steps are mixes, as a search of planes needs


def symmetric(A: Array) -> Array:
    """The symmetric part."""
    return (A + A.T) / 2


def inverse_of(C: Array, smallest: float = _SMALLEST, power: float = 1.0) -> Array:
    """C^-power for a positive semidefinite C, with eigenvalues of at least `smallest` times the largest."""
    values, Q = np.linalg.eigh(C)
    floor = max(smallest * float(values[-1]), np.finfo(float).tiny)
    return np.asarray((Q * np.maximum(values, floor) ** -power) @ Q.T)


def exponential(A: Array) -> Array:
    """exp(A) for a symmetric A; eigenvalues beyond what a step can mean are cut."""
    values, Q = np.linalg.eigh(A)
    return np.asarray((Q * np.exp(np.clip(values, -_LONGEST_LOG, _LONGEST_LOG))) @ Q.T)
