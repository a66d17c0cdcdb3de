"""What the tables of hostile cases say: the learners they run on, and what is expected of a case."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import nearwise as nw

N = 15
LABELS = np.arange(N) % 3
ROWS = np.random.default_rng(0).normal(size=(N, 3)) + 2.0 * np.eye(3)[LABELS]


# a fit of each takes some hundredths of a second
LEARNERS: dict[str, Callable[[], Any]] = {
    "metric": lambda: nw.MetricLearner(penalty=1.0, random_state=0),
    "von Neumann": lambda: nw.MetricLearner("vonneumann", penalty=1.0, pairs="random", random_state=0),
    "Frobenius": lambda: nw.MetricLearner("frobenius", penalty=1.0, pairs="random", random_state=0),
    "covariance": lambda: nw.MetricLearner(prior="covariance", penalty=1.0, pairs="random", random_state=0),
    "subspace": lambda: nw.MetricLearner(rank=2, basis="svd", penalty=1.0, random_state=0),
    "kernel": lambda: nw.KernelLearner(penalty=1.0, pairs="random", random_state=0),
    "reduced kernel": lambda: nw.KernelLearner(rank=5, penalty=1.0, random_state=0),
    "reducer": lambda: nw.KernelReducer(tol=1e-4, random_state=0),
    "fixed rank": lambda: nw.FixedRankLearner(rank=2, check=False, random_state=0),
    "fixed-rank kernel": lambda: nw.FixedRankLearner(
        rank=2, kernel="rbf", check=False, tol=1e-3, random_state=0
    ),
    "fixed-rank stream": lambda: nw.FixedRankLearner(
        rank=2, solver="online", epochs=1, check=False, random_state=0
    ),
    "regressor": lambda: nw.FixedRankRegressor(rank=2, tol=1e-3, max_iter=200, random_state=0),
    "automatic": lambda: nw.AutoLearner(penalty=1.0, random_state=0),
    "diagonal": lambda: nw.MetricLearner(structure="diagonal", penalty=1.0, random_state=0),
    "blocks": lambda: nw.MetricLearner(structure="blocks", groups=[[0, 2]], penalty=1.0, random_state=0),
    "neighbors": lambda: nw.NeighborLearner(2, max_iter=30, check=False, random_state=0),
    "online LogDet": lambda: nw.OnlineLearner("logdet", random_state=0),
    "online gradient": lambda: nw.OnlineLearner("exponentiated_gradient", random_state=0),
    "online POLA": lambda: nw.OnlineLearner("pola", random_state=0),
}


# fits of these take the least time: they run on every case of every table, the others where it says so
QUICK = ("subspace", "regressor", "online LogDet", "online gradient", "online POLA")


def crossed(cases: Iterable[str], with_all: Iterable[str], learners: Iterable[str] = LEARNERS) -> list[Any]:
    """Every learner with every case; but for the quick learners, only the named cases are not slow."""
    named, listed = set(with_all), list(cases)
    assert named <= set(listed), named - set(listed)
    return [
        pytest.param(learner, case, marks=() if learner in QUICK or case in named else pytest.mark.slow)
        for learner in learners
        for case in listed
    ]


@dataclass(frozen=True)
class Refused:
    """An error of this kind, whose first line this pattern matches from its beginning."""

    text: str
    kind: type[Exception] = ValueError


@dataclass(frozen=True)
class Learned:
    """A fit with finite coordinates and distances; with just the warning that the pattern matches, if any."""

    warning: str | None = None
    of: type[Warning] = nw.PriorKeptWarning


Outcome = Refused | Learned


@dataclass(frozen=True)
class Case:
    """Data, what every learner makes of them, and which learners make something else of them."""

    data: Callable[[], tuple[Any, Any]]
    expected: Outcome
    but: Mapping[str, Outcome] = field(default_factory=dict)

    def outcome_of(self, name: str) -> Outcome:
        """What one learner makes of it."""
        return self.but.get(name, self.expected)


def numbers(model: Any, X: Any) -> list[NDArray[np.float64]]:
    """All that leaves a fitted model for some rows."""
    if isinstance(model, nw.FixedRankRegressor):
        return [np.asarray(model.predict(X)), model.get_matrix()]
    coordinates = model.transform(X)
    # those of a diagonal matrix are as sparse as the data
    return [
        coordinates.toarray() if sparse.issparse(coordinates) else np.asarray(coordinates),
        model.distances(X),
    ]


def check_case(make: Callable[[], Any], X: Any, y: Any, expected: Outcome) -> Any:
    """Fit, and compare what happens with what is expected; the fitted model, if there is one."""
    model = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if isinstance(expected, Refused):
            with pytest.raises(expected.kind) as refusal:
                model.fit(X, y)
            first = str(refusal.value).splitlines()[0]
            assert re.match(expected.text, first), f"expected {expected.text!r}, got {first!r}"
            assert not [name for name in vars(model) if name in ("metric_", "result_", "factor_")]
            said = []
        else:
            model.fit(X, y)
            for found in numbers(model, X):
                assert np.isfinite(found).all()
            said = [] if expected.warning is None else [expected.warning]
    told = [str(warning.message) for warning in seen]
    assert len(told) == len(said), told
    for warning, pattern in zip(seen, said, strict=True):
        assert isinstance(expected, Learned)
        assert warning.category is expected.of, warning.message
        assert re.search(pattern, str(warning.message)), warning.message
    return model
