"""One table: every solver x every divergence x every case, held to the conditions of optimality."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cases
import kkt
import nearwise as nw
from cases import Case
from nearwise import constraints as c

# Each solver with the divergences it knows and the accuracy it is held to. None is the choice of `solve`.
SOLVERS = {
    nw.solvers.Newton(): (cases.DIVERGENCES, 1e-10),
    nw.solvers.InteriorPoint(): ((nw.LogDet(), nw.VonNeumann(), nw.Frobenius()), 1e-9),
    nw.solvers.CyclicProjections(): ((nw.LogDet(), nw.VonNeumann()), 1e-8),
    nw.solvers.ThinFactor(): ((nw.Frobenius(),), 1e-9),
    nw.solvers.ApproximateProjections(): ((nw.VonNeumann(),), 1e-8),
    None: (cases.DIVERGENCES, 1e-9),
}
# What a result may name in place of the solver that was asked for.
OTHERS = {
    "ThinFactor": {"Newton"},
    "Automatic": {"DualNewton", "Newton", "InteriorPoint", "CyclicProjections"},
}
TOL = 1e-10
# Where rows pull against each other or the prior is far away, projections take thousands of sweeps.
MANY_SWEEPS = ("all kinds, r = 4", "far prior 0.01", "far prior 100, all kinds", "partly hard")


def _name(solver: object) -> str:
    return "Automatic" if solver is None else type(solver).__name__


def _suits(solver: object, case: Case) -> bool:
    """Approximate projections need a row that fixes the trace; the choice needs some cases of every kind."""
    if solver is None:
        return case not in cases.GRID or cases.GRID.index(case) % 4 == 0
    if isinstance(solver, nw.solvers.ThinFactor) and case.name.startswith("no active row"):
        return False  # the answer is the prior to the last digit, and it goes there from the matrix 0
    return not isinstance(solver, nw.solvers.ApproximateProjections) or case in cases.TRACE


def _is_spared(solver: object, divergence: nw.Divergence, case: Case) -> bool:
    """Whether the case is left to other divergences, all of which the solver treats alike.

    Of the cases of the grid each divergence solves a third, in turn, so that it meets every kind, every prior
    and every penalty, and nearly every two of them; `-m slow` runs all.
    """
    if solver is None or case not in cases.GRID:
        return False
    known = SOLVERS[solver][0]
    turn = cases.GRID.index(case) + list(SOLVERS).index(solver)
    return (turn + known.index(divergence)) % 3 != 0


def _entry(solver: object, divergence: nw.Divergence, case: Case) -> object:
    many = isinstance(solver, nw.solvers.CyclicProjections) and case.name.startswith(MANY_SWEEPS)
    long = many or _is_spared(solver, divergence, case)
    return pytest.param(
        solver,
        divergence,
        case,
        id=f"{_name(solver)}-{type(divergence).__name__}-{case.name}",
        marks=[pytest.mark.slow] if long else [],
    )


TABLE = [
    _entry(solver, divergence, case)
    for solver, (known, _) in SOLVERS.items()
    for case in [*cases.KNOWN, *cases.GRID, *cases.TRACE]
    for divergence in case.divergences
    if divergence in known and _suits(solver, case)
]


@pytest.mark.parametrize(("solver", "divergence", "case"), TABLE)
def test_answer_is_optimal(solver: object, divergence: nw.Divergence, case: Case) -> None:
    problem = case.problem(divergence)
    tol = SOLVERS[solver][1]
    result = nw.solve(problem, solver, tol=tol, max_iter=100_000)
    kkt.assert_optimal(problem, result, case.prior_of(problem), tol=tol)
    assert result.solver in {_name(solver)} | OTHERS.get(_name(solver), set())
    if case.answer is not None:
        expected = case.answer(divergence)
        learned = (
            result.matrix if case.kernel is None else problem.features @ result.matrix @ problem.features.T
        )
        np.testing.assert_allclose(learned, expected, rtol=0, atol=case.accuracy * np.abs(expected).max())


@pytest.mark.parametrize(
    "solver", [solver for solver, (known, _) in SOLVERS.items() if nw.VonNeumann() in known], ids=_name
)
def test_relative_entropy_example_reaches_the_maximum_entropy_vector(solver: object) -> None:
    """KSD09 figure 6: without dual corrections the answer would be [1/5, 7/15, 1/3]."""
    [case] = [case for case in cases.KNOWN if case.name == "KSD09 (24)"]
    result = nw.solve(case.problem(nw.VonNeumann()), solver, tol=TOL)
    x = np.diag(result.matrix)
    np.testing.assert_allclose(result.matrix, np.diag(x), atol=1e-9)
    np.testing.assert_allclose(x, 1 / 3, atol=1e-3)  # the coefficients are printed with four digits
    assert np.abs(x - [1 / 5, 7 / 15, 1 / 3]).max() > 0.1


@pytest.mark.parametrize(
    ("solver", "divergence"),
    [
        (solver, divergence)
        for solver, (known, _) in SOLVERS.items()
        for divergence in known
        if not isinstance(solver, nw.solvers.ApproximateProjections)  # the case is soft
    ],
    ids=_name,
)
def test_each_tolerance_is_kept(solver: object, divergence: nw.Divergence) -> None:
    case = next(case for case in cases.GRID if case.name == "distances <=, r = 4, full prior, penalty 1")
    best = nw.solve(case.problem(divergence), solver, tol=1e-12).certificate.primal
    for tol in (1e-2, 1e-4, 1e-8):
        result = nw.solve(case.problem(divergence), solver, tol=tol)
        assert result.status is nw.Status.SOLVED
        assert best <= result.certificate.primal * (1 + 1e-12)
        assert result.certificate.primal - best <= tol * max(best, result.certificate.primal)


# --- the checker itself must notice what is wrong ----------------------------------------------------------


def _solved(penalty: object) -> tuple[nw.Problem, nw.Result]:
    rng = np.random.default_rng(3)
    G = rng.normal(size=(6, 3))
    d = np.sum((G[:3] - G[3:]) ** 2, axis=1)
    side = c.at_most([(0, 3)], 0.4 * d[0]) + c.at_least([(1, 4)], 1.8 * d[1]) + c.at_most([(2, 5)], 9 * d[2])
    problem = nw.Problem(G, side, nw.LogDet(), penalty=penalty)
    return problem, nw.solve(problem, tol=TOL)


@pytest.mark.parametrize("penalty", [1.0, np.inf])
@pytest.mark.parametrize(
    "tampered",
    [
        lambda result: replace(result, matrix=1.001 * result.matrix, factor=np.sqrt(1.001) * result.factor),
        lambda result: replace(result, factor=1.001 * result.factor),
        lambda result: replace(result, matrix=result.matrix + 1e-3 * np.triu(np.ones((3, 3)), 1)),
        lambda result: replace(result, dual=result.dual * [1.01, 1.0, 1.0]),
        lambda result: replace(result, dual=result.dual * [1.0, -1.0, 1.0]),
        lambda result: replace(result, dual=result.dual + np.array([0.0, 0.0, 0.01])),
        lambda result: replace(result, status=nw.Status.LIMIT),
        lambda result: replace(result, certificate=replace(result.certificate, primal=1.0, dual=1.0)),
    ],
    ids=["matrix", "factor", "asymmetric", "multiplier", "sign", "complementarity", "status", "objective"],
)
def test_checker_refuses_a_wrong_answer(tampered, penalty: float) -> None:
    problem, result = _solved(penalty)
    kkt.assert_optimal(problem, result, tol=TOL)
    with pytest.raises(AssertionError):
        kkt.assert_optimal(problem, tampered(result), tol=TOL)
