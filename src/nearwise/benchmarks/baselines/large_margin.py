"""LMNN (Weinberger and Saul 2009), metric-learn's."""

from __future__ import annotations

from nearwise._common.types import Array, Labels
from nearwise.benchmarks.baselines import Unavailable
from nearwise.benchmarks.baselines.peers import Map, lmnn

__all__ = ["Unavailable", "large_margin_neighbours"]


def large_margin_neighbours(X: Array, y: Labels, seed: int) -> Map:
    """What maps rows to coordinates of the learned metric; `Unavailable` without metric-learn."""
    return lmnn(X, y, seed)
