"""How large numbers are: the largest of them, and the median of those that count more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.types import Array

_FEW = 500  # values, which are sorted in less time than `np.median` takes to begin
_ROUNDING = 1e-12  # relative, of a sum of weights


def largest_entry(numbers: Any) -> float:
    """The largest magnitude of a dense or sparse array, without a copy of it."""
    entries = numbers.data if sparse.issparse(numbers) else numbers
    return max(float(np.max(entries, initial=0.0)), -float(np.min(entries, initial=0.0)))


def median(values: Array, weights: Array | None = None) -> float:
    """`np.median` of the values, each as often as its weight says, which need not be a whole number."""
    if weights is None:
        if len(values) > _FEW:
            return float(np.median(values))
        ascending = np.sort(values)  # in a fifth of the time of `np.median`
        return float((ascending[(len(values) - 1) // 2] + ascending[len(values) // 2]) / 2)
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    half = sums[-1] / 2
    low = np.searchsorted(sums, half * (1 - _ROUNDING))
    high = np.searchsorted(sums, half * (1 + _ROUNDING), side="right")
    ascending = values[order]
    return float((ascending[low] + ascending[min(high, len(ascending) - 1)]) / 2)
