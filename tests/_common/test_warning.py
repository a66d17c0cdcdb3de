"""Every warning points at the line of the user's that caused it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import constraints as c

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3))
y = np.repeat([0, 1], 20)
D = np.square(X[:, None] - X).sum(axis=2)
CAUSES: dict[str, tuple[Callable[[], Any], type[Warning]]] = {
    "no constraints": (lambda: nw.MetricLearner().fit(X), nw.PriorKeptWarning),
    "no constraints, kernel": (lambda: nw.KernelLearner().fit(X), nw.PriorKeptWarning),
    "no constraints, reducer": (lambda: nw.KernelReducer().fit(X), nw.PriorKeptWarning),
    "no constraints, online": (lambda: nw.OnlineLearner().fit(X), nw.PriorKeptWarning),
    "no constraints, fixed rank": (lambda: nw.FixedRankLearner(2).fit(X), nw.PriorKeptWarning),
    "one iteration": (lambda: nw.MetricLearner(max_iter=1, penalty=1.0).fit(X, y), ConvergenceWarning),
    "one iteration, reducer": (lambda: nw.KernelReducer(max_iter=1).fit(X, y), ConvergenceWarning),
    "one iteration, embedding": (
        lambda: nw.FixedRankEmbedding(1, max_iter=1).fit(D),
        ConvergenceWarning,
    ),
    "one class": (lambda: nw.MetricLearner().fit(X, np.zeros(40)), UserWarning),
    "signs": (lambda: nw.MetricLearner(penalty=1.0).fit(X, 2 * y - 1), UserWarning),
    "unknown ids": (
        lambda: nw.MetricLearner(penalty=1.0).fit(
            X, y, constraints=c.similar([(0, 1), (0, 99)]), sample_ids=np.arange(40)
        ),
        nw.UnknownIdsWarning,
    ),
    "in a pipeline": (
        lambda: make_pipeline(StandardScaler(), nw.MetricLearner()).fit(X),
        nw.PriorKeptWarning,
    ),
    "signs as labels of pairs": (lambda: c.from_labels(2 * y - 1), UserWarning),
    "the same object twice": (
        lambda: nw.MetricLearner(penalty=1.0).fit(
            np.concatenate([X, X[:1]]), np.append(y, 0), constraints=c.dissimilar([(0, 40)])
        ),
        nw.LeftOutWarning,
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_warning_points_here(cause: str) -> None:
    make, category = CAUSES[cause]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    assert any(issubclass(warning.category, category) for warning in caught)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.long
def test_nobody_counts_frames() -> None:
    """Warnings go through one function, which finds the user's line."""
    source = Path(nw.__file__).parent
    counted = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and any(word.arg == "stacklevel" for word in node.keywords)
    ]
    assert counted == [str(Path("_common") / "warning.py")]
