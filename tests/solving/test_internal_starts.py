"""Where Newton's method starts on many rows, which changes the way and not the end."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw
from nearwise.model import measurements
from nearwise.model.measurements import InMemory
from nearwise.solving import _starts, newton
from nearwise.solving.logdet import LogDetEngine
from nearwise.solving.reduction import reduced

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 400)
X = RNG.normal(size=(400, 6)) * np.linspace(0.3, 2, 6) + RNG.normal(size=(4, 6))[LABELS]
SIDE = nw.constraints.from_labels(LABELS, n_pairs=3000, random_state=0)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_starts, "_LARGE", 1000)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("divergence", "penalty"),
    [(nw.LogDet(), 1e-3), (nw.LogDet(), 0.1), (nw.LogDet(), 1.0), (nw.VonNeumann(), 0.03)],
)
def test_projections_come_first_and_the_end_is_the_same(
    divergence: nw.Divergence, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = nw.Problem(X, SIDE, divergence, penalty=penalty)
    found = nw.solve(problem, newton.Newton(), tol=1e-10)
    monkeypatch.setattr(newton, "after_projections", lambda form, seed: None)
    plain = nw.solve(problem, newton.Newton(), tol=1e-10)
    assert found.history[0].primal != plain.history[0].primal
    assert found.n_iter <= plain.n_iter
    np.testing.assert_allclose(found.matrix, plain.matrix, rtol=0, atol=1e-4 * np.abs(plain.matrix).max())


@pytest.mark.usefixtures("many")
def test_a_start_is_a_point_whose_multipliers_are_those_of_rows() -> None:
    """M^-1 = I + sum_i y_i A_i with y_i = 0 but for the rows that were projected onto."""
    form = reduced(nw.Problem(X, SIDE, penalty=0.01).formulation).formulation
    factor = _starts.after_projections(form, 3)
    assert factor is not None
    assert isinstance(form.measurements, InMemory)
    inverse = np.linalg.inv(factor @ factor.T) - np.eye(6)
    rows = np.random.default_rng(3).permutation(3000)[: 5 * 21]
    atoms = form.measurements.local(rows, np.eye(6), np.float64)
    parts = np.stack([np.outer(x, x).ravel() for x in atoms.x], axis=1)
    y, *_ = np.linalg.lstsq(parts, inverse.ravel(), rcond=None)
    np.testing.assert_allclose(parts @ y, inverse.ravel(), rtol=0, atol=1e-9 * np.abs(inverse).max())
    assert np.abs(inverse).max() > 0.01


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_mean_of_projections_is_nearer_than_the_last_of_them(seed: int) -> None:
    """Where penalties weigh much."""
    problem = nw.Problem(X, SIDE, penalty=1.0)
    form = reduced(problem.formulation).formulation
    engine = LogDetEngine(form)
    engine.sweep(np.random.default_rng(seed).permutation(3000)[: 10 * 21])
    start, last = _starts.after_projections(form, seed), engine.factor()
    assert start is not None

    def cost(B: np.ndarray) -> float:
        return form.distance_to_prior(B) + form.losses.total(form.measurements.values_of_factor(B))

    assert cost(start) < cost(last)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    "divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=["LogDet", "VonNeumann", "Frobenius"]
)
def test_steps_in_single_precision_come_first_and_the_end_is_exact(
    divergence: nw.Divergence, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = nw.Problem(X, SIDE, divergence, penalty=0.01)
    plain = nw.solve(problem, newton.Newton(), tol=1e-10)
    used: list[np.dtype] = []

    def values_of_factor(self: InMemory, B: np.ndarray) -> np.ndarray:
        used.append(self.features.dtype)
        return measured(self, B)

    measured = InMemory.values_of_factor
    monkeypatch.setattr(measurements, "_COMPILED", 1000)
    monkeypatch.setattr(InMemory, "values_of_factor", values_of_factor)
    found = nw.solve(problem, newton.Newton(), tol=1e-10)
    assert found.status is plain.status is nw.Status.SOLVED
    assert used[0] == np.float32
    assert used[-1] == np.float64
    assert found.n_iter <= plain.n_iter + 3
    np.testing.assert_allclose(found.certificate.primal, plain.certificate.primal, rtol=1e-9)


@pytest.mark.usefixtures("many")
def test_where_single_precision_fails_double_precision_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = nw.Problem(X, SIDE, penalty=0.1)
    measured = InMemory.values_of_factor

    def values_of_factor(self: InMemory, B: np.ndarray) -> np.ndarray:
        values = measured(self, B)
        return values if self.features.dtype == np.float64 else np.full_like(values, np.nan)

    monkeypatch.setattr(measurements, "_COMPILED", 1000)
    monkeypatch.setattr(InMemory, "values_of_factor", values_of_factor)
    assert nw.solve(problem, newton.Newton(), tol=1e-8).status is nw.Status.SOLVED


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    "problem",
    [
        nw.Problem(X, SIDE, nw.VonNeumann(), penalty=1e-4),
        nw.Problem(X, SIDE, nw.Frobenius(), penalty=1.0),
        nw.Problem(X, SIDE, penalty=np.inf),
        nw.Problem(X, nw.constraints.at_most([(k, k + 1) for k in range(399)], 1.0), fixed=np.ones(399)),
        nw.Problem(X, nw.constraints.at_most([(0, 1)], 1.0)),
    ],
    ids=["light rows", "another divergence", "hard rows", "fixed parts", "few rows"],
)
def test_where_projections_do_not_serve_there_is_no_start(problem: nw.Problem) -> None:
    assert _starts.after_projections(reduced(problem.formulation).formulation, 0) is None
