"""Constraints in pieces: the same sums, the same solutions, and clear words where memory is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nearwise import (
    Divergence,
    Frobenius,
    LeftOutWarning,
    LogDet,
    Problem,
    VonNeumann,
    constraints as c,
    solve,
    solvers,
)
from nearwise.distributed import Vectors, open_vectors

InFiles = Callable[..., Vectors]
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
def cut_small(set_thresholds: Callable[..., None]) -> None:
    """Many pieces and slices even of few rows."""
    set_thresholds(rows_of_a_piece=97, numbers_of_a_slice=5 * 80)


@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann(), Frobenius()], ids=repr)
def test_few_rows_in_pieces_with_bounds_far_from_the_prior(divergence: Divergence, in_files: InFiles) -> None:
    rng = np.random.default_rng(0 if isinstance(divergence, LogDet) else 4)
    G = rng.integers(-4, 5, size=(12, 6)).astype(float)
    pairs = [rng.choice(12, 2, replace=False) for _ in range(40)]
    b = 10.0 ** rng.uniform(-2, 6, 40)
    side = c.at_most(pairs[:20], b[:20]) + c.at_least(pairs[20:35], b[20:35])
    side += c.similarity(pairs[35:], b[35:], "==") + c.closer([(0, 1, 2), (3, 4, 5)], 1e3)
    penalty = 1.0 if isinstance(divergence, Frobenius) else 100.0
    whole, parts = (Problem(data, side, divergence, None, penalty) for data in (G, in_files(G[:5], G[5:])))
    found, expected = solve(parts), solve(whole)
    assert found.status.name == expected.status.name == "SOLVED", found.message
    assert found.n_iter < 100  # Newton's method alone took hundreds, or never ended
    certificate = whole.certificate(found.matrix, np.asarray(found.dual))
    assert certificate.gap <= 2e-6
    assert certificate.primal == pytest.approx(expected.certificate.primal, rel=2e-6)


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("kind", SIDES)
@pytest.mark.parametrize("divergence", [LogDet(), VonNeumann(), Frobenius()], ids=repr)
def test_solutions_are_those_of_data_in_memory(kind: str, divergence: object, in_files: InFiles) -> None:
    whole = Problem(X, SIDES[kind], divergence)
    parts = Problem(in_files(X[:25], X[25:]), SIDES[kind], divergence)
    penalty = 0.1 * whole.penalty_unit
    expected = solve(whole.with_penalty(penalty), solvers.Newton(), tol=1e-9)
    found = solve(parts.with_penalty(penalty), tol=1e-9)
    assert found.status.name == expected.status.name == "SOLVED"
    assert found.n_iter == expected.n_iter
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=0, atol=1e-10 * expected.matrix.max())
    np.testing.assert_allclose(
        np.asarray(found.dual), expected.dual, rtol=0, atol=1e-10 * np.abs(expected.dual).max()
    )
    assert [v.row for v in found.certificate.worst] == [v.row for v in expected.certificate.worst]
    assert [v.name for v in found.certificate.worst] == [v.name for v in expected.certificate.worst]


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("kind", SIDES)
def test_what_a_problem_tells_is_that_of_data_in_memory(kind: str, in_files: InFiles) -> None:
    whole, parts = Problem(X, SIDES[kind]), Problem(in_files(X), SIDES[kind])
    M = np.diag([1.0, 2.0, 0.5, 3.0, 1.0])
    np.testing.assert_allclose(parts.values(M), whole.values(M), rtol=1e-12)
    np.testing.assert_allclose(parts.values(M - np.eye(5)), whole.values(M - np.eye(5)), rtol=1e-9, atol=1e-9)
    assert parts.objective(M) == pytest.approx(whole.objective(M), rel=1e-12)
    assert parts.penalty_unit == pytest.approx(whole.penalty_unit, rel=1e-12)
    np.testing.assert_array_equal(parts.bounds, whole.bounds)
    np.testing.assert_array_equal(parts.relations, whole.relations)
    np.testing.assert_array_equal(parts.penalties, whole.penalties)
    dual = solve(whole, tol=1e-3).dual
    expected, found = whole.certificate(M, dual), parts.certificate(M, dual)
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)
    assert found.violation == pytest.approx(expected.violation, rel=1e-12)
    assert found.satisfied == expected.satisfied


@pytest.mark.long
@pytest.mark.usefixtures("cut_small")
def test_how_the_data_are_stored_changes_no_bit(tmp_path: Path, in_files: InFiles) -> None:
    single = X.astype(np.float32)
    np.save(tmp_path / "x.npy", single)
    stored = [
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        in_files(single),
        in_files(single[:1], single[1:1], single[1:40], single[40:]),
    ]
    found = [solve(Problem(data, SIDES["pairs"]), tol=1e-6).matrix for data in stored]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_priors_and_starts(in_files: InFiles) -> None:
    prior = np.diag([1.0, 0.5, 2.0, 0.0, 1.0])
    side = c.at_most(PAIRS[:200], 20.0) + c.at_least(PAIRS[200:], 40.0)
    whole, parts = Problem(X, side, prior=prior), Problem(in_files(X), side, prior=prior)
    expected = solve(whole, solvers.Newton(), tol=1e-9)
    np.testing.assert_allclose(solve(parts, tol=1e-9).matrix, expected.matrix, rtol=0, atol=1e-9)
    again = solve(parts, tol=1e-6, start=expected.factor)
    assert again.n_iter <= 3
    other = solve(parts.with_penalty(0.1), tol=1e-9).matrix
    expected = solve(whole.with_penalty(0.1), solvers.Newton(), tol=1e-9)
    np.testing.assert_allclose(other, expected.matrix, rtol=0, atol=1e-9)


def test_ids_may_be_those_of_the_data(in_files: InFiles, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    names = np.array([f"object {k}" for k in range(60)])
    pd.DataFrame(X, columns=[*"abcde"]).assign(key=names).to_parquet(tmp_path / "x.parquet")
    named = open_vectors(tmp_path / "x.parquet", ids="key")
    side = c.similar(names[PAIRS[:300]]) + c.dissimilar(names[PAIRS[300:]])
    found = solve(Problem(named, side), tol=1e-6)
    expected = solve(Problem(in_files(X), SIDES["pairs"]), tol=1e-6)
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    assert "object" in found.certificate.worst[0].name


def test_rows_that_nothing_can_meet_are_left_out_and_counted(in_files: InFiles) -> None:
    twins = np.vstack([X, X[:2]])
    side = c.at_least(np.vstack([PAIRS[:100], [[0, 60], [1, 61]]]), 40.0)
    with pytest.warns(LeftOutWarning, match="2 constraints are left out"):
        parts = Problem(in_files(twins), side)
    with pytest.warns(LeftOutWarning, match="2 constraints are left out"):
        whole = Problem(twins, side)
    found, expected = solve(parts, tol=1e-9), solve(whole, solvers.Newton(), tol=1e-9)
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=0, atol=1e-9)


def test_what_needs_memory_says_so(in_files: InFiles) -> None:
    data = in_files(X)
    with pytest.raises(ValueError, match=r"hard constraints \(penalty inf\) need data in memory"):
        Problem(data, SIDES["pairs"], penalty=np.inf)
    with pytest.raises(ValueError, match="one penalty in common, got an array of shape"):
        Problem(data, SIDES["pairs"], penalty=np.ones(len(SIDES["pairs"])))
    with pytest.raises(ValueError, match="general linear constraints need data in memory"):
        Problem(data, c.linear(np.eye(60), 1.0, "<="))
    with pytest.raises(ValueError, match="a fixed part of the values needs data in memory"):
        Problem(data, SIDES["bounds"], fixed=np.zeros(len(SIDES["bounds"])))
    problem = Problem(data, SIDES["pairs"])
    for solver in (solvers.CyclicProjections(), solvers.InteriorPoint()):
        with pytest.raises(TypeError, match=r"needs (them|the constraints) in memory"):
            solve(problem, solver)


def test_wrong_numbers_are_named_by_their_constraint(in_files: InFiles) -> None:
    broken = X.copy()
    broken[PAIRS[5, 0], 0] = np.nan
    with pytest.raises(ValueError, match=r"row \d+: d\(.*its vectors have entries that are not finite"):
        Problem(in_files(broken), c.at_most(PAIRS, 1.0))
    with pytest.raises(ValueError, match=r"row 3: d\(.*its bound is 2e\+30 times"):
        Problem(in_files(X), c.at_most(PAIRS[:9], [1.0, 1, 1, 1e32, 1, 1, 1, 1, 1]))
