"""The distance before is the one that the fit started from, whatever rows are shown."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw
from nearwise import cli, inspection
from nearwise.study.before_after import Missing, measures

X, y = load_iris(return_X_y=True)
SHOWN = np.arange(0, 40, 2)  # 20 rows of one class, whose covariance is not that of all rows
FIRST, SECOND = np.triu_indices(len(SHOWN), k=1)
DIFFERENCES = X[SHOWN][FIRST] - X[SHOWN][SECOND]
INVERSE = np.linalg.inv(np.cov(X, rowvar=False))


def squared(matrix: Any) -> Any:
    """Of all pairs of the rows shown."""
    return np.einsum("ka,ab,kb->k", DIFFERENCES, matrix, DIFFERENCES)


def before(model: Any) -> Any:
    """The distances before of all pairs of the rows shown."""
    found, _ = measures(model, X[SHOWN])
    assert found is not None
    return found.pairs(FIRST, SECOND)


@pytest.fixture(scope="module")
def learner() -> nw.MetricLearner:
    return nw.MetricLearner(prior="covariance", penalty=1.0, random_state=0).fit(X, y)


def test_before_on_other_rows_is_what_the_fit_started_from(learner: nw.MetricLearner) -> None:
    np.testing.assert_allclose(before(learner), squared(INVERSE), rtol=1e-9)
    pairs = np.stack([FIRST, SECOND], axis=1)
    found = inspection.pair_distances(learner, X[SHOWN], pairs, np.ones(len(FIRST), dtype=bool))
    np.testing.assert_allclose(found.before, squared(INVERSE), rtol=1e-9)


def test_the_spectrum_before_needs_no_rows_and_does_not_depend_on_them(learner: nw.MetricLearner) -> None:
    expected = np.sort(1.0 / np.linalg.eigvalsh(np.cov(X, rowvar=False)))[::-1]
    for rows in (None, X, X[SHOWN]):
        np.testing.assert_allclose(inspection.spectrum(learner, rows).prior, expected, rtol=1e-9)


def test_the_shares_of_features_before_are_of_the_start(learner: nw.MetricLearner) -> None:
    found = inspection.feature_shares(learner, X[SHOWN])
    i, j = np.random.RandomState(0).randint(len(SHOWN), size=(2, 4000))
    z = X[SHOWN][i] - X[SHOWN][j]
    carried = (z * (z @ INVERSE)).sum(axis=0)
    np.testing.assert_allclose(found.before, carried / carried.sum(), rtol=1e-7, atol=1e-12)


def test_a_model_file_holds_the_start(learner: nw.MetricLearner, tmp_path: Path) -> None:
    nw.save(learner, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    assert np.array_equal(loaded.start_metric_.matrix, learner.start_metric_.matrix)
    np.testing.assert_allclose(before(loaded), squared(INVERSE), rtol=1e-9)


def test_a_file_that_lacks_the_start_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of early versions, none of which was released; what needs no start still works."""
    monkeypatch.chdir(tmp_path)
    old = nw.MetricLearner(prior="covariance", penalty=1.0, random_state=0).fit(X, y)
    del old.start_metric_
    nw.save(old, "old")
    loaded = nw.load("old")
    with pytest.raises(Missing, match="lacks the distance before"):
        before(loaded)
    assert loaded.pair_distance([[0, 1]], X).shape == (1,)
    header = ",".join([*(f"x{k}" for k in range(4)), "kind"])
    lines = [",".join([*map(str, row), f"class{label}"]) for row, label in zip(X, y, strict=True)]
    Path("data.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    assert cli.main(shlex.split("evaluate old data.csv --labels kind")) == cli.BAD_INPUT
    assert "old: the model file of an early nearwise lacks" in capsys.readouterr().err


@pytest.mark.parametrize(
    "model",
    [
        nw.MetricLearner(penalty=1.0, random_state=0),
        nw.MetricLearner(penalty=1.0, rank=2, random_state=0),
        nw.FixedRankLearner(2, random_state=0),
        nw.OnlineLearner(random_state=0),
    ],
    ids=["all of M", "a subspace", "fixed rank", "online"],
)
def test_linear_learners_without_a_prior_start_from_the_data_as_they_are(model: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.WorseThanEuclideanWarning)
        model.fit(X, y)
    nw.save(model, tmp_path / "model")
    for fitted in (model, nw.load(tmp_path / "model")):
        found = fitted.start_metric_.pair_squared_distances(X[SHOWN], FIRST, SECOND)
        np.testing.assert_allclose(found, squared(np.eye(4)), rtol=1e-12)


def test_an_online_learner_keeps_a_prior_that_changes_later() -> None:
    prior = np.diag([1.0, 2.0, 3.0, 4.0])
    model = nw.OnlineLearner(prior=prior, random_state=0).fit(X, y)
    prior *= 100.0
    np.testing.assert_allclose(before(model), squared(np.diag([1.0, 2.0, 3.0, 4.0])), rtol=1e-9)


@pytest.mark.parametrize("kind", [nw.KernelLearner, nw.KernelReducer])
def test_kernel_learners_start_from_the_distance_of_their_kernel(kind: Any) -> None:
    model = kind(kernel="rbf", kernel_params={"gamma": 0.3}, penalty=1.0, random_state=0).fit(X, y)
    expected = 2.0 - 2.0 * np.exp(-0.3 * squared(np.eye(4)))
    np.testing.assert_allclose(before(model), expected, atol=1e-9)
