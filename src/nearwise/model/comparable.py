"""Refuses rows whose bounds or costs double precision cannot weigh against prior and divergence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import RowsError
from nearwise._common.masks import all_true, any_true
from nearwise._common.types import Array, Mask
from nearwise.model.blocks import Stated
from nearwise.model.divergences import Divergence

LARGEST_CHANGE = 1e25  # of a row's value under the prior that its bound may ask for
_COMPARABLE, _SMALLEST = 1e30, 1e-300  # how much larger than the divergence a cost may be, and how small


class Weighed(NamedTuple):
    """Rows with what they are weighed by."""

    relations: NDArray[np.int8]
    definite: Mask
    sizes: Array
    bounds: Array
    penalties: Array


@np.errstate(all="ignore")
def refuse_incomparable(
    given: Weighed, divergence: Divergence, reference: Array, stated: Callable[[int], Stated]
) -> None:
    """Refuse rows beside which, in double precision, prior and divergence are nothing."""
    relations, definite, sizes, bounds, penalties = given
    magnitudes = np.abs(bounds)
    ratio = magnitudes / sizes
    is_large, is_small = ratio > LARGEST_CHANGE, ratio < 1 / LARGEST_CHANGE
    far = is_large
    if any_true(is_small):  # which asks for much only where it limits a square
        far = is_large | (is_small & definite & (bounds > 0) & (relations <= 0))
    if any_true(far) and any_true(far := far & (sizes > 0)):
        row = int(far.argmax())
        raise RowsError(
            [stated(row)],
            after=f": its bound is {ratio[row]:.0e} times its size under the prior, and double precision "
            f"bears a factor of {LARGEST_CHANGE:.0e}; is the unit of the bounds that of the features "
            "squared?",
        )
    degree = divergence.degree
    if degree is None:
        return
    unit = float(np.add.reduce(np.abs(reference)) / len(reference))
    objective = len(reference) * np.float64(unit) ** degree
    cost = penalties * np.maximum(sizes, magnitudes) ** degree
    comparable = (cost > _SMALLEST) & (cost < _COMPARABLE * objective)
    if not (_SMALLEST < objective < 1 / _SMALLEST):
        raise ValueError(
            f"the eigenvalues of the prior are about {unit:.0e}, so that {type(divergence).__name__} is "
            f"out of the range of double precision; rescale prior and bounds"
        )
    if all_true(comparable):
        return
    wrong = ~comparable & (sizes > 0) & np.isfinite(penalties)
    if any_true(wrong):
        row = int(wrong.argmax())
        raise RowsError(
            [stated(row)],
            after=f": with the penalty {penalties[row]:.3g} its slack costs about {cost[row]:.0e}, where the "
            f"divergence is about {objective:.0e}, more than double precision can weigh against each other; "
            f"divide the penalty by the scale of the features to the power of {2 * degree:g}",
        )
