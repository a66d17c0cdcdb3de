"""Constraints in pieces as solvers use them: rows brought to memory, samples, passes that are spared."""

from __future__ import annotations

import numpy as np
import pytest

from nearwise import (
    LogDet,
    Problem,
    VonNeumann,
    constraints as c,
    solve,
    solvers,
)
from nearwise.distributed.running import InThreads
from nearwise.distributed.vectors import Stacked
from nearwise.model import bound_in_blocks, pieces
from nearwise.model.formulation import prior_point
from nearwise.model.loaded import loaded
from nearwise.model.local import drawn_rows
from nearwise.solving import newton

RNG = np.random.default_rng(3)


X = RNG.normal(size=(60, 5)) * np.arange(1, 6)


PAIRS = np.array([pair for pair in RNG.integers(0, 60, (700, 2)) if pair[0] != pair[1]])


QUADS = np.column_stack([PAIRS[:300], PAIRS[300:600]])


QUADS = QUADS[(QUADS[:, :2] != QUADS[:, 2:]).any(axis=1)]


SIDES = {
    "pairs": c.similar(PAIRS[:300]) + c.dissimilar(PAIRS[300:]),
    "bounds": c.at_most(PAIRS[:200], 20.0) + c.at_least(PAIRS[200:], 40.0) + c.equal(PAIRS[:50], 25.0),
    "weights": c.at_most(PAIRS[:300], 20.0, weights=RNG.uniform(0.5, 2.0, 300))
    + c.at_least(PAIRS[300:], 40.0),
    "comparisons": c.closer(QUADS, margin=1.0) + c.similar(PAIRS[:100]),
    "products": c.similarity(PAIRS[:200], 1.0, ">=") + c.similarity(PAIRS[200:400], 3.0, "<="),
}


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces and slices even of few rows."""
    monkeypatch.setattr(bound_in_blocks, "_FEWEST", 97)
    monkeypatch.setattr(pieces, "_NUMBERS", 5 * 80)


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("kind", SIDES)
def test_rows_that_are_brought_to_memory_are_those_of_data_in_memory(kind: str) -> None:
    root = RNG.normal(size=(5, 3))
    prior = root @ root.T  # whose range is a part of the columns
    expected = Problem(X, SIDES[kind], LogDet(), prior, 3.0).formulation
    found = loaded(Problem(Stacked([X[:25], X[25:]]), SIDES[kind], LogDet(), prior, 3.0).formulation)
    B, y = RNG.normal(size=(3, 3)), RNG.normal(size=len(SIDES[kind]))
    for of_one, of_other in (
        (found.measurements.values_of_factor(B), expected.measurements.values_of_factor(B)),
        (found.measurements.adjoint(y), expected.measurements.adjoint(y)),
        (found.losses.slopes(np.abs(y)), expected.losses.slopes(np.abs(y))),
    ):
        np.testing.assert_allclose(of_one, of_other, rtol=0, atol=1e-11 * np.abs(of_other).max())
    np.testing.assert_array_equal(found.measurements.is_definite, expected.measurements.is_definite)


@pytest.mark.usefixtures("cut_small")
def test_a_sampled_hessian_is_a_sample_of_the_rows_that_are_curved() -> None:
    problem = Problem(Stacked([X]), SIDES["pairs"], penalty=0.1)
    form = problem.formulation
    at = form.measurements.values_of_factor(np.eye(5))
    curvature = form.losses.curvatures(at)
    every, weights, sampled = form.measurements.curved(
        curvature, 10_000, np.random.default_rng(0), np.eye(5), single=False
    )
    assert not sampled
    whole = Problem(X, SIDES["pairs"], penalty=0.1).formulation
    exact = whole.losses.curvatures(whole.measurements.values_of_factor(np.eye(5)))
    assert every.n_rows == np.count_nonzero(exact)
    np.testing.assert_allclose(weights, exact[exact > 0], rtol=1e-12)
    some, weights, sampled = form.measurements.curved(
        curvature, 100, np.random.default_rng(0), np.eye(5), single=False
    )
    assert sampled
    m, n_curved = len(exact), np.count_nonzero(exact)
    asked = -(-100 * m // n_curved)
    drawn = exact[drawn_rows(m, asked, np.random.default_rng(0))]
    assert some.n_rows == np.count_nonzero(drawn)
    np.testing.assert_allclose(weights, drawn[drawn > 0] * m / asked, rtol=1e-12)
    assert solve(problem, solvers.Newton(hessian_rows=100), tol=1e-6).status.name == "SOLVED"


@pytest.mark.long
@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann()], ids=repr)
def test_first_points_come_from_some_of_many_pieces(
    divergence: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_in_blocks, "_FEWEST", 10)
    problem = Problem(Stacked([X]), SIDES["bounds"], divergence)
    problem = problem.with_penalty(0.02 * problem.penalty_unit)
    assert len(problem.formulation.measurements.sizes) >= newton._MANY_PIECES
    passes: list[int] = []
    evaluate = pieces.evaluate
    monkeypatch.setattr(
        pieces, "evaluate", lambda piece, *rest: passes.append(len(piece)) or evaluate(piece, *rest)
    )
    found = solve(problem, tol=1e-9)
    rows = sum(passes)
    passes.clear()
    monkeypatch.setattr(newton, "_WEIGHTY", 0.0)
    expected = solve(problem, tol=1e-9)
    assert rows < sum(passes)
    assert found.n_iter < expected.n_iter
    assert found.status.name == expected.status.name == "SOLVED"
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=0, atol=1e-4 * expected.matrix.max())


@pytest.mark.long
@pytest.mark.usefixtures("cut_small")
def test_multipliers_outside_the_domain_of_the_dual_cost_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """They prove nothing; the bound of a point without them is that of multipliers 0, the number 0."""
    jobs: list[str] = []
    run = InThreads.run

    def counted(self: InThreads, job: object, *arguments: object, **more: object) -> list[object]:
        jobs.append(job.__name__)  # type: ignore[attr-defined]
        return run(self, job, *arguments, **more)  # type: ignore[arg-type]

    problem = Problem(Stacked([X]), c.at_least(PAIRS, 1e5), penalty=1.0)  # far from the prior
    monkeypatch.setattr(InThreads, "run", counted)
    form = problem.formulation
    point = prior_point(form)
    assert not np.isfinite(form.distance_to_mirror(point.factor, point.pullback))
    found = form.certificate(point)
    assert found.gap == 1.0
    assert found.dual == pytest.approx(0.0, abs=1e-12 * found.primal)
    assert jobs == ["evaluate"]


def test_what_a_pass_finds_does_not_keep_the_numbers_of_its_rows() -> None:
    """A slice of no rows would: eight bytes for every row of every piece, until the pass is done."""
    side = c.equal(PAIRS, 25.0)
    problem = Problem(Stacked([X]), side, penalty=0.1)
    terms, runner = problem.formulation.losses.terms, problem.formulation.measurements.runner
    (found,) = runner.run(pieces.evaluate, np.eye(5), terms, 1.0, 10)
    assert found.curved > 10
    assert len(found.curved_rows) == 0
    assert found.curved_rows.base is None
