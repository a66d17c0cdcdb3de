"""Plots of what was learned, in the manner of scikit-learn's Display classes."""

from nearwise.show.plotting import (
    ConvergenceDisplay,
    DistanceDisplay,
    EmbeddingDisplay,
    SpectrumDisplay,
)

__all__ = [
    "ConvergenceDisplay",
    "DistanceDisplay",
    "EmbeddingDisplay",
    "SpectrumDisplay",
]
