"""Newton's method on the dual of a small problem, which solves what is near its prior in a few cheap steps.

For multipliers y the Lagrangian is least at M(y) = (phi')^-1(phi'(prior) - sum_i y_i A_i), so that the dual
is a smooth concave function of m numbers with signs. A step goes straight towards the maximum of its
second-order model under these signs. Far from the prior, and where multipliers have no end, steps get short:
then the method ends, and `interior` is for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearwise._common.types import Array, Index, Mask
from nearwise.model.formulation import Formulation, Iterate, bare_prior_point
from nearwise.solving._looks import first_look, last_look, next_look
from nearwise.solving._mirrors import Inverse, Spectral, mirror_of
from nearwise.solving._written import WrittenForm, WrittenRows

MOST_ROWS = 1000  # for which the method is tried
_FAR, _NEARER = 1e11, 0.1  # a residual that is too large before the first step, and that times it after each
_FALLING = 0.9  # of the residual before a step: what is left of one that may be too large
_OUTSIDE = 3e3  # times the way to the boundary of the domain: a whole step that ends the method
_SHORTEST = 1e-6  # lengths of steps in a row that are not whole, multiplied: where the method ends
_GOOD = 0.1  # times the tolerance: residual of a point that is looked at
_LOOKS = 2  # points that are looked at
_TRIALS = 8  # points along a line
_FLATTER = 0.5  # of the slope at the beginning of a line: a rise at which a step may end
_STEEP = 0.3  # of that slope: what is left of it where a step is doubled
_LONGEST = 64.0  # length of a step that is doubled so often that multipliers seem to have no end
_LEAST, _MOST = 0.1, 0.7  # by how much the next trial is shorter
_INSIDE = 0.5  # the same outside the domain, where it is not known how far that reaches
_RIDGE = 1e-11  # of the model's diagonal, because rows may be dependent
_TOGETHER = 12  # changes of the set of held rows without gain, before rows change one by one
_JOINING, _MOST_CHANGES = 30, 60  # changes after which rows only join that set, and of all
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
        rows = WrittenRows.of(form.measurements)
        run = _Run(WrittenForm(form.divergence, form.prior, rows, form.losses))
        yield bare_prior_point(form, run.values)
        together, looks, far, worth, residual = 1.0, 0, _FAR, first_look(self.tol), math.inf
        while looks < _LOOKS:
            length, far, before = run.advance(), _NEARER * far, residual
            if self.is_patient and length:
                yield run.point()
                continue
            together, residual = together * length if length < 1 else 1.0, run.residual
            if together < _SHORTEST or length >= _LONGEST or residual > max(far, _FALLING * before):
                return
            if residual <= _GOOD * worth:
                yield run.point()
                looks += worth <= last_look(self.tol)
                worth = next_look(worth, self.tol)


def polished(form: WrittenForm, y: Array, tol: float) -> Iterator[Iterate]:
    """The point that a few steps from multipliers next to the best ones lead to, if they lead to one.

    Many rows get none: their systems are as large as they are many.
    """
    if len(y) > MOST_ROWS:
        return
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
    pullback : sum_i y_i A_i; its lower triangle
    matrix : M(y)
    values : of M(y)
    slope : of the dual, with its sign changed: the values that belong to y less those of M(y)
    pushed : phi' of the values that belong to y, of the rows whose slack is the divergence's own
    """

    y: Array
    pullback: Array
    matrix: Inverse | Spectral
    values: Array
    slope: Array
    pushed: Array | None


class _Run:
    """A point, and what does not change on the way."""

    def __init__(self, form: WrittenForm, start: Array | None = None) -> None:
        self.form = form
        losses, divergence = form.losses, form.divergence
        self._sign = -losses.relations.astype(np.float64)
        self._idle_from = np.where(self._sign == 0, np.inf, 0.0)
        self._theta, self._mirror = np.diag(divergence.gradient(form.prior)), mirror_of(divergence)
        self._per_reference = 1 / losses.references
        # how values answer to y: not at all, linearly, or through the divergence where the slack is its own
        self._give: Array | None = None if losses.all_hard else losses.compliance.copy()
        self._own: Index | None = None
        if self._give is not None and len(own := losses.is_bregman.nonzero()[0]):
            self._own, self._own_give = own, self._give[own]
            self._at_bounds = divergence.gradient(losses.bounds[own])
            self._give[own] = 0.0
        self._go_to(self._at_prior() if start is None else self._measured(losses.signed(start)))

    def _go_to(self, at: _At | None) -> None:
        """Make it the current point; its idle rows have no multiplier and want none."""
        self._at = at
        if at is not None:
            self._idle: Mask = (self._sign * at.slope >= self._idle_from) & (at.y == 0)

    @property
    def residual(self) -> float:
        """How far the values are from those that belong to the multipliers, relative to `references`."""
        if self._at is None:
            return np.inf
        off = np.abs(self._at.slope)
        off *= self._per_reference
        off[self._idle] = 0.0
        return float(off.max(initial=0.0))

    @property
    def values(self) -> Array | None:
        """Of the matrix, where it is finite."""
        return None if self._at is None else self._at.values

    def point(self) -> Iterate:
        """What was measured at the current point."""
        assert self._at is not None
        at = self._at
        y = at.y * (self.form.rows.sizes > 0)  # what a matrix cannot change needs no multiplier
        return Iterate(at.matrix.factor, at.values, y, at.pullback, at.matrix.spectrum)

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
            y = at.y + (step if length == 1.0 else length * step)
            if length == 1.0:
                y[held] = 0.0  # which rounding may have missed
            new = self._measured(y)
            if new is None:
                closeness = self._closeness(at, step)
                if closeness > _OUTSIDE:
                    return 0.0
                beyond = min(length, 1 / closeness) if closeness else length
                length = min(_INSIDE * length, 1 / (1 + closeness))
                continue
            after = float(new.slope @ step)
            if after <= -_FLATTER * before:
                new, length = self._lengthened(at, new, step, before, after, length, beyond)
                self._go_to(new)
                return length
            # where the slope would vanish if it changed evenly
            even, beyond = before / (before - after), length
            length *= min(max(even, _LEAST), _MOST)
        return 0.0

    def _closeness(self, at: _At, step: Array) -> float:
        """1 / t for a t up to which a step stays inside the domain, 0 where that is not known.

        At 1 / (1 + closeness) the slope is still negative, however far outside the whole step is: where the
        dual is a sum of logarithms, each of which bends by its own share, that is all of the bend at most.
        """
        found = at.matrix.closeness(self.form.rows.adjoint(step))
        if at.pushed is None:
            return found
        return max(found, self._mirror.reply_closeness(at.pushed, self._own_give * step[self._own]))

    def _lengthened(
        self, at: _At, new: _At, step: Array, before: float, after: float, length: float, beyond: float
    ) -> tuple[_At, float]:
        """Where a step ends, and its length, doubled while much of the slope is left and no sign changes.

        It stays below `beyond`. Where a bound is far from the value, each step halves what is left, as it
        does for the zero of 1 / x - b; to measure costs much less than a step.
        """
        while after < _STEEP * before and 2 * length < beyond:
            y = at.y + 2 * length * step
            further = None if (self._sign * y < 0).any() else self._measured(y)
            if further is None or (after := float(further.slope @ step)) > -_FLATTER * before:
                break
            new, length = further, 2 * length
        return new, length

    def _at_prior(self) -> _At | None:
        """What `_measured` has at y = 0."""
        form, pushed = self.form, None if self._own is None else self._at_bounds
        matrix = self._mirror.at_prior(form.rows, form.divergence, form.prior)
        values = form.rows.shifted(matrix.values())
        slope, none = form.losses.bounds - values, np.zeros(len(values))
        if not math.isfinite(slope.sum()):
            return None
        return _At(none, np.zeros(self._theta.shape), matrix, values, slope, pushed)

    def _measured(self, y: Array) -> _At | None:
        """None outside the domain of the dual."""
        form, belonging, pushed = self.form, self.form.losses.bounds, None
        if self._give is not None:
            belonging = belonging + self._give * y
            if self._own is not None:
                pushed = self._at_bounds + self._own_give * y[self._own]
                if (replies := self._mirror.replies(form.divergence, pushed)) is None:
                    return None
                belonging[self._own] = replies
        pullback = form.rows.adjoint(y)
        matrix = self._mirror.of(form.rows, form.divergence, pullback - self._theta)
        if matrix is None:
            return None
        values = form.rows.shifted(matrix.values())
        slope = belonging - values
        return _At(y, pullback, matrix, values, slope, pushed) if math.isfinite(slope.sum()) else None

    def _step(self, at: _At) -> tuple[Array, Mask] | None:
        """To the optimum of the second-order model, and where y is held at 0; None where none is found."""
        hessian, give = at.matrix.hessian(), self._give
        if give is not None and self._own is not None:
            give = give.copy()
            give[self._own] = self._own_give * self._mirror.reply_slopes(self.form.divergence, at.pushed)
        diagonal = hessian.reshape(-1)[:: len(hessian) + 1]
        diagonal *= 1 + _RIDGE
        if give is not None:
            diagonal += give
        diagonal += _SMALLEST
        return self._least(hessian, at.slope, at.y, self._idle)

    def _least(self, H: Array, g: Array, y: Array, held: Mask) -> tuple[Array, Mask] | None:
        """The d that minimises g d + d H d / 2 with signs of y + d, and the rows at 0: by active sets.

        The first guess of these is `held`, where y is 0. Where they come to no end, signs are right and some
        rows at 0 may be better elsewhere, which is for the next step.
        """
        d, moved = np.zeros(len(g)), g
        fewest, patience = len(g) + 1, _TOGETHER
        for change in range(_MOST_CHANGES):
            loose = (~held).nonzero()[0]
            if len(loose) == len(g) > 0:
                _, d, failed = lapack.dposv(H, -g, lower=1, overwrite_b=1)
                side = y + d
            else:
                failed = 0
                if len(loose):
                    part = H.take(loose, 0).take(loose, 1).T
                    _, found, failed = lapack.dposv(
                        part, -moved.take(loose), lower=1, overwrite_a=1, overwrite_b=1
                    )
                    d[loose] = found
                side = H @ d
                side += g
                if len(loose):
                    side[loose] = y.take(loose) + found
            if failed:
                return None
            side *= self._sign
            wrong = side < 0
            count = int(np.count_nonzero(wrong))
            if not count:
                return d, held
            patience = _TOGETHER if count < fewest else patience - 1
            fewest = min(fewest, count)
            if change >= _JOINING:  # rounding may decide what is wrong
                wrong &= ~held
                if not wrong.any():
                    return d, held
            elif patience <= 0:  # they may go round in a circle together
                wrong[: wrong.nonzero()[0][-1]] = False
            held = held ^ wrong
            d = -y
            d *= held
            moved = g + H @ d if d.any() else g
        return None
