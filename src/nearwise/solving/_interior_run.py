"""One run of the interior-point method, from its first point on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array
from nearwise.model.divergences import Frobenius, LogDet
from nearwise.model.formulation import Iterate
from nearwise.solving._interior_system import OrthogonalSystem, System
from nearwise.solving._scalings import MatrixStep, Scaling, start_sizes
from nearwise.solving._slacks import Slacks, SlackStep
from nearwise.solving._written import WrittenForm, packing

WINDOW = 10  # steps over which progress is judged, and after which a point is looked at in any case
_QUICK = 100_000  # numbers in the rows, up to which that may wait for another ten steps
_BACK = 0.98  # share of the way to the boundary
_FARTHEST = 0.998  # the same where a straight step shows that nothing is in the way
_LONG = 0.5  # a good point is the end of a step as long as that
_SMALLEST = 1e-15
_SHORT = 0.3  # a step below that is tried again with more centring
_CENTRING = (0.5, 0.9)  # of M Z: what is left of it then
_CURVED = 0.1  # a straight step below that says nothing of the second order
_WORTH = 10.0  # times the tolerance: complementarity from which on a point may be good
_CLOSE = 3.0  # times the tolerance: the same, and violation, from which on one is looked at
_BLOCKED = 0.003  # length of a step, two of which in a row end a run
_SPENT = 1e-20  # complementarity beside that of rounding, where nothing is left to gain
_SLOW = 0.5  # sum of the lengths of so many steps, below which a run is given up
_UNCHANGED = 0.9  # of the complementarity so many steps ago: they gain nothing
_MANY_STEPS, _STEADY = 50, 4.0  # after so many steps, the sum below which it is given up
_MOST_STEPS = 150
_REFINEMENTS = 1


class _Step(NamedTuple):
    matrix: MatrixStep
    slacks: SlackStep


class Run:
    """The state of a run.

    Parameters
    ----------
    form : what is solved
    enlarged : by how much the multipliers are larger than at the usual first point
    turn : T, where the first point is a multiple of T T^T; of I by default
    larger_matrix : by how much it is larger than at the usual first point
    orthogonal : in how many multiplications, at most, systems are solved by an orthogonal factorisation
    together : whether what is left of the conditions falls no faster than M Z

    Attributes
    ----------
    scaling, slacks : the matrix and the rows
    values : <A_i, M>
    lengths : of the steps so far, times the share of the conditions that each was to make up for
    """

    @np.errstate(all="ignore")
    def __init__(
        self,
        form: WrittenForm,
        enlarged: float,
        turn: Array | None = None,
        larger_matrix: float = 1.0,
        orthogonal: float = 0.0,
        together: bool = False,
    ) -> None:
        self._stated, self._turn = form, None
        shape = np.eye(len(form.prior)) if turn is None else turn
        rows = form.rows if turn is None else form.rows.turned(turn)
        sizes = rows.sizes
        if turn is not None and isinstance(form.divergence, LogDet):
            # the same problem, by KSD09 proposition 12
            self._turn, shape = turn, np.eye(len(form.prior))
            form = WrittenForm(form.divergence, form.prior / np.sum(turn**2, axis=0), rows, form.losses)
        self._form, self._packing = form, packing(len(form.prior))
        primal, dual = start_sizes(form, sizes)
        primal *= larger_matrix
        steepest = float(np.sum(shape**2, axis=0).max())
        dual *= enlarged * steepest * (steepest if isinstance(form.divergence, Frobenius) else 1.0)
        least = 1 / form.prior if isinstance(form.divergence, LogDet) else 0.0
        Z = np.maximum(np.full(len(shape), dual), least)
        inverse = shape if turn is None or self._turn is not None else np.linalg.inv(shape).T
        self.scaling = Scaling(form, np.sqrt(primal) * shape, inverse * np.sqrt(Z))
        self._measure()
        self.slacks = Slacks(form, self.values, primal, dual, sizes)
        # primal and dual go different ways only where neither meets the other outside of products
        self._apart = isinstance(form.divergence, LogDet) and not self.slacks.any_linear
        self.lengths: list[float] = []
        self._mus: list[float] = []
        self._is_spent = False
        self._left, self._together = 1.0, together
        fits = len(self.values) > 0 and OrthogonalSystem.work(*self._rows.shape) <= orthogonal
        self._system: type[System | OrthogonalSystem] = OrthogonalSystem if fits else System

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def mu(self) -> float:
        """The mean of s |y| and of the eigenvalues of M Z, above what the divergence itself asks for."""
        return self._mu(self.slacks.product, self.scaling.mu)

    @property
    def is_promising(self) -> bool:
        least = _SLOW if self.count < _MANY_STEPS else _STEADY
        slow = self.count >= WINDOW and sum(self.lengths[-WINDOW:]) < least
        return not (slow or self._gains_nothing or self._is_spent) and self.count < _MOST_STEPS

    @property
    def is_blocked(self) -> bool:
        """Whether the last two steps were so short that further ones hardly ever lead to the end."""
        return self.count > 1 and max(self.lengths[-2:]) < _BLOCKED

    @property
    def is_stuck(self) -> bool:
        """Whether steps are so short, or gain so little, that rows may contradict each other."""
        return self._gains_nothing or (self.count >= 6 and max(self.lengths[-2:]) < _SHORT)

    @property
    def _gains_nothing(self) -> bool:
        return self.count > WINDOW and self._mus[-1] > _UNCHANGED * self._mus[-WINDOW]

    def is_worth_a_look(self, tol: float, unit: float) -> bool:
        """Whether the point may be good: what is left to do is little beside what the multipliers do.

        A certificate takes as long as a step or two, so the objective is estimated first.
        """
        order = self.scaling.order
        left = self.slacks.product + order * self.scaling.mu
        done = max(float(np.abs(self.slacks.y) @ np.abs(self.values)), order * unit)
        self._is_spent = 0.0 < left <= _SPENT * done  # it is zero all along where nothing is an inequality
        if self.count % WINDOW == 0 and (self.count > WINDOW or self._rows.size > _QUICK):
            return True
        if left > _WORTH * tol * done or self.lengths[-1] < _LONG:
            return False
        losses = self._stated.losses
        if losses.any_hard and losses.violated(self.values).hard > _WORTH * tol:
            return False
        objective = self.scaling.distance + losses.total(self.values)
        return not left > _CLOSE * tol * max(objective, _SMALLEST * order * unit)

    def point(self) -> Iterate:
        """What was measured at the current point."""
        factor, y = self.scaling.factor, self._form.losses.signed(self.slacks.y)
        y = y * (self._stated.rows.sizes > 0)  # what a matrix cannot change needs no multiplier
        factor = factor if self._turn is None else self._turn @ factor
        rows = self._stated.rows
        return Iterate(factor, rows.values(factor), y, rows.adjoint(y))

    def advance(self) -> bool:
        """One step; False where rounding allows no more."""
        try:
            return self._advance()
        except np.linalg.LinAlgError:
            return False

    def _advance(self) -> bool:
        scaling, slacks = self.scaling, self.slacks
        packed, unpacked = self._packing.packed, self._packing.unpacked
        residual = scaling.residual(unpacked(self._rows @ slacks.y))
        system = self._system(scaling.whitened(self._rows), slacks.prepare(self.values))

        def solve(
            mu: float,
            share: float,
            of_slacks: SlackStep | None,
            of_matrix: MatrixStep | None,
            refinements: int,
        ) -> _Step:
            aim, both = slacks.aim(mu, of_slacks, share), scaling.both(mu, of_matrix)
            dy, D = system.solve(scaling.whitened(packed(both - share * residual)), aim.e, refinements)
            change = unpacked(scaling.unwhitened(D))
            return _Step(MatrixStep(change, both - change), slacks.change(dy, aim))

        step, primal, dual, gain = self._chosen(solve)
        moved = scaling.moved(step.matrix, primal, dual)
        if moved is None:
            return False
        slacks.move(step.slacks, primal, dual)
        self.scaling = moved
        self.lengths.append(gain)
        self._left *= 1 - gain
        self._measure()
        return math.isfinite(self.values.sum()) and math.isfinite(slacks.y.sum())

    def _chosen(self, solve: Callable[..., _Step]) -> tuple[_Step, float, float, float]:
        """A step, its lengths and what it gains: with second-order terms, or else with more centring."""
        mu = self.mu
        self._mus.append(mu)
        straight = solve(0.0, 1.0, None, None, 0)  # only to aim by
        primal, dual = self._lengths(straight, 1.0)
        after = self._mu(
            self.slacks.product_after(straight.slacks, primal, dual),
            self.scaling.mu_after(straight.matrix, primal, dual),
        )
        aim = mu * min(1.0, after / mu) ** 3 if mu > 0 else 0.0
        curved = straight.matrix if min(primal, dual) > _CURVED else None
        share = self._share(aim)
        best = solve(aim, share, straight.slacks, curved, _REFINEMENTS)
        lengths = self._lengths(best, min(max(1 - aim / mu, _BACK), _FARTHEST) if mu > 0 else _BACK)
        gain = share * min(lengths)
        if gain < _SHORT:
            for centring in _CENTRING:
                share = self._share(centring * mu)
                other = solve(centring * mu, share, None, None, _REFINEMENTS)
                others = self._lengths(other, _BACK)
                if share * min(others) > gain:
                    best, lengths, gain = other, others, share * min(others)
        return best, *lengths, gain

    def _share(self, aim: float) -> float:
        """Of what is left of the conditions, how much a step is to make up for that leaves M Z at `aim`.

        All of it, which is the shortest way where it leads to the end. Where conditions are met long before
        M Z is small, the way is narrow: M and Z get near the boundary, and the steps short. So in some runs
        both fall together from where the conditions get ahead.
        """
        mu, first = self._mus[-1], self._mus[0]
        is_ahead = self._together and 0 < self._left * first <= mu
        return 1 - aim / mu if is_ahead else 1.0

    def _lengths(self, step: _Step, share: float) -> tuple[float, float]:
        M, Z = self.scaling.longest(step.matrix)
        first, second = self.slacks.longest(step.slacks)
        primal, dual = min(1.0, share * min(M, first)), min(1.0, share * min(Z, second))
        return (primal, dual) if self._apart else (min(primal, dual),) * 2

    def _mu(self, of_rows: float, of_matrix: float) -> float:
        order = self.scaling.order
        return (of_rows + order * of_matrix) / (self.slacks.count + order)

    def _measure(self) -> None:
        self._rows = self._form.rows.in_basis(self.scaling.basis)
        self.values = self._form.rows.shifted(self._packing.packed(self.scaling.local) @ self._rows)
