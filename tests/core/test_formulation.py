"""Certificates of points against dense definitions: objective, bound, gap, and what no bound may exceed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows
from own_phi import Mixed, ThreeHalves

DIVERGENCES = [LogDet(), VonNeumann(), Frobenius(), ThreeHalves(), Mixed()]
divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
R = 4


def drawn(divergence, seed=0, hard=0.0, m=12) -> Formulation:
    """Distances, inner products and comparisons of eight objects."""
    rng = np.random.default_rng(seed)
    n_differences = m + m // 4
    row = np.concatenate([np.arange(m), np.arange(m // 4), np.arange(m, m + m // 4)])
    first = rng.integers(8, size=len(row))
    second = (first + rng.integers(1, 8, size=len(row))) % 8
    coefficient = np.concatenate([np.ones(m), -np.ones(m // 4), np.ones(m // 4)])
    count = m + m // 4
    rows = Rows.of(rng.normal(size=(8, R)), first, second, n_differences, coefficient, row, count)
    prior = np.exp(rng.normal(size=R))
    sizes = rows.magnitudes(np.sqrt(prior))
    relations = rng.integers(-1, 2, count).astype(np.int8)
    bounds = sizes * rng.uniform(0.3, 2, count)
    is_definite = (np.arange(count) >= m // 4) & (np.arange(count) < m)
    bounds = np.where(is_definite, bounds, bounds * rng.choice([0, 0.1, -0.1], count))
    penalties = np.where(rng.random(count) < hard, np.inf, np.exp(rng.normal(size=count)))
    return Formulation.of(
        divergence, prior, rows, Loss(divergence, relations, bounds, penalties, sizes, is_definite)
    )


def factor_of(form: Formulation, seed=1, spread=0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.diag(np.sqrt(form.prior)) @ (np.eye(R) + spread * rng.normal(size=(R, R)))


def spectral(function, X: np.ndarray) -> np.ndarray:
    values, V = np.linalg.eigh(X)
    return (V * function(values)) @ V.T


def distance(form: Formulation, X: np.ndarray) -> float:
    """D(X, diag(prior)) by its definition, phi by integration of phi'."""
    return form.divergence.value(X, np.diag(form.prior))


def smallest_of_lagrangian(form: Formulation, y: np.ndarray) -> float:
    """min over M >= 0 of D(M, prior) + <sum y A, M>, at M^ by its definition."""
    S = form.rows.adjoint(y)
    minimiser = spectral(form.divergence.gradient_inverse, np.diag(form.divergence.gradient(form.prior)) - S)
    return distance(form, minimiser) + float(np.vdot(S, minimiser))


def conjugates(loss: Loss, y: np.ndarray) -> float:
    """sum_i sup_q y_i q - loss_i(q), each by a search; y b for a hard row."""
    total = 0.0
    for row in range(len(y)):
        b, own = loss.bounds[row], loss.subset([row])
        total += y[row] * b
        if loss.is_hard[row] or y[row] == 0:
            continue

        def lacking(q, own=own, b=b, slope=y[row]):
            return own.at(np.array([q])).total - slope * (q - b)

        far = 1e3 * (abs(b) + loss.sizes[row])
        low, high = (
            (b, far) if y[row] > 0 else (max(-far, 1e-9 if own.groups[0].slack.is_positive else -far), b)
        )
        total -= minimize_scalar(
            lacking, (low, high), (low, high), method="bounded", options={"xatol": 1e-12}
        ).fun
    return total


def multipliers(form: Formulation, seed=2, share=0.5) -> np.ndarray:
    """Slopes of the losses at another matrix, and some of hard rows."""
    loss, rng = form.loss, np.random.default_rng(seed)
    slopes = loss.at(form.rows.values(factor_of(form, seed))).slopes
    drawn = 0.05 * rng.normal(size=len(slopes)) / loss.sizes * form.unit
    return loss.signed(np.where(loss.is_hard, drawn, share * slopes))


@divergences
@pytest.mark.parametrize("hard", [0.0, 0.4])
def test_objective_and_bound_are_their_definitions(divergence, hard) -> None:
    form = drawn(divergence, hard=hard)
    B, y = factor_of(form), multipliers(form)
    found = form.certify(Iterate(B, y))
    values = np.array([float(np.vdot(form.rows.adjoint(e), B @ B.T)) for e in np.eye(form.rows.n_rows)])
    losses = form.loss.at(values)
    assert_allclose(found.certificate.primal, distance(form, B @ B.T) + losses.total, rtol=1e-9)
    assert found.share == 1
    assert_allclose(found.dual, y)
    bound = smallest_of_lagrangian(form, y) - conjugates(form.loss, y)
    assert_allclose(found.certificate.dual, bound, rtol=1e-6, atol=1e-6 * found.certificate.primal)
    assert found.certificate.violation == pytest.approx(losses.violations.max())
    assert found.certificate.hard_violation == pytest.approx(losses.hard_violation)
    assert found.certificate.satisfied == form.loss.satisfied(losses.violations)


@divergences
@pytest.mark.parametrize("seed", range(5))
def test_no_bound_exceeds_an_objective(divergence, seed) -> None:
    form = drawn(divergence, seed)
    factors = [factor_of(form, k, spread) for k, spread in enumerate([0.01, 0.3, 1.0, 3.0])]
    least = min(form.certify(Iterate(B)).certificate.primal for B in factors)
    for k, size in enumerate([1e-3, 0.1, 1.0, 10.0, 1e3]):
        found = form.certify(Iterate(factors[k % 4], size * multipliers(form, seed + k))).certificate
        assert found.gap >= 0
        assert found.dual <= least * (1 + 1e-12)


@divergences
def test_slopes_need_no_multipliers_of_their_own(divergence) -> None:
    form = drawn(divergence)
    B = factor_of(form)
    slopes = form.loss.at(form.rows.values(B)).slopes
    plain, explicit = form.certify(Iterate(B)), form.certify(Iterate(B, slopes))
    assert plain.dual is None
    assert plain.certificate.primal == pytest.approx(explicit.certificate.primal, rel=1e-12)
    if plain.share == explicit.share == 1:
        assert plain.certificate.dual == pytest.approx(explicit.certificate.dual, rel=1e-9)
    assert_allclose(form.multipliers(B, plain), plain.share * slopes)


@divergences
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_what_a_solver_measured_is_not_measured_again(divergence, size) -> None:
    form = drawn(divergence, hard=0.3)
    B, y = factor_of(form), size * multipliers(form)
    values, adjoint = form.rows.values(B), form.rows.adjoint(y)
    plain, known = form.certify(Iterate(B, y)), form.certify(Iterate(B, y, values=values, adjoint=adjoint))
    assert plain.certificate == known.certificate
    sums = form.measured.measure(B)
    assert form.certify(Iterate(B)).certificate == form.certify(Iterate(B, sums=sums)).certificate


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("own", [True, False])
def test_multipliers_outside_the_domain_are_halved(seed, own) -> None:
    """LogDet has no minimiser where theta is not negative; a share of multipliers has one."""
    form = drawn(LogDet(), seed, m=20)
    form = replace(form, measured=form.measured.times(100.0))
    B = factor_of(form, spread=2.0)
    y = form.loss.at(form.rows.values(B)).slopes
    found = form.certify(Iterate(B, y if own else None))
    assert 2.0**-40 < found.share < 1
    y = form.multipliers(B, found)
    bound = smallest_of_lagrangian(form, y) - conjugates(form.loss, y)
    assert found.certificate.dual <= bound + 1e-6 * abs(bound)
    if own:
        assert_allclose(found.certificate.dual, bound, rtol=1e-5)


def test_multipliers_of_the_wrong_sign_and_that_are_no_numbers_prove_nothing_wrong() -> None:
    form = drawn(LogDet())
    B = factor_of(form)
    wrong = np.where(form.loss.relations > 0, 1.0, -1.0) * (form.loss.relations != 0)
    assert form.certify(Iterate(B, wrong)).certificate.dual == pytest.approx(0.0, abs=1e-12)
    found = form.certify(Iterate(B, np.full(len(wrong), np.nan))).certificate
    assert found.dual == pytest.approx(0.0, abs=1e-12)
    assert form.certify(Iterate(B, np.full(len(wrong), 1e300))).certificate.gap == math.inf
    lost = form.certify(Iterate(1e200 * B)).certificate
    assert lost.gap == math.inf
    assert not math.isfinite(lost.primal)


def test_the_prior_itself_has_no_gap() -> None:
    form = drawn(VonNeumann())
    form = Formulation.of(
        form.divergence, form.prior, form.rows, replace(form.loss, relations=np.full(15, -1, np.int8))
    )
    form = Formulation.of(
        form.divergence, form.prior, form.rows, replace(form.loss, bounds=1.0 + 2 * form.loss.sizes)
    )
    found = form.certify(Iterate(np.diag(np.sqrt(form.prior)))).certificate
    assert found.holds(1e-12)
    assert found.satisfied == 1


def test_the_best_point_with_the_highest_bound() -> None:
    form = drawn(Frobenius())
    near, far = (form.certify(Iterate(factor_of(form, spread=s))).certificate for s in (0.1, 2.0))
    best, bound = sorted([near, far], key=lambda c: c.primal)[0], max(near, far, key=lambda c: c.dual)
    joint = form.joint(best, bound)
    assert (joint.primal, joint.dual) == (best.primal, bound.dual)
    assert joint.gap == form.relative(best.primal - bound.dual, best.primal) <= min(near.gap, far.gap) + 1e-15


def test_rows_in_pieces_have_no_rows() -> None:
    class Pieces:
        """The sums of rows in memory, without the rows."""

        is_in_memory = False

        def __init__(self, measured) -> None:
            self.measure, self.slopes = measured.measure, measured.slopes

    form = drawn(VonNeumann())
    pieces = replace(form, measured=Pieces(form.measured))
    B = factor_of(form)
    assert pieces.certify(Iterate(B)).certificate == form.certify(Iterate(B)).certificate
    assert pieces.spanned().form is pieces
    for ask in (lambda: pieces.rows, lambda: pieces.loss):
        with pytest.raises(TypeError, match="Newton"):
            ask()
