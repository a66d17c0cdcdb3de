"""Dask arrays and dataframes, in this process: never collected, and the same result however they are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.distributed import Vectors, vectors_of

da = pytest.importorskip("dask.array")
pd = pytest.importorskip("pandas")

InFiles, SetThresholds = Callable[..., Vectors], Callable[..., None]
RNG = np.random.default_rng(1)
Y = RNG.integers(0, 3, 240)
X = (RNG.normal(size=(240, 4)) * [1, 3, 3, 1] + Y[:, None] * [2, 0, 0, 1]).astype(np.float32)
PAIRS = np.array([pair for pair in RNG.integers(0, 240, (600, 2)) if pair[0] != pair[1]])
SAME = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]
SIDE = c.similar(PAIRS[SAME]) + c.dissimilar(PAIRS[~SAME])

CHUNKS = {
    "even": (60, 4),
    "uneven": ((1, 130, 9, 100), (3, 1)),
    "with empty ones": ((0, 100, 0, 0, 140, 0), (4,)),
    "one": (240, 4),
}


@pytest.fixture(autouse=True)
def cut_small(set_thresholds: SetThresholds) -> None:
    set_thresholds(rows_of_a_piece=150)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", set_as_default=False
    ) as found:
        yield found


class Watched:
    """An array that says how many rows were ever asked of it at once."""

    def __init__(self) -> None:
        self.shape, self.dtype, self.ndim, self.most = X.shape, X.dtype, 2, 0

    def __getitem__(self, key: Any) -> np.ndarray:
        found = X[key]
        self.most = max(self.most, len(found))
        return found


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_chunks_change_no_bit(chunks: Any, in_files: InFiles) -> None:
    expected = nw.solve(nw.Problem(in_files(X), SIDE), tol=1e-6)
    found = nw.solve(nw.Problem(da.from_array(X, chunks=chunks), SIDE), tol=1e-6)
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    assert found.n_iter == expected.n_iter


@pytest.mark.long
def test_a_cluster_changes_no_bit(client: Any, in_files: InFiles) -> None:
    expected = nw.solve(nw.Problem(in_files(X), SIDE, nw.VonNeumann()), tol=1e-6)
    data = vectors_of(da.from_array(X, chunks=(70, 4)), client)
    found = nw.solve(nw.Problem(data, SIDE, nw.VonNeumann()), tol=1e-6)
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    np.testing.assert_array_equal(np.asarray(found.dual), np.asarray(expected.dual))


@pytest.mark.long
def test_dataframes_of_unknown_length(in_files: InFiles) -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")), npartitions=3)
    some = frame[frame["a"] > -100.0]  # of which Dask does not know how many there are
    expected = nw.solve(nw.Problem(in_files(X), SIDE), tol=1e-6)
    np.testing.assert_array_equal(nw.solve(nw.Problem(some, SIDE), tol=1e-6).matrix, expected.matrix)
    learner = nw.MetricLearner(penalty=0.1, random_state=0).fit(some, Y)
    assert list(learner.feature_names_in_) == ["a", "b", "c", "d"]


def test_a_problem_never_collects_the_data() -> None:
    watched = Watched()
    array = da.from_array(watched, chunks=(60, 4), asarray=False, fancy=False)
    nw.solve(nw.Problem(array, SIDE), tol=1e-3)
    assert 0 < watched.most <= 60


@pytest.mark.parametrize("penalty", ["auto", 0.05])
def test_a_learner_from_labels_learns_what_it_learns_in_memory(penalty: Any) -> None:
    watched = Watched()
    array = da.from_array(watched, chunks=(70, 4), asarray=False, fancy=False)
    found = nw.MetricLearner(penalty=penalty, random_state=0).fit(array, da.from_array(Y, chunks=100))
    expected = nw.MetricLearner(penalty=penalty, random_state=0).fit(X.astype(np.float64), Y)
    assert watched.most <= 70
    assert found.penalty_ == pytest.approx(expected.penalty_, rel=1e-12)
    assert found.penalty_scores_ == expected.penalty_scores_
    assert found.n_constraints_used_ == expected.n_constraints_used_
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-6)


def test_a_learner_from_constraints_learns_what_it_learns_in_memory(set_thresholds: SetThresholds) -> None:
    array = da.from_array(X, chunks=(70, 4))
    found = nw.MetricLearner(random_state=0).fit(array, constraints=SIDE)
    expected = nw.MetricLearner(random_state=0).fit(X.astype(np.float64), constraints=SIDE)
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-9)
    # where constraints name too many objects to take them, the penalty is chosen on a sample
    set_thresholds(numbers_that_learners_take=4 * 200)
    sampled = nw.MetricLearner(random_state=0).fit(array, constraints=SIDE)
    assert not isinstance(sampled.result_.dual, np.ndarray)  # they are in pieces too
    shares = [score / sampled.penalty_scores_[1][0] for score, _ in sampled.penalty_scores_[1:]]
    assert shares[:2] == pytest.approx([1.0, 4.0])
    fixed = nw.MetricLearner(penalty=sampled.penalty_, random_state=0)
    expected = fixed.fit(X.astype(np.float64), constraints=SIDE)
    np.testing.assert_allclose(sampled.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-3)


def test_transform_and_pair_distances_are_lazy() -> None:
    learner = nw.MetricLearner(penalty=0.1, random_state=0).fit(X.astype(np.float64), Y)
    assert X.dtype == np.float32
    single = learner.transform(da.from_array(X, chunks=(100, 2)))
    assert single.dtype == single.compute().dtype == np.float32
    lazy = learner.transform(da.from_array(X.astype(np.float64), chunks=(100, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(
        lazy.compute(), learner.transform(X.astype(np.float64)), rtol=1e-12, atol=1e-12
    )
    expected = learner.pair_distance(PAIRS, X.astype(np.float64))
    lazy = learner.pair_distance(PAIRS, da.from_array(X, chunks=(100, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
    vectors = da.from_array(X[PAIRS], chunks=(50, 1, 3))
    np.testing.assert_allclose(learner.pair_distance(vectors).compute(), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="X must have 4 columns"):
        learner.transform(da.zeros((5, 3)))
    with pytest.raises(ValueError, match="pair 1: X has 240 rows"):
        learner.pair_distance([[0, 1], [2, 240]], da.from_array(X))


@pytest.mark.parametrize(
    "learner",
    [
        nw.KernelLearner(),
        nw.OnlineLearner(),
        nw.KernelReducer(),
        nw.FixedRankRegressor(rank=2),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_learners_that_need_memory_say_so(learner: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(learner).__name__} cannot use Dask arrays"):
        learner.fit(da.from_array(X), Y)


def test_what_a_learner_cannot_do_in_pieces_is_said() -> None:
    array = da.from_array(X)
    fitted = nw.MetricLearner(penalty=0.1).fit(X.astype(np.float64), Y)
    with pytest.raises(TypeError, match="MetricLearner cannot use Dask arrays here"):
        fitted.score(array, Y)
    with pytest.raises(ValueError, match="rank and basis need data in memory"):
        nw.MetricLearner(rank=2).fit(array, Y)
    with pytest.raises(ValueError, match="prior='covariance' needs data in memory"):
        nw.MetricLearner(prior="covariance").fit(array, Y)
    with pytest.raises(ValueError, match="must have rows and columns"):
        nw.Problem(da.zeros(5), SIDE)


def test_weights_of_rows_count_for_pairs_from_labels() -> None:
    weights = np.random.default_rng(0).random(len(X))
    learner = nw.MetricLearner(penalty=0.1, random_state=0)
    expected = learner.fit(X.astype(np.float64), Y, sample_weight=weights).metric_.matrix
    lazy = da.from_array(X, chunks=(70, 4)), da.from_array(weights, chunks=100)
    found = learner.fit(lazy[0], Y, sample_weight=lazy[1]).metric_.matrix
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_weights_of_rows_count_in_pieces_too() -> None:
    weights = np.random.default_rng(0).integers(0, 3, len(X))
    learner = nw.MetricLearner(penalty=1.0, tol=1e-12)
    pieces = da.from_array(X, chunks=(70, 4)), da.from_array(weights, chunks=100)
    memory = learner.fit(X.astype(np.float64), constraints=SIDE, sample_weight=weights)
    expected, plain = memory.get_mahalanobis_matrix(), learner.fit(X, constraints=SIDE)
    assert not np.allclose(plain.get_mahalanobis_matrix(), expected)
    learner.fit(pieces[0], constraints=SIDE, sample_weight=pieces[1])
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["nan", "none", "series"])
def test_rows_without_a_label_are_in_no_pair(kind: str) -> None:
    missing = np.random.default_rng(0).random(len(Y)) < 0.3
    known: Any = np.where(missing, np.nan, Y)
    if kind != "nan":
        known = np.array(
            [None if gone else f"c{code}" for gone, code in zip(missing, Y, strict=True)], object
        )
    lazy = da.from_array(known, chunks=90)
    if kind == "series":
        lazy = pytest.importorskip("dask.dataframe").from_pandas(pd.Series(known), npartitions=3)
    learner = nw.MetricLearner(penalty=0.1, random_state=0)
    found = learner.fit(da.from_array(X, chunks=(70, 4)), lazy).metric_.matrix
    expected = learner.fit(X.astype(np.float64), known).metric_.matrix
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_checkpoint_knows_its_data(tmp_path: Any) -> None:
    array = da.from_array(X, chunks=(70, 4))
    path = tmp_path / "fit"
    stopped = nw.MetricLearner(penalty=0.1, random_state=0, checkpoint=path, max_iter=1, tol=1e-9)
    with pytest.warns(Warning, match="limit of 1 iterations"):
        stopped.fit(array, Y)
    assert path.exists()
    with pytest.raises(ValueError, match="belongs to another fit"):
        stopped.fit(da.from_array(X + 1.0, chunks=(70, 4)), Y)
    found = nw.MetricLearner(penalty=0.1, random_state=0, checkpoint=path, tol=1e-9, max_iter=1)
    with pytest.warns(Warning, match="limit of 1 iterations"):
        found.fit(array.rechunk((100, 4)), Y)  # which is the same data


def test_a_column_that_is_no_number_is_named() -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=[*"abcd"]).assign(kind=Y.astype(str))
    with pytest.raises(TypeError, match=r"column .kind. of the dataframe holds .*, not real numbers"):
        nw.MetricLearner().fit(dd.from_pandas(frame, npartitions=2), Y)


def test_a_kernel_that_was_asked_for_is_not_left_out_without_a_word(set_thresholds: SetThresholds) -> None:
    set_thresholds(numbers_that_learners_take=100)  # fewer rows would be taken, and a kernel learned
    array = da.from_array(X, chunks=(60, 4))
    for kernel in ("rbf", "linear+rbf"):
        with pytest.raises(ValueError, match="cannot be learned: the data are not in memory"):
            nw.AutoLearner(kernel=kernel).fit(array, Y)
    learner = nw.AutoLearner(random_state=0, penalty=0.05).fit(array, Y)
    assert learner.choice_reason_ == "the data are not in memory"
