"""The cost of fixed-rank regression over constraints in pieces, and a descent that passes over them seldom.

The cost is half the mean square of what constraints fail by, MBS11 (1) and 8.2, as in `regression`. Of the
rows only sums are needed: the cost, S G with S = grad_W f, which is d x r, and how many rows pull. A pass
finds them all. Some of the rows, drawn once, are in memory: their Hessian stands for that of all, so that a
step is one of Newton's method with the exact gradient and costs one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nearwise._common.digest import digest
from nearwise._common.types import Array, Index, Kept
from nearwise.core import SquaresInPieces
from nearwise.fixed_rank.descent import Step
from nearwise.fixed_rank.geometry import Flat, MixingGeometry, inverse_of
from nearwise.fixed_rank.regression import Regression, newton_directions

_SUFFICIENT = 1e-4  # share of the slope that a step must bring
_SHORTENINGS = 30
_FAST = 0.1  # share of the gain before it that a step of fast convergence brings
_REMEMBERED = 10  # changes of the gradient
_FLAT = 1e-10  # cosine of a step and the change along it from which on it has a curvature
_LEAST, _MOST = 0.1, 0.5  # shares of a step that failed, between which the next one is


class Scale(NamedTuple):
    """Units of features and targets, and the mean weight of a row, which count as 1."""

    feature: float
    target: float
    weight: float


class Sums(NamedTuple):
    """What a pass finds at a factor: the cost, and S G; means over all rows."""

    cost: float
    slope: Array


@dataclass(frozen=True, eq=False)
class RegressionInPieces:
    """An `Objective` over rows in pieces.

    Attributes
    ----------
    rows : in pieces, with bounds as targets
    scale : units
    sample : some of the rows, in memory and in the same units
    source : what tells data and constraints from others, for a checkpoint; None where there is none
    passes : None, or where to keep what passes find, by a digest of what they depend on
    """

    rows: SquaresInPieces
    scale: Scale
    sample: Regression
    source: Any = None
    passes: MutableMapping[str, Kept] | None = None
    _latest: dict[str, tuple[Array, Sums]] = field(default_factory=dict)

    @property
    def n_samples(self) -> int:
        """How many rows there are."""
        return self.rows.n_rows

    @property
    def cost_of_zero(self) -> float:
        """The cost at W = 0."""
        return self.sums(np.zeros((self.sample.forms.dimension, 1))).cost

    def evaluate(self, factor: Array) -> tuple[float, Callable[[Array], Array]]:
        """The cost at G G^T, and D -> S D, which for D other than G is a pass of its own."""
        found = self.sums(factor)

        def slope(D: Array) -> Array:
            return found.slope if D is factor else self._found(factor, D).slope

        return found.cost, slope

    def sums(self, factor: Array) -> Sums:
        """By a pass, unless the last one was there."""
        known = self._latest.get("sums")
        if known is None or not np.array_equal(known[0], factor):
            known = self._latest["sums"] = factor, self._found(factor, factor)
        return known[1]

    def subset(self, rows: Index | slice) -> Regression:
        """Refused: mini-batches need rows in memory."""
        raise TypeError("mini-batches need the constraints in memory, got RegressionInPieces")

    def _found(self, factor: Array, D: Array) -> Sums:
        key = "" if self.passes is None else digest(self.n_samples, factor, D, self.scale)
        if self.passes is not None and key in self.passes:
            kept = self.passes[key]
            return Sums(float(kept["cost"][0]), np.asarray(kept["slope"], dtype=np.float64))
        along = None if D is factor else D
        cost, slope = self.rows.sums(factor, along, *self.scale)
        count = max(self.n_samples, 1)
        found = Sums(cost / (2 * count), slope / count)
        if self.passes is not None:
            self.passes[key] = {"cost": np.array([found.cost]), "slope": found.slope}
        return found


@dataclass(frozen=True)
class SampledNewton:
    """Newton's method with the gradient of all rows and the Hessian of a sample of them.

    What the sample does not tell is learned from how the gradient changes, as in limited-memory BFGS, whose
    first matrix the sample's Hessian is.
    """

    patience = 3  # small steps in a row that end a run, unless steps shrink as fast as Newton's

    def iterates(
        self, problem: RegressionInPieces, geometry: MixingGeometry, factor: Array
    ) -> Iterator[Step]:
        """Points of decreasing cost, the start first; ends where no step brings anything."""
        search = _Search(problem, geometry, factor)
        yield Step(search.point.factor, search.found.cost, np.inf)
        last_gain = np.inf
        while True:
            before, cost = search.point.factor, search.found.cost
            if not search.advance():
                return
            after, gain = search.point.factor, cost - search.found.cost
            length = max(float(np.linalg.norm(before)), np.finfo(float).tiny)
            moved = float(np.linalg.norm(after - before)) / length
            yield Step(after, search.found.cost, moved, complete=gain <= _FAST * last_gain)
            last_gain = gain


class _Search:
    """Where a run stands, and how the gradient changed on the last straight steps."""

    def __init__(self, problem: RegressionInPieces, geometry: MixingGeometry, factor: Array) -> None:
        self.problem, self.geometry = problem, geometry
        self.whiten = problem.sample.forms.whitening()
        self.point: Any = geometry.point(factor)
        self.found = problem.sums(self.point.factor)
        self.changes: list[tuple[Array, Array]] = []

    def advance(self) -> bool:
        """Make one step; False where none makes the cost smaller."""
        while True:
            D = self._direction()
            fall = 2 * float(np.vdot(self.found.slope, D))
            if fall < 0 and self._step(D, fall):
                return True
            if not self.changes:
                return False
            self.changes.clear()  # once more, by the sample alone

    def _step(self, D: Array, fall: float) -> bool:
        old, share = self.found, 1.0
        for _ in range(_SHORTENINGS):
            # the flat geometry has no other way, and calls it its retraction
            end: Any = self.geometry.straight(self.point, share * D)
            is_straight = end is not None or isinstance(self.geometry, Flat)
            end = self.geometry.retract(self.point, share * D) if end is None else end
            new = self.problem.sums(end.factor)
            if new.cost < old.cost and new.cost <= old.cost + _SUFFICIENT * share * fall:
                if is_straight:
                    self._remember(share * D, new.slope - old.slope)
                self.point, self.found = end, new
                return True
            # where a parabola through the cost, its slope and the new cost is least
            bend = new.cost - old.cost - share * fall
            best = -fall * share * share / (2 * bend) if np.isfinite(bend) and bend > 0 else 0.0
            share = float(np.clip(best, _LEAST * share, _MOST * share))
        return False

    def _remember(self, step: Array, change: Array) -> None:
        curvature = float(np.vdot(step, change))
        if curvature > _FLAT * float(np.linalg.norm(step)) * float(np.linalg.norm(change)):
            self.changes = [*self.changes[1 - _REMEMBERED :], (step, change)]

    def _direction(self) -> Array:
        """The two loops of limited-memory BFGS around Newton's direction in the sample."""
        rest, shares = self.found.slope.copy(), []
        for step, change in reversed(self.changes):
            shares.append(float(np.vdot(step, rest)) / float(np.vdot(step, change)))
            rest -= shares[-1] * change
        D = self._by_sample(rest)
        for (step, change), share in zip(self.changes, reversed(shares), strict=True):
            D = D - (share + float(np.vdot(change, D)) / float(np.vdot(step, change))) * step
        return self.geometry.allowed(self.point, D)

    def _by_sample(self, slope: Array) -> Array:
        """Minus the inverse Hessian of the sample times a slope; preconditioned where it has none."""
        sample, geometry = self.problem.sample, self.geometry
        Z = sample.forms.image(self.point.factor)
        residual = sample.residual(sample.forms.cross(Z, Z))
        inverse = inverse_of(sample.forms.moment(Z, sample.active(residual)))
        found, _ = newton_directions(
            sample, Z, residual, slope, inverse, self.whiten, lambda D: geometry.allowed(self.point, D)
        )
        return found[0][0] if found else geometry.allowed(self.point, -slope)
