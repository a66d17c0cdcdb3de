"""Online learners: speed, the loss bound of TRW05, rounding after a million updates, one pass over pendigits.

What is compared takes turns in one run, and the least time of each counts. Compilation is left out: a short
run comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from benchmarks import _extended, _tables
from benchmarks._tables import Row, Table, Target, size, timed
from nearwise._common.types import Array

TARGETS = {
    "pairs a second": Target(100_000, at_least=True),
    "full / rank-one": Target(5, at_least=True),
    "loss / bound": Target(1.0),
    "bound / loss": Target(4.0),
    "error above the target's": Target(0.0),
    "trace drift": Target(1e-9),
    "points above batch": Target(0.5),
}


@dataclass(frozen=True)
class Sizes:
    """How large everything is, and how often it is measured."""

    dimension: int = size(100, 20)
    pairs: int = size(100_000, 2_000)
    steps: int = size(200, 20)  # of the exponentiated gradient, in each turn
    repeats: int = size(7, 1)
    kernel_steps: int = size(200_000, 2_000)
    updates: int = size(1_000_000, 5_000)
    updates_dimension: int = 10
    reference_steps: int = size(10_000, 200)
    passed_pairs: int = size(50_000, 1_000)
    seeds: int = size(5, 1)


QUICK = _tables.quick_sizes(Sizes)


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    return _tables.run(argv, "online", (__doc__ or "").partition("\n")[0], SECTIONS, Sizes(), QUICK)


def feedback(sizes: Sizes) -> Iterator[Table]:
    """Pieces of feedback a second in one call of partial_fit."""
    rng = np.random.default_rng(0)
    d, m = sizes.dimension, sizes.pairs
    table = Table(
        f"feedback in one call of partial_fit, r = {d}",
        [
            f"OnlineLearner, {m:,} pieces for LogDet, a fiftieth of that for the others, on 5,000 objects, "
            f"by row number; reading them included; the least of {sizes.repeats}",
        ],
    )
    X = rng.standard_normal((5_000, d))
    i, j, k = rng.integers(0, 5_000, m), rng.integers(1, 2_500, m), rng.integers(1, 2_500, m)
    pairs = np.stack([i, (i + j) % 5_000], axis=1)
    triplets = np.stack([i, (i + j) % 5_000, (i - k) % 5_000], axis=1)
    truth = rng.uniform(0.2, 2.0, d)
    distances = np.square(X[pairs[:, 0]] - X[pairs[:, 1]]) @ truth
    streams = {
        "pairs with distances": lambda n: nw.constraints.equal(pairs[:n], distances[:n]),
        "similar and dissimilar pairs": lambda n: (
            nw.constraints.similar(pairs[: n // 2]) + nw.constraints.dissimilar(pairs[n // 2 : n])
        ),
        "triplets": lambda n: nw.constraints.closer(triplets[:n]),
    }
    for update in ("logdet", "exponentiated_gradient", "pola"):
        n = m if update == "logdet" else max(m // 50, 10)
        for name, stream in streams.items():
            side = stream(n)
            nw.OnlineLearner(update).partial_fit(X, constraints=stream(10))
            seconds, processor = _least_seconds(
                lambda: nw.OnlineLearner(update).partial_fit(X, constraints=side),  # noqa: B023
                sizes.repeats,
            )
            row: Row = {"update": update, "feedback": name, "a second": n / seconds}
            row |= {"microseconds each": 1e6 * seconds / n, "of the processor": 1e6 * processor / n}
            if update == "logdet" and name != "triplets":
                row |= TARGETS["pairs a second"].judged(n / seconds)
            table.rows.append(row)
    single = nw.online.LogDetOnline(d)
    z, y = X[:1000] - X[1000:2000], np.full(1000, float(d))
    single.update(z[0], y[0])
    seconds, processor = _least_seconds(
        lambda: [single.update(*example) for example in zip(z, y, strict=True)], sizes.repeats
    )
    last: Row = {"update": "nw.online.LogDetOnline", "feedback": "one distance a call"}
    last |= {"a second": 1000 / seconds, "microseconds each": 1e3 * seconds}
    table.rows.append(last | {"of the processor": 1e3 * processor})
    yield table


def exponentiated(sizes: Sizes) -> Iterator[Table]:
    """Rank-one instances by an update of the eigendecomposition, beside a new one a step."""
    rng = np.random.default_rng(0)
    d, m = sizes.dimension, sizes.steps
    table = Table(
        f"matrix exponentiated gradient with rank-one instances, r = {d}",
        [
            f"{m} steps in a turn, {sizes.repeats} turns, the least counts; full: TRW05 algorithm 1 with "
            "numpy.linalg.eigh of the exponent a step, in NumPy; agreement: of the two W, relative",
        ],
    )
    x, y = rng.standard_normal((m, d)) / np.sqrt(d), rng.uniform(0, 2.0 / d, m)
    start = partial(nw.online.ExponentiatedGradient, d, _extended.RATE)
    start().update_many(x[:3], y[:3])
    turns: list[tuple[float, float, float, float]] = []
    for _ in range(sizes.repeats):
        batch, single = start(), start()
        together, _ = timed(lambda: batch.update_many(x, y))  # noqa: B023
        one_by_one, _ = timed(lambda: [single.update(*example) for example in zip(x, y, strict=True)])  # noqa: B023
        full, W = timed(lambda: _extended.exponentiated(x, y, np.float64, np.linalg.eigh))
        turns.append((together, one_by_one, full, float(np.abs(batch.matrix - W).max() / W.max())))
    together, one_by_one, full, agreement = np.min(turns, axis=0)
    for name, seconds in (("one call", together), ("a call each", one_by_one)):
        row: Row = {"rank-one": name, "full, microseconds": 1e6 * full / m}
        row |= {"rank-one, microseconds": 1e6 * seconds / m, "full / rank-one": full / seconds}
        table.rows.append(row | TARGETS["full / rank-one"].judged(full / seconds) | {"agreement": agreement})
    yield table


def bound(sizes: Sizes) -> Iterator[Table]:
    """The experiment of TRW05 5.1 on a synthetic kernel."""
    d, classes = 52, 3
    rng = np.random.default_rng(0)
    kernel, labels = _three_classes(d, classes, rng)
    table = Table(
        "learning a 52 x 52 kernel from random distances, rate 2: TRW05 5.1",
        [
            "target: synthetic, trace one, three classes, in place of the paper's kernel of gyrB proteins; "
            "an example is half the squared distance of two objects; the bound is that of lemma 3.2",
            "error: of the nearest neighbour, half of the objects for training, mean of 10 divisions, in %",
        ],
    )
    goal = _neighbour_error(kernel, labels)
    learner = nw.online.ExponentiatedGradient(d, 2.0)
    i = rng.integers(0, d, sizes.kernel_steps)
    pairs = np.stack([i, (i + rng.integers(1, d, sizes.kernel_steps)) % d], axis=1)
    i, j = pairs.T
    half = (kernel[i, i] + kernel[j, j]) / 2 - kernel[i, j]
    done = 0
    for last in np.unique(np.geomspace(100, sizes.kernel_steps, 8).astype(int)):
        learner.update_many(pairs[done:last], half[done:last])
        done = int(last)
        limit, error = learner.loss_bound(kernel), _neighbour_error(learner.matrix, labels)
        row: Row = {"examples": done, "total loss": learner.total_loss, "bound": limit}
        row |= {"bound / loss": limit / learner.total_loss, "error": error, "target kernel's": goal}
        if done == sizes.kernel_steps:
            row |= TARGETS["loss / bound"].judged(learner.total_loss / limit, "under")
            row |= TARGETS["bound / loss"].judged(limit / learner.total_loss, "within")
            row |= TARGETS["error above the target's"].judged(error - goal, "error")
        table.rows.append(row)
    yield table


def rounding(sizes: Sizes) -> Iterator[Table]:
    """What a million updates do to a matrix, and a shorter run beside one in extended precision."""
    d = sizes.updates_dimension
    table = Table(
        f"after {sizes.updates:,} updates of a {d} x {d} matrix",
        [
            "trace drift: |tr - 1| where the trace is one; else |tr / reference - 1| on the shorter run; "
            "smallest eigenvalue: over the largest; asymmetry: largest |M - M^T|",
            f"error: largest entry of the difference to a run of {sizes.reference_steps:,} updates with "
            f"{np.finfo(np.longdouble).nmant + 1} bits, over the largest; orthogonality: of eigenvectors",
        ],
    )
    x, y = _extended.examples(sizes.updates, d)
    for name, case in _extended.CASES.items():
        long, short = case.make(d), case.make(d)
        _extended.in_chunks(case, long, x, y)
        head = x[: sizes.reference_steps], y[: sizes.reference_steps]
        case.feed(short, *head)
        exact = case.reference(*head).astype(np.float64)
        M, vectors = long.matrix, getattr(long._state, "vectors", None)
        values = np.linalg.eigvalsh(M)
        drift = np.trace(M) - 1.0 if case.trace_one else np.trace(short.matrix) / np.trace(exact) - 1.0
        row: Row = {
            "update": name,
            "smallest eigenvalue": float(values[0] / values[-1]),
            "asymmetry": float(np.abs(M - M.T).max()),
            "trace drift": float(abs(drift)),
            **TARGETS["trace drift"].judged(float(abs(drift))),
            "error": float(np.abs(short.matrix - exact).max() / np.abs(exact).max()),
        }
        if vectors is not None:
            row |= {"orthogonality": float(np.abs(vectors @ vectors.T - np.eye(d)).max())}
            row |= {"repairs": int(long._state.counts[1])}
        table.rows.append(row)
    yield table


def pendigits(sizes: Sizes) -> Iterator[Table]:
    """One pass over random pairs beside a batch fit."""
    data = nw.datasets.load("pendigits")
    train, test = (np.asarray(rows, dtype=np.float64) for rows in (data.X, data.X_test))
    table = Table(
        "pendigits: 5-NN error in percent after one pass over random pairs, beside MetricLearner's fit",
        [
            f"the set's own division, {len(train):,} and {len(test):,} objects; mean of {sizes.seeds} seeds; "
            f"{sizes.passed_pairs:,} pairs drawn from labels at random; default settings otherwise",
            "the default rates were chosen on halves of the training objects, without the test objects",
        ],
    )
    found: dict[str, list[float]] = {}
    for seed in range(sizes.seeds):
        learners: dict[str, Any] = {"MetricLearner": nw.MetricLearner(random_state=seed)}
        for update in ("logdet", "exponentiated_gradient", "pola"):
            learners[update] = nw.OnlineLearner(update, n_pairs=sizes.passed_pairs, random_state=seed)
        found.setdefault("Euclidean", []).append(_five_neighbours(train, data.y, test, data.y_test))
        for name, learner in learners.items():
            learner.fit(train, data.y)
            rate = _five_neighbours(learner.transform(train), data.y, learner.transform(test), data.y_test)
            found.setdefault(name, []).append(rate)
    for name, rates in found.items():
        row: Row = {"learner": name, "error": float(np.mean(rates))}
        if name == "logdet":
            above = float(np.mean(rates)) - float(np.mean(found["MetricLearner"]))
            row |= {"points above batch": above, **TARGETS["points above batch"].judged(above)}
        table.rows.append(row)
    yield table


def _least_seconds(work: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """By the clock, and of the processor."""
    turns = []
    for _ in range(repeats):
        before = time.perf_counter(), time.thread_time()
        work()
        turns.append((time.perf_counter() - before[0], time.thread_time() - before[1]))
    clock, processor = np.min(turns, axis=0)
    return float(clock), float(processor)


def _three_classes(d: int, classes: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """A Gaussian kernel of points around three centres, of trace one."""
    labels = np.arange(d) % classes
    points = 1.2 * rng.standard_normal((classes, 5))[labels] + rng.standard_normal((d, 5))
    squared = np.square(points[:, None] - points[None]).sum(axis=2)
    kernel = np.exp(-squared / np.median(squared))
    return kernel / np.trace(kernel), labels


def _neighbour_error(kernel: Array, labels: NDArray[np.int64]) -> float:
    from sklearn.model_selection import StratifiedShuffleSplit

    diagonal = np.diagonal(kernel)
    distances = diagonal[:, None] + diagonal - 2 * kernel
    divisions = StratifiedShuffleSplit(10, test_size=0.5, random_state=0).split(labels, labels)
    nearest = [(test, train[distances[np.ix_(test, train)].argmin(axis=1)]) for train, test in divisions]
    return 100.0 * float(np.mean([labels[found] != labels[test] for test, found in nearest]))


def _five_neighbours(train: Array, labels: Any, test: Array, others: Any) -> float:
    from sklearn.neighbors import KNeighborsClassifier

    return 100.0 * (1.0 - float(KNeighborsClassifier(5).fit(train, labels).score(test, others)))


SECTIONS = {"speed": (feedback, exponentiated)} | _tables.alone(bound, rounding, pendigits)
