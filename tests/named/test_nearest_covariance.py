"""The nearest covariance matrix: every option against the definition in units of the standard deviations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw

S = np.array([1e-3, 1.0, 30.0, 5.0, 1e4])
UNITS = np.outer(S, S)
RNG = np.random.default_rng(0)
W = RNG.uniform(0.1, 2.0, size=(5, 5))
W = (W + W.T) / 2
C = np.tanh(RNG.normal(size=(5, 5)))
C = (C + C.T) / 2
np.fill_diagonal(C, 1.0)
C[0, 1] = C[1, 0] = 0.3
FIXED = np.zeros((5, 5), bool)
FIXED[0, 1] = FIXED[1, 0] = True
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "fixed": {"fixed": FIXED},
    "of variables": {"weights": W[0], "fixed": FIXED},
    "of entries": {"weights": W, "fixed": FIXED},
}


def optimum(options: dict[str, Any], raised: np.ndarray) -> tuple[float, np.ndarray]:
    """By cvxpy: the weighted squares in units of S, with entries that are given raised by some numbers."""
    cvxpy = pytest.importorskip("cvxpy")
    weights = options.get("weights", np.ones((5, 5)))
    weights = np.outer(weights, weights) if weights.ndim == 1 else weights
    X = cvxpy.Variable((5, 5), PSD=True)
    given = np.eye(5, dtype=bool) | options.get("fixed", np.eye(5, dtype=bool))
    distance = cvxpy.sum_squares(cvxpy.multiply(np.sqrt(weights), X - C))
    problem = cvxpy.Problem(
        cvxpy.Minimize(distance), [cvxpy.multiply(given * 1.0, X - C - raised / UNITS) == 0]
    )
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(problem.value), X.value * UNITS


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_are_those_of_correlations_and_multipliers_slopes_by_entries(options: dict[str, Any]) -> None:
    assert np.linalg.eigvalsh(C)[0] < -0.1
    found = nw.nearest_covariance(C * UNITS, tol=1e-10, **options)
    assert found.status is nw.Status.SOLVED
    value, X = optimum(options, np.zeros((5, 5)))
    np.testing.assert_allclose(found.matrix / UNITS, X / UNITS, atol=1e-5)
    assert found.certificate.primal == pytest.approx(value, rel=1e-6)
    np.testing.assert_array_equal(found.matrix, found.matrix.T)
    np.testing.assert_array_equal(np.diag(found.matrix), np.diag(C * UNITS))
    entries = [(0, 0), (4, 4)] + [(0, 1)] * ("fixed" in options)
    for (i, j), multiplier in zip(entries, found.dual[[0, 4, 5][: len(entries)]], strict=True):
        step = np.zeros((5, 5))
        step[i, j] = step[j, i] = 1e-3 * UNITS[i, j]
        slope = (optimum(options, step)[0] - optimum(options, -step)[0]) / (2 * step[i, j])
        assert -multiplier == pytest.approx(slope, rel=1e-3)
    if "fixed" in options:
        np.testing.assert_allclose(found.matrix[FIXED], (C * UNITS)[FIXED], rtol=1e-9)


@pytest.mark.parametrize(
    ("divergence", "gradient"),
    [("logdet", lambda X: -np.linalg.inv(X)), (nw.VonNeumann(), None)],
    ids=["logdet", "vonneumann"],
)
def test_other_divergences_are_stationary_in_units_of_the_deviations(divergence: Any, gradient: Any) -> None:
    """The slopes of the divergence at X differ from those at A on the diagonal alone, by the multipliers."""
    from scipy.linalg import logm

    A = C @ C.T + np.eye(5)
    found = nw.nearest_covariance(A * UNITS, variances=S**2, divergence=divergence, tol=1e-12)
    assert found.status is nw.Status.SOLVED
    np.testing.assert_array_equal(np.diag(found.matrix), S**2)
    slope = logm if gradient is None else gradient
    difference = slope(found.matrix / UNITS) - slope(A)
    np.testing.assert_allclose(difference, -np.diag(found.dual * S**2), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fixed": np.where(FIXED, 1.0, np.nan)}, r"fixed\[0, 0\] is nan, expected true or false"),
        ({"fixed": np.where(FIXED, "yes", "no")}, "fixed must be real numbers, got <U3 values"),
        ({"fixed": FIXED * 1j}, "fixed must be real numbers, got complex128"),
        ({"fixed": [[0, 1], [1]]}, "fixed must be a regular array"),
        ({"weights": [1, 2, 1e-200, 1, 1]}, "variable 2: weight is 1e-200, expected a number from 1e-50 to"),
        ({"weights": [1, 2, 3, 1e200, 1]}, r"variable 3: weight is 1e\+200, expected a number from 1e-50"),
        (
            {"variances": [1, 2, 3, 1e-310, 1]},
            r"variable 3: variance is 1e-310, expected a finite number > 0",
        ),
        ({"divergence": "euclid"}, "'euclid'"),
        ({"divergence": "logdet"}, "A must be positive semidefinite for this divergence"),
        ({"tol": "small"}, "tol must be a number between 0 and 1, got 'small'"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        nw.nearest_covariance(C * UNITS, **options)


def test_a_loose_tolerance_is_reached_sooner() -> None:
    A = np.tanh(np.random.default_rng(1).normal(size=(40, 40)))
    A = (A + A.T) / 2 + 2 * np.eye(40)
    loose, tight = (nw.nearest_covariance(A, tol=tol) for tol in (0.5, 1e-12))
    assert loose.n_iter < tight.n_iter
    assert tight.certificate.gap <= 1e-12 < loose.certificate.gap <= 0.5
