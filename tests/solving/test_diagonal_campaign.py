"""Random problems of feature weights: almost all are decided, and what is solved is judged in 60 digits."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from nearwise import Divergence, Frobenius, LogDet, Status, VonNeumann, constraints as c

FEATURES = ("normal", "integer", "one-hot", "offset", "duplicates", "units", "sparse")
WRONG = 1e-5  # ten times the tolerance


@dataclass(frozen=True)
class Case:
    X: np.ndarray
    side: c.Constraints
    divergence: Divergence
    prior: np.ndarray
    penalty: float


def drawn(seed: int) -> Case:
    """Rows of three kinds, with bounds from near to four decades away."""
    rng = np.random.default_rng([seed, 23])
    n, d, kind = (
        int(rng.integers(2, 15)),
        int(rng.integers(1, 12)),
        FEATURES[int(rng.integers(len(FEATURES)))],
    )
    X = rng.normal(size=(n, d))
    if kind == "integer":
        X = rng.integers(-3, 4, size=(n, d)).astype(float)
    elif kind == "one-hot":
        X = np.eye(d)[rng.integers(0, d, n)]
    elif kind == "offset":
        X += 10.0 ** rng.uniform(0, 8) * rng.normal(size=d)
    elif kind == "duplicates":
        X = X[rng.integers(0, max(2, n // 2), n)]
    elif kind == "units":
        X *= 10.0 ** rng.uniform(-4, 4, d)
    elif kind == "sparse":
        X *= rng.random((n, d)) < 0.3
    X *= 10.0 ** rng.uniform(-3, 3)
    prior = np.ones(d) if rng.random() < 0.4 else 10.0 ** rng.uniform(-3, 3, d)
    squares = (np.square(X[:, None] - X)) @ prior
    typical = float(np.median(squares[np.triu_indices(n, 1)])) or 1.0
    decades, side = float(rng.choice([0.05, 0.7, 4.0])), c.Constraints()
    for _ in range(int(rng.integers(1, 40))):
        off, which = 10.0 ** rng.uniform(-decades, decades), int(rng.integers(3))
        i, j = (int(k) for k in rng.choice(n, 2, replace=False))
        if which == 0:
            make = (c.at_most, c.at_least, c.equal)[int(rng.integers(3))]
            side += make([(i, j)], float(squares[i, j] or typical) * off)
        elif which == 1 and n > 2:
            side += c.closer([rng.choice(n, 3, replace=False)], 0.0 if rng.random() < 0.5 else typical * off)
        else:
            i, j = (int(k) for k in rng.integers(0, n, 2))
            size = float(np.sqrt((X[i] ** 2 @ prior) * (X[j] ** 2 @ prior)))
            bound = float((X[i] * X[j]) @ prior) * off + 0.1 * size * rng.normal()
            relation: Any = ("<=", ">=", "==")[int(rng.integers(3))]
            side += c.similarity([(i, j)], max(abs(bound), 1e-300) if i == j else bound, relation)
    divergence: Divergence = (LogDet(), VonNeumann(), Frobenius())[int(rng.integers(3))]
    return Case(X, side, divergence, prior, float(10.0 ** rng.uniform(-2, 4)))


def has_idle_rows(case: Case) -> bool:
    """Whether a row measures nothing: its size, and by it the unit of penalties, would be a convention."""
    for block in case.side.blocks:
        objects = case.X[np.asarray(block.ids)]
        rows = objects[:, 0] * objects[:, 1]
        if block.kind != "similarity":
            rows = (objects[:, 0] - objects[:, 1]) ** 2
        if block.kind == "comparison":
            rows -= (objects[:, 2] - objects[:, 3]) ** 2
        if not rows.any(axis=1).all():
            return True
    return False


def learned(case: Case) -> tuple[Any, float]:
    """The result of learning weights of the columns, and the penalty of its rows."""
    d = case.X.shape[1]
    blocks = nw.Problem(case.X, case.side, case.divergence, np.diag(case.prior), groups=np.arange(d))
    learner = nw.MetricLearner(
        case.divergence, structure="diagonal", prior=case.prior, penalty=case.penalty / blocks.penalty_unit
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner.fit(case.X, constraints=case.side).result_, case.penalty


def true_gap(case: Case, penalty: float, found: Any) -> float:
    """From the user's numbers and the definitions of docs/problem.md; inf where a multiplier has no sign."""
    mp, degree = mpmath.mp.clone(), int(case.divergence.degree or 0)
    mp.dps = 60
    exact = np.vectorize(mp.mpf, otypes=[object])
    X, w, w0, y = exact(case.X), exact(found.weights), exact(case.prior), exact(found.dual)
    gamma, bounds = mp.mpf(penalty), exact(case.side.bounds)
    rows, sizes, is_square = [], [], []
    for block in case.side.blocks:
        for ids in np.asarray(block.ids):
            is_square.append(block.kind == "distance" or (block.kind == "similarity" and ids[0] == ids[1]))
            if block.kind == "similarity":
                rows.append(X[ids[0]] * X[ids[1]])
                sizes.append(mp.sqrt((X[ids[0]] ** 2 @ w0) * (X[ids[1]] ** 2 @ w0)))
                continue
            rows.append((X[ids[0]] - X[ids[1]]) ** 2)
            sizes.append(rows[-1] @ w0)
            if block.kind == "comparison":
                other = (X[ids[2]] - X[ids[3]]) ** 2
                rows[-1], sizes[-1] = rows[-1] - other, sizes[-1] + other @ w0
    p = [a @ w for a in rows]

    def scalar(x: Any, b: Any) -> Any:
        if degree == 0:
            return x / b - mp.log(x / b) - 1
        return (x * mp.log(x / b) if x > 0 else 0) - x + b if degree == 1 else (x - b) ** 2

    primal, dual = sum(map(scalar, w, w0)), mp.mpf(0)
    for i, sign in enumerate(case.side.relations.tolist()):
        size = sizes[i] or mp.mpf(1)  # of equal objects, which no weights tell apart
        stiffness = gamma * {0: 1 / size**2, 1: 1 / size, 2: mp.mpf(2)}[degree]
        own, b = bool(bounds[i] > 0 and (sign < 0 or is_square[i])), bounds[i]
        if sign == 0 or sign * (p[i] - b) < 0:
            primal += gamma * scalar(p[i], b) if own else stiffness / 2 * (p[i] - b) ** 2
        if sign * y[i] > 0:
            return float("inf")
        if not own:
            dual -= y[i] * b + y[i] ** 2 / (2 * stiffness)
        elif degree == 0:
            dual += gamma * mp.log(1 - y[i] * b / gamma)
        else:
            dual -= gamma * b * mp.expm1(y[i] / gamma) if degree == 1 else y[i] * b + y[i] ** 2 / (4 * gamma)
    for k, prior in enumerate(w0):
        pull = sum((y[i] * a[k] for i, a in enumerate(rows)), mp.mpf(0))
        if degree == 0:
            dual += mp.log(1 + pull * prior)
        elif degree == 1:
            dual -= prior * mp.expm1(-pull)
        else:
            least = max(prior - pull / 2, mp.mpf(0))
            dual += (least - prior) ** 2 + pull * least
    unit = np.mean(w0) ** degree
    return float(mp.re(primal - dual) / max(abs(primal), abs(dual), unit * len(w) * mp.mpf("1e-15")))


@pytest.mark.parametrize(
    "seeds",
    [range(60), *(pytest.param(range(k, k + 100), marks=pytest.mark.slow) for k in range(60, 760, 100))],
)
def test_random_problems_are_decided_and_none_is_wrong(seeds: range) -> None:
    accepted = undecided = skipped = 0
    for seed in seeds:
        case = drawn(seed)
        if case.divergence.degree and has_idle_rows(case):
            skipped += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                found, penalty = learned(case)
            except (ValueError, nw.LeftOutWarning, nw.PriorKeptWarning):
                continue
        accepted += 1
        if found.status is not Status.SOLVED:
            undecided += 1
            continue
        assert true_gap(case, penalty, found) <= WRONG, seed
    assert accepted > (len(seeds) - skipped) / 2 > len(seeds) / 4
    assert undecided <= 0.02 * accepted
