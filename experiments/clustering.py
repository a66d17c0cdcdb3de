"""JKDD12 table 1: k-means under a metric learned from 50 pairs, beside k-means and HMRF-KMeans."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from benchmarks.baselines.hmrf_kmeans import hmrf_kmeans
from experiments import _data
from experiments._kernels import digits_389
from experiments._outcome import Outcome, Progress, Sample, followed, timed
from nearwise import constraints as c
from nearwise._common.types import Array, Labels

PAIRS = 50
PENALTY = 1.0
PUBLISHED = {
    ("ionosphere", "k-means"): 0.314,
    ("ionosphere", "LogDet, then k-means"): 0.113,
    ("ionosphere", "HMRF-KMeans"): 0.256,
    ("digits-389", "k-means"): 0.226,
    ("digits-389", "LogDet, then k-means"): 0.175,
    ("digits-389", "HMRF-KMeans"): 0.286,
}


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Error on the half from which no pair is drawn, the whole being clustered."""
    found: dict[tuple[str, str], Sample] = defaultdict(Sample)
    remarks: tuple[str, ...] = ()
    work = [(name, draw) for name in ("ionosphere", "digits-389") for draw in range(1 if quick else 20)]
    for name, draw in followed(work, "sets and draws", progress):
        X, y, said = _rows(name, seed + draw, quick)
        remarks += tuple(sentence for sentence in said if sentence not in remarks)
        folds = StratifiedKFold(2, shuffle=True, random_state=seed + draw)
        for train, test in folds.split(X, y):
            side = c.from_labels(y[train], n_pairs=PAIRS, random_state=seed + draw)
            near, far = (train[block.object_ids] for block in side.blocks)
            clusters, seconds = timed(_learned, X, y, near, far, seed)
            found[name, "LogDet, then k-means"].add(_error(clusters, y, test), seconds)
            found[name, "k-means"].add(_error(_k_means(X, y, seed), y, test))
            n_clusters = len(np.unique(y))
            found[name, "HMRF-KMeans"].add(_error(hmrf_kmeans(X, n_clusters, near, far, seed), y, test))
    rows = [
        sample.row(f"error, {name}, {how}", PUBLISHED[name, how]) for (name, how), sample in found.items()
    ]
    return Outcome(
        "clustering",
        f"JKDD12 table 1: semi-supervised clustering with {PAIRS} pairs",
        rows,
        (),
        (
            *remarks,
            "Columns are scaled to unit variance. The error counts objects outside the best matching of "
            "clusters to classes.",
            "On Ionosphere we do not reach the published 0.113, whatever the penalty, the scale of the "
            "columns or the number of pairs: 0.16 with 100 of them, 0.15 with 200 and with 500. The paper "
            "says neither how it scaled the columns nor how k-means was started.",
            "On digits-389 the partition of least cost, the best of ten starts, is a bad one (two digits "
            "share a cluster): a k-means that finds it less often has a lower error, as the published one "
            "has. HMRF-KMeans starts from the neighbourhoods of the pairs, which are good or bad luck.",
            "HMRF-KMeans is written here from its definition, without its learned metric.",
            "JKDD12's own rows of digits-389 are not to be had: each draw is another sample of 317 rows.",
        ),
    )


def _rows(name: str, seed: int, quick: bool) -> tuple[Array, Labels, tuple[str, ...]]:
    if name == "digits-389":
        X, y, said = digits_389(seed, quick)
    else:
        data, said = _data.load(name, quick, "iris")
        X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y)
    return StandardScaler().fit_transform(X[:, np.ptp(X, axis=0) > 0]), y, said


def _learned(X: Array, y: Labels, near: Labels, far: Labels, seed: int) -> Labels:
    """k-means under the metric that the pairs ask for."""
    problem = nw.Problem(X, c.similar(near) + c.dissimilar(far), nw.LogDet(), penalty=PENALTY)
    return _k_means(X @ nw.solve(problem, tol=1e-4).factor, y, seed)


def _k_means(X: Array, y: Labels, seed: int) -> Labels:
    return np.asarray(KMeans(len(np.unique(y)), n_init=10, random_state=seed).fit_predict(X))


def _error(clusters: Labels, y: Labels, rows: Labels) -> float:
    table = confusion_matrix(np.unique(y, return_inverse=True)[1][rows], clusters[rows])
    matched = table[linear_sum_assignment(-table)].sum()
    return 1.0 - float(matched) / len(rows)
