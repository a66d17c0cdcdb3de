"""Balanced cut: the relaxation beside cvxpy, its bound by definition, all cuts of small graphs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import Delaunay

import nearwise as nw


def mesh(n: int, seed: int = 0) -> np.ndarray:
    triangles = Delaunay(np.random.default_rng(seed).random((n, 2))).simplices
    A = np.zeros((n, n))
    for a, b in ((0, 1), (1, 2), (0, 2)):
        A[triangles[:, a], triangles[:, b]] = A[triangles[:, b], triangles[:, a]] = 1.0
    return A


def laplacian(A: np.ndarray) -> np.ndarray:
    return np.diag(A.sum(axis=1)) - A


def weight(A: np.ndarray, sides: np.ndarray) -> float:
    x = np.where(sides, 1.0, -1.0)
    return float(x @ laplacian(A) @ x) / 4


@pytest.mark.parametrize("n", [6, 14])
def test_the_relaxation_has_the_value_of_cvxpy(n: int) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    A = mesh(n, seed=n)
    basis = np.linalg.svd(np.ones((1, n)))[2][1:].T  # of the complement of e
    S = cvxpy.Variable((n - 1, n - 1), PSD=True)
    X = basis @ S @ basis.T
    expected = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(laplacian(A) @ X)), [cvxpy.diag(X) == 1]).solve()
    found = nw.balanced_cut(A, tol=1e-5)
    assert found.status is nw.Status.SOLVED
    assert 4 * found.certificate.primal == pytest.approx(expected, rel=2e-5)
    assert 4 * found.certificate.dual == pytest.approx(expected, rel=2e-5)


def test_the_relaxation_is_feasible_and_optimal_by_definition() -> None:
    A = mesh(30)
    found = nw.balanced_cut(A, epsilon=0.01)
    X = found.relaxation
    assert np.diag(X) == pytest.approx(1.0, abs=1e-6)
    assert X.sum(axis=0) == pytest.approx(0.0, abs=1e-10)
    assert np.linalg.eigvalsh(X)[0] > -1e-12
    centre = np.eye(30) - 1 / 30
    slack = centre @ (laplacian(A) + np.diag(found.dual)) @ centre
    assert np.linalg.eigvalsh(slack)[0] > -1e-10
    assert found.certificate.dual == pytest.approx(-found.dual.sum() / 4)
    # KSD09 6.4: X is nearest to epsilon L^+ in the LogDet divergence, so X^+ - L / epsilon is diagonal there
    assert slack @ X / found.epsilon == pytest.approx(centre, abs=1e-6)
    assert found.epsilon == 0.01


@pytest.mark.parametrize("seed", range(4))
def test_small_graphs_get_their_best_cut_and_no_cut_is_below_the_bound(seed: int) -> None:
    A = mesh(10, seed)
    found = nw.balanced_cut(A)
    cuts = []
    for chosen in combinations(range(10), 5):
        sides = np.zeros(10, bool)
        sides[list(chosen)] = True
        cuts.append(weight(A, sides))
    assert found.sides.sum() == 5
    assert found.value == weight(A, found.sides) == min(cuts)
    assert found.certificate.dual <= min(cuts)


def test_it_is_no_worse_than_spectral_bisection_of_a_mesh() -> None:
    A = mesh(200)
    fiedler = np.linalg.eigh(laplacian(A))[1][:, 1]
    spectral = np.zeros(200, bool)
    spectral[np.argsort(fiedler)[:100]] = True
    found = nw.balanced_cut(A, refine=False)
    assert found.value <= weight(A, spectral)
    assert nw.balanced_cut(sparse.csr_array(A)).value <= found.value
    assert "200 nodes" in repr(found)


def in_parts(*sizes: int) -> np.ndarray:
    """Complete graphs of these sizes that nothing joins, their nodes mixed."""
    n = sum(sizes)
    part = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return (part[:, None] == part).astype(float) - np.eye(n)


@pytest.mark.parametrize("sizes", [(5, 5), (2, 3, 4, 1), (3, 4), (1, 1, 1, 2, 1), (6, 1, 1, 1, 1, 1, 1)])
def test_two_halves_that_nothing_joins_are_found_and_proved(sizes: tuple[int, ...]) -> None:
    A = in_parts(*sizes)
    found = nw.balanced_cut(A)
    assert found.status is nw.Status.SOLVED
    assert found.value == weight(A, found.sides) == 0.0
    assert abs(2 * found.sides.sum() - len(A)) <= len(A) % 2
    assert (found.certificate.primal, found.certificate.dual, found.certificate.gap) == (0.0, 0.0, 0.0)
    X = found.relaxation
    assert (np.diag(X) == 1).all()
    assert not X.sum(axis=0).any()
    padded = np.pad(A, (0, len(A) % 2))
    assert np.sum(laplacian(padded) * X) == 0.0


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6])
@pytest.mark.parametrize("sizes", [(3, 4), (1, 5, 1), (2, 2, 7, 2), (7, 6, 1), (4, 5, 1, 4), (2,)])
def test_a_small_epsilon_solves_the_relaxation_of_a_cut_without_weight(
    sizes: tuple[int, ...], epsilon: float
) -> None:
    """Many multipliers prove the value 0, so that the Hessian is singular up to rounding."""
    A = in_parts(*sizes)
    found = nw.balanced_cut(A, epsilon=epsilon)
    n = len(A) + len(A) % 2
    assert found.status is nw.Status.SOLVED
    assert found.certificate.violation <= 1e-5
    assert np.diag(found.relaxation) == pytest.approx(1.0, abs=1e-5)
    # tr((L + diag(y)) X) = epsilon (n - 1), whatever is left of the error on the diagonal
    left = found.dual @ (np.diag(found.relaxation) - 1)
    width = 4 * (found.certificate.primal - found.certificate.dual)
    assert width == pytest.approx(epsilon * (n - 1) - left, rel=0.1)  # X is known to about 1e-16 / epsilon


@pytest.mark.parametrize("sizes", [(4, 5, 7), (3, 4, 4), (4, 5, 1, 5), (5, 6, 3)])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_a_relaxation_without_weight_is_solved_where_every_cut_has_some(
    sizes: tuple[int, ...], tol: float
) -> None:
    found = nw.balanced_cut(in_parts(*sizes), tol=tol)
    assert found.status is nw.Status.SOLVED
    assert found.value > 0
    assert found.certificate.dual <= 0 <= found.certificate.primal
    assert found.certificate.primal - found.certificate.dual <= tol  # the lightest edge weighs 1


def test_two_nodes() -> None:
    found = nw.balanced_cut([[0, 3.0], [3.0, 0]])
    assert found.status is nw.Status.SOLVED
    assert found.value == 3.0
    assert found.certificate.primal == pytest.approx(3.0)
    assert found.certificate.dual == pytest.approx(3.0, rel=1e-3)


def test_with_epsilon_the_relaxation_of_such_a_graph_is_solved_too() -> None:
    found = nw.balanced_cut(in_parts(5, 5), epsilon=0.1)
    assert found.status is nw.Status.SOLVED
    assert found.value == 0.0
    assert found.epsilon == 0.1


@pytest.mark.parametrize("sizes", [(2, 4, 4), (3, 7), (4, 4, 5)])
def test_parts_that_make_no_halves_are_cut_best(sizes: tuple[int, ...]) -> None:
    """Of (2, 4, 4) the relaxation has the value 0, which no cut has."""
    A = in_parts(*sizes)
    n = len(A)
    found = nw.balanced_cut(A)
    cuts = []
    for chosen in combinations(range(n), n // 2):
        sides = np.zeros(n, bool)
        sides[list(chosen)] = True
        cuts.append(weight(A, sides))
    assert found.status is nw.Status.SOLVED
    assert found.value == min(cuts) > 0
    assert found.certificate.dual <= min(cuts)
    assert found.certificate.primal - found.certificate.dual <= 1.1e-3 * max(found.certificate.primal, 1.0)


def test_an_odd_number_of_nodes_is_split_nearly_evenly() -> None:
    A = mesh(11)
    found = nw.balanced_cut(A)
    assert found.sides.shape == (11,)
    assert found.sides.sum() in (5, 6)
    cuts = []
    for chosen in combinations(range(11), 5):
        sides = np.zeros(11, bool)
        sides[list(chosen)] = True
        cuts.append(weight(A, sides))
    assert found.value == weight(A, found.sides) == min(cuts)
    assert found.certificate.dual <= min(cuts)
    assert nw.balanced_cut(np.ones((3, 3))).certificate.dual <= 2.0


def test_no_swap_of_two_objects_makes_a_cut_lighter() -> None:
    A = mesh(60)
    plain, refined = (nw.balanced_cut(A, n_roundings=1, refine=refine) for refine in (False, True))
    sides = refined.sides
    assert sides.sum() == plain.sides.sum() == 30
    assert weight(A, sides) < weight(A, plain.sides)
    pairs = [(i, j) for i in np.flatnonzero(sides) for j in np.flatnonzero(~sides)]
    assert weight(A, sides) <= min(weight(A, _swapped(sides, i, j)) for i, j in pairs)


def _swapped(sides: np.ndarray, i: int, j: int) -> np.ndarray:
    other = sides.copy()
    other[[i, j]] = ~other[[i, j]]
    return other


def test_the_same_seed_gives_the_same_cut() -> None:
    A = mesh(40)
    first, second = (nw.balanced_cut(A, refine=False, random_state=3) for _ in range(2))
    assert np.array_equal(first.sides, second.sides)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"adjacency": np.zeros((3, 3))}, "no edge"),
        ({"adjacency": [[0.0]]}, "two nodes"),
        ({"adjacency": [[0, -1], [-1, 0]]}, r"adjacency\[0, 1\] is -1.0"),
        ({"adjacency": [[0, 1], [2, 0]]}, "symmetric"),
        ({"epsilon": 0}, "epsilon"),
        ({"tol": -1}, "tol"),
        ({"n_roundings": 1.5}, "n_roundings"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], error: str) -> None:
    settings: dict[str, object] = {"adjacency": mesh(6)} | arguments
    with pytest.raises(ValueError, match=error):
        nw.balanced_cut(**settings)


def test_more_roundings_are_never_worse_and_none_leaves_the_eigenvector() -> None:
    rng = np.random.default_rng(0)
    A = np.triu(rng.random((16, 16)) * (rng.random((16, 16)) < 0.4), 1)
    A = A + A.T
    cuts = [nw.balanced_cut(A, n_roundings=n, refine=False) for n in (0, 1, 10, 100)]
    values = [cut.value for cut in cuts]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0]
    for cut in cuts:
        sides = np.asarray(cut.sides, bool)
        assert cut.value == pytest.approx(A[np.ix_(sides, ~sides)].sum())
    with pytest.raises(ValueError, match="n_roundings must be a whole number >= 0, got -1"):
        nw.balanced_cut(A, n_roundings=-1)
