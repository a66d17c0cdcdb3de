"""The median of numbers that count more than once."""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array

_ROUNDING = 1e-12  # relative, of a sum of weights


def median(values: Array, weights: Array | None = None) -> float:
    """`np.median` of the values, each as often as its weight says, which need not be a whole number."""
    if weights is None:  # in a fifth of the time of `np.median`
        ascending = np.sort(values)
        return float((ascending[(len(values) - 1) // 2] + ascending[len(values) // 2]) / 2)
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    half = sums[-1] / 2
    low = np.searchsorted(sums, half * (1 - _ROUNDING))
    high = np.searchsorted(sums, half * (1 + _ROUNDING), side="right")
    ascending = values[order]
    return float((ascending[low] + ascending[min(high, len(ascending) - 1)]) / 2)
