"""Newton's method with conjugate gradients, for every divergence, hard and soft rows, in memory or elsewhere.

`newton_run` is the method for soft rows. Hard rows enter as an augmented Lagrangian (`augmented`). Where rows
far outnumber the unknowns, a sample of them is solved first, in memory: that spares about half of the passes
over all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.checks import positive, whole_number, whole_number_or_none
from nearwise._common.types import Array
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.measured import InMemory
from nearwise.methods.augmented import hard_iterates
from nearwise.methods.newton_run import Run
from nearwise.methods.newton_system import HessianSample

# Rows for each row of the sample, from which on it is solved first. In memory that takes 1.0 to 1.7 times as
# long with 3 of them, and 0.7 to 1.1 times with 36 (pairs of MNIST). Passes over rows elsewhere are dearer.
FAR_MORE = 30.0
SOLVED, MOST_STEPS = 1e-2, 15  # relative gap at which the sample is solved well enough; most steps


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
        """Points of decreasing objective, from the prior or from `start start^T`.

        Points that were measured in single precision are passed over: no certificate may rest on them.
        """
        hessian = HessianSample(form.measured, form.order, self.hessian_rows, self.seed)
        if form.measured.any_hard:
            yield from hard_iterates(form, hessian, self.radius, self.stiffness, start)
            return
        if start is None and self._far_outnumber(form, hessian):
            start = self._solved_on(form, hessian.sample)
        run = Run(form, hessian, self.radius, start)
        if not run.chart.is_exact:  # a smoothed chart begins inside the cone
            yield Iterate(np.diag(np.sqrt(np.maximum(form.prior, 0.0))) if start is None else start)
        yield Iterate(run.chart.factor, sums=run.sums)
        run.single = True
        while run.advance():
            if not run.sums.is_single:
                yield Iterate(run.chart.factor, sums=run.sums)

    def _far_outnumber(self, form: Formulation, hessian: HessianSample) -> bool:
        times = FAR_MORE if form.measured.is_in_memory else 1.0
        return form.measured.n_rows > times * hessian.sample.n_rows

    def _solved_on(self, form: Formulation, sample: InMemory) -> Array:
        """A factor of the solution for the sample alone.

        Its rows count as much as all that they stand for, but no more than the unknowns bear: larger
        penalties would fit the sample and not the rows.
        """
        stride = form.measured.n_rows / sample.n_rows
        bearable = form.order * (form.order + 1) / max(form.measured.penalty_sum, 1e-300)
        few = replace(form, measured=sample.times(float(np.clip(bearable * stride, 1.0, stride))))
        run = Run(few, HessianSample(few.measured, form.order, self.hessian_rows, self.seed), self.radius)
        run.single = True
        for _ in range(MOST_STEPS):
            is_solved = run.share == 1 and run.gap <= SOLVED * run.size
            if is_solved or not run.advance():
                break
        return run.chart.factor
