"""`check_divergence`: whether the functions of a divergence belong to one phi, tried at a few numbers.

`gradient` is integrated between numbers from 1/64 to 64 and compared with `scalar`, and `curvature` with
`gradient`; the others are inverses, derivatives and limits there. Every comparison allows for rounding, and
for inverses that are found by iteration.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nearwise._common.types import Array, Mask
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann

# at which functions are compared, and between which they are integrated; where phi ends before, smaller ones
_NUMBERS: Array = np.power(4.0, np.arange(-3, 4), dtype=np.float64)
_SMALLER: Array = np.power(4.0, np.arange(-40, 4), dtype=np.float64)
_NO_SLOPE = 1e-3  # of the slope of the inverse at the smallest number: what counts as none where it stops
_OUTSIDE = np.array([0.1, 1.0, 10.0])  # times the range of slopes: how far outside of it inverses are tried
_ACCURACY = 1e-5  # relative: a wrong formula is further off, a root found by iteration is not
_ROUNDING = 1e-13  # times the largest terms of a sum: what cancels where scalar is written term by term
_UNCERTAIN = 10.0  # times the difference of two quadratures: what is allowed for where phi'' has kinks
_FINE, _ROUGH = np.polynomial.legendre.leggauss(16), np.polynomial.legendre.leggauss(8)
_NODES = np.concatenate([_FINE[0], _ROUGH[0]])
_TESTED = (LogDet, VonNeumann, Frobenius)


def check_divergence(divergence: SpectralDivergence) -> None:
    """Refuse a divergence whose functions are not of one strictly convex phi; a `Problem` does so when made.

    With functions that disagree, a solver ends at a wrong matrix and its certificate has a wrong bound. They
    are compared at numbers from 1/64 to 64, which takes less than a millisecond.

    Parameters
    ----------
    divergence : an object with the methods of `SpectralDivergence`

    Raises
    ------
    ValueError : says which function disagrees with which, at which number, and what was expected

    >>> import nearwise as nw
    >>> class Doubled(nw.LogDet):
    ...     def scalar(self, x, y):
    ...         return 2 * super().scalar(x, y)
    >>> nw.check_divergence(Doubled())
    Traceback (most recent call last):
    ...
    ValueError: Doubled: scalar disagrees with gradient: scalar(64, 0.015625) is 8173.36, expected 4086.68
    """
    if isinstance(divergence, type):
        raise TypeError(f"divergence must be an object: write {divergence.__name__}() with parentheses")
    with np.errstate(all="ignore"):
        check = _Check(divergence)
        check.four_functions()
        check.other_functions()
        check.attributes()
        check.scalar_at_zero()
        check.inverse_outside()


def check_own(divergence: SpectralDivergence) -> None:
    """The same, but for the three of the package, which its tests check."""
    if type(divergence) not in _TESTED:
        check_divergence(divergence)


class _Values(NamedTuple):
    """What a function gives, and the words for a call of it, with a place for each of the numbers."""

    words: str
    numbers: tuple[Array, ...]
    found: Array

    def at(self, place: tuple[Any, ...]) -> str:
        numbers = (np.broadcast_to(number, self.found.shape)[place] for number in self.numbers)
        return f"{self.words.format(*numbers)} is {self.found[place]:.6g}"


class _Check:
    """The comparisons, each of which raises.

    Attributes
    ----------
    x, slopes : up to seven numbers, and phi' there
    end, end_slope : the next number, if phi' is not finite there, and phi' there
    at_0, is_steep : phi' at 0, and whether it is -inf; then scalar may be NaN at 0, which no M reaches
    F, doubt : the integral of phi' from the first number on, and how well it is known
    rounding : of terms and sums of `scalar`
    """

    def __init__(self, divergence: Any) -> None:
        self.divergence = divergence
        for numbers in (_NUMBERS, _SMALLER):
            gradient = self.of("gradient", numbers)
            finite = np.isfinite(gradient.found)
            end = 1 + int(np.flatnonzero(finite).max(initial=-1))
            if end == len(_NUMBERS):
                break
        self.require(gradient, finite | (np.arange(len(numbers)) >= max(end, 2)), "a number")
        inside = slice(max(0, end - len(_NUMBERS)), end)
        self.x, self.slopes = numbers[inside], gradient.found[inside]
        self.end, self.end_slope = (np.append(values, np.inf)[end] for values in (numbers, gradient.found))
        rises = np.diff(self.slopes) > 0
        if not rises.all():
            k = int(np.argmin(rises))
            raise self.error(
                f"gradient must increase, but {gradient.at((inside.start + k,))} "
                f"and {gradient.at((inside.start + k + 1,))}"
            )
        self.at_0 = self.of("gradient", np.zeros(1))
        self.is_steep = bool(np.isinf(self.at_0.found[0]))
        pieces, doubts = self.integrals("gradient")
        self.F, self.doubt = (np.append(0.0, np.cumsum(terms)) for terms in (pieces, doubts))
        self.rounding = 100 * _ROUNDING * (np.abs(self.F) + np.abs(self.slopes) * self.x)

    def four_functions(self) -> None:
        """`scalar`, `curvature` and `gradient_inverse` against `gradient`; if all disagree, that is wrong."""
        x, slopes, F, steps = self.x, self.slopes, self.F, np.diff(self.slopes)
        curvature, scalar = self.of("curvature", x), self.of("scalar", x[:, None], x)
        self.require(curvature, curvature.found >= 0, "a number >= 0")
        size, line = np.abs(F[:, None]) + np.abs(F), slopes * (x[:, None] - x)
        self.require(scalar, scalar.found >= -_ROUNDING * (size + np.abs(line)), "a number >= 0")
        noise = _UNCERTAIN * (self.doubt[:, None] + self.doubt)
        noise += _ROUNDING * (size + np.abs(slopes) * (x[:, None] + x))
        pieces, doubts = self.integrals("curvature")
        words = "curvature disagrees with gradient: its integral from {:.6g} to {:.6g}"
        integrals = _Values(words, (x[:-1], x[1:]), pieces)
        lost = _UNCERTAIN * doubts + _ROUNDING * (np.abs(slopes[1:]) + np.abs(slopes[:-1]))
        inverse = self.of("gradient_inverse", slopes)
        found = [
            self.difference("scalar disagrees with gradient: ", scalar, F[:, None] - F - line, noise),
            self.difference("", integrals, steps, lost),
            self.difference("gradient_inverse disagrees with gradient: ", inverse, x, self.lost_by_inverse),
        ]
        if all(found):
            raise self.error(
                "gradient disagrees with scalar, curvature and gradient_inverse: "
                f"gradient({x[-1]:.6g}) - gradient({x[0]:.6g}) is {slopes[-1] - slopes[0]:.6g}, "
                f"expected {pieces.sum():.6g} from curvature"
            )
        self.refuse("; ".join(filter(None, found)))

    def other_functions(self) -> None:
        """Those that follow from the four unless they are written too."""
        x, slopes, lost = self.x, self.slopes, self.lost_by_inverse
        inverse_slope, expected = self.of("gradient_inverse_slope", slopes), 1 / self.of("curvature", x).found
        words = "gradient_inverse_slope disagrees with curvature: "
        self.refuse(self.difference(words, inverse_slope, expected, np.abs(expected) * lost / x))
        shifted = self.of("shifted", x[:-1], np.diff(slopes))
        words = "shifted disagrees with gradient and gradient_inverse: "
        self.refuse(self.difference(words, shifted, x[1:], lost[1:] + lost[:-1]))
        x, y = x[:-1], x[1:]
        expected, B = np.sum(self.of("scalar", x, y).found, keepdims=True), np.diag(np.sqrt(x))
        for name, argument in (("distance", y), ("distance_to_minimiser", np.diag(slopes[1:]))):
            found = np.atleast_1d(getattr(self.divergence, name)(B, argument))
            words = f"{name} disagrees with scalar: its value for diagonal matrices"
            self.refuse(self.difference("", _Values(words, (), found), expected, self.rounding.max()))

    def attributes(self) -> None:
        """`degree` and `congruence_invariant` say what scalar(2x, 2y) is, `barrier` bounds the curvature."""
        d, x, y = self.divergence, self.x[:-1], self.x[1:]
        stated = [] if d.degree is None else [(float(d.degree), f"degree {d.degree:g}")]
        stated += [(0.0, "congruence_invariant = True")] if d.congruence_invariant else []
        doubled, once = self.of("scalar", 2 * x, 2 * y), self.of("scalar", x, y).found
        for degree, name in stated:
            factor = 2.0**degree
            words = f"{name} disagrees with scalar: "
            words = self.difference(words, doubled, factor * once, self.rounding.max())
            self.refuse(words and f"{words}, which is {factor:g} times that of the halves")
        curvature = self.of("curvature", self.x)
        least = d.barrier * (1 - _ACCURACY) / self.x**2
        self.require(curvature, curvature.found >= least, f"at least {d.barrier:g} / x^2, because of barrier")
        if d.indefinite_prior:
            negative = self.of("scalar", -self.x, self.x)
            words = "a finite number >= 0, because indefinite_prior is True"
            self.require(negative, np.isfinite(negative.found) & (negative.found >= 0), words)

    def scalar_at_zero(self) -> None:
        """Whether it is infinite there, and that all numbers agree on phi(0)."""
        x, zero, steep = self.x, np.zeros(1), self.is_steep
        self.require(self.at_0, self.at_0.found < self.slopes[0], "-inf, or the slope of phi there")
        both, outward, inward = (self.of("scalar", *pair) for pair in ((zero, zero), (x, zero), (zero, x)))
        self.require(both, (both.found == 0) | (steep & np.isnan(both.found)), "0")
        if steep:
            self.require(outward, ~(outward.found < np.inf), "inf, because gradient(0) is -inf")
        else:
            finite = (outward.found >= 0) & (outward.found < np.inf)
            self.require(outward, finite, "a finite number >= 0")
        infinite = (inward.found == np.inf) | (steep & np.isnan(inward.found))
        if infinite[0]:
            self.require(inward, infinite, f"inf, as scalar(0, {x[0]:.6g}) is")
            return
        noise = _UNCERTAIN * self.doubt + self.rounding
        self.require(inward, ~infinite & (inward.found >= -noise), "a finite number >= 0")
        phi_of_0 = inward.found[0] - self.slopes[0] * x[0]
        expected = phi_of_0 - self.F + self.slopes * x
        noise += noise[0] + _ACCURACY * inward.found[0]
        words = self.difference("scalar disagrees with gradient: ", inward, expected, noise)
        self.refuse(words and f"{words} beside scalar(0, {x[0]:.6g})")

    def inverse_outside(self) -> None:
        """`gradient_inverse` of slopes below and above those of phi."""
        x, slopes, at_0 = self.x, self.slopes, self.at_0.found[0]
        reach = (slopes[-1] - slopes[0]) * _OUTSIDE
        below, above = (slopes[0] if self.is_steep else at_0) - reach, slopes[-1] + reach
        low, slope = self.of("gradient_inverse", below), self.of("gradient_inverse_slope", below)
        if self.is_steep:
            most, words, flat = x[0], f"from 0 to {x[0]:.6g}", "a number >= 0"
        else:
            most, words = _ACCURACY * x[0], f"0, because gradient(0) is {at_0:.6g}"
            flat = "0, because gradient_inverse stops at 0 there"
        self.require(low, (low.found >= 0) & (low.found <= most * (1 + _ACCURACY)), words)
        # an inverse that is a root found by iteration has a small slope where it stops
        steepest = np.inf if self.is_steep else _NO_SLOPE / self.of("curvature", x).found[0]
        self.require(slope, (slope.found >= 0) & (slope.found <= steepest), flat)
        high = self.of("gradient_inverse", above)
        least, words = x[-1] * (1 - _ACCURACY), f"at least {x[-1]:.6g}, or inf where there is no minimum"
        self.require(high, high.found >= least, words)
        words = f"at most {self.end:.6g}, because gradient({self.end:.6g}) is {self.end_slope:.6g}"
        self.require(high, high.found <= self.end, words)

    # --- what comparisons need ------------------------------------------------------------------------------

    def of(self, name: str, *numbers: Any) -> _Values:
        """A function at numbers, which may be given as one value for all of them."""
        found = np.asarray(getattr(self.divergence, name)(*numbers), dtype=np.float64)
        found = np.broadcast_to(found, np.broadcast_shapes(*(np.shape(number) for number in numbers)))
        return _Values(f"{name}({', '.join(['{:.6g}'] * len(numbers))})", numbers, found)

    def integrals(self, name: str) -> tuple[Array, Array]:
        """Of a function between neighbouring numbers, and how well they are known."""
        half, middle = np.diff(self.x) / 2, (self.x[1:] + self.x[:-1]) / 2
        values = self.of(name, middle[:, None] + half[:, None] * _NODES).found
        count = len(_FINE[0])
        fine, rough = half * (values[:, :count] @ _FINE[1]), half * (values[:, count:] @ _ROUGH[1])
        return fine, np.abs(fine - rough)

    @cached_property
    def lost_by_inverse(self) -> Array:
        """Rounding of a number that is recovered from its gradient."""
        steps = np.diff(self.slopes) / np.diff(self.x)
        flattest = np.minimum(np.append(steps[0], steps), np.append(steps, steps[-1]))
        return np.asarray(10 * _ROUNDING * np.abs(self.slopes) / flattest)

    def difference(self, words: str, values: _Values, expected: Array, noise: Array) -> str:
        """Where they differ most from what is expected, in words; none where that may be `noise`."""
        apart, allowed = np.abs(values.found - expected), _ACCURACY * np.abs(expected) + noise
        excess = np.where(values.found == expected, 0.0, apart / np.maximum(allowed, 1e-300))
        if (excess <= 1).all():
            return ""
        place = np.unravel_index(int(np.argmax(np.nan_to_num(excess, nan=np.inf))), excess.shape)
        return f"{words}{values.at(place)}, expected {expected[place]:.6g}"

    def require(self, values: _Values, holds: Mask, expected: str) -> None:
        if not holds.all():
            place = np.unravel_index(int(np.argmin(holds)), holds.shape)
            raise self.error(f"{values.at(place)}, expected {expected}")

    def refuse(self, words: str) -> None:
        if words:
            raise self.error(words)

    def error(self, words: str) -> ValueError:
        return ValueError(f"{type(self.divergence).__name__}: {words}")
