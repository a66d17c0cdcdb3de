"""Descents that go on from each other: an interruption anywhere in them ends the run, with what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

import nearwise as nw
from nearwise.fixed_rank.driver import FixedRankResult
from nearwise.fixed_rank.geometry import Flat
from nearwise.fixed_rank.regression import Regression, vector_forms
from nearwise.fixed_rank.runs import Run

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Interrupted(Regression):
    """A cost at whose evaluation number `calls[1]` the user presses Ctrl-C; `calls[0]` counts them."""

    calls: list[float] = field(default_factory=lambda: [0, np.inf])

    def evaluate(self, factor: Array) -> tuple[float, Callable[[Array], Array]]:
        self.calls[0] += 1
        if self.calls[0] == self.calls[1]:
            raise KeyboardInterrupt
        return super().evaluate(factor)


def test_an_interruption_of_a_search_aside_ends_the_run_with_what_was_found() -> None:
    """Wherever it comes: in small steps, in descents of higher rank, at first points of further descents."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 5))
    y = np.square(X @ rng.standard_normal((5, 3))).sum(axis=1)
    start = rng.standard_normal((5, 1))
    problem = Interrupted(vector_forms(X, unit=1.0), y)
    run = Run(problem, 1e-3, None, None, negligible=1.0)
    first = run.descend(Flat(), start)
    assert first.status is nw.Status.STATIONARY

    def whole(interrupted_at: float) -> FixedRankResult:
        problem.calls[:] = [0, interrupted_at]
        return run.around(Flat(), run.by_small_steps(Flat(), start, first))

    assert whole(np.inf).status is nw.Status.STATIONARY
    n_calls = int(problem.calls[0])
    assert n_calls > 60  # the small steps, and descents of higher rank after them
    for at in (1, *range(2, n_calls, 31), n_calls):
        found = whole(at)
        assert found.status is nw.Status.INTERRUPTED, at
        assert "nterrupted" in found.message
        assert problem.calls[0] == pytest.approx(at, abs=2), "the run went on after it"
        assert found.cost <= first.cost
