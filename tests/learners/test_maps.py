"""Few dimensions of `MetricLearner`: directions in which neighbours tell classes, and their check."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from nearwise.learners._bases import linear_basis

rng = np.random.default_rng(0)
Y = np.arange(160) % 4
# four classes at the corners of a square, beside columns that vary more and tell nothing
X = np.column_stack([3.0 * (Y % 2), 3.0 * (Y // 2), np.zeros((160, 5))])
X += rng.normal(size=X.shape) * [0.6, 0.6, 4.0, 4.0, 4.0, 4.0, 4.0]


def accuracy(learner: nw.MetricLearner) -> float:
    """Of five neighbours among what `transform` gives, for rows that were not learned from."""
    learner.fit(X[:80], Y[:80])
    near = KNeighborsClassifier(5).fit(learner.transform(X[:80]), Y[:80])
    return float(near.score(learner.transform(X[80:]), Y[80:]))


@pytest.mark.parametrize("rank", [2, 3])
def test_few_dimensions_are_those_in_which_neighbours_tell_classes(rank: int) -> None:
    learner = nw.MetricLearner(rank=rank, random_state=0)
    by_means = nw.MetricLearner(rank=rank, basis="class_clusters", random_state=0)
    assert accuracy(learner) > 0.9 > accuracy(by_means)
    assert learner.transform(X).shape == (160, rank)
    # the two columns that tell are in the subspace, and M is the identity outside it
    basis = learner.metric_.basis
    assert np.linalg.norm(basis[:2]) ** 2 > 1.9
    outside = np.linalg.svd(basis, full_matrices=True)[0][:, rank:]
    np.testing.assert_allclose(learner.get_mahalanobis_matrix() @ outside, outside, atol=1e-9)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_the_name_of_the_basis_asks_for_it_at_any_rank(rank: int) -> None:
    named = nw.MetricLearner(rank=rank, basis="neighbors", penalty=1.0, random_state=0).fit(X, Y)
    default = nw.MetricLearner(rank=rank, penalty=1.0, random_state=0).fit(X, Y)
    assert named.rank_ == rank
    assert np.array_equal(named.metric_.basis, default.metric_.basis) == (rank <= 3)
    with pytest.raises(ValueError, match="basis='neighbors' needs labels y"):
        nw.MetricLearner(rank=rank, basis="neighbors").fit(X)


def test_directions_that_hold_for_the_labelled_rows_alone_are_not_learned() -> None:
    """Where there are more columns than rows, some two always tell classes, whatever the labels are."""
    noise, labels = rng.normal(size=(40, 60)), np.arange(40) % 2
    with pytest.warns(nw.PriorKeptWarning, match="no penalty that was tried"):
        learner = nw.MetricLearner(rank=2, random_state=0).fit(noise, labels)
    near = KNeighborsClassifier(5).fit(learner.transform(noise), labels)
    assert near.score(learner.transform(noise), labels) > 0.9  # of rows that the directions were made from


def test_sparse_and_wide_rows_have_such_directions_too() -> None:
    expected = linear_basis(X, "neighbors", 2, Y, np.random.RandomState(0))
    found = linear_basis(sparse.csr_array(X), "neighbors", 2, Y, np.random.RandomState(0))
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=0.05)
    wide = np.hstack([X, 0.01 * rng.normal(size=(160, 300))])
    basis = linear_basis(wide, "neighbors", 2, Y, np.random.RandomState(0))
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    assert np.linalg.norm(basis[:2]) ** 2 > 1.5


def test_rows_without_a_label_or_a_weight_make_no_directions() -> None:
    y = np.where(np.arange(160) < 100, Y, np.nan)
    weights = np.where(np.arange(160) < 100, 1.0, 0.0)
    few = nw.MetricLearner(rank=2, penalty=1.0, random_state=0)
    expected = few.fit(X[:100], Y[:100]).metric_.basis
    for found in (few.fit(X, y), few.fit(X, Y, sample_weight=weights)):
        basis = found.metric_.basis
        np.testing.assert_allclose(basis @ basis.T, expected @ expected.T, atol=1e-6)
