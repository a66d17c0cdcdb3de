"""Sweeps of exact projections against the same with dense matrices and an independent zero finder.

The multiplier of a row moves until the row is optimal given all others: a hard row meets its bound, or is on
its right side with the multiplier 0; of a soft row the multiplier is the slope of its loss.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import expm, logm
from scipy.optimize import brentq

import cases
import kkt
import nearwise as nw
from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.solvers import CyclicProjections

Array = np.ndarray
FORMS = pytest.mark.parametrize(
    ("divergence", "form"),
    [(nw.LogDet(), "factored"), (nw.LogDet(), "symmetric"), (nw.VonNeumann(), "factored")],
    ids=["LogDet-factored", "LogDet-symmetric", "VonNeumann"],  # which has one form
)
both = pytest.mark.parametrize(
    "divergence", [nw.LogDet(), nw.VonNeumann()], ids=lambda divergence: type(divergence).__name__
)
kinds = pytest.mark.parametrize("kind", cases.KINDS)
penalties = pytest.mark.parametrize("penalty", [0.05, 1.0, math.inf])


@dataclass
class Dense:
    """Projections by their definition: M = g(phi'(M0) - sum_i y_i A_i), one y_i after the other."""

    problem: kkt.Dense
    dual: Array = field(init=False)

    def __post_init__(self) -> None:
        self.dual = np.zeros(len(self.problem.A))
        self.by_logarithms = type(self.problem.divergence).__name__ == "VonNeumann"
        prior = self.problem.prior
        self.start = np.real(logm(prior)) if self.by_logarithms else np.linalg.inv(prior)

    def matrix(self) -> Array:
        return self._matrix(np.einsum("k,kij->ij", self.dual, self.problem.A))

    def _matrix(self, S: Array) -> Array:
        return expm(self.start - S) if self.by_logarithms else np.linalg.inv(self.start + S)

    def project(self, row: int) -> None:
        A, y = self.problem.A[row], float(self.dual[row])
        S = np.einsum("k,kij->ij", self.dual, self.problem.A)
        low, high = self._domain(A, S)

        def value(step: float) -> float:
            return float(np.sum(A * self._matrix(S + step * A)))

        relation, bound = int(self.problem.relations[row]), float(self.problem.bounds[row])
        if math.isinf(self.problem.penalties[row]):
            if relation and low < -y < high and (value(-y) - bound) * relation >= 0:
                self.dual[row] = 0.0
                return

            def excess(step: float) -> float:
                return bound - value(step)
        else:

            def excess(step: float) -> float:
                p = np.array(self.problem.bounds)
                p[row] = value(step)
                return y + step - float(self.problem.loss_slopes(p)[row])

        self.dual[row] = y + _root(excess, low, high)

    def _domain(self, A: Array, S: Array) -> tuple[float, float]:
        """The steps for which M is positive definite."""
        if self.by_logarithms:
            return -math.inf, math.inf
        root = np.linalg.cholesky(self._matrix(S))
        e = np.linalg.eigvalsh(root.T @ A @ root)
        e = np.where(np.abs(e) > 1e-12 * np.abs(e).max(), e, 0.0)
        return (-1 / e[-1] if e[-1] > 0 else -math.inf), (-1 / e[0] if e[0] < 0 else math.inf)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function between two poles is zero."""

    def towards(end: float) -> float:
        for k in range(1, 60):
            at = end * (1 - 2.0**-k) if math.isfinite(end) else math.copysign(1e-3 * 2.0**k, end)
            if (rising(at) > 0) == (end > 0):
                return at
        raise AssertionError("no zero")

    return float(brentq(rising, towards(low), towards(high), xtol=1e-15, rtol=1e-14))


def example(kind: str, divergence: nw.Divergence, penalty: float) -> tuple[nw.Problem, kkt.Dense]:
    """Bounds come from another matrix than the prior, so that most rows are violated at first."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(8, 5)) / np.sqrt(5)
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, 5) @ G.T)
    prior = (0.3 if ">=" in kind else 1.0) * cases.positive_definite(rng, 5)
    problem = nw.Problem(G, side, divergence, prior, penalty)
    return problem, kkt.written_out(problem, prior)


def swept(problem: nw.Problem, solver: CyclicProjections, sweeps: int) -> tuple[nw.Result, list[Array]]:
    """The result, and M at the start and after each sweep."""
    factors: list[Array] = []
    result = nw.solve(
        problem, solver, tol=1e-15, max_iter=sweeps + 1, watch=lambda record, B: factors.append(B)
    )
    return result, [B @ B.T for B in factors]


def projections(result: nw.Result) -> int:
    counted = re.search(r"(\d+) projection", result.message)
    assert counted is not None, result.message
    return int(counted[1])


@FORMS
@kinds
@penalties
def test_a_sweep_is_one_projection_onto_each_row(
    kind: str, penalty: float, divergence: nw.Divergence, form: str
) -> None:
    problem, dense = example(kind, divergence, penalty)
    result, found = swept(problem, CyclicProjections(order="cyclic", form=form), 3)
    expected = Dense(dense)
    for M in found:
        assert_allclose(M, expected.matrix(), rtol=0, atol=1e-8 * np.abs(M).max())
        for row in range(len(dense.A)):
            expected.project(row)
    assert projections(result) > 0
    assert np.abs(found[-1] - found[0]).max() > 1e-3
    assert len(found) == 4 or (len(found) > 1 and result.certificate.gap <= 1e-13)


def unlike(j: int, k: int, left: int, right: int) -> Array:
    """A with tr(A K) = K_jk - K_lm: four squares."""
    A = np.zeros((8, 8))
    A[j, k], A[left, right] = 1.0, -1.0
    return (A + A.T) / 2


@FORMS
@pytest.mark.parametrize("penalty", [0.5, math.inf])
@pytest.mark.parametrize(
    "side",
    [
        c.linear([unlike(0, 1, 2, 3), unlike(2, 4, 5, 6)], -0.4, "<="),
        c.linear(np.eye(8), 3.0, "<=") + c.at_most([(0, 1)], 0.5),
        c.linear(-2.0 * np.eye(8), -30.0, "==") + c.at_most([(0, 1)], 0.5),
        c.linear(3.0 * np.eye(8), 50.0, ">=") + c.at_most([(0, 1)], 0.5),
    ],
    ids=["four squares", "trace", "minus twice the trace", "three times the trace"],
)
def test_rows_of_four_squares_and_multiples_of_the_trace(
    side: Constraints, penalty: float, divergence: nw.Divergence, form: str
) -> None:
    rng = np.random.default_rng(0)
    prior = np.diag(rng.uniform(0.5, 2.0, 8))
    Q = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    problem = nw.Problem(Q, side, divergence, prior, penalty)
    result, found = swept(problem, CyclicProjections(order="cyclic", form=form), 3)
    expected = Dense(kkt.written_out(problem, prior))
    for M in found:
        assert_allclose(M, expected.matrix(), rtol=0, atol=1e-9 * np.abs(M).max())
        for row in range(2):
            expected.project(row)
    assert np.all(result.dual != 0)
    assert len(found) > 2


@FORMS
@kinds
@penalties
def test_the_dual_bound_never_falls(kind: str, penalty: float, divergence: nw.Divergence, form: str) -> None:
    problem, _ = example(kind, divergence, penalty)
    result, _ = swept(problem, CyclicProjections(order="cyclic", form=form), 20)
    assert len(result.history) > 2 or result.status is nw.Status.SOLVED
    for before, after in itertools.pairwise(record.dual for record in result.history):
        assert after >= before - 1e-9 * max(1.0, abs(before))


@FORMS
def test_the_most_violated_row_comes_first(divergence: nw.Divergence, form: str) -> None:
    """Bounds on one distance, of which the tightest one is last: with it all are met."""
    side = c.at_most([(0, 1)] * 4, [0.8, 0.6, 0.4, 0.2])
    problem = nw.Problem(np.eye(2) / np.sqrt(2), side, divergence, penalty=math.inf)
    in_turn, _ = swept(problem, CyclicProjections(order="cyclic", form=form), 1)
    by_size, _ = swept(problem, CyclicProjections(order="violated", form=form), 1)
    assert np.flatnonzero(in_turn.dual).tolist() == [0, 1, 2, 3]
    assert np.flatnonzero(by_size.dual).tolist() == [3]
    assert_allclose(by_size.matrix, in_turn.matrix, rtol=1e-12)


def test_rows_that_are_met_cost_no_projection() -> None:
    G = np.random.default_rng(6).normal(size=(4, 3))
    side = c.at_most([(0, 1), (2, 3)], 1e3) + c.at_least([(0, 2)], 1e-3) + c.similarity([(0, 1)], -1e3, ">=")
    problem = nw.Problem(G, side + c.at_most([(1, 3)], 1e-3), nw.VonNeumann(), penalty=math.inf)
    result, _ = swept(problem, CyclicProjections(), 1)
    assert projections(result) == 1
    assert np.flatnonzero(result.dual).tolist() == [4]


@both
def test_rows_that_measure_nothing_are_left_alone(divergence: nw.Divergence) -> None:
    G = np.ones((3, 2))
    side = c.at_most([(0, 1)], 1.0) + c.closer([(0, 1, 2)]) + c.linear(np.diag([1.0, -1.0, 0.0]), 0.0, "==")
    result = nw.solve(nw.Problem(G, side, divergence, penalty=1.0), CyclicProjections())
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.dual, 0, rtol=0)
    assert np.array_equal(result.matrix, np.eye(2))


@both
def test_without_rows_the_prior_stays(divergence: nw.Divergence) -> None:
    prior = np.diag([3.0, 1.0, 2.0])
    result = nw.solve(nw.Problem(np.eye(3), Constraints(), divergence, prior), CyclicProjections())
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.matrix, prior, rtol=1e-15)


# --- single rows with a known answer ------------------------------------------------------------------------


def single(
    divergence: nw.Divergence, A: Array, b: float, relation: str, penalty: float, prior: Array | None = None
) -> nw.Problem:
    """One general row, tr(A M)."""
    return nw.Problem(np.eye(len(A)), c.linear(A, b, relation), divergence, prior, penalty)


@FORMS
@pytest.mark.parametrize(("relation", "share"), [("<=", 0.3), (">=", 2.5), ("==", 0.6)])
@pytest.mark.parametrize("gamma", cases.PENALTIES)
def test_one_square_has_a_closed_form(
    relation: str, share: float, gamma: float, divergence: nw.Divergence, form: str
) -> None:
    z = np.array([0.9, -0.4, 0.5])
    b = share * float(z @ z)
    problem = single(divergence, np.outer(z, z), b, relation, gamma)
    _, found = swept(problem, CyclicProjections(form=form), 1)
    assert_allclose(found[1], cases.rank_one_answer(divergence, z, b, gamma), atol=1e-12)


def test_the_trace_is_exact() -> None:
    prior = cases.positive_definite(np.random.default_rng(4), 6)
    _, found = swept(single(nw.VonNeumann(), np.eye(6), 1.0, "==", math.inf, prior), CyclicProjections(), 1)
    assert_allclose(found[1], prior / np.trace(prior), rtol=0, atol=1e-13)
    assert np.trace(found[1]) == pytest.approx(1.0, rel=1e-12)


@both
def test_a_unit_diagonal_is_exact(divergence: nw.Divergence) -> None:
    K = cases.positive_definite(np.random.default_rng(5), 6)
    ones = c.similarity([(i, i) for i in range(6)], 1.0, "==")
    problem = nw.Problem.from_kernel(K, ones, divergence, math.inf)
    result, _ = swept(problem, CyclicProjections(order="cyclic"), 60)
    learned = result.kernel_factor @ result.kernel_factor.T
    assert_allclose(np.diag(learned), np.ones(6), rtol=1e-12)


@FORMS
def test_rows_of_two_parallel_squares(divergence: nw.Divergence, form: str) -> None:
    """On one feature a comparison is a multiple of M: its second eigenvalue is rounding."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        G = rng.normal(size=(6, 1))
        z = np.square(G - G.T)
        pairs = rng.permutation([(i, j) for i in range(6) for j in range(i)])[:8].reshape(4, 4)
        near = z[tuple(pairs.T[:2])] < z[tuple(pairs.T[2:])]
        pairs = np.where(near[:, None], pairs, np.roll(pairs, 2, axis=1))
        room = z[tuple(pairs.T[2:])] - z[tuple(pairs.T[:2])]
        target = rng.uniform(1.0, 3.0, 4)
        problem = nw.Problem(G, c.closer(pairs, margin=target * room), divergence, penalty=math.inf)
        result, _ = swept(problem, CyclicProjections(order="cyclic", form=form), 3)
        assert_allclose(result.matrix, [[target.max()]], rtol=1e-10)


@both
@given(
    r=st.integers(1, 7),
    logs=st.lists(st.floats(-8, 8), min_size=7, max_size=7),
    relation=st.sampled_from(["<=", ">=", "=="]),
    bound=st.floats(-6, 6),
    penalty=st.sampled_from([1e-3, 1.0, 1e3, math.inf]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_any_spectrum_and_bound(
    divergence: nw.Divergence,
    r: int,
    logs: list[float],
    relation: str,
    bound: float,
    penalty: float,
    seed: int,
) -> None:
    z = np.random.default_rng(seed).normal(size=r)
    prior = np.diag(np.exp(np.array(logs[:r])))
    b = math.exp(bound) * float(z @ prior @ z)
    problem = single(divergence, np.outer(z, z), b, relation, penalty, prior)
    result, found = swept(problem, CyclicProjections(), 1)
    p, y = float(z @ found[-1] @ z), float(result.dual[0])
    phi, slack = kkt.phi_of(divergence), 0.0 if math.isinf(penalty) else y / penalty
    if y != 0:
        slopes = phi.gradient(np.array([p, b]))
        size = np.abs(slopes).max() + abs(slack)
        assert slopes[0] - slopes[1] == pytest.approx(slack, rel=1e-9, abs=1e-10 * size)
        assert p == pytest.approx(b, rel=1e-9) or math.isfinite(penalty)
    elif relation != "==":
        assert (b - p) * {"<=": 1, ">=": -1}[relation] >= -1e-12 * b


# --- rows that cannot be met, and long runs -----------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("b", [0.0, -1.0])
@pytest.mark.parametrize("relation", ["<=", "=="])
@pytest.mark.parametrize("squares", [1, 2, 3])
def test_bounds_out_of_reach_leave_a_finite_matrix(
    b: float, relation: str, squares: int, divergence: nw.Divergence, form: str
) -> None:
    Z = np.random.default_rng(7).normal(size=(squares, 4))
    problem = single(divergence, Z.T @ Z, b, relation, math.inf)
    result, found = swept(problem, CyclicProjections(form=form), 5)
    assert result.status is not nw.Status.SOLVED
    assert np.isfinite(result.dual).all()
    assert np.isfinite(found).all()


@both
@pytest.mark.parametrize("penalty", [1.0, math.inf])
def test_contradictory_rows_stay_finite(penalty: float, divergence: nw.Divergence) -> None:
    G = np.random.default_rng(8).normal(size=(5, 3))
    side = (
        c.at_most([(0, 1)], 1e-6) + c.at_least([(0, 1)], 1e6) + c.closer([(0, 1, 2), (0, 2, 1)], margin=9.0)
    )
    result, found = swept(nw.Problem(G, side, divergence, penalty=penalty), CyclicProjections(), 300)
    assert np.isfinite(result.dual).all()
    assert np.isfinite(found).all()


@both
@pytest.mark.parametrize("penalty", [1e-290, 1e-150, 1e25])
def test_penalties_of_any_size(penalty: float, divergence: nw.Divergence) -> None:
    problem, dense = example("all kinds", divergence, penalty)
    result, found = swept(problem, CyclicProjections(), 3)
    assert np.isfinite(found).all()
    expected = Dense(dense)
    expected.dual = result.dual
    assert_allclose(found[-1], expected.matrix(), rtol=0, atol=1e-10 * np.abs(found[-1]).max())


@FORMS
def test_thousands_of_projections_drift_little(divergence: nw.Divergence, form: str) -> None:
    """M is still the one that belongs to the multipliers."""
    rng = np.random.default_rng(11)
    G = rng.normal(size=(200, 12))
    pairs = np.array([(i, j) for i, j in rng.integers(0, 200, size=(600, 2)) if i != j])
    side = c.at_most(pairs[:300], 10.0) + c.at_least(pairs[300:], 30.0)
    problem = nw.Problem(G, side, divergence, penalty=1.0)
    result, found = swept(problem, CyclicProjections(form=form), 40)
    assert projections(result) > 15_000
    expected = Dense(kkt.written_out(problem))
    expected.dual = result.dual
    assert_allclose(found[-1], expected.matrix(), rtol=0, atol=1e-11 * np.abs(found[-1]).max())


def test_projections_end_where_rounding_leaves_no_matrix() -> None:
    """Bounds that need M to grow a millionfold along features that are parallel to their eighth digit."""
    rng = np.random.default_rng(6)
    G = rng.normal(size=(8, 1)) * rng.normal(size=4) + 1e-8 * rng.normal(size=(8, 4))
    pairs = rng.integers(0, 8, size=(40, 4))
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & (pairs[:, 2] != pairs[:, 3])]
    problem = nw.Problem(G, c.closer(pairs, margin=1e6), penalty=math.inf)
    result = nw.solve(problem, nw.solvers.CyclicProjections(), max_iter=50)
    assert np.isfinite(result.matrix).all()
    assert result.status is not nw.Status.SOLVED
