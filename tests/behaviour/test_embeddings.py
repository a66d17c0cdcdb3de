"""Embeddings: kernel PCA is centred, and what is not known or not kept is told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from crossing import crossed
from nearwise import constraints as c


def points(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 2))


def squares(P: np.ndarray) -> np.ndarray:
    return np.square(P[:, None] - P).sum(axis=2)


def kernel(n: int) -> np.ndarray:
    X = np.random.default_rng(n).normal(size=(n, 4))
    return np.exp(-squares(X) / 40)


def distances_of(G: np.ndarray) -> np.ndarray:
    return np.sqrt(squares(G))


@pytest.mark.parametrize("n", [15, 100, 1001])
@pytest.mark.parametrize("rank", [1, 3])
def test_without_constraints_it_is_kernel_pca(n: int, rank: int) -> None:
    from sklearn.decomposition import KernelPCA

    K = kernel(n)
    with pytest.warns(nw.PriorKeptWarning):
        found = nw.FixedRankEmbedding(rank, input="kernel", random_state=0).fit(K).embedding_
    expected = KernelPCA(rank, kernel="precomputed", eigen_solver="dense").fit_transform(K)
    assert np.abs(distances_of(found) - distances_of(expected)).max() < 1e-6
    assert found.mean(axis=0) == pytest.approx(np.zeros(rank), abs=1e-8)


def test_the_origin_of_a_kernel_matters_only_for_inner_products() -> None:
    K = kernel(12)
    moved = K + 5.0  # one more feature, equal for all objects
    near = c.closer([(0, 1, 2)])
    inner = c.similarity([(0, 1)], float(moved[0, 1]), "==")
    first, second = (
        nw.FixedRankEmbedding(2, input="kernel", random_state=0).fit(A, constraints=near) for A in (K, moved)
    )
    assert second.distances() == pytest.approx(first.distances(), abs=1e-6)
    model = nw.FixedRankEmbedding(2, input="kernel", random_state=0).fit(moved, constraints=inner)
    values, V = np.linalg.eigh(moved)
    uncentred = (V[:, -2:] * values[-2:]) @ V[:, -2:].T
    assert model.embedding_ @ model.embedding_.T == pytest.approx(uncentred, abs=0.1)


def torn(name: str) -> tuple[np.ndarray, int, list[str]]:
    """A table of distances with unknown ones, how many parts there are, and members that must be named."""
    D = squares(points(15))
    if name == "two halves":
        D[:8, 8:] = D[8:, :8] = np.nan
        return D, 2, ["0", "8"]
    if name == "one object without any":
        D[4], D[:, 4] = np.nan, np.nan
        return D, 2, ["4"]
    known = D[2, 5]
    D[:] = np.nan
    D[2, 5] = known
    return D, 14, ["0", "1", "2"]


TABLES = ["two halves", "one object without any", "one distance"]


@crossed(table=TABLES, start=["principal", "random"], ids=[False, True])
def test_parts_that_nothing_holds_together_are_named(table: str, start: str, ids: bool) -> None:
    D, count, members = torn(table)
    names = [f"city{k}" for k in range(15)] if ids else None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        nw.FixedRankEmbedding(2, start=start, random_state=0).fit(D, sample_ids=names)
    [told] = [warning for warning in seen if f"{count} parts" in str(warning.message)]
    assert told.filename == __file__
    words = str(told.message).replace("'", "").replace(",", "").replace(";", "").split()
    assert {f"city{member}" if ids else member for member in members} <= set(words)


@pytest.mark.parametrize(
    "side",
    [
        c.at_most([(3, 11)], 1.0),
        c.closer([(3, 11, 4)], margin=0.1),
        c.similarity([(3, 11)], 0.5, "=="),
        c.linear(np.eye(15), 10.0, "<="),
    ],
    ids=["distance", "comparison", "inner product", "linear"],
)
def test_a_constraint_holds_parts_together(side: Any) -> None:
    D, _, _ = torn("two halves")
    assert nw.FixedRankEmbedding(2, random_state=0).fit(D, constraints=side).embedding_.shape == (15, 2)


def test_a_comparison_of_two_pairs_holds_no_more_together_than_each() -> None:
    D, _, _ = torn("two halves")
    with pytest.warns(UserWarning, match="2 parts"):
        nw.FixedRankEmbedding(2).fit(D, constraints=c.closer([(0, 1, 9, 10)], margin=0.1))


def test_known_distances_on_one_side_or_along_a_chain_are_enough() -> None:
    D = squares(points(15))
    chain = np.full((15, 15), np.nan)
    for k in range(14):
        chain[k, k + 1] = D[k, k + 1]
    nw.FixedRankEmbedding(2, random_state=0).fit(chain)


def test_a_diagonal_that_is_not_zero_is_told() -> None:
    with pytest.warns(UserWarning, match=r"X\[0, 0\] is 3"):
        nw.FixedRankEmbedding(2).fit(squares(points(15)) + 3 * np.eye(15))


@crossed(n=[15, 1001], side={"none": None, "closer": c.closer([(0, 1, 2)])}, root=[False, True])
def test_an_indefinite_kernel_is_refused_with_its_eigenvalue(n: int, side: Any, root: bool) -> None:
    D = squares(points(n))
    D = np.sqrt(D) if root else D
    with pytest.raises(ValueError, match=f"{np.linalg.eigvalsh(D)[0]:.5g}") as refused:
        nw.FixedRankEmbedding(2, input="kernel").fit(D, constraints=side)
    assert "distance matrix" in str(refused.value)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_singular_kernel_is_taken_and_one_that_is_hardly_indefinite_refused(
    scale: float, dtype: Any
) -> None:
    X = np.random.default_rng(0).normal(size=(40, 5)).astype(dtype)
    K = X @ X.T
    K = K.astype(np.float64) * scale
    with pytest.warns(nw.PriorKeptWarning):
        nw.FixedRankEmbedding(2, input="kernel").fit(K)
    with pytest.raises(ValueError, match="eigenvalue -"):
        nw.FixedRankEmbedding(2, input="kernel").fit(K - 0.01 * scale * np.eye(40))


@pytest.mark.parametrize("n_neighbors", [5, 8])
def test_the_distortion_of_the_coordinates_is_reported(n_neighbors: int) -> None:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 3, 80)
    X = np.column_stack([np.cos(t), np.sin(t), 2 * rng.random(80)])
    found = nw.isometric_embedding(X, n_neighbors=n_neighbors)
    i, j = found.pairs.T
    before = np.linalg.norm(X[i] - X[j], axis=1)
    after = np.linalg.norm(found.coordinates[i] - found.coordinates[j], axis=1)
    assert found.coordinate_distortion == pytest.approx(np.abs(after / before - 1).mean())
    assert found.coordinate_distortion > found.distortion
    assert f"{found.coordinate_distortion:.1%}" in repr(found)
