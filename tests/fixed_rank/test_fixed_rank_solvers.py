"""Forms, cost, conjugate gradients, Armijo and online descent of fixed-rank regression."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

import nearwise as nw
from nearwise import constraints as c
from nearwise.fixed_rank import conjugate, forms
from nearwise.fixed_rank.cone import AffineInvariant, LogEuclidean
from nearwise.fixed_rank.conjugate import ConjugateGradients, plane_minimum
from nearwise.fixed_rank.descent import Armijo
from nearwise.fixed_rank.driver import FixedRankRecord, minimise
from nearwise.fixed_rank.geometry import Flat, Polar
from nearwise.fixed_rank.online import Schedule, Stream, pass_over, searched_schedule
from nearwise.fixed_rank.regression import Regression, constraint_forms, matrix_forms, vector_forms
from nearwise.fixed_rank.subspace import Grassmann, Projection

Array = NDArray[np.float64]
both = pytest.mark.parametrize("geometry", [Flat(), Polar()], ids=["flat", "polar"])


def planted(
    n: int = 300, d: int = 8, r: int = 2, noise: float = 0.0, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Vectors, targets as in (28), and W."""
    rng = np.random.default_rng(seed)
    X, G = rng.standard_normal((n, d)), rng.standard_normal((d, r))
    y = np.square(X @ G).sum(axis=1) * (1 + noise * rng.standard_normal(n))
    return X, y, G @ G.T


def regression(X: Any, y: Array, relation: Any = None) -> Regression:
    return Regression(vector_forms(X, unit=1.0), y, relation)


def start(d: int = 8, r: int = 2, seed: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal((d, r))


SIDE = (
    c.at_most([(0, 1), (3, 2)], 1.0)
    + c.closer([(0, 1, 2), (4, 5, 6)], margin=0.5)
    + c.similarity([(1, 2), (3, 3)], 2.0, "==")
    + c.at_least([(7, 8)], 3.0)
)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("kernel", [False, True])
def test_forms_of_constraints_are_their_definition(linear: bool, kernel: bool) -> None:
    rng = np.random.default_rng(0)
    X = np.eye(10) if kernel else rng.standard_normal((10, 4))
    A = rng.standard_normal((10, 10))
    side = SIDE + (c.linear(A + A.T, 0.0, "==") if linear else c.equal([(2, 9)], 1.0))
    blocks = side.resolve(10)
    forms = constraint_forms(blocks, None if kernel else X, 10)
    G = rng.standard_normal((X.shape[1], 3))
    H = X @ G
    K = H @ H.T

    def d(i: int, j: int) -> float:
        return float(np.sum((H[i] - H[j]) ** 2))

    last = np.sum((A + A.T) * K) if linear else d(2, 9)
    wanted = [d(0, 1), d(3, 2), d(0, 1) - d(0, 2), d(4, 5) - d(4, 6), K[1, 2], K[3, 3], d(7, 8), last]
    image = forms.image(G) * forms.unit
    np.testing.assert_allclose(forms.cross(image, image), wanted, atol=1e-10)


@pytest.mark.parametrize("kind", ["vectors", "sparse", "matrices", "constraints", "objects"])
def test_pull_and_weigh_are_adjoint_and_subsets_are_slices(kind: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((10, 4))
    forms: Any = {
        "vectors": lambda: vector_forms(X),
        "sparse": lambda: vector_forms(sparse.csr_array(X)),
        "matrices": lambda: matrix_forms(rng.standard_normal((6, 4, 4))),
        "constraints": lambda: constraint_forms(SIDE.resolve(10), X, 10),
        "objects": lambda: constraint_forms(SIDE.resolve(10), None, 10),
    }[kind]()
    G, E = rng.standard_normal((2, forms.dimension, 2))
    Z, image = forms.image(G), forms.image(E)
    w = rng.standard_normal(forms.n_samples)
    assert np.vdot(forms.pull(forms.weigh(w, Z)), E) == pytest.approx(w @ forms.cross(Z, image))
    rows = np.array([4, 1, 3])
    few = forms.subset(rows)
    np.testing.assert_allclose(few.cross(few.image(G), few.image(E)), forms.cross(Z, image)[rows], atol=1e-12)
    assert few.n_samples == 3


def test_inequalities_cost_only_where_they_fail() -> None:
    X, y, _ = planted(20)
    G = start()
    values = np.square(X @ G).sum(axis=1)
    relation = np.array([-1, 1, 0, -1] * 5, dtype=np.int8)
    failing = np.select(
        [relation < 0, relation > 0], [np.maximum(values - y, 0), np.minimum(values - y, 0)], values - y
    )
    assert regression(X, y, relation).evaluate(G)[0] == pytest.approx(np.mean(failing**2) / 2)


@pytest.mark.parametrize("inequalities", [False, True])
@pytest.mark.parametrize("keeps_scale", [False, True])
def test_the_plane_search_finds_a_minimum_of_the_plane(inequalities: bool, keeps_scale: bool) -> None:
    X, y, _ = planted(60, noise=0.3)
    relation = np.random.default_rng(3).integers(-1, 2, 60).astype(np.int8) if inequalities else None
    problem = regression(X, y, relation)
    terms = [start(seed=seed) for seed in range(3)]
    Z, *images = (X @ term for term in terms)
    a, promised = plane_minimum(problem, Z, problem.forms.cross(Z, Z), images, keeps_scale)

    def cost(a: Array) -> float:
        return problem.evaluate(sum(weight * term for weight, term in zip(a, terms, strict=True)))[0]

    assert promised == pytest.approx(cost(a))
    assert (a[0] == 1.0) == keeps_scale
    free = slice(1, 3) if keeps_scale else slice(0, 3)

    def of_free(b: Array) -> float:
        full = a.copy()
        full[free] = b
        return cost(full)

    assert cost(a) < cost(np.array([1.0, 0.0, 0.0]))
    best = minimize(of_free, a[free], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12}).fun
    assert cost(a) <= best + 0.02 * (cost(np.array([1.0, 0.0, 0.0])) - best)


@both
@pytest.mark.parametrize("solver", [ConjugateGradients(), Armijo()], ids=["conjugate", "armijo"])
def test_a_planted_matrix_is_recovered(geometry: Any, solver: Any) -> None:
    X, y, W = planted()
    found = minimise(regression(X, y), geometry, start(), solver, tol=1e-14, max_iter=2000)
    assert found.status is nw.Status.STATIONARY
    np.testing.assert_allclose(found.matrix, W, atol=1e-4)
    costs = [record.cost for record in found.history]
    assert (np.diff(costs) < 0).all()


@both
def test_both_methods_end_at_a_stationary_point_of_noisy_data(geometry: Any) -> None:
    X, y, _ = planted(noise=0.3)
    problem = regression(X, y)
    ends = []
    for solver in (ConjugateGradients(), Armijo()):
        found = minimise(problem, geometry, start(), solver, tol=1e-13, max_iter=5000)
        slope = problem.evaluate(found.factor)[1]
        at_start = np.linalg.norm(problem.evaluate(start())[1](start()))
        assert np.linalg.norm(slope(found.factor)) < 1e-4 * at_start
        ends.append(found)
    assert ends[0].cost == pytest.approx(ends[1].cost, rel=1e-6)
    assert ends[0].n_iter < ends[1].n_iter


@both
@pytest.mark.parametrize("solver", [ConjugateGradients(), Armijo()], ids=["conjugate", "armijo"])
def test_rotations_change_nothing(geometry: Any, solver: Any) -> None:
    X, y, _ = planted(noise=0.1)
    Q = np.linalg.qr(np.random.default_rng(9).standard_normal((8, 8)))[0]
    one = minimise(regression(X, y), geometry, start(), solver, max_iter=15)
    two = minimise(regression(X @ Q, y), geometry, Q.T @ start(), solver, max_iter=15)
    np.testing.assert_allclose([r.cost for r in one.history], [r.cost for r in two.history], rtol=1e-7)
    np.testing.assert_allclose(Q.T @ one.matrix @ Q, two.matrix, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", [ConjugateGradients(), Armijo()], ids=["conjugate", "armijo"])
@pytest.mark.parametrize("mu", [1e-3, 1e5])
def test_scaling_changes_nothing_in_the_polar_geometry(solver: Any, mu: float) -> None:
    X, y, _ = planted(noise=0.1)
    if isinstance(
        solver, Armijo
    ):  # the unit of the first step is that of the cost; what follows is invariant
        one = minimise(regression(X, y), Polar(), start(), solver, max_iter=15)
        two = minimise(regression(X, mu * y), Polar(), np.sqrt(mu) * start(), solver, max_iter=15)
    else:
        one = minimise(regression(X, y), Polar(), start(), solver, max_iter=15)
        two = minimise(regression(np.sqrt(mu) * X, mu * y), Polar(), start(), solver, max_iter=15)
        np.testing.assert_allclose(one.matrix, two.matrix, rtol=1e-5, atol=1e-6)
    costs = np.array([r.cost for r in two.history]) / mu**2
    np.testing.assert_allclose([r.cost for r in one.history], costs, rtol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_lambda_fixes_the_subspace_or_all_else(weight: float) -> None:
    X, y, _ = planted()
    U, R = np.linalg.qr(start())
    for solver in (ConjugateGradients(), Armijo()):
        found = minimise(regression(X, y), Polar(weight), start(), solver, tol=1e-10)
        V, values, _ = np.linalg.svd(found.factor, full_matrices=False)
        same_subspace = np.allclose(V @ V.T, U @ U.T, atol=1e-9)
        same_spectrum = np.allclose(values, np.linalg.svd(R, compute_uv=False), rtol=1e-9)
        assert (same_subspace, same_spectrum) == (weight == 0.0, weight == 1.0)
        assert found.cost < regression(X, y).evaluate(start())[0]


@pytest.mark.parametrize(
    "geometry",
    [Flat(), Polar(0.0), AffineInvariant(), AffineInvariant(straight=True), LogEuclidean()],
    ids=str,
)
def test_full_rank_geometries_find_the_one_minimum(geometry: Any) -> None:
    rng = np.random.default_rng(0)
    X, A = rng.standard_normal((200, 4)), rng.standard_normal((4, 4))
    W = np.eye(4) + 0.3 * A @ A.T
    problem = regression(X, np.einsum("ni,ij,nj->n", X, W, X))
    found = minimise(problem, geometry, np.eye(4), Armijo(), tol=1e-12, max_iter=400)
    np.testing.assert_allclose(found.matrix, W, atol=1e-3)


@pytest.mark.long
@both
def test_single_precision_and_whitening_change_the_way_not_the_end(
    geometry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, _ = planted(noise=0.1)
    sizes = np.array([1, 30, 0.03, 1, 1, 3, 1, 1])
    X = X * sizes
    plain = minimise(regression(X, y), geometry, start(), tol=1e-12)
    steps = sum(minimise(regression(X, y), geometry, start(seed=s), tol=1e-12).n_iter for s in range(4))
    monkeypatch.setattr(forms, "_LARGE", 0)
    rough = minimise(regression(X, y), geometry, start(), tol=1e-12)
    assert regression(X, y).forms.rough().features.dtype == np.float32
    monkeypatch.setattr(forms, "_ANISOTROPIC", np.inf)
    unwhitened = minimise(regression(X, y), geometry, start(), tol=1e-12)
    assert regression(X, y).forms.whitening() is None
    assert [r.cost for r in rough.history[:3]] != [r.cost for r in plain.history[:3]]
    for other in (rough, unwhitened):
        assert other.cost == pytest.approx(plain.cost, rel=1e-6)
        # in units in which all features are of one size: a small one leaves its part of W open to rounding
        found, expected = ((sizes[:, None] * result.matrix * sizes) for result in (other, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    unwhitened_steps = sum(
        minimise(regression(X, y), geometry, start(seed=s), tol=1e-12).n_iter for s in range(4)
    )
    assert steps < unwhitened_steps  # about half as many


def test_stopping_rules_and_limits() -> None:
    X, y, _ = planted(noise=0.1)
    problem, zero = regression(X, y), regression(X, y).cost(y)
    exact = regression(X, planted()[1])
    small = minimise(exact, Flat(), start(), tol=1e-3, negligible=zero)
    assert small.cost <= 1e-3 * zero
    assert "of that of zero" in small.message
    armijo = minimise(problem, Flat(), start(), Armijo(), tol=1e-2)
    costs = [r.cost for r in armijo.history]
    assert (costs[-2] - costs[-1]) / costs[-2] <= 1e-2 or armijo.history[-1].moved <= 1e-2
    assert armijo.status is nw.Status.STATIONARY
    assert minimise(problem, Flat(), start(), max_iter=2).status is nw.Status.LIMIT
    assert minimise(problem, Flat(), start(), max_seconds=1e-9).status is nw.Status.LIMIT
    seen: list[FixedRankRecord] = []
    stopped = minimise(problem, Flat(), start(), callback=lambda r: seen.append(r) or len(seen) == 3)
    assert stopped.status is nw.Status.INTERRUPTED
    assert stopped.n_iter == 3
    assert stopped.history == tuple(seen)

    def interrupt(record: FixedRankRecord) -> None:
        raise KeyboardInterrupt

    assert minimise(problem, Flat(), start(), callback=interrupt).status is nw.Status.INTERRUPTED


@both
def test_data_without_a_fit_lead_to_zero_and_no_nan(geometry: Any) -> None:
    X, y, _ = planted()
    found = minimise(regression(X, -y), geometry, start())
    assert np.isfinite(found.factor).all()
    assert np.abs(found.matrix).max() < 1e-3
    assert minimise(regression(0 * X, y), geometry, start()).cost == pytest.approx(regression(X, y).cost(y))


@pytest.mark.parametrize("setting", [{"decrease": 1.0}, {"decrease": 0.0}, {"first_step": -1.0}])
def test_armijo_refuses_settings_that_make_no_sense(setting: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        Armijo(**setting)


def test_armijo_steps_decrease_as_22_demands() -> None:
    X, y, _ = planted(noise=0.1)
    problem, geometry = regression(X, y), Polar()
    points = [
        step.factor for step, _ in zip(Armijo().iterates(problem, geometry, start()), range(6), strict=False)
    ]
    for G, new in itertools.pairwise(points):
        point = geometry.point(G)
        cost, slope = problem.evaluate(G)
        gradient = geometry.gradient(point, slope)
        square = geometry.inner(point, gradient, gradient)
        steps = 100 / np.sqrt(square) / 2.0 ** np.arange(60)
        costs = [problem.evaluate(geometry.retract(point, -s * gradient).factor)[0] for s in steps]
        first = np.flatnonzero(costs <= cost - 0.5 * steps * square)[0]
        assert problem.evaluate(new)[0] == pytest.approx(costs[first], rel=1e-9)


def test_schedule_is_23() -> None:
    schedule = Schedule(step=0.3, horizon=50.0)
    assert schedule.at(0) == pytest.approx(0.3)
    assert schedule.at(150) == pytest.approx(0.3 * 50 / (50 + 150))
    assert Schedule(0.3, np.inf).at(10**9) == 0.3


@both
@pytest.mark.parametrize("batch_size", [4, 32])
def test_online_descent_converges_to_the_batch_limit(geometry: Any, batch_size: int) -> None:
    X, y, W = planted(400)
    problem, rng = regression(X, y), np.random.default_rng(0)
    point = geometry.point(start())
    schedule = searched_schedule(problem, geometry, point, batch_size, rng, expected=400)
    stream = Stream(point)
    for _ in range(15):
        stream = pass_over(problem, geometry, stream, schedule, batch_size, rng)
    assert stream.seen == 15 * 400
    G = geometry.factor(stream.point)
    np.testing.assert_allclose(G @ G.T, W, atol=0.25)
    assert problem.evaluate(G)[0] < 1e-3 * problem.evaluate(start())[0]


@both
def test_a_pass_with_one_batch_is_a_gradient_step(geometry: Any) -> None:
    X, y, _ = planted(30)
    problem = regression(X, y)
    point = geometry.point(start())
    gradient = geometry.gradient(point, problem.evaluate(start())[1])
    stream = pass_over(problem, geometry, Stream(point), Schedule(1e-5, np.inf), 30, None)
    by_hand = geometry.factor(geometry.retract(point, -1e-5 * gradient))
    np.testing.assert_allclose(geometry.factor(stream.point), by_hand, rtol=1e-9)


def test_a_wild_sample_moves_the_point_no_further_than_its_reach() -> None:
    X, y, _ = planted(30)
    y[7] = 1e12
    geometry = Flat()
    stream = pass_over(
        regression(X, y), geometry, Stream(geometry.point(start())), Schedule(1.0, np.inf), 1, None
    )
    assert np.isfinite(stream.point.factor).all()
    assert np.linalg.norm(stream.point.factor) < 1.5**31 * np.linalg.norm(start())


def test_where_no_step_helps_the_schedule_stands_still() -> None:
    rng = np.random.default_rng(0)
    # whole numbers: their sums of products are exact in any order, so the cost is zero and not nearly zero
    X, G = rng.integers(-8, 9, (30, 8)).astype(float), rng.integers(-8, 9, (8, 2)).astype(float)
    problem = regression(X, np.square(X @ G).sum(axis=1))
    assert problem.evaluate(G)[0] == 0.0
    assert searched_schedule(problem, Flat(), Flat().point(G), 8, rng, expected=30).at(0) == 0.0


@pytest.mark.parametrize("geodesic", [False, True])
def test_subspaces_are_those_of_pca(geodesic: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 6)) * [5, 4, 1, 1, 0.5, 0.5]
    geometry, problem = Grassmann(geodesic), Projection(rows)
    U = rng.standard_normal((6, 2))
    values = np.linalg.eigvalsh(rows.T @ rows / 300)
    batch = minimise(problem, geometry, U, tol=1e-12)
    assert batch.cost == pytest.approx(values[:4].sum() / 2, rel=1e-9)
    schedule = searched_schedule(problem, geometry, geometry.point(U), 8, rng, expected=300)
    stream = Stream(geometry.point(U))
    for _ in range(10):
        stream = pass_over(problem, geometry, stream, schedule, 8, rng)
    assert problem.evaluate(stream.point)[0] < 1.1 * batch.cost


def test_images_are_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = planted(noise=0.1)
    plain = minimise(regression(X, y), Polar(), start(), tol=1e-12)
    monkeypatch.setattr(conjugate, "_REFRESH", 1)
    refreshed = minimise(regression(X, y), Polar(), start(), tol=1e-12)
    assert refreshed.cost == pytest.approx(plain.cost, rel=1e-9)


@pytest.mark.parametrize(("decrease", "first_step"), [(0.9, 100.0), (0.1, 0.5)])
def test_armijos_condition_holds_with_the_longest_of_its_steps(decrease: float, first_step: float) -> None:
    X, y, _ = planted(noise=0.1)
    problem, geometry = regression(X, y), Flat()
    points = itertools.islice(Armijo(decrease, first_step).iterates(problem, geometry, start()), 4)
    for before, after in itertools.pairwise([step.factor for step in points]):
        point = geometry.point(before)
        cost, slope = problem.evaluate(before)
        gradient = geometry.gradient(point, slope)
        square = geometry.inner(point, gradient, gradient)
        longest = first_step / np.sqrt(square)
        lengths = longest * 0.5 ** np.arange(60)
        tried = (geometry.factor(geometry.retract(point, -length * gradient)) for length in lengths)
        good = (
            factor
            for length, factor in zip(lengths, tried, strict=True)
            if problem.evaluate(factor)[0] <= cost - decrease * length * square
        )
        np.testing.assert_allclose(after, next(good), rtol=1e-12)


def test_constant_steps_are_searched_for_without_a_horizon() -> None:
    X, y, _ = planted(noise=0.1)
    problem, point = regression(X, y), Flat().point(start())
    rng = np.random.default_rng(0)
    schedule = searched_schedule(problem, Flat(), point, 8, rng, expected=400, constant=True)
    assert schedule.horizon == np.inf
    assert schedule.at(0) == schedule.at(10_000) > 0.0
