"""Geometries of MBS11: Taylor slopes against the definition of a gradient, invariances, transports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm, logm, sqrtm

from nearwise.fixed_rank.cone import AffineInvariant, LogEuclidean
from nearwise.fixed_rank.geometry import Flat, Polar
from nearwise.fixed_rank.regression import Regression, matrix_forms, vector_forms
from nearwise.fixed_rank.subspace import Grassmann, Projection

Array = NDArray[np.float64]

D, R, N = 7, 3, 40
FIXED_RANK = {
    "flat": Flat(),
    "polar": Polar(),
    "polar 0.2": Polar(0.2),
    "fixed subspace": Polar(0.0),
    "only subspace": Polar(1.0),
}
FULL_RANK = {
    "flat": Flat(),
    "affine": AffineInvariant(),
    "affine straight": AffineInvariant(straight=True),
    "mirror": LogEuclidean(),
    "log-Euclidean": LogEuclidean(mirror=False),
}
GEOMETRIES = [(geometry, R) for geometry in FIXED_RANK.values()] + [(g, D) for g in FULL_RANK.values()]
every_geometry = pytest.mark.parametrize(("geometry", "rank"), GEOMETRIES, ids=str)
fixed_rank = pytest.mark.parametrize("geometry", FIXED_RANK.values(), ids=FIXED_RANK)


def problem(seed: int, indefinite: bool = False) -> Regression:
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(N) * 10
    if indefinite:
        return Regression(matrix_forms(rng.standard_normal((N, D, D))), y)
    return Regression(vector_forms(rng.standard_normal((N, D))), y)


def random_point(geometry: Any, rank: int, seed: int = 0) -> Any:
    return geometry.point(np.random.default_rng(seed).standard_normal((D, rank)))


def tangent(geometry: Any, point: Any, seed: int) -> Array:
    """A unit tangent vector: the gradient of another cost."""
    vector = geometry.gradient(point, problem(seed).evaluate(geometry.factor(point))[1])
    return vector / np.sqrt(geometry.inner(point, vector, vector))


def matrix(geometry: Any, point: Any) -> Array:
    G = geometry.factor(point)
    return G @ G.T


@every_geometry
@pytest.mark.parametrize("indefinite", [False, True])
def test_gradient_has_taylor_slope_two(geometry: Any, rank: int, indefinite: bool) -> None:
    cost = problem(1, indefinite)
    point = random_point(geometry, rank)
    value, slope = cost.evaluate(geometry.factor(point))
    gradient = geometry.gradient(point, slope)
    for seed in (2, 3):
        direction = tangent(geometry, point, seed)
        first_order = geometry.inner(point, gradient, direction)
        assert abs(first_order) > 1e-3
        steps = np.array([1e-3, 1e-4])
        errors = [
            abs(
                cost.evaluate(geometry.factor(geometry.retract(point, t * direction)))[0]
                - value
                - t * first_order
            )
            for t in steps
        ]
        assert np.log10(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)


def test_the_cost_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    X, G, y = rng.standard_normal((N, D)), rng.standard_normal((D, R)), rng.standard_normal(N)
    W = G @ G.T
    by_hand = np.mean([(x @ W @ x - target) ** 2 / 2 for x, target in zip(X, y, strict=True)])
    forms = vector_forms(X)
    assert Regression(forms, y).evaluate(G * forms.unit)[0] == pytest.approx(by_hand)
    outer = matrix_forms(X[:, :, None] * X[:, None, :])
    assert Regression(outer, y).evaluate(G * outer.unit)[0] == pytest.approx(by_hand)
    _, slope = Regression(forms, y).evaluate(G * forms.unit)
    gradient = np.mean([(x @ W @ x - t) * np.outer(x, x) for x, t in zip(X, y, strict=True)], axis=0)
    np.testing.assert_allclose(slope(np.eye(D)) * forms.unit**2, gradient, atol=1e-10)


@fixed_rank
def test_the_metric_is_17(geometry: Any) -> None:
    point = random_point(geometry, R)
    a, b = tangent(geometry, point, 1), tangent(geometry, point, 2)
    if isinstance(geometry, Flat):
        assert geometry.inner(point, a, b) == pytest.approx(np.trace(a.T @ b))
        return
    U, W, weight = point.basis, matrix(geometry, point), geometry.subspace_weight
    total = 0.0
    small = U.T @ W @ U
    inverse = np.linalg.inv(small)
    outside = np.eye(D) - U @ U.T
    moves = [v @ point.factor.T + point.factor @ v.T for v in (a, b)]  # how W moves
    xi = [outside @ move @ U @ inverse for move in moves]
    core = [U.T @ move @ U for move in moves]
    if weight > 0:
        total += np.trace(xi[0].T @ xi[1]) / weight
    if weight < 1:
        total += np.trace(core[0] @ inverse @ core[1] @ inverse) / (1 - weight)
    assert geometry.inner(point, a, b) == pytest.approx(total, rel=1e-9)


def test_a_polar_step_is_21() -> None:
    """With the polar factor in place of QR, which agrees to first order and does not depend on the basis."""
    geometry, cost, step = Polar(0.3), problem(1), 1e-3
    point = random_point(geometry, R)
    U, Rt = point.basis, point.core
    _, slope = cost.evaluate(point.factor)
    S = slope(np.eye(D))
    new = geometry.retract(point, -step * geometry.gradient(point, slope))
    moved = U - 2 * 0.3 * step * (np.eye(D) - U @ U.T) @ S @ U @ Rt @ Rt.T
    left, _, right = np.linalg.svd(moved, full_matrices=False)
    np.testing.assert_allclose(new.basis, left @ right, atol=1e-12)
    np.testing.assert_allclose(new.core, Rt @ expm(-0.5 * 0.7 * step * Rt.T @ U.T @ S @ U @ Rt), atol=1e-12)


def test_full_rank_steps_are_those_of_section_5() -> None:
    cost, step = problem(1), 1e-2
    G = np.random.default_rng(3).standard_normal((D, D))
    W = G @ G.T
    S = cost.evaluate(G)[1](np.eye(D))
    root = np.real(sqrtm(W))
    expected = {
        "affine": root @ expm(-step * root @ S @ root) @ root,  # (12), (13)
        "affine straight": W - step * W @ S @ W,  # (14) corrected: the LogDet update
        "mirror": expm(np.real(logm(W)) - step * S),  # the von Neumann update
        "flat": (G - 2 * step * S @ G) @ (G - 2 * step * S @ G).T,  # (9)
    }
    for name, wanted in expected.items():
        geometry: Any = FULL_RANK[name]
        point = geometry.point(G)
        slope = cost.evaluate(geometry.factor(point))[1]
        new = geometry.retract(point, -step * geometry.gradient(point, slope))
        np.testing.assert_allclose(matrix(geometry, new), wanted, rtol=1e-8, atol=1e-8, err_msg=name)


def test_the_polar_geometry_of_a_fixed_full_subspace_is_the_affine_invariant_one() -> None:
    cost, G = problem(1), np.random.default_rng(3).standard_normal((D, D))
    found = []
    for geometry in (Polar(0.0), AffineInvariant()):
        point = geometry.point(G)
        gradient = geometry.gradient(point, cost.evaluate(geometry.factor(point))[1])
        found.append(matrix(geometry, geometry.retract(point, -0.01 * gradient)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-9)


def test_a_straight_step_stays_inside_the_cone() -> None:
    geometry = AffineInvariant(straight=True)
    point = geometry.point(np.eye(D))
    new = geometry.retract(point, -50.0 * np.eye(D))
    assert np.linalg.eigvalsh(matrix(geometry, new)).min() > 0


@every_geometry
def test_retraction_is_the_identity_at_zero_with_the_right_slope(geometry: Any, rank: int) -> None:
    point = random_point(geometry, rank)
    direction = tangent(geometry, point, 1)
    W = matrix(geometry, point)
    np.testing.assert_allclose(matrix(geometry, geometry.retract(point, 0 * direction)), W, atol=1e-9)
    difference = [matrix(geometry, geometry.retract(point, sign * 1e-5 * direction)) for sign in (1.0, -1.0)]
    move = (difference[0] - difference[1]) / 2e-5
    S = np.random.default_rng(5).standard_normal((D, D))
    S = S + S.T
    # the move of W pairs with any linear cost as the metric says
    linear = geometry.inner(point, geometry.gradient(point, lambda M: S @ M), direction)
    assert np.trace(S @ move) == pytest.approx(linear, rel=1e-5, abs=1e-6)


@every_geometry
def test_transport_gives_tangent_vectors_of_the_new_point(geometry: Any, rank: int) -> None:
    point = random_point(geometry, rank)
    step, vector = 0.2 * tangent(geometry, point, 1), tangent(geometry, point, 2)
    new = geometry.retract(point, step)
    carried = geometry.transport(point, step, vector)
    np.testing.assert_allclose(geometry.transport(point, 0 * step, vector), vector, atol=1e-9)
    np.testing.assert_allclose(
        geometry.transport(point, step, 2 * vector - step),
        2 * carried - geometry.transport(point, step, step),
        atol=1e-9,
    )
    G = geometry.factor(new)
    if isinstance(geometry, Flat) and rank == R:
        np.testing.assert_allclose(G.T @ carried, carried.T @ G, atol=1e-9)  # horizontal
    if isinstance(geometry, Polar):
        outside, half = new.parts(carried)
        np.testing.assert_allclose(half, half.T, atol=1e-9)
        if geometry.subspace_weight == 0:
            assert np.abs(outside).max() < 1e-9
            assert geometry.inner(new, carried, carried) == pytest.approx(1.0)  # parallel
        if geometry.subspace_weight == 1:
            assert np.abs(half).max() < 1e-9


@fixed_rank
def test_a_mix_is_the_retraction_and_the_transport_of_the_step(geometry: Any) -> None:
    point = random_point(geometry, R)
    step = 0.7 * tangent(geometry, point, 1)
    X = np.random.default_rng(0).standard_normal((11, D))
    new, mix = geometry.retraction(point, step)
    np.testing.assert_allclose(mix(point.factor, step), new.factor, atol=1e-12)
    np.testing.assert_allclose(mix(X @ point.factor, X @ step), X @ new.factor, atol=1e-11)
    carried = geometry.transport(point, step, step)
    np.testing.assert_allclose(
        geometry.carried(point, step, new, mix)(point.factor, step), carried, atol=1e-11
    )


@fixed_rank
def test_nothing_depends_on_the_frame(geometry: Any) -> None:
    G = np.random.default_rng(0).standard_normal((D, R))
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((R, R)))[0]
    one, two = geometry.point(G), geometry.point(G @ Q)
    slope = problem(1).evaluate(G)[1]
    a, b = (geometry.gradient(point, slope) for point in (one, two))
    assert geometry.inner(one, a, a) == pytest.approx(geometry.inner(two, b, b))
    ends = [matrix(geometry, geometry.retract(p, -0.1 * g)) for p, g in ((one, a), (two, b))]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)


def test_lambda_says_what_moves() -> None:
    G, slope = np.random.default_rng(0).standard_normal((D, R)), problem(1).evaluate
    for weight in (0.0, 1.0):
        geometry = Polar(weight)
        point = geometry.point(G)
        new = geometry.retract(point, -0.01 * geometry.gradient(point, slope(G)[1]))
        projector = [p.basis @ p.basis.T for p in (point, new)]
        spectrum = [np.linalg.svd(p.core, compute_uv=False) for p in (point, new)]
        assert np.allclose(projector[0], projector[1], atol=1e-12) == (weight == 0.0)
        assert np.allclose(spectrum[0], spectrum[1], atol=1e-12) == (weight == 1.0)


@pytest.mark.parametrize("geodesic", [False, True])
def test_grassmann(geodesic: bool) -> None:
    rng = np.random.default_rng(0)
    geometry, cost = Grassmann(geodesic), Projection(rng.standard_normal((N, D)))
    U = geometry.point(rng.standard_normal((D, R)))
    value, slope = cost.evaluate(U)
    assert value == pytest.approx(np.mean([np.sum((U @ U.T @ x - x) ** 2) / 2 for x in cost.rows]))
    gradient = geometry.gradient(U, slope)
    np.testing.assert_allclose(U.T @ gradient, 0, atol=1e-12)
    direction = geometry.gradient(U, Projection(rng.standard_normal((N, D)) ** 3).evaluate(U)[1])
    direction /= np.linalg.norm(direction)
    errors = []
    for t in (1e-2, 1e-3):
        new = geometry.retract(U, t * direction)
        np.testing.assert_allclose(new.T @ new, np.eye(R), atol=1e-12)
        errors.append(abs(cost.evaluate(new)[0] - value - t * geometry.inner(U, gradient, direction)))
    assert np.log10(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)
    carried = geometry.transport(U, 0.3 * direction, gradient)
    np.testing.assert_allclose(geometry.retract(U, 0.3 * direction).T @ carried, 0, atol=1e-12)


def test_a_step_of_one_row_is_oja_s_update() -> None:
    rng = np.random.default_rng(0)
    x, geometry = rng.standard_normal(D), Grassmann()
    U = geometry.point(rng.standard_normal((D, R)))
    new = geometry.retract(U, -0.1 * geometry.gradient(U, Projection(x[None, :]).evaluate(U)[1]))
    by_hand = np.linalg.qr(U + 0.1 * (np.eye(D) - U @ U.T) @ np.outer(x, x) @ U)[0]
    np.testing.assert_allclose(new @ new.T, by_hand @ by_hand.T, atol=1e-12)
