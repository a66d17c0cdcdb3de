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
from nearwise.learners.grades import Grade
from nearwise.linalg import nearest
from nearwise.study import figures
from nearwise.study.figures import Figure, Interval, figure, share

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
    return {found.name: found for found in figures.from_labels(BEFORE, AFTER, **arguments)}


def constrained(side: c.Constraints, seed: int = 0) -> dict[str, Figure]:
    found = figures.from_constraints(BEFORE, AFTER, side, len(X), seed)
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


def test_order_of_pairs_is_the_area_under_the_roc_curve() -> None:
    i, j = np.triu_indices(len(QUERIES), 1)
    i, j = QUERIES[i], QUERIES[j]
    found = labelled()["pair ROC-AUC"]
    for distance, interval in ((BEFORE, found.before), (AFTER, found.after)):
        expected = roc_auc_score(y[i] == y[j], -distance.pairs(i, j))
        assert interval.value == pytest.approx(expected, abs=1e-9)  # there are fewer pairs than are drawn
    assert found.n == len(QUERIES)


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


def test_large_data_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "LARGEST_SAMPLE", 30)
    found = labelled()
    assert found["5-NN error"].n == 30
    pairs = np.arange(100).reshape(-1, 2)
    (order,) = constrained(c.closer(np.column_stack([pairs, pairs[:, 1] + 50]))).values()
    assert order.n == 30
    whole = labelled(queries=np.arange(len(X)), known=None)["5-NN error"]
    assert whole.n == 30  # of which every one asks all other rows
    assert whole.after.value < 0.2


def test_same_seed_same_figures_and_other_draws_other_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert labelled() == labelled()
    monkeypatch.setattr(figures, "PAIRS", 200)
    name = "pair ROC-AUC"
    assert labelled()[name].before != labelled(seed=1)[name].before


def test_interval_of_a_mean_is_that_of_students_t() -> None:
    each = np.random.RandomState(0).standard_normal(20) + 5
    found = figure("mean", [Grade(each.mean(), each)] * 2, False, 20, highest=np.inf)
    expected = stats.ttest_1samp(each, 0.0).confidence_interval()
    assert found.before == pytest.approx((each.mean(), *expected), abs=1e-9)
    assert found.before == found.after
    assert found.change == (0.0, 0.0, 0.0)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.RandomState(0)
    covered = 0
    for _ in range(200):
        outcomes = (rng.rand(80) < 0.2).astype(float)
        low, high = share("error", [outcomes, outcomes], True).before[1:]
        covered += low <= 0.2 <= high
    assert covered / 200 >= 0.94


@pytest.mark.parametrize(("name", "largest"), [("clustering NMI", 60), ("pair ROC-AUC", 60)])
def test_standard_errors_are_those_of_the_jackknife(name: str, largest: int) -> None:
    """An object's contribution is what the figure would lose without it: leave each of them out."""
    queries = QUERIES[:largest]

    def grade(rows: NDArray[Any]) -> Grade:
        if "ROC" in name:
            i, j = np.triu_indices(len(rows), 1)
            pairs = np.stack([rows[i], rows[j]], axis=1)
            same = y[rows[i]] == y[rows[j]]
            return figures._order(BEFORE, pairs, same, np.stack([i, j], axis=1), len(rows))
        return figures._information(y[rows], clusters[np.searchsorted(queries, rows)])

    clusters = KMeans(3, n_init=4, random_state=0).fit_predict(RAW[queries])
    n = len(queries)
    whole = grade(queries)
    without = np.array([grade(np.delete(queries, k)).score for k in range(n)])
    error = np.sqrt((n - 1) / n * np.square(without - without.mean()).sum())
    assert whole.lead(Grade(0.0, np.zeros(n)))[1] == pytest.approx(error, rel=0.1)


def test_no_error_in_few_objects_is_no_certainty() -> None:
    found = share("error", [np.zeros(30), np.ones(30)], True)
    bound = stats.binomtest(0, 30).proportion_ci(0.95, "exact").high
    assert found.before == pytest.approx((0.0, 0.0, bound))
    assert found.after == pytest.approx((1.0, 1.0 - bound, 1.0))


def test_change_is_paired() -> None:
    """Two errors that are nearly the same objects' differ clearly, although their own intervals overlap."""
    before = np.zeros(400)
    before[:60] = 1
    after = before.copy()
    after[:20] = 0
    found = share("error", [before, after], True)
    assert found.after.high > found.before.low
    assert found.change.high < 0
    assert found.verdict == "better"
    assert share("error", [after, before], True).verdict == "worse"
    few = before.copy()
    few[:5] = 0  # five of five outcomes changed for the better: p = 1/16 by the sign test
    assert share("error", [before, few], True).verdict == "not clear"
    few[:6] = 0  # p = 1/32
    assert share("error", [before, few], True).verdict == "better"
    assert share("share", [after, before], False).verdict == "better"
    shuffled = np.random.RandomState(0).permutation(before)
    assert share("error", [before, shuffled], True).verdict == "not clear"


def test_texts() -> None:
    percent = Figure("5-NN error", Interval(0.103, 0.089, 0.118), Interval(0.05, 0.04, 0.0603), True)
    assert percent.texts() == ("10.3 % (8.9 to 11.8)", "5.0 % (4.0 to 6.0)")
    assert percent.verdict == "not clear"
    number = Figure("NMI", Interval(0.5, 0.4, 0.6), Interval(1, 0.9, 1), False, None, 10, percent=False)
    assert number.texts() == ("0.50 (0.40 to 0.60)", "1.00 (0.90 to 1.00)")


def test_what_cannot_be_measured_is_left_out() -> None:
    one_class = {f.name for f in figures.from_labels(BEFORE, AFTER, np.zeros(len(X), int), QUERIES, KNOWN)}
    assert one_class == {"5-NN error", "recall@5"}
    unique = {f.name for f in figures.from_labels(BEFORE, AFTER, np.arange(len(X)), QUERIES, KNOWN)}
    assert unique == {"5-NN error", "recall@5"}
    assert figures.from_constraints(BEFORE, AFTER, c.Constraints(), len(X)) == []


def test_equal_objects_give_figures_too() -> None:
    zeros = Euclidean(np.zeros((len(X), 2)))
    found = figures.from_labels(zeros, zeros, y, QUERIES, KNOWN)
    assert all(np.isfinite([*f.before, *f.after, *f.change]).all() for f in found)
    assert next(f for f in found if "ROC" in f.name).before.value == 0.5


@pytest.mark.parametrize("size", [10, 100, 3000])
def test_neighbors_are_searched_in_blocks_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = figures.from_labels(BEFORE, AFTER, y, QUERIES)[:2]
    monkeypatch.setattr(nearest, "NUMBERS", size)
    assert figures.from_labels(BEFORE, AFTER, y, QUERIES)[:2] == whole


@pytest.mark.parametrize(("n_similar", "verdict"), [(4, "not clear"), (5, "better")])
def test_a_change_that_rests_on_few_pairs_of_a_kind_is_not_clear(n_similar: int, verdict: str) -> None:
    old = Euclidean(np.repeat([0.0, 3.0, 2.0, 5.0], [5, 5, 3, 7])[:, np.newaxis])
    new = Euclidean(np.repeat([0.0, 9.0], 10)[:, np.newaxis])
    similar = [(k, k + 5) for k in range(n_similar)]
    side = c.similar(similar) + c.dissimilar([(k, k + 8) for k in range(3, 10)])
    (found,) = figures.from_constraints(old, new, side, 20)
    assert found.change is not None
    assert found.change.value > 0
    assert found.verdict == verdict
