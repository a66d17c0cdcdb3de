"""A constraint of weight k is as good as k equal ones, for every learner and every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._side import Side
from nearwise.learners.grades import share_in_order
from nearwise.online.feedback import of_blocks
from nearwise.side.kinds import KINDS

RNG = np.random.default_rng(3)
N, D, M = 8, 3, 24
X = RNG.normal(size=(N, D))
PAIRS = np.array([RNG.choice(N, 2, replace=False) for _ in range(M)])
ROWS = np.array([RNG.choice(N, 4, replace=False) for _ in range(M)])
WRONG = RNG.uniform(0.4, 2.5, M)  # so that constraints contradict each other and weights matter
MATRICES = [np.outer(a, a) for a in RNG.normal(size=(M, N))]
COUNTS = np.array([1, 2, 3] * 8)
SIDES = {
    "distance": c.equal(PAIRS, WRONG * np.square(X[PAIRS[:, 0]] - X[PAIRS[:, 1]]).sum(axis=1)),
    "comparison": c.closer(ROWS, WRONG),
    "similarity": c.similarity(PAIRS, WRONG, "=="),
    "linear": c.linear(MATRICES, WRONG * [np.sum(A * (X @ X.T)) for A in MATRICES], "=="),
    "open": c.similar(PAIRS[: M // 2]) + c.dissimilar(PAIRS[M // 2 :]),
}
LEARNERS: dict[str, Any] = {
    "metric": lambda: nw.MetricLearner(penalty=1.0, tol=1e-11),
    "von neumann": lambda: nw.MetricLearner(divergence="vonneumann", penalty=1.0, tol=1e-11),
    "frobenius": lambda: nw.MetricLearner(divergence="frobenius", penalty=1.0, tol=1e-11),
    "subspace": lambda: nw.MetricLearner(penalty=1.0, basis=np.eye(D)[:, :2], tol=1e-11),
    "kernel": lambda: nw.KernelLearner("linear", penalty=1.0, tol=1e-11),
    "kernel in a subspace": lambda: nw.KernelLearner(
        "rbf", penalty=1.0, gamma=0.1, rank=5, random_state=0, tol=1e-11
    ),
    "reducer": lambda: nw.KernelReducer(
        D, kernel="linear", penalty=10.0, trace_weight=0.1, random_state=0, tol=1e-11
    ),
    "fixed rank": lambda: nw.FixedRankLearner(D, "flat", check=False, tol=1e-13, random_state=0),
    "online": lambda: nw.OnlineLearner(random_state=0),
    "exponentiated": lambda: nw.OnlineLearner("exponentiated_gradient", random_state=0),
    "pola": lambda: nw.OnlineLearner("pola", random_state=0),
    "embedding": lambda: nw.FixedRankEmbedding(1, input="kernel", geometry="flat", tol=1e-13, random_state=0),
}
REFUSED = {(name, kind) for name in ("online", "exponentiated", "pola") for kind in ("similarity", "linear")}
REFUSED.add(("embedding", "open"))  # there are no data to fill bounds from
CASES = [(name, kind) for name in LEARNERS for kind in SIDES if (name, kind) not in REFUSED]


def weighted(side: c.Constraints, counts: np.ndarray) -> c.Constraints:
    ends = np.cumsum([len(block) for block in side.blocks])[:-1]
    blocks = zip(side.blocks, np.split(counts.astype(float), ends), strict=True)
    return c.Constraints(tuple(replace(block, weights=part) for block, part in blocks))


def repeated(side: c.Constraints, counts: np.ndarray) -> c.Constraints:
    ends = np.cumsum([len(block) for block in side.blocks])[:-1]
    blocks = zip(side.blocks, np.split(counts, ends), strict=True)
    return c.Constraints(tuple(b.part(np.repeat(np.arange(len(b)), part)) for b, part in blocks))


def learned(name: str, side: c.Constraints) -> np.ndarray:
    learner = LEARNERS[name]()
    if name == "embedding":
        return np.asarray(learner.fit(X @ X.T, constraints=side).distances(squared=True))
    return np.asarray(learner.fit(X, constraints=side).distances(X, squared=True))


def test_every_kind_is_here() -> None:
    assert set(SIDES) == {*KINDS, "open"}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_weight_is_a_number_of_equal_constraints(name: str, kind: str) -> None:
    side = SIDES[kind]
    if (name, kind) == ("embedding", "comparison"):
        side += SIDES["distance"]  # comparisons alone let coordinates grow without bound
    counts = np.resize(COUNTS, len(side))
    found, expected = (learned(name, make(side, counts)) for make in (weighted, repeated))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * expected.max())
    if (name, kind) == ("pola", "distance"):
        return  # a projection that is repeated does nothing
    plain = learned(name, side)
    assert np.abs(plain - expected).max() > 1e-2 * expected.max()


def test_online_weights_need_not_be_whole() -> None:
    """Half a piece has half of the rate."""
    side = c.equal(PAIRS[:1], 9.0, weights=2.5)
    learner = nw.OnlineLearner(learning_rate=0.2, decay=0.0).partial_fit(X, constraints=side)
    expected = nw.OnlineLearner(learning_rate=0.2, decay=0.0)
    for rate in (0.2, 0.2, 0.1):
        expected.set_params(learning_rate=rate).partial_fit(X, constraints=c.equal(PAIRS[:1], 9.0))
    np.testing.assert_allclose(learner.distances(X), expected.distances(X), rtol=1e-12)
    assert learner.n_feedback_ == 3
    with pytest.raises(ValueError, match=r"1e\+12 are too many: divide them"):
        learner.partial_fit(X, constraints=c.equal(PAIRS[:1], 9.0, weights=1e12))


def test_pieces_have_the_weights_of_their_constraints() -> None:
    side = weighted(SIDES["distance"] + SIDES["comparison"], np.arange(1, 2 * M + 1))
    pieces = of_blocks(side.blocks)
    assert pieces.part(np.array([5, 2])).weights.tolist() == [6, 3]


@pytest.mark.parametrize("with_objects", [False, True])
def test_scores_count_weights(with_objects: bool) -> None:
    side, counts = SIDES["open"] + SIDES["comparison"], np.r_[COUNTS, COUNTS[::-1]]
    weights = np.arange(1.0, N + 1) if with_objects else None

    def score(rows: c.Constraints) -> float:
        given = Side(N, None, rows)
        return share_in_order(
            given, lambda i, j: np.square(X[i] - X[j]).sum(axis=1), np.random.RandomState(0), weights
        )

    assert score(weighted(side, counts)) == pytest.approx(score(repeated(side, counts)), rel=1e-12)
    assert score(weighted(side, counts)) != pytest.approx(score(side), rel=1e-3)
    learner = nw.MetricLearner(penalty=1.0).fit(X, constraints=side)
    whole = learner.score(X, constraints=repeated(side, counts), sample_weight=weights)
    assert learner.score(X, constraints=weighted(side, counts), sample_weight=weights) == pytest.approx(whole)


LABELLED = {
    "metric": lambda: nw.MetricLearner(
        penalty=1.0, pairs="random", n_pairs=10_000, tol=1e-11, random_state=0
    ),
    "kernel": lambda: nw.KernelLearner(
        "linear", penalty=1.0, pairs="random", n_pairs=10_000, tol=1e-11, random_state=0
    ),
    "reducer": lambda: nw.KernelReducer(
        D, kernel="linear", penalty=10.0, trace_weight=0.1, n_pairs=10_000, tol=1e-11, random_state=0
    ),
    "fixed rank": lambda: nw.FixedRankLearner(
        D, "flat", check=False, n_pairs=10_000, tol=1e-13, start=np.eye(D), random_state=0
    ),
}
Y = np.array(["a", "b", "c", "d"]).repeat(3)
Z = np.random.default_rng(4).normal(size=(12, D))


@pytest.mark.parametrize("name", ["metric", "kernel"])
def test_a_row_of_weight_k_is_there_k_times(name: str) -> None:
    """Where all pairs are drawn, and bounds come from them; pairs of equal rows teach nothing."""
    weights = np.array([1, 2, 1, 1, 3, 1, 2, 1, 1, 1, 1, 2])
    found = LABELLED[name]().fit(Z, Y, sample_weight=weights)
    again = LABELLED[name]().fit(np.repeat(Z, weights, axis=0), np.repeat(Y, weights))
    plain = LABELLED[name]().fit(Z, Y)
    np.testing.assert_allclose(found.distances(Z), again.distances(Z), rtol=1e-4, atol=1e-6)
    assert np.abs(found.distances(Z) - plain.distances(Z)).max() > 1e-3


@pytest.mark.parametrize("name", LABELLED)
def test_weights_of_rows_are_weights_of_their_pairs(name: str) -> None:
    weights = np.arange(1.0, 13.0)
    i, j = np.triu_indices(12, 1)
    same, counts = Y[i] == Y[j], weights[i] * weights[j]
    pairs = np.stack([i, j], axis=1)
    side = c.similar(pairs[same], counts[same]) + c.dissimilar(pairs[~same], counts[~same])
    found = LABELLED[name]().fit(Z, Y, sample_weight=weights)
    for other in (
        LABELLED[name]().fit(Z, constraints=side),
        LABELLED[name]().fit(
            Z, constraints=c.similar(pairs[same]) + c.dissimilar(pairs[~same]), sample_weight=weights
        ),
    ):
        np.testing.assert_allclose(found.distances(Z), other.distances(Z), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["metric", "kernel", "reducer"])
def test_nothing_is_known_of_rows_of_weight_zero(name: str) -> None:
    weights = np.array([1.0, 1.0, 0.0] * 4)
    kept = weights > 0
    side = c.closer([(0, 1, 2), (0, 3, 7)], 1.0)
    found = LABELLED[name]().fit(Z, Y, constraints=side, sample_weight=weights)
    labels = np.where(kept, Y, None)
    without = LABELLED[name]().fit(Z, labels, constraints=c.closer([(0, 3, 7)], 1.0))
    np.testing.assert_allclose(found.distances(Z), without.distances(Z), rtol=1e-4, atol=1e-6)


def test_a_stream_repeats_rows_and_tuples() -> None:
    weights = [2, 1, 0, 3]
    tuples = Z[:8].reshape(4, 2, D)
    found = nw.OnlineLearner().partial_fit(tuples, [1, -1, 1, 1], sample_weight=weights)
    again = nw.OnlineLearner().partial_fit(np.repeat(tuples, weights, axis=0), [1, 1, -1, 1, 1, 1])
    np.testing.assert_array_equal(found.distances(Z), again.distances(Z))
    stream = nw.OnlineLearner().partial_fit(Z[:3], ["a", "b", "a"], sample_weight=[1, 1, 2])
    assert stream.n_feedback_ == 1 + 2 + 2  # the second meets the first; the third meets both, twice
    silent = nw.OnlineLearner().partial_fit(Z[:3], ["a", "b", "a"], sample_weight=[1, 1, 0])
    assert silent.n_feedback_ == 1
    side = c.similar([(0, 1)]) + c.dissimilar([(1, 2)])
    objects = nw.OnlineLearner().partial_fit(Z[:3], constraints=side, sample_weight=[1, 2, 3])
    assert objects.n_feedback_ == 2 + 6


@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning", "ignore::nearwise.WorseThanEuclideanWarning")
def test_the_choice_of_a_penalty_counts_weights() -> None:
    """The held-out objects of a class that weighs nothing beside others do not choose."""
    weights = np.where(Y == "a", 1e-6, 1.0)
    found = nw.MetricLearner(random_state=0).fit(Z, Y, sample_weight=weights)
    plain = nw.MetricLearner(random_state=0).fit(Z, Y)
    assert found.penalty_scores_[0] != plain.penalty_scores_[0]
    assert nw.FixedRankLearner(2, random_state=0).fit(Z, Y, sample_weight=weights).scores_ is not None
    with pytest.raises(ValueError, match="Negative values"):
        nw.MetricLearner().fit(Z, Y, sample_weight=-weights)
