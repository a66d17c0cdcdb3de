"""Figures with intervals: what a figure is before and after, and how sure that is.

An interval holds 95 % of the figure's values over 1,000 resamples of the objects or constraints, drawn with
replacement. Before and after are measured on the same resamples, so that their difference has an interval
too, usually a much narrower one than the two intervals let expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from nearwise._common.types import Array

Statistic = Callable[[Array], Array]  # (r, n) multiplicities of n objects -> r values

RESAMPLES = 1000
VERDICTS = ("better", "worse", "not clear")
UNCLEAR = f"{VERDICTS[-1]}: chance alone may explain the change"
AT_A_TIME = 2**21  # numbers in a block of multiplicities


class Interval(NamedTuple):
    """A figure and the bounds between which 95 % of the resamples lie."""

    value: float
    low: float
    high: float

    def with_zero(self) -> Interval:
        """The same, reaching to 0: what chance alone may explain."""
        return Interval(self.value, min(self.low, 0.0), max(self.high, 0.0))


@dataclass(frozen=True)
class Figure:
    """One figure before and after learning.

    Attributes
    ----------
    name : what was measured
    before, after : under the distance that the learner started from, and under the learned one
    lower_is_better : whether it is an error
    change : after - before, on the same resamples; None where that is not known
    n : objects, pairs or comparisons measured
    percent : whether `texts` shows percentages
    """

    name: str
    before: Interval
    after: Interval
    lower_is_better: bool
    change: Interval | None = None
    n: int = 0
    percent: bool = True

    def texts(self) -> tuple[str, str]:
        """Before and after as text, like "10.3 % (8.9 to 11.8)"."""
        return self._text(self.before), self._text(self.after)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: "not clear" where the change is no larger than chance explains."""
        better, worse, unclear = VERDICTS
        if self.change is None or self.change.low <= 0.0 <= self.change.high:
            return unclear
        return better if (self.change.value < 0) is self.lower_is_better else worse

    def as_json(self) -> dict[str, Any]:
        """Everything as numbers and texts."""
        parts = {"before": self.before, "after": self.after, "change": self.change}
        return {
            "name": self.name,
            **{name: None if part is None else part._asdict() for name, part in parts.items()},
            "lower_is_better": self.lower_is_better,
            "verdict": self.verdict,
            "n": self.n,
        }

    def _text(self, found: Interval) -> str:
        if self.percent:
            return f"{found.value:.1%} ({100 * found.low:.1f} to {100 * found.high:.1f})".replace("%", " %")
        return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def share(name: str, outcomes: Sequence[Array], lower_is_better: bool, seed: int) -> Figure:
    """A share of outcomes before and after, each 0 or 1."""
    n = len(outcomes[0])
    found = figure(name, [mean(part) for part in outcomes], [n], lower_is_better, seed)
    before, after = _never_certain(found.before, n), _never_certain(found.after, n)
    return replace(found, before=before, after=after, change=_tested(found.change, *outcomes))


def figure(
    name: str,
    statistics: Sequence[Statistic],
    sizes: Sequence[int],
    lower_is_better: bool,
    seed: int,
    weight_width: int = 0,
    percent: bool = True,
    largest: float = 1.0,
) -> Figure:
    """Both statistics of all objects, and of resamples of them.

    Parameters
    ----------
    name, lower_is_better, percent : as in `Figure`
    statistics : before and after, functions of the objects' multiplicities; NaN where a resample has no such
        figure
    sizes : the number of objects in each group; a resample draws as many from every group
    seed : of the resamples
    weight_width : numbers that a statistic makes of one row of multiplicities, where more than the objects
    largest : the largest value that the figure can have; the smallest is 0
    """
    n = sum(sizes)
    whole = np.ones((1, n))
    values = [float(statistic(whole)[0]) for statistic in statistics]
    rng = np.random.default_rng(seed)
    step = max(1, AT_A_TIME // max(n, weight_width))
    parts = []
    for low in range(0, RESAMPLES, step):
        weights = np.concatenate(
            [_multiplicities(size, min(step, RESAMPLES - low), rng) for size in sizes], axis=1
        )
        parts.append(np.stack([statistic(weights) for statistic in statistics]))
    drawn = np.concatenate(parts, axis=1)
    drawn = drawn[:, np.isfinite(drawn).all(axis=0)]
    old, new = (_interval(value, row, 0.0, largest) for value, row in zip(values, drawn, strict=True))
    change = _interval(values[1] - values[0], drawn[1] - drawn[0], -np.inf, np.inf)
    return Figure(name, old, new, lower_is_better, change, n, percent)


def mean(outcomes: Array) -> Statistic:
    """The mean of one number per object."""
    return lambda weights: weights @ outcomes / weights.sum(axis=1)


def _never_certain(found: Interval, n: int) -> Interval:
    """Where all n outcomes are alike so are all resamples: the exact binomial bound takes their place."""
    bound = 1.0 - 0.025 ** (1.0 / n)
    if found.value == 0.0:
        return Interval(0.0, 0.0, bound)
    return Interval(1.0, 1.0 - bound, 1.0) if found.value == 1.0 else found


def _tested(change: Interval | None, before: Array, after: Array) -> Interval | None:
    """The change, reaching to 0 where the few outcomes that changed could have done so by a coin's toss."""
    from scipy.stats import binomtest  # slow to import, and needed only here

    risen, fallen = int(np.sum(after > before)), int(np.sum(after < before))
    if change is None or (risen + fallen and binomtest(risen, risen + fallen).pvalue <= 0.05):
        return change
    return change.with_zero()


def _multiplicities(size: int, count: int, rng: np.random.Generator) -> Array:
    """How often each of `size` objects is in each of `count` samples of as many, with replacement."""
    drawn = rng.integers(size, size=(count, size)) + size * np.arange(count)[:, np.newaxis]
    return np.bincount(drawn.ravel(), minlength=count * size).reshape(count, size).astype(float)


def _interval(value: float, drawn: Array, lowest: float, highest: float) -> Interval:
    """The middle 95 % of resamples, moved by their bias: some figures, as NMI, grow where objects repeat."""
    if not len(drawn):
        return Interval(float(value), lowest, highest)
    low, middle, high = np.quantile(drawn, (0.025, 0.5, 0.975))
    # rounded, so that a change that is none is 0 and not -1e-17
    ends = [round(float(value + end - middle), 12) + 0.0 for end in (low, high)]
    low, high = (min(max(end, lowest), highest) for end in ends)
    return Interval(float(value), min(low, float(value)), max(high, float(value)))
