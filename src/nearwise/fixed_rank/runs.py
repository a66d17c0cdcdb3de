"""Descents that go on from each other, and a way around local minima: more dimensions, and back.

Where W of rank r is a local minimum but S = grad_W f has a negative eigenvalue, a further column along its
eigenvector makes the cost smaller. From the minimum of rank r + 1 found in this way, the direction that the
data see least is dropped again, and the descent goes on from there; where that leads to nothing lower, the
same is tried with three columns, dropped one by one. What is lower at its end is kept. Where S has no
negative eigenvalue, W is the best matrix of any rank. At full rank nothing needs to be dropped: W + t v v^T
has a square factor itself. `by_small_steps` is another way, for small problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.fixed_rank.conjugate import ConjugateGradients
from nearwise.fixed_rank.descent import Armijo
from nearwise.fixed_rank.driver import MAX_ITER, Descent, FixedRankRecord, FixedRankResult, minimise
from nearwise.fixed_rank.geometry import Flat, Geometry
from nearwise.fixed_rank.regression import Regression
from nearwise.methods import Status

_MOST_EXTRA = 3  # dimensions, where one does not help
_TOL = 1e-3  # to which minima of higher rank are found
_SMALL_STEPS = 50
_DENSE = 200  # dimension up to which S is written out
_LANCZOS_TOL = 1e-2


@dataclass(frozen=True, eq=False)
class Run:
    """One cost and the rules of `minimise` by which descents on it end; max_iter is for all together."""

    problem: Regression
    tol: float
    max_iter: int | None
    callback: Callable[[FixedRankRecord], Any] | None
    negligible: float

    def descend(
        self,
        geometry: Geometry,
        start: Array | None,
        method: Descent | None = None,
        after: FixedRankResult | None = None,
    ) -> FixedRankResult:
        """Go down from a start, or from where the run `after` has ended.

        What comes after another run counts from where it is lower; if it never is, the other run is returned.
        """
        limit = MAX_ITER if self.max_iter is None else self.max_iter
        if after is None:
            assert start is not None
            return self._minimise(geometry, start, method, limit, self.callback)
        if after.status is not Status.STATIONARY or after.n_iter >= limit or self._is_done(after):
            return after
        offset, seconds = after.n_iter, after.history[-1].seconds if after.history else 0.0

        def counted(record: FixedRankRecord) -> FixedRankRecord:
            number = record.iteration - skipped
            return replace(record, iteration=offset + number, seconds=seconds + record.seconds)

        skipped = 0

        def report(record: FixedRankRecord) -> Any:
            nonlocal skipped
            if not record.cost < after.cost:
                skipped = record.iteration
                return False
            return self.callback is not None and self.callback(counted(record))

        begin = after.factor if start is None else start
        try:
            found = self._minimise(geometry, begin, method, limit - offset, report)
        except KeyboardInterrupt:  # before its first point
            return _interrupted(after)
        if not found.cost < after.cost:
            return _interrupted(after) if found.status is Status.INTERRUPTED else after
        lower = tuple(counted(record) for record in found.history if record.cost < after.cost)
        return replace(found, history=after.history + lower, solver=after.solver)

    def by_small_steps(self, geometry: Geometry, start: Array, found: FixedRankResult) -> FixedRankResult:
        """From the same start by the slower descent of the paper, which may lead into another valley."""
        if found.status is not Status.STATIONARY or self._is_done(found):
            return found
        try:
            path = self._aside(geometry, start, Armijo(), _SMALL_STEPS)
        except KeyboardInterrupt:
            return _interrupted(found)
        return self.descend(geometry, path, after=found)

    def around(self, geometry: Geometry, found: FixedRankResult) -> FixedRankResult:
        """Look for lower minima beside the one that was found, as long as there are any."""
        extra = 1
        while found.status is Status.STATIONARY and not self._is_done(found):
            try:
                start = self._beside(found.factor, extra)
            except KeyboardInterrupt:
                return _interrupted(found)
            if start is None:
                break
            before, found = found, self.descend(geometry, start, after=found)
            if not found.cost < (1 - self.tol) * before.cost:
                if extra == _MOST_EXTRA:
                    break
                extra = _MOST_EXTRA
        return found

    def out_of_saddles(self, geometry: Geometry, found: FixedRankResult) -> FixedRankResult:
        """At full rank, go on where S has a negative eigenvalue: no slope of G shows it at a singular W.

        The flat geometry may come to W = 0 in one step, where all slopes of G are 0.
        """
        while found.status is Status.STATIONARY and not self._is_done(found):
            wider = self._wider(found.factor)
            if wider is None or not self.problem.evaluate(wider)[0] < (1 - self.tol) * found.cost:
                break
            vectors, lengths, _ = np.linalg.svd(wider, full_matrices=False)
            found = self.descend(geometry, vectors * lengths, after=found)
        return found

    def _is_done(self, found: FixedRankResult) -> bool:
        return found.cost <= self.tol * self.negligible

    def _minimise(
        self, geometry: Geometry, start: Array, method: Descent | None, limit: int, callback: Any
    ) -> FixedRankResult:
        method = method or ConjugateGradients()
        return minimise(
            self.problem, geometry, start, method, self.tol, limit, None, callback, self.negligible
        )

    def _aside(self, geometry: Geometry, start: Array, method: Descent, limit: int) -> Array:
        """The end of a descent that no callback sees; Ctrl-C in it is for the run that it serves."""
        found = minimise(self.problem, geometry, start, method, _TOL, limit)
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return found.factor

    def _beside(self, G: Array, extra: int) -> Array | None:
        """A start of the same rank from minima of higher ranks; None where there are none."""
        rank = G.shape[1]
        H = G
        for _ in range(min(extra, len(G) - rank)):
            wider = self._wider(H)
            if wider is None:
                break
            H = wider
        if H is G:
            return None
        while H.shape[1] > rank:
            H = self._aside(Flat(), H, ConjugateGradients(), MAX_ITER)
            moment = self.problem.forms.moment(self.problem.forms.image(H), None)
            H = np.ascontiguousarray(H @ np.linalg.eigh(moment)[1][:, 1:])
        return H

    def _wider(self, G: Array) -> Array | None:
        """A further column with which the cost is lower; None where there is none."""
        forms = self.problem.forms
        cost, slope = self.problem.evaluate(G)
        v = _steepest(slope, len(G))
        if v is None:
            return None
        image = forms.image(v)
        square = forms.cross(image, image)
        size, fall = float(np.mean(square * square)), -float(np.vdot(v, slope(v)))
        if not fall > 0 or not size > 0:  # an eigenvalue that is negative by rounding only
            return None
        # of W + t v v^T, the t that fits equalities best is fall / size
        wider = np.hstack([G, np.sqrt(fall / size) * v])
        return wider if self.problem.evaluate(wider)[0] < cost else None


def _interrupted(found: FixedRankResult) -> FixedRankResult:
    """What was found so far, where Ctrl-C ends the search for more."""
    message = f"Interrupted after {found.n_iter} iterations of {found.solver}: interrupted."
    return replace(found, status=Status.INTERRUPTED, message=message)


def _steepest(slope: Callable[[Array], Array], d: int) -> Array | None:
    """The eigenvector of the least eigenvalue of S, d x 1; None where that is not negative."""
    if d <= _DENSE:
        S = slope(np.eye(d))
        values, V = np.linalg.eigh((S + S.T) / 2)
        value, v = float(values[0]), V[:, :1]
    else:
        from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

        operator = LinearOperator((d, d), matvec=lambda x: slope(x.reshape(d, 1)).ravel(), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(d)
        try:
            found, v = eigsh(operator, k=1, which="SA", v0=start, tol=_LANCZOS_TOL)
        except ArpackNoConvergence:
            return None
        value = float(found[0])
    return np.ascontiguousarray(v) if value < 0 else None
