"""Farkas certificates: proofs that hold, multipliers that only nearly do, and how few rows are named."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import eigh

from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

RNG = np.random.default_rng(0)
F = RNG.normal(size=(8, 4))
AT_MOST, EQUAL, AT_LEAST = -1, 0, 1


def of_pairs(
    pairs, relations, bounds, features=F, divergence=None, penalties=np.inf, offsets=None, products=()
):
    """Squared distances of pairs of objects; the rows in `products` are inner products instead."""
    m = len(pairs)
    row = np.array(sorted(range(m), key=lambda i: i in products))
    first, second = np.asarray(pairs)[row].T
    rows = Rows.of(features, first, second, m - len(products), np.ones(m), row, m, offsets)
    relations = np.asarray(relations, dtype=np.int8)
    penalties, bounds = np.full(m, penalties), np.asarray(bounds, dtype=float)
    sizes = rows.magnitudes(np.ones(features.shape[1]))
    definite = np.array([i not in products for i in range(m)])
    divergence = LogDet() if divergence is None else divergence
    loss = Loss(divergence, relations, bounds, penalties, sizes, definite)
    return Formulation.of(divergence, np.ones(features.shape[1]), rows, loss)


def of_comparison(i, j, k, m, margin, features, divergence=None):
    """d(i, j) - d(k, m) <= -margin."""
    rows = Rows.of(
        features, np.array([i, k]), np.array([j, m]), 2, np.array([1.0, -1.0]), np.zeros(2, int), 1
    )
    sizes = rows.magnitudes(np.ones(features.shape[1]))
    divergence = Frobenius() if divergence is None else divergence
    loss = Loss(
        divergence, np.array([-1], np.int8), np.array([-margin]), np.array([np.inf]), sizes, np.zeros(1, bool)
    )
    return Formulation.of(divergence, np.ones(features.shape[1]), rows, loss)


def triangle(features=F, bound=5.0, divergence=None, penalties=np.inf, offsets=None):
    """d(0, 1), d(1, 2) <= 1 and d(0, 2) >= bound: contradictory if that is more than 4."""
    return of_pairs(
        [(0, 1), (1, 2), (0, 2)],
        [AT_MOST, AT_MOST, AT_LEAST],
        [1.0, 1.0, bound],
        features,
        divergence,
        penalties,
        offsets,
    )


Y = np.array([2.0, 2.0, -1.0])


def test_the_smallest_eigenvalue_and_the_bound_are_their_definitions() -> None:
    form = of_pairs([(0, 1), (1, 2), (0, 2), (3, 5)], [-1, -1, 1, -1], [1.0, 1.0, 5.0, 0.01], products=(3,))
    y = np.array([1.0, 1.5, -1.2, 2.0])
    A = [form.rows.adjoint(e) for e in np.eye(4)]
    S = np.einsum("i,ijk->jk", y, A)
    magnitude = (
        np.einsum("i,ijk->jk", np.abs(y[:3]), A[:3])
        + y[3] * (np.outer(F[3], F[3]) + np.outer(F[5], F[5])) / 2
    )
    found = form.check(y)
    assert found.smallest_eigenvalue == pytest.approx(eigh(S, magnitude, eigvals_only=True)[0], abs=1e-12)
    bounds = y * form.loss.bounds
    assert found.bound == pytest.approx(bounds.sum() / np.abs(bounds).sum())
    assert found.rows[0] == np.argmax(np.abs(y) * form.loss.references)
    assert not found.valid


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann(), Frobenius()], ids=lambda d: type(d).__name__)
def test_a_proof_holds_and_its_neighbours_do_not(divergence) -> None:
    form = triangle(divergence=divergence)
    assert form.check(Y).valid
    assert form.check(1e-200 * Y).valid
    for wrong in (-Y, 0 * Y, Y * [1, 1, 0.1], Y * [1, 1, 3], Y * [1, 0, 1], Y * np.nan, [1.0, 0.0, 0.0]):
        assert not form.check(np.asarray(wrong)).valid
    for nearly in (1e-6, 1e-9, 1e-12):
        assert not form.check(
            Y * [1, 1, 1 + nearly]
        ).valid  # large d(0, 2) is possible along what this measures
        assert form.check(Y * [1, 1, 1 - nearly]).valid
    assert not triangle(bound=3.999, divergence=divergence).check(Y).valid
    assert not triangle(bound=4.0, divergence=divergence).check(Y).valid
    assert triangle(bound=4.001, divergence=divergence).check(Y).valid


def test_soft_rows_and_multipliers_of_the_wrong_sign_prove_nothing() -> None:
    assert not triangle(penalties=1.0).check(Y).valid
    assert triangle(penalties=1.0).farkas(Y) is None
    form = of_pairs([(0, 1), (1, 2), (0, 2), (3, 4)], [-1, -1, 1, 1], [1.0, 1.0, 5.0, 0.1])
    assert form.check(np.append(Y, 3.0)).valid  # an upper multiplier of a lower bound counts as zero
    assert form.check(np.append(Y, 3.0)).rows == (2, 0, 1)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_no_basis_and_no_unit_matters(scale) -> None:
    T = np.linalg.qr(RNG.normal(size=(4, 4)))[0] * [1.0, scale, 1.0, 1 / np.sqrt(scale)]
    moved = F.copy()
    moved[:3] += 3.0  # what the rows have in common changes nothing
    for bound in (3.9, 4.5):
        for features in (F @ T, moved, scale * F):
            form = triangle(features, bound)
            assert form.check(Y).valid is (bound > 4)
            assert (form.farkas(Y) is not None) is (bound > 4)
        form = of_pairs([(0, 1), (1, 2), (0, 2)], [-1, -1, 1], np.array([1.0, 1.0, bound]) * scale)
        assert form.check(Y).valid is (bound > 4)
        assert form.scaled().form.check(Y).valid is (bound > 4)


def test_fixed_parts_of_values_count() -> None:
    assert not triangle(bound=5.0, offsets=np.array([0.0, 0.0, 1.5])).check(Y).valid
    assert triangle(bound=3.0, offsets=np.array([0.5, 0.5, 0.0])).check(Y).valid


def test_bounds_of_zero_contradict_only_where_matrices_are_definite() -> None:
    zero = [0.0, 1.0]
    for divergence, expected in ((LogDet(), True), (VonNeumann(), False), (Frobenius(), False)):
        form = of_pairs([(0, 1), (2, 3)], [AT_MOST, AT_MOST], zero, divergence=divergence)
        assert form.check(np.array([1.0, 0.0])).valid is expected
        found = form.farkas(np.array([1.0, 1e-3]))
        assert (found is not None) is expected
    same = F.copy()
    same[1] = same[0]  # measures nothing, so that zero is what it always is
    assert not of_pairs([(0, 1)], [AT_MOST], [0.0], same).check(np.array([1.0])).valid
    assert of_pairs([(0, 1)], [AT_LEAST], [1.0], same).check(np.array([-1.0])).valid


def test_errors_of_a_search_are_left_out_and_corrected() -> None:
    pairs, relations = [(0, 1), (1, 2), (0, 2), (3, 4), (5, 6)], [-1, -1, 1, 1, -1]
    form = of_pairs(pairs, relations, [1.0, 1.0, 5.0, 1.0, 2.0])
    for error in (1e-3, 1e-6, 1e-9):
        rough = np.append(Y, [-error, error]) * (1 + error * np.array([1, -1, 0.5, 0, 0]))
        assert not form.check(rough).valid
        found = form.farkas(rough)
        assert_allclose(found, [1.0, 1.0, -0.5, 0.0, 0.0], atol=3 * error)
        assert form.check(found).valid
    assert form.farkas(np.append(Y * [1, 1, -1], [0.0, 0.0])) is None
    assert form.farkas(np.full(5, np.nan)) is None


def test_a_singular_sum_is_found_though_only_some_directions_stay() -> None:
    """Two equal distances of inner products: S has rank 2 of 3, and its kernel turns with multipliers."""
    form = of_pairs([(0, 0), (1, 1), (0, 1)], [EQUAL, EQUAL, AT_LEAST], [1.0, 1.0, 1.2], products=(0, 1, 2))
    exact = np.array([1.0, 1.0, -2.0])
    for error in (1e-4, 1e-7):
        found = form.farkas(exact * [1 + error, 1 - error, 1 + error])
        assert form.check(found).valid
    assert form.farkas(exact * [1.0, 1.0, 1.5]) is None


@pytest.mark.parametrize("seed", range(6))
def test_few_of_many_rows_are_named(seed) -> None:
    """A proof of all of many contradictory rows becomes one of a minimal set."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(9, 5))
    pairs = np.array([(i, j) for i in range(9) for j in range(i)])
    d = np.square(features[pairs[:, 0]] - features[pairs[:, 1]]).sum(axis=1)
    near = d < np.quantile(d, 0.4)
    form = of_pairs(pairs, np.where(near, AT_MOST, AT_LEAST), np.where(near, 0.7 * d, 1.6 * d), features)
    every = _interior(form)
    assert form.check(every).valid
    found = form.farkas(every)
    rows = np.flatnonzero(found)
    assert len(rows) <= 12  # of 36
    assert np.abs(found).max() == 1
    assert form.check(found).valid
    for row in rows:
        assert not form.check(np.where(np.arange(36) == row, 0.0, found)).valid


def _interior(form: Formulation) -> np.ndarray:
    """A Farkas certificate of all rows, as interior as there is one."""
    m, sign = form.rows.n_rows, np.where(form.loss.relations > 0, -1.0, 1.0)
    A = [form.rows.adjoint(e) for e in np.eye(m)]
    u, slack = cp.Variable(m), cp.Variable()
    S = sum(u[i] * sign[i] * A[i] for i in range(m))
    constraints = [
        S >> slack * np.eye(form.order),
        u >= slack,
        (sign * form.loss.bounds) @ u == -1,
        slack <= 1e-2,
    ]
    cp.Problem(cp.Maximize(slack), constraints).solve(solver=cp.CLARABEL)
    assert slack.value > 1e-6
    return sign * u.value


def test_two_rows_that_cancel_are_named_alone() -> None:
    pairs = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 3), (5, 6)]
    form = of_pairs(pairs, [-1, -1, 1, -1, 1, -1], [1.0, 1.0, 5.0, 1.0, 1.5, 1.0])
    found = form.farkas(np.array([2.0, 2.0, -1.0, 0.5, -0.5, 0.1]))
    assert_allclose(found, [0, 0, 0, 1, -1, 0], atol=1e-12)
    equal = of_pairs(pairs, [-1, -1, 1, 0, 0, -1], [1.0, 1.0, 5.0, 1.0, 1.5, 1.0])
    found = equal.farkas(np.array([2.0, 2.0, -1.0, 0.01, 0.01, 0.1]))  # these may have either sign
    assert_allclose(found, [0, 0, 0, 1, -1, 0], atol=1e-12)


def test_a_row_that_is_infeasible_by_itself_is_named_alone() -> None:
    form = of_pairs([(0, 1), (1, 2), (0, 2), (3, 4)], [-1, -1, 1, -1], [1.0, 1.0, 5.0, -1.0])
    assert_allclose(form.farkas(np.array([2.0, 2.0, -1.0, 0.3])), [0, 0, 0, 1])


def test_what_rounding_hides_proves_nothing() -> None:
    """d(0, 1) <= d(0, 2) measures nothing here; a tiny multiplier of a bound looks like a proof."""
    features = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.3, 2.0]])
    rows = Rows.of(
        features,
        np.array([0, 0, 0, 0]),
        np.array([1, 2, 3, 1]),
        4,
        np.array([1.0, -1, 1, -1]),
        np.array([0, 0, 1, 1]),
        2,
    )
    hard = np.full(2, np.inf)
    loss = Loss(
        LogDet(),
        np.array([-1, -1], np.int8),
        np.array([0.0, -0.05]),
        hard,
        np.array([2.0, 5.0]),
        np.zeros(2, bool),
    )
    form = Formulation.of(LogDet(), np.ones(2), rows, loss)
    for y in ([1.0, 1e-35], [1.0, 1e-14]):
        assert not form.check(np.array(y)).valid
        assert form.farkas(np.array(y)) is None


@pytest.mark.parametrize("difference", [1e-7, 1e-8, 1e-10, 1e-12])
def test_margins_that_are_small_beside_the_distances_are_no_contradiction(difference) -> None:
    """On one feature M = larger meets the comparison, though S is only just below zero beside its parts."""
    x = np.array([[0.0], [1.0], [1.0 + difference]])
    for larger in (2.0, 1e3, 1e6, 1e9):
        form = of_comparison(0, 1, 0, 2, larger * (x[2, 0] ** 2 - 1.0), x)
        assert not form.check(np.ones(1)).valid
    assert of_comparison(0, 2, 0, 1, 0.1, x).check(np.ones(1)).valid


def test_large_problems_keep_the_rows_that_cannot_be_left_out(monkeypatch) -> None:
    """Two contradictions together: no single row can be left out, and a search takes too long."""
    form = of_pairs([(0, 1), (1, 2), (0, 2), (3, 4), (4, 3)], [-1, -1, 1, -1, 1], [1.0, 1.0, 5.0, 1.0, 1.5])
    both = np.array([2.0, 2.0, -1.0, 1.5, -1.5])
    assert np.count_nonzero(form.farkas(both)) == 2
    monkeypatch.setattr("nearwise.core.contradictions.MOST_NUMBERS", 0)
    assert_allclose(form.farkas(both), both / 2)


def test_a_rank_of_rows_that_is_lost_to_rounding_is_no_proof() -> None:
    """A column in a much smaller unit counts as the others do."""
    features = np.array([[0.0, 0.0], [0.0, -1e-10], [2e10, 0.0], [1e10, 0.0]])
    pairs, relations, bounds = [(2, 0), (3, 1), (3, 2)], [-1, 1, 0], [1.0, 2.0, 1e20]
    form = of_pairs(pairs, relations, bounds, features)
    assert not form.check(np.array([1.0, -4.0, 0.0])).valid
    flat = of_pairs(pairs, relations, bounds, features[:, :1])
    assert flat.check(np.array([1.0, -4.0, 0.0])).valid
    assert replace(flat, prior=4.0 * flat.prior).check(np.array([1.0, -4.0, 0.0])).valid
