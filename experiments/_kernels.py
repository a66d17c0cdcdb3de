"""What the experiments on kernels share: constraints, runs of projections, clusters and neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from experiments import _data
from experiments._outcome import Curve, Sample, curve, timed
from nearwise import constraints as c
from nearwise._common.types import Array, Labels
from nearwise.side import drawing

DIVERGENCES: dict[str, nw.Divergence] = {"LogDet": nw.LogDet(), "von Neumann": nw.VonNeumann()}
MARGIN = (0.75, 1.25)  # KSD09 7.1: epsilon = 0.25
TOLERANCE = 1e-3  # KSD09 7.1
LONGEST = 2000  # sweeps


def pairs(X: Array, y: Labels, count: int, seed: int) -> nw.constraints.Constraints:
    """Random pairs, to be a quarter nearer or farther than they are (KSD09 7.1); equal rows say nothing."""
    i, j = random_pairs(len(y), count, seed).T
    squares, same = np.square(X[i] - X[j]).sum(axis=1), y[i] == y[j]
    near, far = same & (squares > 0), ~same & (squares > 0)
    below, above = MARGIN
    side = c.at_most(np.stack([i[near], j[near]], axis=1), below * squares[near])
    return side + c.at_least(np.stack([i[far], j[far]], axis=1), above * squares[far])


def random_pairs(n: int, count: int, seed: int) -> Labels:
    """Different pairs of n objects, uniformly: not balanced between the classes, as in the papers."""
    one_class = np.zeros(n, dtype=np.int64)
    return drawing.random_pairs(one_class, count, np.random.RandomState(seed))[0]


def projected(
    G: Array,
    side: nw.constraints.Constraints,
    divergence: nw.Divergence,
    penalty: float = np.inf,
    longest: int = LONGEST,
) -> tuple[nw.Result, float]:
    """The kernel nearest to G G^T, and seconds; projections in the papers' order until the papers' rule."""
    solver = nw.solvers.CyclicProjections(order="interleaved", multiplier_tol=TOLERANCE)
    problem = stated(G, side, divergence, penalty)
    return timed(nw.solve, problem, solver, tol=1e-9, max_iter=longest + 1)


def stated(
    G: Array, side: nw.constraints.Constraints, divergence: nw.Divergence, penalty: float
) -> nw.Problem:
    """The kernel nearest to G G^T, with slack where the penalty is finite.

    The penalty is meant where the median constraint and the mean eigenvalue of the kernel have size 1, so
    that it says the same for every divergence.
    """
    problem = nw.Problem.from_factor(G, side, divergence, penalty if np.isinf(penalty) else 1.0)
    if np.isinf(penalty):
        return problem
    return problem.with_penalty(penalty * problem.penalty_unit)


def information(factor: Array, y: Labels, seed: int) -> float:
    """NMI of the clusters of kernel k-means and the classes."""
    clusters = nw.kernel_k_means(factor=factor, n_clusters=len(np.unique(y)), random_state=seed)
    return float(normalized_mutual_info_score(y, clusters))


def accuracy(factor: Array, y: Labels, seed: int) -> float:
    """Of five nearest neighbours, two-fold."""
    right = 0
    folds: Any = StratifiedKFold(2, shuffle=True, random_state=seed)
    for train, test in folds.split(factor, y):
        found = KNeighborsClassifier(5).fit(factor[train], y[train]).predict(factor[test])
        right += int(np.sum(found == y[test]))
    return right / len(y)


def by_count(sample: Callable[[str, int], Sample | None], counts: Sequence[int]) -> list[Curve]:
    """A curve for each divergence over the numbers of constraints, from the input kernel on where it has one.

    `sample` is what was measured under a name with a number of constraints.
    """
    start, curves = sample("input", 0), []
    for name in DIVERGENCES:
        found = {0: start} | {count: sample(name, count) for count in counts}
        known = {count: one for count, one in found.items() if one is not None}
        curves.append(curve(name, list(known), list(known.values())))
    return curves


def digits_389(seed: int, quick: bool) -> tuple[Array, Labels, tuple[str, ...]]:
    """A random sample of the digits 3, 8 and 9 of Pendigits: the papers' own 317 rows are not to be had."""
    data, said = _data.load("pendigits", quick, "digits")
    X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y)
    if data.X_test is not None:
        X, y = np.concatenate([X, data.X_test]), np.concatenate([y, np.asarray(data.y_test)])
    count = 120 if quick else 317
    rows = np.flatnonzero(np.isin(y, (3, 8, 9)))
    rows = np.sort(np.random.RandomState(seed).permutation(rows)[:count])
    X = X[rows]
    return X[:, np.ptp(X, axis=0) > 0], y[rows], said
