"""KernelReducer: the trace-norm problem beside cvxpy, JKDD12 5.4 with its errata, new objects, USPS."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from nearwise import constraints as c
from nearwise.datasets import Dataset
from nearwise.learners import kernel_reducer

X, y = load_iris(return_X_y=True)
PAIRS = np.array([(0, 1), (2, 3), (4, 5), (6, 7), (0, 6), (1, 7)])
SIDE = c.at_most(PAIRS[:2], 0.02) + c.at_least(PAIRS[2:4], 0.5) + c.closer([(0, 1, 4), (3, 2, 6)], 0.1)


def small_kernel() -> tuple[np.ndarray, np.ndarray]:
    points = np.random.default_rng(0).normal(size=(8, 3))
    return points, rbf_kernel(points, gamma=0.3)


def matrices(n: int) -> tuple[np.ndarray, np.ndarray]:
    """C_i and b_i with tr(C_i K) <= b_i, for SIDE."""
    E = np.eye(n)

    def distance(i: int, j: int) -> np.ndarray:
        return np.outer(E[i] - E[j], E[i] - E[j])

    C = [distance(0, 1), distance(2, 3), -distance(4, 5), -distance(6, 7)]
    C += [distance(0, 1) - distance(0, 4), distance(3, 2) - distance(3, 6)]
    return np.array(C), np.array([0.02, 0.02, -0.5, -0.5, -0.1, -0.1])


@pytest.mark.parametrize("tau", [0.1, 2.0])
def test_hard_constraints_against_cvxpy(tau: float) -> None:
    """JKDD12 (26) with K = root K~ root, on the kernel matrix itself."""
    cvxpy = pytest.importorskip("cvxpy")
    _, K0 = small_kernel()
    C, b = matrices(8)
    values, V = np.linalg.eigh(K0)
    root = (V * np.sqrt(values)) @ V.T
    scale = 1 / (2 * (np.trace(K0) / 8 - K0.mean()))  # the reducer's unit
    inner = cvxpy.Variable((8, 8), PSD=True)
    conditions = [
        cvxpy.trace(root @ each @ root @ inner) * scale <= bound for each, bound in zip(C, b, strict=True)
    ]
    program = cvxpy.Problem(cvxpy.Minimize(tau * cvxpy.trace(inner) + cvxpy.sum_squares(inner)), conditions)
    expected = program.solve(solver="CLARABEL")
    found = nw.KernelReducer(8, kernel="precomputed", trace_weight=tau, penalty=math.inf).fit(
        K0, constraints=SIDE
    )
    W = found.result_.matrix
    assert tau * np.trace(W) + np.sum(W**2) == pytest.approx(expected, rel=1e-4)
    learned = scale * root @ inner.value @ root
    assert found.learned_kernel(K0) == pytest.approx(learned, abs=1e-3 * np.abs(learned).max())
    assert np.einsum("iab,ab->i", C, found.learned_kernel(K0)) == pytest.approx(
        np.minimum(np.einsum("iab,ab->i", C, found.learned_kernel(K0)), b), abs=1e-5
    )


def test_the_shrinkage_and_the_eigenvectors_of_the_errata() -> None:
    """W = ((S - tau)_+) / 2 with S = -root sum_i z_i C_i root; and its eigenvectors from those of C K0."""
    points, K0 = small_kernel()
    C, _ = matrices(8)
    tau = 0.5
    found = nw.KernelReducer(8, gamma=0.3, trace_weight=tau, penalty=math.inf, tol=1e-10).fit(
        points, constraints=SIDE
    )
    z = found.result_.dual * np.array([1, 1, -1, -1, 1, 1])  # of rows written as "<="
    assert (z >= 0).all()
    scale = 1 / (2 * (np.trace(K0) / 8 - K0.mean()))
    total = -np.tensordot(z, C, axes=1)
    values, V = np.linalg.eig(total @ (scale * K0))  # lemma 10: not symmetric
    order = np.argsort(-values.real)
    values, V = values.real[order], V.real[:, order]
    kept = values > tau
    assert found.eigenvalues_ == pytest.approx((values[kept] - tau) / 2, abs=1e-5)
    U = V[:, kept] / np.sqrt(np.einsum("ia,ij,ja->a", V[:, kept], scale * K0, V[:, kept]))
    kernel = scale * K0 @ (U * (values[kept] - tau) / 2) @ U.T @ K0 * scale
    assert found.learned_kernel(points) == pytest.approx(kernel, abs=1e-5)


@pytest.mark.long
def test_a_larger_trace_weight_lowers_the_rank() -> None:
    ranks = [
        len(nw.KernelReducer(trace_weight=t, random_state=0).fit(X, y).eigenvalues_) for t in (0.01, 1, 100)
    ]
    assert ranks[0] > ranks[1] > ranks[2] >= 1


def test_new_objects_land_where_they_would_have_been() -> None:
    found = nw.KernelReducer(random_state=0).fit(X[::2], y[::2])
    assert found.transform(X[1:6]).shape == (5, 2)
    metric = found.metric_
    coordinates = (
        rbf_kernel(X[:7], metric.points, gamma=metric.kernel.parameters["gamma"]) @ found.components_.T
    )
    assert found.transform(X[:7]) == pytest.approx(coordinates, abs=1e-12)
    squared = np.sum((coordinates[:, None] - coordinates) ** 2, axis=-1)
    assert found.distances(X[:7], squared=True) == pytest.approx(squared, abs=1e-10)
    assert found.pair_distance([(0, 3)], X[:7], squared=True) == pytest.approx(squared[0, 3])
    assert found.score(X[1::2], y[1::2]) > 0.9
    assert found.get_feature_names_out().tolist() == ["kernelreducer0", "kernelreducer1"]


def test_a_precomputed_kernel_gives_the_same_map() -> None:
    points, K0 = small_kernel()
    direct = nw.KernelReducer(gamma=0.3).fit(points, constraints=SIDE)
    indirect = nw.KernelReducer(kernel="precomputed").fit(K0, constraints=SIDE)
    assert np.abs(indirect.transform(K0)) == pytest.approx(np.abs(direct.transform(points)), abs=1e-5)
    assert indirect.distances(K0) == pytest.approx(direct.distances(points), abs=1e-5)


def test_nothing_known_is_kernel_pca_with_a_warning() -> None:
    for arguments in ({}, {"constraints": c.at_most([(0, 1)], 100.0)}):
        with pytest.warns(nw.PriorKeptWarning, match="kernel PCA"):
            found = nw.KernelReducer(kernel="rbf", gamma=0.1).fit(X, **arguments)
        expected = KernelPCA(2, kernel="rbf", gamma=0.1).fit_transform(X)
        ours = found.transform(X) - found.transform(X).mean(axis=0)
        gram, wanted = ours @ ours.T, expected @ expected.T
        assert gram / np.linalg.norm(gram) == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-3)
        assert found.kept_prior_


def test_contradictions_are_an_error_when_hard() -> None:
    side = c.at_most([(0, 60)], 0.1) + c.at_least([(0, 60)], 0.2)
    with pytest.raises(ValueError, match="No matrix meets"):
        nw.KernelReducer(penalty=math.inf).fit(X, constraints=side)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": None}, "n_components"),
        ({"trace_weight": 0}, "trace_weight"),
        ({"penalty": "auto"}, "penalty must be a number"),
    ],
)
def test_what_is_refused(settings: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        nw.KernelReducer(**settings).fit(X, y)


@pytest.mark.long
def test_usps_from_100_labels_beats_kernel_pca(load_dataset: Callable[[str], Dataset]) -> None:
    """JKDD12 figure 2 (c, d): 2,000 unseen digits in two dimensions."""
    data = load_dataset("usps")
    gains = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(data.X))
        train, test = order[:100], order[100:2100]
        scores = []
        gamma = 1 / (data.X.shape[1] * data.X[train].var())
        for map_ in (nw.KernelReducer(gamma=gamma, random_state=0), KernelPCA(2, kernel="rbf", gamma=gamma)):
            map_.fit(data.X[train], data.y[train])
            knn = KNeighborsClassifier(5).fit(map_.transform(data.X[train]), data.y[train])
            scores.append(knn.score(map_.transform(data.X[test]), data.y[test]))
        gains.append(scores[0] - scores[1])
    assert min(gains) > 0
    assert np.mean(gains) > 0.08


@pytest.mark.long
def test_leading_eigenpairs_give_the_map_of_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(220, 6)) + 2 * np.eye(6)[rng.integers(6, size=220)]
    classes = (points[:, 0] > 1).astype(int) + (points[:, 1] > 1)
    maps = []
    for threshold in (10, 10_000):
        monkeypatch.setattr(kernel_reducer, "_THIN", threshold)
        maps.append(nw.KernelReducer(3, basis="full", tol=1e-9, random_state=0).fit(points, classes))
    thin, whole = maps
    assert (thin.result_.solver, whole.result_.solver) == ("ThinFactor", "Newton")
    assert thin.eigenvalues_ == pytest.approx(whole.eigenvalues_[: len(thin.eigenvalues_)], abs=1e-4)
    assert thin.distances(points) == pytest.approx(whole.distances(points), abs=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_coordinates_have_a_sign_that_rounding_does_not_choose(kernel: str) -> None:
    """For X and -X, which have the same linear kernel, the sign is that of the first of the tied objects."""
    half = X[::10] - X[::10].mean(axis=0)
    rows, labels = np.vstack([half, -half]), np.tile(y[::10], 2)
    model = nw.KernelReducer(kernel=kernel, random_state=0).fit(rows, labels)
    found = model.transform(rows)
    largest = np.abs(found).max(axis=0)
    first = np.argmax(np.abs(found) > (1 - 1e-9) * largest, axis=0)
    np.testing.assert_allclose(found[first, [0, 1]], largest)
    mirrored = nw.KernelReducer(kernel=kernel, random_state=0).fit(-rows, labels)
    np.testing.assert_allclose(mirrored.transform(-rows), found, atol=1e-7)


def test_what_holds_in_few_coordinates_is_said() -> None:
    """W meets all hard constraints, with more directions than two coordinates keep."""
    points = np.random.default_rng(0).normal(size=(30, 6))
    pairs = np.arange(30).reshape(-1, 2)
    side = c.at_least(pairs, 1.5)
    reducer = nw.KernelReducer(2, penalty=math.inf, random_state=0)
    with pytest.warns(
        nw.TruncationWarning, match=r"of 15 constraints do not hold in 2 coordinates, row \d+: d\("
    ) as told:
        reducer.fit(points, constraints=side)
    assert reducer.status_ is nw.Status.SOLVED
    assert len(reducer.eigenvalues_) > 2
    coordinates = reducer.transform(points)
    d = np.square(coordinates[pairs[:, 0]] - coordinates[pairs[:, 1]]).sum(axis=1)
    failed = int(np.sum(d < 1.5 * (1 - 1e-3)))
    assert f"{failed} of 15" in str(told[0].message)
    assert reducer.satisfied_ == pytest.approx(1 - failed / 15)
    assert failed > 5
    whole = nw.KernelReducer(30, penalty=math.inf, random_state=0).fit(points, constraints=side)
    assert whole.satisfied_ == 1.0
