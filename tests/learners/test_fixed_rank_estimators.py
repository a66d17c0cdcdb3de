"""FixedRankRegressor, FixedRankLearner and FixedRankEmbedding: what they learn, take, refuse and store."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners import fixed_rank

Array = NDArray[np.float64]
both = pytest.mark.parametrize("geometry", ["flat", "polar"])


def planted(
    n: int = 300, d: int = 8, r: int = 2, noise: float = 0.0, seed: int = 0
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X, G = rng.standard_normal((n, d)), rng.standard_normal((d, r))
    return X, np.square(X @ G).sum(axis=1) * (1 + noise * rng.standard_normal(n)), G @ G.T


def hidden_classes(n: int = 120, d: int = 10, noise: float = 5.0) -> tuple[Array, NDArray[np.int64]]:
    """Three classes that differ in two directions, and noise in the others."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    X = noise * rng.standard_normal((n, d))
    X[:, :2] = 0.3 * rng.standard_normal((n, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[y]
    return X @ np.linalg.qr(rng.standard_normal((d, d)))[0], y


def meaningless_checks(estimator: Any) -> dict[str, str]:
    """The checks of scikit-learn that ask an estimator for what it cannot mean."""
    checks = ("check_positive_only_tag_during_fit", "check_estimators_dtypes")
    indefinite = dict.fromkeys(checks, "it gives a matrix that is not positive semidefinite")
    if getattr(estimator, "input", None) == "kernel":
        return indefinite | {
            "check_fit_score_takes_y": "partial_fit of a kernel needs constraints, which it does not give"
        }
    if getattr(estimator, "kernel", None) == "precomputed":
        return indefinite
    reasons = {
        nw.FixedRankLearner: "pairs are drawn from labels, others where rows are repeated; "
        "test_learner_weights draws all",
        nw.FixedRankRegressor: "it ends within tol, on another way where rows are repeated; "
        "test_a_sample_of_weight_k_is_there_k_times goes to the end",
    }
    if type(estimator) in reasons:
        kinds = ("dense", "sparse")
        reason = reasons[type(estimator)]
        return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}
    return {}


@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
@pytest.mark.filterwarnings("ignore::nearwise.WorseThanEuclideanWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:.*an object is at distance 0 from itself")  # of its kernels as distances
@parametrize_with_checks(
    [
        nw.FixedRankRegressor(),
        nw.FixedRankRegressor(geometry="flat", solver="online", epochs=1, random_state=0),
        nw.FixedRankLearner(),
        nw.FixedRankLearner(kernel="precomputed"),
        nw.FixedRankRegressor(kernel="precomputed"),
        nw.FixedRankEmbedding(),
        nw.FixedRankEmbedding(input="kernel"),
    ],
    expected_failed_checks=meaningless_checks,
)
def test_scikit_learn_s_own_checks(estimator: object, check: Callable[[object], None]) -> None:
    check(estimator)


@pytest.mark.slow  # what every setting shares is checked above
@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
@pytest.mark.filterwarnings("ignore::nearwise.WorseThanEuclideanWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:.*an object is at distance 0 from itself")  # of its kernels as distances
@parametrize_with_checks(
    [nw.FixedRankEmbedding(geometry="polar", solver="online", epochs=1, random_state=0)],
    expected_failed_checks=meaningless_checks,
)
def test_scikit_learn_s_own_checks_of_other_settings(
    estimator: object, check: Callable[[object], None]
) -> None:
    check(estimator)


@both
@pytest.mark.parametrize("start", ["principal", "identity", "random"])
def test_a_planted_matrix_is_recovered_from_every_start(geometry: str, start: str) -> None:
    X, y, W = planted()
    model = nw.FixedRankRegressor(2, geometry, start=start, tol=1e-10, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.get_matrix(), W, atol=1e-2)
    np.testing.assert_allclose(model.predict(X), np.einsum("ni,ij,nj->n", X, model.get_matrix(), X))
    assert model.status_ is nw.Status.STATIONARY
    assert model.score(X, y) > 0.9999


@pytest.mark.parametrize("geometry", ["affine_invariant", "log_euclidean"])
def test_full_rank_geometries(geometry: str) -> None:
    X, y, _ = planted(200, 4)
    y = y + np.square(X).sum(axis=1)
    model = nw.FixedRankRegressor(None, geometry).fit(X, y)
    assert model.factor_.shape == (4, 4)
    assert model.score(X, y) > 0.99
    with pytest.raises(ValueError, match="full-rank matrices: rank must be None or 4, got 2"):
        nw.FixedRankRegressor(2, geometry).fit(X, y)


@both
@pytest.mark.parametrize("unit", [1e-150, 1e-3, 1e150])
def test_units_change_nothing(geometry: str, unit: float) -> None:
    X, y, _ = planted(noise=0.1)
    plain = nw.FixedRankRegressor(2, geometry).fit(X, y)
    for other, scale in (
        (nw.FixedRankRegressor(2, geometry).fit(X * unit, y), unit**-2),
        (nw.FixedRankRegressor(2, geometry).fit(X, y * unit), unit),
    ):
        assert other.n_iter_ == plain.n_iter_
        np.testing.assert_allclose(other.factor_ / math.sqrt(scale), plain.factor_, rtol=1e-6, atol=1e-8)


def test_matrices_sparse_rows_and_dense_rows_agree() -> None:
    X, y, _ = planted(noise=0.1)
    dense = nw.FixedRankRegressor(tol=1e-9).fit(X, y)
    rows = nw.FixedRankRegressor(tol=1e-9).fit(sparse.csr_array(X), y)
    matrices = nw.FixedRankRegressor(tol=1e-9).fit(X[:, :, None] * X[:, None, :], y)
    np.testing.assert_allclose(rows.get_matrix(), dense.get_matrix(), atol=1e-6)
    np.testing.assert_allclose(matrices.get_matrix(), dense.get_matrix(), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(matrices.predict(X[:, :, None] * X[:, None, :]), matrices.predict(X))
    rng = np.random.default_rng(0)
    general = rng.standard_normal((200, 5, 5))
    G = rng.standard_normal((5, 2))
    target = np.einsum("nij,ij->n", general, G @ G.T)
    found = nw.FixedRankRegressor(2, tol=1e-10).fit(general, target)
    np.testing.assert_allclose(found.get_matrix(), G @ G.T, atol=1e-3)


def test_inequalities() -> None:
    X, y, _ = planted()
    relations = np.where(np.arange(len(y)) % 2, "<=", ">=")
    slack = np.where(np.arange(len(y)) % 2, 1.1, 0.9)
    model = nw.FixedRankRegressor(tol=1e-9).fit(X, y * slack, relations=relations)
    error = model.predict(X) - y * slack
    failing = np.where(relations == "<=", np.maximum(error, 0), np.minimum(error, 0))
    assert np.abs(failing).max() < 1e-2 * y.mean()
    assert model.result_.cost == pytest.approx(np.mean(failing**2) / 2, rel=1e-6, abs=1e-12)
    assert nw.FixedRankRegressor().fit(X, y, relations="<=").predict(X).max() <= y.max() * 1.01
    with pytest.raises(ValueError, match=r"relations\[1\] must be '<=', '>=' or '==', got '<'"):
        model.fit(X[:3], y[:3], relations=["==", "<", "=="])


def test_lambda_through_the_estimator() -> None:
    X, y, _ = planted()
    X = X * [9, 7, 1, 1, 1, 1, 1, 1]
    first = PCA(2).fit(X).components_
    fixed = nw.FixedRankRegressor(subspace_weight=0.0).fit(X, y)
    learned = nw.FixedRankRegressor(subspace_weight=0.5).fit(X, y)
    inside = fixed.get_matrix() @ (np.eye(8) - first.T @ first)
    np.testing.assert_allclose(inside, 0, atol=1e-9)
    assert learned.result_.cost < 0.1 * fixed.result_.cost


def test_kernels_bend_the_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    y = np.sin(X[:, 0]) ** 2 + np.cos(2 * X[:, 1]) ** 2
    linear = nw.FixedRankRegressor(2).fit(X, y)
    kernel = nw.FixedRankRegressor(4, kernel="rbf", n_basis=60, random_state=0, tol=1e-3).fit(X, y)
    assert kernel.score(X, y) > 0.95 > linear.score(X, y)


@pytest.mark.long
@both
def test_online_and_streaming_reach_the_batch_error(geometry: str) -> None:
    X, y, _ = planted(8000, 8, 2, noise=0.1)
    batch = nw.FixedRankRegressor(2, geometry).fit(X, y)
    online = nw.FixedRankRegressor(2, geometry, solver="online", epochs=3, random_state=0).fit(X, y)
    assert (online.n_seen_, online.n_iter_) == (3 * 8000, 3)
    assert online.result_.cost < 1.2 * batch.result_.cost
    np.testing.assert_array_equal(clone(online).fit(X, y).factor_, online.factor_)
    stream = nw.FixedRankRegressor(2, geometry, random_state=0)
    for k in range(0, 8000, 250):
        stream.partial_fit(X[k : k + 250], y[k : k + 250])
    assert stream.n_seen_ == 8000
    assert stream.score(X, y) > batch.score(X, y) - 0.02
    assert batch.partial_fit(X, y).score(X, y) > 0.95


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rank": 0}, "rank must be a whole number >= 1 or None, got 0"),
        ({"geometry": "round"}, "geometry must be one of 'flat', 'polar'"),
        ({"subspace_weight": 1.5}, "subspace_weight must be a number from 0 to 1, got 1.5"),
        ({"solver": "magic"}, "solver must be one of 'auto', 'armijo', 'online'"),
        ({"start": "nowhere"}, "start must be one of 'principal', 'identity', 'random'"),
        ({"start": np.ones((8, 3))}, r"array of shape \(8, 2\), got shape \(8, 3\)"),
        ({"start": np.ones((8, 2))}, "start must have rank 2, got rank 1"),
        ({"start": np.full((8, 2), np.nan)}, "start contains nan"),
        ({"tol": 0.0}, "tol must be a number between 0 and 1"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"annealing": "slow"}, "annealing must be one of 'auto', 'none'"),
        ({"kernel": "precomputed"}, "needs a square kernel matrix"),
    ],
)
def test_bad_parameters_are_named(setting: dict[str, Any], message: str) -> None:
    X, y, _ = planted(30)
    with pytest.raises(ValueError, match=message):
        nw.FixedRankRegressor(**setting).fit(X, y)


def test_bad_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(n, d\) or \(n, d, d\), got \(4, 3, 2\)"):
        nw.FixedRankRegressor().fit(np.ones((4, 3, 2)), np.ones(4))
    with pytest.raises(ValueError, match="a kernel needs vectors"):
        nw.FixedRankRegressor(kernel="rbf").fit(np.ones((4, 3, 3)), np.ones(4))


def test_limits_warn_and_callbacks_stop() -> None:
    X, y, _ = planted(noise=0.1)
    with pytest.warns(ConvergenceWarning, match="Limit after 2 iterations"):
        assert nw.FixedRankRegressor(max_iter=2).fit(X, y).status_ is nw.Status.LIMIT
    with pytest.warns(ConvergenceWarning, match="FixedRankRegressor: Interrupted"):
        stopped = nw.FixedRankRegressor(callback=lambda record: record.iteration == 3).fit(X, y)
    assert (stopped.status_, stopped.n_iter_) == (nw.Status.INTERRUPTED, 3)


def test_ctrl_c_and_callbacks_end_online_passes_with_the_last_one() -> None:
    X, y, _ = planted(100, noise=0.1)
    settings: dict[str, Any] = {"rank": 2, "solver": "online", "random_state": 0}
    whole = nw.FixedRankRegressor(**settings, epochs=3).fit(X, y)
    assert (whole.status_, whole.n_iter_, whole.result_.limit) == (nw.Status.LIMIT, 3, "iterations")

    def interrupt(record: Any) -> None:
        if record.iteration == 3:
            raise KeyboardInterrupt

    for callback in (interrupt, lambda record: record.iteration == 3):
        with pytest.warns(ConvergenceWarning, match="Interrupted"):
            stopped = nw.FixedRankRegressor(**settings, epochs=9, callback=callback).fit(X, y)
        assert (stopped.status_, stopped.n_iter_, stopped.n_seen_) == (nw.Status.INTERRUPTED, 3, 300)
        np.testing.assert_array_equal(stopped.factor_, whole.factor_)


def test_principal_directions_of_wide_data(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 40)) * np.r_[9.0, 7.0, 5.0, np.ones(37)] + 3.0
    exact = PCA(3, svd_solver="full").fit(X).components_
    monkeypatch.setattr(fixed_rank, "_SMALL", 0)
    for rows in (X, sparse.csr_array(X)):
        found = fixed_rank.principal_directions(rows, 3, np.random.RandomState(0))
        np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(found @ found.T, exact.T @ exact, atol=1e-3)


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
def test_the_learner_finds_the_directions_that_matter(geometry: str, solver: str) -> None:
    X, y = hidden_classes(240)
    (X, other), (y, labels) = np.split(X, 2), np.split(y, 2)
    settings = {"solver": solver, "epochs": 20, "n_pairs": 1500, "random_state": 0}
    # Armijo takes 800 to 950 iterations in the polar geometry: how many is decided by rounding
    learner = nw.FixedRankLearner(2, geometry, max_iter=5000, **settings).fit(X, y)
    order = [
        roc_auc_score(pdist(labels[:, None]) == 0, -pdist(rows))
        for rows in (PCA(2).fit(X).transform(other), learner.transform(other))
    ]
    assert order[0] < 0.65
    assert order[1] > 0.8
    assert learner.transform(X).shape == (120, 2)
    assert learner.get_mahalanobis_matrix().shape == (10, 10)
    assert np.linalg.matrix_rank(learner.get_mahalanobis_matrix()) == 2
    squares = learner.pair_distance(np.array([[0, 1], [5, 7]]), X, squared=True)
    np.testing.assert_allclose(
        squares, np.sum((learner.transform(X[[0, 5]]) - learner.transform(X[[1, 7]])) ** 2, axis=1)
    )


def test_the_learner_minimises_the_cost_of_its_constraints() -> None:
    X, _ = load_iris(return_X_y=True)
    side = (
        c.at_most([(0, 1), (60, 70)], 0.3)
        + c.at_least([(0, 60), (0, 120)], 4.0)
        + c.closer([(0, 1, 60)], 2.0)
    )
    learner = nw.FixedRankLearner(2, tol=1e-9).fit(X, constraints=side)
    H = learner.transform(X)

    def d(i: int, j: int) -> float:
        return float(np.sum((H[i] - H[j]) ** 2))

    failing = [
        max(d(0, 1) - 0.3, 0), max(d(60, 70) - 0.3, 0), min(d(0, 60) - 4, 0), min(d(0, 120) - 4, 0),
        max(d(0, 1) + 2 - d(0, 60), 0),
    ]  # fmt: skip
    assert learner.result_.cost == pytest.approx(np.mean(np.square(failing)) / 2, abs=1e-12)
    assert max(map(abs, failing)) < 1e-2
    named = nw.FixedRankLearner(2, tol=1e-9).fit(
        X, constraints=c.at_most([("f0", "f1")], 0.3), sample_ids=[f"f{k}" for k in range(150)]
    )
    assert named.n_constraints_used_ == 1
    linear = c.linear(np.eye(150), 10.0, "==")
    assert np.square(
        nw.FixedRankLearner(2, tol=1e-9).fit(X, constraints=linear).transform(X)
    ).sum() == pytest.approx(10, rel=1e-2)
    wide = sparse.hstack([X, sparse.csr_array((150, 30_000))])  # too many numbers to be made dense
    with pytest.raises(TypeError, match="linear constraints need dense data"):
        nw.FixedRankLearner(2).fit(wide, constraints=linear)


def test_open_bounds_are_percentiles_under_the_start() -> None:
    X, y = load_iris(return_X_y=True)
    learner = nw.FixedRankLearner(2, random_state=0).fit(X, y)
    squares = pdist(PCA(2).fit_transform(X), "sqeuclidean")
    np.testing.assert_allclose(learner.bounds_, np.percentile(squares, [5, 95]), rtol=0.1)


def test_without_side_information_the_start_is_kept() -> None:
    X, _ = load_iris(return_X_y=True)
    with pytest.warns(nw.PriorKeptWarning, match="returns its start"):
        learner = nw.FixedRankLearner(2).fit(X)
    assert learner.kept_prior_
    np.testing.assert_allclose(learner.components_ @ learner.components_.T, np.eye(2), atol=1e-12)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")  # on a part of iris, two axes do as well
def test_the_learner_works_with_sparse_rows_kernels_and_model_selection() -> None:
    X, y = load_iris(return_X_y=True)
    dense = nw.FixedRankLearner(2, random_state=0, tol=1e-10).fit(X, y)
    rows = nw.FixedRankLearner(2, random_state=0, tol=1e-10).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(rows.distances(X[:5]), dense.distances(X[:5]), rtol=1e-3, atol=1e-3)
    kernel = nw.FixedRankLearner(2, kernel="rbf", random_state=0, solver="online").fit(X, y)
    assert kernel.transform(X).shape == (150, 2)
    assert kernel.score(X, y) > 0.9
    with pytest.raises(AttributeError, match="not a linear map"):
        kernel.components_  # noqa: B018
    mixed = np.random.default_rng(0).permutation(150)
    assert cross_val_score(nw.FixedRankLearner(2, random_state=0), X[mixed], y[mixed], cv=3).mean() > 0.9
    search = GridSearchCV(nw.FixedRankLearner(random_state=0), {"rank": [1, 2]}, cv=2).fit(X[mixed], y[mixed])
    assert search.best_params_["rank"] in (1, 2)
    assert nw.FixedRankLearner(2, pairs="local", random_state=0).fit(X, y).score(X, y) > 0.8


@pytest.mark.long
def test_the_learner_learns_from_a_stream() -> None:
    X, y = hidden_classes(600, noise=1.5)
    learner = nw.FixedRankLearner(2, n_pairs=800, batch_size=8, random_state=0)
    for k in range(0, 600, 100):
        learner.partial_fit(X[k : k + 100], y[k : k + 100])
    assert learner.n_seen_ == 6 * 800
    assert learner.score(X, y) > 0.75
    bounds = learner.bounds_
    learner.partial_fit(X[:50], y[:50])
    assert learner.bounds_ == bounds


MODELS = {
    "regressor": nw.FixedRankRegressor(random_state=0),
    "online": nw.FixedRankRegressor(solver="online", kernel="rbf", random_state=0),
    "learner": nw.FixedRankLearner(random_state=0),
    "kernel": nw.FixedRankLearner(kernel="rbf", solver="online", geometry="flat", random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_goes_on_as_the_saved_one(name: str, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    saved = clone(MODELS[name]).fit(X, y)
    nw.save(saved, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    method = "predict" if "rank" in name or hasattr(saved, "predict") else "transform"
    for _ in range(2):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(saved, method)(X))
        assert (repr(loaded), repr(loaded.result_)) == (repr(saved), repr(saved.result_))
        saved.partial_fit(X, y)
        loaded.partial_fit(X, y)


def squared(points: Array) -> Array:
    return squareform(pdist(points, "sqeuclidean"))


@both
@pytest.mark.parametrize("unknown", [0.0, 0.7])
def test_distances_are_embedded(geometry: str, unknown: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    D = squared(rng.standard_normal((50, 2)))
    hidden = np.triu(rng.random(D.shape) < unknown, 1)
    known = np.where(hidden | hidden.T, np.nan, D)
    model = nw.FixedRankEmbedding(2, geometry=geometry, tol=1e-9).fit(known)
    np.testing.assert_allclose(model.distances(squared=True), D, atol=0.05)
    found = model.distances(squared=True)
    i, j = np.nonzero(np.triu(np.isfinite(known), 1))
    assert model.sstress_ == pytest.approx(np.sum((found[i, j] - D[i, j]) ** 2), rel=1e-6, abs=1e-12)
    nw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(nw.load(tmp_path / "model").embedding_, model.embedding_)


def test_an_embedding_follows_distances_that_change() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 2))
    model = nw.FixedRankEmbedding(2, tol=1e-8, random_state=0).fit(squared(points))
    before = model.embedding_.copy()
    first = squared(points)
    for _ in range(10):
        points = points + 0.03 * rng.standard_normal(points.shape)
        model.partial_fit(squared(points))
    now = squared(points)
    stale = np.sum(np.triu(now - first) ** 2)
    assert np.sum(np.triu(now - model.distances(squared=True)) ** 2) < 0.05 * stale
    assert np.abs(model.embedding_ - before).max() < 1.0  # neither turned nor mirrored
    partly = np.full((40, 40), np.nan)
    partly[3, 5] = partly[5, 3] = now[3, 5]
    assert model.partial_fit(partly).sstress_ < 1e-2


def test_kernels_are_learned_from_constraints() -> None:
    X, y = load_iris(return_X_y=True)
    X = X - X.mean(axis=0)
    K = X @ X.T
    side = c.from_labels(y, n_pairs=600, random_state=0)
    pairs = [block.ids for block in side.blocks]
    squares = [squared(X)[tuple(ids.T)] for ids in pairs]
    side = c.at_most(pairs[0], 0.5 * squares[0] + 1e-3) + c.at_least(pairs[1], 1.5 * squares[1])
    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        start = nw.FixedRankEmbedding(2, "kernel", max_iter=1, callback=lambda record: True).fit(
            K, constraints=side
        )
    model = nw.FixedRankEmbedding(2, "kernel", geometry="polar").fit(K, constraints=side)
    same = pdist(y[:, None]) == 0
    order = [roc_auc_score(same, -pdist(rows)) for rows in (PCA(2).fit_transform(X), model.embedding_)]
    assert order[1] > order[0]
    assert model.result_.cost < start.result_.cost


@pytest.mark.parametrize(
    ("D", "options", "message"),
    [
        ([[0, 1], [2, 0]], {}, r"X\[0, 1\] is 1.0 and X\[1, 0\] is 2.0"),
        ([[0, -1], [-1, 0]], {}, "not negative"),
        ([[0, 1, 2], [1, 0, 3]], {}, "X must be square"),
        ([[0, np.nan], [np.nan, 0]], {}, "nothing to learn from"),
        ([[1, 0], [0, 1]], {"input": "vectors"}, "input must be one of 'distances', 'kernel'"),
        ([[0, 1], [1, 0]], {"start": "identity"}, "start must be one of 'principal', 'random'"),
    ],
)
def test_an_embedding_refuses_what_makes_no_sense(D: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nw.FixedRankEmbedding(1, **options).fit(D)


def test_an_embedding_needs_bounds() -> None:
    with pytest.raises(ValueError, match="give the bound; an embedding has no data"):
        nw.FixedRankEmbedding(1, "kernel").fit(np.eye(3), constraints=c.similar([(0, 1)]))


@pytest.mark.parametrize("shape", ["vectors", "matrices"])
@pytest.mark.parametrize("geometry", ["flat", "polar"])
def test_a_sample_of_weight_k_is_there_k_times(geometry: str, shape: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 4))
    y = np.square(X @ rng.standard_normal((4, 2))).sum(axis=1) + 0.3 * rng.standard_normal(40)
    if shape == "matrices":
        X = X[:, :, None] * X[:, None, :]
    counts = rng.integers(0, 4, 40)
    model = nw.FixedRankRegressor(2, geometry, tol=1e-13)
    found = model.fit(X, y, sample_weight=counts / 7.0).get_matrix()
    repeated = model.fit(np.repeat(X, counts, axis=0), np.repeat(y, counts)).get_matrix()
    np.testing.assert_allclose(found, repeated, atol=1e-6 * np.abs(repeated).max())
    assert np.abs(model.fit(X, y).get_matrix() - found).max() > 1e-2 * np.abs(found).max()


def test_rows_of_weight_zero_do_not_count_online() -> None:
    rng = np.random.default_rng(6)
    X, weights = rng.standard_normal((64, 3)), np.repeat([1.0, 0.0], 32)
    y = np.square(X[:, 0])
    wrong = np.where(weights > 0, y, 1e3)
    model = nw.FixedRankRegressor(1, batch_size=64, random_state=0)
    trusted = model.partial_fit(X, wrong, sample_weight=weights)
    assert np.mean(np.square(trusted.predict(X) - y)) < np.mean(np.square(y))
    with pytest.raises(ValueError, match=r"non-zero|0 for every row"):
        model.fit(X, y, sample_weight=np.zeros(64))
    with pytest.raises(ValueError, match=r"row 3|[Nn]egative"):
        model.fit(X, y, sample_weight=np.where(np.arange(64) == 3, -1.0, 1.0))
