"""The benchmark of the solver: its yardsticks are right, and its tables are produced. Nothing is timed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from benchmarks import _tables, _workload, _yardsticks, solver
from benchmarks.__main__ import main
from benchmarks._tables import Target
from benchmarks._yardsticks import CyclicProjections, PairProblem

TINY = _workload.Sizes(
    objects=200,
    components=6,
    pairs=60,
    penalties=(1e-2, 1.0),
    sweeps=(1, 3),
    repeats=1,
    itml_pairs=30,
    itml_sweeps=2,
    cvxpy_components=4,
    cvxpy_pairs=20,
    scale_pairs=(40, 80),
)


def made(penalty: float = 1.0, n_pairs: int = 60, seed: int = 0) -> nw.Problem:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((30, 5)) * [3.0, 1.0, 1.0, 0.5, 0.2]
    side = nw.constraints.from_labels(rng.integers(3, size=30), n_pairs=n_pairs, random_state=seed)
    return nw.Problem(features, side, penalty=penalty)


def swept(pairs: PairProblem, sweeps: int) -> CyclicProjections:
    loop = CyclicProjections(pairs)
    for _ in range(sweeps):
        loop.sweep()
    return loop


@pytest.mark.long
@pytest.mark.parametrize("penalty", [1e-2, 1.0, 30.0])
def test_the_compiled_loop_converges_to_the_optimum(penalty: float) -> None:
    problem = made(penalty)
    result = nw.solve(problem, tol=1e-12)
    pairs = PairProblem.of(problem)
    loop = swept(pairs.shuffled(1), 10_000)
    np.testing.assert_allclose(loop.matrix, result.matrix, rtol=0, atol=1e-6 * np.abs(result.matrix).max())
    assert pairs.relative_gap(loop.matrix) < 1e-10
    multipliers = np.empty_like(loop.dual)
    multipliers[np.random.default_rng(1).permutation(len(loop.dual))] = loop.dual
    np.testing.assert_allclose(multipliers, np.abs(result.dual), atol=1e-6 * np.abs(result.dual).max())


@pytest.mark.long
@pytest.mark.parametrize("sweeps", [1, 2, 7])
def test_the_compiled_loop_keeps_what_its_multipliers_say(sweeps: int) -> None:
    """M^-1 = I + sum_i delta_i lambda_i z_i z_i^T and 1/xi = 1/b - delta lambda / gamma at all times."""
    problem = made(0.3)
    loop = swept(PairProblem.of(problem), sweeps)
    signed = -problem.relations * loop.dual
    Z = loop.pairs.differences()
    np.testing.assert_allclose(
        np.linalg.inv(loop.matrix), np.eye(5) + (Z.T * signed) @ Z, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(1 / loop.slack, 1 / problem.bounds - signed / 0.3, rtol=1e-9)
    assert (loop.dual >= 0).all()
    assert loop.dual.any()


def test_the_dense_gap_is_the_certificate_s() -> None:
    problem = made(0.1)
    pairs = PairProblem.of(problem)
    optimum = nw.solve(problem, tol=1e-12).certificate.primal
    for sweeps in (2, 4):
        M = swept(pairs, sweeps).matrix
        gap, objective = pairs.relative_gap(M), problem.objective(M)
        slopes = problem.penalties * (1 / problem.bounds - 1 / problem.values(M))
        dual = np.where(slopes * problem.relations < 0, slopes, 0.0)  # on the wrong side of the bound
        assert gap == pytest.approx(problem.certificate(M, dual).gap, rel=1e-6)
        assert gap >= (objective - optimum) / objective
        assert gap == pytest.approx(pairs.shuffled(3).relative_gap(M), rel=1e-9)


def test_the_dense_gap_is_infinite_where_the_multipliers_prove_nothing() -> None:
    assert PairProblem.of(made(50.0)).relative_gap(1e-6 * np.eye(5)) == math.inf


def test_cvxpy_finds_the_same_optimum() -> None:
    pytest.importorskip("cvxpy")
    problem = made(1.0, n_pairs=20)
    optimum = nw.solve(problem, tol=1e-10).certificate.primal
    for name in _yardsticks.cvxpy_solvers():
        answer = _yardsticks.cvxpy_model(PairProblem.of(problem), name)
        assert problem.objective(answer.matrix) == pytest.approx(optimum, rel=1e-4)
        assert answer.solver_seconds is not None
        assert 0 < answer.solver_seconds < answer.seconds


def test_itml_of_metric_learn_does_what_the_loop_does() -> None:
    """The same squared bounds and penalty, in the same order: the same matrix after as many sweeps."""
    pytest.importorskip("metric_learn")
    from metric_learn import _util

    before = _util.check_array, _util.check_X_y
    pairs = PairProblem.of(made(0.5))
    answer = _yardsticks.metric_learn_itml(pairs, max_iter=3)
    assert answer.iterations == 3
    np.testing.assert_allclose(answer.matrix, swept(pairs, 3).matrix, rtol=1e-8, atol=1e-10)
    assert (_util.check_array, _util.check_X_y) == before


def test_a_run_knows_when_a_gap_and_an_objective_were_reached() -> None:
    result = nw.solve(made(), nw.solvers.Newton(), tol=1e-10)
    run = _workload.Run(result, problem_seconds=5.0, solve_seconds=100.0)
    third = result.history[2]
    assert run.seconds == 105.0
    assert run.seconds_to_gap(third.gap) == 5.0 + third.seconds
    assert run.seconds_to_objective(third.primal) == 5.0 + third.seconds
    assert run.seconds_to_gap(0.0) is None
    assert run.seconds_to_objective(-1.0) is None


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (Target(6), 6.0, "met"),
        (Target(6), 6.01, "missed"),
        (Target(6), None, "missed"),
        (Target(50, at_least=True), 50.0, "met"),
        (Target(50, at_least=True), 49.9, "missed"),
    ],
)
def test_verdicts(target: Target, value: float | None, verdict: str) -> None:
    assert target.verdict(value) == verdict


def test_a_verdict_is_a_column_that_names_its_target() -> None:
    assert Target(6).judged(7.0) == {"target <= 6": "missed"}
    assert Target(6).judged(5.0, "sweeps") == {"sweeps, target <= 6": "met"}


@pytest.mark.parametrize(("repeats", "enough", "turns"), [(2, 0.0, 2), (9, 0.0, 3), (9, math.inf, 9)])
def test_turns_alternate_and_end_early_where_enough_time_has_passed(
    repeats: int, enough: float, turns: int
) -> None:
    calls: list[str] = []

    def work(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = _tables.in_turns([partial(work, "a"), partial(work, "b")], repeats, enough)
    assert calls == ["a", "b"] * turns
    assert [last for _, last in found] == [2 * turns - 1, 2 * turns]
    assert all(0 <= seconds < math.inf for seconds, _ in found)


def test_exponents_of_growth() -> None:
    steps, overall = _tables.exponents([1, 10, 100], [2.0, 20.0, 2000.0])
    assert steps == pytest.approx([1.0, 2.0])
    assert overall == pytest.approx(1.5)


def test_a_quick_run_has_the_small_sizes_and_else_the_full_ones() -> None:
    assert (_workload.Sizes().pairs, _workload.QUICK.pairs) == (100_000, 2_000)
    assert _workload.QUICK.cvxpy_penalty == _workload.Sizes().cvxpy_penalty


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiny sizes, and scikit-learn's digits in place of MNIST."""
    digits = nw.datasets.load("digits")
    stand_in = nw.datasets.Dataset("mnist", X=digits.X.reshape(-1, 8, 8), y=digits.y)
    monkeypatch.setattr(nw.datasets, "load", {"mnist": stand_in}.__getitem__)
    monkeypatch.setattr(solver, "QUICK", TINY)
    _workload.load.cache_clear()
    yield
    _workload.load.cache_clear()


def figures(path: Path, *argv: str) -> dict:
    assert main(["solver", "--quick", "--json", str(path / "f.json"), *argv]) == 0
    return json.loads((path / "f.json").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("section", "n_rows", "verdicts"),
    [
        ("newton", [2, 2], 4),
        ("divergences", [2, 2], 4),
        pytest.param("scale", [3], 3, marks=pytest.mark.long),
    ],
)
def test_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], section: str, n_rows: list[int], verdicts: int
) -> None:
    found = figures(tmp_path, "--only", section)
    assert [table["section"] for table in found["tables"]] == [section] * len(n_rows)
    assert [len(table["rows"]) for table in found["tables"]] == n_rows
    cells = [cell for table in found["tables"] for row in table["rows"] for cell in row.values()]
    assert None not in cells
    assert sum(cell in ("met", "missed") for cell in cells) == verdicts
    printed = capsys.readouterr().out
    assert all(f"{section}: {table['title']}" in printed for table in found["tables"])
    assert f"repeat with: python -m benchmarks solver --only {section} --quick" in printed
    if section == "scale":  # in fresh processes
        (table,) = found["tables"]
        assert [row["pairs"] for row in table["rows"]] == ["40", "80", "first to last"]
        assert all(0.02 < row["peak memory, GB"] < 2 and row["gap"] <= 1e-6 for row in table["rows"][:2])


@pytest.mark.usefixtures("small")
def test_newton_checks_its_own_gap(tmp_path: Path) -> None:
    for row in figures(tmp_path, "--only", "newton")["tables"][0]["rows"]:
        assert row["checked gap"] <= 1e-6
        assert (
            0
            < row["to 1e-04, s"]
            <= row["to 1e-06, s"]
            <= row["sweep, s"] * row["whole solve, sweeps"] + 1e-9
        )


@pytest.mark.usefixtures("small")
def test_peers(tmp_path: Path) -> None:
    pytest.importorskip("cvxpy")
    pytest.importorskip("metric_learn")
    itml, cvxpy = figures(tmp_path, "--only", "peers")["tables"]
    assert [row["penalty"] for row in itml["rows"]] == list(TINY.penalties)
    assert all(row["its sweeps"] <= TINY.itml_sweeps and row["above it by"] > -1e-6 for row in itml["rows"])
    assert {row["within 1e-3"] for row in itml["rows"]} <= {"yes", "never"}
    assert cvxpy["rows"]
    assert all(abs(row["its objective above ours by"]) < 1e-3 for row in cvxpy["rows"])


@pytest.mark.usefixtures("small")
def test_a_missing_peer_is_skipped_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    monkeypatch.setitem(sys.modules, "metric_learn", None)
    found = figures(tmp_path, "--only", "peers")
    assert found["tables"] == []
    assert list(found["skipped"]) == ["peers, itml", "peers, cvxpy"]
    assert "peers, itml: skipped: metric-learn is not installed" in capsys.readouterr().out


def test_a_missing_data_set_skips_every_section(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(nw.datasets.VARIABLE, raising=False)
    _workload.load.cache_clear()
    assert solver.main([]) == 0
    printed = capsys.readouterr().out
    for section in ("newton", "divergences", "scale"):
        assert f"{section}: skipped: data set 'mnist'" in printed
    assert printed.count("skipped") == sum(map(len, solver.SECTIONS.values()))


@pytest.mark.parametrize(
    ("argv", "named"), [(["--only", "nonsense"], "nonsense"), (["--json", "no/f"], "no/f")]
)
def test_bad_options_are_named_before_any_work(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tables, "_environment", pytest.fail)
    with pytest.raises(SystemExit) as stop:
        solver.main(argv)
    assert stop.value.code == 2
    assert named in capsys.readouterr().err


def test_every_target_of_the_table_is_used() -> None:
    source = Path(solver.__file__).read_text(encoding="utf-8")
    gaps = {f"sweeps to {gap:g}" for gap in _workload.GAPS}
    assert gaps | {name for name in solver.TARGETS if f'TARGETS["{name}"]' in source} == set(solver.TARGETS)
