"""Divergences of one's own: four functions of numbers each, with all that phi may do at 0 and at inf."""

from __future__ import annotations

import numpy as np

from nearwise.core.divergences import SpectralDivergence, VonNeumann


class ThreeHalves(SpectralDivergence):
    """phi(x) = x^1.5: phi'(0) = 0, so minimisers stop at 0, where phi'' is infinite."""

    degree = 1.5

    def phi(self, x):
        return x**1.5

    def scalar(self, x, y):
        a, b = np.sqrt(x), np.sqrt(y)
        return (a - b) ** 2 * (a + b / 2)

    def gradient(self, x):
        return 1.5 * np.sqrt(x)

    def gradient_inverse(self, t):
        return (np.maximum(t, 0) / 1.5) ** 2

    def curvature(self, x):
        return 0.75 / np.sqrt(x)


class Mixed(SpectralDivergence):
    """phi(x) = x^1.5 + x log x: no degree, phi'(0) = -inf, and an inverse that takes iterations."""

    def phi(self, x):
        return x**1.5 + x * np.log(np.where(x > 0, x, 1.0))

    def scalar(self, x, y):
        return ThreeHalves().scalar(x, y) + VonNeumann().scalar(x, y)

    def gradient(self, x):
        return 1.5 * np.sqrt(x) + np.log(x) + 1

    def gradient_inverse(self, t):
        t = np.asarray(t, float)
        u = np.minimum(
            t - 1, 2 * np.log(np.maximum(t, 1.5) / 1.5)
        )  # log x, from above, where Newton descends
        for _ in range(60):
            u = u - (1.5 * np.exp(u / 2) + u + 1 - t) / (0.75 * np.exp(u / 2) + 1)
        return np.exp(u)

    def curvature(self, x):
        return 0.75 / np.sqrt(x) + 1 / x


class Shannon(SpectralDivergence):
    """phi(x) = (1 + x) log(1 + x) - x: phi' and phi'' are finite at 0, so the inverse has a kink there."""

    def phi(self, x):
        return (1 + x) * np.log1p(x) - x

    def scalar(self, x, y):
        return VonNeumann().scalar(1 + np.asarray(x), 1 + np.asarray(y))

    def gradient(self, x):
        return np.log1p(x)

    def gradient_inverse(self, t):
        return np.expm1(np.maximum(t, 0))

    def gradient_inverse_slope(self, t):
        return np.where(np.asarray(t) > 0, np.exp(t), 0.0)

    def curvature(self, x):
        return 1 / (1 + x)


class Hyperbola(SpectralDivergence):
    """phi(x) = (1 + x^2)^0.5: phi'(inf) = 1, for which the formula of phi' gives NaN; phi'(0) = 0."""

    def phi(self, x):
        return np.sqrt(1 + x * x)

    def scalar(self, x, y):
        a, b = np.sqrt(1 + x * x), np.sqrt(1 + y * y)
        return (x - y) ** 2 / (b * (a * b + 1 + x * y))

    def gradient(self, x):
        return x / np.sqrt(1 + x * x)

    def gradient_inverse(self, t):
        t = np.maximum(t, 0)
        return np.where(t >= 1, np.inf, t / np.sqrt((1 - t) * (1 + t)))

    def gradient_inverse_slope(self, t):
        t = np.maximum(t, 0)
        return np.where(t >= 1, np.inf, np.where(t == 0, 0.0, ((1 - t) * (1 + t)) ** -1.5))

    def curvature(self, x):
        return (1 + x * x) ** -1.5


class MinusRoot(SpectralDivergence):
    """phi(x) = -4 x^0.5: finite at 0 with phi'(0) = -inf, and phi'(inf) = 0."""

    degree = 0.5

    def phi(self, x):
        return -4 * np.sqrt(x)

    def scalar(self, x, y):
        a, b = np.sqrt(x), np.sqrt(y)
        return np.where(a == b, 0.0, 2 * (a - b) ** 2 / b)

    def gradient(self, x):
        return -2 / np.sqrt(x)

    def gradient_inverse(self, t):
        return np.where(t < 0, 4 / np.square(t), np.inf)

    def curvature(self, x):
        return np.power(x, -1.5)


class Burg(SpectralDivergence):
    """phi(x) = x^2 - log x, with its barrier. Term by term, scalar is NaN at 0, which no M reaches."""

    barrier = 1.0

    def phi(self, x):
        return x * x - np.log(x)

    def scalar(self, x, y):
        return (x - y) ** 2 + x / y - 1 - np.log(x / y)

    def gradient(self, x):
        return 2 * x - 1 / x

    def gradient_inverse(self, t):
        root = np.sqrt(t * t + 8)
        return np.where(t > 0, (t + root) / 4, 2 / (root - t))

    def curvature(self, x):
        return 2 + 1 / x**2


class Logistic(SpectralDivergence):
    """phi(x) = x log x + (9 - x) log(9 - x): no number above 9, and an inverse with a turning point."""

    def phi(self, x):
        return x * np.log(np.where(x > 0, x, 1.0)) + (9 - x) * np.log(9 - x)

    def scalar(self, x, y):
        return VonNeumann().scalar(x, y) + VonNeumann().scalar(9 - np.asarray(x), 9 - np.asarray(y))

    def gradient(self, x):
        return np.log(x / (9 - x))

    def gradient_inverse(self, t):
        return 9 / (1 + np.exp(-t))

    def gradient_inverse_slope(self, t):
        return 9 / (2 + np.exp(-t) + np.exp(t))

    def curvature(self, x):
        return 9 / (x * (9 - x))


OWN = (ThreeHalves(), Mixed(), Shannon(), Hyperbola(), MinusRoot(), Burg(), Logistic())
