"""Clusters of objects under a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import threads
from nearwise._common.reading import finite, symmetric

_NEGATIVE = 1e-8  # of the largest eigenvalue: what a kernel may have below zero from rounding


def kernel_k_means(
    kernel: ArrayLike | None = None,
    n_clusters: int = 2,
    *,
    factor: ArrayLike | None = None,
    n_init: int = 10,
    random_state: int | np.random.RandomState | None = None,
) -> NDArray[np.int64]:
    """The clusters of k-means in the space of a kernel, the best of `n_init` random starts.

    In coordinates whose inner products are the kernel this is scikit-learn's `KMeans`, which runs on them.
    Compare clusters with classes by `sklearn.metrics.normalized_mutual_info_score`, which is the NMI of KSD09
    7.1 and MBS11 10.2.

    Parameters
    ----------
    kernel : (n, n), symmetric and positive semidefinite
    factor : (n, r) in place of it, as `Result.kernel_factor`, for the kernel factor factor^T
    n_clusters, n_init, random_state : as in `sklearn.cluster.KMeans`

    Returns
    -------
    The number of every object's cluster.

    >>> import numpy as np, nearwise as nw
    >>> nw.kernel_k_means(factor=[[0.0], [0.1], [5.0], [5.1]], n_clusters=2, random_state=0).tolist()
    [1, 1, 0, 0]
    """
    from sklearn.cluster import KMeans

    if (kernel is None) == (factor is None):
        raise ValueError("give either a kernel or a factor of it")
    rows = finite(factor, "factor", ndim=2) if factor is not None else _coordinates(kernel)
    if not 1 <= n_clusters <= len(rows):
        raise ValueError(f"n_clusters must be from 1 to {len(rows)}, the number of objects, got {n_clusters}")
    with threads.by_work(float(n_clusters) * rows.size):
        found: Any = KMeans(n_clusters, n_init=n_init, random_state=random_state).fit_predict(rows)
    return np.asarray(found, dtype=np.int64)


def _coordinates(kernel: Any) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(symmetric(kernel, "kernel"))
    if values.min(initial=0.0) < -_NEGATIVE * max(values.max(initial=0.0), 0.0):
        raise ValueError(f"kernel must be positive semidefinite, but has the eigenvalue {values.min():.6g}")
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
