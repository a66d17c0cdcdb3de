"""Learning a subspace beside fixing it up front: MBS11 10.1.1, figure 3.

A target of rank 3, almost of rank 2, is fitted by matrices of rank 2: once in the subspace of the two leading
principal components (subspace_weight 0), once with a subspace that is learned too (0.5).

    python examples/fixed_rank_subspace.py [--figure subspace.png]
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
    parser.add_argument("--figure", metavar="FILE", help="draw the two fits; needs matplotlib")
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
    if arguments.figure:
        draw(models, X, y, arguments.figure)


def draw(models: dict[str, nw.FixedRankRegressor], X: np.ndarray, y: np.ndarray, path: str) -> None:
    """The points U^T x / sqrt(y), which lie on the ellipse x^T R^2 x = 1 where the fit is perfect."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharex=True, sharey=True)
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for axis, (name, model) in zip(axes, models.items(), strict=True):
        U, R = np.linalg.qr(model.factor_)
        points = X @ U / np.sqrt(np.maximum(y, 1e-12))[:, None]
        axis.plot(*points.T, ".", markersize=3)
        axis.plot(*(np.linalg.inv(R).T @ circle), color="black")
        axis.set_title(f"subspace {name}\ntrain error {model.result_.cost:.3g}")
        axis.set_aspect("equal")
        axis.set_xlim(-2, 2)
        axis.set_ylim(-2, 2)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
