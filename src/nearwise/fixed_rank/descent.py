"""Gradient descent on a manifold with Armijo's rule, as MBS11 does it: (2), (22)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nearwise._common.checks import positive, tolerance
from nearwise._common.types import Array, Index
from nearwise.fixed_rank.geometry import Geometry

_HALVINGS = 60


class Objective(Protocol):
    """A mean over samples of functions of W = G G^T."""

    @property
    def n_samples(self) -> int:
        """n."""

    def evaluate(self, factor: Array) -> tuple[float, Callable[[Array], Array]]:
        """The cost at G G^T, and the map D -> grad_W f D."""

    def subset(self, rows: Index | slice) -> Objective:
        """The same over some of the samples."""


@dataclass(frozen=True, eq=False)
class Step:
    """An iterate.

    Attributes
    ----------
    factor : G
    cost : at G G^T
    moved : how far it is from the one before, relative to its length
    complete : whether the step is one of Newton's method, so that a single small one ends a run
    """

    factor: Array
    cost: float
    moved: float
    complete: bool = False


@dataclass(frozen=True)
class Armijo:
    """Steepest descent; the step is halved until f(R(-s grad)) <= f - c s |grad|^2, which is (22) corrected.

    Parameters
    ----------
    decrease : c, between 0 and 1
    first_step : s_0; each search begins at s_0 / |grad|
    """

    decrease: float = 0.5
    first_step: float = 100.0
    patience = 1  # small steps in a row that end a run, (24)

    def __post_init__(self) -> None:
        tolerance(self.decrease, "decrease")
        positive(self.first_step, "first_step")

    def iterates(self, problem: Objective, geometry: Geometry, factor: Array) -> Iterator[Step]:
        """Points of decreasing cost, the start first; ends where no step brings anything."""
        point = geometry.point(factor)
        cost, slope = problem.evaluate(geometry.factor(point))
        yield Step(geometry.factor(point), cost, np.inf)
        while True:
            gradient = geometry.gradient(point, slope)
            square = geometry.inner(point, gradient, gradient)
            if not square > 0:
                return
            step = self.first_step / float(np.sqrt(square))
            for _ in range(_HALVINGS):
                new = geometry.retract(point, -step * gradient)
                new_cost, new_slope = problem.evaluate(geometry.factor(new))
                if new_cost <= cost - self.decrease * step * square:
                    break
                step /= 2
            else:
                return
            G, new_G = geometry.factor(point), geometry.factor(new)
            moved = float(np.linalg.norm(new_G - G) / max(float(np.linalg.norm(G)), np.finfo(float).tiny))
            point, cost, slope = new, new_cost, new_slope
            yield Step(new_G, cost, moved)
