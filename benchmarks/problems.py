"""Named problems: correlation matrices beside statsmodels, factors of 20,000 rows, cuts beside spectral ones.

Everything is measured in one run; what is short enough takes turns, and the least time of each counts.
"""

from __future__ import annotations

import importlib
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from benchmarks import _tables
from benchmarks._tables import (
    Row,
    Table,
    Target,
    fitted_exponent,
    in_turns,
    size,
    timed,
)
from benchmarks.baselines import require
from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array
from nearwise.data import datasets
from nearwise.methods import Solver
from nearwise.named.cut import swap_pairs
from nearwise.solvers import Newton, ThinFactor

SEED = 0
TOL = 1e-8
LONG = 2.0  # seconds after which three turns are enough
SMALL = 100  # order up to which BLAS uses one thread by itself
_WIDTH, _NEIGHBOURS = 10.0, 7  # of a swiss roll
TARGETS = {
    "statsmodels / nearwise": Target(20, at_least=True),
    "decompositions": Target(8),
    "GB": Target(1),
    "exponent": Target(1.2),
    "cut / spectral": Target(1),
    "relative difference": Target(1e-3),
}


@dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes
    ----------
    names : the small matrices
    repeats : timings of each
    bank : rows of the bank matrix
    peer_iterations : of statsmodels on the bank matrix
    factor_orders, rank : rows and columns of the factors
    mesh, small_mesh : nodes
    reduced : objects of a kernel dimensionality reduction
    roll, rolls : points of a swiss roll, and how many of these
    all_eigenpairs : the most of them for which it is also run on all eigenpairs
    """

    names: tuple[str, ...] = size(
        (
            "high02",
            "tec03",
            "bhwi01",
            "tyda99r1",
            "tyda99r2",
            "tyda99r3",
            "fing97",
            "beyu11",
            "mmb13",
            "usgs13",
        ),
        ("high02", "fing97"),
    )
    repeats: int = size(20, 1)
    bank: int = size(3250, 200)
    peer_iterations: int = 6
    factor_orders: tuple[int, ...] = size((5000, 10_000, 20_000), (300, 700))
    rank: int = size(20, 4)
    mesh: int = size(1000, 80)
    small_mesh: int = size(60, 12)
    reduced: tuple[int, ...] = size((100, 150, 200, 300, 500, 1000, 2000), (60, 120))
    all_eigenpairs: int = 1000
    roll: int = size(250, 100)
    rolls: int = size(5, 1)


QUICK = _tables.quick_sizes(Sizes)


def main(argv: list[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    return _tables.run(argv, "problems", (__doc__ or "").partition("\n")[0], SECTIONS, Sizes(), QUICK)


def small(sizes: Sizes) -> Iterator[Table]:
    """The published invalid correlation matrices, beside statsmodels, and with fixed entries."""
    peer = _statsmodels()
    matrices = datasets.load("corr_invalid_small").extra
    table = Table(
        f"nearest correlation matrix, Frobenius, to {TOL:g}",
        [
            "statsmodels: corr_nearest with its defaults; distance: |X - A|; the least of "
            f"up to {sizes.repeats} runs each, in turns",
            "fixed: with the published pattern of entries to keep, for which statsmodels has nothing",
        ],
    )
    for name in sizes.names:
        A = matrices[name]
        works = partial(_nearest, A), partial(peer, A)
        ours, theirs = in_turns(works, sizes.repeats, LONG)
        row = _correlation_row(name, A, *ours) | _statsmodels_row(A, *theirs)
        row |= {"statsmodels / nearwise": theirs[0] / ours[0]}
        table.rows.append(row | TARGETS["statsmodels / nearwise"].judged(theirs[0] / ours[0]))
    for name in sizes.names:
        if f"{name}_pattern" in matrices:
            A, fixed = matrices[name], matrices[f"{name}_pattern"]
            [ours] = in_turns([partial(_nearest, A, fixed=fixed)], sizes.repeats, LONG)
            table.rows.append(_correlation_row(f"{name}, fixed", A, *ours))
    yield table


def bank(sizes: Sizes) -> Iterator[Table]:
    """The bank matrix, as it is and with noise that makes all its rows different."""
    peer = _statsmodels()
    A = datasets.load("corr_invalid_bccd16").extra["A"][: sizes.bank, : sizes.bank]
    noise = np.random.default_rng(SEED).standard_normal(A.shape) * 1e-6
    noisy = A + np.triu(noise, 1) + np.triu(noise, 1).T
    table = Table(
        f"the bank matrix, {len(A)} x {len(A)}, to {TOL:g}",
        [
            f"statsmodels: corr_nearest limited to {sizes.peer_iterations} iterations by n_fact, after which "
            f"its smallest eigenvalue is about that small; by itself it would go on to {100 * len(A):,}",
            "many rows may be interchanged, which is used; with noise of 1e-6 none may",
            "both with one BLAS thread: on a busy machine more of them make both several times slower",
        ],
    )
    for name, matrix in (("as published", A), ("with noise", noisy)):
        ours = timed(partial(_nearest, matrix))
        theirs = timed(partial(peer, matrix, n_fact=sizes.peer_iterations / len(A)))
        row = _correlation_row(name, matrix, *ours)
        row |= TARGETS["decompositions"].judged(ours[1].n_decompositions) | _statsmodels_row(matrix, *theirs)
        row |= {"its smallest eigenvalue": float(np.linalg.eigvalsh(theirs[1])[0])}
        row |= {"statsmodels / nearwise": theirs[0] / ours[0]}
        table.rows.append(row | TARGETS["statsmodels / nearwise"].judged(theirs[0] / ours[0]))
    yield table


def factor(sizes: Sizes) -> Iterator[Table]:
    """Correlation matrices of given rank, as factors."""
    table = Table(
        f"nearest correlation matrix of rank {sizes.rank}, as a factor",
        [
            "A = U U' with random loadings of 30 factors; memory: the peak of what was allocated on top, in "
            "a run of its own",
        ],
    )
    seconds = []
    for n in sizes.factor_orders:
        loadings = np.random.default_rng(SEED).standard_normal((n, 30)) * np.linspace(2, 0.1, 30) + 0.3
        A = (loadings, np.ones(30))
        work = partial(_nearest, A, rank=sizes.rank)
        [(taken, found)] = in_turns([work], min(sizes.repeats, 3))
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1] / 1e9
        tracemalloc.stop()
        seconds.append(taken)
        error = float(np.abs(np.einsum("ij,ij->i", found.factor, found.factor) - 1).max())
        row: Row = {"n": n, "seconds": taken, "status": found.status.name, "gap": found.certificate.gap}
        row |= {"iterations": found.n_iter, "diagonal's error": error, "GB": peak}
        table.rows.append(row | TARGETS["GB"].judged(peak))
    exponent = fitted_exponent(sizes.factor_orders, seconds)
    last: Row = {"n": "exponent", "seconds": exponent}
    table.rows.append(last | TARGETS["exponent"].judged(exponent))
    yield table


def cut(sizes: Sizes) -> Iterator[Table]:
    """Balanced cuts of a mesh beside spectral bisection."""
    A = mesh(sizes.mesh)
    spectral_seconds, spectral = timed(partial(_spectral, A))
    table = Table(
        f"balanced cut of a triangulation of {sizes.mesh} random points",
        [
            "spectral bisection: the second eigenvector of the Laplacian, cut at its median; swapped: "
            "improved by the same swaps of pairs as our roundings",
        ],
    )
    swapped = spectral.copy()
    swap_pairs(A, swapped)
    table.rows.append({"method": "spectral", "cut": _weight(A, spectral), "seconds": spectral_seconds})
    table.rows.append({"method": "spectral, swapped", "cut": _weight(A, swapped)})
    for name, refine in (("nearwise, no swaps", False), ("nearwise", True)):
        seconds, found = timed(partial(nw.balanced_cut, A, refine=refine))
        ratio = found.value / _weight(A, spectral)
        row: Row = {"method": name, "cut": found.value, "seconds": seconds, "cut / spectral": ratio}
        row |= TARGETS["cut / spectral"].judged(ratio) | {"bound": found.certificate.dual}
        table.rows.append(row | {"relaxation": found.status.name, "Newton steps": found.n_iter})
    yield table


def relaxation(sizes: Sizes) -> Iterator[Table]:
    """The relaxation's value beside cvxpy's."""
    require("cvxpy", "cvxpy")
    A = mesh(sizes.small_mesh)
    seconds, found = timed(partial(nw.balanced_cut, A))
    peer_seconds, value = timed(partial(_cvxpy_relaxation, A))
    difference = abs(found.certificate.primal - value / 4) / (value / 4)
    table = Table(
        f"the relaxation of a balanced cut of {sizes.small_mesh} nodes, tr(L X) / 4",
        ["cvxpy: Clarabel, on the complement of the constant vector"],
    )
    row: Row = {"nearwise": found.certificate.primal, "its bound": found.certificate.dual, "seconds": seconds}
    row |= {"cvxpy": value / 4, "cvxpy, seconds": peer_seconds, "relative difference": difference}
    table.rows.append(row | TARGETS["relative difference"].judged(difference))
    yield table


def reducer(sizes: Sizes) -> Iterator[Table]:
    """The trace-norm problem of `KernelReducer`, by its leading eigenpairs and by all of them."""
    data = datasets.load("usps")
    table = Table(
        "kernel dimensionality reduction, JKDD12 (26), of USPS digits with the full basis, to 1e-6",
        ["all: Newton's method on the whole matrix; difference: of the two matrices, relative in norm"],
    )
    for n in sizes.reduced:
        chosen = np.random.default_rng(SEED).permutation(len(data.X))[:n]
        problem = _trace_norm_problem(data.X[chosen], np.asarray(data.y)[chosen])
        solvers: tuple[Solver, ...] = (ThinFactor(), Newton())
        solvers = solvers[: 2 if n <= sizes.all_eigenpairs else 1]
        runs = [timed(partial(nw.solve, problem, solver)) for solver in solvers]
        seconds, found = runs[0]
        rank = int(np.linalg.matrix_rank(found.matrix, tol=1e-6))
        row: Row = {"n": n, "rank": rank, "leading, s": seconds, "gap": found.certificate.gap}
        if len(runs) > 1:
            size = float(np.linalg.norm(runs[1][1].matrix))
            difference = float(np.linalg.norm(runs[1][1].matrix - found.matrix)) / size
            row |= {"all, s": runs[1][0], "all / leading": runs[1][0] / seconds, "difference": difference}
        table.rows.append(row)
    yield table


def rolls(sizes: Sizes) -> Iterator[Table]:
    """Isometric embeddings of swiss rolls beside scikit-learn's: are places along and across recovered?"""
    from sklearn.manifold import Isomap, LocallyLinearEmbedding

    unfold = partial(nw.isometric_embedding, n_components=2, n_neighbors=_NEIGHBOURS, tol=1e-3)
    methods: dict[str, Callable[[Array], Array]] = {
        "nearwise": lambda X: unfold(X).coordinates,
        "nearwise, from centring": lambda X: unfold(X, start="centring").coordinates,
        "Isomap": Isomap(n_neighbors=_NEIGHBOURS).fit_transform,
        "LLE": LocallyLinearEmbedding(n_neighbors=_NEIGHBOURS, random_state=0).fit_transform,
    }
    table = Table(
        f"swiss rolls of {sizes.roll} random points, {_NEIGHBOURS} neighbours",
        [
            f"the sheet is 90 long and {_WIDTH:g} wide, its layers 6 apart; correlation of the place along "
            "and across it with the best linear function of the two coordinates, over the rolls",
        ],
    )
    drawn = [_roll(sizes.roll, seed) for seed in range(sizes.rolls)]
    for name, method in methods.items():
        begin = time.perf_counter()
        scores = np.array([_recovered(method(X), places) for X, places in drawn])
        seconds = (time.perf_counter() - begin) / sizes.rolls
        row: Row = {"method": name, "seconds": seconds}
        for axis, found in zip(("along", "across"), scores.T, strict=True):
            row |= {f"{axis}, median": float(np.median(found)), f"{axis}, worst": float(found.min())}
        table.rows.append(row)
    yield table


SECTIONS = _tables.alone(small, bank, factor, cut, relaxation, reducer, rolls)


def mesh(n: int) -> Array:
    """The adjacency matrix of a Delaunay triangulation of random points."""
    from scipy.spatial import Delaunay

    triangles = Delaunay(np.random.default_rng(SEED).random((n, 2))).simplices
    A = np.zeros((n, n))
    for a, b in ((0, 1), (1, 2), (0, 2)):
        A[triangles[:, a], triangles[:, b]] = A[triangles[:, b], triangles[:, a]] = 1.0
    return A


def _correlation_row(name: str, A: Array, seconds: float, found: nw.NearestMatrix) -> Row:
    distance = float(np.linalg.norm(found.matrix - A))
    row: Row = {"matrix": name, "n": len(A), "nearwise, ms": 1000 * seconds, "gap": found.certificate.gap}
    return row | {"decompositions": found.n_decompositions, "distance": distance}


def _statsmodels_row(A: Array, seconds: float, X: Array) -> Row:
    return {"statsmodels, ms": 1000 * seconds, "its distance": float(np.linalg.norm(X - A))}


def _nearest(A: Any, **settings: Any) -> nw.NearestMatrix:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of entries larger than 1, and of the diagonal of a factor
        return nw.nearest_correlation(A, **settings)


def _statsmodels() -> Callable[..., Array]:
    require("statsmodels", "statsmodels")
    from statsmodels.stats.correlation_tools import corr_nearest

    def quiet(A: Array, **settings: float) -> Array:
        with warnings.catch_warnings(), one_blas_thread(len(A) > SMALL):
            warnings.simplefilter("ignore")  # that its iterations were limited
            return np.asarray(corr_nearest(A, **settings))

    return quiet


def _trace_norm_problem(X: Array, y: NDArray[Any]) -> nw.Problem:
    """What `KernelReducer` solves with its defaults and the full basis."""
    from sklearn.metrics.pairwise import rbf_kernel

    K = rbf_kernel(X, gamma=1 / (X.shape[1] * X.var()))
    values, V = np.linalg.eigh(K)
    kept = values > 1e-8 * values[-1]
    features = V[:, kept] * np.sqrt(values[kept])
    features /= np.sqrt(2 * np.sum(features.var(axis=0)))
    side = nw.constraints.from_labels(y, random_state=SEED)
    bounds = nw.Problem(features, side).bounds
    blocks, first = [], 0
    for block in side.blocks:
        blocks.append(replace(block, bounds=bounds[first : first + len(block)]))
        first += len(block)
    prior = -0.5 * np.eye(features.shape[1])
    return nw.Problem(features, nw.constraints.Constraints(tuple(blocks)), nw.Frobenius(), prior)


def _roll(n: int, seed: int) -> tuple[Array, Array]:
    """Points, and their places along and across the sheet."""
    rng = np.random.default_rng(seed)
    turn = 1.5 * np.pi * (1 + 2 * rng.random(n))
    across = _WIDTH * rng.random(n)
    along = (turn * np.sqrt(1 + turn**2) + np.arcsinh(turn)) / 2
    points = np.column_stack([turn * np.cos(turn), across, turn * np.sin(turn)])
    return points, np.column_stack([along, across])


def _recovered(coordinates: Array, places: Array) -> Array:
    """The correlation of each place with its least-squares fit."""
    centred = coordinates - coordinates.mean(axis=0)
    wanted = places - places.mean(axis=0)
    fit = centred @ np.linalg.lstsq(centred, wanted, rcond=None)[0]
    return np.asarray(np.sqrt(np.sum(fit**2, axis=0) / np.sum(wanted**2, axis=0)))


def _spectral(A: Array) -> NDArray[np.bool_]:
    fiedler = np.linalg.eigh(np.diag(A.sum(axis=1)) - A)[1][:, 1]
    sides = np.zeros(len(A), bool)
    sides[np.argsort(fiedler, kind="stable")[: len(A) // 2]] = True
    return sides


def _weight(A: Array, sides: NDArray[np.bool_]) -> float:
    return float(A[np.ix_(sides, ~sides)].sum())


def _cvxpy_relaxation(A: Array) -> float:
    cvxpy: Any = importlib.import_module("cvxpy")
    n = len(A)
    basis = np.linalg.svd(np.ones((1, n)))[2][1:].T
    S = cvxpy.Variable((n - 1, n - 1), PSD=True)
    X = basis @ S @ basis.T
    cost = basis.T @ (np.diag(A.sum(axis=1)) - A) @ basis
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(cost @ S)), [cvxpy.diag(X) == 1])
    return float(program.solve(solver="CLARABEL"))
