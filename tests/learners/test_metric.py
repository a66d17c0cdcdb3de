"""Metrics against their definitions: dense matrices, and feature maps that are written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

import nearwise as nw
from nearwise.learners.input_kernels import InputKernel
from nearwise.learners.metric import symmetric_root

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(9, 5)), rng.normal(size=(7, 5))
U = np.linalg.qr(rng.normal(size=(5, 2)))[0]
FROM, TO = rng.integers(0, 9, size=(2, 20))

METRICS = {
    "full": nw.Metric(rng.normal(size=(5, 5))),
    "low rank": nw.Metric(rng.normal(size=(5, 3))),
    "identity plus low rank": nw.Metric(rng.normal(size=(2, 2)), U),
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_distances_are_those_of_the_matrix(metric: nw.Metric) -> None:
    M = metric.matrix
    np.testing.assert_allclose(M, M.T)
    expected = cdist(X, Y, "mahalanobis", VI=M) ** 2
    np.testing.assert_allclose(metric.squared_distances(X, Y), expected)
    z = X[FROM] - X[TO]
    np.testing.assert_allclose(metric.pair_squared_distances(X, FROM, TO), np.sum((z @ M) * z, axis=1))
    np.testing.assert_allclose(metric.transform(X), X @ metric.components.T)
    assert metric.n_features == 5


def test_metrics_say_what_they_are(quadratic: tuple[nw.KernelMetric, np.ndarray]) -> None:
    assert repr(METRICS["full"]) == "<Metric: 5 features>"
    assert repr(METRICS["identity plus low rank"]) == "<Metric: 5 features, identity outside 2 dimensions>"
    assert repr(quadratic[0]) == "<KernelMetric: kernel 'poly', learned in 4 dimensions>"


def test_identity_plus_low_rank_is_what_it_says() -> None:
    metric = METRICS["identity plus low rank"]
    B = metric.factor
    np.testing.assert_allclose(metric.matrix, np.eye(5) + U @ (B @ B.T - np.eye(2)) @ U.T)
    np.testing.assert_allclose(U.T @ metric.matrix @ U, B @ B.T)
    outside = np.eye(5) - U @ U.T
    np.testing.assert_allclose(outside @ metric.matrix @ outside, outside, atol=1e-14)
    np.testing.assert_allclose(metric.components.T @ metric.components, U @ B @ B.T @ U.T)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_sparse_rows_have_the_distances_of_dense_ones(metric: nw.Metric) -> None:
    S, T = sparse.csr_array(X), sparse.csr_array(Y)
    np.testing.assert_allclose(metric.transform(S), metric.transform(X))
    np.testing.assert_allclose(metric.squared_distances(S, T), metric.squared_distances(X, Y))
    np.testing.assert_allclose(
        metric.pair_squared_distances(S, FROM, TO), metric.pair_squared_distances(X, FROM, TO), atol=1e-12
    )


def test_equal_rows_are_at_distance_zero_however_large_they_are() -> None:
    rows = np.repeat(1e8 * rng.normal(size=(1, 5)), 2, axis=0)
    for metric in METRICS.values():
        assert metric.pair_squared_distances(rows, np.array([0]), np.array([1])) == 0.0


def test_the_symmetric_root_is_the_factor_nearest_to_the_identity() -> None:
    B = rng.normal(size=(4, 4))
    root = symmetric_root(B)
    np.testing.assert_allclose(root, root.T)
    np.testing.assert_allclose(root @ root, B @ B.T)
    for seed in range(20):
        Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]
        assert np.linalg.norm(root - np.eye(4)) <= np.linalg.norm(B @ Q - np.eye(4))
    np.testing.assert_allclose(symmetric_root(B[:, :2]) @ symmetric_root(B[:, :2]), B[:, :2] @ B[:, :2].T)


PARAMETERS = {
    "rbf": {"gamma": 0.3},
    "laplacian": {"gamma": 0.3},
    "poly": {"gamma": 0.3, "degree": 2, "coef0": 1.0},
    "polynomial": {"gamma": 0.3, "degree": 3, "coef0": 0.5},
    "sigmoid": {"gamma": 0.3, "coef0": 1.0},
}


@pytest.mark.parametrize("name", sorted(PAIRWISE_KERNEL_FUNCTIONS))
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_paired_values_are_the_diagonal_of_all_of_them(name: str, form: type) -> None:
    if form is sparse.csr_array and name in ("chi2", "additive_chi2"):
        pytest.skip("scikit-learn computes this kernel for dense rows only")
    parameters = PARAMETERS.get(name, {})
    kernel = InputKernel(name, parameters)
    A, B = form(np.abs(X[:6])), form(np.abs(Y[:6]))
    expected = pairwise_kernels(A, B, metric=name, **parameters)
    np.testing.assert_allclose(kernel.gram(A, B), expected)
    np.testing.assert_allclose(kernel.paired(A, B), np.diag(expected))
    own = [np.diag(pairwise_kernels(rows, rows, metric=name, **parameters)) for rows in (A, B)]
    distances = own[0] + own[1] - 2 * np.diag(expected)
    np.testing.assert_allclose(kernel.paired_squared_distances(A, B), distances, atol=1e-12)


@pytest.mark.parametrize("function", [lambda a, b: float(a @ b) ** 2, RBF(0.7)], ids=["function", "gp"])
def test_functions_and_kernel_objects_are_kernels(function: object) -> None:
    kernel = InputKernel(function)
    expected = pairwise_kernels(X, Y, metric=function)
    np.testing.assert_allclose(kernel.gram(X, Y), expected)
    np.testing.assert_allclose(kernel.paired(X[:7], Y), np.diag(expected))


def quadratic_map(rows: np.ndarray) -> np.ndarray:
    """The features of the kernel (x' y)^2."""
    return np.einsum("ni,nj->nij", rows, rows).reshape(len(rows), -1)


@pytest.fixture
def quadratic() -> tuple[nw.KernelMetric, np.ndarray]:
    """A learned metric of the kernel (x' y)^2 in a basis of 4 points, and W in its 25 features."""
    points = rng.normal(size=(4, 5))
    phi = quadratic_map(points)
    values, vectors = np.linalg.eigh(phi @ phi.T)
    weights = vectors / np.sqrt(values)
    factor = np.random.default_rng(1).normal(size=(4, 4))
    basis = phi.T @ weights
    W = np.eye(25) + basis @ (factor @ factor.T - np.eye(4)) @ basis.T
    kernel = InputKernel("poly", {"gamma": 1.0, "degree": 2, "coef0": 0.0})
    return nw.KernelMetric(kernel, points, weights, factor), W


def test_a_kernel_metric_is_a_linear_map_in_the_space_of_the_kernel(
    quadratic: tuple[nw.KernelMetric, np.ndarray],
) -> None:
    metric, W = quadratic
    left, right = quadratic_map(X), quadratic_map(Y)
    np.testing.assert_allclose(metric.gram(X, Y), left @ W @ right.T)
    np.testing.assert_allclose(metric.gram(X), left @ W @ left.T)
    z = left[:, None] - right
    np.testing.assert_allclose(metric.squared_distances(X, Y), np.einsum("ijk,kl,ijl->ij", z, W, z))
    z = left[FROM] - left[TO]
    np.testing.assert_allclose(
        metric.pair_squared_distances(X, FROM, TO), np.einsum("ik,kl,il->i", z, W, z), atol=1e-12
    )


def test_precomputed_rows_give_the_same_kernel(quadratic: tuple[nw.KernelMetric, np.ndarray]) -> None:
    metric, _ = quadratic
    rows = (X @ metric.points.T) ** 2
    training = metric.features(metric.points)
    precomputed = nw.KernelMetric(InputKernel("precomputed"), None, metric.weights, metric.factor, training)
    np.testing.assert_allclose(precomputed.gram(rows), metric.gram(X, metric.points))
    np.testing.assert_allclose(precomputed.transform(rows), metric.transform(X))
    own = (metric.points @ metric.points.T) ** 2
    np.testing.assert_allclose(
        precomputed.squared_distances(own), metric.squared_distances(metric.points), atol=1e-9
    )
    # a new object is at the same extra distance from all training objects: what the rows cannot tell
    extra = metric.squared_distances(X, metric.points) - precomputed.squared_distances(rows)
    np.testing.assert_allclose(extra, np.repeat(extra[:, :1], 4, axis=1), atol=1e-9)
    assert np.all(extra > 0)
    projected = metric.transform(X)
    np.testing.assert_allclose(precomputed.gram(rows, rows), projected @ projected.T)


@pytest.mark.parametrize("basis", [True, False])
def test_isometric_coordinates_have_the_whole_distance(basis: bool) -> None:
    U = np.linalg.qr(rng.normal(size=(5, 2)))[0] if basis else None
    metric = nw.Metric(rng.normal(size=(2, 2) if basis else (5, 3)), U)
    A, B = rng.normal(size=(2, 7, 5))
    differences = (A[:, np.newaxis] - B).reshape(-1, 5)
    expected = np.einsum("ij,jk,ik->i", differences, metric.matrix, differences).reshape(7, 7)
    placed = [metric.isometric(rows) for rows in (A, B)]
    np.testing.assert_allclose(np.square(placed[0][:, np.newaxis] - placed[1]).sum(axis=2), expected)
    np.testing.assert_allclose(metric.squared_distances(A, B), expected)
