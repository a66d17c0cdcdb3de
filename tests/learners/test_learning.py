"""Learning from labels and constraints: pairs and bounds, the choice of the penalty, units, hard cases."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from crossing import crossed
from nearwise import constraints as c
from nearwise.core import binding
from nearwise.learners import _task
from nearwise.learners._contest import contest
from nearwise.learners._path import Learned, Settings
from nearwise.learners._place import Place
from nearwise.learners._side import Side
from nearwise.learners._space import Space
from nearwise.learners._trial import hold_out

RNG = np.random.default_rng(0)
DIVERGENCES = [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()]


def learned(
    features: np.ndarray,
    codes: np.ndarray | None = None,
    constraints: c.Constraints | None = None,
    prior: np.ndarray | None = None,
    **settings: Any,
) -> Learned:
    place = Place(np.asarray(features, dtype=float), prior=prior)
    numbered = Side.read(len(features), constraints=constraints).constraints
    side = Side(len(features), codes, numbered)
    return contest([place], side, Settings(**({"random_state": 0} | settings))).learned


def noisy(n: int = 90, noise: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in a plane, hidden among features that say nothing and are three times as large."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    centres = 3.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    signal = centres[codes] + 0.5 * rng.standard_normal((n, 2))
    return np.hstack([signal, 3.0 * rng.standard_normal((n, noise))]), codes


def euclidean(rows: np.ndarray) -> np.ndarray:
    return ((rows[:, None] - rows) ** 2).sum(axis=2)


def error(factor: np.ndarray, rows: np.ndarray, codes: np.ndarray, half: int) -> float:
    machine = KNeighborsClassifier(5).fit(rows[:half] @ factor, codes[:half])
    return 1.0 - machine.score(rows[half:] @ factor, codes[half:])


# pairs and bounds


def test_local_bounds_are_half_and_twice_the_threshold_of_the_neighbourhood() -> None:
    rows, codes = noisy(40)
    root = np.diag(RNG.uniform(0.5, 2.0, rows.shape[1]))
    metric_rows, prior_rows = rows @ RNG.standard_normal((8, 8)), rows @ root
    side = _task.local_pairs(codes, Space(metric_rows), Space(prior_rows), None, np.random.RandomState(0))
    by_metric, by_prior = euclidean(metric_rows), euclidean(prior_rows)
    expected = {-1: {}, 1: {}}
    for i in range(len(rows)):
        order = [j for j in np.argsort(by_metric[i]) if j != i]
        near = [j for j in order if codes[j] == codes[i]][:5]
        far = [j for j in order if codes[j] != codes[i]][:5]
        threshold = math.sqrt(np.median(by_prior[i, near]) * np.median(by_prior[i, far]))
        expected[-1] |= {(i, j): threshold / 2 for j in near}
        expected[1] |= {(i, j): threshold * 2 for j in far}
    for block in side.blocks:
        found = dict(zip(map(tuple, block.ids.tolist()), block.bounds.tolist(), strict=True))
        assert found == pytest.approx(expected[block.relation])


def test_fewer_local_pairs_are_those_of_a_random_choice_of_objects() -> None:
    rows, codes = noisy(60)
    everything = _task.local_pairs(codes, Space(rows), Space(rows), None, np.random.RandomState(0))
    some = _task.local_pairs(codes, Space(rows), Space(rows), 100, np.random.RandomState(0))
    assert [len(block) for block in some.blocks] == [50, 50]
    for few, many in zip(some.blocks, everything.blocks, strict=True):
        assert len(np.unique(few.ids[:, 0])) == 10
        assert set(map(tuple, few.ids.tolist())) < set(map(tuple, many.ids.tolist()))


def test_open_bounds_lie_around_the_geometric_mean_of_the_medians() -> None:
    rows, _ = noisy(20)
    near, far = [(0, 1), (2, 3), (4, 5)], [(6, 7), (8, 9)]
    given = c.at_most([(10, 11)], 7.0)
    filled = _task.with_bounds(c.similar(near) + c.dissimilar(far) + given, Space(rows))
    distances = euclidean(rows)
    medians = [np.median([distances[pair] for pair in pairs]) for pairs in (near, far)]
    threshold = math.sqrt(medians[0] * medians[1])
    np.testing.assert_allclose(filled.bounds, [threshold / 2] * 3 + [threshold * 2] * 2 + [7.0])
    alone = _task.with_bounds(c.similar(near), Space(rows))
    np.testing.assert_allclose(alone.bounds, medians[0] / 2)


def test_equal_objects_of_different_classes_are_not_pushed_apart() -> None:
    rows, codes = noisy(30)
    twins = np.vstack([rows, rows[:10]])
    labels = np.concatenate([codes, (codes[:10] + 1) % 3])
    for pairs in ("local", "random"):
        found = learned(twins, codes=labels, pairs=pairs, penalty=1.0)
        assert found.result is not None
        assert found.result.status is nw.Status.SOLVED
        assert np.isfinite(found.factor).all()


# the penalty


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("pairs", ["local", "random"])
def test_the_defaults_find_the_features_that_matter(divergence: nw.Divergence, pairs: str) -> None:
    rows, codes = noisy(240)
    found = learned(rows[:120], codes=codes[:120], divergence=divergence, pairs=pairs)
    assert not found.kept_prior
    assert error(found.factor, rows, codes, 120) < 0.6 * error(np.eye(8), rows, codes, 120)


@pytest.mark.parametrize("loader", [load_iris, load_wine])
def test_the_defaults_do_not_harm_real_data(loader: Any) -> None:
    X, y = loader(return_X_y=True)
    total = np.zeros(2)
    for seed in range(3):
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
        scaler = StandardScaler().fit(train)
        rows = np.vstack([scaler.transform(train), scaler.transform(test)])
        codes = np.concatenate([y_train, y_test])
        factor = learned(rows[: len(train)], codes=y_train).factor
        total += [error(factor, rows, codes, len(train)), error(np.eye(X.shape[1]), rows, codes, len(train))]
    assert total[0] <= total[1]


def test_the_chosen_penalty_has_the_best_score_and_the_path_rises_from_the_prior() -> None:
    rows, codes = noisy()
    found = learned(rows, codes=codes)
    penalties, scores = np.array(found.scores).T
    assert penalties[0] == 0.0
    assert all(after == pytest.approx(4 * before) for before, after in pairwise(penalties[1:]))
    assert scores.max() > scores[0]
    # Neighbours chosen again are other pairs, of which a few more or fewer may be of equal objects.
    assert found.penalty == pytest.approx(penalties[np.argmax(scores)])
    again = learned(rows, codes=codes)
    np.testing.assert_array_equal(found.factor, again.factor)
    assert found.scores == again.scores


def test_the_score_of_labels_is_the_share_of_neighbours_of_the_same_class() -> None:
    rows, codes = noisy(31)
    codes[30] = 3  # a class of one object is never held out
    trial = hold_out(Place(rows), Side(31, codes, c.Constraints()), np.random.RandomState(0))
    assert trial is not None
    asking = np.setdiff1d(np.arange(31), trial.rows)
    assert {0, 1, 2, 3} == set(codes[trial.rows])
    assert set(codes[asking]) == {0, 1, 2}
    assert abs(len(asking) - len(trial.rows)) <= 4
    factor = RNG.standard_normal((8, 8))
    distances = euclidean(rows @ factor)
    near = [trial.rows[np.argsort(distances[i, trial.rows])[:5]] for i in asking]
    expected = np.mean([codes[some] == codes[i] for some, i in zip(near, asking, strict=True)])
    assert trial.score(factor) == pytest.approx(expected)


def test_the_score_of_constraints_is_how_often_they_are_in_order() -> None:
    rows, _ = noisy(40)
    pairs = np.array([(i, j) for i in range(40) for j in range(i)])[:300]
    comparisons = np.hstack([pairs[210:], pairs[:90]])
    side = c.similar(pairs[:90]) + c.dissimilar(pairs[90:210]) + c.closer(comparisons)
    trial = hold_out(Place(rows), Side(40, None, side), np.random.RandomState(0))
    assert trial is not None
    assert [len(block) for block in trial.side.constraints.blocks] == [60, 80, 60]
    held = []
    for block, kept in zip(side.blocks, trial.side.constraints.blocks, strict=True):
        rest = set(map(tuple, block.ids.tolist())) - set(map(tuple, kept.ids.tolist()))
        held.append(np.array(sorted(rest)))
    d = euclidean(rows @ np.diag(np.arange(1.0, 9.0)))
    near, far = d[tuple(held[0].T)], d[tuple(held[1].T)]
    auc = roc_auc_score([1] * 30 + [0] * 40, -np.concatenate([near, far]))
    share = np.mean(d[tuple(held[2][:, :2].T)] < d[tuple(held[2][:, 2:].T)])
    assert trial.score(np.diag(np.arange(1.0, 9.0))) == pytest.approx((70 * auc + 30 * share) / 100)


def test_measured_distances_are_scored_by_their_violation() -> None:
    rows, _ = noisy(30)
    pairs = np.array([(i, i + 1) for i in range(29)])
    true = np.diag([4.0, 4.0, *[0.01] * 6])
    z = rows[pairs[:, 0]] - rows[pairs[:, 1]]
    found = learned(rows, constraints=c.equal(pairs, np.einsum("ij,jk,ik->i", z, true, z)))
    assert not found.kept_prior
    assert found.scores[0][1] < max(score for _, score in found.scores)


@pytest.mark.long
def test_pure_noise_keeps_the_prior() -> None:
    rng = np.random.default_rng(3)
    prior = np.diag(rng.uniform(1.0, 2.0, 5))
    kept = [
        learned(rng.standard_normal((60, 5)), codes=rng.integers(3, size=60), prior=prior) for _ in range(8)
    ]
    found = [one for one in kept if one.kept_prior]
    assert found
    for one in found:
        np.testing.assert_allclose(one.factor @ one.factor.T, prior, atol=1e-12)
        assert (one.result, one.penalty) == (None, None)
        assert one.scores[0][1] >= max(score for _, score in one.scores)
        assert one.n_constraints == 600


@pytest.mark.parametrize("kind", ["pairs", "similar", "dissimilar", "closer"])
def test_constraints_alone_are_enough(kind: str) -> None:
    rows, codes = noisy(240)
    train = codes[:120]
    if kind == "closer":
        triplets = [(i, i + 3, i + 1) for i in range(117)] + [(i, i + 6, i + 2) for i in range(114)]
        side = c.closer(triplets)
    else:
        same, different = c.from_labels(train, n_pairs=400, random_state=0).blocks
        side = c.similar(same.ids) if kind != "dissimilar" else c.Constraints()
        side += c.dissimilar(different.ids) if kind != "similar" else c.Constraints()
    found = learned(rows[:120], constraints=side)
    assert found.n_constraints == len(side)
    # Never worse than the prior; similar or dissimilar pairs and comparisons all point at the two features.
    assert error(found.factor, rows, codes, 120) < error(np.eye(8), rows, codes, 120)


def test_few_constraints_are_learned_from_without_a_choice() -> None:
    found = learned(noisy(10)[0], constraints=c.similar([(0, 3)]) + c.dissimilar([(0, 1)]))
    assert (found.scores, found.penalty, found.kept_prior) == ((), 1.0, False)


# units


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize(
    ("pairs", "scale", "tolerance"),
    [
        ("local", 2.0**-500, 1e-12),  # a power of two changes no rounding, so neighbours are the same
        ("local", 2.0**500, 1e-12),
        ("random", 1e-150, 1e-3),
        ("random", 1e-3, 1e-3),
        ("random", 1e150, 1e-3),
    ],
)
def test_the_unit_of_the_data_does_not_matter(
    divergence: nw.Divergence, pairs: str, scale: float, tolerance: float
) -> None:
    rows, codes = noisy(45, noise=2)
    settings = {"codes": codes, "divergence": divergence, "penalty": 0.5, "pairs": pairs, "tol": 1e-9}
    reference, found = learned(rows, **settings), learned(rows * scale, **settings)
    expected = reference.factor @ reference.factor.T
    np.testing.assert_allclose(found.factor @ found.factor.T, expected, rtol=tolerance, atol=0.1 * tolerance)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_the_size_of_the_prior_does_not_matter(divergence: nw.Divergence) -> None:
    rows, codes = noisy(45, noise=2)
    one, hundred = (
        learned(rows, codes=codes, divergence=divergence, penalty=0.5, prior=size * np.eye(4), tol=1e-9)
        for size in (1.0, 100.0)
    )
    np.testing.assert_allclose(
        hundred.factor @ hundred.factor.T, 100 * one.factor @ one.factor.T, rtol=1e-3, atol=1e-2
    )


def test_logdets_penalty_is_that_of_the_problem() -> None:
    rows, _ = noisy(30)
    side = c.at_most([(0, 3), (3, 6)], 1.0) + c.at_least([(0, 1), (4, 5)], 300.0)
    found = learned(rows, constraints=side, penalty=0.7)
    expected = nw.solve(nw.Problem(rows, side, penalty=0.7)).matrix
    np.testing.assert_allclose(found.factor @ found.factor.T, expected, rtol=1e-5, atol=1e-6)


# hard cases


HARD_CASES = {
    "two": (RNG.standard_normal((2, 3)), [0, 1]),
    "same": (RNG.standard_normal((2, 3)), [0, 0]),
    "four": (RNG.standard_normal((4, 3)), [0, 0, 1, 1]),
    "one-class": (RNG.standard_normal((20, 3)), [0] * 20),
    "all-classes": (RNG.standard_normal((20, 3)), list(range(20))),
    "lonely": (RNG.standard_normal((21, 3)), [0] * 19 + [1, 2]),
    "line": (RNG.standard_normal((20, 1)), [0, 1] * 10),
    "wide": (RNG.standard_normal((12, 40)), [0, 1, 2] * 4),
    "constant": (RNG.standard_normal((30, 3)) * [1.0, 1e-9, 0.0], [0, 1, 2] * 10),
    "twins": (np.repeat(RNG.standard_normal((5, 3)), 6, axis=0), [0, 1, 2] * 10),
    "clones": (np.repeat(RNG.standard_normal((5, 3)), 6, axis=0), np.repeat([0, 1, 0, 1, 2], 6)),
    "far": (1e6 + RNG.standard_normal((30, 3)), [0, 1, 2] * 10),
    "equal": (np.ones((10, 3)), [0, 1] * 5),
}


@crossed(data=HARD_CASES, pairs=["local", "random"], penalty=[None, 1.0], divergence=DIVERGENCES)
def test_hard_cases(data: tuple[Any, Any], pairs: str, penalty: Any, divergence: nw.Divergence) -> None:
    rows, codes = data
    found = learned(rows, codes=np.asarray(codes), pairs=pairs, penalty=penalty, divergence=divergence)
    assert np.isfinite(found.factor).all()
    assert found.factor.shape[0] == rows.shape[1]
    assert found.kept_prior == (found.result is None)
    assert found.kept_prior or found.n_constraints > 0


# progress, interruption and warm starts


def test_a_callback_sees_every_solve_and_can_end_all_of_it() -> None:
    rows, codes = noisy()
    records: list[nw.Record] = []
    found = learned(rows, codes=codes, callback=records.append)
    assert found.result is not None
    starts = [record.iteration for record in records].count(1)
    assert starts == 1 + (len(found.scores) - 1) + 2  # two first rounds, the path, the last solve
    stopped = learned(rows, codes=codes, callback=lambda record: record.iteration == 2)
    assert stopped.result is not None
    assert stopped.result.status is nw.Status.INTERRUPTED
    np.testing.assert_array_equal(stopped.factor, stopped.result.factor)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("prior", [None, np.diag([1.0, 2.0, 0.5, 3.0])], ids=["identity", "diagonal"])
def test_where_a_solve_starts_does_not_change_where_it_ends(
    divergence: nw.Divergence, prior: np.ndarray | None
) -> None:
    rows, codes = noisy(60, noise=2)
    side = c.from_labels(codes, n_pairs=200, random_state=0)
    weak, strong = (nw.Problem(rows, side, divergence, prior, penalty) for penalty in (0.1, 0.4))
    start = nw.solve(weak, tol=1e-4).factor
    cold, warm = nw.solve(strong, tol=1e-9), nw.solve(strong, tol=1e-9, start=start)
    singular = nw.solve(strong, tol=1e-9, start=start[:, :1])
    for found in (warm, singular):
        assert found.status is nw.Status.SOLVED
        np.testing.assert_allclose(found.matrix, cold.matrix, rtol=1e-3, atol=1e-4)
    newton = nw.solvers.Newton()
    assert nw.solve(strong, newton, start=cold.factor).n_iter < nw.solve(strong, newton).n_iter


def test_a_start_that_does_not_fit_is_refused() -> None:
    problem = nw.Problem(np.eye(3), c.at_most([(0, 1)], 1.0))
    with pytest.raises(ValueError, match="start must have 3 rows, as M has, got 2"):
        nw.solve(problem, start=np.eye(2))

    class Plain:
        def iterates(self, form: Any) -> Any:
            return nw.solvers.Newton().iterates(form)

    with pytest.raises(ValueError, match="Plain cannot start from a given matrix"):
        nw.solve(problem, Plain(), start=np.eye(3))


def test_a_start_serves_where_the_constraints_span_little() -> None:
    rows = RNG.standard_normal((10, 8))
    problem = nw.Problem(rows, c.at_most([(0, 1), (2, 3)], 0.1))
    cold = nw.solve(problem)
    warm = nw.solve(problem, start=cold.factor)
    np.testing.assert_allclose(warm.matrix, cold.matrix, rtol=1e-4, atol=1e-6)
    assert warm.n_iter <= 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_interruption_gives_the_best_that_was_tried_and_not_what_had_just_begun() -> None:
    """The first iterate of a new solve is the prior; what the choice of the penalty found is better."""
    data = nw.datasets.load("wine")
    X, y = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0) * np.geomspace(0.1, 10.0, 13), data.y

    def stopped(iterations: float) -> nw.MetricLearner:
        seen = iter(range(1000))
        learner = nw.MetricLearner(random_state=0, callback=lambda record: next(seen) + 1 >= iterations)
        return learner.fit(X, y)

    prior, full = stopped(1), stopped(math.inf)
    late = [stopped(end).score(X, y) for end in range(full.n_iter_ // 2, full.n_iter_, 3)]
    assert min(late) > (prior.score(X, y) + full.score(X, y)) / 2


@pytest.mark.parametrize("divergence", ["logdet", "vonneumann", "frobenius"])
def test_constraints_are_bound_once_for_all_penalties(
    divergence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours are drawn twice for the path and twice for the fit, and each draw is bound once."""
    bound: list[int] = []
    bind = binding.bind_rows

    def counted(*arguments: Any) -> Any:
        bound.append(1)
        return bind(*arguments)

    monkeypatch.setattr(binding, "bind_rows", counted)
    X, y = load_iris(return_X_y=True)
    learner = nw.MetricLearner(divergence=divergence, random_state=0).fit(X, y)
    assert len(learner.penalty_scores_) > 3
    assert len(bound) == 4
