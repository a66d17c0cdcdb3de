"""Certificates and proofs in twice the precision, against double precision where it is enough, and mpmath."""

from __future__ import annotations

import math
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearwise import constraints as c
from nearwise.core import verify as verify_module
from nearwise.core.certificate import Certificate
from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.iterates import Iterate
from nearwise.core.problem import Problem
from nearwise.core.verify import verification, verify
from own_phi import ThreeHalves

DIVERGENCES = [LogDet(), VonNeumann(), Frobenius(), ThreeHalves()]
divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
GROUPS = np.array([0, 1, 0, 1, 2, 0])
BETWEEN = np.not_equal.outer(GROUPS, GROUPS)


def of_every_kind(divergence, rank=6, groups=None, penalty=5.0, prior=True) -> Problem:
    rng = np.random.default_rng(1)
    G, A, low = rng.normal(size=(10, 6)), rng.normal(size=(10, 10)), rng.normal(size=(10, 2))
    side = (
        c.at_most([(0, 1), (2, 3)], 2.0)
        + c.at_least([(4, 5)], 12.0)
        + c.closer([(6, 7, 8)], 1.0)
        + c.similarity([(0, 9), (3, 3)], 2.5, "<=")
        + c.linear([A @ A.T / 10], 30.0, "==")
        + c.linear([low @ low.T], 8.0, ">=")
    )
    root = rng.normal(size=(6, 6))
    root = (root if groups is None else np.where(BETWEEN, 0.0, root))[:, np.arange(6) < rank]
    return Problem(G, side, divergence, root @ root.T if prior else None, penalty, groups=groups)


def point(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """A factor in the coordinates of the features, and multipliers."""
    form, rng = problem.formulation, np.random.default_rng(2)
    root = np.diag(np.sqrt(np.maximum(form.prior, 0.0)))
    B = problem.within_groups(root @ (np.eye(form.order) + 0.2 * rng.normal(size=2 * (form.order,))))
    slopes = form.loss.at(form.rows.values(B)).slopes
    hard = 0.01 * rng.normal(size=len(slopes)) / form.loss.sizes
    return problem.lift(B), 0.7 * form.loss.signed(np.where(form.loss.is_hard, hard, slopes))


def assert_same(found: Certificate, stated: Certificate) -> None:
    for name in ("primal", "dual", "gap", "violation", "hard_violation", "satisfied"):
        assert_allclose(getattr(found, name), getattr(stated, name), rtol=1e-8, err_msg=name)


@divergences
@pytest.mark.parametrize("penalty", [5.0, math.inf])
@pytest.mark.parametrize("rank", [6, 4], ids=["whole range", "part of it"])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["one block", "blocks"])
def test_it_agrees_with_double_precision_where_that_is_enough(divergence, penalty, rank, groups) -> None:
    problem = of_every_kind(divergence, rank, groups, penalty)
    factor, dual = point(problem)
    found, y = verification(problem).certificate(factor, dual)
    assert_same(found, problem.formulation.certify(Iterate(problem.lower(factor), dual)).certificate)
    assert_allclose(y, dual)


@divergences
def test_any_factor_of_a_matrix_will_do(divergence) -> None:
    rng = np.random.default_rng(0)
    for problem in (of_every_kind(divergence), of_every_kind(divergence, 4, GROUPS)):
        factor, dual = point(problem)
        verifier = verification(problem)
        stated, _ = verifier.certificate(factor, dual)
        rotation = np.linalg.qr(rng.normal(size=(9, factor.shape[1])))[0].T
        assert_same(verifier.certificate(factor @ rotation, dual)[0], stated)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_no_unit_overflows(scale) -> None:
    plain, moved = (
        Problem(
            s * np.eye(4, 3),
            c.at_most([(0, 1), (2, 3)], s * s) + c.at_least([(1, 2)], 3 * s * s),
            penalty=2.0,
        )
        for s in (1.0, scale)
    )
    factor, dual = point(plain)
    found, _ = verification(moved).certificate(factor, dual / scale**2)
    assert_same(found, verification(plain).certificate(factor, dual)[0])


def nearly_parallel(offset: float) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Two distances that differ by 1e-7, with multipliers that cancel, on features far from the origin."""
    rng = np.random.default_rng(0)
    G = np.round(rng.normal(size=(5, 3)), 3)
    G[3] = G[2] + (G[1] - G[0]) + np.array([1e-7, -2e-7, 1e-7])
    side = c.equal([(0, 1), (2, 3)], [2.0, 2.0 + 1e-6]) + c.at_least([(0, 4)], 1.0)
    problem = Problem(G + offset, side, penalty=math.inf)
    factor = np.eye(3) + 0.1 * rng.normal(size=(3, 3))
    return problem, factor, np.array([1e6, -1e6, -0.01])


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_multipliers_that_cancel_are_certified_as_mpmath_does(offset) -> None:
    problem, factor, dual = nearly_parallel(offset)
    found, y = verification(problem).certificate(factor, dual)
    with mp.workdps(60):
        G, B = mp.matrix(problem.features.tolist()), mp.matrix(factor.tolist())
        theta, rows = mp.eye(3), mp.mpf(0)
        M = B * B.T
        for (i, j), bound, weight in zip(
            [(0, 1), (2, 3), (0, 4)], problem.bounds, map(float, y), strict=True
        ):
            z = G[i, :] - G[j, :]
            theta += weight * z.T * z
            rows -= weight * ((z * M * z.T)[0] - mp.mpf(float(bound)))
        inside = B.T * theta * B
        distance = sum(inside[i, i] for i in range(3)) - 3 - mp.log(mp.det(inside))
        primal = sum(M[i, i] for i in range(3)) - 3 - mp.log(mp.det(M))
        gap = float(distance + rows)
    assert found.primal == pytest.approx(float(primal), rel=1e-12)
    assert found.primal - found.dual == pytest.approx(gap, rel=1e-9)


def test_multipliers_at_the_end_of_the_domain_shrink_a_little() -> None:
    """LogDet's minimiser runs to infinity where I + y z z^T is singular; rounding may put y there."""
    problem = Problem([[0.0, 0.0], [1.0, 0.0]], c.at_least([(0, 1)], 2.0), penalty=math.inf)
    for beyond in (0.0, 1e-15):
        found, y = verification(problem).certificate(np.diag([1.5, 1.0]), np.array([-1.0 - beyond]))
        assert -1 < y[0] < -1 + 1e-3
        assert math.isfinite(found.gap)
    found, _ = verification(problem).certificate(np.diag([1.5, 1.0]), np.array([-2.0]))
    assert found.gap == math.inf


@divergences
def test_proofs_hold_as_they_do_in_double_precision(divergence) -> None:
    G = np.random.default_rng(0).normal(size=(6, 3))
    side = c.at_most([(0, 1), (1, 2)], 1.0) + c.at_least([(0, 2)], 5.0)
    problem = Problem(G, side, divergence, penalty=math.inf)
    for y, expected in (([2, 2, -1], True), ([2, 2, -1.0001], False), ([1, 1, -1], False)):
        assert verification(problem).check(np.array(y, dtype=float)).valid is expected


def test_a_proof_by_linear_rows_must_hold_with_what_rounding_hides_of_them() -> None:
    """tr(A M) <= 1 and >= 2, where the second A differs by 1e-17 of itself along what features hardly have.

    A large M along there meets both, so that it is no contradiction; with equal matrices it is one.
    """
    G = np.array([[1.0, 0.0], [1.0, 1e-10], [2.0, 0.0]])
    same = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    other = np.array([[1.0, -1e-3, 0.0], [-1e-3, 1e-3, 0.0], [0.0, 0.0, 0.0]]) + same * 1e-3
    for second, expected in ((same, True), (other, False)):
        side = c.linear([same], 1.0, "<=") + c.linear([second], 2.0, ">=")
        problem = Problem(G, side, Frobenius(), penalty=math.inf)
        assert verification(problem).check(np.array([1.0, -1.0])).valid is expected


def test_a_proof_must_hold_along_what_dependent_features_hardly_have() -> None:
    """The second column is the first but for its last digit: along there d(0, 1) >= 2 may be met."""
    x = np.array([0.0, 1.0, 0.0, 1.0])
    for difference, expected in ((0.0, True), (4.5e-16, False)):
        G = np.column_stack([x, x])
        G[1, 1] += difference
        side = c.at_least([(0, 1)], 2.0) + c.at_most([(2, 3)], 1.0)
        problem = Problem(G, side, Frobenius(), penalty=math.inf)
        assert problem.formulation.check(np.array([-1.0, 1.0])).valid
        assert verification(problem).check(np.array([-1.0, 1.0])).valid is expected


def test_large_problems_are_left_to_double_precision(monkeypatch) -> None:
    problem = of_every_kind(LogDet())
    for limit in ("MOST_ROWS", "MOST_NUMBERS", "LARGEST_ORDER"):
        with monkeypatch.context() as patch:
            patch.setattr(verify_module, limit, 5)
            assert verification(problem) is None
            factor, dual = point(problem)
            stated = problem.formulation.certify(Iterate(problem.lower(factor), dual)).certificate
            certificate = SimpleNamespace(dual=0.0)
            assert (
                verify(problem, SimpleNamespace(factor=factor, dual=dual, certificate=certificate)) == stated
            )


@pytest.mark.parametrize("is_large", [False, True])
def test_a_result_is_judged_by_what_it_claims(is_large, monkeypatch) -> None:
    if is_large:
        monkeypatch.setattr(verify_module, "MOST_ROWS", 0)
    problem = of_every_kind(VonNeumann())
    factor, dual = point(problem)
    claim = SimpleNamespace(factor=factor, dual=dual, certificate=SimpleNamespace(dual=1.0))
    assert isinstance(verify(problem, claim), Certificate)
    side = c.at_most([(0, 1)], 1.0) + c.at_least([(0, 1)], 2.0)
    contradictory = Problem(np.eye(3), side, penalty=math.inf)
    infeasible = SimpleNamespace(dual=math.inf)
    assert verify(
        contradictory, SimpleNamespace(factor=None, dual=np.array([1.0, -1.0]), certificate=infeasible)
    ).valid
    assert not verify(
        contradictory, SimpleNamespace(factor=None, dual=np.array([1.0, 1.0]), certificate=infeasible)
    ).valid
