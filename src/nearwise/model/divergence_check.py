"""`check_divergence`: whether the functions of a divergence belong to one phi, at a few numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.model.divergences import Divergence, Frobenius, LogDet, VonNeumann

# at which functions are compared, and between which they are integrated; where phi ends before, smaller ones
_NUMBERS: Array = np.power(4.0, np.arange(-3, 4), dtype=np.float64)
_SMALLER: Array = np.power(4.0, np.arange(-40, 4), dtype=np.float64)
_ACCURACY = 1e-5  # relative: a wrong formula is further off, a root found by iteration is not
_NO_SLOPE = 1e-3  # of the slope at the first number: an inverse that is a root near 0 has a small slope there
_ROUNDING = 1e-13  # times the largest terms of a sum: what cancels where scalar is written term by term
_UNCERTAIN = 10.0  # times the difference of two quadratures: what is allowed for where phi'' has kinks
_FINE, _ROUGH = np.polynomial.legendre.leggauss(16), np.polynomial.legendre.leggauss(8)
_NODES = np.concatenate([_FINE[0], _ROUGH[0]])
_KNOWN = (LogDet, VonNeumann, Frobenius)


def check_divergence(divergence: Divergence) -> None:
    """Refuse a divergence whose functions are not of one strictly convex phi; a `Problem` does so when made.

    With functions that disagree, a solver ends at a wrong matrix and its certificate has a wrong bound.
    `gradient` is integrated between numbers from 1/64 to 64 and compared with `scalar`, and `curvature` with
    `gradient`; the others are inverses, derivatives and limits at these numbers. It takes less than a
    millisecond and allows for rounding.

    Parameters
    ----------
    divergence : an object with the methods of `Divergence`

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
        _Check(divergence).run()


def check_own(divergence: Divergence) -> None:
    """The same, but for the three of the package, which its tests check."""
    if type(divergence) not in _KNOWN:
        check_divergence(divergence)


class _Check:
    """What the functions give at the numbers, and the comparisons, each of which raises."""

    def __init__(self, divergence: Any) -> None:
        self.divergence = divergence
        numbers, gradient, inside = self._inside(_NUMBERS)
        if inside < len(_NUMBERS):  # phi ends before: smaller numbers
            numbers, gradient, inside = self._inside(_SMALLER)
        if inside < 2 or not np.isfinite(gradient[:inside]).all():
            raise self._wrong("gradient", numbers, gradient, ~np.isfinite(gradient), "a number")
        first = max(0, inside - len(_NUMBERS))
        self.x, self.gradient = numbers[first:inside], gradient[first:inside]
        self.next, self.slope_there = [*zip(numbers, gradient, strict=True), (np.inf, np.inf)][inside]
        steps = np.diff(self.gradient)
        if (steps <= 0).any():
            k = int(np.argmax(steps <= 0))
            values = f"{self.gradient[k]:.6g} and {self.gradient[k + 1]:.6g}"
            raise self.error(f"gradient must increase, but at {_texts(self.x[k : k + 2])} it is {values}")
        self.curvature = self.of("curvature", self.x)
        wrong = ~(self.curvature >= 0)
        if wrong.any():
            raise self._wrong("curvature", self.x, self.curvature, wrong, "a number >= 0")

    def run(self) -> None:
        """All comparisons; those on which others rest first."""
        of_scalar, of_curvature, of_inverse = self.scalar(), self.second(), self.inverse()
        if of_scalar and of_curvature and of_inverse:
            x, y = self.x[-1], self.x[0]
            raise self.error(
                "gradient disagrees with scalar, curvature and gradient_inverse: "
                f"gradient({x:.6g}) - gradient({y:.6g}) is {self.gradient[-1] - self.gradient[0]:.6g}, "
                f"expected {float(self.steps_by_curvature.sum()):.6g} from curvature"
            )
        found = [words for words in (of_scalar, of_curvature, of_inverse) if words]
        if found:
            raise self.error("; ".join(found))
        self.others()
        self.at_zero()
        self.beyond()

    def _inside(self, numbers: Array) -> tuple[Array, Array, int]:
        """Numbers, the gradient there, and how many of them are up to the last one at which it is finite."""
        gradient = self.of("gradient", numbers)
        finite = np.flatnonzero(np.isfinite(gradient))
        return numbers, gradient, int(finite[-1]) + 1 if finite.size else 0

    def of(self, name: str, *numbers: Any) -> Array:
        """What a function gives, for every number."""
        found = np.asarray(getattr(self.divergence, name)(*numbers), dtype=np.float64)
        shape = np.broadcast_shapes(*(np.shape(number) for number in numbers))
        return found if found.shape == shape else np.broadcast_to(found, shape)

    def integrals(self, name: str) -> tuple[Array, Array]:
        """Of a function between neighbouring numbers, and how well they are known."""
        half, middle = np.diff(self.x) / 2, (self.x[1:] + self.x[:-1]) / 2
        values = self.of(name, middle[:, None] + half[:, None] * _NODES)
        count = len(_FINE[0])
        fine, rough = half * (values[:, :count] @ _FINE[1]), half * (values[:, count:] @ _ROUGH[1])
        return fine, np.abs(fine - rough)

    def scalar(self) -> str:
        """Against F(x) - F(y) - F'(y) (x - y), where F is the integral of `gradient`."""
        x, slope = self.x, self.gradient
        pieces, doubt = self.integrals("gradient")
        F, unsure = np.concatenate([[0.0], np.cumsum(pieces)]), np.concatenate([[0.0], np.cumsum(doubt)])
        linear = slope * (x[:, None] - x)
        expected = F[:, None] - F - linear
        found = self.of("scalar", x[:, None], x)
        wrong = ~(found >= -_ROUNDING * (np.abs(F[:, None]) + np.abs(F) + np.abs(linear)))
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise self.error(f"{_value('scalar', x[i], x[j])} is {found[i, j]:.6g}, expected a number >= 0")
        allowed = _ACCURACY * np.abs(expected) + _UNCERTAIN * (unsure[:, None] + unsure)
        allowed += _ROUNDING * (
            np.abs(F[:, None]) + np.abs(F) + np.abs(slope) * (x[:, None] + x) + np.abs(found)
        )
        self.F, self.unsure = F, unsure
        place = _worst(found, expected, allowed)
        if place is None:
            return ""
        i, j = place
        return (
            "scalar disagrees with gradient: "
            f"{_value('scalar', x[i], x[j])} is {found[i, j]:.6g}, expected {expected[i, j]:.6g}"
        )

    def second(self) -> str:
        """`curvature`, whose integrals are the steps of `gradient`."""
        steps = np.diff(self.gradient)
        self.steps_by_curvature, doubt = self.integrals("curvature")
        sizes = np.abs(self.gradient)
        allowed = _ACCURACY * steps + _UNCERTAIN * doubt + _ROUNDING * (sizes[1:] + sizes[:-1])
        place = _worst(self.steps_by_curvature, steps, allowed)
        if place is None:
            return ""
        k = place[0]
        return (
            f"curvature disagrees with gradient: its integral from {self.x[k]:.6g} to {self.x[k + 1]:.6g} is "
            f"{self.steps_by_curvature[k]:.6g}, expected {steps[k]:.6g}"
        )

    def inverse(self) -> str:
        """`gradient_inverse` of what `gradient` gives."""
        found = self.of("gradient_inverse", self.gradient)
        place = _worst(found, self.x, _ACCURACY * self.x + self._lost_by_inverse)
        if place is None:
            return ""
        k = place[0]
        return (
            "gradient_inverse disagrees with gradient: "
            f"{_value('gradient_inverse', self.gradient[k])} is {found[k]:.6g}, expected {self.x[k]:.6g}"
        )

    @cached_property
    def _lost_by_inverse(self) -> Array:
        """Rounding of a number that is recovered from its gradient."""
        steps = np.diff(self.gradient) / np.diff(self.x)
        flattest = np.concatenate([steps[:1], np.minimum(steps[1:], steps[:-1]), steps[-1:]])
        return np.asarray(10 * _ROUNDING * np.abs(self.gradient) / flattest)

    def others(self) -> None:
        """What follows from the four functions unless it is written too."""
        slope, expected = self.of("gradient_inverse_slope", self.gradient), 1 / self.curvature
        allowed = _ACCURACY * np.abs(expected) * (1 + self._lost_by_inverse / self.x / _ACCURACY)
        if (place := _worst(slope, expected, allowed)) is not None:
            k = place[0]
            raise self.error(
                "gradient_inverse_slope disagrees with curvature: "
                f"{_value('gradient_inverse_slope', self.gradient[k])} is {slope[k]:.6g}, "
                f"expected {expected[k]:.6g}"
            )
        if hasattr(self.divergence, "shifted"):
            steps = np.diff(self.gradient)
            found = self.of("shifted", self.x[:-1], steps)
            lost = self._lost_by_inverse
            allowed = _ACCURACY * self.x[1:] + lost[1:] + lost[:-1]
            if (place := _worst(found, self.x[1:], allowed)) is not None:
                k = place[0]
                raise self.error(
                    "shifted disagrees with gradient and gradient_inverse: "
                    f"{_value('shifted', self.x[k], steps[k])} is {found[k]:.6g}, "
                    f"expected {self.x[k + 1]:.6g}"
                )
        x, y = self.x[:-1], self.x[1:]
        degree = getattr(self.divergence, "degree", None)
        if degree is not None:
            self._scaled(x, y, float(degree), f"degree {degree:g}")
        if getattr(self.divergence, "congruence_invariant", False):
            self._scaled(x, y, 0.0, "congruence_invariant = True")

    def _scaled(self, x: Array, y: Array, degree: float, name: str) -> None:
        found, once = self.of("scalar", 2 * x, 2 * y), self.of("scalar", x, y)
        expected = 2.0**degree * once
        allowed = 2 * _ACCURACY * expected + 100 * _ROUNDING * float(np.abs(self.F).max())
        if (place := _worst(found, expected, allowed)) is not None:
            k = place[0]
            raise self.error(
                f"{name} disagrees with scalar: scalar({2 * x[k]:.6g}, {2 * y[k]:.6g}) is {found[k]:.6g}, "
                f"expected {expected[k]:.6g}, which is {2.0**degree:g} times scalar({x[k]:.6g}, {y[k]:.6g})"
            )

    def at_zero(self) -> None:
        """At 0: which divergences are infinite, and that `gradient_inverse` stops there."""
        zero = np.zeros(1)
        slope = self.of("gradient", zero)
        if not slope[0] < self.gradient[0]:
            raise self._wrong("gradient", zero, slope, slope == slope, "-inf, or the slope of phi there")
        is_steep = bool(np.isinf(slope[0]))  # then M has no eigenvalue 0, and a formula may give NaN there
        both, outward, inward = (
            np.where(np.isnan(found) & is_steep, without, found)
            for found, without in (
                (self.of("scalar", zero, zero), 0.0),
                (self.of("scalar", self.x, zero), np.inf),
                (self.of("scalar", zero, self.x), np.inf),
            )
        )
        if both[0] != 0:
            raise self.error(f"scalar(0, 0) is {both[0]:.6g}, expected 0")
        wrong = ~(outward >= 0) | (np.isinf(outward) != is_steep)
        if wrong.any():
            k = int(np.argmax(wrong))
            expected = "inf, because gradient(0) is -inf" if is_steep else "a finite number >= 0"
            raise self.error(f"scalar({self.x[k]:.6g}, 0) is {outward[k]:.6g}, expected {expected}")
        allowed = _ACCURACY * np.abs(inward) + _UNCERTAIN * self.unsure
        allowed += 100 * _ROUNDING * (np.abs(self.F) + np.abs(self.gradient) * self.x)
        nearer = self.of("scalar", self.x[0], self.x)  # phi is convex: 0 is farther from all numbers
        wrong = ~(inward >= nearer - allowed) | (np.isinf(inward) != np.isinf(inward[0]))
        if wrong.any():
            k = int(np.argmax(wrong))
            expected = f"at least {nearer[k]:.6g}, which is scalar({self.x[0]:.6g}, {self.x[k]:.6g})"
            if np.isinf(inward[0]):
                expected = f"inf, as scalar(0, {self.x[0]:.6g}) is"
            raise self.error(f"scalar(0, {self.x[k]:.6g}) is {inward[k]:.6g}, expected {expected}")
        if np.isfinite(inward[0]):
            # phi(0), which all of these have to agree on
            limits = inward + self.F - self.gradient * self.x
            if (place := _worst(limits, np.full_like(limits, limits[0]), allowed + allowed[0])) is not None:
                k = place[0]
                raise self.error(
                    f"scalar disagrees with gradient: {_value('scalar', 0, self.x[k])} is {inward[k]:.6g}, "
                    f"expected {inward[k] + limits[0] - limits[k]:.6g} beside "
                    f"{_value('scalar', 0, self.x[0])}"
                )
        reach = self.gradient[-1] - self.gradient[0]
        lowest = self.gradient[0] if is_steep else slope[0]
        below = lowest - reach * np.array([0.1, 1.0, 10.0])
        found = self.of("gradient_inverse", below)
        most = self.x[0] * (1 + _ACCURACY) if is_steep else _ACCURACY * self.x[0]
        wrong = ~((found >= 0) & (found <= most))
        if wrong.any():
            words = f"from 0 to {self.x[0]:.6g}" if is_steep else f"0, because gradient(0) is {slope[0]:.6g}"
            raise self._wrong("gradient_inverse", below, found, wrong, words)
        slopes = self.of("gradient_inverse_slope", below)
        most = np.inf if is_steep else _NO_SLOPE / self.curvature[0]
        wrong = ~((slopes >= 0) & (slopes <= most))
        if wrong.any():
            words = "a number >= 0" if is_steep else "0, because gradient_inverse stops at 0 there"
            raise self._wrong("gradient_inverse_slope", below, slopes, wrong, words)

    def beyond(self) -> None:
        """Above the largest slope: a larger number, or inf where there is none."""
        reach = self.gradient[-1] - self.gradient[0]
        above = self.gradient[-1] + reach * np.array([0.1, 1.0, 10.0])
        found = self.of("gradient_inverse", above)
        wrong = ~(found >= self.x[-1] * (1 - _ACCURACY))
        if wrong.any():
            words = f"at least {self.x[-1]:.6g}, or inf where there is no minimum"
            raise self._wrong("gradient_inverse", above, found, wrong, words)
        if (found > self.next).any():
            k = int(np.argmax(found > self.next))
            raise self.error(
                f"{_value('gradient', self.next)} is {self.slope_there:.6g}, "
                f"but {_value('gradient_inverse', above[k])} is {found[k]:.6g}"
            )
        if getattr(self.divergence, "indefinite_prior", False):
            negative = self.of("scalar", -self.x, self.x)
            wrong = ~(np.isfinite(negative) & (negative >= 0))
            if wrong.any():
                k = int(np.argmax(wrong))
                raise self.error(
                    f"{_value('scalar', -self.x[k], self.x[k])} is {negative[k]:.6g}, "
                    "expected a finite number >= 0, because indefinite_prior is True"
                )

    def _wrong(self, name: str, numbers: Array, values: Array, wrong: Any, expected: str) -> ValueError:
        k = int(np.argmax(wrong))
        return self.error(f"{name}({numbers[k]:.6g}) is {values[k]:.6g}, expected {expected}")

    def error(self, words: str) -> ValueError:
        return ValueError(f"{type(self.divergence).__name__}: {words}")


def _worst(found: Array, expected: Array, allowed: Array) -> tuple[int, ...] | None:
    """Where two arrays differ most beside what is allowed, if anywhere by more."""
    excess = np.where(found == expected, 0.0, np.abs(found - expected) / np.maximum(allowed, 1e-300))
    if not np.count_nonzero(~(excess <= 1)):
        return None
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(excess), np.inf, excess))), excess.shape)
    return tuple(int(k) for k in place)


def _texts(numbers: Array) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)


def _value(name: str, *numbers: float) -> str:
    """A function at a number, or at two."""
    return f"{name}({_texts(np.asarray(numbers))})"
