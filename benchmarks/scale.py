"""Many pairs out of core and on local workers: memory, time per iteration, its growth, and what workers gain.

Vectors are drawn lazily and written to Parquet, several files of single precision; pairs are drawn between
all of them. An iteration is one of Newton's method, in a solve that starts at the prior, in
seconds of the processor, which other work on the machine lengthens less than those of the clock; workers tell
theirs. Memory is the peak resident size of all processes together, which counts memory-mapped pages that they
share more than once. Each section is a part that can be run alone (`--only`), and `--pairs` and `--vectors`
make it smaller; a line on standard error for each iteration tells how far it is.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import nearwise as nw
from benchmarks import _tables
from benchmarks._tables import Row, Table, Target, exponents, in_fresh_process, peak_bytes, size
from benchmarks._timed_rows import Spent, TimedRows, mean_of, spent_so_far
from benchmarks.baselines import Unavailable
from nearwise.distributed import open_pairs, open_vectors, vectors_of
from nearwise.side import Constraints

TARGETS = {
    "peak memory, GB": Target(4),
    "exponent": Target(1.1),
    "least exponent": Target(0.9, at_least=True),
    "two workers": Target(1.6, at_least=True),
    "overhead": Target(0.1),
    "client, MB": Target(500),
    "memory, larger over smaller": Target(1.5),
}


TABLE_LEARNERS = ("MetricLearner", "FixedRankLearner")


@dataclass(frozen=True)
class Sizes:
    """How large it is."""

    vectors: int = size(1_000_000, 4000)
    width: int = size(100, 8)
    pairs: int = size(10_000_000, 20_000)
    growing: tuple[int, ...] = size((100_000, 1_000_000, 10_000_000), (2000, 20_000))
    files: int = size(4, 2)
    penalty: float = size(1e-3, 1e-2)
    tol: float = 1e-4
    worker_pairs: int = size(10_000_000, 20_000)
    iterations: int = 3
    client_vectors: int = size(10_000_000, 20_000)
    client_pairs: int = size(200_000, 2000)
    table_pairs: tuple[int, ...] = size((5_000_000, 50_000_000), (2000, 20_000))
    table_vectors: int = size(100_000, 500)
    table_width: int = size(32, 4)


QUICK = _tables.quick_sizes(Sizes)


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--vectors", type=int)
    own, others = parser.parse_known_args(argv)
    full, quick = (_smaller(sizes, own.pairs, own.vectors) for sizes in (Sizes(), QUICK))
    options = "".join(f" --{name} {value}" for name, value in vars(own).items() if value is not None)
    about = f"{(__doc__ or '').partition(chr(10))[0]} --pairs N, --vectors N: at most so many."
    return _tables.run(others, "scale", about, SECTIONS, full, quick, options)


def _smaller(sizes: Sizes, pairs: int | None, vectors: int | None) -> Sizes:
    """With at most so many pairs and vectors."""
    m, n = pairs or sizes.pairs, vectors or sizes.vectors
    return replace(
        sizes,
        pairs=min(sizes.pairs, m),
        worker_pairs=min(sizes.worker_pairs, m),
        client_pairs=min(sizes.client_pairs, m),
        table_pairs=tuple(sorted({min(count, pairs or count) for count in sizes.table_pairs})),
        growing=(*(count for count in sizes.growing if count < m), min(m, sizes.growing[-1])),
        vectors=min(sizes.vectors, n),
        client_vectors=min(sizes.client_vectors, 10 * n),
    )


def parquet(sizes: Sizes) -> Iterator[Table]:
    """A whole solve from Parquet to a certified gap."""
    table = Table(
        f"{sizes.pairs:,} pairs over {sizes.vectors:,} x {sizes.width} single-precision vectors in Parquet",
        [f"LogDet, penalty {sizes.penalty:g}, to a gap of {sizes.tol:g}; threads of one process"],
    )
    with tempfile.TemporaryDirectory() as folder:
        _written(Path(folder), sizes)
        start = time.perf_counter()
        vectors = open_vectors(folder, scratch=folder)
        opened = time.perf_counter() - start
        problem = nw.Problem(vectors, _pairs(sizes, sizes.pairs), penalty=sizes.penalty)
        bound = time.perf_counter() - start - opened
        result = nw.solve(problem, tol=sizes.tol, callback=_told)
        solved, peak = time.perf_counter() - start - opened - bound, _peak()
        row: Row = {"reading, s": opened, "Problem, s": bound, "solve, s": solved}
        row |= {"iterations": result.n_iter, "gap": result.certificate.gap}
        row |= {"processor, s": time.process_time(), "peak memory, GB": peak}
        table.rows.append(row | TARGETS["peak memory, GB"].judged(peak))
        del vectors, problem, result
    yield table


def tables(sizes: Sizes) -> Iterator[Table]:
    """The memory of a fit to pairs in Parquet, for growing numbers of them, each in a process of its own."""
    n, r = sizes.table_vectors, sizes.table_width
    table = Table(
        f"pairs in Parquet over {n:,} x {r} single-precision vectors in memory",
        [
            f"bounds in a column; MetricLearner: LogDet, one penalty, to a gap of {sizes.tol:g}; "
            "FixedRankLearner: rank 5; 'memory' is over the first row of the same learner",
        ],
    )
    first: dict[str, float] = {}
    for m in sizes.table_pairs:
        with tempfile.TemporaryDirectory() as folder:
            _written_pairs(Path(folder), n, r, m)
            for learner in TABLE_LEARNERS:
                row = in_fresh_process(fit_table, folder, learner, sizes.tol)
                share = row["peak, MB"] / first.setdefault(learner, row["peak, MB"])
                if share != 1.0:
                    row |= {"memory": share, **TARGETS["memory, larger over smaller"].judged(share)}
                table.rows.append(Row(pairs=f"{m:,}", learner=learner) | row)
    yield table


def fit_table(folder: str, name: str, tol: float) -> Row:
    """What the process of a row of `tables` does, and what it takes."""
    X = np.load(Path(folder, "x.npy"))
    pairs = open_pairs(sorted(Path(folder).glob("*.parquet")), ["left", "right"], scratch=folder)
    near, far = pairs.where("same", True), pairs.where("same", False)
    side = nw.constraints.at_most(near, "limit") + nw.constraints.at_least(far, "limit")
    read = time.process_time()
    learner: Any
    if name == "MetricLearner":
        freedom = X.shape[1] * (X.shape[1] + 1) / 2
        learner = nw.MetricLearner(penalty=freedom / len(side), tol=tol, random_state=0)
    else:
        learner = nw.FixedRankLearner(rank=min(5, X.shape[1]), random_state=0)
    status = learner.fit(X, constraints=side).status_.name
    found: Row = {"reading, s": read, "fit, s": time.process_time() - read, "status": status}
    return found | {"peak, MB": peak_bytes() / 1e6}


def _written_pairs(folder: Path, n: int, r: int, m: int) -> None:
    """Vectors, and pairs in four files, each drawn and written a million at a time."""
    pa, file = _pyarrow()
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, n)
    X = rng.standard_normal((n, r), dtype=np.float32)
    X[:, : r // 4] += 2 * labels[:, None]
    np.save(folder / "x.npy", X)
    kinds = {"left": pa.int64(), "right": pa.int64(), "same": pa.bool_(), "limit": pa.float32()}
    for part in range(4):
        with file.ParquetWriter(folder / f"{part}.parquet", pa.schema(kinds.items())) as writer:
            for low in range(0, m // 4, 1_000_000):
                i = rng.integers(0, n, min(1_000_000, m // 4 - low))
                j = (i + rng.integers(1, n, len(i))) % n
                same = labels[i] == labels[j]
                limit = np.where(same, 1.2 * r, 2.5 * r).astype(np.float32)
                writer.write_table(pa.table([i, j, same, limit], writer.schema))


def growth(sizes: Sizes) -> Iterator[Table]:
    """Seconds of an iteration for growing numbers of pairs."""
    table = Table(
        "growth of an iteration with the number of pairs",
        [
            f"{sizes.vectors:,} x {sizes.width} vectors, memory-mapped; LogDet, penalty per pair "
            f"{sizes.penalty:g} at the largest number, and the same total at the others",
        ],
    )
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        vectors = _mapped(Path(folder), sizes)
        for m in sizes.growing:
            penalty = sizes.penalty * sizes.growing[-1] / m
            problem = nw.Problem(vectors, _pairs(sizes, m), penalty=penalty)
            seconds.append(float(np.median([one.here for one in _iterations(problem, sizes)])))
            table.rows.append({"pairs": f"{m:,}", "s / iteration": seconds[-1]})
        del vectors
    slopes, overall = exponents(sizes.growing, seconds)
    for row, slope in zip(table.rows[1:], slopes, strict=True):
        row["exponent from the row above"] = slope
    last: Row = {"pairs": "first to last", "exponent from the row above": overall}
    last |= TARGETS["least exponent"].judged(overall)
    table.rows.append(last | TARGETS["exponent"].judged(overall))
    yield table


def workers(sizes: Sizes) -> Iterator[Table]:
    """An iteration on one and on two local workers of one thread, and without Dask."""
    table = Table(
        f"an iteration over {sizes.worker_pairs:,} pairs on local workers of one thread",
        [
            "job: processor seconds of what is computed, on pieces and between passes; all: those of this "
            "process, with the scheduler in it, and of the workers; overhead: what all have more than the "
            "job, over the job",
            "could be faster: one worker's seconds over the busier one's, each with those of this process, "
            "as two free cores have it",
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        _mapped(Path(folder), sizes)
        side = _pairs(sizes, sizes.worker_pairs)

        def iteration(client: Any) -> Spent:
            found = open_vectors(Path(folder, "vectors.npy"), client=client)
            rows = TimedRows(found.parts, client=client)
            return mean_of(_iterations(nw.Problem(rows, side, penalty=sizes.penalty), sizes, rows))

        with nw.threads(1):
            plain = iteration(None)
        table.rows.append(
            {"workers": "none", "job, s": plain.job, "all, s": plain.here, "clock, s": plain.clock}
        )
        one = plain
        for count in (1, 2):
            with _cluster(count) as client:
                spent = iteration(client)
            share = spent.all / spent.job - 1.0
            row: Row = {"workers": count, "job, s": spent.job, "all, s": spent.all}
            row |= {"this process, s": spent.here, "busiest worker, s": max(spent.theirs)}
            row |= {"clock, s": spent.clock, "overhead": share, **TARGETS["overhead"].judged(share)}
            if count == 1:
                one = spent
            else:
                gain = (one.here + one.theirs[0]) / (spent.here + max(spent.theirs))
                row |= {"by the clock": one.clock / spent.clock, "could be faster": gain}
                row |= TARGETS["two workers"].judged(gain)
            table.rows.append(row)
    yield table


def client(sizes: Sizes) -> Iterator[Table]:
    """The memory of the client, where vectors are made on the workers."""
    try:
        import dask.array as da
    except ImportError as error:
        raise Unavailable("needs the extra dask") from error
    n, chunk = sizes.client_vectors, max(sizes.client_vectors // 100, 1)
    table = Table(
        f"the client of {n:,} x {sizes.width} single-precision vectors made by two local workers", []
    )
    pairs = np.random.default_rng(7).integers(0, n, (sizes.client_pairs, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    near, far = np.array_split(pairs, 2)
    side = nw.constraints.at_most(near, sizes.width) + nw.constraints.at_least(far, 2.6 * sizes.width)
    with _cluster(2) as found:
        shape, chunks = (n, sizes.width), (chunk, sizes.width)
        drawn = da.random.default_rng(0).standard_normal(shape, chunks=chunks, dtype=np.float32)
        problem = nw.Problem(vectors_of(drawn, found), side, penalty=sizes.penalty)
        result = nw.solve(problem, tol=sizes.tol, callback=_told)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    row: Row = {"data, GB": float(drawn.nbytes) / 1e9, "pairs": len(pairs), "gap": result.certificate.gap}
    table.rows.append(row | {"client, MB": peak} | TARGETS["client, MB"].judged(peak))
    yield table


@contextmanager
def _cluster(count: int) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise Unavailable("needs the extra dask") from error
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as found,
    ):
        yield found


def _iterations(problem: nw.Problem, sizes: Sizes, rows: TimedRows | None = None) -> list[Spent]:
    """What every iteration takes."""
    marks: list[Spent] = []

    def mark(record: nw.Record) -> None:
        marks.append(spent_so_far(rows))
        _told(record)

    start = np.eye(problem.features.shape[1])
    nw.solve(problem, tol=1e-12, max_iter=sizes.iterations + 1, start=start, callback=mark)
    return [after.since(before) for before, after in itertools.pairwise(marks)]


def _told(record: nw.Record) -> None:
    sys.stderr.write(f"iteration {record.iteration}, {record.seconds:.0f} s, gap {record.gap:.1e}\n")
    sys.stderr.flush()


def _peak() -> float:
    """GB of this process and its children, at most."""
    found = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(found) * 1024 / 1e9


def _rows(sizes: Sizes, part: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A part of the vectors, the same whenever it is drawn: classes apart in the first few directions."""
    count = sizes.vectors // sizes.files
    rng = np.random.default_rng(part)
    rows = rng.standard_normal((count, sizes.width), dtype=np.float32)
    rows[:, : sizes.width // 4] += 2.0 * _labels(sizes)[part * count : (part + 1) * count, None]
    return rows


def _labels(sizes: Sizes) -> Any:
    return np.random.default_rng(99).integers(0, 3, sizes.vectors).astype(np.float32)


def _written(folder: Path, sizes: Sizes) -> None:
    pa, file = _pyarrow()
    for part in range(sizes.files):
        rows = _rows(sizes, part)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), sizes.width)
        table = pa.table({"vector": flat})
        file.write_table(table, folder / f"{part}.parquet", row_group_size=max(len(rows) // 4, 1))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Unavailable("needs the extra tables") from error
    return pyarrow, parquet


def _mapped(folder: Path, sizes: Sizes) -> Any:
    path = folder / "vectors.npy"
    shape = (sizes.vectors // sizes.files * sizes.files, sizes.width)
    out = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for part in range(sizes.files):
        count = shape[0] // sizes.files
        out[part * count : (part + 1) * count] = _rows(sizes, part)
    out.flush()
    del out
    return open_vectors(path)


def _pairs(sizes: Sizes, count: int) -> Constraints:
    """Pairs drawn at random; those of one class shall be near, the others far."""
    rng = np.random.default_rng(7)
    n = sizes.vectors // sizes.files * sizes.files
    pairs = rng.integers(0, n, (count, 2))
    pairs[:, 1] = np.where(pairs[:, 0] == pairs[:, 1], (pairs[:, 1] + 1) % n, pairs[:, 1])
    labels = _labels(sizes)
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    return nw.constraints.similar(pairs[same]) + nw.constraints.dissimilar(pairs[~same])


SECTIONS = _tables.alone(growth, workers, client, tables, parquet)
