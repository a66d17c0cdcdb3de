"""A divergence of one's own whose functions disagree is refused, and one whose functions agree is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c

SIDE = c.at_most([(0, 1), (2, 3)], 1.0) + c.closer([(4, 5, 6)], margin=0.5)
G = np.random.default_rng(0).normal(size=(10, 3))


class ThreeHalves(nw.SpectralDivergence):
    """phi(x) = x^1.5, as in docs/divergences.md."""

    degree = 1.5

    def scalar(self, x, y):
        a, b = np.sqrt(x), np.sqrt(y)
        return (a - b) ** 2 * (a + b / 2)

    def gradient(self, x):
        return 1.5 * np.sqrt(x)

    def gradient_inverse(self, t):
        return (np.maximum(t, 0) / 1.5) ** 2

    def curvature(self, x):
        return 0.75 / np.sqrt(x)


class Bisected(ThreeHalves):
    """The same, with an inverse that is found by halving an interval, and is nearly 0 where phi' is above."""

    def gradient_inverse(self, t):
        t = np.asarray(t, float)
        low, high = np.zeros_like(t), np.full_like(t, 1e6)
        for _ in range(60):
            middle = (low + high) / 2
            is_below = self.gradient(middle) < t
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return high


class Burg(nw.SpectralDivergence):
    """phi(x) = x^2 - log x, written term by term, so that scalar is NaN at 0, which no M reaches."""

    def scalar(self, x, y):
        return (x - y) ** 2 + x / y - 1 - np.log(x / y)

    def gradient(self, x):
        return 2 * x - 1 / x

    def gradient_inverse(self, t):
        return (t + np.sqrt(t * t + 8)) / 4

    def curvature(self, x):
        return 2 + 1 / x**2


class Entropy(nw.SpectralDivergence):
    """phi(x) = c (x log x - x), and a constant with which digits cancel."""

    degree = 1.0

    def __init__(self, scale: float, constant: float = 0.0) -> None:
        self.scale, self.constant = scale, constant

    def phi(self, x):
        return self.scale * (x * np.log(np.where(x > 0, x, 1)) - x) + self.constant

    def scalar(self, x, y):
        found = self.phi(x) - self.phi(y) - self.scale * np.log(y) * (x - y)
        return np.where(x == y, 0.0, np.maximum(found, 0.0))

    def gradient(self, x):
        return self.scale * np.log(x)

    def gradient_inverse(self, t):
        return np.exp(t / self.scale)

    def curvature(self, x):
        return self.scale / x


class Bounded(nw.SpectralDivergence):
    """phi(x) = x log x + (s - x) log(s - x): no number above s."""

    def __init__(self, s: float) -> None:
        self.s = s

    def scalar(self, x, y):
        own = np.where(x == 0, 0.0, x * np.log(x / y))
        found = own + (self.s - x) * np.log((self.s - x) / (self.s - y))
        return np.where(x == y, 0.0, np.where(x >= self.s, np.inf, found))

    def gradient(self, x):
        return np.log(x / (self.s - x))

    def gradient_inverse(self, t):
        return self.s / (1 + np.exp(-t))

    def curvature(self, x):
        return self.s / (x * (self.s - x))


class Huber(nw.SpectralDivergence):
    """phi'' jumps at 2; curvature is given as one number where it can be."""

    def gradient(self, x):
        return np.minimum(x, 2) * 2 + np.maximum(x, 2) - 2

    def phi(self, x):
        return np.where(x < 2, x * x, 4 + 4 * (x - 2) + (x - 2) ** 2 / 2)

    def scalar(self, x, y):
        return self.phi(x) - self.phi(y) - self.gradient(y) * (x - y)

    def gradient_inverse(self, t):
        return np.maximum(np.where(t < 4, t / 2, t - 2), 0)

    def gradient_inverse_slope(self, t):
        return np.where(t <= 0, 0.0, np.where(t < 4, 0.5, 1.0))

    def curvature(self, x):
        return np.where(x < 2, 2.0, 1.0)


GOOD: dict[str, Any] = {
    "LogDet": nw.LogDet(),
    "VonNeumann": nw.VonNeumann(),
    "Frobenius": nw.Frobenius(),
    "x^1.5": ThreeHalves(),
    "x^1.5, bisected": Bisected(),
    "x^2 - log x": Burg(),
    "entropy": Entropy(1.0),
    "large entropy": Entropy(1e6),
    "small entropy": Entropy(1e-6),
    "entropy of cancelling digits": Entropy(1.0, 1e5),
    "up to 1": Bounded(1.0),
    "up to 0.01": Bounded(0.01),
    "curvature with a jump": Huber(),
}


@pytest.mark.parametrize("divergence", GOOD.values(), ids=GOOD)
def test_functions_that_agree_pass(divergence: nw.Divergence) -> None:
    nw.check_divergence(divergence)


@pytest.mark.parametrize(
    "name", ["x^1.5", "x^1.5, bisected", "x^2 - log x", "entropy", "large entropy", "curvature with a jump"]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_they_are_solved_as_before(name: str) -> None:
    result = nw.solve(nw.Problem(G, SIDE, GOOD[name], penalty=5.0))
    assert result.status is nw.Status.SOLVED


right = ThreeHalves()
# what is overridden, the function that the message must name first, and a number that was expected there
WRONG: dict[str, tuple[dict[str, Any], str, float | None]] = {
    "scalar times 3": ({"scalar": lambda s, x, y: 3 * right.scalar(x, y)}, "scalar", None),
    "scalar off by 0.1 %": ({"scalar": lambda s, x, y: 1.001 * right.scalar(x, y)}, "scalar", None),
    "arguments exchanged": ({"scalar": lambda s, x, y: right.scalar(y, x)}, "scalar", None),
    "scalar negative": ({"scalar": lambda s, x, y: -right.scalar(x, y)}, "scalar", None),
    "scalar NaN at 0": (
        {"scalar": lambda s, x, y: np.where(x == 0, np.nan, right.scalar(x, y))},
        "scalar",
        0.0,
    ),
    "scalar infinite at 0": (
        {"scalar": lambda s, x, y: np.where((y == 0) & (x > 0), np.inf, right.scalar(x, y))},
        "scalar",
        None,
    ),
    "gradient times 2": ({"gradient": lambda s, x: 2 * right.gradient(x)}, "gradient", 11.8125),
    "gradient falls": ({"gradient": lambda s, x: -right.gradient(x)}, "gradient", None),
    "inverse of another power": (
        {"gradient_inverse": lambda s, t: np.maximum(t, 0) / 1.5},
        "gradient_inverse",
        0.015625,
    ),
    "inverse below the slope at 0": (
        {"gradient_inverse": lambda s, t: (t / 1.5) ** 2},
        "gradient_inverse",
        0.0,
    ),
    "curvature times 2": ({"curvature": lambda s, x: 2 * right.curvature(x)}, "curvature", 0.1875),
    "slope of the inverse": (
        {"gradient_inverse_slope": lambda s, t: t},
        "gradient_inverse_slope",
        None,
    ),
    "shifted": ({"shifted": lambda s, x, t: x + t}, "shifted", 0.0625),
    "degree": ({"degree": 2.0}, "degree", None),
    "congruence": ({"congruence_invariant": True}, "congruence_invariant", None),
    "not for negative numbers": ({"indefinite_prior": True}, "scalar", None),
}


@pytest.mark.parametrize(("changed", "name", "expected"), WRONG.values(), ids=WRONG)
def test_functions_that_disagree_are_refused_by_name(
    changed: dict[str, Any], name: str, expected: float | None
) -> None:
    divergence = type("Mistaken", (ThreeHalves,), changed)()
    with pytest.raises(ValueError, match=rf"Mistaken: {name}\b") as refused:
        nw.check_divergence(divergence)
    if expected is not None:
        assert f"expected {expected:.6g}" in str(refused.value)
    stated: list[Callable[[], Any]] = [
        lambda: nw.Problem(G, SIDE, divergence),
        lambda: nw.Problem(G, SIDE, divergence, groups=["a", "a", "b"]),
        lambda: nw.Problem.from_kernel(G @ G.T, SIDE, divergence),
        lambda: nw.Problem.from_factor(G, SIDE, divergence),
        lambda: nw.MetricLearner(divergence=divergence).fit(G, constraints=SIDE),
    ]
    for state in stated:
        with pytest.raises(ValueError, match="Mistaken"):
            state()


def test_a_subclass_of_one_of_the_package_is_checked() -> None:
    class Unbounded(nw.LogDet):
        def gradient_inverse(self, t):
            return -1 / np.asarray(t, float)

    with pytest.raises(ValueError, match="gradient_inverse"):
        nw.Problem(G, SIDE, Unbounded())


def test_a_slope_that_goes_on_where_the_inverse_stops_is_refused() -> None:
    class Square(nw.SpectralDivergence):
        def scalar(self, x, y):
            return (x - y) ** 2

        def gradient(self, x):
            return 2 * x

        def gradient_inverse(self, t):
            return np.maximum(t, 0) / 2

        def curvature(self, x):
            return np.full(np.shape(x), 2.0)

    with pytest.raises(ValueError, match="gradient_inverse_slope"):
        nw.check_divergence(Square())


def test_a_class_is_refused_as_in_a_problem() -> None:
    with pytest.raises(TypeError, match=r"write LogDet\(\)"):
        nw.check_divergence(nw.LogDet)  # type: ignore[arg-type]
