"""The slope of a chord of g = (phi')^-1, the one formula behind everything that solvers linearise.

For g = -1/t it is g(s) g(t), the scaling of Nesterov and Todd; for e^t the logarithmic mean; for t / 2 a
constant. In an eigenbasis it is the derivative of a matrix function; for a soft row it linearises the slack.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from nearwise._common.types import Array

_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


class Law(Protocol):
    """An increasing function g of numbers, at least 0, and its derivative: phi's, or a smoothed phi's."""

    def gradient_inverse(self, t: Array, /) -> Array: ...

    def gradient_inverse_slope(self, t: Array, /) -> Array: ...


@np.errstate(all="ignore")
def chords(law: Law, s: Array, t: Array, at_s: Array | None = None, at_t: Array | None = None) -> Array:
    """(g(s) - g(t)) / (s - t) >= 0 elementwise, and g' where s = t. `at_s` and `at_t` are g there, if known.

    The quotient has a relative error of about 2 eps / c, where c is the relative change of g between the two
    numbers; the slope at their midpoint one of about d^2 / 24, where d is the relative change of the slope,
    on both sides of the midpoint. The better one is taken, which keeps the error below 1e-10 for e^t and
    -1/t. Infinite where g is.
    """
    a = law.gradient_inverse(s) if at_s is None else at_s
    b = law.gradient_inverse(t) if at_t is None else at_t
    slope = law.gradient_inverse_slope(s / 2.0 + t / 2.0)
    bend = sum(_relative_change(slope, law.gradient_inverse_slope(end)) for end in (s, t))
    is_near = _relative_change(a, b) * bend**2 <= 48.0 * _EPS
    found = np.where(is_near, slope, np.abs(a - b) / np.abs(s - t))
    return np.where(np.isinf(a + b), np.inf, found)


def _relative_change(a: Array, b: Array) -> Array:
    """|a - b| / max(a, b) of numbers that are not negative, 0 where both are 0."""
    return np.abs(a - b) / np.maximum(np.maximum(a, b), _TINY)
