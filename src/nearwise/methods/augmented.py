"""Hard rows for Newton's method: an augmented Lagrangian, whose inner problem is soft.

With estimates y of the multipliers, a hard row costs k/2 (p - b + y/k)^2 on its wrong side, where k is the
stiffness in units of the row. The slopes of these costs are the next estimates; they converge to the dual
solution. The steps:

1. Newton's iterations on the inner problem, until its gap is small beside what the multipliers still lack.
2. Take its slopes as estimates; stiffen the rows where estimates do not converge; raise the share of the soft
   rows' penalties.

Where hard rows contradict each other, estimates grow without end, in the direction of a Farkas certificate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nearwise._common.types import Array
from nearwise.core.divergences import LogDet
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.losses import Loss
from nearwise.core.measured import InMemory
from nearwise.methods.newton_run import RAISED, Run, bearable_share
from nearwise.methods.newton_system import HessianSample

# Points before LogDet looks for a contradiction, points that it has for that, the violation at which there is
# none, and the size of its prior beside what the bounds ask for. Without it Frobenius takes up to 400 points
# to see a contradiction of 20 rows.
PATIENCE, SEARCH, FEASIBLE, LARGE = 30, 300, 1e-6, 10.0

STUCK = 0.5  # violation beside the one at the estimates before, above which it does not fall

# Change of the estimates beside the one before, above which rows become so many times stiffer, up to a
# stiffness in their own units that only infeasible problems come near.
CONVERGING, STIFFER, STIFFEST = 0.1, 10.0, 1e13

INNER = 0.01  # gap of the inner problem beside what the multipliers lack, at which it is solved
ROUNDING = 1e-14  # relative changes of the objective that mean nothing


def hard_iterates(
    form: Formulation,
    hessian: HessianSample,
    radius: float,
    stiffness: float,
    start: Array | None = None,
    patience: float = PATIENCE,
) -> Iterator[Iterate]:
    """Points with multipliers; those that grow while violations do not fall may prove infeasibility.

    Where this has proven nothing after some points, LogDet looks for a proof.
    """
    estimates = Estimates(form.loss, stiffness, bearable_share(form))
    inner = InMemory(form.rows, estimates.loss())
    hessian.bind(inner)
    run = Run(replace(form, measured=inner), hessian, radius, start, share=1.0)
    for count in itertools.count():
        p = form.rows.values(run.chart.factor)
        dual = inner.loss.at(p).slopes
        suspected = dual if estimates.are_suspect else None
        if count == patience:
            proof = _proof(form, hessian.seed, radius, stiffness)
            suspected = suspected if proof is None else proof
        yield Iterate(run.chart.factor, dual, values=p, adjoint=run.sums.adjoint, farkas=suspected)
        lacking = float(np.abs(dual * (p - form.loss.bounds))[form.loss.is_hard].sum())
        rounding = ROUNDING * run.size
        is_solved = run.gap <= INNER * max(lacking, rounding) or run.predicted <= rounding
        if not is_solved and run.advance():
            continue
        if not is_solved and estimates.stiffness >= STIFFEST:
            return
        violations = form.loss.violations(p)[form.loss.is_hard]
        estimates.update(dual, float(violations.max()), stiffen=not is_solved)
        inner = InMemory(form.rows, estimates.loss())
        run.replace_losses(inner)
        run.advance()


def _proof(form: Formulation, seed: int, radius: float, stiffness: float) -> Array | None:
    """Multipliers that prove the hard rows contradictory, if LogDet finds them.

    They depend neither on the divergence nor on the prior. LogDet, the natural barrier of the cone, finds
    them fastest, from a prior larger than all bounds ask for.
    """
    hard, divergence = np.flatnonzero(form.loss.is_hard), LogDet()
    rows, loss = form.rows.subset(hard), form.loss.subset(hard)
    sizes = rows.magnitudes(np.ones(form.order))
    sizes = np.where(sizes > 0, sizes, 1.0)
    size = LARGE * float((np.abs(loss.bounds) / sizes).max(initial=0.0)) or 1.0
    loss = replace(loss, divergence=divergence, sizes=size * sizes)
    small = Formulation.of(divergence, np.full(form.order, size), rows, loss).scaled().form
    hessian = HessianSample(small.measured, small.order, None, seed)
    search = hard_iterates(small, hessian, radius, stiffness, patience=math.inf)
    for found in itertools.islice(search, SEARCH):
        if found.farkas is not None:
            multipliers = np.zeros(form.measured.n_rows)
            multipliers[hard] = found.farkas
            proof = form.farkas(multipliers)
            if proof is not None:
                return proof
        if found.values is None or small.loss.violations(found.values).max() < FEASIBLE:
            break
    return None


class Estimates:
    """Multiplier estimates of hard rows, with the stiffness of these rows."""

    def __init__(self, loss: Loss, stiffness: float, share: float) -> None:
        self.full, self.stiffness, self.share = loss, stiffness, share
        self.references = loss.references
        if not loss.divergence.congruence_invariant:
            # only a barrier bears rows that are stiff because their bounds are small
            self.references = np.maximum(self.references, loss.sizes)
        self.multipliers = np.zeros(len(loss.bounds))
        self.last_change = self.last_violation = np.inf
        self.are_suspect = False

    def loss(self) -> Loss:
        """Of the inner problem."""
        stiffness = self.stiffness / np.square(self.references)
        return self.full.times(self.share).augmented(self.multipliers, stiffness)

    def update(self, dual: Array, violation: float, stiffen: bool) -> None:
        """Take the slopes of an inner solution; stiffen the rows in any case, or where this changes much."""
        new = np.where(self.full.is_hard, dual, 0.0)
        change = float(np.max(np.abs(new - self.multipliers) * self.references, initial=0.0)) / self.stiffness
        if stiffen or change > CONVERGING * self.last_change:
            self.stiffness = min(STIFFER * self.stiffness, STIFFEST)
        grow = np.abs(new).sum() > np.abs(self.multipliers).sum()
        self.are_suspect = bool(grow and violation > STUCK * self.last_violation)
        self.last_change, self.last_violation, self.multipliers = change, violation, new
        self.share = min(1.0, RAISED * self.share)
