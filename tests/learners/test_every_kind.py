"""Every learner on every kind of constraint: it learns from it, or says that it does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._side import Side
from nearwise.learners._space import Outside
from nearwise.learners.input_kernels import InputKernel
from nearwise.side.kinds import KINDS

Array = NDArray[np.float64]

rng = np.random.default_rng(5)
N, D = 40, 4
X = rng.normal(size=(N, D)) + 0.5
TRUE = np.diag([4.0, 0.25, 0.05, 1.0])
K_TRUE = X @ TRUE @ X.T
PAIRS = np.array([(i, j) for i in range(N) for j in range(i + 1, N)])[::5]


def squared(K: Array, i: Any, j: Any) -> Array:
    return K[i, i] + K[j, j] - 2.0 * K[i, j]


def true_side(kind: str) -> c.Constraints:
    """Constraints of a kind that hold under the true metric."""
    if kind == "distance":
        return c.equal(PAIRS, squared(K_TRUE, *PAIRS.T))
    if kind == "comparison":
        rows = np.concatenate([PAIRS[:-1], PAIRS[1:]], axis=1)
        swap = squared(K_TRUE, *rows[:, :2].T) > squared(K_TRUE, *rows[:, 2:].T)
        rows = np.where(swap[:, None], rows[:, [2, 3, 0, 1]], rows)
        return c.closer(rows, 0.5 * (squared(K_TRUE, *rows[:, 2:].T) - squared(K_TRUE, *rows[:, :2].T)))
    if kind == "similarity":
        return c.similarity(PAIRS, K_TRUE[tuple(PAIRS.T)], "==")
    matrices = [np.diag(rng.normal(size=N)) for _ in range(12)]
    return c.linear(matrices, [float(np.sum(A * K_TRUE)) for A in matrices], "==")


def violation(side: c.Constraints, K: Array) -> float:
    """How far values are from where they shall be, on average, by the definition of each kind."""
    found = []
    for block in side.blocks:
        if block.kind == "linear":
            values = np.array([np.sum(matrix.matrix * K) for matrix in block.matrices])
        elif block.kind == "similarity":
            values = K[tuple(block.object_ids.T)]
        elif block.kind == "distance":
            values = squared(K, *block.object_ids.T)
        else:
            near, far = (squared(K, *block.object_ids[:, k : k + 2].T) for k in (0, 2))
            found.append((near > far).astype(float))
            continue
        found.append(np.abs(values - block.bounds) / np.mean(np.abs(block.bounds)))
    return float(np.concatenate(found).mean())


def kernel_of(learner: Any) -> Array:
    """The learned inner products of all rows of X."""
    if isinstance(learner, nw.FixedRankEmbedding):
        return np.asarray(learner.embedding_ @ learner.embedding_.T)
    i, j = np.indices((N, N)).reshape(2, -1)
    K = learner.metric_.pair_products(X, i, j).reshape(N, N)
    distances = learner.metric_.pair_squared_distances(X, i, j).reshape(N, N)
    np.testing.assert_allclose(squared(K, i, j).reshape(N, N), distances, atol=1e-8 * K.max())
    return np.asarray(K)


LEARNERS: dict[str, Any] = {
    "metric": lambda: nw.MetricLearner(penalty=10.0, random_state=0),
    "metric in a subspace": lambda: nw.MetricLearner(penalty=10.0, basis=np.eye(D)[:, :3], random_state=0),
    "metric, penalty chosen": lambda: nw.MetricLearner(random_state=0),
    "kernel": lambda: nw.KernelLearner("linear", penalty=10.0, random_state=0),
    "kernel in a subspace": lambda: nw.KernelLearner("linear", penalty=10.0, rank=D, random_state=0),
    "reducer": lambda: nw.KernelReducer(n_components=4, kernel="linear", trace_weight=1e-3, random_state=0),
    "fixed rank": lambda: nw.FixedRankLearner(rank=4, random_state=0),
    "online": lambda: nw.OnlineLearner(random_state=0),
    "embedding": lambda: nw.FixedRankEmbedding(rank=4, input="kernel", random_state=0),
}
REFUSED = {("online", "similarity"), ("online", "linear")}


def test_the_list_of_kinds_is_complete() -> None:
    assert set(KINDS) == {"distance", "comparison", "similarity", "linear"}, "test the new kind below"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_learns_from_a_kind_or_refuses_it(name: str, kind: str) -> None:
    side, learner = true_side(kind), LEARNERS[name]()
    start = X @ X.T
    if (name, kind) in REFUSED:
        with pytest.raises(ValueError, match=r"row 0: .* is no bound on distances; an online learner learns"):
            learner.fit(X, constraints=side)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.WorseThanEuclideanWarning)
        learner.fit(start if name == "embedding" else X, constraints=side)
    assert violation(side, kernel_of(learner)) < 0.8 * violation(side, start)


def outside(fixed: np.ndarray) -> Outside:
    """Of a basis that has nothing in it, so that the whole kernel lies outside."""
    return Outside(InputKernel("precomputed"), fixed, np.zeros((N, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_on_a_subspace_are_those_less_what_lies_outside_by_definition(kind: str) -> None:
    fixed = 0.01 * X @ np.diag([0.0, 0.0, 0.0, 1.0]) @ X.T
    side = true_side(kind)
    inside = Side(N, None, side).inside(outside(fixed)).constraints
    assert len(inside) == len(side)
    expected = []
    for block in side.blocks:
        if kind == "linear":
            expected += [np.sum(matrix.matrix * fixed) for matrix in block.matrices]
        elif kind == "similarity":
            expected += list(fixed[tuple(block.object_ids.T)])
        else:
            ids = block.object_ids
            far = squared(fixed, *ids[:, 2:].T) if kind == "comparison" else 0.0
            expected += list(squared(fixed, *ids[:, :2].T) - far)
    np.testing.assert_allclose(side.bounds - inside.bounds, expected, atol=1e-12)


def test_a_squared_length_that_the_fixed_part_exceeds_is_refused_like_a_distance() -> None:
    fixed = np.eye(N)
    for side in (c.similarity([(3, 3)], 0.25, "<="), c.at_most([(3, 4)], 0.25)):
        with pytest.raises(ValueError, match=r"row 0: .* outside the basis its value is fixed"):
            Side(N, None, side).inside(outside(fixed))
    met = c.similarity([(3, 3), (4, 4)], [0.25, 4.0], ">=") + c.similarity([(3, 4)], -1.0, "<=")
    inside = Side(N, None, met).inside(outside(fixed)).constraints
    assert inside.bounds.tolist() == [3.0, -1.0]


def test_a_kind_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="'angle' is no kind of constraint; kinds are 'distance', 'comparison'"
    ):
        c.Block("angle", 0, np.array([(0, 1)]), np.ones(1))
