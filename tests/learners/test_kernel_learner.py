"""KernelLearner against the theorems: kernels of training objects, of new ones, and in reduced bases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics.pairwise import euclidean_distances, pairwise_kernels, rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._kernel_bases import kernel_basis
from nearwise.learners.input_kernels import InputKernel

rng = np.random.default_rng(0)
X, X_new = rng.normal(size=(24, 5)), rng.normal(size=(7, 5))
PAIRS = rng.permutation(24).reshape(-1, 2)
LABELS = np.arange(24) % 3


def side(K0: np.ndarray) -> c.Constraints:
    """Hard constraints that the kernel K0 violates and a kernel near it meets."""
    i, j = PAIRS.T
    d0 = K0[i, i] + K0[j, j] - 2 * K0[i, j]
    return c.at_most(PAIRS[:5], 0.8 * d0[:5]) + c.at_least(PAIRS[5:10], 1.2 * d0[5:10])


def learner(**parameters: object) -> nw.KernelLearner:
    return nw.KernelLearner(**({"penalty": math.inf, "tol": 1e-9, "random_state": 0} | parameters))


KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.2},
    "laplacian": {"kernel": "laplacian", "gamma": 0.2},
    "poly": {"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0},
    "linear": {"kernel": "linear"},
    "cosine": {"kernel": "cosine"},
    "function": {"kernel": lambda a, b: float(np.exp(-0.2 * np.sum((a - b) ** 2)))},
    "gaussian process": {"kernel": RBF(1.5)},
}


def base_kernel(settings: dict[str, object], A: np.ndarray, B: np.ndarray) -> np.ndarray:
    parameters = {name: value for name, value in settings.items() if name != "kernel"}
    return np.asarray(pairwise_kernels(A, B, metric=settings["kernel"], **parameters))


@pytest.mark.parametrize("name", KERNELS)
def test_the_learned_kernel_of_training_objects_is_the_nearest_to_theirs(name: str) -> None:
    """JKDD12 theorem 1, against the problem stated for the kernel matrix, KSD09 (4)."""
    K0 = base_kernel(KERNELS[name], X, X)
    fitted = learner(**KERNELS[name]).fit(X, constraints=side(K0))
    problem = nw.Problem.from_kernel(K0, side(K0), nw.LogDet(), penalty=math.inf)
    result = nw.solve(problem, tol=1e-9)
    K = result.kernel_factor @ result.kernel_factor.T
    np.testing.assert_allclose(fitted.learned_kernel(X), K, atol=1e-5 * np.abs(K).max())
    assert fitted.rank_ == np.linalg.matrix_rank(K0, hermitian=True)


@pytest.mark.parametrize("divergence", ["logdet", "vonneumann", "frobenius"])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly"])
def test_the_learned_kernel_of_new_objects(name: str, divergence: str) -> None:
    """JKDD12 (6) and (18): k0 + k1' S k2 with S = K0^-1 (K - K0) K0^-1, by dense algebra."""
    settings = KERNELS[name]
    K0 = base_kernel(settings, X, X)
    fitted = learner(divergence=divergence, **settings).fit(X, constraints=side(K0))
    inverse = np.linalg.pinv(K0, rcond=1e-10, hermitian=True)
    S = inverse @ (fitted.learned_kernel(X) - K0) @ inverse
    k = base_kernel(settings, X_new, X)
    expected = base_kernel(settings, X_new, X_new) + k @ S @ k.T
    scale = np.abs(expected).max()
    np.testing.assert_allclose(fitted.learned_kernel(X_new), expected, atol=1e-6 * scale)
    np.testing.assert_allclose(fitted.learned_kernel(X_new, X), k + k @ S @ K0, atol=1e-6 * scale)
    own = np.diag(expected)
    squared = own[:, None] + own - 2 * expected
    np.testing.assert_allclose(fitted.distances(X_new, squared=True), squared, atol=1e-5 * scale)
    np.testing.assert_allclose(fitted.distances(X_new) ** 2, squared, atol=1e-5 * scale)
    pairs = np.array([(0, 1), (2, 3), (4, 6)])
    np.testing.assert_allclose(
        fitted.pair_distance(X_new[pairs], squared=True), squared[tuple(pairs.T)], atol=1e-5 * scale
    )
    inside = fitted.transform(X_new)
    Q = k @ inverse @ k.T  # what of k0 the training objects span
    np.testing.assert_allclose(inside @ inside.T, Q + k @ S @ k.T, atol=1e-5 * scale)


@pytest.mark.parametrize("divergence", ["logdet", "vonneumann", "frobenius"])
def test_the_linear_kernel_gives_the_metric_learner(divergence: str) -> None:
    """JKDD12 theorem 4."""
    K0 = X @ X.T
    by_kernel = learner(kernel="linear", divergence=divergence).fit(X, constraints=side(K0))
    by_metric = nw.MetricLearner(divergence=divergence, penalty=math.inf, tol=1e-9).fit(
        X, constraints=side(K0)
    )
    assert by_kernel.rank_ == 5
    np.testing.assert_allclose(by_kernel.distances(X_new), by_metric.distances(X_new), atol=1e-5)
    M = by_metric.get_mahalanobis_matrix()
    np.testing.assert_allclose(by_kernel.learned_kernel(X_new, X), X_new @ M @ X.T, atol=1e-5)


def test_a_precomputed_kernel_gives_what_its_function_gives() -> None:
    K0 = rbf_kernel(X, gamma=0.2)
    by_name = learner(kernel="rbf", gamma=0.2).fit(X, constraints=side(K0))
    fitted = learner(kernel="precomputed").fit(K0, constraints=side(K0))
    rows = rbf_kernel(X_new, X, gamma=0.2)
    np.testing.assert_allclose(fitted.learned_kernel(rows), by_name.learned_kernel(X_new, X), atol=1e-8)
    np.testing.assert_allclose(fitted.learned_kernel(K0), by_name.learned_kernel(X), atol=1e-8)
    np.testing.assert_allclose(fitted.transform(rows), by_name.transform(X_new), atol=1e-8)
    np.testing.assert_allclose(fitted.distances(K0), by_name.distances(X), atol=1e-5)
    extra = by_name.distances(X_new, X, squared=True) - fitted.distances(rows, squared=True)
    np.testing.assert_allclose(extra, np.repeat(extra[:, :1], 24, axis=1), atol=1e-8)
    assert fitted.distances(rows, rows).shape == (7, 7)


# reduced bases


@pytest.mark.parametrize("basis", ["subset", "leverage", "principal", "kmeans", "random"])
@pytest.mark.parametrize("precomputed", [False, True])
def test_a_reduced_basis_solves_the_problem_confined_to_it(basis: str, precomputed: bool) -> None:
    """JKDD12 (20): K = K0 + K0 J L J' K0, and all constraints hold for the whole kernel."""
    K0 = rbf_kernel(X, gamma=0.1)
    i, j = PAIRS.T
    d0 = K0[i, i] + K0[j, j] - 2 * K0[i, j]
    known = c.at_most(PAIRS[:3], 0.97 * d0[:3]) + c.at_least(PAIRS[3:6], 1.03 * d0[3:6])
    kernel = {"kernel": "precomputed"} if precomputed else {"kernel": "rbf", "gamma": 0.1}
    data = K0 if precomputed else X
    fitted = learner(basis=basis, rank=12, **kernel).fit(data, constraints=known)
    K = fitted.learned_kernel(data)
    d = K[i, i] + K[j, j] - 2 * K[i, j]
    assert np.all(d[:3] <= 0.97 * d0[:3] + 1e-7)
    assert np.all(d[3:6] >= 1.03 * d0[3:6] - 1e-7)
    assert np.linalg.matrix_rank(K - K0, tol=1e-8) <= fitted.rank_ <= 12
    if not precomputed:
        np.testing.assert_allclose(fitted.distances(X, squared=True)[i, j], d, atol=1e-9)

    # D(W, I) of the answer is its own objective, and no other matrix of this form that is feasible has less
    result = fitted.result_
    assert result.certificate.dual == pytest.approx(result.certificate.primal, rel=1e-6)
    eigenvalues = np.linalg.eigvalsh(result.matrix)
    assert result.certificate.primal == pytest.approx(np.sum(eigenvalues - np.log(eigenvalues) - 1), rel=1e-6)


@pytest.mark.parametrize("basis", ["subset", "leverage", "principal", "kmeans", "random"])
def test_a_basis_of_all_objects_is_the_full_one(basis: str) -> None:
    K0 = rbf_kernel(X, gamma=0.2)
    settings = {"kernel": "rbf", "gamma": 0.2}
    full = learner(**settings).fit(X, constraints=side(K0))
    reduced = learner(basis=basis, rank=24, **settings).fit(X, constraints=side(K0))
    if basis == "kmeans":
        assert reduced.rank_ == 24
    np.testing.assert_allclose(reduced.learned_kernel(X_new), full.learned_kernel(X_new), atol=1e-5)


@pytest.mark.parametrize("basis", ["full", "subset", "leverage", "principal", "kmeans", "random"])
def test_coordinates_are_orthonormal_projections(basis: str) -> None:
    K0 = rbf_kernel(X, gamma=0.2)
    found = kernel_basis(InputKernel("rbf", {"gamma": 0.2}), X, basis, 6, np.random.RandomState(0))
    K_points = rbf_kernel(found.points, gamma=0.2)
    np.testing.assert_allclose(
        found.weights.T @ K_points @ found.weights, np.eye(found.weights.shape[1]), atol=1e-8
    )
    np.testing.assert_allclose(
        found.features, rbf_kernel(X, found.points, gamma=0.2) @ found.weights, atol=1e-8
    )
    rest = K0 - found.features @ found.features.T
    assert np.linalg.eigvalsh(rest)[0] > -1e-8
    assert bool(np.abs(rest).max() < 1e-8) is (basis == "full")


def test_kernel_k_means_with_the_linear_kernel_is_k_means() -> None:
    centres = 8.0 * np.eye(5)[:3]
    rows = np.repeat(centres, 8, axis=0) + 0.1 * rng.normal(size=(24, 5))
    clusters = KMeans(3, n_init=5, random_state=0).fit(rows)
    for seed in range(5):
        found = kernel_basis(InputKernel("linear"), rows, "kmeans", 3, np.random.RandomState(seed))
        U = rows.T @ found.weights
        if found.weights.shape[1] == 3 and np.linalg.norm(clusters.cluster_centers_ @ U) > 13.8:
            break
    np.testing.assert_allclose(
        U @ U.T, np.linalg.pinv(clusters.cluster_centers_) @ clusters.cluster_centers_, atol=1e-6
    )


def test_many_objects_are_learned_in_a_reduced_basis_by_default() -> None:
    many = rng.normal(size=(600, 3))
    fitted = nw.KernelLearner(penalty=1.0, n_pairs=50, random_state=0).fit(many, many[:, 0] > 0)
    assert (fitted.rank_, fitted.metric_.points.shape) == (55, (165, 3))
    assert nw.KernelLearner(penalty=1.0).fit(X, LABELS).metric_.points.shape == X.shape


# kernels that are difficult


def test_rank_deficient_kernels_lose_no_object() -> None:
    doubled = np.vstack([X, X])
    side_information = c.similar([(0, 5), (1, 6)]) + c.dissimilar([(0, 1), (2, 3)])
    fitted = nw.KernelLearner(kernel="linear", penalty=1.0).fit(doubled, constraints=side_information)
    assert fitted.rank_ == 5
    K = fitted.learned_kernel(doubled)
    np.testing.assert_allclose(K[:24, :24], K[24:, 24:])
    assert np.isfinite(fitted.transform(1e3 * X_new)).all()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, rbf_kernel])
def test_equal_objects_have_equal_coordinates(form: object) -> None:
    rows = np.round(np.vstack([X[:5], X[:5] * [1, 0, 1, 0, 1], X[:5]]), 1)
    kernel = InputKernel("precomputed") if form is rbf_kernel else InputKernel("rbf", {"gamma": 0.2})
    for basis in ("full", "subset", "random"):
        found = kernel_basis(kernel, form(rows), basis, 7, np.random.RandomState(0))
        np.testing.assert_array_equal(found.features[10:], found.features[:5])
        assert np.abs(found.features[5:10] - found.features[:5]).sum(axis=1).min() > 1e-3


def test_ill_conditioned_kernels_are_cut_at_the_tolerance() -> None:
    fitted = nw.KernelLearner(gamma=1e-5, penalty=1.0, random_state=0).fit(X, LABELS)
    K = rbf_kernel(X, gamma=1e-5)
    values = np.linalg.eigvalsh(K - K.mean(axis=0) - K.mean(axis=0)[:, None] + K.mean())
    assert fitted.rank_ == np.sum(values > 1e-8 * values[-1]) + 1 < 24  # and the mean
    assert np.isfinite(fitted.distances(X_new)).all()
    single = rbf_kernel(X, gamma=1e-5).astype(np.float32)
    smallest = np.linalg.eigvalsh(single.astype(float))[0]
    assert smallest < 0
    assert nw.KernelLearner(kernel="precomputed", penalty=1.0, random_state=0).fit(single, LABELS).rank_ < 24


def test_indefinite_kernels_are_refused_by_their_smallest_eigenvalue() -> None:
    K = np.diag([2.0, 1.0, -0.5])
    with pytest.raises(
        ValueError, match=r"has the eigenvalue -0.5 \(the largest is 2\); add at least 0.5 to its diagonal"
    ):
        nw.KernelLearner(kernel="precomputed").fit(K, [0, 0, 1])
    with pytest.raises(ValueError, match="positive semidefinite"):
        nw.KernelLearner(kernel="sigmoid", gamma=5.0, coef0=-1.0).fit(X, LABELS)
    with pytest.raises(ValueError, match="must be symmetric"):
        nw.KernelLearner(kernel="precomputed").fit(rng.normal(size=(3, 3)), [0, 0, 1])
    with pytest.raises(ValueError, match="square kernel matrix for fit"):
        nw.KernelLearner(kernel="precomputed").fit(rng.normal(size=(3, 2)), [0, 0, 1])
    with pytest.raises(ValueError, match="the kernel is zero"):
        nw.KernelLearner(kernel="precomputed").fit(np.zeros((3, 3)), [0, 0, 1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "gauss"}, "kernel must be one of 'additive_chi2'.*'precomputed', got 'gauss'"),
        ({"gamma": -1.0}, "gamma must be a finite number > 0, 'auto', 'scale' or None, got -1.0"),
        ({"gamma": "best"}, "gamma must be one of 'auto', 'scale', got 'best'"),
        (
            {"basis": "svd"},
            "basis must be one of 'auto', 'full', 'principal', 'leverage', 'subset', 'kmeans'",
        ),
        ({"basis": "full", "rank": 3}, "takes all 24 objects, so rank must be None, got 3"),
        ({"rank": -1}, "rank must be a whole number >= 1 or None, got -1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nw.KernelLearner(**parameters).fit(X, LABELS)
    with pytest.raises(TypeError, match="kernel must be a name or a function of two rows, got int"):
        nw.KernelLearner(kernel=3).fit(X, LABELS)


@pytest.mark.long
def test_the_scale_of_gamma_follows_the_data() -> None:
    fitted = nw.KernelLearner(gamma="scale", penalty=1.0, random_state=0).fit(X, LABELS)
    larger = nw.KernelLearner(gamma="scale", penalty=1.0, random_state=0).fit(10.0 * X, LABELS)
    np.testing.assert_allclose(larger.transform(10.0 * X_new), fitted.transform(X_new), atol=1e-7)
    gamma = SVC(gamma="scale").fit(X, LABELS)._gamma
    assert fitted.metric_.kernel.parameters["gamma"] == pytest.approx(gamma)
    unscaled = nw.KernelLearner(gamma=None, penalty=1.0).fit(X, LABELS)
    assert unscaled.metric_.kernel.parameters["gamma"] == pytest.approx(0.2)


@pytest.mark.long
def test_an_rbf_kernel_does_not_depend_on_what_all_rows_share() -> None:
    """Rows on a grid, which stay as far from each other when a large number is added."""
    rows = np.round(X * 2**10) / 2**10
    near, far = (learner(penalty=1.0).fit(rows + offset, LABELS) for offset in (0.0, 2.0**30))
    np.testing.assert_allclose(far.distances(rows + 2.0**30), near.distances(rows), rtol=1e-6, atol=1e-9)


def test_sparse_data_give_the_kernel_of_dense_data() -> None:
    S = sparse.random_array((30, 50), density=0.2, rng=0, format="csr")
    labels = np.arange(30) % 2
    for name in ("rbf", "cosine", "linear", "poly"):
        first, second = (
            nw.KernelLearner(kernel=name, penalty=1.0, tol=1e-10, random_state=0) for _ in range(2)
        )
        first.fit(S, labels)
        second.fit(S.toarray(), labels)
        np.testing.assert_allclose(first.learned_kernel(S), second.learned_kernel(S.toarray()), atol=1e-5)


def test_the_parameter_and_the_function_share_a_name() -> None:
    fitted = nw.KernelLearner(kernel="cosine", penalty=1.0).fit(X, LABELS)
    assert fitted.get_params()["kernel"] == "cosine"
    assert "kernel='cosine'" in repr(fitted)
    assert fitted.set_params(kernel="linear").get_params()["kernel"] == "linear"
    assert fitted.learned_kernel(X).shape == (24, 24)


def test_without_side_information_the_kernel_is_the_input_kernel() -> None:
    with pytest.warns(nw.PriorKeptWarning, match="KernelLearner returns the prior"):
        fitted = nw.KernelLearner(gamma=0.2).fit(X)
    np.testing.assert_allclose(fitted.learned_kernel(X_new, X), rbf_kernel(X_new, X, gamma=0.2), atol=1e-12)


def test_a_fit_can_be_stopped() -> None:
    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        fitted = nw.KernelLearner(penalty=1.0, callback=lambda _: True, random_state=0).fit(X, LABELS)
    assert fitted.status_ is nw.Status.INTERRUPTED
    assert np.isfinite(fitted.learned_kernel(X_new)).all()


# in use


@pytest.mark.long
@pytest.mark.parametrize("loader", [load_iris, load_wine])
def test_the_learned_kernel_serves_machines_neighbours_and_components(loader: object) -> None:
    data, labels = loader(return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        data, labels, test_size=0.5, random_state=0, stratify=labels
    )
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    fitted = nw.KernelLearner(random_state=0).fit(train, y_train)

    machine = SVC(kernel="precomputed").fit(fitted.learned_kernel(train), y_train)
    assert machine.score(fitted.learned_kernel(test, train), y_test) > 0.9

    nearest = KNeighborsClassifier(5, metric="precomputed").fit(fitted.distances(train), y_train)
    by_distance = nearest.predict(fitted.distances(test, train))
    assert np.mean(by_distance == y_test) > 0.9

    components = KernelPCA(kernel="precomputed").fit(fitted.learned_kernel(train))
    np.testing.assert_allclose(
        euclidean_distances(components.transform(fitted.learned_kernel(train))),
        fitted.distances(train),
        atol=1e-5,
    )
    projected = components.transform(fitted.learned_kernel(test, train))[:, :5]
    assert (
        KNeighborsClassifier(5)
        .fit(components.transform(fitted.learned_kernel(train))[:, :5], y_train)
        .score(projected, y_test)
        > 0.9
    )


def test_the_parameter_is_an_attribute_as_everywhere_in_scikit_learn() -> None:
    def product(x: np.ndarray, y: np.ndarray) -> float:
        return float(x @ y)

    assert nw.KernelLearner().kernel == "rbf"
    assert nw.KernelLearner(kernel=product).kernel is product
    learner = nw.KernelLearner(kernel="linear").set_params(kernel="cosine")
    assert learner.kernel == learner.get_params()["kernel"] == clone(learner).kernel == "cosine"
