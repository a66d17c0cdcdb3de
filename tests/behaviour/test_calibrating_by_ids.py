"""`calibrate_threshold` and `calibrate_probability` take ids and words, as constraints and pair files do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw

RNG = np.random.default_rng(0)
CLASSES = np.arange(60) % 3
X = RNG.normal(size=(60, 4)) + 2 * np.eye(4)[CLASSES]
IDS = np.array([f"q{row}" for row in RNG.permutation(60)])
PAIRS = np.array([RNG.choice(60, 2, replace=False) for _ in range(80)])
SAME = CLASSES[PAIRS[:, 0]] == CLASSES[PAIRS[:, 1]]
SIGNS = np.where(SAME, 1, -1)
METHODS = ["calibrate_threshold", "calibrate_probability"]


def said(method: str, pairs: Any, y: Any, **given: Any) -> list[float]:
    """What a learner decides, or thinks likely, after it was calibrated."""
    learner: Any = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, CLASSES)
    getattr(learner, method)(pairs, y, X, **given)
    ask = learner.predict if method == METHODS[0] else learner.predict_proba
    return np.asarray(ask(PAIRS, X), dtype=float).ravel().tolist()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ids", [IDS, np.argsort(IDS) + 1000], ids=["texts", "numbers"])
def test_pairs_are_named_by_id(method: str, ids: np.ndarray) -> None:
    assert said(method, ids[PAIRS], SIGNS, sample_ids=ids) == said(method, PAIRS, SIGNS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("words", [("same", "different"), ("yes", "no"), ("similar", "dissimilar")])
def test_answers_are_words(method: str, words: tuple[str, str]) -> None:
    assert said(method, PAIRS, np.where(SAME, *words)) == said(method, PAIRS, SIGNS)
