"""Weights of constraints: a row of weight k counts like k equal rows."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c

G = np.random.default_rng(0).normal(size=(8, 3))


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()])
def test_a_weight_is_a_number_of_repetitions(divergence):
    weighted = c.at_most([(0, 1), (2, 3)], 0.5, weights=[3, 2]) + c.closer([(4, 5, 6)], 0.1, weights=2)
    repeated = c.at_most([(0, 1)] * 3 + [(2, 3)] * 2, 0.5) + c.closer([(4, 5, 6)] * 2, 0.1)
    plain = c.at_most([(0, 1), (2, 3)], 0.5) + c.closer([(4, 5, 6)], 0.1)
    M, again, other = (
        nw.solve(nw.Problem(G, side, divergence, penalty=0.7), tol=1e-10).matrix
        for side in (weighted, repeated, plain)
    )
    np.testing.assert_allclose(M, again, rtol=1e-6, atol=1e-8)
    assert np.abs(M - other).max() > 1e-3


def test_weights_multiply_penalties_and_stay_with_their_rows():
    side = c.similar([(0, 1), (1, 2), (2, 3)], weights=[1, 2, 3]) + c.dissimilar([(0, 7)])
    assert side.weights.tolist() == [1, 2, 3, 1]
    assert side.restricted_to([1, 2, 3])[0].weights.tolist() == [2, 3]
    assert nw.constraints.Constraints(side.resolve(8)).weights.tolist() == [1, 2, 3, 1]
    assert nw.Problem(G, side, penalty=[1, 10, 100, np.inf]).penalties.tolist() == [1, 20, 300, np.inf]


def test_a_learner_counts_them():
    pairs, far = [(0, 1), (2, 3)], [(0, 4), (1, 5)]
    learner = nw.MetricLearner(penalty=0.5).fit(
        G, constraints=c.at_most(pairs, 0.5, weights=[2, 4]) + c.at_least(far, 2.0)
    )
    again = nw.MetricLearner(penalty=0.5).fit(
        G, constraints=c.at_most([(0, 1)] * 2 + [(2, 3)] * 4, 0.5) + c.at_least(far, 2.0)
    )
    np.testing.assert_allclose(
        learner.get_mahalanobis_matrix(), again.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(("weights", "message"), [([1, 0], "row 1: weight is 0"), ([1], "one per row, 2")])
def test_wrong_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        c.similar([(0, 1), (1, 2)], weights=weights)


def test_a_wrong_weight_of_a_matrix_is_named():
    with pytest.raises(ValueError, match="weight is -1"):
        c.linear([np.eye(3), np.eye(3)], 1.0, "==", weights=-1.0)


def test_tuples_have_weights():
    X, side = c.from_tuples(G[[[0, 1], [2, 3], [4, 5]]], [1, -1, 1], weights=[1, 2, 3])
    assert side.weights.tolist() == [1, 3, 2]  # similar pairs come first
    np.testing.assert_array_equal(X[side.blocks[1].ids[0]], G[[2, 3]])
    assert c.from_tuples(G[[[0, 1, 2], [3, 4, 5]]], weights=[2, 3])[1].weights.tolist() == [2, 3]
    with pytest.raises(ValueError, match="tuple 1: weight is 0"):
        c.from_tuples(G[[[0, 1, 2], [3, 4, 5]]], weights=[2, 0])
