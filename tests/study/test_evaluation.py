"""Figures before and after: against scikit-learn's definitions, and intervals against what they promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize_scalar
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import normalized_mutual_info_score, pairwise_distances, roc_auc_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from nearwise import constraints as c
from nearwise.linalg import nearest
from nearwise.study import evaluation, resampling
from nearwise.study.resampling import Figure, Interval, figure, mean, share

X, y = load_wine(return_X_y=True)
RAW, SCALED = X, (X - X.mean(axis=0)) / X.std(axis=0)
QUERIES = np.arange(len(X))[::3]
KNOWN = np.setdiff1d(np.arange(len(X)), QUERIES)


@dataclass(frozen=True, eq=False)
class Euclidean:
    rows: NDArray[Any]

    def pairs(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[Any]:
        return np.square(self.rows[i] - self.rows[j]).sum(axis=1)

    def products(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[Any]:
        return np.einsum("ij,ij->i", self.rows[i], self.rows[j])

    def between(self, rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
        return pairwise_distances(self.rows[rows], self.rows[others], "sqeuclidean")


BEFORE, AFTER = Euclidean(RAW), Euclidean(SCALED)


def labelled(**changes: Any) -> dict[str, Figure]:
    arguments = {"codes": y, "queries": QUERIES, "known": KNOWN, "seed": 0} | changes
    return {found.name: found for found in evaluation.from_labels(BEFORE, AFTER, **arguments)}


def constrained(side: c.Constraints, seed: int = 0) -> dict[str, Figure]:
    found = evaluation.from_constraints(BEFORE, AFTER, side, len(X), seed)
    return {figure.name: figure for figure in found}


@pytest.mark.long
def test_neighbors_err_as_those_of_scikit_learn() -> None:
    found = labelled()["5-NN error"]
    for rows, interval in ((RAW, found.before), (SCALED, found.after)):
        model = KNeighborsClassifier(5).fit(rows[KNOWN], y[KNOWN])
        assert interval.value == pytest.approx(1 - model.score(rows[QUERIES], y[QUERIES]), abs=1e-12)
    alone = labelled(queries=np.arange(len(X)), known=None)["5-NN error"]
    predicted = cross_val_predict(KNeighborsClassifier(5), SCALED, y, cv=LeaveOneOut())
    assert alone.after.value == pytest.approx(np.mean(predicted != y), abs=1e-12)


def test_recall_is_the_share_of_queries_that_find_their_class() -> None:
    few = np.concatenate(
        [np.flatnonzero(y == 0)[:40], np.flatnonzero(y == 1)[:5], np.flatnonzero(y == 2)[:5]]
    )
    queries = np.setdiff1d(np.arange(len(X)), few)
    found = labelled(queries=queries, known=few)["recall@5"]
    near = few[np.argsort(pairwise_distances(RAW[queries], RAW[few]), axis=1)[:, :5]]
    expected = np.mean([(y[row] == y[query]).any() for row, query in zip(near, queries, strict=True)])
    assert 0 < expected < 1
    assert found.before.value == pytest.approx(expected, abs=1e-12)


def test_clusters_match_classes_as_scikit_learn_counts() -> None:
    found = labelled()["clustering NMI"]
    for rows, interval in ((RAW, found.before), (SCALED, found.after)):
        clusters = KMeans(3, n_init=20, random_state=1).fit_predict(rows[QUERIES])
        expected = normalized_mutual_info_score(y[QUERIES], clusters)
        assert interval.value == pytest.approx(expected, abs=1e-9)
    assert 0.0 < found.before.low < found.before.value < found.before.high < 1.0
    assert found.verdict == "better"


def test_a_random_clustering_is_not_hidden_by_the_bias_of_resamples() -> None:
    """NMI of unrelated labels is larger on resamples than on the objects; the interval holds the value."""
    noise = Euclidean(np.random.RandomState(0).standard_normal((60, 3)))
    codes = np.random.RandomState(1).randint(10, size=60)
    found = {f.name: f for f in evaluation.from_labels(noise, noise, codes, np.arange(60))}["clustering NMI"]
    assert found.before.low < found.before.value < found.before.high
    assert found.before.high - found.before.value < 0.2


def test_order_of_pairs_is_the_area_under_the_roc_curve() -> None:
    i, j = np.triu_indices(len(QUERIES), 1)
    i, j = QUERIES[i], QUERIES[j]
    found = labelled()["pair ROC-AUC"]
    for distance, interval in ((BEFORE, found.before), (AFTER, found.after)):
        expected = roc_auc_score(y[i] == y[j], -distance.pairs(i, j))
        assert interval.value == pytest.approx(expected, abs=1e-9)  # there are fewer pairs than are drawn
    assert found.n == len(QUERIES)


def test_weighted_area_is_that_of_repeated_pairs_with_ties() -> None:
    rng = np.random.RandomState(0)
    values, similar = rng.randint(8, size=40).astype(float), rng.rand(40) < 0.4
    weights = rng.randint(4, size=(3, 40)).astype(float)
    found = evaluation._area(values, similar)(weights)
    for row, area in zip(weights.astype(int), found, strict=True):
        expected = roc_auc_score(np.repeat(similar, row), -np.repeat(values, row))
        assert area == pytest.approx(expected, abs=1e-12)
    assert np.isnan(evaluation._area(values, similar)(similar[np.newaxis].astype(float)))


def test_a_pair_counts_as_often_as_its_objects_do(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[NDArray[Any]] = []
    monkeypatch.setattr(evaluation, "_area", lambda *_: lambda w: seen.append(w) or np.zeros(len(w)))
    rng = np.random.RandomState(0)
    evaluation._order_of_labels(BEFORE, AFTER, y, QUERIES, rng)
    weights = np.concatenate(seen[2:])  # the first two are of the objects as they are
    assert {1.0} == set(np.unique(seen[0]))
    # two multiplicities of mean 1, nearly independent: the mean of their product is 1 - 1/n
    assert weights.mean() == pytest.approx(1 - 1 / len(QUERIES), abs=0.01)


def test_constraints_are_graded_by_what_they_say() -> None:
    rng = np.random.RandomState(0)
    pairs = rng.permutation(len(X))[:120].reshape(-1, 2)
    similar = y[pairs[:, 0]] == y[pairs[:, 1]]
    found = constrained(c.similar(pairs[similar]) + c.dissimilar(pairs[~similar]))
    (order,) = found.values()
    assert order.name == "given pairs' ROC-AUC"
    assert order.after.value == pytest.approx(roc_auc_score(similar, -AFTER.pairs(*pairs.T)))
    assert order.n == len(pairs)

    triplets = rng.permutation(len(X))[:150].reshape(-1, 3)
    a, p, n = triplets.T
    (order,) = constrained(c.closer(triplets)).values()
    assert order.name == "triplets in order"
    assert order.before.value == pytest.approx(np.mean(BEFORE.pairs(a, p) <= BEFORE.pairs(a, n)))

    bounds = c.at_most(pairs[:30], 9.0) + c.at_least(pairs[30:], 25.0)
    (kept,) = constrained(bounds).values()
    near, far = AFTER.pairs(*pairs[:30].T) <= 9, AFTER.pairs(*pairs[30:].T) >= 25
    assert kept.name == "bounds that hold"
    assert kept.after.value == pytest.approx(np.concatenate([near, far]).mean())


def test_pairs_of_one_kind_are_compared_with_random_pairs() -> None:
    same = np.flatnonzero(y == 0)[:40].reshape(-1, 2)
    (found,) = constrained(c.similar(same)).values()
    assert found.name == "given pairs' ROC-AUC, against random ones"
    assert found.after.value > 0.8
    (found,) = constrained(c.dissimilar(same)).values()
    assert found.name == "given pairs' ROC-AUC, against random ones"
    assert found.after.value < 0.2


def test_error_of_distances_is_relative_and_before_has_its_best_unit() -> None:
    pairs = np.random.RandomState(0).permutation(len(X))[:100].reshape(-1, 2)
    targets = np.sqrt(AFTER.pairs(*pairs.T)) * np.random.RandomState(1).uniform(0.9, 1.1, len(pairs))
    (found,) = constrained(c.equal(pairs, targets**2)).values()
    assert found.lower_is_better
    after = np.abs(np.sqrt(AFTER.pairs(*pairs.T)) - targets) / targets
    assert found.after.value == pytest.approx(after.mean())
    old = np.sqrt(BEFORE.pairs(*pairs.T)) / targets
    best = minimize_scalar(
        lambda unit: np.mean(np.abs(unit * old - 1)), bounds=(0, 1 / old.min()), method="bounded"
    )
    assert found.before.value <= best.fun + 1e-6
    assert found.before.value == pytest.approx(best.fun, rel=1e-3)
    assert found.verdict == "better"


def test_same_seed_same_figures_and_another_seed_other_intervals() -> None:
    assert labelled() == labelled()
    other = labelled(seed=1)
    name = "pair ROC-AUC"
    assert other[name].before.value == labelled()[name].before.value
    assert other[name].before != labelled()[name].before


def test_large_data_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LARGEST_SAMPLE", 30)
    found = labelled()
    assert found["5-NN error"].n == 30
    pairs = np.arange(100).reshape(-1, 2)
    (order,) = constrained(c.closer(np.column_stack([pairs, pairs[:, 1] + 50]))).values()
    assert order.n == 30
    whole = labelled(queries=np.arange(len(X)), known=None)["5-NN error"]
    assert whole.n == 30  # of which every one asks all other rows
    assert whole.after.value < 0.2


def test_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    outcomes = np.random.RandomState(0).standard_normal(2000) + 5
    found = figure("mean", [mean(outcomes)] * 2, [2000], False, 0, largest=np.inf)
    error = stats.norm.ppf(0.975) * outcomes.std() / np.sqrt(2000)
    assert found.before.value == pytest.approx(outcomes.mean())
    assert found.before.low == pytest.approx(outcomes.mean() - error, abs=0.1 * error)
    assert found.before.high == pytest.approx(outcomes.mean() + error, abs=0.1 * error)
    assert found.before == found.after
    assert found.change == (0.0, 0.0, 0.0)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.RandomState(0)
    covered = 0
    for seed in range(200):
        outcomes = (rng.rand(80) < 0.2).astype(float)
        low, high = share("error", [outcomes, outcomes], True, seed).before[1:]
        covered += low <= 0.2 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_groups_are_resampled_apart() -> None:
    sums: list[NDArray[Any]] = []

    def statistic(weights: NDArray[Any]) -> NDArray[Any]:
        sums.append(np.stack([weights[:, :30].sum(axis=1), weights[:, 30:].sum(axis=1)]))
        return weights[:, 0]

    figure("x", [statistic, statistic], [30, 70], False, 0, largest=np.inf)
    assert np.array_equal(np.unique(np.concatenate(sums, axis=1)[0]), [30.0])
    assert np.array_equal(np.unique(np.concatenate(sums, axis=1)[1]), [70.0])


def test_no_error_in_few_objects_is_no_certainty() -> None:
    found = share("error", [np.zeros(30), np.ones(30)], True, 0)
    bound = stats.binomtest(0, 30).proportion_ci(0.95, "exact").high
    assert found.before == pytest.approx((0.0, 0.0, bound))
    assert found.after == pytest.approx((1.0, 1.0 - bound, 1.0))


def test_change_is_paired() -> None:
    """Two errors that are nearly the same objects' differ clearly, although their own intervals overlap."""
    before = np.zeros(400)
    before[:60] = 1
    after = before.copy()
    after[:20] = 0
    found = share("error", [before, after], True, 0)
    assert found.after.high > found.before.low
    assert found.change.high < 0
    assert found.verdict == "better"
    assert share("error", [after, before], True, 0).verdict == "worse"
    few = before.copy()
    few[:5] = 0  # five of five outcomes changed for the better: p = 1/16 by the sign test
    assert share("error", [before, few], True, 0).verdict == "not clear"
    few[:6] = 0  # p = 1/32
    assert share("error", [before, few], True, 0).verdict == "better"
    assert share("share", [after, before], False, 0).verdict == "better"
    shuffled = np.random.RandomState(0).permutation(before)
    assert share("error", [before, shuffled], True, 0).verdict == "not clear"


def test_texts() -> None:
    percent = Figure("5-NN error", Interval(0.103, 0.089, 0.118), Interval(0.05, 0.04, 0.0603), True)
    assert percent.texts() == ("10.3 % (8.9 to 11.8)", "5.0 % (4.0 to 6.0)")
    assert percent.verdict == "not clear"
    number = Figure("NMI", Interval(0.5, 0.4, 0.6), Interval(1, 0.9, 1), False, None, 10, percent=False)
    assert number.texts() == ("0.50 (0.40 to 0.60)", "1.00 (0.90 to 1.00)")


def test_what_cannot_be_measured_is_left_out() -> None:
    one_class = {f.name for f in evaluation.from_labels(BEFORE, AFTER, np.zeros(len(X), int), QUERIES, KNOWN)}
    assert one_class == {"5-NN error", "recall@5"}
    unique = {f.name for f in evaluation.from_labels(BEFORE, AFTER, np.arange(len(X)), QUERIES, KNOWN)}
    assert unique == {"5-NN error", "recall@5"}
    assert evaluation.from_constraints(BEFORE, AFTER, c.Constraints(), len(X)) == []


def test_equal_objects_give_figures_too() -> None:
    zeros = Euclidean(np.zeros((len(X), 2)))
    found = evaluation.from_labels(zeros, zeros, y, QUERIES, KNOWN)
    assert all(np.isfinite([*f.before, *f.after, *f.change]).all() for f in found)
    assert next(f for f in found if "ROC" in f.name).before.value == 0.5


@pytest.mark.parametrize("size", [10, 100, 3000])
def test_neighbors_are_searched_in_blocks_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluation.from_labels(BEFORE, AFTER, y, QUERIES)[:2]
    monkeypatch.setattr(nearest, "NUMBERS", size)
    assert evaluation.from_labels(BEFORE, AFTER, y, QUERIES)[:2] == whole


def test_resamples_come_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = labelled()["recall@5"]
    monkeypatch.setattr(resampling, "AT_A_TIME", 1000)
    part = labelled()["recall@5"]
    assert part.before.value == whole.before.value
    assert part.before.low == pytest.approx(whole.before.low, abs=0.05)


@pytest.mark.parametrize(("n_similar", "verdict"), [(4, "not clear"), (5, "better")])
def test_a_change_that_rests_on_few_pairs_of_a_kind_is_not_clear(n_similar: int, verdict: str) -> None:
    old = Euclidean(np.repeat([0.0, 3.0, 2.0, 5.0], [5, 5, 3, 7])[:, np.newaxis])
    new = Euclidean(np.repeat([0.0, 9.0], 10)[:, np.newaxis])
    similar = [(k, k + 5) for k in range(n_similar)]
    side = c.similar(similar) + c.dissimilar([(k, k + 8) for k in range(3, 10)])
    (found,) = evaluation.from_constraints(old, new, side, 20)
    assert found.change is not None
    assert found.change.value > 0
    assert found.verdict == verdict
