"""MBS11 10.1.3, figure 5: online descent beside batch descent on many samples, and the size of mini-batches.

80,000 samples of a target of rank 10 in 50 dimensions, 20,000 for the test.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from experiments import _data as toy
from experiments._outcome import Curve, Outcome, Panel, Progress, Row, followed, timed
from nearwise._common.types import Array

GEOMETRIES = ("flat", "polar")
BATCH = {"batch, Armijo": "armijo", "batch, conjugate gradients": "auto"}
SIZES = (1, 32)  # of a mini-batch


class Point(NamedTuple):
    """The test error after some iterations or passes."""

    passes: int
    seconds: float
    error: float


Data = tuple[Array, Array, Array, Array]
Found = dict[tuple[str, str], list[Point]]


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Follow batch and online descent on the same samples."""
    n, d, rank = (2_000, 10, 2) if quick else (80_000, 50, 10)
    longest = 16 if quick else 64
    X, y = toy.random_problem(n + n // 4, d, rank, seed)
    data = X[:n], y[:n], X[n:], y[n:]
    found: Found = {}
    methods = [*BATCH, *(f"online, p = {size}" for size in SIZES)]
    work = [(geometry, method) for geometry in GEOMETRIES for method in methods]
    for geometry, method in followed(work, "descents", progress):
        if method in BATCH:
            found[geometry, method] = _batch(geometry, BATCH[method], rank, data, longest)
        else:
            size = int(method.rpartition(" ")[2])
            passes = 5 if size > 1 else 1
            found[geometry, method] = _online(geometry, size, rank, data, passes, seed)
    rows = []
    for (geometry, method), trace in found.items():
        steps = "passes" if method.startswith("online") else "iterations"
        for point in (trace[0], trace[-1])[: len(trace)]:
            setting = f"test error, {geometry}, {method}, {point.passes} {steps}"
            rows.append(Row(setting, None, point.error, None, point.seconds))
    for geometry in GEOMETRIES:
        level = found[geometry, f"online, p = {SIZES[-1]}"][0].error
        for method in BATCH:
            reached = next((point.passes for point in found[geometry, method] if point.error <= level), None)
            setting = f"iterations to the error of one pass online, p = {SIZES[-1]}, {geometry}, {method}"
            rows.append(Row(setting, None, reached))
    return Outcome(
        "toy-online",
        f"MBS11 10.1.3: {n:,} samples of a target of rank {rank} in {d} dimensions",
        rows,
        [_panel(geometry, methods, found) for geometry in GEOMETRIES],
        (
            "Seconds are those of learning; the online ones include the search for step sizes, which passes "
            "over a part of the data before the first pass.",
            f"Iterations are counted in powers of two; an empty figure was not reached in {longest}. With "
            "one sample a step a single pass is run, which costs as much time as many with mini-batches.",
            "With mini-batches of 32, online descent is ahead of Armijo's, which the paper compares it with, "
            "by passes over the data and, in the flat geometry, by time; it ends above the noise that both "
            "batch descents reach. With one sample a step a pass comes about as far as five with "
            "mini-batches, in several times their seconds: the paper too recommends mini-batches, strongly "
            "in the polar geometry, whose steps cost more.",
            "Conjugate gradients with an exact search, our default for batches, are not in the paper. They "
            "reach the noise in the time of one pass online: on this problem nothing is gained online.",
        ),
    )


def _batch(geometry: str, solver: str, rank: int, data: Data, longest: int) -> list[Point]:
    """Each point is a run of its own from the same start, so that no test slows the learning down."""
    X, y, X_test, y_test = data
    trace, count = [], 1
    while count <= longest:
        model = nw.FixedRankRegressor(rank, geometry, solver=solver, max_iter=count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, seconds = timed(model.fit, X, y)
        done = model.n_iter_ < count
        trace.append(Point(model.n_iter_, seconds, toy.error(model, X_test, y_test)))
        count = longest + 1 if done else 2 * count
    return trace


def _online(geometry: str, size: int, rank: int, data: Data, passes: int, seed: int) -> list[Point]:
    """Passes in random order; the first also searches the step sizes (23)."""
    X, y, X_test, y_test = data
    rng = np.random.default_rng(seed)
    model = nw.FixedRankRegressor(rank, geometry, batch_size=size, random_state=seed)
    trace, total = [], 0.0
    for count in range(1, passes + 1):
        order = rng.permutation(len(X))
        _, seconds = timed(model.partial_fit, X[order], y[order])
        total += seconds
        trace.append(Point(count, total, toy.error(model, X_test, y_test)))
    return trace


def _panel(geometry: str, methods: list[str], found: Found) -> Panel:
    curves = []
    for method in methods:
        _, seconds, errors = zip(*found[geometry, method], strict=True)
        curves.append(Curve(method, seconds, errors))
    return Panel(f"{geometry} geometry", "seconds", "test error", curves, log_x=True, log_y=True)
