"""Fixed-rank estimators do not collapse, say where they do not help, and take every kind of kernel."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

import nearwise as nw
from nearwise import constraints as c

Array = NDArray[np.float64]


def comparisons(n: int = 40, count: int = 80) -> tuple[Array, NDArray[np.int64]]:
    """Rows, and triplets in the order of a distance of the first two features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    D = np.square((X[:, None] - X) * [3, 1, 0, 0, 0]).sum(axis=2)
    drawn = [rng.choice(n, 3, replace=False) for _ in range(count)]
    return X, np.array([(a, p, q) if D[a, p] < D[a, q] else (a, q, p) for a, p, q in drawn])


@pytest.mark.parametrize(
    ("geometry", "solver"),
    [
        ("flat", "auto"),
        ("polar", "auto"),
        ("flat", "armijo"),
        pytest.param("polar", "armijo", marks=pytest.mark.slow),  # hundreds of steps
        ("flat", "online"),
        ("polar", "online"),
    ],
)
def test_comparisons_without_a_margin_do_not_collapse(geometry: str, solver: str) -> None:
    X, triplets = comparisons()
    # rounding makes steepest descent on a cost with kinks take 300 to 1000 steps here
    settings: dict[str, Any] = {
        "geometry": geometry,
        "solver": solver,
        "max_iter": 10_000,
        "random_state": 0,
    }
    model = nw.FixedRankLearner(**settings)
    model.fit(X, constraints=c.closer(triplets))
    D = model.distances(X, squared=True)
    a, p, q = triplets.T
    assert np.mean(D[a, p] < D[a, q]) > (0.7 if solver == "online" else 0.85)
    assert 1e-2 < np.median(D[a, q] - D[a, p]) / model.margin_ < 1e2
    if solver == "armijo":  # whose hundreds of steps take long: whatever the solver, the margin is the same
        return
    # a margin that is given is taken, and the default is the one of this size
    explicit = nw.FixedRankLearner(**settings)
    explicit.fit(X, constraints=c.closer(triplets, margin=model.margin_))
    np.testing.assert_array_equal(explicit.get_mahalanobis_matrix(), model.get_mahalanobis_matrix())


def test_the_margin_is_the_median_distance_under_the_start() -> None:
    X, triplets = comparisons()
    model = nw.FixedRankLearner(start="identity", random_state=0).fit(X, constraints=c.closer(triplets))
    i, j = np.triu_indices(40, 1)
    assert model.margin_ == pytest.approx(np.median(np.square(X[i, :2] - X[j, :2]).sum(axis=1)), rel=0.1)


def test_a_kernel_learned_from_comparisons_does_not_collapse() -> None:
    X, triplets = comparisons()
    model = nw.FixedRankEmbedding(input="kernel").fit(X @ X.T, constraints=c.closer(triplets))
    i, j = np.triu_indices(40, 1)
    assert model.margin_ == pytest.approx(np.median(np.square(X[i] - X[j]).sum(axis=1)))
    D = model.distances(squared=True)
    a, p, q = triplets.T
    assert np.mean(D[a, p] < D[a, q]) > 0.85
    assert np.median(D[a, q] - D[a, p]) > model.margin_


def clouds(n_classes: int, size: int, d: int, apart: float) -> tuple[Array, NDArray[np.int64]]:
    """Few objects in many dimensions: pairs of them are easy to satisfy, and teach little."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), size)
    return rng.normal(size=(len(y), d)) + apart * rng.normal(size=(n_classes, d))[y], y


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_learner_that_does_not_help_returns_its_start_and_says_so(kind: str, tmp_path: Path) -> None:
    X, y = clouds(5, 8, 20, 0.7)
    rows: Any = sparse.csr_array(X) if kind == "sparse" else X
    with pytest.warns(nw.PriorKeptWarning, match=r"scores .* on the rest, the start .*; check=False"):
        model = nw.FixedRankLearner(None, random_state=0).fit(rows, y)
    assert model.kept_prior_
    assert model.result_ is None
    assert model.n_constraints_used_ > 0
    assert model.scores_.learned < model.scores_.start == pytest.approx(model.scores_.euclidean)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), np.eye(20), atol=1e-9)
    nw.save(model, tmp_path / "model")
    assert nw.load(tmp_path / "model").scores_ == model.scores_
    anyway = nw.FixedRankLearner(None, random_state=0, check=False).fit(rows, y)
    assert not anyway.kept_prior_
    assert anyway.scores_ is None


def test_a_rank_that_loses_to_the_euclidean_distance_is_told_so() -> None:
    X, y = clouds(3, 10, 20, 1.0)
    with pytest.warns(nw.WorseThanEuclideanWarning, match="larger rank than 1"):
        model = nw.FixedRankLearner(1, random_state=0).fit(X, y)
    assert model.scores_.start <= model.scores_.learned < model.scores_.euclidean
    assert not model.kept_prior_


def test_the_score_of_labels_is_that_of_neighbours_held_out() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    X = 5 * rng.standard_normal((120, 6))
    X[:, :2] = 0.3 * rng.standard_normal((120, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[y]
    model = nw.FixedRankLearner(random_state=0).fit(X, y)
    assert model.scores_.learned > 0.9 > 0.6 > model.scores_.euclidean
    assert not model.kept_prior_


def test_constraints_are_held_out_where_there_are_no_labels() -> None:
    X, triplets = comparisons()
    model = nw.FixedRankLearner(random_state=0).fit(X, constraints=c.closer(triplets))
    assert model.scores_.learned > max(model.scores_.start, model.scores_.euclidean)
    few = nw.FixedRankLearner(random_state=0).fit(X, constraints=c.closer(triplets[:2]))
    assert few.scores_ is None
    sparse_rows = nw.FixedRankLearner(random_state=0).fit(sparse.csr_array(X), constraints=c.closer(triplets))
    assert sparse_rows.scores_.learned == pytest.approx(model.scores_.learned)


@pytest.mark.long
def test_precomputed_kernels_and_functions_are_the_named_kernel() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    X = rng.normal(size=(60, 4)) + 2 * np.eye(4)[y]
    new, gamma = rng.normal(size=(7, 4)), 0.2
    settings: dict[str, Any] = {"n_basis": 30, "random_state": 0, "tol": 1e-10}
    named = nw.FixedRankLearner(check=False, kernel="rbf", kernel_params={"gamma": gamma}, **settings).fit(
        X, y
    )

    def rbf(a: Array, b: Array) -> float:
        return float(np.exp(-gamma * np.square(a - b).sum()))

    by_function = nw.FixedRankLearner(check=False, kernel=rbf, **settings).fit(X, y)
    K, K_new = rbf_kernel(X, gamma=gamma), rbf_kernel(new, X, gamma=gamma)
    given = nw.FixedRankLearner(check=False, kernel="precomputed", **settings).fit(K, y)
    np.testing.assert_allclose(by_function.distances(new, X), named.distances(new, X), atol=1e-5)
    np.testing.assert_allclose(given.distances(K_new, K), named.distances(new, X), atol=1e-5)
    np.testing.assert_allclose(given.transform(K_new), named.transform(new), atol=1e-5)
    target = np.square(X).sum(axis=1)
    values = [
        nw.FixedRankRegressor(None, kernel=kernel, kernel_params=parameters, **(settings | {"n_basis": 6}))
        .fit(rows, target)
        .predict(asked)
        for kernel, parameters, rows, asked in (
            ("rbf", {"gamma": gamma}, X, new),
            (rbf, None, X, new),
            ("precomputed", None, K, K_new),
        )
    ]
    # of full rank the minimum is one; costs that are settled to 1e-10 leave about its root to the minimiser
    np.testing.assert_allclose(values[1], values[0], rtol=2e-4)
    np.testing.assert_allclose(values[2], values[0], rtol=2e-4)


def test_what_makes_no_kernel_is_refused() -> None:
    X, y = np.random.default_rng(0).normal(size=(10, 3)), np.arange(10) % 2
    with pytest.raises(ValueError, match="square kernel matrix"):
        nw.FixedRankLearner(kernel="precomputed").fit(X, y)
    with pytest.raises(TypeError, match="a name or a function of two rows, got 3"):
        nw.FixedRankLearner(kernel=3).fit(X, y)
    with pytest.raises(ValueError, match="pairs='random'"):
        nw.FixedRankLearner(kernel="precomputed", pairs="local").fit(X @ X.T, y)


def test_a_kernel_without_constraints_is_kernel_pca() -> None:
    X = np.random.default_rng(0).normal(size=(20, 5))
    with pytest.warns(nw.PriorKeptWarning, match="returns its start: there are no constraints"):
        model = nw.FixedRankEmbedding(2, "kernel").fit(X @ X.T)
    assert model.kept_prior_
    X = X - X.mean(axis=0)
    values = np.linalg.eigvalsh(X @ X.T)
    np.testing.assert_allclose(np.linalg.eigvalsh(model.embedding_.T @ model.embedding_), values[-2:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(constraints=c.at_least([(0, 1)], 50.0))
    assert not model.kept_prior_


@pytest.mark.parametrize("rank", [2, None])
@pytest.mark.parametrize("geometry", ["flat", "polar"])
def test_coordinates_are_turned_like_those_of_the_start(geometry: str, rank: int | None) -> None:
    """Of all G with one G G^T the nearest to the start G_0: G_0^T G is symmetric positive semidefinite."""
    X, triplets = comparisons()
    start = np.random.default_rng(1).normal(size=(5, rank or 5))
    model = nw.FixedRankLearner(rank, geometry=geometry, start=start, random_state=0, check=False)
    model.fit(X, constraints=c.closer(triplets))
    product = start.T @ model.components_.T
    np.testing.assert_allclose(product, product.T, atol=1e-9 * np.abs(product).max())
    assert np.linalg.eigvalsh(product + product.T)[0] >= -1e-9 * np.abs(product).max()
    np.testing.assert_allclose(model.transform(X), X @ model.components_.T)
