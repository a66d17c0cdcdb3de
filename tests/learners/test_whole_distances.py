"""Identity plus low rank, JKDD12 3.6, 4.3: one distance by every name, and learning from the whole of it."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._space import Outside, Space
from nearwise.learners.input_kernels import InputKernel

RNG = np.random.default_rng(0)  # for these two only: a test that drew from it would depend on its order
Z = RNG.normal(size=(40, 12))
CLASSES = np.arange(40) % 4
PAIRS = RNG.permutation(40).reshape(-1, 2)


def distances_of(K: np.ndarray) -> np.ndarray:
    return np.diag(K)[:, None] + np.diag(K) - 2 * K


@pytest.mark.parametrize("basis", ["subset", "kmeans", "random", "spectral"])
def test_a_precomputed_kernel_has_one_distance_by_every_name(basis: str, tmp_path: Path) -> None:
    K0 = rbf_kernel(Z, gamma=0.05)
    i, j = PAIRS.T
    d0 = distances_of(K0)[i, j]
    side = c.at_most(PAIRS[:5], 0.97 * d0[:5]) + c.at_least(PAIRS[5:10], 1.03 * d0[5:10])
    learner = nw.KernelLearner("precomputed", basis=basis, rank=15, penalty=math.inf, random_state=0)
    learner.fit(K0, constraints=side)
    assert learner.status_ is nw.Status.SOLVED
    d = distances_of(learner.learned_kernel(K0))
    assert np.all(d[i[:5], j[:5]] <= 0.97 * d0[:5] + 1e-6)
    assert np.all(d[i[5:10], j[5:10]] >= 1.03 * d0[5:10] - 1e-6)
    nw.save(learner, tmp_path / "model")
    for model in (learner, nw.load(tmp_path / "model")):
        np.testing.assert_allclose(model.learned_kernel(K0, K0), model.learned_kernel(K0), atol=1e-9)
        np.testing.assert_allclose(model.distances(K0, squared=True), d, atol=1e-8)
        np.testing.assert_allclose(model.distances(K0, K0, squared=True), d, atol=1e-8)
        np.testing.assert_allclose(model.pair_distance(PAIRS, K0, squared=True), d[i, j], atol=1e-8)
        products = model.metric_.pair_products(K0, i, j)
        np.testing.assert_allclose(products, model.learned_kernel(K0)[i, j], atol=1e-8)
    # a new object lacks the same in all its squared distances to training objects
    new = np.random.default_rng(1).normal(size=(6, 12))
    rows = rbf_kernel(new, Z, gamma=0.05)
    named = nw.KernelLearner("rbf", gamma=0.05, basis=basis, rank=15, penalty=math.inf, random_state=0)
    expected = named.fit(Z, constraints=side).distances(new, Z, squared=True)
    found = learner.distances(rows, squared=True)
    np.testing.assert_allclose(found, learner.distances(rows, K0, squared=True), atol=1e-7)
    lacking = expected - found
    np.testing.assert_allclose(lacking, np.repeat(lacking[:, :1], 40, axis=1), atol=1e-5)
    assert (lacking > -1e-7).all()


@pytest.mark.long
def test_digits_are_told_apart_by_name_and_precomputed_alike() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = X[:500], X[500:800], y[:500], y[500:800]
    gamma = 1 / (64 * X.var())
    settings = {"penalty": 1.0, "random_state": 0, "tol": 1e-4}
    named = nw.KernelLearner("rbf", gamma=gamma, **settings).fit(X, y)
    K, K_test = rbf_kernel(X, gamma=gamma), rbf_kernel(X_test, X, gamma=gamma)
    given = nw.KernelLearner("precomputed", **settings).fit(K, y)
    assert named.rank_ == given.rank_ == 55
    expected, found = named.distances(X_test, X), given.distances(K_test)
    # not all of 300: which neighbours make pairs depends on the last digits of distances
    assert np.mean(expected.argmin(axis=1) == found.argmin(axis=1)) > 0.97
    scores = [np.mean(y[distances.argmin(axis=1)] == y_test) for distances in (expected, found)]
    assert scores[0] == pytest.approx(scores[1], abs=0.011)
    assert scores[1] > 0.92


def test_single_precision_is_no_contradiction_and_an_indefinite_kernel_is_one() -> None:
    K = rbf_kernel(Z, gamma=0.05)
    rounded = K.astype(np.float32).astype(np.float64)
    learner = nw.KernelLearner("precomputed", rank=10, penalty=1.0, random_state=0)
    exact, coarse = (learner.fit(given, CLASSES).distances(given) for given in (K, rounded))
    np.testing.assert_allclose(coarse, exact, atol=2e-2)
    with pytest.raises(ValueError, match="must be positive semidefinite, but its matrix has the eigenvalue"):
        learner.fit(K - 0.2 * np.eye(40), CLASSES)


@pytest.mark.parametrize("given", ["vectors", "sparse vectors", "rbf", "precomputed"])
def test_the_part_outside_is_what_the_basis_leaves(given: str) -> None:
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=(12, 5)))[0]
    if given in ("vectors", "sparse vectors"):
        kernel, objects, K = InputKernel("linear"), Z, Z @ Z.T
        features = Z @ Q
        objects = sparse.csr_array(Z) if given == "sparse vectors" else Z
    else:
        K = rbf_kernel(Z, gamma=0.1)
        values, V = np.linalg.eigh(K[:5, :5])
        features = K[:, :5] @ (V / np.sqrt(values))
        kernel = InputKernel("rbf", {"gamma": 0.1}) if given == "rbf" else InputKernel("precomputed")
        objects = Z if given == "rbf" else K
    outside = Outside(kernel, objects, features, alpha=0.5)
    rest = 0.5 * (K - features @ features.T)
    i, j = PAIRS.T
    np.testing.assert_allclose(outside.products(i, j), rest[i, j], atol=1e-10)
    np.testing.assert_allclose(outside.distances(i, j), distances_of(rest)[i, j], atol=1e-10)
    np.testing.assert_allclose(outside.between(i[:6], j), distances_of(rest)[np.ix_(i[:6], j)], atol=1e-10)
    part = outside.restricted(i)
    np.testing.assert_allclose(
        part.distances(np.arange(3), np.arange(3, 6)), distances_of(rest)[i[:3], i[3:6]], atol=1e-10
    )
    A = np.random.default_rng(3).normal(size=(40, 40))
    A = A + A.T
    side = (
        c.at_most(PAIRS[:2], 1.0)
        + c.closer([(0, 1, 2)])
        + c.similarity([(3, 4)], 0.1, ">=")
        + c.linear(A, 1.0, "<=")
        + c.linear((A[:, :2], [1.0, 2.0]), 1.0, "<=")
    )
    d = distances_of(rest)
    low_rank = A[:, :2] * [1.0, 2.0] @ A[:, :2].T
    expected = [d[i[0], j[0]], d[i[1], j[1]], d[0, 1] - d[0, 2], rest[3, 4]]
    expected += [np.sum(A * rest), np.sum(low_rank * rest)]
    np.testing.assert_allclose(outside.values(side), expected, rtol=1e-8, atol=1e-8)
    whole = distances_of(features @ features.T) + distances_of(rest)
    space = Space(features, outside)
    np.testing.assert_allclose(space.distances(PAIRS), whole[i, j], atol=1e-9)
    every = np.arange(40)
    found = np.take_along_axis(whole, space.nearest(every, every, 4), axis=1)
    np.testing.assert_allclose(found, np.sort(whole, axis=1)[:, :4], atol=1e-9)


@pytest.mark.parametrize(
    "divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=lambda d: type(d).__name__
)
@pytest.mark.parametrize("penalty", [0.3, math.inf])
def test_a_fixed_part_is_a_hard_row_of_one_more_dimension(divergence: nw.Divergence, penalty: float) -> None:
    """<A, M> + f is <A + f e e', M> with M_ee = 1, a hard row that no other row mixes with."""
    G = np.random.default_rng(5).normal(size=(12, 3))  # one of the draws that can be met
    pairs = np.arange(12).reshape(-1, 2)
    z = G[pairs[:, 0]] - G[pairs[:, 1]]
    d = np.sum(z**2, axis=1)
    fixed = np.linspace(0.2, 1.0, 6) * d
    bounds = np.where(np.arange(6) < 3, 0.9, 1.3) * (d + fixed)
    side = c.at_most(pairs[:3], bounds[:3]) + c.at_least(pairs[3:], bounds[3:])
    problem = nw.Problem(G, side, divergence, penalty=penalty, fixed=fixed)
    found = nw.solve(problem, tol=1e-9)
    assert found.status is nw.Status.SOLVED
    E = np.eye(4)
    matrices = np.zeros((6, 4, 4))
    matrices[:, :3, :3] = z[:, :, None] * z[:, None, :]
    matrices[:, 3, 3] = fixed
    rows = c.linear(matrices[:3], bounds[:3], "<=") + c.linear(matrices[3:], bounds[3:], ">=")
    rows = rows + c.linear(np.outer(E[3], E[3]), 1.0, "==")
    other = nw.solve(
        nw.Problem(E, rows, divergence, penalty=np.append(np.full(6, penalty), np.inf)), tol=1e-9
    )
    np.testing.assert_allclose(found.matrix, other.matrix[:3, :3], atol=2e-4)
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-5, abs=1e-7)
    np.testing.assert_allclose(
        problem.values(found.matrix), np.einsum("ij,jk,ik->i", z, found.matrix, z) + fixed
    )


def test_what_a_fixed_part_may_be() -> None:
    side = c.at_most([(0, 1)], 1.0)
    with pytest.raises(ValueError, match="fixed must be 1 numbers, one per constraint, got 2"):
        nw.Problem(Z, side, fixed=[1.0, 2.0])
    with pytest.raises(
        ValueError, match="fixed part, which the features do not tell, a bound cannot be filled"
    ):
        nw.Problem(Z, c.similar([(0, 1)]), fixed=[1.0])
    problem = nw.Problem(Z, side, fixed=[1.0])
    with pytest.raises(ValueError, match="CyclicProjections knows no values with a fixed part"):
        nw.solve(problem, nw.solvers.CyclicProjections())
    # an upper bound below the fixed part contradicts everything, and the proof knows
    found = nw.solve(nw.Problem(Z, c.at_most([(0, 1)], 1.0), penalty=math.inf, fixed=[2.0]))
    assert found.status is nw.Status.INFEASIBLE


def test_soft_bounds_below_the_fixed_part_are_learned_from() -> None:
    """The first percentile of whole distances, as in JKDD12 6, is less than the part outside the basis."""
    X = sparse.random_array((120, 400), density=0.05, rng=0, format="csr")
    y = np.arange(120) % 3
    X = sparse.csr_array(X + sparse.csr_array(0.5 * (np.arange(400) % 3 == y[:, None])))
    squared = np.square(X.toarray()[:, None] - X.toarray()).sum(axis=2)
    low, high = np.percentile(squared[np.triu_indices(120, 1)], [1, 99])
    drawn = c.from_labels(y, per_class=20, random_state=0)
    side = c.at_most(drawn.blocks[0].ids, low) + c.at_least(drawn.blocks[1].ids, high)
    learner = nw.MetricLearner(rank=6, basis="svd", penalty=0.1, random_state=0).fit(X, constraints=side)
    result = learner.result_
    assert result is not None
    assert learner.status_ is nw.Status.SOLVED
    assert learner.n_constraints_used_ == len(side)
    worst = result.certificate.worst[0]  # some cannot be met
    distance = learner.pair_distance([side_pair(side, worst.row)], X, squared=True)[0]
    assert worst.value == pytest.approx(distance)
    with pytest.raises(ValueError, match="raise rank or the bound, or let it give way by a finite penalty"):
        nw.MetricLearner(rank=6, basis="svd", penalty=math.inf).fit(X, constraints=side)


def side_pair(side: c.Constraints, row: int) -> tuple[int, int]:
    pairs = np.concatenate([block.ids for block in side.blocks])
    return int(pairs[row, 0]), int(pairs[row, 1])


def test_hard_bounds_that_the_fixed_part_meets_are_said_to_be_met() -> None:
    J = np.linalg.qr(np.random.default_rng(5).normal(size=(12, 3)))[0]
    rest = np.square((Z[PAIRS[:, 0]] - Z[PAIRS[:, 1]]) @ (np.eye(12) - J @ J.T)).sum(axis=1)
    learner = nw.MetricLearner(basis=J, penalty=math.inf)
    with pytest.warns(nw.PriorKeptWarning, match="fixed outside the basis meets every constraint"):
        learner.fit(Z, constraints=c.at_least(PAIRS, 0.9 * rest))
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), np.eye(12), atol=1e-12)


def test_open_bounds_are_those_of_whole_distances() -> None:
    """Half of the learned part of the threshold is taken off, and all of it put on."""
    Q = np.linalg.qr(np.random.default_rng(6).normal(size=(12, 4)))[0]
    side = c.similar(PAIRS[:10]) + c.dissimilar(PAIRS[10:])
    learner = nw.MetricLearner(basis=Q, penalty=1e-3, random_state=0).fit(Z, constraints=side)

    def threshold(rows: np.ndarray) -> float:
        d = np.square(rows[PAIRS[:, 0]] - rows[PAIRS[:, 1]]).sum(axis=1)
        return float(np.sqrt(np.median(d[:10]) * np.median(d[10:])))

    whole, inside = threshold(Z), threshold(Z @ Q)
    result = learner.result_
    assert result is not None
    bounds = {round(worst.bound, 6) for worst in result.certificate.worst}
    assert bounds <= {round(whole - inside / 2, 6), round(whole + inside, 6)}
    assert bounds


def test_the_penalty_is_graded_on_whole_distances() -> None:
    """Outside the basis the classes are far apart, so that nothing in it can help: the prior is kept."""
    X = np.concatenate(
        [np.random.default_rng(0).normal(size=(80, 3)), 100.0 * np.eye(4)[np.arange(80) % 4]], axis=1
    )
    with pytest.warns(nw.PriorKeptWarning, match="does better on what was held out"):
        learner = nw.MetricLearner(basis=np.eye(7, 3), random_state=0).fit(X, np.arange(80) % 4)
    assert learner.penalty_scores_[0] == (0.0, 1.0)


# a kernel that is a multiple of the input kernel outside the basis


def test_alpha_is_the_multiple_of_the_input_kernel_that_is_learned_from() -> None:
    """alpha k0 is learned from as k0 scaled by alpha, with penalties that have no unit."""
    K0 = rbf_kernel(Z, gamma=0.05)
    i, j = PAIRS[:8].T
    side = c.at_most(PAIRS[:4], 0.6 * distances_of(K0)[i, j][:4]) + c.at_least(
        PAIRS[4:8], 1.4 * distances_of(K0)[i, j][4:]
    )
    settings = {"rank": 15, "penalty": 2.0, "random_state": 0, "tol": 1e-9}
    found = nw.KernelLearner("precomputed", alpha=0.5, **settings).fit(K0, constraints=side)
    expected = nw.KernelLearner("precomputed", **settings).fit(0.5 * K0, constraints=side)
    np.testing.assert_allclose(found.learned_kernel(K0), expected.learned_kernel(0.5 * K0), atol=1e-6)
    np.testing.assert_allclose(found.distances(K0), expected.distances(0.5 * K0), atol=1e-5)
    named = nw.KernelLearner("rbf", gamma=0.05, alpha=0.5, **settings).fit(Z, constraints=side)
    for learner, data in ((found, K0), (named, Z)):
        products = learner.metric_.pair_products(data, i, j)
        np.testing.assert_allclose(products, learner.learned_kernel(data)[i, j], atol=1e-9)


def test_alpha_zero_is_the_batch_form_of_pola() -> None:
    """JKDD12 5.2: the least |W|^2 with hard bounds, beside cvxpy on the kernel matrix itself."""
    cvxpy = pytest.importorskip("cvxpy")
    K0 = rbf_kernel(Z[:8], gamma=0.1)
    pairs = np.arange(8).reshape(-1, 2)
    side = c.at_most(pairs[:2], 0.5) + c.at_least(pairs[2:], 1.5)
    learner = nw.KernelLearner("precomputed", divergence="frobenius", alpha=0, penalty=math.inf, tol=1e-9)
    K = learner.fit(K0, constraints=side).learned_kernel(K0)
    values, V = np.linalg.eigh(K0)
    root = (V * np.sqrt(values)) @ V.T
    W = cvxpy.Variable((8, 8), PSD=True)
    conditions = []
    for row, (i, j) in enumerate(pairs):
        z = root[i] - root[j]
        conditions += [cvxpy.trace(np.outer(z, z) @ W) <= 0.5] if row < 2 else []
        conditions += [cvxpy.trace(np.outer(z, z) @ W) >= 1.5] if row >= 2 else []
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(W)), conditions).solve(solver="CLARABEL")
    np.testing.assert_allclose(K, root @ W.value @ root, atol=1e-4)
    for wrong, message in (
        ({"alpha": 0}, "alpha=0 needs divergence='frobenius', got 'logdet'"),
        ({"alpha": -1}, "alpha must be a finite number >= 0, got -1"),
        ({"alpha": True}, "alpha must be a finite number >= 0, got True"),
    ):
        with pytest.raises(ValueError, match=message):
            nw.KernelLearner(**wrong).fit(Z, CLASSES)


@pytest.mark.long
def test_a_prior_of_zero_learns_from_the_features_distances() -> None:
    """Nothing is near or far under it, so that bounds and neighbours come from the data as they are."""
    settings = {"divergence": "frobenius", "penalty": 1.0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = nw.MetricLearner(prior=np.zeros((12, 12)), **settings).fit(Z, CLASSES)
        chosen = nw.KernelLearner(alpha=0, divergence="frobenius", random_state=0).fit(Z, CLASSES)
    assert learner.status_ is nw.Status.SOLVED
    assert np.linalg.eigvalsh(learner.get_mahalanobis_matrix())[-1] > 0.01
    assert learner.n_constraints_used_ > 0
    assert not chosen.kept_prior_
    assert all(penalty > 0 for penalty, _ in chosen.penalty_scores_)
    with pytest.warns(nw.PriorKeptWarning, match="learned the zero matrix, which meets all constraints"):
        nw.MetricLearner(prior=np.zeros((12, 12)), **settings).fit(Z, constraints=c.similar(PAIRS))


# bases


def test_a_basis_given_by_its_coefficients() -> None:
    J = np.random.default_rng(1).normal(size=(40, 6))
    K0 = rbf_kernel(Z, gamma=0.05)
    learner = nw.KernelLearner("rbf", gamma=0.05, basis=J, penalty=1.0, random_state=0).fit(Z, CLASSES)
    change = learner.learned_kernel(Z) - K0
    assert learner.rank_ == 6
    span = np.linalg.qr(K0 @ J)[0]
    np.testing.assert_allclose(span @ (span.T @ change @ span) @ span.T, change, atol=1e-9)
    same = nw.KernelLearner("rbf", gamma=0.05, basis=sparse.csr_array(J), penalty=1.0, random_state=0)
    np.testing.assert_allclose(same.fit(Z, CLASSES).learned_kernel(Z), learner.learned_kernel(Z))
    with pytest.raises(ValueError, match=r"basis must have 40 rows, one per object, got shape \(39, 6\)"):
        nw.KernelLearner(basis=J[:39]).fit(Z, CLASSES)
    with pytest.raises(ValueError, match="basis must have a column that is not zero"):
        nw.KernelLearner(basis=0.0 * J).fit(Z, CLASSES)
    with pytest.raises(ValueError, match="rank must be None beside a given basis, got 3"):
        nw.KernelLearner(basis=J, rank=3).fit(Z, CLASSES)


def test_bases_of_clusters_and_of_classes() -> None:
    clusters = np.repeat(np.arange(4), 10)
    X = 6.0 * np.eye(4)[clusters] + np.random.default_rng(0).normal(size=(40, 4)) / 4
    K0 = rbf_kernel(X, gamma=0.1)
    means = np.eye(4)[clusters] / 10
    for kind, parameters in (("spectral", {"rank": 4}), ("class_means", {})):
        learner = nw.KernelLearner("rbf", gamma=0.1, basis=kind, penalty=1.0, random_state=0, **parameters)
        learner.fit(X, clusters)
        assert learner.rank_ == 4
        span = np.linalg.qr(K0 @ means)[0]
        features = learner.metric_.features(X)
        np.testing.assert_allclose(span @ (span.T @ features), features, atol=1e-8)
    with pytest.raises(ValueError, match="basis='class_means' needs labels y and rank=None"):
        nw.KernelLearner(basis="class_means").fit(X, constraints=c.similar(PAIRS))


def test_labels_may_make_the_basis_alone() -> None:
    side = c.similar(PAIRS[:10]) + c.dissimilar(PAIRS[10:])
    learner = nw.MetricLearner(basis="class_means", pairs="none", penalty=1.0, random_state=0)
    learner.fit(Z, CLASSES, constraints=side)
    assert learner.rank_ == 4
    assert learner.n_constraints_used_ == len(side)
    means = np.linalg.qr(np.stack([Z[k == CLASSES].mean(axis=0) for k in range(4)]).T)[0]
    basis = learner.metric_.basis
    np.testing.assert_allclose(means @ (means.T @ basis), basis, atol=1e-9)
    with pytest.warns(nw.PriorKeptWarning, match="pairs='none' draws nothing from labels"):
        learner.fit(Z, CLASSES)


@pytest.mark.slow
def test_twenty_newsgroups_are_nearer_than_euclidean_at_every_rank() -> None:
    from benchmarks import learners

    sizes = learners.Sizes(ranks=(20, 100), documents=3000)
    for table in learners.text(sizes):
        scores = {row["metric"]: row["accuracy"] for row in table.rows}
        assert all(scores[f"rank {rank}"] > scores["Euclidean"] for rank in sizes.ranks)


def test_neighbours_are_those_of_the_whole_distance() -> None:
    """In the basis all classes are mixed, and outside it they are apart."""
    X = np.concatenate(
        [np.random.default_rng(0).normal(size=(60, 2)), 3.0 * np.eye(3)[np.arange(60) % 3]], axis=1
    )
    y = np.arange(60) % 3
    learner = nw.MetricLearner(basis=np.eye(5, 2), penalty=0.01, pairs="local", random_state=0).fit(X, y)
    classifier = KNeighborsClassifier(3, metric="precomputed").fit(learner.distances(X), y)
    assert classifier.score(learner.distances(X), y) == 1.0
