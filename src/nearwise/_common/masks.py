"""Whether something holds of any or of all entries: on short arrays in a third of the time of the methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearwise._common.types import Mask


def any_true(mask: Mask) -> bool:
    """Whether some entry is true."""
    return bool(np.count_nonzero(mask))


def all_true(mask: Mask) -> bool:
    """Whether no entry is false."""
    return np.count_nonzero(mask) == mask.size


def all_finite(numbers: Any) -> bool:
    """Whether every entry is a finite number."""
    return np.count_nonzero(np.isfinite(numbers)) == numbers.size
