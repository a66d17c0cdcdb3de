"""Rows without a label count where the data alone speak: for priors and bases."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labelled rows, and others that vary along one more direction."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5)) * [1.0, 1.0, 1.0, 1.0, 0.01]
    y = np.arange(40) % 2
    X[:, 0] += 2.0 * y
    return X, y, rng.normal(size=(60, 5)) * [1.0, 1.0, 1.0, 1.0, 9.0]


@pytest.mark.filterwarnings("ignore:y. 60 of 100 rows are left out")  # which is said of -1
@pytest.mark.parametrize("mark", [-1, np.nan, None])
def test_the_prior_is_that_of_all_rows(mark: object) -> None:
    X, y, more = rows()
    everything = np.vstack([X, more])
    labels = np.array([*y, *[mark] * 60], dtype=object)
    learner = nw.MetricLearner(prior="covariance", penalty=1e-9, random_state=0).fit(everything, labels)
    np.testing.assert_allclose(
        learner.get_mahalanobis_matrix(), np.linalg.inv(np.cov(everything.T)), rtol=1e-4
    )
    weights = nw.MetricLearner(prior="covariance", penalty=1e-9, structure="diagonal").fit(everything, labels)
    np.testing.assert_allclose(weights.weights_, 1 / everything.var(axis=0, ddof=1), rtol=1e-6)


@pytest.mark.parametrize("basis", ["svd", "kmeans"])
def test_the_basis_is_that_of_all_rows(basis: str) -> None:
    X, y, more = rows()
    settings = {"rank": 2, "basis": basis, "penalty": 1.0, "random_state": 0}
    labels = np.r_[y.astype(float), np.full(60, np.nan)]
    learner = nw.MetricLearner(**settings).fit(np.vstack([X, more]), labels)
    alone = nw.MetricLearner(**settings).fit(X, y)
    assert np.linalg.norm(learner.metric_.basis[4]) > 0.9  # the direction in which only the others vary
    assert np.linalg.norm(alone.metric_.basis[4]) < 0.1
    assert learner.n_constraints_used_ <= 40 * 10  # and no pair is of a row without a label
