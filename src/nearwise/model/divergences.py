"""Spectral Bregman divergences: what it means for a matrix to be close to the prior.

The reader will find `Divergence`, the functions of numbers that a solver needs and a user writes to add one;
the base class `SpectralDivergence`, which extends them to matrices, factors and vectors; the three
divergences of KSD09, `LogDet`, `VonNeumann` and `Frobenius`; and two functions that solvers share.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from nearwise._common.reading import finite, symmetric
from nearwise._common.types import Array

_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
_NOISE = 8.0  # times n eps: the relative size of what eigh, svd and the products before them leave of a zero
_LARGEST_LEAKAGE = 1e-6  # the share outside a range that no ill-conditioning excuses
_NEAR = 1.0 / 32.0  # relative difference of two numbers, up to which their divergence is summed as a series
_LARGE_LOGARITHM = 700.0  # where x / y may have overflowed or lost digits


class Divergence(Protocol):
    """What a solver needs of D(X, Y) = sum_ij (v_i . u_j)^2 scalar(lambda_i, theta_j), KSD09 (3).

    Here X = V diag(lambda) V^T, Y = U diag(theta) U^T, and scalar(x, y) = phi(x) - phi(y) - phi'(y) (x - y)
    for a strictly convex phi on the non-negative numbers. As a function of X, D(X, I) is a spectral function
    with minimum at I, so metric and kernel learning agree for all of them (JKDD12 definition 3, theorem 4).

    All methods work elementwise on arrays. To add a divergence, derive from `SpectralDivergence` and write
    four functions, as here for phi(x) = x^1.5 (with `scalar` factored so that no digits cancel near x = y):

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
    """

    @property
    def degree(self) -> float | None:
        """D(cX, cY) = c**degree D(X, Y) for every c > 0; None where no number does this."""

    @property
    def congruence_invariant(self) -> bool:
        """Whether D(M^T X M, M^T Y M) = D(X, Y) for every invertible M, KSD09 proposition 12."""

    @property
    def indefinite_prior(self) -> bool:
        """Whether `scalar` is defined for all real numbers, so that negative eigenvalues are passed to it."""

    @abstractmethod
    def scalar(self, x: Array, y: Array, /) -> Array:
        """The divergence of numbers x, y >= 0: in [0, inf], never NaN, 0 at (0, 0)."""

    @abstractmethod
    def gradient(self, x: Array, /) -> Array:
        """phi'(x) for x > 0."""

    @abstractmethod
    def gradient_inverse(self, t: Array, /) -> Array:
        """The x >= 0 that minimises phi(x) - t x; inf where there is none."""

    @abstractmethod
    def gradient_inverse_slope(self, t: Array, /) -> Array:
        """The derivative of `gradient_inverse`, at least 0."""

    @abstractmethod
    def curvature(self, x: Array, /) -> Array:
        """phi''(x) for x > 0."""

    @abstractmethod
    def shifted(self, x: Array, t: Array, /) -> Array:
        """gradient_inverse(gradient(x) + t)."""


class SpectralDivergence(Divergence):
    """D(X, Y) of matrices, factors and vectors, from the functions of numbers that `Divergence` documents.

    Singular matrices follow KSD09 section 4, read off `scalar`: if scalar(1, 0) is infinite, D is finite only
    where range(X) is inside range(Y); if scalar(0, 1) is infinite, only where range(Y) is inside range(X).
    There D is that of the restrictions to the range (definition 4), a sum of non-negative terms; else inf.

    Two tolerances decide. An eigenvalue counts as zero below 8 n eps times the largest magnitude (of a
    factor, a singular value below 8 max(n, k) eps times the largest). A range counts as inside another, onto
    which P projects, if the leakage sum_i lambda_i |(I - P) v_i|^2 is at most sum_i lambda_i a_i. Here a_i,
    at most 1e-6, is the relative size of a zero eigenvalue plus the squared angle by which a perturbation of
    that size can tilt the other range at v_i: much only if the other matrix is ill-conditioned on its range.
    """

    degree: float | None = None
    congruence_invariant: bool = False
    indefinite_prior: bool = False

    @np.errstate(all="ignore")
    def gradient_inverse_slope(self, t: Array, /) -> Array:
        """1 / phi'' at `gradient_inverse`; to be overridden if phi'' is finite where that stops at 0."""
        return 1.0 / self.curvature(self.gradient_inverse(t))

    def shifted(self, x: Array, t: Array, /) -> Array:
        """gradient_inverse(gradient(x) + t); to be overridden where a small t would be lost in the sum."""
        return self.gradient_inverse(self.gradient(x) + t)

    def value(self, X: ArrayLike, Y: ArrayLike) -> float:
        """D(X, Y) of symmetric matrices; inf if one has a negative eigenvalue and not `indefinite_prior`."""
        X, Y = _symmetric_pair(X, Y)
        return self._value_on_ranges(_spectrum(X), _spectrum(Y))

    def value_of_factors(self, B: ArrayLike, C: ArrayLike) -> float:
        """D(B B^T, C C^T) for B (n x k) and C (n x l) in O(n (k + l)^2), without an n x n matrix.

        What lies outside the other range enters as terms scalar(lambda_i, 0) and scalar(0, theta_j).
        """
        B, C = _pair(B, C, ("B", "C"), ndim=2)
        return self._value_on_ranges(_spectrum(B, power=2), _spectrum(C, power=2))

    def value_of_vectors(self, x: ArrayLike, y: ArrayLike) -> float:
        """sum_i scalar(x_i, y_i), the divergence of diag(x) and diag(y) with no entry taken for zero."""
        x, y = _pair(x, y, ("x", "y"), ndim=1)
        if not self.indefinite_prior and (np.any(x < 0) or np.any(y < 0)):
            return np.inf
        return self._sum(x, y, np.ones_like(x))

    def _value_on_ranges(self, X: _Spectrum, Y: _Spectrum) -> float:
        if not self.indefinite_prior and (np.any(X.values < 0) or np.any(Y.values < 0)):
            return np.inf
        zero, one = np.zeros(1), np.ones(1)
        overlap = (X.vectors.T @ Y.vectors) ** 2
        X_outside, Y_outside = _outside(X.vectors, Y.vectors), _outside(Y.vectors, X.vectors)
        total = self._sum(X.values[:, None], Y.values, overlap)
        if np.isfinite(self._sum(one, zero, one)):
            total += self._sum(X.values, zero, X_outside)
        elif not _is_inside(X, Y, overlap, X_outside):
            return np.inf
        if np.isfinite(self._sum(zero, one, one)):
            total += self._sum(zero, Y.values, Y_outside)
        elif not _is_inside(Y, X, overlap.T, Y_outside):
            return np.inf
        return total

    def _sum(self, x: Array, y: Array, weight: Array) -> float:
        total = _weighted_sum(self, x, y, weight)
        if np.isnan(total):
            raise ValueError(f"{type(self).__name__}.scalar must not return NaN for numbers x, y >= 0")
        return total


@dataclass(frozen=True)
class LogDet(SpectralDivergence):
    """phi = -log x: tr(X Y^-1) - log det(X Y^-1) - n, finite iff range(X) = range(Y). KSD09 (2), thm 7."""

    degree = 0.0
    congruence_invariant = True

    def value(self, X: ArrayLike, Y: ArrayLike) -> float:
        """D(X, Y); for definite X = K K^T and Y = L L^T, D(Z Z^T, I) with Z = L^-1 K (proposition 12).

        Unlike eigenvectors, Cholesky factors lose no digits when features come in very different units.
        """
        X, Y = _symmetric_pair(X, Y)
        X_spectrum, Y_spectrum = _spectrum(X), _spectrum(Y)
        if np.sum(X_spectrum.values > 0) == np.sum(Y_spectrum.values > 0) == len(X):
            with suppress(np.linalg.LinAlgError), np.errstate(all="ignore"):
                Z = solve_triangular(np.linalg.cholesky(Y), np.linalg.cholesky(X), lower=True)
                s = np.linalg.svd(Z, compute_uv=False)
                return self._sum(s, 1.0 / s, np.ones_like(s))  # s / (1/s), since s**2 may be out of range
        return self._value_on_ranges(X_spectrum, Y_spectrum)

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
    def value(self, X: ArrayLike, Y: ArrayLike) -> float:
        """|X - Y|_F^2, from the entries."""
        X, Y = _symmetric_pair(X, Y)
        return float(np.sum(np.square(X - Y)))

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


def spectral_value(divergence: Divergence, x: Array, V: Array, y: Array, U: Array | None = None) -> float:
    """D(X, Y) by KSD09 (3) from X = V diag(x) V^T and Y = U diag(y) U^T, with V and U square and orthogonal.

    U is the identity by default. No rank is decided: an infinite term drops out only where v_i . u_j is
    exactly zero.
    """
    return _weighted_sum(divergence, x[:, None], y, np.square(V.T if U is None else V.T @ U))


@np.errstate(all="ignore")
def divided_differences(law: Any, t: Array) -> Array:
    """(g(t_a) - g(t_b)) / (t_a - t_b) >= 0 for g = law.gradient_inverse, and its slope where t_a = t_b.

    The quotient has a relative error of about 2 eps / c, where c is the relative change of g between the two
    numbers; the slope at their midpoint one of about d^2 / 24, where d is the relative change of the slope.
    Taking the better one keeps the error below 1e-10 for exp and -1/t. Infinite where g is.
    """
    g, slope = law.gradient_inverse(t), law.gradient_inverse_slope(t)
    rise = np.abs(g[:, None] - g)
    is_close = _relative_change(g) * _relative_change(slope) ** 2 <= 48.0 * _EPS
    midpoint_slope = law.gradient_inverse_slope(t[:, None] / 2.0 + t / 2.0)
    quotient = np.where(is_close, midpoint_slope, rise / np.abs(t[:, None] - t))
    return np.where(np.isinf(g[:, None] + g), np.inf, quotient)


class _Spectrum(NamedTuple):
    """The eigenpairs of a matrix outside its null space, and how well they are known."""

    values: Array  # (p,)
    vectors: Array  # (n, p)
    noise: float  # the size, relative to the largest eigenvalue, below which one counts as zero
    tilt: Array  # (p,) squared angles by which a perturbation of that size turns the vectors out of the range


@np.errstate(all="ignore")
def _spectrum(A: Array, power: int = 1) -> _Spectrum:
    """Of the symmetric matrix A, or with power 2 of A A^T, from the singular values of A."""
    vectors, values = np.linalg.eigh(A)[::-1] if power == 1 else np.linalg.svd(A, full_matrices=False)[:2]
    noise = _NOISE * max(A.shape) * _EPS
    zero = noise * np.max(np.abs(values), initial=0.0)
    kept = np.abs(values) > zero
    return _Spectrum(values[kept] ** power, vectors[:, kept], noise**power, (zero / values[kept]) ** 2)


def _outside(vectors: Array, basis: Array) -> Array:
    """|(I - P) v_i|^2 for each column v_i, with P the projection onto the range of the orthonormal basis."""
    return np.asarray(np.sum((vectors - basis @ (basis.T @ vectors)) ** 2, axis=0))


@np.errstate(all="ignore")
def _is_inside(inner: _Spectrum, outer: _Spectrum, overlap: Array, outside: Array) -> bool:
    """Whether range(inner) is inside range(outer), as documented in `SpectralDivergence`."""
    weight = np.abs(inner.values) / np.max(np.abs(inner.values), initial=1.0)  # a sum may overflow
    allowed = np.minimum(inner.noise + overlap @ outer.tilt, _LARGEST_LEAKAGE)
    return bool(weight @ outside <= weight @ allowed)


@np.errstate(all="ignore")
def _weighted_sum(divergence: Divergence, x: Array, y: Array, weight: Array) -> float:
    """sum weight * scalar(x, y), where a weight of exactly zero removes even an infinite term."""
    terms = weight * divergence.scalar(x, y)
    total = float(terms.sum())
    return total if math.isfinite(total) else float(np.where(weight == 0, 0.0, terms).sum())


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


def _relative_change(a: Array) -> Array:
    """|a_i - a_j| / max(a_i, a_j) of non-negative numbers, 0 where both are 0."""
    return np.abs(a[:, None] - a) / np.maximum(np.maximum(a, _TINY)[:, None], a)


def _pair(A: ArrayLike, B: ArrayLike, names: tuple[str, str], ndim: int) -> tuple[Array, Array]:
    A, B = finite(A, names[0], ndim), finite(B, names[1], ndim)
    if len(A) != len(B):
        raise ValueError(f"{names[0]} and {names[1]} must have the same length, got {len(A)} and {len(B)}")
    return A, B


def _symmetric_pair(X: ArrayLike, Y: ArrayLike) -> tuple[Array, Array]:
    X, Y = _pair(X, Y, ("X", "Y"), ndim=2)
    return symmetric(X, "X"), symmetric(Y, "Y")
