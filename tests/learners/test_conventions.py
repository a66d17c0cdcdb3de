"""What other libraries expect of a learner and its metric: callables, dtypes, shapes, whole coordinates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import constraints as c

X, y = load_iris(return_X_y=True)
LEARNERS = {
    "metric": nw.MetricLearner(penalty=1.0, random_state=0),
    "subspace": nw.MetricLearner(rank=2, basis="svd", penalty=1.0, random_state=0),
    "online": nw.OnlineLearner(rank=2, basis="svd", random_state=0),
    "kernel": nw.KernelLearner(penalty=1.0, random_state=0),
    "reduced kernel": nw.KernelLearner(rank=10, penalty=1.0, random_state=0),
    "reducer": nw.KernelReducer(random_state=0),
    "fixed rank": nw.FixedRankLearner(2, check=False, random_state=0),
    "fixed rank, kernel": nw.FixedRankLearner(2, kernel="rbf", check=False, random_state=0),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)
in_a_subspace = pytest.mark.parametrize("name", ["subspace", "online"])


@cache
def fitted(name: str) -> Any:
    return clone(LEARNERS[name]).fit(X, y)


@every_learner
def test_a_metric_is_a_function_of_two_vectors(name: str) -> None:
    learner = fitted(name)
    few = X[::30]
    expected = learner.distances(few)
    np.testing.assert_allclose(cdist(few, few, learner.metric_), expected, atol=1e-7)
    found = learner.metric_(list(few[0]), few[1])
    assert type(found) is float
    assert found == pytest.approx(expected[0, 1])
    assert learner.metric_(few[0], few[0]) == 0.0


def test_a_metric_serves_scikit_learn_s_search() -> None:
    learner = fitted("subspace")
    search = NearestNeighbors(n_neighbors=3, metric=learner.metric_, algorithm="brute").fit(X)
    distances, _ = search.kneighbors(X[:5])
    np.testing.assert_allclose(distances, np.sort(learner.distances(X[:5], X), axis=1)[:, :3], atol=1e-7)


def test_what_are_no_two_vectors_is_refused() -> None:
    metric = fitted("metric").metric_
    with pytest.raises(ValueError, match=r"vectors of 4 numbers, got 3"):
        metric([1, 2, 3], [1, 2, 3])
    with pytest.raises(ValueError, match=r"one length, got shapes \(4,\) and \(1,\)"):
        metric(X[0], [1.0])
    with pytest.raises(ValueError, match=r"one length, got shapes \(150, 4\) and \(150, 4\)"):
        metric(X, X)


@every_learner
def test_single_precision_stays_single_precision(name: str) -> None:
    learner = fitted(name)
    doubled = learner.transform(X)
    assert doubled.dtype == np.float64
    single = X.astype(np.float32)
    found = learner.transform(single)
    assert found.dtype == np.float32
    # computed in double precision: the same numbers, rounded once at the end
    np.testing.assert_array_equal(found, learner.transform(single.astype(np.float64)).astype(np.float32))
    assert learner.transform(X.astype(np.float16)).dtype == np.float64
    assert learner.transform(X.astype(int)).dtype == np.float64


def test_sparse_single_precision_stays_too() -> None:
    rows = sparse.csr_array(X.astype(np.float32))
    found = fitted("subspace").transform(rows)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, fitted("subspace").transform(rows.toarray()))


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("as_list", [False, True])
def test_tuples_of_vectors_in_place_of_data_are_told_what_to_do(size: int, as_list: bool) -> None:
    tuples = X[: 3 * size].reshape(3, size, 4)
    name = {2: "pairs", 3: "triplets", 4: "quadruplets", 5: "tuples"}[size]
    for learner in (nw.MetricLearner(), nw.KernelLearner(), nw.OnlineLearner(), nw.FixedRankLearner()):
        with pytest.raises(ValueError, match=rf"these are {name} of vectors, .*constraints\.from_tuples"):
            learner.fit(tuples.tolist() if as_list else tuples, [1, 1, -1])


def test_rows_of_different_lengths_get_the_error_of_scikit_learn() -> None:
    with pytest.raises(ValueError, match="inhomogeneous"):
        nw.MetricLearner().fit([[1.0, 2.0], [3.0]], [0, 1])


def test_what_the_error_says_works() -> None:
    rows, side = c.from_tuples(X[:40].reshape(20, 2, 4), np.repeat([1, -1], 10))
    assert nw.MetricLearner(penalty=1.0).fit(rows, constraints=side).transform(rows).shape == (40, 4)


@in_a_subspace
def test_whole_coordinates_have_the_whole_distance(name: str) -> None:
    learner = clone(LEARNERS[name]).set_params(whole=True).fit(X, y)
    found = learner.transform(X)
    assert found.shape == X.shape
    assert fitted(name).transform(X).shape == (150, 2)
    np.testing.assert_allclose(pdist(found), learner.pair_distance(np.array(np.triu_indices(150, 1)).T, X))
    np.testing.assert_allclose(found, X @ learner.components_.T, atol=1e-12)
    np.testing.assert_allclose(found, learner.transform(sparse.csr_array(X)), atol=1e-12)
    assert len(learner.get_feature_names_out()) == 4
    part = fitted(name).transform(X)
    assert np.all(pdist(part) <= pdist(found) + 1e-9)
    assert np.max(pdist(found) - pdist(part)) > 0.1  # the part outside the subspace counts


def test_whole_coordinates_in_a_table_and_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), clone(LEARNERS["subspace"]).set_params(whole=True))
    table = pipeline.set_output(transform="pandas").fit_transform(X, y)
    assert list(table.columns) == [f"metriclearner{k}" for k in range(4)]


def test_whole_coordinates_of_all_dimensions_are_the_usual_ones() -> None:
    learner = nw.MetricLearner(penalty=1.0, random_state=0, whole=True).fit(X, y)
    np.testing.assert_array_equal(learner.transform(X), fitted("metric").transform(X))


def test_whole_is_kept_in_a_model_file(tmp_path: Path) -> None:
    learner = clone(LEARNERS["subspace"]).set_params(whole=True).fit(X, y)
    nw.save(learner, tmp_path / "m.safetensors")
    loaded = nw.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.transform(X), learner.transform(X))


@pytest.mark.parametrize(
    "kind", [nw.AutoLearner, nw.FixedRankLearner, nw.KernelLearner, nw.KernelReducer, nw.MetricLearner]
)
def test_a_callback_that_is_no_function_is_refused_before_any_work(kind: type) -> None:
    learner = kind(callback=3)
    with pytest.raises(TypeError, match="callback must be callable, got int"):
        learner.fit(X, y)
    assert not hasattr(learner, "metric_")
