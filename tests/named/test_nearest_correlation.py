"""The nearest correlation matrix: known answers, cvxpy, optimality by definition, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nearwise as nw
from benchmarks.problems import Sizes
from nearwise.datasets import Dataset

Load = Callable[[str], Dataset]
SMALL = Sizes().names
large_entries = pytest.mark.filterwarnings("ignore:.* larger than 1 in size:UserWarning")


def invalid(n: int, seed: int = 0) -> np.ndarray:
    """A symmetric matrix with unit diagonal, entries in (-1, 1) and negative eigenvalues."""
    rng = np.random.default_rng(seed)
    A = np.tanh(rng.normal(size=(n, n)))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def by_cvxpy(A: np.ndarray, fixed: np.ndarray | None = None, weights: np.ndarray | None = None) -> np.ndarray:
    cvxpy = pytest.importorskip("cvxpy")
    root = np.sqrt(np.ones(len(A)) if weights is None else weights)
    X = cvxpy.Variable(A.shape, PSD=True)
    conditions = [cvxpy.diag(X) == 1]
    if fixed is not None:
        conditions.append(cvxpy.multiply(fixed.astype(float), X - A) == 0)
    distance = cvxpy.sum_squares(cvxpy.multiply(np.outer(root, root), X - A))
    cvxpy.Problem(cvxpy.Minimize(distance), conditions).solve(
        solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9
    )
    return np.asarray(X.value)


def assert_is_correlation(X: np.ndarray) -> None:
    assert np.array_equal(X, X.T)
    assert (np.diag(X) == 1.0).all()
    assert np.linalg.eigvalsh(X)[0] >= -1e-13 * len(X)


def test_highams_example() -> None:
    found = nw.nearest_correlation([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    assert found.matrix[np.triu_indices(3, 1)] == pytest.approx([0.7607, 0.1573, 0.7607], abs=5e-5)
    assert found.status is nw.Status.SOLVED
    assert "SOLVED" in repr(found)


@large_entries
@pytest.mark.parametrize("name", SMALL)
def test_published_invalid_matrices(name: str, load_dataset: Load) -> None:
    A = load_dataset("corr_invalid_small").extra[name]
    found = nw.nearest_correlation(A)
    assert found.status is nw.Status.SOLVED
    assert_is_correlation(found.matrix)
    assert found.certificate.primal == pytest.approx(np.sum((found.matrix - A) ** 2), rel=1e-9)
    assert found.n_decompositions <= 8
    if len(A) <= 12:
        scale = max(1.0, np.abs(A).max())
        assert found.matrix == pytest.approx(by_cvxpy(A), abs=2e-5 * scale)


@pytest.mark.parametrize("name", ["fing97", "usgs13"])
def test_published_patterns_of_fixed_entries(name: str, load_dataset: Load) -> None:
    extra = load_dataset("corr_invalid_small").extra
    A, pattern = extra[name], extra[f"{name}_pattern"].astype(bool)
    found = nw.nearest_correlation(A, fixed=pattern)
    assert found.status is nw.Status.SOLVED
    assert_is_correlation(found.matrix)
    assert np.abs(found.matrix - A)[pattern].max() <= 1e-8
    assert found.certificate.primal >= nw.nearest_correlation(A).certificate.primal
    if len(A) <= 12:
        assert found.matrix == pytest.approx(by_cvxpy(A, pattern), abs=2e-5)


@pytest.mark.parametrize("n", [5, 20])
def test_weights_and_fixed_entries_against_cvxpy(n: int) -> None:
    A = 0.7 * invalid(n)
    np.fill_diagonal(A, 1.0)
    weights = np.random.default_rng(1).uniform(0.1, 10.0, n)
    fixed = np.zeros((n, n), bool)
    fixed[0, 1:3] = fixed[1:3, 0] = True
    for settings in ({"weights": weights}, {"fixed": fixed}, {"weights": weights, "fixed": fixed}):
        found = nw.nearest_correlation(A, **settings)
        assert found.status is nw.Status.SOLVED
        assert_is_correlation(found.matrix)
        assert found.matrix == pytest.approx(by_cvxpy(A, **settings), abs=1e-5)


@pytest.mark.parametrize("n", [8, 50, 120])
def test_the_dual_is_a_bound_by_its_definition(n: int) -> None:
    """Any y bounds the distance: |C|^2 - |(C - diag(y) / 2)_+|^2 - y'1 for |X - C|^2 + y'(diag(X) - 1)."""
    A = invalid(n)
    found = nw.nearest_correlation(A)
    positive = np.maximum(np.linalg.eigvalsh(A - np.diag(found.dual) / 2), 0.0)
    bound = np.sum(A**2) - positive @ positive - found.dual.sum()
    assert bound == pytest.approx(found.certificate.dual, rel=1e-7)
    assert found.certificate.primal == pytest.approx(bound, rel=2e-8)


def test_the_multipliers_are_slopes() -> None:
    A, step = invalid(6), 1e-4
    fixed = np.zeros((6, 6), bool)
    fixed[1, 4] = fixed[4, 1] = True
    raised = A.copy()
    raised[1, 4] = raised[4, 1] = A[1, 4] + step
    lowered = A.copy()
    lowered[1, 4] = lowered[4, 1] = A[1, 4] - step
    up, down = (nw.nearest_correlation(M, fixed=fixed, tol=1e-12).matrix for M in (raised, lowered))
    outside = ~fixed
    slope = (np.sum((up - A)[outside] ** 2) - np.sum((down - A)[outside] ** 2)) / (2 * step)
    assert nw.nearest_correlation(A, fixed=fixed, tol=1e-12).dual[6] == pytest.approx(-slope, rel=1e-4)


def test_a_correlation_matrix_stays() -> None:
    B = np.random.default_rng(0).normal(size=(10, 30))
    A = np.corrcoef(B)
    found = nw.nearest_correlation(A)
    assert found.matrix == pytest.approx(A, abs=1e-14)
    assert found.n_iter == 0
    assert found.certificate.primal <= 1e-25


def test_the_factor_gives_the_matrix() -> None:
    found = nw.nearest_correlation(invalid(15))
    assert found.factor @ found.factor.T == pytest.approx(found.matrix, abs=1e-8)
    assert found.factor.shape[1] < 15
    assert np.sum(found.factor**2, axis=1) == pytest.approx(1.0, abs=1e-15)


def test_interchangeable_objects_change_nothing_but_the_cost() -> None:
    small = invalid(12, seed=3)
    member_of = np.random.default_rng(0).integers(12, size=90)
    A = small[np.ix_(member_of, member_of)] * 0.9
    np.fill_diagonal(A, 1.0)
    grouped = nw.nearest_correlation(A)
    assert "90 objects in 12 groups" in grouped.message
    plain = nw.nearest_correlation(A, fixed=np.zeros_like(A), weights=np.linspace(1, 1 + 1e-13, 90))
    assert "groups" not in plain.message
    assert grouped.matrix == pytest.approx(plain.matrix, abs=1e-8)
    assert grouped.dual == pytest.approx(plain.dual, abs=1e-7)
    assert_is_correlation(grouped.matrix)


def test_rows_that_only_look_alike_are_no_group() -> None:
    n = 80  # a ring: all rows have the same entries in another order
    A = np.eye(n) + 0.9 * (np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0))
    found = nw.nearest_correlation(A)
    assert "groups" not in found.message
    assert_is_correlation(found.matrix)


@pytest.mark.long
def test_the_bank_matrix(load_dataset: Load) -> None:
    A = load_dataset("corr_invalid_bccd16").extra["A"]
    found = nw.nearest_correlation(A)
    assert found.status is nw.Status.SOLVED
    assert found.n_decompositions <= 6
    rows = np.random.default_rng(0).permutation(len(A))[:300]
    assert (np.diag(found.matrix) == 1).all()
    assert np.linalg.eigvalsh(found.matrix[np.ix_(rows, rows)])[0] > -1e-12


def few_negative(n: int) -> np.ndarray:
    """Correlations of which three contradict each other strongly: three negative eigenvalues, well apart."""
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(n, 8)))[0]
    A = 0.5 * np.eye(n) + (V * [9.0, 7.0, 5.0, 3.0, 2.0, -4.0, -3.0, -2.0]) @ V.T
    np.fill_diagonal(A, 1.0)
    return A


def few_positive(n: int) -> np.ndarray:
    loadings = np.random.default_rng(0).normal(size=(n, 3))
    loadings /= np.linalg.norm(loadings, axis=1, keepdims=True)
    A = 1.5 * loadings @ loadings.T
    np.fill_diagonal(A, 1.0)
    return A


@large_entries
@pytest.mark.long
@pytest.mark.parametrize("matrix", [few_negative, few_positive])
def test_large_matrices_of_few_eigenvalues_on_one_side(matrix: Callable[[int], np.ndarray]) -> None:
    """X is the positive part of A - diag(y) / 2, by a whole decomposition."""
    A = matrix(520)
    found = nw.nearest_correlation(A, tol=1e-10)
    assert found.status is nw.Status.SOLVED
    assert_is_correlation(found.matrix)
    values, V = np.linalg.eigh(A - np.diag(found.dual) / 2)
    projected = (V * np.maximum(values, 0.0)) @ V.T
    assert found.matrix == pytest.approx(projected, abs=1e-6)
    assert np.sum((found.matrix - A) ** 2) == pytest.approx(found.certificate.primal, rel=1e-9)


@pytest.mark.parametrize("n", [500, 800])
def test_eigenvalues_that_lie_close_together_are_all_computed(n: int) -> None:
    rng = np.random.default_rng(n)
    noise = rng.normal(size=(n, n)) / np.sqrt(n)
    A = np.eye(n) + np.triu(noise, 1) + np.triu(noise, 1).T
    found = nw.nearest_correlation(A)
    assert found.status is nw.Status.SOLVED
    assert_is_correlation(found.matrix)
    assert found.n_decompositions <= 8


def test_contradictory_fixed_entries_are_proved_to_be_so() -> None:
    A = invalid(6)
    A[:3, :3] = [[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]
    fixed = np.zeros((6, 6), bool)
    fixed[:3, :3] = True
    with pytest.warns(UserWarning, match="contradict each other"):
        found = nw.nearest_correlation(A, fixed=fixed)
    assert found.status is nw.Status.INFEASIBLE
    assert "fixed entries" in found.message


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_given_rank_beats_random_search_and_respects_its_bound(rank: int) -> None:
    A = invalid(7, seed=rank)
    found = nw.nearest_correlation(A, rank=rank)
    assert found.factor.shape == (7, rank)
    assert_is_correlation(found.matrix)
    distance = np.sum((found.matrix - A) ** 2)
    assert found.certificate.primal == pytest.approx(distance, rel=1e-9)
    rng = np.random.default_rng(0)
    tries = rng.normal(size=(3000, 7, rank))
    tries /= np.linalg.norm(tries, axis=2, keepdims=True)
    others = np.sum((tries @ tries.swapaxes(1, 2) - A) ** 2, axis=(1, 2))
    assert distance <= others.min() + 1e-9
    assert found.certificate.dual <= others.min()
    top = np.sort(np.linalg.eigvalsh(A - np.diag(found.dual) / 2))[::-1][:rank]
    if found.status is nw.Status.SOLVED:
        assert np.sort(np.linalg.eigvalsh(found.matrix))[::-1][:rank] == pytest.approx(top, abs=1e-6)


def test_a_start_at_a_saddle_point_is_left() -> None:
    """All rows equal is stationary for A = I, and the worst there is."""
    found = nw.nearest_correlation(np.eye(4), rank=2)
    assert found.certificate.primal == pytest.approx(4.0)  # |F F'|^2 is least, n^2 / k, for a tight frame
    assert nw.nearest_correlation(np.eye(4), rank=4).matrix == pytest.approx(np.eye(4), abs=1e-7)


def test_a_factor_is_stationary_by_finite_differences() -> None:
    A = invalid(9)
    found = nw.nearest_correlation(A, rank=3, weights=np.linspace(0.5, 2, 9), tol=1e-10)
    root = np.sqrt(np.linspace(0.5, 2, 9))
    rng = np.random.default_rng(0)

    def distance(F: np.ndarray) -> float:
        F = F / np.linalg.norm(F, axis=1, keepdims=True)
        return float(np.sum((np.outer(root, root) * (F @ F.T - A)) ** 2))

    for _ in range(5):
        direction = rng.normal(size=found.factor.shape)
        slope = (distance(found.factor + 1e-5 * direction) - distance(found.factor - 1e-5 * direction)) / 2e-5
        assert abs(slope) < 1e-6


def test_full_rank_and_given_rank_agree_where_the_rank_suffices() -> None:
    A = invalid(10)
    full = nw.nearest_correlation(A)
    rank = np.linalg.matrix_rank(full.matrix, tol=1e-7)
    assert nw.nearest_correlation(A, rank=int(rank)).certificate.primal == pytest.approx(
        full.certificate.primal, rel=1e-7
    )


@large_entries
@pytest.mark.long
def test_sparse_low_rank_and_dense_input_agree() -> None:
    from scipy import sparse

    rng = np.random.default_rng(0)
    U, w = rng.normal(size=(700, 3)), np.array([2.0, 1.0, -0.5])
    U = np.where([True, True, False], np.sign(U) * (np.abs(U) + 0.5), 0.1 * U)
    U /= np.sqrt(U**2 @ w)[:, None]
    dense = nw.nearest_correlation((U * w) @ U.T, rank=2)
    low = nw.nearest_correlation((U, w), rank=2)
    assert low.certificate.primal == pytest.approx(dense.certificate.primal, rel=1e-10)
    A = sparse.random_array((60, 60), density=0.1, rng=rng, format="csr")
    A = A + A.T
    A = A - sparse.diags_array(A.diagonal()) + sparse.eye_array(60)
    thin = nw.nearest_correlation(A, rank=5, tol=1e-12)
    assert thin.matrix == pytest.approx(
        nw.nearest_correlation(A.toarray(), rank=5, tol=1e-12).matrix, abs=1e-10
    )
    assert nw.nearest_correlation(A).matrix == pytest.approx(nw.nearest_correlation(A.toarray()).matrix)


@pytest.mark.parametrize("name", ["logdet", "vonneumann"])
def test_divergences_meet_their_optimality_condition(name: str) -> None:
    """phi'(X) - phi'(A) is diagonal at the optimum: inverse for LogDet, logarithm for von Neumann."""
    B = np.random.default_rng(0).normal(size=(8, 12))
    A = B @ B.T / 12
    found = nw.nearest_correlation(A, name, tol=1e-10)
    assert found.status is nw.Status.SOLVED
    assert_is_correlation(found.matrix)

    def gradient(M: np.ndarray) -> np.ndarray:
        values, V = np.linalg.eigh(M)
        return (V * (-1 / values if name == "logdet" else np.log(values))) @ V.T

    change = gradient(found.matrix) - gradient(A)
    assert change - np.diag(np.diag(change)) == pytest.approx(np.zeros((8, 8)), abs=1e-6)
    assert nw.nearest_correlation(A, nw.LogDet() if name == "logdet" else nw.VonNeumann()).dual.shape == (8,)


@pytest.mark.long
@pytest.mark.parametrize("name", ["logdet", "vonneumann"])
def test_divergences_keep_a_low_rank(name: str) -> None:
    rng = np.random.default_rng(0)
    U = rng.normal(size=(300, 4))
    found = nw.nearest_correlation((U, np.ones(4)), name)
    assert "slack" in found.message
    assert found.factor.shape == (300, 4)
    assert np.linalg.matrix_rank(np.hstack([U, found.factor * np.sum(U**2, axis=1)[:, None]])) > 4  # scaled
    assert_is_correlation(found.matrix)
    dense = nw.nearest_correlation(U @ U.T, name)
    assert dense.matrix == pytest.approx(found.matrix, abs=1e-6)
    cut = nw.nearest_correlation(U @ U.T, name, rank=2)
    assert cut.factor.shape == (300, 2)
    assert np.linalg.matrix_rank(cut.matrix) == 2


def test_covariance_keeps_variances_and_ignores_units() -> None:
    A = invalid(6)
    scale = np.array([1e-3, 1.0, 10.0, 5.0, 1e4, 2.0])
    plain, scaled = nw.nearest_correlation(A), nw.nearest_covariance(A * np.outer(scale, scale))
    assert np.array_equal(np.diag(scaled.matrix), np.diag(A * np.outer(scale, scale)))
    assert scaled.matrix / np.outer(scale, scale) == pytest.approx(plain.matrix, abs=1e-12)
    other = nw.nearest_covariance(A, variances=scale**2, rank=2)
    assert np.array_equal(np.diag(other.matrix), scale**2)
    assert other.factor.shape == (6, 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"A": [[1, 2]]}, "square matrix"),
        ({"A": [[1, np.inf], [np.inf, 1]]}, "inf"),
        ({"A": [[1, 0.5], [0.4, 1]]}, "symmetric"),
        ({"rank": 0}, "rank must be a whole number from 1 to 3"),
        ({"rank": 4}, "got 4"),
        ({"weights": [1, 0, 1]}, "variable 1: weight is 0.0"),
        ({"fixed": np.eye(2)}, "shape of A"),
        ({"fixed": [[0, 1, 0], [0, 0, 0], [0, 0, 0]]}, r"fixed\[0, 1\] and fixed\[1, 0\] differ"),
        ({"rank": 2, "fixed": np.eye(3)}, "cannot be combined"),
        ({"divergence": "euclid"}, "'euclid'"),
        ({"divergence": "logdet"}, "eigenvalue -0.41"),
        ({"divergence": "logdet", "A": np.eye(3), "weights": [1, 1, 1]}, "Frobenius"),
        ({"divergence": "vonneumann", "A": (np.ones((3, 1)), [-1.0])}, "weight 0 is -1.0"),
        ({"divergence": "logdet", "A": np.diag([1.0, 1.0, 0.0])}, "row 2 of A is zero"),
        ({"divergence": "logdet", "A": np.zeros((3, 3))}, "A is zero"),
        ({"tol": 0}, "tol"),
        ({"A": 1e200 * np.eye(3)}, "too large"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], error: str) -> None:
    settings: dict[str, object] = {"A": [[1, 1, 0], [1, 1, 1], [0, 1, 1]]} | arguments
    with pytest.raises(ValueError, match=error):
        nw.nearest_correlation(**settings)


def test_a_variance_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"variable 1: variance is -1.0"):
        nw.nearest_covariance([[1, 0], [0, -1]])
