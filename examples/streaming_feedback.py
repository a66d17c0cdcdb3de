"""A user sorts wines by hand: the metric follows each comparison, is stored half-way, and goes on.

Run with `python examples/streaming_feedback.py`; it takes a few seconds.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.preprocessing import StandardScaler

import nearwise as nw


def comparisons(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Triplets (a, p, n) of row numbers: a and p are of one kind, n is of another."""
    rows = rng.integers(0, len(labels), (8 * count, 3))
    a, p, n = rows.T
    asked = (a != p) & (labels[a] == labels[p]) & (labels[a] != labels[n])
    return rows[asked][:count]


def main() -> None:
    data = nw.datasets.load("wine")
    X, labels = StandardScaler().fit_transform(data.X), np.asarray(data.y)
    rng = np.random.default_rng(0)
    asked, held_out = comparisons(labels, 2000, rng), comparisons(labels, 2000, rng)
    learner = nw.OnlineLearner(learning_rate=5.0)
    checkpoints = [0, 10, 50, 200, 1000, 2000]
    print("answers  right on comparisons held out")
    right = np.mean([np.linalg.norm(X[a] - X[p]) < np.linalg.norm(X[a] - X[n]) for a, p, n in held_out])
    print(f"{0:7d}  {right:.1%}")
    with TemporaryDirectory() as folder:
        path = Path(folder, "learner.safetensors")
        for first, last in pairwise(checkpoints):
            for triplet in asked[first:last]:
                learner.partial_fit(X[triplet][np.newaxis])
            near, far = (learner.pair_distance(held_out[:, [0, k]], X) for k in (1, 2))
            print(f"{last:7d}  {np.mean(near < far):.1%}")
            nw.save(learner, path)
            learner = nw.load(path)  # goes on with identical results
    whole = nw.OnlineLearner(learning_rate=5.0).partial_fit(X[asked])
    same = np.array_equal(whole.get_mahalanobis_matrix(), learner.get_mahalanobis_matrix())
    print("one call with all answers gives the same metric, bit by bit:", same)


if __name__ == "__main__":
    main()
