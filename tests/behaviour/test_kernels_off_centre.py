"""Distances of a kernel do not depend on what all objects have in common."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearwise as nw
from crossing import crossed
from nearwise import constraints as c

OFFSETS = (100.0, 1000.0, 3000.0, 1e6)
BASES = ("auto", "full", "principal", "leverage", "subset", "kmeans", "random")


def table(n: int, d: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of classes, on numbers that an offset rounds alike, and rows that no fit has seen."""
    rng = np.random.default_rng(4)
    y = np.arange(n + 15) % 3
    X = rng.normal(size=(n + 15, d)) * np.geomspace(0.2, 2.0, d) + 2.0 * np.eye(3, d)[y]
    X = np.round(X * 2.0**20) / 2.0**20
    return X[:n], y[:n], X[n:]


def fitted(kernel: str, n: int, offset: float, **settings: object) -> tuple[np.ndarray, np.ndarray]:
    """Learned distances of the rows of the fit, and of new ones to these."""
    X, y, new = table(n)
    X, new = X + offset, new + offset
    learner = nw.KernelLearner(penalty=1.0, random_state=0, gamma="scale")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if kernel == "precomputed":
            learner.set_params(kernel="precomputed", **settings).fit(X @ X.T, y)
            return learner.distances(X @ X.T), learner.distances(new @ X.T)
        learner.set_params(kernel=kernel, **settings).fit(X, y)
    return learner.distances(X), learner.distances(new, X)


@crossed(kernel=("linear", "linear+rbf"), n=(40, 140), offset=OFFSETS)
def test_an_offset_of_the_columns_changes_no_distance(kernel: str, n: int, offset: float) -> None:
    for found, expected in zip(fitted(kernel, n, offset), fitted(kernel, n, 0.0), strict=True):
        assert_allclose(found, expected, atol=1e-6 * expected.max())


@crossed(kernel=("linear", "linear+rbf", "rbf"), n=(40, 140), columns=("one", "each"))
def test_a_number_added_to_single_columns_changes_no_distance(kernel: str, n: int, columns: str) -> None:
    X, y, new = table(n)
    added = 1e5 * np.eye(6)[2] if columns == "one" else np.array([-3000.0, 0.0, 50.0, 1e4, 7.0, -1.0])
    learner = nw.KernelLearner(kernel, penalty=1.0, gamma=0.2, random_state=0)
    found, expected = (learner.fit(X + shift, y).distances(new + shift) for shift in (added, 0.0))
    assert_allclose(found, expected, atol=1e-6 * expected.max())


@crossed(basis=BASES, n=(40, 140), offset=(1000.0, 1e6))
def test_an_offset_of_the_columns_matters_in_no_basis_that_spans_the_data(
    basis: str, n: int, offset: float
) -> None:
    rank = None if basis in ("auto", "full") else 20
    found, expected = (fitted("linear", n, shift, basis=basis, rank=rank)[1] for shift in (offset, 0.0))
    assert_allclose(found, expected, atol=1e-6 * expected.max())


@crossed(n=(40, 140), offset=(100.0, 1000.0, 3000.0))
def test_an_offset_in_the_space_of_a_precomputed_kernel_changes_no_distance(n: int, offset: float) -> None:
    for found, expected in zip(fitted("precomputed", n, offset), fitted("precomputed", n, 0.0), strict=True):
        # rounding of kernel values of the size of the squared offset
        assert_allclose(found**2, expected**2, atol=1e-13 * offset**2 * 6 * 10)


@pytest.mark.parametrize("n", [40, 140])
def test_one_number_added_to_a_kernel_changes_no_distance(n: int) -> None:
    X, y, _ = table(n)
    K = np.exp(-0.1 * np.square(X[:, None] - X).sum(axis=2))
    found = [
        nw.KernelLearner("precomputed", penalty=1.0, random_state=0).fit(K + added, y).distances(K + added)
        for added in (0.0, 1e4)
    ]
    assert_allclose(found[1] ** 2, found[0] ** 2, atol=1e-7)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_linear_kernel_learns_the_metric_of_a_metric_learner(offset: float) -> None:
    X, _, new = table(60)
    side = c.at_most([(0, 3), (1, 4)], 0.5) + c.at_least([(0, 1), (3, 8)], 40.0)
    kernel = nw.KernelLearner("linear", penalty=1.0).fit(X + offset, constraints=side)
    metric = nw.MetricLearner(penalty=1.0).fit(X, constraints=side)
    assert kernel.rank_ == 6
    assert_allclose(kernel.distances(new + offset), metric.distances(new), atol=1e-5)


@crossed(n=(40, 140), offset=(1000.0, 1e6))
def test_coordinates_of_a_map_move_with_the_data(n: int, offset: float) -> None:
    X, y, new = table(n)
    maps = [
        nw.KernelReducer(kernel="linear", penalty=0.1, random_state=0)
        .fit(X + shift, y)
        .distances(new + shift)
        for shift in (0.0, offset)
    ]
    assert_allclose(maps[1], maps[0], atol=1e-5 * maps[0].max())


@pytest.mark.parametrize("n", [40, 140])
def test_the_learned_kernel_is_that_of_the_rows_as_they_are(n: int) -> None:
    """Centring is the solver's: values of the learned kernel are those of the uncentred features."""
    X, y, new = table(n)
    learner = nw.KernelLearner("linear", penalty=1e-13, random_state=0).fit(X + 50.0, y)
    expected = (new + 50.0) @ (X + 50.0).T
    assert_allclose(learner.learned_kernel(new + 50.0, X + 50.0), expected, rtol=1e-8)


@pytest.mark.parametrize("kernel", ["linear", "linear+rbf", "rbf"])
def test_a_model_file_measures_alike(kernel: str, tmp_path) -> None:
    X, y, new = table(140)
    learner = nw.KernelLearner(kernel, penalty=1.0, random_state=0, gamma="scale").fit(X + 1e5, y)
    nw.save(learner, tmp_path / "model")
    found = nw.load(tmp_path / "model").distances(new + 1e5, X + 1e5)
    np.testing.assert_array_equal(found, learner.distances(new + 1e5, X + 1e5))


def test_inner_products_keep_their_origin() -> None:
    X, _, _ = table(30)
    side = c.similarity([(0, 1), (2, 3)], [30.0, 20.0], "==")
    learner = nw.KernelLearner("linear", penalty=np.inf).fit(X + 3.0, constraints=side)
    K = learner.learned_kernel(X + 3.0)
    assert_allclose([K[0, 1], K[2, 3]], [30.0, 20.0], rtol=1e-4)
