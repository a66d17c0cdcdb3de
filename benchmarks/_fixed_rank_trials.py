"""Random problems and random streams of fixed-rank regression, on which no method may rise or explode."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from nearwise import constraints as c, solvers
from nearwise._common.types import Array
from nearwise.learners.fixed_rank import Settings, batch, best_multiple, principal_directions
from nearwise.solvers import Regression

KINDS = ("vectors", "pairs", "comparisons", "kernel", "matrices")
ANY_RANK: dict[str, Any] = {"flat": solvers.Flat(), "polar": solvers.Polar()}
FULL_RANK = ANY_RANK | {"affine_invariant": solvers.Polar(0.0), "log_euclidean": solvers.LogEuclidean()}
TOL = 1e-5  # the default of the estimators
_SINGLE, _ARRIVALS = 50, 300  # samples of a stream per call, and in all
_TAILS = 1.5  # degrees of freedom of samples of very different length
_SMALLEST = 4  # features
_EXPLODED = 10.0  # times the error of a trivial predictor


@dataclass(frozen=True)
class Trial:
    """One geometry on one problem: costs of the start, of our default and of Armijo's descent."""

    kind: str
    rank: str
    geometry: str
    rises: bool
    excess: float  # over Armijo's cost, relative; 0 where the cost counts as zero by the rule (24)
    seconds: float
    seconds_armijo: float


def trials(seeds: Iterable[int], largest: int) -> Iterator[Trial]:
    """Problems of every kind in turn, at ranks 1, d/2 and d, on all geometries that go with the rank.

    `largest` is the largest dimension.
    """
    for seed in seeds:
        kind, d, problem = _problem(seed, largest)
        nothing = problem.cost(problem.residual(np.zeros(problem.n_samples)))
        for name, rank in (("1", 1), ("d/2", d // 2), ("d", d)):
            start = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, rank)))[0]
            first = problem.evaluate(start)[0]
            for geometry, where in (FULL_RANK if rank == d else ANY_RANK).items():
                found, seconds = {}, {}
                for solver in ("auto", "armijo"):
                    began = time.perf_counter()
                    chosen = Settings(rank, where, solver, TOL, None, 32, 5, False)
                    found[solver] = batch(problem, start, chosen, None)
                    seconds[solver] = time.perf_counter() - began
                ours, theirs = found["auto"].cost, found["armijo"].cost
                costs = np.array([first, *(record.cost for record in found["auto"].history)])
                exact = problem.evaluate(found["auto"].factor)[0]
                rises = bool((np.diff(costs) >= 0).any()) or bool(abs(costs[-1] - exact) > 1e-9 * exact)
                excess = 0.0 if ours <= TOL * nothing else float(ours / theirs - 1)
                yield Trial(kind, name, geometry, rises, excess, seconds["auto"], seconds["armijo"])


@dataclass(frozen=True)
class Followed:
    """The largest errors of one online run over a stream, each relative to that of a trivial predictor.

    A sample ten times longer than any before has nearly all of the squares of its stream. Until it comes, the
    error over all samples is its own, which W = 0 bounds and a W of the right size, in directions that few
    samples have told, does not. So beside W = 0 there is a predictor of the right size without directions.

    Attributes
    ----------
    everywhere : over all samples, those to come included, relative to W = 0
    to_come : the same, relative to W = 0 or to W = c I with the c that fits the samples that have come best,
        whichever errs more
    seen : over the samples that have come, relative to W = 0
    """

    everywhere: float
    to_come: float
    seen: float

    @property
    def exploded(self) -> bool:
        """Whether it errs ten times as much as predictors that know one number or none."""
        return self.to_come > _EXPLODED or self.seen > _EXPLODED


def streams(seeds: Iterable[int]) -> Iterator[tuple[str, Followed, Followed | None]]:
    """A geometry, the errors of one sample a step, and in the flat geometry those without safeguards.

    A quarter each: standard normal samples, ones of very different length, features of very different
    scale, and targets of which some are wrong by a factor of 1000; half with steps that never shrink.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        d = int(rng.integers(2, 16))
        rank = int(rng.integers(1, d + 1))
        X = rng.standard_t(_TAILS, (_ARRIVALS, d)) if seed % 4 == 1 else rng.standard_normal((_ARRIVALS, d))
        if seed % 4 == 2:
            X *= 10.0 ** rng.uniform(-2, 2, d)
        y = np.square(X @ rng.standard_normal((d, rank))).sum(axis=1)
        y *= 1 + 0.1 * rng.standard_normal(_ARRIVALS)
        if seed % 4 == 3:
            y[rng.random(_ARRIVALS) < 0.05] *= 1e3
        geometry = "flat" if seed // 8 % 2 == 0 else "polar"
        annealing = "auto" if seed // 4 % 2 == 0 else "none"
        model = nw.FixedRankRegressor(rank, geometry, batch_size=1, annealing=annealing, random_state=0)
        predictions = []
        for low in range(0, _ARRIVALS, _SINGLE):
            model.partial_fit(X[low : low + _SINGLE], y[low : low + _SINGLE])
            predictions.append(model.predict(X))
        plain = _followed(X, y, _plain_steps(X, y, model)) if geometry == "flat" else None
        yield geometry, _followed(X, y, predictions), plain


def _plain_steps(X: Array, y: Array, model: nw.FixedRankRegressor) -> Iterator[Array]:
    """Predictions after every few samples, by steps (9) with the schedule of a model, but not its rules."""
    units, schedule = model.units_, model.schedule_
    assert schedule is not None
    rows, targets = X / units.feature, y / units.target
    start = principal_directions(X[:_SINGLE], model.rank_, np.random.RandomState(0))
    G = best_multiple(Regression(solvers.vector_forms(rows[:_SINGLE], 1.0), targets[:_SINGLE]), start)
    for t, (x, target) in enumerate(zip(rows, targets, strict=True)):
        z = x @ G
        G = G - schedule.at(t) * 2 * (z @ z - target) * np.outer(x, z)
        if (t + 1) % _SINGLE == 0:
            yield np.square(rows @ G).sum(axis=1) * units.target


def _followed(X: Array, y: Array, predictions: Iterable[Array]) -> Followed:
    squares, worst = np.square(X).sum(axis=1), np.zeros(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an explosion, which is counted
        for low, found in zip(range(0, _ARRIVALS, _SINGLE), predictions, strict=True):
            come = slice(0, low + _SINGLE)
            c = max(float(squares[come] @ y[come]) / float(squares[come] @ squares[come]), 0.0)
            everywhere = _share(np.square(found - y), y)
            trivial = max(1.0, _share(np.square(c * squares - y), y))
            seen = _share(np.square(found[come] - y[come]), y[come])
            worst = np.maximum(worst, [everywhere, everywhere / trivial, seen])
    return Followed(*map(float, worst))


def _share(wrong: Array, y: Array) -> float:
    """Of the mean square; infinite where it is no number."""
    share = float(np.mean(wrong) / np.mean(y * y))
    return share if np.isfinite(share) else np.inf


def _problem(seed: int, largest: int) -> tuple[str, int, Regression]:
    """A kind, the dimension, and the cost, with targets of mean square 1."""
    rng, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    d = int(rng.integers(_SMALLEST, largest + 1))
    n = int(rng.integers(d, 12 * d))
    scales = 10.0 ** rng.uniform(-1, 1, d) if rng.random() < 0.5 else np.ones(d)
    planted = rng.standard_normal((d, int(rng.integers(1, d + 1))))
    noise = float(rng.choice([0.0, 0.1, 1.0]))
    forms: Any
    relations = None
    if kind == "vectors":
        X = rng.standard_normal((n, d)) * scales
        forms = solvers.vector_forms(X)
        y = np.square(X @ planted).sum(axis=1) * (1 + noise * rng.standard_normal(n))
    elif kind == "matrices":
        matrices = rng.standard_normal((n, d, d))
        forms = solvers.matrix_forms(matrices)
        y = np.einsum("nij,ij->n", matrices, planted @ planted.T) + noise * rng.standard_normal(n)
    elif kind == "kernel":
        pairs = np.stack(np.triu_indices(d, 1), axis=1)
        pairs = pairs[(rng.random(len(pairs)) < 0.7) | (np.arange(len(pairs)) < 2)]
        y = np.square(planted[pairs[:, 0]] - planted[pairs[:, 1]]).sum(axis=1)
        y = np.maximum(y * np.abs(1 + noise * rng.standard_normal(len(y))), 1e-9)
        forms = solvers.constraint_forms(c.equal(pairs, y).resolve(d, None), None, d)
    else:
        X = rng.standard_normal((30, d)) * scales
        labels = rng.integers(0, 3, 30)
        X[:, 0] += 2 * labels
        side = _pairs(X, labels, n, rng) if kind == "pairs" else _comparisons(n, rng)
        forms = solvers.constraint_forms(side.resolve(30, None), X, 30)
        y, relations = side.bounds, side.relations
    return kind, d, Regression(forms, y / np.sqrt(np.mean(y * y)), relations)


def _pairs(X: Array, labels: NDArray[np.int64], n: int, rng: np.random.Generator) -> c.Constraints:
    pairs = np.array([rng.choice(30, 2, replace=False) for _ in range(n)])
    squares = np.square(X[pairs[:, 0]] - X[pairs[:, 1]]).sum(axis=1)
    near, far = np.percentile(squares, (20, 80))
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    return c.at_most(pairs[same], near) + c.at_least(pairs[~same], far)


def _comparisons(n: int, rng: np.random.Generator) -> c.Constraints:
    return c.closer(np.array([rng.choice(30, 3, replace=False) for _ in range(n)]), margin=1.0)
