"""Data in pieces give what the same data give in memory: files, memory maps, Dask and tables of pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from crossing import crossed
from nearwise import constraints as c

N = 360
COLUMNS = [1, 2, 8, 12, 13, 16, 17, 33, 80]


@pytest.fixture
def small_pieces(set_thresholds: Callable[..., None], request: pytest.FixtureRequest, columns: int) -> None:
    """Pieces of few rows, and learners that take few."""
    if request.node.callspec.params.get("pieces") != "three":
        set_thresholds(rows_of_a_piece=200, numbers_that_learners_take=columns * N * 9 // 10)


def data(columns: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(columns)
    y = rng.integers(3, size=N)
    X = rng.normal(size=(N, columns)) + 1.0
    X[:, : min(columns, 3)] += 4.0 * np.eye(3)[y, :columns]
    return X.astype(dtype), y


def in_files(X: np.ndarray, folder: Path, ends: list[int]) -> Any:
    folder = folder / "vectors"
    folder.mkdir()
    for k, part in enumerate(np.split(X, ends)):
        np.save(folder / f"{k}.npy", part)
    return nw.distributed.open_vectors(folder)


def in_parquet(X: np.ndarray, folder: Path) -> Any:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"x{k:02}" for k in range(X.shape[1])])
    frame.to_parquet(folder / "vectors.parquet", row_group_size=100)
    return nw.distributed.open_vectors(folder / "vectors.parquet")


def mapped(X: np.ndarray, folder: Path) -> Any:
    np.save(folder / "map.npy", X)
    return np.load(folder / "map.npy", mmap_mode="r")


def on_dask(X: np.ndarray, chunks: Any) -> Any:
    return pytest.importorskip("dask.array").from_array(X, chunks=chunks)


def frame_on_dask(X: np.ndarray) -> Any:
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    return dd.from_pandas(pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]), npartitions=3)


CONTAINERS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "files": lambda X, folder: in_files(X, folder, [1, 1, 200]),
    "parquet": in_parquet,
    "map": mapped,
    "dask": lambda X, _: on_dask(X, ((1, 0, 300, 59), -(-X.shape[1] // 2))),
    "dask frame": lambda X, _: frame_on_dask(X),
}


def tuples(count: int, width: int, seed: int) -> np.ndarray:
    """Of different objects."""
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(N, width, replace=False) for _ in range(count)])


PAIRS, FEW, TRIPLETS, QUADRUPLES = tuples(1500, 2, 0), tuples(300, 2, 1), tuples(700, 3, 2), tuples(300, 4, 3)
Table = Callable[[np.ndarray], Any]


def of_classes(y: np.ndarray, table: Table) -> nw.Constraints:
    same = y[PAIRS[:, 0]] == y[PAIRS[:, 1]]
    return c.at_most(table(PAIRS[same]), 1.0, weights=2.5) + c.at_least(table(PAIRS[~same]), 9.0)


def given_bounds(d: int, table: Table) -> nw.Constraints:
    return c.at_most(table(PAIRS[:800]), 1.2 * d, weights=2.5) + c.at_least(table(PAIRS[800:]), 3.0 * d)


KINDS: dict[str, Callable[[int, Table], nw.Constraints]] = {
    "open bounds": lambda d, table: c.similar(table(PAIRS[:700])) + c.dissimilar(table(PAIRS[700:])),
    "bounds": given_bounds,
    "comparisons": lambda d, table: c.closer(table(TRIPLETS), 0.5 * d) + c.closer(table(QUADRUPLES)),
    "inner products": lambda d, table: c.similarity(table(PAIRS), 1.0 * d, "<="),
    "all": lambda d, table: (
        given_bounds(d, table)
        + c.equal(table(FEW), 2.0 * d)
        + c.closer(table(TRIPLETS))
        + c.similarity(table(FEW), 0.5 * d, "==")
    ),
}


def tables(kind: str, folder: Path) -> Table:
    """What makes a table of pairs of an array of row numbers."""

    def in_file(rows: np.ndarray) -> Any:
        path = folder / f"pairs{len(list(folder.iterdir()))}.npy"
        np.save(path, rows)
        return nw.distributed.open_pairs(path)

    def stored(rows: np.ndarray) -> Any:
        pd = pytest.importorskip("pandas")
        path, names = folder / f"pairs{len(list(folder.iterdir()))}.parquet", [*"abcd"][: rows.shape[1]]
        pd.DataFrame(rows, columns=names).to_parquet(path, row_group_size=90)
        return nw.distributed.open_pairs(path, names)

    def lazily(rows: np.ndarray) -> Any:
        return nw.distributed.open_pairs(on_dask(rows, (111, rows.shape[1])))

    return {"arrays": np.asarray, "npy": in_file, "parquet": stored, "dask": lazily}[kind]


@pytest.mark.usefixtures("small_pieces")
@crossed(
    columns=COLUMNS,
    kind=list(KINDS),
    container=list(CONTAINERS),
    pairs=["arrays", "npy", "parquet"],
    divergence=[nw.LogDet(), nw.VonNeumann(), nw.Frobenius()],
    dtype=["float32", "float64"],
)
def test_a_problem_is_solved_as_in_memory(
    columns: int, kind: str, container: str, pairs: str, divergence: Any, dtype: str, tmp_path: Path
) -> None:
    X, _ = data(columns, dtype)
    degree = {"LogDet": 0, "VonNeumann": 1, "Frobenius": 2}[type(divergence).__name__]
    penalty = 0.02 / columns**degree
    side, given = KINDS[kind](columns, tables(pairs, tmp_path)), KINDS[kind](columns, np.asarray)
    stated = nw.Problem(X.astype(float), given, divergence, penalty=penalty)
    expected = nw.solve(stated, tol=1e-10)
    vectors = CONTAINERS[container](X, tmp_path)
    found = nw.solve(nw.Problem(vectors, side, divergence, penalty=penalty), tol=1e-10, max_iter=200)
    refuse_another(found, expected, stated)


def refuse_another(found: nw.Result, expected: nw.Result, stated: nw.Problem) -> None:
    """Fail where a result is not that of the problem in memory, or its run hid something."""
    assert found.status is expected.status is nw.Status.SOLVED
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-8)
    assert stated.objective(found.matrix) == pytest.approx(expected.certificate.primal, rel=1e-8)
    size = np.abs(expected.matrix).max()
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=0, atol=1e-4 * size)
    size = np.abs(expected.dual).max()
    np.testing.assert_allclose(np.asarray(found.dual), expected.dual, rtol=0, atol=1e-3 * size)
    refuse_rising_gaps(found)


def refuse_rising_gaps(found: nw.Result) -> None:
    """Fail where a run goes on after it has converged, or takes back what it has shown."""
    gaps = [record.gap for record in found.history]
    assert len(gaps) <= 100
    assert gaps[0] <= 1 + 1e-13
    assert all(later <= earlier * (1 + 1e-9) + 1e-15 for earlier, later in itertools.pairwise(gaps))
    assert found.certificate.gap <= min(gaps) + 1e-13


def many_pairs(columns: int, count: int = 20_000) -> tuple[np.ndarray, nw.Constraints]:
    """2,000 objects and about so many pairs: 20,000 are three pieces, each looked at in several steps."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, columns))
    X[:, : min(columns, 4)] += 3 * np.eye(4)[np.arange(2000) % 4, :columns]
    pairs = rng.integers(2000, size=(count, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = pairs[:, 0] % 4 == pairs[:, 1] % 4
    return X, c.similar(pairs[same]) + c.dissimilar(pairs[~same])


@pytest.mark.usefixtures("small_pieces")
@crossed(columns=[2, 13, 16, 33], penalty=[0.0005, 0.05], pieces=["three", "a hundred"])
def test_many_pairs(columns: int, penalty: float, pieces: str, tmp_path: Path) -> None:
    """Of a hundred pieces and small penalties, the first points come from some of the pieces."""
    X, side = many_pairs(columns)
    stated = nw.Problem(X, side, penalty=penalty)
    expected = nw.solve(stated, tol=1e-10)
    found = nw.solve(nw.Problem(in_files(X, tmp_path, [700]), side, penalty=penalty), tol=1e-10, max_iter=200)
    refuse_another(found, expected, stated)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
@pytest.mark.parametrize("columns", [16, 17])
@pytest.mark.parametrize("stored", [False, True], ids=["memory", "files"])
def test_a_run_takes_nothing_back(
    stored: bool, columns: int, divergence: nw.Divergence, tmp_path: Path
) -> None:
    """No multipliers at all bound the optimum by 0, which is a gap of 1, and no later bound is lower."""
    X, side = many_pairs(columns, 3000)
    vectors = in_files(X, tmp_path, []) if stored else X
    problem = nw.Problem(vectors, side, divergence, penalty=0.05)
    refuse_rising_gaps(nw.solve(problem, tol=1e-12))
    refuse_rising_gaps(nw.solve(problem, tol=1e-17))
    refuse_rising_gaps(nw.solve(problem, max_iter=2))


@pytest.mark.parametrize("divergence", [nw.VonNeumann(), nw.Frobenius()], ids=repr)
def test_a_run_ends_where_rounding_hides_what_is_left(divergence: nw.Divergence, tmp_path: Path) -> None:
    """Columns of scales that differ by a million: what a run has shown is what it reports."""
    X, side = many_pairs(8, 2000)
    files = in_files(X * np.logspace(0, 6, 8), tmp_path, [])
    shown: list[float] = []
    found = nw.solve(nw.Problem(files, side, divergence), callback=lambda record: shown.append(record.gap))
    assert found.status in (nw.Status.STALLED, nw.Status.SOLVED)
    assert found.certificate.gap <= min(shown) + 1e-13
    assert len(shown) < 100


LEARNERS: dict[str, Callable[[int], Any]] = {
    "metric": lambda d: nw.MetricLearner(penalty=0.01, random_state=0, tol=1e-9),
    "von Neumann, prior": lambda d: nw.MetricLearner(
        "vonneumann", prior=np.diag(np.linspace(1.0, 3.0, d)), penalty=0.01, random_state=0, tol=1e-9
    ),
    "fixed rank": lambda d: nw.FixedRankLearner(
        min(2, d), start=np.eye(d, min(2, d)), random_state=0, check=False, tol=1e-9
    ),
}


@pytest.mark.usefixtures("small_pieces")
@crossed(
    columns=COLUMNS,
    learner=list(LEARNERS),
    container=["array", *CONTAINERS],
    known=["labels", "arrays", "npy", "parquet", "dask"],
    dtype=["float32", "float64"],
)
def test_a_learner_learns_what_it_learns_in_memory(
    columns: int, learner: str, container: str, known: str, dtype: str, tmp_path: Path
) -> None:
    X, y = data(columns, dtype)
    vectors = X if container == "array" else CONTAINERS[container](X, tmp_path)
    expected, found = LEARNERS[learner](columns), LEARNERS[learner](columns)
    if known == "labels":
        expected.fit(X.astype(float), y)
        found.fit(vectors, y)
    else:
        expected.fit(X.astype(float), constraints=of_classes(y, np.asarray))
        found.fit(vectors, constraints=of_classes(y, tables(known, tmp_path)))
    assert found.n_constraints_used_ == expected.n_constraints_used_
    size = np.abs(expected.metric_.matrix).max()
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-3 * size)
