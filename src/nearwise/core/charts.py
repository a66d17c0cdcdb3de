"""Newton's local coordinates around a positive semidefinite M, in which the divergence has Hessian I.

A symmetric step D means dM = basis (weights * D) basis^T, with an elementwise product. `FactorChart` is for
LogDet and all that congruences leave unchanged: M = B (I + D) B^T for any factor B, and the weights are 1.
`SpectralChart` is for every other divergence: it moves theta = phi'(M), so M stays in the cone. In the
eigenbasis of M the inverse Hessian is elementwise the chord of (phi')^-1 between two eigenvalues of theta;
the weights are its roots. Where phi'(0) is finite the minimiser may be singular; there a vanishing multiple
of the logarithm is added to phi'. The divergence chooses its chart (`SpectralDivergence.chart`). A chart
knows the divergence and the prior, and of the rows only their adjoint sum_i y_i A_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy.special import kl_div

from nearwise._common.types import Array
from nearwise.core.chords import chords

if TYPE_CHECKING:
    from nearwise.core.divergences import SpectralDivergence

NEGLIGIBLE = 1e-20  # relative size of eigenvalues that change nothing in double precision
TINY = 1e-300  # in place of 0 where a logarithm or a quotient is taken

# Eigenvalues of a start are raised to this size beside its largest, since phi'(0) may be -inf; where the law
# is smoothed, to the second, since it has all of its smoothing.
RAISED_START, RAISED_SMOOTH = 1e-10, 1e-3

# The smoothing at first and at last, in units of size phi''(size), and the factor by which it falls. With a
# tenth of it at first Frobenius takes 1.3 times the iterations on 2,000 pairs; less than the last changes no
# objective.
SMOOTHING, LEAST_SMOOTHING, SMOOTHING_FALL = 1.0, 1e-18, 0.1

Hessian = Callable[[Array], Array]


class Chart(Protocol):
    """A point M with local coordinates."""

    @property
    def factor(self) -> Array:
        """B with M = B B^T."""

    @property
    def basis(self) -> Array:
        """A row's vector x enters local coordinates as basis^T x."""

    @property
    def stretch(self) -> Array:
        """factor = basis * stretch, so that values are squares of stretched local coordinates."""

    @property
    def weights(self) -> Array | None:
        """Elementwise weights of a step; None where all are 1."""

    @property
    def is_exact(self) -> bool:
        """Whether `cost` and `gap` are about the divergence itself, without smoothing."""

    def cost(self) -> float:
        """The divergence to the prior, plus the smoothing's cost."""

    def gap(self, adjoint: Array) -> float:
        """How far `cost` plus the losses is above its minimum: a bound, or an estimate with smoothing."""

    def gradient(self, adjoint: Array) -> Array:
        """The gradient of the objective in `basis`, weights not applied."""

    def moved(self, gradient: Array, step: Array, hessian: Hessian, radius: float) -> Move:
        """The point after a step D; `hessian` is that of the losses in `basis`, weights not applied."""

    def toward_minimiser(self, adjoint: Array, length: float) -> Chart:
        """The point between this one (0) and the minimiser of the Lagrangian (1); descends if short."""

    def anchored(self, adjoint: Array) -> Chart:
        """The same point, with coordinates that suit the multipliers where M is numerically singular."""

    def sharpened(self) -> Chart | None:
        """The same point with less smoothing; None where there is none left to remove."""


class Move(NamedTuple):
    """The result of a step: the point, the objective's slope along the step, the length of the whole step.

    The length is about the largest relative change of M. Above the radius the step is shortened to it.
    `chart` is None where the step leads out of the domain.
    """

    chart: Chart | None
    slope: float
    length: float


@dataclass(frozen=True, eq=False)
class FactorChart:
    """M = B (I + D) B^T, for a divergence that congruences leave unchanged."""

    divergence: SpectralDivergence
    prior: Array
    factor: Array

    weights = None
    is_exact = True

    @classmethod
    def of(cls, divergence: SpectralDivergence, prior: Array, start: Array | None = None) -> FactorChart:
        """The chart at the prior, or at M = start start^T."""
        if start is None:
            return cls(divergence, prior, np.diag(np.sqrt(prior)))
        x, V = _spectrum_of_start(start, prior)
        return cls(divergence, prior, V * np.sqrt(x))

    @property
    def basis(self) -> Array:
        return self.factor

    @property
    def stretch(self) -> Array:
        return np.ones(len(self.prior))

    def cost(self) -> float:
        return self.divergence.distance(self.factor, self.prior)

    def gap(self, adjoint: Array) -> float:
        return self.divergence.distance_to_minimiser(self.factor, _theta(self, adjoint))

    def gradient(self, adjoint: Array) -> Array:
        found: Array = -(self.factor.T @ _theta(self, adjoint) @ self.factor)
        found.flat[:: len(found) + 1] -= 1.0
        return found

    def moved(self, gradient: Array, step: Array, hessian: Hessian, radius: float) -> Move:
        d, Q = np.linalg.eigh(step)
        length = float(np.abs(d).max(initial=0.0))
        share = min(1.0, radius / length) if length > 0 else 1.0
        slope = share * float(np.vdot(gradient, step))
        return Move(self._at(self.factor @ (Q * np.sqrt(_growth(share * d)))), slope, length)

    def toward_minimiser(self, adjoint: Array, length: float) -> FactorChart:
        e, Q = np.linalg.eigh(self.gradient(adjoint))
        return self._at(self.factor @ (Q / np.sqrt(np.maximum(1.0 + length * e, length / 4))))

    def anchored(self, adjoint: Array) -> FactorChart:
        return self

    def sharpened(self) -> None:
        return None

    def _at(self, factor: Array) -> FactorChart:
        return FactorChart(self.divergence, self.prior, factor)


@dataclass(frozen=True, eq=False)
class SpectralChart:
    """theta = law(M) = vectors diag(theta) vectors^T, where the law is phi' or a smoothing of it."""

    divergence: SpectralDivergence
    prior: Array
    law: Law
    theta: Array
    vectors: Array

    @classmethod
    def of(cls, divergence: SpectralDivergence, prior: Array, start: Array | None = None) -> SpectralChart:
        """The chart at the prior or at M = start start^T, moved off the boundary of the cone."""
        size = float(np.mean(np.abs(prior))) or 1.0
        x, V = (prior, np.eye(len(prior))) if start is None else _spectrum_of_start(start, prior)
        if np.isinf(divergence.gradient(np.zeros(1)))[0]:
            return cls(divergence, prior, Law(divergence, 0.0, size), divergence.gradient(x), V)
        law = Law(divergence, SMOOTHING * size * float(divergence.curvature(np.array([size]))[0]), size)
        return cls(divergence, prior, law, law.gradient(np.maximum(x, RAISED_SMOOTH * size)), V)

    @cached_property
    def eigenvalues(self) -> Array:
        return self.law.gradient_inverse(self.theta)

    @cached_property
    def factor(self) -> Array:
        return self.vectors * self.stretch

    @cached_property
    def stretch(self) -> Array:
        x = self.eigenvalues  # squares of what is negligible may be denormal numbers, which are slow
        return np.sqrt(np.where(x > NEGLIGIBLE**2 * x.max(), x, 0.0))

    @property
    def basis(self) -> Array:
        return self.vectors

    @cached_property
    def weights(self) -> Array:
        x, t = self.eigenvalues, self.theta
        return np.sqrt(chords(self.law, t[:, None], t[None, :], x[:, None], x[None, :]))

    @property
    def is_exact(self) -> bool:
        return self.law.smoothing == 0

    def cost(self) -> float:
        with np.errstate(all="ignore"):
            share = np.square(self.vectors.T)
            terms = share * self.divergence.scalar(self.eigenvalues[:, None], self.prior)
        return float(np.where(share == 0, 0.0, terms).sum()) + self.law.excess(self.eigenvalues)

    def gap(self, adjoint: Array) -> float:
        if self.is_exact:
            return self.divergence.distance_to_minimiser(self.factor, _theta(self, adjoint))
        return 0.5 * float(np.sum(np.square(self.weights * self.gradient(adjoint))))

    def gradient(self, adjoint: Array) -> Array:
        found: Array = -(self.vectors.T @ _theta(self, adjoint) @ self.vectors)
        found.flat[:: len(found) + 1] += self.theta
        return found

    def moved(self, gradient: Array, step: Array, hessian: Hessian, radius: float) -> Move:
        weighs = self.weights > TINY
        change = np.divide(step, self.weights, out=-gradient, where=weighs)
        if not weighs.all():  # there the same from D = -weights * (gradient + H(weights * D))
            change = np.where(weighs, change, change - hessian(self.weights * step))
        largest = float(self.eigenvalues.max())
        length = float(np.linalg.norm(step, 2)) / np.sqrt(largest) if largest > 0 else 0.0
        share = min(1.0, radius / length) if length > 0 else 1.0
        slope = share * float(np.sum(np.square(self.weights) * gradient * change))
        theta = np.diag(self.theta) + share * change
        if not np.isfinite(theta).all():
            return Move(None, slope, length)
        linear = np.diag(self.eigenvalues) + share * np.square(self.weights) * change
        return Move(self._capped(theta, linear), slope, length)

    def toward_minimiser(self, adjoint: Array, length: float) -> SpectralChart:
        here = (self.vectors * self.theta) @ self.vectors.T
        t, U = np.linalg.eigh((1 - length) * here + length * _theta(self, adjoint))
        return replace(self, theta=t, vectors=U)

    def anchored(self, adjoint: Array) -> SpectralChart:
        """theta on the null space of M does not show in M; there it is that of the Lagrangian's minimiser."""
        x = self.eigenvalues
        null = x <= NEGLIGIBLE * x.max()
        if not null.any():
            return self
        N = self.vectors[:, null]
        t, U = np.linalg.eigh(N.T @ _theta(self, adjoint) @ N)
        theta, vectors = self.theta.copy(), self.vectors.copy()
        theta[null] = np.minimum(t, self.law.gradient(np.array([max(NEGLIGIBLE * x.max(), TINY)])))
        vectors[:, null] = N @ U
        return replace(self, theta=theta, vectors=vectors)

    def sharpened(self) -> SpectralChart | None:
        law = self.law.sharpened()
        if law is None:
            return None
        x = self.eigenvalues
        theta = np.where(x > NEGLIGIBLE * x.max(), law.gradient(np.maximum(x, TINY)), self.theta)
        return replace(self, law=law, theta=theta)

    def _capped(self, theta: Array, linear: Array) -> SpectralChart:
        """The point with this theta, its eigenvalues at most those that the linear prediction of M has there.

        (phi')^-1 may grow much faster than its linear part, on which the step is built; small eigenvalues may
        still grow to a tenth of the mean. Both matrices are in the eigenbasis of this point.
        """
        t, U = np.linalg.eigh(theta)
        predicted = np.einsum("ij,ij->j", U, linear @ U)
        most = np.maximum(predicted, 0.1 * max(float(np.trace(linear)) / len(linear), 0.0))
        cap = np.where(most > 0, self.law.gradient(np.where(most > 0, most, 1.0)), np.inf)
        return replace(self, theta=np.minimum(t, cap), vectors=self.vectors @ U)


@dataclass(frozen=True)
class Law:
    """theta(x) = phi'(x) + smoothing log(x / size): increasing from -inf, also where phi'(0) is finite.

    The second term is the derivative of `smoothing` times the von Neumann divergence to size * I.
    """

    divergence: SpectralDivergence
    smoothing: float
    size: float

    def gradient(self, x: Array) -> Array:
        found = self.divergence.gradient(x)
        return found + self.smoothing * np.log(x / self.size) if self.smoothing else found

    def curvature(self, x: Array) -> Array:
        found = self.divergence.curvature(x)
        return found + self.smoothing / x if self.smoothing else found

    def gradient_inverse(self, t: Array) -> Array:
        """By Newton's method on u = log(x / size), from above the root, where it cannot overshoot."""
        if not self.smoothing:
            return self.divergence.gradient_inverse(t)
        d, at_zero = self.divergence, self.divergence.gradient(np.zeros(1))
        above = np.maximum(d.gradient_inverse(t), self.size)
        u = np.where(t > at_zero, np.log(above / self.size), np.minimum((t - at_zero) / self.smoothing, 0.0))
        for _ in range(100):
            x = np.maximum(self.size * np.exp(u), TINY)
            step = (d.gradient(x) + self.smoothing * u - t) / (d.curvature(x) * x + self.smoothing)
            u = u - step
            if np.all(np.abs(step) <= 1e-15 * np.maximum(np.abs(u), 1.0)):
                break
        return np.asarray(self.size * np.exp(u))

    def gradient_inverse_slope(self, t: Array) -> Array:
        if not self.smoothing:
            return self.divergence.gradient_inverse_slope(t)
        x = np.maximum(self.gradient_inverse(t), TINY)
        return np.asarray(x / (self.divergence.curvature(x) * x + self.smoothing))

    def excess(self, x: Array) -> float:
        """What the smoothing adds to the objective."""
        return self.smoothing * float(kl_div(x, self.size).sum()) if self.smoothing else 0.0

    def sharpened(self) -> Law | None:
        """With less smoothing; None where that changes nothing."""
        curvature = float(self.divergence.curvature(np.array([self.size]))[0])
        if self.smoothing < LEAST_SMOOTHING * self.size * curvature:
            return None
        return replace(self, smoothing=SMOOTHING_FALL * self.smoothing)


def _theta(chart: FactorChart | SpectralChart, adjoint: Array) -> Array:
    """phi'(M) at the minimiser of the Lagrangian of these multipliers."""
    theta = -adjoint
    theta.flat[:: len(theta) + 1] += chart.divergence.gradient(chart.prior)
    return theta


def _spectrum_of_start(start: Array, prior: Array) -> tuple[Array, Array]:
    """Positive eigenvalues and eigenvectors of about start start^T, whatever its number of columns."""
    V, s, _ = np.linalg.svd(np.hstack([start, np.zeros((len(start), len(start)))]), full_matrices=False)
    return np.maximum(s**2, RAISED_START * max(float(s[0]) ** 2, float(np.mean(np.abs(prior))))), V


def _growth(d: Array) -> Array:
    """1 + d where d > -1/2; below, an exponential with the same value and slope, which stays positive."""
    return np.where(d > -0.5, 1.0 + d, 0.5 * np.exp(2.0 * np.minimum(d, -0.5) + 1.0))
