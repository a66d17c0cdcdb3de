"""LMNN (Weinberger and Saul 2009), metric-learn's."""

from __future__ import annotations

from nearwise.benchmarks._peers import Array, Labels, Map, lmnn
from nearwise.benchmarks._tables import Unavailable

__all__ = ["Unavailable", "large_margin_neighbours"]


def large_margin_neighbours(X: Array, y: Labels, seed: int) -> Map:
    """What maps rows to coordinates of the learned metric; `Unavailable` without metric-learn."""
    return lmnn(X, y, seed)
