"""`solve`: how a run ends, what it reports, what it refuses, and the laws its answers obey."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose

import cases
import kkt
import nearwise as nw
from cases import ThreeHalves
from nearwise import constraints as c
from nearwise.constraints import Block, Constraints
from nearwise.solvers import Formulation, Iterate

divergences = pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)
seeds = st.integers(0, 2**32 - 1)


def example(
    divergence: nw.Divergence, penalty: object = 1.0, seed: int = 0, **arguments: object
) -> nw.Problem:
    """Every kind of constraint on 7 objects with 4 features; hard rows have a solution."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(7, 4))
    side = cases.KINDS["all kinds"](rng, G @ cases.positive_definite(rng, 4) @ G.T)
    return nw.Problem(G, side, divergence, penalty=penalty, **arguments)


# --- contradictory constraints -----------------------------------------------------------------------------

TRIANGLE = c.at_most([(0, 1), (1, 2)], 1.0) + c.at_least([(0, 2)], 10.0)
BOTH_WAYS = c.at_most([(0, 1), (2, 3)], [1.0, 5.0]) + c.at_least([(0, 1)], 2.0)
POINTS = np.random.default_rng(1).normal(size=(5, 3))


@divergences
@pytest.mark.parametrize("prior", [None, np.diag([3.0, 1.0, 0.5]), np.diag([1.0, 2.0, 0.0])])
def test_the_same_pair_forced_both_ways_is_infeasible(divergence: nw.Divergence, prior: object) -> None:
    problem = nw.Problem(POINTS, BOTH_WAYS, divergence, prior, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    for name in ("row 0: d(0, 1) <= 1", "row 2: d(0, 1) >= 2"):
        assert name in result.message
    assert "row 1" not in result.message
    assert {violation.row for violation in result.certificate.worst} == {0, 2}
    assert result.certificate.dual == math.inf
    assert np.isfinite(result.matrix).all()

    check = nw.check_infeasibility(problem, result.dual)
    assert check.valid
    assert set(check.rows) == {0, 2}
    # y^T b < 0 and sum y_i A_i >= 0, from the definitions
    dense = kkt.written_out(problem, prior)
    assert result.dual @ dense.bounds < 0
    assert result.dual[0] >= 0 >= result.dual[2]


@divergences
def test_a_broken_triangle_is_infeasible(divergence: nw.Divergence) -> None:
    problem = nw.Problem(POINTS, TRIANGLE, divergence, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    assert {violation.row for violation in result.certificate.worst} == {0, 1, 2}
    y = result.dual
    assert nw.check_infeasibility(problem, y).valid
    A = kkt.written_out(problem).A
    S = np.einsum("k,kij->ij", y / -(y @ problem.bounds), A)
    assert np.linalg.eigvalsh(S)[0] >= -1e-6


@divergences
def test_soft_rows_take_no_part_in_a_contradiction(divergence: nw.Divergence) -> None:
    penalty = [math.inf, 1.0, math.inf]
    result = nw.solve(nw.Problem(POINTS, BOTH_WAYS, divergence, penalty=penalty))
    assert result.status is nw.Status.INFEASIBLE
    assert result.dual[1] == 0.0
    for penalty in ([1.0, math.inf, math.inf], [math.inf, math.inf, 1.0], 1.0, 1e3):
        result = nw.solve(nw.Problem(POINTS, BOTH_WAYS, divergence, penalty=penalty), tol=1e-8)
        assert result.status is nw.Status.SOLVED


@divergences
@pytest.mark.parametrize("side", [TRIANGLE, BOTH_WAYS])
def test_soft_contradictions_are_solved(divergence: nw.Divergence, side: Constraints) -> None:
    problem = nw.Problem(POINTS, side, divergence, penalty=5.0)
    result = nw.solve(problem, tol=1e-10)
    kkt.assert_optimal(problem, result)
    assert result.certificate.violation > 0.1
    assert result.certificate.hard_violation == 0.0


@divergences
@pytest.mark.parametrize("side", [TRIANGLE, BOTH_WAYS])
def test_tampered_multipliers_prove_nothing(divergence: nw.Divergence, side: Constraints) -> None:
    problem = nw.Problem(POINTS, side, divergence, penalty=math.inf)
    y = nw.solve(problem).dual
    assert nw.check_infeasibility(problem, 1e-6 * y).valid  # a ray has no length
    for k in np.flatnonzero(np.abs(y) > 1e-3):
        for factor in (0.0, -1.0, 3.0 if side.relations[k] > 0 else 0.01):
            tampered = np.where(np.arange(len(y)) == k, factor * y, y)
            assert not nw.check_infeasibility(problem, tampered).valid
    assert not nw.check_infeasibility(problem, -y).valid
    assert not nw.check_infeasibility(problem, 0 * y).valid
    soft = nw.Problem(POINTS, side, divergence, penalty=1e9)
    assert not nw.check_infeasibility(soft, y).valid


@divergences
@given(seed=seeds)
@settings(max_examples=20)
def test_no_multipliers_prove_a_feasible_problem_infeasible(divergence: nw.Divergence, seed: int) -> None:
    problem = example(divergence, math.inf, seed)
    rng = np.random.default_rng(seed)
    y = rng.normal(size=len(problem.bounds)) * rng.choice([1e-8, 1e-3, 1.0, 1e6], len(problem.bounds))
    assert not nw.check_infeasibility(problem, y).valid


def test_proof_needs_one_finite_multiplier_per_row() -> None:
    problem = nw.Problem(POINTS, TRIANGLE, penalty=math.inf)
    for y in ([1.0, 1.0], [1.0, 1.0, math.nan], [[1.0, 1.0, -1.0]]):
        with pytest.raises(ValueError, match="dual must be 3 finite numbers"):
            nw.check_infeasibility(problem, y)


# --- limits, interrupts, history ---------------------------------------------------------------------------


@divergences
@pytest.mark.parametrize("penalty", [1e3, math.inf])
@pytest.mark.parametrize("limit", [{"max_iter": 1}, {"max_iter": 2}, {"max_seconds": 1e-9}])
def test_a_limit_returns_the_best_matrix_so_far(
    divergence: nw.Divergence, penalty: float, limit: dict[str, float]
) -> None:
    problem = example(divergence, penalty)
    result = nw.solve(problem, nw.solvers.Newton(), tol=1e-12, **limit)
    assert result.status is nw.Status.LIMIT
    assert result.n_iter == limit.get("max_iter", 1)
    assert np.isfinite(result.matrix).all()
    assert np.linalg.eigvalsh(result.matrix)[0] >= 0
    assert np.isfinite([result.certificate.primal, result.certificate.hard_violation]).all()
    unit = "seconds" if "max_seconds" in limit else "iterations"
    assert f"at the limit of {next(iter(limit.values())):g} {unit}" in result.message


@divergences
def test_an_interrupt_returns_the_best_matrix_so_far(divergence: nw.Divergence) -> None:
    problem = example(divergence, 100.0)

    def interrupt(record: nw.Record) -> None:
        if record.iteration == 3:
            raise KeyboardInterrupt

    result = nw.solve(problem, nw.solvers.Newton(), tol=1e-12, callback=interrupt)
    assert result.status is nw.Status.INTERRUPTED
    assert result.n_iter == 3
    assert result.certificate.gap <= min(record.gap for record in result.history) * (1 + 1e-6)
    assert np.linalg.eigvalsh(result.matrix)[0] > 0
    assert "Interrupted" in result.message


@divergences
def test_a_true_answer_of_the_callback_stops_the_run(divergence: nw.Divergence) -> None:
    seen = []

    def stop(record: nw.Record) -> bool:
        seen.append(record)
        return record.iteration == 2

    result = nw.solve(example(divergence, 100.0), nw.solvers.Newton(), tol=1e-12, callback=stop)
    assert result.status is nw.Status.INTERRUPTED
    assert tuple(seen) == result.history
    assert [record.iteration for record in seen] == [1, 2]


@divergences
@pytest.mark.parametrize("prior", [None, np.diag([1.2, 0.8, 1.5, 0.0])])
def test_who_watches_sees_the_matrix_of_every_iteration(divergence: nw.Divergence, prior: object) -> None:
    problem = example(divergence, 1.0, prior=prior)
    seen: list[tuple[nw.Record, np.ndarray]] = []
    result = nw.solve(problem, watch=lambda record, B: seen.append((record, B)))
    assert tuple(record for record, _ in seen) == result.history
    assert_allclose(seen[0][1] @ seen[0][1].T, problem.prior, rtol=1e-12, atol=1e-12)
    assert_allclose(seen[-1][1] @ seen[-1][1].T, result.matrix, rtol=1e-12, atol=1e-12)


def test_who_watches_may_stop_the_run() -> None:
    problem = example(nw.LogDet(), 100.0)
    seen: list[int] = []
    result = nw.solve(
        problem,
        nw.solvers.Newton(),
        tol=1e-12,
        callback=lambda r: seen.append(r.iteration),
        watch=lambda r, B: r.iteration == 2,
    )
    assert result.status is nw.Status.INTERRUPTED
    assert seen == [1, 2]
    with pytest.raises(TypeError, match="watch must be callable, got int"):
        nw.solve(problem, watch=1)


def test_other_errors_of_the_callback_are_raised() -> None:
    def fail(record: nw.Record) -> None:
        raise RuntimeError("my own error")

    with pytest.raises(RuntimeError, match="my own error"):
        nw.solve(example(nw.LogDet()), callback=fail)


@divergences
@pytest.mark.parametrize("penalty", [1.0, math.inf])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_history_has_one_record_per_iteration(
    divergence: nw.Divergence, penalty: float, scale: float
) -> None:
    plain = example(divergence)
    G, prior = plain.features / np.sqrt(scale), scale * np.diag([1.2, 0.8, 1.5, 0.7])
    problem = nw.Problem(G, plain.constraints, divergence, prior, penalty)
    result = nw.solve(problem, tol=1e-10)
    history, certificate = result.history, result.certificate
    assert result.n_iter == len(history) >= 2  # points that cannot be good yet are kept back
    assert [record.iteration for record in history] == list(range(1, len(history) + 1))
    seconds = [record.seconds for record in history]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0
    # the first point is the prior, the last one the answer, in the units of the problem
    first = problem.certificate(problem.prior, np.zeros(len(problem.bounds)))
    assert_allclose(history[0].primal, first.primal, rtol=1e-9, atol=1e-12)
    assert_allclose(history[0].violation, first.violation, rtol=1e-9)
    last = history[-1]
    assert_allclose(last.primal, certificate.primal, rtol=1e-8)
    assert_allclose(last.dual, certificate.dual, rtol=1e-8)
    assert_allclose(last.violation, certificate.violation, rtol=1e-6, atol=1e-9)
    assert max(last.gap, last.hard_violation) <= 1e-10
    for record in history:
        assert min(record.gap, record.violation, record.hard_violation) >= 0
        assert record.hard_violation <= record.violation


# unit squares that span the plane: nothing to reduce, so that a solver sees the coordinates of the features
PLANE = nw.Problem([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], c.at_most([(0, 1), (0, 2)], 0.9))


class Walk:
    """A solver that visits given matrices, with the multipliers that belong to them."""

    def __init__(self, *matrices: np.ndarray) -> None:
        self.matrices = matrices

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        for M in self.matrices:
            factor = np.linalg.cholesky(M)
            yield Iterate(factor)


def test_a_solver_that_stops_early_has_stalled_and_its_best_matrix_counts() -> None:
    good, bad = np.diag([0.6, 0.7]), np.diag([3.0, 2.0])
    assert PLANE.objective(good) < PLANE.objective(bad)
    result = nw.solve(PLANE, Walk(bad, good, bad))
    assert result.status is nw.Status.STALLED
    assert_allclose(result.matrix, good, rtol=1e-12)
    assert result.n_iter == 3
    assert result.solver == "Walk"
    assert "tolerance 1e-06 was not reached" in result.message


def test_the_clock_is_read_after_every_iteration() -> None:
    steps = Walk(*[np.diag([3.0, 2.0])] * 1000)
    result = nw.solve(PLANE, steps, max_seconds=0.3, callback=lambda _: time.sleep(0.03))
    assert result.status is nw.Status.LIMIT
    assert result.history[-1].seconds >= 0.3 > result.history[-2].seconds


def test_an_interrupt_before_the_first_matrix_is_raised() -> None:
    class Interrupted:
        def iterates(self, form: Formulation) -> Iterator[Iterate]:
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        nw.solve(example(nw.LogDet()), Interrupted())


def test_result_knows_its_kernel_and_shows_itself_in_one_line() -> None:
    problem = example(nw.LogDet())
    result = nw.solve(problem)
    K = problem.features @ result.matrix @ problem.features.T
    assert_allclose(result.kernel_factor @ result.kernel_factor.T, K, rtol=1e-10, atol=1e-10)
    assert repr(result).startswith(f"<Result: SOLVED, {result.n_iter} iterations of DualNewton, objective ")
    assert "\n" not in repr(result)
    assert result.message.startswith("Solved within 1e-06")


@divergences
@pytest.mark.parametrize("prior", [None, cases.positive_definite(np.random.default_rng(3), 4)])
def test_matrix_is_exactly_symmetric(divergence: nw.Divergence, prior: object) -> None:
    result = nw.solve(example(divergence, prior=prior))
    assert np.array_equal(result.matrix, result.matrix.T)


@divergences
@pytest.mark.parametrize("penalty", [1.0, math.inf])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
@pytest.mark.parametrize("kind", ["distances <=", "similarities ==", "linear dense", "all kinds"])
def test_a_prior_in_the_wrong_unit_leads_to_no_nonsense(
    divergence: nw.Divergence, penalty: float, scale: float, kind: str
) -> None:
    """However far the prior is from the constraints: no warning (an error here), and a finite answer."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(7, 4))
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, 4) @ G.T)
    result = nw.solve(nw.Problem(G, side, divergence, scale * np.eye(4), penalty), max_iter=200)
    assert result.status in (nw.Status.SOLVED, nw.Status.LIMIT, nw.Status.STALLED)
    assert np.linalg.eigvalsh(result.matrix)[0] >= -1e-12 * np.abs(result.matrix).max()
    assert np.isfinite([result.certificate.primal, result.certificate.hard_violation]).all()


@divergences
def test_nothing_is_printed(divergence: nw.Divergence, capfd: pytest.CaptureFixture[str]) -> None:
    nw.solve(example(divergence))
    nw.solve(nw.Problem(POINTS, TRIANGLE, divergence, penalty=math.inf))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "problem must be a nearwise.Problem, got str", {"problem": "p"}),
        (TypeError, "solver must have a method iterates.* got 'newton'", {"solver": "newton"}),
        (TypeError, "callback must be callable, got int", {"callback": 3}),
        *(
            (ValueError, f"tol must be .* got {tol!r}", {"tol": tol})
            for tol in (0, 1, -1e-3, math.nan, None, "1e-6")
        ),
        *((ValueError, f"max_iter must be .* got {k!r}", {"max_iter": k}) for k in (0, -3, 2.5, "5")),
        *(
            (ValueError, f"max_seconds must be .* got {t!r}", {"max_seconds": t})
            for t in (0, -1, math.nan, "5")
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(error: type[Exception], message: str, arguments: dict) -> None:
    with pytest.raises(error, match=message):
        nw.solve(**{"problem": example(nw.LogDet()), **arguments})


# --- laws --------------------------------------------------------------------------------------------------


@divergences
@pytest.mark.parametrize("penalty", [1.0, math.inf])
def test_the_same_run_twice_gives_the_same_bits(divergence: nw.Divergence, penalty: float) -> None:
    first, second = (nw.solve(example(divergence, penalty)) for _ in range(2))
    assert np.array_equal(first.matrix, second.matrix)
    assert np.array_equal(first.dual, second.dual)
    assert first.certificate == second.certificate
    # the problem itself is not used up
    problem = example(divergence, penalty)
    assert np.array_equal(nw.solve(problem).matrix, nw.solve(problem).matrix)


@divergences
def test_a_sampled_hessian_follows_its_seed(divergence: nw.Divergence) -> None:
    rng = np.random.default_rng(0)
    G, m = rng.normal(size=(60, 5)), 400
    pairs = np.column_stack([rng.integers(0, 30, m), rng.integers(30, 60, m)])
    problem = nw.Problem(
        G, c.at_most(pairs[:200], 4.0) + c.at_least(pairs[200:], 15.0), divergence, penalty=0.1
    )
    exact = nw.solve(problem, tol=1e-8)
    runs = [nw.solve(problem, nw.solvers.Newton(hessian_rows=60, seed=seed), tol=1e-8) for seed in (1, 1, 2)]
    assert np.array_equal(runs[0].matrix, runs[1].matrix)
    for run in runs:
        assert run.status is nw.Status.SOLVED
        assert_allclose(run.certificate.primal, exact.certificate.primal, rtol=1e-7)


@pytest.mark.parametrize(
    ("divergence", "most"), [(nw.LogDet(), 16), (nw.VonNeumann(), 26), (nw.Frobenius(), 36)]
)
def test_steps_of_a_sampled_hessian_learn_their_length(divergence: nw.Divergence, most: int) -> None:
    """Whole steps go too far, and each leaves half of the gap: at least a quarter more of them."""
    rng = np.random.default_rng(0)
    G, first = rng.normal(size=(200, 20)), rng.integers(0, 200, 5000)
    pairs = np.column_stack([first, (first + rng.integers(1, 200, 5000)) % 200])
    side = c.at_most(pairs[::2], 28.0) + c.at_least(pairs[1::2], 52.0)
    result = nw.solve(nw.Problem(G, side, divergence), nw.solvers.Newton(hessian_rows=600))
    assert result.status is nw.Status.SOLVED
    assert result.n_iter <= most


@divergences
def test_large_penalties_approach_the_hard_problem(divergence: nw.Divergence) -> None:
    hard = nw.solve(example(divergence, math.inf), tol=1e-10)
    previous = 0.0
    for penalty in (1.0, 1e2, 1e4, 1e6):
        soft = nw.solve(example(divergence, penalty), tol=1e-10)
        assert soft.status is nw.Status.SOLVED
        assert previous < soft.certificate.primal <= hard.certificate.primal * (1 + 1e-9)
        previous = soft.certificate.primal
    assert_allclose(previous, hard.certificate.primal, rtol=1e-4)
    assert_allclose(soft.matrix, hard.matrix, atol=1e-3)


def row_by_row(side: Constraints) -> list[Constraints]:
    """Every constraint on its own."""
    single = []
    for block in side.blocks:
        for k in range(len(block)):
            ids = block.ids if block.kind == "linear" else block.ids[k : k + 1]
            matrices = block.matrices[k : k + 1]
            single.append(
                Constraints((Block(block.kind, block.relation, ids, block.bounds[k : k + 1], matrices),))
            )
    return single


@divergences
@pytest.mark.parametrize("hard", [False, True])
@given(seed=seeds)
@settings(max_examples=5)
def test_the_order_of_constraints_does_not_matter(divergence: nw.Divergence, hard: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = example(divergence)
    m = len(problem.constraints)
    penalty = np.where(np.arange(m) % 2 == 0, math.inf if hard else 3.0, rng.uniform(0.1, 10.0, m))
    order = rng.permutation(m)
    rows = row_by_row(problem.constraints)
    shuffled = sum((rows[k] for k in order), Constraints())
    here = nw.solve(nw.Problem(problem.features, problem.constraints, divergence, penalty=penalty), tol=1e-12)
    there = nw.solve(nw.Problem(problem.features, shuffled, divergence, penalty=penalty[order]), tol=1e-12)
    assert_allclose(there.certificate.primal, here.certificate.primal, rtol=1e-10)
    assert_allclose(there.matrix, here.matrix, atol=1e-5 * np.abs(here.matrix).max())


@divergences
@pytest.mark.parametrize("penalty", [1.0, math.inf])
@given(seed=seeds)
@settings(max_examples=5)
def test_rotated_features_rotate_the_answer(divergence: nw.Divergence, penalty: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior = cases.positive_definite(rng, 4, rank=int(rng.integers(3, 5)))
    G = rng.normal(size=(7, 4))
    side = cases.KINDS["all kinds"](rng, G @ prior @ cases.positive_definite(rng, 4) @ prior @ G.T)
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    here = nw.solve(nw.Problem(G, side, divergence, prior, penalty), tol=1e-12)
    there = nw.solve(nw.Problem(G @ Q, side, divergence, Q.T @ prior @ Q, penalty), tol=1e-12)
    assert_allclose(there.certificate.primal, here.certificate.primal, rtol=1e-9)
    assert_allclose(Q @ there.matrix @ Q.T, here.matrix, atol=1e-5 * np.abs(here.matrix).max())


@given(seed=seeds)
@settings(max_examples=10)
def test_objects_may_have_any_names(seed: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(6, 3))
    names = rng.permutation(["ann", "bob", "cy", "dee", "eve", "flo"]).tolist()
    order = rng.permutation(6)
    rows = [(0, 1, 2), (3, 4, 5), (2, 5, 0)]
    A = cases.positive_definite(rng, 3)

    def side(of: list) -> Constraints:
        return (
            c.at_most([(of[0], of[5])], 0.5)
            + c.closer([tuple(of[k] for k in row) for row in rows], 0.1)
            + c.similarity([(of[1], of[1]), (of[2], of[3])], 0.3, "<=")
            + c.linear(A, 0.7, "==", ids=[of[4], of[0], of[2]])
        )

    plain = nw.Problem(G, side(list(range(6))), sample_ids=None)
    named = nw.Problem(G[order], side(names), sample_ids=[names[k] for k in order])
    here, there = nw.solve(plain, tol=1e-11), nw.solve(named, tol=1e-11)
    assert_allclose(there.matrix, here.matrix, atol=1e-6)
    kkt.assert_optimal(named, there, sample_ids=[names[k] for k in order])


# --- a divergence of the user's own ------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.1, 1.0, 100.0, math.inf])
@pytest.mark.parametrize("prior", [None, cases.positive_definite(np.random.default_rng(3), 4)])
@pytest.mark.parametrize(
    "kind", ["distances <=", "distances >=", "similarities <=", "comparisons margin 0", "all kinds"]
)
def test_a_divergence_of_ones_own_is_solved(kind: str, prior: object, penalty: float) -> None:
    rng = np.random.default_rng(1)
    G = rng.normal(size=(7, 4))
    side = cases.KINDS[kind](rng, G @ cases.positive_definite(rng, 4) @ G.T)
    problem = nw.Problem(G, side, ThreeHalves(), prior, penalty)
    result = nw.solve(problem, tol=1e-10)
    kkt.assert_optimal(problem, result, prior)


def test_a_divergence_of_ones_own_reaches_the_edge_of_the_cone() -> None:
    """phi = x^1.5 has a finite slope at 0, so M may become singular, as it does for Frobenius."""
    [case] = [case for case in cases.KNOWN if case.name == "edge of the cone"]
    problem = case.problem(ThreeHalves())
    result = nw.solve(problem, tol=1e-10)
    kkt.assert_optimal(problem, result)
    assert_allclose(result.matrix, np.diag([0.25, 0.0]), atol=1e-5)


@pytest.mark.parametrize("setting", ["hessian_rows", "radius", "stiffness"])
def test_a_setting_of_newton_that_makes_no_sense_is_refused_by_name(setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be a .*number .*, got -1$"):
        nw.solvers.Newton(**{setting: -1})


# --- starting from a given matrix --------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("prior", [None, "singular"])
def test_a_start_changes_the_way_and_not_the_end(divergence: nw.Divergence, prior: str | None) -> None:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(20, 4))
    M0 = None if prior is None else cases.positive_definite(rng, 4, rank=3)
    side = c.at_most([(0, 1), (2, 3)], 0.5) + c.at_least([(4, 5), (6, 7)], 20.0)
    problem = nw.Problem(G, side, divergence, M0, penalty=1.0)
    cold = nw.solve(problem, nw.solvers.Newton(), tol=1e-10)
    again = nw.solve(problem, tol=1e-10, start=cold.factor)
    np.testing.assert_allclose(again.matrix, cold.matrix, rtol=0, atol=1e-4 * np.abs(cold.matrix).max())
    assert again.status is nw.Status.SOLVED
    assert again.n_iter < cold.n_iter
    elsewhere = nw.solve(problem, tol=1e-10, start=rng.normal(size=(4, 2)))
    np.testing.assert_allclose(elsewhere.certificate.primal, cold.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize("solver", [None, nw.solvers.Newton()], ids=["automatic", "Newton"])
@pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("size", [0.0, 1e-160, 1e120, 1e150, 1e300])
def test_a_start_of_any_size_changes_nothing(
    divergence: nw.Divergence, solver: nw.solvers.Newton | None, size: float
) -> None:
    rng = np.random.default_rng(0)
    G = rng.normal(size=(20, 4))
    side = c.at_most([(0, 1), (2, 3)], 0.5) + c.at_least([(4, 5)], 20.0) + c.closer([(6, 7, 8)], margin=1.0)
    problem = nw.Problem(G, side, divergence, penalty=1.0)
    cold = nw.solve(problem, solver)
    told = pytest.warns(UserWarning, match="the run begins at the prior") if size > 1 else nullcontext()
    with told:
        there = nw.solve(problem, solver, start=size * rng.normal(size=(4, 4)))
    assert there.status is nw.Status.SOLVED
    np.testing.assert_allclose(there.certificate.primal, cold.certificate.primal, rtol=2e-6)


@pytest.mark.parametrize(
    ("solver", "start", "message"),
    [
        (None, np.eye(3), "start must have 4 rows, as M has, got 3"),
        (None, [[np.nan]] * 4, "start"),
        (nw.solvers.CyclicProjections(), np.eye(4), "CyclicProjections cannot start from a given matrix"),
    ],
)
def test_a_start_that_cannot_be(solver: object, start: object, message: str) -> None:
    problem = nw.Problem(np.eye(4), c.at_most([(0, 1)], 1.0))
    with pytest.raises(ValueError, match=message):
        nw.solve(problem, solver, start=start)


def test_newton_is_given_time_where_a_step_of_the_interior_point_method_costs_more() -> None:
    digits = nw.datasets.load("digits")
    X = digits.X[:100] - digits.X[:100].mean(axis=0)
    X = X @ np.linalg.svd(X, full_matrices=False)[2][:20].T
    problem = nw.Problem(X, c.from_labels(digits.y[:100], n_pairs=4500, random_state=0))
    problem = problem.with_penalty(1e10 * problem.penalty_unit)
    alone = nw.solve(problem, nw.solvers.Newton(), tol=1e-3)
    assert alone.n_iter > 10
    assert nw.solve(problem, tol=1e-3).n_iter == alone.n_iter
