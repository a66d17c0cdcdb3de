"""The choice of a method: when Newton's method makes way for the interior-point method."""

from __future__ import annotations

import numpy as np

import nearwise as nw
from nearwise import constraints as c
from nearwise.solving.automatic import _is_hopeless, stages
from nearwise.solving.reduction import reduced
from nearwise.solving.result import Record


def records(gaps: list[float]) -> list[Record]:
    return [Record(k + 1, 0.0, 1.0, 1.0 - gap, gap, 0.0, 0.0, 1.0) for k, gap in enumerate(gaps)]


def test_newton_goes_on_while_its_rate_may_be_enough() -> None:
    slow, fair = [0.8 - 1e-4 * k for k in range(65)], [0.5**k for k in range(65)]
    assert _is_hopeless(records(slow[:33]), 180, 1e-6)
    assert _is_hopeless(records(slow), 180, 1e-6)
    assert not _is_hopeless(records(slow[:32]), 180, 1e-6)  # it is asked now and then
    assert not _is_hopeless(records(fair[:33]), 180, 1e-12)
    rising = [0.5] * 16 + [0.9] * 17
    assert _is_hopeless(records(rising), 180, 1e-6)


def test_the_interior_point_method_takes_over_from_newton_steps_that_stand_still() -> None:
    """Soft distances under Frobenius that ask for a matrix far from the prior: over 60 steps are allowed."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 300, (1500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    half = len(pairs) // 2
    side = c.at_most(pairs[:half], 40.0) + c.at_least(pairs[half:], 120.0)
    form = reduced(nw.Problem(rng.normal(size=(300, 40)), side, nw.Frobenius()).formulation).formulation
    newton = next(stage for stage in stages(form, 1e-6) if stage.solver == "Newton")
    assert newton.most is not None
    assert newton.most > 60
    found = []
    for point in newton.points:
        certificate = form.certificate(point)
        found.append(
            Record(len(found) + 1, 0.0, certificate.primal, certificate.dual, certificate.gap, 0.0, 0.0)
        )
        assert newton.is_slow is not None
        if newton.is_slow(found):
            break
    assert len(found) == 33
