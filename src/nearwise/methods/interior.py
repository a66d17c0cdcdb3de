"""A primal-dual interior-point method for problems whose rows can be written out.

With phi(x) = -w log x + rest(x), these are the conditions of optimality of D(M, M0) + sum_i loss_i(p_i) over
M >= 0, p_i = <A_i, M> + offset_i, at mu = 0; with mu > 0 they define the central path:

    Z = rest'(M) - phi'(M0) + sum_i y_i A_i,        M Z = max(mu, w) I                          (1)
    p_i + sign_i s_i = xi_i,                        s_i |y_i| = mu                              (2)
    xi_i = reply_i(y_i)                                                                         (3)

where s_i > 0 is the slack of an inequality (sign +1 for "<=", -1 for ">="), and xi_i the bound after it gave
way to y_i: where a soft row's loss has the slope y_i, and the bound itself for a hard row. A step:

1. Scale: the coordinates of Nesterov and Todd, in which M and Z are the same matrix (`interior_system`).
2. Residuals of (1), (2) and (3). Replies are linearised by chords, which is the same scaling for numbers.
3. Predictor: Newton's step to mu = 0. How far it leads decides which mu to aim at (Mehrotra).
4. Corrector: Newton's step to that mu, with the second-order terms of the predictor.
5. Length: M, Z, s, |y|, replies and what multipliers have left to their largest value stay positive.
6. Move.

No point of a run need be feasible, so that runs start far inside (`interior_start`). Where rows contradict
each other, multipliers grow in proportions that prove it; `feasibility` finds those that a run does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from nearwise._common.types import Array, Mask
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.linalg.packing import Packing, packing
from nearwise.methods.feasibility import FEASIBLE, least_violation
from nearwise.methods.interior_start import First, first_points
from nearwise.methods.interior_system import RowState, Scaling, System

# Measured on 1,800 random problems (bench decide); a range means that results are alike in it.
BACK = 0.98  # of the way to the boundary: 0.9 to 0.99
CURVED = 0.1  # length of a predictor, below which its second-order terms only mislead
MOST_STEPS = 100  # of a run: most end after 10 to 40, and 60 decide 0.5 % less
WINDOW, SLOW = 10, 0.5  # a run whose last ten lengths add up to less hardly ever recovers
SPENT = 1e-20  # relative size of all products: no digit changes any more
CLOSE = 10.0  # times the tolerance: an estimated gap at which a certificate may hold; 1 to 10
EVERY = 10  # steps after which an iterate is yielded whatever it is like, because runs may be cut off
SHORT, OFTEN = 0.3, 4  # two steps as short suggest a contradiction; it is suspected at every fourth of them
CONVERGED = 1e-10  # mu at which the search for Farkas multipliers has come to its end


@dataclass(frozen=True)
class InteriorPoint:
    """The interior-point method, for every divergence and every kind of row.

    Parameters
    ----------
    tol : the tolerance of the run; iterates far from it are mostly kept back, as a certificate takes as long
        as a step
    """

    tol: float = 1e-6

    def iterates(self, form: Formulation, start: Array | None = None) -> Iterator[Iterate]:
        """The start or the prior, which the runs take no notice of; then iterates of three runs.

        After the first comes a search for a contradiction of the hard rows.
        """
        prior = np.diag(np.sqrt(np.maximum(form.prior, 0.0)))
        yield Iterate(prior if start is None else start)
        for number, first in enumerate(first_points(form)):
            yield from self._run(form, first)
            if number == 0 and form.loss.any_hard:
                yield from _suspicions(form)

    def _run(self, form: Formulation, first: First) -> Iterator[Iterate]:
        """Iterates that may be good enough, every tenth, the last one, and suspicions of a contradiction."""
        path, short, point = CentralPath(form), 0, None
        for count, point in enumerate(path.follow(first)):
            short = short + 1 if point.length < SHORT else 0
            is_stuck = short > 1 and count % OFTEN == 0
            if is_stuck or count % EVERY == EVERY - 1 or path.may_be_optimal(point, self.tol):
                yield path.iterate(point, is_stuck)
        if point is not None:
            yield path.iterate(point, True)


def _suspicions(form: Formulation) -> Iterator[Iterate]:
    """Multipliers of the least squares of violations, which prove a contradiction if there is one."""
    search = least_violation(form)
    path = CentralPath(search.form)
    for count, point in enumerate(path.follow(next(first_points(search.form)))):
        if count % OFTEN == OFTEN - 1:
            farkas = np.zeros(form.rows.n_rows)
            farkas[search.hard] = point.rows.dual
            yield Iterate(search.transform @ point.scaling.factor, farkas=farkas)
        violations = search.loss.violations(point.values)
        if point.mu <= CONVERGED or violations.max() <= FEASIBLE:
            return


class Point(NamedTuple):
    """A point of a run.

    Attributes
    ----------
    columns : (q, m), G^T A_i G packed
    values : p
    mu : mean of the products in (1) and (2)
    length : of the step that led here
    """

    scaling: Scaling
    rows: RowState
    columns: Array
    values: Array
    mu: float
    length: float


class Step(NamedTuple):
    """Changes of X as M has it, of X as Z has it, and of the rows."""

    D: Array
    E: Array
    slack: Array
    dual: Array
    reply: Array


@dataclass(frozen=True, eq=False)
class CentralPath:
    """The conditions of optimality of a formulation, and the way along them."""

    form: Formulation

    @cached_property
    def sign(self) -> Array:
        """Of slacks and multipliers; 0 for an equality."""
        return -self.form.loss.relations.astype(np.float64)

    @cached_property
    def is_inequality(self) -> Mask:
        return self.form.loss.relations != 0

    @cached_property
    def n_products(self) -> int:
        """How many numbers mu is the mean of."""
        return int(self.is_inequality.sum()) + self.form.order

    @cached_property
    def packing(self) -> Packing:
        return packing(self.form.order)

    def follow(self, first: First) -> Iterator[Point]:
        """The first point, then one per step, until rounding allows no more or nothing moves any more."""
        lengths: list[float] = []
        with suppress(np.linalg.LinAlgError):
            yield (point := self._scaled(first.L, first.N, first.rows, 0.0))
            while np.isfinite(point.values).all() and np.isfinite(point.rows.dual).all():
                yield (point := self._next(point))
                lengths.append(point.length)
                is_slow = len(lengths) >= WINDOW and sum(lengths[-WINDOW:]) < SLOW
                if is_slow or len(lengths) == MOST_STEPS or 0.0 < self.left(point) <= SPENT:
                    return

    def left(self, point: Point) -> float:
        """What the products add up to, relative to what multipliers do or to the unit of the objective."""
        done = float(np.abs(point.rows.dual) @ np.abs(point.values))
        return point.mu * self.n_products / max(done, self.form.order * self.form.unit)

    def may_be_optimal(self, point: Point, tol: float) -> bool:
        """Whether little is left to do, and hard rows hold."""
        if self.left(point) > CLOSE * tol:
            return False
        return not self.form.loss.any_hard or self.form.loss.at(point.values).hard_violation <= CLOSE * tol

    def iterate(self, point: Point, is_suspicious: bool) -> Iterate:
        """A point as `solve` takes it; with its multipliers as a suspicion of a contradiction."""
        loss, y = self.form.loss, point.rows.dual
        return Iterate(
            point.scaling.factor,
            loss.signed(y),
            farkas=y if is_suspicious and loss.any_hard else None,
        )

    def _scaled(self, L: Array, N: Array, rows: RowState, length: float) -> Point:
        """1. Scale: the point with M = L L^T and Z = N N^T."""
        form = self.form
        scaling = Scaling.of(form.divergence, form.prior, L, N)
        columns = form.rows.packed(scaling.primal)
        values = self.packing.pack(scaling.matrix) @ columns
        if form.rows.offsets is not None:
            values = values + form.rows.offsets
        mu = self._mu(float(scaling.d @ scaling.d), rows.slack * np.abs(rows.dual))
        return Point(scaling, rows, columns, values, mu, length)

    def _next(self, point: Point) -> Point:
        newton = _Newton.at(self, point)  # 2
        predictor = newton.step(0.0)  # 3
        length = self._length(point, predictor, 1.0)
        left = self._mu_after(point, predictor, length)
        aim = point.mu * min(1.0, left / point.mu) ** 2 if point.mu > 0 else 0.0
        step = newton.step(aim, predictor if length > CURVED else None, refinements=1)  # 4
        length = self._length(point, step, BACK)  # 5
        return self._moved(point, step, length)

    def _length(self, point: Point, step: Step, share: float) -> float:
        """5. A share of the way to the boundary, at most 1."""
        rows, loss, inequality = point.rows, self.form.loss, self.is_inequality
        positive = loss.is_positive
        relative = np.concatenate(
            [
                step.slack[inequality] / rows.slack[inequality],
                step.dual[inequality] / rows.dual[inequality],
                step.reply[positive] / rows.reply[positive],
                -step.dual[positive] / (loss.largest - rows.dual)[positive],
            ]
        )
        steepest = float(np.fmin.reduce(relative, initial=0.0))
        of_rows = -1 / steepest if steepest < 0 else np.inf
        of_matrices = min(point.scaling.to_boundary(step.D), point.scaling.to_boundary(step.E))
        return min(1.0, share * of_rows, share * of_matrices)

    def _moved(self, point: Point, step: Step, t: float) -> Point:
        """6. Move."""
        rows = point.rows
        L, N = point.scaling.moved(t * step.D, t * step.E)
        slack = np.where(self.is_inequality, rows.slack + t * step.slack, 1.0)
        moved = RowState(slack, rows.dual + t * step.dual, rows.reply + t * step.reply)
        return self._scaled(L, N, moved, t)

    def _mu(self, of_matrix: float, products: Array) -> float:
        of_matrix = max(of_matrix - self.form.order * self.form.divergence.barrier, 0.0)
        return (of_matrix + float(products @ self.is_inequality)) / self.n_products

    def _mu_after(self, point: Point, step: Step, t: float) -> float:
        X, rows = point.scaling.matrix, point.rows
        products = (rows.slack + t * step.slack) * self.sign * (rows.dual + t * step.dual)
        return self._mu(float(np.vdot(X + t * step.D, X + t * step.E)), products)


@dataclass(frozen=True, eq=False)
class _Newton:
    """2. The residuals at a point, and the equations linearised there.

    Attributes
    ----------
    stationarity, values : residuals of (1) and (2)
    reply : residual of (3), a function of mu
    ratio : s / |y|, by which a slack follows its multiplier
    compliance : by which a reply does
    """

    path: CentralPath
    point: Point
    stationarity: Array
    values: Array
    reply: Callable[[float], Array]
    ratio: Array
    compliance: Array
    system: System

    @classmethod
    def at(cls, path: CentralPath, point: Point) -> Self:
        scaling, rows, loss = point.scaling, point.rows, path.form.loss
        stationarity = scaling.gradient + path.packing.unpack(point.columns @ rows.dual) - scaling.matrix
        slack = np.where(path.is_inequality, rows.slack, 0.0)
        values = rows.reply - point.values - path.sign * slack
        ratio = slack / np.where(path.is_inequality, np.abs(rows.dual), 1.0)
        compliance, reply = loss.compliance(rows.dual, rows.reply, loss.largest - rows.dual)
        system = System.of(scaling.whitened(point.columns), ratio + compliance)
        return cls(path, point, stationarity, values, reply, ratio, compliance, system)

    def step(self, mu: float, predictor: Step | None = None, refinements: int = 0) -> Step:
        """To products mu; with the second-order terms of a predictor."""
        path, scaling, rows = self.path, self.point.scaling, self.point.rows
        magnitude = np.where(path.is_inequality, np.abs(rows.dual), 1.0)
        product, second_order = rows.slack * magnitude, None
        if predictor is not None:
            product = product + path.sign * predictor.slack * predictor.dual
            second_order = predictor.D @ predictor.E
        target = scaling.target(max(mu, path.form.divergence.barrier), second_order)
        slack = np.where(path.is_inequality, mu - product, 0.0) / magnitude
        reply = self.reply(mu)
        right = scaling.whitened(path.packing.pack(target - self.stationarity))
        packed, dual = self.system.solve(right, self.values + reply - path.sign * slack, refinements)
        D = path.packing.unpack(scaling.unwhitened(packed))
        return Step(
            D, target - D, slack - self.ratio * path.sign * dual, dual, reply + self.compliance * dual
        )
