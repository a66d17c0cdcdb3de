"""Learning a subspace beside fixing it up front: MBS11 10.1.1, figure 3.

A target of rank 3, almost of rank 2, is fitted by matrices of rank 2: once in the subspace of the two leading
principal components (subspace_weight 0), once with a subspace that is learned too (0.5). On many targets and
with a figure: `make reproduce NAME=toy-subspace`.

    python examples/fixed_rank_subspace.py [--seed 0]
"""

from __future__ import annotations

import argparse

import numpy as np

import nearwise as nw


def data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """200 vectors in three dimensions, their targets (28), and the two leading directions of the target."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    target = directions @ np.diag([4.0, 3.0, 0.01]) @ directions.T
    X = rng.standard_normal((200, 3))
    y = np.einsum("ni,ij,nj->n", X, target, X) * (1 + 0.1 * rng.standard_normal(200))
    return X, y, directions[:, :2]


def largest_angle(G: np.ndarray, directions: np.ndarray) -> float:
    """Between the range of G and the span of orthonormal directions, in degrees."""
    cosines = np.linalg.svd(np.linalg.qr(G)[0].T @ directions, compute_uv=False)
    return float(np.degrees(np.arccos(np.clip(cosines.min(), 0, 1))))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    X, y, directions = data(arguments.seed)
    models = {
        "fixed (principal components)": nw.FixedRankRegressor(2, subspace_weight=0.0).fit(X, y),
        "learned": nw.FixedRankRegressor(2, subspace_weight=0.5).fit(X, y),
    }
    print(f"{'subspace':30} {'train error':>12} {'R^2':>7} {'angle to the target':>21}")
    for name, model in models.items():
        angle = largest_angle(model.factor_, directions)
        print(f"{name:30} {model.result_.cost:12.4f} {model.score(X, y):7.3f} {angle:19.1f} °")


if __name__ == "__main__":
    main()
