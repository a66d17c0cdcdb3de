"""The names of arrays in signatures."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]  # numbers of rows, of constraints, of columns
Labels = NDArray[np.int64]  # one per row, which only says what is alike
Codes = NDArray[np.int64]  # labels as 0, 1, ... in the order of their values
Mask = NDArray[np.bool_]
Kept = dict[str, Array | Index]  # what a pass over data found, by name
Limit = Literal["time", "iterations"]  # what ended a run before it was done
