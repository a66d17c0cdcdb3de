"""What a pass over rows in pieces finds, as arrays, so that a run that goes on need not pass there again.

A solver is a sequence of passes and of small computations on what they find. Where what a pass found is known
by all that it depends on, a run that starts again takes the same way, bit by bit, and passes over data only
where the one before had not been.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Kept
from nearwise.model.pieces import Sums


def kept(sums: Sums) -> Kept:
    """As arrays."""
    numbers = [sums.total, sums.weight, sums.size, sums.residual]
    return {
        "numbers": np.array(numbers),
        "counts": np.array([sums.curved, sums.satisfied]),
        "pullback": sums.pullback,
        "curved_rows": sums.curved_rows,
        "worst_rows": np.array([row for row, _, _ in sums.worst], dtype=np.int64),
        "worst": np.array([pair for _, *pair in sums.worst]).reshape(-1, 2),
    }


def restored(arrays: Kept) -> Sums:
    """From what `kept` made of it."""
    total, weight, size, residual = map(float, arrays["numbers"])
    curved, satisfied = map(int, arrays["counts"])
    rows, pairs = arrays["worst_rows"].tolist(), arrays["worst"].tolist()
    worst = tuple((row, value, relative) for row, (value, relative) in zip(rows, pairs, strict=True))
    pullback = np.asarray(arrays["pullback"], dtype=np.float64)
    found = np.asarray(arrays["curved_rows"], dtype=np.int64)
    return Sums(total, pullback, weight, size, residual, curved, found, satisfied, worst)
