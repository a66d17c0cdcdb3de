"""MetricLearner against the problem it states, and what it says when there is little to learn from."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners._bases import linear_basis

X, y = load_iris(return_X_y=True)
rng = np.random.default_rng(0)
Z = rng.normal(size=(30, 6)) * [1, 1, 2, 2, 3, 3]
PAIRS = rng.permutation(30).reshape(-1, 2)
D0 = np.sum((Z[PAIRS[:, 0]] - Z[PAIRS[:, 1]]) ** 2, axis=1)
HARD = c.at_most(PAIRS[:4], 0.8 * D0[:4]) + c.at_least(PAIRS[4:8], 1.3 * D0[4:8])
DIVERGENCES = {"logdet": nw.LogDet(), "vonneumann": nw.VonNeumann(), "frobenius": nw.Frobenius()}
# a basis in which these constraints can be met, and which leaves some of every distance outside
INSIDE = np.eye(6)[:, :5]


def learner(**parameters: object) -> nw.MetricLearner:
    return nw.MetricLearner(**({"penalty": math.inf, "tol": 1e-9, "random_state": 0} | parameters))


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("given", [False, True])
def test_the_metric_is_the_solution_of_the_problem(name: str, given: bool) -> None:
    fitted = learner(divergence=DIVERGENCES[name] if given else name).fit(Z, constraints=HARD)
    expected = nw.solve(nw.Problem(Z, HARD, DIVERGENCES[name], penalty=math.inf), tol=1e-9)
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), expected.matrix, atol=1e-5)
    assert fitted.status_ is nw.Status.SOLVED
    assert fitted.result_.certificate.holds(1e-9)
    assert fitted.n_iter_ == fitted.result_.n_iter > 0
    assert fitted.n_constraints_used_ == len(HARD)


def test_a_prior_goes_into_the_features() -> None:
    """JKDD12 corollary 2: learn on x' W0^(1/2), and put W0^(1/2) on both sides of the answer."""
    A = rng.normal(size=(6, 6))
    W0 = A @ A.T + np.eye(6)
    values, vectors = np.linalg.eigh(W0)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inside = nw.solve(nw.Problem(Z @ root, HARD, penalty=math.inf), tol=1e-9).matrix
    fitted = learner(prior=W0).fit(Z, constraints=HARD)
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), root @ inside @ root, rtol=1e-5, atol=1e-4)


def test_the_covariance_prior_is_the_mahalanobis_distance() -> None:
    with pytest.warns(nw.PriorKeptWarning):
        fitted = learner(prior="covariance").fit(Z)
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), np.linalg.inv(np.cov(Z.T)))
    redundant = np.hstack([Z, Z[:, :2], np.ones((30, 1))])
    with pytest.warns(nw.PriorKeptWarning):
        fitted = learner(prior="covariance").fit(redundant)
    np.testing.assert_allclose(
        fitted.get_mahalanobis_matrix(), np.linalg.pinv(np.cov(redundant.T)), atol=1e-10
    )
    with pytest.raises(ValueError, match="covariance is zero"):
        learner(prior="covariance").fit(np.ones((5, 2)))


@pytest.mark.parametrize("prior", ["identity", np.diag([1.0, 2, 3, 4, 5, 6])])
def test_without_side_information_the_prior_is_returned_and_said(prior: object) -> None:
    with pytest.warns(nw.PriorKeptWarning, match="MetricLearner returns the prior: neither labels nor"):
        fitted = learner(prior=prior).fit(Z)
    expected = np.eye(6) if isinstance(prior, str) else prior
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), expected)
    assert fitted.result_ is None
    assert fitted.status_ is nw.Status.SOLVED
    assert fitted.kept_prior_
    assert fitted.n_constraints_used_ == 0


def test_labels_of_any_type_mean_the_same() -> None:
    names = np.array(["setosa", "versicolor", "virginica"])
    mixed = np.array([1, "one", 2.5], dtype=object)
    reference = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y).get_mahalanobis_matrix()
    for labels in (y.astype(float), names[y], mixed[y], list(names[y]), y.astype(np.int8), mixed[y].tolist()):
        fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, labels)
        np.testing.assert_array_equal(fitted.get_mahalanobis_matrix(), reference)
    two = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y == 0)
    np.testing.assert_array_equal(
        two.components_, nw.MetricLearner(penalty=1.0, random_state=0).fit(X, (y != 0) * 1).components_
    )


def test_labels_and_constraints_are_learned_from_together() -> None:
    far = c.at_least([(0, 1)], 50.0)
    both = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y, constraints=far)
    only = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    assert both.n_constraints_used_ == only.n_constraints_used_ + 1
    assert both.pair_distance([(0, 1)], X) > only.pair_distance([(0, 1)], X)


def test_the_defaults_improve_the_order_of_held_out_pairs() -> None:
    fitted = nw.MetricLearner(random_state=0).fit(X[::2], y[::2])
    with pytest.warns(nw.PriorKeptWarning):
        euclidean = nw.MetricLearner().fit(X[::2])
    assert fitted.score(X[1::2], y[1::2]) > euclidean.score(X[1::2], y[1::2])


def test_the_same_seed_gives_the_same_metric() -> None:
    for parameters in ({}, {"rank": 2, "basis": "kmeans", "penalty": 1.0}):
        first, second = (nw.MetricLearner(random_state=7, **parameters).fit(X, y) for _ in range(2))
        np.testing.assert_array_equal(first.components_, second.components_)


# subspaces


@pytest.mark.parametrize("basis", ["svd", rng.normal(size=(6, 6))], ids=["svd", "given"])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_basis_of_everything_gives_the_full_metric(basis: object, name: str) -> None:
    full = learner(divergence=name).fit(Z, constraints=HARD)
    reduced = learner(divergence=name, rank=6, basis=basis).fit(Z, constraints=HARD)
    np.testing.assert_allclose(
        reduced.get_mahalanobis_matrix(), full.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-5
    )


def test_a_subspace_solves_the_problem_with_the_rest_of_every_distance_fixed() -> None:
    """JKDD12 (11), against the same problem stated for all of M, of which a part is fixed."""
    cvxpy = pytest.importorskip("cvxpy")
    order = np.argsort(D0)
    pairs, d0 = PAIRS[order], D0[order]
    quadruples = np.hstack([pairs[6:8], pairs[8:10]])
    margins = d0[8:10] - d0[6:8] + 0.5
    sides = np.sum(Z[pairs[10:12, 0]] * Z[pairs[10:12, 1]], axis=1)
    total = Z.sum(axis=0)
    side = c.at_most(pairs[:2], 0.9 * d0[:2]) + c.at_least(pairs[2:4], 1.1 * d0[2:4])
    side += c.equal(pairs[4:6], 1.05 * d0[4:6]) + c.closer(quadruples, margins)
    side += c.similarity(pairs[10:12], sides - 0.5, "<=") + c.linear(
        np.ones((30, 30)), 0.9 * total @ total, "<="
    )
    fitted = learner(basis=INSIDE).fit(Z, constraints=side)

    F = cvxpy.Variable((5, 5), PSD=True)
    W = cvxpy.bmat([[F, np.zeros((5, 1))], [np.zeros((1, 5)), np.eye(1)]])

    def d(i: int, j: int) -> object:
        return cvxpy.trace(W @ np.outer(Z[i] - Z[j], Z[i] - Z[j]))

    rows = [d(*pairs[k]) <= 0.9 * d0[k] for k in (0, 1)] + [d(*pairs[k]) >= 1.1 * d0[k] for k in (2, 3)]
    rows += [d(*pairs[k]) == 1.05 * d0[k] for k in (4, 5)]
    rows += [d(i, j) + margin <= d(*far) for (i, j, *far), margin in zip(quadruples, margins, strict=True)]
    for (i, j), value in zip(pairs[10:12], sides, strict=True):
        rows.append(cvxpy.trace(W @ (np.outer(Z[i], Z[j]) + np.outer(Z[j], Z[i])) / 2) <= value - 0.5)
    rows.append(cvxpy.trace(W @ np.outer(total, total)) <= 0.9 * total @ total)
    cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(F) - cvxpy.log_det(F)), rows).solve(solver="CLARABEL")
    assert fitted.rank_ == 5
    assert np.abs(W.value - np.eye(6)).max() > 0.05
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), W.value, atol=1e-4)


def test_bounds_that_the_fixed_part_decides() -> None:
    outside = (Z[PAIRS[:, 0], 5] - Z[PAIRS[:, 1], 5]) ** 2
    k = int(np.argmax(outside))
    side = c.at_most(PAIRS[[0, k]], [2.0 * D0[0], 0.5 * outside[k]])
    with pytest.raises(ValueError, match=r"row 1: d\(.*outside the basis its value is fixed.*raise rank"):
        learner(basis=INSIDE).fit(Z, constraints=side)
    met = c.at_least(PAIRS[[k]], 0.5 * outside[k])
    assert learner(basis=INSIDE).fit(Z, constraints=met + HARD).n_constraints_used_ == len(HARD)


def test_distances_are_those_of_the_matrix_also_in_a_subspace() -> None:
    for parameters in ({}, {"rank": 2}, {"basis": "svd", "rank": 3}, {"prior": "covariance"}):
        fitted = nw.MetricLearner(penalty=1.0, random_state=0, **parameters).fit(X, y)
        expected = cdist(X, X, "mahalanobis", VI=fitted.get_mahalanobis_matrix())
        np.testing.assert_allclose(fitted.distances(X), expected, atol=1e-6)
        np.testing.assert_allclose(fitted.distances(X, X[:3], squared=True), expected[:, :3] ** 2, atol=1e-10)
        pairs = rng.integers(0, 150, size=(40, 2))
        expected = expected[pairs[:, 0], pairs[:, 1]]
        np.testing.assert_allclose(fitted.pair_distance(X[pairs]), expected, atol=1e-7)
        np.testing.assert_allclose(fitted.pair_distance(pairs, X), expected, atol=1e-7)
        np.testing.assert_allclose(fitted.pair_distance(pairs, X, squared=True), expected**2, atol=1e-10)
        np.testing.assert_allclose(fitted.pair_score(pairs, X), -expected, atol=1e-7)
        if "rank" not in parameters:
            np.testing.assert_allclose(pdist(fitted.transform(X)), pdist_of(fitted.distances(X)), atol=1e-6)
        assert fitted.components_.shape == (fitted.rank_, 4)
        np.testing.assert_allclose(fitted.transform(X), X @ fitted.components_.T)


def pdist_of(square: np.ndarray) -> np.ndarray:
    return square[np.triu_indices(len(square), 1)]


@pytest.mark.parametrize("basis", ["svd", "kmeans", "class_means", "class_clusters", "auto"])
def test_sparse_data_give_the_metric_of_dense_data(basis: str) -> None:
    S = sparse.random_array((60, 40), density=0.2, rng=1, format="csr")
    labels = np.arange(60) % 3
    settings = {"rank": 5, "basis": basis, "penalty": 1.0, "random_state": 0}
    from_sparse = nw.MetricLearner(**settings).fit(S, labels)
    from_dense = nw.MetricLearner(**settings).fit(S.toarray(), labels)
    np.testing.assert_allclose(from_sparse.distances(S), from_dense.distances(S.toarray()), atol=1e-6)
    assert from_sparse.transform(S).shape == (60, from_sparse.rank_)


def projector(columns: np.ndarray) -> np.ndarray:
    return columns @ np.linalg.pinv(columns)


def test_bases_span_what_they_say() -> None:
    codes = np.arange(30) % 4
    means = np.stack([Z[codes == k].mean(axis=0) for k in range(4)])
    leading = np.linalg.svd(Z)[2][:3].T
    given = rng.normal(size=(6, 2))
    draw = np.random.RandomState
    cases = [
        (linear_basis(Z, "svd", 3, None, draw(0)), leading),
        (linear_basis(sparse.csr_array(Z), "svd", 3, None, draw(0)), leading),
        (linear_basis(Z, "class_means", 9, codes, draw(0)), means.T),
        (linear_basis(Z, "class_means", 4, codes, draw(0)), means.T),
        (linear_basis(Z, "auto", 4, codes, draw(0)), means.T),
        (linear_basis(Z, "kmeans", 30, None, draw(0)), Z.T),
        (linear_basis(Z, "kmeans", 1, None, draw(0)), Z.mean(axis=0)[:, None]),
        (linear_basis(Z, given, 1, None, draw(0)), given),
        (linear_basis(Z, np.hstack([given, given]), 1, None, draw(0)), given),
        (linear_basis(np.zeros((3, 2)), "svd", 2, None, draw(0)), np.eye(2)[:, :1]),
    ]
    for basis, columns in cases:
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
        np.testing.assert_allclose(basis @ basis.T, projector(columns), atol=1e-7)
    wide = rng.normal(size=(40, 60))
    assert linear_basis(wide, "class_clusters", 10, np.arange(40) % 4, draw(0)).shape == (60, 10)
    assert linear_basis(wide, "class_clusters", 3, np.arange(40) % 4, draw(0)).shape == (60, 3)
    # the means of two classes of centred data are dependent: "auto" adds what they lack
    codes = np.arange(40) % 2
    for data in (centred := wide - wide.mean(axis=0), sparse.csr_array(centred)):
        assert linear_basis(data, "class_clusters", 2, codes, draw(0)).shape == (60, 1)
        basis = linear_basis(data, "auto", 2, codes, draw(0))
        assert basis.shape == (60, 2)
        np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-14)
    assert linear_basis(wide, "kmeans", 7, None, draw(0)).shape == (60, 7)


def test_clusters_within_classes_are_found() -> None:
    centres = 10.0 * np.eye(8)[:6]
    rows = np.repeat(centres, 20, axis=0) + 0.01 * rng.normal(size=(120, 8))
    codes = np.repeat(np.arange(3), 40)
    basis = linear_basis(rows, "class_clusters", 6, codes, np.random.RandomState(0))
    np.testing.assert_allclose(basis @ basis.T, np.diag([1.0] * 6 + [0.0] * 2), atol=1e-2)


def test_wide_data_are_learned_in_a_subspace_by_default() -> None:
    wide = rng.normal(size=(30, 1200))
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(wide, np.arange(30) % 2)
    assert fitted.rank_ <= 30
    assert fitted.metric_.basis.shape == (1200, fitted.rank_)
    for narrow in (Z, sparse.csr_array(Z)):
        assert nw.MetricLearner(penalty=1.0).fit(narrow, np.arange(30) % 2).metric_.basis is None


NEWSGROUPS = """
import resource
import nearwise as nw
from sklearn.feature_extraction.text import TfidfVectorizer

texts = nw.datasets.load("newsgroups20")
X = TfidfVectorizer(max_features=50_000).fit_transform(texts.X)
assert X.shape[1] == 50_000
learner = nw.MetricLearner(random_state=0).fit(X, texts.y)
assert learner.transform(X).shape == (X.shape[0], learner.rank_)
learner.score(X[:500], texts.y[:500])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


@pytest.mark.slow
def test_newsgroups_with_50_000_features_fit_in_2_gb(load_dataset: object) -> None:
    load_dataset("newsgroups20")
    done = subprocess.run([sys.executable, "-c", NEWSGROUPS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    gigabytes = float(done.stdout.split()[-1])
    print(f"peak memory {gigabytes:.2f} GB")
    assert gigabytes < 2.0


# side information by id


def test_constraints_by_id_and_by_row_number_mean_the_same() -> None:
    names = np.array([f"object {k}" for k in range(30)])
    shuffled = rng.permutation(30)
    by_name = c.at_most(names[PAIRS[:4]], 0.8 * D0[:4]) + c.at_least(names[PAIRS[4:8]], 1.3 * D0[4:8])
    fitted = learner().fit(Z[shuffled], constraints=by_name, sample_ids=names[shuffled])
    expected = learner().fit(Z, constraints=HARD)
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), atol=1e-6)


def test_constraints_on_absent_objects_are_dropped_and_counted() -> None:
    present = np.setdiff1d(np.arange(30), PAIRS[0])
    i, j = PAIRS[0]
    with pytest.warns(nw.UnknownIdsWarning, match=rf"1 of 8 constraints are left out.*: {i}, {j}; where"):
        fitted = learner().fit(Z[present], constraints=HARD, sample_ids=present)
    assert (fitted.n_constraints_used_, fitted.n_constraints_dropped_) == (len(HARD) - 1, 1)
    meant = learner().fit(Z[present], constraints=HARD.restricted_to(present)[0], sample_ids=present)
    np.testing.assert_array_equal(meant.get_mahalanobis_matrix(), fitted.get_mahalanobis_matrix())
    with pytest.warns(nw.UnknownIdsWarning, match="1 of 2 constraints"):
        fitted.score(Z[:3], constraints=c.closer([(0, 1, 2), (0, 1, 9)]), sample_ids=[0, 1, 2])


def test_constraints_on_unknown_objects_alone_are_refused() -> None:
    shown = ", ".join(str(k) for k in PAIRS.ravel()[:3])
    with pytest.raises(ValueError, match=rf"no object .* is in sample_ids: {shown}, \.\.\.; they hold 100"):
        learner().fit(Z, constraints=HARD, sample_ids=np.arange(100, 130))
    with pytest.raises(ValueError, match=r"no object .* they hold 'a0', for example"):
        learner().fit(Z, constraints=HARD, sample_ids=[f"a{k}" for k in range(30)])
    with (
        pytest.warns(nw.UnknownIdsWarning, match="1 of 1 constraints"),
        pytest.warns(nw.PriorKeptWarning, match="all 1 constraints are left out"),
    ):
        fitted = learner().fit(
            Z, constraints=c.at_most([("a0", "b0")], 1.0), sample_ids=[f"a{k}" for k in range(30)]
        )
    assert (fitted.n_constraints_used_, fitted.n_constraints_dropped_) == (0, 1)


def test_row_numbers_beyond_the_data_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not a row number below 10; in cross-validation.*pass sample_ids"):
        learner().fit(Z[:10], constraints=HARD)


def test_tuples_of_metric_learn_are_learned_from() -> None:
    signs = np.repeat([1, -1], [7, 8])
    rows, side = c.from_tuples(Z[PAIRS], signs)
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(rows, constraints=side)
    d = fitted.pair_distance(Z[PAIRS], squared=True)
    assert roc_auc_score(signs, -d) > roc_auc_score(signs, -D0)


@pytest.mark.filterwarnings("ignore:Function stable_cumsum:FutureWarning")
def test_the_bounds_and_slack_of_metric_learn_give_its_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    metric_learn = pytest.importorskip("metric_learn")
    # metric-learn 0.7 names an argument that scikit-learn 1.8 took away
    monkeypatch.setattr(metric_learn._util, "check_X_y", lambda rows, labels, **_: (rows, labels))
    monkeypatch.setattr(metric_learn._util, "check_array", lambda rows, **_: np.asarray(rows))
    monkeypatch.setattr(metric_learn.itml, "check_array", lambda rows, **_: np.asarray(rows))
    signs = np.repeat([1, -1], [7, 8])
    bounds = np.array([4.0, 60.0])
    itml = metric_learn.ITML(gamma=0.7, tol=1e-12, max_iter=20_000).fit(Z[PAIRS], signs, bounds=bounds)
    side = c.at_most(PAIRS[:7], bounds[0]) + c.at_least(PAIRS[7:], bounds[1])
    fitted = nw.MetricLearner(penalty=0.7, tol=1e-12).fit(Z, constraints=side)
    np.testing.assert_allclose(
        fitted.get_mahalanobis_matrix(), itml.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(fitted.pair_distance(Z[PAIRS]), itml.pair_distance(Z[PAIRS]), rtol=1e-4)


# scores


def test_the_score_counts_pairs_in_the_right_order() -> None:
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X[::2], y[::2])
    rows, labels = X[1::2], y[1::2]
    d = fitted.distances(rows)
    i, j = np.triu_indices(len(rows), 1)
    expected = roc_auc_score(labels[i] == labels[j], -d[i, j])
    assert fitted.score(rows, labels) == pytest.approx(expected)
    side = c.similar([(0, 1), (0, 2)]) + c.at_least([(0, 3), (4, 5)], 1.0)
    near, far = d[0, [1, 2]], d[[0, 4], [3, 5]]
    auc = np.mean([(a < b) + 0.5 * (a == b) for a in near for b in far])
    assert fitted.score(rows, constraints=side) == pytest.approx(auc)
    triplets = np.array([(0, 1, 30), (0, 30, 1), (5, 6, 60), (7, 7 + 1, 70)])
    share = np.mean(d[triplets[:, 0], triplets[:, 1]] < d[triplets[:, 0], triplets[:, 2]])
    assert fitted.score(rows, constraints=c.closer(triplets)) == pytest.approx(share)
    both = fitted.score(rows, constraints=side + c.closer(triplets))
    assert both == pytest.approx((4 * auc + 4 * share) / 8)


def test_a_score_needs_something_to_compare() -> None:
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    for arguments in ({}, {"y": np.zeros(150)}, {"constraints": c.similar([(0, 1)])}):
        with pytest.raises(ValueError, match=r"nothing to score by.*enable_metadata_routing"):
            fitted.score(X, **arguments)


# how a fit ends


def test_a_fit_that_is_not_solved_warns() -> None:
    with pytest.warns(ConvergenceWarning, match="Stopped at the limit of 1 iterations"):
        fitted = nw.MetricLearner(penalty=1.0, max_iter=1, random_state=0).fit(X, y)
    assert fitted.status_ is nw.Status.LIMIT


def test_a_callback_sees_every_iteration_and_can_stop() -> None:
    records: list[nw.Record] = []
    fitted = nw.MetricLearner(penalty=1.0, callback=records.append, random_state=0).fit(X, y)
    assert len(records) == fitted.n_iter_ >= fitted.result_.n_iter
    assert tuple(records[-fitted.result_.n_iter :]) == fitted.result_.history

    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        stopped = nw.MetricLearner(penalty=1.0, callback=lambda _: True, random_state=0).fit(X, y)
    assert stopped.status_ is nw.Status.INTERRUPTED
    assert np.isfinite(stopped.transform(X)).all()

    def interrupt(record: nw.Record) -> None:
        if record.iteration == 2:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        stopped = nw.MetricLearner(penalty=1.0, callback=interrupt, random_state=0).fit(X, y)
    assert stopped.status_ is nw.Status.INTERRUPTED
    assert stopped.n_iter_ == 2


def test_contradictory_hard_constraints_are_refused_by_name() -> None:
    side = c.at_most([(0, 1)], 0.5 * D0[0]) + c.at_least([(0, 1)], 2.0 * D0[0])
    with pytest.raises(ValueError, match=r"No matrix meets these.*d\(0, 1\).*a finite penalty"):
        learner().fit(Z, constraints=side)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"divergence": "kl"}, "divergence must be one of 'logdet', 'vonneumann', 'frobenius', got 'kl'"),
        ({"prior": "unit"}, "prior must be one of 'identity', 'covariance', got 'unit'"),
        ({"prior": np.eye(3)}, r"prior must have shape \(4, 4\) like the features, got \(3, 3\)"),
        ({"penalty": -1.0}, "penalty must be 'auto', a number > 0 or inf, got -1.0"),
        ({"penalty": "high"}, "penalty must be 'auto'"),
        ({"rank": 0}, "rank must be a whole number >= 1 or None, got 0"),
        ({"rank": 2, "basis": "pca"}, "basis must be one of 'auto', 'svd', 'kmeans'"),
        ({"basis": np.eye(3)}, r"basis must have 4 rows, one per feature, got shape \(3, 3\)"),
        ({"rank": 2, "prior": "covariance"}, "needs all of M: rank=None and basis='auto'"),
        ({"pairs": "near"}, "pairs must be one of 'auto', 'random', 'local', 'none', got 'near'"),
        ({"n_pairs": 0}, "n_pairs must be a whole number >= 1 or None, got 0"),
        ({"max_iter": 1.5}, "max_iter must be a whole number >= 1 or None, got 1.5"),
        ({"tol": 2.0}, "tol must be a number between 0 and 1, got 2.0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nw.MetricLearner(**parameters).fit(X, y)


def test_arguments_that_make_no_sense_are_refused() -> None:
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="X has 150 rows, but there are 149 labels"):
        nw.MetricLearner().fit(X, y[1:])
    with pytest.raises(TypeError, match=r"constraints must be made by nearwise.constraints, got list"):
        nw.MetricLearner().fit(X, constraints=[(0, 1)])
    with pytest.raises(ValueError, match="needs labels y"):
        nw.MetricLearner(rank=2, basis="class_means").fit(X, constraints=c.similar([(0, 1)]))
    with pytest.raises(ValueError, match=r"pairs must be an array of shape \(m, 2, d\)"):
        fitted.pair_distance([(0, 1)])
    with pytest.raises(ValueError, match="pair 1: X has 150 rows, and no row 150"):
        fitted.pair_distance([(0, 1), (2, 150)], X)
    with pytest.raises(ValueError, match="vectors of 5 features, but MetricLearner was fitted with 4"):
        fitted.pair_distance(np.zeros((3, 2, 5)))


# vector indexes


def test_an_index_is_filled_and_searched_with_raw_vectors() -> None:
    faiss = pytest.importorskip("faiss")
    for parameters in ({}, {"rank": 2}):
        fitted = nw.MetricLearner(penalty=1.0, random_state=0, **parameters).fit(X, y)
        index = fitted.to_faiss(faiss.IndexFlatL2(4))
        index.add(X.astype(np.float32))
        found, _ = index.search(X[:20].astype(np.float32), 5)
        expected = np.sort(fitted.distances(X[:20], X, squared=True), axis=1)[:, :5]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="the index has 3 dimensions, but the learned distance is one of 4"):
        fitted.to_faiss(faiss.IndexFlatL2(3))
    with pytest.raises(TypeError, match="must be a faiss index, got str"):
        fitted.to_faiss("index")


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    with pytest.raises(ImportError, match=r"pip install 'nearwise\[ann\]'"):
        fitted.to_faiss(object())


@pytest.mark.parametrize(
    "learner",
    [
        nw.MetricLearner(random_state=0, tol=1e-12),
        nw.MetricLearner(rank=2, random_state=0, tol=1e-12),
        nw.MetricLearner(basis="kmeans", rank=2, random_state=0, tol=1e-12),
        nw.MetricLearner(prior="covariance", random_state=0, tol=1e-12),
        nw.MetricLearner(prior=2.0 * np.eye(4), random_state=0, tol=1e-12),
    ],
    ids=str,
)
def test_a_memory_mapped_array_is_learned_from_as_an_array_is(
    learner: nw.MetricLearner, tmp_path: Path
) -> None:
    """joblib makes one of any large array that it hands to other processes."""
    np.save(tmp_path / "X.npy", X)
    weights = np.random.default_rng(0).integers(1, 3, len(X))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    found, expected = (clone(learner).fit(rows, y, sample_weight=weights) for rows in (mapped, X))
    np.testing.assert_allclose(
        found.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-8
    )
