"""Every learner on every container of the same numbers: what a dense array of doubles gives, or a refusal.

The numbers are multiples of 1/64, which single precision holds. There are data of few columns, of so many
that a subspace is learned by default, and of zeros and ones, whose distances tie.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import pairwise_distances

import nearwise as nw
from crossing import crossed

LABELS = np.arange(42) % 3
WIDE = 300  # columns, of which all entries of a matrix are not learned by default


def rows_of(kind: str) -> NDArray[np.float64]:
    """Three classes that some columns tell apart, with zeros among the entries."""
    rng = np.random.default_rng(5)
    n_columns = WIDE if kind == "wide" else 9
    means = np.zeros((3, n_columns))
    means[:, :5] = rng.normal(size=(3, 5))
    rows = np.round((rng.normal(size=(len(LABELS), n_columns)) + means[LABELS]) * 64) / 64
    rows[rng.random(rows.shape) < 0.3] = 0.0
    return (rows > 0.5).astype(np.float64) if kind == "tied" else rows


def named(rows: NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[f"x{k}" for k in range(rows.shape[1])])


def saved(rows: NDArray[Any], folder: Path) -> Path:
    np.save(folder / "rows.npy", rows)
    return folder / "rows.npy"


def on_dask(rows: NDArray[Any], _: Path) -> Any:
    return pytest.importorskip("dask.array").from_array(rows, chunks=(17, rows.shape[1]))


def frame_on_dask(rows: NDArray[Any], _: Path) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(named(rows), npartitions=3)


CONTAINERS: dict[str, Callable[[NDArray[Any], Path], Any]] = {
    "by columns": lambda rows, _: np.asfortranarray(rows),
    "csr array": lambda rows, _: sparse.csr_array(rows),
    "csr matrix": lambda rows, _: sparse.csr_matrix(rows),
    "csc array": lambda rows, _: sparse.csc_array(rows),
    "csc matrix": lambda rows, _: sparse.csc_matrix(rows),
    "pandas sparse": lambda rows, _: named(rows).astype(pd.SparseDtype(float, 0.0)),
    "float32": lambda rows, _: rows.astype(np.float32),
    "pandas": lambda rows, _: named(rows),
    "polars": lambda rows, _: pl.DataFrame(rows, schema=[f"x{k}" for k in range(rows.shape[1])]),
    "memory map": lambda rows, folder: np.load(saved(rows, folder), mmap_mode="r"),
    "Dask array": on_dask,
    "Dask frame": frame_on_dask,
    "file": lambda rows, folder: nw.distributed.open_vectors(saved(rows, folder)),
}
SPARSE = ("csr array", "csr matrix", "csc array", "csc matrix", "pandas sparse")
IN_PIECES = ("Dask array", "Dask frame", "file")

LEARNERS: dict[str, Callable[[], Any]] = {
    "automatic": lambda: nw.AutoLearner(random_state=0),
    "metric": lambda: nw.MetricLearner(random_state=0),
    "von Neumann": lambda: nw.MetricLearner("vonneumann", penalty=1.0, random_state=0),
    "Frobenius": lambda: nw.MetricLearner("frobenius", penalty=1.0, random_state=0),
    "covariance": lambda: nw.MetricLearner(prior="covariance", penalty=1.0, random_state=0),
    "subspace": lambda: nw.MetricLearner(rank=4, penalty=1.0, random_state=0),
    "map": lambda: nw.MetricLearner(rank=2, penalty=1.0, random_state=0),
    "singular vectors": lambda: nw.MetricLearner(rank=4, basis="svd", penalty=1.0, random_state=0),
    "diagonal": lambda: nw.MetricLearner(structure="diagonal", penalty=1.0, random_state=0),
    "blocks": lambda: nw.MetricLearner(structure="blocks", penalty=1.0, random_state=0),
    "kernel": lambda: nw.KernelLearner(penalty=1.0, random_state=0),
    "linear kernel": lambda: nw.KernelLearner("linear", penalty=1.0, random_state=0),
    "reduced kernel": lambda: nw.KernelLearner(rank=6, basis="kmeans", penalty=1.0, random_state=0),
    "sum of kernels": lambda: nw.KernelLearner("linear+rbf", gamma="scale", penalty=1.0, random_state=0),
    "reducer": lambda: nw.KernelReducer(tol=1e-4, random_state=0),
    "fixed rank": lambda: nw.FixedRankLearner(check=False, tol=1e-8, random_state=0),
    "fixed rank, near pairs": lambda: nw.FixedRankLearner(
        pairs="local", check=False, tol=1e-8, random_state=0
    ),
    "fixed-rank kernel": lambda: nw.FixedRankLearner(kernel="rbf", check=False, tol=1e-6, random_state=0),
    "fixed-rank stream": lambda: nw.FixedRankLearner(solver="online", epochs=1, check=False, random_state=0),
    "regressor": lambda: nw.FixedRankRegressor(rank=2, tol=1e-8, random_state=0),
    "neighbors": lambda: nw.NeighborLearner(2, max_iter=30, check=False, random_state=0),
    "online LogDet": lambda: nw.OnlineLearner("logdet", random_state=0),
    "online gradient": lambda: nw.OnlineLearner("exponentiated_gradient", random_state=0),
    "online POLA": lambda: nw.OnlineLearner("pola", random_state=0),
    "online subspace": lambda: nw.OnlineLearner(rank=4, random_state=0),
}
DENSE_ONLY = ("covariance", "blocks", "neighbors")
TAKES_PIECES = ("automatic", "metric", "von Neumann", "Frobenius")
TAKES_FEW_PIECES = ("fixed rank", "fixed rank, near pairs", "fixed-rank stream")


def refusal(learner: str, container: str) -> str:
    """What names the reason where a learner takes no such container; empty where it does."""
    if container in SPARSE:
        return "dense data is required" if learner in DENSE_ONLY else ""
    if container in IN_PIECES and learner not in (*TAKES_PIECES, *TAKES_FEW_PIECES):
        return "in memory|cannot use"
    return ""


def made(learner: str, data: str) -> Any:
    model = LEARNERS[learner]()
    if learner == "blocks":
        model.set_params(groups=np.arange(rows_of(data).shape[1]) // 3 % 2)
    return model


def fitted(learner: str, data: str, X: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that small fits end at a limit or at the prior is no matter here
        return made(learner, data).fit(X, LABELS)


@cache
def of_dense(learner: str, data: str) -> Any:
    return fitted(learner, data, np.ascontiguousarray(rows_of(data)))


def measured(model: Any, rows: Any) -> NDArray[Any]:
    """What a model says of rows, which have names where those of the fit had."""
    rows = named(rows) if hasattr(model, "feature_names_in_") else rows
    found = model.predict(rows) if isinstance(model, nw.FixedRankRegressor) else model.distances(rows)
    return np.asarray(found)


def resolved(model: Any) -> dict[str, Any]:
    """What a fit has chosen and used."""
    names = ("choice_", "penalty_", "gamma_", "rank_", "kept_prior_", "n_constraints_used_")
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def compare(learner: str, data: str, given: Any) -> None:
    """A fit on a container with that on a dense array of doubles, and the container as new rows."""
    rows, expected, found = rows_of(data), of_dense(learner, data), fitted(learner, data, given)
    for name, value in resolved(expected).items():
        is_number = isinstance(value, float)
        assert getattr(found, name) == (pytest.approx(value, rel=1e-9) if is_number else value), name
    wanted = measured(expected, rows)
    near = {"rtol": 0.0, "atol": 1e-6 * np.abs(wanted).max()}
    np.testing.assert_allclose(measured(found, rows), wanted, **near)
    if isinstance(found, nw.FixedRankRegressor):
        np.testing.assert_allclose(found.predict(given), wanted, **near)
        return
    if isinstance(given, nw.distributed.Vectors) and not isinstance(given, np.ndarray):
        return  # rows in files are for fits
    if learner == "automatic" and hasattr(given, "dask"):
        given = given.compute()
    moved = found.transform(given)
    moved = moved.toarray() if sparse.issparse(moved) else np.asarray(moved)
    apart = pairwise_distances(np.asarray(expected.transform(rows)))
    size = 1e-4 if moved.dtype == np.float32 else 1e-6  # coordinates have the precision of the rows
    np.testing.assert_allclose(pairwise_distances(moved), apart, rtol=0.0, atol=size * apart.max())


@crossed(learner=list(LEARNERS), container=list(CONTAINERS), data=["few columns", "wide"])
def test_every_container_teaches_the_same(learner: str, container: str, data: str, tmp_path: Path) -> None:
    given = CONTAINERS[container](rows_of(data), tmp_path)
    if reason := refusal(learner, container):
        with pytest.raises((TypeError, ValueError), match=reason):
            made(learner, data).fit(given, LABELS)
        return
    compare(learner, data, given)


@crossed(learner=list(LEARNERS), container=["by columns", "csr array", "Dask array", "file"])
def test_neighbors_at_the_same_distance_are_the_same(learner: str, container: str, tmp_path: Path) -> None:
    if not refusal(learner, container):
        compare(learner, "tied", CONTAINERS[container](rows_of("tied"), tmp_path))


@crossed(learner=["metric", "von Neumann"], container=[*SPARSE, *IN_PIECES])
def test_wide_rows_teach_the_same_subspace(learner: str, container: str, tmp_path: Path) -> None:
    compare(learner, "wide", CONTAINERS[container](rows_of("wide"), tmp_path))


@crossed(container=["by columns", "csr array", "Dask array", "file"], n=[60, 400], d=[6, 18])
def test_of_many_neighbors_at_the_same_distance_the_first_count(
    container: str, n: int, d: int, tmp_path: Path
) -> None:
    """In memory, both where all distances are sorted and where neighbours are searched."""
    rows = (np.random.default_rng(n + d).normal(size=(n, d)) > 0.5).astype(np.float64)
    y = np.arange(n) % 4
    matrices = [
        nw.MetricLearner(pairs="local", penalty=1.0, random_state=0).fit(X, y).metric_.matrix
        for X in (rows, CONTAINERS[container](rows, tmp_path))
    ]
    np.testing.assert_allclose(matrices[1], matrices[0], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("d", [6, 18])
@pytest.mark.parametrize("n", [60, 400])
def test_drawn_pairs_are_with_the_first_of_the_nearest(n: int, d: int) -> None:
    rows = (np.random.default_rng(n + d).normal(size=(n, d)) > 0.5).astype(np.float64)
    y = np.arange(n) % 2
    apart = np.abs(rows[:, None] - rows).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    expected = set()
    for members in (y[:, None] == y, y[:, None] != y):
        near = np.argsort(np.where(members, apart, np.inf), axis=1, kind="stable")[:, :5]
        expected |= {(min(i, j), max(i, j)) for i in range(n) for j in near[i].tolist()}
    side = nw.constraints.from_labels(y, rows, draw="local", random_state=0)
    assert {tuple(sorted(map(int, pair))) for block in side.blocks for pair in block.object_ids} == expected
