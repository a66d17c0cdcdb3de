"""`NeighborLearner`: its costs by their definitions, gradients, starts, checks and figures."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris, load_wine, make_friedman1
from sklearn.preprocessing import scale

import nearwise as nw
from nearwise.learners import _soft_neighbors
from nearwise.learners._soft_neighbors import SoftNeighbors, descended
from nearwise.methods.result import Status

KINDS = [(kind, affinity) for kind in ("labels", "numbers") for affinity in ("student", "gauss")]


def problem(kind: str, affinity: str, n: int = 12) -> tuple[SoftNeighbors, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    targets = np.arange(n) % 3 * 1.0 if kind == "labels" else rng.normal(size=n)
    return SoftNeighbors(X, targets, kind, affinity), rng.normal(size=(4, 2)) * 0.5


@pytest.mark.parametrize("weights", [None, np.arange(12) % 3 + 1.0], ids=["once", "weighted"])
@pytest.mark.parametrize(("kind", "affinity"), KINDS)
def test_the_cost_is_its_definition_and_the_gradient_its_difference(
    kind: str, affinity: str, weights: np.ndarray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with weights are those rows so often; blocks of rows make no difference."""
    monkeypatch.setattr(_soft_neighbors, "_BLOCK", 5 * 12)
    costs, A = problem(kind, affinity)
    costs = replace(costs, weights=weights, ridge=0.3)
    often = np.repeat(np.arange(12), 1 if weights is None else weights.astype(int))
    X, y = costs.X[often], costs.targets[often]
    D = cdist(X @ A, X @ A, "sqeuclidean")
    P = np.exp(-D) if affinity == "gauss" else (1 + D / 3) ** -2.0
    np.fill_diagonal(P, 0.0)
    P /= P.sum(axis=1, keepdims=True)
    if kind == "labels":
        expected = -np.mean([np.log(P[i, y == y[i]].sum()) for i in range(len(y))])
    else:
        expected = np.mean((P @ y - y) ** 2) / np.var(y)
    value, gradient = costs.cost(A)
    assert value == pytest.approx(expected + 0.3 * np.mean(X**2) * np.sum(A**2), rel=1e-12)
    for place in np.ndindex(A.shape):
        step = np.zeros_like(A)
        step[place] = 1e-6
        slope = (costs.cost(A + step)[0] - costs.cost(A - step)[0]) / 2e-6
        assert gradient[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(("kind", "affinity"), KINDS)
def test_a_run_never_ends_above_its_start_and_its_costs_fall(kind: str, affinity: str) -> None:
    costs, A = problem(kind, affinity, 30)
    seen: list[float] = []
    found, _ = descended(costs, A, 20, lambda iteration, cost, moved: seen.append(cost))
    first, last = (replace(costs, ridge=ridge) for ridge in (costs.ridges[0], costs.ridges[-1]))
    assert last.cost(found)[0] == pytest.approx(seen[-1])
    assert seen[-1] < last.cost(A)[0]
    assert (np.diff([first.cost(A)[0], *seen]) <= 1e-12).all()
    stopped, settled = descended(costs, A, 20, lambda iteration, cost, moved: iteration == 2)
    assert first.cost(stopped)[0] == pytest.approx(seen[1])
    assert not settled


def test_what_is_found_does_not_depend_on_the_start_where_a_ridge_falls_in_steps() -> None:
    X, y = scale(load_wine().data), load_wine().target.astype(float)
    costs = SoftNeighbors(X, y, "labels", "student")
    rng = np.random.default_rng(0)
    ends = [descended(costs, 0.3 * rng.normal(size=(13, 2)), 200)[0] for _ in range(3)]
    found = [replace(costs, ridge=costs.ridges[-1]).cost(A)[0] for A in ends]
    assert max(found) < min(found) * 1.01


@pytest.mark.parametrize("factor", [1 - 1e-14, 1 + 1e-14])
def test_rounding_does_not_choose_the_sign_of_a_direction_with_a_tie(factor: float) -> None:
    """Two columns, one the other with its sign changed: the larger entry is the first, or the second."""
    column = np.random.default_rng(0).normal(size=30)
    X = np.column_stack([column, -factor * column])
    y = (column > 0).astype(np.float64)
    first = _soft_neighbors.principal(X, 1)
    assert first[0, 0] > 0 > first[1, 0]
    told = _soft_neighbors.start_of(SoftNeighbors(X, y, "labels", "student"), first)
    assert told[0, 0] > 0 > told[1, 0]


@pytest.mark.parametrize("target", ["labels", "numbers"])
def test_a_row_of_weight_two_is_as_good_as_two_rows(target: str) -> None:
    X, y = scale(load_iris().data)[::3], load_iris().target[::3]
    weights = np.arange(50) % 3
    often = np.repeat(np.arange(50), weights)
    y = y + (X[:, 0] if target == "numbers" else 0)
    how = {"target": target, "check": False, "max_iter": 8}
    weighted = nw.NeighborLearner(2, **how).fit(X, y, sample_weight=weights)
    repeated = nw.NeighborLearner(2, **how).fit(X[often], y[often])
    found, expected = weighted.distances(X), repeated.distances(X)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * expected.max())
    other = nw.NeighborLearner(2, **how).fit(X, y).distances(X)
    assert np.abs(other - expected).max() > 1e-2 * expected.max()


@pytest.mark.parametrize("size", [1e-140, 1e100])
def test_data_of_any_size_have_the_same_map(size: float) -> None:
    X, y = scale(load_iris().data)[::2], load_iris().target[::2]
    of_one, of_any = (
        nw.NeighborLearner(2, random_state=0).fit(X * f, y) for f in (1.0, 2.0 ** np.round(np.log2(size)))
    )
    scaled = X * 2.0 ** np.round(np.log2(size))
    np.testing.assert_allclose(of_any.transform(scaled), of_one.transform(X), rtol=1e-6, atol=1e-9)


def test_two_dimensions_tell_classes_that_principal_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = np.hstack([np.eye(3)[y] * 4 + rng.normal(size=(150, 3)), 6 * rng.normal(size=(150, 4))])
    learner = nw.NeighborLearner(2, random_state=0).fit(X, y)
    assert learner.transform(X).shape == (150, 2)
    assert learner.components_.shape == (2, 7)
    near = np.argsort(cdist(learner.transform(X), learner.transform(X)) + np.diag([np.inf] * 150), axis=1)[
        :, 0
    ]
    assert np.mean(y[near] == y) > 0.85
    assert learner.status_ in (Status.STATIONARY, Status.LIMIT)
    costs = [record.cost for record in learner.result_.history]
    assert costs == sorted(costs, reverse=True)
    assert learner.result_.cost == pytest.approx(costs[-1])
    assert learner.score(X, y) > nw.MetricLearner(penalty=1e-9).fit(X, y).score(X, y)
    np.testing.assert_allclose(
        learner.get_mahalanobis_matrix(), learner.components_.T @ learner.components_, atol=1e-12
    )


def test_numbers_are_told_by_neighbours() -> None:
    X, y = make_friedman1(240, n_features=10, noise=0.5, random_state=0)
    X = scale(X)
    learner = nw.NeighborLearner(None, target="numbers", random_state=0).fit(X[:160], y[:160])
    before = nw.NeighborLearner(None, target="numbers", check=False, max_iter=1, random_state=0)
    assert learner.scores_[1] > learner.scores_[0]
    weights = np.diag(learner.get_mahalanobis_matrix())
    assert weights[:5].sum() > 3 * weights[5:].sum()  # the other five columns say nothing
    assert learner.score(X[160:], y[160:]) > before.fit(X[:160], y[:160]).score(X[160:], y[160:])


@pytest.mark.parametrize("rank", [1, 2])
def test_one_direction_that_tells_numbers_is_found_beside_larger_ones(rank: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5)) * [4.0, 1.0, 3.0, 3.0, 3.0]
    y = 3.0 * X[:, 1] + 0.1 * rng.normal(size=80)
    learner = nw.NeighborLearner(rank, target="numbers", random_state=0).fit(X, y)
    assert learner.score(X, y) > 0.9


def test_the_distance_is_kept_where_neighbours_tell_numbers_no_better() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    with pytest.warns(nw.PriorKeptWarning, match=r"scores -?\d.* on the rest"):
        learner = nw.NeighborLearner(None, target="numbers", random_state=0).fit(X, y)
    assert learner.kept_prior_
    M = learner.get_mahalanobis_matrix()
    np.testing.assert_allclose(M, np.eye(3) * M[0, 0], atol=1e-12)
    forced = nw.NeighborLearner(None, target="numbers", check=False, random_state=0).fit(X, y)
    assert not forced.kept_prior_


def test_rows_without_a_target_help_the_start_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    X, y = scale(load_iris().data), load_iris().target.astype(float)
    more = np.vstack([X, rng.normal(size=(50, 4)) * [9.0, 1.0, 1.0, 1.0]])
    known = np.r_[y, np.full(50, np.nan)]
    for target in ("labels", "numbers"):
        settings = {"target": target, "check": False, "max_iter": 1, "random_state": 0}
        learner = nw.NeighborLearner(2, **settings).fit(more, known)
        assert learner.transform(X).shape == (150, 2)
    # the principal directions are those of all rows: with nothing known they are what is returned
    with pytest.warns(nw.PriorKeptWarning, match="there is no y"):
        start = nw.NeighborLearner(1).fit(more)
    assert np.argmax(np.abs(start.components_[0])) == 0


def test_model_files_and_interruption(tmp_path: Path) -> None:
    X, y = scale(load_wine().data), load_wine().target
    with pytest.warns(UserWarning, match="Interrupted"):
        learner = nw.NeighborLearner(2, check=False, callback=lambda record: record.iteration == 2).fit(X, y)
    assert learner.status_ is Status.INTERRUPTED
    nw.save(learner, tmp_path / "m")
    assert np.array_equal(nw.load(tmp_path / "m").transform(X), learner.transform(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "ranks"}, "target must be"),
        ({"affinity": "flat"}, "affinity must be"),
        ({"n_rows": 1}, "n_rows must be"),
        ({"rank": 0}, "rank must be"),
    ],
)
def test_parameters_are_checked(settings: dict[str, object], message: str) -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        nw.NeighborLearner(**settings).fit(X, y)


def test_measurements_as_labels_are_told_about_numbers() -> None:
    X, y = make_friedman1(60, random_state=0)
    for learner in (nw.MetricLearner(), nw.NeighborLearner()):
        with pytest.raises(ValueError, match=r"NeighborLearner\(None, target='numbers'\)"):
            learner.fit(X, y)


def test_few_rows_are_learned_from() -> None:
    X, y = scale(load_wine().data), load_wine().target
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = nw.NeighborLearner(2, n_rows=60, check=False, random_state=0).fit(X, y)
    assert learner.score(X, y) > 0.8
