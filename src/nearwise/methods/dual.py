"""Newton's method on the dual: a few cheap steps that solve small problems near their prior.

For multipliers y the Lagrangian is least at M^(y) = argmin phi(M) - <theta(y), M> over M >= 0, where
theta(y) = phi'(prior) - sum_i y_i A_i. The dual problem is to minimise, over y of the right signs,

    phi*(theta(y)) + sum_i conjugate_i(y_i),      with the gradient      reply_i(y_i) - <A_i, M^(y)>:

the bound after it gave way to y_i, less the value. Its Hessian is the Gram matrix of the rows in the local
coordinates of M^(y), plus the compliance of soft rows. A step:

1. Hold at 0 the multipliers that are 0 and whose gradient leads to the wrong sign.
2. Solve Hessian dy = -gradient for the others. Hold those that would change sign, release held ones that the
   model's gradient now leads to the right sign, and solve again, until neither happens (active sets).
3. Shorten the step until the slope along it rises at most half as steeply as it fell at the beginning.

Far from the prior, residuals fall too slowly, and the method ends: `interior` is for that. Where hard rows
contradict each other, multipliers grow without end in proportions that prove it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.linalg.packing import packing

FARTHEST = 1e5  # residual before the first step; half of it before each further one, or the run ends
PROMISING = 1e-5  # residual at which a certificate may hold; larger values only cost certificates
RIDGE = 1e-13  # of the Hessian's diagonal, because rows may be dependent; 1e-14 to 1e-12 solve as many
CHANGES = 10  # of the set of rows at 0 in a step; 3 solves a tenth less, 20 no more
SHORTEST = 1e-3  # step; 1e-5 solves 3 % more, and takes longer where the method fails
OUTSIDE = 0.35  # of a step that leads out of the domain: the next length
RISE = 0.5  # of the slope at the beginning of a step: up to which it may have risen at the end
TINY = 1e-300


@dataclass(frozen=True)
class DualNewton:
    """Newton's method on the dual, for problems with few rows near their prior.

    Parameters
    ----------
    steps : after which the method ends
    """

    steps: int = 30

    def iterates(self, form: Formulation, start: Array | None = None) -> Iterator[Iterate]:
        """The start or the prior, then minimisers of the Lagrangian that are almost optimal, from y = 0 on.

        Where the run ends without one, its last multipliers are suspected to prove a contradiction.
        """
        here = _at(form, np.zeros(form.rows.n_rows))
        if start is not None or here is None:
            yield Iterate(np.diag(np.sqrt(np.maximum(form.prior, 0.0))) if start is None else start)
        else:
            yield here.iterate()
        for count in range(self.steps + 1):
            if here is None:
                return
            residual = here.residual(form)
            if count and residual < PROMISING:
                yield here.iterate()
            if residual == 0.0:
                return
            step, there = np.zeros(form.rows.n_rows), None
            if count < self.steps and residual < FARTHEST * 0.5**count:
                step = _step(form, here)
                there = _searched(form, here, step)
            if there is None and form.loss.any_hard:
                yield replace(here.iterate(), farkas=here.y + step)
            here = there


class _Point(NamedTuple):
    """Multipliers, M^(y) = factor factor^T, and the dual's gradient, replies less values.

    In the coordinates of `basis`, the Hessian of phi* is elementwise weights**2; None for ones.
    """

    y: Array
    factor: Array
    basis: Array
    weights: Array | None
    values: Array
    replies: Array
    gradient: Array

    def iterate(self) -> Iterate:
        return Iterate(self.factor, self.y, values=self.values)

    def residual(self, form: Formulation) -> float:
        """The gradient where a step may follow it, relative to what violations are relative to."""
        free = (self.y != 0) | (form.loss.signed(-self.gradient) != 0)
        return float(np.max(np.abs(self.gradient) * free / form.loss.references, initial=0.0))


def _at(form: Formulation, y: Array) -> _Point | None:
    """None outside of the dual's domain."""
    found = form.divergence.minimiser(form.theta(form.rows.adjoint(y)))
    if found is None:
        return None
    factor, basis, weights = found
    values, replies = form.rows.values(factor), form.loss.reply(y)
    gradient = replies - values
    if not math.isfinite(gradient.sum()):
        return None
    return _Point(y, factor, basis, weights, values, replies, gradient)


def _step(form: Formulation, here: _Point) -> Array:
    """1, 2. To the minimum of the second-order model, as far as rounding allows."""
    rows, loss, y, gradient = form.rows, form.loss, here.y, here.gradient
    if here.weights is None:
        hessian = rows.transformed(here.basis).gram()
    else:
        packed = rows.packed(here.basis)
        packed *= here.weights.take(packing(len(here.basis)).flat)[:, None]
        hessian = packed.T @ packed
    raised = RIDGE * hessian.diagonal() + TINY
    for some, slack in loss.groups:
        raised[some] += 1 / slack.curvature(here.replies[some])
    hessian.flat[:: len(y) + 1] += raised
    held = (y == 0) & (loss.signed(-gradient) == 0)
    for _ in range(CHANGES):
        step = np.where(held, -y, 0.0)
        free = np.flatnonzero(~held)
        part, right = hessian.take(free, 0).take(free, 1), (gradient + hessian @ step)[free]
        _, change, failed = lapack.dposv(part, -right, lower=1) if len(free) else (None, right, 0)
        if failed:
            break
        step[free] = change
        wrong = np.where(held, gradient + hessian @ step, y + step) * loss.relations > 0
        if not wrong.any():
            break
        held = held ^ wrong
    return step


def _searched(form: Formulation, here: _Point, step: Array) -> _Point | None:
    """3. Where a step ends; None where it does not lead down or gets too short."""
    length = 1.0
    while length > SHORTEST:
        move = form.loss.signed(here.y + length * step) - here.y
        before = float(here.gradient @ move)
        if not before < 0:
            return None
        if (there := _at(form, here.y + move)) is None:
            length *= OUTSIDE
            continue
        after = float(there.gradient @ move)
        if after <= RISE * -before:
            return there
        length *= min(max(before / (before - after), 0.1), 0.7)
    return None
