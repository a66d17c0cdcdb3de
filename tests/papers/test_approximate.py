"""DefiniteBoost: its step minimises the bound it is derived from, and its sweeps reach the exact optimum."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import projected
from nearwise.core.divergences import LogDet, SpectralDivergence, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.rows import Rows
from nearwise.papers import ApproximateProjections, CyclicProjections, definite_step
from nearwise.papers.approximate import ApproximateEngine


def of_trace(
    total: float, matrices: list[np.ndarray], relations: Any, bounds: Any, prior: Any
) -> Formulation:
    """Rows with these matrices, and one that fixes twice the trace."""
    r = len(prior)
    spectra = [np.linalg.eigh(A) for A in (*matrices, 2 * np.eye(r))]
    x, c = np.concatenate([V.T for _, V in spectra]), np.concatenate([e for e, _ in spectra])
    rows = Rows.written(x, x, c, np.repeat(np.arange(len(spectra)), r), len(spectra))
    return projected.formulation(
        VonNeumann(), rows, [*relations, 0], [*bounds, 2 * total], math.inf, np.array(prior)
    )


def hidden(r: int = 6, m: int = 5, total: float = 1.0, seed: int = 0) -> Formulation:
    """Rows of every relation that a hidden matrix of the given trace meets with equality."""
    rng = np.random.default_rng(seed)
    M = (B := rng.normal(size=(r, 2 * r))) @ B.T
    M *= total / np.trace(M)
    matrices = [A + A.T for A in rng.normal(size=(m, r, r))]
    bounds = [float(np.sum(A * M)) for A in matrices]
    prior = rng.uniform(0.5, 2.0, r)
    scaled = prior * total / prior.sum()
    signs = np.sign(bounds - np.array([np.diag(A) @ scaled for A in matrices]))
    signs[-1] = 0
    return of_trace(total, matrices, signs, bounds, prior)


def points(solver: Any, form: Formulation, count: int) -> list[Iterate]:
    return list(itertools.islice(solver.iterates(form), count))


@pytest.mark.parametrize("eigenvalues", ["own", "symmetric"])
@pytest.mark.parametrize("total", [1.0, 7.0])
def test_sweeps_reach_the_optimum_of_exact_ones(eigenvalues: Any, total: float) -> None:
    form = hidden(total=total)
    exact = points(CyclicProjections(), form, 400)[-1].factor
    found = points(ApproximateProjections(eigenvalues=eigenvalues), form, 2000)
    for point in found:
        assert_allclose(np.vdot(point.factor, point.factor), total, rtol=1e-11)
    last = found[-1]
    assert_allclose(last.factor @ last.factor.T, exact @ exact.T, atol=1e-6 * total)
    assert form.certify(last).certificate.gap < 1e-6


def test_points_are_the_scaled_prior_and_those_of_their_multipliers() -> None:
    form = hidden(total=3.0)
    for k, point in enumerate(points(ApproximateProjections(order="cyclic"), form, 4)):
        assert point.dual is not None
        dense = projected.Dense(form)
        dense.dual = point.dual
        assert_allclose(point.factor @ point.factor.T, dense.matrix(), atol=1e-12)
        assert (point.dual * form.loss.relations <= 0).all()
        assert point.dual[:-1].any() == (k > 0)
    assert "approximate projections" in point.note


@pytest.mark.parametrize("seed", range(4))
def test_the_step_minimises_the_golden_thompson_bound(seed: int) -> None:
    """TRW05 4.3 with its signs corrected: over the chord of exp(-a C) on [low, high]."""
    rng = np.random.default_rng(seed)
    low, high = -rng.uniform(0.1, 3.0), rng.uniform(0.1, 3.0)
    value = rng.uniform(low, high)
    step = definite_step(value, low, high)
    steps = step + np.linspace(-1.0, 1.0, 20001)
    chord = (np.exp(-steps * low) * (high - value) + np.exp(-steps * high) * (value - low)) / (high - low)
    assert_allclose(step, steps[np.argmin(chord)], atol=2e-4)
    assert np.sign(step) == np.sign(value)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_that_formula_and_no_longer_than_the_exact_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = (R := rng.normal(size=(5, 5))) + R.T
    prior = rng.uniform(0.5, 2.0, 5)
    now = float(np.diag(A) @ prior) * 2.0 / prior.sum()
    bound = now - 0.4 * (now - 2.0 * np.linalg.eigvalsh(A)[0])
    form = of_trace(2.0, [A], [-1], [bound], prior)
    low, high = np.linalg.eigvalsh(A - bound / 2.0 * np.eye(5))[[0, -1]]
    engine = ApproximateEngine(form)
    engine.sweep(np.arange(2))
    assert_allclose(engine.dual[0], definite_step((now - bound) / 2.0, low, high), rtol=1e-10)
    value = form.rows.values(engine.factor())[0]
    assert bound - 1e-12 <= value < now
    symmetric = ApproximateEngine(form, symmetric=True)
    symmetric.sweep(np.arange(2))
    assert 0 < symmetric.dual[0] <= engine.dual[0] + 1e-12


def test_a_bound_that_every_matrix_of_this_trace_meets_is_left_alone() -> None:
    form = of_trace(1.0, [np.diag([1.0, 2.0])], [-1], [2.5], [0.5, 0.5])
    engine = ApproximateEngine(form)
    engine.sweep(np.arange(2))
    assert engine.dual[0] == 0.0
    engine = ApproximateEngine(of_trace(1.0, [np.diag([1.0, 2.0])], [1], [2.5], [0.5, 0.5]))
    for _ in range(3):
        engine.sweep(np.arange(2))
    assert engine.dual[0] < -0.5
    assert np.isfinite(engine.factor()).all()


def test_the_bound_of_corollary_4_2_is_kept() -> None:
    form, epsilon = hidden(seed=3), 1e-2
    found = points(ApproximateProjections(order="violated", epsilon=epsilon), form, 200)
    stated = re.search(r"at most ([\d.e+]+) are needed for violations below 0.01", found[0].note)
    assert stated is not None
    A, b = projected.matrices_of(form.rows)[:-1], form.loss.bounds[:-1]
    reach = max(np.abs(np.linalg.eigvalsh(a - c * np.eye(6))).max() for a, c in zip(A, b, strict=True))
    largest = -math.log(float((form.prior / form.prior.sum()).min()))
    assert_allclose(float(stated[1]), 2 * (reach / epsilon) ** 2 * largest, rtol=1e-2)
    excess = [form.loss.violations(np.asarray(point.values))[:-1].max() for point in found]
    sweeps = next(k for k, most in enumerate(excess) if most < epsilon)
    assert 0 < sweeps * form.rows.n_rows <= float(stated[1])


@pytest.mark.parametrize(
    ("divergence", "penalty", "error", "message"),
    [
        (LogDet(), math.inf, TypeError, "knows VonNeumann only"),
        (VonNeumann(), 1.0, ValueError, "hard constraints only"),
        (VonNeumann(), math.inf, ValueError, "fixes the trace of M"),
    ],
)
def test_what_it_does_not_know_is_refused(
    divergence: SpectralDivergence, penalty: float, error: type[Exception], message: str
) -> None:
    form = projected.example("all", divergence, penalty)
    with pytest.raises(error, match=message):
        points(ApproximateProjections(), form, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": "no"}, "order must be one of"),
        ({"eigenvalues": "all"}, "eigenvalues must be one of 'own', 'symmetric', got 'all'"),
        ({"epsilon": -1.0}, "epsilon must be a finite number > 0, got -1.0"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ApproximateProjections(**settings)
