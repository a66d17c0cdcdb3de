"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import sys
import warnings

# The package, and what stands between it and the user: pipelines and searches, their workers, the compiler.
_INSIDE = ("nearwise", "sklearn", "joblib", "numba")


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is neither the package's own nor of the libraries around it."""
    level, frame = 2, sys._getframe(1)
    while str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
