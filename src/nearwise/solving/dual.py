"""Newton's method on the dual of a small problem, which solves what is near its prior in a few cheap steps.

For multipliers y the Lagrangian is least at M(y) = (phi')^-1(phi'(prior) - sum_i y_i A_i), so that the dual
is a smooth concave function of m numbers with signs. A step goes straight towards the maximum of its
second-order model under these signs. Far from the prior, and where multipliers have no end, steps get short:
then the method ends, and `interior` is for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array, Index, Mask
from nearwise.model.divergences import Frobenius, LogDet, divided_differences
from nearwise.model.formulation import Formulation, Iterate, bare_prior_point
from nearwise.solving._written import WrittenForm, WrittenRows

_FAR, _NEARER = 1e11, 0.1  # a residual that is too large before the first step, and that times it after each
_SHORT, _MOST_SHORT = 0.1, 3  # length of a step, and how many such in a row end the method
_GOOD = 0.1  # times the tolerance: residual of a point that is looked at
_LOOKS = 2  # points that are looked at
_SLIGHTLY = 1e-4  # how far a bound may be above the objective of the last one, whose violations are as small
_TRIALS = 8  # points along a line
_FLATTER = 0.5  # of the slope at the beginning of a line: a rise at which a step may end
_STEEP, _LONGEST = (
    0.3,
    64.0,
)  # of that slope: what is left of it where a step is doubled, and how long it gets
_LEAST, _MOST = 0.1, 0.7  # by how much the next trial is shorter
_RIDGE = 1e-11  # of the model's diagonal, because rows may be dependent
_TOGETHER = 12  # changes of the set of held rows without gain, before rows change one by one
_MOST_CHANGES = 60
_POLISHING = 3  # steps
_SMALLEST = 1e-300


@dataclass(frozen=True)
class DualNewton:
    """Newton's method on the dual, for problems with few rows.

    Parameters
    ----------
    tol : the tolerance of the run; points that cannot be that good yet are kept back
    is_patient : whether to go on through short steps and far points, none of which is kept back, for problems
        that no other method suits better
    """

    tol: float = 1e-6
    is_patient: bool = False

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior, then a point that is likely to be the optimum; none where the method finds none."""
        yield bare_prior_point(form)
        rows = WrittenRows.of(form.measurements)
        run = _Run(WrittenForm(form.divergence, form.prior, rows, form.losses))
        short, looks, far = 0, 0, _FAR
        while looks < _LOOKS:
            length, far = run.advance(), _NEARER * far
            short = short + 1 if length < _SHORT else 0
            if self.is_patient and length:
                yield run.point()
                continue
            residual = run.residual
            if not length or short == _MOST_SHORT or residual > far:
                return
            if residual <= _GOOD * self.tol:
                looks += 1
                yield run.point()
        if form.losses.any_hard:  # rounding lets it come no nearer to these
            yield replace(run.point(), may_lead=_SLIGHTLY)


def polished(form: WrittenForm, y: Array, tol: float) -> Iterator[Iterate]:
    """The point that a few steps from multipliers next to the best ones lead to, if they lead to one."""
    run = _Run(form, y)
    for _ in range(_POLISHING):
        if not run.advance():
            break
    if run.residual <= tol:
        yield run.point()


class _At(NamedTuple):
    """What is known at multipliers y.

    Attributes
    ----------
    pullback : sum_i y_i A_i
    x, Q : eigenvalues and eigenvectors of M(y); t are those of its gradient
    left, right : the vectors of the constraints in that basis
    values : of M(y)
    slope : of the dual, with its sign changed: the values that belong to y less those of M(y)
    """

    y: Array
    pullback: Array
    t: Array
    Q: Array
    x: Array
    left: Array
    right: Array
    values: Array
    slope: Array


class _Run:
    """A point, and what does not change on the way."""

    def __init__(self, form: WrittenForm, start: Array | None = None) -> None:
        self.form = form
        losses, divergence = form.losses, form.divergence
        self._sign = -losses.relations.astype(np.float64)
        self._signed: Mask = self._sign != 0
        self._theta = np.diag(divergence.gradient(form.prior))
        self._per_reference = 1 / losses.references
        # how values answer to y: linearly, or through the divergence where the slack is its own
        self._own: Index = np.flatnonzero(losses.is_bregman)
        self._at_bounds = divergence.gradient(losses.bounds[self._own])
        self._give = losses.compliance
        self._own_give = self._give[self._own]
        if len(self._own):
            self._give = np.where(losses.is_bregman, 0.0, self._give)
        self._at = self._measured(np.zeros(len(losses.bounds)) if start is None else losses.signed(start))

    @property
    def residual(self) -> float:
        """How far the values are from those that belong to the multipliers, relative to `references`."""
        at = self._at
        if at is None:
            return np.inf
        off = np.abs(at.slope) * self._per_reference
        off[(at.y == 0) & (self._sign * at.slope >= 0) & self._signed] = 0.0
        return float(off.max(initial=0.0))

    def point(self) -> Iterate:
        """What was measured at the current point."""
        assert self._at is not None
        at = self._at
        y = at.y * (self.form.rows.sizes > 0)  # what a matrix cannot change needs no multiplier
        return Iterate(at.Q * np.sqrt(at.x), at.values, y, at.pullback, (at.x, at.Q))

    def advance(self) -> float:
        """One step; its length, which is 0 where there is none."""
        at = self._at
        if at is None or (found := self._step(at)) is None:
            return 0.0
        step, held = found
        before, length, beyond = float(at.slope @ step), 1.0, 2 * _LONGEST
        if not before < 0:
            return 0.0
        for _ in range(_TRIALS):
            y = at.y + length * step
            if length == 1.0:
                y[held] = 0.0  # which rounding may have missed
            new = self._measured(y)
            after = np.inf if new is None else float(new.slope @ step)
            if new is not None and after <= -_FLATTER * before:
                self._at = new
                return self._lengthened(at, step, before, after, length, beyond)
            # where the slope would vanish if it changed evenly; outside the domain nothing is known
            even, beyond = 0.5 if new is None else before / (before - after), length
            length *= min(max(even, _LEAST), _MOST)
        return 0.0

    def _lengthened(
        self, at: _At, step: Array, before: float, after: float, length: float, beyond: float
    ) -> float:
        """The length of a step, doubled while much of the slope is left and no sign changes; below `beyond`.

        Where a bound is far from the value, each step halves what is left, as it does for the zero of
        1 / x - b; to measure costs much less than a step.
        """
        while after < _STEEP * before and 2 * length < beyond:
            y = at.y + 2 * length * step
            new = None if (self._sign * y < 0).any() else self._measured(y)
            if new is None or (after := float(new.slope @ step)) > -_FLATTER * before:
                break
            self._at, length = new, 2 * length
        return length

    def _measured(self, y: Array) -> _At | None:
        """None outside the domain of the dual."""
        divergence, rows, own = self.form.divergence, self.form.rows, self._own
        pullback = rows.adjoint(y)
        t, Q, failed = lapack.dsyevd(self._theta - pullback)
        x = divergence.gradient_inverse(t)
        if failed or not np.isfinite(x.sum()):
            return None
        left, right = rows.vectors_in(Q)
        belonging = self.form.losses.bounds + self._give * y
        if len(own):
            belonging[own] = divergence.gradient_inverse(self._at_bounds + self._own_give * y[own])
        values = rows.shifted(rows.per_row(x @ (left * right)))
        slope = belonging - values
        if not np.isfinite(slope.sum()):
            return None
        return _At(y, pullback, t, Q, x, left, right, values, slope)

    def _step(self, at: _At) -> tuple[Array, Mask] | None:
        """To the optimum of the second-order model, and where y vanishes there; None where none is found."""
        scaled = self.form.rows.packed(at.left, at.right, np.sqrt(self._slopes(at)))
        hessian = scaled.T @ scaled
        give = self._give
        if len(own := self._own):
            give = give.copy()
            replies = self._at_bounds + self._own_give * at.y[own]
            give[own] = self._own_give * self.form.divergence.gradient_inverse_slope(replies)
        diagonal = (1 + _RIDGE) * hessian.diagonal() + give + _SMALLEST
        scale = 1 / np.sqrt(diagonal)
        hessian *= scale[:, None]
        hessian *= scale
        hessian.flat[:: len(hessian) + 1] = 1.0
        if not np.isfinite(hessian.sum()):
            return None
        found = self._least(hessian, at.slope * scale, at.y / scale)
        return None if found is None else (found[0] * scale, found[1])

    def _slopes(self, at: _At) -> Array:
        """Of M(y), by its gradient, in the basis Q: divided differences of (phi')^-1."""
        if isinstance(self.form.divergence, LogDet):
            return np.asarray(at.x[:, None] * at.x)
        if isinstance(self.form.divergence, Frobenius):
            size = np.abs(at.t)
            return (at.x[:, None] + at.x) / np.maximum(size[:, None] + size, _SMALLEST)
        return divided_differences(self.form.divergence, at.t)

    def _least(self, H: Array, g: Array, y: Array) -> tuple[Array, Mask] | None:
        """The d that minimises g d + d H d / 2 with signs of y + d, and the rows at 0: by active sets."""
        sign = self._sign
        held = self._signed & (sign * y <= 0) & (sign * g >= 0)
        fewest, patience = len(g) + 1, _TOGETHER
        for _ in range(_MOST_CHANGES):
            d = np.where(held, -y, 0.0)
            loose = np.flatnonzero(~held)
            if len(loose) == len(g):
                _, d, failed = lapack.dposv(H, -g, lower=1)
            elif len(loose):
                moved = -(g + H @ d) if d.any() else -g
                _, d[loose], failed = lapack.dposv(H[loose[:, None], loose], moved[loose], lower=1)
            else:
                failed = 0
            if failed:
                return None
            wrong = sign * np.where(held, H @ d + g, y + d) < 0
            count = int(np.count_nonzero(wrong))
            if not count:
                return d, held
            patience = _TOGETHER if count < fewest else patience - 1
            fewest = min(fewest, count)
            if patience <= 0:  # they may go round in a circle together
                wrong[: np.flatnonzero(wrong)[-1]] = False
            held = held ^ wrong
        return None
