"""What is wrong with an argument is said by the name of what is wrong."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import nearwise as nw


def table(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    return rng.normal(size=(n, 18)) + 1.2 * np.eye(4, 18)[y], y


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a kernel's metric as prior is read as an array of numbers"
)
@pytest.mark.parametrize("given", ["learner", "metric"])
@pytest.mark.parametrize("kind", [nw.OnlineLearner, nw.MetricLearner])
def test_a_metric_of_a_kernel_is_no_prior_of_vectors(kind: type, given: str) -> None:
    X, y = table()
    kernel = nw.KernelLearner(penalty=1.0, random_state=0).fit(X, y)
    learner = kind(prior=kernel if given == "learner" else kernel.metric_)
    with pytest.raises((TypeError, ValueError), match="prior") as refusal:
        learner.fit(X, y)
    assert "kernel" in str(refusal.value).replace("KernelMetric", "").lower()
    assert "float()" not in str(refusal.value)


@pytest.mark.xfail(
    strict=True, raises=ValueError, reason="groups that are ranges are not read as lists of columns"
)
@pytest.mark.parametrize("first", [8, 9])
def test_groups_of_columns_may_be_ranges(first: int) -> None:
    X, y = table()
    found = [
        nw.MetricLearner(structure="blocks", groups=groups, penalty=1.0, random_state=0).fit(X, y)
        for groups in (
            [range(first), range(first, 18)],
            [list(range(first)), list(range(first, 18))],
        )
    ]
    assert_array_equal(*(learner.get_mahalanobis_matrix() for learner in found))


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="a column of dates is refused without its name")
@pytest.mark.parametrize("learner", [nw.MetricLearner, nw.OnlineLearner, nw.KernelLearner])
def test_a_column_of_dates_is_named(learner: type) -> None:
    X, y = table()
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame.insert(1, "when", pd.date_range("2020", periods=len(X)))
    with pytest.raises((TypeError, ValueError), match="when"):
        learner().fit(frame, y)
