"""The problem: objective and certificate against definitions, weak duality, filled bounds, refused input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

import cases
import kkt
import nearwise as nw
from nearwise import constraints as c

divergences = pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)
seeds = st.integers(0, 2**32 - 1)
G3 = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])


SOFT = [case for case in cases.GRID if case.name.startswith("all kinds, r = 4") and case.penalty == 1.0]
soft_cases = pytest.mark.parametrize("case", SOFT, ids=lambda case: case.name)


def random_matrix(rng: np.random.Generator, case: cases.Case, problem: nw.Problem) -> np.ndarray:
    """A random M in the range of the prior."""
    r = problem.features.shape[1]
    prior = case.prior_of(problem)
    M0 = np.eye(r) if prior is None else prior
    return M0 @ cases.positive_definite(rng, r) @ M0 * rng.uniform(0.1, 10.0)


@divergences
@soft_cases
def test_objective_and_values_are_their_definitions(case: cases.Case, divergence: nw.Divergence) -> None:
    problem, rng = case.problem(divergence), np.random.default_rng(0)
    dense = kkt.written_out(problem, case.prior)
    for _ in range(3):
        M = random_matrix(rng, case, problem)
        assert_allclose(problem.values(M), dense.values(M), rtol=1e-9, atol=1e-10)
        assert_allclose(problem.objective(M), dense.objective(M), rtol=1e-8)
        certificate = problem.certificate(M, np.zeros(len(dense.A)))
        assert_allclose(certificate.primal, dense.objective(M), rtol=1e-8)
    M0 = np.eye(4) if case.prior is None else case.prior
    assert_allclose(problem.prior, M0, atol=1e-14)
    # at the prior only the losses are left
    assert_allclose(problem.objective(M0), dense.losses(dense.values(M0)).sum(), rtol=1e-8)


@divergences
def test_objective_is_infinite_outside_the_domain(divergence: nw.Divergence) -> None:
    prior = np.diag([1.0, 2.0, 0.0])
    problem = nw.Problem(np.eye(3), c.at_most([(0, 1)], 1.0), divergence, prior)
    assert problem.objective(np.diag([1.0, -1.0, 0.0])) == math.inf
    confined = not divergence.indefinite_prior
    assert (problem.objective(np.eye(3)) == math.inf) == confined


def test_certificate_is_infinite_outside_the_range_of_the_prior() -> None:
    problem = nw.Problem(np.eye(3), c.at_most([(0, 1)], 1.0), prior=np.diag([1.0, 2.0, 0.0]))
    certificate = problem.certificate(np.eye(3), [0.0])
    assert certificate.primal == problem.objective(np.eye(3)) == math.inf
    assert certificate.gap == math.inf


def test_objective_needs_a_matrix_of_the_right_shape() -> None:
    problem = nw.Problem(G3, c.at_most([(0, 1)], 1.0))
    for call in (problem.objective, problem.values, lambda M: problem.certificate(M, [0.0])):
        with pytest.raises(ValueError, match=r"shape \(2, 2\), got \(3, 3\)"):
            call(np.eye(3))


# --- certificates ------------------------------------------------------------------------------------------


@divergences
@soft_cases
@given(seed=seeds, size=st.floats(1e-3, 10.0))
@settings(max_examples=10)
def test_weak_duality_at_any_dual_point(
    case: cases.Case, divergence: nw.Divergence, seed: int, size: float
) -> None:
    problem, rng = case.problem(divergence), np.random.default_rng(seed)
    y = size * rng.normal(size=len(problem.bounds))
    y = np.where(problem.relations == 0, y, -np.abs(y) * problem.relations)
    M = random_matrix(rng, case, problem)
    certificate = problem.certificate(M, y)
    optimum = nw.solve(problem, tol=1e-9).certificate.primal
    assert certificate.dual <= optimum * (1 + 1e-9) + 1e-12 * certificate.primal
    # the bound belongs to the multipliers, not to the matrix beside which they are shown
    other = problem.certificate(random_matrix(rng, case, problem), y)
    rounding = 1e-8 * (abs(certificate.dual) + certificate.primal + other.primal)
    assert abs(certificate.dual - other.dual) <= rounding


@divergences
@given(seed=seeds)
@settings(max_examples=10)
def test_weak_duality_with_hard_rows(divergence: nw.Divergence, seed: int) -> None:
    rng = np.random.default_rng(seed)
    G, M = rng.normal(size=(6, 3)), cases.positive_definite(rng, 3)
    pairs = [(0, 1), (2, 3), (4, 5), (0, 5)]
    d = np.array([(G[i] - G[j]) @ M @ (G[i] - G[j]) for i, j in pairs])
    side = c.at_most(pairs[:2], d[:2] * 1.1) + c.at_least(pairs[2:3], d[2] * 0.9) + c.equal(pairs[3:], d[3])
    problem = nw.Problem(G, side, divergence, penalty=[1.0, math.inf, math.inf, math.inf])
    y = rng.normal(size=4) * rng.choice([0.01, 0.1, 1.0])
    y[:2], y[2] = np.abs(y[:2]), -abs(y[2])
    certificate = problem.certificate(M, y)
    assert certificate.hard_violation <= 1e-12
    assert certificate.dual <= problem.objective(M) * (1 + 1e-12)
    found = nw.solve(problem, tol=1e-9)
    assert certificate.dual <= found.certificate.primal * (1 + 1e-8)


def test_certificate_by_hand() -> None:
    """M = diag(2, 1), prior I, one row d(0, 1) <= 1 with penalty 3 and value 2."""
    problem = nw.Problem(G3, c.at_most([(0, 1)], 1.0) + c.at_least([(0, 2)], 1.0), penalty=3.0)
    certificate = problem.certificate(np.diag([2.0, 1.0]), [0.0, 0.0])
    distance, loss = 2 - math.log(2) - 1, 3 * (2 - math.log(2) - 1)
    assert certificate.primal == pytest.approx(distance + loss, rel=1e-12)
    assert certificate.dual == pytest.approx(0.0, abs=1e-12)  # multipliers 0 leave D(M, M0), at least 0
    assert certificate.gap == pytest.approx(1.0)
    assert (certificate.violation, certificate.hard_violation) == (pytest.approx(1.0), 0.0)
    [worst] = certificate.worst
    assert (worst.row, worst.name, worst.bound) == (0, "row 0: d(0, 1) <= 1", 1.0)
    assert (worst.value, worst.relative) == (pytest.approx(2.0), pytest.approx(1.0))
    assert certificate.holds(1.0 + 1e-12)
    assert not certificate.holds(0.5)


def test_worst_rows_come_worst_first_and_at_most_ten() -> None:
    G = np.arange(14.0)[:, None]
    pairs = [(0, k) for k in range(1, 14)]
    problem = nw.Problem(G, c.at_most(pairs, 1.0))
    worst = problem.certificate([[1.0]], np.zeros(13)).worst
    assert [violation.row for violation in worst] == list(range(12, 2, -1))
    assert worst[0].relative == pytest.approx(13.0**2 - 1)


# --- what the user gives -----------------------------------------------------------------------------------


def test_open_bounds_are_percentiles_of_squared_distances_under_the_prior() -> None:
    rng = np.random.default_rng(0)
    G, prior = rng.normal(size=(30, 3)), cases.positive_definite(rng, 3)
    side = c.similar([(0, 1)]) + c.dissimilar([(2, 3), (4, 5)]) + c.at_most([(6, 7)], 0.125)
    problem = nw.Problem(G, side, prior=prior)
    i, j = np.triu_indices(30, 1)
    distances = np.einsum("ki,ij,kj->k", G[i] - G[j], prior, G[i] - G[j])
    low, high = np.percentile(distances, [5, 95])
    assert_allclose(problem.bounds, [low, high, high, 0.125], rtol=1e-12)
    assert problem.describe(0) == f"row 0: d(0, 1) <= {low:.6g}"
    assert np.isnan(side.bounds[0])  # the constraints keep their open bounds


def test_open_bounds_of_many_objects_come_from_a_sample() -> None:
    G = np.random.default_rng(0).normal(size=(1_000, 2))
    first, second = (nw.Problem(G, c.similar([(0, 1)])).bounds[0] for _ in range(2))
    assert first == second
    i, j = np.triu_indices(1_000, 1)
    exact = np.percentile(np.sum((G[i] - G[j]) ** 2, axis=1), 5)
    assert first == pytest.approx(exact, rel=0.1)


def test_penalty_is_one_number_or_one_per_row() -> None:
    side = c.at_most([(0, 1), (0, 2)], 1.0)
    assert nw.Problem(G3, side, penalty=2).penalties.tolist() == [2.0, 2.0]
    assert nw.Problem(G3, side, penalty=[2, math.inf]).penalties.tolist() == [2.0, math.inf]
    assert nw.Problem(G3, side).penalties.tolist() == [1.0, 1.0]


def test_kernel_problem_spans_the_range_of_the_kernel() -> None:
    rng = np.random.default_rng(0)
    K0 = cases.positive_definite(rng, 6, rank=3)
    problem = nw.Problem.from_kernel(K0, c.at_most([(0, 1)], 1.0), nw.VonNeumann())
    V = problem.features
    assert V.shape == (6, 3)
    assert_allclose(V.T @ V, np.eye(3), atol=1e-12)
    assert_allclose(V @ problem.prior @ V.T, K0, atol=1e-12)
    indefinite = K0 - 0.5 * np.eye(6)
    kept = nw.Problem.from_kernel(indefinite, c.at_most([(0, 1)], 1.0), nw.Frobenius())
    assert_allclose(kept.features @ kept.prior @ kept.features.T, indefinite, atol=1e-12)


@pytest.mark.parametrize("kind", cases.KINDS)
def test_kernel_and_metric_formulations_of_logdet_agree(kind: str) -> None:
    """For LogDet, features G with prior I and the kernel problem of K0 = G G^T are one problem."""
    rng = np.random.default_rng(1)
    G = rng.normal(size=(6, 3))
    far = G @ rng.normal(size=(3, 3))
    side = cases.KINDS[kind](rng, far @ far.T)
    metric = nw.solve(nw.Problem(G, side), tol=1e-11)
    kernel = nw.solve(nw.Problem.from_kernel(G @ G.T, side), tol=1e-11)
    assert metric.certificate.primal > 1e-3
    assert_allclose(kernel.certificate.primal, metric.certificate.primal, rtol=1e-8)
    K = metric.kernel_factor @ metric.kernel_factor.T
    assert_allclose(kernel.kernel_factor @ kernel.kernel_factor.T, K, atol=1e-5 * np.abs(K).max())


@pytest.mark.parametrize("storage", ["sparse", "low-rank"])
def test_a_linear_row_does_not_depend_on_how_its_matrix_is_stored(storage: str) -> None:
    rng = np.random.default_rng(2)
    G = rng.normal(size=(6, 4))
    U = np.zeros((6, 2))
    U[:3] = rng.normal(size=(3, 2))
    weights = np.array([1.0, -0.7])
    A = U @ np.diag(weights) @ U.T
    stored = {"sparse": sparse.csr_array(A), "low-rank": (U, weights)}[storage]
    dense, other = (nw.solve(nw.Problem(G, c.linear(item, 60.0, ">=")), tol=1e-11) for item in (A, stored))
    assert dense.certificate.primal > 1e-2
    assert_allclose(other.certificate.primal, dense.certificate.primal, rtol=1e-8)
    assert_allclose(other.matrix, dense.matrix, atol=1e-5)


@pytest.mark.parametrize("offset", [1e4, 1e8])
@pytest.mark.parametrize("storage", ["dense", "factor", "sparse"])
def test_a_linear_row_keeps_what_features_with_a_large_common_part_differ_by(
    storage: str, offset: float
) -> None:
    G = offset + np.random.default_rng(3).integers(-8, 9, size=(6, 3)) / 4.0
    u, v = np.array([1.0, -1, 0, 0, 0, 0]), np.array([0.0, 2, -1, 0, -1, 0])
    pairs = {"square": (u[:, None], [1.0]), "other": (np.stack([u + v, u - v], axis=1), [0.25, -0.25])}
    for name, (U, w) in pairs.items():
        A = (U * w) @ U.T
        given = {"dense": A, "factor": (U, np.array(w)), "sparse": sparse.csr_array(A)}[storage]
        row = nw.Problem(G, c.linear(given, 1.0, "<="))
        x, y = (u, u) if name == "square" else (u, v)
        expected = (x @ G) @ (y @ G)
        assert row.values(np.eye(3)) == pytest.approx([expected], rel=1e-7)
        below_zero = nw.solve(nw.Problem(G, c.linear(given, -0.01, "<="), penalty=math.inf)).status
        assert (below_zero is nw.Status.INFEASIBLE) == (name == "square")


def test_repr_is_short() -> None:
    problem = nw.Problem(G3, c.at_most([(0, 1)], 1.0), nw.VonNeumann())
    assert repr(problem) == "<Problem: 3 objects, 2 features, VonNeumann(), <Constraints: 1 distance <=>>"


ROW = c.at_most([(0, 1)], 1.0)
NAN = math.nan
REFUSED: dict[str, tuple[type[Exception], str, dict]] = {
    "constraints of a wrong type": (TypeError, "got list", {"constraints": [(0, 1)]}),
    "divergence by name": (TypeError, "'logdet' has no scalar", {"divergence": "logdet"}),
    "divergence as a class": (TypeError, "divergence must be", {"divergence": nw.LogDet}),
    "features of text": (ValueError, "features must be .* numbers", {"features": [["a", "b"]]}),
    "ragged features": (ValueError, "features must be", {"features": [[1.0], [1.0, 2.0]]}),
    "sparse features": (TypeError, "features must be a dense", {"features": sparse.csr_array(G3)}),
    "features of one dimension": (ValueError, r"got shape \(2,\)", {"features": [1.0, 2.0]}),
    "no features": (ValueError, r"got shape \(3, 0\)", {"features": np.empty((3, 0))}),
    "no objects": (ValueError, r"got shape \(0, 2\)", {"features": np.empty((0, 2))}),
    "NaN feature": (ValueError, r"features\[1, 0\] is nan", {"features": [[0.0, 1.0], [NAN, 0.0]]}),
    "infinite feature": (ValueError, r"features\[0, 1\] is inf", {"features": [[0.0, math.inf], [1.0, 0.0]]}),
    "too large features": (ValueError, r"row 0: d\(0, 1\) <= 1: .* overflows", {"features": G3 * 1e200}),
    "a matrix on too large features": (
        ValueError,
        r"row 0: tr\(A\[0\] X\) <= 1: .* overflows",
        {"features": G3 * 1e120, "constraints": c.linear(np.eye(3), 1.0, "<="), "prior": 1e100 * np.eye(2)},
    ),
    "too many penalties": (ValueError, r"one number or 1 .* got shape \(2,\)", {"penalty": [1.0, 2.0]}),
    "zero penalty": (ValueError, r"penalty must be positive .* got 0\.0", {"penalty": 0}),
    "negative penalty": (ValueError, r"penalty\[0\] must be positive .* got -2\.0", {"penalty": [-2]}),
    "NaN penalty": (ValueError, "penalty must be positive .* got nan", {"penalty": NAN}),
    "prior of a wrong order": (ValueError, r"shape \(2, 2\) .* got \(3, 3\)", {"prior": np.eye(3)}),
    "prior not square": (ValueError, r"prior must be square, got shape \(2, 3\)", {"prior": np.ones((2, 3))}),
    "prior of one number": (ValueError, r"prior must be 2-dimensional, got shape \(\)", {"prior": 1.0}),
    "NaN prior": (ValueError, r"prior\[1, 0\] is nan", {"prior": [[1.0, 0.0], [NAN, 1.0]]}),
    "asymmetric prior": (
        ValueError,
        r"prior\[0, 1\] = 0.5 and prior\[1, 0\] = 0",
        {"prior": [[1.0, 0.5], [0.0, 1.0]]},
    ),
    "indefinite prior": (ValueError, "prior .* eigenvalue -0.5", {"prior": np.diag([1.0, -0.5])}),
    "zero prior": (ValueError, "prior is zero", {"prior": np.zeros((2, 2))}),
    "unknown id": (
        ValueError,
        r"row 1: d\(0, 7\) <= 1: the id 7 is not a row number below 3",
        {"constraints": c.at_most([(0, 1), (0, 7)], 1.0)},
    ),
    "unknown name": (ValueError, "the id 0 is not in sample_ids", {"sample_ids": ["a", "b", "c"]}),
    "wrong number of names": (ValueError, "sample_ids", {"sample_ids": [5, 6]}),
    "a name twice": (ValueError, "sample_ids.* 0", {"sample_ids": [0, 0, 1]}),
    "the same features, far apart": (
        ValueError,
        r"row 1: d\(1, 2\) >= 1: its objects have the same features",
        {
            "features": [[0.0], [1.0], [1.0]],
            "constraints": ROW + c.at_least([(1, 2)], 1.0),
            "penalty": np.inf,
        },
    ),
    "the same features, at a distance": (
        ValueError,
        r"row 0: d\(1, 2\) == 1",
        {"features": [[0.0], [1.0], [1.0]], "constraints": c.equal([(1, 2)], 1.0), "penalty": np.inf},
    ),
    "the same features, with a margin": (
        ValueError,
        r"row 0: d\(0, 1\) \+ 0.5 <= d\(0, 2\)",
        {"features": [[1.0], [1.0], [1.0]], "constraints": c.closer([(0, 1, 2)], 0.5), "penalty": np.inf},
    ),
    "nothing to fill a bound from": (
        ValueError,
        "all objects have the same features",
        {"features": np.ones((3, 2)), "constraints": c.similar([(0, 1)])},
    ),
    "outside the range of the prior": (
        ValueError,
        r"row 1: d\(0, 2\) >= 1: it lies outside the range of the prior",
        {"prior": np.diag([1.0, 0.0]), "constraints": ROW + c.at_least([(0, 2)], 1.0), "penalty": np.inf},
    ),
}


@pytest.mark.parametrize(
    ("divergence", "solver"),
    [
        (nw.LogDet(), None),
        (nw.VonNeumann(), None),
        (nw.Frobenius(), None),
        (nw.LogDet(), nw.solvers.CyclicProjections()),
        (nw.VonNeumann(), nw.solvers.CyclicProjections()),
    ],
)
def test_soft_rows_that_no_matrix_can_meet_are_left_out(divergence: nw.Divergence, solver: Any) -> None:
    G = np.random.default_rng(0).standard_normal((8, 3))
    G[6], G[7] = G[1], G[2]
    side = c.at_most([(0, 1), (2, 3)], 0.5) + c.at_least([(4, 5)], 20.0)
    lost = c.at_least([(1, 6)], 2.0) + c.equal([(2, 7)], 3.0)
    expected = nw.solve(nw.Problem(G, side, divergence, penalty=2.0), solver, tol=1e-11)
    with pytest.warns(
        nw.LeftOutWarning, match=r"2 constraints are left out.*\(row 3: d\(1, 6\) >= 2: its objects"
    ):
        problem = nw.Problem(G, side + lost, divergence, penalty=2.0)
    found = nw.solve(problem, solver, tol=1e-11)
    assert found.status is nw.Status.SOLVED
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=1e-6, atol=1e-8)
    assert found.dual[3:].tolist() == [0.0, 0.0]
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-6)
    with pytest.raises(ValueError, match=r"row 4: d\(2, 7\) == 3: its objects have the same features"):
        nw.Problem(G, side + lost, divergence, penalty=[2.0, 2.0, 2.0, 2.0, np.inf])


@pytest.mark.parametrize("unit", [1e-140, 1.0, 1e150])
@pytest.mark.parametrize("prior", [None, np.diag([2.0, 1.0])], ids=["identity", "diagonal"])
def test_only_equal_objects_cannot_be_told_apart(unit: float, prior: np.ndarray | None) -> None:
    G = unit * np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1e-9], [1.0, 0.0]])
    side = c.dissimilar([(0, 1), (1, 2), (1, 3)]) + c.similar([(1, 3)])
    side += c.closer([(1, 3, 0), (3, 0, 1)], 0.5 * unit**2)
    with pytest.warns(nw.LeftOutWarning, match=r"1 constraint is left out.*\(row 2: d\(1, 3\) >= ") as warned:
        nw.Problem(G, side, prior=prior)
    assert len(warned) == 1


def test_a_soft_row_outside_the_range_of_the_prior_is_left_out() -> None:
    G = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    side = c.at_most([(0, 1)], 0.5) + c.at_least([(0, 2)], 1.0)
    with pytest.warns(nw.LeftOutWarning, match="1 constraint is left out.*outside the range of the prior"):
        problem = nw.Problem(G, side, prior=np.diag([1.0, 0.0]), penalty=1.0)
    assert nw.solve(problem).dual[1] == 0.0


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name(name: str) -> None:
    error, message, changed = REFUSED[name]
    arguments = {"features": G3, "constraints": ROW, **changed}
    with pytest.raises(error, match=message):
        nw.Problem(**arguments)


@pytest.mark.parametrize(
    ("message", "K0", "divergence"),
    [
        (r"K0 must be square, got shape \(2, 3\)", np.ones((2, 3)), nw.LogDet()),
        (r"K0\[0, 1\] is nan", [[1.0, NAN], [NAN, 1.0]], nw.LogDet()),
        (r"K0\[0, 1\] = 2.0 and K0\[1, 0\] = 1.0", [[1.0, 2.0], [1.0, 5.0]], nw.Frobenius()),
        ("K0 .* eigenvalue -1", np.diag([1.0, -1.0]), nw.VonNeumann()),
        ("K0 is zero", np.zeros((2, 2)), nw.LogDet()),
    ],
)
def test_bad_kernel_is_refused_by_name(message: str, K0: object, divergence: nw.Divergence) -> None:
    with pytest.raises(ValueError, match=message):
        nw.Problem.from_kernel(K0, ROW, divergence)


def test_rows_outside_the_range_may_ask_for_zero() -> None:
    problem = nw.Problem(G3, c.at_most([(0, 2)], 1.0), prior=np.diag([1.0, 0.0]), penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.matrix, np.diag([1.0, 0.0]), atol=1e-15)


def test_another_penalty_is_another_problem_on_the_same_rows() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12, 3))
    side = c.similar([(0, 1), (2, 3)]) + c.at_least([(4, 5), (6, 7)], [9.0, 16.0])
    for divergence in (nw.LogDet(), nw.VonNeumann(), nw.Frobenius()):
        first = nw.Problem(X, side, divergence, np.diag([1.0, 2.0, 3.0]), 1.0)
        changed, anew = (
            first.with_penalty([2.0, 3.0, np.inf, 5.0]),
            nw.Problem(X, side, divergence, np.diag([1.0, 2.0, 3.0]), [2.0, 3.0, np.inf, 5.0]),
        )
        assert np.array_equal(changed.penalties, anew.penalties)
        assert np.array_equal(changed.bounds, anew.bounds)
        assert np.array_equal(nw.solve(changed).matrix, nw.solve(anew).matrix)
        assert np.array_equal(first.penalties, np.ones(4))
    with pytest.raises(ValueError, match="penalty must be positive"):
        first.with_penalty(0.0)


def test_another_penalty_says_no_second_time_what_was_left_out() -> None:
    X = np.array([[0.0], [0.0], [1.0]])
    with pytest.warns(nw.LeftOutWarning, match="1 constraint is left out"):
        problem = nw.Problem(X, c.at_least([(0, 1), (0, 2)], 4.0))
    assert nw.solve(problem.with_penalty(2.0)).status is nw.Status.SOLVED  # and no warning
    with pytest.raises(ValueError, match=r"row 0: d\(0, 1\) >= 4: its objects have the same features"):
        problem.with_penalty(np.inf)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann()], ids=lambda d: type(d).__name__)
def test_a_factor_states_the_problem_of_its_kernel(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(3)
    G = rng.normal(size=(15, 4)) * [1.0, 2.0, 0.5, 3.0]
    G[:, 3] = G[:, 0] + G[:, 1]  # of rank three
    side = c.at_most([(0, 1), (2, 3)], 1.0) + c.at_least([(4, 5), (6, 7)], 30.0)
    by_kernel = nw.solve(nw.Problem.from_kernel(G @ G.T, side, divergence), tol=1e-9)
    by_factor = nw.solve(nw.Problem.from_factor(G, side, divergence), tol=1e-9)
    assert by_factor.matrix.shape == (3, 3)
    left, right = (r.kernel_factor @ r.kernel_factor.T for r in (by_kernel, by_factor))
    assert_allclose(left, right, rtol=0, atol=1e-4 * np.abs(left).max())
    assert by_factor.certificate.primal == pytest.approx(by_kernel.certificate.primal, rel=1e-5)
    with pytest.raises(ValueError, match="G is zero"):
        nw.Problem.from_factor(np.zeros((3, 2)), side.restricted_to([0, 1])[0])


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann()], ids=lambda d: type(d).__name__)
def test_new_objects_get_the_learned_kernel(divergence: nw.Divergence) -> None:
    """Against the transformation of the vectors themselves, which exist here."""
    rng = np.random.default_rng(8)
    X, new = rng.normal(size=(9, 4)), rng.normal(size=(5, 4))
    side = c.at_most([(0, 1), (2, 3)], 1.0) + c.at_least([(4, 5)], 30.0)
    problem = nw.Problem.from_kernel(X @ X.T, side, divergence)
    M = nw.solve(problem, tol=1e-9).matrix
    # K = X W X^T for one W in the span of X, which is everything
    W = np.linalg.pinv(X) @ problem.features @ M @ problem.features.T @ np.linalg.pinv(X).T
    G = problem.new_features(new @ X.T)
    assert_allclose(G @ M @ problem.features.T, new @ W @ X.T, atol=1e-8)
    assert_allclose(G @ M @ G.T + new @ new.T - G @ problem.prior @ G.T, new @ W @ new.T, atol=1e-8)
    assert_allclose(problem.new_features(X @ X.T), problem.features, atol=1e-10)
    with pytest.raises(ValueError, match=r"K_new must have 9 columns, one per object, got \(5, 4\)"):
        problem.new_features(new)
    with pytest.raises(ValueError, match="only in problems of from_kernel"):
        nw.Problem(X, side).new_features(new @ X.T)


def test_what_is_new_about_an_object_stays_as_it_was() -> None:
    X, new = np.eye(3)[:2], np.array([[1.0, 2.0, 5.0]])
    problem = nw.Problem.from_kernel(X @ X.T, c.at_most([(0, 1)], 1.0), penalty=np.inf)
    M, G = nw.solve(problem).matrix, problem.new_features(new @ X.T)
    among = G @ M @ G.T + new @ new.T - G @ problem.prior @ G.T
    learned = problem.features @ M @ problem.features.T  # the third axis keeps 5^2
    assert among[0, 0] == pytest.approx(25.0 + new[0, :2] @ learned @ new[0, :2])


@divergences
def test_a_penalty_in_its_own_unit_means_the_same_in_every_unit(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(1)
    G = rng.normal(size=(9, 3))
    found = []
    for scale in (1.0, 100.0):
        side = c.at_most([(0, 1), (2, 3)], scale**2) + c.at_least([(4, 5)], 9.0 * scale**2)
        problem = nw.Problem(scale * G, side, divergence)
        found.append(nw.solve(problem.with_penalty(2.0 * problem.penalty_unit), tol=1e-9).matrix)
    assert_allclose(found[0], found[1], atol=1e-5)


def test_a_problem_of_a_factor_has_the_penalties_and_ids_that_are_given() -> None:
    """The kernel of a factor is the identity on its columns: the same as a problem of its rows."""
    G = np.random.default_rng(0).normal(size=(6, 3))
    names, side = list("uvwxyz"), c.equal([("u", "v"), ("w", "z")], [1.0, 2.0])
    penalty = [0.5, math.inf]
    found = nw.Problem.from_factor(G, side, penalty=penalty, sample_ids=names)
    assert found.describe(1) == "row 1: d('w', 'z') == 2"
    rows = nw.Problem(G, side, penalty=penalty, sample_ids=names)
    assert_allclose(nw.solve(found, tol=1e-9).certificate.primal, nw.solve(rows, tol=1e-9).certificate.primal)
    by_kernel = nw.Problem.from_kernel(G @ G.T, side, penalty=penalty, sample_ids=names)
    assert by_kernel.describe(1) == found.describe(1)
    for wrong, error in (
        (names[:3], "sample_ids has 3 entries, but there are 6 objects"),
        (["u"] * 6, "twice"),
    ):
        with pytest.raises(ValueError, match=error):
            nw.Problem.from_factor(G, side, sample_ids=wrong)


@pytest.mark.parametrize("penalty", ["a", "2", 1j])
def test_a_penalty_is_a_number(penalty: Any) -> None:
    with pytest.raises(TypeError, match="penalty must be real numbers, got"):
        nw.Problem(G3, c.equal([(0, 1)], 1.0), penalty=penalty)


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=repr)
@pytest.mark.parametrize("kind", ["distance", "comparison", "similarity", "linear"])
@pytest.mark.parametrize(
    ("size", "how"), [(1e-161, "under"), (1e-154, "under"), (2e153, "over"), (1e155, "over")]
)
def test_rows_out_of_range_are_refused(size: float, how: str, kind: str, divergence: nw.Divergence) -> None:
    """Of squares below 1e-305 multipliers are infinite, of squares above 1e305 sums are."""
    b = min(max(0.5 * size * size, 5e-324), 1e308)
    side = {
        "distance": c.at_most([(0, 1)], b),
        "comparison": c.closer([(0, 1, 2)], margin=b),
        "similarity": c.similarity([(1, 1)], b, "=="),
        "linear": c.linear([np.diag([0.0, 1.0, 2.0])], b, "<="),
    }[kind]
    features = size * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=f"^row 0: .*squared size of its features {how}flows; rescale them"):
        nw.Problem(features, side, divergence, penalty=np.inf)


@pytest.mark.parametrize("columns", [3, 20, 40])
def test_a_matrix_of_zeros_asks_nothing(columns: int) -> None:
    G = np.random.default_rng(0).normal(size=(10, columns))
    near = c.at_most([(0, 1)], 1.0)
    expected = nw.solve(nw.Problem(G, near)).matrix
    for zeros in ([np.zeros((10, 10))], (np.zeros((10, 1)), np.ones(1))):
        found = nw.solve(nw.Problem(G, c.linear(zeros, 0.0, "<=") + near))
        np.testing.assert_allclose(found.matrix, expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["full", "diagonal", "singular"])
def test_features_whose_squares_overflow_are_refused_however_small_the_prior_is(kind: str) -> None:
    """Vectors of 1e160 counted as rounding errors of each other: their rows asked nothing, without a word."""
    rng = np.random.default_rng(0)
    G, root = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
    prior = {"full": root @ root.T, "diagonal": np.eye(3), "singular": root[:, :2] @ root[:, :2].T}[kind]
    side = c.at_most([(0, 1)], 1e10) + c.at_least([(2, 3)], 1e10)
    for exponent in (160, 200):
        with pytest.raises(ValueError, match=r"row 0: d\(0, 1\) <= 1e\+10: the squared size .* overflows"):
            nw.Problem(G * 10.0**exponent, side, prior=1e-300 * prior)
    assert nw.solve(nw.Problem(G * 1e150, side, prior=1e-300 * prior)).status is nw.Status.SOLVED
