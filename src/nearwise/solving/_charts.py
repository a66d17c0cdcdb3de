"""Local coordinates around a positive semidefinite matrix, in which the divergence has Hessian I.

Near M a step is written as a symmetric matrix D with dM = basis (omega * D) basis^T (elementwise product).
`FactorChart` serves congruence-invariant divergences: basis is any factor of M, omega is 1, and the Hessian
of LogDet is exactly I. `SpectralChart` serves all others: basis holds the eigenvectors of M,
and omega is the square root of the divided differences of (phi')^-1, which are the inverse Hessian in that
basis. It steps on theta = phi'(M), so M stays in the cone; where phi'(0) is finite, so that the optimum may
be singular (Frobenius), phi' is smoothed by a multiple of the logarithm that vanishes along the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from nearwise._common.types import Array
from nearwise.model.divergences import Divergence, VonNeumann, divided_differences
from nearwise.model.formulation import Formulation

_SMALLEST_START = 1e-10  # relative size to which small eigenvalues of a matrix to start from are raised
_NEGLIGIBLE = 1e-20  # relative size of eigenvalues that make no difference to anything measured


class Chart(Protocol):
    """A point M with its local coordinates."""

    @property
    def factor(self) -> Array:
        """B with M = B B^T."""

    @property
    def spectrum(self) -> tuple[Array, Array] | None:
        """Eigenvalues and eigenvectors of M, where they are at hand."""

    @property
    def is_exact(self) -> bool:
        """Whether `cost` and `inner_gap` are the divergences to the prior and to the mirror point."""

    @property
    def basis(self) -> Array:
        """Constraint vectors z enter local coordinates as basis^T z."""

    @property
    def omega(self) -> Array | None:
        """Elementwise weights of local coordinates; None for ones."""

    def of(self, form: Formulation) -> Chart:
        """The same point of the same problem with other measurements."""

    def cost(self) -> float:
        """The divergence to the prior, with whatever else keeps M inside the cone."""

    def inner_gap(self, pullback: Array) -> float:
        """An estimate of how far `cost` plus the constraints' losses are above their minimum."""

    def anchored(self, pullback: Array) -> Chart:
        """The same point, with coordinates that fit the multipliers where M is numerically singular."""

    def tightened(self) -> Chart | None:
        """The same point with less to keep M inside the cone; None where there is nothing left to remove."""

    def gradient(self, pullback: Array) -> Array:
        """The gradient of the objective in `basis`, omega not applied; `pullback` is sum_i y_i A_i."""

    def moved(
        self, gradient: Array, step: Array, image: Array, radius: float
    ) -> tuple[Chart | None, float, float]:
        """The point after a step D, the objective's slope towards it, and the length of D.

        `image` is the constraints' part of the Hessian, applied to omega * D and before omega. The length is
        about the largest relative change of M; where it is above `radius`, the point is that of a shorter
        step. No point where that leads out of the domain.
        """

    def mirrored(self, pullback: Array, length: float) -> Chart | None:
        """The point after a mirror-descent step of a length in (0, 1]; always a descent if short enough."""


@dataclass(frozen=True, eq=False)
class FactorChart:
    """Coordinates M = B (I + D) B^T for a congruence-invariant divergence."""

    form: Formulation
    factor: Array

    spectrum = None
    omega = None
    is_exact = True

    @property
    def basis(self) -> Array:
        return self.factor

    def of(self, form: Formulation) -> FactorChart:
        return FactorChart(form, self.factor)

    def cost(self) -> float:
        return self.form.distance_to_prior(self.factor)

    def inner_gap(self, pullback: Array) -> float:
        return self.form.distance_to_mirror(self.factor, pullback)

    def anchored(self, pullback: Array) -> FactorChart:
        return self

    def tightened(self) -> None:
        return None

    def gradient(self, pullback: Array) -> Array:
        theta = pullback - np.diag(self.form.divergence.gradient(self.form.prior))
        return self.factor.T @ theta @ self.factor - np.eye(len(theta))

    def moved(
        self, gradient: Array, step: Array, image: Array, radius: float
    ) -> tuple[FactorChart, float, float]:
        d, Q = np.linalg.eigh(step)
        longest = float(np.abs(d).max(initial=0.0))
        share = min(1.0, radius / longest) if longest > 0 else 1.0
        slope = share * float(np.sum(gradient * step))
        return FactorChart(self.form, self.factor @ (Q * np.sqrt(_growth(share * d)))), slope, longest

    def mirrored(self, pullback: Array, length: float) -> FactorChart | None:
        e, Q = np.linalg.eigh(self.gradient(pullback))
        return FactorChart(self.form, self.factor @ (Q / np.sqrt(np.maximum(1.0 + length * e, length / 4))))


@dataclass(frozen=True, eq=False)
class SpectralChart:
    """Coordinates theta = law(M) for a spectral divergence, where law is phi' or a smoothing of it."""

    form: Formulation
    law: Law
    theta: Array  # eigenvalues
    vectors: Array

    @cached_property
    def eigenvalues(self) -> Array:
        return self.law.gradient_inverse(self.theta)

    @cached_property
    def factor(self) -> Array:
        x = self.eigenvalues  # squares of what is negligible would be denormal numbers, which are slow
        return self.vectors * np.sqrt(np.where(x > _NEGLIGIBLE**2 * x.max(), x, 0.0))

    @property
    def spectrum(self) -> tuple[Array, Array]:
        return self.eigenvalues, self.vectors

    @property
    def is_exact(self) -> bool:
        return self.law.mu == 0

    @property
    def basis(self) -> Array:
        return self.vectors

    @cached_property
    def omega(self) -> Array:
        return np.sqrt(divided_differences(self.law, self.theta))

    def of(self, form: Formulation) -> SpectralChart:
        return SpectralChart(form, self.law, self.theta, self.vectors)

    def cost(self) -> float:
        return self.form.distance_to_prior(self.factor, self.spectrum) + self.law.extra(self.eigenvalues)

    def inner_gap(self, pullback: Array) -> float:
        """Exact without smoothing, and a first-order estimate with it."""
        if self.law.mu == 0:
            return self.form.distance_to_mirror(self.factor, pullback, self.spectrum)
        return float(np.sum((self.omega * self.gradient(pullback)) ** 2)) / 2

    def tightened(self) -> SpectralChart | None:
        law = self.law.sharper()
        if law is None:
            return None
        x = self.eigenvalues
        theta = np.where(x > _NEGLIGIBLE * x.max(), law.gradient(np.maximum(x, 1e-300)), self.theta)
        return SpectralChart(self.form, law, theta, self.vectors)

    def anchored(self, pullback: Array) -> SpectralChart:
        """theta on the null space of M does not show in M: take it from the multipliers."""
        x = self.eigenvalues
        null = x <= _NEGLIGIBLE * x.max()
        if not null.any():
            return self
        N = self.vectors[:, null]
        t, U = np.linalg.eigh(N.T @ _target(self.form, pullback) @ N)
        theta, vectors = self.theta.copy(), self.vectors.copy()
        theta[null] = np.minimum(t, self.law.gradient(np.array([max(_NEGLIGIBLE * x.max(), 1e-300)])))
        vectors[:, null] = N @ U
        return SpectralChart(self.form, self.law, theta, vectors)

    def gradient(self, pullback: Array) -> Array:
        return np.diag(self.theta) - self.vectors.T @ _target(self.form, pullback) @ self.vectors

    def moved(
        self, gradient: Array, step: Array, image: Array, radius: float
    ) -> tuple[SpectralChart | None, float, float]:
        # D / omega; where omega vanishes, the same from D + omega * image = -omega * gradient.
        positive = self.omega > np.finfo(float).tiny
        change = np.divide(step, self.omega, out=-gradient - image, where=positive)
        largest = self.eigenvalues.max()
        longest = float(np.linalg.norm(step, 2) / np.sqrt(largest)) if largest > 0 else 0.0
        share = min(1.0, radius / longest) if longest > 0 else 1.0
        slope = share * float(np.sum(self.omega**2 * gradient * change))
        moved = np.diag(self.theta) + share * change
        if not np.isfinite(moved).all():
            return None, slope, longest
        linear = np.diag(self.eigenvalues) + share * self.omega**2 * change
        return self._capped(moved, linear), slope, longest

    def _capped(self, theta: Array, linear: Array) -> SpectralChart:
        """The point with this theta, its eigenvalues no larger than a linear prediction of M says.

        The inverse of the law may grow much faster than its linear part, on which Newton's step is built.
        Small eigenvalues may grow freely. Both matrices are in the eigenbasis of this point.
        """
        t, U = np.linalg.eigh(theta)
        predicted = np.einsum("ij,ij->j", U, linear @ U)
        cap = np.maximum(predicted, 0.1 * max(float(np.trace(linear)) / len(linear), 0.0))
        most = np.where(cap > 0, self.law.gradient(np.where(cap > 0, cap, 1.0)), np.inf)
        return SpectralChart(self.form, self.law, np.minimum(t, most), self.vectors @ U)

    def mirrored(self, pullback: Array, length: float) -> SpectralChart | None:
        here = (self.vectors * self.theta) @ self.vectors.T
        t, U = np.linalg.eigh((1 - length) * here + length * _target(self.form, pullback))
        return SpectralChart(self.form, self.law, t, U)


@dataclass(frozen=True)
class Law:
    """theta(x) = phi'(x) + mu log(x / size), strictly increasing from -inf where phi' alone may not be.

    The second term is the derivative of mu times the von Neumann divergence to size * I. It keeps M off the
    boundary of the cone where phi does not (Frobenius) and vanishes as mu does; mu = 0 where phi does.
    """

    divergence: Divergence
    mu: float
    size: float

    def gradient(self, x: Array, /) -> Array:
        return self.divergence.gradient(x) + (self.mu * np.log(x / self.size) if self.mu else 0.0)

    def gradient_inverse(self, t: Array, /) -> Array:
        """By Newton's method on u = log(x / size) from above the root, where it cannot overshoot."""
        if not self.mu:
            return self.divergence.gradient_inverse(t)
        at_zero = self.divergence.gradient(np.zeros(1))
        base = np.maximum(self.divergence.gradient_inverse(t), self.size)
        u = np.where(t > at_zero, np.log(base / self.size), np.minimum((t - at_zero) / self.mu, 0.0))
        for _ in range(100):
            x = np.maximum(self.size * np.exp(u), 1e-300)
            excess = self.divergence.gradient(x) + self.mu * u - t
            step = excess / (self.divergence.curvature(x) * x + self.mu)
            u = u - step
            if np.all(np.abs(step) <= 1e-15 * np.maximum(np.abs(u), 1.0)):
                break
        return self.size * np.exp(u)

    def gradient_inverse_slope(self, t: Array, /) -> Array:
        if not self.mu:
            return self.divergence.gradient_inverse_slope(t)
        x = np.maximum(self.gradient_inverse(t), 1e-300)
        return x / (self.divergence.curvature(x) * x + self.mu)

    def extra(self, x: Array) -> float:
        """What the smoothing adds to the objective."""
        if not self.mu:
            return 0.0
        return self.mu * float(np.sum(VonNeumann().scalar(x, np.full_like(x, self.size))))

    def sharper(self) -> Law | None:
        if self.mu * self.size < 1e-18 * self.size**2 * float(
            self.divergence.curvature(np.array([self.size]))[0]
        ):
            return None
        return replace(self, mu=0.1 * self.mu)


def first_chart(form: Formulation, start: Array | None = None) -> Chart:
    """The chart at the prior or at `start start^T`, moved off the boundary of the cone if it is there."""
    divergence, x, V = form.divergence, form.prior, np.eye(len(form.prior))
    size = float(np.mean(np.abs(form.prior))) or 1.0
    if start is not None:
        V, s, _ = np.linalg.svd(np.hstack([start, np.zeros_like(V)]), full_matrices=False)
        x = np.maximum(s**2, _SMALLEST_START * max(s[0] ** 2, size))
    if divergence.congruence_invariant:
        return FactorChart(form, V * np.sqrt(x))
    if np.isinf(divergence.gradient(np.zeros(1)))[0]:
        return SpectralChart(form, Law(divergence, 0.0, size), divergence.gradient(x), V)
    law = Law(divergence, size * float(divergence.curvature(np.array([size]))[0]), size)
    return SpectralChart(form, law, law.gradient(np.maximum(x, 1e-3 * size)), V)


def _target(form: Formulation, pullback: Array) -> Array:
    """phi'(M) at the optimum, if these were the optimal multipliers."""
    return np.diag(form.divergence.gradient(form.prior)) - pullback


def _growth(d: Array) -> Array:
    """The new eigenvalue of a direction with step d: 1 + d, bent so as to stay positive below d = -1/2."""
    return np.where(d > -0.5, 1.0 + d, 0.5 * np.exp(2.0 * np.minimum(d, -0.5) + 1.0))
