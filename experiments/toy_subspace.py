"""MBS11 10.1.1, figure 3: learning a subspace beside fixing it up front, for a target almost of rank 2.

A target of rank 3 is fitted by matrices of rank 2: once in the subspace of the two leading principal
components (lambda = 0), once with a subspace that is learned too (lambda = 0.5).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

import nearwise as nw
from experiments import _data as toy
from experiments._outcome import Curve, Outcome, Panel, Progress, Sample, followed
from nearwise._common.types import Array

SPECTRUM = (4.0, 3.0, 0.01)
SAMPLES = 200
SUBSPACES = {"principal components": 0.0, "learned": 0.5}
_SHOWN = 2.0  # largest coordinate in the figure: where y is nearly 0, the points are far out


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Fit several random targets in both subspaces."""
    found: dict[tuple[str, str], Sample] = defaultdict(Sample)
    panels: list[Panel] = []
    for problem in followed(range(seed, seed + (3 if quick else 20)), "random targets", progress):
        X, y, directions = _problem(problem)
        for name, weight in SUBSPACES.items():
            model = nw.FixedRankRegressor(2, subspace_weight=weight).fit(X, y)
            found["train error", name].add(model.result_.cost)
            found["R^2 on the training samples", name].add(model.score(X, y))
            found["degrees from the target's subspace", name].add(_angle(model.factor_, directions))
            if problem == seed:
                panels.append(_fit(f"subspace: {name}", model.factor_, X, y))
    names = dict.fromkeys(measure for measure, _ in found)
    rows = [found[measure, name].row(f"{measure}, {name}") for measure in names for name in SUBSPACES]
    return Outcome(
        "toy-subspace",
        "MBS11 10.1.1: a target of rank 3, almost of rank 2, fitted by matrices of rank 2",
        rows,
        panels,
        (
            "The paper shows one target and prints no number. In the figure a fit is perfect where the "
            "points U^T x / sqrt(y) lie on the ellipse x^T R^2 x = 1.",
        ),
    )


def _problem(seed: int) -> tuple[Array, Array, Array]:
    """Vectors in three dimensions, their targets, and the two leading directions of the target matrix."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    X = rng.standard_normal((SAMPLES, 3))
    return X, toy.observed(X, directions * np.sqrt(SPECTRUM), rng), directions[:, :2]


def _angle(G: Array, directions: Array) -> float:
    """The largest between the range of G and the span of orthonormal directions, in degrees."""
    cosines = np.linalg.svd(np.linalg.qr(G)[0].T @ directions, compute_uv=False)
    return float(np.degrees(np.arccos(np.clip(cosines.min(), 0, 1))))


def _fit(title: str, G: Array, X: Array, y: Array) -> Panel:
    """The points U^T x / sqrt(y) and the ellipse."""
    U, R = np.linalg.qr(G)
    points = X @ U / np.sqrt(np.maximum(y, np.finfo(float).tiny))[:, None]
    points = points[np.abs(points).max(axis=1) <= _SHOWN]
    angle = np.linspace(0, 2 * np.pi, 60)
    ellipse = np.linalg.solve(R.T, np.stack([np.cos(angle), np.sin(angle)]))
    cloud = Curve("samples", points[:, 0], points[:, 1], classes=np.full(len(points), "samples"))
    return Panel(
        title, "first coordinate", "second coordinate", [cloud, Curve("perfect fit", ellipse[0], ellipse[1])]
    )
