"""What the solver is measured against: the papers' loop, compiled; metric-learn's ITML; a model in cvxpy.

All of them solve LogDet from the identity with soft bounds on squared distances of pairs, JKDD12 (7). The
gap of a matrix is computed here once more, densely, so that it does not rest on the code that is measured.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import require
from benchmarks.baselines.peers import working_metric_learn
from nearwise._common.types import Array, Index
from nearwise.core import Problem

_BLOCK = 10_000  # pairs whose differences are written out at a time


@dataclass(frozen=True, eq=False)
class PairProblem:
    """LogDet from the identity with soft bounds on squared distances.

    Attributes
    ----------
    features : (n, r), one row per object
    first, second : (m,), the objects of each pair
    is_upper : (m,), whether the bound is an upper one, for a similar pair
    bounds : (m,), of the squared distances
    penalty : gamma, the same for all pairs
    """

    features: Array
    first: Index
    second: Index
    is_upper: NDArray[np.bool_]
    bounds: Array
    penalty: float

    @classmethod
    def of(cls, problem: Problem) -> PairProblem:
        """The same problem as plain arrays, rows in the same order."""
        pairs = np.concatenate([block.object_ids for block in problem.constraints.blocks]).astype(np.int64)
        first, second = np.ascontiguousarray(pairs.T)
        features = np.ascontiguousarray(problem.features)
        return cls(
            features, first, second, problem.relations < 0, problem.bounds, float(problem.penalties[0])
        )

    def shuffled(self, seed: int) -> PairProblem:
        """The same pairs in random order."""
        order = np.random.default_rng(seed).permutation(len(self.bounds))
        names = ("first", "second", "is_upper", "bounds")
        return replace(self, **{name: getattr(self, name)[order] for name in names})

    def differences(self, rows: slice = slice(None)) -> Array:
        """z = g_i - g_j of some pairs, written out."""
        return self.features[self.first[rows]] - self.features[self.second[rows]]

    def relative_gap(self, M: Array) -> float:
        """How far M is from the optimum at most, relative to its objective.

        The multipliers are the derivatives of the losses at M, so the gap is D(M, M^) with
        M^ = (I + sum_i y_i z_i z_i^T)^-1; by the invariance of LogDet under congruence it is
        sum e - log(1 + e) over the eigenvalues e of L^T (I + sum_i y_i z_i z_i^T) L - I, where M = L L^T.
        """
        r = len(M)
        L = np.linalg.cholesky(M)
        loss, pullback = 0.0, np.zeros((r, r))
        for start in range(0, len(self.bounds), _BLOCK):
            rows = slice(start, start + _BLOCK)
            Z, b = self.differences(rows), self.bounds[rows]
            p = np.sum((Z @ L) ** 2, axis=1)
            violated = np.where(self.is_upper[rows], p > b, p < b)
            ratio = np.where(violated, p / b, 1.0)
            loss += self.penalty * float(np.sum(ratio - np.log(ratio) - 1))
            multipliers = self.penalty * np.where(violated, 1 / b - 1 / p, 0.0)
            pullback += Z.T @ (multipliers[:, None] * Z)
        primal = float(np.trace(M)) - 2 * float(np.sum(np.log(np.diag(L)))) - r + loss
        e = np.linalg.eigvalsh(L.T @ (np.eye(r) + pullback) @ L - np.eye(r))
        if e.min() <= -1:
            return np.inf  # the multipliers prove nothing
        return float(np.sum(e - np.log1p(e))) / primal


class CyclicProjections:
    """JKDD12 algorithm 1 (KSD09 algorithm 2 with slack): one compiled, single-threaded pass a sweep.

    The rank-one update of a pair is made in the same pass over M as the next pair's product, which takes
    about a tenth less time than two passes.

    Attributes
    ----------
    matrix : M, r x r
    slack : xi, one number per pair
    dual : lambda, one number per pair, >= 0
    """

    def __init__(self, pairs: PairProblem) -> None:
        self.pairs = pairs
        r = pairs.features.shape[1]
        self.matrix = np.eye(r)
        self.slack = pairs.bounds.copy()
        self.dual = np.zeros(len(pairs.bounds))
        self._sign = np.where(pairs.is_upper, 1.0, -1.0)
        self._scratch = np.empty((3, r))

    def sweep(self) -> None:
        """Project once onto every pair, in order."""
        p = self.pairs
        state = self.matrix, self.slack, self.dual, *self._scratch
        _sweep(p.features, p.first, p.second, self._sign, p.penalty, *state)


@numba.njit(fastmath=True)
def _sweep(
    features: Array,
    first: Index,
    second: Index,
    sign: Array,
    penalty: float,
    M: Array,
    slack: Array,
    dual: Array,
    z: Array,
    Mz: Array,
    last: Array,
) -> None:
    r = M.shape[0]
    scale = 0.0  # of the update that is still to be made: M += scale last last^T
    for t in range(first.shape[0]):
        i = first[t]
        j = second[t]
        for a in range(r):
            z[a] = features[i, a] - features[j, a]
            Mz[a] = 0.0
        if scale != 0.0:
            for a in range(r):
                update = scale * last[a]
                factor = z[a]
                for b in range(r):
                    entry = M[a, b] + update * last[b]
                    M[a, b] = entry
                    Mz[b] += factor * entry
        else:
            for a in range(r):  # M is symmetric: adding up its rows vectorises better than products with them
                factor = z[a]
                for b in range(r):
                    Mz[b] += factor * M[a, b]
        p = 0.0
        for a in range(r):
            p += z[a] * Mz[a]
        step = min(dual[t], sign[t] * penalty / (penalty + 1.0) * (1.0 / p - 1.0 / slack[t]))
        scale = 0.0
        if step != 0.0:
            signed = sign[t] * step
            slack[t] = penalty * slack[t] / (penalty + signed * slack[t])
            dual[t] -= step
            scale = signed / (1.0 - signed * p)
            last[:] = Mz
    if scale != 0.0:
        for a in range(r):
            for b in range(r):
                M[a, b] += scale * last[a] * last[b]


@dataclass(frozen=True, eq=False)
class PeerAnswer:
    """A matrix, the seconds it took in all, and what the peer says about its own work."""

    matrix: Array
    seconds: float
    iterations: int
    solver_seconds: float | None = None


def metric_learn_itml(pairs: PairProblem, max_iter: int) -> PeerAnswer:
    """metric-learn's ITML, which compares z^T M z with its bounds, so takes squared ones; its own tolerance.

    Time is that of `fit`.
    """
    require("metric_learn", "metric-learn")
    from metric_learn import ITML

    vectors = np.stack([pairs.features[pairs.first], pairs.features[pairs.second]], axis=1)
    labels = np.where(pairs.is_upper, 1, -1)
    bounds = [pairs.bounds[pairs.is_upper][0], pairs.bounds[~pairs.is_upper][0]]
    learner = ITML(gamma=pairs.penalty, max_iter=max_iter)
    with working_metric_learn():
        start = time.perf_counter()
        learner.fit(vectors, labels, bounds=bounds)
        seconds = time.perf_counter() - start
    return PeerAnswer(learner.get_mahalanobis_matrix(), seconds, learner.n_iter_ + 1)


def cvxpy_solvers() -> tuple[str, ...]:
    """Those of cvxpy's conic solvers that know the cones of this problem and are installed."""
    require("cvxpy", "cvxpy")
    cvxpy: Any = importlib.import_module("cvxpy")
    return tuple(name for name in ("CLARABEL", "SCS") if name in cvxpy.installed_solvers())


def cvxpy_model(pairs: PairProblem, solver: str) -> PeerAnswer:
    """The problem as JKDD12 (7) states it, with its slack variables, modelled and solved from scratch."""
    require("cvxpy", "cvxpy")
    cp: Any = importlib.import_module("cvxpy")
    Z, b, upper = pairs.differences(), pairs.bounds, pairs.is_upper
    r = Z.shape[1]
    start = time.perf_counter()
    M = cp.Variable((r, r), PSD=True)
    slack = cp.Variable(len(b))  # in units of the bounds
    distances = cp.sum(cp.multiply((Z / b[:, None]) @ M, Z), axis=1)
    sign = np.where(upper, 1.0, -1.0)
    cost = cp.trace(M) - cp.log_det(M) - r + pairs.penalty * (cp.sum(slack) - cp.sum(cp.log(slack)) - len(b))
    model = cp.Problem(cp.Minimize(cost), [cp.multiply(sign, distances - slack) <= 0])
    model.solve(solver=solver)
    seconds = time.perf_counter() - start
    stats = model.solver_stats
    return PeerAnswer(np.asarray(M.value), seconds, int(stats.num_iters), float(stats.solve_time))
