"""HMRF-KMeans (Basu, Bilenko and Mooney, KDD 2004) with squared Euclidean distances, from its definition.

k-means whose objective also pays for violated pairs: a must-link pair in two clusters costs its squared
distance, a cannot-link pair in one cluster costs what is missing to the largest squared distance. Labels are
changed one object at a time until nothing improves (iterated conditional modes), then the means follow.
Clusters start at the means of the neighbourhoods that must-links make. Its learned metric is left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans

from nearwise._common.types import Array, Labels

Pairs = NDArray[np.int64]

_ROUNDS = 100


def hmrf_kmeans(X: Array, n_clusters: int, same: Pairs, different: Pairs, seed: int) -> Labels:
    """The cluster of every row."""
    rng = np.random.RandomState(seed)
    largest = float(np.sum(np.ptp(X, axis=0) ** 2))  # above every squared distance
    links: list[list[tuple[int, float, bool]]] = [[] for _ in X]
    for pairs, is_must in ((same, True), (different, False)):
        for i, j in pairs:
            distance = float(np.sum((X[i] - X[j]) ** 2))
            cost = distance if is_must else largest - distance
            links[i].append((int(j), cost, is_must))
            links[j].append((int(i), cost, is_must))
    means = _first_means(X, n_clusters, same, seed)
    labels = np.asarray(((X[:, None] - means) ** 2).sum(axis=2).argmin(axis=1), dtype=np.int64)
    for _ in range(_ROUNDS):
        before = labels.copy()
        costs = ((X[:, None] - means) ** 2).sum(axis=2)
        for i in rng.permutation(len(X)):
            total = costs[i].copy()
            for j, cost, is_must in links[i]:
                if is_must:
                    total += cost * (np.arange(n_clusters) != labels[j])
                else:
                    total[labels[j]] += cost
            labels[i] = int(total.argmin())
        for k in range(n_clusters):
            if np.any(labels == k):
                means[k] = X[labels == k].mean(axis=0)
        if np.array_equal(labels, before):
            break
    return labels


def _first_means(X: Array, n_clusters: int, same: Pairs, seed: int) -> Array:
    """Means of the largest neighbourhoods, and of k-means where there are too few."""
    ones = np.ones(len(same))
    graph = coo_array((ones, (same[:, 0], same[:, 1])), shape=(len(X), len(X)))
    _, member = connected_components(graph, directed=False)
    sizes = np.bincount(member)
    seeds = [X[member == k].mean(axis=0) for k in np.argsort(-sizes)[:n_clusters] if sizes[k] > 1]
    others = KMeans(n_clusters, n_init=10, random_state=seed).fit(X).cluster_centers_
    return np.array([*seeds, *others][:n_clusters])
