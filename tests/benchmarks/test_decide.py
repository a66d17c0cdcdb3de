"""Random small problems are decided and rightly so; and the judge of that catches what is wrong."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from benchmarks import _dense_peers, _judge, decide
from benchmarks._definition import Definition
from benchmarks._exact import Arithmetic
from benchmarks._judge import Outcome
from benchmarks._random_problems import LARGER, MODERATE, WILD, Case, draw
from nearwise import constraints as c

SEED = 14
HARD = np.array(np.inf)
DIVERGENCES = (nw.LogDet(), nw.VonNeumann(), nw.Frobenius())


def case_of(divergence: Any, side: c.Constraints, penalty: float = math.inf, **changes: Any) -> Case:
    G = np.random.default_rng(0).normal(size=(8, 3))
    return replace(Case("by hand", G, side, divergence, None, np.array(penalty)), **changes)


def answered(case: Case) -> tuple[nw.Result, Outcome]:
    result, outcome = _judge.attempt(case)
    assert result is not None
    return result, outcome


def listed(outcomes: list[Outcome], test: Callable[[Outcome], object]) -> list[str]:
    return [f"{o.label}: {o.ending}: {o.fault or o.text or o.warned}: {o.name}" for o in outcomes if test(o)]


@pytest.fixture(
    scope="module", params=[(36, 18, 0), pytest.param((120, 60, 40), marks=pytest.mark.slow)], ids=str
)
def campaign(request: pytest.FixtureRequest) -> list[Outcome]:
    """Of so many problems, so many wild ones, and so many larger ones."""
    return [
        _judge.run(SEED, k, family)
        for family, count in zip((MODERATE, WILD, LARGER), request.param, strict=True)
        for k in range(count)
    ]


@pytest.mark.long
@pytest.mark.parametrize("failure", decide.SEVERE)
def test_no_answer_of_the_campaign_is_wrong(campaign: list[Outcome], failure: str) -> None:
    assert listed(campaign, decide.FAILURES[failure]) == []


@pytest.mark.long
def test_the_campaign_is_decided(campaign: list[Outcome]) -> None:
    accepted = [o for o in campaign if o.ending != "refused"]
    assert len(accepted) > 5 / 6 * len(campaign)
    undecided = listed(accepted, lambda o: not o.is_decided)
    assert len(undecided) <= len(campaign) // 54, undecided


@pytest.mark.long
@pytest.mark.parametrize("count", [14, pytest.param(40, marks=pytest.mark.slow)])
def test_hard_problems_agree_with_clarabel(count: int) -> None:
    pytest.importorskip("cvxpy")
    found: list[str] = []
    compared = 0
    for number in range(400):
        case = draw(SEED, number)
        if compared == count:
            break
        if isinstance(case.divergence, nw.VonNeumann) or not np.all(np.isinf(case.penalty)):
            continue
        result, outcome = _judge.attempt(case, number)
        if outcome.ending == "refused":
            continue
        compared += 1
        assert result is not None
        outcome = _judge.judged(case, result, outcome)  # the multipliers, too, which bound the difference
        peer = _dense_peers.answer(case)
        both = _dense_peers.Comparison.of(result, outcome, peer)
        missed = peer.status == "optimal" and peer.violation <= 1e-7 and not both.is_common
        if both.disagrees or missed or outcome.fault:
            found.append(f"{number}: {outcome.ending}, {peer.status}, {both.difference:.1e}: {case.name}")
    assert compared == count
    assert found == []


def test_von_neumann_agrees_with_a_dense_dual() -> None:
    side = c.at_most([(0, 1), (2, 3)], 0.5) + c.at_least([(0, 4)], 9.0) + c.closer([(0, 1, 2)], 0.3)
    for penalty in (math.inf, 3.0):
        case = case_of(nw.VonNeumann(), side, penalty)
        result = nw.solve(case.problem(), tol=1e-9)
        peer = _dense_peers.answer(case)
        assert peer.status == "optimal"
        assert peer.objective == pytest.approx(result.certificate.primal, rel=1e-6)


@pytest.mark.parametrize(
    ("divergence", "multiplier", "optimum"),
    [
        (nw.LogDet(), 1.0, 0.5 - math.log(0.5) - 1),
        (nw.VonNeumann(), math.log(2.0), 0.5 * math.log(0.5) + 0.5),
        (nw.Frobenius(), 1.0, 0.25),
    ],
    ids=repr,
)
def test_the_definition_by_hand(divergence: Any, multiplier: float, optimum: float) -> None:
    case = Case("", np.array([[0.0], [1.0]]), c.at_most([(0, 1)], 0.5), divergence, None, HARD)
    exact = Definition(case)
    truth = exact.certificate(exact.exact.array([[math.sqrt(0.5)]]), np.array([multiplier]))
    assert float(truth.primal) == pytest.approx(optimum, rel=1e-15)
    assert float(truth.dual) == pytest.approx(optimum, rel=1e-15)
    assert truth.gap < 1e-15
    assert truth.hard_violation < 1e-15


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("penalty", [math.inf, 2.0])
def test_the_definition_agrees_with_the_certificate(divergence: Any, penalty: float) -> None:
    A = np.diag([1.0, -1.0, 1, 0, 0, 0, 0, 0])
    bare = case_of(divergence, c.dissimilar([(1, 2)]) + c.similar([(5, 6)]))
    K = bare.features @ np.array([[0.5, 0.3, 0], [0.3, 2.0, 0.2], [0, 0.2, 0.4]]) @ bare.features.T
    d = np.diag(K)[:, None] + np.diag(K) - 2 * K
    near, far = ((1, 2), (4, 5)) if d[1, 2] < d[4, 5] else ((4, 5), (1, 2))
    side = c.at_most([(0, 1)], d[0, 1]) + c.at_least([(2, 7)], d[2, 7])
    side = side + c.closer([(*near, *far)], 0.9 * abs(d[1, 2] - d[4, 5]))
    side = side + c.similarity([(3, 3), (3, 4)], [K[3, 3], K[3, 4]], "<=") + c.linear(A, np.sum(A * K), "==")
    prior = np.array([[2.0, 0.5, 0], [0.5, 1, 0], [0, 0, 3]])
    penalties = np.append([3.0, 3.0], np.full(6, penalty))
    case = replace(bare, constraints=bare.constraints + side, prior=prior, penalty=penalties)
    result = nw.solve(case.problem(), tol=1e-4)
    exact = Definition(case)
    truth = exact.certificate(exact.factor(result), result.dual)
    assert result.status is nw.Status.SOLVED
    assert float(truth.primal) == pytest.approx(result.certificate.primal, rel=1e-9)
    assert float(truth.dual) == pytest.approx(result.certificate.dual, rel=1e-9)
    assert truth.hard_violation == pytest.approx(result.certificate.hard_violation, rel=1e-6, abs=1e-12)
    assert [float(row.bound) for row in exact.rows] == pytest.approx(case.problem().bounds.tolist())


@pytest.mark.parametrize("divergence", DIVERGENCES[:2], ids=repr)
def test_a_singular_prior_is_judged_on_its_range(divergence: Any) -> None:
    root = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]])
    side = c.at_most([(0, 1)], 2.0) + c.at_least([(2, 3)], 5.0)
    case = case_of(divergence, side, prior=root @ root.T, root=root)
    result, outcome = answered(case)
    judged = _judge.judged(case, result, outcome)
    assert judged.ending == "SOLVED"
    assert judged.fault == ""
    assert judged.gap <= _judge.TOL
    outside = np.concatenate([result.factor, 1e-3 * np.eye(3, 1)], axis=1)
    leaving = replace(result, factor=outside, matrix=outside @ outside.T)
    assert "outside the prior's range" in _judge.judged(case, leaving, outcome).fault


@pytest.mark.parametrize("widening", [0.0, 1e-3])
def test_a_kernel_is_judged_by_itself(widening: float) -> None:
    root = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
    side = c.at_most([(0, 1)], 1.0) + c.similarity([(2, 3)], -0.5, "==")
    case = Case("", None, side, nw.LogDet(), root @ root.T, HARD, root, widening)
    result, outcome = answered(case)
    judged = _judge.judged(case, result, outcome)
    assert (judged.ending, judged.fault) == ("SOLVED", "")
    assert judged.gap <= _judge.TOL
    assert Definition(case).T.shape == (4, 4 if widening else 2)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_wrong_answers_are_caught(divergence: Any) -> None:
    case = case_of(divergence, c.at_most([(0, 1), (2, 3)], 0.3) + c.at_least([(0, 2)], 9.0))
    result, outcome = answered(case)
    assert _judge.judged(case, result, outcome).fault == ""
    factor = 1.001 * result.factor
    wrong = {
        "hard violation": replace(result, factor=factor, matrix=factor @ factor.T),
        "gap": replace(result, dual=1.1 * result.dual),
        "not factor factor": replace(result, matrix=1.001 * result.matrix),
        "NaN": replace(result, dual=np.full(3, np.nan)),
        "infinite": replace(result, dual=np.full(3, np.inf)),
    }
    for expected, answer in wrong.items():
        assert expected in _judge.judged(case, answer, outcome).fault


def test_rounding_of_a_prior_near_singular_is_no_fault() -> None:
    """The prior itself is the answer, and its smallest eigenvalue is known to four digits only."""
    Q = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    prior = (Q * [1.0, 1e-3, 2e-12]) @ Q.T
    prior = (prior + prior.T) / 2
    case = case_of(nw.LogDet(), c.at_most([(0, 1)], 1e6), prior=prior)
    values, vectors = np.linalg.eigh(prior)
    factor = vectors * np.sqrt(values)
    result, outcome = answered(case)
    for change, is_wrong in ((1.0, False), (1.01, True)):
        B = factor * [change, 1.0, 1.0]
        answer = replace(result, factor=B, matrix=B @ B.T, dual=np.zeros(1), status=nw.Status.SOLVED)
        judged = _judge.judged(case, answer, replace(outcome, ending="SOLVED"))
        assert judged.gap > 0.1
        assert judged.is_rounding is not is_wrong
        assert bool(judged.fault) is is_wrong


def test_the_losses_of_features_with_an_offset_keep_their_digits() -> None:
    """What d(i, j) is does not depend on where the origin lies; differences of these features are exact."""
    G = np.random.default_rng(1).integers(-8, 9, size=(6, 3)).astype(float)
    side = c.at_most([(0, 1), (2, 3)], 2.0) + c.closer([(4, 5, 0)], 1.0)
    near, far = (Definition(Case("", G + t, side, nw.LogDet(), None, np.array(2.0))) for t in (0.0, 2.0**40))
    B, y = near.exact.array(np.eye(3) / 2), np.array([0.1, 0.2, 0.3])
    assert float(near.certificate(B, y).primal) == float(far.certificate(B, y).primal)
    assert float(near.certificate(B, y).dual) == float(far.certificate(B, y).dual)


def test_proofs_are_checked() -> None:
    case = case_of(nw.LogDet(), c.at_most([(0, 1)], 1.0) + c.at_least([(0, 1)], 2.0))
    result, outcome = answered(case)
    assert result.status is nw.Status.INFEASIBLE
    assert _judge.judged(case, result, outcome).fault == ""
    for y in ([1.0, -0.4], [1.0, 1.0], [0.9, -1.0], [0.0, 0.0]):
        assert "does not hold" in _judge.judged(case, replace(result, dual=np.array(y)), outcome).fault
    assert "fit a matrix" in _judge.judged(replace(case, is_feasible=True), result, outcome).fault


def test_a_proof_on_features_with_an_offset_holds() -> None:
    """Three distances break the triangle inequality: 6.3 > 2.3 + 0.6, in units of length.

    Their sum of matrices has rank two among five: what is left of the offset must count as zero there, and a
    proof that lacks a thousandth of a multiplier as none.
    """
    G = 1e6 * np.arange(1.0, 6.0) + np.random.default_rng(0).normal(size=(3, 5))
    side = c.equal([(2, 1)], 39.96) + c.equal([(2, 0)], 5.27) + c.at_most([(1, 0)], 0.31)
    case = Case("", G, side, nw.LogDet(), None, HARD)
    # S >= 0: -a |z_1|^2 + b |z_2|^2 + c |z_1 - z_2|^2 with (b + c)(c - a) = c^2
    multipliers = np.array([-0.2, 0.25, 1.0])
    assert Definition(case).proof(multipliers).valid
    assert not Definition(case).proof(multipliers * [1.001, 1.0, 1.0]).valid


def test_a_row_that_vanishes_on_a_column_of_the_root_is_semidefinite_all_the_same() -> None:
    """Row 18 is v'X v <= -1.9 with whole numbers v, orthogonal to a column by terms that cancel."""
    case = draw(20261117, 1771)
    assert Definition(case).proof(np.eye(47)[18]).valid
    assert not Definition(case).proof(np.eye(47)[20]).valid  # an indefinite row
    # the same of a column of the features
    assert Definition(draw(20261121, 80, LARGER)).proof(np.eye(171)[74]).valid


def test_a_proof_may_not_use_soft_rows() -> None:
    case = case_of(nw.LogDet(), c.at_most([(0, 1)], 1.0) + c.at_least([(0, 1)], 2.0))
    y = np.array([1.0, -1.0])
    assert Definition(case).proof(y).valid
    assert not Definition(replace(case, penalty=np.array([np.inf, 5.0]))).proof(y).valid


def test_a_comparison_with_nothing_is_impossible_for_a_definite_matrix() -> None:
    """d(0, 1) <= d(2, 3) = 0: M = 0 does it, and under LogDet that is outside the domain."""
    G = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [2.0, 2.0]])
    for divergence, expected in ((nw.LogDet(), True), (nw.VonNeumann(), False)):
        case = Case("", G, c.closer([(0, 1, 2, 3)]), divergence, None, HARD)
        assert Definition(case).proof(np.ones(1)).valid is expected


def test_exceptions_warnings_and_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(nw.LogDet(), c.at_most([(0, 1)], 1.0))

    def fails(problem: nw.Problem) -> None:
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
        raise np.linalg.LinAlgError("singular")

    def hangs(problem: nw.Problem) -> None:
        while True:
            pass

    monkeypatch.setattr(nw, "solve", fails)
    outcome = _judge.attempt(case)[1]
    assert (outcome.ending, outcome.text) == ("LinAlgError", "singular")
    assert outcome.warned == ("RuntimeWarning: overflow",)
    monkeypatch.setattr(nw, "solve", hangs)
    monkeypatch.setattr(_judge, "LIMIT", 0.05)
    assert _judge.attempt(case)[1].ending == "out of time"
    refused = replace(case, features=np.zeros((8, 3)), constraints=c.at_least([(0, 1)], 1.0))
    assert _judge.attempt(refused)[1].ending == "refused"


@pytest.mark.long
def test_a_problem_is_the_same_each_time_and_all_kinds_occur() -> None:
    cases = [draw(SEED, number, family) for number in range(80) for family in (MODERATE, WILD)]
    again = draw(SEED, 7, WILD)
    assert again.name == cases[15].name
    assert again.constraints.bounds.tolist() == pytest.approx(
        cases[15].constraints.bounds.tolist(), nan_ok=True
    )
    blocks = [block for case in cases for block in case.constraints.blocks]
    kinds = {(block.kind, block.relation) for block in blocks}
    assert kinds == {(k, s) for k in ("distance", "similarity", "linear") for s in (-1, 0, 1)} | {
        ("comparison", -1)
    }
    assert any(np.isnan(block.bounds).any() for block in blocks)
    words = " ".join(case.name for case in cases)
    for part in ("offset", "one-hot", "deficient", "tiny", "indefinite", "kernel, widened", "extreme", "far"):
        assert part in words
    assert {type(case.divergence) for case in cases} == {type(d) for d in DIVERGENCES}
    for case in cases:
        if case.root is not None:
            assert np.array_equal(case.root @ case.root.T, case.prior)


def test_bounds_that_are_moved_into_range_need_not_fit() -> None:
    """Distances of 1e-304 whose bounds are all 1e-300: an answer that calls them contradictory is right."""
    case = draw(7301, 17, WILD)
    assert "bounds feasible" in case.name
    assert not case.is_feasible
    result, outcome = _judge.attempt(case, 17, WILD)
    assert result is not None
    assert result.status is nw.Status.INFEASIBLE
    assert _judge.judged(case, result, outcome).fault == ""


def test_extended_precision() -> None:
    exact = Arithmetic(60)
    A = exact.array(np.random.default_rng(0).integers(-4, 5, size=(4, 4)))
    S = A.dot(A.T)
    L = exact.cholesky(S)
    assert L is not None
    assert exact.largest(L.dot(L.T) - S) < 1e-50
    assert exact.largest(exact.lower_inverse(L).dot(L) - exact.array(np.eye(4))) < 1e-50
    values, V = exact.eigen(S)
    assert exact.largest((V * values).dot(V.T) - S) < 1e-50
    low = A[:, :2].dot(A[:, :2].T)
    assert exact.is_semidefinite(low)
    tiny = exact.array(np.eye(4)) * exact.number(1e-30)
    assert exact.is_semidefinite(low + tiny)
    assert not exact.is_semidefinite(low - tiny)
    assert exact.cholesky(low - tiny) is None


@pytest.mark.long
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    pytest.importorskip("cvxpy")
    file = tmp_path / "figures.json"
    arguments = ["--problems", "2", "--wild", "1", "--larger", "1", "--peers", "2", "--larger-peers", "1"]
    assert decide.main([*arguments, "--seed", "3", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "2 moderate problems, seed 3" in printed
    sections = [table["section"] for table in json.loads(file.read_text())["tables"]]
    assert sections == ["moderate"] * 3 + ["wild"] * 3 + ["larger"] * 3 + ["peers"] * 2
    assert decide.main(["--only", "w0", "--seed", "3"]) == 0
    assert capsys.readouterr().out.startswith("problem w0 of seed 3: " + draw(3, 0, WILD).name)
    with pytest.raises(SystemExit):
        decide.main(["--only", "x1"])
