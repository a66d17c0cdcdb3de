"""Arguments that several named problems share."""

from __future__ import annotations

from typing import Any

from nearwise._common import reading
from nearwise._common.types import Array


def stacked(matrices: Any) -> Array:
    """The symmetric parts of m >= 1 square matrices, (m, d, d)."""
    C = reading.finite(matrices, "matrices", ndim=3)
    if C.shape[0] == 0 or C.shape[1] == 0 or C.shape[1] != C.shape[2]:
        raise ValueError(f"matrices must be square and at least one, got an array of shape {C.shape}")
    return (C + C.swapaxes(1, 2)) / 2
