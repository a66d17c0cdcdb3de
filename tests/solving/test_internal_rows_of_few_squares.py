"""Projections onto rows of few squares: rank-one updates, and no eigendecomposition of the whole matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import nearwise as nw
from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.solving import von_neumann
from nearwise.solving.logdet import LogDetEngine
from nearwise.solving.von_neumann import VonNeumannEngine

ENGINES = {"logdet": (nw.LogDet(), LogDetEngine), "von_neumann": (nw.VonNeumann(), VonNeumannEngine)}
ORDER = 90


def unlike(j: int, k: int, left: int, right: int) -> np.ndarray:
    """A with tr(A K) = K_jk - K_lm: four squares."""
    A = np.zeros((ORDER, ORDER))
    A[j, k], A[left, right] = 1.0, -1.0
    return (A + A.T) / 2


ROWS: dict[str, Callable[[], Constraints]] = {
    "distances": lambda: c.at_most([(0, 1), (1, 2)], 0.5),
    "comparisons": lambda: c.closer([(0, 1, 2), (3, 4, 5)], 0.5),
    "inner products": lambda: c.similarity([(0, 1), (2, 3)], 0.5, ">="),
    "K_jk <= K_lm": lambda: c.linear([unlike(0, 1, 2, 3), unlike(2, 4, 5, 6)], -0.4, "<="),
}


def formulation(name: str, divergence: Any, penalty: float = math.inf) -> Any:
    rng = np.random.default_rng(0)
    prior = np.diag(rng.uniform(0.5, 2.0, ORDER))
    Q = np.linalg.qr(rng.normal(size=(ORDER, ORDER)))[0]
    return nw.Problem(Q, ROWS[name](), divergence, prior, penalty).formulation


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ROWS)
def test_nothing_of_the_order_of_the_matrix_is_decomposed(
    name: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    divergence, of = ENGINES[engine]
    running: Any = of(formulation(name, divergence))
    orders: list[int] = []
    for function in ("eigh", "eigvalsh", "svd", "inv", "cholesky"):
        plain = getattr(np.linalg, function)

        def counted(A: np.ndarray, *rest: Any, plain: Any = plain, **named: Any) -> Any:
            orders.append(min(A.shape[-2:]))
            return plain(A, *rest, **named)

        monkeypatch.setattr(np.linalg, function, counted)
    running.sweep(np.arange(2))
    assert np.all(running.dual != 0)
    assert max(orders, default=0) <= 4


@pytest.mark.parametrize("penalty", [0.5, math.inf])
def test_updates_by_one_square_after_the_other_agree_with_a_decomposition(
    penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = formulation("K_jk <= K_lm", nw.VonNeumann(), penalty)
    found = []
    for fewer in (0, ORDER):
        monkeypatch.setattr(von_neumann, "_FEWER", fewer)
        engine = VonNeumannEngine(form)
        for _ in range(3):
            engine.sweep(np.arange(2))
        assert engine.drift(form.measurements.adjoint(engine.dual)) <= 1e-12
        found.append((engine.dual.copy(), engine.factor() @ engine.factor().T))
    assert_allclose(found[0][0], found[1][0], atol=1e-9)
    assert_allclose(found[0][1], found[1][1], atol=1e-10)


@pytest.mark.parametrize("penalty", [0.5, math.inf])
@pytest.mark.parametrize(("relation", "weight"), [("<=", 1.0), ("==", -2.0), (">=", 3.0)])
def test_a_multiple_of_the_trace_scales_the_matrix_and_decomposes_nothing(
    relation: Any, weight: float, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    prior = np.diag(rng.uniform(0.5, 2.0, ORDER))
    Q = np.linalg.qr(rng.normal(size=(ORDER, ORDER)))[0]
    total = weight * float(np.trace(prior))
    bound = total + {"<=": -10.0, "==": 7.0, ">=": 25.0}[relation]
    side = c.linear(weight * np.eye(ORDER), bound, relation) + c.at_most([(0, 1)], 0.5)
    form = nw.Problem(Q, side, nw.VonNeumann(), prior, penalty).formulation
    found = []
    for is_known in (True, False):
        if not is_known:
            monkeypatch.setattr(von_neumann, "multiple_of_trace", lambda *_: None)
        engine = VonNeumannEngine(form)
        engine.sweep(np.array([1]))
        with monkeypatch.context() as patch:
            if is_known:
                for function in ("eigh", "eigvalsh", "qr", "svd"):
                    patch.delattr(np.linalg, function)
            engine.sweep(np.array([0]))
        assert engine.dual[0] != 0
        engine.sweep(np.array([1, 0]))
        assert engine.drift(form.measurements.adjoint(engine.dual)) <= 1e-12
        found.append((engine.dual.copy(), engine.factor() @ engine.factor().T))
    if penalty == math.inf:
        assert weight * np.trace(found[0][1]) == pytest.approx(bound, rel=1e-12)
    assert_allclose(found[0][0], found[1][0], rtol=1e-9)
    assert_allclose(found[0][1], found[1][1], atol=1e-10)
