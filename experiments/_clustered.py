"""KSD09 figures 3 and 4, for Spambase and Nursery: clusters and sweeps against the number of constraints.

A linear kernel of low rank, n too large for an n x n matrix in 2009, and constraints with slack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from experiments import _kernels as kernels
from experiments._outcome import Outcome, Panel, Progress, Sample, followed
from nearwise._common.types import Array

Preparation = Callable[[Array], Array]

_PENALTY = 10.0
_QUICK_ROWS = 400
_COUNTS = (50, 100, 200, 350, 500)


def study(
    name: str,
    title: str,
    X: Array,
    y: NDArray[np.int64],
    preparations: Mapping[str, Preparation],
    published_sweeps: Mapping[tuple[str, int], float],
    remarks: Sequence[str],
    quick: bool,
    seed: int,
    progress: Progress,
) -> Outcome:
    """Learn from more and more constraints, from the rows as they are and prepared in other ways."""
    if quick and len(X) > _QUICK_ROWS:
        X, _, y, _ = train_test_split(X, y, train_size=_QUICK_ROWS, stratify=y, random_state=seed)
    counts = (50, 200) if quick else _COUNTS
    if quick:
        preparations = dict(list(preparations.items())[-1:])
    found: dict[tuple[str, str, str, int], Sample] = defaultdict(Sample)
    draws = range(seed, seed + (1 if quick else 5))
    work = [(draw, way, count) for draw in draws for way in preparations for count in (0, *counts)]
    for draw, way, count in followed(work, "draws of constraints", progress):
        rows = preparations[way](X)
        if count == 0:
            found["NMI", way, "input", 0].add(kernels.information(rows, y, draw))
            continue
        side = kernels.pairs(rows, y, count, draw)
        for divergence_name, divergence in kernels.DIVERGENCES.items():
            longest = 50 if quick else 200
            learned, seconds = kernels.projected(rows, side, divergence, _PENALTY, longest)
            information = kernels.information(learned.kernel_factor, y, draw)
            found["NMI", way, divergence_name, count].add(information, seconds)
            found["sweeps", way, divergence_name, count].add(learned.n_sweeps, seconds)
    table = [
        sample.row(
            f"{measure}, {way}, {who}" + (f", {count} constraints" if count else " kernel"),
            published_sweeps.get((who, count)) if measure == "sweeps" else None,
        )
        for (measure, way, who, count), sample in sorted(found.items())
    ]
    panels = [_panel(measure, way, found, counts) for way in preparations for measure in ("NMI", "sweeps")]
    return Outcome(name, title, table, panels, remarks)


def _panel(
    measure: str, way: str, found: Mapping[tuple[str, str, str, int], Sample], counts: Sequence[int]
) -> Panel:
    curves = kernels.by_count(lambda name, count: found.get((measure, way, name, count)), counts)
    return Panel(f"{measure}, {way}", "constraints", measure, curves)
