"""A worker of another version, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.distributed import vectors_of
from nearwise.model import bound_in_blocks

da = pytest.importorskip("dask.array")


RNG = np.random.default_rng(1)


Y = RNG.integers(0, 3, 240)


X = (RNG.normal(size=(240, 4)) * [1, 3, 3, 1] + Y[:, None] * [2, 0, 0, 1]).astype(np.float32)


PAIRS = np.array([pair for pair in RNG.integers(0, 240, (600, 2)) if pair[0] != pair[1]])


SAME = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]


SIDE = c.similar(PAIRS[SAME]) + c.dissimilar(PAIRS[~SAME])


@pytest.fixture(autouse=True)
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_in_blocks, "_FEWEST", 150)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", set_as_default=False
    ) as found:
        yield found


def test_a_worker_of_another_version_is_refused_by_name(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearwise.distributed import on_dask

    problem = nw.Problem(vectors_of(da.from_array(X, chunks=(70, 4)), client), SIDE)
    monkeypatch.setattr(on_dask, "_theirs", lambda: "0.0.1")
    with pytest.raises(
        on_dask.VersionError, match=r"worker \S+://\S+ has nearwise 0\.0\.1, and the client has"
    ):
        nw.solve(problem, max_iter=2)
