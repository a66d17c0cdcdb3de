"""The workload of the solver's benchmark: MNIST in principal components, pairs from labels, timed solves."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from benchmarks import _tables
from benchmarks._tables import peak_bytes, size
from nearwise.side import Constraints

SEED = 0  # of the pairs and of the order in which the compiled loop visits them
GAPS = (1e-4, 1e-6)
TOL = GAPS[-1]  # of every solve
_LONGEST = 600.0  # seconds for one solve, so that a run always ends


@dataclass(frozen=True)
class Sizes:
    """How large everything is, and how often it is measured."""

    objects: int = size(60_000, 2_000)
    components: int = size(100, 20)
    pairs: int = size(100_000, 2_000)
    penalties: tuple[float, ...] = size((1e-3, 1e-2, 1e-1, 1.0), (1e-2, 1.0))
    sweeps: tuple[int, ...] = size(
        (5, 10, 20), (2, 4)
    )  # of the compiled loop in all, after each of its turns
    repeats: int = size(3, 1)
    itml_pairs: int = size(10_000, 300)
    itml_sweeps: int = size(100, 5)
    cvxpy_components: int = size(20, 6)
    cvxpy_pairs: int = size(200, 40)
    cvxpy_penalty: float = 1.0
    scale_pairs: tuple[int, ...] = size((10_000, 100_000, 1_000_000), (1_000, 4_000))
    scale_penalty: float = 1e-2


QUICK = _tables.quick_sizes(Sizes)


@dataclass(frozen=True, eq=False)
class Data:
    """Objects as rows of principal components, and their labels."""

    features: NDArray[np.float64]
    labels: NDArray[np.int64]

    def pairs(self, count: int) -> Constraints:
        return nw.constraints.from_labels(self.labels, n_pairs=count, random_state=SEED)

    def described(self, side: Constraints) -> str:
        n, r = self.features.shape
        return (
            f"MNIST, pixels / 255, {n:,} objects x {r} principal components; {len(side):,} pairs from labels "
            f"({side!r}); bounds at the 5th and 95th percentile of squared distances; tol {TOL:g}"
        )


@dataclass(frozen=True, eq=False)
class Run:
    """One solve of a problem made for it, with seconds by the clock."""

    result: nw.Result
    problem_seconds: float
    solve_seconds: float

    @property
    def seconds(self) -> float:
        return self.problem_seconds + self.solve_seconds

    def seconds_to_gap(self, gap: float) -> float | None:
        """The making of the problem included."""
        found = (record.seconds for record in self.result.history if record.gap <= gap)
        return next((self.problem_seconds + seconds for seconds in found), None)

    def seconds_to_objective(self, value: float) -> float | None:
        """The making of the problem included."""
        found = (record.seconds for record in self.result.history if record.primal <= value)
        return next((self.problem_seconds + seconds for seconds in found), None)


@functools.cache
def load(sizes: Sizes) -> Data:
    """MNIST's training images as principal components; read and decomposed once."""
    from sklearn.decomposition import PCA

    stored = nw.datasets.load("mnist")
    images = stored.X[: sizes.objects]
    pixels = images.reshape(len(images), -1).astype(np.float64) / 255
    pca = PCA(min(sizes.components, *pixels.shape), svd_solver="covariance_eigh")
    return Data(np.ascontiguousarray(pca.fit_transform(pixels)), np.asarray(stored.y)[: sizes.objects])


def warmed_up(
    data: Data, side: Constraints, penalty: float, divergence: nw.Divergence | None = None
) -> nw.Problem:
    """The problem, with everything compiled that its solution needs."""
    problem = nw.Problem(data.features, side, divergence, penalty=penalty)
    nw.solve(problem, max_iter=3, tol=TOL)
    return problem


def solve(data: Data, side: Constraints, penalty: float, divergence: nw.Divergence | None = None) -> Run:
    """Make the problem and solve it, by the clock."""
    start = time.perf_counter()
    problem = nw.Problem(data.features, side, divergence, penalty=penalty)
    made = time.perf_counter()
    result = nw.solve(problem, tol=TOL, max_seconds=_LONGEST)
    return Run(result, made - start, time.perf_counter() - made)


def measure(folder: str, pairs: int, penalty: float) -> dict[str, Any]:
    """What a solve takes, after a warm-up, on the features.npy and labels.npy of a folder."""
    data = Data(np.load(Path(folder, "features.npy")), np.load(Path(folder, "labels.npy")))
    side = data.pairs(pairs)
    warmed_up(data, side, penalty)
    run = solve(data, side, penalty)
    result = run.result
    found = {"seconds": run.seconds, "iterations": result.n_iter, "gap": result.certificate.gap}
    return found | {"peak": peak_bytes()}
