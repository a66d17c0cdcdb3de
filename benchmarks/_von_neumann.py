"""What von Neumann projections cost: the fast product of eigenvectors beside the dense one, and all of it.

Both tables are about growth with r, the order of the matrix. What is compared takes turns, and the least time
of each counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import nearwise as nw
from benchmarks._tables import Row, Table, Target, fitted_exponent, in_turns, timed
from nearwise._common.threads import blas_threads
from nearwise.linalg.cauchy import cauchy_product
from nearwise.linalg.eigenupdate import FAST_FROM, rank_one_update
from nearwise.papers.von_neumann import VonNeumannEngine

TARGETS = {
    "product exponent": Target(2.3),
    "projection exponent": Target(2.5),
    "evaluations": Target(6),
    "error": Target(1e-12),
}
ORDERS = (256, 512, 1024, 2048, 4096)  # of the product
PROJECTION_ORDERS = (64, 128, 256, 512, 1024)  # of whole projections

_SEED = 0
_SAMPLE = 32  # rows of the product that are computed in extended precision too
_ROWS = 60  # constraints that a projection is timed on
_PENALTY = 0.1


def fast_product(orders: Sequence[int] = ORDERS, repeats: int = 3) -> Table:
    """Time and error of the product of all eigenvectors with those of a rank-one update."""
    table = Table(
        "eigenvectors after a rank-one update: fast multipole method beside dense product",
        [
            "theta normal, v normal, rho 1; W random orthonormal; dense: forming U and a BLAS product",
            f"in turns, the least of {repeats}; error: largest of {_SAMPLE} rows against extended precision",
            f"the library changes to the fast product at r = {FAST_FROM} where BLAS has one thread, and at "
            f"twice that where it has more; here it has {blas_threads()}",
        ],
    )
    fast, dense = [], []
    for r in orders:
        times, error = _product_times(r, repeats)
        fast.append(times[0])
        dense.append(times[1])
        row: Row = {"r": r, "fast, s": times[0], "dense, s": times[1], "dense / fast": times[1] / times[0]}
        table.rows.append(row | {"error": error} | TARGETS["error"].judged(error))
    exponent, others = fitted_exponent(orders, fast), fitted_exponent(orders, dense)
    last: Row = {"r": "fitted exponent", "fast, s": exponent, "dense, s": others}
    table.rows.append(last | TARGETS["product exponent"].judged(exponent))
    table.rows.append({"r": "crossover at r", "fast, s": crossover(orders, fast, dense)})
    return table


def whole_projection(orders: Sequence[int] = PROJECTION_ORDERS, repeats: int = 3) -> Table:
    """Time of a projection, zero finder and new eigenvectors included, and evaluations of p(delta)."""
    table = Table(
        "one von Neumann projection onto a distance",
        [
            f"{_ROWS} pairs of random objects with r features, half of them to be closer and half farther by "
            f"a factor of 2; prior with log-normal eigenvalues; penalty {_PENALTY:g}",
            f"after one sweep over all of them; the least mean over {repeats} sweeps",
            "evaluations: of p(delta) per projection, the first sweep and those at delta = 0 included",
        ],
    )
    seconds = []
    for r in orders:
        mean, evaluations = _projection_times(r, repeats)
        seconds.append(mean)
        row: Row = {"r": r, "seconds": mean, "evaluations": evaluations}
        table.rows.append(row | TARGETS["evaluations"].judged(evaluations))
    exponent = fitted_exponent(orders, seconds)
    last: Row = {"r": "fitted exponent", "seconds": exponent}
    table.rows.append(last | TARGETS["projection exponent"].judged(exponent))
    return table


def crossover(orders: Sequence[int], fast: Sequence[float], dense: Sequence[float]) -> float | None:
    """Where the fast curve crosses the dense one for good, between the measured orders; None if nowhere."""
    advantage = np.log(np.array(dense) / np.array(fast))
    losing = np.flatnonzero(advantage < 0)
    if not losing.size:
        return float(orders[0])
    k = int(losing[-1])
    if k + 1 == len(orders):
        return None
    share = advantage[k] / (advantage[k] - advantage[k + 1])
    return float(np.exp(np.log(orders[k]) + share * np.log(orders[k + 1] / orders[k])))


def _product_times(r: int, repeats: int) -> tuple[list[float], float]:
    from nearwise.linalg.loops.secular import fill_block

    rng = np.random.default_rng(_SEED)
    v = rng.standard_normal(r)
    ws = rank_one_update(np.sort(rng.standard_normal(r)), v / np.linalg.norm(v), 1.0).workspace
    B, U, out = np.linalg.qr(rng.standard_normal((r, r)))[0], np.empty((r, r)), np.empty((r, r))

    def dense() -> None:
        fill_block(ws, 0, 0, U)
        np.matmul(U, B, out=out)

    def fast() -> None:
        cauchy_product(ws, B, out)

    times = [seconds for seconds, _ in in_turns((fast, dense), repeats)]
    fast()
    rows, wide = rng.permutation(r)[:_SAMPLE], np.longdouble
    pole = ws.pole.astype(wide)
    differences = (pole - pole[ws.origin[rows], None]) - ws.offset[rows, None].astype(wide)
    exact = (ws.weight / (differences * ws.norm[rows, None])) @ B[:, :_SAMPLE].astype(wide)
    return times, float(np.abs(out[rows, :_SAMPLE] - exact).max())


def _projection_times(r: int, repeats: int) -> tuple[float, float]:
    rng = np.random.default_rng(_SEED)
    features = rng.standard_normal((2 * _ROWS, r)) / np.sqrt(r)
    pairs = np.arange(2 * _ROWS).reshape(-1, 2)
    prior = np.exp(rng.standard_normal(r))
    now = ((features[::2] - features[1::2]) ** 2) @ prior
    closer, farther = slice(None, _ROWS // 2), slice(_ROWS // 2, None)
    side = nw.constraints.at_most(pairs[closer], now[closer] / 2)
    side = side + nw.constraints.at_least(pairs[farther], now[farther] * 2)
    problem = nw.Problem(features, side, nw.VonNeumann(), np.diag(prior), _PENALTY)
    engine = VonNeumannEngine(problem.formulation)
    rows = np.arange(_ROWS)
    engine.sweep(rows)
    best = np.inf
    for _ in range(repeats):
        before = engine.projections
        seconds, _ = timed(lambda: engine.sweep(rows))
        best = min(best, seconds / max(engine.projections - before, 1))
    return float(best), engine.evaluations / max(engine.projections, 1)
