"""Memory that a thread uses again and again, so that none is asked for and given back for every few rows.

Dask's workers give memory back to the system at once, and asking for it anew takes longer than the products
that are written into it.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_own = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of this thread, with anything in it, until the next one of the same name is asked for."""
    kept: dict[str, NDArray[Any]] = _own.__dict__
    size, found = math.prod(shape), kept.get(name)
    if found is None or found.size < size or found.dtype != dtype:
        found = kept[name] = np.empty(size, dtype)
    return found[:size].reshape(shape)
