"""Sets from OpenML: only when asked, and checked against what is known of them. No network is used here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets

from nearwise import datasets
from nearwise.data.openml import SOURCES, Source

Sent = dict[str, Any]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that OpenML was asked for; it sends what each set is known to be, with row numbers as values."""
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    monkeypatch.delenv(datasets.FETCH_VARIABLE, raising=False)
    names: list[str] = []

    def fetch(name: str, version: int, as_frame: bool, parser: str) -> SimpleNamespace:
        names.append(name)
        assert not as_frame
        return SimpleNamespace(**sent(next(s for s in SOURCES.values() if s.name == name)))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return names


def sent(source: Source) -> Sent:
    """As scikit-learn hands it over: numbers, labels as text, and words of coded columns by name."""
    target = [
        label
        for part in source.counts
        for label, n in zip(source.labels, part, strict=True)
        for _ in range(n)
    ]
    rows = np.arange(len(target), dtype=np.float64) % 2
    columns = [f"c{k}" for k in range(source.n_features)]
    words = {name: values.split("|")[::-1] for name, values in zip(columns, source.values, strict=False)}
    return {
        "data": np.broadcast_to(rows[:, None], (len(rows), source.n_features)),
        "target": np.array(target, dtype=object),
        "feature_names": columns,
        "categories": words or None,
    }


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_set_is_fetched_when_asked(asked: list[str], name: str) -> None:
    data, source = datasets.load(name, fetch=True), SOURCES[name]
    assert asked == [source.name]
    assert data.name == name
    assert data.X.shape == (sum(source.counts[0]), *(source.shape or (source.n_features,)))
    assert np.bincount(data.y).tolist() == list(source.counts[0])
    assert len(data.target_names) == len(source.labels)
    if len(source.counts) == 2:
        assert len(data.X_test) == sum(source.counts[1])
        assert np.bincount(data.y_test).tolist() == list(source.counts[1])
    else:
        assert data.X_test is None


def test_nothing_is_fetched_unasked(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "0", ""):
        if value is not None:
            monkeypatch.setenv(datasets.FETCH_VARIABLE, value)
        with pytest.raises(datasets.DatasetUnavailable, match="NEARWISE_FETCH=1 fetches it from OpenML"):
            datasets.load("spambase")
    monkeypatch.setenv(datasets.FETCH_VARIABLE, "1")
    with pytest.raises(datasets.DatasetUnavailable, match=r"read from spambase\.npz"):
        datasets.load("spambase", fetch=False)
    assert asked == []
    datasets.load("spambase")
    assert asked == ["spambase"]


def test_a_file_comes_before_the_network(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    np.savez(tmp_path / "spambase.npz", X=np.zeros((3, 2)), y=np.zeros(3, dtype=np.int64))
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    assert len(datasets.load("spambase", fetch=True).X) == 3
    assert asked == []


def test_a_set_that_openml_does_not_have_says_so(asked: list[str]) -> None:
    with pytest.raises(
        datasets.DatasetUnavailable, match=r"'classic3' cannot be fetched.*classic3\.jsonl\.gz"
    ):
        datasets.load("classic3", fetch=True)


def test_words_get_our_codes(asked: list[str]) -> None:
    X = datasets.load("nursery", fetch=True).X
    # 0 is OpenML's last word here, which is our first code from the end
    assert X[0].tolist() == [2, 4, 3, 3, 2, 1, 2, 2]
    assert X[1].tolist() == [1, 3, 2, 2, 1, 0, 1, 1]


def shuffled(found: Sent) -> Sent:
    return found | {"target": found["target"][::-1]}


def shortened(found: Sent) -> Sent:
    return found | {"data": found["data"][1:], "target": found["target"][1:]}


def renamed(found: Sent) -> Sent:
    return found | {"target": np.where(found["target"] == "1", "one", found["target"])}


def narrowed(found: Sent) -> Sent:
    return found | {"data": found["data"][:, 1:]}


def with_gaps(found: Sent) -> Sent:
    return found | {"data": np.where(found["data"] == 1, np.nan, found["data"])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shuffled, "of every class among rows 0 to 7290"),
        (shortened, "has 9297 rows"),
        (renamed, "has the class 'one'"),
        (narrowed, r"rows of shape \(255,\), not 256"),
        (with_gaps, "has missing values"),
    ],
)
def test_another_set_is_refused(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, change: Any, message: str
) -> None:
    found = change(sent(SOURCES["usps"]))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *_, **__: SimpleNamespace(**found))
    with pytest.raises(
        datasets.DatasetUnavailable, match=f"'usps' could not be fetched from OpenML.*{message}"
    ):
        datasets.load("usps", fetch=True)


def test_without_a_network_the_reason_is_told(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    with pytest.raises(
        datasets.DatasetUnavailable, match=r"could not be fetched from OpenML.*no route to host"
    ):
        datasets.load("mnist", fetch=True)
