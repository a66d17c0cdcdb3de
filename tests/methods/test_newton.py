"""Newton's method against cvxpy and certificates, on soft and hard rows, in memory and behind `Measured`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest

from crossing import crossed
from nearwise.core import rows as rows_module
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.measured import InMemory, Sums
from nearwise.methods import newton, newton_system
from nearwise.methods.newton import Newton
from nearwise.methods.newton_system import Curved, HessianSample, newton_step
from written import ThreeHalves, Written, distances

DIVERGENCES = {type(d).__name__: d for d in (LogDet(), VonNeumann(), Frobenius(), ThreeHalves())}
each_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
TOL = 1e-8


@dataclass(frozen=True, eq=False)
class Solved:
    """The last point of a run, and how many there were."""

    form: Formulation
    iterate: Iterate
    points: int

    @property
    def matrix(self) -> np.ndarray:
        return self.iterate.factor @ self.iterate.factor.T

    @property
    def objective(self) -> float:
        return self.form.certify(self.iterate).certificate.primal


def run(
    form: Formulation, solver: Newton | None = None, start=None, tol: float = TOL, most: int = 200
) -> Solved:
    """Up to a certificate that holds."""
    with np.errstate(all="ignore"):
        points = (solver or Newton()).iterates(form, start)
        for count, iterate in enumerate(itertools.islice(points, most), 1):
            if form.certify(iterate).certificate.holds(tol):
                return Solved(form, iterate, count)
    raise AssertionError(f"no certificate in {most} points: {form.certify(iterate).certificate}")


def by_cvxpy(written: Written) -> np.ndarray:
    """The solution for the prior I, of soft rows or hard ones."""
    loss, r = written.loss, written.rows.order
    M = cp.Variable((r, r), PSD=True)
    name = type(loss.divergence).__name__
    distance = {
        "LogDet": lambda: cp.trace(M) - cp.log_det(M),
        "VonNeumann": lambda: -cp.von_neumann_entr(M) - cp.trace(M),
        "Frobenius": lambda: cp.sum_squares(M - np.eye(r)),
    }[name]()
    p = cp.hstack([cp.trace(A @ M) for A in written.A])
    b, sign = loss.bounds, loss.relations
    if loss.all_hard:
        sides = [p[sign <= 0] <= b[sign <= 0], p[sign >= 0] >= b[sign >= 0]]
        cp.Problem(cp.Minimize(distance), sides).solve(solver="CLARABEL")
        return M.value
    t = cp.Variable(len(b))  # a row costs what its slack says at the value t that the bound gives way to
    sides = [
        (p - t)[sign < 0] <= 0,
        (p - t)[sign > 0] >= 0,
        (p - t)[sign == 0] == 0,
        t[sign < 0] >= b[sign < 0],
        t[sign > 0] <= b[sign > 0],
    ]
    costs = {
        "LogDet": lambda: t / b - cp.log(t),
        "VonNeumann": lambda: cp.kl_div(t, b),
        "Frobenius": lambda: cp.square(t - b),
    }[name]()
    cost = cp.sum(cp.multiply(loss.penalties, costs))
    cp.Problem(cp.Minimize(distance + cost), sides).solve(
        solver="CLARABEL" if name != "VonNeumann" else "SCS"
    )
    return M.value


# ---- soft rows ------------------------------------------------------------------------------------------


@crossed(divergence=(LogDet(), Frobenius(), VonNeumann()), penalty=(0.1, 10.0))
def test_soft_rows_as_cvxpy_solves_them(divergence: SpectralDivergence, penalty: float) -> None:
    written = distances(divergence, 3, 12, penalty=penalty)
    solved = run(written.formulation())
    near = 2e-2 if isinstance(divergence, VonNeumann) else 1e-4  # SCS is not exact
    np.testing.assert_allclose(solved.matrix, by_cvxpy(written), atol=near)


@crossed(
    divergence=DIVERGENCES,
    order=(1, 2, 8, 13),
    m=(1, 3, 60),
    penalty=(1e-2, 1.0, 10.0),
    comparisons=(False, True),
)
def test_soft_rows_are_certified(
    divergence: SpectralDivergence, order: int, m: int, penalty: float, comparisons: bool
) -> None:
    run(distances(divergence, order, m, penalty=penalty, comparisons=comparisons).formulation())


@each_divergence
def test_without_rows_the_prior_is_the_answer(divergence: SpectralDivergence) -> None:
    written = distances(divergence, 3, 4)
    measured = InMemory(written.rows, written.loss).sample(np.arange(0))
    prior = np.array([0.5, 1.0, 2.0])
    solved = run(Formulation(divergence, prior, measured))
    assert solved.points == 1
    np.testing.assert_allclose(solved.matrix, np.diag(prior), rtol=1e-12)


@each_divergence
def test_the_first_point_is_the_prior(divergence: SpectralDivergence) -> None:
    form = replace(distances(divergence, 3, 9).formulation(), prior=np.array([0.5, 1.0, 2.0]))
    first = next(Newton().iterates(form))
    np.testing.assert_allclose(first.factor @ first.factor.T, np.diag(form.prior), rtol=1e-12)


def test_indefinite_priors() -> None:
    form = distances(Frobenius(), 4, 20, penalty=0.1).formulation()
    for prior in (np.array([1.0, 0.0, -1.0, 2.0]), -np.ones(4), np.zeros(4)):
        run(replace(form, prior=prior), tol=1e-6)


@pytest.mark.parametrize("penalty", [1.0, 100.0])
@each_divergence
def test_starts_lead_to_the_same_solution(divergence: SpectralDivergence, penalty: float) -> None:
    form = distances(divergence, 4, 80, penalty=penalty).formulation()
    solved = run(form)
    again = run(form, start=solved.iterate.factor)
    assert again.points <= 2
    rng = np.random.default_rng(0)
    for start in (10 * np.eye(4), 0.1 * np.eye(4), rng.normal(size=(4, 4)), rng.normal(size=(4, 2))):
        found = run(form, start=start, most=60)
        assert found.objective == pytest.approx(solved.objective, rel=1e-6)
    if penalty == 1.0:
        assert again.points < run(form).points


@each_divergence
def test_objectives_fall(divergence: SpectralDivergence) -> None:
    form = distances(divergence, 6, 40).formulation()
    points = itertools.islice(Newton().iterates(form), 60)
    found = np.array([form.certify(iterate).certificate.primal for iterate in points])
    first = 1 if len(found) > 1 and found[1] > found[0] else 0  # a smoothed chart begins inside the cone
    assert (np.diff(found[first:]) <= 1e-9 * found[first]).all()
    assert len(found) < 60  # and the run ends where no step leads on


# ---- the Hessian of a sample ----------------------------------------------------------------------------


@each_divergence
@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_a_sample_is_enough_for_the_hessian(divergence: SpectralDivergence, penalty: float) -> None:
    form = distances(divergence, 5, 600, penalty=penalty).formulation()
    whole = run(form)
    part = run(form, Newton(hessian_rows=60), tol=1e-6)
    assert part.objective == pytest.approx(whole.objective, rel=2e-6)


def test_the_same_seed_gives_the_same_points() -> None:
    form = distances(VonNeumann(), 5, 600).formulation()

    def factors(seed: int) -> list[np.ndarray]:
        points = Newton(hessian_rows=60, seed=seed).iterates(form)
        return [iterate.factor for iterate in itertools.islice(points, 8)]

    same = zip(factors(3), factors(3), strict=True)
    assert all(np.array_equal(one, other) for one, other in same)
    assert not np.array_equal(factors(3)[-1], factors(4)[-1])


def test_more_rows_are_drawn_where_few_have_a_curvature() -> None:
    written = distances(LogDet(), 3, 2000)
    bounds = np.where(np.arange(2000) % 50 == 0, written.loss.bounds, 1e6)  # few are violated
    relations = np.full(2000, -1, np.int8)
    loss = replace(written.loss, bounds=bounds, relations=relations)
    measured = InMemory(written.rows, loss)
    hessian = HessianSample(measured, 3, 20, seed=0)
    assert len(hessian.numbers) == 40
    chart = LogDet().chart(np.ones(3))
    n_curved = measured.measure(chart.factor).curved
    local, curvatures, is_part, _ = hessian.curved(chart, n_curved)
    assert len(hessian.numbers) > 40
    assert is_part
    # they stand for all rows with a curvature
    assert curvatures.sum() == pytest.approx(
        loss.at(written.rows.values(np.eye(3))).curvatures.sum(), rel=0.9
    )
    assert local.n_rows == len(curvatures) > 0


@each_divergence
def test_where_rows_far_outnumber_unknowns_the_sample_is_solved_first(
    monkeypatch: pytest.MonkeyPatch, divergence: SpectralDivergence
) -> None:
    form = distances(divergence, 3, 900, penalty=0.05).formulation()
    whole = run(form)
    monkeypatch.setattr(newton, "FAR_MORE", 1.0)
    found = run(form, Newton(hessian_rows=60), tol=1e-6)
    assert found.objective == pytest.approx(whole.objective, rel=2e-6)


@each_divergence
def test_points_in_single_precision_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, divergence: SpectralDivergence
) -> None:
    monkeypatch.setattr(rows_module, "LARGE", 0)
    monkeypatch.setattr(newton_system, "SINGLE", 0)
    form = distances(divergence, 6, 120).formulation()
    assert form.measured.measure(np.eye(6), single=True).is_single
    run(form)
    sums = [iterate.sums for iterate in itertools.islice(Newton().iterates(form), 20)]
    assert not any(found.is_single for found in sums if found is not None)


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Rows in two parts, of which a solver sees no more than `Measured` has."""

    parts: tuple[InMemory, InMemory]

    any_hard = False
    is_in_memory = False

    @property
    def order(self) -> int:
        return self.parts[0].order

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    @property
    def penalty_sum(self) -> float:
        return sum(part.penalty_sum for part in self.parts)

    def measure(self, B: np.ndarray, single: bool = False) -> Sums:
        first, second = (part.measure(B) for part in self.parts)
        return first + second

    def sample(self, numbers: np.ndarray) -> InMemory:
        first = self.parts[0].n_rows
        low = self.parts[0].sample(numbers[numbers < first])
        return low if len(numbers) == low.n_rows else self._joined(numbers)

    def _joined(self, numbers: np.ndarray) -> InMemory:
        return ALL.sample(numbers)


ALL = InMemory(*(lambda w: (w.rows, w.loss))(distances(VonNeumann(), 4, 400, penalty=0.2)))


def test_rows_elsewhere_need_sums_and_a_sample_alone() -> None:
    parts = ALL.sample(np.arange(150)), ALL.sample(np.arange(150, 400))
    elsewhere = Formulation(VonNeumann(), np.ones(4), Elsewhere(parts))
    expected = run(Formulation(VonNeumann(), np.ones(4), ALL))
    for rows in (None, 40):
        found = run(elsewhere, Newton(hessian_rows=rows), tol=1e-6)
        np.testing.assert_allclose(found.matrix, expected.matrix, atol=1e-3)


# ---- Newton's system ------------------------------------------------------------------------------------


@crossed(order=(1, 3, 8, 13), m=(2, 40), weighted=(False, True), comparisons=(False, True))
def test_three_ways_to_the_same_step(
    monkeypatch: pytest.MonkeyPatch, order: int, m: int, weighted: bool, comparisons: bool
) -> None:
    written = distances(LogDet(), order, m, comparisons=comparisons)
    rng = np.random.default_rng(1)
    curvatures, gradient = rng.uniform(0.1, 1, m), rng.normal(size=(order, order))
    gradient += gradient.T
    weights = np.exp(gradient / 10) if weighted else None
    omega = np.ones((order, order)) if weights is None else weights
    share, A = 0.5, written.A

    def hessian(D: np.ndarray) -> np.ndarray:
        return share * np.einsum("k,kij->ij", curvatures * np.einsum("kij,ij->k", A, D), A)

    curved = Curved(written.rows, curvatures, False, False)
    for steps, largest in ((0, 0), (10**9, 0), (10**9, 10**9), (10**9, 0)):
        monkeypatch.setattr(newton_system, "expected_steps", lambda *_, steps=steps: steps)
        monkeypatch.setattr(newton_system, "WRITTEN", largest)
        step, found = newton_step(curved, share, weights, gradient, 1e-12)
        D = rng.normal(size=(order, order))
        D += D.T
        np.testing.assert_allclose(found(D), hessian(D), atol=1e-8 * np.abs(hessian(D)).max())
        residual = step + omega * hessian(omega * step) + omega * gradient
        np.testing.assert_allclose(residual, 0, atol=1e-6 * np.abs(gradient).max())


def test_no_rows_bend_the_divergence() -> None:
    written = distances(LogDet(), 2, 3)
    none, gradient = written.rows.subset(np.arange(0)), np.array([[1.0, 2.0], [2.0, 3.0]])
    curved = Curved(none, np.empty(0), False, True)
    step, hessian = newton_step(curved, 1.0, None, gradient, 0.1)
    np.testing.assert_array_equal(step, -gradient)
    np.testing.assert_array_equal(hessian(gradient), 0 * gradient)


# ---- hard rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", [LogDet(), Frobenius(), VonNeumann()], ids=lambda d: type(d).__name__)
def test_hard_rows_as_cvxpy_solves_them(divergence: SpectralDivergence) -> None:
    written = distances(divergence, 3, 8, penalty=np.inf, feasible=True)
    solved = run(written.formulation())
    near = 2e-2 if isinstance(divergence, VonNeumann) else 1e-4
    np.testing.assert_allclose(solved.matrix, by_cvxpy(written), atol=near)


@crossed(divergence=DIVERGENCES, order=(1, 2, 8), m=(1, 3, 30), comparisons=(False, True))
def test_hard_rows_are_certified(
    divergence: SpectralDivergence, order: int, m: int, comparisons: bool
) -> None:
    written = distances(divergence, order, m, penalty=np.inf, feasible=True, comparisons=comparisons)
    solved = run(written.formulation(), tol=1e-6)
    values = np.einsum("kij,ij->k", written.A, solved.matrix)
    assert written.loss.violations(values).max() <= 2e-6


@each_divergence
def test_hard_and_soft_rows_together(divergence: SpectralDivergence) -> None:
    written = distances(divergence, 4, 30, penalty=50.0, feasible=True)
    penalties = np.where(np.arange(30) % 3 == 0, np.inf, written.loss.penalties)
    bounds = np.where(np.isinf(penalties), written.loss.bounds, 1.5 * written.loss.bounds)
    loss = replace(written.loss, penalties=penalties, bounds=bounds)
    run(replace(written, loss=loss).formulation(), tol=1e-6)


def suspicions(form: Formulation, most: int = 60) -> Iterator[np.ndarray]:
    with np.errstate(all="ignore"):
        for iterate in itertools.islice(Newton().iterates(form), most):
            if iterate.farkas is not None:
                yield iterate.farkas


@each_divergence
@pytest.mark.parametrize("order", [1, 3, 6])
def test_contradictions_are_found(divergence: SpectralDivergence, order: int) -> None:
    written = distances(divergence, order, 12, penalty=np.inf, feasible=True)
    again = np.concatenate([np.arange(12), [4]])
    rows = written.rows.subset(np.arange(12))
    doubled = replace(
        rows,
        **{
            name: np.concatenate([getattr(rows, name), getattr(rows, name)[[4]]])
            for name in ("coefficient", "x")
        },
        n_rows=13,
    )
    doubled = replace(doubled, y=doubled.x)
    loss = written.loss.subset(again)
    sign, bounds = loss.relations.copy(), loss.bounds.copy()
    sign[4], sign[12], bounds[4], bounds[12] = -1, 1, 1.0, 2.0
    form = Formulation.of(divergence, np.ones(order), doubled, replace(loss, relations=sign, bounds=bounds))
    assert any(form.farkas(multipliers) is not None for multipliers in suspicions(form))


@pytest.mark.parametrize("divergence", [Frobenius(), ThreeHalves()], ids=lambda d: type(d).__name__)
def test_logdet_looks_for_contradictions_of_others(divergence: SpectralDivergence) -> None:
    """Where their own multipliers take long to prove what random bounds contradict."""
    for seed in range(20):
        written = distances(divergence, 7, 24, penalty=np.inf, seed=seed, objects=7)
        form = written.formulation()
        proofs = [form.farkas(multipliers) for multipliers in suspicions(form, 40)]
        if any(proof is not None for proof in proofs):
            assert form.check(next(proof for proof in proofs if proof is not None)).valid
            return
    raise AssertionError("no contradiction in 20 draws")


def test_hard_rows_from_a_start() -> None:
    form = distances(VonNeumann(), 4, 20, penalty=np.inf, feasible=True).formulation()
    solved = run(form, tol=1e-6)
    again = run(form, start=solved.iterate.factor, tol=1e-6)
    assert again.objective == pytest.approx(solved.objective, rel=1e-5)


# ---- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [("hessian_rows", 0), ("hessian_rows", 1.5), ("radius", 0.0), ("stiffness", -1.0), ("seed", -1)],
)
def test_impossible_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises((ValueError, TypeError), match=setting):
        Newton(**{setting: value})


def test_the_radius_limits_the_first_step() -> None:
    form = distances(LogDet(), 4, 40, penalty=1.0).formulation()
    for radius in (0.05, 0.5):
        first, second = itertools.islice(Newton(radius=radius).iterates(form), 2)
        change = np.linalg.eigvalsh(second.factor @ second.factor.T - first.factor @ first.factor.T)
        assert np.abs(change).max() <= 1.0001 * radius


def test_stiffness_changes_the_way_and_not_the_end() -> None:
    form = distances(LogDet(), 4, 20, penalty=np.inf, feasible=True).formulation()
    found = [run(form, Newton(stiffness=stiffness), tol=1e-7).objective for stiffness in (1.0, 1000.0)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
