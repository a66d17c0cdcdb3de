"""What `check_divergence` sees beside the functions of numbers, which tests/behaviour has.

That is: methods for matrices that a class inherits from another phi, and attributes.
"""

from __future__ import annotations

import numpy as np
import pytest

from nearwise.core.divergence_check import check_divergence, check_own
from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from own_phi import OWN, Burg, Hyperbola, ThreeHalves


@pytest.mark.parametrize(
    "divergence", [LogDet(), VonNeumann(), Frobenius(), *OWN], ids=lambda d: type(d).__name__
)
def test_divergences_that_are_right_pass(divergence):
    check_divergence(divergence)
    check_own(divergence)


class Doubled(LogDet):
    """phi(x) = -2 log x in all functions of numbers."""

    def scalar(self, x, y):
        return 2 * super().scalar(x, y)

    def gradient(self, x):
        return 2 * super().gradient(x)

    def gradient_inverse(self, t):
        return 2 * super().gradient_inverse(t)

    def curvature(self, x):
        return 2 / np.square(x)

    def shifted(self, x, t):
        return super().shifted(x, np.asarray(t) / 2)


class Tripled(Frobenius):
    """phi(x) = 3 x^2 in all functions of numbers."""

    def scalar(self, x, y):
        return 3 * super().scalar(x, y)

    def gradient(self, x):
        return 3 * super().gradient(x)

    def gradient_inverse(self, t):
        return super().gradient_inverse(t) / 3

    def gradient_inverse_slope(self, t):
        return super().gradient_inverse_slope(t) / 3

    def curvature(self, x):
        return 3 * super().curvature(x)


@pytest.mark.parametrize(("kind", "name"), [(Doubled, "distance_to_minimiser"), (Tripled, "distance")])
def test_a_subclass_whose_matrices_have_the_phi_of_its_base_is_refused(kind, name):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: {name} disagrees with scalar"):
        check_own(kind())


def test_a_barrier_that_phi_does_not_have_is_refused():
    too_large = type("TooLarge", (Burg,), {"barrier": 1.5})()
    with pytest.raises(ValueError, match=r"TooLarge: curvature.*, expected at least 1.5 / x\^2"):
        check_divergence(too_large)
    check_divergence(type("Half", (Burg,), {"barrier": 0.5})())


def test_numbers_at_which_phi_has_no_slope_are_outside():
    ends = type("Ends", (Hyperbola,), {"gradient": lambda d, x: np.where(x > 1, np.nan, x / np.hypot(1, x))})
    with pytest.raises(ValueError, match=r"Ends: gradient_inverse.*at most 4, because gradient\(4\) is nan"):
        check_divergence(ends())
    never = type("Never", (ThreeHalves,), {"gradient": lambda d, x: np.full(np.shape(x), np.nan)})
    with pytest.raises(ValueError, match=r"Never: gradient\(.*\) is nan, expected a number"):
        check_divergence(never())


@pytest.mark.parametrize("value", [-np.inf, -1.0])
def test_no_scalar_is_negative_at_zero(value):
    wrong = {"scalar": lambda d, x, y: np.where((x == 0) & (y > 0), value, ThreeHalves().scalar(x, y))}
    with pytest.raises(ValueError, match=r"Wrong: scalar\(0, 0.015625\) is -"):
        check_divergence(type("Wrong", (ThreeHalves,), wrong)())
