"""The estimators as scikit-learn sees them: its own checks, pipelines, searches, routing, tables."""

from __future__ import annotations

import pickle
from typing import ClassVar

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import nearwise as nw
from nearwise import constraints as c

X, y = load_iris(return_X_y=True)
IDS = np.array([f"flower {k}" for k in range(150)])
LEARNERS = {
    "metric": nw.MetricLearner(penalty=1.0, random_state=0),
    "subspace": nw.MetricLearner(rank=3, basis="svd", penalty=1.0, random_state=0),
    "kernel": nw.KernelLearner(penalty=1.0, random_state=0),
    "reduced kernel": nw.KernelLearner(rank=10, penalty=1.0, random_state=0),
    "reducer": nw.KernelReducer(random_state=0),
    "auto": nw.AutoLearner(penalty=1.0, random_state=0),
}
every_learner = pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)


def flower_pairs(n: int = 300) -> c.Constraints:
    """Pairs of flowers by name, similar where they are of one kind."""
    pairs = np.random.default_rng(0).integers(0, 150, size=(n, 2))
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & np.any(X[pairs[:, 0]] != X[pairs[:, 1]], axis=1)]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    return c.similar(IDS[pairs[same]]) + c.dissimilar(IDS[pairs[~same]])


def expected_failures(estimator: object) -> dict[str, str]:
    """Two checks feed matrices as kernels that are none, two repeat rows from which pairs are drawn."""
    drawn = (
        "pairs are drawn from labels, and other ones where rows are repeated; test_learner_weights draws all"
    )
    repeating = (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    )
    found = {} if isinstance(estimator, nw.NeighborLearner) else dict.fromkeys(repeating, drawn)
    if estimator.get_params().get("kernel") == "precomputed":
        reason = "the matrix has negative eigenvalues, and a learner refuses it by name"
        found |= dict.fromkeys(("check_positive_only_tag_during_fit", "check_estimators_dtypes"), reason)
    return found


@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        nw.MetricLearner(penalty=1.0),
        nw.KernelLearner(penalty=1.0),
        nw.KernelLearner(kernel="precomputed", penalty=1.0),
        nw.OnlineLearner(),
        nw.OnlineLearner("exponentiated_gradient", rank=2),
        nw.OnlineLearner("pola"),
        nw.AutoLearner(penalty=1.0),
        nw.NeighborLearner(),
        nw.KernelReducer(),
        nw.KernelReducer(kernel="precomputed"),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_s_own_checks(estimator: object, check: object) -> None:
    check(estimator)


@pytest.mark.slow  # what every setting shares is checked above
@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        nw.MetricLearner(rank=2, penalty=1.0),
        nw.MetricLearner(prior="covariance", penalty=1.0),
        nw.KernelLearner(rank=5, penalty=1.0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_s_own_checks_of_other_settings(estimator: object, check: object) -> None:
    check(estimator)


@pytest.mark.slow  # every fit of every check chooses a penalty
@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([nw.MetricLearner(), nw.KernelLearner()], expected_failed_checks=expected_failures)
def test_scikit_learn_s_own_checks_where_the_penalty_is_chosen(estimator: object, check: object) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
@pytest.mark.parametrize("learner", [nw.MetricLearner, nw.KernelLearner])
def test_a_penalty_that_is_chosen_leaves_the_parameters_alone(learner: type) -> None:
    name = learner.__name__
    estimator_checks.check_parameters_default_constructible(name, learner())
    estimator_checks.check_no_attributes_set_in_init(name, learner())
    estimator_checks.check_estimators_overwrite_params(name, learner())


@every_learner
def test_clone_and_pickle(learner: object) -> None:
    fitted = clone(learner).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(X), fitted.transform(X))
    fresh = clone(fitted)
    assert fresh.get_params() == learner.get_params()
    with pytest.raises(NotFittedError):
        fresh.transform(X)
    with pytest.raises(NotFittedError):
        fresh.distances(X)


@every_learner
def test_attributes_can_be_listed(learner: object) -> None:
    """scikit-learn asks for each of them, so that a property may raise nothing but AttributeError."""
    assert "fit" in dir(learner)
    assert "metric_" in dir(clone(learner).fit(X, y))


@every_learner
def test_fit_transform_is_fit_and_transform(learner: object) -> None:
    np.testing.assert_allclose(clone(learner).fit_transform(X, y), clone(learner).fit(X, y).transform(X))


@pytest.mark.long
@every_learner
def test_pipeline_and_search_with_labels(learner: object) -> None:
    rows, labels = X[::2], y[::2]
    pipe = make_pipeline(StandardScaler(), clone(learner), KNeighborsClassifier(3))
    assert cross_val_score(pipe, rows, labels, cv=3).mean() > 0.85
    name = type(learner).__name__.lower()
    search = GridSearchCV(pipe, {f"{name}__penalty": [0.1, 1.0]}, cv=3).fit(rows, labels)
    assert search.best_score_ > 0.85
    folds = StratifiedKFold(3)
    own = GridSearchCV(clone(learner), {"penalty": [0.1, 1.0]}, cv=folds, error_score="raise")
    scores = own.fit(rows, labels).cv_results_["mean_test_score"]
    assert np.all((scores > 0.85) & (scores <= 1.0))


def test_a_precomputed_kernel_is_split_by_rows_and_columns() -> None:
    K = rbf_kernel(X, gamma=0.3)
    folds = StratifiedKFold(3)
    precomputed = nw.KernelLearner(kernel="precomputed", penalty=1.0, random_state=0)
    scores = cross_val_score(precomputed, K, y, cv=folds)
    by_name = nw.KernelLearner(kernel="rbf", gamma=0.3, penalty=1.0, random_state=0)
    np.testing.assert_allclose(scores, cross_val_score(by_name, X, y, cv=folds), atol=0.02)


class Recording(nw.MetricLearner):
    """Remembers what its fits were given."""

    seen: ClassVar[list[tuple[int, int]]] = []

    def fit(self, X, y=None, *, constraints=None, sample_ids=None):  # type: ignore[no-untyped-def]
        fitted = super().fit(X, y, constraints=constraints, sample_ids=sample_ids)
        Recording.seen.append((fitted.n_constraints_used_, fitted.n_constraints_dropped_))
        return fitted


@pytest.mark.parametrize("routing", [False, True])
def test_a_fold_keeps_the_constraints_on_its_objects(routing: bool) -> None:
    side = flower_pairs()
    folds = KFold(3, shuffle=True, random_state=0)
    Recording.seen.clear()
    scoring = None if routing else (lambda fitted, rows: fitted.transform(rows).shape[1])
    with sklearn.config_context(enable_metadata_routing=routing):
        scores = cross_val_score(
            Recording(penalty=1.0, random_state=0),
            X,
            params={"constraints": side, "sample_ids": IDS},
            cv=folds,
            scoring=scoring,
            error_score="raise",
        )
    expected = [side.restricted_to(IDS[train]) for train, _ in folds.split(X)]
    assert Recording.seen == [(len(kept), dropped) for kept, dropped in expected]
    assert all(dropped > 0 for _, dropped in Recording.seen)
    if routing:  # the score is that of the constraints on the objects held out
        for score, (train, test) in zip(scores, folds.split(X), strict=True):
            inside, held_out = (side.restricted_to(IDS[part])[0] for part in (train, test))
            fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(
                X[train], constraints=inside, sample_ids=IDS[train]
            )
            assert score == fitted.score(X[test], constraints=held_out, sample_ids=IDS[test])


@pytest.mark.parametrize(
    ("routing", "n_jobs"),
    [(False, 1), (True, 1), pytest.param(True, 2, marks=pytest.mark.slow), (False, 2)],
)
def test_row_numbers_are_refused_in_folds(routing: bool, n_jobs: int) -> None:
    """Row numbers below the length of a fold would be those of other objects."""
    side = c.similar([(0, 1), (2, 3)]) + c.dissimilar([(0, 60), (1, 61)])
    learner = nw.MetricLearner(penalty=1.0, random_state=0)
    with sklearn.config_context(enable_metadata_routing=routing):
        for model, prefix in ((learner, ""), (make_pipeline(StandardScaler(), learner), "metriclearner__")):
            names = "" if routing else prefix
            arguments = {"cv": StratifiedKFold(3, shuffle=True, random_state=0), "error_score": "raise"}
            with pytest.raises(ValueError, match=r"by row number in cross-validation.*pass sample_ids"):
                cross_val_score(model, X, y, params={f"{names}constraints": side}, n_jobs=n_jobs, **arguments)
            search = GridSearchCV(model, {f"{prefix}penalty": [1.0]}, n_jobs=n_jobs, **arguments)
            with pytest.raises(ValueError, match=r"by row number in cross-validation.*pass sample_ids"):
                search.fit(X, y, **{f"{names}constraints": side})
            given = {f"{names}constraints": side, f"{names}sample_ids": np.arange(150)}
            assert search.fit(X, y, **given).best_score_ > 0.9


class InnerPairs(sklearn.base.BaseEstimator):  # type: ignore[misc]
    """Makes constraints by row number of what it is given, which is right in a fold too."""

    def fit(self, X, y):  # type: ignore[no-untyped-def]
        self.learner_ = nw.MetricLearner(penalty=1.0).fit(X, constraints=c.from_labels(y, random_state=0))
        return self

    def score(self, X, y):  # type: ignore[no-untyped-def]
        return self.learner_.score(X, y)


def test_row_numbers_made_inside_a_fold_are_its_own() -> None:
    scores = cross_val_score(InnerPairs(), X, y, cv=StratifiedKFold(3), error_score="raise")
    assert scores.min() > 0.9


@pytest.mark.parametrize("routing", [False, True])
def test_constraints_reach_a_search_and_a_pipeline(routing: bool) -> None:
    side = flower_pairs()
    with sklearn.config_context(enable_metadata_routing=routing):
        search = GridSearchCV(
            nw.MetricLearner(random_state=0),
            {"penalty": [0.1, 1.0]},
            cv=KFold(3, shuffle=True, random_state=0),
            error_score="raise",
        )
        labels = None if routing else y
        search.fit(X, labels, constraints=side, sample_ids=IDS)
        assert search.best_score_ > 0.9
        assert search.best_estimator_.n_constraints_dropped_ == 0
        pipe = make_pipeline(StandardScaler(), nw.MetricLearner(penalty=1.0, random_state=0))
        prefix = "" if routing else "metriclearner__"
        pipe.fit(X, **{f"{prefix}constraints": side, f"{prefix}sample_ids": IDS})
        assert pipe[-1].n_constraints_used_ == len(side)
        assert pipe.transform(X).shape == (150, 4)


def test_constraints_reach_the_score_of_a_pipeline_that_ends_in_a_learner() -> None:
    """The pipeline passes sample_weight on, to the fit and to the score, whether it has one or not."""
    side = flower_pairs()
    learner = nw.MetricLearner(penalty=1.0, random_state=0)
    folds = KFold(3, shuffle=True, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        arguments = {"cv": folds, "error_score": "raise"}
        params = {"constraints": side, "sample_ids": IDS}
        scores = cross_val_score(make_pipeline(learner), X, params=params, **arguments)
        np.testing.assert_array_equal(scores, cross_val_score(learner, X, params=params, **arguments))
        weights = np.random.default_rng(0).uniform(size=150)
        weighed = cross_val_score(
            make_pipeline(learner), X, params=params | {"sample_weight": weights}, **arguments
        )
    for score, (train, test) in zip(weighed, folds.split(X), strict=True):
        inside, held_out = (side.restricted_to(IDS[part])[0] for part in (train, test))
        fitted = clone(learner).fit(
            X[train], constraints=inside, sample_ids=IDS[train], sample_weight=weights[train]
        )
        given = {"constraints": held_out, "sample_ids": IDS[test], "sample_weight": weights[test]}
        assert score == fitted.score(X[test], **given)
    assert not np.array_equal(weighed, scores)


def test_weights_of_objects_count_in_the_score() -> None:
    """By the definition: shares of combinations, each with the product of the weights of its objects."""
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 4, 40).astype(float)
    rows, labels = X[::4][:38], y[::4][:38]
    weights = weights[:38]
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    D = fitted.distances(rows)
    i, j = np.triu_indices(38, 1)
    w, same = weights[i] * weights[j], labels[i] == labels[j]
    nearer = np.sign(D[i, j][~same] - D[i, j][same][:, None]) / 2 + 0.5
    combined = w[same][:, None] * w[~same]
    expected = np.sum(nearer * combined) / combined.sum()
    assert fitted.score(rows, labels, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    assert fitted.score(rows, labels) != pytest.approx(expected, rel=1e-3)
    triplets = rng.permuted(np.tile(np.arange(38), (50, 1)), axis=1)[:, :3]
    a, p, n = triplets.T
    product = weights[a] * weights[p] * weights[n]
    share = np.sum((D[a, p] < D[a, n]) * product) / product.sum()
    found = fitted.score(rows, constraints=c.closer(triplets), sample_weight=weights)
    assert found == pytest.approx(share, rel=1e-12)
    assert fitted.score(rows, labels, sample_weight=np.ones(38)) == pytest.approx(fitted.score(rows, labels))
    with pytest.raises(ValueError, match="nothing to score by"):
        fitted.score(rows, labels, sample_weight=(labels == 0).astype(float))
    with pytest.raises(ValueError, match="Negative values"):
        fitted.score(rows, labels, sample_weight=-weights)


def test_constraints_are_requested_for_partial_fits() -> None:
    for learner in (nw.OnlineLearner(), nw.FixedRankLearner(solver="online")):
        requests = learner.get_metadata_routing()
        assert requests.partial_fit.requests.items() >= {"constraints": True, "sample_ids": True}.items()


def test_constraints_of_the_length_of_the_data_are_not_cut_into_folds() -> None:
    pairs = np.stack([np.arange(150), np.roll(np.arange(150), 7)], axis=1)
    side = c.similar(IDS[pairs])
    assert len(side) == len(X)
    scores = cross_val_score(
        nw.MetricLearner(penalty=1.0, random_state=0),
        X,
        y,
        params={"constraints": side, "sample_ids": IDS},
        cv=StratifiedKFold(3),
        error_score="raise",
    )
    assert np.isfinite(scores).all()


@every_learner
def test_a_pair_of_equal_rows_that_shall_be_far_apart_is_left_out(learner: object) -> None:
    rows, names = np.concatenate([X, X[:1]]), np.append(IDS, "twin")
    wanted = flower_pairs()
    expected = clone(learner).fit(rows, constraints=wanted, sample_ids=names)
    side = wanted + c.dissimilar([("flower 0", "twin")])
    with pytest.warns(nw.LeftOutWarning, match=r"^1 constraint is left out, because no matrix can meet it"):
        fitted = clone(learner).fit(rows, constraints=side, sample_ids=names)
    np.testing.assert_array_equal(fitted.transform(rows), expected.transform(rows))
    assert (fitted.n_constraints_used_, fitted.n_constraints_dropped_) == (len(wanted), 1)
    hard = clone(learner).set_params(penalty=np.inf)
    with pytest.raises(ValueError, match="its objects have the same features"):
        hard.fit(rows, constraints=c.dissimilar([("flower 0", "twin")]), sample_ids=names)


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_equal_rows_are_equal_in_a_subspace(rank: int) -> None:
    """A product of matrices adds in another order at its last rows than at its first ones."""
    rng = np.random.default_rng(0)
    for n in range(5, 25):
        rows = rng.normal(size=(n, 30))
        rows[-1] = rows[0]
        side = c.similar([(1, 2)]) + c.dissimilar([(0, n - 1), (1, 3)])
        with pytest.warns(nw.LeftOutWarning, match=r"^1 constraint is left out"):
            fitted = nw.MetricLearner(basis=rng.normal(size=(30, rank)), penalty=1.0).fit(
                rows, constraints=side
            )
        assert (fitted.n_constraints_used_, fitted.n_constraints_dropped_) == (2, 1)


def test_tuples_with_a_pair_of_equal_vectors_are_learned_from() -> None:
    pairs = X[[(0, 1), (2, 60), (5, 5), (7, 7), (50, 51), (0, 100)]]
    rows, side = c.from_tuples(pairs, [1, -1, 1, -1, 1, -1])
    with pytest.warns(nw.LeftOutWarning, match=r"^1 constraint is left out"):
        fitted = nw.MetricLearner(penalty=1.0).fit(rows, constraints=side)
    assert (fitted.n_constraints_used_, fitted.n_constraints_dropped_) == (5, 1)


@every_learner
def test_names_of_features(learner: object) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["sepal length", "sepal width", "petal length", "petal width"])
    fitted = clone(learner).fit(frame, y)
    assert fitted.pair_distance(X[[(0, 1)]]).shape == (1,)
    assert fitted.feature_names_in_.tolist() == frame.columns.tolist()
    prefix = type(learner).__name__.lower()
    width = fitted.transform(frame).shape[1]
    assert fitted.get_feature_names_out().tolist() == [f"{prefix}{k}" for k in range(width)]
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame.rename(columns={"sepal width": "width"}))


@every_learner
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_in_and_out(learner: object, library: str) -> None:
    tables = pytest.importorskip(library)
    columns = ["a", "b", "c", "d"]
    frame = tables.DataFrame(dict(zip(columns, X.T, strict=True)))
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    expected = clone(learner).fit(X, y)
    fitted = clone(learner).fit(frame, tables.Series(names), sample_ids=tables.Series(IDS))
    plain = fitted.transform(frame)
    assert isinstance(plain, np.ndarray)
    np.testing.assert_allclose(plain, expected.transform(X), atol=1e-8)
    table = fitted.set_output(transform=library).transform(frame)
    assert isinstance(table, tables.DataFrame)
    assert list(table.columns) == fitted.get_feature_names_out().tolist()
    np.testing.assert_array_equal(table.to_numpy(), plain)
    if library == "pandas":
        assert table.index.equals(frame.index)
    assert fitted.score(frame, tables.Series(names)) == pytest.approx(expected.score(X, y))


def test_ids_of_a_table_s_index() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=IDS)
    frame.columns = ["a", "b", "c", "d"]
    fitted = nw.MetricLearner(penalty=1.0).fit(frame, constraints=flower_pairs(), sample_ids=frame.index)
    assert fitted.n_constraints_used_ == len(flower_pairs())
    polars = pytest.importorskip("polars")
    fitted = nw.MetricLearner(penalty=1.0).fit(X, constraints=flower_pairs(), sample_ids=polars.Series(IDS))
    assert fitted.n_constraints_used_ == len(flower_pairs())


def test_callbacks_of_scikit_learn_see_the_iterations_and_can_stop() -> None:
    pytest.importorskip("sklearn.callback")

    class Counter:
        def __init__(self, limit: int | None = None) -> None:
            self.limit, self.tasks, self.events = limit, 0, []

        def setup(self, estimator: object, context: object) -> None:
            self.events.append("setup")

        def teardown(self, estimator: object, context: object) -> None:
            self.events.append("teardown")

        def on_fit_task_begin(self, estimator: object, context: object) -> None:
            pass

        def on_fit_task_end(self, estimator: object, context: object) -> bool:
            self.tasks += context.task_name == "iteration"
            return self.limit is not None and self.tasks >= self.limit

    watching = Counter()
    fitted = nw.MetricLearner(penalty=1.0, random_state=0).set_callbacks(watching).fit(X, y)
    assert watching.tasks >= fitted.n_iter_ > 2
    assert watching.events == ["setup", "teardown"]
    stopping = Counter(limit=2)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning, match="Interrupted"):
        stopped = nw.MetricLearner(penalty=1.0, random_state=0).set_callbacks(stopping).fit(X, y)
    assert stopped.status_ is nw.Status.INTERRUPTED
    assert stopping.events == ["setup", "teardown"]
