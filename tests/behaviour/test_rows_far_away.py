"""Distances and neighbours of ordinary rows where one row is far away, or all are far from zero."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import nearwise as nw
from crossing import crossed
from nearwise import study

Array = NDArray[Any]
K = 5


def _one_entry(size: float) -> Callable[[Array], Array]:
    def moved(X: Array) -> Array:
        X[len(X) // 3, 1] = size
        return X

    return moved


def _two_places(X: Array) -> Array:
    X[::2] += 1e8
    return X


def _in_pairs(X: Array) -> Array:
    X[1::2] = X[: len(X) // 2 * 2 : 2] + 1e-7 * X[1::2]
    return X


FAR: dict[str, Callable[[Array], Array]] = {
    "ordinary": lambda X: X,
    "entry 1e8": _one_entry(1e8),
    "entry 1e11": _one_entry(1e11),
    "entry 1e12": _one_entry(1e12),
    "entry 1e100": _one_entry(1e100),
    "offset 1e7": lambda X: X + 1e7,
    "offset 1e8": lambda X: X + 1e8,
    "two places": _two_places,
    "near pairs": _in_pairs,
}
COLUMNS = [3, 8, 9, 15, 16, 17, 40]


def rows(n: int, d: int, far: Callable[[Array], Array], seed: int = 0) -> Array:
    return far(np.random.default_rng(seed).standard_normal((n, d)))


def squared(X: Array, Y: Array, M: Array | None = None) -> Array:
    """By the definition."""
    M = np.eye(X.shape[1]) if M is None else M
    return np.stack([np.einsum("ij,ij->i", (x - Y) @ M, x - Y) for x in X])


def beyond(X: Array) -> Array:
    """Rows whose own digits are gone: of two of them, and of their ties, nothing is asked."""
    return np.abs(X).max(axis=1) > 1e9


def learner(d: int, **parameters: Any) -> nw.MetricLearner:
    """Fitted to ordinary rows."""
    rng = np.random.default_rng(1)
    return nw.MetricLearner(penalty=1.0, random_state=0, **parameters).fit(
        rng.standard_normal((60, d)), rng.integers(3, size=60)
    )


@crossed(
    far=FAR,
    d=COLUMNS,
    n=[30, 200],
    parameters={"all": {}, "rank 2": {"rank": 2}, "diagonal": {"structure": "diagonal"}},
    container={"dense": np.asarray, "sparse": sparse.csr_array},
)
def test_distances(
    far: Callable[[Array], Array], d: int, n: int, parameters: dict[str, Any], container: Callable[..., Any]
) -> None:
    X, Y = rows(n, d, far), rows(n, d, far, seed=2)
    fitted = learner(d, **parameters)
    expected = squared(X, Y, fitted.metric_.matrix)
    found = fitted.distances(container(X), container(Y), squared=True)
    both = np.ix_(beyond(X), beyond(Y))
    found[both] = expected[both]
    lossy = 1e-5 if container is not np.asarray else 1e-6  # sparse rows are mapped as they are, far from zero
    np.testing.assert_allclose(found, expected, rtol=lossy, atol=1e-12)


@crossed(far=FAR, d=COLUMNS, sizes={"few": (60, None), "many": (700, None), "two tiles": (30, 2100)})
def test_nearest(far: Callable[[Array], Array], d: int, sizes: tuple[int, int | None]) -> None:
    X = rows(sizes[0], d, far)
    queries = None if sizes[1] is None else rows(sizes[1], d, far, seed=2)
    fitted = learner(d)
    found, distances = study.nearest(fitted.metric_, X, queries, K)
    expected = squared(X if queries is None else queries, X, fitted.metric_.matrix)
    if queries is None:
        np.fill_diagonal(expected, np.inf)
    kept = ~beyond(X if queries is None else queries)
    for those in (np.sort(expected, axis=1)[:, :K], np.take_along_axis(expected, found, axis=1)):
        np.testing.assert_allclose(distances[kept] ** 2, those[kept], rtol=1e-6, atol=1e-12)


def _pairs_of_neighbours(X: Array, y: Array) -> set[tuple[int, ...]]:
    """Every row with its five nearest of its own class, and of the others."""
    D = squared(X, X)
    np.fill_diagonal(D, np.inf)
    found = set()
    for i, distances in enumerate(D):
        for members in (y == y[i], y != y[i]):
            kept = np.where(members, distances, np.inf)
            near = np.argsort(kept, kind="stable")[: min(K, int(np.isfinite(kept).sum()))]
            found |= {(min(i, int(j)), max(i, int(j))) for j in near}
    return found


@crossed(
    far=FAR,
    d=[15, 16, 40],
    y={"small classes": 12, "large classes": 2},
    n=[100, 300],
    container={"dense": np.asarray, "sparse": sparse.csr_array, "Fortran": np.asfortranarray},
)
def test_local_pairs(
    far: Callable[[Array], Array], d: int, y: int, n: int, container: Callable[..., Any]
) -> None:
    X, labels = rows(n, d, far), np.arange(n) % y
    side = nw.constraints.from_labels(labels, container(X), draw="local", random_state=0)
    found = {tuple(sorted(map(int, pair))) for block in side.blocks for pair in block.object_ids}
    far_away = set(np.flatnonzero(beyond(X)).tolist())
    wrong = found ^ _pairs_of_neighbours(X, labels)
    assert not {pair for pair in wrong if far_away.isdisjoint(pair)}
    assert all(len([pair for pair in found if row in pair]) >= 2 * K for row in far_away)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_local_pairs_of_other_numbers(dtype: Any) -> None:
    X = np.random.default_rng(0).permuted(np.tile(np.arange(250), (20, 1)), axis=1).T.astype(dtype)
    labels = np.arange(250) % 2
    side = nw.constraints.from_labels(labels, X, draw="local", random_state=0)
    found = {tuple(sorted(map(int, pair))) for block in side.blocks for pair in block.object_ids}
    D = squared(X.astype(float), X.astype(float))
    np.fill_diagonal(D, np.inf)
    for i in range(250):
        for members in (labels == labels[i], labels != labels[i]):
            last = np.sort(D[i][members])[K - 1]
            assert {tuple(sorted((i, int(j)))) for j in np.flatnonzero(members & (D[i] < last))} <= found


@crossed(far=FAR, d=[8, 17], n=[300, 1100], reach=[0.003, 1.5])
def test_near_duplicates(far: Callable[[Array], Array], d: int, n: int, reach: float) -> None:
    X = rows(n, d, far)
    X[-20:] = X[:20]  # equal ones, and near ones
    X[-20:-10, 0] += 0.002
    fitted = learner(d)
    D = np.sqrt(squared(X, X, fitted.metric_.matrix))
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    expected = {(int(i), int(j)) for i, j in pairs[D[tuple(pairs.T)] <= reach]}
    found = study.near_duplicates(study.load(fitted), study.from_arrays(X).table, study.Rule(reach))
    assert {(int(i), int(j)) for i, j in found.pairs} == expected


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # of k-means, where one row is all there is
@crossed(far={name: FAR[name] for name in ("ordinary", "entry 1e12", "offset 1e8")}, d=[4, 17], n=[150, 400])
def test_figures_of_labelled_rows(far: Callable[[Array], Array], d: int, n: int) -> None:
    X, y = rows(n, d, far), np.arange(n) % 3
    X[np.arange(n), y] += 2.0
    fitted = learner(d)
    found = study.measure(study.load(fitted), study.from_arrays(X, y.astype(str)))
    D = squared(X, X, fitted.metric_.matrix)
    np.fill_diagonal(D, np.inf)
    near = y[np.argsort(D, axis=1, kind="stable")[:, :K]]
    votes = (near[:, :, None] == np.arange(3)).sum(axis=1)
    error = next(figure for figure in found.figures if figure.name == "5-NN error")
    assert error.after.value == pytest.approx(float((votes.argmax(axis=1) != y).mean()), abs=1.01 / n)


@pytest.mark.parametrize("d", [4, 16])
def test_neighbours_in_the_embedding_of_an_isometry(d: int) -> None:
    X = rows(160, d, FAR["offset 1e8"])
    D = squared(X, X)
    np.fill_diagonal(D, np.inf)
    pairs = {tuple(sorted((i, int(j)))) for i in range(len(X)) for j in np.argsort(D[i])[:8]}
    found = nw.isometric_embedding(X, 2, n_neighbors=8, penalty=1.0, tol=1e-2).pairs
    assert {tuple(sorted(map(int, pair))) for pair in found} == pairs


@pytest.mark.parametrize("n", [500, 1200])
def test_local_pairs_of_a_file(n: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = np.round(rng.standard_normal((n, 9)) * 1024) / 1024, np.arange(n) % 4  # exact with the offset, too
    X[np.arange(n), y] += 3.0
    found = []
    for offset in (0.0, 1e8):
        np.save(tmp_path / "rows.npy", X + offset)
        data = nw.distributed.open_vectors(str(tmp_path / "rows.npy"))
        fitted = nw.MetricLearner(penalty=1.0, pairs="local", random_state=0).fit(data, y)
        found.append(fitted.metric_.matrix)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)
