"""Newton's linear system: each way of solving it, put into the equation written out."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise import VonNeumann
from nearwise.model.divergences import divided_differences
from nearwise.model.local import LocalAtoms
from nearwise.solving import _systems


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "r", "squares"), [(30, 12, True), (700, 40, True), (300, 30, False)])
def test_the_step_solves_the_equation(m: int, r: int, squares: bool, dtype: type) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(m, r)) / np.sqrt(r)).astype(dtype)
    y = x if squares else (rng.normal(size=(m, r)) / np.sqrt(r)).astype(dtype)
    coefficient = rng.choice([-1.0, 1.0], m)
    rows = LocalAtoms(x, y, coefficient, None, m)
    weights = 10 ** rng.uniform(-1, 2, m)
    gradient = rng.normal(size=(r, r))
    gradient = gradient + gradient.T
    D, curved = _systems.newton_step(rows, weights, gradient, None, 1e-8, False)
    A = coefficient[:, None, None] * np.einsum("ti,tj->tij", x.astype(float), y.astype(float))
    A = (A + A.swapaxes(1, 2)) / 2
    expected = np.einsum("t,tij->ij", weights * np.einsum("tij,ij->t", A, D), A)
    size = np.abs(gradient).max()
    assert curved == pytest.approx(expected, abs=1e-8 * size)
    assert D + expected == pytest.approx(-gradient, abs=1e-8 * size)


System = tuple[LocalAtoms, np.ndarray, np.ndarray, np.ndarray]


def _oblique(r: int, m: int, atoms: int, squares: bool) -> System:
    """Rows whose vectors are far from uncorrelated in the basis, with weights, a gradient and an omega.

    The omega is that of the von Neumann divergence at a matrix whose eigenvalues span 15 orders of magnitude.
    """
    rng = np.random.default_rng(1)
    mix = np.linalg.qr(rng.normal(size=(r, r)))[0] * np.geomspace(3, 0.1, r)
    x = rng.normal(size=(m * atoms, r)) @ mix.T
    y = x if squares else rng.normal(size=(m * atoms, r)) @ mix.T
    row = None if atoms == 1 else rng.permutation(np.repeat(np.arange(m), atoms))
    rows = LocalAtoms(x, y, rng.choice([-1.0, 1.0], m * atoms), row, m)
    gradient = rng.normal(size=(r, r))
    theta = np.linspace(-35, 1, r)
    omega = np.sqrt(divided_differences(VonNeumann(), theta))
    return rows, 10 ** rng.uniform(-1, 1, m), gradient + gradient.T, omega


@pytest.mark.parametrize("bent", [True, False])
@pytest.mark.parametrize(("atoms", "squares"), [(1, True), (1, False), (2, True)])
def test_conjugate_gradients_solve_the_equation(atoms: int, squares: bool, bent: bool) -> None:
    rows, weights, gradient, omega = _oblique(24, 6000, atoms, squares)
    system = _systems._Gaussian(rows, weights, omega if bent else None, False)
    omega = omega if bent else np.ones_like(omega)
    D, curved = system.solve(-omega * gradient, 1e-9)
    values = rows.coefficient * np.einsum("ti,ij,tj->t", rows.x, omega * D, rows.y)
    of_row = np.arange(len(values)) if rows.row is None else rows.row
    values = weights * np.bincount(of_row, values)
    expected = np.einsum("t,ti,tj->ij", rows.coefficient * values[of_row], rows.x, rows.y)
    expected = (expected + expected.T) / 2
    size = np.abs(expected).max()
    assert curved == pytest.approx(expected, abs=1e-10 * size)
    assert D + omega * expected == pytest.approx(-omega * gradient, abs=1e-7 * np.abs(gradient).max())


def test_the_model_spares_products_with_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weights, gradient, omega = _oblique(24, 6000, 1, True)
    counts = []
    for steps in (_systems._MODEL_STEPS, np.inf):
        monkeypatch.setattr(_systems, "_MODEL_STEPS", steps)  # where it is infinite, there is no model
        system = _systems._Gaussian(rows, weights, omega, False)
        products: list[np.ndarray] = []
        real = system._product
        monkeypatch.setattr(system, "_product", lambda D, p=products, real=real: (p.append(D), real(D))[1])
        system.solve(-omega * gradient, 0.1)
        counts.append(len(products))
    assert 5 * counts[0] <= counts[1]


@pytest.mark.parametrize("heavy", [0, 20])
@pytest.mark.parametrize("atoms", [1, 2])
def test_the_model_knows_all_rows_from_some(atoms: int, heavy: int) -> None:
    """Those that weigh more than all others together are among them, with all of their atoms."""
    rows, weights, _, _ = _oblique(10, 20_000, atoms, True)
    weights[:heavy] = 1e12
    rows = _systems._times(rows, weights**0.25)
    some = _systems._drawn(rows, 4000)
    assert 1500 < some.n_rows < 4500
    of_heavy = rows.x[(np.arange(20_000) if rows.row is None else rows.row) < heavy]
    assert {tuple(x) for x in of_heavy} <= {tuple(x) for x in some.x}
    for found, exact in zip(_systems._moments(some), _systems._moments(rows), strict=True):
        assert np.linalg.norm(found - exact) < (1e-6 if heavy else 0.2) * np.linalg.norm(exact)


def test_rows_that_measure_nothing_do_not_disturb_the_draw() -> None:
    nothing = np.zeros((100, 3))
    some = _systems._drawn(LocalAtoms(nothing, nothing, np.ones(100), None, 100), 10)
    assert not _systems._moments(some)[0].any()
