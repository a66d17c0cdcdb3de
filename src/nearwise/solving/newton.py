"""Newton's method for every divergence, soft and hard constraints alike.

Soft rows enter with their exact first and second derivatives, at first with a share of their penalties that
then rises to 1. Hard rows enter as an augmented Lagrangian: multiplier estimates plus a quadratic of growing
stiffness, whose multipliers converge to the dual solution.
Each step solves Newton's system in local coordinates (`_charts`, `_systems`) and is accepted on a sufficient
decrease of the objective; steps that fail are shortened, and at last replaced by mirror descent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearwise._common.checks import positive, whole_number, whole_number_or_none
from nearwise._common.types import Array
from nearwise.model.divergences import LogDet
from nearwise.model.formulation import Formulation, Iterate, prior_point
from nearwise.model.in_blocks import InBlocks
from nearwise.model.losses import Losses
from nearwise.model.measurements import InMemory
from nearwise.solving._charts import Chart, SpectralChart, first_chart
from nearwise.solving._starts import after_projections
from nearwise.solving._systems import newton_step
from nearwise.solving.reduction import reduced

_SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring
_PATIENCE = 30  # iterations before hard constraints are suspected to contradict each other
_STIFFEST = 1e13  # only infeasible problems come near it
_MANY_PIECES = 64  # from which on the first points are found from some of them
_STRIDES = (16, 4)  # every so many
_WEIGHTY = 4.0  # penalties of all rows, per unknown, up to which that helps
_COARSE, _COARSE_STEPS = 1e-2, 15  # relative gap and number of steps that are enough for a start
_SETTLED = 0.03  # relative gap at which the share of the penalties is raised, and
_RAISED = 4.0  # by how much: from further away or by more, Newton's steps are short and hundreds
_NEAR = 1.0  # relative gap of a start, up to which the penalties count in full at once
_LITTLE = 0.06  # first share of the penalties, from which on they do so from any start
_SHORTEST, _WHOLE = 0.3, 0.8  # shares of a step: the least that is tried, and that from which on it is whole
_ROUNDING = 4e-15  # relative changes of the objective that mean nothing
_ROUGH = 1e-4  # relative gain of a step down to which values in single precision are good enough
_ROUGH_ROUNDING = 1e-6  # relative error of an objective in single precision


@dataclass(frozen=True)
class Newton:
    """Newton's method with conjugate gradients.

    Parameters
    ----------
    hessian_rows : how many constraint rows the Hessian uses at most; beyond that, a random sample. By
        default three per unknown of M, and at least 4096. Objective and gradient always use all rows.
    seed : of that sample
    radius : the first steps change an eigenvalue of M by at most this, relatively
    stiffness : of the hard constraints at first, in units where the median constraint and the prior have
        size 1; grows as needed
    """

    hessian_rows: int | None = None
    seed: int = 0
    radius: float = 1.0
    stiffness: float = 10.0

    def __post_init__(self) -> None:
        whole_number_or_none(self.hessian_rows, "hessian_rows")
        positive(self.radius, "radius")
        positive(self.stiffness, "stiffness")
        whole_number(self.seed, "seed", least=0)

    def iterates(self, form: Formulation, start: Array | None = None) -> Iterator[Iterate]:
        """Points of decreasing objective; first the prior, or `start start^T` where it is given.

        Where there are many rows, it starts nearer to the solution: where they are in pieces, at what some of
        the pieces say, and else after projections onto some of them.
        """
        if start is None and isinstance(form.measurements, InBlocks):
            start = self._start_from_parts(form, form.measurements)
        elif start is None:
            start = after_projections(form, self.seed)
        run = _Run(self, form, start)
        if not run.starts_at_prior:
            yield prior_point(form)
        for count in itertools.count():
            yield run.point()
            if count == _PATIENCE and form.losses.any_hard:
                ray = self._infeasibility_ray(form)
                if ray is not None:
                    yield replace(run.point(), ray=ray)
            if not run.advance():
                return

    def _start_from_parts(self, form: Formulation, rows: InBlocks) -> Array | None:
        """A factor from a sixteenth of the pieces, then from a quarter of them, each solved coarsely.

        Passes over all rows are what costs time where rows are in pieces. Where the penalties weigh much more
        than the unknowns, a start from a part is none that helps, and there is none.
        """
        unknowns = rows.rank * (rows.rank + 1) / 2
        losses: Any = form.losses
        if len(rows.sizes) < _MANY_PIECES or losses.soft_penalties[1] > _WEIGHTY * unknowns:
            return None
        factor = None
        for stride in _STRIDES:
            part: Any = rows.every(stride)
            small = replace(form, measurements=part, losses=losses.of_part(part.n_rows))
            run = _Run(self, small, factor)
            for _ in range(_COARSE_STEPS):
                solved = run.inner_gap <= _COARSE * max(abs(run.merit), form.unit)
                if (solved and run.cost.share == 1.0) or not run.advance():
                    break
            factor = run.chart.factor
        return factor

    def _infeasibility_ray(self, form: Formulation) -> Array | None:
        """Multipliers that prove the hard rows contradictory, if LogDet finds them.

        They depend neither on the divergence nor on the prior. LogDet, the natural barrier of the cone, finds
        them fastest, from a prior larger than all bounds ask for.
        """
        hard, divergence = form.losses.is_hard, LogDet()
        sizes = form.measurements.sizes(np.ones_like(form.prior))
        sizes = np.where(sizes > 0, sizes, 1.0)
        wanted = np.abs(form.losses.bounds[hard]) / sizes[hard]
        size = 10 * float(wanted.max()) if wanted.any() else 1.0
        penalties = np.where(hard, np.inf, 1e-9)
        losses = replace(form.losses, divergence=divergence, penalties=penalties, sizes=size * sizes)
        scaled = Formulation(divergence, np.full_like(form.prior, size), form.measurements, losses)
        run = _Run(self, reduced(scaled).formulation)
        for _ in range(10 * _PATIENCE):
            proof = form.proof(run.dual) if run.cost.updates > 1 else None
            if proof is not None:
                return proof
            violations = run.form.losses.violations(run.values)
            if np.max(violations[hard]) < 1e-6 or not run.advance():
                break
        return None


class _Run:
    """The state of one run."""

    chart: Chart
    values: Array  # <A_i, M>
    distance: float  # the chart's cost
    merit: float  # distance plus what the constraints cost
    dual: Array
    curvature: Array  # second derivatives of the rows' costs
    pullback: Array  # sum_i dual_i A_i
    gradient: Array
    inner_gap: float
    is_rough: bool  # whether this point was measured in single precision

    def __init__(self, settings: Newton, form: Formulation, start: Array | None = None) -> None:
        self.settings = settings
        self.exact, self.form = form, _in_single_precision(form)
        self.rng = np.random.default_rng(settings.seed)
        r = len(form.prior)
        unknowns = r * (r + 1) // 2
        self.hessian_rows = settings.hessian_rows or max(3 * unknowns, 4096)
        self.cost = _AugmentedLosses(form.losses, settings.stiffness, unknowns)
        first_share = self.cost.share
        if start is not None:
            self.cost.set_share(1.0)  # the way from the prior lies behind
        near = start is not None and form.divergence.congruence_invariant
        self.radius = settings.radius * (2 if near else 1)  # a given start is worth longer steps
        self.full_step = False
        self.pace = 1.0  # by how much the share of the penalties was raised before the last step
        self.reach = 1.0  # the share of a sampled Hessian's steps that goes down furthest
        self.predicted = np.inf  # the decrease that the last step's model promised
        first = first_chart(form, start)
        self.starts_at_prior = not isinstance(first, SpectralChart) or first.law.mu == 0
        self._visit(first)
        self._differentiate()
        while self._is_far and first_share < min(_LITTLE, self.cost.share):  # or not all of it
            self.cost.set_share(max(self.cost.share / _RAISED, first_share))
            self._reprice()

    @property
    def _is_far(self) -> bool:
        return not self.inner_gap <= _NEAR * max(abs(self.merit), self.form.unit)

    def point(self) -> Iterate:
        """What was measured at the current point."""
        chart = self.chart
        ray = self.dual if self.cost.updates > 1 else None
        known = (self.distance, self.inner_gap) if chart.is_exact else None
        return Iterate(chart.factor, self.values, self.dual, self.pullback, chart.spectrum, ray, known)

    def advance(self) -> bool:
        """Come closer to the true problem where the present one is solved well enough, then take one step."""
        size = max(abs(self.merit), self.form.unit)
        if self.form is not self.exact and self.cost.share == 1 and self.predicted <= _ROUGH * size:
            self._sharpen()
        if self._tighten():
            self._reprice()
        if self._newton() or self._mirror():
            self._differentiate()
            return True
        if self.is_rough:
            self._sharpen()
            self._visit(self.chart)
            self._differentiate()
            return True
        if self._tighten(forced=True):
            self._reprice()
            return True
        return False

    def _sharpen(self) -> None:
        """From here on points are measured in double precision."""
        self.form = self.exact
        self.chart = self.chart.of(self.exact)

    def _tighten(self, forced: bool = False) -> bool:
        """Raise the share of the penalties, update the multipliers, lower the smoothing: whichever is due."""
        tightened = False
        # under LogDet, which is self-concordant, what a full step promised tells as much as a mirror point
        known = self.predicted if self.full_step and self.chart.omega is None else np.inf
        settled = min(self.inner_gap, known) <= _SETTLED * max(abs(self.merit), self.form.unit)
        pace, self.pace = self.pace if self.full_step else 1.0, 1.0
        if self.cost.share < 1 and (forced or settled):
            self.pace = _RAISED * pace  # by more and more where one step each time is enough
            self.cost.set_share(self.pace * self.cost.share)
            tightened = True
        elif self.cost.can_stiffen if forced else self.cost.any_hard and self._inner_solved():
            self.cost.update(self.values)
            tightened = True
        # before that, larger penalties would find M near the boundary and steps short
        lower = self.chart.tightened() if forced or (self.full_step and self.cost.share == 1) else None
        if lower is not None:
            self.chart, self.distance = lower, lower.cost()
            tightened = True
        return tightened

    def _reprice(self) -> None:
        self.merit = self.distance + self.cost.total(self.values)
        self._differentiate()

    def _newton(self) -> bool:
        chart, gradient = self.chart, self.gradient
        local, weights, sampled = self.form.measurements.curved(
            self.curvature, self.hessian_rows, self.rng, chart.basis, single=not self.cost.any_hard
        )
        relative = self.inner_gap / max(abs(self.merit), self.form.unit)
        # a sample deserves no more; the preconditioner knows less of it where there is an omega
        coarse = (0.3 if chart.omega is None else 0.2) if sampled and chart.is_exact else 0.1
        accuracy = coarse if sampled else float(np.clip(np.sqrt(relative), 1e-10, coarse))
        step, image = newton_step(local, weights, gradient, chart.omega, accuracy, self.cost.any_hard)
        if sampled:  # it bends less along its steps than the Hessian of all rows
            step, image = self.reach * step, self.reach * image
        for attempt in range(12):
            radius, merit = self.radius, self.merit
            new, slope, length = chart.moved(gradient, step, image, self.radius)
            if new is not None:
                if slope < 0 and self._accept(new, _SUFFICIENT * slope, slope, attempt == 0):
                    self.full_step = attempt == 0 and length <= min(radius, 0.5)
                    if sampled and self.full_step:  # the minimum of a parabola
                        best = self.reach / max(2 * (1 + (merit - self.merit) / slope), 0.01)
                        self.reach = max(best, _SHORTEST) if best < _WHOLE else 1.0
                    return True
                if not slope < 0:
                    break
            self.radius = min(self.radius, length) / 2
        self.radius = self.settings.radius
        return False

    def _mirror(self) -> bool:
        length = 1.0
        for _ in range(30):
            new = self.chart.mirrored(self.pullback, length)
            if new is not None and self._accept(new, -_ROUNDING * abs(self.merit), None, False):
                return True
            length /= 3
        return False

    def _accept(self, new: Chart, needed: float, slope: float | None, first: bool) -> bool:
        """Move to a point if the objective falls enough; adapt the radius to how well it was predicted."""
        if not np.isfinite(new.factor).all():
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # a step far too long is refused, not an error
            values = self.form.measurements.values_of_factor(new.factor)
            distance = new.cost()
            merit = distance + self.cost.total(values)
        error = _ROUGH_ROUNDING if self.is_rough else _ROUNDING
        rounding = error * max(abs(self.merit), self.form.unit) if slope is not None else 0.0
        if not merit <= self.merit + needed + rounding:
            return False
        self.predicted = np.inf if slope is None else -slope
        if slope is not None:
            ratio = (self.merit - merit) / -slope
            if first and ratio > 0.25:
                self.radius = min(2 * self.radius, 1e6)
            elif ratio < 0.1:
                self.radius /= 2
        self.chart, self.values, self.distance, self.merit = new, values, distance, merit
        self.is_rough = self.form is not self.exact
        return True

    def _visit(self, chart: Chart) -> None:
        self.chart = chart
        self.values = self.form.measurements.values_of_factor(chart.factor)
        self.distance = chart.cost()
        self.merit = self.distance + self.cost.total(self.values)
        self.is_rough = self.form is not self.exact

    def _differentiate(self) -> None:
        self.dual, self.curvature = self.cost.derivatives(self.values)
        self.pullback = self.form.measurements.adjoint(self.dual)
        self.chart = self.chart.anchored(self.pullback)
        self.gradient = self.chart.gradient(self.pullback)
        self.inner_gap = self.chart.inner_gap(self.pullback)

    def _inner_solved(self) -> bool:
        """Whether the error of the inner problem is small beside what the multipliers still owe."""
        rounding = 1e-14 * max(abs(self.merit), self.form.unit)
        owed = self.cost.complementarity_error(self.values, self.dual)
        return self.inner_gap <= max(0.01 * owed, 0.01 * rounding) or self.predicted <= rounding


def _in_single_precision(form: Formulation) -> Formulation:
    """The same, at half the cost, where single precision is good enough for the first steps."""
    rows = form.measurements
    rough = rows.in_single_precision() if isinstance(rows, InMemory) and not form.losses.any_hard else None
    return form if rough is None else replace(form, measurements=rough)


class _AugmentedLosses:
    """Losses whose hard rows enter as an augmented Lagrangian.

    A hard row costs max_y y (p - b) - (y - estimate)^2 / (2 k) over multipliers y of the right sign, with
    k = stiffness / reference^2. Soft rows count with a share of their penalties, which rises to 1.
    """

    def __init__(self, losses: Losses, stiffness: float, unknowns: int) -> None:
        self.full = losses
        self.any_hard = losses.any_hard
        if self.any_hard:
            self._take_hard(losses)
        self.stiffness = stiffness
        self.updates = 0
        self.last_error = np.inf
        n_soft, total = losses.soft_penalties
        # as much at first as all unknowns together weigh, or all rows, if there are fewer
        freedom = min(unknowns, n_soft)
        self.set_share(2 * freedom / max(total, 1e-300) if n_soft else 1.0)

    def _take_hard(self, losses: Losses) -> None:
        self.hard = np.flatnonzero(losses.is_hard)
        self.signs = losses.relations[self.hard]
        self.bounds = losses.bounds[self.hard]
        self.references = losses.references[self.hard]
        self.estimate = np.zeros(len(self.hard))
        if not losses.divergence.congruence_invariant:
            # Only a barrier bears rows that are stiff because their bounds are small.
            self.references = np.maximum(self.references, losses.sizes[self.hard])

    @property
    def can_stiffen(self) -> bool:
        return self.any_hard and self.stiffness < _STIFFEST

    def total(self, p: Array) -> float:
        total = self.losses.total(p)
        if self.any_hard:
            y, k = self._multipliers(p)
            total += float(np.sum((y**2 - self.estimate**2) / k)) / 2
        return total

    def derivatives(self, p: Array) -> tuple[Array, Array]:
        first, second = self.losses.slopes(p), self.losses.curvatures(p)
        if self.any_hard:
            y, k = self._multipliers(p)
            first[self.hard] = y
            second[self.hard] = np.where((y != 0) | (self.signs == 0), k, 0.0)
        return first, second

    def update(self, p: Array) -> None:
        """Take the multipliers at p as the new estimates; stiffen if the error did not fall enough."""
        new, _ = self._multipliers(p)
        error = float(np.max(np.abs(new - self.estimate) * self.references, initial=0.0)) / self.stiffness
        if error > 0.1 * self.last_error:
            self.stiffness = min(self.stiffness * 10.0, _STIFFEST)
        self.last_error = error
        self.estimate = new
        self.updates += 1

    def set_share(self, share: float) -> None:
        self.share = min(1.0, share)
        self.losses = self.full.times(self.share)

    def complementarity_error(self, p: Array, y: Array) -> float:
        return float(np.sum(np.abs(y[self.hard] * (p[self.hard] - self.bounds))))

    def _multipliers(self, p: Array) -> tuple[Array, Array]:
        """The multipliers at p, and k."""
        k = self.stiffness / self.references**2
        y = self.estimate + k * (p[self.hard] - self.bounds)
        return np.where(self.signs < 0, np.maximum(y, 0), np.where(self.signs > 0, np.minimum(y, 0), y)), k
