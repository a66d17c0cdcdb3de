"""A faiss index holds the learned distance, all of it, unless only the learned dimensions are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw
from crossing import crossed

faiss = pytest.importorskip("faiss", reason="needs faiss")

LEARNERS = {
    "all": lambda: nw.MetricLearner(penalty=1.0, random_state=0),
    "rank 2": lambda: nw.MetricLearner(penalty=1.0, rank=2, random_state=0),
    "rank 2, whole": lambda: nw.MetricLearner(penalty=1.0, rank=2, whole=True, random_state=0),
    "diagonal": lambda: nw.MetricLearner(penalty=1.0, structure="diagonal", random_state=0),
    "online, rank 3": lambda: nw.OnlineLearner(rank=3, random_state=0),
    "online": lambda: nw.OnlineLearner(random_state=0),
}


def data(d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(d)
    y = np.arange(120) % 3
    X = rng.standard_normal((120, d))
    X[:, 0] += 4.0 * y
    return X, y


@crossed(made=LEARNERS, d=[6, 300])  # of 300 features, a subspace is learned anyway
def test_its_neighbours_and_distances_are_the_learned_ones(made: Any, d: int) -> None:
    X, y = data(d)
    learner = made().fit(X, y)
    index = learner.to_faiss(faiss.IndexFlatL2(d))
    index.add(np.float32(X))
    found, rows = index.search(np.float32(X[:30]), 7)
    expected = learner.distances(X[:30], X, squared=True)
    np.testing.assert_allclose(found, np.sort(expected, axis=1)[:, :7], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.take_along_axis(expected, rows, axis=1), found, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("whole", [False, True])
def test_the_learned_dimensions_alone(whole: bool) -> None:
    X, y = data(6)
    learner = nw.MetricLearner(penalty=1.0, rank=2, whole=whole, random_state=0).fit(X, y)
    index = learner.to_faiss(faiss.IndexFlatL2(2), whole=False)
    index.add(np.float32(X))
    found, _ = index.search(np.float32(X[:30]), 7)
    low = learner.set_params(whole=False).transform(X)
    expected = np.sort(np.square(low[:30, None] - low).sum(axis=2), axis=1)[:, :7]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_an_index_of_another_width_says_which_one_fits() -> None:
    X, y = data(6)
    learner = nw.MetricLearner(penalty=1.0, rank=2, random_state=0).fit(X, y)
    for width in (2, 5):
        with pytest.raises(ValueError, match=r"IndexFlatL2\(6\)") as refused:
            learner.to_faiss(faiss.IndexFlatL2(width))
        assert f"{width} dimensions" in str(refused.value)
        assert ("whole=False" in str(refused.value)) is (width == 2)
    with pytest.raises(ValueError, match=r"IndexFlatL2\(2\).*whole=False"):
        learner.to_faiss(faiss.IndexFlatL2(6), whole=False)
    with pytest.raises(ValueError, match=r"whole.*'no'"):
        learner.to_faiss(faiss.IndexFlatL2(6), whole="no")
    for low in (nw.FixedRankLearner(2, random_state=0, check=False), nw.NeighborLearner(2, check=False)):
        with pytest.raises(ValueError, match=r"IndexFlatL2\(2\)"):
            low.fit(X, y).to_faiss(faiss.IndexFlatL2(6))
