"""What a pass is on a cluster: few tasks, on the workers, with sums that do not depend on their number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.distributed import on_dask, open_vectors, vectors, vectors_of
from nearwise.distributed.running import BUNDLE, InThreads
from nearwise.distributed.vectors import Stacked
from nearwise.learners import _in_pieces
from nearwise.model import bound_in_blocks

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

RNG = np.random.default_rng(1)
Y = RNG.integers(0, 3, 300)
X = (RNG.normal(size=(300, 4)) * [1, 3, 3, 1] + Y[:, None] * [2, 0, 0, 1]).astype(np.float32)
PAIRS = np.array([pair for pair in RNG.integers(0, 300, (900, 2)) if pair[0] != pair[1]])
SAME = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]
SIDE = c.similar(PAIRS[SAME]) + c.dissimilar(PAIRS[~SAME])


@pytest.fixture(autouse=True)
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces of rows that are not taken here."""
    monkeypatch.setattr(bound_in_blocks, "_FEWEST", 20)
    monkeypatch.setattr(_in_pieces, "_TAKEN", 1000)
    monkeypatch.setattr(vectors, "_ROWS_AT_A_TIME", 4 * 50)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", set_as_default=False
    ) as found:
        yield found


@pytest.fixture
def jobs(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tasks do, one name for each."""
    found: list[str] = []
    asked: list[str] = []
    submit = client.submit

    def counted(function: Any, *arguments: Any, **settings: Any) -> Any:
        if function is on_dask._as_it_is:
            asked.append(arguments[0][0].__name__)
        else:
            found.append(asked[-1])
        return submit(function, *arguments, **settings)

    monkeypatch.setattr(client, "submit", counted)
    return found


def test_a_pass_is_few_tasks(client: Any, jobs: list[str]) -> None:
    problem = nw.Problem(vectors_of(da.from_array(X, chunks=(100, 4)), client), SIDE, penalty=0.01)
    assert len(problem._bound.measurements.starts) > 40
    assert jobs == ["survey_of"] * 8  # of one thread
    jobs.clear()
    found = nw.solve(problem)
    expected = nw.solve(nw.Problem(Stacked([X]), SIDE, penalty=0.01))
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    np.testing.assert_array_equal(np.asarray(found.dual), np.asarray(expected.dual))
    assert jobs.count("evaluate") <= 8 * (found.n_iter + 4)


@pytest.mark.long
@pytest.mark.parametrize("learner", [nw.MetricLearner, nw.FixedRankLearner])
def test_workers_work_on_files(client: Any, jobs: list[str], tmp_path: Path, learner: Any) -> None:
    """Passes and the search for neighbours; not threads of this process, which find the same."""
    np.save(tmp_path / "x.npy", X)
    how: dict[str, Any] = {"pairs": "local", "random_state": 0}
    how |= {"penalty": 0.05, "tol": 0.1} if learner is nw.MetricLearner else {"rank": 2, "check": False}
    found = learner(**how).fit(open_vectors(tmp_path / "x.npy", client=client), Y, constraints=SIDE)
    assert set(jobs) >= {"_on_slice", "survey_of", "evaluate" if learner is nw.MetricLearner else "sums_of"}
    expected = learner(**how).fit(Stacked([X]), Y, constraints=SIDE)
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)


@pytest.mark.parametrize("n_threads", [0, 1, 3, 64])
@pytest.mark.parametrize("count", [0, 1, 5, 16, 245])
def test_groups_keep_bundles_together(count: int, n_threads: int) -> None:
    there = SimpleNamespace(
        nthreads=lambda: {f"worker {k}": 1 for k in range(n_threads)},
        scheduler=SimpleNamespace(address="tcp://there:1"),
    )
    groups = on_dask.grouped(range(count), there, n_rows=10 * count)
    assert [piece for group in groups for piece in group] == list(range(count))
    assert all(group[0] % BUNDLE == 0 for group in groups)
    assert len(groups) <= max(8 * n_threads, 1)
    many = on_dask.grouped(range(count), there, n_rows=1 << 40)
    assert len(many) == -(-count // BUNDLE)  # so many rows that every bundle is a task


def test_sums_of_some_pieces_are_those_of_their_bundles() -> None:
    runner = InThreads(range(10)).some([0, 1, 5, 6, 9])
    assert runner.run(lambda piece: (piece,), added=tuple) == [((0,), (1,)), ((5,), (6,)), ((9,),)]


def cluster(**run: str) -> Any:
    return SimpleNamespace(
        status="running", run=lambda job: run, scheduler=SimpleNamespace(address="tcp://there:1")
    )


def test_a_worker_without_nearwise_is_named() -> None:
    right = f"nearwise {nw.__version__}"
    on_dask.refuse_other_versions(cluster(a=right, b=right))
    with pytest.raises(on_dask.VersionError, match="worker b has no nearwise, and the client has nearwise"):
        on_dask.refuse_other_versions(cluster(a=right, b="no nearwise"))


def test_workers_that_die_again_and_again_are_told_in_plain_words() -> None:
    class KilledWorker(Exception):
        pass

    def ask() -> None:
        raise KilledWorker("_several-0123", None, 3)

    with pytest.raises(on_dask.LostWorkersError, match="died at one task of the scheduler at tcp://there:1"):
        on_dask._guarded(cluster(), ask, "tcp://there:1")
