"""What others published, for comparison: from their packages where there are some, else from the papers.

Each method gets the settings that its authors recommend.
"""

from __future__ import annotations

import importlib.util


class Unavailable(Exception):
    """A data set or a package that is compared with is missing; the message names it."""


def require(module: str, package: str) -> None:
    """Raise `Unavailable` if a package is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Unavailable(f"{package} is not installed (make bench installs it)")
