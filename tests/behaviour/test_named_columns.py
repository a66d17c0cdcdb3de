"""What is no finite number in a table is refused by the name of its column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import nearwise as nw
from crossing import crossed

LABELS = np.arange(30) % 3
ROWS = np.random.default_rng(0).normal(size=(30, 3))
ENTRIES: dict[str, Any] = {
    "text": ["van"] * 30,
    "one text": [*map(str, range(29)), "van"],
    "NaN": [*range(29), np.nan],
    "infinity": [*range(29), np.inf],
    "datetime": pd.date_range("2024-01-01", periods=30).to_list(),
}
FRAMES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda entries: pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(odd_one=entries),
    "polars": lambda entries: pl.DataFrame(ROWS, schema=["a", "b", "c"]).with_columns(
        pl.Series("odd_one", entries, strict=False)
    ),
}
LEARNERS: dict[str, Callable[[], Any]] = {
    "metric": lambda: nw.MetricLearner(penalty=1.0),
    "automatic": lambda: nw.AutoLearner(penalty=1.0),
    "kernel": lambda: nw.KernelLearner(penalty=1.0),
    "reducer": lambda: nw.KernelReducer(),
    "fixed rank": lambda: nw.FixedRankLearner(check=False),
    "regressor": lambda: nw.FixedRankRegressor(rank=2),
    "neighbors": lambda: nw.NeighborLearner(2, check=False),
    "online": lambda: nw.OnlineLearner(),
}
UNNAMED = pytest.mark.xfail(
    strict=True,
    raises=(AssertionError, pytest.fail.Exception),
    reason="the refusal of an entry that is no finite number does not name its column, and datetimes of "
    "polars are learned from as numbers",
)


def refusal(attempt: Callable[[], Any]) -> str:
    with pytest.raises((TypeError, ValueError)) as error:
        attempt()
    return str(error.value)


@UNNAMED
@crossed(learner=list(LEARNERS), entries=list(ENTRIES), frame=list(FRAMES))
def test_a_fit_names_the_column(learner: str, entries: str, frame: str) -> None:
    table = FRAMES[frame](ENTRIES[entries])
    assert "odd_one" in refusal(lambda: LEARNERS[learner]().fit(table, LABELS))


@UNNAMED
@crossed(entries=list(ENTRIES), frame=list(FRAMES))
def test_a_fitted_model_names_the_column(entries: str, frame: str) -> None:
    numbers, table = FRAMES[frame]([*range(30)]), FRAMES[frame](ENTRIES[entries])
    model = nw.MetricLearner(penalty=1.0).fit(numbers, LABELS)
    assert "odd_one" in refusal(lambda: model.transform(table))
