"""Nearest correlation matrices with a smallest eigenvalue, weights of entries, missing entries, labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from benchmarks.problems import Sizes
from nearwise.datasets import Dataset

Load = Callable[[str], Dataset]
SMALL = Sizes().names
nan = np.nan


def invalid(n: int, seed: int = 0) -> np.ndarray:
    """A symmetric matrix with unit diagonal, entries in (-1, 1) and negative eigenvalues."""
    A = np.tanh(np.random.default_rng(seed).normal(size=(n, n)))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def random_weights(n: int, share_of_zeros: float = 0.0, decades: float = 1.0, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    W = np.triu(10 ** rng.uniform(-decades, decades, (n, n)) * (rng.random((n, n)) >= share_of_zeros))
    return W + np.triu(W, 1).T


def by_cvxpy(
    A: np.ndarray, W: np.ndarray, fixed: np.ndarray | None = None, lowest: float = 0.0
) -> tuple[np.ndarray, float]:
    """The matrix and sum W (X - A)^2 by another method."""
    cvxpy = pytest.importorskip("cvxpy")
    n = len(A)
    Y = cvxpy.Variable((n, n), PSD=True)
    X = Y + lowest * np.eye(n)
    conditions = [cvxpy.diag(X) == 1]
    if fixed is not None:
        conditions.append(cvxpy.multiply(fixed.astype(float), X - A) == 0)
    objective = cvxpy.sum_squares(cvxpy.multiply(np.sqrt(W), X - A))
    problem = cvxpy.Problem(cvxpy.Minimize(objective), conditions)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    assert problem.status == "optimal"
    return np.asarray(X.value), float(problem.value)


def assert_is_optimal(
    found: nw.NearestMatrix, A: np.ndarray, W: np.ndarray, lowest: float = 0.0, accuracy: float = 1e-4
) -> None:
    """By definition: S = 2 W (X - A), with a diagonal, is positive semidefinite; <S, X - lowest I> = 0."""
    X, n = found.array, len(A)
    assert found.status is nw.Status.SOLVED
    assert found.certificate.gap <= 1e-8
    assert np.array_equal(X, X.T)
    assert (np.diag(X) == 1).all()
    assert np.linalg.eigvalsh(X)[0] >= lowest - 1e-13 * n
    assert found.certificate.primal == pytest.approx(np.sum(W * (X - A) ** 2), rel=1e-9, abs=1e-30)
    S = 2 * W * (X - A)
    np.fill_diagonal(S, found.dual[:n])
    size = max(np.abs(S).max(), 1e-3 * W.max())
    assert np.linalg.eigvalsh(S)[0] >= -accuracy * size
    assert abs(np.vdot(S, X - lowest * np.eye(n))) <= accuracy * size


@pytest.mark.filterwarnings("ignore:.* larger than 1 in size:UserWarning")
@pytest.mark.parametrize("lowest", [1e-12, 1e-8, 1e-3, 0.2])
@pytest.mark.parametrize("name", SMALL)
def test_a_smallest_eigenvalue_makes_published_matrices_definite(
    name: str, lowest: float, load_dataset: Load
) -> None:
    A = load_dataset("corr_invalid_small").extra[name]
    found = nw.nearest_correlation(A, min_eigenvalue=lowest)
    assert found.status is nw.Status.SOLVED
    np.linalg.cholesky(found.matrix)
    assert np.linalg.eigvalsh(found.matrix)[0] >= lowest - 1e-15 * len(A)
    assert (np.diag(found.matrix) == 1).all()
    assert found.certificate.primal == pytest.approx(np.sum((found.matrix - A) ** 2), rel=1e-9)
    assert found.certificate.primal >= nw.nearest_correlation(A).certificate.dual
    if len(A) <= 12 and lowest >= 1e-3:
        X, distance = by_cvxpy(A, np.ones_like(A), lowest=lowest)
        assert found.matrix == pytest.approx(X, abs=2e-5 * max(1.0, np.abs(A).max()))
        assert found.certificate.dual <= distance * (1 + 1e-7)


@pytest.mark.parametrize("n", [8, 50, 120])
def test_the_bound_with_a_smallest_eigenvalue_by_its_definition(n: int) -> None:
    """Y = X - lowest I is positive semidefinite with the diagonal 1 - lowest; any y bounds |Y - C|^2."""
    A, lowest = invalid(n), 0.05
    found = nw.nearest_correlation(A, min_eigenvalue=lowest)
    C = A - lowest * np.eye(n)
    positive = np.maximum(np.linalg.eigvalsh(C - np.diag(found.dual) / 2), 0.0)
    bound = np.sum(C**2) - positive @ positive - (1 - lowest) * found.dual.sum()
    assert bound == pytest.approx(found.certificate.dual, rel=1e-7)
    assert found.certificate.primal == pytest.approx(bound, rel=2e-8)
    assert np.linalg.eigvalsh(found.matrix)[0] == pytest.approx(lowest, abs=1e-12)


def test_a_smallest_eigenvalue_of_zero_changes_nothing() -> None:
    A = invalid(20)
    assert np.array_equal(
        nw.nearest_correlation(A, min_eigenvalue=0).matrix, nw.nearest_correlation(A).matrix
    )


def test_a_smallest_eigenvalue_with_weights_and_fixed_entries() -> None:
    A, lowest = 0.7 * invalid(7), 0.02
    np.fill_diagonal(A, 1.0)
    w = np.random.default_rng(1).uniform(0.1, 10.0, 7)
    fixed = np.zeros((7, 7), bool)
    fixed[0, 1:3] = fixed[1:3, 0] = True
    W = np.outer(w, w)
    for weights, pattern in ((w, None), (None, fixed), (w, fixed), (random_weights(7), fixed)):
        full = np.ones((7, 7)) if weights is None else W if weights.ndim == 1 else weights
        found = nw.nearest_correlation(A, weights=weights, fixed=pattern, min_eigenvalue=lowest)
        X, distance = by_cvxpy(A, full, pattern, lowest)
        assert found.status is nw.Status.SOLVED
        assert found.matrix == pytest.approx(X, abs=1e-5)
        assert found.certificate.primal == pytest.approx(distance, rel=1e-6)
        assert np.linalg.eigvalsh(found.matrix)[0] >= lowest - 1e-13


def test_a_covariance_matrix_has_correlations_with_a_smallest_eigenvalue() -> None:
    A, s = invalid(6), np.array([1e-3, 1.0, 10.0, 5.0, 1e4, 2.0])
    found = nw.nearest_covariance(A * np.outer(s, s), min_eigenvalue=1e-3)
    np.linalg.cholesky(found.matrix)
    correlations = found.matrix / np.outer(s, s)
    assert correlations == pytest.approx(nw.nearest_correlation(A, min_eigenvalue=1e-3).matrix, abs=1e-12)


def test_fixed_entries_may_leave_no_room_for_the_smallest_eigenvalue() -> None:
    A = invalid(4)
    A[0, 1] = A[1, 0] = 0.95
    fixed = np.zeros((4, 4), bool)
    fixed[0, 1] = fixed[1, 0] = True
    assert nw.nearest_correlation(A, fixed=fixed, min_eigenvalue=0.04).status is nw.Status.SOLVED
    for weights in (None, random_weights(4)):
        with pytest.warns(UserWarning, match=r"\(0, 1\) = 0.95 "):
            found = nw.nearest_correlation(A, fixed=fixed, weights=weights, min_eigenvalue=0.06)
        assert found.status is nw.Status.INFEASIBLE
        assert "No matrix with all eigenvalues at least 0.06 has the fixed entries" in found.message


@pytest.mark.parametrize(("n", "zeros"), [(5, 0.0), (5, 0.4), (12, 0.0), (12, 0.3)])
def test_weights_of_entries_against_cvxpy(n: int, zeros: float) -> None:
    A, W = invalid(n), random_weights(n, zeros)
    np.fill_diagonal(W, 1.0)
    found = nw.nearest_correlation(A, weights=W)
    assert found.solver == "InteriorPoint"
    assert_is_optimal(found, A, W)
    X, distance = by_cvxpy(A, W)
    assert found.certificate.primal == pytest.approx(distance, rel=1e-6, abs=1e-7)  # what Clarabel promises
    assert found.certificate.dual <= distance + 1e-7
    known = W > 0  # where a weight is zero, there may be several answers
    assert found.matrix[known] == pytest.approx(X[known], abs=1e-4)
    assert len(found.filled) == np.sum(np.triu(~known))


@pytest.mark.parametrize(("seed", "zeros", "decades"), [(0, 0.0, 3), (1, 0.4, 3), (2, 0.6, 1), (3, 0.0, 5)])
def test_weights_that_differ_by_orders_of_magnitude(seed: int, zeros: float, decades: float) -> None:
    A, W = invalid(14, seed), random_weights(14, zeros, decades, seed)
    assert_is_optimal(nw.nearest_correlation(A, weights=W), A, W, accuracy=1e-3)


@pytest.mark.parametrize("lowest", [0.0, 0.01])
def test_many_weights_and_missing_entries(lowest: float) -> None:
    A, W = invalid(60), random_weights(60, 0.2)
    found = nw.nearest_correlation(A, weights=W, min_eigenvalue=lowest)
    assert found.solver == "AugmentedLagrangian"
    assert_is_optimal(found, A, W, lowest)


def test_weights_of_variables_may_be_given_by_entry() -> None:
    A, w = invalid(9), np.linspace(0.5, 3, 9)
    by_entry, by_variable = (nw.nearest_correlation(A, weights=W) for W in (np.outer(w, w), w))
    assert by_entry.solver == by_variable.solver == "SemismoothNewton"
    assert by_entry.matrix == pytest.approx(by_variable.matrix, abs=1e-10)
    off = np.outer(w, w) * (1 + 1e-9 * random_weights(9))  # not of this form any more
    other = nw.nearest_correlation(A, weights=off)
    assert other.solver == "InteriorPoint"
    assert other.matrix == pytest.approx(by_variable.matrix, abs=1e-4)
    assert other.dual == pytest.approx(by_variable.dual, rel=1e-3)


def test_the_multipliers_of_weighted_fixed_entries_are_slopes() -> None:
    A, W, step = invalid(6), random_weights(6), 1e-3
    fixed = np.zeros((6, 6), bool)
    fixed[1, 4] = fixed[4, 1] = True
    outside = ~fixed

    def distance(change: float) -> float:
        B = A.copy()
        B[1, 4] = B[4, 1] = A[1, 4] + change
        X = nw.nearest_correlation(B, fixed=fixed, weights=W, tol=1e-12).matrix
        assert np.array_equal(X[fixed], B[fixed])
        return float(np.sum((W * (X - A) ** 2)[outside]))

    slope = (distance(step) - distance(-step)) / (2 * step)
    assert nw.nearest_correlation(A, fixed=fixed, weights=W, tol=1e-12).dual[6] == pytest.approx(
        -slope, rel=1e-3
    )


@pytest.mark.long
def test_fixed_entries_without_room_inside_the_cone() -> None:
    A, W = invalid(5), random_weights(5)
    fixed = np.zeros((5, 5), bool)
    fixed[0, 1] = fixed[1, 0] = True
    A[fixed] = 1.0  # the first two rows become equal, and every such matrix is singular
    found = nw.nearest_correlation(A, fixed=fixed, weights=W)
    assert found.solver == "AugmentedLagrangian"
    assert found.matrix == pytest.approx(by_cvxpy(A, W, fixed)[0], abs=1e-3)
    assert found.certificate.violation <= 1e-6
    assert (found.status is nw.Status.SOLVED) == found.certificate.holds(1e-8)


@pytest.mark.parametrize(("n", "solver"), [(8, "InteriorPoint"), (34, "AugmentedLagrangian")])
def test_both_methods_have_the_value_of_cvxpy_between_their_bounds(n: int, solver: str) -> None:
    A, W = invalid(n), random_weights(n)
    optimum = by_cvxpy(A, W)[1]
    for tol in (1e-1, 1e-2, 1e-4, 1e-8):
        found = nw.nearest_correlation(A, weights=W, tol=tol)
        assert found.solver == solver
        assert found.certificate.dual <= optimum * (1 + 1e-7)
        assert found.certificate.primal >= optimum * (1 - 1e-7)
        assert found.certificate.gap <= tol


@pytest.mark.parametrize("n", [6, 40])
def test_missing_entries_of_a_correlation_matrix_are_completed(n: int) -> None:
    truth = np.corrcoef(np.random.default_rng(0).normal(size=(n, 3 * n)))
    A = truth.copy()
    A[0, 2] = A[2, 0] = A[1, 4] = A[4, 1] = nan
    found = nw.nearest_correlation(A)
    assert found.status is nw.Status.SOLVED
    known = ~np.isnan(A)
    assert found.matrix[known] == pytest.approx(truth[known], abs=1e-7)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-13
    assert found.filled.tolist() == [[0, 2], [1, 4]]
    assert "2 entries were not known and are filled." in found.message
    assert np.isnan(A[0, 2])  # the argument stays as it was


def test_what_is_known_is_nearest_where_entries_are_missing() -> None:
    A = invalid(9)
    A[0, 1:4] = A[1:4, 0] = nan
    W = np.where(np.isnan(A), 0.0, 1.0)
    found = nw.nearest_correlation(A)
    assert_is_optimal(found, np.nan_to_num(A), W)
    assert found.certificate.primal == pytest.approx(by_cvxpy(np.nan_to_num(A), W)[1], rel=1e-6)
    assert found.filled.tolist() == [[0, 1], [0, 2], [0, 3]]
    w = np.linspace(1, 2, 9)
    weighted = nw.nearest_correlation(A, weights=w)
    assert_is_optimal(weighted, np.nan_to_num(A), W * np.outer(w, w))
    np.linalg.cholesky(nw.nearest_correlation(A, min_eigenvalue=1e-10).matrix)


def test_one_side_of_the_diagonal_is_enough() -> None:
    A = invalid(7)
    above = np.where(np.triu(np.ones_like(A)) > 0, A, nan)
    assert np.array_equal(nw.nearest_correlation(above).matrix, nw.nearest_correlation(A).matrix)
    np.fill_diagonal(above, nan)
    found = nw.nearest_correlation(above)
    assert np.array_equal(found.matrix, nw.nearest_correlation(A).matrix)
    assert len(found.filled) == 0


def test_a_variable_without_a_known_correlation() -> None:
    pandas = pytest.importorskip("pandas")
    A = invalid(6)
    A[2], A[:, 2] = nan, nan
    with pytest.warns(
        UserWarning, match="no correlation of variable 2 is known: all of them are set to 0"
    ) as seen:
        found = nw.nearest_correlation(A)
    assert seen[0].filename == __file__
    rest = np.delete(np.arange(6), 2)
    assert np.array_equal(found.matrix[2], np.eye(6)[2])
    expected = nw.nearest_correlation(A[np.ix_(rest, rest)])
    assert found.matrix[np.ix_(rest, rest)] == pytest.approx(expected.matrix, abs=1e-4)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-7)
    assert found.filled.tolist() == [[0, 2], [1, 2], [2, 3], [2, 4], [2, 5]]
    assert "1 of 6 variables have no known entry" in found.message
    assert found.dual.shape == (6,)
    A[2, 2] = 4.0
    table = pandas.DataFrame(A, index=list("abcdef"), columns=list("abcdef"))
    with pytest.warns(UserWarning, match="variable 'c'") as seen:
        covariance = nw.nearest_covariance(table).matrix
    assert seen[0].filename == __file__
    assert covariance.loc["c", "c"] == 4.0
    assert (covariance.loc["c"].drop("c") == 0).all()


@pytest.mark.parametrize("nearest", [nw.nearest_correlation, nw.nearest_covariance])
def test_a_variable_without_a_known_correlation_in_plain_lists(nearest: Any) -> None:
    with pytest.warns(UserWarning, match="variable 2 is known"):
        found = nearest([[1, 0.5, nan], [0.5, 1, nan], [nan, nan, 1]])
    assert found.matrix.round(6).tolist() == [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("value", [0.5, 1.0])
def test_all_that_is_known_may_be_fixed(value: float) -> None:
    A = np.array([[1, value, nan], [value, 1, nan], [nan, nan, 1]])
    fixed = np.zeros((3, 3), bool)
    fixed[0, 1] = fixed[1, 0] = True
    with pytest.warns(UserWarning, match="variable 2"):
        found = nw.nearest_correlation(A, fixed=fixed)
    assert found.status is nw.Status.SOLVED
    assert found.matrix == pytest.approx(np.nan_to_num(A), abs=1e-8)
    B = A.copy()
    B[0, 2] = B[2, 0] = 0.3
    fixed[0, 2] = fixed[2, 0] = True
    completed = nw.nearest_correlation(B, fixed=fixed)
    assert completed.status is nw.Status.SOLVED
    assert completed.matrix[fixed] == pytest.approx(B[fixed], abs=1e-8)
    assert np.linalg.eigvalsh(completed.matrix)[0] >= -1e-12


def test_distances_on_the_diagonal_count_once() -> None:
    A, W = invalid(5), random_weights(5)
    A[3, 3] = 1.5
    found = nw.nearest_covariance(A, variances=np.ones(5), weights=W)
    assert found.certificate.primal == pytest.approx(np.sum(W * (found.matrix - A) ** 2), rel=1e-9)
    assert found.certificate.holds(1e-8)


@pytest.mark.parametrize("make", [np.asarray, lambda A: A.astype(np.float32)])
def test_asymmetry_of_rounding_size_by_precision(make: Callable[[np.ndarray], np.ndarray]) -> None:
    A = make(invalid(10))
    A[0, 1] *= A.dtype.type(1) + 8 * np.finfo(A.dtype).eps
    found = nw.nearest_correlation(A)
    assert found.matrix == pytest.approx(nw.nearest_correlation(invalid(10)).matrix, abs=1e-5)
    assert found.matrix.dtype == np.float64
    A[0, 1] *= A.dtype.type(1.01)
    with pytest.raises(ValueError, match=r"A\[0, 1\] = .* and A\[1, 0\] = "):
        nw.nearest_correlation(A)
    wide = invalid(10)
    wide[0, 1] *= 1 + 1e-6  # no rounding in double precision
    with pytest.raises(ValueError, match="symmetric"):
        nw.nearest_correlation(wide)


@pytest.mark.parametrize("kind", ["float64", "float32", "Float64"])
def test_a_frame_gives_a_frame(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    names = ["oil", "gas", "gold", "tin"]
    A = invalid(4).astype("float32").astype(float)
    table = pandas.DataFrame(A, index=names, columns=names).astype(kind)
    for settings in ({}, {"rank": 2}, {"weights": random_weights(4)}, {"min_eigenvalue": 0.01}):
        found = nw.nearest_correlation(table, **settings)
        assert isinstance(found.matrix, pandas.DataFrame)
        assert list(found.matrix.index) == list(found.matrix.columns) == names
        assert np.array_equal(found.array, nw.nearest_correlation(A, **settings).matrix)
        assert np.array_equal(found.matrix.to_numpy(), found.array)
    missing = table.copy()
    missing.loc["oil", "tin"] = missing.loc["tin", "oil"] = None
    assert nw.nearest_correlation(missing).filled.tolist() == [[0, 3]]
    variances = pandas.Series([1.0, 2.0, 3.0, 4.0], index=names)
    covariance = nw.nearest_covariance(table, variances).matrix
    assert list(covariance.columns) == names
    assert np.diag(covariance).tolist() == variances.tolist()
    assert isinstance(nw.nearest_correlation(A).matrix, np.ndarray)


def test_labels_in_another_order_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    names = ["oil", "gas", "gold"]
    A = pandas.DataFrame(invalid(3), index=names, columns=names)
    mixed = ["gas", "oil", "gold"]
    with pytest.raises(ValueError, match=r"the columns of A and its rows .* number 0 is 'gas' and 'oil'"):
        nw.nearest_correlation(A[mixed])
    with pytest.raises(ValueError, match="the index of weights and the rows of A"):
        nw.nearest_correlation(A, weights=pandas.Series([1, 2, 3], index=mixed))
    with pytest.raises(ValueError, match="the index of fixed and the rows of A"):
        nw.nearest_correlation(A, fixed=pandas.DataFrame(np.eye(3), index=mixed, columns=names))
    with pytest.raises(ValueError, match="the index of variances and the rows of A"):
        nw.nearest_covariance(A, pandas.Series([1, 2, 3], index=mixed))
    unlabelled = pandas.DataFrame(invalid(3), columns=names)
    assert list(nw.nearest_correlation(unlabelled).matrix.columns) == names


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"min_eigenvalue": -0.1}, "min_eigenvalue must be a number >= 0 and below 1, .* got -0.1"),
        ({"min_eigenvalue": 1.0}, "got 1.0"),
        ({"min_eigenvalue": nan}, "got nan"),
        ({"min_eigenvalue": "small"}, "got 'small'"),
        ({"min_eigenvalue": True}, "got True"),
        ({"min_eigenvalue": 0.1, "rank": 2}, "min_eigenvalue 0.1 and a rank cannot be combined"),
        ({"min_eigenvalue": 0.1, "divergence": "logdet", "A": np.eye(3)}, "Frobenius norm only"),
        ({"weights": np.ones((2, 2))}, r"3 numbers or a 3 x 3 matrix, got shape \(2, 2\)"),
        ({"weights": [[1, 2, 1], [2, 1, -3], [1, -3, 1]]}, r"weights\[1, 2\] is -3"),
        ({"weights": [[1, 2, 1], [0, 1, 1], [1, 1, 1]]}, r"weights\[0, 1\] = 2.0 and weights\[1, 0\] = 0.0"),
        ({"weights": [[1, nan, 1], [nan, 1, 1], [1, 1, 1]]}, r"weights\[0, 1\] is nan"),
        ({"weights": 1e200 * np.ones((3, 3))}, "weights has an entry of size 1e\\+200"),
        ({"weights": np.eye(3)}, "no known entry off its diagonal"),
        ({"weights": 1 - np.eye(3), "rank": 2}, "weights of single entries and a rank"),
        ({"A": [[1, nan], [nan, 1]]}, "no known entry off its diagonal: each is nan"),
        ({"A": [[1, nan, 0], [nan, 1, 1], [0, 1, 1]], "rank": 2}, r"A\[0, 1\] is nan; only the Frobenius"),
        ({"A": [[1, nan, 0], [nan, 1, 1], [0, 1, 1]], "divergence": "logdet"}, r"A\[0, 1\] is nan"),
        (
            {"A": [[1, nan, 0], [nan, 1, 1], [0, 1, 1]], "fixed": np.ones((3, 3))},
            r"fixed\[0, 1\] is true, but A\[0, 1\] is nan",
        ),
        ({"A": [[1, np.inf, 0], [np.inf, 1, 1], [0, 1, 1]]}, r"A\[0, 1\] is inf"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], error: str) -> None:
    settings: dict[str, object] = {"A": [[1, 1, 0], [1, 1, 1], [0, 1, 1]]} | arguments
    with pytest.raises(ValueError, match=error):
        nw.nearest_correlation(**settings)


def test_a_missing_variance_is_refused() -> None:
    with pytest.raises(ValueError, match="variable 1: variance is nan"):
        nw.nearest_covariance([[1, 0.2], [0.2, nan]])
    given = nw.nearest_covariance([[1, 0.2], [0.2, nan]], variances=[1, 4])
    assert given.matrix == pytest.approx(np.array([[1, 0.2], [0.2, 4]]))
