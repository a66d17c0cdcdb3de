"""Fixed-rank descent never rises, records the costs of its factors, and ends where other methods end."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from benchmarks import _fixed_rank_trials
from nearwise import constraints as c, solvers
from nearwise.learners.fixed_rank import Settings, batch

Array = NDArray[np.float64]
GEOMETRIES = ("flat", "polar", "affine_invariant", "log_euclidean")
everywhere = pytest.mark.parametrize("geometry", GEOMETRIES)


def assert_never_rises(result: Any, first: float) -> None:
    costs = np.array([first, *(record.cost for record in result.history)])
    assert (np.diff(costs) <= 0).all()  # at the end, a step may gain less than rounding shows
    assert result.cost == costs[-1]
    assert [record.iteration for record in result.history] == list(range(1, len(costs)))
    assert (np.diff([record.seconds for record in result.history]) >= 0).all()


@everywhere
def test_a_singular_optimum_of_a_kernel_is_reached(geometry: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 3))
    pairs = np.array([(i, j) for i in range(10) for j in range(i)])[::3]
    squares = np.square(X[pairs[:, 0]] - X[pairs[:, 1]]).sum(axis=1)
    model = nw.FixedRankEmbedding(10, input="kernel", geometry=geometry)
    result = model.fit(np.eye(10), constraints=c.equal(pairs, squares)).result_
    assert_never_rises(result, np.mean((2.0 - squares) ** 2) / 2)
    D = result.factor[pairs[:, 0]] - result.factor[pairs[:, 1]]
    cost = np.mean((np.square(D).sum(axis=1) - squares) ** 2) / 2
    assert result.cost == pytest.approx(cost, rel=1e-9)
    assert result.cost <= 1e-5 * np.mean(squares**2) / 2
    assert result.status is nw.Status.STATIONARY


@everywhere
@pytest.mark.parametrize("seed", range(12))
def test_a_low_rank_is_found_among_all(geometry: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, G = rng.normal(size=(60, 8)), rng.normal(size=(8, 2))
    y = np.square(X @ G).sum(axis=1)
    model = nw.FixedRankRegressor(None, geometry).fit(X, y)
    assert_never_rises(model.result_, np.inf)
    cost = np.mean((model.predict(X) - y) ** 2) / 2
    assert model.result_.cost == pytest.approx(cost, rel=1e-9)
    assert cost <= 1e-5 * np.mean(y**2) / 2


@everywhere
@pytest.mark.parametrize("seed", range(3))
def test_full_rank_agrees_with_a_convex_solver(geometry: str, seed: int) -> None:
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    d = 5
    X = rng.normal(size=(20, d))
    pairs = rng.integers(0, 20, (25, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    near, D = len(pairs) // 2, X[pairs[:, 0]] - X[pairs[:, 1]]
    y = np.square(X @ rng.normal(size=(d, 2))).sum(axis=1) * (1 + 0.5 * rng.normal(size=20))
    W = cp.Variable((d, d), PSD=True)
    values = cp.sum(cp.multiply(D @ W, D), axis=1)
    failed = cp.sum_squares(cp.pos(values[:near] - 3)) + cp.sum_squares(cp.pos(8 - values[near:]))
    error = cp.sum_squares(cp.sum(cp.multiply(X @ W, X), axis=1) - y)
    side = c.at_most(pairs[:near], 3.0) + c.at_least(pairs[near:], 8.0)
    learner = nw.FixedRankLearner(None, geometry, tol=1e-12, check=False).fit(X, constraints=side)
    regressor = nw.FixedRankRegressor(None, geometry, tol=1e-12).fit(X, y)
    for model, cost in ((learner, failed / (2 * len(pairs))), (regressor, error / 40)):
        problem = cp.Problem(cp.Minimize(cost))
        problem.solve(solver="CLARABEL")
        assert problem.status == "optimal"
        assert model.result_.cost == pytest.approx(problem.value, rel=1e-6)
        assert_never_rises(model.result_, np.inf)


@pytest.mark.parametrize("geometry", ["flat", "polar"])
@pytest.mark.parametrize(("rank", "seed"), [(1, 3), (1, 12), (4, 3), (9, 12)])
def test_no_method_ends_above_armijo(geometry: str, rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 9))
    triplets = np.array([rng.choice(30, 3, replace=False) for _ in range(29)])
    side, start = c.closer(triplets, margin=1.0), rng.normal(size=(9, rank))
    found = {}
    for solver in ("auto", "armijo"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = nw.FixedRankLearner(rank, geometry, solver=solver, start=start, check=False)
            found[solver] = model.fit(X, constraints=side).result_
    assert found["auto"].cost <= 1.01 * found["armijo"].cost
    assert_never_rises(found["auto"], np.inf)


@pytest.mark.long
@pytest.mark.parametrize("seed", [26, 67])
def test_random_problems_of_the_benchmark(seed: int) -> None:
    """One whose nearest valley is a bad one, and one whose gradient has eigenvalues of rounding size."""
    _, d, problem = _fixed_rank_trials._problem(seed, 8)
    for rank in (1, d // 2):
        start = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, rank)))[0]
        for geometry in _fixed_rank_trials.ANY_RANK.values():
            found = [
                batch(problem, start, Settings(rank, geometry, solver, 1e-5, None, 32, 5, False), None)
                for solver in ("auto", "armijo")
            ]
            assert found[0].cost <= max(1.01 * found[1].cost, 1e-5)
            assert_never_rises(found[0], problem.evaluate(start)[0])


@pytest.mark.parametrize("geometry", ["flat", "polar", "affine_invariant", "log_euclidean"])
def test_targets_that_zero_fits_end_the_run(geometry: str) -> None:
    """W = 0 has no cost, so that no share of it can be the rule."""
    X = np.random.default_rng(0).normal(size=(30, 4))
    for y, relations in ((np.zeros(30), None), (np.full(30, 0.01), "<=")):
        model = nw.FixedRankRegressor(None, geometry, start=np.eye(4)).fit(X, y, relations=relations)
        assert model.status_ is nw.Status.STATIONARY
        assert model.n_iter_ < 100
        assert model.result_.cost <= 1e-5 * np.mean(np.square(np.square(X).sum(axis=1))) / 2


def test_what_the_data_do_not_see_does_not_grow() -> None:
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(11, 1)
    pairs = np.stack([i, j], axis=1)[rng.random(len(i)) < 0.7]
    points = rng.normal(size=(11, 9))
    squares = np.square(points[pairs[:, 0]] - points[pairs[:, 1]]).sum(axis=1) * 2
    start = np.linalg.qr(rng.normal(size=(11, 11)))[0]
    for geometry in ("polar", "affine_invariant"):
        model = nw.FixedRankEmbedding(11, "kernel", geometry, start=start)
        G = model.fit(np.eye(11), constraints=c.equal(pairs, squares)).embedding_
        assert np.linalg.norm(G.mean(axis=0)) < 1e4 * np.linalg.norm(G - G.mean(axis=0))


def test_a_callback_sees_the_records_of_the_history() -> None:
    rng = np.random.default_rng(12)
    X = rng.normal(size=(30, 9))
    triplets = np.array([rng.choice(30, 3, replace=False) for _ in range(29)])
    seen: list[Any] = []
    model = nw.FixedRankLearner(1, "flat", start=rng.normal(size=(9, 1)), callback=seen.append, check=False)
    model.fit(X, constraints=c.closer(triplets, margin=1.0))
    unit = model.units_.target**2
    assert [r.iteration for r in seen] == [r.iteration for r in model.result_.history]
    np.testing.assert_allclose([r.cost * unit for r in seen], [r.cost for r in model.result_.history])


@pytest.mark.parametrize("geometry", ["flat", "polar"])
def test_a_stream_of_single_samples_does_not_explode(geometry: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_t(1.5, (300, 11))  # samples of very different length
    y = np.square(X @ rng.standard_normal((11, 9))).sum(axis=1) * (1 + 0.1 * rng.standard_normal(300))
    for annealing in ("auto", "none"):
        model = nw.FixedRankRegressor(9, geometry, batch_size=1, annealing=annealing, random_state=0)
        for low in range(0, 300, 50):
            model.partial_fit(X[low : low + 50], y[low : low + 50])
            assert np.mean((model.predict(X) - y) ** 2) < np.mean(y**2)


def test_a_step_does_not_go_beyond_the_lowest_cost_of_its_sample() -> None:
    """Steps of any length end near what the sample asks for, or on the same side of it."""
    x, y = np.array([[2.0, 0.0]]), np.array([36.0])
    problem = solvers.Regression(solvers.vector_forms(x, unit=1.0), y)
    geometry = solvers.Flat()
    for start in (2.0, 2.5, 4.0, 5.0):  # y^ = 4 start^2, and 36 at start = 3
        for step in (0.01, 0.1, 1.0):
            stream = solvers.Stream(geometry.point(np.array([[start], [1.0]])))
            schedule = solvers.Schedule(step, np.inf)
            end = solvers.pass_over(problem, geometry, stream, schedule, 1, None).point.factor[0, 0]
            assert abs(end - 3) < abs(start - 3)
            assert abs(end - 3) < 0.3 or (end - 3) * (start - 3) > 0


def test_a_step_of_one_sample_moves_no_further_than_it_demands() -> None:
    """The bound that the module proves, for samples of every size and steps that are far too long."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(1.1, (500, 6)) * 10.0 ** rng.uniform(-3, 3, (500, 1))
    y = rng.standard_t(1.1, 500) * 10.0 ** rng.uniform(-3, 3, 500)
    geometry = solvers.Flat()
    stream = solvers.Stream(geometry.point(rng.normal(size=(6, 3))))
    for k in range(500):
        problem = solvers.Regression(solvers.vector_forms(X[k : k + 1], unit=1.0), y[k : k + 1])
        G = stream.point.factor
        stream = solvers.pass_over(problem, geometry, stream, solvers.Schedule(1.0, np.inf), 1, None)
        new = stream.point.factor
        allowed = np.vdot(G, G) + 2 * max(y[k], 0.0) / (X[k] @ X[k])
        assert np.vdot(new, new) <= allowed * (1 + 1e-9)
        assert problem.evaluate(new)[0] <= problem.evaluate(G)[0]


@pytest.mark.parametrize("geometry", [solvers.Flat(), solvers.Polar()], ids=["flat", "polar"])
def test_one_sample_takes_away_at_most_half_of_its_error(geometry: Any) -> None:
    """To first order: steps far too long are cut to the same one, which a small change of y scales."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, G = rng.standard_t(1.5, (1, 5)), rng.normal(size=(5, 2))
        value = float(np.square(x @ G).sum())
        problem = solvers.Regression(solvers.vector_forms(x, unit=1.0), np.array([value * (1 - 1e-4)]))
        stream = solvers.Stream(geometry.point(G))
        for step in (1e6, 1e12):
            end = solvers.pass_over(problem, geometry, stream, solvers.Schedule(step, np.inf), 1, None)
            left = float(np.square(x @ geometry.factor(end.point)).sum()) - problem.targets[0]
            assert left == pytest.approx(0.5e-4 * value, rel=1e-2)


def test_a_step_down_comes_nearer_to_every_matrix_that_fits_its_sample() -> None:
    rng = np.random.default_rng(2)
    geometry = solvers.Flat()
    for _ in range(30):
        x, G, H = rng.standard_t(1.5, (1, 4)), 3 * rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
        y, above = float(np.square(x @ H).sum()), float(np.square(x @ G).sum())
        if not above > y:
            continue
        problem = solvers.Regression(solvers.vector_forms(x, unit=1.0), np.array([y]))
        stream = solvers.pass_over(
            problem, geometry, solvers.Stream(geometry.point(G)), solvers.Schedule(1e9, np.inf), 1, None
        )
        for _ in range(10):  # every turn of the factor is the same matrix
            turned = H @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
            assert np.linalg.norm(stream.point.factor - turned) < np.linalg.norm(G - turned)


GEOMETRIES = {
    "flat": solvers.Flat(),
    "polar": solvers.Polar(),
    "affine_invariant": solvers.AffineInvariant(),
    "straight": solvers.AffineInvariant(straight=True),
    "log_euclidean": solvers.LogEuclidean(),
}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["vectors", "matrices", "comparisons"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_step_adds_at_most_twice_the_trace_that_its_samples_ask_for(
    name: str, kind: str, size: int
) -> None:
    """Samples of very different length, and a start nearly orthogonal to most: steps as long as may be."""
    rng, geometry, grown = np.random.default_rng(0), GEOMETRIES[name], 0
    d = 4
    for _ in range(20):
        G = np.linalg.qr(rng.normal(size=(d, d)))[0] * 10.0 ** rng.uniform(-3, 0, d)
        y = 10.0 ** rng.uniform(-2, 3, size)
        X = rng.standard_t(1.5, (2 * size, d))
        forms: Any
        if kind == "vectors":
            forms = solvers.vector_forms(X[:size], unit=1.0)
            asked = y / np.square(X[:size]).sum(axis=1)
        elif kind == "matrices":
            symmetric = np.einsum("ni,nj->nij", X[:size], X[:size])
            y *= rng.choice([-1.0, 1.0], size)
            symmetric *= np.sign(y)[:, None, None]
            forms = solvers.matrix_forms(symmetric, unit=1.0)
            asked = np.abs(y) / np.square(X[:size]).sum(axis=1)
        else:  # rows 0, 1 and 0, 2 and so on, of which the second is to be longer by y
            rows = np.vstack([np.zeros(d), X])
            triplets = np.stack([np.zeros(size, int), 1 + np.arange(size), 1 + size + np.arange(size)], 1)
            side = nw.constraints.closer(triplets, margin=y)
            forms = solvers.constraint_forms(side.resolve(len(rows), None), rows, len(rows), unit=1.0)
            asked, y = y / np.square(X[size:]).sum(axis=1), side.bounds
        problem = solvers.Regression(forms, y)
        stream = solvers.pass_over(
            problem, geometry, solvers.Stream(geometry.point(G)), solvers.Schedule(1e9, np.inf), size, None
        )
        before, after = (np.square(geometry.factor(p)).sum() for p in (geometry.point(G), stream.point))
        assert after <= before + 2 * asked.sum() + 1e-9 * before
        grown += after > before
    assert grown >= 5


@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("seed", [322, 407])
def test_a_step_to_nothing_is_not_the_end(seed: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """W = 0 is better than the start here, flat steps reach it at once, and no slope of G leads on from it.

    W is the optimum of any rank where S = grad_W f is positive semidefinite, and S G = 0.
    """
    _, d, problem = _fixed_rank_trials._problem(seed, 7)
    if rank < d:  # where data are small, lower minima are looked for in any case
        monkeypatch.setattr(type(problem.forms), "light", False)
    start = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0][:, :rank]
    chosen = Settings(rank, solvers.Flat(), "auto", 1e-9, None, 32, 5, False)
    found = batch(problem, start, chosen, None)
    assert found.cost < 0.999 * problem.cost(problem.residual(np.zeros(problem.n_samples)))
    if rank == d:
        costs = [record.cost for record in found.history]
        assert (np.diff(costs) < 0).all()
        S = problem.evaluate(found.factor)[1](np.eye(d))
        assert np.linalg.eigvalsh(S)[0] > -1e-4 * np.linalg.norm(S)
        assert np.linalg.norm(S @ found.factor) <= 1e-4 * np.linalg.norm(S) * np.linalg.norm(found.factor)


@pytest.mark.parametrize("name", ["flat", "polar"])
def test_rounding_does_not_say_whether_the_trace_grows(name: str) -> None:
    """Of the start, the multiple that fits best, it does so in no direction: any unit finds the same W."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    y = np.square(X @ rng.normal(size=(4, 2))).sum(axis=1)
    found = [
        nw.FixedRankRegressor(2, name, solver="online", random_state=0).fit(unit * X, y).get_matrix()
        * unit**2
        for unit in (1.0, 0.7, 3.0, 11.0)
    ]
    for W in found[1:]:
        np.testing.assert_allclose(W, found[0], rtol=1e-9)


def test_the_lengths_of_samples_are_taken_for_many_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one they would be a fifth of the work of a step with one sample."""
    X = np.random.default_rng(0).normal(size=(96, 3))
    problem, taken = solvers.Regression(solvers.vector_forms(X), 9.0 + np.arange(96.0)), []
    sizes = type(problem.forms).sizes
    monkeypatch.setattr(type(problem.forms), "sizes", lambda forms: taken.append(1) or sizes(forms))
    start = solvers.Stream(solvers.Flat().point(np.eye(3, 2)))
    end = solvers.pass_over(problem, solvers.Flat(), start, solvers.Schedule(1e-5, np.inf), 1, None)
    assert np.square(end.point.factor).sum() > 2.0
    assert len(taken) == 3


@pytest.mark.parametrize("name", ["flat", "polar"])
def test_a_small_start_makes_no_stream_explode(name: str) -> None:
    """Where W grows by factors, as in the polar geometry, long samples of little value would throw it far."""
    for seed in (93, 601, 937):
        rng = np.random.default_rng(seed)
        X = rng.standard_t(1.5, (100, 6))
        y = np.square(X @ rng.normal(size=(6, 3))).sum(axis=1)
        model = nw.FixedRankRegressor(
            3, name, batch_size=1, start=1e-3 * np.eye(6, 3), annealing="none", random_state=0
        )
        bound = 1e-6 * 3
        for row in range(0, 100, 10):
            model.partial_fit(X[row : row + 10], y[row : row + 10])
            bound += float(np.sum(2 * y[row : row + 10] / np.square(X[row : row + 10]).sum(axis=1)))
            assert np.square(model.factor_).sum() <= bound


def test_the_lengths_of_samples_bound_their_forms() -> None:
    from scipy import sparse

    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 3))
    dense, thin = (solvers.vector_forms(A, unit=2.0) for A in (X, sparse.csr_array(X)))
    for forms in (dense, thin):
        upward, downward = forms.sizes()
        np.testing.assert_allclose(upward, np.square(X / 2).sum(axis=1))
        assert not downward.any()
    pairs = nw.constraints.equal([(0, 1), (2, 4)], 1.0)
    np.testing.assert_array_equal(solvers.constraint_forms(pairs.resolve(5, None), None, 5).sizes()[0], 2.0)


def test_w_grows_with_caution_and_shrinks_without() -> None:
    x, geometry = np.array([[1.0, 2.0]]), solvers.Flat()
    G = np.array([[1.0], [1.0]])
    for y, share in ((0.5 * 9, 1.0), (1.5 * 9, 10 / (10 + 30))):
        problem = solvers.Regression(solvers.vector_forms(x, unit=1.0), np.array([y]))
        moved = [
            solvers.pass_over(
                problem, geometry, solvers.Stream(geometry.point(G), 9), schedule, 1, None
            ).point.factor
            - G
            for schedule in (solvers.Schedule(1e-4, np.inf), solvers.Schedule(1e-4, np.inf, np.inf, 30.0))
        ]
        np.testing.assert_allclose(moved[1], share * moved[0], rtol=1e-9)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5))
    problem = solvers.Regression(solvers.vector_forms(X, unit=1.0), np.square(X).sum(axis=1))
    found = solvers.searched_schedule(problem, geometry, geometry.point(np.eye(5, 2)), 2, rng, 100)
    assert found.caution == 4 * 5 / 2


@pytest.mark.parametrize("relation", [None, np.array([0, -1, 1, -1, 1, 0], dtype=np.int8)])
def test_the_bend_is_that_of_predictions_that_go_straight_on(relation: Any) -> None:
    rng = np.random.default_rng(0)
    X, G, D = rng.normal(size=(6, 4)), rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    problem = solvers.Regression(solvers.vector_forms(X, unit=1.0), rng.uniform(0, 20, 6), relation)

    def residual(s: float) -> Array:
        return problem.residual(np.square(X @ (G + s * D)).sum(axis=1))

    change = (residual(1e-5) - residual(-1e-5)) / 2e-5
    assert problem.at(G).along(D).bend() == pytest.approx(np.mean(change**2), rel=1e-6)


def test_steps_shrink_with_the_factor_as_in_appendix_a() -> None:
    schedule = solvers.Schedule(0.3, np.inf, size=2.0)
    assert schedule.at(0, 1.5) == 0.3
    assert schedule.at(0, 6.0) == pytest.approx(0.3 * 2.0 / 6.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    problem = solvers.Regression(solvers.vector_forms(X, unit=1.0), np.square(X).sum(axis=1))
    point = solvers.Flat().point(3 * np.eye(4, 2))
    assert solvers.searched_schedule(problem, solvers.Flat(), point, 4, rng, 100).size == 18.0
    point = solvers.Flat().point(0.1 * np.eye(4, 2))
    assert solvers.searched_schedule(problem, solvers.Flat(), point, 4, rng, 100).size == 1.0


def test_principal_subspaces_and_oja_s_steps_by_public_names() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 5)) * [3, 2, 1, 0.5, 0.2]
    geometry, problem, U = solvers.Grassmann(), solvers.Projection(rows), np.eye(5)[:, 3:]
    found = solvers.minimise(problem, geometry, U, tol=1e-12)
    values = np.linalg.eigvalsh(rows.T @ rows / 200)
    assert found.cost == pytest.approx(values[:3].sum() / 2)
    x, s = rows[:1], 1e-3
    stream = solvers.pass_over(
        solvers.Projection(x), geometry, solvers.Stream(U), solvers.Schedule(s, np.inf), 1, None
    )
    oja = np.linalg.qr(U + s * (np.eye(5) - U @ U.T) @ x.T @ x @ U)[0]
    np.testing.assert_allclose(stream.point @ stream.point.T, oja @ oja.T, atol=1e-12)
