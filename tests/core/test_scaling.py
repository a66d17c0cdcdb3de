"""Units and spans: certificates that do not change, exact scaling, and the way back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearwise.core.divergences import Frobenius, LogDet, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows
from nearwise.core.scaling import clear_span, power_of_four
from own_phi import Mixed, ThreeHalves

DIVERGENCES = [LogDet(), VonNeumann(), Frobenius(), ThreeHalves(), Mixed()]
divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
forms = pytest.mark.parametrize("m", [20, 400], ids=["few rows", "many rows"])


def drawn(divergence, m=20, r=5, rank=5, scale=1.0, prior=None, hard=0.3) -> Formulation:
    """Distances of ten objects whose features span `rank` dimensions."""
    rng = np.random.default_rng(0)
    F = scale * rng.normal(size=(10, rank)) @ np.linalg.qr(rng.normal(size=(r, rank)))[0].T
    first = rng.integers(10, size=m)
    second = (first + rng.integers(1, 10, size=m)) % 10
    rows = Rows.of(F, first, second, m, np.ones(m), np.arange(m), m)
    prior = np.exp(rng.normal(size=r)) if prior is None else np.full(r, prior)
    sizes = rows.magnitudes(np.sqrt(np.abs(prior)))
    bounds = sizes * rng.uniform(0.5, 1.5, m)
    penalties = np.where(rng.random(m) < hard, np.inf, rng.uniform(0.1, 2, m))
    relations = rng.integers(-1, 2, m).astype(np.int8)
    return Formulation.of(
        divergence, prior, rows, Loss(divergence, relations, bounds, penalties, sizes, sizes > 0)
    )


def point(form: Formulation) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    B = np.sqrt(np.abs(form.prior))[:, None] * (np.eye(form.order) + 0.2 * rng.normal(size=2 * (form.order,)))
    slopes = form.loss.at(form.rows.values(B)).slopes
    hard = 0.01 * rng.normal(size=len(slopes)) * form.unit / form.loss.sizes
    return B, form.loss.signed(np.where(form.loss.is_hard, hard, 0.3 * slopes))


@divergences
@forms
@pytest.mark.parametrize("scale", [1.0, 3e-5, 7e6])
def test_certificates_are_the_same_in_other_units(divergence, m, scale) -> None:
    form = drawn(divergence, m, scale=scale)
    B, y = point(form)
    scaled = form.scaled()
    stated = form.certify(Iterate(B, y)).certificate
    found = scaled.form.certify(Iterate(scaled.lower(B), y / scaled.dual)).certificate
    assert_allclose(scaled.lift(scaled.lower(B)), B, rtol=1e-14)
    assert_allclose(found.primal * scaled.value, stated.primal, rtol=1e-10)
    assert_allclose(found.dual * scaled.value, stated.dual, rtol=1e-8)
    assert_allclose(
        [found.gap, found.violation, found.hard_violation],
        [stated.gap, stated.violation, stated.hard_violation],
        rtol=1e-8,
    )


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann(), Frobenius()], ids=lambda d: type(d).__name__)
def test_prior_and_rows_have_size_one_whatever_their_unit_is(divergence) -> None:
    for scale, unit in ((1.0, 1.0), (2.0**40, 2.0**-30), (2.0**-200, 4.0**50)):
        form = drawn(divergence)
        prior = form.prior * unit
        loss = form.loss.in_unit(1 / (scale**2 * unit), 1.0)
        other = Formulation.of(divergence, prior, form.rows.transformed(np.full(5, scale)), loss)
        small, same = other.scaled().form, form.scaled().form
        assert 0.25 <= np.median(small.loss.sizes) <= 4
        assert 0.25 <= small.prior.mean() <= 4
        if not divergence.congruence_invariant:
            assert_array_equal(small.prior, same.prior)  # powers of four: without any rounding
        assert_array_equal(small.loss.bounds, same.loss.bounds)
        if divergence.degree == 1:
            assert_array_equal(small.rows.vectors()[0], same.rows.vectors()[0])


def test_a_prior_moves_into_the_rows_where_congruences_change_nothing() -> None:
    form = drawn(LogDet())
    scaled = form.scaled()
    assert_array_equal(scaled.form.prior, np.ones(5))
    assert_allclose(scaled.root**2, form.prior)
    assert scaled.matrix == scaled.value == 1


def test_a_divergence_without_degree_keeps_its_unit() -> None:
    form = drawn(Mixed(), scale=100.0)
    scaled = form.scaled()
    assert scaled.matrix == scaled.dual == scaled.value == 1
    assert_array_equal(scaled.form.prior, form.prior)


@pytest.mark.parametrize(
    ("size", "expected"), [(1.0, 1.0), (3.9, 4.0), (1e-30, 4.0**-50), (0.0, 1.0), (np.inf, 1.0)]
)
def test_powers_of_four(size, expected) -> None:
    assert power_of_four(size) == expected


@divergences
@forms
@pytest.mark.parametrize("rank", [1, 3])
def test_certificates_are_the_same_on_the_span(divergence, m, rank) -> None:
    form = drawn(divergence, m, rank=rank, prior=0.7)
    small, span, _ = spanned = form.spanned()
    assert small.order == rank
    inside, y = point(small)
    whole = form.certify(Iterate(spanned.lift(inside), y)).certificate
    found = small.certify(Iterate(inside, y)).certificate
    assert_allclose([found.primal, found.dual], [whole.primal, whole.dual], rtol=1e-8)
    assert_allclose(found.hard_violation, whole.hard_violation, rtol=1e-9)
    lowered = spanned.lower(spanned.lift(inside))
    assert_allclose(lowered @ lowered.T, inside @ inside.T, atol=1e-12)
    lifted = spanned.lift(inside) @ spanned.lift(inside).T
    beside = np.eye(5) - span @ span.T
    assert_allclose(beside @ lifted, 0.7 * beside, atol=1e-12)


def test_no_span_where_the_prior_has_directions_or_is_negative() -> None:
    assert drawn(VonNeumann(), rank=2).spanned().span is None
    assert drawn(Frobenius(), rank=2, prior=-1.0).spanned().span is None
    form = drawn(Frobenius(), rank=5, prior=1.0)
    assert form.spanned().form is form
    B = np.ones((5, 2))
    assert form.spanned().lift(B) is form.spanned().lower(B) is B


def test_rows_that_measure_nothing_leave_one_dimension() -> None:
    form = drawn(LogDet(), prior=1.0)
    rows = form.rows.transformed(np.zeros(5))
    assert Formulation.of(LogDet(), form.prior, rows, form.loss).spanned().form.order == 1


def test_a_direction_is_dropped_where_it_is_rounding_only() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 6))
    assert clear_span(vectors + 1e-16 * rng.normal(size=(40, 6))).shape == (6, 2)
    assert clear_span(vectors + 1e-10 * rng.normal(size=(40, 6))) is None
    few = vectors[:4] + 1e-10 * rng.normal(size=(4, 6))
    assert clear_span(few).shape == (6, 4)
    one = vectors.copy()
    one[0] = rng.normal(size=6)  # a single vector that leaves the span of all others, however short
    assert clear_span(one).shape == (6, 3)
    one[0] *= 1e-150
    assert clear_span(one).shape == (6, 3)


def test_the_unit_of_many_rows_is_that_of_a_sample(monkeypatch) -> None:
    form = drawn(VonNeumann(), m=400)
    whole = form.scaled()
    monkeypatch.setattr("nearwise.core.scaling.SAMPLED", 30)
    assert form.scaled().dual / whole.dual in (0.25, 1.0, 4.0)
    assert replace(form, prior=form.prior).scaled().form.rows.n_rows == 400
