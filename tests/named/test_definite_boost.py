"""DefiniteBoost: AdaBoost on diagonal matrices, the optimum by other means, theorem 4.1, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c


def feasible_matrices(d: int, m: int, seed: int = 0) -> np.ndarray:
    """Matrices, not symmetric, with tr(W C) < 0 for a hidden W of trace one."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(d, d))
    W = B @ B.T / np.sum(B * B)
    C = rng.normal(size=(m, d, d))
    return C - (np.einsum("jab,ab->j", C, W) + 0.01)[:, None, None] * np.eye(d)


def adaboost(edges: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of hypotheses and examples (Schapire and Singer 1999), with edges[j, i] = y_i h_j(x_i)."""
    weights = np.full(edges.shape[1], 1 / edges.shape[1])
    alphas = np.zeros(len(edges))
    for _ in range(steps):
        correlations = edges @ weights
        best = int(np.argmax(correlations))
        alpha = 0.5 * math.log((1 + correlations[best]) / (1 - correlations[best]))
        weights = weights * np.exp(-alpha * edges[best])
        weights /= weights.sum()
        alphas[best] += alpha
    return alphas, weights


@pytest.mark.parametrize("confident", [False, True])
def test_on_diagonal_matrices_it_is_adaboost(confident: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.choice([-1, 1], 60)
    stumps = [
        np.tanh(X[:, k] - t) if confident else np.sign(X[:, k] - t) for k in range(4) for t in (-0.5, 0.1)
    ]
    edges = y * np.array([sign * h for h in stumps for sign in (1, -1)])
    steps = 25
    alphas, weights = adaboost(edges, steps)
    found = nw.definite_boost(
        np.array([np.diag(edge) for edge in edges]),
        epsilon=1e-12,
        projections="approximate",
        corrections=False,
        eigenvalue_range=(-1, 1),
        max_iter=steps,
    )
    assert found.n_iter == steps
    assert found.dual == pytest.approx(alphas, abs=1e-10)
    assert np.diag(found.matrix) == pytest.approx(weights, abs=1e-12)
    loss = float(np.mean(np.exp(-(alphas @ edges))))
    assert found.certificate.dual == pytest.approx(-math.log(loss))


def test_separable_examples_are_infeasible() -> None:
    edges = np.array([[1, 1, -1], [1, -1, 1], [-1, 1, 1]], float)  # the vote of all three is always right
    found = nw.definite_boost(np.array([np.diag(edge) for edge in edges]), projections="approximate")
    assert found.status is nw.Status.INFEASIBLE
    assert found.certificate.dual > math.log(3)


@pytest.mark.long
@pytest.mark.parametrize("projections", ["exact", "approximate"])
def test_it_reaches_the_optimum_of_another_solver(projections: str) -> None:
    d, C = 4, feasible_matrices(4, 12)
    found = nw.definite_boost(C, epsilon=1e-7, projections=projections, max_iter=100_000)
    assert found.status is nw.Status.SOLVED
    assert np.trace(found.matrix) == pytest.approx(1.0, abs=1e-13)
    assert np.einsum("jab,ab->j", C, found.matrix).max() <= 1e-7
    symmetric = (C + C.swapaxes(1, 2)) / 2
    side = c.linear(symmetric, 0.0, "<=") + c.linear(np.eye(d), 1.0, "==")
    other = nw.solve(nw.Problem(np.eye(d), side, nw.VonNeumann(), np.eye(d) / d, math.inf), tol=1e-9)
    assert found.matrix == pytest.approx(other.matrix, abs=1e-5)
    assert found.certificate.primal == pytest.approx(other.certificate.primal, abs=1e-5)
    assert found.dual == pytest.approx(other.dual[:-1], abs=1e-4)


@pytest.mark.parametrize("projections", ["exact", "approximate"])
def test_corrections_reach_the_optimum_of_ksd09_24(projections: str) -> None:
    rows, bounds = np.array([[0.0912, 0.9385, -0.4377], [0.6020, 0.6020, -0.4377]]), [0.0238, 0.2554]
    C = np.array([np.diag(bound - row) for row, bound in zip(rows, bounds, strict=True)])
    found = nw.definite_boost(C, np.diag([0.1, 0.1, 0.8]), epsilon=1e-9, projections=projections)
    assert np.diag(found.matrix) == pytest.approx([1 / 3] * 3, abs=1e-3)  # the paper's numbers are rounded
    assert found.dual[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("corrections", [True, False])
@pytest.mark.parametrize("projections", ["exact", "approximate"])
def test_theorem_4_1_and_corollary_4_2(projections: str, corrections: bool) -> None:
    C = feasible_matrices(5, 8, seed=3)
    found = nw.definite_boost(C, epsilon=0.01, projections=projections, corrections=corrections)
    assert found.status is nw.Status.SOLVED
    assert 0 < found.n_iter <= found.most_steps
    duals = np.array([step.dual for step in found.steps])
    bounds = np.array([step.bound for step in found.steps])
    assert (np.diff(duals, prepend=0.0) > 0).all()
    assert (np.diff(bounds, prepend=0.0) > 0).all()
    assert (duals >= bounds - 1e-12).all()
    first = found.steps[0]
    symmetric = (C + C.swapaxes(1, 2)) / 2
    low, high = np.linalg.eigvalsh(symmetric[first.constraint])[[0, -1]]
    r, width = first.violation, high - low
    rho = (1 - r / high) ** (high / width) * (1 - r / low) ** (-low / width)
    assert first.bound == pytest.approx(-math.log(rho))
    assert first.constraint == np.argmax(np.trace(C, axis1=1, axis2=2))


def test_the_approximate_step_minimises_its_bound() -> None:
    """Golden-Thompson's bound on Z, by search: the erratum of TRW05 (4.6)."""
    from scipy.optimize import minimize_scalar

    C = feasible_matrices(4, 1, seed=2) + 2 * np.diag([1.0, -0.1, 0.1, 0.2])
    found = nw.definite_boost(C, projections="approximate", max_iter=1, epsilon=1e-9)
    [step] = found.steps
    low, high = np.linalg.eigvalsh((C[0] + C[0].T) / 2)[[0, -1]]
    share = (high - step.violation) / (high - low)
    best = minimize_scalar(
        lambda a: share * math.exp(-a * low) + (1 - share) * math.exp(-a * high), tol=1e-14
    )
    assert step.size == pytest.approx(best.x, rel=1e-6)


def test_a_definite_constraint_matrix_is_infeasible() -> None:
    assert nw.definite_boost([np.eye(2)]).status is nw.Status.INFEASIBLE
    met = nw.definite_boost([-np.eye(2)])
    assert met.status is nw.Status.SOLVED
    assert met.matrix == pytest.approx(np.eye(2) / 2)
    assert "0 steps" in repr(met)


def on_subspace(C: np.ndarray, basis: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """The answer where W may differ from zero on the span of an orthonormal basis only, by `solve`."""
    values, V = np.linalg.eigh(prior / np.trace(prior))
    inner = basis.T @ ((V * np.log(values)) @ V.T) @ basis
    values, V = np.linalg.eigh(inner)
    k = basis.shape[1]
    side = c.linear(basis.T @ C @ basis, 0.0, "<=") + c.linear(np.eye(k), 1.0, "==")
    problem = nw.Problem(np.eye(k), side, nw.VonNeumann(), (V * np.exp(values)) @ V.T, math.inf)
    found = nw.solve(problem, tol=1e-9)
    assert found.status is nw.Status.SOLVED
    return basis @ found.matrix @ basis.T


@pytest.mark.parametrize("projections", ["exact", "approximate"])
@pytest.mark.parametrize("prior", [None, np.array([[2.0, 0.5], [0.5, 1.0]])])
def test_a_singular_optimum(projections: str, prior: np.ndarray | None) -> None:
    found = nw.definite_boost([np.diag([1.0, 0.0])], prior, projections=projections)
    assert found.status is nw.Status.SOLVED
    assert found.matrix == pytest.approx(np.diag([0.0, 1.0]), abs=1e-15)
    assert found.dual.tolist() == [math.inf]
    values, V = np.linalg.eigh(np.eye(2) if prior is None else prior)
    divergence = -float(((V * np.log(values / values.sum())) @ V.T)[1, 1])
    assert found.certificate.primal == pytest.approx(divergence, rel=1e-14)
    assert found.certificate.dual == pytest.approx(divergence, rel=1e-14)
    assert found.certificate.violation == 0
    assert "W is singular: zero on the range of the positive semidefinite matrices 0." in found.message


@pytest.mark.parametrize("projections", ["exact", "approximate"])
def test_a_singular_optimum_among_other_constraints(projections: str) -> None:
    d = 5
    rng = np.random.default_rng(0)
    u, B = rng.normal(size=(d, 2)), rng.normal(size=(d, d))
    C = np.array([u @ u.T, *feasible_matrices(d, 3, seed=4) - 0.3 * np.eye(d)])
    prior = B @ B.T + np.eye(d)
    found = nw.definite_boost(C, prior, epsilon=1e-8, projections=projections, max_iter=100_000)
    assert found.status is nw.Status.SOLVED
    assert np.trace(found.matrix) == pytest.approx(1.0)
    values = np.linalg.eigvalsh(found.matrix)
    assert values[:2] == pytest.approx([0, 0], abs=1e-15)
    assert values[2] > 1e-3
    assert np.array_equal(np.isinf(found.dual), [True, False, False, False])
    symmetric = (C + C.swapaxes(1, 2)) / 2
    kernel = np.linalg.svd(u)[0][:, 2:]
    assert found.matrix == pytest.approx(on_subspace(symmetric[1:], kernel, prior), abs=1e-6)
    assert all(step.dual >= step.bound - 1e-12 for step in found.steps)
    assert found.certificate.gap < 1e-6


def test_what_one_matrix_leaves_makes_others_semidefinite() -> None:
    C = np.array([np.diag([-1.0, 1, 0, 0]), np.diag([1.0, 0, 0, 0]), np.diag([0.0, -5, -1, 0])])
    found = nw.definite_boost(C)
    assert found.status is nw.Status.SOLVED
    assert found.matrix == pytest.approx(np.diag([0, 0, 0.5, 0.5]), abs=1e-15)
    assert found.dual.tolist() == [math.inf, math.inf, 0.0]
    nothing = nw.definite_boost(np.array([*C, np.diag([0.0, 0, 1, 0]), np.diag([5.0, 0, 0, 1])]))
    assert nothing.status is nw.Status.INFEASIBLE
    assert "No positive semidefinite W of trace one" in nothing.message


@pytest.mark.parametrize("projections", ["exact", "approximate"])
def test_a_singular_optimum_that_no_single_matrix_forces(projections: str) -> None:
    """C_1 + C_2 >= 0 leaves only the third direction, whose divergence, log 3, is the highest there is."""
    C = [np.diag([1.0, -1, 0]), np.diag([-1.0, 2, 0])]
    found = nw.definite_boost(C, epsilon=1e-3, projections=projections)
    assert found.status is nw.Status.SOLVED
    assert np.diag(found.matrix) == pytest.approx([0, 0, 1], abs=1e-2)
    assert found.certificate.dual <= math.log(3) + 1e-12


@pytest.mark.parametrize("interval", [(-1, 1), (0, 1)])
def test_a_singular_optimum_with_a_common_range(interval: tuple[float, float]) -> None:
    found = nw.definite_boost([np.diag([1.0, 0.0])], eigenvalue_range=interval, projections="approximate")
    assert found.status is nw.Status.SOLVED
    assert np.diag(found.matrix) == pytest.approx([0, 1], abs=2e-3)


def test_rounding_does_not_hide_a_singular_matrix() -> None:
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    for scale in (1e-8, 1.0, 1e8):
        C = scale * (V * [3.0, 2.0, 1.0, 0, 0, 0]) @ V.T
        found = nw.definite_boost([C])
        assert found.status is nw.Status.SOLVED
        assert found.matrix == pytest.approx(V[:, 3:] @ V[:, 3:].T / 3, abs=1e-13)


def test_the_number_of_steps_is_limited() -> None:
    found = nw.definite_boost(feasible_matrices(4, 12), epsilon=1e-12, max_iter=2)
    assert found.status is nw.Status.LIMIT
    assert found.certificate.worst[0].value == found.certificate.violation > 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"matrices": np.zeros((0, 2, 2))}, "at least one"),
        ({"matrices": np.zeros((1, 2, 3))}, "square"),
        ({"matrices": [[[np.inf]]]}, "inf"),
        ({"prior": -np.eye(2)}, "positive definite"),
        ({"prior": np.eye(3)}, "shape"),
        ({"epsilon": 0}, "epsilon"),
        ({"projections": "rough"}, "'rough'"),
        ({"max_iter": 0}, "max_iter"),
        ({"eigenvalue_range": (-0.5, 1)}, "matrix 0 has eigenvalues from -1 to 1"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], error: str) -> None:
    settings: dict[str, object] = {"matrices": [np.diag([1.0, -1.0])]} | arguments
    with pytest.raises(ValueError, match=error):
        nw.definite_boost(**settings)
