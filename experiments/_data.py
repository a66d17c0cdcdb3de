"""Data of the experiments; quick runs make do with a set that comes with scikit-learn.

`observed` and `random_problem` are the synthetic regression problems of MBS11 10.1. `stand_in` is a kernel in
place of GyrB, which is not to be had: 52 objects of three classes, of trace one. The kernel of TRW05 and
KSD09 among 52 proteins of three species of bacteria was never published. This one is a Gaussian kernel among
52 wines of three cultivars (scikit-learn's, 18, 17 and 17 of them, drawn by seed), with the reciprocal of the
number of features as its width, as scikit-learn has it.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise._common.types import Array, Labels
from nearwise.data.datasets import Dataset, DatasetUnavailable

NOISE = 0.1  # v_i of (28) has the variance 0.01
SIZES = (18, 17, 17)
SPLITS = 10  # of the objects, for the error of the nearest neighbour
SAID = "GyrB is not to be had: the kernel is a stand-in of the same size, among 52 wines of three cultivars."


def load(name: str, quick: bool, stand_in: str) -> tuple[Dataset, tuple[str, ...]]:
    """The set, or in a quick run where its file is missing another one, and a remark that says so."""
    try:
        return nw.datasets.load(name), ()
    except DatasetUnavailable:
        if not quick:
            raise
    return nw.datasets.load(stand_in), (f"{name} is not here: these are figures of {stand_in} instead.",)


def observed(X: Array, W_factor: Array, rng: np.random.Generator) -> Array:
    """y_i = x_i^T W x_i (1 + v_i) for W = G G^T, MBS11 (28)."""
    clean = np.square(X @ W_factor).sum(axis=1)
    return np.asarray(clean * (1 + NOISE * rng.standard_normal(len(X))))


def random_problem(n: int, d: int, rank: int, seed: int) -> tuple[Array, Array]:
    """n samples of a random target of that rank in d dimensions."""
    rng = np.random.default_rng(seed)
    X, G = rng.standard_normal((n, d)), rng.standard_normal((d, rank))
    return X, observed(X, G, rng)


def error(model: nw.FixedRankRegressor, X: Array, y: Array) -> float:
    """The mean of (y^ - y)^2 / 2, the paper's cost."""
    return float(np.mean((model.predict(X) - y) ** 2) / 2)


def stand_in(seed: int) -> tuple[Array, Labels]:
    """The kernel, 52 x 52, and the classes."""
    X, y = load_wine(return_X_y=True)
    rng = np.random.RandomState(seed)
    chosen = [rng.permutation(np.flatnonzero(y == label))[:size] for label, size in enumerate(SIZES)]
    rows = np.sort(np.concatenate(chosen))
    K = rbf_kernel(StandardScaler().fit_transform(X)[rows])
    return K / np.trace(K), y[rows].astype(np.int64)


def squared_distances(K: Array) -> Array:
    """Between all objects of a kernel."""
    d = np.diag(K)
    return np.maximum(d[:, None] + d - 2 * K, 0.0)


def nearest_error(K: Array, y: Labels) -> float:
    """Of the nearest neighbour, trained on random halves of the objects (TRW05 5.1)."""
    D = np.sqrt(squared_distances(K))
    wrong = []
    for split in range(SPLITS):
        train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=split)
        model = KNeighborsClassifier(1, metric="precomputed").fit(D[np.ix_(train, train)], y[train])
        wrong.append(np.mean(model.predict(D[np.ix_(test, train)]) != y[test]))
    return float(np.mean(wrong))
