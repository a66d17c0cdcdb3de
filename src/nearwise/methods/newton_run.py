"""One run of Newton's method on soft rows, wherever they are: a point, and the iteration that improves it.

Of the rows it sees sums at a point (`Measured.measure`: one pass for objective, gradient and certificate) and
a sample, whose rows make the Hessian. An iteration:

1. Come closer to the true problem where the present one is solved well enough: raise the share of the
   penalties, which are too stiff for a point far from the solution; lower the smoothing of the chart.
2. Take the sample's rows that have a curvature here. Their curvatures stand for those of all rows.
3. Solve Newton's system in the chart's coordinates, roughly, since the Hessian is a sample's.
4. Accept the step if the objective falls by a share of what was predicted, else shorten it; adapt the trust
   region.
5. Where no step is accepted, go toward the minimiser of the Lagrangian; a short enough step descends.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array
from nearwise.core.charts import Chart
from nearwise.core.formulation import Formulation
from nearwise.core.measured import Measured, Sums
from nearwise.methods.newton_system import HessianSample, newton_step

SUFFICIENT = 1e-4  # share of the predicted decrease that a step must bring
POOR, FAIR, GOOD = 0.1, 0.25, 0.75  # shares at which the radius is halved, doubled and quadrupled
TRIALS, LONGEST_RADIUS = 12, 1e6  # of step lengths in an iteration, each at most half of the one before

ROUNDING, SINGLE_ROUNDING = 4e-15, 1e-6  # relative changes of the objective that mean nothing
LEAST_SLOPE = 1e-18  # relative decrease that is no step: gaps may be smaller than the objective's last digit

# Relative change of M in a step, up to which what its model promised is as good as a gap. With 1.5 a run on
# 56 rows with penalty 377 takes over 200 iterations, not 42; with 0.5, MNIST at penalty 1 takes 16, not 13.
FULL = 1.0

# Shares of a step with a sample's Hessian: the least that is taken, and what counts as all of it. With whole
# steps MNIST takes 17 iterations, not 13 (LogDet, penalty 1), and 31, not 22 (von Neumann, 0.1).
SHORTEST, WHOLE = 0.3, 0.8

# Relative gap at which the share of the penalties is raised, and by how much. With 0.003 MNIST takes 18
# iterations, not 13 (LogDet, penalty 1); with 0.3 runs from far starts take twice as many in all.
SETTLED, RAISED = 0.03, 4.0

# Relative gap of a start, up to which the penalties count in full at once. With all of a penalty of 100, a
# start of 100 I or a random one takes over 300 iterations in place of 15 to 35 (2,000 pairs, r = 20).
NEAR = 1.0

# Relative decrease of a step, down to which single precision is exact enough; with 1e-2 or 1e-6 MNIST takes
# about as long.
SINGLE_ENOUGH = 1e-4

# Accuracies of Newton's system: with a sample's Hessian, without and with a chart's weights, and with that of
# all rows at most. A sample deserves no more: with 0.03 MNIST takes no fewer iterations, each 1.3 times as
# long.
OF_SAMPLE, OF_SAMPLE_WEIGHTED, OF_ALL = 0.3, 0.2, 0.1


class Run:
    """The state of a run at one point, measured in double precision at first.

    Parameters
    ----------
    form : with soft rows alone
    hessian : draws the rows of the Hessian
    radius : of the trust region at first: the largest relative change of an eigenvalue of M
    start : a factor; None for the prior
    share : of the penalties at first; by default as much as suits the start
    """

    chart: Chart
    sums: Sums  # with all of the penalties
    distance: float  # the chart's cost
    merit: float  # distance plus the share of what the rows cost
    adjoint: Array  # the share of that of the slopes
    gradient: Array
    gap: float  # of the present problem

    def __init__(
        self,
        form: Formulation,
        hessian: HessianSample,
        radius: float,
        start: Array | None = None,
        share: float | None = None,
    ) -> None:
        self.form, self.measured, self.hessian = form, form.measured, hessian
        bearable = share or bearable_share(form)
        self.share = bearable if start is None else 1.0
        self.radius = self.first_radius = radius
        self.single = False  # whether passes may be in single precision
        self.is_full = False  # whether the last step was not shortened, and not long
        self.pace = 1.0  # by how much the share was raised before the last step
        self.reach = 1.0  # the share of a sampled Hessian's steps that goes down furthest
        self.predicted = np.inf  # the decrease that the last step's model promised
        self.visit(form.divergence.chart(form.prior, start))
        while self.share > bearable and not self.gap <= NEAR * self.size:
            self.share = max(self.share / RAISED, bearable)
            self._price()

    @property
    def size(self) -> float:
        """What changes of the objective are relative to."""
        return max(abs(self.merit), self.form.unit)

    def visit(self, chart: Chart) -> None:
        """Go to a point, whatever its objective."""
        self.chart, self.distance = chart, chart.cost()
        self.sums = self.measured.measure(chart.factor, self.single)
        self._price()

    def replace_losses(self, measured: Measured) -> None:
        """Go on with other losses of the same rows."""
        self.measured = measured
        self.hessian.bind(measured)
        self.visit(self.chart)

    def advance(self) -> bool:
        """One iteration; False where no step leads on."""
        if self.share == 1 and self.predicted <= SINGLE_ENOUGH * self.size:
            self.single = False
        if self._come_closer():
            self._price()
        if self._newton() or self._toward_minimiser():
            self._differentiate()
            return True
        if self.sums.is_single:
            self.single = False
            self.visit(self.chart)
            return True
        if self._come_closer(forced=True):
            self._price()
            return True
        return False

    def _price(self) -> None:
        """Objective and derivatives of the present problem, from sums and chart."""
        self.merit = self.distance + self.share * self.sums.cost
        self._differentiate()

    def _differentiate(self) -> None:
        self.adjoint = self.share * self.sums.adjoint
        self.chart = self.chart.anchored(self.adjoint)
        self.gradient = self.chart.gradient(self.adjoint)
        self.gap = self.chart.gap(self.adjoint)

    def _come_closer(self, forced: bool = False) -> bool:
        """1. Raise the share of the penalties, lower the smoothing: whether one of them was due."""
        # without weights the divergence is self-concordant, and what a step promises is as good as a gap
        promised = self.predicted if self.is_full and self.chart.weights is None else np.inf
        settled = min(self.gap, promised) <= SETTLED * self.size
        pace, self.pace = self.pace if self.is_full else 1.0, 1.0
        closer = False
        if self.share < 1 and (forced or settled):
            self.pace = RAISED * pace  # by more and more where one step each time is enough
            self.share = min(1.0, self.pace * self.share)
            closer = True
        # before the share is 1, more penalty would find M near the boundary and steps short
        sharper = self.chart.sharpened() if forced or (self.is_full and self.share == 1) else None
        if sharper is not None:
            self.chart, self.distance, closer = sharper, sharper.cost(), True
        return closer

    def _newton(self) -> bool:
        chart, gradient = self.chart, self.gradient
        # 2.
        rows = self.hessian.curved(chart, self.sums.curved)
        # 3.
        rough = OF_ALL
        if rows.is_part and chart.is_exact:
            rough = OF_SAMPLE if chart.weights is None else OF_SAMPLE_WEIGHTED
        accuracy = rough if rows.is_part else float(np.clip(np.sqrt(self.gap / self.size), 1e-10, rough))
        step, hessian = newton_step(rows, self.share, chart.weights, gradient, accuracy)
        if rows.is_part:  # along its steps, a sample's Hessian bends less than that of all rows
            step = self.reach * step
        # 4.
        for trial in range(TRIALS):
            radius, merit = self.radius, self.merit
            new, slope, length = chart.moved(gradient, step, hessian, radius)
            if new is not None and not slope < -LEAST_SLOPE * self.size:
                break
            if new is not None and self._accept(new, slope, trial == 0):
                self.is_full = trial == 0 and length <= min(radius, FULL)
                if rows.is_part and self.is_full:  # the minimum of a parabola
                    best = self.reach / max(2 * (1 + (merit - self.merit) / slope), 0.01)
                    self.reach = max(best, SHORTEST) if best < WHOLE else 1.0
                return True
            self.radius = min(radius, length) / 2
        self.radius = self.first_radius
        return False

    def _accept(self, new: Chart, slope: float, is_first: bool) -> bool:
        """Move if the objective falls enough; adapt the radius to how well that was predicted."""
        before, rounding = self.merit, SINGLE_ROUNDING if self.sums.is_single else ROUNDING
        if not self._move(new, SUFFICIENT * slope + rounding * self.size):
            return False
        self.predicted, ratio = -slope, (before - self.merit) / -slope
        if is_first and ratio > FAIR:
            self.radius = min((4 if ratio > GOOD else 2) * self.radius, LONGEST_RADIUS)
        elif ratio < POOR:
            self.radius /= 2
        return True

    def _toward_minimiser(self) -> bool:
        """5."""
        length = 1.0
        for _ in range(30):
            if self._move(self.chart.toward_minimiser(self.adjoint, length), -ROUNDING * abs(self.merit)):
                self.predicted, self.is_full = np.inf, False
                return True
            length /= 3
        return False

    def _move(self, new: Chart, most: float) -> bool:
        """Measure a point, and go there if the objective changes by at most this much."""
        if not np.isfinite(new.factor).all():
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # a step far too long is refused, not an error
            sums, distance = self.measured.measure(new.factor, self.single), new.cost()
            merit = distance + self.share * sums.cost
        if not merit <= self.merit + most:
            return False
        self.chart, self.sums, self.distance, self.merit = new, sums, distance, merit
        return True


def bearable_share(form: Formulation) -> float:
    """The share of the penalties that weighs as much as all unknowns, or all rows where these are fewer.

    Run from the prior with all of much larger penalties, M comes near the boundary of the cone.
    """
    freedom = 2.0 * min(form.order * (form.order + 1) // 2, form.measured.n_rows)
    return min(1.0, freedom / max(form.measured.penalty_sum, 1e-300))
