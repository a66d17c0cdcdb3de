"""`MetricLearner` with a structure: weights of features, and blocks of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners.coordinate_metrics import DiagonalMetric
from nearwise.study import by_kind, fitting
from nearwise.study.inspection import Missing, feature_shares, spectrum


def told(seed: int = 0, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that the first two columns tell, and columns of noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, d))
    y = np.arange(120) % 2
    X[:, :2] += np.where(y == 1, 3.0, 0.0)[:, None]
    return X, y


@pytest.mark.parametrize("divergence", ["logdet", "vonneumann", "frobenius"])
def test_weights_find_the_columns_that_tell(divergence: str) -> None:
    X, y = told()
    learner = nw.MetricLearner(divergence, structure="diagonal", pairs="random", random_state=0).fit(X, y)
    assert learner.weights_[:2].min() > 1.3 * learner.weights_[2:].max()
    assert learner.result_.certificate.gap <= 1e-6
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), np.diag(learner.weights_))
    np.testing.assert_allclose(learner.components_, np.diag(np.sqrt(learner.weights_)))
    expected = np.sqrt(np.square(X[3] - X[7]) @ learner.weights_)
    assert learner.pair_distance([(3, 7)], X)[0] == pytest.approx(expected)
    assert learner.metric_(X[3], X[7]) == pytest.approx(expected)
    assert np.linalg.norm(np.subtract(*learner.transform(X[[3, 7]]))) == pytest.approx(expected)
    assert learner.distances(X[[3]], X[[7]])[0, 0] == pytest.approx(expected)


def test_the_weights_are_those_of_the_stated_problem() -> None:
    """With a penalty and constraints given, of the problem in blocks of one column."""
    X, _ = told()
    side = c.at_most([(0, 2), (1, 3), (4, 6)], 2.0) + c.at_least([(0, 1), (2, 3), (5, 9)], 20.0)
    learner = nw.MetricLearner(structure="diagonal", penalty=2.0, tol=1e-9).fit(X, constraints=side)
    expected = nw.solve(nw.Problem(X, side, penalty=2.0, groups=np.arange(6)), tol=1e-9)
    np.testing.assert_allclose(np.diag(learner.weights_), expected.matrix, atol=2e-5)
    assert learner.result_.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-8)


def test_sparse_data_stay_sparse_and_agree_with_dense() -> None:
    X, y = told()
    X[np.abs(X) < 0.7] = 0.0
    dense = nw.MetricLearner(structure="diagonal", random_state=0).fit(X, y)
    rows = sparse.csr_array(X)
    learner = nw.MetricLearner(structure="diagonal", random_state=0).fit(rows, y)
    np.testing.assert_allclose(learner.weights_, dense.weights_, rtol=1e-6)
    moved = learner.transform(rows)
    assert sparse.issparse(moved)
    np.testing.assert_allclose(moved.toarray(), dense.transform(X), rtol=1e-6)
    assert learner.score(rows, y) == pytest.approx(dense.score(X, y), abs=1e-9)


@pytest.mark.parametrize("d", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_columns_take_what_their_entries_take(d: int) -> None:
    rng = np.random.default_rng(0)
    n, k = 200, 30
    y = np.arange(n) % 2
    telling = [rng.permutation(20)[:10] + 20 * label for label in y]
    columns = np.hstack([telling, 40 + rng.permutation(d - 40)[: n * k].reshape(n, k)])
    starts = np.arange(n + 1) * (k + 10)
    X = sparse.csr_array((np.ones(columns.size), columns.ravel(), starts), shape=(n, d))
    learner = nw.MetricLearner("vonneumann", structure="diagonal", penalty=1.0, pairs="random")
    learner.set_params(random_state=0).fit(X, y)
    assert learner.weights_.shape == (d,)
    assert learner.result_.certificate.gap <= 1e-6
    untouched = np.setdiff1d(np.arange(d), columns)
    assert (learner.weights_[untouched] == 1.0).all()
    noise = learner.weights_[np.setdiff1d(columns, np.arange(40))]
    assert learner.weights_[:40].mean() > 1.05 > 1.01 > noise.mean()
    assert learner.transform(X).nnz == X.nnz


@pytest.mark.parametrize(
    "prior", ["covariance", np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])], ids=["name", "own"]
)
def test_priors_of_weights(prior: object) -> None:
    X, y = told()
    expected = 1 / X.var(axis=0, ddof=1) if isinstance(prior, str) else np.asarray(prior)
    weak = nw.MetricLearner(prior=prior, structure="diagonal", penalty=1e-9).fit(X, y)
    np.testing.assert_allclose(weak.weights_, expected, rtol=1e-6)
    np.testing.assert_allclose(weak.start_metric_.weights, expected)
    rows = nw.MetricLearner(prior=prior, structure="diagonal", penalty=1e-9).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(rows.weights_, expected, rtol=1e-6)
    square = expected if isinstance(prior, str) else np.diag(expected)
    again = nw.MetricLearner(prior=square, structure="diagonal", penalty=1e-9).fit(X, y)
    np.testing.assert_allclose(again.weights_, expected, rtol=1e-6)


def test_blocks_of_covariance() -> None:
    X, y = told()
    weak = nw.MetricLearner(
        prior="covariance", structure="blocks", groups=[[0, 1], [2, 3]], penalty=1e-9
    ).fit(X, y)
    M = weak.get_mahalanobis_matrix()
    np.testing.assert_allclose(M[:2, :2], np.linalg.inv(np.cov(X[:, :2].T)), rtol=1e-5)
    assert M[4, 4] == pytest.approx(1 / X[:, 4].var(ddof=1), rel=1e-5)


def test_blocks_by_name_by_number_and_by_array() -> None:
    X, y = told()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    spoken = nw.MetricLearner(
        structure="blocks", groups={"first": ["a", "c"], "rest": ["d", "e"]}, random_state=0
    )
    spoken.fit(frame, y)
    counted = nw.MetricLearner(structure="blocks", groups=[[0, 2], [3, 4]], random_state=0).fit(X, y)
    listed = nw.MetricLearner(structure="blocks", groups=["p", "q", "p", "r", "r", "s"], random_state=0).fit(
        X, y
    )
    M = counted.get_mahalanobis_matrix()
    np.testing.assert_allclose(spoken.get_mahalanobis_matrix(), M, atol=1e-9)
    np.testing.assert_allclose(listed.get_mahalanobis_matrix(), M, atol=1e-6)
    assert spoken.groups_.tolist() == [0, 2, 0, 1, 1, 3]
    assert (M[np.not_equal.outer(spoken.groups_, spoken.groups_)] == 0).all()
    assert M[0, 2] != 0
    found = by_kind.weights(spoken)
    assert found.names == ("first", "rest", "b", "f")
    assert found.columns[0] == ("a", "c")
    np.testing.assert_allclose(found.after[0], (M[0, 0] + M[2, 2]) / 2)
    assert (found.before == 1.0).all()


def test_hard_constraints() -> None:
    X, _ = told()
    side = c.at_most([(0, 2)], 0.5) + c.at_least([(0, 1)], 40.0)
    for form in ({"structure": "diagonal"}, {"structure": "blocks", "groups": [[0, 1]]}):
        learner = nw.MetricLearner(penalty=np.inf, **form).fit(X, constraints=side)
        assert learner.pair_distance([(0, 2), (0, 1)], X, squared=True) == pytest.approx(
            [0.5, 40.0], rel=1e-4
        )
    wide = sparse.csr_array(([1.0, 2.0], ([0, 1], [5, 7])), shape=(2, 10**6))
    with pytest.raises(ValueError, match="for few columns"):
        nw.MetricLearner(structure="diagonal", penalty=np.inf).fit(wide, constraints=c.at_most([(0, 1)], 1.0))


@pytest.mark.parametrize(
    "form", [{"structure": "diagonal"}, {"structure": "blocks", "groups": {"w": [0, 1]}}]
)
def test_model_files(form: dict[str, object], tmp_path: Path) -> None:
    X, y = told()
    learner = nw.MetricLearner(random_state=0, **form).fit(X, y)
    nw.save(learner, tmp_path / "m.safetensors")
    found = nw.load(tmp_path / "m.safetensors")
    assert np.array_equal(found.transform(X), learner.transform(X))
    assert found.result_.certificate.gap == learner.result_.certificate.gap
    assert found.structure == form["structure"]
    again = clone(found).fit(X, y)
    np.testing.assert_allclose(again.transform(X), learner.transform(X), atol=1e-9)


def test_a_checkpoint_goes_on(tmp_path: Path) -> None:
    X, y = told()
    path = tmp_path / "point"
    seen: list[int] = []
    expected = nw.MetricLearner(structure="diagonal", random_state=0).fit(X, y)
    settings = {"structure": "diagonal", "random_state": 0, "checkpoint": path}
    stopped = nw.MetricLearner(callback=lambda record: seen.append(1) or len(seen) > 4, **settings)
    with pytest.warns(ConvergenceWarning, match="nterrupted"):
        stopped.fit(X, y)
    assert path.exists()
    found = nw.MetricLearner(**settings).fit(X, y)
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=1e-9)
    assert not path.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "round"}, "structure must be"),
        ({"groups": [[0]]}, "groups go with structure='blocks'"),
        ({"structure": "diagonal", "groups": [[0]]}, "groups go with structure='blocks', not"),
        ({"structure": "blocks"}, "needs groups"),
        ({"structure": "blocks", "groups": [[0, 1], [1]]}, "column 1 is in two groups"),
        ({"structure": "blocks", "groups": [[0, 9]]}, "no column 9"),
        ({"structure": "blocks", "groups": [["a"]]}, "X has no column names"),
        ({"structure": "blocks", "groups": [[0.5]]}, "a column is a number or a name"),
        ({"structure": "diagonal", "rank": 2}, "needs rank=None"),
        ({"structure": "diagonal", "prior": np.ones(3)}, "prior must be 6 weights"),
        ({"structure": "diagonal", "prior": -np.ones(6)}, "got -1 for column 0"),
        ({"structure": "diagonal", "prior": np.ones((6, 6))}, "or a diagonal matrix"),
        ({"structure": "diagonal", "prior": np.zeros(6)}, "prior is zero"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], message: str) -> None:
    X, y = told()
    with pytest.raises(ValueError, match=message):
        nw.MetricLearner(**settings).fit(X, y)


def test_weights_in_figures_and_report() -> None:
    data = load_wine(as_frame=True)
    X = StandardScaler().set_output(transform="pandas").fit_transform(data.data)
    learner = nw.MetricLearner(structure="diagonal", penalty=4.0, random_state=0).fit(X, data.target)
    found = by_kind.weights(learner)
    assert found.names == tuple(data.feature_names)
    np.testing.assert_array_equal(found.after, learner.weights_)
    shares = feature_shares(learner, X)
    assert shares.after.sum() == pytest.approx(1.0)
    growth = shares.after / shares.before
    np.testing.assert_allclose(growth / growth[0], learner.weights_ / learner.weights_[0])
    np.testing.assert_allclose(spectrum(learner).values, np.sort(learner.weights_)[::-1])
    page = nw.report.render(nw.report.from_estimator(learner, X, data.target))
    assert "<h2>Weights</h2>" in page
    heaviest = data.feature_names[int(np.argmax(learner.weights_))]
    assert heaviest in page.split("<h2>Weights</h2>")[1].split("</section>")[0]
    full = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, data.target)
    assert "<h2>Weights</h2>" not in nw.report.render(nw.report.from_estimator(full, X, data.target))
    with pytest.raises(Missing, match="structure"):
        by_kind.weights(full)
    assert repr(learner.metric_) == "<DiagonalMetric: weights of 13 features>"
    assert "13" in learner.metric_._repr_html_()
    with pytest.raises(AttributeError, match="structure='diagonal'"):
        _ = full.weights_
    with pytest.raises(AttributeError, match="structure='blocks'"):
        _ = learner.groups_
    with pytest.raises(ValueError, match="vectors of 13 numbers, got 2"):
        DiagonalMetric(np.ones(13))([0.0, 1.0], [0.0, 2.0])


def test_names_of_columns_become_groups() -> None:
    names = ["age", "sex_f", "sex_m", "bmi"]
    assert fitting.column_groups([["age", "sex"], ["bmi"]], names) == [[0, 1, 2], [3]]
    with pytest.raises(ValueError, match="no column 'weight'"):
        fitting.column_groups([["weight"]], names)
