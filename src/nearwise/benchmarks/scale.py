"""Many pairs out of core and on local workers: memory, time per iteration, its growth, and what workers gain.

Vectors are drawn lazily and written to Parquet, several files of single precision; pairs are drawn between
all of them. An iteration is one of Newton's method as `Result.history` times it, the median over a solve.
Memory is the peak resident size of all processes together, which counts memory-mapped pages that they share
more than once.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nearwise as nw
from nearwise.benchmarks import _tables
from nearwise.benchmarks._tables import Table, Target
from nearwise.benchmarks.baselines import Unavailable
from nearwise.distributed import open_vectors
from nearwise.model.blocks import Constraints

TARGETS = {
    "peak memory, GB": Target(4),
    "exponent": Target(1.1),
    "two workers": Target(1.6, at_least=True),
    "overhead": Target(0.1),
}


@dataclass(frozen=True)
class Sizes:
    """How large it is."""

    vectors: int = 1_000_000
    width: int = 100
    pairs: int = 10_000_000
    growing: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    files: int = 4
    penalty: float = 1e-3
    tol: float = 1e-4
    worker_pairs: int = 2_000_000
    iterations: int = 5


QUICK = Sizes(4000, 8, 20_000, (2000, 20_000), 2, 1e-2, 1e-4, 20_000, 3)


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    return _tables.run(argv, "scale", (__doc__ or "").partition("\n")[0], SECTIONS, Sizes(), QUICK)


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
        result = nw.solve(problem, tol=sizes.tol)
        target, peak = TARGETS["peak memory, GB"], _peak()
        table.rows.append(
            {
                "reading, s": opened,
                "Problem, s": bound,
                "solve, s": time.perf_counter() - start - opened - bound,
                "iterations": result.n_iter,
                "gap": result.certificate.gap,
                "s / iteration": _per_iteration(result),
                "peak memory, GB": peak,
                str(target): target.verdict(peak),
            }
        )
        del vectors, problem, result
    yield table


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
            result = nw.solve(problem, tol=1e-12, max_iter=sizes.iterations + 1)
            seconds.append(_per_iteration(result))
            table.rows.append({"pairs": f"{m:,}", "s / iteration": seconds[-1]})
            if len(seconds) > 1:
                slope = math.log(seconds[-1] / seconds[-2]) / math.log(m / sizes.growing[len(seconds) - 2])
                table.rows[-1]["exponent from the row above"] = slope
        del vectors
    overall = math.log(seconds[-1] / seconds[0]) / math.log(sizes.growing[-1] / sizes.growing[0])
    target = TARGETS["exponent"]
    table.rows.append({"pairs": "first to last", "exponent from the row above": overall})
    table.rows[-1][str(target)] = target.verdict(overall)
    yield table


def workers(sizes: Sizes) -> Iterator[Table]:
    """An iteration on one and on two local workers of one thread, and without Dask."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise Unavailable("needs the extra dask") from error
    table = Table(
        f"an iteration over {sizes.worker_pairs:,} pairs on local workers of one thread",
        ["overhead: of one worker over one thread of this process, relative"],
    )
    target, overhead = TARGETS["two workers"], TARGETS["overhead"]
    with tempfile.TemporaryDirectory() as folder:
        _mapped(Path(folder), sizes)
        side = _pairs(sizes, sizes.worker_pairs)

        def iteration(client: Any) -> float:
            vectors = open_vectors(Path(folder, "vectors.npy"), client=client)
            problem = nw.Problem(vectors, side, penalty=sizes.penalty)
            return _per_iteration(nw.solve(problem, tol=1e-12, max_iter=sizes.iterations + 1))

        with nw.threads(1):
            plain = iteration(None)
        times = {}
        for count in (1, 2):
            with (
                LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                times[count] = iteration(client)
    share = times[1] / plain - 1.0
    table.rows.append({"workers": "this process", "s / iteration": plain})
    table.rows.append({"workers": 1, "s / iteration": times[1], "overhead": share})
    table.rows[-1][str(overhead)] = overhead.verdict(share)
    gain = times[1] / times[2]
    table.rows.append({"workers": 2, "s / iteration": times[2], "times faster": gain})
    table.rows[-1][str(target)] = target.verdict(gain)
    yield table


def _per_iteration(result: nw.Result) -> float:
    """The median seconds between iterations."""
    return float(np.median(np.diff([record.seconds for record in result.history])))


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
    try:
        import pyarrow as pa
        from pyarrow import parquet as file
    except ImportError as error:
        raise Unavailable("needs the extra tables") from error
    for part in range(sizes.files):
        rows = _rows(sizes, part)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), sizes.width)
        table = pa.table({"vector": flat})
        file.write_table(table, folder / f"{part}.parquet", row_group_size=max(len(rows) // 4, 1))


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


# each section by name, and the functions that measure it
SECTIONS: dict[str, tuple[Callable[[Sizes], Iterator[Table]], ...]] = {
    "growth": (growth,),
    "workers": (workers,),
    "parquet": (parquet,),
}
