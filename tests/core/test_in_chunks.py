"""Rows in chunks give the sums of rows in memory, in the same bits however they are stored and worked on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossing import crossed
from nearwise import constraints as c, distributed
from nearwise._common.errors import RowsError
from nearwise._common.threads import threads
from nearwise.constraints import Constraints
from nearwise.core import binding, chunks
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.in_chunks import (
    BoundInChunks,
    DualInChunks,
    InChunks,
    SquaresInPieces,
    bind_in_chunks,
    loaded,
)
from nearwise.core.measured import InMemory, Sums
from nearwise.core.problem import Problem
from nearwise.distributed.running import InThreads
from nearwise.distributed.vectors import Stacked
from nearwise.side.left_out import LeftOutWarning

N = 90
DIVERGENCES = [LogDet(), VonNeumann(), Frobenius()]
RNG = np.random.default_rng(0)


def tuples(count: int, width: int) -> np.ndarray:
    """Rows of different objects."""
    return np.array([RNG.permutation(N)[:width] for _ in range(count)])


PAIRS, QUADRUPLES = tuples(400, 2), tuples(200, 4)
ITSELF = np.stack([np.arange(N), np.arange(N)], axis=1)
WEIGHTS = RNG.uniform(0.5, 2.0, 400)
SIDES: dict[str, Callable[[float], Constraints]] = {
    "open bounds": lambda d: c.similar(PAIRS[:150]) + c.dissimilar(PAIRS[150:]),
    "weights": lambda d: c.at_most(PAIRS, 1.5 * d, weights=WEIGHTS) + c.at_least(PAIRS[:100], 3.0 * d),
    "comparisons": lambda d: c.closer(QUADRUPLES, margin=0.3 * d),
    "inner products": lambda d: (
        c.similarity(PAIRS[:200], 0.2 * d, ">=")
        + c.similarity(PAIRS[200:], 0.1, "<=")
        + c.similarity(ITSELF, -0.1 * d, ">=")
    ),
    "all, and none of one kind": lambda d: (
        c.at_least(PAIRS[:90], 2.0 * d, weights=WEIGHTS[:90])
        + c.similarity(np.empty((0, 2), int), 1.0, "<=")
        + c.closer(QUADRUPLES[:100], margin=0.1 * d)
        + c.equal(PAIRS[90:200], 2.0 * d)
        + c.similarity(PAIRS[200:], 0.3 * d, "==")
        + c.similarity(ITSELF, 1.5 * d, "<=")
    ),
}


@pytest.fixture
def cut_into(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make chunks, about so many, and batches of few rows."""

    def cut(count: int) -> None:
        monkeypatch.setattr(chunks, "CHUNKS", count)
        monkeypatch.setattr(chunks, "FEWEST", 1)
        monkeypatch.setattr(chunks, "NUMBERS", 700)

    return cut


@pytest.fixture
def cut_small(cut_into: Callable[[int], None]) -> None:
    """Seven chunks."""
    cut_into(7)


def features(columns: int, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(columns).normal(size=(N, columns)).astype(dtype)


def bound(
    X: np.ndarray, side: Constraints, divergence: SpectralDivergence | None = None, prior: Any = None
) -> tuple[binding.Binding, BoundInChunks]:
    """The same constraints in memory, and in chunks over two arrays."""
    divergence = LogDet() if divergence is None else divergence
    vectors = Stacked([X[:25], X[25:]])
    memory = binding.bind(X.astype(float), side, divergence, prior, None)
    return memory, bind_in_chunks(vectors, side, divergence, prior, None)


def refuse_other_sums(found: Sums, expected: Sums) -> None:
    size = np.abs(expected.adjoint).max()
    np.testing.assert_allclose(found.adjoint, expected.adjoint, rtol=0, atol=1e-12 * size)
    assert found.cost == pytest.approx(expected.cost, rel=1e-12)
    assert (found.n_rows, found.curved, found.satisfied) == (
        expected.n_rows,
        expected.curved,
        expected.satisfied,
    )
    np.testing.assert_allclose(found.worst[:, 0], expected.worst[:, 0], rtol=1e-11)
    assert found.hard_violation == expected.hard_violation == 0.0


def refuse_other_rows(found: InMemory, expected: InMemory) -> None:
    B = np.random.default_rng(5).normal(size=(expected.order, expected.order))
    values = expected.rows.values(B)
    np.testing.assert_allclose(found.rows.values(B), values, rtol=0, atol=1e-12 * np.abs(values).max())
    np.testing.assert_allclose(found.loss.sizes, expected.loss.sizes, rtol=1e-12)
    np.testing.assert_allclose(found.loss.penalties, expected.loss.penalties, rtol=1e-14)
    for name in ("relations", "bounds", "is_definite"):
        np.testing.assert_array_equal(getattr(found.loss, name), getattr(expected.loss, name))
    idle = np.zeros(expected.n_rows, bool) if expected.loss.is_idle is None else expected.loss.is_idle
    np.testing.assert_array_equal(found.loss.is_idle, idle)


@crossed(
    columns=[1, 2, 8, 13, 16, 33, 80],
    dtype=["float32", "float64"],
    side=SIDES,
    n_chunks=[1, 7, 50],
    n_threads=[1, 2],
    divergence=DIVERGENCES,
)
def test_sums_are_those_of_rows_in_memory(
    columns: int,
    dtype: str,
    side: Callable[[float], Constraints],
    n_chunks: int,
    n_threads: int,
    divergence: SpectralDivergence,
    cut_into: Callable[[int], None],
) -> None:
    cut_into(n_chunks)
    B = np.random.default_rng(1).normal(size=(columns, columns)) / np.sqrt(columns) + np.eye(columns)
    with threads(n_threads):
        memory, parts = bound(features(columns, dtype), side(float(columns)), divergence)
        expected, found = memory.measured(np.array(0.3)), parts.measured(np.array(0.3))
        assert len(parts.starts) - 1 == pytest.approx(n_chunks, rel=0.1)
        refuse_other_sums(found.measure(B), expected.measure(B))
        slopes, values = expected.slopes(B), expected.rows.values(B)
        np.testing.assert_allclose(found.slopes(B), slopes, rtol=0, atol=1e-12 * np.abs(slopes).max())
        np.testing.assert_allclose(found.values(B), values, rtol=0, atol=1e-12 * np.abs(values).max())
        violations, rows, of_rows = found.measure(B).worst.T
    own = rows.astype(int)  # of equal violations, rounding says which are among the worst
    np.testing.assert_allclose(violations, expected.loss.violations(values)[own], rtol=1e-11)
    np.testing.assert_allclose(of_rows, values[own], rtol=1e-11)
    assert (found.n_rows, found.order) == (expected.n_rows, expected.order)
    assert found.penalty_sum == pytest.approx(expected.penalty_sum, rel=1e-12)
    assert found.median_size == pytest.approx(expected.median_size, rel=1e-12)
    assert parts.typical_size == pytest.approx(memory.typical_size, rel=1e-12)
    np.testing.assert_array_equal(parts.bounds, memory.bounds)
    np.testing.assert_array_equal(parts.relations, memory.relations)


PRIORS: dict[str, Callable[[], Any]] = {
    "identity": lambda: None,
    "diagonal": lambda: np.diag([1.0, 0.5, 2.0, 3.0, 1.0]),
    "dense": lambda: np.cov(features(5).T),
    "singular": lambda: features(5)[:3].T @ features(5)[:3],
}


@pytest.mark.usefixtures("cut_small")
@crossed(side=SIDES, prior=PRIORS, divergence=DIVERGENCES)
def test_other_coordinates_units_and_shares(
    side: Callable[[float], Constraints], prior: Callable[[], Any], divergence: SpectralDivergence
) -> None:
    memory, parts = bound(features(5), side(5.0), divergence, prior())
    T = np.random.default_rng(2).normal(size=(len(memory.prior), 2))
    B = np.random.default_rng(3).normal(size=(2, 2))
    expected, found = (of.measured(np.array(2.0)) for of in (memory, parts))
    for scale in (np.linspace(1.0, 2.0, len(memory.prior)), np.diag(np.linspace(3.0, 1.0, len(T))), T):
        expected, found = (of.transformed(scale, 4.0, 0.25).times(0.3) for of in (expected, found))
    refuse_other_sums(found.measure(B), expected.measure(B))
    assert found.penalty_sum == pytest.approx(expected.penalty_sum, rel=1e-12)
    assert found.median_size == pytest.approx(expected.median_size, rel=1e-12)
    numbers = np.flatnonzero(np.random.default_rng(4).random(found.n_rows) < 0.3)
    refuse_other_rows(found.sample(numbers), expected.sample(numbers))
    whole = loaded(Formulation(divergence, np.ones(2), found))
    refuse_other_rows(whole.measured.sample(np.arange(found.n_rows)), expected)


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("side", SIDES)
def test_sums_by_definition(side: str) -> None:
    """<A_i, M> and sum_i y_i A_i of matrices A_i that are written out."""
    X, given = features(3), SIDES[side](3.0)
    found = bound(X, given)[1].measured(np.array(0.7))
    B = np.eye(3) + 0.3 * features(3)[:3]
    matrices = []
    for block in given.blocks:
        for ids in block.object_ids:
            z = [np.outer(X[i] - X[j], X[i] - X[j]) for i, j in ids.reshape(-1, 2)]
            if block.kind == "similarity":
                z = [(np.outer(X[ids[0]], X[ids[1]]) + np.outer(X[ids[1]], X[ids[0]])) / 2]
            matrices.append(z[0] - z[1] if len(z) == 2 else z[0])
    A = np.array(matrices)
    np.testing.assert_allclose(found.values(B), np.tensordot(A, B @ B.T), rtol=0, atol=1e-12)
    y = found.slopes(B)
    np.testing.assert_allclose(found.measure(B).adjoint, np.tensordot(y, A, 1), rtol=0, atol=1e-11)
    h, D = 1e-6, features(3)[3:6]
    change = found.measure(B + h * D).cost - found.measure(B - h * D).cost
    assert change / (2 * h) == pytest.approx(2 * np.vdot(found.measure(B).adjoint @ B, D), rel=1e-6)


@crossed(divergence=DIVERGENCES, side=["open bounds", "comparisons", "all, and none of one kind"])
def test_threads_and_kept_passes_change_no_bit(
    divergence: SpectralDivergence, side: str, cut_into: Callable[[int], None]
) -> None:
    cut_into(50)
    B, kept = np.eye(8) + 0.1 * features(8)[:8], dict[str, Any]()
    parts = bound(features(8), SIDES[side](8.0), divergence)[1]
    found = []
    for n_threads in (1, 2):
        with threads(n_threads):
            found.append(parts.measured(np.array(0.3)).measure(B))
    found += [parts.keeping(kept).measured(np.array(0.3)).measure(B) for _ in range(2)]
    assert len(kept) == 1
    for sums in found[1:]:
        assert sums.cost == found[0].cost
        assert (sums.n_rows, sums.curved, sums.satisfied) == (
            found[0].n_rows,
            found[0].curved,
            found[0].satisfied,
        )
        np.testing.assert_array_equal(sums.adjoint, found[0].adjoint)
        np.testing.assert_array_equal(sums.worst, found[0].worst)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that run."""
    found, run = list[str](), InThreads.run

    def counted(self: InThreads, job: Any, *arguments: Any, **more: Any) -> Any:
        found.append(job.__name__)
        return run(self, job, *arguments, **more)

    monkeypatch.setattr(InThreads, "run", counted)
    return found


@pytest.mark.usefixtures("cut_small")
def test_no_pass_is_made_twice(jobs: list[str]) -> None:
    parts, B = bound(features(5), SIDES["weights"](5.0))[1], np.eye(5)
    assert jobs == ["survey_of"]
    once = parts.measured(np.array(0.3))
    assert once.measure(B, single=True) is not once.measure(B)  # in double precision, for the certificate too
    assert jobs == ["survey_of", "sums_in"]
    kept: dict[str, Any] = {}
    for _ in range(2):
        some = parts.keeping(kept).measured(np.array(0.3))
        for measured in (
            some,
            some.times(0.5),
            some.transformed(np.full(5, 2.0)),
            some.transformed(np.ones(5), 2.0),
        ):
            measured.measure(B)
            measured.measure(2 * B)
    assert len(kept) == 8  # 2 B is another point than B, also where that is the same matrix
    assert jobs.count("sums_in") == 1 + 8


def test_single_precision_is_widened_before_vectors_are_subtracted() -> None:
    X = (features(8) + 1e4).astype(np.float32)
    memory, parts = (of.measured(np.array(1.0)) for of in bound(X, SIDES["weights"](8.0)))
    refuse_other_sums(parts.measure(np.eye(8)), memory.measure(np.eye(8)))


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("side", SIDES)
def test_how_rows_are_stored_changes_no_bit(side: str, tmp_path: Path) -> None:
    X, given = features(5, np.float32), SIDES[side](5.0)
    np.save(tmp_path / "x.npy", X)
    for k, rows in enumerate((X[:1], X[1:1], X[1:60], X[60:])):
        np.save(tmp_path / f"x{k}.npy", rows)
    mapped = distributed.vectors_of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    files = distributed.open_vectors([tmp_path / f"x{k}.npy" for k in range(4)])
    lazy = distributed.vectors_of(pytest.importorskip("dask.array").from_array(X, chunks=((40, 50), 3)))
    B = np.eye(5) + 0.2 * features(5)[:5]
    expected = bind_in_chunks(Stacked([X]), given, LogDet(), None, None).measured(np.array(0.3))
    for vectors in (mapped, files, lazy):
        assert vectors is not None
        found = bind_in_chunks(vectors, given, LogDet(), None, None).measured(np.array(0.3))
        np.testing.assert_array_equal(found.measure(B).adjoint, expected.measure(B).adjoint)
        np.testing.assert_array_equal(found.slopes(B), expected.slopes(B))
        refuse_other_rows(found.sample(np.arange(0, 300, 7)), expected.sample(np.arange(0, 300, 7)))


@pytest.mark.usefixtures("cut_small")
def test_pairs_in_files(tmp_path: Path) -> None:
    def side(table: Callable[[np.ndarray], Any]) -> Constraints:
        first = c.at_most(table(PAIRS[:250]), 2.0) + c.dissimilar(table(PAIRS[250:]))
        return first + c.closer(table(QUADRUPLES), margin=0.5)

    def stored(rows: np.ndarray) -> Any:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, rows)
        return distributed.open_pairs(path)

    vectors, B = Stacked([features(5)]), np.eye(5)
    found, expected = (
        bind_in_chunks(vectors, side(table), LogDet(), None, None) for table in (stored, np.array)
    )
    assert found.constraints.is_stored
    np.testing.assert_array_equal(found.bounds, expected.bounds)
    assert found.typical_size == expected.typical_size
    assert [str(found.stated(row)) for row in (3, 260, 449)] == [
        str(expected.stated(row)) for row in (3, 260, 449)
    ]
    found, expected = (of.measured(np.array(0.3)) for of in (found, expected))
    np.testing.assert_array_equal(found.measure(B).adjoint, expected.measure(B).adjoint)
    refuse_other_rows(found.sample(np.arange(0, 600, 7)), expected.sample(np.arange(0, 600, 7)))


# ---- rows that measure nothing, and rows that cannot be ----------------------------------------------------


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_rows_that_measure_nothing(divergence: SpectralDivergence) -> None:
    """Pairs of twins: idle where the bound allows zero, else lost, with a warning that names the first."""
    X = features(5)
    X[:10] = X[10:20]
    twins = np.stack([np.arange(10), np.arange(10, 20)], axis=1)
    side = (
        c.at_most(twins[:3], 1.0)
        + c.at_least(PAIRS[:100], 9.0)
        + c.at_least(twins[3:], 2.0)
        + c.closer([(0, 10, 1, 11), (2, 12, 3, 13)])
    )
    side = side + c.at_most(PAIRS[100:], 4.0)
    memory, parts = bound(X, side, divergence)
    with pytest.warns(LeftOutWarning, match="7 constraints are left out") as seen:
        parts.warn_of_lost()
    assert [stated.row for stated in seen[0].message.rows] == [*range(103, 110)]  # type: ignore[union-attr]
    assert "row 103: d(3, 13) >= 2: its value is always 0" in str(seen[0].message)
    expected, found = memory.measured(np.array(0.3)), parts.measured(np.array(0.3))
    B = np.eye(5) + 0.2 * X[:5]
    refuse_other_sums(found.measure(B), expected.measure(B))
    refuse_other_rows(found.sample(np.arange(len(side))), expected)
    assert parts.typical_size == pytest.approx(memory.typical_size, rel=1e-12)


def test_an_atom_outside_the_range_of_the_prior_measures_nothing() -> None:
    X, prior = features(4), np.diag([1.0, 1.0, 1.0, 0.0])
    turned = np.linalg.qr(features(4)[:4])[0]
    X[1, :3], X[3, :3], X[4] = X[0, :3], X[2, :3], 0.0
    X[4, 3] = 2.0
    pairs = [(0, 1), (2, 3), (0, 2), (5, 6)]
    side = (
        c.at_most(pairs, 1.0)
        + c.closer([(0, 1, 5, 6), (7, 8, 2, 3)], 0.1)
        + c.similarity([(4, 5), (5, 6)], 1.0, "<=")
        + c.closer([(7, 9, 0, 1)], 0.1)  # whose second distance is always 0
    )
    memory, parts = bound(X @ turned.T, side, prior=turned @ prior @ turned.T)
    expected, found = memory.measured(np.array(1.0)), parts.measured(np.array(1.0))
    assert found.order == 3
    assert np.flatnonzero(found.values(np.eye(3)) == 0).tolist() == [0, 1, 6]
    refuse_other_rows(found.sample(np.arange(len(side))), expected)
    refuse_other_sums(found.measure(2 * np.eye(3)), expected.measure(2 * np.eye(3)))


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e200])
def test_vectors_that_are_no_numbers_are_named_with_row_and_file(wrong: float, tmp_path: Path) -> None:
    X = features(5)
    X[70, 2] = wrong
    np.save(tmp_path / "a.npy", X[:50])
    np.save(tmp_path / "b.npy", X[50:])
    row = int(np.flatnonzero((PAIRS == 70).any(axis=1))[0])
    i, j = PAIRS[row]
    place = "" if np.isfinite(wrong) else r" \(row 20 of \S+b\.npy\)"
    reason = r"its vectors have entries that are not finite, or whose squares overflow"
    with pytest.raises(RowsError, match=rf"^row {row}: d\({i}, {j}\) <= 1: {reason}{place}$"):
        bind_in_chunks(distributed.open_vectors(tmp_path), c.at_most(PAIRS, 1.0), LogDet(), None, None)


@pytest.mark.parametrize("n_chunks", [1, 7])
def test_what_cannot_be_weighed_is_refused_as_in_memory(
    n_chunks: int, cut_into: Callable[[int], None]
) -> None:
    cut_into(n_chunks)
    far = np.full(400, 3.0)
    far[333] = 1e32
    for of in bound(features(5), c.at_most(PAIRS, far)):
        with pytest.raises(RowsError, match=r"row 333: .*its bound is \de\+3\d times its size"):
            of.measured(np.array(1.0))
    near = np.full(400, 3.0)
    near[222] = 1e-30
    for of in bound(features(5), c.closer(QUADRUPLES, margin=1e-40) + c.at_most(PAIRS, near)):
        with pytest.raises(RowsError, match=r"row 422: .*its bound is \de-3\d times its size"):
            of.measured(np.array(1.0))
    heavy = np.ones(400)
    heavy[111] = 1e32
    for of in bound(features(5), c.at_most(PAIRS, 3.0, weights=heavy), Frobenius()):
        with pytest.raises(RowsError, match=r"row 111: .*with the penalty 1e\+32 its slack costs"):
            of.measured(np.array(1.0))
        of.measured(np.array(1e-10))


def test_what_needs_memory_says_so() -> None:
    parts = bound(features(5), SIDES["weights"](5.0))[1]
    with pytest.raises(ValueError, match=r"hard constraints \(penalty inf\) need data in memory"):
        parts.measured(np.array(np.inf))
    with pytest.raises(ValueError, match=r"have one penalty in common, got an array of shape \(500,\)"):
        parts.measured(np.ones(500))
    vectors = Stacked([features(5)])
    with pytest.raises(ValueError, match=r"row 0: .* general linear constraints need data in memory"):
        bind_in_chunks(vectors, c.linear(np.eye(N), 1.0, "<="), LogDet(), None, None)
    with pytest.raises(ValueError, match=r"non-empty \(n, r\) array, got shape \(0, 5\)"):
        bind_in_chunks(Stacked([features(5)[:0]]), SIDES["weights"](5.0), LogDet(), None, None)


def test_a_point_where_costs_overflow_has_no_finite_cost() -> None:
    found = bound(features(5), SIDES["all, and none of one kind"](5.0))[1].measured(np.array(1.0))
    assert not np.isfinite(found.measure(1e200 * np.eye(5)).cost)


def test_no_constraints_at_all() -> None:
    found = bind_in_chunks(Stacked([features(5)]), Constraints(), LogDet(), None, None).measured(
        np.array(1.0)
    )
    sums = found.measure(np.eye(5))
    assert (sums.n_rows, sums.cost, len(sums.worst)) == (0, 0.0, 0)
    assert not sums.adjoint.any()
    assert len(found.slopes(np.eye(5))) == found.sample(np.arange(0)).n_rows == 0
    assert found.median_size == 1.0


# ---- who uses them -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cut_small")
def test_multipliers_are_made_when_they_are_asked_for(jobs: list[str]) -> None:
    found = bound(features(5), SIDES["weights"](5.0))[1].measured(np.array(0.3))
    jobs.clear()
    dual = DualInChunks(found, np.eye(5), 0.5)
    assert len(dual) == 500
    assert jobs == []
    np.testing.assert_array_equal(np.asarray(dual), 0.5 * found.slopes(np.eye(5)))
    assert np.asarray(dual, dtype=np.float32).dtype == np.float32


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_a_formulation_certifies_the_same(divergence: SpectralDivergence) -> None:
    from nearwise.core.iterates import Iterate

    side = SIDES["all, and none of one kind"](5.0)
    whole, parts = (
        Problem(data, side, divergence, penalty=0.01) for data in (features(5), Stacked([features(5)]))
    )
    assert parts.penalty_unit == pytest.approx(whole.penalty_unit, rel=1e-12)
    expected, found = (
        p.formulation.scaled().form.certify(Iterate(np.eye(5))).certificate for p in (whole, parts)
    )
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)
    assert found.primal == pytest.approx(expected.primal, rel=1e-12)
    assert (found.violation, found.satisfied) == pytest.approx((expected.violation, expected.satisfied))
    assert isinstance(parts.formulation.measured, InChunks)


# ---- squares of residuals ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("side", [*SIDES][1:])
@pytest.mark.parametrize("columns", [1, 5])
def test_squares_of_residuals(side: str, columns: int) -> None:
    X, given = features(5), SIDES[side](5.0)
    squares = SquaresInPieces.of(given, given, Stacked([X[:30], X[30:]]))
    assert (squares.n_rows, squares.weight) == (len(given), pytest.approx(given.weights.sum()))
    rows = binding.bind(X, given, LogDet(), None, None).rows
    G, D = np.random.default_rng(7).normal(size=(2, 5, columns))
    feature, target, weight = 2.0, 3.0, 1.5
    residual = rows.values(G) / feature**2 - given.bounds / target
    residual = np.where(given.relations > 0, np.minimum(residual, 0), residual)
    residual = np.where(given.relations < 0, np.maximum(residual, 0), residual)
    counts = given.weights / weight
    gradient = rows.adjoint(counts * residual) / feature**2
    for along in (None, D):
        cost, slope = squares.sums(G, along, feature, target, weight)
        assert cost == pytest.approx(counts @ residual**2, rel=1e-12)
        expected = gradient @ (G if along is None else along)
        np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_squares_name_what_is_lost_or_wrong() -> None:
    X = features(5)
    X[3] = X[4]
    side = c.equal([(0, 1), (3, 4)], 2.0)
    with pytest.warns(LeftOutWarning, match=r"1 constraint is left out.*row 1: d\(3, 4\) == 2: its value is"):
        SquaresInPieces.of(side, side, Stacked([X]))
    X[0, 0] = np.nan
    with pytest.raises(RowsError, match=r"row 0: .* not finite.* \(row 0\)"):
        SquaresInPieces.of(side, side, Stacked([X]))
