"""Proofs that hard constraints contradict each other: right for every prior and in every unit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import eigh

import kkt
import nearwise as nw
from nearwise import constraints as c

G = np.random.default_rng(0).normal(size=(8, 4))
FEASIBLE = {
    "distances": c.at_most([(0, 1), (2, 3)], 0.5)
    + c.at_least([(0, 2), (4, 5)], 6.0)
    + c.equal([(1, 6)], 2.0),
    "comparison": c.at_most([(0, 1)], 0.5) + c.at_least([(4, 5)], 6.0) + c.closer([(0, 1, 7)], 0.3),
    "products": c.similarity([(0, 0), (1, 1)], 1.0, "==") + c.similarity([(0, 1)], 0.9, ">="),
}
INFEASIBLE = {
    "triangle": c.at_most([(0, 1), (1, 2)], 1.0) + c.at_least([(0, 2)], 5.0),
    "both ways": c.at_most([(0, 1)], 1.0) + c.at_least([(0, 1)], 2.0) + c.at_least([(3, 4)], 1.0),
    "products": c.similarity([(0, 0), (1, 1)], 1.0, "==") + c.similarity([(0, 1)], 1.1, ">="),
}
DIVERGENCES = (nw.LogDet(), nw.VonNeumann(), nw.Frobenius())
EXPONENTS = (-12, -9, -6, -3, 0, 3, 6, 9, 12)


def problem(side: nw.Constraints, divergence: nw.Divergence, exponent: int) -> nw.Problem:
    return nw.Problem(G, side, divergence, 10.0**exponent * np.eye(4), math.inf)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("name", FEASIBLE)
def test_no_prior_makes_a_feasible_problem_infeasible(name: str, divergence: nw.Divergence) -> None:
    for exponent in EXPONENTS:
        found = nw.solve(problem(FEASIBLE[name], divergence, exponent), max_iter=45)
        assert found.status is not nw.Status.INFEASIBLE
        if exponent == 0:
            found = nw.solve(problem(FEASIBLE[name], divergence, exponent))
            assert found.status is nw.Status.SOLVED


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("name", INFEASIBLE)
def test_a_contradiction_is_proved_whatever_the_prior(name: str, divergence: nw.Divergence) -> None:
    # inner products are violated relative to their size under the prior, so a large one hides what is wrong
    for exponent in (-9, -6, -3, 0, 3) if name == "products" else EXPONENTS:
        contradictory = problem(INFEASIBLE[name], divergence, exponent)
        found = nw.solve(contradictory)
        if exponent == 12 and isinstance(divergence, nw.Frobenius) and found.status is nw.Status.STALLED:
            continue  # the bounds are lost in the rounding of the distance to the prior
        assert found.status is nw.Status.INFEASIBLE
        y = found.dual
        A = kkt.written_out(contradictory).A
        S = np.einsum("k,kij->ij", y, A)
        size = sum(
            abs(weight) * np.abs(np.linalg.eigvalsh(each)).max() for weight, each in zip(y, A, strict=True)
        )
        assert y @ contradictory.bounds < 0
        assert np.linalg.eigvalsh(S)[0] >= -1e-6 * size


@pytest.mark.parametrize("name", INFEASIBLE)
def test_a_proof_depends_on_no_prior_and_no_unit(name: str) -> None:
    side = INFEASIBLE[name]
    y = nw.solve(problem(side, nw.LogDet(), 0)).dual
    checks = [nw.check_infeasibility(problem(side, nw.LogDet(), e), y) for e in EXPONENTS]
    for scale in (1e-9, 1e9):
        scaled = nw.Problem(G * [scale, 1.0, 1.0, 1 / scale], side, penalty=math.inf)
        checks.append(nw.check_infeasibility(scaled, y))
    assert all(check.valid for check in checks)
    wrong = y * np.where(np.arange(len(y)) == np.argmax(side.relations), 3.0, 1.0)
    for exponent in EXPONENTS:
        assert not nw.check_infeasibility(problem(side, nw.LogDet(), exponent), wrong).valid


def magnitude(row: kkt.Row) -> np.ndarray:
    """|A| of a row: both distances of a comparison, (e_i e_i' + e_j e_j') / 2 of an inner product."""
    if row.kind == "comparison":
        i, j, k, m = np.eye(8)[list(row.objects)]
        return np.outer(i - j, i - j) + np.outer(k - m, k - m)
    if row.kind == "similarity":
        i, j = np.eye(8)[list(row.objects)]
        return (np.outer(i, i) + np.outer(j, j)) / 2
    return row.matrix if row.kind == "distance" else kkt.spectral(np.abs, row.matrix)


@pytest.mark.parametrize("name", [*FEASIBLE, "general"])
def test_the_smallest_eigenvalue_by_its_definition(name: str) -> None:
    """S and sum |y_i| |A_i| written out, and LAPACK's generalised eigenvalues."""
    rng = np.random.default_rng(1)
    general = rng.normal(size=(3, 8, 8))
    side = FEASIBLE["comparison"] + c.linear(general + general.swapaxes(1, 2), [1.0, 2.0, 3.0], "==")
    side = side if name == "general" else FEASIBLE[name] + c.similarity([(5, 5), (6, 7)], 4.0, "==")
    hard = nw.Problem(G, side, penalty=math.inf)
    relations = np.asarray(hard.relations)
    y = np.where(relations == 0, -1.0, -relations) * rng.uniform(1, 2, len(relations))
    y *= np.where((relations != 0) & (y * hard.bounds > 0), 1e-3, 1.0)  # so that y'b < 0
    S = np.einsum("k,kij->ij", y, kkt.written_out(hard).A)
    rows = kkt.rows_of(hard.constraints, len(G))
    size = sum(abs(weight) * G.T @ magnitude(row) @ G for weight, row in zip(y, rows, strict=True))
    assert np.linalg.eigvalsh(size - S)[0] >= -1e-12
    assert np.linalg.eigvalsh(size + S)[0] >= -1e-12
    assert y @ hard.bounds < 0
    check = nw.check_infeasibility(hard, y)
    assert check.smallest_eigenvalue == pytest.approx(min(eigh(S, size, eigvals_only=True)[0], 0.0), abs=1e-9)


def test_a_small_multiplier_of_another_row_does_not_spoil_a_proof() -> None:
    hard = nw.Problem(G, INFEASIBLE["both ways"], penalty=math.inf)
    clean = np.array([1.0, -1.0, 0.0])
    spoiled = clean - [0.0, 0.0, 1e-6]  # d(3, 4) may be large in a matrix that meets the bounds
    assert nw.check_infeasibility(hard, clean).valid
    assert not nw.check_infeasibility(hard, spoiled).valid


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("seed", range(6))
def test_a_contradiction_among_many_tight_rows(seed: int, divergence: nw.Divergence) -> None:
    """Bounds from a matrix that meets them all, and one pair of rows that contradict each other."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(14, 9)) / 3
    B = rng.normal(size=(9, 9)) * np.exp(-rng.uniform(0, 3, 9))
    K = points @ B @ B.T @ points.T
    pairs = np.array([rng.choice(13, 2, replace=False) for _ in range(16)])
    squared = K[pairs[:, 0], pairs[:, 0]] + K[pairs[:, 1], pairs[:, 1]] - 2 * K[pairs[:, 0], pairs[:, 1]]
    side = c.at_most(pairs[:6], squared[:6]) + c.at_least(pairs[6:12], squared[6:12])
    side += c.equal(pairs[12:], squared[12:])
    tight = nw.solve(nw.Problem(points, side, divergence, penalty=math.inf), max_iter=60)
    assert tight.status is not nw.Status.INFEASIBLE
    far = float(np.median(squared))
    side += c.similarity([(0, 0), (13, 13)], far, "<=") + c.similarity([(0, 13)], 1.05 * far, ">=")
    contradictory = nw.Problem(points, side, divergence, penalty=math.inf)
    found = nw.solve(contradictory, max_iter=100)
    assert found.status is nw.Status.INFEASIBLE
    assert nw.check_infeasibility(contradictory, found.dual).valid


def test_a_proof_by_linear_rows_must_hold_with_what_rounding_hides_of_them() -> None:
    """tr(A M) <= 1 and >= 2, where the second A differs by 1e-17 of itself along what features hardly have.

    A large M along there meets both, so that it is no contradiction; with equal matrices it is one.
    """
    G = np.array([[1.0, 0.0], [1.0, 1e-10], [2.0, 0.0]])
    same = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    other = np.array([[1.0, -1e-3, 0.0], [-1e-3, 1e-3, 0.0], [0.0, 0.0, 0.0]]) + same * 1e-3
    y = np.array([1.0, -1.0])
    for second, expected in ((same, True), (other, False)):
        side = c.linear([same], 1.0, "<=") + c.linear([second], 2.0, ">=")
        problem = nw.Problem(G, side, nw.Frobenius(), penalty=np.inf)
        assert nw.check_infeasibility(problem, y).valid is expected


def test_bounds_on_one_distance_contradict_each_other_whatever_the_others_are() -> None:
    """Beside bounds of 1e20, a search among all rows sees nothing of 1 and 2."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(9, 3))
    G[8] = G[7]
    far = c.at_least([(0, 1), (2, 3), (4, 5)], [1e20, 1e15, 1e10]) + c.at_most([(0, 2), (1, 3)], 1e-15)
    for side, count in (
        (c.at_most([(6, 7)], 1.0) + c.at_least([(7, 6)], 2.0), 2),
        (c.closer([(6, 7, 6, 8)], margin=1.0), 1),
        (c.similarity([(6, 7)], 1.0, "==") + c.similarity([(7, 6)], 1.1, "=="), 2),
    ):
        result = nw.solve(nw.Problem(G, far + side, nw.VonNeumann(), penalty=np.inf))
        assert result.status is nw.Status.INFEASIBLE
        assert set(np.flatnonzero(result.dual)) == set(range(5, 5 + count))


def test_a_proof_must_hold_along_a_column_in_a_much_smaller_unit() -> None:
    G = np.array([[0.0, 0.0], [0.0, -1e-10], [2e10, 0.0], [1e10, 0.0]])
    side = c.closer([(2, 0, 3, 1)]) + c.equal([(3, 2)], 1e20)
    problem = nw.Problem(G, side, penalty=math.inf)
    assert not nw.check_infeasibility(problem, [1.0, -1.0]).valid
    assert nw.check_infeasibility(nw.Problem(G[:, :1], side, penalty=math.inf), [1.0, -1.0]).valid
    assert nw.solve(problem).status is not nw.Status.INFEASIBLE


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("difference", [1e-7, 1e-8, 1e-10, 1e-12])
def test_margins_that_are_small_beside_the_distances_are_no_contradiction(
    difference: float, divergence: nw.Divergence
) -> None:
    """On one feature M = larger meets the comparison, though S is only just below zero beside its parts."""
    x = np.array([[0.0], [1.0], [1.0 + difference]])
    for larger in (2.0, 1e3, 1e6, 1e9):
        side = c.closer([(0, 1, 2)], margin=larger * (x[2, 0] ** 2 - 1.0))
        near = nw.Problem(x, side, divergence, penalty=math.inf)
        assert not nw.check_infeasibility(near, [1.0]).valid
        for tol in (1e-6, 1e-12):
            assert nw.solve(near, tol=tol).status is not nw.Status.INFEASIBLE


def test_a_proof_is_not_lost_beside_features_that_have_no_part_in_it() -> None:
    """Two bounds on one distance contradict each other, though another object is 1e17 times as far away."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 5))
    x[:2, 0] = 1e-17 * rng.normal(size=2)
    side = c.at_least([(0, 1)], 4.0) + c.at_most([(1, 0)], 1.0) + c.at_most([(2, 3), (3, 4)], 9.0)
    two = nw.Problem(x, side, penalty=math.inf)
    for y in ([-1.0, 1.0, 0.0, 0.0], [-1.0, 1.0 + 1e-15, 0.0, 0.0]):
        assert nw.check_infeasibility(two, y).valid
