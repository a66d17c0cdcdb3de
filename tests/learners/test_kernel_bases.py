"""Bases of objects for kernels, the scale of the kernel, and what is kept outside a basis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._kernel_bases import kernel_basis
from nearwise.learners.input_kernels import InputKernel

rng = np.random.default_rng(5)
X, X_new = rng.normal(size=(60, 4)), rng.normal(size=(9, 4))
LABELS = (X[:, 0] > 0).astype(int)
RBF = InputKernel("rbf", {"gamma": 0.2})


@pytest.mark.parametrize("kernel", ["rbf", "linear+rbf", "laplacian", "precomputed"])
@pytest.mark.parametrize("basis", ["full", "principal", "leverage", "subset", "kmeans", "class_means"])
def test_a_weak_penalty_returns_the_distances_of_the_input_kernel(kernel: str, basis: str) -> None:
    kernels = {
        "rbf": lambda A, B: rbf_kernel(A, B, gamma=0.2),
        "laplacian": lambda A, B: laplacian_kernel(A, B, gamma=0.2),
        "precomputed": lambda A, B: rbf_kernel(A, B, gamma=0.2),
    }
    rank = None if basis in ("full", "class_means") else 12
    learner = nw.KernelLearner(kernel, gamma=0.2, basis=basis, rank=rank, penalty=1e-13, random_state=0)
    given = rbf_kernel(X, X, gamma=0.2) if kernel == "precomputed" else X
    learner.fit(given, LABELS)
    assert not learner.kept_prior_
    if kernel == "linear+rbf":
        linear, bent = learner.metric_.kernel.scales

        def function(A: np.ndarray, B: np.ndarray) -> np.ndarray:
            return linear * linear_kernel(A, B) + bent * rbf_kernel(A, B, gamma=0.2)
    else:
        function = kernels[kernel]
    new = X if kernel == "precomputed" else X_new
    lengths = np.diag(function(new, new))[:, None] + np.diag(function(X, X))
    expected = lengths - 2.0 * function(new, X)
    found = learner.distances(given if kernel == "precomputed" else X_new, given, squared=True)
    np.testing.assert_allclose(found, np.maximum(expected, 0.0), atol=1e-9)


def test_the_next_object_is_drawn_by_its_distance_to_the_affine_span_of_those_before() -> None:
    objects = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    K = rbf_kernel(objects, gamma=0.1)
    middle = int(np.argmin(np.diag(K) - 2.0 * K.mean(axis=0)))  # the first one
    D = 2.0 - 2.0 * K
    expected = np.zeros((4, 4))
    for second in set(range(4)) - {middle}:
        height = [
            D[middle, k] - (D[middle, second] + D[middle, k] - D[second, k]) ** 2 / 4 / D[middle, second]
            for k in range(4)
        ]  # of k above the line through the two, squared
        chance = D[middle, second] / D[middle].sum()
        expected[second] += chance * np.maximum(height, 0.0) / np.sum(np.maximum(height, 0.0))
    missing, draws = np.zeros(4), 1000
    for seed in range(draws):
        basis = kernel_basis(InputKernel("precomputed"), K, "leverage", 3, np.random.RandomState(seed))
        assert middle in basis.points
        missing[list(set(range(4)) - set(basis.points.tolist()))] += 1
    both = expected + expected.T
    for k in set(range(4)) - {middle}:
        i, j = sorted(set(range(4)) - {middle, k})
        p = both[i, j]
        assert abs(missing[k] / draws - p) < 5 * math.sqrt(p * (1 - p) / draws)


def test_objects_of_a_basis_are_never_drawn_twice_and_end_where_all_are_spanned() -> None:
    doubled = np.vstack([X[:3]] * 20)
    found = kernel_basis(InputKernel("linear"), doubled, "leverage", 30, np.random.RandomState(0))
    assert found.points.shape == (3, 4)
    np.testing.assert_allclose(found.features @ found.features.T, doubled @ doubled.T, atol=1e-10)


@pytest.mark.parametrize("learner", [nw.KernelLearner, nw.KernelReducer])
def test_an_indefinite_kernel_is_refused_in_a_reduced_basis_too(learner: type) -> None:
    K = rbf_kernel(X, gamma=0.2)
    values, vectors = np.linalg.eigh(K)
    values[-3] *= -1.0
    with pytest.raises(ValueError, match="the kernel must be positive semidefinite, but"):
        learner(kernel="precomputed", rank=20, random_state=0).fit((vectors * values) @ vectors.T, LABELS)


@pytest.mark.parametrize("seed", range(3))
def test_principal_directions_are_those_of_the_span(seed: int) -> None:
    found = kernel_basis(RBF, X, "principal", 7, np.random.RandomState(seed))
    span = kernel_basis(RBF, X, "leverage", 21, np.random.RandomState(seed))
    np.testing.assert_array_equal(found.points, span.points)
    differences = span.features[:, :20]  # what 21 points have in common comes last
    centred = differences - differences.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    own = found.features - found.features.mean(axis=0)
    np.testing.assert_allclose(np.linalg.svd(own, compute_uv=False), values[:7], rtol=1e-8)
    subset = kernel_basis(RBF, X, "subset", 7, np.random.RandomState(seed)).features
    assert own.var(axis=0).sum() > subset.var(axis=0).sum()


def shells(n: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    points = draw.normal(size=(n, 3))
    y = np.arange(n) % 2
    return points / np.linalg.norm(points, axis=1)[:, None] * (1.0 + width * y[:, None]), y


@pytest.mark.long
def test_gamma_is_chosen_on_what_is_held_out() -> None:
    rows, y = shells(160, 0.4)
    learner = nw.KernelLearner(random_state=0, rank=20).fit(rows, y)
    gammas, scores = np.array(learner.gamma_scores_).T
    unit = 1.0 / (3 * rows.var())
    np.testing.assert_allclose(gammas, [0.3 * unit, unit])
    assert learner.gamma_ == learner.metric_.kernel.parameters["gamma"]
    assert learner.gamma_ in gammas
    if scores[0] >= scores[1]:
        assert learner.gamma_ == gammas[0]
    fixed = nw.KernelLearner(gamma=learner.gamma_, random_state=0, rank=20).fit(rows, y)
    assert fixed.gamma_scores_ == ()
    np.testing.assert_array_equal(fixed.transform(rows), learner.transform(rows))


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({"gamma": None}, 0.25),
        ({"gamma": 0.7}, 0.7),
        ({"gamma": "scale"}, None),
        ({"kernel": "laplacian"}, None),
        ({"penalty": math.inf}, None),
    ],
)
def test_where_gamma_is_not_chosen(settings: dict[str, object], chosen: float | None) -> None:
    side = c.at_most([(0, 1)], 10.0)
    learner = nw.KernelLearner(**({"penalty": 1.0, "rank": 5} | settings)).fit(X, constraints=side)
    expected = 1.0 / (4 * X.var()) if chosen is None else chosen
    assert learner.gamma_ == pytest.approx(expected)
    assert learner.gamma_scores_ == ()
    assert nw.KernelLearner("linear", penalty=1.0).fit(X, constraints=side).gamma_ is None


def test_gamma_is_chosen_from_constraints_alone() -> None:
    pairs = rng.integers(0, 60, size=(120, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = LABELS[pairs[:, 0]] == LABELS[pairs[:, 1]]
    side = c.similar(pairs[same]) + c.dissimilar(pairs[~same])
    learner = nw.KernelLearner(random_state=0, rank=10).fit(X, constraints=side)
    assert len(learner.gamma_scores_) == 2
