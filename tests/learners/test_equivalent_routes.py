"""The same question asked in two ways has the same answer: units, containers, blocks, weights and labels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from nearwise import constraints as c

RNG = np.random.default_rng(7)
X = RNG.standard_normal((60, 4)) @ np.array([[1, 0.5, 0, 0], [0, 1, 0.3, 0], [0, 0, 1, 0.2], [0, 0, 0, 1.0]])
Y = (X[:, 0] + 0.3 * RNG.standard_normal(60) > 0).astype(int)
PAIRS = np.stack([np.arange(58), np.arange(2, 60)], axis=1)
SIDE = c.similar(PAIRS[::2]) + c.dissimilar(PAIRS[1::2])
UNITS = np.array([1e-5, 1.0, 10.0, 1e4])


@pytest.mark.parametrize("n_rows", [60, 400])  # of which distances are computed in two ways
@pytest.mark.parametrize(
    "learner",
    [
        nw.MetricLearner(penalty=1.0),
        nw.MetricLearner(penalty=1.0, basis="svd", rank=2),
        nw.MetricLearner(penalty=1.0, structure="diagonal"),
        nw.FixedRankLearner(check=False, random_state=0),
        nw.KernelReducer(kernel="linear"),
    ],
    ids=["full", "subspace", "diagonal", "fixed rank", "reducer"],
)
def test_distances_far_from_zero_are_those_of_pairs(learner: Any, n_rows: int) -> None:
    rows = RNG.standard_normal((n_rows, 4)) + 1e6
    fitted = learner.fit(X, constraints=SIDE)
    i, j = np.triu_indices(n_rows, 1)
    pairs = fitted.pair_distance(np.stack([i, j], axis=1), rows)
    np.testing.assert_allclose(fitted.distances(rows)[i, j], pairs, rtol=1e-5)


@pytest.mark.parametrize("groups", [None, [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3]])
def test_units_of_columns_do_not_matter_to_the_covariance_prior(groups: list[int] | None) -> None:
    form: dict[str, Any] = {} if groups is None else {"structure": "blocks", "groups": groups}
    learner = nw.MetricLearner(prior="covariance", penalty=1.0, tol=1e-10, **form)
    expected = learner.fit(X, constraints=SIDE).pair_distance(PAIRS, X)
    found = learner.fit(X * UNITS, constraints=SIDE).pair_distance(PAIRS, X * UNITS)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_prior_beyond_double_precision_is_told_of_where_units_matter() -> None:
    with pytest.warns(UserWarning, match="the prior is too small in some columns"):
        nw.MetricLearner("vonneumann", prior="covariance", penalty=1.0).fit(X * UNITS, constraints=SIDE)


@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_constant_column_has_no_weight_in_the_covariance_prior(as_given: Any) -> None:
    rows = np.hstack([X, np.full((60, 1), 0.1), X[:, :1] + 1e6])
    learner = nw.MetricLearner(prior="covariance", structure="diagonal", penalty=1.0)
    start = learner.fit(as_given(rows), constraints=SIDE).start_metric_.weights
    np.testing.assert_allclose(start[:4], 1.0 / X.var(axis=0, ddof=1))
    assert start[4] == 0.0
    assert start[5] == pytest.approx(start[0], rel=1e-6)


def test_blocks_of_one_column_start_from_the_weights_of_columns() -> None:
    rows = np.hstack([X * UNITS, np.full((60, 1), 0.1)])
    how: dict[str, Any] = {"prior": "covariance", "penalty": 1.0, "tol": 1e-10}
    weights = nw.MetricLearner(structure="diagonal", **how).fit(rows, constraints=SIDE)
    blocks = nw.MetricLearner(structure="blocks", groups=list(range(5)), **how).fit(rows, constraints=SIDE)
    np.testing.assert_allclose(
        blocks.pair_distance(PAIRS, rows), weights.pair_distance(PAIRS, rows), rtol=1e-4
    )


def test_gamma_of_data_far_from_zero() -> None:
    expected = 1.0 / (4 * (X + 1e6).var())
    for rows in (X + 1e6, sparse.csr_array(X + 1e6)):
        learner = nw.KernelLearner("poly", gamma="scale", degree=1, penalty=1.0, rank=3)
        assert learner._gammas(rows) == [pytest.approx(expected, rel=1e-9)]
    fixed = nw.FixedRankLearner(kernel="rbf", n_basis=10, check=False, random_state=0).fit(X + 1e6, Y)
    assert fixed.features_.kernel.parameters["gamma"] == pytest.approx(expected, rel=1e-9)
    half_empty = np.where(X > 0, X, 0.0)
    (found,) = nw.KernelLearner(gamma="scale")._gammas(sparse.csr_array(half_empty))
    assert found == pytest.approx(1.0 / (4 * half_empty.var()))


def test_rows_of_constraints_may_come_in_one_block_or_one_each() -> None:
    single = [c.similar([pair]) for pair in PAIRS[::2]] + [c.dissimilar([pair]) for pair in PAIRS[1::2]]
    many = sum(single[1:], single[0])
    together, alone = (
        nw.MetricLearner(random_state=0, n_pairs=5).fit(X * [3, 1, 1, 1], constraints=side)
        for side in (SIDE, many)
    )
    assert alone.penalty_scores_ == pytest.approx(np.array(together.penalty_scores_))
    np.testing.assert_allclose(alone.components_, together.components_, rtol=1e-6)


def test_sparse_rows_make_the_same_map() -> None:
    learner = nw.MetricLearner(rank=2, random_state=0)
    expected = learner.fit(X, Y).pair_distance(PAIRS, X)
    np.testing.assert_allclose(
        learner.fit(sparse.csr_array(X), Y).pair_distance(PAIRS, X), expected, rtol=1e-6
    )


@pytest.mark.parametrize(
    "learner",
    [nw.MetricLearner(penalty=1.0, pairs="random"), nw.KernelReducer(), nw.OnlineLearner()],
    ids=lambda learner: type(learner).__name__,
)
def test_a_row_of_weight_zero_is_one_without_a_label(learner: Any) -> None:
    weights = np.ones(60)
    weights[: np.flatnonzero(Y[0] != Y)[0]] = 0.0  # so that the other class comes first
    labels = [None if weight == 0.0 else int(label) for label, weight in zip(Y, weights, strict=True)]
    learner.set_params(random_state=0, n_pairs=40)
    expected = learner.fit(X, labels).pair_distance(PAIRS, X)
    np.testing.assert_allclose(learner.fit(X, Y, sample_weight=weights).pair_distance(PAIRS, X), expected)


@pytest.mark.parametrize("n_rows", [60, 120])  # all of which span the basis, or some
@pytest.mark.parametrize("is_precomputed", [False, True])
def test_a_kernel_that_hides_distances_is_told_of(n_rows: int, is_precomputed: bool) -> None:
    rows = np.vstack([X, X + 0.1])[:n_rows]
    learner = nw.KernelLearner("precomputed" if is_precomputed else "linear", penalty=1.0, random_state=0)
    for offset in (0.0, 1e6):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            far = rows + offset
            learner.fit(far @ far.T if is_precomputed else far, constraints=SIDE)
        told = [str(warning.message) for warning in said]
        hidden = any("of the squared distances between objects cannot be learned" in text for text in told)
        assert hidden == (is_precomputed and offset > 0.0)  # columns are centred, values have lost the digits


@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (nw.FixedRankLearner(check=False, random_state=0), (X, Y)),
        (nw.FixedRankRegressor(), (X, np.square(X[:, 0]))),
        (nw.FixedRankRegressor(solver="online"), (X, np.square(X[:, 0]))),
        (nw.FixedRankEmbedding(), (np.square(X[:, None] - X).sum(axis=2),)),
    ],
    ids=["learner", "regressor", "online", "embedding"],
)
def test_a_run_of_fixed_rank_that_is_interrupted_says_so(estimator: Any, given: Any) -> None:
    estimator.set_params(callback=lambda record: True)
    with pytest.warns(ConvergenceWarning, match=type(estimator).__name__):
        assert estimator.fit(*given).status_ is nw.Status.INTERRUPTED


def test_distances_of_objects_to_themselves_are_not_used() -> None:
    squares = np.square(X[:9, None] - X[:9]).sum(axis=2)
    expected = nw.FixedRankEmbedding().fit(squares).embedding_
    np.fill_diagonal(squares, np.nan)
    np.testing.assert_array_equal(nw.FixedRankEmbedding().fit(squares).embedding_, expected)
    squares[3, 3] = 5.0
    with pytest.warns(UserWarning, match=r"X\[3, 3\] is 5 and not used"):
        np.testing.assert_array_equal(nw.FixedRankEmbedding().fit(squares).embedding_, expected)
