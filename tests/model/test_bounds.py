"""What "similar" means: the one rule for open bounds, and that every learner follows it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import nearwise as nw
from nearwise import constraints as c
from nearwise.side import bounds

rng = np.random.default_rng(11)


@pytest.mark.parametrize("count", [1, 2, 3, 20, 201])
@pytest.mark.parametrize("margin", [1.0, 2.0, 5.0])
def test_a_sample_gives_percentiles_that_keep_a_margin_from_the_median(count: int, margin: float) -> None:
    distances = rng.exponential(size=count)
    found = bounds.of_sample(np.append(distances, [0.0, 0.0]), margin)
    low, middle, high = np.percentile(distances, [5, 50, 95])
    assert found is not None
    expected = (min(low, middle / margin), middle, max(high, middle * margin))
    np.testing.assert_allclose((found.upper, found.threshold, found.lower), expected, rtol=1e-14)


def test_the_first_pair_alone_is_not_its_own_bound() -> None:
    found = bounds.of_sample(np.array([10.0]))
    assert found == bounds.OpenBounds(5.0, 10.0, 20.0)


def test_pairs_in_question_give_the_geometric_mean_of_their_medians() -> None:
    near, far = np.array([1.0, 2.0, 9.0, 0.0]), np.array([8.0])
    found = bounds.of_pairs(near, far)
    assert found is not None
    assert (found.upper, found.threshold, found.lower) == pytest.approx((2.0, 4.0, 8.0))
    alone = bounds.of_pairs(near, np.empty(0))
    assert alone is not None
    assert alone.threshold == pytest.approx(2.0)


def test_where_all_distances_are_zero_there_is_no_bound() -> None:
    assert bounds.of_sample(np.zeros(5)) is None
    assert bounds.of_pairs(np.zeros(5), np.empty(0)) is None


def test_only_open_bounds_are_filled_each_by_its_relation() -> None:
    side = c.similar([(0, 1)]) + c.dissimilar([(1, 2)]) + c.at_most([(0, 2)], 7.0) + c.closer([(0, 1, 2)])
    filled = bounds.OpenBounds(1.0, 2.0, 4.0).filled(side)
    assert filled.bounds.tolist() == [1.0, 4.0, 7.0, 0.0]
    assert bounds.with_margins(filled, 3.0).bounds.tolist() == [1.0, 4.0, 7.0, -3.0]


def test_pairs_are_all_of_few_objects_and_the_same_sample_of_many() -> None:
    few = bounds.sampled_pairs(5)
    assert sorted(map(tuple, few.tolist())) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    many = bounds.sampled_pairs(1000)
    assert 9_900 < len(many) <= 10_000
    assert (many[:, 0] != many[:, 1]).all()
    assert np.array_equal(many, bounds.sampled_pairs(1000))


X = rng.normal(size=(60, 3)) * [3.0, 1.0, 0.5]
ALL = pdist(X, "sqeuclidean")


def test_every_learner_of_a_metric_fills_by_the_rule() -> None:
    """The start is the identity in all of them: full-rank axes for the learner of fixed rank."""
    side = c.similar([(0, 1), (2, 3), (4, 5)]) + c.dissimilar([(6, 7), (8, 9)])
    of_all = bounds.of_sample(ALL)
    assert of_all is not None
    fixed = nw.FixedRankLearner(3, start="identity", check=False, random_state=0).fit(X, constraints=side)
    assert fixed.bounds_ == pytest.approx((of_all.upper, of_all.lower))
    assert fixed.margin_ == pytest.approx(of_all.threshold)
    pairs = [np.square(X[block.ids[:, 0]] - X[block.ids[:, 1]]).sum(axis=1) for block in side.blocks]
    of_pairs = bounds.of_pairs(*pairs)
    assert of_pairs is not None
    learner = nw.MetricLearner(penalty=1.0).fit(X, constraints=side)
    assert learner.result_ is not None
    shown = [violation.bound for violation in learner.result_.certificate.worst]
    assert shown
    assert all(np.isclose(bound, [of_pairs.upper, of_pairs.lower]).any() for bound in shown)
    problem = nw.Problem(X, side)
    assert problem.bounds == pytest.approx(np.percentile(ALL, [5, 5, 5, 95, 95]))
