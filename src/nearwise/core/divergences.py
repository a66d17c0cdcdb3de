"""Spectral Bregman divergences: how far a matrix is from the prior, and everything that depends on phi.

The reader will find the base class `SpectralDivergence`, which extends four functions of numbers to matrices
and to what solvers ask; and the three divergences of KSD09, `LogDet`, `VonNeumann` and `Frobenius`, which
override what is exact or cheaper for them. No solver asks which divergence it has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack, solve_triangular

from nearwise._common.reading import finite, symmetric
from nearwise._common.types import Array
from nearwise.core.charts import Chart, FactorChart, SpectralChart
from nearwise.core.chords import chords
from nearwise.core.spectra import (
    Spectrum,
    spectrum_of_factor,
    value_of_numbers,
    value_on_ranges,
    weighted_sum,
)
from nearwise.linalg.dense import cholesky, eigenvalues, singular_spectrum, singular_values, spectrum
from nearwise.linalg.packing import packing

_SMALLEST, _LARGEST = 1e-300, 1e300  # in place of an eigenvalue or unit 0 or inf, where phi' may be infinite
# relative difference of two numbers up to which their divergence is a series: at 1/8 it has 11 digits, and at
# 1/256 the logarithms beyond have 13, of 14 here (against 60 digits)
_NEAR = 1.0 / 32.0
_LARGE_LOGARITHM = 700.0  # of x / y, which may have overflowed or lost digits from there on


class SpectralDivergence(ABC):
    """D(X, Y) = sum_ij (v_i . u_j)^2 scalar(lambda_i, theta_j), KSD09 (3).

    Here X = V diag(lambda) V^T, Y = U diag(theta) U^T, and scalar(x, y) = phi(x) - phi(y) - phi'(y) (x - y)
    for a strictly convex phi on the non-negative numbers. As a function of X, D(X, I) is a spectral function
    with minimum at I, so metric and kernel learning agree for all of them (JKDD12 definition 3, theorem 4).

    To add a divergence, derive from this class and write four functions, elementwise on arrays, as here for
    phi(x) = x^1.5 (with `scalar` factored so that no digits cancel near x = y). Every solver takes it:

    >>> class ThreeHalves(SpectralDivergence):
    ...     degree = 1.5
    ...     def scalar(self, x, y):
    ...         a, b = np.sqrt(x), np.sqrt(y)
    ...         return (a - b) ** 2 * (a + b / 2)
    ...     def gradient(self, x):
    ...         return 1.5 * np.sqrt(x)
    ...     def gradient_inverse(self, t):
    ...         return (np.maximum(t, 0) / 1.5) ** 2
    ...     def curvature(self, x):
    ...         return 0.75 / np.sqrt(x)
    >>> ThreeHalves().value([[4, 0], [0, 0]], [[1, 0], [0, 1]])
    3.0

    Singular matrices follow KSD09 section 4, read off `scalar`: if scalar(1, 0) is infinite, D is finite only
    where range(X) is inside range(Y); if scalar(0, 1) is infinite, only where range(Y) is inside range(X).
    There D is that of the restrictions to the range (definition 4), a sum of non-negative terms; else inf.

    Two tolerances decide. An eigenvalue counts as zero below 8 n eps times the largest magnitude (of a
    factor, a singular value below 8 max(n, k) eps times the largest). A range counts as inside another, onto
    which P projects, if the leakage sum_i lambda_i |(I - P) v_i|^2 is at most sum_i lambda_i a_i. Here a_i,
    at most 1e-6, is the relative size of a zero eigenvalue plus the squared angle by which a perturbation of
    that size can tilt the other range at v_i: much only if the other matrix is ill-conditioned on its range.

    Attributes
    ----------
    degree : D(cX, cY) = c**degree D(X, Y) for every c > 0; None where no number does this
    congruence_invariant : whether D(T^T X T, T^T Y T) = D(X, Y) for every invertible T, KSD09 proposition 12
    indefinite_prior : whether `scalar` is defined for all real numbers, so that negative eigenvalues are
        passed to it
    barrier : w >= 0 where phi(x) = -w log x + rest; interior-point methods leave the barrier to their own
    """

    degree: float | None = None
    congruence_invariant: bool = False
    indefinite_prior: bool = False
    barrier: float = 0.0

    # --- functions of numbers, elementwise -----------------------------------------------------------------

    @abstractmethod
    def scalar(self, x: Array, y: Array, /) -> Array:
        """The divergence of numbers x, y >= 0: in [0, inf], never NaN, 0 at (0, 0)."""

    @abstractmethod
    def gradient(self, x: Array, /) -> Array:
        """phi'(x) for x > 0; at 0 the limit."""

    @abstractmethod
    def gradient_inverse(self, t: Array, /) -> Array:
        """The x >= 0 that minimises phi(x) - t x; inf where there is none."""

    @abstractmethod
    def curvature(self, x: Array, /) -> Array:
        """phi''(x) for x > 0."""

    @np.errstate(all="ignore")
    def gradient_inverse_slope(self, t: Array, /) -> Array:
        """The derivative of `gradient_inverse`; to be written if phi'' is finite where that stops at 0."""
        return 1.0 / self.curvature(self.gradient_inverse(t))

    def shifted(self, x: Array, t: Array, /) -> Array:
        """gradient_inverse(gradient(x) + t); to be written where a small t would be lost in the sum."""
        return self.gradient_inverse(self.gradient(x) + t)

    # --- values, for users ----------------------------------------------------------------------------------

    def value(self, X: ArrayLike, Y: ArrayLike) -> float:
        """D(X, Y) of symmetric matrices; inf if one has a negative eigenvalue and not `indefinite_prior`."""
        X, Y = _symmetric_pair(X, Y)
        return value_on_ranges(self, Spectrum.of_matrix(X), Spectrum.of_matrix(Y))

    def value_of_factors(self, B: ArrayLike, C: ArrayLike) -> float:
        """D(B B^T, C C^T) for B (n x k) and C (n x l) in O(n (k + l)^2), without an n x n matrix.

        What lies outside the other range enters as terms scalar(lambda_i, 0) and scalar(0, theta_j).
        """
        B, C = _pair(B, C, ("B", "C"), ndim=2)
        return value_on_ranges(self, Spectrum.of_factor(B), Spectrum.of_factor(C))

    def value_of_vectors(self, x: ArrayLike, y: ArrayLike) -> float:
        """sum_i scalar(x_i, y_i), the divergence of diag(x) and diag(y) with no entry taken for zero."""
        x, y = _pair(x, y, ("x", "y"), ndim=1)
        if not self.indefinite_prior and (np.any(x < 0) or np.any(y < 0)):
            return np.inf
        return value_of_numbers(self, x, y, np.ones_like(x))

    # --- the domain, for solvers ----------------------------------------------------------------------------

    @property
    @np.errstate(all="ignore")
    def is_infinite_at_zero(self) -> bool:
        """Whether phi(0) is infinite, so that M keeps the whole range of the prior."""
        return not np.isfinite(self.scalar(np.zeros(1), np.ones(1)))[0]

    @property
    @np.errstate(all="ignore")
    def confines(self) -> bool:
        """Whether phi'(0) is infinite, so that M stays in the range of the prior."""
        return not np.isfinite(self.scalar(np.ones(1), np.zeros(1)))[0]

    @property
    @np.errstate(all="ignore")
    def largest_gradient(self) -> float:
        """phi'(inf): the supremum of t for which phi(x) - t x has a minimiser."""
        end = float(self.gradient(np.full(1, np.inf))[0])
        if math.isnan(end):  # x / (1 + x), or a phi that ends before
            end = float(np.nanmax(self.gradient(np.exp2(np.arange(1000.0)))))
            is_end = np.isinf(self.gradient_inverse(np.full(1, end + abs(end) + 1.0))[0])
            return end if is_end else math.inf
        return end + 0.0  # without the sign of -0.0

    @np.errstate(all="ignore")
    def unit_of(self, prior: Array) -> float:
        """The natural unit of objectives: how they scale with the prior, mean |eigenvalue| ** degree."""
        size = np.abs(prior).mean()
        return float(np.clip(size**self.degree, _SMALLEST, _LARGEST)) if self.degree and size > 0 else 1.0

    # --- matrices, for solvers: M = B B^T, and a prior that is diagonal -------------------------------------

    def distance(self, B: Array, prior: Array) -> float:
        """D(B B^T, diag(prior)), the objective without its losses. `prior` is positive if phi `confines`."""
        x, V = spectrum_of_factor(B)
        return _infinite_if_nan(weighted_sum(self, x[:, None], prior, np.square(V.T)))

    @np.errstate(all="ignore")
    def distance_to_minimiser(self, B: Array, theta: Array) -> float:
        """phi(M) - <theta, M> above its minimum over M >= 0, the matrix's part of the duality gap.

        It is D(M, M^) for the minimiser M^, plus <phi'(M^) - theta, M> where M^ stops at 0 because theta is
        below phi'(0). Infinite where there is no minimiser.
        """
        if (spectra := self._spectrum_of_minimiser(theta)) is None:
            return math.inf
        t, U, y = spectra
        x, V = spectrum_of_factor(B)
        raised, weight = np.maximum(y, _SMALLEST), np.square(V.T @ U)
        found = _infinite_if_nan(weighted_sum(self, x[:, None], raised, weight))
        stopped = y < _SMALLEST
        if not stopped.any():
            return found
        slack = np.where(stopped, np.maximum(self.gradient(raised) - t, 0.0), 0.0)
        return found + float(x @ weight @ slack)

    @np.errstate(all="ignore")
    def minimiser(self, theta: Array) -> tuple[Array, Array, Array | None] | None:
        """A factor of M^ = argmin phi(M) - <theta, M> over M >= 0, with local coordinates; None without M^.

        The coordinates are a basis and weights (None for ones), in which the Hessian of the conjugate of phi
        is elementwise: dM^ = basis (weights^2 * basis^T dtheta basis) basis^T.
        """
        if (spectra := self._spectrum_of_minimiser(theta)) is None:
            return None
        t, U, y = spectra
        weights = np.sqrt(chords(self, t[:, None], t, y[:, None], y))
        return U * np.sqrt(y), U, weights

    @np.errstate(all="ignore")
    def _spectrum_of_minimiser(self, theta: Array) -> tuple[Array, Array, Array] | None:
        """Eigenvalues and eigenvectors of theta, and the eigenvalues of M^; None where there is no M^."""
        if not np.isfinite(theta).all():
            return None
        t, U = spectrum(theta)
        y = self.gradient_inverse(t)
        return (t, U, y) if np.isfinite(y).all() else None

    @np.errstate(all="ignore")
    def scaled_hessian(self, L: Array, G: Array, prior: Array) -> tuple[Array | None, Array | None, Array]:
        """Derivatives of D without the barrier near M = L L^T along dM = G D G^T: (rotation, root, gradient).

        An interior-point method takes G that scales M and its dual partner to the same diagonal matrix. The
        gradient G^T (phi'(M) - phi'(prior)) G is a matrix. The root is that of I + Hessian in the packed D:
        lower triangular, one number per coordinate, or None for I. Where there is a rotation, both are in the
        coordinates of G rotation.
        """
        V, s, _ = singular_spectrum(L)
        x = np.maximum(s**2, _SMALLEST)
        t, C, pack = self.gradient(x), V.T @ G, packing(len(L))
        gradient = (C.T * (t + self.barrier / x)) @ C - (G.T * self.gradient(prior)) @ G
        # in the eigenbasis of M, with dM = C D C^T, the Hessian is elementwise
        bend = 1.0 / chords(self, t[:, None], t, x[:, None], x) - self.barrier / (x[:, None] * x)
        left, right = C[pack.a], C[pack.b]
        half = left[:, pack.a] * right[:, pack.b] + left[:, pack.b] * right[:, pack.a]
        half *= pack.scale / 2.0
        half *= (pack.scale * np.sqrt(np.maximum(bend[pack.a, pack.b], 0.0)))[:, None]
        hessian = half.T @ half
        hessian.flat[:: len(hessian) + 1] += 1.0
        return None, cholesky(hessian), gradient

    @np.errstate(all="ignore")
    def chart(self, prior: Array, start: Array | None = None) -> Chart:
        """Local coordinates for Newton's method, at the prior or at start start^T."""
        return SpectralChart.of(self, prior, start)


Divergence = SpectralDivergence


@dataclass(frozen=True)
class LogDet(SpectralDivergence):
    """phi = -log x: tr(X Y^-1) - log det(X Y^-1) - n, finite iff range(X) = range(Y). KSD09 (2), thm 7."""

    degree = 0.0
    congruence_invariant = True
    barrier = 1.0

    @np.errstate(all="ignore")
    def scalar(self, x: ArrayLike, y: ArrayLike, /) -> Array:
        """x/y - log(x/y) - 1, with a relative error of about 1e-14 however close x and y are."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        delta = np.asarray((x - y) / y)
        near = np.abs(delta) <= _NEAR
        count = np.count_nonzero(near)
        out = np.asarray(_minus_log1p(delta) if count == near.size else delta - np.log(x / y))
        if 0 < count < near.size:
            out[near] = _minus_log1p(delta[near])
        if out.max(initial=0.0) < _LARGE_LOGARITHM and y.min(initial=1.0) > 0:
            return out
        out = np.where(near, out, delta - _log_ratio(x, y))
        outside = (x <= 0) | (y <= 0) | np.isinf(x) | np.isinf(y)
        return np.where(outside, np.where((x == 0) & (y == 0), 0.0, np.inf), out)

    @np.errstate(all="ignore")
    def gradient(self, x: ArrayLike, /) -> Array:
        x = np.asarray(x, np.float64)
        return np.where(x <= 0, -np.inf, -1.0 / x)

    @np.errstate(all="ignore")
    def gradient_inverse(self, t: ArrayLike, /) -> Array:
        """-1/t for t < 0; inf for t >= 0, where phi(x) - t x falls without end."""
        t = np.asarray(t, np.float64)
        return np.where(t >= 0, np.inf, -1.0 / t)

    @np.errstate(all="ignore")
    def curvature(self, x: ArrayLike, /) -> Array:
        return np.square(self.gradient(x))

    @np.errstate(all="ignore")
    def shifted(self, x: ArrayLike, t: ArrayLike, /) -> Array:
        """x / (1 - t x) where t x < 1."""
        x, share = np.asarray(x, np.float64), np.asarray(t, np.float64) * x
        return np.where(share >= 1.0, np.inf, x / (1.0 - share))

    def value(self, X: ArrayLike, Y: ArrayLike) -> float:
        """D(X, Y); for definite X = K K^T and Y = L L^T, D(Z Z^T, I) with Z = L^-1 K (proposition 12).

        Unlike eigenvectors, Cholesky factors lose no digits when features come in very different units.
        """
        X, Y = _symmetric_pair(X, Y)
        X_spectrum, Y_spectrum = Spectrum.of_matrix(X), Spectrum.of_matrix(Y)
        if np.sum(X_spectrum.values > 0) == np.sum(Y_spectrum.values > 0) == len(X):
            with suppress(np.linalg.LinAlgError), np.errstate(all="ignore"):
                Z = solve_triangular(np.linalg.cholesky(Y), np.linalg.cholesky(X), lower=True)
                s = np.linalg.svd(Z, compute_uv=False)
                return value_of_numbers(self, s, 1.0 / s, np.ones_like(s))  # s^2 may be out of range
        return value_on_ranges(self, X_spectrum, Y_spectrum)

    @np.errstate(all="ignore")
    def distance(self, B: Array, prior: Array) -> float:
        """From the singular values of prior^-1/2 B."""
        if B.shape[1] < len(B):
            return math.inf
        s = singular_values(B / np.sqrt(prior)[:, None])
        return float(self.scalar(s, 1.0 / s).sum())

    @np.errstate(all="ignore")
    def distance_to_minimiser(self, B: Array, theta: Array) -> float:
        """From the eigenvalues of B^T (M^)^-1 B, where (M^)^-1 = -theta."""
        if B.shape[1] < len(B):
            return math.inf
        B = _square(B)
        relative = B.T @ theta @ B
        if not np.isfinite(relative).all():
            return math.inf
        return float(self.scalar(-eigenvalues(relative), np.ones(len(B))).sum())

    def minimiser(self, theta: Array) -> tuple[Array, Array, None] | None:
        """M^ = L^-T L^-1 for -theta = L L^T; the factor itself is a basis with weights 1."""
        L, failed = lapack.dpotrf(-theta, lower=1)
        if failed:
            return None
        B = lapack.dtrtri(L, lower=1)[0].T
        return (B, B, None) if np.isfinite(B).all() else None

    def scaled_hessian(self, L: Array, G: Array, prior: Array) -> tuple[None, None, Array]:
        """phi is its barrier, so the rest is linear."""
        return None, None, (G.T / prior) @ G

    def chart(self, prior: Array, start: Array | None = None) -> Chart:
        return FactorChart.of(self, prior, start)


@dataclass(frozen=True)
class VonNeumann(SpectralDivergence):
    """phi = x log x - x: tr(X log X - X log Y - X + Y), finite iff range(X) in range(Y). KSD09 (1), thm 6."""

    degree = 1.0

    @np.errstate(all="ignore")
    def scalar(self, x: ArrayLike, y: ArrayLike, /) -> Array:
        """x log(x/y) - x + y, with a relative error of about 1e-14 however close x and y are."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        delta = np.asarray((y - x) / x)
        near = np.abs(delta) <= _NEAR
        out = np.asarray(y - x + x * _log_ratio(x, y))
        if np.count_nonzero(near):
            out[near] = (x * near)[near] * _minus_log1p(delta[near])
        if x.min(initial=1.0) > 0 and y.min(initial=1.0) > 0 and math.isfinite(out.sum()):
            return out
        outside = (x <= 0) | (y <= 0) | np.isinf(x) | np.isinf(y)
        return np.where(outside, np.where((x == 0) & (y >= 0), y, np.inf), out)

    @np.errstate(all="ignore")
    def gradient(self, x: ArrayLike, /) -> Array:
        return np.log(np.maximum(x, 0.0))

    @np.errstate(all="ignore")
    def gradient_inverse(self, t: ArrayLike, /) -> Array:
        return np.exp(np.asarray(t, np.float64))

    def gradient_inverse_slope(self, t: ArrayLike, /) -> Array:
        return self.gradient_inverse(t)

    @np.errstate(all="ignore")
    def curvature(self, x: ArrayLike, /) -> Array:
        return 1.0 / np.abs(np.maximum(x, 0.0))  # 1 / -0.0 would be -inf

    @np.errstate(all="ignore")
    def shifted(self, x: ArrayLike, t: ArrayLike, /) -> Array:
        """x exp(t)."""
        return np.maximum(x, 0.0) * np.exp(np.asarray(t, np.float64))


@dataclass(frozen=True)
class Frobenius(SpectralDivergence):
    """phi = x^2 (no factor 1/2): |X - Y|_F^2, finite for every symmetric pair. KSD09 3.1."""

    degree = 2.0
    indefinite_prior = True

    @np.errstate(all="ignore")
    def scalar(self, x: ArrayLike, y: ArrayLike, /) -> Array:
        """(x - y)^2, for all real numbers."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        out = np.square(x - y)
        return out if math.isfinite(out.sum()) else np.where(np.isinf(x) | np.isinf(y), np.inf, out)

    @np.errstate(all="ignore")
    def gradient(self, x: ArrayLike, /) -> Array:
        return 2.0 * np.asarray(x, np.float64)

    def gradient_inverse(self, t: ArrayLike, /) -> Array:
        """max(t, 0) / 2; the cone x >= 0 is what makes it stop at 0."""
        return np.maximum(t, 0.0) / 2.0

    def gradient_inverse_slope(self, t: ArrayLike, /) -> Array:
        """1/2 where t > 0, otherwise 0."""
        return np.where(np.asarray(t, np.float64) > 0, 0.5, 0.0)

    def curvature(self, x: ArrayLike, /) -> Array:
        return np.full(np.shape(x), 2.0)

    @np.errstate(all="ignore")
    def value(self, X: ArrayLike, Y: ArrayLike) -> float:
        """|X - Y|_F^2, from the entries."""
        X, Y = _symmetric_pair(X, Y)
        return float(np.sum(np.square(X - Y)))

    def distance(self, B: Array, prior: Array) -> float:
        """From the entries."""
        apart = B @ B.T
        apart.flat[:: len(apart) + 1] -= prior
        return float(np.vdot(apart, apart))

    def distance_to_minimiser(self, B: Array, theta: Array) -> float:
        """From the entries in the eigenbasis of theta: |M - M^|^2 - <min(theta, 0), M>."""
        if (spectra := self._spectrum_of_minimiser(theta)) is None:
            return math.inf
        t, U, y = spectra
        inside = U.T @ B
        apart = inside @ inside.T
        slack = -float(np.minimum(t, 0.0) @ apart.diagonal())
        apart.flat[:: len(apart) + 1] -= y
        return float(np.vdot(apart, apart)) + slack

    def scaled_hessian(self, L: Array, G: Array, prior: Array) -> tuple[Array, Array, Array]:
        """2 |G D G^T|^2 is elementwise where G^T G is diagonal: rotated by its eigenvectors."""
        _, s, rotation_t = singular_spectrum(G)
        G, square, pack = G @ rotation_t.T, s**2, packing(len(L))
        half = G.T @ L
        gradient = 2.0 * (half @ half.T - (G.T * prior) @ G)
        return rotation_t.T, np.sqrt(1.0 + 2.0 * square[pack.a] * square[pack.b]), gradient


# --- helpers ------------------------------------------------------------------------------------------------


def _infinite_if_nan(total: float) -> float:
    """A formula that is NaN at 0 stands for inf."""
    return math.inf if math.isnan(total) else total


def _square(B: Array) -> Array:
    """A square matrix with the same B B^T."""
    return B if B.shape[0] == B.shape[1] else np.asarray(np.linalg.qr(B.T, mode="r")).T


def _minus_log1p(delta: Array) -> Array:
    """delta - log(1 + delta) for |delta| <= 1/32, without cancellation.

    log(1 + delta) = 2 atanh(z) for z = delta / (2 + delta), so it is z (delta - 2 z^2 (1/3 + z^2/5 + ...)).
    """
    z = delta / (2.0 + delta)
    square = z * z
    series = 1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square / 9.0))
    return z * (delta - 2.0 * square * series)


def _log_ratio(x: Array, y: Array) -> Array:
    """log(x / y), also where x / y is too large or too small for a number."""
    out = np.asarray(np.log(x / y))
    extreme = ~(np.abs(out) < _LARGE_LOGARITHM)
    if np.count_nonzero(extreme):
        x, y = np.broadcast_arrays(x, y)
        (x_digits, x_exponent), (y_digits, y_exponent) = np.frexp(x[extreme]), np.frexp(y[extreme])
        out[extreme] = np.log(x_digits / y_digits) + (x_exponent - y_exponent) * math.log(2.0)
    return out


def _pair(A: ArrayLike, B: ArrayLike, names: tuple[str, str], ndim: int) -> tuple[Array, Array]:
    A, B = finite(A, names[0], ndim), finite(B, names[1], ndim)
    if len(A) != len(B):
        raise ValueError(f"{names[0]} and {names[1]} must have the same length, got {len(A)} and {len(B)}")
    return A, B


def _symmetric_pair(X: ArrayLike, Y: ArrayLike) -> tuple[Array, Array]:
    X, Y = _pair(X, Y, ("X", "Y"), ndim=2)
    return symmetric(X, "X"), symmetric(Y, "Y")
