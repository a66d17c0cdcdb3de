"""pymanopt on the cost of fixed-rank regression, and what the benchmark's processes of their own do.

The gradient and the Hessian are written by hand, their products with the data in the order that is fastest
for BLAS, and the product that cost, gradient and Hessian of one point share is made once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from benchmarks._tables import peak_bytes, timed
from nearwise._common.types import Array
from nearwise.fixed_rank.driver import FixedRankRecord, minimise
from nearwise.fixed_rank.geometry import Flat, MixingGeometry, Polar
from nearwise.fixed_rank.regression import Regression, vector_forms

SEED = 0
_NOISE = 0.1  # the square root of 0.01, in (28)
GEOMETRIES: dict[str, MixingGeometry] = {"flat": Flat(), "polar": Polar()}
OPTIMIZERS = ("ConjugateGradient", "TrustRegions")


@dataclass(frozen=True, eq=False)
class Trace:
    """The costs that a run saw, and when."""

    seconds: Array
    costs: Array

    def time_to(self, cost: float) -> float | None:
        reached = np.flatnonzero(self.costs <= cost)
        return float(self.seconds[reached[0]]) if reached.size else None


@dataclass(frozen=True, eq=False)
class Planted:
    """Data of MBS11 (28), and a start that fits as well as its multiples allow."""

    X: Array
    y: Array
    start: Array


def planted(d: int, r: int, n: int) -> Planted:
    """x and the target's factor standard normal, noise of variance 0.01 times the value."""
    rng = np.random.default_rng(SEED)
    X, G = rng.standard_normal((n, d)), rng.standard_normal((d, r))
    y = np.square(X @ G).sum(axis=1) * (1 + _NOISE * rng.standard_normal(n))
    start = np.linalg.qr(rng.standard_normal((d, r)))[0]
    values = np.square(X @ start).sum(axis=1)
    return Planted(X, y, start * np.sqrt((values @ y) / (values @ values)))


def ours(data: Planted, geometry: str, tol: float, longest: float) -> Trace:
    """Our default on one of the two geometries; reading the data is part of the time."""
    seen: list[tuple[float, float]] = []
    began = time.perf_counter()
    forms = vector_forms(data.X)

    def note(record: FixedRankRecord) -> None:
        seen.append((time.perf_counter() - began, record.cost))

    start = data.start * forms.unit
    minimise(
        Regression(forms, data.y), GEOMETRIES[geometry], start, tol=tol, max_seconds=longest, callback=note
    )
    return _trace(seen)


def pymanopt(data: Planted, optimizer: str, longest: float) -> Trace:
    """PSDFixedRank with the given optimizer and its own stopping rules."""
    import pymanopt as peer
    from pymanopt import optimizers
    from pymanopt.manifolds import PSDFixedRank

    X, y = data.X, data.y
    n = len(y)
    manifold = PSDFixedRank(*data.start.shape)
    seen: list[tuple[float, float]] = []
    last: dict[str, Any] = {"point": None}

    def image(G: Array) -> Array:
        if last["point"] is not G:
            last.update(point=G, image=(G.T @ X.T).T)
        found: Array = last["image"]
        return found

    def residual(H: Array) -> Array:
        return np.asarray(np.einsum("ij,ij->i", H, H) - y)

    @peer.function.numpy(manifold)
    def cost(G: Array) -> float:
        error = residual(image(G))
        value = float(error @ error) / (2 * n)
        seen.append((time.perf_counter() - began, value))
        return value

    @peer.function.numpy(manifold)
    def gradient(G: Array) -> Array:
        H = image(G)
        return np.asarray(((H * (residual(H) * (2 / n))[:, None]).T @ X).T)

    @peer.function.numpy(manifold)
    def hessian(G: Array, D: Array) -> Array:
        H, E = image(G), (D.T @ X.T).T
        bent = E * residual(H)[:, None] + H * (2 * np.einsum("ij,ij->i", H, E))[:, None]
        return np.asarray((bent.T @ X).T * (2 / n))

    problem = peer.Problem(manifold, cost, euclidean_gradient=gradient, euclidean_hessian=hessian)
    method = getattr(optimizers, optimizer)(verbosity=0, max_time=longest, max_iterations=10_000)
    began = time.perf_counter()
    method.run(problem, initial_point=data.start.copy())
    return _trace(seen)


def _trace(seen: list[tuple[float, float]]) -> Trace:
    seconds, costs = np.array(seen).T
    return Trace(seconds, np.minimum.accumulate(costs))


def wide_data(d: int, n_objects: int) -> tuple[Array, NDArray[np.int64]]:
    """Ten classes that differ in ten directions of d, and noise in all of them."""
    rng = np.random.default_rng(SEED)
    y = rng.integers(10, size=n_objects)
    X = rng.standard_normal((n_objects, d))
    X += (3.0 * rng.standard_normal((10, 10)) @ np.linalg.qr(rng.standard_normal((d, 10)))[0].T)[y]
    return X, y


def measure(d: int, n_objects: int, rank: int, pairs: int) -> dict[str, Any]:
    """What a fit in d dimensions takes, after a small one that loads everything."""
    small = wide_data(50, 100)
    nw.FixedRankLearner(rank=2, n_pairs=100, random_state=SEED).fit(*small)
    X, y = wide_data(d, n_objects)
    side = nw.constraints.from_labels(y, n_pairs=pairs, random_state=SEED)
    learner = nw.FixedRankLearner(rank=rank, random_state=SEED)
    seconds, _ = timed(lambda: learner.fit(X, constraints=side))
    return {"seconds": seconds, "iterations": learner.n_iter_, "peak": peak_bytes()}
