"""What is seen in a learner, against its definition: distances, maps, shares, spectra, histories."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist, squareform
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise.study import inspection
from nearwise.study.before_after import Missing, learner_of


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    wine = nw.datasets.load("wine")
    return StandardScaler().fit_transform(wine.X)[::2], wine.y[::2]


def all_pairs(n: int) -> np.ndarray:
    return np.stack(np.triu_indices(n, 1), axis=1)


def squares(model: Any, X: Any, n: int) -> tuple[np.ndarray | None, np.ndarray]:
    pairs = all_pairs(n)
    found = inspection.pair_distances(model, X, pairs, np.zeros(len(pairs), bool))
    return found.before, found.after


def test_before_is_the_prior_and_after_the_learned_distance(data: Any) -> None:
    X, y = data
    A = np.random.default_rng(0).standard_normal((X.shape[1], X.shape[1]))
    inverse = np.linalg.pinv(np.cov(X, rowvar=False))
    for prior, matrix in (("identity", np.eye(X.shape[1])), ("covariance", inverse), (A @ A.T, A @ A.T)):
        model = nw.MetricLearner(prior=prior, penalty=1.0, random_state=0).fit(X, y)
        before, after = squares(model, X, len(X))
        np.testing.assert_allclose(before, pdist(X, "mahalanobis", VI=matrix) ** 2, rtol=1e-8)
        learned = model.get_mahalanobis_matrix()
        np.testing.assert_allclose(after, pdist(X, "mahalanobis", VI=learned) ** 2, rtol=1e-8)


def test_before_of_a_subspace_and_of_sparse_rows_is_euclidean(data: Any) -> None:
    X, y = data
    for shown in (X, sparse.csr_array(X)):
        model = nw.MetricLearner(rank=3, penalty=1.0, random_state=0).fit(shown, y)
        before, after = squares(model, shown, len(X))
        np.testing.assert_allclose(before, pdist(X) ** 2, rtol=1e-8)
        learned = model.get_mahalanobis_matrix()
        np.testing.assert_allclose(after, pdist(X, "mahalanobis", VI=learned) ** 2, rtol=1e-8)


def test_before_of_a_pipeline_is_what_its_learner_is_given(data: Any) -> None:
    X, y = data
    raw = X * np.arange(1, X.shape[1] + 1) + 5
    model = make_pipeline(StandardScaler(), nw.MetricLearner(penalty=1.0, random_state=0)).fit(raw, y)
    before, after = squares(model, raw, len(raw))
    scaled = model[:-1].transform(raw)
    np.testing.assert_allclose(before, pdist(scaled) ** 2, rtol=1e-8)
    np.testing.assert_allclose(after, model[-1].pair_distance(all_pairs(len(raw)), scaled, squared=True))


def test_before_of_kernels_is_the_input_kernel_s_distance(data: Any) -> None:
    X, y = data
    expected = 2 - 2 * rbf_kernel(X, gamma=0.1)[np.triu_indices(len(X), 1)]
    learners = (
        nw.KernelLearner(gamma=0.1, penalty=1.0, rank=10, random_state=0),
        nw.KernelReducer(gamma=0.1, rank=10, random_state=0),
        nw.FixedRankLearner(
            2, kernel="rbf", kernel_params={"gamma": 0.1}, n_basis=20, random_state=0, check=False
        ),
    )
    for learner in learners:
        model = learner.fit(X, y)
        before, after = squares(model, X, len(X))
        np.testing.assert_allclose(before, expected, atol=1e-9)
        np.testing.assert_allclose(after, model.pair_distance(all_pairs(len(X)), X, squared=True))


def test_before_of_a_precomputed_kernel(data: Any) -> None:
    X, y = data
    K = rbf_kernel(X, gamma=0.1)
    expected = 2 - 2 * K[np.triu_indices(len(X), 1)]
    for learner in (nw.KernelLearner("precomputed", penalty=1.0, random_state=0),):
        before, _ = squares(learner.fit(K, y), K, len(X))
        np.testing.assert_allclose(before, expected, atol=1e-6)
    reducer = nw.KernelReducer(kernel="precomputed", random_state=0).fit(K, y)
    before, _ = squares(reducer, K, len(X))
    np.testing.assert_allclose(before, expected, atol=1e-12)
    assert squares(reducer, K[:5], 5)[0] is None  # the values among five rows are not known from theirs


@pytest.mark.long
def test_before_of_online_learners_is_their_prior(data: Any) -> None:
    X, y = data
    first = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    for prior, matrix in (("identity", np.eye(X.shape[1])), (first, first.get_mahalanobis_matrix())):
        model = nw.OnlineLearner(prior=prior, random_state=0).fit(X, y)
        before, after = squares(model, X, len(X))
        np.testing.assert_allclose(before, pdist(X, "mahalanobis", VI=matrix) ** 2, rtol=1e-8)
        learned = model.get_mahalanobis_matrix()
        np.testing.assert_allclose(after, pdist(X, "mahalanobis", VI=learned) ** 2, rtol=1e-8)


def test_before_of_fixed_rank_is_the_input_as_it_is(data: Any) -> None:
    X, y = data
    before, _ = squares(nw.FixedRankLearner(2, random_state=0, check=False).fit(X, y), X, len(X))
    np.testing.assert_allclose(before, pdist(X) ** 2, rtol=1e-8)


def test_distances_of_an_embedding() -> None:
    points = np.random.default_rng(0).standard_normal((15, 2))
    D = squareform(pdist(points) ** 2)
    K = points @ points.T
    model = nw.FixedRankEmbedding(tol=1e-10).fit(D)
    before, after = squares(model, D, 15)
    np.testing.assert_allclose(before, pdist(points) ** 2)
    np.testing.assert_allclose(after, pdist(model.embedding_) ** 2)
    assert squares(model, None, 15)[0] is None
    with pytest.raises(ValueError, match="15 x 15 matrix of the fit"):
        squares(model, D[:3], 3)
    side = nw.constraints.at_most([[0, 1]], 0.1)
    model = nw.FixedRankEmbedding(input="kernel").fit(K, constraints=side)
    np.testing.assert_allclose(squares(model, K, 15)[0], pdist(points) ** 2)


def test_maps_are_principal_coordinates_turned_alike(data: Any) -> None:
    X, y = data
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    found = inspection.maps(model, X)
    for points, rows, share in zip(
        (found.before, found.after), (X, model.transform(X)), found.shares, strict=True
    ):
        pca = PCA(2).fit(rows)
        np.testing.assert_allclose(pdist(points), pdist(pca.transform(rows)), rtol=1e-6)
        assert share == pytest.approx(pca.explained_variance_ratio_.sum())
    # no rotation or reflection of the map after lies nearer to the one before
    distance = np.square(found.after - found.before).sum()
    for angle in np.linspace(0, 2 * np.pi, 50):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for mirror in (np.eye(2), np.diag([1.0, -1.0])):
            assert np.square(found.after @ turn @ mirror - found.before).sum() >= distance - 1e-9


@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_maps_do_not_depend_on_the_unit(scale: float, data: Any) -> None:
    X, y = data
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    np.testing.assert_allclose(
        inspection.maps(model, X * scale).after / scale, inspection.maps(model, X).after
    )


def test_maps_show_a_sample_that_does_not_change(data: Any) -> None:
    X, y = data
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    one, other = (inspection.maps(model, X, n_points=30) for _ in range(2))
    assert len(one.rows) == 30
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.after, other.after)
    with pytest.raises(Missing, match="two rows"):
        inspection.maps(model, X[:1])


def test_distances_that_overflow_are_missing(data: Any) -> None:
    X, y = data
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(Missing, match="too large"):
        inspection.maps(model, X * 1e200)


def test_shares_are_summed_over_pairs_and_do_not_depend_on_units(data: Any) -> None:
    X, y = data
    for model in (
        nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y),
        nw.MetricLearner(rank=3, penalty=1.0, random_state=0).fit(X, y),
        nw.FixedRankLearner(2, random_state=0, check=False).fit(X, y),
    ):
        found = inspection.feature_shares(model, X)
        M = model.get_mahalanobis_matrix()
        i, j = np.random.RandomState(0).randint(len(X), size=(2, inspection.SHARE_PAIRS))
        z = X[i] - X[j]
        for share, matrix in ((found.before, np.eye(len(M))), (found.after, M)):
            each = np.array([np.sum(z[:, k] * (z @ matrix)[:, k]) for k in range(len(M))])
            np.testing.assert_allclose(share, each / np.einsum("ij,jk,ik->", z, matrix, z), atol=1e-12)
            assert share.sum() == pytest.approx(1.0)
        assert found.names == tuple(f"x{k}" for k in range(len(M)))


def test_shares_name_features(data: Any) -> None:
    import pandas as pd

    X, y = data
    names = [f"column {k}" for k in range(X.shape[1])]
    learner = nw.MetricLearner(penalty=1.0, random_state=0)
    table = pd.DataFrame(X, columns=names)
    assert inspection.feature_shares(learner.fit(table, y), table).names == tuple(names)
    pipeline = make_pipeline(StandardScaler(), nw.MetricLearner(penalty=1.0, random_state=0))
    assert inspection.feature_shares(pipeline.fit(X, y), X, names).names == tuple(names)
    assert inspection.feature_shares(pipeline.fit(table, y), table).names == tuple(names)
    reduced = make_pipeline(PCA(3), nw.MetricLearner(penalty=1.0, random_state=0)).fit(X, y)
    assert inspection.feature_shares(reduced, X, names).names == ("pca0", "pca1", "pca2")
    with pytest.raises(ValueError, match="there are 13 features, but 1 names"):
        inspection.feature_shares(pipeline, X, ["a"])
    with pytest.raises(ValueError, match="there are 13 features, but 1 names"):
        inspection.feature_shares(nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y), X, ["a"])


def test_shares_of_what_is_not_linear_or_has_no_extent_are_missing(data: Any) -> None:
    X, y = data
    with pytest.raises(Missing, match="linear in the features"):
        inspection.feature_shares(nw.KernelLearner(rank=10, penalty=1.0, random_state=0).fit(X, y), X)
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    with pytest.raises(Missing, match="distance zero"):
        inspection.feature_shares(model, np.ones((3, X.shape[1])))


def test_spectrum_is_that_of_the_learned_matrix(data: Any) -> None:
    X, y = data
    d = X.shape[1]
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    found = inspection.spectrum(model)
    values = np.linalg.eigvalsh(model.get_mahalanobis_matrix())[::-1]
    np.testing.assert_allclose(found.values, values, rtol=1e-8)
    np.testing.assert_array_equal(found.prior, np.ones(d))
    share = values / values.sum()
    assert found.effective_rank == pytest.approx(np.exp(-np.sum(share * np.log(share))))

    model = nw.MetricLearner(rank=4, penalty=1.0, random_state=0).fit(X, y)
    found = inspection.spectrum(model)
    rest = np.linalg.eigvalsh(model.get_mahalanobis_matrix())
    np.testing.assert_allclose(np.sort([*found.values, *np.ones(found.outside)]), rest, rtol=1e-8)
    assert (found.dimension, found.outside) == (d, d - 4)

    model = nw.MetricLearner(prior="covariance", penalty=1.0, random_state=0).fit(X, y)
    inverse = np.linalg.eigvalsh(np.linalg.inv(np.cov(X, rowvar=False)))[::-1]
    for rows in (None, X, X[:20]):
        np.testing.assert_allclose(inspection.spectrum(model, rows).prior, inverse, rtol=1e-8)


def test_spectrum_of_the_other_learners(data: Any) -> None:
    X, y = data
    fixed = nw.FixedRankLearner(2, random_state=0, check=False).fit(X, y)
    found = inspection.spectrum(fixed)
    top = np.linalg.eigvalsh(fixed.get_mahalanobis_matrix())[::-1][:2]
    np.testing.assert_allclose(found.values, top, rtol=1e-8)
    assert (found.dimension, found.prior) == (X.shape[1], None)
    regressor = nw.FixedRankRegressor(2, random_state=0).fit(X, X[:, 0] ** 2 + X[:, 1] ** 2)
    np.testing.assert_allclose(
        inspection.spectrum(regressor).values, np.linalg.eigvalsh(regressor.get_matrix())[::-1][:2], rtol=1e-6
    )
    kernel = nw.KernelLearner(rank=10, penalty=1.0, random_state=0).fit(X, y)
    W = kernel.metric_.factor @ kernel.metric_.factor.T
    np.testing.assert_allclose(inspection.spectrum(kernel).values, np.linalg.eigvalsh(W)[::-1], rtol=1e-8)
    reducer = nw.KernelReducer(rank=10, random_state=0).fit(X, y)
    np.testing.assert_array_equal(inspection.spectrum(reducer).values, reducer.eigenvalues_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        kept = nw.KernelReducer(rank=10, random_state=0).fit(X)
    with pytest.raises(Missing, match="kernel PCA"):
        inspection.spectrum(kept)


def test_convergence_is_the_history(data: Any) -> None:
    X, y = data
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    found = inspection.convergence(model)
    history = model.result_.history
    assert found.iteration.tolist() == [record.iteration for record in history]
    assert found.series["relative gap"].tolist() == [record.gap for record in history]
    assert found.series["worst violation"].tolist() == [record.violation for record in history]
    assert (found.solver, found.status) == (model.result_.solver, "SOLVED")
    assert found.n_all == model.n_iter_ > len(history)
    fixed = nw.FixedRankLearner(2, random_state=0, check=False).fit(X, y)
    costs = [record.cost for record in fixed.result_.history]
    assert {name: list(v) for name, v in inspection.convergence(fixed).series.items()} == {"cost": costs}


def test_convergence_that_was_not_recorded_is_missing(data: Any) -> None:
    X, y = data
    online = nw.OnlineLearner(random_state=0).fit(X, y)
    seen = f"{online.n_feedback_:,} pieces of feedback, of which {online.n_violated_:,} did not hold"
    with pytest.raises(Missing, match=seen):
        inspection.convergence(online)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        kept = nw.MetricLearner().fit(X)
    with pytest.raises(Missing, match="no iterations"):
        inspection.convergence(kept)


def test_pairs_of_labels_leave_out_rows_without_one() -> None:
    y = np.array(["a", None, "b", "a", float("nan"), "b", ""], dtype=object)
    pairs, similar = inspection.label_pairs(y)
    assert {tuple(sorted(pair)) for pair in pairs[similar]} == {(0, 3), (2, 5)}
    assert {tuple(sorted(pair)) for pair in pairs[~similar]} == {(0, 2), (0, 5), (2, 3), (3, 5)}
    with pytest.raises(Missing, match="Fewer than two"):
        inspection.label_pairs(["a", None, None])


def test_wrong_arguments_are_named(data: Any) -> None:
    X, y = data
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"pair 1: there are 89 rows, and not both of \[ 0 89\]"):
        inspection.pair_distances(model, X, [[0, 1], [0, 89]], [True, False])
    with pytest.raises(ValueError, match=r"there are 2 pairs, but is_similar has shape \(1,\)"):
        inspection.pair_distances(model, X, [[0, 1], [0, 2]], [True])
    with pytest.raises(Missing, match="no pairs"):
        inspection.pair_distances(model, X, np.empty((0, 2)), [])
    with pytest.raises(ValueError, match="X is needed"):
        inspection.maps(model)
    with pytest.raises(ValueError, match="2 features"):
        inspection.maps(model, X[:, :2])
    with pytest.raises(TypeError, match="got PCA"):
        learner_of(PCA(2).fit(X))
    with pytest.raises(NotFittedError):
        learner_of(nw.MetricLearner())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda: inspection.label_pairs([0, 1, 0], n_pairs=-1),
            "n_pairs must be a whole number >= 1, got -1",
        ),
        (lambda: inspection.label_pairs([0, 1, 0], n_pairs="a"), "n_pairs must be .* got 'a'"),
        (
            lambda: inspection.label_pairs([0, 1, 0], seed="a"),
            "seed must be a whole number from 0 to .* got 'a'",
        ),
        (lambda: inspection.maps(None, seed=-1), "seed must be a whole number from 0 to .* got -1"),
        (lambda: inspection.maps(None, n_points=1), "n_points must be a whole number >= 2, got 1"),
        (lambda: inspection.classes([0, 1, 0], most=0), "most must be a whole number >= 1, got 0"),
        (lambda: inspection.ranges([0.0, 1.0, 2.0], most=1.5), "most must be a whole number >= 1, got 1.5"),
    ],
)
def test_numbers_and_seeds_are_checked_by_name(call: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        call()


def test_pairs_of_labels_are_as_many_as_asked_for_and_drawn_by_the_seed() -> None:
    labels = np.arange(50) % 5
    pairs, same = inspection.label_pairs(labels, n_pairs=100)
    assert len(pairs) == 100
    assert same.sum() == 50
    np.testing.assert_array_equal(labels[pairs[:, 0]] == labels[pairs[:, 1]], same)
    np.testing.assert_array_equal(pairs, inspection.label_pairs(labels, n_pairs=100, seed=0)[0])
    assert pairs.tolist() != inspection.label_pairs(labels, n_pairs=100, seed=1)[0].tolist()


def test_ranges_are_at_most_so_many_and_hold_equally_many() -> None:
    found = inspection.ranges(np.arange(40.0), most=4)
    assert found is not None
    assert list(found.sizes.values()) == [10, 10, 10, 10]
    assert inspection.ranges([1.0, 2.0, 3.0, 3.0], most=3) is None
