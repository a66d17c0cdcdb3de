"""Hostile priors, kernels and matrices, one row a case, for all that takes one: a result or an error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import nearwise as nw
from nearwise import constraints as c

ORDER = 5
FEATURES = np.random.default_rng(0).normal(size=(ORDER, ORDER))
PROPER = FEATURES @ FEATURES.T + np.eye(ORDER)
VECTORS = np.linalg.eigh(PROPER)[1]
SIDE = c.at_most([(0, 1)], 1.0) + c.at_least([(2, 4)], 3.0)
OPEN = c.similar([(0, 1)]) + c.dissimilar([(2, 4)])


def of_prior(divergence: nw.Divergence) -> Callable[[Any], Any]:
    return lambda A: nw.solve(nw.Problem(FEATURES, SIDE, divergence, prior=A)).matrix


TAKERS: dict[str, Callable[[Any], Any]] = {
    "prior, LogDet": of_prior(nw.LogDet()),
    "prior, von Neumann": of_prior(nw.VonNeumann()),
    "prior, Frobenius": of_prior(nw.Frobenius()),
    "kernel of a problem": lambda A: nw.solve(nw.Problem.from_kernel(A, SIDE)).matrix,
    "prior of a learner": lambda A: (
        nw.MetricLearner(prior=A, penalty=1.0).fit(FEATURES, constraints=OPEN).transform(FEATURES)
    ),
    "prior of an online learner": lambda A: (
        nw.OnlineLearner(prior=A, random_state=0).fit(FEATURES, constraints=OPEN).transform(FEATURES)
    ),
    "kernel of a learner": lambda A: (
        nw.KernelLearner("precomputed", penalty=1.0).fit(A, constraints=OPEN).transform(A)
    ),
    "kernel of a reducer": lambda A: (
        nw.KernelReducer(kernel="precomputed").fit(A, constraints=OPEN).transform(A)
    ),
    "kernel of fixed rank": lambda A: (
        nw.FixedRankLearner(2, kernel="precomputed", check=False, random_state=0)
        .fit(A, constraints=OPEN)
        .transform(A)
    ),
    "nearest correlation": lambda A: nw.nearest_correlation(A).matrix,
    "nearest correlation, LogDet": lambda A: nw.nearest_correlation(A, divergence="logdet").matrix,
    "nearest covariance": lambda A: nw.nearest_covariance(A).matrix,
    "kernel of clusters": lambda A: nw.kernel_k_means(A, 2, random_state=0),
}
PRIORS = (
    "prior, LogDet",
    "prior, von Neumann",
    "prior, Frobenius",
    "prior of a learner",
    "prior of an online learner",
)
LEARNERS = ("kernel of a learner", "kernel of a reducer", "kernel of fixed rank")
NEAREST = ("nearest correlation", "nearest correlation, LogDet", "nearest covariance")

GOOD = ""  # a finite result
Expected = dict[str, str]


def rows(default: str, *parts: tuple[tuple[str, ...] | str, str]) -> Expected:
    """What is expected of every taker: the default, but for those that are named."""
    found = dict.fromkeys(TAKERS, default)
    for names, text in parts:
        found |= dict.fromkeys((names,) if isinstance(names, str) else names, text)
    if found["nearest correlation"] == GOOD:  # but for their diagonals
        found["nearest correlation"] = "entries of the diagonal are not 1.*use nearest_covariance"
    return found


def at(value: float) -> Any:
    A = PROPER.copy()
    A[1, 2] = A[2, 1] = value
    return A


INDEFINITE = "must be positive semidefinite, but (its matrix )?has the eigenvalue -2.8"
NO_NUMBERS = "could not convert string to float"
CASES: dict[str, tuple[Any, Expected]] = {
    "as it should be": (PROPER, rows(GOOD)),
    "single precision": (PROPER.astype(np.float32), rows(GOOD)),
    "whole numbers of one byte": ((PROPER * 10).round().astype(np.int8), rows(GOOD)),
    "indefinite": (
        PROPER - 4 * np.eye(ORDER),
        rows(
            INDEFINITE,
            (("prior, Frobenius", "nearest correlation"), GOOD),
            ("nearest correlation, LogDet", "A must be positive semidefinite for this divergence, but has"),
            ("nearest covariance", r"variable 0: variance is -2\.25\d*, expected a finite number > 0"),
        ),
    ),
    "not symmetric": (
        PROPER + np.triu(np.ones((ORDER, ORDER)), 1),
        rows(r"must be symmetric, but .*\[0, 2\] = 0\.07\d+ and .*\[2, 0\] = -0\.92"),
    ),
    "not a number": (
        at(np.nan),
        rows(
            r"\[1, 2\] is nan; every entry must be finite",
            (LEARNERS, "Input X contains NaN"),
            (("nearest correlation", "nearest covariance"), GOOD),  # an entry that is not known
            ("nearest correlation, LogDet", r"A\[1, 2\] is nan; only the Frobenius norm"),
        ),
    ),
    "infinity": (
        at(np.inf),
        rows(r"\[1, 2\] is inf; every entry must be finite", (LEARNERS, "Input X contains infinity")),
    ),
    "singular": (FEATURES[:, :2] @ FEATURES[:, :2].T, rows(GOOD)),
    "condition number 1e14": ((VECTORS * np.logspace(0, 14, ORDER)) @ VECTORS.T, rows(GOOD)),
    "condition number 1e20": ((VECTORS * np.logspace(-10, 10, ORDER)) @ VECTORS.T, rows(GOOD)),
    "of another order": (
        PROPER[:4, :4],
        rows(
            GOOD,
            (PRIORS, r"prior must have shape \(5, 5\) like the features.*, got \(4, 4\)"),
            (
                ("kernel of a problem", *LEARNERS),
                r"row 1: d\(2, 4\) .*: the id 4 is not a row number below 4",
            ),
        ),
    ),
    "not square": (
        PROPER[:, :4],
        rows("square|shape"),
    ),
    "one dimension": (PROPER[0], rows("2-dimensional|Expected 2D array|square matrix")),
    "zero": (
        np.zeros((ORDER, ORDER)),
        rows(
            "zero",
            (("prior, Frobenius", "nearest correlation", "kernel of clusters"), GOOD),
            ("prior of an online learner", "prior must be positive semidefinite, but has the eigenvalue 0"),
            ("nearest covariance", r"variable 0: variance is 0\.0, expected a finite number > 0"),
        ),
    ),
    "complex": (PROPER + 1j, rows("must be real|Complex data not supported")),
    "words": (np.full((ORDER, ORDER), "a"), rows(NO_NUMBERS, (NEAREST, "A must be real numbers, got <U1"))),
    "no rows": (
        np.empty((0, 0)),
        rows(r"(shape|got) \(0, 0\)|\(shape=\(0, 0\)\)|is zero|n_clusters must be from 1 to 0"),
    ),
    "rows of different length": ([[1, 2], [3]], rows("inhomogeneous|regular|sequence|same length|ragged")),
    "negative": (
        -PROPER,
        rows(
            "positive semidefinite",
            (("prior, Frobenius", "nearest correlation"), GOOD),
            ("nearest covariance", "variable 0: variance is -"),
        ),
    ),
    "1e150": (
        PROPER * 1e150,
        rows(
            GOOD,
            (
                ("prior, LogDet", "prior, von Neumann", "prior, Frobenius", "kernel of a problem"),
                "double precision bears a factor of",
            ),
            (NEAREST, r"A has an entry of size 8\.39\d+e\+150, too large to be squared and added up"),
        ),
    ),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("case", CASES)
def test_hostile_matrices(case: str, taker: str) -> None:
    given, expected = CASES[case]
    text = expected[taker]
    before = np.array(given) if isinstance(given, np.ndarray) else None
    with warnings.catch_warnings():
        # of clusters that coincide, and of coordinates that are left out
        warnings.filterwarnings("ignore", "Number of distinct clusters|KernelReducer", UserWarning)
        if text == GOOD:
            assert np.isfinite(TAKERS[taker](given)).all()
        else:
            with pytest.raises((ValueError, TypeError)) as refusal:
                TAKERS[taker](given)
            assert re.search(text, str(refusal.value)), str(refusal.value)
    if before is not None:
        np.testing.assert_array_equal(given, before)  # inputs are never changed


DIAGONALS: dict[str, tuple[Any, str]] = {
    "weights": ([1.0, 2.0, 3.0, 4.0, 5.0], GOOD),
    "a diagonal matrix": (np.diag([1.0, 2.0, 3.0, 4.0, 5.0]), GOOD),
    "weights of 1e-8 to 1e8": (np.logspace(-8, 8, ORDER), GOOD),
    "some zeros": ([1.0, 0.0, 3.0, 0.0, 5.0], GOOD),
    "zeros": (np.zeros(ORDER), "prior is zero, so no other matrix is at a finite divergence from it"),
    "a negative one": ([1.0, 2.0, -3.0, 4.0, 5.0], "prior must be weights >= 0, got -3 for column 2"),
    "not a number": ([1.0, np.nan, 3.0, 4.0, 5.0], r"prior\[1\] is nan; every entry must be finite"),
    "infinity": ([1.0, np.inf, 3.0, 4.0, 5.0], r"prior\[1\] is inf; every entry must be finite"),
    "too few": (np.ones(4), r"prior must be 5 weights like the columns, got shape \(4,\)"),
    "complex": (np.ones(ORDER) + 1j, "prior must be real, got complex numbers"),
    "words": (["a"] * ORDER, NO_NUMBERS),
    "a full matrix": (PROPER, "with structure='diagonal' the prior must be d weights, or a diagonal matrix"),
}


@pytest.mark.parametrize("case", DIAGONALS)
@pytest.mark.parametrize("divergence", ["logdet", "vonneumann", "frobenius"])
def test_priors_of_diagonal_matrices(divergence: str, case: str) -> None:
    given, text = DIAGONALS[case]
    learner = nw.MetricLearner(divergence, structure="diagonal", prior=given, penalty=1.0)
    if text == GOOD:
        assert np.isfinite(learner.fit(FEATURES, constraints=OPEN).weights_).all()
    else:
        with pytest.raises(ValueError, match=text):
            learner.fit(FEATURES, constraints=OPEN)


BOOSTED: dict[str, tuple[Any, nw.Status | str]] = {
    "indefinite": (PROPER - 4 * np.eye(ORDER), nw.Status.SOLVED),
    "definite": (PROPER, nw.Status.INFEASIBLE),
    "condition number 1e14": ((VECTORS * np.logspace(0, 14, ORDER)) @ VECTORS.T, nw.Status.INFEASIBLE),
    "1e150": (PROPER * 1e150, nw.Status.INFEASIBLE),
    "1e-150": (PROPER * 1e-150, nw.Status.INFEASIBLE),
    "not a number": (at(np.nan), r"matrices\[0, 1, 2\] is nan; every entry must be finite"),
    "no rows": (
        np.empty((0, 0)),
        r"matrices must be square and at least one, got an array of shape \(1, 0, 0\)",
    ),
    "one dimension": (PROPER[0], r"matrices must be 3-dimensional, got shape \(1, 5\)"),
}


@pytest.mark.parametrize("case", BOOSTED)
def test_boosted_matrices(case: str) -> None:
    given, expected = BOOSTED[case]
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            nw.definite_boost([given])
        return
    result = nw.definite_boost([given])
    assert result.status is expected
    assert np.isfinite(result.matrix).all()


def test_a_sparse_prior_is_refused_or_read() -> None:
    with pytest.raises((TypeError, ValueError), match="prior"):
        nw.Problem(FEATURES, SIDE, prior=sparse.csr_array(PROPER))
    np.testing.assert_allclose(
        nw.nearest_covariance(sparse.csr_array(PROPER)).matrix,
        nw.nearest_covariance(PROPER).matrix,
        atol=1e-6,
    )
