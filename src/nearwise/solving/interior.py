"""A primal-dual interior-point method, which decides small problems however far the prior is from the bounds.

Every row has a slack (`_slacks`), the matrix a scaling (`_scalings`); a step is a predictor and a corrector
on the same factorised system (Mehrotra). It starts far inside and need not be feasible before the end, so
neither the distance of the prior nor penalties of very different sizes matter much: 10 to 40 steps are usual.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.model.formulation import Formulation, Iterate, prior_point
from nearwise.model.measurements import Measurements
from nearwise.solving._scalings import MatrixStep, Scaling, start_sizes
from nearwise.solving._slacks import Slacks, SlackStep

Array = NDArray[np.float64]

_BACK = 0.98  # share of the way to the boundary
_SHORT = 0.3  # a step below that is tried again with more centring
_FIRST_LOOK = 4  # steps that are never good enough to be looked at
_WINDOW = 10  # steps over which progress is judged
_SLOW = 0.5  # sum of the lengths of so many steps, below which the run starts afresh, from further inside
_LARGER = 1e4  # by this factor, at least
_LARGEST = 1e200
_STARTS = 5
_SPARSER = 4  # searches for a proof of fewer rows
_MOST_STEPS = 50  # from one start
_DEPENDENT = 1e-14  # added to the diagonal of the rows' Gram matrix, relatively: they may be dependent
_FLATTEST = 1e-12  # direction of the rows, relative to the largest, that is stretched to equal size
_FEASIBLE = 1e-7  # violation of rows that are not contradictory
_DEAR = 1e10  # penalty on violations where only feasibility matters, in units of the rows


@dataclass(frozen=True)
class InteriorPoint:
    """A primal-dual interior-point method for LogDet, von Neumann and Frobenius.

    It writes the constraints out as vectors of all r (r + 1) / 2 unknowns, so it is for small problems: r up
    to 60 and a few thousand rows. There it decides what other methods cannot: hard rows far from the prior,
    rows that contradict each other, penalties that differ by many orders of magnitude.
    """

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior, then points whose gap and violation fall together."""
        if not isinstance(form.divergence, LogDet | VonNeumann | Frobenius):
            raise TypeError(
                f"InteriorPoint knows LogDet, VonNeumann and Frobenius, not {form.divergence!r}; use Newton()"
            )
        yield prior_point(form)
        unchecked = form.losses.any_hard
        for run in _runs(form):
            while run.is_promising and run.advance():
                if run.is_worth_a_look:
                    yield run.point()
                if unchecked and run.is_stuck:
                    break
            if unchecked:
                unchecked = False
                for proof in _contradiction(form):
                    yield replace(run.point(), ray=proof)
                while run.is_promising and run.advance():
                    if run.is_worth_a_look:
                        yield run.point()


def _runs(form: Formulation) -> Iterator[_Run]:
    """Runs from further and further inside the cone, from a multiple of I or from one that suits the rows."""
    larger = _enlargement(form)
    for start in range(_STARTS):
        yield _Run(form, larger**start)
        if start < 2:
            yield _Run(form, larger**start, _equalising(form.measurements))


def _equalising(measurements: Measurements) -> Array:
    """T such that the vectors T^T x of the rows have about the same size in all directions."""
    rows = measurements.spanning_rows()
    norms = np.linalg.norm(rows, axis=1)
    unit = rows[norms > 0] / norms[norms > 0, None]
    _, s, Vt = np.linalg.svd(np.vstack([unit, np.zeros((rows.shape[1], rows.shape[1]))]), full_matrices=False)
    return np.asarray(Vt.T / np.maximum(s, _FLATTEST * max(s[0], _FLATTEST)))


@np.errstate(all="ignore")
def _enlargement(form: Formulation) -> float:
    """By how much the multipliers grow from one start to the next: at last, as far as soft rows can push."""
    losses, sizes = form.losses, form.measurements.sizes(np.ones_like(form.prior))
    soft = ~losses.is_hard & (sizes > 0)
    reply = losses.divergence.curvature(np.maximum(sizes[soft], 1e-300)) * sizes[soft] ** 2
    stiffest = float(np.max(losses.penalties[soft] * reply, initial=1.0))
    return max(_LARGER, min(stiffest, _LARGEST) ** (1 / (_STARTS - 1)))


def _contradiction(form: Formulation) -> Iterator[Array | None]:
    """Multipliers of few rows that prove the hard ones contradictory, if there are any; None while it looks.

    They are those of the least squares of the violations, which LogDet, the natural barrier of the cone,
    finds from a prior that is larger than all bounds ask for. They depend neither on the divergence nor on
    the prior. Once found, rows of small share are made cheaper, so that they give up theirs.
    """
    hard, T = form.losses.is_hard, _equalising(form.measurements)
    measurements = form.measurements.in_coordinates(T)
    sizes = measurements.sizes(np.ones_like(form.prior))
    sizes = np.where(sizes > 0, sizes, 1.0)
    largest = float(np.max(np.abs(form.losses.bounds[hard]) / sizes[hard], initial=0.0)) or 1.0
    unit = np.maximum(np.abs(form.losses.bounds), 1e-6 * largest * sizes)
    prior, share, proof = np.full_like(form.prior, 100 * largest), np.ones_like(unit), None
    for _ in range(_SPARSER):
        penalties = np.where(hard, np.maximum(_DEAR * share, 1.0), 1 / _DEAR) / unit**2
        losses = replace(form.losses, divergence=Frobenius(), penalties=penalties)
        found = yield from _least_violation(Formulation(LogDet(), prior, measurements, losses), form)
        if found is None or (proof is not None and np.count_nonzero(found) >= np.count_nonzero(proof)):
            break
        proof, weight = found, np.abs(found) * unit
        share = weight / weight.max()
    yield proof


def _least_violation(
    feasibility: Formulation, form: Formulation
) -> Generator[Array | None, None, Array | None]:
    """A proof that the hard rows of `form` contradict each other; None where they do not."""
    hard, larger = form.losses.is_hard, _enlargement(feasibility)
    for start in range(_STARTS):
        run = _Run(feasibility, larger**start)
        while run.is_promising and run.advance():
            if run.count % 4 == 3 and (proof := form.proof(run.slacks.y)) is not None:
                return proof
            if np.max(form.losses.violations(run.values)[hard]) <= _FEASIBLE:
                return None
            if run.count % _WINDOW == 0:
                yield None  # so that limits are looked at
    return None


class _Step(NamedTuple):
    matrix: MatrixStep
    slacks: SlackStep


class _Run:
    """The state of one run."""

    @np.errstate(all="ignore")
    def __init__(self, form: Formulation, enlarged: float, turn: Array | None = None) -> None:
        self.stated, self.turn = form, None
        shape = np.eye(len(form.prior)) if turn is None else turn
        measurements = form.measurements.in_coordinates(shape)
        sizes = measurements.sizes(np.ones_like(form.prior))
        if turn is not None and isinstance(form.divergence, LogDet):
            # the same problem, by KSD09 proposition 12
            self.turn, shape = turn, np.eye(len(form.prior))
            form = Formulation(
                form.divergence, form.prior / np.sum(turn**2, axis=0), measurements, form.losses
            )
        self.form = form
        self._prepare(len(form.prior))
        primal, dual = start_sizes(form, sizes)
        steepest = float(np.sum(shape**2, axis=0).max())
        dual *= enlarged * steepest * (steepest if isinstance(form.divergence, Frobenius) else 1.0)
        least = 1 / form.prior if isinstance(form.divergence, LogDet) else 0.0
        Z = np.maximum(np.full(len(shape), dual), least)
        self.scaling = Scaling(form, np.sqrt(primal) * shape, np.linalg.inv(shape).T * np.sqrt(Z))
        self._measure()
        self.slacks = Slacks(form, self.values, primal, dual, sizes)
        self.lengths: list[float] = []

    def _prepare(self, order: int) -> None:
        """Index arrays between symmetric matrices and their packed upper triangles."""
        self.upper = np.triu_indices(order)
        self.unpacking = np.where(self.upper[0] == self.upper[1], 1.0, np.sqrt(0.5))
        self.place = np.zeros((order, order), dtype=np.int64)
        self.place[self.upper] = np.arange(len(self.upper[0]))
        self.place = np.maximum(self.place, self.place.T)

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def is_promising(self) -> bool:
        slow = self.count >= _WINDOW and sum(self.lengths[-_WINDOW:]) < _SLOW
        return not slow and self.count < _MOST_STEPS

    @property
    def is_worth_a_look(self) -> bool:
        """Whether the point may be good; the first few never are, and certificates cost as much as steps."""
        return self.count > _FIRST_LOOK and (self.lengths[-1] > 0.5 or self.count % _WINDOW == 0)

    @property
    def is_stuck(self) -> bool:
        """Whether steps are so short that rows may contradict each other."""
        return self.count >= 6 and max(self.lengths[-2:]) < _SHORT

    @np.errstate(all="ignore")
    def point(self) -> Iterate:
        """What was measured at the current point."""
        factor, y = self.scaling.factor, self.form.losses.signed(self.slacks.y)
        factor = factor if self.turn is None else self.turn @ factor
        measurements = self.stated.measurements
        values, pullback = measurements.values_of_factor(factor), measurements.adjoint(y)
        return Iterate(factor, values, y, pullback)

    @np.errstate(all="ignore")
    def advance(self) -> bool:
        """One step; False where rounding allows no more."""
        scaling, slacks = self.scaling, self.slacks
        residual = scaling.residual(self._unpacked(self.rows.T @ slacks.y))
        system = _System(scaling.whitened(self.rows), slacks.condition(self.values, 0.0, None)[1])

        def solve(mu: float, last: _Step | None) -> _Step:
            matrix, slack = (None, None) if last is None else last
            e, _ = slacks.condition(self.values, mu, slack)
            both = scaling.both(mu, matrix)
            dy, D = system.solve(scaling.whitened(self._packed(both - residual)[None])[0], e)
            change = self._unpacked(scaling.unwhitened(D))
            return _Step(MatrixStep(change, both - change), slacks.change(dy, mu, slack))

        step, primal, dual = self._chosen(solve)
        moved = scaling.moved(step.matrix, primal, dual)
        if moved is None:
            return False
        slacks.move(step.slacks, primal, dual)
        self.scaling = moved
        self.lengths.append(min(primal, dual))
        self._measure()
        return bool(np.isfinite(self.values).all() and np.isfinite(slacks.y).all())

    def _chosen(self, solve: Callable[[float, _Step | None], _Step]) -> tuple[_Step, float, float]:
        """A step and its lengths: with second-order terms, or where that is short, with more centring."""
        mu = self._mu(self.slacks.products, self.scaling.mu)
        straight = solve(0.0, None)
        primal, dual = self._lengths(straight, 1.0)
        after = self._mu(
            self.slacks.products_after(straight.slacks, primal, dual),
            self.scaling.mu_after(straight.matrix, primal, dual),
        )
        aim = mu * min(1.0, after / mu) ** 3 if mu > 0 else 0.0
        best = solve(aim, straight if min(primal, dual) > 0.1 else None)
        lengths = self._lengths(best, _BACK)
        if min(lengths) < _SHORT:
            for centred in (max(aim, 0.5 * mu), mu):
                other = solve(centred, None)
                others = self._lengths(other, _BACK)
                if min(others) > min(lengths):
                    best, lengths = other, others
        return best, *lengths

    def _lengths(self, step: _Step, share: float) -> tuple[float, float]:
        longest = zip(self.scaling.longest(step.matrix), self.slacks.longest(step.slacks), strict=True)
        primal, dual = (min(1.0, share * min(pair)) for pair in longest)
        apart = isinstance(self.form.divergence, LogDet) and not self.slacks.is_linear.any()
        return (primal, dual) if apart else (min(primal, dual),) * 2

    def _mu(self, products: Array, of_matrix: float) -> float:
        order = self.scaling.order
        n = len(products) + order
        return (float(products.sum()) + order * of_matrix) / n if n else 0.0

    def _measure(self) -> None:
        every = np.arange(self.form.measurements.n_rows)
        self.rows = self.form.measurements.local(every, self.scaling.basis, np.float64).written_out()
        self.values = self.rows @ self._packed(self.scaling.local)

    def _packed(self, A: Array) -> Array:
        """The upper triangle, scaled so that products are those of matrices."""
        return np.asarray(A[self.upper] / self.unpacking)

    def _unpacked(self, a: Array) -> Array:
        return np.asarray((a * self.unpacking)[self.place])


class _System:
    """D + rows^T dy = K and rows D - compliance * dy = e, factorised in the smaller of the two spaces."""

    def __init__(self, rows: Array, compliance: Array) -> None:
        own = np.einsum("ij,ij->i", rows, rows)
        self.rows, self.compliance = rows, np.maximum(compliance, _DEPENDENT * own)
        self.in_rows = len(rows) <= rows.shape[1]
        if self.in_rows:
            self.scale = 1 / np.sqrt(np.maximum(own + self.compliance, 1e-300))
            scaled = rows * self.scale[:, None]
            gram, diagonal = scaled @ scaled.T, self.compliance * self.scale**2
        else:
            self.weights = 1 / np.maximum(self.compliance, 1e-300)
            scaled = rows * np.sqrt(self.weights)[:, None]
            gram = scaled.T @ scaled
            self.scale = 1 / np.sqrt(1 + np.diagonal(gram))
            gram, diagonal = gram * self.scale[:, None] * self.scale, self.scale**2
        gram.flat[:: len(gram) + 1] += diagonal
        for shift in 1e-15 * 10.0 ** np.arange(6):
            self.cholesky, failed = lapack.dpotrf(gram, lower=1)
            if not failed:
                break
            gram.flat[:: len(gram) + 1] += shift * len(gram)

    def solve(self, K: Array, e: Array) -> tuple[Array, Array]:
        """dy and D, refined twice."""
        if not len(e):
            return e, K
        dy, D = self._solve(K, e)
        for _ in range(2):
            more = self._solve(K - D - self.rows.T @ dy, e - self.rows @ D + self.compliance * dy)
            dy, D = dy + more[0], D + more[1]
        return dy, D

    def _solve(self, K: Array, e: Array) -> tuple[Array, Array]:
        if self.in_rows:
            dy = self._inverse(self.rows @ K - e)
            return dy, K - self.rows.T @ dy
        D = self._inverse(K + self.rows.T @ (self.weights * e))
        return self.weights * (self.rows @ D - e), D

    def _inverse(self, right: Array) -> Array:
        solution, _ = lapack.dpotrs(self.cholesky, right * self.scale, lower=1)
        return np.asarray(solution * self.scale)
