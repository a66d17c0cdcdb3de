"""Rows whose label is -1, or a text that means a missing value, are left out, and somebody says how many."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

import nearwise as nw
from crossing import crossed
from nearwise import cli, constraints as c

CODES = np.arange(42) % 3 - 1  # 14 rows of each of -1, 0, 1
ROWS = np.random.default_rng(0).normal(size=(42, 3)) + 2.0 * np.eye(3)[CODES + 1]
COUNT = "14 of 42 rows"

LEARNERS: dict[str, Callable[[], Any]] = {
    "metric": lambda: nw.MetricLearner(penalty=1.0, random_state=0),
    "automatic": lambda: nw.AutoLearner(penalty=1.0, random_state=0),
    "kernel": lambda: nw.KernelLearner(penalty=1.0, random_state=0),
    "reducer": lambda: nw.KernelReducer(tol=1e-3, random_state=0),
    "fixed rank": lambda: nw.FixedRankLearner(check=False, tol=1e-3, random_state=0),
    "neighbors": lambda: nw.NeighborLearner(2, max_iter=5, check=False, random_state=0),
    "online": lambda: nw.OnlineLearner(random_state=0),
}
LABELS: dict[str, Any] = {
    "int": CODES,
    "int8": CODES.astype(np.int8),
    "float": CODES.astype(float),
    "text": CODES.astype(str),
    "bytes": CODES.astype("S"),
    "object": CODES.astype(object),
    "texts of floats": CODES.astype(float).astype(str),
    "mixed": np.where(CODES == -1, -1, CODES.astype(str).astype(object)),
    "list": CODES.tolist(),
    "pandas": pd.Series(CODES),
    "categories": pd.Series(CODES.astype(str)).astype("category"),
    "pandas Int64": pd.Series(CODES, dtype="Int64"),
    "polars": pl.Series(CODES),
    "polars texts": pl.Series(CODES.astype(str)),
}
WORDS = ["", "NA", "nan", "NaN", "null", "None", "?", "n/a"]


@crossed(learner=list(LEARNERS), labels=list(LABELS))
def test_a_class_called_minus_one_is_left_out_aloud(learner: str, labels: str) -> None:
    with pytest.warns(UserWarning, match=COUNT):
        LEARNERS[learner]().fit(ROWS, LABELS[labels])


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_score_says_so_too(learner: str) -> None:
    model = LEARNERS[learner]().fit(ROWS, CODES + 1)
    with pytest.warns(UserWarning, match=COUNT):
        model.score(ROWS, CODES)


def test_pairs_and_streams_say_so_too() -> None:
    with pytest.warns(UserWarning, match=COUNT):
        c.from_labels(CODES)
    with pytest.warns(UserWarning, match=COUNT):
        nw.OnlineLearner().partial_fit(ROWS, CODES)


@pytest.mark.parametrize("word", WORDS)
def test_texts_that_mean_a_missing_value_in_files_do_in_python(word: str) -> None:
    given = np.array([word, "a", "b"])[CODES + 1]
    with pytest.warns(UserWarning, match=COUNT):
        found = nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, given)
    expected = nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, np.where(CODES < 0, None, given))
    np.testing.assert_array_equal(found.transform(ROWS), expected.transform(ROWS))
    with pytest.warns(UserWarning, match=COUNT):
        streamed = nw.OnlineLearner().partial_fit(ROWS, given)
    known = CODES >= 0
    np.testing.assert_array_equal(
        streamed.transform(ROWS), nw.OnlineLearner().partial_fit(ROWS[known], given[known]).transform(ROWS)
    )


SILENT: dict[str, Any] = {
    "None": np.where(CODES < 0, None, CODES),
    "NaN": np.where(CODES < 0, np.nan, CODES),
    "pandas NA": pd.Series(CODES, dtype="Int64").mask(CODES < 0),
    "polars null": pl.Series([None if code < 0 else int(code) for code in CODES]),
    "renamed": np.array(["minus", "zero", "plus"])[CODES + 1],
    "other words": np.array(["Nan", "a", "b"])[CODES + 1].astype(object) + "cy",
}


@pytest.mark.parametrize("labels", SILENT)
def test_what_is_missing_or_a_class_is_no_news(labels: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, SILENT[labels])


def table(path: Path, labels: NDArray[Any]) -> None:
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(kind=labels)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_command_line_says_so_too(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table(Path(f"mood{suffix}"), CODES)
    table(Path("named.csv"), np.array(["minus", "zero", "plus"])[CODES + 1])
    learn = ["learn", f"mood{suffix}", "--labels", "kind", "--penalty", "1", "-o", "model", "--json"]
    assert cli.main(learn) == 0
    assert sum(COUNT in note for note in json.loads(capsys.readouterr().out)["notices"]) == 1
    assert cli.main(["evaluate", "model", f"mood{suffix}", "--labels", "kind"]) == 0
    printed = capsys.readouterr()
    assert COUNT in printed.out + printed.err
    assert cli.main(["evaluate", "model", "named.csv", "--labels", "kind"]) == 0
    printed = capsys.readouterr()
    assert "left out" not in printed.out + printed.err


@pytest.mark.parametrize("command", [["learn"], ["evaluate", "model"]], ids=["learn", "evaluate"])
def test_the_command_line_says_so_where_one_class_is_left(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two classes of which one is called -1, the refusal names that one too."""
    monkeypatch.chdir(tmp_path)
    nw.save(nw.Metric(np.eye(3)), "model")
    table(Path("mood.csv"), np.where(CODES < 0, "-1", "good"))
    assert cli.main([*command, "mood.csv", "--labels", "kind"]) == cli.BAD_INPUT
    assert COUNT in capsys.readouterr().err
