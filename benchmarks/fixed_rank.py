"""Fixed-rank regression beside pymanopt and Armijo's descent, streams, growth with the dimension, and USPS.

Everything is measured in one run, in turns, and the least of each counts. pymanopt runs PSDFixedRank with a
gradient and a Hessian written by hand, and the better of its ConjugateGradient and TrustRegions is compared
with, to the cost at which that one ends, from the same start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import nearwise as nw
from benchmarks import _fixed_rank_peers as peers, _fixed_rank_trials as trials, _tables
from benchmarks._tables import Row, Table, Target, counted, least, ratio, size, timed
from benchmarks.baselines import require

TARGETS = {
    "pymanopt / ours, each": Target(1, at_least=True),
    "pymanopt / ours, geometric mean": Target(2, at_least=True),
    "peak memory, GB": Target(1.0),
    "exponent": Target(1.1),
    "paper's 47.3 s / ours": Target(10, at_least=True),
    "polar / flat": Target(3),
    "rising": Target(0),
    "over Armijo by more than 1 %": Target(0),
    "exploded": Target(0),
}

_PAPER = {"flat": 3.25, "polar": 47.30, "LogDet": 46.78}  # seconds in MBS11 10.2.3, on a machine of 2011
_CLOSE = 1e-4  # relative distance from the final cost at which a run counts as arrived
_RUNS = 2 * len(trials.ANY_RANK) + len(trials.FULL_RANK)  # of one random problem, at three ranks
_NEGLIGIBLE = 1e-10  # of the cost of W = 0: what counts as zero where the data can be fitted exactly


@dataclass(frozen=True)
class Sizes:
    """How large everything is, and how often it is measured."""

    cases: tuple[tuple[int, int, int], ...] = size(
        (
            (50, 2, 1_000),
            (50, 20, 50_000),
            (200, 5, 5_000),
            (500, 2, 20_000),
            (500, 10, 2_000),
            (1_000, 10, 20_000),
            (2_000, 5, 5_000),
            (2_000, 20, 50_000),
        ),
        ((10, 2, 200), (20, 3, 400)),
    )
    longest: float = size(300.0, 10.0)  # seconds for one run
    repeats: int = size(3, 1)  # of cases that take less than a few seconds
    dimensions: tuple[int, ...] = size((1_000, 2_000, 5_000, 15_000), (100, 200))
    objects: int = size(2_000, 100)
    wide_rank: int = size(10, 3)
    wide_pairs: int = size(10_000, 200)
    usps_objects: int = size(2_007, 200)
    usps_pairs: int = size(100_000, 2_000)
    usps_rank: int = 6
    problems: int = size(100, 5)
    problem_dimension: int = size(8, 4)
    streams: int = size(1_000, 16)


QUICK = _tables.quick_sizes(Sizes)


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    description = (__doc__ or "").partition("\n")[0]
    return _tables.run(argv, "fixed-rank", description, SECTIONS, Sizes(), QUICK)


def pymanopt(sizes: Sizes) -> Iterator[Table]:
    """Time to the same cost from the same start."""
    require("pymanopt", "pymanopt")
    table = Table(
        "seconds to the cost at which the better of pymanopt's optimizers ends, from the same start",
        [
            "data (28), x and the factor standard normal, 10 % multiplicative noise; start: random "
            "orthonormal directions, times the number that fits best",
            f"a run has arrived within {_CLOSE:g} of the final cost, or at {_NEGLIGIBLE:g} of that of W = 0",
            "pymanopt / ...: its better time to ours; the flat geometry is PSDFixedRank's own",
        ],
    )
    ratios: dict[str, list[float]] = {name: [] for name in peers.GEOMETRIES}
    for d, r, n in sizes.cases:
        data = peers.planted(d, r, n)
        negligible = _NEGLIGIBLE * float(data.y @ data.y) / (2 * n)
        theirs: dict[str, list[peers.Trace]] = {name: [] for name in peers.OPTIMIZERS}
        mine: dict[str, list[peers.Trace]] = {name: [] for name in peers.GEOMETRIES}
        for turn in range(sizes.repeats):
            for name in theirs:
                theirs[name].append(peers.pymanopt(data, name, sizes.longest))
            for name in mine:
                mine[name].append(peers.ours(data, name, 1e-9, sizes.longest))
            if turn == 0 and theirs["TrustRegions"][0].seconds[-1] > 10:
                break
        goal = min(trace.costs[-1] for traces in theirs.values() for trace in traces)
        goal = max(goal * (1 + _CLOSE), negligible)
        times = {name: least(t.time_to(goal) for t in traces) for name, traces in (theirs | mine).items()}
        row: Row = {"d": d, "rank": r, "samples": n, **times}
        better = least(times[name] for name in theirs)
        for name in mine:
            found = row[f"pymanopt / {name}"] = ratio(better, times[name])
            ratios[name].append(found or 0.0)
        table.rows.append(row | TARGETS["pymanopt / ours, each"].judged(ratios["flat"][-1]))
    means = {name: math.exp(np.mean(np.log(np.maximum(found, 1e-9)))) for name, found in ratios.items()}
    last: Row = {"samples": "geometric mean"}
    last |= {f"pymanopt / {name}": value for name, value in means.items()}
    table.rows.append(last | TARGETS["pymanopt / ours, geometric mean"].judged(means["flat"]))
    yield table


def descent(sizes: Sizes) -> Iterator[Table]:
    """Our default beside the paper's descent on random problems."""
    table = Table(
        f"{sizes.problems} random problems at ranks 1, d/2 and d, from the same random start",
        [
            f"in turn {', '.join(trials.KINDS)}, d from 4 to {sizes.problem_dimension}; half of the vectors "
            "and pairs with features of scales from 0.1 to 10, exact and noisy targets; tol 1e-5, at most "
            "1000 iterations",
            "rising: runs whose recorded costs do not fall at every step, or are not the cost of the factor",
            f"over Armijo: above its cost by more than 1 %, and above {trials.TOL:g} of the cost of W = 0, "
            "where both stop by the first rule of (24)",
        ],
    )
    problems = trials.trials(range(sizes.problems), sizes.problem_dimension)
    found = list(counted(problems, sizes.problems * _RUNS))
    for geometry in trials.FULL_RANK:
        for rank in dict.fromkeys(trial.rank for trial in found):
            runs = [trial for trial in found if trial.geometry == geometry and trial.rank == rank]
            if not runs:
                continue
            up, over = sum(run.rises for run in runs), len([run for run in runs if run.excess > 0.01])
            row: Row = {"geometry": geometry, "rank": rank, "runs": len(runs), "rising": up}
            row |= TARGETS["rising"].judged(up, "rising") | {"over Armijo": over}
            row |= TARGETS["over Armijo by more than 1 %"].judged(over, "over Armijo")
            row |= {"largest excess": max(run.excess for run in runs)}
            row |= {"seconds": sum(run.seconds for run in runs)}
            table.rows.append(row | {"seconds, Armijo": sum(run.seconds_armijo for run in runs)})
    yield table


def streams(sizes: Sizes) -> Iterator[Table]:
    """Online descent with one sample a step, on streams that are hard on it."""
    table = Table(
        f"{sizes.streams:,} random streams of 300 samples, one sample a step",
        [
            "a quarter each: normal samples, ones of very different length (Student's t, 1.5 degrees of "
            "freedom), features of scales from 0.01 to 100, one of 20 targets wrong by a factor of 1000; "
            "d from 2 to 15, rank from 1 to d, half with steps that never shrink",
            "error: the mean square over all 300 samples, those to come included, relative to that of W = 0, "
            "the largest after any 50 samples; seen: the same over the samples that have come",
            "beside: the error relative to W = 0 or to the multiple of |x|^2 that fits the samples that have "
            "come best, whichever errs more; exploded: beside or seen above 10, or no number",
            "flat, (9) alone: the same schedule without the rules that shorten steps",
        ],
    )
    found = list(counted(trials.streams(range(sizes.streams)), sizes.streams))
    runs = {name: [run for geometry, run, _ in found if geometry == name] for name in trials.ANY_RANK}
    runs["flat, (9) alone"] = [plain for _, _, plain in found if plain is not None]
    for name, followed in runs.items():
        exploded = sum(run.exploded for run in followed)
        errors, beside, seen = np.array([(run.everywhere, run.to_come, run.seen) for run in followed]).T
        row: Row = {"steps": name, "streams": len(followed), "exploded": exploded}
        if name in trials.ANY_RANK:
            row |= TARGETS["exploded"].judged(exploded)
        row |= {"median error": float(np.median(errors)), "largest error": float(errors.max())}
        table.rows.append(row | {"largest beside": float(beside.max()), "largest seen": float(seen.max())})
    yield table


def dimension(sizes: Sizes) -> Iterator[Table]:
    """Seconds and memory of metric learning in growing dimension, each in a fresh process."""
    table = Table(
        "growth with the dimension, FixedRankLearner",
        [
            f"{sizes.objects:,} objects of ten classes, rank {sizes.wide_rank}, {sizes.wide_pairs:,} pairs "
            "from labels; polar geometry, all defaults",
            f"seconds: fit, start included, the least of {sizes.repeats} fresh processes per dimension, in "
            "turns; peak memory: all of the process, the data included",
        ],
    )
    settings = sizes.objects, sizes.wide_rank, sizes.wide_pairs
    turns = [
        [_tables.in_fresh_process(peers.measure, d, *settings) for d in sizes.dimensions]
        for _ in range(sizes.repeats)
    ]
    seconds = [min(one["seconds"] for one in found) for found in zip(*turns, strict=True)]
    slopes, overall = _tables.exponents(sizes.dimensions, seconds)
    for k, found in enumerate(zip(*turns, strict=True)):
        peak = max(one["peak"] for one in found) / 1e9
        row: Row = {"d": sizes.dimensions[k], "seconds": seconds[k], "iterations": found[0]["iterations"]}
        row |= {"exponent from the row above": slopes[k - 1]} if k else {}
        table.rows.append(row | {"peak memory, GB": peak} | TARGETS["peak memory, GB"].judged(peak))
    last: Row = {"d": "first to last", "exponent from the row above": overall}
    table.rows.append(last | TARGETS["exponent"].judged(overall))
    yield table


def usps(sizes: Sizes) -> Iterator[Table]:
    """The experiment of MBS11 10.2.3: a kernel of rank 6 from pairs, and k-means with it."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    K, y, side = _usps_kernel(sizes)
    table = Table(
        "kernel learning on USPS",
        [
            f"{len(K):,} test digits, centred RBF kernel, gamma 0.001; {len(side):,} pairs, distances at "
            "most half of the old ones in a class and at least 1.5 times across; start kernel PCA, "
            f"rank {sizes.usps_rank}",
            "seconds: all of fit, kernel PCA included; NMI of k-means (best of 10 runs) on the learned "
            "kernel, on the objects that the pairs are drawn from",
            "LogDet keeps the range of kernel PCA: nearwise.solve, penalty 1; published: MBS11, in 2011",
        ],
    )

    def embedding(geometry: str, solver: str) -> nw.FixedRankEmbedding:
        model = nw.FixedRankEmbedding(
            sizes.usps_rank, "kernel", geometry, solver=solver, random_state=peers.SEED
        )
        return model.fit(K, constraints=side)

    def nmi(rows: Any) -> float:
        clusters = KMeans(10, n_init=10, random_state=peers.SEED).fit_predict(rows)
        return float(normalized_mutual_info_score(y, clusters))

    runs = _tables.in_turns([partial(embedding, name, "auto") for name in peers.GEOMETRIES], sizes.repeats)
    best = dict(zip(peers.GEOMETRIES, (seconds for seconds, _ in runs), strict=True))
    for name, (seconds, model) in zip(peers.GEOMETRIES, runs, strict=True):
        row: Row = {"method": name, "seconds": seconds, "published": _PAPER[name]}
        row |= {"iterations": model.n_iter_, "cost": model.result_.cost, "NMI": nmi(model.embedding_)}
        if name == "polar":
            gain, share = _PAPER[name] / seconds, seconds / best["flat"]
            row |= {"paper's 47.3 s / ours": gain, **TARGETS["paper's 47.3 s / ours"].judged(gain)}
            row |= {"polar / flat": share, **TARGETS["polar / flat"].judged(share)}
        table.rows.append(row)
    for name in peers.GEOMETRIES:
        seconds, model = timed(partial(embedding, name, "armijo"))
        row = {"method": f"{name}, Armijo as in the paper", "seconds": seconds, "iterations": model.n_iter_}
        table.rows.append(row | {"cost": model.result_.cost, "NMI": nmi(model.embedding_)})
    values, vectors = np.linalg.eigh(K)
    factor = vectors[:, -sizes.usps_rank :] * np.sqrt(values[-sizes.usps_rank :])
    seconds, result = timed(lambda: nw.solve(nw.Problem(factor, side)))
    row = {"method": "LogDet", "seconds": seconds, "published": _PAPER["LogDet"]}
    table.rows.append(row | {"iterations": result.n_iter, "NMI": nmi(result.kernel_factor)})
    table.rows.append({"method": "kernel PCA", "NMI": nmi(factor)})
    yield table


def _usps_kernel(sizes: Sizes) -> tuple[Any, Any, nw.constraints.Constraints]:
    """The centred kernel of the test digits, their labels, and the pairs of 10.2.1."""
    stored = nw.datasets.load("usps")
    from sklearn.metrics.pairwise import rbf_kernel

    X, y = np.asarray(stored.X_test, float)[: sizes.usps_objects], np.asarray(stored.y_test)
    y = y[: sizes.usps_objects]
    K = rbf_kernel(X, gamma=0.001)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    rng = np.random.default_rng(peers.SEED)
    pairs = rng.integers(0, len(K), (sizes.usps_pairs, 2))
    squares = K[pairs[:, 0], pairs[:, 0]] + K[pairs[:, 1], pairs[:, 1]] - 2 * K[pairs[:, 0], pairs[:, 1]]
    apart = squares > 1e-12
    pairs, squares = pairs[apart], squares[apart]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    near = nw.constraints.at_most(pairs[same], squares[same] * 0.5)
    return (K + K.T) / 2, y, near + nw.constraints.at_least(pairs[~same], squares[~same] * 1.5)


SECTIONS = _tables.alone(pymanopt, descent, streams, dimension, usps)
