"""Certificates that a rough bound on rounding calls beyond doubt, against the same in twice the precision."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw
from benchmarks._random_problems import MODERATE, WILD, Family, draw
from nearwise.model.recheck import Recheck

TOL = 1e-6


@pytest.mark.parametrize("family", [MODERATE, WILD], ids=lambda family: family.name)
def test_what_is_beyond_doubt_holds_in_twice_the_precision(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Recheck.is_beyond_doubt
    answers: list[bool] = []

    def checked(self: Recheck, point, found, tol: float) -> bool:
        answers.append(asked(self, point, found, tol))
        if answers[-1]:
            exact, _ = self.certificate(self.problem.lift(point.factor), point.dual)
            size = max(abs(found.primal), self.form.unit)
            assert abs(exact.primal - found.primal) <= TOL * size
            assert exact.primal - exact.dual <= 2 * TOL * size
            assert exact.hard_violation <= 2 * TOL
        return answers[-1]

    monkeypatch.setattr(Recheck, "is_beyond_doubt", checked)
    for number in range(100):
        try:
            problem = draw(2026, number, family).problem()
        except ValueError:
            continue
        nw.solve(problem, tol=TOL)
    share = np.mean(answers)
    assert 0.1 < share < 0.9  # there are both kinds among them
