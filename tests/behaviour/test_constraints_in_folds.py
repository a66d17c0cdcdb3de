"""Constraints by row number are refused wherever another function cuts the rows."""

import numpy as np
import pytest
import sklearn
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsOneClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearwise as nw
from nearwise import constraints as c

SIDE = c.similar([(0, 3), (1, 4)]) + c.dissimilar([(0, 1), (2, 3)])


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 4)) + 2.0 * np.eye(3, 4)[y], y


@pytest.mark.xfail(
    strict=True,
    raises=pytest.fail.Exception,
    reason="parts of the data are known by a local of scikit-learn that is named train, and by nothing else",
)
@pytest.mark.parametrize("cutting", ["one class against another", "half of the rows"])
def test_row_numbers_are_refused_wherever_rows_are_cut(cutting: str) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        learner = nw.MetricLearner(penalty=1.0).set_fit_request(constraints=True, sample_ids=True)
        pipe = make_pipeline(learner, KNeighborsClassifier())
        if cutting == "half of the rows":
            outer = BaggingClassifier(pipe, n_estimators=2, max_samples=0.5, bootstrap=False, random_state=0)
        else:
            outer = OneVsOneClassifier(pipe)
        with pytest.raises(ValueError, match="row number"):
            outer.fit(*table(), constraints=SIDE)


@pytest.mark.xfail(
    strict=True,
    raises=ValueError,
    reason="a fit of all rows inside scikit-learn's cross-validation is taken for one of a part",
)
def test_a_fit_of_all_rows_inside_a_fold_is_none_of_a_part() -> None:
    X, y = table()
    ids = np.arange(len(X))

    def scorer(estimator: object, rows: np.ndarray, labels: np.ndarray) -> float:
        whole = nw.MetricLearner(penalty=1.0).fit(X, constraints=SIDE)  # rows by their own numbers
        return float(whole.n_constraints_used_)

    with sklearn.config_context(enable_metadata_routing=True):
        learner = nw.MetricLearner(penalty=1.0).set_fit_request(constraints=True, sample_ids=True)
        given = {"constraints": SIDE, "sample_ids": ids}
        found = cross_val_score(learner, X, y, params=given, scoring=scorer, cv=3, error_score="raise")
    assert found.tolist() == [len(SIDE)] * 3
