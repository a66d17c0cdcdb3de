"""Newton's method for many soft rows, wherever they are; hard rows enter through `augmented`.

Of the rows it sees sums at a point (`Measured.measure`: one pass for objective, gradient and certificate) and a
sample, drawn once by number, whose rows make the Hessian. The steps of an iteration:

1. Come closer to the true problem where the present one is solved well enough: raise the share of the
   penalties, which are too stiff for a point far from the solution; lower the smoothing of the chart.
2. Take the sample's rows that have a curvature here. Their curvatures stand for those of all rows.
3. Solve Newton's system in the chart's coordinates, roughly, since the Hessian is a sample's.
4. Accept the step if the objective falls by a share of what was predicted, else shorten it; adapt the trust
   region.
5. Where no step is accepted, go toward the minimiser of the Lagrangian, which descends if that is short enough.

Where rows far outnumber the unknowns, the sample is solved first, in memory: that spares about half of the
passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.checks import positive, whole_number, whole_number_or_none
from nearwise._common.types import Array
from nearwise.core.charts import Chart
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.measured import InMemory, Sums
from nearwise.core.rows import Rows
from nearwise.methods.newton_system import newton_step

SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring
SETTLED, RAISED = 0.03, 4.0  # relative gap at which the share of the penalties is raised, and by how much
SOLVED_SAMPLE, SAMPLE_STEPS = (
    1e-2,
    15,
)  # relative gap at which a sample is solved well enough, and most steps for it
SHORTEST, WHOLE = (
    0.3,
    0.8,
)  # shares of a step along a sample's direction: the least, and that taken for a whole one
ROUNDING, SINGLE_ROUNDING = 4e-15, 1e-6  # relative changes of the objective that mean nothing
SINGLE_ENOUGH = 1e-4  # relative decrease of a step, down to which single precision is exact enough


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
        """Points of decreasing objective, from the prior or from `start start^T`."""
        if form.measured.any_hard:
            from nearwise.methods.augmented import augmented_iterates

            yield from augmented_iterates(self, form, start)
            return
        rng = np.random.default_rng(self.seed)
        sample = self.drawn(form, 2 * self.rows_of_hessian(form.order), rng)
        if start is None and FAR_MORE * sample.n_rows <= form.measured.n_rows:
            start = self._solved_on(form, sample, rng)
        run = Run(self, form, sample, rng, start)
        while run.is_rough and run.advance():
            pass
        yield Iterate(run.chart.factor, sums=run.sums)
        while run.advance():
            yield Iterate(run.chart.factor, sums=run.sums)

    def rows_of_hessian(self, order: int) -> int:
        return self.hessian_rows or max(3 * order * (order + 1) // 2, 4096)

    def drawn(self, form: Formulation, count: int, rng: np.random.Generator) -> InMemory:
        """So many of the rows at random, or all."""
        m = form.measured.n_rows
        return form.measured.sample(
            np.sort(rng.choice(m, count, replace=False)) if count < m else np.arange(m)
        )

    def _solved_on(self, form: Formulation, sample: InMemory, rng: np.random.Generator) -> Array:
        """A factor of the solution for the sample alone.

        Its rows count as much as all that they stand for, but no more than the unknowns bear: larger penalties
        would fit the sample and not the rows.
        """
        stride = form.measured.n_rows / sample.n_rows
        bearable = form.order * (form.order + 1) / max(form.measured.penalty_sum, 1e-300)
        few = sample.times(float(np.clip(bearable * stride, 1.0, stride)))
        run = Run(self, replace(form, measured=few), few, rng)
        for _ in range(SAMPLE_STEPS):
            solved = run.share == 1 and run.gap <= SOLVED_SAMPLE * run.size
            if solved or not run.advance():
                break
        return run.chart.factor


FAR_MORE = 10.0  # rows for each row of the sample, from which on solving the sample first pays


class Run:
    """The state of a run at one point."""

    chart: Chart
    sums: Sums  # with all of the penalties
    is_rough: bool  # whether they are in single precision
    distance: float  # the chart's cost
    merit: float  # distance plus the share of what the rows cost
    adjoint: Array  # the share of that of the slopes
    gradient: Array
    gap: float  # of the present problem

    def __init__(
        self,
        settings: Newton,
        form: Formulation,
        sample: InMemory,
        rng: np.random.Generator,
        start: Array | None = None,
    ) -> None:
        self.settings, self.form, self.rng = settings, form, rng
        self.take(sample)
        self.hessian_rows = settings.rows_of_hessian(form.order)
        measured = form.measured
        # as much at first as all unknowns together weigh, or all rows, if these are fewer
        freedom = 2.0 * min(form.order * (form.order + 1) // 2, measured.n_rows)
        self.share = min(1.0, freedom / max(measured.penalty_sum, 1e-300)) if start is None else 1.0
        self.radius = settings.radius if start is None else 2 * settings.radius
        self.single = True
        self.full_step = False
        self.pace = 1.0  # by how much the share was raised before the last step
        self.reach = 1.0  # the share of a sampled Hessian's steps that goes down furthest
        self.predicted = np.inf  # the decrease that the last step's model promised
        self.visit(form.divergence.chart(form.prior, start))

    @property
    def size(self) -> float:
        """What differences of the objective are relative to."""
        return max(abs(self.merit), self.form.unit)

    def take(self, sample: InMemory) -> None:
        """Draw the Hessian from these rows, in single precision where they are many."""
        self.sample, self.sampled_rows = sample, sample.rows.in_single() or sample.rows

    def visit(self, chart: Chart) -> None:
        """Measure a point."""
        self.chart, self.distance = chart, chart.cost()
        self.sums, self.is_rough = self.form.measured.measure(chart.factor, self.single), self.single
        self.price()

    def price(self) -> None:
        """Objective and derivatives of the present problem, from sums and chart."""
        self.merit = self.distance + self.share * self.sums.cost
        self.differentiate()

    def differentiate(self) -> None:
        self.adjoint = self.share * self.sums.adjoint
        self.chart = self.chart.anchored(self.adjoint)
        self.gradient = self.chart.gradient(self.adjoint)
        self.gap = self.chart.gap(self.adjoint)

    def advance(self) -> bool:
        """One iteration; False where no step leads on."""
        if self.share == 1 and self.predicted <= SINGLE_ENOUGH * self.size:
            self.single = False
        if self._come_closer():
            self.price()
        if self._newton() or self._toward_minimiser():
            self.differentiate()
            return True
        if self.is_rough:
            self.single = False
            self.visit(self.chart)
            return True
        if self._come_closer(forced=True):
            self.price()
            return True
        return False

    def _come_closer(self, forced: bool = False) -> bool:
        """1. Raise the share of the penalties, lower the smoothing: whether one of them was due."""
        # without weights the divergence is self-concordant, and a full step's promise is as good as a gap
        promised = self.predicted if self.full_step and self.chart.weights is None else np.inf
        settled = min(self.gap, promised) <= SETTLED * self.size
        pace, self.pace = self.pace if self.full_step else 1.0, 1.0
        closer = False
        if self.share < 1 and (forced or settled):
            self.pace = RAISED * pace  # by more and more where one step each time is enough
            self.share = min(1.0, self.pace * self.share)
            closer = True
        # before the share is 1, more penalty would find M near the boundary and steps short
        sharper = self.chart.sharpened() if forced or (self.full_step and self.share == 1) else None
        if sharper is not None:
            self.chart, self.distance, closer = sharper, sharper.cost(), True
        return closer

    def _curved(self) -> tuple[Rows, Array, bool]:
        """2. Rows with a curvature in local coordinates, their curvatures, and whether they stand for others."""
        for _ in range(3):
            sample = self.sample
            local = self.sampled_rows.transformed(self.chart.basis)
            curvatures = sample.loss.at(local.values(self.chart.stretch)).curvatures
            rows = np.flatnonzero(curvatures)
            wanted = min(self.hessian_rows, self.sums.curved)
            most = 16 * self.hessian_rows
            if len(rows) >= wanted - 0.2 * self.hessian_rows or sample.n_rows >= min(
                self.form.measured.n_rows, most
            ):
                break
            count = min(2 * sample.n_rows * self.hessian_rows // max(len(rows), 1), most)
            self.take(self.settings.drawn(self.form, count, self.rng))
        is_part = sample.n_rows < self.form.measured.n_rows or len(rows) > self.hessian_rows
        if len(rows) > self.hessian_rows:
            rows = rows[np.sort(self.rng.choice(len(rows), self.hessian_rows, replace=False))]
        share = self.share * (self.sums.curved / max(len(rows), 1) if is_part else 1.0)
        return local.subset(rows), share * curvatures[rows], is_part

    def _newton(self) -> bool:
        chart, gradient = self.chart, self.gradient
        local, curvatures, is_part = self._curved()
        # 3. a sample deserves no more; the preconditioner knows less of it where there are weights
        rough = (0.3 if chart.weights is None else 0.2) if is_part and chart.is_exact else 0.1
        accuracy = rough if is_part else float(np.clip(np.sqrt(self.gap / self.size), 1e-10, rough))
        step, hessian = newton_step(local, curvatures, chart.weights, gradient, accuracy)
        if is_part:  # it bends less along its steps than the Hessian of all rows
            step = self.reach * step
        # 4.
        for attempt in range(12):
            radius, merit = self.radius, self.merit
            new, slope, length = chart.moved(gradient, step, hessian, radius)
            if new is not None:
                if not slope < 0:
                    break
                if self._accept(new, slope, attempt == 0):
                    self.full_step = attempt == 0 and length <= min(radius, 0.5)
                    if is_part and self.full_step:  # the minimum of a parabola
                        best = self.reach / max(2 * (1 + (merit - self.merit) / slope), 0.01)
                        self.reach = max(best, SHORTEST) if best < WHOLE else 1.0
                    return True
            self.radius = min(radius, length) / 2
        self.radius = self.settings.radius
        return False

    def _accept(self, new: Chart, slope: float, is_first: bool) -> bool:
        """Move if the objective falls enough; adapt the radius to how well that was predicted."""
        before = self.merit
        if not self._move(
            new, SUFFICIENT * slope + (SINGLE_ROUNDING if self.single else ROUNDING) * self.size
        ):
            return False
        self.predicted, ratio = -slope, (before - self.merit) / -slope
        if is_first and ratio > 0.25:
            self.radius = min(2 * self.radius, 1e6)
        elif ratio < 0.1:
            self.radius /= 2
        return True

    def _toward_minimiser(self) -> bool:
        """5."""
        length = 1.0
        for _ in range(30):
            if self._move(self.chart.toward_minimiser(self.adjoint, length), -ROUNDING * abs(self.merit)):
                self.predicted = np.inf
                return True
            length /= 3
        return False

    def _move(self, new: Chart, most: float) -> bool:
        """Measure a point, and go there if the objective changes by at most this much."""
        if not np.isfinite(new.factor).all():
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # a step far too long is refused, not an error
            sums, distance = self.form.measured.measure(new.factor, self.single), new.cost()
            merit = distance + self.share * sums.cost
        if not merit <= self.merit + most:
            return False
        self.chart, self.sums, self.distance, self.merit = new, sums, distance, merit
        self.is_rough = self.single
        return True
