"""Real local clusters: a worker that dies, a scheduler that is lost, and a client that stays small."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.distributed import Vectors, open_pairs, open_vectors, vectors_of

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow

InFiles, SetThresholds = Callable[..., Vectors], Callable[..., None]
RNG = np.random.default_rng(1)
X = RNG.normal(size=(2000, 10)) * np.linspace(1, 3, 10)
PAIRS = np.array([pair for pair in RNG.integers(0, 2000, (20_000, 2)) if pair[0] != pair[1]])
SIDE = c.at_most(PAIRS[:8000], 30.0) + c.at_least(PAIRS[8000:], 150.0)


@pytest.fixture(autouse=True)
def cut_small(set_thresholds: SetThresholds) -> None:
    set_thresholds(rows_of_a_piece=1024)


@pytest.fixture
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


def test_a_killed_worker_costs_its_pieces_and_not_the_run(client: Any, in_files: InFiles) -> None:
    expected = nw.solve(nw.Problem(in_files(X), SIDE, penalty=0.01), tol=1e-8)
    problem = nw.Problem(vectors_of(da.from_array(X, chunks=(300, 10)), client), SIDE, penalty=0.01)
    killed: list[int] = []

    def kill_one(record: Any) -> None:
        if record.iteration == 3:
            killed.extend(list(client.run(os.getpid).values())[:1])
            os.kill(killed[0], signal.SIGKILL)

    found = nw.solve(problem, tol=1e-8, callback=kill_one)
    assert len(killed) == 1
    assert found.n_iter > 3
    assert killed[0] not in client.run(os.getpid).values()
    np.testing.assert_array_equal(found.matrix, expected.matrix)


def test_a_lost_scheduler_is_named_and_the_fit_goes_on_from_its_checkpoint(
    client: Any, tmp_path: Any, set_thresholds: SetThresholds, in_files: InFiles
) -> None:
    settings: dict[str, Any] = {"penalty": 0.01, "tol": 1e-8, "random_state": 0}

    def lose(record: Any) -> None:
        if record.iteration == 3:
            client.cluster.close()

    set_thresholds(numbers_that_learners_take=1000)
    learner = nw.MetricLearner(callback=lose, checkpoint=tmp_path / "fit", **settings)
    with pytest.raises(RuntimeError, match=r"the Dask scheduler at \S+ does not answer"):
        learner.fit(vectors_of(da.from_array(X, chunks=(300, 10)), client), constraints=SIDE)
    assert (tmp_path / "fit").exists()
    again = nw.MetricLearner(checkpoint=tmp_path / "fit", **settings)
    again.fit(in_files(X), constraints=SIDE)
    whole = nw.MetricLearner(checkpoint=tmp_path / "other", **settings)
    whole.fit(in_files(X), constraints=SIDE)
    assert again.n_iter_ == whole.n_iter_
    np.testing.assert_array_equal(again.metric_.matrix, whole.metric_.matrix)


def test_files_are_mapped_by_the_workers(client: Any, tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", X)
    vectors = nw.distributed.open_vectors(tmp_path / "x.npy", client=client)
    found = nw.solve(nw.Problem(vectors, SIDE, penalty=0.01), tol=1e-6)
    expected = nw.solve(nw.Problem(np.load(tmp_path / "x.npy", mmap_mode="r"), SIDE, penalty=0.01), tol=1e-6)
    np.testing.assert_array_equal(found.matrix, expected.matrix)


def test_a_worker_of_another_version_is_refused_by_its_address(client: Any) -> None:
    other = sorted(client.run(os.getpid))[0]

    def become_old() -> None:
        import nearwise as theirs

        theirs.__version__ = "0.0.1"

    client.run(become_old, workers=[other])
    with pytest.raises(RuntimeError, match=f"worker {other} has nearwise 0\\.0\\.1, and the client has"):
        nw.Problem(vectors_of(da.from_array(X, chunks=(300, 10)), client), SIDE, penalty=0.01)


def test_a_file_that_workers_do_not_see_is_named(client: Any, tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", X)
    vectors = open_vectors(tmp_path / "x.npy", client=client)
    (tmp_path / "x.npy").rename(tmp_path / "gone.npy")
    with pytest.raises(RuntimeError, match=r"worker \S+://\S+ does not see \S+x\.npy"):
        nw.Problem(vectors, SIDE, penalty=0.01)


def test_fixed_rank_and_von_neumann_on_two_workers(
    client: Any, set_thresholds: SetThresholds, in_files: InFiles
) -> None:
    """The same bits as in threads of this process."""
    set_thresholds(numbers_that_learners_take=5000)
    lazy = vectors_of(da.from_array(X, chunks=((0, 700, 1, 1299), 10)), client)
    fixed = nw.FixedRankLearner(rank=2, random_state=0, check=False)
    found = fixed.fit(lazy, constraints=SIDE).metric_.matrix
    assert fixed.result_.solver == "SampledNewton"
    np.testing.assert_array_equal(found, fixed.fit(in_files(X), constraints=SIDE).metric_.matrix)
    results = [
        nw.solve(nw.Problem(vectors, SIDE, nw.VonNeumann(), penalty=0.001), tol=1e-6)
        for vectors in (lazy, in_files(X))
    ]
    assert all(result.status is nw.Status.SOLVED for result in results)
    np.testing.assert_array_equal(results[0].matrix, results[1].matrix)
    np.testing.assert_array_equal(np.asarray(results[0].dual), np.asarray(results[1].dual))


def test_the_client_stays_small(client: Any) -> None:
    """80 MB of vectors on the workers, of which the client sees none."""
    import tracemalloc

    array = da.random.default_rng(0).normal(size=(1_000_000, 10), chunks=(100_000, 10))
    far = RNG.integers(0, 1_000_000, (20_000, 2))
    side = c.at_most(far[far[:, 0] != far[:, 1]], 10.0)
    tracemalloc.start()
    nw.solve(nw.Problem(vectors_of(array, client), side, penalty=0.01), tol=1e-4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("kind", ["on Dask", "in files"])
def test_pairs_in_files_are_read_by_the_workers(
    client: Any, tmp_path: Any, kind: str, in_files: InFiles
) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "near.npy", PAIRS[:8000])
    np.save(tmp_path / "far.npy", PAIRS[8000:])
    far = da.from_array(PAIRS[8000:], chunks=(3000, 2))
    side = c.at_most(open_pairs(tmp_path / "near.npy"), 30.0) + c.at_least(
        open_pairs(far, scratch=tmp_path, client=client), 150.0
    )
    rows = da.from_array(X, chunks=((300, 0, 1000, 700), (10,)))
    vectors = (
        vectors_of(rows, client) if kind == "on Dask" else open_vectors(tmp_path / "x.npy", client=client)
    )
    problem = nw.Problem(vectors, side, penalty=0.01)
    killed: list[int] = []

    def kill_one(record: Any) -> None:
        if record.iteration == 2:
            killed.extend(list(client.run(os.getpid).values())[:1])
            os.kill(killed[0], signal.SIGKILL)

    found = nw.solve(problem, tol=1e-8, callback=kill_one)
    assert len(killed) == 1
    expected = nw.solve(nw.Problem(in_files(X), SIDE, penalty=0.01), tol=1e-8)
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    (tmp_path / "near.npy").rename(tmp_path / "gone.npy")
    with pytest.raises(RuntimeError, match=r"does not see \S+near\.npy"):
        nw.Problem(vectors, side, penalty=0.01)
