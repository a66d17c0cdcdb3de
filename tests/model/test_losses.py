"""What a soft row costs and what its multiplier proves, against their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

import kkt
import nearwise as nw
from cases import ThreeHalves
from nearwise import constraints as c
from nearwise.constraints import Relation

DIVERGENCES = [nw.LogDet(), nw.VonNeumann(), nw.Frobenius(), ThreeHalves()]
GAMMA, BOUND = 0.7, 1.3
RELATIONS: dict[Relation, int] = {"<=": -1, ">=": 1, "==": 0}


@dataclass(frozen=True)
class Kind:
    """One sort of soft row, tr(A M) for A = diag(1.3, 0.8) or diag(1.3, -0.8)."""

    symbol: Relation
    bound: float
    is_definite: bool

    @property
    def is_bregman(self) -> bool:
        return self.bound > 0 and (self.is_definite or self.symbol == "<=")

    @property
    def matrix(self) -> np.ndarray:
        return np.diag([1.3, 0.8 if self.is_definite else -0.8])

    def at(self, p: float, divergence: nw.Divergence, penalty: float = GAMMA) -> nw.Problem:
        """A problem with this row, to which its prior gives the value p."""
        parts = np.array(
            [0.6 * p, 0.4 * p] if self.is_definite else [(self.size(p) + s * p) / 2 for s in (1, -1)]
        )
        prior = np.diag(parts / [1.3, 0.8])
        return nw.Problem(
            np.eye(2), c.linear(self.matrix, self.bound, self.symbol), divergence, prior, penalty
        )

    def size(self, p: float) -> float:
        """Of the row's parts under that prior."""
        return p if self.is_definite else max(2.1, abs(p) + 1.0)

    def loss(self, divergence: nw.Divergence, size: float) -> Callable[[float], float]:
        """The slack of the papers, or gamma / 2 phi''(size) (p - b)^2, on the wrong side of the bound."""
        phi, sign = kkt.phi_of(divergence), RELATIONS[self.symbol]
        at_bound = np.array([self.bound])

        def of(p: float) -> float:
            difference, at = p - self.bound, np.array([p])
            if sign != 0 and difference * sign >= 0:
                return 0.0
            if not self.is_bregman:
                return GAMMA / 2 * float(phi.curvature(np.array([size]))[0]) * difference**2
            slope = phi.gradient(at_bound)
            return GAMMA * float((phi.value(at) - phi.value(at_bound) - slope * difference)[0])

        return of


KINDS = {
    f"{symbol} {'definite' if definite else 'indefinite'} bound {bound:g}": Kind(symbol, bound, definite)
    for symbol in RELATIONS
    for definite in (True, False)
    for bound in (BOUND, 0.0, -BOUND)
    if bound > 0 or not (definite and symbol == "==")
}
rows = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
divergences = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


OFFSETS = np.array([-1.1, -0.5, -0.01, 0.01, 0.5, 4.0])


def points(kind: Kind) -> list[float]:
    """Values on both sides of the bound that a positive definite prior gives."""
    return [float(p) for p in kind.bound + OFFSETS if p > 0 or not kind.is_definite]


@rows
@divergences
def test_loss_is_its_definition(kind: Kind, divergence: nw.Divergence) -> None:
    """At the prior nothing else costs anything."""
    for p in points(kind):
        problem = kind.at(p, divergence)
        expected = kind.loss(divergence, kind.size(p))(p)
        assert_allclose(problem.objective(problem.prior), expected, rtol=1e-11, atol=1e-13)
    if kind.bound > 0:
        problem = kind.at(kind.bound, divergence)
        assert problem.objective(problem.prior) == pytest.approx(0.0, abs=1e-25)


@rows
@divergences
def test_a_multiplier_proves_what_the_two_parts_of_the_lagrangian_have_in_common(
    kind: Kind, divergence: nw.Divergence
) -> None:
    """min_M D(M, M0) + y <A, M>  plus  min_p loss(p) - y p, for multipliers of values near and far."""
    problem, loss = kind.at(1.7, divergence), kind.loss(divergence, kind.size(1.7))
    prior, a = np.diag(problem.prior), np.diag(kind.matrix)
    tried = 0
    for p in map(float, kind.bound + OFFSETS):
        if p <= 0 and kind.is_bregman and kind.is_definite:
            continue
        h = 1e-6 * max(abs(p), 1.0)
        y = (loss(p + h) - loss(p - h)) / (2 * h)
        start = divergence.gradient(prior) - y * a
        if isinstance(divergence, nw.LogDet) and start.max() >= 0:
            continue  # there is no such M
        nearest = divergence.gradient_inverse(start)
        of_matrix = float(np.sum(divergence.scalar(nearest, prior)) + y * nearest @ a)
        lowest = 0.0 if kind.is_bregman and kind.is_definite else -60.0
        of_value = minimize_scalar(
            lambda q, y=y: loss(q) - y * q,
            bounds=(max(min(kind.bound, p) - 2, lowest + 1e-12), max(kind.bound, p) + 5),
            method="bounded",
            options={"xatol": 1e-11},
        ).fun
        found = problem.certificate(problem.prior, [y]).dual
        assert found == pytest.approx(of_matrix + of_value, rel=1e-8, abs=1e-8), p
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("divergence", [nw.Frobenius(), ThreeHalves()], ids=["Frobenius", "ThreeHalves"])
def test_below_the_slope_at_zero_a_value_stops_there(divergence: nw.Divergence) -> None:
    """Then min_p loss(p) - y p is loss(0)."""
    kind = KINDS[">= definite bound 1.3"]
    problem, y = kind.at(2.0, divergence), -5.0 * GAMMA * BOUND
    prior, a = np.diag(problem.prior), np.diag(kind.matrix)
    nearest = divergence.gradient_inverse(divergence.gradient(prior) - y * a)
    of_matrix = float(np.sum(divergence.scalar(nearest, prior)) + y * nearest @ a)
    expected = of_matrix + kind.loss(divergence, 1.0)(0.0)
    assert problem.certificate(problem.prior, [y]).dual == pytest.approx(expected, rel=1e-12)


@rows
@divergences
def test_a_hard_row_costs_nothing_and_its_multiplier_buys_the_bound(
    kind: Kind, divergence: nw.Divergence
) -> None:
    y = {"<=": 0.04, ">=": -0.04, "==": 0.04}[kind.symbol]
    for p in points(kind):
        problem = kind.at(p, divergence, math.inf)
        prior, a = np.diag(problem.prior), np.diag(kind.matrix)
        assert problem.objective(problem.prior) == pytest.approx(0.0, abs=1e-25)
        start = divergence.gradient(prior) - y * a
        nearest = divergence.gradient_inverse(start)
        expected = float(np.sum(divergence.scalar(nearest, prior)) + y * (nearest @ a - kind.bound))
        found = problem.certificate(problem.prior, [y]).dual
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_violations_by_row() -> None:
    """Relative to the bound of a square, and to the size of what is not a square."""
    square, other = np.diag([1.0, 0.0]), np.diag([0.0, 2.0, -3.0, 0.0])
    square = np.pad(square, (0, 2))
    side = (
        c.linear([square, square], [2.0, 4.0], "<=")
        + c.linear([square, other], [6.0, 2.0], ">=")
        + c.linear([square, other], [2.5, 1.0], "==")
        + c.linear(other, -1.0, "<=")
    )
    problem = nw.Problem(np.eye(4), side)
    M = np.diag([3.0, 1.0, 0.5, 1.0])  # the square is 3, the other 0.5, of size 5
    certificate = problem.certificate(M, np.zeros(7))
    found = {violation.row: violation.relative for violation in certificate.worst}
    expected = {0: 0.5, 2: 0.5, 3: 0.3, 4: 0.2, 5: 0.1, 6: 0.3}
    assert {row: share for row, share in found.items() if share > 0} == pytest.approx(expected)
    assert certificate.violation == pytest.approx(0.5)
    assert certificate.satisfied == pytest.approx(1 / 7)
