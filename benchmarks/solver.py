"""The solver beside compiled projections, metric-learn and cvxpy, and its growth with the number of pairs.

Everything is measured in one run. What is compared takes turns, each timing is repeated, and the least is
kept, because other work on the machine can only lengthen it. Times to a gap or to an objective come from
`Result.history`, the others from a clock around the calls. Compilation is left out: a few iterations on the
same problem come first.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import nearwise as nw
from benchmarks import _tables, _yardsticks
from benchmarks._tables import Row, Table, Target, exponents, in_fresh_process, least, ratio
from benchmarks._workload import GAPS, QUICK, SEED, TOL, Data, Sizes, load, measure, solve, warmed_up
from nearwise.side import Constraints

TARGETS = {
    "sweeps to 0.0001": Target(6),
    "sweeps to 1e-06": Target(10),
    "VonNeumann / LogDet": Target(2),
    "ITML / ours": Target(100, at_least=True),
    "cvxpy / ours": Target(50, at_least=True),
    "peak memory, GB": Target(1.5),
    "exponent": Target(1.1),
}

_COMPARISON = f"time to a relative gap of {TOL:g}, von Neumann as a multiple of LogDet"


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    return _tables.run(argv, "solver", (__doc__ or "").partition("\n")[0], SECTIONS, Sizes(), QUICK)


def newton(sizes: Sizes) -> Iterator[Table]:
    """Time to two gaps, in sweeps of the compiled loop."""
    data = load(sizes)
    side = data.pairs(sizes.pairs)
    table = Table(
        "time to a relative gap in sweeps of a compiled cyclic-projection loop, LogDet",
        [
            data.described(side),
            "loop: JKDD12 algorithm 1, numba, one thread, pairs shuffled; a sweep is its mean over a turn",
            f"loop and solver take {len(sizes.sweeps)} turns, the least of each counts; whole solve: until "
            "it returns; checked gap: of our matrix, by a dense formula apart from the solver; "
            "the making of Problem is in all of these times",
        ],
    )
    progress = Table(
        "how far the compiled loop comes in the same run, LogDet",
        ["gap: by the same dense formula, inf where its multipliers prove nothing; as above otherwise"],
    )
    for penalty in sizes.penalties:
        problem = warmed_up(data, side, penalty)
        pairs = _yardsticks.PairProblem.of(problem)
        _yardsticks.CyclicProjections(pairs).sweep()
        loop = _yardsticks.CyclicProjections(pairs.shuffled(SEED))
        sweep, runs = math.inf, []
        gaps: Row = {}
        for done, goal in itertools.pairwise((0, *sizes.sweeps)):
            start = time.perf_counter()
            for _ in range(done, goal):
                loop.sweep()
            sweep = min(sweep, (time.perf_counter() - start) / (goal - done))
            gaps[f"gap after {goal} sweeps"] = pairs.relative_gap(loop.matrix)
            runs.append(solve(data, side, penalty))
        row: Row = {"penalty": penalty, "sweep, s": sweep}
        for gap in GAPS:
            seconds = least(run.seconds_to_gap(gap) for run in runs)
            in_sweeps = ratio(seconds, sweep)
            row |= {f"to {gap:.0e}, s": seconds, f"to {gap:.0e}, sweeps": in_sweeps}
            row |= TARGETS[f"sweeps to {gap:g}"].judged(in_sweeps)
        row |= {"whole solve, sweeps": min(run.seconds for run in runs) / sweep}
        row |= {"Problem, sweeps": min(run.problem_seconds for run in runs) / sweep}
        optimum = runs[-1].result.certificate.primal
        table.rows.append(row | {"checked gap": pairs.relative_gap(runs[-1].result.matrix)})
        above = problem.objective(loop.matrix) / optimum - 1
        progress.rows.append({"penalty": penalty, **gaps, "then objective above the optimum by": above})
    yield table
    yield progress


def divergences(sizes: Sizes) -> Iterator[Table]:
    """Von Neumann's time as a multiple of LogDet's, at the same penalty and at the same pressure."""
    data = load(sizes)
    side = data.pairs(sizes.pairs)
    typical_bound = float(np.median(nw.Problem(data.features, side).bounds))
    notes = [data.described(side), f"the two take turns; the least of {sizes.repeats} solves each"]
    yield _compared(sizes, data, side, 1.0, Table("same penalty: " + _COMPARISON, notes))
    unit = (
        f"von Neumann's slack is in units of squared distance: its penalty is divided by {typical_bound:.3g}"
    )
    yield _compared(sizes, data, side, typical_bound, Table("same pressure: " + _COMPARISON, [*notes, unit]))


def _compared(sizes: Sizes, data: Data, side: Constraints, unit: float, table: Table) -> Table:
    for penalty in sizes.penalties:
        choices = (nw.LogDet(), penalty), (nw.VonNeumann(), penalty / unit)
        for divergence, gamma in choices:
            warmed_up(data, side, gamma, divergence)
        turns = [[solve(data, side, gamma, d) for d, gamma in choices] for _ in range(sizes.repeats)]
        ours, theirs = (least(run.seconds_to_gap(TOL) for run in runs) for runs in zip(*turns, strict=True))
        multiple = ratio(theirs, ours)
        row: Row = {"penalty": penalty, "LogDet, s": ours, "iterations": turns[0][0].result.n_iter}
        row |= {"VonNeumann, s": theirs, "its iterations": turns[0][1].result.n_iter}
        row |= {"VonNeumann / LogDet": multiple}
        table.rows.append(row | TARGETS["VonNeumann / LogDet"].judged(multiple))
    return table


def itml(sizes: Sizes) -> Iterator[Table]:
    """Time to the objective that metric-learn's ITML ends with."""
    data = load(sizes)
    side = data.pairs(sizes.itml_pairs)
    table = Table(
        "time to the objective value with which metric-learn's ITML ends, LogDet",
        [
            data.described(side),
            f"ITML(gamma=penalty, max_iter={sizes.itml_sweeps}).fit, the same squared bounds, its own tol",
            f"ours: Problem and solve to its objective within {TOL:g}; once ITML between {sizes.repeats} and "
            f"{sizes.repeats} of ours, the least counts",
        ],
    )
    for penalty in sizes.penalties:
        problem = warmed_up(data, side, penalty)
        runs = [solve(data, side, penalty) for _ in range(sizes.repeats)]
        peer = _yardsticks.metric_learn_itml(_yardsticks.PairProblem.of(problem), sizes.itml_sweeps)
        runs += [solve(data, side, penalty) for _ in range(sizes.repeats)]
        reached, optimum = problem.objective(peer.matrix), runs[-1].result.certificate.primal
        seconds = least(run.seconds_to_objective(reached * (1 + TOL)) for run in runs)
        times = ratio(peer.seconds, seconds)
        above = reached / optimum - 1
        row: Row = {"penalty": penalty, "ITML, s": peer.seconds, "its sweeps": peer.iterations}
        row |= {"its objective": reached, "optimum": optimum, "above it by": above}
        row |= {"within 1e-3": "yes" if above <= 1e-3 else "never", "ours to its objective, s": seconds}
        row |= {f"ours to {TOL:.0e}, s": min(run.seconds for run in runs), "ITML / ours": times}
        table.rows.append(row | TARGETS["ITML / ours"].judged(times))
    yield table


def cvxpy(sizes: Sizes) -> Iterator[Table]:
    """A small problem beside cvxpy's conic solvers."""
    solvers = _yardsticks.cvxpy_solvers()
    everything = load(sizes)
    objects = slice(2 * sizes.cvxpy_pairs)
    features = np.ascontiguousarray(everything.features[objects, : sizes.cvxpy_components])
    data = Data(features, everything.labels[objects])
    side = data.pairs(sizes.cvxpy_pairs)
    penalty = sizes.cvxpy_penalty
    table = Table(
        "a small problem beside cvxpy, LogDet; the faster of its solvers counts",
        [
            f"{data.described(side)}; penalty {penalty:g}",
            "cvxpy: model, canonicalisation and solver with default settings; ours: Problem and solve; "
            f"in turns, the least of {sizes.repeats}",
        ],
    )
    pairs = _yardsticks.PairProblem.of(problem := warmed_up(data, side, penalty))
    runs, answers = [], []
    for _ in range(sizes.repeats):
        runs.append(solve(data, side, penalty))
        answers.append([_yardsticks.cvxpy_model(pairs, solver) for solver in solvers])
    ours, optimum = min(run.seconds for run in runs), runs[-1].result.certificate.primal
    for solver, given in zip(solvers, zip(*answers, strict=True), strict=True):
        seconds = min(answer.seconds for answer in given)
        row: Row = {"solver": solver, "cvxpy, s": seconds}
        row |= {"its solver alone, s": least(answer.solver_seconds for answer in given)}
        row |= {"its objective above ours by": problem.objective(given[-1].matrix) / optimum - 1}
        row |= {"ours, s": ours, "cvxpy / ours": seconds / ours}
        table.rows.append(row | TARGETS["cvxpy / ours"].judged(seconds / ours))
    yield table


def scale(sizes: Sizes) -> Iterator[Table]:
    """Seconds and memory for growing numbers of pairs, each in a fresh process."""
    data = load(sizes)
    n, r = data.features.shape
    table = Table(
        "growth with the number of pairs, LogDet",
        [
            f"{n:,} objects x {r}; penalty {sizes.scale_penalty:g}; tol {TOL:g}; pairs, bounds as in newton",
            f"seconds: Problem and solve, the least of {sizes.repeats} fresh processes per size, in turns",
            "peak memory: all of the process, so interpreter, libraries, features read from a file, drawing "
            "the pairs, Problem, solve",
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "features.npy"), data.features)
        np.save(Path(folder, "labels.npy"), data.labels)
        turns = [
            [in_fresh_process(measure, folder, m, sizes.scale_penalty) for m in sizes.scale_pairs]
            for _ in range(sizes.repeats)
        ]
    seconds = [min(found["seconds"] for found in of_size) for of_size in zip(*turns, strict=True)]
    slopes, overall = exponents(sizes.scale_pairs, seconds)
    for k, of_size in enumerate(zip(*turns, strict=True)):
        first, peak = of_size[0], max(found["peak"] for found in of_size) / 1e9
        row: Row = {"pairs": f"{sizes.scale_pairs[k]:,}", "seconds": seconds[k]}
        row |= {"iterations": first["iterations"], "gap": first["gap"], "peak memory, GB": peak}
        row |= TARGETS["peak memory, GB"].judged(peak)
        table.rows.append(row | ({"exponent from the row above": slopes[k - 1]} if k else {}))
    last: Row = {"pairs": "first to last", "exponent from the row above": overall}
    table.rows.append(last | TARGETS["exponent"].judged(overall))
    yield table


SECTIONS = _tables.alone(newton, divergences) | {"peers": (itml, cvxpy)} | _tables.alone(scale)
