"""The papers' solvers and the choice that `solve` makes: orders, stopping, reports, and what they refuse."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cases
import kkt
import nearwise as nw
from nearwise import constraints as c
from nearwise.solvers import ApproximateProjections, CyclicProjections, Newton

DIVERGENCES = [nw.LogDet(), nw.VonNeumann()]
both = pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)


def labelled(divergence: nw.Divergence, penalty: float = 1.0, r: int = 5, m: int = 60) -> nw.Problem:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=40)
    G = rng.normal(size=(40, r)) + rng.normal(size=(3, r))[y]
    return nw.Problem(G, c.from_labels(y, n_pairs=m, random_state=0), divergence, penalty=penalty)


@cache
def optimum(divergence: nw.Divergence) -> float:
    """The least objective of that problem."""
    return nw.solve(labelled(divergence), Newton(), tol=1e-12).certificate.primal


def trace_one(n: int = 8, m: int = 10, seed: int = 0) -> nw.Problem:
    """Distances of a hidden kernel of trace one as bounds, from the scaled identity: TRW05 5.2."""
    rng = np.random.default_rng(seed)
    K = cases.positive_definite(rng, n)
    K /= np.trace(K)
    i, j = np.triu_indices(n, 1)
    chosen = rng.permutation(len(i))[:m]
    pairs = np.stack([i[chosen], j[chosen]], axis=1)
    d = np.array([K[a, a] + K[b, b] - 2 * K[a, b] for a, b in pairs])
    half = m // 2
    side = c.at_most(pairs[:half], d[:half]) + c.at_least(pairs[half:], d[half:])
    side = side + c.linear([np.eye(n)], [1.0], "==")
    return nw.Problem.from_kernel(np.eye(n) / n, side, nw.VonNeumann(), penalty=math.inf)


@pytest.mark.parametrize("order", ["cyclic", "interleaved", "shuffled", "violated"])
@pytest.mark.parametrize(
    ("divergence", "form"),
    [(nw.LogDet(), "factored"), (nw.LogDet(), "symmetric"), (nw.VonNeumann(), "factored")],
    ids=["LogDet-factored", "LogDet-symmetric", "VonNeumann"],  # which has one form
)
def test_every_order_reaches_the_optimum(divergence: nw.Divergence, form: str, order: str) -> None:
    problem = labelled(divergence)
    best = optimum(divergence)
    result = nw.solve(problem, CyclicProjections(order=order, form=form), tol=1e-9)
    assert result.status is nw.Status.SOLVED
    assert_allclose(result.certificate.primal, best, rtol=2e-9)


@both
def test_same_seed_same_result_and_other_seed_other_path(divergence: nw.Divergence) -> None:
    problem = labelled(divergence)
    runs = [nw.solve(problem, CyclicProjections(seed=seed), max_iter=4) for seed in (1, 1, 2)]
    assert np.array_equal(runs[0].matrix, runs[1].matrix)
    assert not np.array_equal(runs[0].matrix, runs[2].matrix)


@both
def test_the_papers_rule_stops_by_the_multipliers(divergence: nw.Divergence) -> None:
    problem = labelled(divergence)
    exact = nw.solve(problem, CyclicProjections(), tol=1e-10)
    result = nw.solve(problem, CyclicProjections(multiplier_tol=1e-2), tol=1e-10)
    assert result.status is nw.Status.STATIONARY
    assert "own rule" in result.message
    assert result.n_iter < exact.n_iter
    assert result.certificate.gap > 1e-10
    shorter = nw.solve(problem, CyclicProjections(multiplier_tol=1e-2), tol=1e-10, max_iter=result.n_iter - 1)
    change = np.linalg.norm(result.dual - shorter.dual) / np.linalg.norm(result.dual)
    assert change <= 1e-2


@both
def test_history_tells_the_share_of_satisfied_constraints(divergence: nw.Divergence) -> None:
    problem = labelled(divergence, penalty=math.inf, r=12, m=20)
    result = nw.solve(problem, CyclicProjections())
    shares = [record.satisfied for record in result.history]
    off = (problem.values(problem.prior) - problem.bounds) * -problem.relations
    violations = np.maximum(off, 0.0) / problem.bounds
    assert shares[0] == np.mean(violations <= 1e-3)
    assert shares[0] < 1
    assert shares[-1] == result.certificate.satisfied == 1.0


@both
def test_the_prior_is_no_sweep(divergence: nw.Divergence) -> None:
    problem = labelled(divergence)
    factors: list[np.ndarray] = []
    solver = nw.solvers.CyclicProjections()
    result = nw.solve(problem, solver, max_iter=4, watch=lambda record, B: factors.append(B))
    assert result.limit == "iterations"
    assert (result.n_sweeps, result.n_iter, len(factors)) == (3, 4, 4)
    assert_allclose(factors[0] @ factors[0].T, problem.prior, rtol=1e-12, atol=1e-12)
    assert not np.allclose(factors[1] @ factors[1].T, problem.prior, rtol=1e-3)


@both
def test_message_counts_projections(divergence: nw.Divergence) -> None:
    result = nw.solve(labelled(divergence), CyclicProjections())
    counted = re.search(r"(\d+) projections", result.message)
    assert counted is not None
    assert 0 < int(counted[1]) <= 60 * result.n_iter
    if isinstance(divergence, nw.VonNeumann):
        evaluations = re.search(r"([\d.]+) evaluations", result.message)
        assert evaluations is not None
        assert 1 < float(evaluations[1]) <= 6


@both
def test_contradictions_are_proved(divergence: nw.Divergence) -> None:
    line = [[0.0], [1.0], [2.0]]
    side = c.at_most([(0, 1), (1, 2)], 1.0) + c.at_least([(0, 2)], 5.0)
    problem = nw.Problem(line, side, divergence, penalty=math.inf)
    result = nw.solve(problem, CyclicProjections())
    assert result.status is nw.Status.INFEASIBLE
    assert nw.check_infeasibility(problem, result.dual).valid


def test_frobenius_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"knows LogDet and VonNeumann, not Frobenius\(\)"):
        nw.solve(labelled(nw.Frobenius()), CyclicProjections())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CyclicProjections(order="random"),
            "order must be one of 'cyclic', 'interleaved'",
        ),
        (lambda: CyclicProjections(form="dense"), "form must be one of 'factored', 'symmetric', got 'dense'"),
        (
            lambda: CyclicProjections(multiplier_tol=0.0),
            "multiplier_tol must be a finite number > 0 or None, got 0.0",
        ),
        (lambda: ApproximateProjections(order="no"), "order must be one of"),
        (
            lambda: ApproximateProjections(eigenvalues="all"),
            "eigenvalues must be one of 'own', 'symmetric', got 'all'",
        ),
        (lambda: ApproximateProjections(epsilon=-1.0), "epsilon must be a finite number > 0, got -1.0"),
    ],
)
def test_settings_that_make_no_sense(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- DefiniteBoost -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_approximate_projections_reach_the_same_optimum_in_more_sweeps() -> None:
    problem = trace_one(n=12, m=20)
    exact = nw.solve(problem, CyclicProjections(), tol=1e-8)
    for eigenvalues in ("own", "symmetric"):
        approximate = nw.solve(problem, ApproximateProjections(eigenvalues=eigenvalues), tol=1e-8)
        assert approximate.status is exact.status is nw.Status.SOLVED
        assert_allclose(approximate.certificate.primal, exact.certificate.primal, rtol=1e-7)
        assert_allclose(np.trace(approximate.matrix), 1.0, rtol=1e-12)
    assert approximate.n_iter > 5 * exact.n_iter


def one_row(seed: int) -> tuple[nw.Problem, np.ndarray, np.ndarray]:
    """One row on matrices of trace one, with a bound below what the prior gives it; A - b I and the prior."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(5, 5))
    A = A + A.T
    prior = cases.positive_definite(rng, 5)
    prior /= np.trace(prior)
    least = np.linalg.eigvalsh(A)[0]
    bound = least + rng.uniform(0.1, 0.9) * (np.sum(A * prior) - least)
    side = c.linear([A], [bound], "<=") + c.linear([np.eye(5)], [1.0], "==")
    problem = nw.Problem(np.eye(5), side, nw.VonNeumann(), prior, math.inf)
    return problem, A - bound * np.eye(5), prior


@pytest.mark.parametrize("seed", range(8))
def test_approximate_step_minimises_the_golden_thompson_bound(seed: int) -> None:
    """TRW05 4.3, errata 2: the step minimises tr(W (1 - ...)) over the chord of exp(-a C) on [low, high]."""
    problem, C, prior = one_row(seed)
    low, high = np.linalg.eigvalsh(C)[[0, -1]]
    r = float(np.sum(C * prior))
    assert r > 0
    step = nw.solve(problem, ApproximateProjections(), tol=1e-15, max_iter=2).dual[0]
    steps = np.linspace(0, 3 * step + 1e-3, 20001)
    chord = (np.exp(-steps * low) * (high - r) + np.exp(-steps * high) * (r - low)) / (high - low)
    assert_allclose(step, steps[np.argmin(chord)], atol=2 * steps[1])


@pytest.mark.parametrize("seed", range(8))
def test_progress_is_at_least_what_theorem_4_1_promises(seed: int) -> None:
    """Of the logarithm of the partition function, in each of the first steps onto one row."""
    problem, C, prior = one_row(seed)
    low, high = np.linalg.eigvalsh(C)[[0, -1]]
    values, vectors = np.linalg.eigh(prior)
    start = (vectors * np.log(values)) @ vectors.T
    runs = [nw.solve(problem, ApproximateProjections(), tol=1e-15, max_iter=count) for count in range(1, 7)]
    for before, after in itertools.pairwise(runs):
        was, now = (
            np.logaddexp.reduce(np.linalg.eigvalsh(start - run.dual[0] * C)) for run in (before, after)
        )
        excess = float(np.sum(C * before.matrix))
        promised = high * math.log(1 - excess / high) - low * math.log(1 - excess / low)
        assert now - was <= promised / (high - low) + 1e-10
        assert now < was


def test_the_bound_of_corollary_4_2_is_reported_and_kept() -> None:
    problem = trace_one(n=6, m=6, seed=4)
    epsilon = 1e-2
    solver = ApproximateProjections(order="violated", epsilon=epsilon)
    result = nw.solve(problem, solver, tol=1e-6)
    reported = re.search(r"at most ([\d.e+]+) are needed for violations below 0.01", result.message)
    assert reported is not None
    A, bounds = kkt.written_out(problem).A[:-1], problem.bounds[:-1]
    ranges = [np.abs(np.linalg.eigvalsh(a - b * np.eye(6))).max() for a, b in zip(A, bounds, strict=True)]
    assert_allclose(float(reported[1]), 2 * (max(ranges) / epsilon) ** 2 * math.log(6), rtol=1e-2)
    factors: list[np.ndarray] = []
    nw.solve(problem, solver, tol=1e-6, watch=lambda record, B: factors.append(B))
    off = [(problem.values(B @ B.T) - problem.bounds)[:-1] * -problem.relations[:-1] for B in factors]
    sweeps = next(count for count, excess in enumerate(off) if excess.max() < epsilon)  # of 7 steps
    assert sweeps > 0
    assert 7 * sweeps <= float(reported[1])


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (labelled(nw.LogDet()), TypeError, "knows VonNeumann only"),
        (labelled(nw.VonNeumann()), ValueError, "hard constraints only"),
        (labelled(nw.VonNeumann(), math.inf), ValueError, "fixes the trace of M"),
    ],
)
def test_definite_boost_needs_a_trace(problem: nw.Problem, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nw.solve(problem, ApproximateProjections())


# --- the choice --------------------------------------------------------------------------------------------


def hidden_metric(r: int, m: int, divergence: nw.Divergence, contradiction: bool = False) -> nw.Problem:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(300, r))
    pairs = rng.integers(300, size=(m, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    d = np.sum(((G[pairs[:, 0]] - G[pairs[:, 1]]) @ (np.eye(r) + 0.2 * rng.normal(size=(r, r)))) ** 2, axis=1)
    if contradiction:
        d = rng.permutation(d)
    half = len(pairs) // 2
    side = c.at_most(pairs[:half], d[:half]) + c.at_least(pairs[half:], d[half:])
    return nw.Problem(G, side, divergence, penalty=math.inf)


def far_correlations() -> nw.Problem:
    """Diagonal entries of 1 from a kernel of 1e-4, of rank 9."""
    G = np.random.default_rng(0).normal(size=(10, 9))
    ones = c.similarity([(i, i) for i in range(10)], 1.0, "==")
    return nw.Problem.from_kernel(1e-4 * G @ G.T, ones, penalty=math.inf)


def fewer_soft_than_unknowns(divergence: nw.Divergence, spread: float) -> nw.Problem:
    """450 distances near those of the identity, 528 unknowns, penalties that differ by powers of ten."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(80, 32))
    first = rng.integers(80, size=450)
    pairs = np.stack([first, (first + rng.integers(1, 80, size=450)) % 80], axis=1)
    d = np.sum((G[pairs[:, 0]] - G[pairs[:, 1]]) ** 2, axis=1) * 10.0 ** rng.uniform(-0.1, 0.1, 450)
    side = c.at_most(pairs[:225], d[:225]) + c.at_least(pairs[225:], d[225:])
    return nw.Problem(G, side, divergence, penalty=10.0 ** rng.uniform(-spread, spread, 450))


@pytest.mark.parametrize(
    ("problem", "chosen"),
    [
        (labelled(nw.LogDet()), "DualNewton"),
        (fewer_soft_than_unknowns(nw.Frobenius(), 0.0), "InteriorPoint"),
        (fewer_soft_than_unknowns(nw.VonNeumann(), 4.0), "InteriorPoint"),
        (labelled(nw.LogDet(), r=12, m=400), "Newton"),
        (labelled(nw.LogDet(), r=3, m=400), "DualNewton"),
        (labelled(nw.VonNeumann(), math.inf, r=12, m=20), "DualNewton"),
        (far_correlations(), "InteriorPoint"),
        (hidden_metric(3, 2000, nw.LogDet()), "InteriorPoint"),
        (hidden_metric(3, 2000, nw.VonNeumann()), "InteriorPoint"),
        (hidden_metric(8, 300, nw.LogDet()), "DualNewton"),
        (hidden_metric(6, 400_000, nw.LogDet()), "CyclicProjections"),
    ],
    ids=[
        "few soft",
        "soft, fewer than unknowns",
        "soft, fewer than unknowns and of very different penalties",
        "soft",
        "soft, many per unknown",
        "few hard",
        "few hard, far",
        "many hard",
        "many hard, von Neumann",
        "hard, few per unknown",
        "hard, too many to write out",
    ],
)
def test_solve_chooses(problem: nw.Problem, chosen: str) -> None:
    result = nw.solve(problem)
    assert result.status is nw.Status.SOLVED
    assert result.solver == chosen


@both
def test_contradictory_rows_return_the_last_point_and_say_what_is_open(divergence: nw.Divergence) -> None:
    problem = hidden_metric(3, 60, divergence, contradiction=True)
    result = nw.solve(problem, CyclicProjections(), max_iter=12)
    assert result.status is nw.Status.LIMIT
    assert "solver=None can" in result.message
    assert np.abs(result.matrix - problem.prior).max() > 0.1  # the prior has the smaller violation
    assert nw.solve(problem).status is nw.Status.INFEASIBLE


# --- where the kernel is not given, or its range is too narrow ---------------------------------------------


@both
def test_random_kernel(divergence: nw.Divergence) -> None:
    side = c.equal([(0, 1), (2, 3)], 2.0)
    problem = nw.Problem.from_random_kernel(20, 4, side, divergence, penalty=math.inf, seed=3)
    again = nw.Problem.from_random_kernel(20, 4, side, divergence, penalty=math.inf, seed=3)
    assert np.array_equal(problem.features, again.features)
    K0 = problem.features @ problem.prior @ problem.features.T
    assert np.linalg.matrix_rank(K0) == 4
    assert_allclose(np.trace(K0), 20)
    result = nw.solve(problem, CyclicProjections())
    K = result.kernel_factor @ result.kernel_factor.T
    assert_allclose(K[0, 0] + K[1, 1] - 2 * K[0, 1], 2.0, rtol=1e-5)


@pytest.mark.parametrize(("n", "rank"), [(5, 6), (5, 0), (0, 1), (5, 2.0)])
def test_random_kernel_of_an_impossible_size(n: int, rank: int) -> None:
    with pytest.raises(ValueError, match=r"(n|rank) must be a whole number"):
        nw.Problem.from_random_kernel(n, rank, c.at_most([(0, 1)], 1.0))


@both
def test_widening_lets_the_kernel_leave_its_range(divergence: nw.Divergence) -> None:
    """KSD09 6.5: one dimension cannot hold three points at equal distances, two can."""
    x = np.array([[-1.0], [0.0], [1.0]])
    side = c.equal([(0, 1), (1, 2), (0, 2)], 3.0)
    narrow = nw.Problem.from_kernel(x @ x.T, side, divergence, penalty=math.inf)
    assert nw.solve(narrow).status is nw.Status.INFEASIBLE
    wide = nw.Problem.from_kernel(x @ x.T, side, divergence, penalty=math.inf, widening=0.1)
    result = nw.solve(wide)
    assert result.status is nw.Status.SOLVED
    assert_allclose(wide.features @ wide.prior @ wide.features.T, x @ x.T + 0.1 * (np.eye(3) - x @ x.T / 2))
    assert np.linalg.matrix_rank(result.matrix, tol=1e-6) >= 2
    with pytest.raises(ValueError, match="widening must be a finite number >= 0, got -1"):
        nw.Problem.from_kernel(x @ x.T, side, divergence, widening=-1)
