"""TRW05 5.1, figure 2: a kernel learned from one distance at a time, its total loss and the bound on it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from experiments._data import SAID, nearest_error, squared_distances, stand_in
from experiments._outcome import Curve, Outcome, Panel, Progress, Sample, followed, timed
from nearwise._common.types import Array

RATE = 2.0  # eta, which minimises the bound where the target has no loss (TRW05 5.1)
STEPS = 200_000  # "about 2 x 10^5 iterations" until the error is the target's
CHECKS = 40  # of the error along the way
PUBLISHED_RATIO = 2.0  # "about twice the actual total loss"


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Matrix exponentiated gradient from I / d on distances of the target, drawn at random."""
    steps = 10_000 if quick else STEPS
    losses, bounds, ratios, errors, targets = (Sample() for _ in range(5))
    curves: list[tuple[Array, Array, Array]] = []
    for draw in followed(range(seed, seed + (1 if quick else 3)), "kernels", progress):
        K, y = stand_in(draw)
        update = nw.online.ExponentiatedGradient(len(K), RATE)
        curve, seconds = timed(_follow, update, K, y, steps, draw)
        curves.append(curve)
        losses.add(update.total_loss, seconds)
        bounds.add(update.loss_bound(K))
        ratios.add(bounds.values[-1] / update.total_loss)
        errors.add(curve[2][-1])
        targets.add(nearest_error(K, y))
    counts, totals, wrong = curves[0]
    level = np.ones(len(counts))
    rows = [
        losses.row(f"total loss after {steps} distances"),
        bounds.row("bound on the total loss (lemma 3.2)"),
        ratios.row("bound over loss", PUBLISHED_RATIO),
        errors.row("error of the nearest neighbour, learned kernel"),
        targets.row("error of the nearest neighbour, target kernel"),
    ]
    loss = [Curve("loss", counts, totals), Curve("bound", counts, bounds.values[0] * level)]
    error = [Curve("learned", counts, wrong), Curve("target", counts, targets.values[0] * level)]
    return Outcome(
        "online-kernel",
        "TRW05 5.1: online kernel learning by matrix exponentiated gradient",
        rows,
        [
            Panel("total loss", "distances", "loss", loss),
            Panel("nearest neighbour", "distances", "error", error),
        ],
        (SAID, 'The published ratio is the paper\'s "about twice".'),
    )


def _follow(
    update: nw.online.ExponentiatedGradient, K: Array, y: NDArray[np.int64], steps: int, seed: int
) -> tuple[Array, Array, Array]:
    """Along the way: numbers of distances, total loss, error of the nearest neighbour.

    What is learned is half of a squared distance, TRW05 5.1.
    """
    rng = np.random.RandomState(seed)
    i = rng.randint(len(K), size=steps)
    pairs = np.stack([i, (i + rng.randint(1, len(K), size=steps)) % len(K)], axis=1)
    half = squared_distances(K)[pairs[:, 0], pairs[:, 1]] / 2
    edges = np.unique(np.linspace(0, steps, CHECKS + 1).astype(int))
    totals, wrong = [], []
    for low, high in pairwise(edges):
        update.update_many(pairs[low:high], half[low:high])
        totals.append(update.total_loss)
        wrong.append(nearest_error(update.matrix, y))
    return edges[1:].astype(float), np.array(totals), np.array(wrong)
