"""What "similar" means: the one rule for open bounds, and that every learner follows it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import nearwise as nw
from nearwise import constraints as c

rng = np.random.default_rng(11)
SIDE = c.similar([(0, 1)]) + c.dissimilar([(0, 1)])


def fixed_rank(X: np.ndarray, side: c.Constraints) -> nw.FixedRankLearner:
    """Starts at the identity, so that the distances by which it fills are those of the data."""
    learner = nw.FixedRankLearner(X.shape[1], start="identity", check=False, random_state=0)
    return learner.fit(X, constraints=side)


@pytest.mark.parametrize("count", [2, 3, 7, 21])
@pytest.mark.parametrize("margin", [1.0, 2.0])
def test_a_sample_gives_percentiles_that_keep_a_margin_from_the_median(count: int, margin: float) -> None:
    """That of a problem is 1, of learners 2; equal objects, here the first and the last, do not count."""
    X = rng.normal(size=(count, 2)) * [1.0, 3.0]
    X = np.concatenate([X, X[:1]])
    distances = pdist(X, "sqeuclidean")
    low, middle, high = np.percentile(distances[distances > 0], [5, 50, 95])
    expected = min(low, middle / margin), max(high, middle * margin)
    if margin == 1.0:
        assert nw.Problem(X, SIDE).bounds == pytest.approx(expected, rel=1e-14)
    else:
        learner = fixed_rank(X, SIDE)
        assert learner.bounds_ == pytest.approx(expected, rel=1e-14)
        assert learner.margin_ == pytest.approx(middle, rel=1e-14)


def test_the_first_pair_alone_is_not_its_own_bound() -> None:
    learner = fixed_rank(np.array([[0.0, 0.0], [1.0, 3.0]]), SIDE)
    assert (*learner.bounds_, learner.margin_) == (5.0, 20.0, 10.0)


@pytest.mark.parametrize(
    ("far", "upper", "lower"), [([np.sqrt(8.0)], 2.0, 8.0), ([], 1.0, None)], ids=["both", "similar only"]
)
def test_pairs_in_question_give_the_geometric_mean_of_their_medians(
    far: list[float], upper: float, lower: float | None
) -> None:
    """Half and twice of it. Similar pairs are at 1, 2, 9 and 0, whose median without the 0 is 2."""
    ends = np.array([1.0, np.sqrt(2.0), 3.0, 0.0, *far])
    X = np.ravel(np.stack([10.0 * np.arange(len(ends)), 10.0 * np.arange(len(ends)) + ends], axis=1))[:, None]
    pairs = np.arange(len(X)).reshape(-1, 2)
    side = c.similar(pairs[:4]) + c.dissimilar(pairs[4:])
    learner = nw.MetricLearner(penalty=1e-3).fit(X, constraints=side)
    assert learner.result_ is not None
    shown = {violation.row: violation.bound for violation in learner.result_.certificate.worst}
    assert shown[2] == pytest.approx(upper, rel=1e-12)
    assert shown.get(4) == (None if lower is None else pytest.approx(lower, rel=1e-12))


def test_where_all_distances_are_zero_there_is_no_bound() -> None:
    with pytest.raises(ValueError, match="all objects have the same features, so no bound can be filled"):
        nw.Problem(np.ones((5, 2)), SIDE)


def test_only_open_bounds_are_filled_each_by_its_relation() -> None:
    side = c.similar([(0, 1)]) + c.dissimilar([(1, 2)]) + c.at_most([(0, 2)], 7.0) + c.closer([(0, 1, 2)])
    X = rng.normal(size=(9, 2))
    low, high = np.percentile(pdist(X, "sqeuclidean"), [5, 95])
    assert nw.Problem(X, side).bounds == pytest.approx([low, high, 7.0, 0.0])


def test_the_bounds_of_many_objects_come_from_the_same_sample_of_pairs() -> None:
    X = rng.normal(size=(1000, 2))
    bounds = nw.Problem(X, SIDE).bounds
    assert np.array_equal(bounds, nw.Problem(X, SIDE).bounds)
    assert np.array_equal(bounds, nw.Problem(2.0 * X, SIDE).bounds / 4.0)
    assert bounds == pytest.approx(np.percentile(pdist(X, "sqeuclidean"), [5, 95]), rel=0.1)


X = rng.normal(size=(60, 3)) * [3.0, 1.0, 0.5]
ALL = pdist(X, "sqeuclidean")


def test_every_learner_of_a_metric_fills_by_the_rule() -> None:
    """The start is the identity in all of them: full-rank axes for the learner of fixed rank."""
    side = c.similar([(0, 1), (2, 3), (4, 5)]) + c.dissimilar([(6, 7), (8, 9)])
    low, middle, high = np.percentile(ALL, [5, 50, 95])
    fixed = fixed_rank(X, side)
    assert fixed.bounds_ == pytest.approx((min(low, middle / 2), max(high, middle * 2)))
    assert fixed.margin_ == pytest.approx(middle)
    pairs = [np.square(X[block.ids[:, 0]] - X[block.ids[:, 1]]).sum(axis=1) for block in side.blocks]
    threshold = np.sqrt(np.prod([np.median(squared) for squared in pairs]))
    learner = nw.MetricLearner(penalty=1.0).fit(X, constraints=side)
    assert learner.result_ is not None
    shown = [violation.bound for violation in learner.result_.certificate.worst]
    assert shown
    assert all(np.isclose(bound, [threshold / 2, threshold * 2]).any() for bound in shown)
    problem = nw.Problem(X, side)
    assert problem.bounds == pytest.approx(np.percentile(ALL, [5, 5, 5, 95, 95]))


def test_comparisons_without_a_margin_get_the_median() -> None:
    triplets = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    bare, stated = (fixed_rank(X, c.closer(triplets, margin)) for margin in (0.0, float(np.median(ALL))))
    assert bare.get_mahalanobis_matrix() == pytest.approx(stated.get_mahalanobis_matrix(), rel=1e-12)
    assert not np.allclose(bare.get_mahalanobis_matrix(), np.eye(3))
