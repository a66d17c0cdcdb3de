"""The sizes of numbers that a learner takes: those whose squared distances are floating-point numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nearwise._common.errors import RowsError
from nearwise.linalg.magnitudes import largest_entry
from nearwise.model.binding import LARGEST_CHANGE
from nearwise.model.blocks import Constraints

# The square of a distance lies between the least and the largest normal number, 2e-308 and 1.8e308.
_LARGEST = 5e153
_LEAST = 1e-153


def refuse_extreme(X: Any, name: str = "X", tiny: bool = False) -> None:
    """Refuse rows so long that the square of a distance between two may be no finite number.

    With `tiny`, also data, other than zeros, so small that the squares of all distances vanish.
    """
    size = largest_entry(X)
    if size * math.sqrt(X.shape[1]) > _LARGEST:
        raise ValueError(
            f"{name} has an entry of size {size:.3g}, and squares of distances between such rows are too "
            f"large for a floating-point number; divide {name} by a constant"
        )
    if tiny and 0.0 < size < _LEAST:
        raise ValueError(
            f"{name} has no entry above the size {size:.3g}, and squares of distances between such rows are "
            f"too small for a floating-point number; multiply {name} by a constant"
        )


def refuse_incomparable(constraints: Constraints, filled: Constraints, typical: float) -> None:
    """Refuse bounds beside which the typical squared distance of the objects is nothing.

    `constraints` are for the message; `filled` are the same rows with all their bounds.
    """
    if not typical > 0.0:
        return
    start = 0
    for block in filled.blocks:
        for low, bounds in block.bound_chunks():
            ratio = np.abs(bounds) / typical
            far = (ratio > LARGEST_CHANGE) | ((bounds != 0.0) & (ratio < 1.0 / LARGEST_CHANGE))
            if far.any():
                place = int(np.flatnonzero(far)[0])
                raise RowsError(
                    [constraints.stated(start + low + place)],
                    after=f": its bound is {ratio[place]:.0e} times the median squared distance, and double "
                    f"precision bears a factor of {LARGEST_CHANGE:.0e}; is the unit of the bounds that of "
                    "the features squared?",
                )
        start += len(block)
