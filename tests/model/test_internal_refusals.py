"""Measurements are refused before anything is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise.learners import _estimator


@pytest.mark.parametrize(
    "learner",
    [nw.MetricLearner(penalty=1.0), nw.KernelLearner("linear", penalty=1.0)],
    ids=["metric", "kernel"],
)
def test_measurements_are_refused_before_any_work(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_estimator, "contest", None)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="measurements are not labels of classes"):
        learner.fit(rng.normal(size=(150, 4)), rng.standard_normal(150))
